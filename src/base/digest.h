/*
 * SHA-256 and the text form of its results.
 *
 * The algorithm is fetched from libcrypto once, and a context is reused: fetching anew or making a
 * context for each digest costs more than hashing a tool call does.
 */
#ifndef SM_BASE_DIGEST_H
#define SM_BASE_DIGEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

#define SM_HASH_BYTES 32u
#define SM_HASH_TEXT  43u /* base64url without padding */

typedef semel_hash sm_hash;

/* A reusable hasher. One thread at a time. */
typedef struct sm_digest {
    void *md;
    void *ctx;
} sm_digest;

sm_err sm_digest_init(sm_digest *d);
void sm_digest_fini(sm_digest *d); /* accepts a zeroed object */

/* SHA-256 of one run of bytes. */
sm_err sm_digest_bytes(sm_digest *d, const void *p, size_t n, sm_hash *out);

/* The same in pieces: start, any number of adds, finish. */
sm_err sm_digest_start(sm_digest *d);
sm_err sm_digest_add(sm_digest *d, const void *p, size_t n);
sm_err sm_digest_finish(sm_digest *d, sm_hash *out);

/* Writes SM_HASH_TEXT characters and a NUL. */
void sm_hash_text(const sm_hash *h, char out[SM_HASH_TEXT + 1]);

/* The form that sha256sum prints: 64 hexadecimal digits and a NUL. */
#define SM_HASH_HEX 64u
void sm_hash_hex(const sm_hash *h, char out[SM_HASH_HEX + 1]);

/* Reads the text form back; false unless it is exactly one that sm_hash_text writes. */
bool sm_hash_parse(sm_str text, sm_hash *out);

#endif
