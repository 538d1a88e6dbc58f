/*
 * begin: the one order of steps.
 *
 *     arguments, tool, identity      refused before the ledger is asked
 *     class read, strategy none      execute: no claim, no record, also when the ledger is down
 *     the store's memory             a settled effect is answered without any I/O
 *     the record                     judged, written, answered; or inserted if there is none
 *     waiting                        bounded by the caller's deadline, then judged again
 *
 * A waiter gets the end of the attempt that it joined, a failure too: it never runs it again. Those
 * who wait for an approval race to claim once it is given, and one of them wins.
 */
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/limits.h"
#include "ledger/holder.h"
#include "ledger/ledger.h"
#include "json/canon.h"
#include "json/diff.h"

/* Somebody else's process is looked at this often while waiting for it: its end wakes nobody. */
#define HOLDER_CHECK_NS 100000000

typedef struct begin {
    semel *s;
    semel_answer *a;
    sm_work *w;
    const semel_call *given;
    sm_call call;
    sm_identity id;
    int64_t lease_ms;
    int64_t deadline_ns;
    /* what is waited for */
    uint64_t joined_generation;
    uint64_t joined_fence;
    uint64_t joined_request;
    bool waits;   /* there is something to wait for */
    bool settled; /* what runs beside it under a barrier was looked at */
} begin;

/* ---- the call --------------------------------------------------------------------------------*/

static sm_err read_call(begin *b)
{
    sm_work *w = b->w;
    const semel_call *c = b->given;
    sm_handle after;
    if (c->size < sizeof *c)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the call's size is not set");
    if (c->after.p != NULL && !sm_handle_parse("ef_", c->after, &after))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "what the call comes after is not an effect's handle (ef_...)");
    if (c->scope.p == NULL)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the call has no scope");
    b->call = (sm_call){.scope = c->scope, .step = c->step, .tool = c->tool, .key = c->key};
    b->call.args_text = c->args.p == NULL ? SM_STR("{}") : c->args;
    sm_err e = sm_json_read(&w->call, b->call.args_text, &sm_json_default_limits, &b->call.args,
                            &w->fault);
    if (e != SM_OK)
        return e;
    uint8_t nonce[SM_NONCE_BYTES] = {0};
    const sm_contract *contract = sm_contracts_find(b->s->contracts, c->tool);
    if (contract != NULL && contract->key.strategy == SM_KEY_UNIQUE &&
        getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        return sm_fault_set(&w->fault, SEMEL_E_CRYPTO, "the system gives no random bytes");
    e = sm_identify(&w->call, &w->keyer, b->s->contracts, &b->call, nonce, &b->id, &w->fault);
    b->lease_ms = b->lease_ms > 0          ? b->lease_ms
                  : b->id.contract == NULL ? 0
                                           : b->id.contract->lease_ms;
    return e;
}

/* ---- drift -----------------------------------------------------------------------------------*/

typedef struct drift_list {
    sm_buf *out;
    unsigned count;
} drift_list;

static bool put_pointer(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)a;
    (void)b;
    drift_list *l = context;
    if (l->count++ >= 20)
        return false;
    sm_buf_byte(l->out, l->count == 1 ? '[' : ',');
    sm_json_put_string(l->out, pointer);
    return true;
}

/* Compares this call with the recorded one of the same key. What is equal as a whole needs no look
 * at its parts: under the strategy `hash` without anything left out, equal keys are equal calls. */
