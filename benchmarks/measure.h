/*
 * Timing for benchmarks: several figures taken in one run, interleaved, so that whatever else the
 * machine does weighs on all of them alike. A figure is the median over rounds.
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

/* Prints one figure: as a line of a table, or as one JSON object. */
void bench_print(bool json, const char *bench, const char *metric, double value, const char *unit);

#endif
