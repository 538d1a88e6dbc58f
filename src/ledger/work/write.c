/*
 * One write: the record, its event and its terms, made from a step of the life cycle.
 *
 * Every change of an effect goes through here, so that no change is without its event (I9), what a
 * contract redacts is never stored, and the times at which somebody should look again are right.
 */
#include <assert.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/limits.h"
#include "json/write.h"
#include "ledger/call/charge.h"
#include "ledger/call/resource.h"
#include "ledger/work/ledger.h"

static const char *note_name(sm_history n)
{
    static const char *const names[] = {
#define X(code, text) text,
        SM_NOTES(X)
#undef X
    };
    return names[n];
}

/* ---- the event's body ------------------------------------------------------------------------*/

void sm_body_start(sm_work *w)
{
    sm_buf_clear(&w->body);
}

/* Where the next member goes. */
static sm_buf *body_of(sm_work *w)
{
    if (w->body.len == 0)
        sm_buf_byte(&w->body, '{');
    return &w->body;
}

void sm_body_text(sm_work *w, const char *name, sm_str value)
{
    if (value.p != NULL)
        sm_put_text(body_of(w), name, value);
}

void sm_body_number(sm_work *w, const char *name, uint64_t value)
{
    sm_put_number(body_of(w), name, value);
}

void sm_body_hash(sm_work *w, const char *name, const sm_hash *value)
{
    sm_put_hash(body_of(w), name, value);
}

/* ---- parts of a record -----------------------------------------------------------------------*/

/* Arguments are stored in canonical form, without what the contract redacts. */
static sm_err put_args(sm_work *w, const sm_identity *id)
{
    const sm_json *args;
    sm_err e = sm_redact(&w->call, id, &args);
    sm_buf_clear(&w->args);
    return e != SM_OK ? e : sm_json_canon(args, &w->args, (sm_str){0}, &w->fault);
}

sm_err sm_approval_digest(sm_work *w, const sm_identity *id, const sm_parsed_call *call,
                          sm_hash *out)
{
    sm_fingerprint print;
    sm_err e =
        sm_fingerprint_make(&w->keyer, call->tool, id->filled, call->args_text, &print, &w->fault);
    if (e != SM_OK)
        return e;
    sm_buf_clear(&w->scratch);
    sm_buf_text(&w->scratch, "semel-approval-1");
    sm_buf_bytes(&w->scratch, id->key.hash.b, sizeof id->key.hash.b);
    sm_buf_bytes(&w->scratch, print.hash.b, sizeof print.hash.b);
    sm_contract_put(id->contract, &w->scratch);
    return w->scratch.err != SM_OK
               ? w->scratch.err
               : sm_digest_bytes(&w->keyer.digest, w->scratch.p, w->scratch.len, out);
}

void sm_outcome_settle(sm_arena *a, semel_outcome *o, size_t most)
{
    const sm_json_limits limits = {
        .bytes = most, .depth = SM_JSON_DEPTH_MAX, .values = SM_JSON_VALUES_MAX};
    o->kept = o->value.n <= most && o->bytes <= o->value.n;
    if (o->bytes < o->value.n)
        o->bytes = o->value.n;
    o->is_json = false;
    if (!o->kept) {
        o->value = (sm_str){0};
    } else if (o->value.p != NULL) {
        const sm_json *v;
        o->is_json = sm_json_read(a, o->value, &limits, &v, NULL) == SM_OK;
    }
}

/* What Semel executes itself is looked after when its caller does not come back: doubts at a step
 * that can be taken, what is approved, and what a probe found not to have been applied. */
static int64_t left_over_at(const sm_memo *m, int64_t now)
{
    const sm_effect *e = &m->effect;
    if (e->state == SEMEL_S_IN_DOUBT) {
        sm_contract terms;
        sm_terms_contract(&m->terms, &terms);
        if (sm_effect_doubt_step(e, &terms, now) == SM_DOUBT_HOLD)
            return 0;
    } else if ((!e->approved && m->next_at == 0) || m->terms.redacted) {
        return 0;
    }
    return m->next_at > now ? m->next_at : now;
}

/* When somebody should look at it again. */
static int64_t due_at(const sm_memo *m, int64_t now)
{
    const sm_effect *e = &m->effect;
    bool open = e->state == SEMEL_S_IN_DOUBT || e->state == SEMEL_S_READY;
    int64_t left_over = m->terms.upstream && open ? left_over_at(m, now) : 0;
    if (left_over != 0 && (!e->approved || left_over < e->request_end))
        return left_over;
    switch (e->state) {
    case SEMEL_S_PENDING:
        return m->told < e->request && m->notice_at < e->request_end ? m->notice_at
                                                                     : e->request_end;
    case SEMEL_S_READY: return e->approved ? e->request_end : 0;
    case SEMEL_S_RUNNING: return e->lease_end;
    default: return 0;
    }
}

