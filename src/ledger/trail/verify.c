/*
 * Verifying the audit trail: the store checks itself, then there are two passes over all events in
 * order. The first finds how much was purged (find_purged): only later seals tell. The second
 * checks each event (check_event). Then follow all records (verify_record.c) and the counters
 * (verify_resource.c).
 *
 * For every effect the newest link is kept in a table. An event that is altered, missing or out of
 * order does not fit the one before it. Seals are checked against the hashes of the events that
 * they cover. An event holds a digest of the record that it left, and of the record that it found:
 * so a record that was altered between two events shows, even if it was put back since.
 */
#include "ledger/trail/verify.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/given.h"
#include "ledger/guard/shared.h"

#define PAGE 1000u

void sm_check_tell(sm_check *c, const char *format, ...)
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

const char *sm_check_handle(uint8_t shard, uint64_t id, uint64_t generation,
                            char out[SM_HANDLE_TEXT])
{
    sm_handle h = {.shard = shard, .id = id, .generation = generation};
    sm_handle_effect(&h, out);
    return out;
}

/* ---- the table -------------------------------------------------------------------------------*/

sm_trail_link *sm_check_find(const sm_check *c, uint64_t id, uint64_t generation)
{
    static sm_trail_link none;
    if (c->slots == 0)
        return &none;
    size_t at = (size_t)(id ^ generation * 0x9E3779B97F4A7C15u);
    for (;; at++) {
        sm_trail_link *l = &c->links[at & (c->slots - 1)];
        if (l->index == 0 || (l->id == id && l->generation == generation))
            return l;
    }
}

static bool make_room(sm_check *c)
{
    if (c->used * 3 < c->slots * 2)
        return true;
    sm_check bigger = *c;
    bigger.slots = c->slots == 0 ? 4096 : c->slots * 2;
    bigger.links = calloc(bigger.slots, sizeof *bigger.links);
    if (bigger.links == NULL)
        return false;
    for (size_t i = 0; i < c->slots; i++) {
        if (c->links[i].index != 0)
            *sm_check_find(&bigger, c->links[i].id, c->links[i].generation) = c->links[i];
    }
    free(c->links);
    c->links = bigger.links;
    c->slots = bigger.slots;
    return true;
}

/* The newest such generation of a key is the index of the key's generation 0, which no effect has.
 */
void sm_check_unrooted(sm_check *c, uint64_t id, uint64_t generation)
{
    if (!make_room(c)) {
        c->err = SEMEL_E_NOMEM;
        return;
    }
    sm_trail_link *l = sm_check_find(c, id, 0);
    c->used += l->index == 0;
    c->unrooted = true;
    *l = (sm_trail_link){
        .id = id, .index = l->index > generation ? l->index : generation, .kept = true};
}

static bool remember(sm_check *c, const semel_event *e)
{
    if (c->open_count == c->open_room) {
        size_t room = c->open_room == 0 ? 1024 : c->open_room * 2;
        sm_unsealed *p = realloc(c->open, room * sizeof *p);
        if (p == NULL)
            return false;
        c->open = p;
        c->open_room = room;
    }
    c->open[c->open_count++] = (sm_unsealed){e->seq, e->hash};
    return true;
}

/* ---- events ----------------------------------------------------------------------------------*/

static sm_hash body_hash(const sm_json *body, sm_str name)
{
    const sm_json *v = sm_json_find(body, name);
    sm_hash h = {{0}};
    if (v == NULL || v->type != SM_JSON_STRING || !sm_hash_parse(sm_json_text(v), &h))
        return (sm_hash){{0}};
    return h;
}

