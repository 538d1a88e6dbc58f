/*
 * An MCP client that measures: what benchmarks/mcp is made of.
 *
 *   mcp-client [--beside DIRECTORY] LOADS MS URL              a server over Streamable HTTP
 *   mcp-client [--beside DIRECTORY] LOADS MS -- COMMAND...    a server over standard streams
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
 * latter's calls a second. Every answer is looked at: a fresh call that is replayed, or a replay
 * that runs, ends the benchmark.
 *
 * With --beside, each fresh call of those one after another is followed by two others, in files of
 * their own in that directory: `commit`, 4 KiB appended and synced, and `effect`, begin and commit
 * through the C API. A disk that others use is slow for a second and fast for the next, so what is
 * to be compared has to be as close as this. They have lines of their own, without a rate.
 */
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
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

typedef struct series {
    size_t n;
    double ns[SAMPLES_MAX];
} series;

static series calls, commits, effects;

/* What stands beside the calls. */
typedef struct beside {
    int disk;
    semel *ledger;
    semel_answer *answer;
    uint64_t order;
} beside;

typedef struct client {
    bench_wire *wire;
    const char *tool;
    bool equal;    /* all calls are of one order */
    bool replayed; /* and answered from the record */
    unsigned id;
    uint64_t first, next; /* orders: nobody else has the same */
    size_t in_flight;
    beside *beside; /* NULL: nothing */
} client;

/* Notes what began at *now, and sets that to the time of its end. */
static void note(series *v, double *now)
{
    double end = bench_now_ns();
    if (v->n < SAMPLES_MAX)
        v->ns[v->n++] = end - *now;
    *now = end;
}

static void print_series(const char *name, series *v, double rate)
{
    printf("%s %.2f %.2f %.1f\n", name, bench_quantile(v->ns, v->n, 0.5) / 1e3,
           bench_quantile(v->ns, v->n, 0.99) / 1e3, rate);
    v->n = 0;
}

/* Orders begin with the time in microseconds: far fewer are made in one, so that nobody makes the
 * same again. */
static uint64_t first_order(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- what stands beside ----------------------------------------------------------------------*/

static void beside_open(beside *b, const char *directory)
{
    char path[PATH_MAX], url[PATH_MAX + 8];
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .url = url, .actor = {"bench", 5}};
    snprintf(path, sizeof path, "%s/disk", directory);
    snprintf(url, sizeof url, "sqlite:%s/effects.db", directory);
    b->disk = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    bench_must(b->disk >= 0, "cannot make a file");
    bench_must(semel_open(&o, &b->ledger, &fault) == SEMEL_OK, fault.text);
    b->answer = semel_answer_new();
    b->order = first_order();
}

static void beside_close(beside *b)
{
    semel_answer_free(b->answer);
    semel_close(b->ledger);
    close(b->disk);
}

static void beside_run(beside *b, double *now)
{
    static const char page[APPEND];
    bench_must(write(b->disk, page, sizeof page) == sizeof page && fdatasync(b->disk) == 0,
               "cannot write to the disk");
    note(&commits, now);
    bench_effect(b->ledger, b->answer, b->order++, NULL);
    note(&effects, now);
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

/* One after another. */
static void take_turns(client *c, double slice_ns, beside *others)
{
    double now = bench_now_ns(), end = now + slice_ns;
    while (now < end) {
        send_call(c);
        await(c);
        note(&calls, &now);
        if (others != NULL)
            beside_run(others, &now);
    }
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
    bool aside = c->beside != NULL && strcmp(load, "fresh") == 0;
    take_turns(c, slice_ns, aside ? c->beside : NULL);
    print_series(load, &calls, crowd(c, slice_ns));
    c->replayed = false;
    if (!aside)
        return;
    print_series("commit", &commits, 0);
    print_series("effect", &effects, 0);
}

static void measure(char *loads, double slice_ns, char **target, const char *directory)
{
    beside others = {0};
    client c = {.first = first_order()};
    c.next = c.first + 1;
    if (directory != NULL) {
        beside_open(&others, directory);
        c.beside = &others;
    }
    c.wire =
        strcmp(target[0], "--") == 0 ? bench_wire_spawn(target + 1) : bench_wire_dial(target[0]);
    shake_hands(&c);
    char *rest = NULL;
    for (char *load = strtok_r(loads, ",", &rest); load != NULL; load = strtok_r(NULL, ",", &rest))
        measure_load(&c, load, slice_ns);
    c.wire->close(c.wire);
    if (directory != NULL)
        beside_close(&others);
}

int main(int argc, char **argv)
{
    const char *directory = NULL;
    if (argc > 2 && strcmp(argv[1], "--beside") == 0) {
        directory = argv[2];
        argc -= 2;
        argv += 2;
    }
    double slice_ns = argc > 2 ? atof(argv[2]) * 1e6 : 0;
    if (argc < 4 || slice_ns <= 0 || (strcmp(argv[3], "--") == 0 && argc < 5)) {
        fprintf(stderr, "usage: mcp-client [--beside DIRECTORY] LOADS MS URL | LOADS MS -- "
                        "COMMAND...\n");
        return 64;
    }
    signal(SIGPIPE, SIG_IGN); /* a server that has ended is told of, and not died of */
    measure(argv[1], slice_ns, argv + 3, directory);
    return 0;
}