/* A record outlives its history: as long as there are events of it, a key that is used again goes
 * on with the next generation, and a handle means one effect. Irreversible effects inform longer.
 */
static int64_t purge_at(const semel *s, const sm_memo *m, int64_t now)
{
    const sm_effect *e = &m->effect;
    int64_t history = s->o.audit_retention_ms;
    int64_t slack = history < 86400000 ? history : 86400000; /* events leave with their seals */
    int64_t known = sm_time_after(sm_time_after(now, history), slack);
    if (!semel_state_settled(e->state))
        return e->state == SEMEL_S_NONE ? known : 0;
    int64_t end = m->terms.class == SM_CLASS_IRREVERSIBLE
                      ? sm_time_after(e->window_end, s->o.tombstone_ms)
                      : e->window_end;
    if (m->keep_until > end)
        end = m->keep_until;
    return end > known ? end : known;
}

/* ---- the write -------------------------------------------------------------------------------*/

/* The first record of a key, or of a new generation of it. */
static sm_err start_record(sm_work *w, const sm_change *change, semel_record *r)
{
    const sm_identity *id = change->identity;
    const sm_parsed_call *call = change->call;
    *r = (semel_record){.key = id->key.hash,
                        .generation = w->step.next.generation,
                        .created_at = w->now,
                        .scope = call->scope,
                        .step = call->step,
                        .tool = call->tool,
                        .caller = call->key};
    sm_err e = sm_effect_id(&w->keyer.digest, &r->key, &r->id);
    return e == SM_OK ? sm_scope_shard(&w->keyer.digest, call->scope, &r->shard) : e;
}

sm_err sm_group_of(sm_work *w, sm_str scope, sm_str tool, sm_hash *out)
{
    sm_buf_clear(&w->scratch);
    sm_buf_printf(&w->scratch, "%zu:", scope.n);
    sm_buf_str(&w->scratch, scope);
    sm_buf_str(&w->scratch, tool);
    return w->scratch.err != SM_OK
               ? w->scratch.err
               : sm_digest_bytes(&w->keyer.digest, w->scratch.p, w->scratch.len, out);
}

/* An attempt that starts: who runs it, and by what claim it will be known. */
static sm_err take_attempt(semel *s, sm_work *w, const sm_change *change, const semel_record *r)
{
    sm_memo *m = &w->memo;
    sm_hash h, shown = {0};
    sm_err e = sm_digest_bytes(&w->keyer.digest, change->secret, SM_SECRET_BYTES, &h);
    memcpy(m->claim, h.b, sizeof m->claim);
    m->holder = change->detached ? (sm_holder){0} : s->self;
    memcpy(shown.b, m->claim, sizeof m->claim);
    sm_body_number(w, "fence", w->step.next.fence);
    sm_body_number(w, "attempt", w->step.next.attempt);
    sm_body_hash(w, "claim", &shown);
    sm_body_hash(w, "fingerprint", &r->fingerprint);
    if (m->holder.pid != 0)
        sm_body_number(w, "pid", m->holder.pid);
    if (w->step.next.resending)
        sm_body_text(w, "step", SM_STR("resend"));
    sm_body_number(w, "lease_ms", (uint64_t)(w->step.next.lease_end - w->now));
    return e;
}

/* The arguments that run or are asked about, with the terms that go with them. */
static sm_err take_call(sm_work *w, const sm_change *change, semel_record *r)
{
    const sm_identity *id = change->identity;
    sm_memo *m = &w->memo;
    bool asked = m->terms.asks;
    sm_terms_take(id->contract, &m->terms);
    m->terms.asks = asked;
    if (change->undoes) /* that something was undone is remembered */
        m->terms.window_ms = SM_FOREVER;
    m->terms.upstream = change->upstream;
    m->terms.redacted = id->contract->redact.n > 0;
    m->terms.resource = !sm_resource_none(&id->resource);
    m->resource = id->resource;
    m->shape = change->shape;
    r->group = (sm_hash){0};
    sm_fingerprint print;
    sm_err e = sm_fingerprint_make(&w->keyer, change->call->tool, id->filled,
                                   change->call->args_text, &print, &w->fault);
    r->fingerprint = print.hash;
    if (e == SM_OK && m->terms.barrier)
        e = sm_group_of(w, r->scope, r->tool, &r->group);
    if (e == SM_OK)
        e = put_args(w, id);
    r->args = w->args.len == 0 ? (sm_str){0} : sm_buf_view(&w->args);
    if (e == SM_OK && sm_step_noted(&w->step, SM_N_REQUESTED)) {
        sm_body_number(w, "request", w->step.next.request);
        sm_body_hash(w, "digest", &w->step.next.digest);
        sm_body_hash(w, "fingerprint", &r->fingerprint);
    }
    return e;
}

