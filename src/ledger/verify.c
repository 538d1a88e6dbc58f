/*
 * Verifying the audit trail: one pass over all events in order, then one over all records.
 *
 * For every effect the newest link is kept in a table, so that an event that is altered, missing or
 * out of order does not fit the one before it; seals are checked against the hashes of the events
 * that they cover; and a record must agree with the last event of its effect, and its outcome with
 * the digest in the event that settled it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "ledger/ledger.h"
#include "ledger/seal.h"

#define PAGE 1000u

/* The newest event of one effect. */
typedef struct link {
    uint64_t id, generation, index;
    sm_hash hash;
    uint8_t outcome[16];     /* of the newest digest of a value */
    uint8_t fingerprint[16]; /* of the newest arguments that ran or were asked about */
    uint8_t record[16];      /* of what the record says */
    int64_t purge_at;        /* until then there must be a record; 0: always */
    uint8_t shard;
    bool has_outcome, has_fingerprint;
    bool kept; /* there is a record */
} link;

/* An event since the last seal. */
typedef struct pending {
    uint64_t seq;
    sm_hash hash;
} pending;

typedef struct check {
    semel *s;
    sm_work *w;
    semel_verified *out;
    semel_flaw_fn *flaw;
    semel_progress_fn *progress;
    void *context;
    uint64_t total, seen;
    int64_t started; /* by the store's clock; what was written since is not judged */
    link *links;     /* open hash table, a power of two */
    size_t slots, used;
    pending *open;
    size_t open_count, open_room;
    uint64_t seal_index;
    sm_hash seal_hash;
    uint64_t sealed_to;
    uint64_t purged_to;
    uint64_t keyed; /* seals made with a key */
    uint64_t orphans, first_orphan;
    bool stopped;
    sm_err err;
} check;

