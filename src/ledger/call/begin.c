/*
 * begin: the one order of steps.
 *
 *     arguments, tool, identity      refused before the ledger is asked
 *     class read, strategy none      execute: no claim, no record; a read without the ledger, too
 *     the store's memory             a settled effect is answered without any I/O
 *     the record                     judged, written, answered; or inserted if there is none
 *     waiting                        bounded by the caller's deadline, then judged again
 *
 * A waiter gets the end of the attempt that it joined, a failure too: it never runs it again. Those
 * who wait for an approval race to claim once it is given, and one of them wins.
 */
#include "ledger/call/begin.h"

#include <sys/random.h>

#include "base/clock.h"
#include "base/given.h"
#include "base/limits.h"
#include "ledger/call/limit.h"
#include "ledger/guard/guard.h"
#include "ledger/work/holder.h"
#include "ledger/work/ledger.h"

/* Somebody else's process is looked at this often while waiting for it: its end wakes nobody. */
#define HOLDER_CHECK_NS 100000000

/* ---- writing ---------------------------------------------------------------------------------*/

static bool starts(const sm_move *step)
{
    return step->answer == SM_EXECUTE || sm_step_noted(step, SM_N_REQUESTED);
}

/* Others run under the same barrier. Those whose holders are gone are put in doubt, then the call
 * is judged once more, and only doubt bars it. */
static sm_err settle_company(sm_begun *b, bool known, uint8_t shard)
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

/* Writes the step. *again if somebody else was faster; SEMEL_E_OVER_CAP with *beyond. */
static sm_err write_step(sm_begun *b, uint8_t *secret, bool *again, bool *barred, sm_over *beyond)
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
        w->memo.terms.asks = sm_begun_asks(b);
    sm_destinations to;
    sm_crossed crossed = {0};
    /* An approval is not asked for either if the call could not begin afterwards. */
    bool limited = taken && !sm_begun_undoes(b);
    e = limited ? sm_limits_find(b->s, w, &b->id, b->call.scope, &to) : SM_OK;
    if (e != SM_OK)
        return e;
    limited = limited && sm_step_noted(&w->step, SM_N_STARTED);
    sm_body_start(w);
    if (taken && sm_begun_undoes(b)) {
        sm_body_text(w, "undoes", (sm_str){b->call.key.p + 5, b->call.key.n - 5});
        sm_body_text(w, "despite", b->despite != NULL ? sm_str_from(b->despite) : (sm_str){0});
    }
    sm_change change = {
        .actor = sm_ledger_actor(b->s, b->actor),
        .undoes = sm_begun_undoes(b),
        .upstream = b->asking != NULL && b->asking->upstream,
        .shape = b->asking != NULL ? b->asking->shape : 0,
        .identity = taken ? &b->id : NULL,
        .call = &b->call,
        .drop_outcome = taken && semel_state_settled(w->memo.effect.state),
        .secret = secret,
        .detached = (b->given->flags & SEMEL_CALL_DETACHED) != 0,
        .barrier = barrier,
        .alone = barrier && !b->settled,
        .to = limited ? &to : NULL,
        .over = beyond,
        .crossed = &crossed,
    };
    bool known = w->cur.version != 0;
    uint8_t shard = w->cur.shard;
    e = sm_write(b->s, w, &change);
    if (e == SM_OK)
        sm_charge_warn(w, &crossed, b->a);
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
static int64_t look_again_ns(const sm_begun *b)
{
    const sm_effect *e = &b->w->memo.effect;
    bool requested = e->state == SEMEL_S_PENDING || e->state == SEMEL_S_READY;
    int64_t at = e->state == SEMEL_S_RUNNING ? e->lease_end : requested ? e->request_end : 0;
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
static bool joined_ended(sm_begun *b, semel_code *code)
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

/* Notes what is waited for. */
static void join(sm_begun *b)
{
    const sm_effect *e = &b->w->memo.effect;
    b->joined_generation = e->generation;
    b->joined_fence = e->state == SEMEL_S_RUNNING ? e->fence : 0;
    b->joined_request = e->state == SEMEL_S_PENDING ? e->request : 0;
}

/* Reads the record again, and lets the clock have its say. */
static sm_err reread(sm_begun *b)
{
    semel *s = b->s;
    sm_work *w = b->w;
    uint8_t shard;
    b->unread = false;
    sm_err err = sm_scope_shard(&w->keyer.digest, b->call.scope, &shard);
    if (err == SM_OK)
        err = sm_load_key(s, w, &b->id.key.hash, &shard);
    if (err == SEMEL_E_NOT_FOUND) {
        w->cur.version = 0;
        return SM_OK;
    }
    if (err != SM_OK)
        return err;
    sm_judge(s, w, &(sm_life_event){.kind = SM_EV_LOOK});
    if (!w->step.changed || w->step.next.state == SEMEL_S_NONE)
        return SM_OK;
    sm_body_start(w);
    err = sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, b->actor)});
    return err == SEMEL_E_STALE ? SM_OK : err;
}

