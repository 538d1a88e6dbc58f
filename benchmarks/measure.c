/* Rounds of fixed length, quantiles, and printing. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define ROUNDS   61
#define GOOD     0.1 /* the quantile of the rounds that counts */
#define ROUND_NS 10e6

double bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The time that this thread has had a processor: being made to wait for one is nobody's cost. */
static double worked_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double time_batch(bench_case *c, size_t n)
{
    double start = worked_ns();
    for (size_t i = 0; i < n; i++)
        c->body(c->context);
    return worked_ns() - start;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_quantile(double *samples, size_t n, double q)
{
    qsort(samples, n, sizeof *samples, ascending);
    size_t at = (size_t)((double)n * q);
    return samples[at < n ? at : n - 1];
}

void bench_run(bench_case *cases, size_t n)
{
    double *samples = calloc(n * ROUNDS, sizeof *samples);
    size_t *batch = calloc(n, sizeof *batch);
    if (samples == NULL || batch == NULL)
        abort();
    for (size_t c = 0; c < n; c++) {
        batch[c] = 1;
        while (time_batch(&cases[c], batch[c]) < ROUND_NS)
            batch[c] *= 2;
    }
    for (size_t r = 0; r < ROUNDS; r++) {
        for (size_t c = 0; c < n; c++)
            samples[c * ROUNDS + r] = time_batch(&cases[c], batch[c]) / (double)batch[c];
    }
    for (size_t c = 0; c < n; c++)
        cases[c].ns = bench_quantile(samples + c * ROUNDS, ROUNDS, GOOD);
    free(samples);
    free(batch);
}

void bench_print(bool json, const char *bench, const char *metric, double value, const char *unit)
{
    if (json)
        printf("{\"bench\":\"%s\",\"metric\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"}\n", bench,
               metric, value, unit);
    else
        printf("  %-26s %10.4g %s\n", metric, value, unit);
}
