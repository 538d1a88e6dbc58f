/*
 * What the parts of the ledger's benchmark share: where ledgers are put, what is called, printing.
 *
 *   ledger.c         options, the directory, the order of the parts
 *   ledger_replay.c  a settled effect asked for again, beside SHA-256 alone and without loop
 * detection ledger_fresh.c   durable effects, beside what the disk can sync ledger_guards.c
 * budgets, beside the same without them ledger_size.c    small and large ledgers: latency of begin,
 * bytes on disk ledger_wake.c    how soon a second caller hears of the end
 */
#ifndef SM_BENCH_LEDGER_H
#define SM_BENCH_LEDGER_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "calls.h"

#define BENCH_DIR_MAX (PATH_MAX - 64)

typedef struct bench_options {
    bool json, full;
    char dir[BENCH_DIR_MAX]; /* an empty directory of ours, removed afterwards */
} bench_options;

/* The parts. */
void bench_replay(const bench_options *o);
void bench_fresh(const bench_options *o);
void bench_guards(const bench_options *o);
void bench_size(const bench_options *o);
void bench_wake(const bench_options *o);

/* The other process of bench_wake. */
int bench_waiter(const char *path);

void bench_figure(const bench_options *o, const char *metric, double value, const char *unit);
void bench_title(const bench_options *o, const char *title);
void bench_target(const bench_options *o, const char *target);

/* A ledger in our directory, or in memory if `name` is NULL. */
semel *bench_open(const bench_options *o, const char *name);
semel *bench_open_with(const bench_options *o, const char *name,
                       const char *contract); /* or NULL */
void bench_path(const bench_options *o, const char *name, char path[PATH_MAX]);

#endif
