/* From the bytes of a call to its key, beside SHA-256 alone over the same bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>

#include "core/key.h"
#include "json/canon.h"
#include "measure.h"

static const char sample[] =
    "{\"workflow_id\":\"order-123\",\"tool\":\"stripe.charge\",\"args\":{\"amount\":1000,"
    "\"currency\":\"usd\",\"customer\":\"cus_9s6XKzkNRiz8i3\",\"description\":\"Order 123\","
    "\"lines\":[{\"sku\":\"A1\",\"qty\":2,\"price\":9.99},{\"sku\":\"B2\",\"qty\":1,\"price\":19.5}"
    "]}}";
_Static_assert(sizeof sample - 1 == 226, "the sample call is 226 bytes");

typedef struct work {
    sm_arena arena;
    sm_keyer keyer;
    sm_buf canon;
    sm_key key;
    EVP_MD *md;
    EVP_MD_CTX *ctx;
    unsigned char hash[32];
} work;

static void must(sm_err e)
{
    if (e != SM_OK) {
        fprintf(stderr, "bench: %s\n", semel_err_text(e));
        exit(70);
    }
}

static const sm_json *read_sample(work *w)
{
    const sm_json *root;
    sm_arena_reset(&w->arena);
    must(sm_json_read(&w->arena, SM_STR(sample), &sm_json_default_limits, &root, NULL));
    return root;
}

static void do_sha256(void *context)
{
    work *w = context;
    EVP_DigestInit_ex2(w->ctx, w->md, NULL);
    EVP_DigestUpdate(w->ctx, sample, sizeof sample - 1);
    EVP_DigestFinal_ex(w->ctx, w->hash, NULL);
}

static void do_parse(void *context)
{
    read_sample(context);
}

static void do_canon(void *context)
{
    work *w = context;
    const sm_json *root = read_sample(w);
    sm_buf_clear(&w->canon);
    must(sm_json_canon(root, &w->canon, SM_STR(sample), NULL));
}

static void do_key(void *context)
{
    work *w = context;
    const sm_json *root = read_sample(w);
    const sm_json *args = sm_json_find(root, SM_STR("args"));
    sm_parsed_call call = {
        .scope = sm_json_text(sm_json_find(root, SM_STR("workflow_id"))),
        .tool = sm_json_text(sm_json_find(root, SM_STR("tool"))),
        .args = args,
    };
    must(sm_call_check(&call, NULL));
    must(sm_key_make(&w->keyer, SM_KEY_HASH, &call, args, NULL, &w->key, NULL));
}

int main(int argc, char **argv)
{
    bool json = argc > 1 && strcmp(argv[1], "--json") == 0;
    work w = {0};
    sm_arena_init(&w.arena, SM_ARENA_MAX);
    sm_buf_init(&w.canon, 1 << 20);
    must(sm_keyer_init(&w.keyer));
    w.md = EVP_MD_fetch(NULL, "SHA256", NULL);
    w.ctx = EVP_MD_CTX_new();

    bench_case cases[] = {
        {.metric = "sha256", .body = do_sha256, .context = &w},
        {.metric = "parse", .body = do_parse, .context = &w},
        {.metric = "parse+canon", .body = do_canon, .context = &w},
        {.metric = "parse+canon+hash", .body = do_key, .context = &w},
    };
    size_t n = sizeof cases / sizeof cases[0];
    bench_run(cases, n);
    if (!json)
        printf("key: a call of %zu bytes, in the better rounds of 61\n", sizeof sample - 1);
    for (size_t i = 0; i < n; i++)
        bench_print(json, "key", cases[i].metric, cases[i].ns, "ns");
    bench_print(json, "key", "key/sha256", cases[n - 1].ns / cases[0].ns, "x");
    if (!json)
        printf("  target: key/sha256 at most 2.5 x\n");

    EVP_MD_CTX_free(w.ctx);
    EVP_MD_free(w.md);
    sm_keyer_fini(&w.keyer);
    sm_buf_fini(&w.canon);
    sm_arena_fini(&w.arena);
    return 0;
}