static sm_err compare(begin *b, sm_drift *out)
{
    sm_work *w = b->w;
    const sm_contract *c = b->id.contract;
    bool same_variant = w->memo.terms.variant == c->variant;
    if (b->id.strategy == SM_KEY_HASH && b->id.projected == b->id.filled && same_variant) {
        *out = SM_SAME;
        return SM_OK;
    }
    sm_fingerprint print;
    sm_err e = sm_fingerprint_make(&w->keyer, b->call.tool, b->id.filled, b->call.args_text, &print,
                                   &w->fault);
    if (e != SM_OK)
        return e;
    if (same_variant && memcmp(&print.hash, &w->cur.fingerprint, sizeof print.hash) == 0) {
        *out = SM_SAME;
        return SM_OK;
    }
    *out = SM_CONFLICTS;
    if (!sm_str_eq(w->cur.tool, b->call.tool)) {
        b->a->message = sm_arena_printf(
            &w->call, "This key belongs to a call of another tool, %.*s.", SM_FMT(w->cur.tool));
        return SM_OK;
    }
    if (w->cur.args.p == NULL)
        return SM_OK; /* nothing is left to compare with */
    sm_identity earlier = b->id;
    /* Among the records, which are dropped at the next look: a waiter looks often. */
    e = sm_json_read(&w->held, w->cur.args, &sm_json_default_limits, &earlier.filled, &w->fault);
    if (e != SM_OK)
        return e;
    sm_identity later = b->id;
    e = sm_redact(&w->held, c, b->id.filled, &later.filled);
    if (e != SM_OK)
        return e;
    *out = same_variant ? sm_identity_drift(&earlier, &later) : SM_CONFLICTS;
    if (*out == SM_SAME) /* only what is redacted differs */
        *out = SM_CONFLICTS;
    sm_buf_clear(&w->scratch);
    drift_list list = {&w->scratch, 0};
    sm_json_diff(earlier.filled, later.filled, put_pointer, &list);
    if (list.count > 0) {
        sm_buf_byte(&w->scratch, ']');
        b->a->drift = sm_work_copy(w, sm_buf_view(&w->scratch));
    }
    return w->scratch.err;
}

/* ---- judging ---------------------------------------------------------------------------------*/

static bool asks_for_approval(const begin *b)
{
    const sm_approval *ap = &b->id.contract->approval;
    return ap->on && (ap->when.n == 0 || sm_conditions_hold(&ap->when, b->id.filled, true));
}

static sm_err judge(begin *b)
{
    sm_work *w = b->w;
    sm_event ev = {.kind = SM_EV_BEGIN, .lease_ms = b->lease_ms};
    b->a->drift = (sm_str){0};
    if (w->cur.version == 0) {
        w->memo = (sm_memo){0};
        w->now = sm_now(b->s);
    } else {
        sm_err e = compare(b, &ev.drift);
        if (e != SM_OK)
            return e;
        ev.gone =
            w->memo.effect.state == SEMEL_S_RUNNING && sm_holder_gone(&w->memo.holder, &b->s->self);
        if (b->given->after.p != NULL) {
            sm_handle h;
            ev.deliberate = sm_handle_parse("ef_", b->given->after, &h) && h.id == w->cur.id &&
                            h.generation == w->cur.generation;
        }
    }
    ev.needs_approval = asks_for_approval(b);
    if (b->id.contract->approval.on) {
        sm_err e = sm_approval_digest(w, &b->id, &b->call, &ev.digest);
        if (e != SM_OK)
            return e;
    }
    sm_transition(&w->memo.effect, &ev, b->id.contract, w->now, &w->step);
    return SM_OK;
}

/* ---- answers ---------------------------------------------------------------------------------*/

static void count(atomic_uint_fast64_t *what)
{
    atomic_fetch_add_explicit(what, 1, memory_order_relaxed);
}

static sm_err refuse(begin *b, semel_code code)
{
    count(&b->s->refused);
    if (b->w->cur.version != 0) {
        sm_err e = sm_answer_about(b->w, b->a);
        if (e != SM_OK)
            return sm_answer_error(b->w, b->a, e);
    }
    const sm_effect *e = &b->w->memo.effect;
    if (code == SEMEL_C_RETRY_IN_FLIGHT && e->state == SEMEL_S_RUNNING) {
        int64_t left = e->lease_end - b->w->now;
        b->a->retry_after_ms = left < 1000 && left > 0 ? left : 1000;
    } else if (semel_code_retriable(code)) {
        b->a->retry_after_ms = code == SEMEL_C_AWAITING_APPROVAL ? 5000 : 1000;
    }
    return sm_answer_refuse(b->w, b->a, code, SM_OK);
}