static bool same(const sm_hash *a, const sm_hash *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* The event's digests of the record: as it found it, and as it left it. */
static void read_body(sm_check *c, const semel_event *e, sm_trail_link *l, sm_hash *was)
{
    sm_arena_reset(&c->w->call);
    const sm_json *body;
    l->purge_at = 0;
    l->record = *was = (sm_hash){{0}};
    if (sm_json_read(&c->w->call, e->body, &sm_json_default_limits, &body, NULL) != SM_OK)
        return;
    l->record = body_hash(body, SM_STR("record"));
    *was = body_hash(body, SM_STR("was"));
    const sm_json *purge = sm_json_find(body, SM_STR("purge_at"));
    if (purge != NULL && purge->type == SM_JSON_NUMBER)
        l->purge_at = strtoll(purge->text, NULL, 10); /* what follows a text is not a digit */
}

/* Whether the event found the record as the event before it had left it. The first event of a
 * generation follows the newest one of the generation before. If the event before is not known,
 * nothing is checked. */
static void check_found(sm_check *c, const semel_event *e, const sm_trail_link *before,
                        const sm_hash *was)
{
    static const sm_hash none;
    char handle[SM_HANDLE_TEXT];
    if (before->index != 0 && !same(was, &before->record) && (e->index > 1 || !same(was, &none)))
        sm_check_tell(c, "the record of %s was altered before event %llu",
                      sm_check_handle(e->shard, before->id, before->generation, handle),
                      (unsigned long long)e->seq);
}

void sm_check_link(sm_check *c, const semel_event *e, const sm_trail_link *older, sm_trail_link *l)
{
    char handle[SM_HANDLE_TEXT];
    sm_check_handle(e->shard, e->id, e->generation, handle);
    semel_event again = *e;
    c->err = sm_chain_hash(&c->w->keyer.digest, &c->w->scratch, &again);
    if (c->err != SM_OK)
        return;
    if (!same(&again.hash, &e->hash))
        sm_check_tell(c, "event %llu of %s was altered", (unsigned long long)e->seq, handle);
    static const sm_hash none;
    bool starts = e->index == 1 && same(&e->prev, &none);
    sm_trail_link before = l->index != 0 && !starts ? *l : *older;
    if (l->index == 0 && !starts) {
        if (c->orphans++ == 0)
            c->first_orphan = e->seq;
    } else if (l->index != 0 && starts) {
        if (l->purge_at == 0 || l->purge_at > e->at)
            sm_check_tell(c,
                          "%s began anew at event %llu, before its record could have been purged",
                          handle, (unsigned long long)e->seq);
    } else if (l->index != 0 && e->index != l->index + 1) {
        sm_check_tell(c, "events of %s are missing or out of order before event %llu", handle,
                      (unsigned long long)e->seq);
    } else if (l->index != 0 && !same(&e->prev, &l->hash)) {
        sm_check_tell(c, "event %llu of %s does not follow the one before it",
                      (unsigned long long)e->seq, handle);
    }
    l->id = e->id;
    l->generation = e->generation;
    l->index = e->index;
    l->shard = e->shard;
    l->hash = e->hash;
    sm_hash was;
    read_body(c, e, l, &was);
    check_found(c, e, &before, &was);
    if (starts && before.index == 0 && !same(&was, &none))
        l->unrooted = true;
}

static void check_effect_event(sm_check *c, const semel_event *e)
{
    if (!make_room(c) || !remember(c, e)) {
        c->err = SEMEL_E_NOMEM;
        return;
    }
    sm_trail_link *l = sm_check_find(c, e->id, e->generation);
    if (l->index == 0) {
        c->used++;
        c->out->effects += !sm_shared_begins(e);
    }
    static const sm_trail_link none;
    sm_check_link(c, e, e->generation > 1 ? sm_check_find(c, e->id, e->generation - 1) : &none, l);
    if (l->unrooted)
        sm_check_unrooted(c, e->id, e->generation);
    sm_check_written(c, e);
    c->out->events++;
}

/* Whether a seal's hash is right, as far as can be told with the key that we have. */
static void check_seal_hash(sm_check *c, const semel_event *e, const sm_seal *seal)
{
    sm_str key = {c->s->seal_key, c->s->seal_key_bytes};
    if (seal->keyed != (key.p != NULL))
        c->out->unkeyed++;
    if (!seal->keyed && c->keyed > 0)
        sm_check_tell(c, "seal %llu was made without a key, after others with one",
                      (unsigned long long)e->index);
    c->keyed += seal->keyed;
    if (seal->keyed && key.p == NULL)
        return;
    semel_event again = *e;
    c->err =
        sm_seal_hash(&c->w->keyer.digest, &c->w->scratch, seal->keyed ? key : (sm_str){0}, &again);
    if (c->err == SM_OK && memcmp(&again.hash, &e->hash, sizeof e->hash) != 0)
        sm_check_tell(c, "seal %llu was altered, or made with another key",
                      (unsigned long long)e->index);
}

/* Recomputes what a seal covers from the events since the seal before it. */
static void check_seal_range(sm_check *c, const semel_event *e, const sm_seal *seal)
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
    if (!whole && seal->to > c->purged_to)
        sm_check_tell(c, "events under seal %llu (%llu to %llu) were altered, removed or reordered",
                      (unsigned long long)e->index, (unsigned long long)seal->from,
                      (unsigned long long)seal->to);
    if (used > 0)
        memmove(c->open, c->open + used, (c->open_count - used) * sizeof *c->open);
    c->open_count -= used;
    if (seal->from != c->sealed_to + 1)
        sm_check_tell(c, "seal %llu does not begin where the one before it ended",
                      (unsigned long long)e->index);
    c->sealed_to = seal->to;
}

static void check_seal(sm_check *c, const semel_event *e)
{
    sm_seal seal;
    c->out->seals++;
    if (e->index != c->seal_index + 1 || memcmp(&e->prev, &c->seal_hash, sizeof e->prev) != 0)
        sm_check_tell(c, "seals are missing or out of order before seal %llu",
                      (unsigned long long)e->index);
    c->seal_index = e->index;
    c->seal_hash = e->hash;
    if (!sm_seal_parse(&c->w->call, e, &seal)) {
        sm_check_tell(c, "seal %llu was altered", (unsigned long long)e->index);
        return;
    }
    check_seal_hash(c, e, &seal);
    if (c->err == SM_OK && !seal.purged)
        check_seal_range(c, e, &seal);
}

