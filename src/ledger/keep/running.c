/*
 * The table of attempts that this handle runs, and of those whose end it has yet to record.
 *
 * An attempt is entered when it begins, with its record as it was then. Leases are renewed from
 * here. If the ledger has lost a record, it is put back: while the attempt runs, by the renewal or
 * by a call of the same effect; afterwards by the attempt's end.
 *
 * An end that could not be recorded in time is owed: it stays here, and the keeper tries it again
 * every few seconds, as long as the process lives. Attempts of other handles are not in the table.
 */
#include <assert.h>
#include <openssl/crypto.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/limits.h"
#include "ledger/call/commit.h"

/* The pauses between tries to record an end that is owed. The longest is as long as between two
 * renewals of a lease, so that others find it running, or ended, once the ledger is back. */
#define OWED_PAUSE_MIN_MS 500
#define OWED_PAUSE_MAX_MS SM_RUN_RENEW_MS

typedef struct owed {
    sm_running running;
    semel_outcome outcome;
    sm_str actor;
    int64_t pause_ms;
    char bytes[]; /* the texts of the two */
} owed;

static void lock(semel *s)
{
    pthread_mutex_lock(&s->keeper.lock);
}

static void unlock(semel *s)
{
    pthread_mutex_unlock(&s->keeper.lock);
}

static sm_running **bucket_of(semel *s, uint64_t id)
{
    return &s->keeper.running[id % SM_RUNNING_BUCKETS]; /* an id is a hash already */
}

/* The caller of these two holds the lock. */
static void enter(semel *s, sm_running *r)
{
    sm_running **at = bucket_of(s, r->claim.id);
    r->next = *at;
    *at = r;
    r->entered = true;
    atomic_fetch_add(&s->keeper.entered, 1);
}

static void leave(semel *s, sm_running *r)
{
    sm_running **at = bucket_of(s, r->claim.id);
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    r->entered = false;
    atomic_fetch_sub(&s->keeper.entered, 1);
}

void sm_running_add(semel *s, sm_running *r, const semel_answer *execute, size_t most)
{
    const sm_work *w = execute->work;
    assert(execute->verdict == SEMEL_EXECUTE && !r->entered);
    *r = (sm_running){.seen = sm_recalled_copy(&w->cur),
                      .most = most,
                      .renew_ns = sm_clock_deadline_ns(SM_RUN_RENEW_MS)};
    bool good = sm_handle_parse("cl_", execute->claim, &r->claim);
    assert(good);
    (void)good;
    sm_keeper_renews(s);
    lock(s);
    enter(s, r);
    unlock(s);
}

void sm_running_remove(semel *s, sm_running *r)
{
    if (!r->entered)
        return;
    lock(s);
    leave(s, r);
    unlock(s);
    free(r->seen);
    explicit_bzero(r, sizeof *r);
}

/* ---- what was lost ---------------------------------------------------------------------------*/

static bool same_claim(const sm_handle *a, const sm_handle *b)
{
    return a->id == b->id && a->generation == b->generation && a->fence == b->fence &&
           memcmp(a->secret, b->secret, sizeof a->secret) == 0;
}

static void mark_lost(semel *s, const sm_handle *claim)
{
    lock(s);
    for (sm_running *r = *bucket_of(s, claim->id); r != NULL; r = r->next)
        r->lost = r->lost || same_claim(&r->claim, claim);
    unlock(s);
}

/* Whether the ledger's record is older than one that was seen. */
static bool is_older(const semel_record *there, const semel_record *seen)
{
    return there->version == 0 || there->generation < seen->generation ||
           (there->generation == seen->generation && there->fence < seen->fence);
}

/* If the table has an attempt of this effect that is newer than the ledger's record: a copy of its
 * record, and its claim; else NULL. With `this_one` only the attempt that has this claim counts. */
