/*
 * Verifying records: each agrees with the newest event of its effect, its arguments and its outcome
 * have the hashes that it names, and none is missing.
 *
 * Others may use the ledger meanwhile. If a record is newer than the pass over the events, it is
 * checked against the events that came since. Only their seq tells which these are.
 */
#include <stdio.h>

#include "core/handle.h"
#include "ledger/trail/verify.h"

#define PAGE 1000u

/* ---- newer events ----------------------------------------------------------------------------*/

typedef struct newer {
    sm_check *c;
    const semel_record *r;
    sm_trail_link *l;
} newer;

static bool agrees(const semel_record *r, const sm_trail_link *l)
{
    return l->index == r->events && memcmp(&l->hash, &r->head, sizeof r->head) == 0;
}

static bool follow(void *context, const semel_event *e)
{
    static const sm_trail_link unknown; /* it may have moved on too */
    newer *n = context;
    sm_check_link(n->c, e, &unknown, n->l);
    return n->c->err == SM_OK && !n->c->stopped && !agrees(n->r, n->l);
}

/* Moves a link on to the record's newest event, if that came after the pass over all events. */
static sm_err catch_up(sm_check *c, const semel_record *r, sm_trail_link *l)
{
    const semel *s = c->s;
    semel_ref of = sm_ref_of(r);
    newer n = {c, r, l};
    sm_err e = SM_OK;
    for (uint64_t after = c->last_seq, before = UINT64_MAX;
         after != before && e == SM_OK && c->err == SM_OK && !agrees(r, l);) {
        before = after;
        e = s->ops->events(s->store, &of, &after, PAGE, follow, &n, NULL);
    }
    return e != SM_OK ? e : c->err;
}

/* ---- one record ------------------------------------------------------------------------------*/

/* Whether bytes are those that the record names. */
static void check_payload(sm_check *c, bool arguments, sm_str bytes, const sm_hash *named,
                          bool may_be_gone, const char *handle)
{
    const char *what = arguments ? "arguments" : "outcome";
    static const sm_hash none;
    bool names = memcmp(named, &none, sizeof none) != 0;
    sm_hash h = {{0}};
    if (bytes.p == NULL) {
        if (names && !may_be_gone)
            sm_check_tell(c, "the %s of %s %s", what, handle,
                          arguments ? "were removed before their time"
                                    : "was removed before its time");
        return;
    }
    c->err = sm_digest_bytes(&c->w->keyer.digest, bytes.p, bytes.n, &h);
    if (c->err == SM_OK && memcmp(&h, named, sizeof h) != 0)
        sm_check_tell(c, "the %s of %s %s not what was recorded", what, handle,
                      arguments ? "are" : "is");
}

static bool over(int64_t end, int64_t now)
{
    return end != 0 && end <= now;
}

/* The names that follow from others. */
static bool names_agree(sm_check *c, const semel_record *r)
{
    uint64_t id = 0;
    uint8_t shard = 0;
    c->err = sm_effect_id(&c->w->keyer.digest, &r->key, &id);
    if (c->err == SM_OK)
        c->err = sm_scope_shard(&c->w->keyer.digest, r->scope, &shard);
    return c->err == SM_OK && id == r->id && shard == r->shard;
}

static void check_content(sm_check *c, const semel_record *r, int64_t now, const char *handle)
{
    sm_memo memo;
    semel_outcome outcome;
    if (sm_memo_unpack(r, &memo) != SM_OK || !names_agree(c, r)) {
        sm_check_tell(c, "the record of %s does not make sense", handle);
        return;
    }
    bool settled = semel_state_settled((semel_state)r->state);
    check_payload(c, true, r->args, &memo.args, settled && over(r->window_end, now), handle);
    check_payload(c, false, r->outcome, &memo.outcome, settled && over(r->result_end, now), handle);
    if (r->outcome.p != NULL && !sm_outcome_unpack(r->outcome, &outcome))
        sm_check_tell(c, "the outcome of %s cannot be read", handle);
}