/* Waits for a change, and reads it. */
static sm_err wait_for_change(sm_begun *b)
{
    semel *s = b->s;
    sm_work *w = b->w;
    sm_hash key = w->cur.key;
    semel_ref of = {&key, w->cur.id, w->cur.generation, true, w->cur.shard};
    sm_count(&s->waits);
    sm_err err = s->ops->wait(s->store, &of, w->cur.version, look_again_ns(b), &w->fault);
    return err == SM_OK || err == SEMEL_E_TIMEOUT ? reread(b) : err;
}

/* Answers with the end of what was joined, if that has come. */
static sm_err end_of_joined(sm_begun *b, bool *done)
{
    semel_code code;
    *done = b->w->cur.version != 0 && joined_ended(b, &code);
    if (!*done)
        return SM_OK;
    return code == SEMEL_C_NONE || code == SEMEL_C_PARTIAL_SUCCESS ? sm_begun_replay(b, code, true)
                                                                   : sm_begun_refuse(b, code);
}

/* Whoever asks waits elsewhere, and is told for what. */
static sm_err leave(sm_begun *b)
{
    sm_asking *q = b->asking;
    sm_work *w = b->w;
    q->waits = true;
    q->key = w->cur.key;
    q->of = (semel_ref){&q->key, w->cur.id, w->cur.generation, true, w->cur.shard};
    q->version = w->cur.version;
    q->look_ms = (look_again_ns(b) - sm_clock_mono_ns()) / 1000000 + 1;
    q->joined_generation = b->joined_generation;
    q->joined_fence = b->joined_fence;
    q->joined_request = b->joined_request;
    sm_count(&b->s->waits);
    return sm_begun_refuse(b, w->step.code);
}

/* ---- the order of steps ----------------------------------------------------------------------*/

/* What the record says; *done unless there is something to wait for. */
static sm_err answer_step(sm_begun *b, const uint8_t *secret, bool *done)
{
    sm_work *w = b->w;
    *done = true;
    switch (w->step.answer) {
    case SM_EXECUTE:
        return w->step.unclaimed ? sm_begun_pass(b, SM_JOT_OBSERVED)
                                 : sm_execute(b->s, w, secret, b->lease_ms, b->a);
    case SM_REPLAY: return sm_begun_replay(b, w->step.code, false);
    case SM_WAIT:
        *done = sm_clock_mono_ns() >= b->deadline_ns;
        b->waits = !*done;
        if (sm_step_noted(&w->step, SM_N_REQUESTED))
            sm_keeper_stir(b->s); /* somebody has to be told */
        return *done ? sm_begun_refuse(b, w->step.code) : SM_OK;
    default: return sm_begun_refuse(b, w->step.code);
    }
}

/* Whether a step is not taken, because whoever asks must not cause it. It is refused then, or
 * waited for. */
