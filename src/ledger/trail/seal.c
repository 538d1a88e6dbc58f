/*
 * Sealing: a digest over the events since the last seal, chained to that seal.
 *
 * Any writable handle seals; a compare-and-swap on the newest seal lets one of them win.
 */
#include "ledger/trail/seal.h"

#include <stdlib.h>

#include "json/write.h"
#include "ledger/work/ledger.h"

#define SEAL_AFTER_MS 60000
#define SEAL_MAX      100000u /* events under one seal */
#define PAGE          1000u

static void seal_put(const sm_seal *seal, sm_buf *body)
{
    sm_buf_clear(body);
    sm_buf_byte(body, '{');
    sm_put_number(body, "from", seal->from);
    sm_put_number(body, "to", seal->to);
    sm_put_number(body, "events", seal->events);
    sm_put_hash(body, "digest", &seal->digest);
    sm_put_bool(body, "keyed", seal->keyed);
    if (seal->purged)
        sm_put_number(body, "sealed", seal->sealed);
    sm_buf_byte(body, '}');
}

static bool parse_number(const sm_json *body, const char *name, uint64_t *out)
{
    const sm_json *v = sm_json_find(body, sm_str_from(name));
    if (v == NULL || v->type != SM_JSON_NUMBER || v->len > 19)
        return false;
    *out = 0;
    for (uint32_t i = 0; i < v->len; i++) {
        if (v->text[i] < '0' || v->text[i] > '9')
            return false;
        *out = *out * 10 + (uint64_t)(v->text[i] - '0');
    }
    return true;
}

bool sm_seal_parse(sm_arena *a, const semel_event *e, sm_seal *out)
{
    *out = (sm_seal){.purged = sm_str_is(e->what, "purged")};
    sm_arena_reset(a);
    const sm_json *body, *digest, *keyed;
    if ((!out->purged && !sm_str_is(e->what, "sealed")) ||
        sm_json_read(a, e->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return false;
    digest = sm_json_find(body, SM_STR("digest"));
    keyed = sm_json_find(body, SM_STR("keyed"));
    out->keyed = keyed != NULL && keyed->type == SM_JSON_TRUE;
    if (out->purged && !parse_number(body, "sealed", &out->sealed))
        return false;
    return parse_number(body, "from", &out->from) && parse_number(body, "to", &out->to) &&
           parse_number(body, "events", &out->events) && digest != NULL &&
           digest->type == SM_JSON_STRING && sm_hash_parse(sm_json_text(digest), &out->digest);
}

/* ---- making one ------------------------------------------------------------------------------*/

typedef struct fold {
    sm_work *w;
    sm_seal seal;
    uint64_t last; /* newest seq to cover */
    sm_err err;
    bool found; /* the seal that was looked for */
} fold;

static bool fold_event(void *context, const semel_event *e)
{
    fold *f = context;
    if (e->seq > f->last)
        return false;
    if (e->id == 0)
        return true;
    f->seal.to = e->seq;
    f->seal.events++;
    f->err = sm_chain_fold(&f->w->keyer.digest, &f->seal.digest, e->seq, &e->hash);
    return f->err == SM_OK && f->seal.events < SEAL_MAX;
}

static bool take_seal(void *context, const semel_event *e)
{
    fold *f = context;
    f->found = e->id == 0 && sm_seal_parse(&f->w->call, e, &f->seal);
    return false;
}

sm_err sm_seal_write(semel *s, sm_work *w, const semel_health *h, const sm_seal *seal,
                     semel_fault *fault)
{
    seal_put(seal, &w->body);
    semel_event e = {
        .index = h->seal_index + 1,
        .at = sm_now(s),
        .what = seal->purged ? SM_STR("purged") : SM_STR("sealed"),
        .actor = sm_str_from(s->actor),
        .body = sm_buf_view(&w->body),
        .prev = h->seal_hash,
    };
    sm_err err =
        sm_seal_hash(&w->keyer.digest, &w->scratch, (sm_str){s->seal_key, s->seal_key_bytes}, &e);
    return err == SM_OK ? s->ops->seal(s->store, &e, h->seal_seq, fault) : err;
}

sm_err sm_seal_covered(semel *s, sm_work *w, const semel_health *h, uint64_t *to, bool *keyed,
                       semel_fault *fault)
{
    *to = 0;
    *keyed = false;
    if (h->seal_seq == 0)
        return SM_OK;
    fold f = {.w = w};
    uint64_t after = h->seal_seq - 1;
    sm_err e = s->ops->events(s->store, NULL, &after, 1, take_seal, &f, fault);
    if (e == SM_OK && !f.found)
        return sm_fault_set(fault, SEMEL_E_CORRUPT,
                            "the newest seal cannot be read; run `semel "
                            "audit verify`");
    *to = f.seal.purged ? f.seal.sealed : f.seal.to;
    *keyed = f.seal.keyed;
    return e;
}

static sm_err seal_some(semel *s, sm_work *w, const semel_health *h, uint64_t from, bool *more,
                        semel_fault *fault)
{
    fold f = {.w = w, .last = h->last_seq};
    f.seal.from = from + 1;
    f.seal.keyed = s->seal_key != NULL;
    *more = false;
    for (uint64_t after = from, before = UINT64_MAX;
         after != before && after < h->last_seq && f.seal.events < SEAL_MAX;) {
        before = after;
        sm_err e = s->ops->events(s->store, NULL, &after, PAGE, fold_event, &f, fault);
        if (e != SM_OK || f.err != SM_OK)
            return e != SM_OK ? e : f.err;
    }
    if (f.seal.events == 0)
        return SM_OK;
    *more = f.seal.to < h->last_seq;
    return sm_seal_write(s, w, h, &f.seal, fault);
}

sm_err sm_seal_now(semel *s, bool force, semel_fault *fault)
{
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_work *w = sm_work_start(a);
    sm_err e = SM_OK;
    for (bool more = true; e == SM_OK && more;) {
        semel_health h = {0};
        uint64_t to = 0;
        bool keyed = false;
        e = s->ops->health(s->store, false, &h, fault);
        if (e == SM_OK)
            e = sm_seal_covered(s, w, &h, &to, &keyed, fault);
        if (e == SM_OK && keyed && s->seal_key == NULL) { /* that is for those who have the key */
            if (force)
                e = sm_fault_set(fault, SEMEL_E_INVALID,
                                 "this ledger is sealed with a key; name its file to seal it");
            break;
        }
        more = false;
        uint64_t open = h.last_seq > h.seal_seq ? h.last_seq - h.seal_seq : h.last_seq - to;
        bool late = h.seal_at + SEAL_AFTER_MS <= sm_now(s);
        if (e != SM_OK || h.last_seq <= to || !(force || late || open >= SM_SEAL_EVENTS))
            break;
        e = seal_some(s, w, &h, to, &more, fault);
        if (e == SM_OK)
            atomic_store(&s->written, 0);
    }
    semel_answer_free(a);
    return e == SEMEL_E_STALE ? SM_OK : e; /* somebody else has sealed: just as well */
}

semel_err semel_seal(semel *s, semel_fault *fault)
{
    return sm_seal_now(s, true, fault);
}