static sm_err replay(begin *b, semel_code code)
{
    sm_work *w = b->w;
    sm_err e = sm_answer_about(w, b->a);
    if (e != SM_OK)
        return sm_answer_error(w, b->a, e);
    count(&b->s->replays);
    sm_journal_add(&b->s->journal, SM_JOT_REPLAYED, SEMEL_C_NONE, w->cur.id, w->cur.generation,
                   w->now, (sm_str){0}, (sm_str){0});
    b->a->verdict = SEMEL_REPLAY;
    b->a->code = code;
    if (code != SEMEL_C_NONE)
        sm_answer_words(w, b->a);
    return SM_OK;
}

/* What is left of the lease. The answer may have been long under way, and if it took longer than
 * the lease, others have decided already: nobody is told to run it any more. */
static sm_err check_lease(begin *b, const sm_handle *claim, int64_t *left_ms)
{
    *left_ms = b->w->memo.effect.lease_end - sm_now(b->s);
    if (*left_ms > b->lease_ms - b->lease_ms / 10)
        *left_ms = b->lease_ms; /* as good as whole */
    if (*left_ms > 0 || b->id.contract->mode == SM_MODE_OBSERVE)
        return SM_OK;
    sm_withdraw(b->s, claim);
    return sm_fault_set(&b->w->fault, SEMEL_E_UNAVAILABLE,
                        "the ledger took longer to answer than the lease lasts, so nothing is run");
}

static sm_err execute(begin *b, const uint8_t *secret)
{
    sm_work *w = b->w;
    semel_answer *a = b->a;
    sm_handle h = {.shard = w->cur.shard,
                   .id = w->cur.id,
                   .generation = w->cur.generation,
                   .fence = w->memo.effect.fence};
    memcpy(h.secret, secret, sizeof h.secret);
    int64_t left_ms;
    sm_err e = check_lease(b, &h, &left_ms);
    if (e == SM_OK)
        e = sm_answer_about(w, a);
    sm_down_key down;
    if (e == SM_OK)
        e = sm_down_key_make(&w->keyer, &(sm_key){w->cur.key}, w->memo.effect.generation,
                             w->memo.effect.run, &down);
    char *claim = sm_arena_alloc(&w->call, SM_HANDLE_TEXT);
    char *key = sm_arena_alloc(&w->call, SM_HASH_TEXT + 1);
    if (e == SM_OK && (claim == NULL || key == NULL))
        e = SEMEL_E_NOMEM;
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    a->claim = (sm_str){claim, sm_handle_claim(&h, claim)};
    sm_hash_text(&down.hash, key);
    a->idempotency_key = (sm_str){key, SM_HASH_TEXT};
    a->lease_ms = left_ms;
    a->verdict = SEMEL_EXECUTE;
    if (w->step.observed != SEMEL_C_NONE) {
        a->observed = sm_str_from(semel_code_name(w->step.observed));
        sm_journal_add(&b->s->journal, SM_JOT_OBSERVED, w->step.observed, w->cur.id,
                       w->cur.generation, w->now, (sm_str){0}, (sm_str){0});
    }
    sm_remember(b->s, w);
    count(&b->s->executes);
    return SM_OK;
}

/* Execute without a claim: reads, calls without identity, and what observe mode lets by. */
static sm_err pass(begin *b, sm_jot what)
{
    sm_work *w = b->w;
    bool record = w->cur.version != 0;
    if (record && what == SM_JOT_OBSERVED)
        sm_answer_about(w, b->a);
    b->a->has_outcome = false;
    b->a->verdict = SEMEL_EXECUTE;
    if (what == SM_JOT_OBSERVED)
        b->a->observed = sm_str_from(semel_code_name(w->step.observed));
    semel_code would = what == SM_JOT_OBSERVED ? w->step.observed : SEMEL_C_NONE;
    sm_journal_add(&b->s->journal, what, would, record ? w->cur.id : 0,
                   record ? w->cur.generation : 0, sm_now(b->s), b->call.scope, b->call.tool);
    count(&b->s->executes);
    return SM_OK;
}

