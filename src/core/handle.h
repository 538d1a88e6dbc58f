/*
 * Handles: what people and models see instead of keys (I11).
 *
 *     ef_ SS xxxxxxxxxxxxx [.G]        an effect
 *     ap_ SS xxxxxxxxxxxxx [.G] .R     its approval request number R
 *     cl_ SS xxxxxxxxxxxxx [.G] .F.S   a claim: fence F and a secret
 *
 * SS is the shard in hexadecimal: the first byte of SHA-256 of the scope's first segment. The x are
 * the effect's id in base 32 (digits and letters without i, l, o, u). G is the generation, left out
 * when it is 1. The id is derived from the key by a hash, so a handle says nothing about its key.
 */
#ifndef SM_CORE_HANDLE_H
#define SM_CORE_HANDLE_H

#include "base/digest.h"

#define SM_SECRET_BYTES 16u
#define SM_HANDLE_TEXT  100u /* room for any handle and its NUL */

typedef struct sm_handle {
    uint8_t shard;
    uint64_t id;
    uint64_t generation;
    uint64_t request; /* ap_ only */
    uint64_t fence;   /* cl_ only, like the secret */
    uint8_t secret[SM_SECRET_BYTES];
} sm_handle;

/* The id of a key's effects: the first 8 bytes of SHA-256("semel-effect-1", key), not 0. */
sm_err sm_effect_id(sm_digest *d, const sm_hash *key, uint64_t *id);

/* The shard of a scope. */
sm_err sm_scope_shard(sm_digest *d, sm_str scope, uint8_t *shard);

/* Each writes a handle and its NUL, and returns its length. */
size_t sm_handle_effect(const sm_handle *h, char out[SM_HANDLE_TEXT]);
size_t sm_handle_request(const sm_handle *h, char out[SM_HANDLE_TEXT]);
size_t sm_handle_claim(const sm_handle *h, char out[SM_HANDLE_TEXT]);

/* Reads a handle of the kind that `prefix` ("ef_", "ap_", "cl_") says; false if it is none. */
bool sm_handle_parse(const char *prefix, sm_str text, sm_handle *out);

#endif
