/*
 * What guards cost. A replay with loop detection and without it, taking turns. A fresh effect with
 * budgets and without: how many a second, and how often each syncs the disk, which is counted where
 * this process calls fdatasync and fsync.
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

/* No replay of the benchmark reaches these, however long it lasts: the run is only looked at. */
static const char loop_on[] =
    CONTRACT("loop: {warn: 1000000000, block: 1000000000, trip: 1000000000}");
static const char loop_off[] = CONTRACT("loop: off");
static const char no_budget[] = CONTRACT("loop: off");
static const char one_budget[] = CONTRACT("loop: off, budget: {per: run, calls: 1000000000}");
static const char three_budgets[] =
    CONTRACT("loop: off, cost: 0.01, tokens: 5, budget: [{per: run, calls: 1000000000, cost: "
             "1000000000}, {per: tenant, cost: 1000000000}, {per: day, tokens: 1000000000000}]");

/* ---- replays ---------------------------------------------------------------------------------*/

typedef struct replayed {
    semel *s;
    semel_answer *a;
    semel_call call;
} replayed;

static void do_replay(void *context)
{
    replayed *r = context;
    semel_begin(r->s, &r->call, r->a);
    bench_must(r->a->verdict == SEMEL_REPLAY && r->a->has_outcome, "a replay was none");
}

static replayed settle(const bench_options *o, const char *name, const char *contract)
{
    replayed r = {.s = bench_open_with(o, name, contract),
                  .a = semel_answer_new(),
                  .call = bench_sample_call()};
    semel_begin(r.s, &r.call, r.a);
    semel_answer *done = semel_answer_new();
    semel_outcome outcome = bench_outcome();
    semel_commit(r.s, r.a->claim, &outcome, done);
    bench_must(done->verdict == SEMEL_DONE, "the sample call was not committed");
    semel_answer_free(done);
    return r;
}

static void replays(const bench_options *o)
{
    replayed all[] = {settle(o, NULL, loop_off), settle(o, NULL, loop_on),
                      settle(o, "off.db", loop_off), settle(o, "on.db", loop_on)};
    bench_case cases[] = {
        {.metric = "replay_memory_loop_off", .body = do_replay, .context = &all[0]},
        {.metric = "replay_memory_loop_on", .body = do_replay, .context = &all[1]},
        {.metric = "replay_sqlite_loop_off", .body = do_replay, .context = &all[2]},
        {.metric = "replay_sqlite_loop_on", .body = do_replay, .context = &all[3]},
    };
    bench_title(o, "guards: a replay with loop detection and without");
    bench_run(cases, 4);
    for (size_t i = 0; i < 4; i++)
        bench_figure(o, cases[i].metric, cases[i].ns, "ns");
    bench_figure(o, "replay_memory_loop_on/off", cases[1].ns / cases[0].ns, "x");
    bench_figure(o, "replay_sqlite_loop_on/off", cases[3].ns / cases[2].ns, "x");
    bench_target(o, "at most 1.15 x");
    for (size_t i = 0; i < 4; i++) {
        semel_answer_free(all[i].a);
        semel_close(all[i].s);
    }
}

/* ---- fresh effects ---------------------------------------------------------------------------*/

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

static void effects(const bench_options *o)
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

void bench_guards(const bench_options *o)
{
    replays(o);
    effects(o);
}