static sm_recalled *find_lost(semel *s, uint64_t id, const semel_record *there, sm_handle *claim,
                              bool this_one)
{
    sm_recalled *found = NULL;
    lock(s);
    for (const sm_running *r = *bucket_of(s, id); r != NULL && found == NULL; r = r->next) {
        if (r->claim.id != id || r->seen == NULL || (this_one && !same_claim(&r->claim, claim)))
            continue;
        if (!is_older(there, &r->seen->record))
            continue;
        found = sm_recalled_copy(&r->seen->record);
        *claim = r->claim;
    }
    unlock(s);
    return found;
}

/* A claim that others run under is not in the table, but its record may be remembered. If it was
 * settled long ago, the record may also have been purged. */
static sm_recalled *find_given(semel *s, uint64_t id, const semel_record *there)
{
    sm_recalled *seen = sm_recall_find(&s->recall, id);
    if (seen != NULL && is_older(there, &seen->record) &&
        sm_now(s) - seen->record.due_at < s->o.audit_retention_ms)
        return seen;
    free(seen);
    return NULL;
}

sm_err sm_running_return(semel *s, sm_work *w, uint64_t id, sm_missed *missed)
{
    sm_handle claim = {0};
    sm_recalled *seen = NULL;
    bool back;
    *missed = SM_MISSED_NONE;
    if (atomic_load(&s->keeper.entered) > 0)
        seen = find_lost(s, id, &w->cur, &claim, false);
    bool ours = seen != NULL;
    if (!ours)
        seen = find_given(s, id, &w->cur);
    if (seen == NULL)
        return SM_OK;
    bool over = !ours && sm_now(s) >= seen->record.due_at;
    sm_err e = sm_put_back_running(s, w, seen, ours, &back);
    if (back && ours)
        mark_lost(s, &claim);
    *missed = back || e == SEMEL_E_STALE ? SM_MISSED_BACK : over ? SM_MISSED_LOST : SM_MISSED_RUNS;
    free(seen);
    return e == SEMEL_E_STALE ? SM_OK : e;
}

static bool is_ours(semel *s, const sm_handle *claim)
{
    bool ours = false;
    lock(s);
    for (const sm_running *r = *bucket_of(s, claim->id); r != NULL && !ours; r = r->next)
        ours = same_claim(&r->claim, claim);
    unlock(s);
    return ours;
}

bool sm_given_return(semel *s, sm_work *w, const sm_handle *claim)
{
    bool back = false;
    sm_memo memo;
    sm_hash given;
    sm_recalled *seen = is_ours(s, claim) ? NULL
                                          : sm_recall_find_attempt(&s->recall, claim->id,
                                                                   claim->generation, claim->fence);
    if (seen == NULL)
        return false;
    bool holds =
        sm_memo_unpack(&seen->record, &memo) == SM_OK &&
        sm_digest_bytes(&w->keyer.digest, claim->secret, sizeof claim->secret, &given) == SM_OK &&
        CRYPTO_memcmp(given.b, memo.claim, SM_CLAIM_HASH) == 0;
    sm_err e = holds ? sm_load_handle(s, w, claim, true) : SEMEL_E_UNAVAILABLE;
    if ((e == SM_OK || e == SEMEL_E_NOT_FOUND) && is_older(&w->cur, &seen->record))
        sm_put_back_running(s, w, seen, false, &back);
    free(seen);
    return back;
}

bool sm_running_ended(semel *s, const semel_record *r)
{
    bool ended = false;
    if (r->version == 0 || atomic_load(&s->keeper.entered) == 0)
        return false;
    lock(s);
    for (const sm_running *x = *bucket_of(s, r->id); x != NULL && !ended; x = x->next)
        ended = x->unrecorded && x->claim.id == r->id && x->claim.generation == r->generation &&
                x->claim.fence == r->fence;
    unlock(s);
    return ended;
}

/* Copies the outcome of an end that is owed into the workspace. False when out of memory. */
static bool copy_outcome(sm_work *w, const semel_outcome *from, semel_outcome *to)
{
    sm_str *const texts[] = {&to->value, &to->headers, &to->corrective_action, &to->cost};
    *to = *from;
    return sm_arena_keep(&w->call, texts, sizeof texts / sizeof texts[0]);
}

