/* What is called in benchmarks: the sample call of 226 bytes, in as many orders as it takes. */
#ifndef SM_BENCH_CALLS_H
#define SM_BENCH_CALLS_H

#include <stdbool.h>
#include <stdint.h>

#include "semel/semel.h"

#define BENCH_ARGS_MAX 256

/* Ends the benchmark with a sentence unless `ok`. */
void bench_must(bool ok, const char *what);

/* The whole text of the sample call, 226 bytes, and its parts as a call. */
extern const char bench_sample[];
extern const size_t bench_sample_bytes;
semel_call bench_sample_call(void);

/* The sample call as the n-th order: as long as the sample, for n up to 9 digits. */
semel_call bench_order(uint64_t n, char args[BENCH_ARGS_MAX]);

/* The outcome that everything ends with. */
semel_outcome bench_outcome(void);

/* One effect from begin to commit. *begin_ns (may be NULL): how long begin took. */
void bench_effect(semel *s, semel_answer *a, uint64_t n, double *begin_ns);

#endif
