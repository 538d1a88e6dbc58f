/*
 * One kind of load on one ledger, for a while, from this process: what the stores' benchmark is
 * made of. It prints one figure a line, "NAME VALUE UNIT".
 *
 *   store-load URL fresh CALLERS SECONDS    begin and commit of new calls
 *   store-load URL replay CALLERS SECONDS   begin of calls that are settled
 *   store-load URL count EFFECTS CONTRACT   begin and commit of so many new calls, by one caller,
 * in one run that a budget may hold for store-load URL wake ROUNDS              from one process's
 * commit to another one's outcome store-load statements SCHEMA            what Postgres is sent for
 * one effect, for pgbench
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"
#include "measure.h"
#include "store_statements.h"

#define CALLERS_MAX 256
#define SETTLED     1000u
#define ROUNDS_MAX  1000
#define PAUSE_US    8000 /* until the second caller surely waits */

typedef struct load {
    semel *s;
    bool replays;
    atomic_bool stop;
    atomic_uint_fast64_t next, done;
} load;

static semel *open_with(const char *url, const char *contract)
{
    semel *s = NULL;
    semel_fault fault = {0};
    semel_options o = {.size = sizeof o,
                       .url = url,
                       .actor = {"bench", 5},
                       .contract = {contract, contract == NULL ? 0 : strlen(contract)}};
    bench_must(semel_open(&o, &s, &fault) == SEMEL_OK, fault.text);
    return s;
}

static semel *open_ledger(const char *url)
{
    return open_with(url, NULL);
}

/* What a server was asked for them, its own counters say. */
static void count(const char *url, int effects, const char *contract)
{
    semel *s = open_with(url, contract);
    semel_answer *a = semel_answer_new();
    uint64_t first = 700000000 + (uint64_t)getpid() * 1000;
    for (int i = 0; i < effects; i++)
        bench_effect(s, a, first + (uint64_t)i, NULL);
    semel_answer_free(a);
    semel_close(s);
}

static void *call_on(void *context)
{
    load *l = context;
    semel_answer *a = semel_answer_new();
    char args[BENCH_ARGS_MAX];
    while (!atomic_load_explicit(&l->stop, memory_order_relaxed)) {
        uint64_t n = atomic_fetch_add(&l->next, 1);
        if (l->replays) {
            semel_call call = bench_order(n % SETTLED, args);
            semel_begin(l->s, &call, a);
            bench_must(a->verdict == SEMEL_REPLAY, "a settled call was not replayed");
        } else {
            bench_effect(l->s, a, n, NULL);
        }
        atomic_fetch_add(&l->done, 1);
    }
    semel_answer_free(a);
    return NULL;
}

/* Calls per second of so many callers. */
static double rate(load *l, int callers, double seconds)
{
    static pthread_t threads[CALLERS_MAX];
    atomic_store(&l->stop, false);
    atomic_store(&l->done, 0);
    double start = bench_now_ns();
    for (int i = 0; i < callers; i++)
        bench_must(pthread_create(&threads[i], NULL, call_on, l) == 0, "cannot start a thread");
    struct timespec nap = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&nap, NULL);
    atomic_store(&l->stop, true);
    for (int i = 0; i < callers; i++)
        pthread_join(threads[i], NULL);
    return (double)atomic_load(&l->done) * 1e9 / (bench_now_ns() - start);
}

static void calls(const char *url, bool replays, int callers, double seconds)
{
    load l = {.s = open_ledger(url), .replays = replays};
    if (replays) {
        semel_answer *a = semel_answer_new();
        char args[BENCH_ARGS_MAX];
        for (uint64_t n = 0; n < SETTLED; n++) {
            semel_call call = bench_order(n, args);
            semel_begin(l.s, &call, a);
            semel_outcome outcome = bench_outcome();
            if (a->verdict == SEMEL_EXECUTE)
                semel_commit(l.s, a->claim, &outcome, a);
        }
        semel_answer_free(a);
    } else {
        atomic_store(&l.next, 1000000 + (uint64_t)getpid() * 10000000);
    }
    printf("rate %.1f 1/s\n", rate(&l, callers, seconds));
    semel_close(l.s);
}