bool sm_running_find(semel *s, sm_work *w, uint64_t id, sm_held *out)
{
    const sm_running *found = NULL;
    *out = (sm_held){0};
    if (atomic_load(&s->keeper.entered) == 0)
        return false;
    lock(s);
    for (const sm_running *r = *bucket_of(s, id); r != NULL; r = r->next) {
        bool newer =
            found == NULL || r->claim.generation > found->claim.generation ||
            (r->claim.generation == found->claim.generation && r->claim.fence > found->claim.fence);
        if (r->claim.id == id && r->seen != NULL && newer)
            found = r;
    }
    size_t most = 0;
    if (found != NULL) {
        out->seen = sm_recalled_copy(&found->seen->record);
        out->fence = found->claim.fence;
        most = found->most;
        out->ended = found->owed &&
                     copy_outcome(w, &((const owed *)(const void *)found)->outcome, &out->outcome);
    }
    unlock(s);
    if (out->ended)
        sm_outcome_settle(&w->call, &out->outcome, most);
    return out->seen != NULL;
}

/* Renews one lease. If the ledger does not know the claim, it has lost the record. */
static void renew_one(semel *s, sm_handle *claim, semel_answer *a)
{
    if (sm_renew(s, claim, SM_RUN_LEASE_MS, a) != SM_OK || a->code != SEMEL_C_BAD_CLAIM)
        return;
    sm_work *w = sm_work_start(a);
    bool back;
    sm_err e = sm_load_handle(s, w, claim, true);
    sm_recalled *seen =
        e == SM_OK || e == SEMEL_E_NOT_FOUND ? find_lost(s, claim->id, &w->cur, claim, true) : NULL;
    if (seen != NULL && sm_put_back_running(s, w, seen, true, &back) == SM_OK && back)
        mark_lost(s, claim);
    free(seen);
}

void sm_running_renew(semel *s, semel_answer *a)
{
    int64_t now = sm_clock_mono_ns();
    size_t n = 0, room = atomic_load(&s->keeper.entered);
    sm_handle *claims = room == 0 ? NULL : malloc(room * sizeof *claims);
    lock(s);
    for (size_t i = 0; claims != NULL && i < SM_RUNNING_BUCKETS; i++) {
        for (sm_running *r = s->keeper.running[i]; r != NULL && n < room; r = r->next) {
            if (r->owed || r->renew_ns > now)
                continue;
            claims[n++] = r->claim;
            r->renew_ns = sm_clock_deadline_ns(SM_RUN_RENEW_MS);
        }
    }
    unlock(s);
    for (size_t i = 0; i < n; i++)
        renew_one(s, &claims[i], a);
    free(claims);
}

/* ---- the end ---------------------------------------------------------------------------------*/

sm_err sm_running_end(semel *s, sm_running *r, const semel_outcome *outcome, sm_str actor,
                      semel_answer *a)
{
    sm_err e = sm_end_attempt(s, &r->claim, outcome, r->most, actor, true, r->health, r->seen, a);
    lock(s);
    bool lost = r->lost;
    unlock(s);
    if (e == SM_OK && a->verdict == SEMEL_DONE && lost)
        a->result = SM_STR(SM_PUT_BACK);
    return e;
}

void sm_running_unrecorded(semel *s, sm_running *r)
{
    lock(s);
    r->unrecorded = true;
    unlock(s);
}

static char *take_text(char *at, sm_str *text)
{
    if (text->p == NULL)
        return at;
    memcpy(at, text->p, text->n);
    text->p = at;
    return at + text->n;
}

static size_t size_of(const semel_outcome *o, sm_str actor)
{
    return sizeof(owed) + o->value.n + o->headers.n + o->corrective_action.n + o->cost.n + actor.n;
}

