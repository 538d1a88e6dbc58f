/*
 * An MCP client that measures: what benchmarks/mcp is made of.
 *
 *   mcp-client LOADS MS URL              a server over Streamable HTTP
 *   mcp-client LOADS MS -- COMMAND...    a server over standard streams
 *   mcp-client --commits MS FILE         4 KiB appended and synced: one durable commit
 *   mcp-client --effects MS LEDGER       begin and commit through the C API
 *
 * LOADS are words with commas between them:
 *
 *   read     calls of a tool that only reads, passed on
 *   fresh    calls of a tool that writes, about another order each
 *   replay   one such call again and again, which was made before
 *   direct   as fresh, with nothing between client and server
 *
 * Each load is measured for MS milliseconds with one call after another, then for as long with 64
 * in flight. It prints a line: the load, p50 and p99 of the former in microseconds, and the
 * latter's calls a second (of --commits and --effects, those of one after another). Every answer is
 * looked at: a fresh call that is replayed, or a replay that runs, ends the benchmark.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "mcp_wire.h"
#include "measure.h"

#define SAMPLES_MAX ((size_t)1 << 18)
#define WARM_UP     32
#define APPEND      4096

static double samples[SAMPLES_MAX]; /* nanoseconds */

typedef struct client {
    bench_wire *wire;
    const char *tool;
    bool equal;    /* all calls are of one order */
    bool replayed; /* and answered from the record */
    unsigned id;
    uint64_t first, next; /* orders: nobody else has the same */
    size_t in_flight;
} client;

static void print_line(const char *name, size_t n, double rate)
{
    printf("%s %.2f %.2f %.1f\n", name, bench_quantile(samples, n, 0.5) / 1e3,
           bench_quantile(samples, n, 0.99) / 1e3, rate);
}

/* ---- calls -----------------------------------------------------------------------------------*/

static void on_answer(void *context, const char *text)
{
    client *c = context;
    bench_must(strstr(text, "\"result\":") != NULL && strstr(text, "\"isError\":true") == NULL,
               text);
    bench_must((strstr(text, "\"semel/replayed\":true") != NULL) == c->replayed,
               c->replayed ? "a call that was made before ran again" : "a fresh call was replayed");
    c->in_flight--;
}

static void send_call(client *c)
{
    char text[512];
    uint64_t order = c->equal ? c->first : c->next++;
    int n = snprintf(
        text, sizeof text,
        "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"tools/call\",\"params\":{\"name\":\"%s\","
        "\"arguments\":{\"order\":%ju,\"amount\":1000,\"currency\":\"usd\","
        "\"customer\":\"cus_9s6XKzkNRiz8i3\",\"description\":\"Order 123\",\"lines\":[{\"sku\":"
        "\"A1\",\"qty\":2,\"price\":9.99},{\"sku\":\"B2\",\"qty\":1,\"price\":19.5}]}}}",
        ++c->id, c->tool, (uintmax_t)order);
    c->in_flight++;
    c->wire->send(c->wire, text, (size_t)n);
}

static void await(client *c)
{
    while (c->in_flight > 0)
        c->wire->take(c->wire, on_answer, c);
}

static void shake_hands(client *c)
{
    static const char hello[] =
        "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"
        "\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"bench\",\"version\":\"1\"}}}";
    static const char done[] = "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}";
    c->in_flight++;
    c->wire->send(c->wire, hello, sizeof hello - 1);
    await(c);
    c->wire->notify(c->wire, done, sizeof done - 1);
}

/* One after another. Returns how many there were. */
static size_t take_turns(client *c, double slice_ns)
{
    size_t n = 0;
    double now = bench_now_ns(), end = now + slice_ns;
    while (now < end && n < SAMPLES_MAX) {
        double start = now;
        send_call(c);
        await(c);
        now = bench_now_ns();
        samples[n++] = now - start;
    }
    return n;
}