/* Whether a history begins: a new record's, unless it is the one that was lost. */
static bool begins_history(const sm_work *w, const sm_change *change, bool fresh)
{
    return fresh && !(change->returns && change->import->generation == w->step.next.generation);
}

static sm_err make_event(sm_work *w, const sm_change *change, semel_record *r, bool begins,
                         semel_event *ev)
{
    sm_hash record, was;
    sm_err e = sm_record_digest(&w->keyer.digest, &w->scratch, r, &record);
    if (e == SM_OK && w->cur.version != 0)
        e = sm_record_digest(&w->keyer.digest, &w->scratch, &w->cur, &was);
    if (e != SM_OK)
        return e;
    sm_body_hash(w, "record", &record);
    if (w->cur.version != 0)
        sm_body_hash(w, "was", &was);
    if (r->purge_at != 0 && r->purge_at != INT64_MAX)
        sm_body_number(w, "purge_at", (uint64_t)r->purge_at);
    sm_buf_clear(&w->what);
    for (uint32_t i = 0; i < w->step.note_count; i++) {
        if (i > 0)
            sm_buf_byte(&w->what, ',');
        sm_buf_text(&w->what, note_name(w->step.notes[i]));
    }
    if (w->what.len == 0)
        sm_buf_text(&w->what, "advanced");
    sm_body_text(w, "state", sm_str_from(semel_state_name((semel_state)r->state)));
    sm_buf_byte(&w->body, '}');
    *ev = (semel_event){
        .id = r->id,
        .generation = r->generation,
        .shard = r->shard,
        .index = begins ? 1 : r->events + 1,
        .at = w->now,
        .what = sm_buf_view(&w->what),
        .actor = change->actor,
        .body = sm_buf_view(&w->body),
        .prev = begins ? (sm_hash){{0}} : r->head,
    };
    return sm_chain_hash(&w->keyer.digest, &w->scratch, ev);
}

/* Of bytes that the record holds; zero if it holds none. */
static sm_err hash_payload(sm_work *w, sm_str bytes, sm_hash *out)
{
    *out = (sm_hash){{0}};
    return bytes.p == NULL ? SM_OK : sm_digest_bytes(&w->keyer.digest, bytes.p, bytes.n, out);
}

/* What a write does to counters. */
typedef struct tallying {
    sm_counting resource;
    sm_charging charge;
} tallying;

/* Everything about the record but its event. */
static sm_err make_record(semel *s, sm_work *w, const sm_change *change, const tallying *tallies,
                          bool fresh, semel_write *wr, sm_counters *counters)
{
    semel_record *r = &wr->next;
    sm_memo *m = &w->memo;
    sm_err e = SM_OK;
    if (change->import != NULL) {
        *r = *change->import;
        if (!fresh || begins_history(w, change, fresh)) {
            r->events = w->cur.version == 0 ? 0 : w->cur.events;
            r->head = w->cur.head;
        }
    } else if (fresh) {
        e = start_record(w, change, r);
    } else {
        *r = w->cur;
    }
    bool asks = sm_step_noted(&w->step, SM_N_REQUESTED),
         starts = sm_step_noted(&w->step, SM_N_STARTED);
    if (e == SM_OK && change->identity != NULL && (asks || starts))
        e = take_call(w, change, r);
    else
        wr->same_args = !change->drop_args && change->import == NULL;
    if (e == SM_OK && starts && change->import == NULL)
        e = take_attempt(s, w, change, r);
    if (change->drop_args)
        r->args = (sm_str){0};
    if (change->next_at != 0 || w->step.next.state != m->effect.state)
        m->next_at = change->next_at;
    if (fresh && w->cur.version != 0 && w->cur.purge_at > m->keep_until)
        m->keep_until = w->cur.purge_at;
    m->effect = w->step.next;
    if (m->effect.state != SEMEL_S_RUNNING) /* the history says who ran it */
        m->holder = (sm_holder){0};
    if (asks) {
        m->told = 0;
        m->notices = 0;
        m->notice_at = w->now;
    }
    if (change->outcome != NULL) {
        e = e == SM_OK ? sm_outcome_pack(change->outcome, &w->outcome) : e;
        r->outcome = sm_buf_view(&w->outcome);
    } else if (change->drop_outcome || (fresh && change->import == NULL)) {
        r->outcome = (sm_str){0};
    } else {
        wr->same_outcome = change->import == NULL;
    }
    if (e == SM_OK && !wr->same_args)
        e = hash_payload(w, r->args, &m->args);
    if (e == SM_OK && !wr->same_outcome)
        e = hash_payload(w, r->outcome, &m->outcome);
    if (e == SM_OK)
        e = sm_counting_take(s, w, &tallies->resource, r->shard, counters);
    if (e == SM_OK)
        e = sm_charging_take(s, w, &tallies->charge, change, r, counters);
    wr->counters = counters->v;
    wr->n_counters = counters->n;
    if (e == SM_OK)
        e = sm_memo_pack(m, r, &w->life);
    r->version = fresh ? 1 : w->cur.version + 1;
    r->updated_at = w->now;
    r->due_at = due_at(m, w->now);
    r->purge_at = purge_at(s, m, w->now);
    r->tombstone = m->terms.class == SM_CLASS_IRREVERSIBLE;
    return e;
}