/* ---- waking ----------------------------------------------------------------------------------*/

static void wait_for_orders(const char *url, int orders, int times)
{
    semel *s = open_ledger(url);
    semel_answer *a = semel_answer_new();
    char args[BENCH_ARGS_MAX];
    uint64_t n;
    while (read(orders, &n, sizeof n) == sizeof n) {
        semel_call call = bench_order(n, args);
        call.wait_ms = 10000;
        semel_begin(s, &call, a);
        double at = bench_now_ns();
        bench_must(a->verdict == SEMEL_REPLAY, "the second caller did not get the outcome");
        bench_must(write(times, &at, sizeof at) == sizeof at, "cannot write to a pipe");
    }
    semel_answer_free(a);
    semel_close(s);
}

static void wake(const char *url, int rounds)
{
    static double ns[ROUNDS_MAX];
    int to[2], from[2];
    bench_must(pipe(to) == 0 && pipe(from) == 0, "cannot make a pipe");
    pid_t child = fork();
    bench_must(child >= 0, "cannot start a process");
    if (child == 0) {
        close(to[1]);
        wait_for_orders(url, to[0], from[1]);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    semel *s = open_ledger(url);
    semel_answer *a = semel_answer_new(), *done = semel_answer_new();
    semel_outcome outcome = bench_outcome();
    char args[BENCH_ARGS_MAX];
    uint64_t first = 500000000 + (uint64_t)getpid() * 1000;
    for (int i = 0; i < rounds; i++) {
        uint64_t n = first + (uint64_t)i;
        semel_call call = bench_order(n, args);
        semel_begin(s, &call, a);
        bench_must(a->verdict == SEMEL_EXECUTE, "a fresh call did not run");
        bench_must(write(to[1], &n, sizeof n) == sizeof n, "cannot write to a pipe");
        usleep(PAUSE_US);
        semel_commit(s, a->claim, &outcome, done);
        double committed = bench_now_ns(), had;
        bench_must(read(from[0], &had, sizeof had) == sizeof had, "the second caller is gone");
        ns[i] = had > committed ? had - committed : 0;
    }
    printf("wake_p50 %.1f us\n", bench_quantile(ns, (size_t)rounds, 0.5) / 1e3);
    printf("wake_worst %.1f us\n", bench_quantile(ns, (size_t)rounds, 1) / 1e3);
    close(to[1]);
    waitpid(child, NULL, 0);
    semel_answer_free(done);
    semel_answer_free(a);
    semel_close(s);
}

int main(int argc, char **argv)
{
    int many = argc >= 4 ? atoi(argv[3]) : 0;
    bool fresh = argc == 5 && strcmp(argv[2], "fresh") == 0;
    if ((fresh || (argc == 5 && strcmp(argv[2], "replay") == 0)) && many >= 1 &&
        many <= CALLERS_MAX) {
        calls(argv[1], !fresh, many, atof(argv[4]));
        return 0;
    }
    if (argc == 5 && strcmp(argv[2], "count") == 0 && many >= 1) {
        count(argv[1], many, argv[4]);
        return 0;
    }
    if (argc == 4 && strcmp(argv[2], "wake") == 0 && many >= 1 && many <= ROUNDS_MAX) {
        wake(argv[1], many);
        return 0;
    }
    if (argc == 3 && strcmp(argv[1], "statements") == 0) {
        bench_statements(stdout, argv[2]);
        return 0;
    }
    fputs("usage: store-load URL fresh|replay CALLERS SECONDS | URL wake ROUNDS |\n"
          "       store-load URL count EFFECTS CONTRACT |\n"
          "       store-load statements SCHEMA\n",
          stderr);
    return 64;
}
