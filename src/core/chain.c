/* One encoding for events and seals. */
#include "core/chain.h"

#include <endian.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

static void put_number(sm_buf *b, uint64_t v)
{
    v = htobe64(v);
    sm_buf_bytes(b, &v, sizeof v);
}

static void put_text(sm_buf *b, sm_str s)
{
    put_number(b, s.p == NULL ? UINT64_MAX : s.n); /* absent is not empty */
    sm_buf_str(b, s);
}

static sm_err encode(sm_buf *b, const semel_event *e)
{
    sm_buf_clear(b);
    sm_buf_text(b, "semel-event-2");
    sm_buf_bytes(b, e->prev.b, sizeof e->prev.b);
    put_number(b, e->id);
    put_number(b, e->generation);
    put_number(b, e->shard);
    put_number(b, e->index);
    put_number(b, (uint64_t)e->at);
    put_text(b, e->what);
    put_text(b, e->actor);
    put_text(b, e->body);
    return b->err;
}

sm_err sm_chain_hash(sm_digest *d, sm_buf *scratch, semel_event *e)
{
    sm_err err = encode(scratch, e);
    return err != SM_OK ? err : sm_digest_bytes(d, scratch->p, scratch->len, &e->hash);
}

sm_err sm_seal_hash(sm_digest *d, sm_buf *scratch, sm_str key, semel_event *seal)
{
    if (key.p == NULL)
        return sm_chain_hash(d, scratch, seal);
    sm_err err = encode(scratch, seal);
    if (err != SM_OK)
        return err;
    unsigned n = 0;
    unsigned char *mac = HMAC(EVP_sha256(), key.p, (int)key.n, (unsigned char *)scratch->p,
                              scratch->len, seal->hash.b, &n);
    return mac != NULL && n == sizeof seal->hash.b ? SM_OK : SEMEL_E_CRYPTO;
}

sm_err sm_record_digest(sm_digest *d, sm_buf *scratch, const semel_record *r, sm_hash *out)
{
    const uint64_t numbers[] = {
        r->id,
        r->generation,
        r->version,
        r->shard,
        r->state,
        r->tombstone,
        r->fence,
        (uint64_t)r->created_at,
        (uint64_t)r->updated_at,
        (uint64_t)r->lease_end,
        (uint64_t)r->due_at,
        (uint64_t)r->settled_at,
        (uint64_t)r->result_end,
        (uint64_t)r->window_end,
        (uint64_t)r->purge_at,
    };
    sm_buf_clear(scratch);
    sm_buf_text(scratch, "semel-record-2");
    sm_buf_bytes(scratch, r->key.b, sizeof r->key.b);
    sm_buf_bytes(scratch, r->group.b, sizeof r->group.b);
    sm_buf_bytes(scratch, r->fingerprint.b, sizeof r->fingerprint.b);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        put_number(scratch, numbers[i]);
    put_text(scratch, r->scope);
    put_text(scratch, r->step);
    put_text(scratch, r->tool);
    put_text(scratch, r->caller);
    put_text(scratch, r->life);
    return scratch->err != SM_OK ? scratch->err : sm_digest_bytes(d, scratch->p, scratch->len, out);
}

sm_err sm_chain_fold(sm_digest *d, sm_hash *so_far, uint64_t seq, const sm_hash *next)
{
    uint8_t text[sizeof so_far->b + sizeof seq + sizeof next->b];
    uint64_t big = htobe64(seq);
    memcpy(text, so_far->b, sizeof so_far->b);
    memcpy(text + sizeof so_far->b, &big, sizeof big);
    memcpy(text + sizeof so_far->b + sizeof big, next->b, sizeof next->b);
    return sm_digest_bytes(d, text, sizeof text, so_far);
}
