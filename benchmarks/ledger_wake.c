/*
 * Waking: a second caller of a running effect waits; how long after the first one's commit has
 * returned does it have the outcome? In the same process, and in another one that has the same file
 * open. A waiter that has it before commit has returned counts as 0.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ledger.h"
#include "measure.h"

#define ROUNDS   200
#define PAUSE_US 5000 /* until the second caller surely waits */
#define WAIT_MS  10000

/* Asks for an effect that somebody else runs, and says when the outcome was there. */
static double wait_for(semel *s, semel_answer *a, uint64_t n)
{
    char args[BENCH_ARGS_MAX];
    semel_call call = bench_order(n, args);
    call.wait_ms = WAIT_MS;
    semel_begin(s, &call, a);
    double now = bench_now_ns();
    bench_must(a->verdict == SEMEL_REPLAY, "the second caller did not get the outcome");
    return now;
}

/* The second caller, as two pipes: it reads the number of an effect and writes when it had it. */
typedef struct second {
    int orders, times;
} second;

static void serve(semel *s, int orders, int times)
{
    semel_answer *a = semel_answer_new();
    uint64_t n;
    while (read(orders, &n, sizeof n) == sizeof n) {
        double at = wait_for(s, a, n);
        bench_must(write(times, &at, sizeof at) == sizeof at, "cannot write to a pipe");
    }
    semel_answer_free(a);
}

int bench_waiter(const char *path)
{
    bench_options o = {0};
    snprintf(o.dir, sizeof o.dir, "%.*s", (int)sizeof o.dir - 1, path);
    semel *s = bench_open(&o, "wake.db");
    serve(s, STDIN_FILENO, STDOUT_FILENO);
    semel_close(s);
    return 0;
}

static void measure(const bench_options *o, semel *s, second *who, uint64_t first,
                    const char *label)
{
    double ns[ROUNDS];
    char args[BENCH_ARGS_MAX], name[64];
    semel_answer *a = semel_answer_new(), *done = semel_answer_new();
    semel_outcome outcome = bench_outcome();
    for (uint64_t i = 0; i < ROUNDS; i++) {
        uint64_t n = first + i;
        semel_call call = bench_order(n, args);
        semel_begin(s, &call, a);
        bench_must(a->verdict == SEMEL_EXECUTE, "a fresh call did not run");
        bench_must(write(who->orders, &n, sizeof n) == sizeof n, "cannot write to a pipe");
        usleep(PAUSE_US);
        semel_commit(s, a->claim, &outcome, done);
        double committed = bench_now_ns(), had;
        bench_must(read(who->times, &had, sizeof had) == sizeof had, "the second caller is gone");
        ns[i] = had > committed ? had - committed : 0;
    }
    snprintf(name, sizeof name, "wake_%s_p50", label);
    bench_figure(o, name, bench_quantile(ns, ROUNDS, 0.5) / 1e3, "us");
    snprintf(name, sizeof name, "wake_%s_worst", label);
    bench_figure(o, name, bench_quantile(ns, ROUNDS, 1) / 1e3, "us");
    semel_answer_free(done);
    semel_answer_free(a);
}

typedef struct local {
    semel *s;
    int orders, times;
} local;

static void *serve_locally(void *context)
{
    local *l = context;
    serve(l->s, l->orders, l->times);
    return NULL;
}

static void same_process(const bench_options *o, const char *file, const char *label)
{
    int to[2], from[2];
    bench_must(pipe(to) == 0 && pipe(from) == 0, "cannot make a pipe");
    local l = {bench_open(o, file), to[0], from[1]};
    pthread_t thread;
    bench_must(pthread_create(&thread, NULL, serve_locally, &l) == 0, "cannot start a thread");
    measure(o, l.s, &(second){to[1], from[0]}, 0, label);
    close(to[1]);
    pthread_join(thread, NULL);
    close(to[0]);
    close(from[0]);
    close(from[1]);
    semel_close(l.s);
}

static void other_process(const bench_options *o)
{
    int to[2], from[2];
    bench_must(pipe(to) == 0 && pipe(from) == 0, "cannot make a pipe");
    pid_t child = fork();
    bench_must(child >= 0, "cannot start a process");
    if (child == 0) {
        dup2(to[0], STDIN_FILENO);
        dup2(from[1], STDOUT_FILENO);
        close(to[1]);
        close(from[0]);
        execl("/proc/self/exe", "bench-ledger", "--waiter", o->dir, (char *)NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    semel *s = bench_open(o, "wake.db");
    measure(o, s, &(second){to[1], from[0]}, ROUNDS, "across_processes");
    close(to[1]);
    close(from[0]);
    waitpid(child, NULL, 0);
    semel_close(s);
}

void bench_wake(const bench_options *o)
{
    bench_title(o, "wake: from the first caller's commit to the second one's outcome");
    same_process(o, NULL, "memory");
    same_process(o, "wake.db", "sqlite");
    other_process(o);
    bench_target(o, "below 1 ms in one process, below 10 ms across processes");
}
