/*
 * Purging: records whose time is over, and events that are past their retention.
 *
 * Events are removed only under a seal: a "purged" seal is written first. A record that decides an
 * answer always has an event: before its newest event is removed, it gets a new one, "kept".
 */
#include <stdlib.h>

#include "ledger/call/resource.h"
#include "ledger/trail/seal.h"

#define PAGE 1000u
/* A store may look in several places one after another, and find nothing in many of them. */
#define IDLE_ROUNDS_MAX 2000u

#define PURGE_BATCH 200u /* records in one transaction: a few milliseconds */

/* Whom a purge tells how far it is, and asks whether to go on. */
typedef struct purge_progress {
    semel_progress_fn *fn; /* or NULL */
    void *context;
    uint64_t *done;
} purge_progress;

/* ---- events ----------------------------------------------------------------------------------*/

typedef struct old_events {
    sm_work *w;
    int64_t before;
    sm_seal newest;     /* the newest seal under which everything is old enough */
    uint64_t purged_to; /* up to where a seal calls events purged */
    bool young;
} old_events;

static bool find_old(void *context, const semel_event *e)
{
    old_events *o = context;
    sm_seal seal;
    bool is = e->id == 0 && sm_seal_parse(&o->w->call, e, &seal);
    if (is && seal.purged && seal.to > o->purged_to)
        o->purged_to = seal.to;
    if (e->at >= o->before) {
        o->young = true;
        return false;
    }
    if (is && !seal.purged)
        o->newest = seal;
    return true;
}

/* ---- records that outlive their history ------------------------------------------------------*/

typedef struct keeping {
    uint64_t to;
    sm_handle effects[PAGE]; /* with events that may be their newest */
    sm_hash heads[PAGE];
    size_t n;
} keeping;

static bool collect(void *context, const semel_event *e)
{
    keeping *k = context;
    if (e->seq > k->to)
        return false;
    if (e->id == 0)
        return true;
    sm_handle *last = k->n == 0 ? NULL : &k->effects[k->n - 1];
    if (last == NULL || last->id != e->id || last->generation != e->generation)
        last = &k->effects[k->n++];
    *last = (sm_handle){.shard = e->shard, .id = e->id, .generation = e->generation};
    k->heads[k->n - 1] = e->hash;
    return k->n < PAGE;
}

/* Writes an event with the digests of the record, unless the record has a newer event or a newer
 * generation, or no answer depends on it any more. */
static sm_err keep(semel *s, sm_work *w, const sm_handle *effect, const sm_hash *head)
{
    for (int races = 0; races < SM_RACES_MAX; races++) {
        sm_err e = sm_load_handle(s, w, effect, true);
        if (e != SM_OK || w->cur.generation != effect->generation ||
            memcmp(&w->cur.head, head, sizeof *head) != 0 || !sm_record_decides(&w->cur, w->now))
            return e == SEMEL_E_NOT_FOUND ? SM_OK : e;
        w->step = (sm_move){
            .next = w->memo.effect, .changed = true, .notes = {SM_N_KEPT}, .note_count = 1};
        sm_body_start(w);
        e = sm_resource_keep(s, w);
        if (e == SM_OK)
            e = sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0})});
        if (e != SEMEL_E_STALE)
            return e;
    }
    return SEMEL_E_UNAVAILABLE;
}

/* Before events are removed, every record that an answer depends on gets a new one. That may take
 * long: if `progress` says stop, *enough is set, and the next purge of this handle goes on there.
 */
