/*
 * Replays: a settled effect is asked for again. One thread, one answer used over and over, beside
 * SHA-256 alone over the sample's 226 bytes, and beside replays without loop detection.
 */
#include <openssl/evp.h>

#include "ledger.h"
#include "measure.h"

typedef struct replayed {
    semel *s;
    semel_answer *a;
    semel_call call;
} replayed;

typedef struct hashed {
    EVP_MD *md;
    EVP_MD_CTX *ctx;
    unsigned char hash[32];
} hashed;

static void do_sha256(void *context)
{
    hashed *h = context;
    EVP_DigestInit_ex2(h->ctx, h->md, NULL);
    EVP_DigestUpdate(h->ctx, bench_sample, bench_sample_bytes);
    EVP_DigestFinal_ex(h->ctx, h->hash, NULL);
}

static void do_replay(void *context)
{
    replayed *r = context;
    semel_begin(r->s, &r->call, r->a);
    bench_must(r->a->verdict == SEMEL_REPLAY && r->a->has_outcome, "a replay was none");
}

#define CONTRACT(loop) "{version: 1, tools: {stripe.charge: {class: write, loop: " loop "}}}"

/* The loop of the benchmark is looked at, but never long enough; or every replay is warned. */
static const char looked_at[] = CONTRACT("{warn: 1000000000, block: 1000000000, trip: 1000000000}");
static const char warned[] = CONTRACT("{block: off}");
static const char unseen[] = CONTRACT("off");

/* Settles the sample call, so that every further one is a replay. */
static replayed settle(const bench_options *o, const char *name, const char *contract)
{
    replayed r = {.s = bench_open_with(o, name, contract),
                  .a = semel_answer_new(),
                  .call = bench_sample_call()};
    semel_begin(r.s, &r.call, r.a);
    bench_must(r.a->verdict == SEMEL_EXECUTE, "the sample call did not run");
    semel_answer *done = semel_answer_new();
    semel_outcome outcome = bench_outcome();
    semel_commit(r.s, r.a->claim, &outcome, done);
    bench_must(done->verdict == SEMEL_DONE, "the sample call was not committed");
    semel_answer_free(done);
    return r;
}

void bench_replay(const bench_options *o)
{
    enum { MEMORY, FILE, MEMORY_UNSEEN, FILE_UNSEEN, WARNED, N };
    replayed all[N] = {
        [MEMORY] = settle(o, NULL, looked_at),     [FILE] = settle(o, "replay.db", looked_at),
        [MEMORY_UNSEEN] = settle(o, NULL, unseen), [FILE_UNSEEN] = settle(o, "unseen.db", unseen),
        [WARNED] = settle(o, NULL, warned),
    };
    static const char *const metrics[N] = {
        [MEMORY] = "replay_memory",
        [FILE] = "replay_sqlite",
        [MEMORY_UNSEEN] = "replay_memory_loop_off",
        [FILE_UNSEEN] = "replay_sqlite_loop_off",
        [WARNED] = "replay_memory_warned",
    };
    hashed h = {.md = EVP_MD_fetch(NULL, "SHA256", NULL), .ctx = EVP_MD_CTX_new()};
    bench_case cases[N + 1] = {[N] = {.metric = "sha256", .body = do_sha256, .context = &h}};
    for (int i = 0; i < N; i++)
        cases[i] = (bench_case){.metric = metrics[i], .body = do_replay, .context = &all[i]};
    bench_title(o, "replay: the sample call of 226 bytes, settled; one thread");
    bench_run(cases, N + 1);
    for (int i = 0; i <= N; i++)
        bench_figure(o, cases[i].metric, cases[i].ns, "ns");
    bench_figure(o, "replay_memory_rate", 1e9 / cases[MEMORY].ns, "1/s");
    bench_figure(o, "replay_sqlite_rate", 1e9 / cases[FILE].ns, "1/s");
    bench_figure(o, "replay_memory/sha256", cases[MEMORY].ns / cases[N].ns, "x");
    bench_figure(o, "replay_sqlite/sha256", cases[FILE].ns / cases[N].ns, "x");
    bench_target(o, "at most 3.5 x, and 1 M/s");
    bench_figure(o, "replay_memory/loop_off", cases[MEMORY].ns / cases[MEMORY_UNSEEN].ns, "x");
    bench_figure(o, "replay_sqlite/loop_off", cases[FILE].ns / cases[FILE_UNSEEN].ns, "x");
    bench_target(o, "loop detection costs at most 1.15 x");
    for (int i = 0; i < N; i++) {
        semel_answer_free(all[i].a);
        semel_close(all[i].s);
    }
    EVP_MD_CTX_free(h.ctx);
    EVP_MD_free(h.md);
}