/* Calls a second, with as many in flight as may be. */
static double crowd(client *c, double slice_ns)
{
    unsigned before = c->id;
    double start = bench_now_ns();
    while (bench_now_ns() - start < slice_ns) {
        while (c->in_flight < BENCH_IN_FLIGHT)
            send_call(c);
        c->wire->take(c->wire, on_answer, c);
    }
    await(c);
    return (c->id - before) * 1e9 / (bench_now_ns() - start);
}

static void measure_load(client *c, const char *load, double slice_ns)
{
    bool reads = strcmp(load, "read") == 0, replays = strcmp(load, "replay") == 0;
    bench_must(reads || replays || strcmp(load, "fresh") == 0 || strcmp(load, "direct") == 0,
               "the loads are: read, fresh, replay, direct");
    c->tool = reads ? "look" : "charge";
    c->equal = replays;
    for (int i = 0; i < WARM_UP; i++) {
        c->replayed = replays && i > 0;
        send_call(c);
        await(c);
    }
    size_t n = take_turns(c, slice_ns);
    print_line(load, n, crowd(c, slice_ns));
    c->replayed = false;
}

static void measure_calls(char *loads, double slice_ns, char **target)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    client c = {.first = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000};
    c.next = c.first + 1; /* far fewer than one in a microsecond are made */
    c.wire =
        strcmp(target[0], "--") == 0 ? bench_wire_spawn(target + 1) : bench_wire_dial(target[0]);
    shake_hands(&c);
    char *rest = NULL;
    for (char *load = strtok_r(loads, ",", &rest); load != NULL; load = strtok_r(NULL, ",", &rest))
        measure_load(&c, load, slice_ns);
    c.wire->close(c.wire);
}

/* ---- what stands beside them -----------------------------------------------------------------*/

static void measure_commits(const char *path, double slice_ns)
{
    static const char page[APPEND];
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    bench_must(fd >= 0, "cannot make a file");
    size_t n = 0;
    double first = bench_now_ns(), now = first;
    while (now - first < slice_ns && n < SAMPLES_MAX) {
        double start = now;
        bench_must(write(fd, page, sizeof page) == sizeof page, "cannot write to the disk");
        bench_must(fdatasync(fd) == 0, "cannot sync the disk");
        now = bench_now_ns();
        samples[n++] = now - start;
    }
    close(fd);
    print_line("commit", n, (double)n * 1e9 / (now - first));
}

static void measure_effects(const char *url, double slice_ns)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .actor = {"bench", 5}};
    bench_must(semel_open(&o, &s, &fault) == SEMEL_OK, fault.text);
    semel_answer *a = semel_answer_new();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t order = (uint64_t)wall.tv_sec * 1000000 + (uint64_t)wall.tv_nsec / 1000;
    size_t n = 0;
    double first = bench_now_ns(), now = first;
    while (now - first < slice_ns && n < SAMPLES_MAX) {
        double start = now;
        bench_effect(s, a, order++, NULL);
        now = bench_now_ns();
        samples[n++] = now - start;
    }
    print_line("effect", n, (double)n * 1e9 / (now - first));
    semel_answer_free(a);
    semel_close(s);
}

int main(int argc, char **argv)
{
    double slice_ns = argc > 2 ? atof(argv[2]) * 1e6 : 0;
    if (argc < 4 || slice_ns <= 0 || (strcmp(argv[3], "--") == 0 && argc < 5)) {
        fprintf(stderr, "usage: mcp-client LOADS MS URL | LOADS MS -- COMMAND... |\n"
                        "       mcp-client --commits MS FILE | --effects MS LEDGER\n");
        return 64;
    }
    if (strcmp(argv[1], "--commits") == 0)
        measure_commits(argv[3], slice_ns);
    else if (strcmp(argv[1], "--effects") == 0)
        measure_effects(argv[3], slice_ns);
    else
        measure_calls(argv[1], slice_ns, argv + 3);
    return 0;
}