static sm_err blocked(begin *b)
{
    sm_work *w = b->w;
    semel_answer *a = b->a;
    a->blocked_by = sm_answer_handle(w, &w->cur);
    a->message = SM_STR("Another call of this tool in this scope may or may not have taken effect; "
                        "until that is resolved no other is let through.");
    count(&b->s->refused);
    return sm_answer_refuse(w, a, SEMEL_C_IN_DOUBT, SM_OK);
}

/* ---- writing ---------------------------------------------------------------------------------*/

static bool starts(const sm_step *step)
{
    return step->answer == SM_EXECUTE ||
           (step->answer == SM_WAIT && step->code == SEMEL_C_AWAITING_APPROVAL && step->changed);
}

/* Others run under the same barrier. Those whose holders are gone are put in doubt, then the call
 * is judged once more, and only doubt bars it. */
static sm_err settle_company(begin *b, bool known, uint8_t shard)
{
    sm_work *w = b->w;
    b->settled = true;
    sm_err e = sm_barrier_settle(b->s, w, b->call.scope, b->call.tool);
    if (e == SM_OK && known)
        e = sm_load_key(b->s, w, &b->id.key.hash, &shard);
    else
        w->cur.version = 0;
    return e == SEMEL_E_NOT_FOUND ? SM_OK : e;
}

/* Writes the step. *again if somebody else was faster. */
static sm_err write_step(begin *b, uint8_t *secret, bool *again, bool *barred)
{
    sm_work *w = b->w;
    *again = *barred = false;
    bool claims = w->step.answer == SM_EXECUTE && !w->step.unclaimed;
    if (claims && getrandom(secret, SM_SECRET_BYTES, 0) != SM_SECRET_BYTES)
        return sm_fault_set(&w->fault, SEMEL_E_CRYPTO, "the system gives no random bytes");
    bool barrier = b->id.contract->barrier && starts(&w->step) &&
                   b->id.contract->mode == SM_MODE_ENFORCE &&
                   w->memo.effect.state != SEMEL_S_IN_DOUBT;
    sm_err e = SM_OK;
    if (b->id.contract->barrier && b->id.contract->mode == SM_MODE_OBSERVE && claims &&
        w->step.observed == SEMEL_C_NONE) {
        /* Observe mode lets by what a barrier would hold, and says so. */
        e = sm_barrier_find(b->s, w, &b->call, &b->id.key.hash, &b->a->blocked_by);
        if (b->a->blocked_by.p != NULL)
            w->step.observed = SEMEL_C_IN_DOUBT;
    }
    if (e != SM_OK)
        return e;
    bool taken = starts(&w->step) && !w->step.unclaimed;
    bool over = w->cur.version != 0 && w->cur.tombstone &&
                w->step.next.generation > w->cur.generation &&
                (w->cur.state == SEMEL_S_SUCCEEDED || w->cur.state == SEMEL_S_PARTIAL);
    if (over)
        b->a->repeat_of = sm_answer_handle(w, &w->cur);
    if (taken)
        w->memo.terms.asks = asks_for_approval(b);
    sm_body_start(w);
    sm_change change = {
        .actor = sm_ledger_actor(b->s, (sm_str){0}),
        .identity = taken ? &b->id : NULL,
        .call = &b->call,
        .drop_outcome = taken && semel_state_settled(w->memo.effect.state),
        .secret = secret,
        .detached = (b->given->flags & SEMEL_CALL_DETACHED) != 0,
        .barrier = barrier,
        .alone = barrier && !b->settled,
    };
    bool known = w->cur.version != 0;
    uint8_t shard = w->cur.shard;
    e = sm_write(b->s, w, &change);
    if (e == SEMEL_E_BARRED && change.alone && w->cur.state == SEMEL_S_RUNNING) {
        *again = true;
        return settle_company(b, known, shard);
    }
    if (e == SEMEL_E_STALE)
        *again = true;
    else if (e == SEMEL_E_BARRED)
        *barred = true;
    return e == SEMEL_E_STALE || e == SEMEL_E_BARRED ? SM_OK : e;
}

