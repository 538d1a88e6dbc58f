/*
 * Effects for the recorder of power losses (power_shim.c), which is loaded into this program.
 *
 *     tool_power_work [--ask N] [--from N] [--count N] [--threads N] [--bytes N]
 * [--pause]
 *                     [--purge] [--quit]
 *
 * The ledger is the default one, whose directory is made. First asks for the keys below N, the
 * newest first, then has threads run effects of its own. Each answer is a mark in the recording,
 * which must hold after every power loss that comes later:
 *
 *     executed KEY          begin said execute
 *     settled KEY HASH      a commit was acknowledged, or the outcome was given
 *     seen KEY              it is recorded, and not settled
 *
 * With --pause it says "open", and waits for a line on stdin before it runs anything. With --purge
 * it purges at the end: effects of the tool "brief" may go, and have no marks.
 *
 * Exit code: 0; 69 if the ledger refused something. It ends then, with --quit without closing the
 * ledger.
 */
#include "tool.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>

static const char contract[] = "{version: 1, tools: {work: {class: write},"
                               " brief: {class: write, window: 1ms}}}";

static unsigned ask, from, count, threads = 1;
static size_t value_bytes = 400;
static bool pause_first, purge, quit;

static semel *ledger;
static atomic_uint next_key;
static atomic_bool refused;
static void (*mark_line)(const char *);

__attribute__((format(printf, 1, 2))) static void mark(const char *format, ...)
{
    char line[128];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (mark_line != NULL)
        mark_line(line);
}

static void refuse(const semel_answer *a)
{
    fprintf(stderr, "%s: %.*s\n", semel_code_name(a->code), FMT(a->message));
    atomic_store(&refused, true);
    if (quit)
        _exit(69);
}

static void settled(unsigned key, const semel_answer *a)
{
    if (a->has_outcome && a->outcome.kept)
        mark("settled %u %" PRIx64, key, hash_bytes(a->outcome.value));
}

/* From 3000 to 3999 effects are brief: they go with the next purge. */
static bool is_brief(unsigned key)
{
    return key / 1000 == 3;
}

static semel_call call_of(unsigned key, char text[16])
{
    int n = snprintf(text, 16, "%u", key);
    return (semel_call){.size = sizeof(semel_call),
                        .scope = TEXT("power"),
                        .tool = is_brief(key) ? TEXT("brief") : TEXT("work"),
                        .key = {text, (size_t)n}};
}

static void run_effect(unsigned key, semel_answer *a, char *value)
{
    char text[16];
    semel_call call = call_of(key, text);
    if (semel_begin(ledger, &call, a) != SEMEL_OK || a->verdict == SEMEL_REFUSED) {
        refuse(a);
        return;
    }
    if (a->verdict == SEMEL_REPLAY) {
        settled(key, a);
        return;
    }
    if (!is_brief(key))
        mark("executed %u", key);
    char claim[256];
    int n = snprintf(claim, sizeof claim, "%.*s", FMT(a->claim));
    int m = snprintf(value, value_bytes, "%u %ld ", key, (long)getpid());
    memset(value + m, 'x', value_bytes - (size_t)m);
    semel_outcome o = {.size = sizeof o, .value = {value, value_bytes}};
    if (semel_commit(ledger, (semel_str){claim, (size_t)n}, &o, a) != SEMEL_OK ||
        a->verdict != SEMEL_DONE)
        refuse(a);
    else if (!is_brief(key))
        mark("settled %u %" PRIx64, key, hash_bytes(o.value));
}

static void *work(void *arg)
{
    (void)arg;
    semel_answer *a = semel_answer_new();
    char *value = malloc(value_bytes);
    if (a == NULL || value == NULL)
        die("out of memory");
    for (unsigned key; (key = atomic_fetch_add(&next_key, 1)) < from + count;)
        if (!atomic_load(&refused))
            run_effect(key, a, value);
    free(value);
    semel_answer_free(a);
    return NULL;
}

static void ask_all(void)
{
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        die("out of memory");
    for (unsigned key = ask; key-- > 0;) {
        char text[16];
        semel_call call = call_of(key, text);
        semel_name name = {.size = sizeof name, .scope = call.scope, .key = call.key};
        if (is_brief(key))
            continue;
        semel_get(ledger, &name, a);
        if (a->verdict == SEMEL_REFUSED && a->code != SEMEL_C_NOT_FOUND) {
            refuse(a);
            break;
        }
        if (a->verdict == SEMEL_REPLAY)
            settled(key, a);
        else if (a->verdict == SEMEL_DONE)
            mark("seen %u", key);
    }
    semel_answer_free(a);
}

static void read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"ask", required_argument, NULL, 'a'},
        {"from", required_argument, NULL, 'f'},
        {"count", required_argument, NULL, 'n'},
        {"threads", required_argument, NULL, 't'},
        {"bytes", required_argument, NULL, 'b'},
        {"pause", no_argument, NULL, 'p'},
        {"purge", no_argument, NULL, 'g'},
        {"quit", no_argument, NULL, 'q'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        switch (c) {
        case 'a': ask = (unsigned)atoi(optarg); break;
        case 'f': from = (unsigned)atoi(optarg); break;
        case 'n': count = (unsigned)atoi(optarg); break;
        case 't': threads = (unsigned)atoi(optarg); break;
        case 'b': value_bytes = (size_t)atol(optarg); break;
        case 'p': pause_first = true; break;
        case 'g': purge = true; break;
        case 'q': quit = true; break;
        default: exit(64);
        }
    }
    if (threads == 0 || threads > 64 || value_bytes < 64)
        die("usage: tool_power_work [--ask N] [--from N] [--count N] ...");
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    *(void **)&mark_line = dlsym(RTLD_DEFAULT, "power_mark");
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o, .actor = TEXT("test"), .contract = text_of(contract)};
    if (semel_open(&o, &ledger, &fault) != SEMEL_OK) {
        fprintf(stderr, "%s\n", fault.text);
        return 69;
    }
    char line[64];
    if (pause_first &&
        (puts("open") < 0 || fflush(stdout) != 0 || fgets(line, sizeof line, stdin) == NULL))
        die("nobody said to go on");
    ask_all();
    atomic_store(&next_key, from);
    pthread_t each[64];
    for (unsigned i = 0; i < threads; i++)
        if (pthread_create(&each[i], NULL, work, NULL) != 0)
            die("a thread could not be started");
    for (unsigned i = 0; i < threads; i++)
        pthread_join(each[i], NULL);
    uint64_t done;
    if (purge && semel_purge(ledger, NULL, NULL, &done, &fault) != SEMEL_OK)
        atomic_store(&refused, true);
    semel_close(ledger);
    return atomic_load(&refused) ? 69 : 0;
}