static sm_err keep_records(semel *s, sm_work *w, uint64_t to, const purge_progress *p, bool *enough,
                           semel_fault *fault)
{
    keeping *k = malloc(sizeof *k);
    if (k == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    k->to = to;
    sm_err e = SM_OK;
    uint64_t after = atomic_load(&s->kept_to);
    for (uint64_t before = after + 1; after != before && after < to && e == SM_OK && !*enough;) {
        before = after;
        k->n = 0;
        e = s->ops->events(s->store, NULL, &after, PAGE, collect, k, fault);
        for (size_t i = 0; i < k->n && e == SM_OK; i++) {
            e = keep(s, w, &k->effects[i], &k->heads[i]);
            if (e != SM_OK)
                sm_fault_set(fault, e, "%s",
                             w->fault.text[0] != '\0' ? w->fault.text : semel_err_text(e));
        }
        if (e == SM_OK)
            atomic_store(&s->kept_to, after < to ? after : to);
        *enough = p->fn != NULL && !p->fn(p->context, *p->done, 0);
    }
    *enough = *enough && after < to;
    free(k);
    return e;
}

/* Finds up to which number events may be removed, and writes the seal. *to is 0 if none may. */
static sm_err retire_events(semel *s, sm_work *w, const purge_progress *p, bool *enough,
                            uint64_t *to, semel_fault *fault)
{
    *to = 0;
    semel_health h = {0};
    sm_err e = s->ops->health(s->store, false, &h, fault);
    old_events o = {.w = w, .before = sm_now(s) - s->o.audit_retention_ms};
    uint64_t covered_to;
    bool keyed = false;
    if (e == SM_OK)
        e = sm_seal_covered(s, w, &h, &covered_to, &keyed, fault);
    if (e != SM_OK || h.oldest_event_at == 0 || h.oldest_event_at >= o.before ||
        (keyed && s->seal_key == NULL))
        return e;
    for (uint64_t after = 0, before = 1; after != before && !o.young && e == SM_OK;) {
        before = after;
        e = s->ops->events(s->store, NULL, &after, PAGE, find_old, &o, fault);
    }
    if (e == SM_OK)
        *to = o.purged_to; /* an earlier purge may have sealed more than it removed */
    if (e != SM_OK || o.newest.to <= o.purged_to)
        return e;
    sm_seal gone = {.purged = true,
                    .keyed = s->seal_key != NULL,
                    .from = 1,
                    .to = o.newest.to,
                    .sealed = covered_to,
                    .events = o.newest.events,
                    .digest = o.newest.digest};
    e = keep_records(s, w, gone.to, p, enough, fault);
    if (e == SM_OK && *enough)
        return SM_OK;
    if (e == SM_OK)
        e = sm_seal_write(s, w, &h, &gone, fault);
    if (e == SM_OK)
        *to = gone.to;
    return e == SEMEL_E_STALE ? SM_OK : e;
}

/* Purges up to an event's number, until nothing is left or `progress` says stop. */
static sm_err purge_to(semel *s, uint64_t events_to, const purge_progress *p, bool *enough,
                       semel_fault *fault)
{
    int64_t notes_before = sm_now(s) - s->o.audit_retention_ms;
    sm_err e = SM_OK;
    unsigned idle = 0; /* rounds in a row that removed nothing */
    for (bool left = true; left && e == SM_OK && !*enough;) {
        uint64_t before = *p->done;
        e = s->ops->purge(s->store, PURGE_BATCH, events_to, notes_before, p->done, &left, fault);
        *enough = p->fn != NULL && !p->fn(p->context, *p->done, 0);
        idle = *p->done == before ? idle + 1 : 0;
        if (e == SM_OK && left && idle > IDLE_ROUNDS_MAX)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "the ledger lists something to remove that is not there; `semel audit "
                             "verify` tells more");
    }
    return e;
}

/* Records first: removing events begins with writing a seal, which a store that is full refuses. */
semel_err semel_purge(semel *s, semel_progress_fn *progress, void *context, uint64_t *done,
                      semel_fault *fault)
{
    *done = 0;
    purge_progress p = {progress, context, done};
    bool enough = false;
    uint64_t events_to = 0;
    sm_err e = purge_to(s, 0, &p, &enough, fault);
    if (e != SM_OK || enough)
        return e;
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    e = retire_events(s, sm_work_start(a), &p, &enough, &events_to, fault);
    semel_answer_free(a);
    if (e == SM_OK && events_to > 0)
        e = purge_to(s, events_to, &p, &enough, fault);
    return e;
}
