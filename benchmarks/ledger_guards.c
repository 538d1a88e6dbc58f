/*
 * What budgets cost a fresh effect: how many a second with budgets and without, and how often each
 * syncs the disk, which is counted where this process calls fdatasync and fsync.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ledger.h"
#include "measure.h"

#define ROUNDS  7
#define EFFECTS 200

#define CONTRACT(fields) "{version: 1, tools: {stripe.charge: {class: write, " fields "}}}"

static const char no_budget[] = CONTRACT("loop: off");
static const char one_budget[] = CONTRACT("loop: off, budget: {per: run, calls: 1000000000}");
static const char three_budgets[] =
    CONTRACT("loop: off, cost: 0.01, tokens: 5, budget: [{per: run, calls: 1000000000, cost: "
             "1000000000}, {per: tenant, cost: 1000000000}, {per: day, tokens: 1000000000000}]");

static atomic_uint_fast64_t syncs;

/* In place of the C library's, also for SQLite. */
int fdatasync(int fd)
{
    atomic_fetch_add(&syncs, 1);
    return (int)syscall(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    atomic_fetch_add(&syncs, 1);
    return (int)syscall(SYS_fsync, fd);
}

typedef struct fresh {
    const char *metric, *file, *contract;
    semel *s;
    uint64_t next, synced;
    double rate[ROUNDS];
} fresh;

static void slice(fresh *f, semel_answer *a, int round)
{
    uint64_t before = atomic_load(&syncs);
    double start = bench_now_ns();
    for (int i = 0; i < EFFECTS; i++)
        bench_effect(f->s, a, f->next++, NULL);
    f->rate[round] = EFFECTS * 1e9 / (bench_now_ns() - start);
    f->synced += atomic_load(&syncs) - before;
}

void bench_guards(const bench_options *o)
{
    fresh all[] = {{.metric = "fresh", .file = "no_budget.db", .contract = no_budget},
                   {.metric = "fresh_budget", .file = "small.db", .contract = one_budget},
                   {.metric = "fresh_3_budgets", .file = "large.db", .contract = three_budgets}};
    enum { N = sizeof all / sizeof all[0] };
    semel_answer *a = semel_answer_new();
    char name[64];
    bench_title(o, "guards: fresh effects of one caller, durable, with budgets and without");
    for (int i = 0; i < N; i++)
        all[i].s = bench_open_with(o, all[i].file, all[i].contract);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < N; i++)
            slice(&all[i], a, round);
    }
    for (int i = 0; i < N; i++) {
        bench_figure(o, all[i].metric, bench_quantile(all[i].rate, ROUNDS, 0.5), "effects/s");
        snprintf(name, sizeof name, "%s_syncs", all[i].metric);
        bench_figure(o, name, (double)all[i].synced / (ROUNDS * EFFECTS), "per effect");
        semel_close(all[i].s);
    }
    bench_target(o, "as many syncs with a budget as without");
    semel_answer_free(a);
}