static void tell(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void tell(check *c, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->out->flaws++;
    if (c->flaw != NULL && !c->flaw(c->context, sm_str_from(text)))
        c->stopped = true;
}

static const char *handle_of(uint8_t shard, uint64_t id, uint64_t generation,
                             char out[SM_HANDLE_TEXT])
{
    sm_handle h = {.shard = shard, .id = id, .generation = generation};
    sm_handle_effect(&h, out);
    return out;
}

/* ---- the table -------------------------------------------------------------------------------*/

static link *find(const check *c, uint64_t id, uint64_t generation)
{
    size_t at = (size_t)(id ^ generation * 0x9E3779B97F4A7C15u);
    for (;; at++) {
        link *l = &c->links[at & (c->slots - 1)];
        if (l->index == 0 || (l->id == id && l->generation == generation))
            return l;
    }
}

static bool make_room(check *c)
{
    if (c->used * 3 < c->slots * 2)
        return true;
    check bigger = *c;
    bigger.slots = c->slots == 0 ? 4096 : c->slots * 2;
    bigger.links = calloc(bigger.slots, sizeof *bigger.links);
    if (bigger.links == NULL)
        return false;
    for (size_t i = 0; i < c->slots; i++) {
        if (c->links[i].index != 0)
            *find(&bigger, c->links[i].id, c->links[i].generation) = c->links[i];
    }
    free(c->links);
    c->links = bigger.links;
    c->slots = bigger.slots;
    return true;
}

static bool remember(check *c, const semel_event *e)
{
    if (c->open_count == c->open_room) {
        size_t room = c->open_room == 0 ? 1024 : c->open_room * 2;
        pending *p = realloc(c->open, room * sizeof *p);
        if (p == NULL)
            return false;
        c->open = p;
        c->open_room = room;
    }
    c->open[c->open_count++] = (pending){e->seq, e->hash};
    return true;
}

/* ---- events ----------------------------------------------------------------------------------*/

/* A hash in an event's body, if there is one. */
static bool body_hash(const sm_json *body, sm_str name, uint8_t out[16])
{
    const sm_json *v = sm_json_find(body, name);
    sm_hash h;
    if (v == NULL || v->type != SM_JSON_STRING || !sm_hash_parse(sm_json_text(v), &h))
        return false;
    memcpy(out, h.b, 16);
    return true;
}

/* What the event says about its record. */
static void read_body(check *c, const semel_event *e, link *l)
{
    sm_arena_reset(&c->w->call);
    const sm_json *body;
    l->purge_at = 0;
    memset(l->record, 0, sizeof l->record);
    if (sm_json_read(&c->w->call, e->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return;
    body_hash(body, SM_STR("record"), l->record);
    l->has_outcome |= body_hash(body, SM_STR("sha256"), l->outcome);
    l->has_fingerprint |= body_hash(body, SM_STR("fingerprint"), l->fingerprint);
    const sm_json *purge = sm_json_find(body, SM_STR("purge_at"));
    if (purge != NULL && purge->type == SM_JSON_NUMBER)
        l->purge_at = strtoll(purge->text, NULL, 10); /* what follows a text is not a digit */
}

static void check_effect_event(check *c, const semel_event *e)
{
    char handle[SM_HANDLE_TEXT];
    handle_of(e->shard, e->id, e->generation, handle);
    if (!make_room(c) || !remember(c, e)) {
        c->err = SEMEL_E_NOMEM;
        return;
    }
    link *l = find(c, e->id, e->generation);
    semel_event again = *e;
    c->err = sm_chain_hash(&c->w->keyer.digest, &c->w->scratch, &again);
    if (c->err != SM_OK)
        return;
    if (memcmp(&again.hash, &e->hash, sizeof e->hash) != 0)
        tell(c, "event %llu of %s was altered", (unsigned long long)e->seq, handle);
    static const sm_hash none;
    bool starts = e->index == 1 && memcmp(&e->prev, &none, sizeof none) == 0;
    if (l->index == 0 && !starts) {
        if (c->orphans++ == 0)
            c->first_orphan = e->seq;
    } else if (l->index != 0 && starts) {
        if (l->purge_at == 0 || l->purge_at > e->at)
            tell(c, "%s began anew at event %llu, before its record could have been purged", handle,
                 (unsigned long long)e->seq);
        l->has_outcome = l->has_fingerprint = false;
    } else if (l->index != 0 && e->index != l->index + 1) {
        tell(c, "events of %s are missing or out of order before event %llu", handle,
             (unsigned long long)e->seq);
    } else if (l->index != 0 && memcmp(&e->prev, &l->hash, sizeof l->hash) != 0) {
        tell(c, "event %llu of %s does not follow the one before it", (unsigned long long)e->seq,
             handle);
    }
    if (l->index == 0) {
        c->used++;
        c->out->effects++;
    }
    l->id = e->id;
    l->generation = e->generation;
    l->index = e->index;
    l->shard = e->shard;
    l->hash = e->hash;
    read_body(c, e, l);
    c->out->events++;
}

/* Whether a seal's hash is right, as far as can be told with the key that we have. */
static void check_seal_hash(check *c, const semel_event *e, const sm_seal *seal)
{
    sm_str key = {c->s->seal_key, c->s->seal_key_bytes};
    if (seal->keyed != (key.p != NULL))
        c->out->unkeyed++;
    if (!seal->keyed && c->keyed > 0)
        tell(c, "seal %llu was made without a key, after others with one",
             (unsigned long long)e->index);
    c->keyed += seal->keyed;
    if (seal->keyed && key.p == NULL)
        return;
    semel_event again = *e;
    c->err =
        sm_seal_hash(&c->w->keyer.digest, &c->w->scratch, seal->keyed ? key : (sm_str){0}, &again);
    if (c->err == SM_OK && memcmp(&again.hash, &e->hash, sizeof e->hash) != 0)
        tell(c, "seal %llu was altered, or made with another key", (unsigned long long)e->index);
}

/* Recomputes what a seal covers from the events since the seal before it. */
static void check_seal_range(check *c, const semel_event *e, const sm_seal *seal)
{
    sm_hash digest = {0};
    uint64_t n = 0;
    size_t used = 0;
    for (; used < c->open_count && c->open[used].seq <= seal->to; used++) {
        c->err =
            sm_chain_fold(&c->w->keyer.digest, &digest, c->open[used].seq, &c->open[used].hash);
        if (c->err != SM_OK)
            return;
        n++;
    }
    bool whole = n == seal->events && memcmp(&digest, &seal->digest, sizeof digest) == 0;
    if (!whole && n > seal->events)
        tell(c, "events were added among those under seal %llu", (unsigned long long)e->index);
    else if (!whole && seal->to > c->purged_to)
        tell(c, "events under seal %llu (%llu to %llu) were altered, removed or reordered",
             (unsigned long long)e->index, (unsigned long long)seal->from,
             (unsigned long long)seal->to);
    if (used > 0)
        memmove(c->open, c->open + used, (c->open_count - used) * sizeof *c->open);
    c->open_count -= used;
    if (seal->from != c->sealed_to + 1)
        tell(c, "seal %llu does not begin where the one before it ended",
             (unsigned long long)e->index);
    c->sealed_to = seal->to;
}

static void check_seal(check *c, const semel_event *e)
{
    sm_seal seal;
    c->out->seals++;
    if (e->index != c->seal_index + 1 || memcmp(&e->prev, &c->seal_hash, sizeof e->prev) != 0)
        tell(c, "seals are missing or out of order before seal %llu", (unsigned long long)e->index);
    c->seal_index = e->index;
    c->seal_hash = e->hash;
    if (!sm_seal_parse(&c->w->call, e, &seal)) {
        tell(c, "seal %llu was altered", (unsigned long long)e->index);
        return;
    }
    check_seal_hash(c, e, &seal);
    if (c->err == SM_OK && !seal.purged)
        check_seal_range(c, e, &seal);
}

static bool check_event(void *context, const semel_event *e)
{
    check *c = context;
    if (e->id == 0)
        check_seal(c, e);
    else
        check_effect_event(c, e);
    c->seen++;
    if (c->progress != NULL && c->seen % 1000 == 0 && !c->progress(c->context, e->seq, c->total))
        c->stopped = true;
    return c->err == SM_OK && !c->stopped;
}

/* How much was purged is known only from seals that come later than what is gone. */
static bool find_purged(void *context, const semel_event *e)
{
    check *c = context;
    sm_seal seal;
    if (e->id == 0 && sm_seal_parse(&c->w->call, e, &seal) && seal.purged && seal.to > c->purged_to)
        c->purged_to = seal.to;
    return true;
}

static sm_err each_event(check *c, semel_event_sink *sink, semel_fault *fault)
{
    sm_err e = SM_OK;
    for (uint64_t after = 0, before = 1; after != before && e == SM_OK && !c->stopped;) {
        before = after;
        e = c->s->ops->events(c->s->store, NULL, &after, PAGE, sink, c, fault);
        if (c->err != SM_OK)
            e = sm_fault_set(fault, c->err, "%s", semel_err_text(c->err));
    }
    return e;
}

/* ---- records ---------------------------------------------------------------------------------*/

static void check_outcome(check *c, const semel_record *r, const link *l, const char *handle)
{
    semel_outcome o;
    if (r->outcome.p == NULL || !l->has_outcome)
        return;
    if (!sm_outcome_unpack(r->outcome, &o)) {
        tell(c, "the outcome of %s cannot be read", handle);
        return;
    }
    sm_hash h;
    if (!o.kept)
        return;
    c->err = sm_digest_bytes(&c->w->keyer.digest, o.value.n == 0 ? "" : o.value.p, o.value.n, &h);
    if (c->err == SM_OK && memcmp(h.b, l->outcome, sizeof l->outcome) != 0)
        tell(c, "the outcome of %s is not the one that was recorded", handle);
}

/* The arguments must be those that the history names, unless a mark stands for part of them. */
static void check_args(check *c, const semel_record *r, const link *l, const char *handle)
{
    if (!l->has_fingerprint)
        return;
    bool same = memcmp(r->fingerprint.b, l->fingerprint, sizeof l->fingerprint) == 0;
    if (same && r->args.p != NULL && memmem(r->args.p, r->args.n, "\"[redacted]\"", 12) == NULL) {
        sm_fingerprint print;
        const sm_json *args;
        sm_arena_reset(&c->w->call);
        same = sm_json_read(&c->w->call, r->args, &sm_json_args_limits, &args, NULL) == SM_OK &&
               sm_fingerprint_make(&c->w->keyer, r->tool, args, r->args, &print, NULL) == SM_OK &&
               memcmp(print.hash.b, l->fingerprint, sizeof l->fingerprint) == 0;
    }
    if (!same)
        tell(c, "the arguments of %s are not those that were recorded", handle);
}

/* A record may have been written between the two passes, with a time from before: then its history
 * has grown too. And a store may hold back the newest events from those who read all of them, while
 * one with a smaller number may still come. */
typedef struct last_event {
    uint64_t index;
    sm_hash hash;
} last_event;

static bool take_last(void *context, const semel_event *e)
{
    *(last_event *)context = (last_event){e->index, e->hash};
    return true;
}

static bool has_grown(check *c, const semel_record *r, const link *l)
{
    last_event last = {0};
    const semel *s = c->s;
    semel_ref of = sm_ref_of(r);
    for (uint64_t after = 0, before = 1; r->events > l->index && after != before;) {
        before = after;
        if (s->ops->events(s->store, &of, &after, PAGE, take_last, &last, NULL) != SM_OK)
            return false;
    }
    return last.index >= r->events;
}

static bool check_record(void *context, const semel_record *r, int64_t now)
{
    (void)now;
    check *c = context;
    char handle[SM_HANDLE_TEXT];
    handle_of(r->shard, r->id, r->generation, handle);
    link *l = c->slots == 0 ? NULL : find(c, r->id, r->generation);
    bool absent = l == NULL || l->index == 0;
    if (!absent)
        l->kept = true;
    if (r->updated_at >= c->started)
        return true;
    sm_hash digest;
    c->err = sm_record_digest(&c->w->keyer.digest, &c->w->scratch, r, &digest);
    if (c->err != SM_OK)
        return false;
    sm_memo memo;
    if (sm_memo_unpack(r, &memo) != SM_OK)
        tell(c, "the record of %s does not make sense", handle);
    static const link none;
    if (absent && has_grown(c, r, &none))
        return true;
    if (absent && c->purged_to == 0)
        tell(c, "the history of %s is gone", handle);
    else if (!absent && has_grown(c, r, l))
        return true;
    else if (!absent && (l->index != r->events || memcmp(&l->hash, &r->head, sizeof r->head) != 0))
        tell(c, "the record of %s does not agree with its history", handle);
    else if (!absent && memcmp(digest.b, l->record, sizeof l->record) != 0)
        tell(c, "the record of %s was altered", handle);
    if (!absent) {
        check_outcome(c, r, l, handle);
        check_args(c, r, l, handle);
    }
    return c->err == SM_OK && !c->stopped;
}

/* Every effect has a record until it may be purged. */
static void check_missing(check *c)
{
    char handle[SM_HANDLE_TEXT];
    for (size_t i = 0; i < c->slots && !c->stopped; i++) {
        const link *l = &c->links[i];
        if (l->index != 0 && !l->kept && (l->purge_at == 0 || l->purge_at > c->started))
            tell(c, "the record of %s is gone, and its time has not come",
                 handle_of(l->shard, l->id, l->generation, handle));
    }
}

semel_err semel_verify(semel *s, semel_flaw_fn *flaw, semel_progress_fn *progress, void *context,
                       semel_verified *out, semel_fault *fault)
{
    *out = (semel_verified){0};
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    check c = {.s = s,
               .w = sm_work_start(a),
               .out = out,
               .flaw = flaw,
               .progress = progress,
               .context = context};
    semel_health h;
    sm_err e = s->ops->health(s->store, false, &h, fault);
    c.total = e == SM_OK ? h.last_seq : 0;
    c.started = sm_now(s);
    if (e == SM_OK && h.seal_seq != 0)
        e = each_event(&c, find_purged, fault);
    if (e == SM_OK)
        e = each_event(&c, check_event, fault);
    if (e == SM_OK && c.orphans > 0 && c.purged_to == 0)
        tell(&c, "the first events of %llu effects are gone, the first before event %llu",
             (unsigned long long)c.orphans, (unsigned long long)c.first_orphan);
    out->unsealed = c.open_count;
    semel_filter all = {0};
    for (uint64_t cursor = 0, more = 1; e == SM_OK && more && !c.stopped; more = cursor != 0)
        e = s->ops->query(s->store, &all, &cursor, PAGE, check_record, &c, fault);
    if (e == SM_OK && c.err != SM_OK)
        e = sm_fault_set(fault, c.err, "%s", semel_err_text(c.err));
    if (e == SM_OK && !c.stopped)
        check_missing(&c);
    if (e == SM_OK && s->seal_key != NULL && out->seals > 0 && c.keyed == 0)
        tell(&c, "no seal was made with this key: seal with it, if it is new here");
    free(c.links);
    free(c.open);
    semel_answer_free(a);
    return e;
}
