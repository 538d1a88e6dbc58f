/*
 * Keys: 32 bytes that name a logical action.
 *
 * A key is SHA-256 over "semel-key-1" and then, for each part that is present, one tag byte, the
 * part's length in 8 big-endian bytes, and the part. Lengths make the encoding injective: parts
 * that contain each other's separators cannot collide (I10). The leading text is the version.
 *
 *     strategy      parts
 *     hash, fields  scope, step if given, tool, projected arguments in canonical form
 *     step          scope, step, tool
 *     explicit      scope, the caller's key
 *     unique        scope, tool, a nonce
 *     none          there is no key
 *
 * The fingerprint tells whether two calls with one key are the same call: SHA-256 likewise over
 * "semel-fingerprint-1", tool and canonical full arguments. The downstream key is what an upstream
 * gets to see, so that the ledger's own key never leaves: "semel-down-1", key, generation, run.
 *
 * A resource is what calls act on: "semel-resource-1", the scope's first segment, the kind, and for
 * each field of the contract its value in canonical form, or that it is absent. Names of fields do
 * not count, so that two tools can act on one resource.
 */
#ifndef SM_CORE_KEY_H
#define SM_CORE_KEY_H

#include "base/buf.h"
#include "base/digest.h"
#include "core/call.h"

typedef enum sm_strategy {
    SM_KEY_HASH,
    SM_KEY_FIELDS,
    SM_KEY_STEP,
    SM_KEY_EXPLICIT,
    SM_KEY_UNIQUE,
    SM_KEY_NONE,
} sm_strategy;

/* The tags are part of the format: they are never reused or renumbered. */
typedef enum sm_part {
    SM_PART_SCOPE = 1,
    SM_PART_STEP = 2,
    SM_PART_TOOL = 3,
    SM_PART_ARGS = 4,
    SM_PART_KEY = 5,
    SM_PART_NONCE = 6,
    SM_PART_KIND = 7,
    SM_PART_VALUE = 8,
    SM_PART_ABSENT = 9,
} sm_part;

/* Ids that must not be mistaken for one another. */
typedef struct sm_key {
    sm_hash hash;
} sm_key;
typedef struct sm_fingerprint {
    sm_hash hash;
} sm_fingerprint;
typedef struct sm_down_key {
    sm_hash hash;
} sm_down_key;

typedef struct sm_resource {
    sm_hash hash; /* zero: none */
} sm_resource;

static inline bool sm_resource_none(const sm_resource *r)
{
    static const sm_resource none;
    return memcmp(r, &none, sizeof none) == 0;
}

/* A reusable workspace: the digest context and the buffer of what is hashed. One thread at a
 * time. */
typedef struct sm_keyer {
    sm_digest digest;
    sm_buf preimage;
} sm_keyer;

sm_err sm_keyer_init(sm_keyer *k);
void sm_keyer_fini(sm_keyer *k); /* accepts a zeroed object */

/* Makes the key of a call by a strategy other than none. `projected` are the arguments that name
 * the action (hash and fields only), `nonce` is 16 fresh random bytes (unique only). Afterwards
 * `k->preimage` holds what was hashed. */
#define SM_NONCE_BYTES 16u
sm_err sm_key_make(sm_keyer *k, sm_strategy strategy, const sm_parsed_call *call,
                   const sm_json *projected, const uint8_t *nonce, sm_key *out, sm_fault *fault);

/* Walks a key's preimage. Start with *at = 0; false at the end. */
bool sm_key_part(sm_str preimage, size_t *at, sm_part *tag, sm_str *part);

/* `source` is what `args` was read from, for positions; may be empty. */
sm_err sm_fingerprint_make(sm_keyer *k, sm_str tool, const sm_json *args, sm_str source,
                           sm_fingerprint *out, sm_fault *fault);

/* `values` has NULL for a field that is absent. */
sm_err sm_resource_make(sm_keyer *k, sm_str scope, sm_str kind, const sm_json *const *values,
                        size_t n, sm_resource *out, sm_fault *fault);

sm_err sm_down_key_make(sm_keyer *k, const sm_key *key, uint64_t generation, uint64_t run,
                        sm_down_key *out);

#endif