/* ---- waiting ---------------------------------------------------------------------------------*/

/* The moment by which the record should be looked at again, whoever writes to it or not. */
static int64_t look_again_ns(const begin *b)
{
    const sm_effect *e = &b->w->memo.effect;
    int64_t at = e->state == SEMEL_S_RUNNING ? e->lease_end : e->request_end;
    int64_t until = b->deadline_ns, now = sm_clock_mono_ns();
    if (at != 0 && at != INT64_MAX) {
        int64_t left = at > b->w->now ? (at - b->w->now) * 1000000 : 0;
        if (now + left < until)
            until = now + left;
    }
    const sm_holder *h = &b->w->memo.holder;
    bool other = h->pid != b->s->self.pid || h->start != b->s->self.start;
    if (e->state == SEMEL_S_RUNNING && other && sm_holder_near(h, &b->s->self) &&
        now + HOLDER_CHECK_NS < until)
        until = now + HOLDER_CHECK_NS;
    return until;
}

/* The end of what was waited for, if that has come. */
static bool joined_ended(begin *b, semel_code *code)
{
    const sm_effect *e = &b->w->memo.effect;
    *code = SEMEL_C_NONE;
    if (e->generation != b->joined_generation)
        return false;
    if (b->joined_fence != 0 && e->fence >= b->joined_fence) {
        if (e->state == SEMEL_S_PARTIAL)
            *code = SEMEL_C_PARTIAL_SUCCESS;
        return e->state == SEMEL_S_SUCCEEDED || e->state == SEMEL_S_FAILED ||
               e->state == SEMEL_S_PARTIAL;
    }
    if (b->joined_request != 0 && e->request == b->joined_request) {
        *code = e->state == SEMEL_S_EXPIRED    ? SEMEL_C_APPROVAL_EXPIRED
                : e->state == SEMEL_S_CANCELED ? SEMEL_C_CANCELED
                                               : SEMEL_C_NONE;
        return *code != SEMEL_C_NONE;
    }
    return false;
}

/* Waits for a change, reads it, and lets the clock have its say. */
static sm_err wait_for_change(begin *b)
{
    semel *s = b->s;
    sm_work *w = b->w;
    const sm_effect *e = &w->memo.effect;
    b->joined_generation = e->generation;
    b->joined_fence = e->state == SEMEL_S_RUNNING ? e->fence : 0;
    b->joined_request = e->state == SEMEL_S_PENDING ? e->request : 0;
    sm_hash key = w->cur.key;
    uint8_t shard = w->cur.shard;
    semel_ref of = {&key, w->cur.id, w->cur.generation, true, shard};
    count(&s->waits);
    sm_err err = s->ops->wait(s->store, &of, w->cur.version, look_again_ns(b), &w->fault);
    if (err != SM_OK && err != SEMEL_E_TIMEOUT)
        return err;
    err = sm_load_key(s, w, &key, &shard);
    if (err == SEMEL_E_NOT_FOUND) {
        w->cur.version = 0;
        return SM_OK;
    }
    if (err != SM_OK)
        return err;
    sm_judge(s, w, &(sm_event){.kind = SM_EV_LOOK});
    if (!w->step.changed || w->step.next.state == SEMEL_S_NONE)
        return SM_OK;
    sm_body_start(w);
    err = sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0})});
    return err == SEMEL_E_STALE ? SM_OK : err;
}

/* ---- the order of steps ----------------------------------------------------------------------*/

/* What the record says; *done unless there is something to wait for. */
static sm_err answer_step(begin *b, const uint8_t *secret, bool *done)
{
    sm_work *w = b->w;
    *done = true;
    switch (w->step.answer) {
    case SM_EXECUTE: return w->step.unclaimed ? pass(b, SM_JOT_OBSERVED) : execute(b, secret);
    case SM_REPLAY: return replay(b, w->step.code);
    case SM_WAIT:
        *done = sm_clock_mono_ns() >= b->deadline_ns;
        b->waits = !*done;
        if (w->step.changed && w->step.code == SEMEL_C_AWAITING_APPROVAL)
            sm_keeper_stir(b->s); /* somebody has to be told */
        return *done ? refuse(b, w->step.code) : SM_OK;
    default: return refuse(b, w->step.code);
    }
}