/* One try. SEMEL_E_OVER_CAP: others have written the resource meanwhile, or a budget is used up. */
static sm_err try_write(semel *s, sm_work *w, const sm_change *change, const tallying *tallies,
                        semel_write *wr)
{
    sm_counters counters;
    counters.n = 0;
    bool fresh = w->cur.version == 0 || w->step.next.generation != w->cur.generation;
    assert(!fresh || change->identity != NULL || change->import != NULL);
    *wr = (semel_write){
        .expect_generation = w->cur.generation, .expect_version = w->cur.version, .now = w->now};
    sm_err e = make_record(s, w, change, tallies, fresh, wr, &counters);
    if (e != SM_OK)
        return e;
    e = make_event(w, change, &wr->next, begins_history(w, change, fresh), &wr->event);
    if (e != SM_OK || w->body.err != SM_OK || w->what.err != SM_OK)
        return e != SM_OK ? e : SEMEL_E_NOMEM;
    wr->next.head = wr->event.hash;
    wr->next.events = wr->event.index;
    wr->barred_by_group = change->barrier;
    wr->alone = change->alone;
    wr->evidence = change->evidence;
    bool inserted = true;
    if (w->cur.version == 0)
        e = s->ops->claim(s->store, wr, &w->room, &w->cur, &w->now, &inserted, &w->fault);
    else
        e = s->ops->apply(s->store, wr, &w->room, &w->cur, &w->now, &w->fault);
    return e == SM_OK && !inserted ? SEMEL_E_STALE : e;
}

/* A budget does not allow the write: what is there stays. */
static sm_err refuse_over(sm_work *w, sm_err e)
{
    if (e == SM_OK && w->cur.version != 0)
        e = sm_load_cur(w);
    return e == SM_OK ? SEMEL_E_OVER_CAP : e;
}

sm_err sm_write(semel *s, sm_work *w, const sm_change *change)
{
    semel_write wr;
    tallying tallies = {sm_counting_of(w, change), sm_charging_of(w, change)};
    const semel_record cur = w->cur;
    int64_t asked_ms = sm_clock_boot_ms(), now = w->now;
    size_t body = w->body.len;
    bool over = false;
    sm_err e = try_write(s, w, change, &tallies, &wr);
    for (int races = 0; e == SEMEL_E_OVER_CAP && races < SM_RACES_MAX; races++) {
        w->cur = cur;
        w->now = now;
        w->body.len = body;
        w->fault = (semel_fault){0};
        sm_err bad = sm_charging_over(s, w, &tallies.charge, change, &wr.next, &over);
        if (bad != SM_OK || over)
            return refuse_over(w, bad);
        asked_ms = sm_clock_boot_ms();
        e = try_write(s, w, change, &tallies, &wr);
    }
    /* In observe mode the call runs all the same. */
    if (e == SEMEL_E_UNAVAILABLE && change->secret != NULL &&
        sm_step_noted(&w->step, SM_N_STARTED) && w->memo.terms.mode != SM_MODE_OBSERVE) {
        sm_handle claim = {.shard = wr.next.shard,
                           .id = wr.next.id,
                           .generation = wr.next.generation,
                           .fence = w->step.next.fence};
        memcpy(claim.secret, change->secret, sizeof claim.secret);
        sm_withdraw(s, &claim);
    }
    if (e == SEMEL_E_OVER_CAP) /* its counters changed each time, and nothing was in the way */
        e = sm_fault_set(&w->fault, SEMEL_E_UNAVAILABLE, "the store loses every race");
    if (e == SM_OK || e == SEMEL_E_STALE || e == SEMEL_E_BARRED)
        sm_learn(s, w->now, asked_ms);
    if (e == SEMEL_E_STALE && w->cur.version == 0)
        return e; /* only our idea of the store's time was wrong */
    if (e == SM_OK) {
        sm_count(&s->written);
        sm_charging_done(s, w, &tallies.charge, change);
    }
    if (e == SM_OK || e == SEMEL_E_STALE || e == SEMEL_E_BARRED) {
        sm_err bad = sm_load_cur(w);
        return bad != SM_OK ? bad : e;
    }
    return e;
}