static bool held_back(sm_begun *b, bool *done)
{
    sm_asking *q = b->asking;
    sm_move *step = &b->w->step;
    bool executes = step->answer == SM_EXECUTE;
    semel_code code = SEMEL_C_NONE;
    if (executes && !step->unclaimed && b->again && q->patient && step->next.doubt_count > 0)
        code = SEMEL_C_UPSTREAM_TIMEOUT;
    else if (b->again && sm_step_noted(step, SM_N_SUPERSEDED))
        code = SEMEL_C_AWAITING_APPROVAL; /* others have asked for something else since */
    else if (q->quiet && (sm_step_noted(step, SM_N_REQUESTED) || (executes && step->unclaimed)))
        code = SEMEL_C_ILLEGAL_STATE;
    else if (executes && q->full)
        code = SEMEL_C_RETRY_IN_FLIGHT;
    if (code == SEMEL_C_NONE)
        return false;
    q->turned_away = code == SEMEL_C_RETRY_IN_FLIGHT;
    sm_begun_hold(b, code, done);
    return true;
}

/* Asks the guards about an attempt. What they refuse may be done already, if the store would tell
 * only with the insertion: then the record is read, and *again says to judge it. */
static sm_err ask_guards(sm_begun *b, semel_code *code, bool *again)
{
    b->unread &= b->w->cur.version == 0;
    sm_err e = sm_guard_start(b, code);
    if (e != SM_OK || *code == SEMEL_C_NONE || !b->unread)
        return e;
    *b->a = (semel_answer){.work = b->w};
    e = reread(b);
    *again = e == SM_OK && b->w->cur.version != 0;
    return e != SM_OK || *again ? e : sm_guard_start(b, code);
}

/* One round: judge, write, answer. */
static sm_err attempt(sm_begun *b, bool *done)
{
    uint8_t secret[SM_SECRET_BYTES] = {0};
    bool again = false, barred = false;
    sm_over over;
    *done = b->waits = false;
    sm_err e = sm_begun_judge(b);
    const sm_move *step = &b->w->step;
    if (e == SM_OK && b->asking != NULL && held_back(b, done))
        return *done ? sm_begun_refuse(b, b->w->step.code) : SM_OK;
    semel_code lost = SEMEL_C_NONE;
    if (e == SM_OK && starts(step) && !step->unclaimed)
        e = sm_begun_lost(b, &again, &lost);
    bool begins = b->asking == NULL || (!b->asking->ran && !b->asking->quiet);
    if (e == SM_OK && lost != SEMEL_C_NONE && begins && b->id.contract->mode == SM_MODE_OBSERVE) {
        *done = true; /* observe mode never refuses */
        b->w->step.observed = lost;
        return sm_begun_pass(b, SM_JOT_OBSERVED);
    }
    if (e == SM_OK && lost != SEMEL_C_NONE)
        return sm_begun_hold(b, lost, done) ? sm_begun_refuse(b, lost) : SM_OK;
    if (e == SM_OK && again)
        return SM_OK;
    semel_code guarded = SEMEL_C_NONE;
    if (e == SM_OK && starts(step))
        e = ask_guards(b, &guarded, &again);
    if (e == SM_OK && again)
        return SM_OK;
    if (e == SM_OK && guarded != SEMEL_C_NONE) {
        *done = true;
        return sm_begun_refuse(b, guarded);
    }
    /* A window that is over is written down by whoever starts anew, and by nobody else. */
    bool idle = step->next.state == SEMEL_S_NONE;
    if (e == SM_OK && step->changed && !idle)
        e = write_step(b, secret, &again, &barred, &over);
    if (e == SEMEL_E_OVER_CAP) {
        *done = true;
        sm_charge_words(b->w, &over, b->a);
        return sm_begun_refuse(b, SEMEL_C_BUDGET_EXCEEDED);
    }
    if (e != SM_OK) {
        *done = true;
        return sm_answer_error(b->w, b->a, e);
    }
    *done = barred;
    if (again || barred)
        return again ? SM_OK : sm_begun_blocked(b);
    return answer_step(b, secret, done);
}

/* The record as it is known without writing. A store that answers from this machine is asked even
 * if it has to read: whoever finds a record then waits for nobody's write. Of a distant one the
 * record comes with the attempt to insert it, in the same round trip. */