/* One round: judge, write, answer. */
static sm_err attempt(begin *b, bool *done)
{
    uint8_t secret[SM_SECRET_BYTES] = {0};
    bool again = false, barred = false;
    *done = b->waits = false;
    sm_err e = judge(b);
    const sm_step *step = &b->w->step;
    /* A window that is over is written down by whoever starts anew, and by nobody else. */
    bool idle = step->next.state == SEMEL_S_NONE;
    if (e == SM_OK && step->changed && !idle)
        e = write_step(b, secret, &again, &barred);
    if (e != SM_OK) {
        *done = true;
        return sm_answer_error(b->w, b->a, e);
    }
    if (again)
        return SM_OK;
    if (barred) {
        *done = true;
        return blocked(b);
    }
    return answer_step(b, secret, done);
}

/* The record as it is known without writing. A store that answers from this machine is asked even
 * if it has to read: whoever finds a record then waits for nobody's write. Of a distant one the
 * record comes with the attempt to insert it, in the same round trip. */
static sm_err find(begin *b)
{
    sm_work *w = b->w;
    const semel_store_ops *ops = b->s->ops;
    w->cur.version = 0;
    if (ops->peek == NULL)
        return SM_OK;
    if (ops->peek(b->s->store, &b->id.key.hash, &w->room, &w->cur, &w->now) == SM_OK)
        return sm_load_cur(w);
    sm_err e = sm_load_key(b->s, w, &b->id.key.hash, NULL);
    if (e == SEMEL_E_NOT_FOUND) {
        w->cur.version = 0;
        e = SM_OK;
    }
    return e;
}

static sm_err ask(begin *b)
{
    sm_work *w = b->w;
    bool done = false;
    sm_err e = find(b);
    for (int races = 0; e == SM_OK && races < SM_RACES_MAX; races++) {
        e = attempt(b, &done);
        if (done)
            return e;
        if (!b->waits)
            continue;
        races = 0;
        b->settled = false;
        e = wait_for_change(b);
        semel_code code;
        if (e == SM_OK && w->cur.version != 0 && joined_ended(b, &code))
            return code == SEMEL_C_NONE || code == SEMEL_C_PARTIAL_SUCCESS ? replay(b, code)
                                                                           : refuse(b, code);
    }
    if (e == SM_OK)
        e = sm_fault_set(&w->fault, SEMEL_E_UNAVAILABLE, "the store loses every race");
    return sm_answer_error(w, b->a, e);
}

sm_err sm_begin(semel *s, const semel_call *call, int64_t lease_ms, semel_answer *a)
{
    begin b = {.s = s, .a = a, .w = sm_work_start(a), .given = call, .lease_ms = lease_ms};
    count(&s->begins);
    b.deadline_ns = call->wait_ms > 0 ? sm_clock_deadline_ns(call->wait_ms) : 0;
    sm_err e = read_call(&b);
    if (e != SM_OK) {
        count(&s->refused);
        return sm_answer_error(b.w, a, e);
    }
    if (b.id.strategy == SM_KEY_NONE)
        return pass(&b, SM_JOT_PASSED);
    e = sm_ledger_fits(s, b.id.contract, &b.w->fault);
    e = e == SM_OK ? ask(&b) : sm_answer_error(b.w, a, e);
    if (e == SM_OK || b.id.contract->mode != SM_MODE_OBSERVE || e == SEMEL_E_BAD_ARGUMENTS)
        return e;
    /* Observe mode never refuses, not even for want of a ledger. */
    *a = (semel_answer){.work = b.w};
    b.w->cur.version = 0;
    b.w->step.observed = SEMEL_C_LEDGER_UNAVAILABLE;
    return pass(&b, SM_JOT_OBSERVED);
}

semel_err semel_begin(semel *s, const semel_call *call, semel_answer *a)
{
    return sm_begin(s, call, 0, a);
}
