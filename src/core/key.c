/* The one encoding behind keys, fingerprints, resources and downstream keys. */
#include "core/key.h"

#include <assert.h>
#include <endian.h>

#include "json/canon.h"

/* Canonical text can be longer than its source: a literal of twenty characters may stand for an
 * integer of 309 digits. */
#define PREIMAGE_MAX (17 * (size_t)SM_JSON_BYTES_MAX)

#define KEY_VERSION         SM_STR("semel-key-1")
#define FINGERPRINT_VERSION SM_STR("semel-fingerprint-1")
#define DOWN_VERSION        SM_STR("semel-down-1")
#define RESOURCE_VERSION    SM_STR("semel-resource-1")

sm_err sm_keyer_init(sm_keyer *k)
{
    sm_buf_init(&k->preimage, PREIMAGE_MAX);
    return sm_digest_init(&k->digest);
}

void sm_keyer_fini(sm_keyer *k)
{
    sm_buf_fini(&k->preimage);
    sm_digest_fini(&k->digest);
}

static inline void begin(sm_keyer *k, sm_str version)
{
    sm_buf_clear(&k->preimage);
    sm_buf_str(&k->preimage, version);
}

static inline void put_big_endian(char *out, uint64_t v)
{
    v = htobe64(v);
    memcpy(out, &v, sizeof v);
}

static inline void put_part(sm_keyer *k, sm_part tag, sm_str part)
{
    sm_buf *b = &k->preimage;
    if (!sm_buf_reserve(b, 9 + part.n))
        return;
    char *w = b->p + b->len;
    w[0] = (char)tag;
    put_big_endian(w + 1, part.n);
    if (part.n != 0)
        memcpy(w + 9, part.p, part.n);
    b->len += 9 + part.n;
}

/* A document is written in place, and its length put in front afterwards. */
static sm_err put_json(sm_keyer *k, sm_part tag, const sm_json *args, sm_str source,
                       sm_fault *fault)
{
    put_part(k, tag, (sm_str){0});
    size_t start = k->preimage.len;
    sm_err e = sm_json_canon(args, &k->preimage, source, fault);
    if (e == SM_OK)
        put_big_endian(k->preimage.p + start - 8, k->preimage.len - start);
    return e;
}

static sm_err finish(sm_keyer *k, sm_hash *out, sm_fault *fault)
{
    sm_err e = k->preimage.err;
    if (e == SM_OK)
        e = sm_digest_bytes(&k->digest, k->preimage.p, k->preimage.len, out);
    return e == SM_OK ? e : sm_fault_set(fault, e, "%s", semel_err_text(e));
}

sm_err sm_key_make(sm_keyer *k, sm_strategy strategy, const sm_parsed_call *call,
                   const sm_json *projected, const uint8_t *nonce, sm_key *out, sm_fault *fault)
{
    begin(k, KEY_VERSION);
    put_part(k, SM_PART_SCOPE, call->scope);
    sm_err e = SM_OK;
    switch (strategy) {
    case SM_KEY_HASH:
    case SM_KEY_FIELDS:
        if (call->step.p != NULL)
            put_part(k, SM_PART_STEP, call->step);
        put_part(k, SM_PART_TOOL, call->tool);
        e = put_json(k, SM_PART_ARGS, projected, call->args_text, fault);
        break;
    case SM_KEY_STEP:
        put_part(k, SM_PART_STEP, call->step);
        put_part(k, SM_PART_TOOL, call->tool);
        break;
    case SM_KEY_EXPLICIT: put_part(k, SM_PART_KEY, call->key); break;
    case SM_KEY_UNIQUE:
        put_part(k, SM_PART_TOOL, call->tool);
        put_part(k, SM_PART_NONCE, (sm_str){(const char *)nonce, SM_NONCE_BYTES});
        break;
    case SM_KEY_NONE: assert(!"a call without identity has no key"); return SEMEL_E_BAD_ARGUMENTS;
    }
    return e == SM_OK || e == SEMEL_E_LIMIT || e == SEMEL_E_NOMEM ? finish(k, &out->hash, fault)
                                                                  : e;
}

bool sm_key_part(sm_str preimage, size_t *at, sm_part *tag, sm_str *part)
{
    if (*at == 0)
        *at = KEY_VERSION.n;
    if (*at >= preimage.n)
        return false;
    const unsigned char *head = (const unsigned char *)preimage.p + *at;
    size_t n = 0;
    for (int i = 1; i <= 8; i++)
        n = n << 8 | head[i];
    *tag = (sm_part)head[0];
    *part = (sm_str){preimage.p + *at + 9, n};
    *at += 9 + n;
    return true;
}

sm_err sm_fingerprint_make(sm_keyer *k, sm_str tool, const sm_json *args, sm_str source,
                           sm_fingerprint *out, sm_fault *fault)
{
    begin(k, FINGERPRINT_VERSION);
    put_part(k, SM_PART_TOOL, tool);
    sm_err e = put_json(k, SM_PART_ARGS, args, source, fault);
    return e == SM_OK || e == SEMEL_E_LIMIT || e == SEMEL_E_NOMEM ? finish(k, &out->hash, fault)
                                                                  : e;
}

sm_err sm_resource_make(sm_keyer *k, sm_str scope, sm_str kind, const sm_json *const *values,
                        size_t n, sm_resource *out, sm_fault *fault)
{
    const char *slash = memchr(scope.p, '/', scope.n);
    begin(k, RESOURCE_VERSION);
    put_part(k, SM_PART_SCOPE,
             (sm_str){scope.p, slash == NULL ? scope.n : (size_t)(slash - scope.p)});
    put_part(k, SM_PART_KIND, kind);
    sm_err e = SM_OK;
    for (size_t i = 0; i < n && e == SM_OK; i++) {
        if (values[i] == NULL)
            put_part(k, SM_PART_ABSENT, (sm_str){0});
        else
            e = put_json(k, SM_PART_VALUE, values[i], (sm_str){0}, fault);
    }
    return e == SM_OK || e == SEMEL_E_LIMIT || e == SEMEL_E_NOMEM ? finish(k, &out->hash, fault)
                                                                  : e;
}

sm_err sm_down_key_make(sm_keyer *k, const sm_key *key, uint64_t generation, uint64_t run,
                        sm_down_key *out)
{
    char numbers[16];
    put_big_endian(numbers, generation);
    put_big_endian(numbers + 8, run);
    begin(k, DOWN_VERSION);
    sm_buf_bytes(&k->preimage, key->hash.b, sizeof key->hash.b);
    sm_buf_bytes(&k->preimage, numbers, sizeof numbers);
    return finish(k, &out->hash, NULL);
}