/* Room for an outcome; NULL if there is none. */
static owed *make_room(semel *s, const semel_outcome *outcome, sm_str actor, bool bounded)
{
    size_t n = size_of(outcome, actor), before = atomic_fetch_add(&s->keeper.owed_bytes, n);
    owed *o = bounded && before + n > SM_OWED_BYTES_MAX ? NULL : malloc(n);
    if (o == NULL)
        atomic_fetch_sub(&s->keeper.owed_bytes, n);
    else
        *o = (owed){.outcome = *outcome, .actor = actor, .pause_ms = OWED_PAUSE_MIN_MS};
    return o;
}

/* The same outcome without what may be large. */
static semel_outcome stripped(const semel_outcome *outcome)
{
    semel_outcome o = *outcome;
    o.bytes = o.value.n < o.bytes ? o.bytes : o.value.n;
    o.value = o.headers = (sm_str){0};
    return o;
}

void sm_running_owe(semel *s, sm_running *r, const semel_outcome *outcome, sm_str actor)
{
    semel_outcome bare = stripped(outcome);
    owed *o = make_room(s, outcome, actor, true);
    if (o == NULL)
        o = make_room(s, &bare, actor, false);
    if (o == NULL) {
        sm_running_remove(s, r);
        return;
    }
    char *at = take_text(o->bytes, &o->outcome.value);
    at = take_text(at, &o->outcome.headers);
    at = take_text(at, &o->outcome.corrective_action);
    at = take_text(at, &o->outcome.cost);
    take_text(at, &o->actor);
    lock(s);
    leave(s, r);
    o->running = *r;
    o->running.owed = true;
    o->running.renew_ns = sm_clock_deadline_ns(o->pause_ms);
    enter(s, &o->running);
    unlock(s);
    explicit_bzero(r, sizeof *r);
}

static void forget(semel *s, owed *o)
{
    size_t n = size_of(&o->outcome, o->actor);
    sm_running_remove(s, &o->running);
    atomic_fetch_sub(&s->keeper.owed_bytes, n);
    free(o);
}

/* An owed end that is due by then. Only the keeper removes such entries, so it stays valid without
 * the lock. */
static owed *next_owed(semel *s, int64_t by_ns)
{
    sm_running *found = NULL;
    lock(s);
    for (size_t i = 0; found == NULL && i < SM_RUNNING_BUCKETS; i++) {
        for (sm_running *r = s->keeper.running[i]; r != NULL && found == NULL; r = r->next)
            found = r->owed && r->renew_ns <= by_ns ? r : NULL;
    }
    unlock(s);
    return found == NULL ? NULL : SM_CONTAINER(found, owed, running);
}

void sm_running_pay(semel *s, semel_answer *a)
{
    owed *o;
    int64_t now = sm_clock_mono_ns(); /* each is tried once, however long that takes */
    while (atomic_load(&s->keeper.owed_bytes) > 0 && !sm_keeper_stopping(s) &&
           (o = next_owed(s, now)) != NULL) {
        sm_err e = sm_running_end(s, &o->running, &o->outcome, o->actor, a);
        if (e != SEMEL_E_UNAVAILABLE && e != SEMEL_E_NOMEM) {
            forget(s, o);
            continue;
        }
        o->pause_ms = o->pause_ms * 2 < OWED_PAUSE_MAX_MS ? o->pause_ms * 2 : OWED_PAUSE_MAX_MS;
        lock(s);
        o->running.renew_ns = sm_clock_deadline_ns(o->pause_ms);
        unlock(s);
    }
}

void sm_running_fini(semel *s)
{
    semel_answer *a = semel_answer_new();
    sm_err e = SM_OK;
    for (owed *o; (o = next_owed(s, INT64_MAX)) != NULL;) {
        if (a != NULL && e != SEMEL_E_UNAVAILABLE)
            e = sm_running_end(s, &o->running, &o->outcome, o->actor, a);
        forget(s, o);
    }
    semel_answer_free(a);
}