static sm_err find(sm_begun *b)
{
    sm_work *w = b->w;
    const semel_store_ops *ops = b->s->ops;
    w->cur.version = 0;
    b->unread = ops->peek == NULL;
    if (b->unread)
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

/* Whether the caller might not insert a record: then the insertion does not tell what there is. */
static bool reads_first(const sm_begun *b)
{
    const sm_asking *q = b->asking;
    return q != NULL && (q->ran || (b->s->ops->peek == NULL && (q->quiet || q->full)));
}

static sm_err ask(sm_begun *b)
{
    sm_work *w = b->w;
    bool done = false;
    sm_err e = b->again || reads_first(b) ? reread(b) : find(b);
    if (e == SM_OK && b->again)
        e = end_of_joined(b, &done);
    if (done)
        return e;
    for (int races = 0; e == SM_OK && races < SM_RACES_MAX; races++) {
        e = attempt(b, &done);
        if (done)
            return e;
        if (!b->waits)
            continue;
        join(b);
        if (b->asking != NULL)
            return leave(b);
        races = 0;
        b->settled = false;
        e = wait_for_change(b);
        if (e == SM_OK)
            e = end_of_joined(b, &done);
        if (done)
            return e;
    }
    if (e == SM_OK)
        e = sm_fault_set(&w->fault, SEMEL_E_UNAVAILABLE, "the store loses every race");
    return sm_answer_error(w, b->a, e);
}

/* Whoever asks learns of what, and makes ready, before anything is asked. */
static sm_err prepare(sm_begun *b)
{
    sm_asking *q = b->asking;
    if (q->known)
        b->id.key.hash = q->key;
    q->key = b->id.key.hash;
    q->known = true;
    sm_err e = sm_effect_id(&b->w->keyer.digest, &q->key, &q->id);
    return e == SM_OK && q->prepare != NULL
               ? q->prepare(q, b->id.contract, b->id.filled, &b->w->fault)
               : e;
}

/* Observe mode never refuses, not even for want of a ledger. */
static sm_err pass_unasked(sm_begun *b)
{
    *b->a = (semel_answer){.work = b->w};
    b->w->cur.version = 0;
    b->w->step.observed = SEMEL_C_LEDGER_UNAVAILABLE;
    return sm_begun_pass(b, SM_JOT_OBSERVED);
}

static sm_err begin(sm_begun *b)
{
    semel *s = b->s;
    sm_count(&s->begins);
    sm_err e = sm_begun_read(b);
    if (e == SM_OK && b->asking != NULL)
        e = prepare(b);
    if (e != SM_OK) {
        sm_count(&s->refused);
        return sm_answer_error(b->w, b->a, e);
    }
    if (b->id.strategy == SM_KEY_NONE && b->asking != NULL &&
        (b->asking->quiet || b->asking->full)) {
        b->asking->turned_away = b->asking->full;
        return sm_begun_refuse(b, SEMEL_C_ILLEGAL_STATE);
    }
    if (b->id.strategy == SM_KEY_NONE) {
        semel_code guarded;
        e = sm_guard_pass(b, &guarded);
        if (e != SM_OK && b->id.contract->mode != SM_MODE_OBSERVE)
            return sm_answer_error(b->w, b->a, e);
        if (e != SM_OK)
            return pass_unasked(b);
        return guarded != SEMEL_C_NONE ? sm_begun_refuse(b, guarded)
                                       : sm_begun_pass(b, SM_JOT_PASSED);
    }
    e = sm_ledger_fits(s, b->id.contract, &b->w->fault);
    e = e == SM_OK ? ask(b) : sm_answer_error(b->w, b->a, e);
    if (b->a->verdict != SEMEL_EXECUTE)
        sm_guard_unstart(b);
    e = sm_begun_held(b, e);
    if (e == SM_OK || b->id.contract->mode != SM_MODE_OBSERVE || e == SEMEL_E_BAD_ARGUMENTS)
        return e;
    return pass_unasked(b);
}

/* `bound`: the claim is tied to this process, whatever the call says. */
static sm_err begin_with(semel *s, const semel_call *given, bool bound, int64_t lease_ms,
                         semel_answer *a)
{
    semel_call call;
    sm_begun b = {.s = s, .a = a, .w = sm_work_start(a), .given = &call, .lease_ms = lease_ms};
    sm_err e = sm_given_read(&call, sizeof call, given, SM_FIRST_SIZE(semel_call, flags),
                             "the call", &b.w->fault);
    uint64_t unknown =
        e == SM_OK ? call.flags & ~(uint64_t)(SEMEL_CALL_DETACHED | SEMEL_CALL_UNDOES) : 0;
    if (e == SM_OK)
        e = sm_given_spare(&unknown, sizeof unknown, "the call's flags", &b.w->fault);
    b.undoes = e == SM_OK && (call.flags & SEMEL_CALL_UNDOES) != 0;
    if (b.undoes)
        e = sm_undo_check(s, &call, &b.w->fault);
    if (e != SM_OK) {
        sm_count(&s->begins);
        sm_count(&s->refused);
        return sm_answer_error(b.w, a, e);
    }
    if (bound)
        call.flags &= ~(uint64_t)SEMEL_CALL_DETACHED;
    b.deadline_ns = call.wait_ms > 0 ? sm_clock_deadline_ns(call.wait_ms) : 0;
    return begin(&b);
}

semel_err semel_begin(semel *s, const semel_call *call, semel_answer *a)
{
    return begin_with(s, call, false, 0, a);
}

sm_err sm_begin_run(semel *s, const semel_call *call, semel_answer *a)
{
    return begin_with(s, call, true, SM_RUN_LEASE_MS, a);
}

/* ---- asking without waiting ------------------------------------------------------------------*/

static sm_begun asked(semel *s, sm_asking *q, semel_answer *a)
{
    return (sm_begun){.s = s,
                      .a = a,
                      .w = sm_work_start(a),
                      .given = &q->call,
                      .asking = q,
                      .contracts = q->contracts,
                      .actor = q->actor,
                      .undoes = q->undoes,
                      .lease_ms = q->lease_ms,
                      .deadline_ns = INT64_MAX,
                      .again = q->joined_generation != 0,
                      .joined_generation = q->joined_generation,
                      .joined_fence = q->joined_fence,
                      .joined_request = q->joined_request};
}

sm_err sm_ask(semel *s, sm_asking *q, semel_answer *a)
{
    sm_begun b = asked(s, q, a);
    q->waits = q->turned_away = false;
    if (q->contracts == NULL) /* it ends under those that it is first asked under */
        b.contracts = q->contracts = sm_contracts_keep(s, a);
    return begin(&b);
}

bool sm_ask_memory(semel *s, sm_asking *q, semel_answer *a)
{
    sm_begun b = asked(s, q, a);
    sm_work *w = b.w;
    b.memory = true;
    if (s->ops->peek == NULL || q->call.args.n > SM_INLINE_BYTES_MAX ||
        sm_begun_read(&b) != SM_OK || b.id.strategy == SM_KEY_NONE ||
        s->ops->peek(s->store, &b.id.key.hash, &w->room, &w->cur, &w->now) != SM_OK ||
        sm_load_cur(w) != SM_OK || w->cur.args.n > SM_INLINE_BYTES_MAX ||
        sm_begun_judge(&b) != SM_OK || w->step.answer != SM_REPLAY || w->step.changed)
        return false;
    sm_count(&s->begins);
    return sm_begun_replay(&b, w->step.code, false) == SM_OK && a->verdict == SEMEL_REPLAY;
}

uint64_t sm_pass(semel *s, const semel_call *call, semel_answer *a)
{
    sm_begun b = {.s = s, .a = a, .w = sm_work_start(a), .given = call};
    sm_journal_add(&s->journal, SM_JOT_PASSED, SEMEL_C_NONE, 0, 0, sm_now(s), call->scope,
                   call->tool);
    return call->args.n <= SM_INLINE_BYTES_MAX && sm_begun_read(&b) == SM_OK ? sm_guard_passing(&b)
                                                                             : 0;
}
