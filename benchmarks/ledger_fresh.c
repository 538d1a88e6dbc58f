/*
 * Durable effects: begin and commit, both synced, by several callers at once. Beside them what the
 * disk does with nothing around it: append 4 KiB, fdatasync. All take turns in short slices.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ledger.h"
#include "measure.h"

#define ROUNDS      7
#define SLICE_NS    0.7e9
#define CALLERS_MAX 64
#define APPEND      4096

typedef struct crowd {
    semel *s;
    atomic_bool stop;
    atomic_uint_fast64_t next, done;
} crowd;

static void *call_on(void *context)
{
    crowd *c = context;
    semel_answer *a = semel_answer_new();
    while (!atomic_load_explicit(&c->stop, memory_order_relaxed)) {
        bench_effect(c->s, a, atomic_fetch_add(&c->next, 1), NULL);
        atomic_fetch_add(&c->done, 1);
    }
    semel_answer_free(a);
    return NULL;
}

/* Effects per second of so many callers, over one slice. */
static double effects_rate(crowd *c, int callers)
{
    pthread_t threads[CALLERS_MAX];
    atomic_store(&c->stop, false);
    atomic_store(&c->done, 0);
    double start = bench_now_ns();
    for (int i = 0; i < callers; i++)
        bench_must(pthread_create(&threads[i], NULL, call_on, c) == 0, "cannot start a thread");
    usleep((useconds_t)(SLICE_NS / 1000));
    atomic_store(&c->stop, true);
    for (int i = 0; i < callers; i++)
        pthread_join(threads[i], NULL);
    return (double)atomic_load(&c->done) * 1e9 / (bench_now_ns() - start);
}

/* Bare appends per second, over one slice. */
static double disk_rate(int fd)
{
    static const char page[APPEND];
    double start = bench_now_ns(), spent = 0;
    int n = 0;
    for (; spent < SLICE_NS; n++) {
        bench_must(write(fd, page, sizeof page) == sizeof page, "cannot write to the disk");
        bench_must(fdatasync(fd) == 0, "cannot sync the disk");
        spent = bench_now_ns() - start;
    }
    return n * 1e9 / spent;
}

void bench_fresh(const bench_options *o)
{
    static const int callers[] = {1, 8, 64};
    enum { CROWDS = sizeof callers / sizeof callers[0] };
    double disk[ROUNDS], rate[CROWDS][ROUNDS], ratio[CROWDS][ROUNDS];
    char path[PATH_MAX], name[64];
    bench_path(o, "disk", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    bench_must(fd >= 0, "cannot make a file");
    crowd c = {.s = bench_open(o, "fresh.db")};
    bench_title(o, "fresh: begin and commit, both durable, beside append 4 KiB + fdatasync");
    for (int round = 0; round < ROUNDS; round++) {
        disk[round] = disk_rate(fd);
        for (int i = 0; i < CROWDS; i++) {
            rate[i][round] = effects_rate(&c, callers[i]);
            ratio[i][round] = rate[i][round] / disk[round];
        }
    }
    semel_close(c.s);
    close(fd);
    bench_figure(o, "disk_fdatasync", bench_quantile(disk, ROUNDS, 0.5), "1/s");
    for (int i = 0; i < CROWDS; i++) {
        snprintf(name, sizeof name, "fresh_%d_callers", callers[i]);
        bench_figure(o, name, bench_quantile(rate[i], ROUNDS, 0.5), "effects/s");
        snprintf(name, sizeof name, "fresh_%d_callers/fdatasync", callers[i]);
        bench_figure(o, name, bench_quantile(ratio[i], ROUNDS, 0.5), "x");
    }
    bench_target(o, "at least 3 effects per fdatasync with 64 callers");
}
