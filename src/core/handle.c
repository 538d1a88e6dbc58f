/* The id hides the key: it is a hash of it, so that a handle may be shown where a key may not. */
#include "core/handle.h"

sm_err sm_effect_id(sm_digest *d, const sm_hash *key, uint64_t *id)
{
    static const char domain[] = "semel-effect-1";
    char bytes[sizeof domain - 1 + SM_HASH_BYTES];
    memcpy(bytes, domain, sizeof domain - 1);
    memcpy(bytes + sizeof domain - 1, key->b, SM_HASH_BYTES);
    sm_hash hash;
    sm_err e = sm_digest_bytes(d, bytes, sizeof bytes, &hash);
    if (e != SM_OK)
        return e;
    uint64_t n = 0;
    for (size_t i = 0; i < 8; i++)
        n = n << 8 | hash.b[i];
    *id = n;
    return SM_OK;
}
