/*
 * A small and a large ledger, open at once: how long a fresh begin takes, the two taking turns, and
 * how many bytes an effect takes on the disk.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ledger.h"
#include "measure.h"

#define SMALL        100000u
#define LARGE        1000000u
#define FULL         10000000u
#define FILLERS      256 /* callers at once: the more there are, the more share one sync */
#define FILLER_STACK ((size_t)256 << 10)
#define BEGINS       3000u /* timed, on each ledger */

/* ---- filling ---------------------------------------------------------------------------------*/

typedef struct filling {
    semel *s;
    uint64_t total;
    atomic_uint_fast64_t next;
} filling;

static void *fill_on(void *context)
{
    filling *f = context;
    semel_answer *a = semel_answer_new();
    for (uint64_t n; (n = atomic_fetch_add(&f->next, 1)) < f->total;) {
        bench_effect(f->s, a, n, NULL);
        if (n % 10000 == 0 && isatty(STDERR_FILENO))
            fprintf(stderr, "\rfilling: %llu of %llu effects", (unsigned long long)n,
                    (unsigned long long)f->total);
    }
    semel_answer_free(a);
    return NULL;
}

static void fill(semel *s, uint64_t total)
{
    filling f = {.s = s, .total = total};
    pthread_t threads[FILLERS];
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, FILLER_STACK);
    for (int i = 0; i < FILLERS; i++)
        bench_must(pthread_create(&threads[i], &attr, fill_on, &f) == 0, "cannot start a thread");
    for (int i = 0; i < FILLERS; i++)
        pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attr);
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%60s\r", "");
}

/* ---- measuring -------------------------------------------------------------------------------*/

static double file_bytes(const bench_options *o, const char *name, const char *tail)
{
    char path[PATH_MAX];
    bench_path(o, name, path);
    strncat(path, tail, sizeof path - strlen(path) - 1);
    struct stat st;
    return stat(path, &st) == 0 ? (double)st.st_size : 0;
}

/* What callers gave and got back, of one effect. */
static double payload_bytes(void)
{
    char args[BENCH_ARGS_MAX];
    semel_call call = bench_order(1, args);
    return (double)(call.scope.n + call.tool.n + call.args.n + bench_outcome().value.n);
}

static void time_begins(semel *const s[2], const uint64_t first[2], double *ns[2])
{
    semel_answer *a = semel_answer_new();
    for (uint32_t n = 0; n < BEGINS; n++) {
        for (int i = 0; i < 2; i++)
            bench_effect(s[i], a, first[i] + n, &ns[i][n]);
    }
    semel_answer_free(a);
}

void bench_size(const bench_options *o)
{
    static const char *const names[2] = {"small.db", "large.db"};
    const uint64_t sizes[2] = {SMALL, o->full ? FULL : LARGE};
    const char *const labels[2] = {"100k", o->full ? "10m" : "1m"};
    char name[64];
    semel *s[2];
    double *ns[2], bytes[2], p50[2], p99[2];
    bench_title(o, "size: a fresh begin by one caller, in a small and a large ledger");
    for (int i = 0; i < 2; i++) {
        s[i] = bench_open(o, names[i]);
        ns[i] = calloc(BEGINS, sizeof *ns[i]);
        bench_must(ns[i] != NULL, "out of memory");
        double start = bench_now_ns();
        fill(s[i], sizes[i]);
        snprintf(name, sizeof name, "fill_%s_%d_callers", labels[i], FILLERS);
        bench_figure(o, name, (double)sizes[i] * 1e9 / (bench_now_ns() - start), "effects/s");
        bytes[i] = file_bytes(o, names[i], "") + file_bytes(o, names[i], "-wal");
    }
    time_begins(s, sizes, ns);
    for (int i = 0; i < 2; i++) {
        p50[i] = bench_quantile(ns[i], BEGINS, 0.5);
        p99[i] = bench_quantile(ns[i], BEGINS, 0.99);
        snprintf(name, sizeof name, "begin_%s_p50", labels[i]);
        bench_figure(o, name, p50[i] / 1e3, "us");
        snprintf(name, sizeof name, "begin_%s_p99", labels[i]);
        bench_figure(o, name, p99[i] / 1e3, "us");
        free(ns[i]);
        semel_close(s[i]);
    }
    snprintf(name, sizeof name, "begin_p50_%s/100k", labels[1]);
    bench_figure(o, name, p50[1] / p50[0], "x");
    snprintf(name, sizeof name, "begin_p99_%s/100k", labels[1]);
    bench_figure(o, name, p99[1] / p99[0], "x");
    bench_target(o, "p99 at most 1.5 x");
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "disk_%s", labels[i]);
        bench_figure(o, name, bytes[i] / (double)sizes[i], "B/effect");
    }
    bench_figure(o, "payload", payload_bytes(), "B/effect");
}
