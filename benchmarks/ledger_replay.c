/*
 * Replays: a settled effect is asked for again. One thread, one answer used over and over, beside
 * SHA-256 alone over the sample's 226 bytes.
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

/* Settles the sample call, so that every further one is a replay. */
static replayed settle(const bench_options *o, const char *name)
{
    replayed r = {.s = bench_open(o, name), .a = semel_answer_new(), .call = bench_sample_call()};
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
    hashed h = {.md = EVP_MD_fetch(NULL, "SHA256", NULL), .ctx = EVP_MD_CTX_new()};
    replayed memory = settle(o, NULL), file = settle(o, "replay.db");
    bench_case cases[] = {
        {.metric = "sha256", .body = do_sha256, .context = &h},
        {.metric = "replay_memory", .body = do_replay, .context = &memory},
        {.metric = "replay_sqlite", .body = do_replay, .context = &file},
    };
    bench_title(o, "replay: the sample call of 226 bytes, settled; one thread");
    bench_run(cases, sizeof cases / sizeof cases[0]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        bench_figure(o, cases[i].metric, cases[i].ns, "ns");
    bench_figure(o, "replay_memory_rate", 1e9 / cases[1].ns, "1/s");
    bench_figure(o, "replay_sqlite_rate", 1e9 / cases[2].ns, "1/s");
    bench_figure(o, "replay_memory/sha256", cases[1].ns / cases[0].ns, "x");
    bench_figure(o, "replay_sqlite/sha256", cases[2].ns / cases[0].ns, "x");
    bench_target(o, "at most 3.5 x, and 1 M/s");
    replayed *both[] = {&memory, &file};
    for (size_t i = 0; i < 2; i++) {
        semel_answer_free(both[i]->a);
        semel_close(both[i]->s);
    }
    EVP_MD_CTX_free(h.ctx);
    EVP_MD_free(h.md);
}