static bool check_event(void *context, const semel_event *e)
{
    sm_check *c = context;
    c->last_seq = e->seq;
    if (e->id == 0)
        check_seal(c, e);
    else if (e->seq > c->purged_to)
        check_effect_event(c, e);
    else
        c->leftover++; /* about to be removed: it proves nothing */
    c->seen++;
    if (c->progress != NULL && c->seen % 1000 == 0 && !c->progress(c->context, e->seq, c->total))
        c->stopped = true;
    return c->err == SM_OK && !c->stopped;
}

/* How much was purged is known only from seals that come later than what is gone. */
static bool find_purged(void *context, const semel_event *e)
{
    sm_check *c = context;
    sm_seal seal;
    if (e->id == 0 && sm_seal_parse(&c->w->call, e, &seal) && seal.purged && seal.to > c->purged_to)
        c->purged_to = seal.to;
    return true;
}

static sm_err each_event(sm_check *c, semel_event_sink *sink, semel_fault *fault)
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

static bool count_leftover(void *context, const semel_event *e)
{
    sm_check *c = context;
    c->leftover += e->id != 0 && e->seq <= c->purged_to;
    return e->seq <= c->purged_to;
}

/* Events that a seal calls purged may be about to be removed, but must not stay: no seal covers
 * them any more, so anybody could have put them there. */
static sm_err check_leftover(sm_check *c, semel_fault *fault)
{
    if (c->leftover == 0)
        return SM_OK;
    c->leftover = 0;
    sm_err e = SM_OK;
    for (uint64_t after = 0, before = 1; after != before && after < c->purged_to && e == SM_OK;) {
        before = after;
        e = c->s->ops->events(c->s->store, NULL, &after, PAGE, count_leftover, c, fault);
    }
    if (e == SM_OK && c->leftover > 0)
        sm_check_tell(c,
                      "%llu events should have been purged and are still there: run `semel purge`, "
                      "and verify again",
                      (unsigned long long)c->leftover);
    return e;
}

/* What the store says is purged must be what seals call purged. A purge leaves a newer seal, so the
 * newest number that was ever given out belongs to an event that is there. */
static void check_numbers(sm_check *c, const semel_health *h)
{
    if (h->purged_to > c->purged_to)
        sm_check_tell(c,
                      "the store says that events up to %llu were purged, and no seal says so "
                      "beyond %llu",
                      (unsigned long long)h->purged_to, (unsigned long long)c->purged_to);
    if (h->last_seq > c->last_seq)
        sm_check_tell(c,
                      "the newest events are gone: numbers were given out up to %llu, and events "
                      "are there up to %llu",
                      (unsigned long long)h->last_seq, (unsigned long long)c->last_seq);
}

/* ---- all of it -------------------------------------------------------------------------------*/

/* The store's own check: its structures lead to every record, and to nothing else. */
static sm_err check_store(sm_check *c, semel_health *h, semel_fault *fault)
{
    semel_fault found = {0};
    sm_err e = c->s->ops->health(c->s->store, true, h, &found);
    if (e == SEMEL_E_CORRUPT) {
        sm_check_tell(c, "%s", found.text);
        return SM_OK;
    }
    if (e != SM_OK && fault != NULL)
        *fault = found;
    return e;
}

semel_err semel_verify(semel *s, semel_flaw_fn *flaw, semel_progress_fn *progress, void *context,
                       semel_verified *out, semel_fault *fault)
{
    semel_verified counts;
    sm_err e = sm_given_read(&counts, sizeof counts, out, SM_FIRST_SIZE(semel_verified, flaws),
                             "the verification's counts", fault);
    if (e != SM_OK)
        return e;
    counts = (semel_verified){0};
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_check c = {.s = s,
                  .w = sm_work_start(a),
                  .out = &counts,
                  .flaw = flaw,
                  .progress = progress,
                  .context = context};
    semel_health h = {0};
    e = check_store(&c, &h, fault);
    c.total = e == SM_OK ? h.last_seq : 0;
    if (e == SM_OK)
        e = each_event(&c, find_purged, fault);
    if (e == SM_OK)
        e = each_event(&c, check_event, fault);
    if (e == SM_OK && !c.stopped)
        check_numbers(&c, &h);
    if (e == SM_OK && c.orphans > 0 && c.purged_to == 0)
        sm_check_tell(&c, "the first events of %llu effects are gone, the first before event %llu",
                      (unsigned long long)c.orphans, (unsigned long long)c.first_orphan);
    counts.unsealed = c.open_count;
    if (e == SM_OK)
        e = sm_check_records(&c, fault);
    if (e == SM_OK && !c.stopped)
        e = sm_check_counters(&c, fault);
    if (e == SM_OK)
        e = check_leftover(&c, fault);
    if (e == SM_OK && s->seal_key != NULL && counts.seals > 0 && c.keyed == 0)
        sm_check_tell(&c, "no seal was made with this key: seal with it, if it is new here");
    free(c.links);
    free(c.written);
    free(c.open);
    semel_answer_free(a);
    sm_given_fill(out, &counts, sizeof counts);
    return e;
}
