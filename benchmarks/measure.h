/*
 * Timing for benchmarks: several figures taken in one run, interleaved, so that whatever else the
 * machine does weighs on all of them alike.
 *
 * What bench_run measures is work: processor time of the calling thread, for bodies that neither
 * sleep nor do I/O. Whatever disturbs such work makes it longer, never shorter (a neighbour on the
 * same core, a cold cache), so a figure is that of the better rounds: their first decile.
 */
#ifndef SM_BENCH_MEASURE_H
#define SM_BENCH_MEASURE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct bench_case {
    const char *metric;
    void (*body)(void *context); /* one operation */
    void *context;
    double ns; /* the result */
} bench_case;

/* Runs all cases, round after round, and fills in their `ns`. */
void bench_run(bench_case *cases, size_t n);

/* CLOCK_MONOTONIC, which all processes share. */
double bench_now_ns(void);

/* The value below which the fraction q of the samples lies; 0.5 is the median, 1 the largest. Sorts
 * them. */
double bench_quantile(double *samples, size_t n, double q);

/* Prints one figure: as a line of a table, or as one JSON object. */
void bench_print(bool json, const char *bench, const char *metric, double value, const char *unit);

#endif