/* Whether calls are answered by this record: older generations are history. */
static bool is_newest(sm_check *c, const semel_record *r)
{
    int64_t now;
    semel_record newest;
    semel_ref ref = sm_ref_of(r);
    ref.generation = 0;
    sm_work_drop(c->w);
    sm_err e = c->s->ops->get(c->s->store, &ref, &c->w->room, &newest, &now, NULL);
    return e != SM_OK || newest.generation <= r->generation;
}

static bool check_record(void *context, const semel_record *r, int64_t now)
{
    sm_check *c = context;
    char handle[SM_HANDLE_TEXT];
    sm_check_handle(r->shard, r->id, r->generation, handle);
    sm_trail_link *l = sm_check_find(c, r->id, r->generation), newest = *l;
    if (l->index != 0 && l->kept)
        sm_check_tell(c, "there are two records of %s", handle);
    if (l->index != 0)
        l->kept = true;
    if (!agrees(r, &newest))
        c->err = catch_up(c, r, &newest);
    sm_hash digest;
    if (c->err == SM_OK)
        c->err = sm_record_digest(&c->w->keyer.digest, &c->w->scratch, r, &digest);
    if (c->err != SM_OK)
        return false;
    /* A record whose events were purged decides nothing any more (purge.c). */
    if (newest.index == 0 && (c->purged_to == 0 || (sm_record_decides(r, now) && is_newest(c, r))))
        sm_check_tell(c, "the history of %s is gone", handle);
    else if (newest.index != 0 && !agrees(r, &newest))
        sm_check_tell(c, "the record of %s does not agree with its history", handle);
    else if (newest.index != 0 && memcmp(&digest, &newest.record, sizeof digest) != 0)
        sm_check_tell(c, "the record of %s was altered", handle);
    if (newest.index == 0 && r->generation > 1)
        sm_check_unrooted(c, r->id, r->generation);
    if (c->err == SM_OK)
        check_content(c, r, now, handle);
    return c->err == SM_OK && !c->stopped;
}

/* Every effect has a record until it may be purged. */
static void check_missing(sm_check *c)
{
    char handle[SM_HANDLE_TEXT];
    int64_t now = sm_now(c->s);
    for (size_t i = 0; i < c->slots && !c->stopped; i++) {
        const sm_trail_link *l = &c->links[i];
        if (l->index != 0 && !l->kept && !over(l->purge_at, now))
            sm_check_tell(c, "the record of %s was removed before its time",
                          sm_check_handle(l->shard, l->id, l->generation, handle));
    }
}

/* The oldest events are purged first. So if a generation has an event, each later one has too. A
 * later generation without events was planted, to hide the ones before it. */
static void check_generations(sm_check *c)
{
    char handle[SM_HANDLE_TEXT];
    for (size_t i = 0; c->unrooted && i < c->slots && !c->stopped; i++) {
        const sm_trail_link *l = &c->links[i];
        if (l->index != 0 && l->generation != 0 &&
            sm_check_find(c, l->id, 0)->index > l->generation &&
            sm_check_find(c, l->id, l->generation + 1)->index == 0)
            sm_check_tell(c, "the generation after %s has no history",
                          sm_check_handle(l->shard, l->id, l->generation, handle));
    }
}

sm_err sm_check_records(sm_check *c, semel_fault *fault)
{
    semel_filter all = {0};
    sm_err e = SM_OK;
    for (uint64_t cursor = 0, more = 1; e == SM_OK && more && !c->stopped; more = cursor != 0)
        e = c->s->ops->query(c->s->store, &all, &cursor, PAGE, check_record, c, fault);
    if (e == SM_OK && c->err != SM_OK)
        e = sm_fault_set(fault, c->err, "%s", semel_err_text(c->err));
    if (e == SM_OK && !c->stopped) {
        check_missing(c);
        check_generations(c);
    }
    return e;
}
