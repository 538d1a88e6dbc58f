/*
 * What each event does in each state.
 *
 * begin, by state (time is applied first; KEY_CONFLICT in every state where drift conflicts):
 *
 *   none, or window over     barrier; approval needed: pending, AWAITING_APPROVAL; else execute
 *   pending                  digest equal: wait; else a new request supersedes the old
 *   ready                    approved for this digest, or none needed: execute; else a new request
 *   running                  wait, RETRY_IN_FLIGHT
 *   in_doubt                 at rerun: execute; at resend or probe: wait, UPSTREAM_TIMEOUT;
 *                            at hold: IN_DOUBT
 *   succeeded                meant as a repeat: a new generation, as none; on_hit fail:
 *                            ALREADY_DONE; bytes gone: RESULT_EXPIRED; else replay
 *   applied, overwritten     a new generation, as none, as if the window were over. Applied are
 *                            succeeded, partial, and failed if it is known to have been applied
 *   partial                  replay, PARTIAL_SUCCESS
 *   failed, not applied      if failures are retried: as none; else replay
 *   failed otherwise         ALREADY_DONE or replay
 *   denied                   DENIED
 *   expired, canceled        as none
 *
 *   If the call needs approval, everybody who begins is remembered as one who asked, until the
 *   window is over, a success is repeated on purpose or its effect is overwritten: then it is
 *   another call. A cancel, an expiry or a forget does not end that. Those who asked cannot
 *   approve, and those who approved cannot ask: FORBIDDEN.
 *
 * commit, by state:
 *                     running, own fence     in_doubt              running, other   settled
 *   success, partial  settles                settles               evidence [1]     evidence
 *   failure, no       failed [2]             clears own doubt [3]  clears own doubt evidence
 *   failure, yes      failed for ever [2]    settles               evidence         evidence
 *   failure, unknown  in_doubt               evidence              evidence         evidence
 *
 *   [1] wins if the running attempt ends not applied or in doubt; if it succeeds too, both did.
 *   [2] in_doubt while another attempt is (I16).  [3] none left: failed.
 *   While ready or pending after a doubt was judged "not applied", a success of that attempt, or
 *   its failure that was applied, settles the effect: running it again would do it twice.
 *   An effect in doubt of which some attempt is known to have been applied is held.
 *
 * stray: an attempt has ended that this record does not know, because the ledger has lost its
 * record. It counts like a late commit, except that the record holds no doubt for it:
 *
 *                     running          done [4]        anything else
 *   success, partial  evidence [1]     evidence [5]    settles
 *   failure, yes      evidence         evidence [5]    failed for ever
 *   failure, unknown  evidence [6]     evidence        in_doubt, held
 *   failure, no       evidence         evidence        evidence
 *
 *   [4] succeeded, partial, failed for ever.  [5] and both did: double_effect.
 *   [6] the caller comes back when the running attempt has ended.
 *   In none it is refused: the lost record is put back as a generation of its own.
 *
 * withdraw, by the fence of an attempt that nobody was told to run, or under which nothing was
 * sent: running, or in doubt for nothing else: none, and the key is free (if it needed an approval:
 * ready, and that is still good); in doubt for others too, or while another one runs: its own doubt
 * is cleared. In any other state it changes nothing.
 *
 * The others: renew in running by its own fence; approve and deny in pending, by the newest
 * request; cancel in pending and ready; resolve, step and probed in in_doubt; forget in settled
 * states. Anything else is ILLEGAL_STATE and changes nothing.
 */
#include "core/transition.h"

#include <assert.h>

#include "base/duration.h"
#include "core/life.h"

/* ---- time ------------------------------------------------------------------------------------*/

/* What the clock alone has done. A renewal or commit by the running attempt itself comes in time as
 * long as nobody has looked: the lease is not held against it. */
static void apply_time(sm_making *m)
{
    sm_effect *e = m->e;
    bool own =
        (m->ev->kind == SM_EV_RENEW || m->ev->kind == SM_EV_COMMIT) && m->ev->fence == e->fence;
    bool lost = m->now >= e->lease_end, settled = semel_state_settled(e->state);
    if (e->state == SEMEL_S_RUNNING && (lost || m->ev->gone) && !own) {
        e->resending = false; /* it did not end, and so says nothing about resending */
        sm_life_enter_doubt(m, lost ? e->lease_end : m->now);
    } else if ((e->state == SEMEL_S_PENDING || (e->state == SEMEL_S_READY && e->approved)) &&
               m->now >= e->request_end) {
        int64_t at = e->request_end;
        sm_life_note(m, SM_N_EXPIRED);
        sm_life_settle(m, SEMEL_S_EXPIRED, at);
    }
    /* One thing at a time: what has just expired is written down as such first. */
    if (settled && m->now >= e->window_end) {
        e->state = SEMEL_S_NONE;
        e->settled_at = e->window_end = e->result_end = 0;
        sm_life_clear_askers(e);
        sm_life_note(m, SM_N_WINDOW_OVER);
    }
}

sm_doubt sm_effect_doubt_step(const sm_effect *e, const sm_contract *c, int64_t now)
{
    if (e->applied) /* what is known to have been applied is never tried again */
        return SM_DOUBT_HOLD;
    const sm_idempotency *down = sm_contract_key_rule(c);
    for (uint8_t i = e->chain_at; i < c->on_in_doubt.count; i++) {
        sm_doubt step = (sm_doubt)c->on_in_doubt.steps[i];
        if (step != SM_DOUBT_RESEND || now < sm_time_after(e->first_sent, down->window_ms))
            return step;
    }
    return SM_DOUBT_HOLD;
}

/* ---- begin -----------------------------------------------------------------------------------*/

static void begin_ready(sm_making *m)
{
    const sm_effect *e = m->e;
    bool covered =
        e->approved ? sm_life_same_hash(&e->digest, &m->ev->digest) : !m->ev->needs_approval;
    if (covered && !m->ev->barred) {
        sm_life_start_attempt(m, false);
    } else {
        if (e->approved && !m->ev->barred)
            sm_life_note(m, SM_N_SUPERSEDED);
        sm_life_start(m);
    }
}

static void begin_pending(sm_making *m)
{
    if (sm_life_same_hash(&m->e->digest, &m->ev->digest)) {
        sm_life_answer(m, SM_WAIT, SEMEL_C_AWAITING_APPROVAL);
        return;
    }
    if (!m->ev->barred)
        sm_life_note(m, SM_N_SUPERSEDED);
    sm_life_start(m);
}

/* A rerun stays under the approval that its attempt consumed, which was for the same arguments. */
static void begin_doubted(sm_making *m)
{
    sm_doubt step = sm_effect_doubt_step(m->e, m->c, m->now);
    bool covered = !m->ev->needs_approval || sm_life_same_hash(&m->e->ran, &m->ev->digest);
    if (step == SM_DOUBT_RERUN && covered)
        sm_life_start_attempt(m, false);
    else if (step == SM_DOUBT_HOLD || step == SM_DOUBT_RERUN)
        sm_life_answer(m, SM_REFUSED, SEMEL_C_IN_DOUBT);
    else
        sm_life_answer(m, SM_WAIT, SEMEL_C_UPSTREAM_TIMEOUT);
}

static void replay(sm_making *m, semel_code code)
{
    if (m->c->on_hit == SM_HIT_FAIL && code == SEMEL_C_NONE)
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ALREADY_DONE);
    else if (m->now >= m->e->result_end)
        sm_life_answer(m, SM_REFUSED, SEMEL_C_RESULT_EXPIRED);
    else
        sm_life_answer(m, SM_REPLAY, code);
}

static void begin_succeeded(sm_making *m)
{
    if (m->ev->deliberate && m->c->on_repeat == SM_REPEAT_RUN && !m->ev->barred &&
        m->now >= sm_time_after(m->e->settled_at, m->c->repeat_after_ms)) {
        m->e->state = SEMEL_S_NONE;
        sm_life_clear_askers(m->e);
        sm_life_start(m);
    } else {
        replay(m, SEMEL_C_NONE);
    }
}

static void begin_failed(sm_making *m)
{
    sm_effect *e = m->e;
    bool again = m->c->failures == SM_FAILURES_RETRY || m->c->on_hit == SM_HIT_REPLAY_SUCCESS;
    if (e->applied || e->abandoned || !again) {
        replay(m, SEMEL_C_NONE);
        return;
    }
    if (!m->ev->barred)
        e->run++;
    sm_life_start(m);
}

/* Nobody both asks for a call and approves it, in either order. Actors that are not authenticated
 * are not compared: they could be anybody. */
static bool approves_own(const sm_making *m)
{
    const sm_effect *e = m->e;
    if (!m->ev->proven || m->c->approval.self_approval)
        return false;
    return m->ev->kind == SM_EV_APPROVE ? e->crowded || sm_life_asked(e, &m->ev->actor)
                                        : sm_life_approved(e, &m->ev->actor);
}

/* What the effect did may no longer be so: who wants it now wants another action. What failed
 * without being applied, was denied, or was given up on did nothing that others could overwrite. */
static void apply_overwriting(sm_making *m)
{
    if (!m->ev->overwritten || !sm_effect_applied(m->e))
        return;
    m->e->state = SEMEL_S_NONE;
    m->e->settled_at = m->e->window_end = m->e->result_end = 0;
    sm_life_clear_askers(m->e);
    sm_life_note(m, SM_N_OVERWRITTEN);
}

static void on_begin(sm_making *m)
{
    apply_overwriting(m);
    if (m->e->state != SEMEL_S_NONE && m->ev->drift == SM_CONFLICTS) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_KEY_CONFLICT);
        return;
    }
    if (approves_own(m)) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_FORBIDDEN);
        return;
    }
    switch (m->e->state) {
    case SEMEL_S_NONE:
    case SEMEL_S_EXPIRED:
    case SEMEL_S_CANCELED: sm_life_start(m); break;
    case SEMEL_S_PENDING: begin_pending(m); break;
    case SEMEL_S_READY: begin_ready(m); break;
    case SEMEL_S_RUNNING: sm_life_answer(m, SM_WAIT, SEMEL_C_RETRY_IN_FLIGHT); break;
    case SEMEL_S_IN_DOUBT: begin_doubted(m); break;
    case SEMEL_S_SUCCEEDED: begin_succeeded(m); break;
    case SEMEL_S_PARTIAL: replay(m, SEMEL_C_PARTIAL_SUCCESS); break;
    case SEMEL_S_FAILED: begin_failed(m); break;
    case SEMEL_S_DENIED: sm_life_answer(m, SM_REFUSED, SEMEL_C_DENIED); break;
    case SEMEL_S_COUNT: assert(!"not a state"); break;
    }
    if (m->ev->needs_approval && m->e->request != 0 && m->e->state != SEMEL_S_NONE &&
        !semel_state_settled(m->e->state))
        sm_life_remember_asker(m);
}

/* ---- commit and renew ------------------------------------------------------------------------*/

static void commit_current(sm_making *m)
{
    sm_effect *e = m->e;
    bool both = e->late != 0;
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    if (m->ev->outcome != SEMEL_FAILURE) {
        sm_life_settle(m, sm_life_outcome_state(m->ev), m->now);
        if (both)
            sm_life_note(m, SM_N_DOUBLE_EFFECT);
    } else if (m->ev->applied == SEMEL_APPLIED_UNKNOWN) {
        sm_life_enter_doubt(m, m->now);
    } else if (m->ev->applied == SEMEL_APPLIED_NO) {
        sm_life_end_not_applied(m);
    } else if (both) { /* an older attempt did succeed: that is the outcome */
        sm_life_settle(m, e->late_partial ? SEMEL_S_PARTIAL : SEMEL_S_SUCCEEDED, m->now);
        sm_life_note(m, SM_N_DOUBLE_EFFECT);
    } else {
        e->applied = true;
        sm_life_end_not_applied(m); /* the doubt of others stays; without any, failed for ever */
    }
}

static void commit_in_doubt(sm_making *m)
{
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    if (m->ev->outcome != SEMEL_FAILURE) {
        sm_life_settle(m, sm_life_outcome_state(m->ev), m->now);
    } else if (m->ev->applied == SEMEL_APPLIED_YES) {
        m->e->applied = true;
        sm_life_settle(m, SEMEL_S_FAILED, m->now);
    } else if (m->ev->applied == SEMEL_APPLIED_NO && sm_life_doubts_fence(m->e, m->ev->fence)) {
        sm_life_remove_doubt(m, m->ev->fence);
        if (m->e->doubt_count == 0)
            sm_life_settle(m, SEMEL_S_FAILED, m->now);
    } else {
        sm_life_note(m, SM_N_LATE);
        sm_life_answer(m, SM_EVIDENCE, SEMEL_C_NONE);
    }
}

/* A commit by an attempt that is not the running one, while one runs. */
static void commit_beside(sm_making *m)
{
    sm_life_answer(m, SM_EVIDENCE, SEMEL_C_NONE);
    sm_life_note(m, SM_N_LATE);
    if (m->ev->outcome != SEMEL_FAILURE && m->e->late == 0) {
        m->e->late = m->ev->fence;
        m->e->late_partial = m->ev->outcome == SEMEL_PARTIAL;
    } else if (m->ev->outcome == SEMEL_FAILURE && m->ev->applied == SEMEL_APPLIED_NO) {
        sm_life_remove_doubt(m, m->ev->fence);
    }
}

static void on_commit(sm_making *m)
{
    sm_effect *e = m->e;
    if (m->ev->fence == 0 || m->ev->fence > e->fence) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_BAD_CLAIM);
    } else if (m->ev->fence <= e->base_fence || e->state == SEMEL_S_NONE ||
               semel_state_settled(e->state)) {
        sm_life_note(m, SM_N_LATE);
        sm_life_answer(m, SM_EVIDENCE, SEMEL_C_NONE);
    } else if (e->state == SEMEL_S_RUNNING) {
        if (m->ev->fence == e->fence)
            commit_current(m);
        else
            commit_beside(m);
    } else if (e->state == SEMEL_S_IN_DOUBT || m->ev->outcome != SEMEL_FAILURE ||
               m->ev->applied == SEMEL_APPLIED_YES) {
        commit_in_doubt(m); /* ready and pending too: it was applied after all */
    } else {
        sm_life_note(m, SM_N_LATE);
        sm_life_answer(m, SM_EVIDENCE, SEMEL_C_NONE);
    }
}

/* As if it had never been: unless something is known or in doubt of other attempts, the key is
 * free. */
static void on_withdraw(sm_making *m)
{
    sm_effect *e = m->e;
    bool current = e->state == SEMEL_S_RUNNING && m->ev->fence == e->fence;
    bool doubted = (e->state == SEMEL_S_RUNNING || e->state == SEMEL_S_IN_DOUBT) &&
                   sm_life_doubts_fence(e, m->ev->fence);
    if (!current && !doubted) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ILLEGAL_STATE);
        return;
    }
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    sm_life_note(m, SM_N_WITHDRAWN);
    if (doubted)
        sm_life_remove_doubt(m, m->ev->fence);
    if (e->doubt_count > 0 || e->late != 0 || e->applied) {
        e->resending = false; /* it may be tried again */
        if (current || (e->state == SEMEL_S_IN_DOUBT && e->doubt_count == 0))
            sm_life_end_not_applied(m);
    } else if (current || e->state == SEMEL_S_IN_DOUBT) {
        sm_life_clear_doubts(e);
        e->lease_end = 0;
        e->resending = false;
        e->state = SEMEL_S_NONE;
        if (e->request_end != 0) { /* its approval was not used: nothing was done */
            e->state = SEMEL_S_READY;
            e->approved = true;
            e->digest = e->ran;
        }
    }
}

static void on_renew(sm_making *m)
{
    sm_effect *e = m->e;
    if (e->state != SEMEL_S_RUNNING || m->ev->fence != e->fence) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_BAD_CLAIM);
        return;
    }
    int64_t end = sm_time_after(m->now, m->ev->lease_ms);
    if (end > e->lease_end) {
        e->lease_end = end;
        sm_life_note(m, SM_N_RENEWED);
    }
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
}

/* ---- doubt -----------------------------------------------------------------------------------*/

/* Nothing was applied, by evidence or by a person's word: the effect may start again. */
static void not_applied(sm_making *m)
{
    sm_effect *e = m->e;
    bool applied = e->applied;
    sm_life_clear_doubts(e);
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    if (applied) {
        sm_life_settle(m, SEMEL_S_FAILED, m->now); /* another attempt is known to have been */
    } else if (m->ev->needs_approval) {
        sm_life_ask(m);
        sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    } else {
        sm_life_clear_request(e);
        e->state = SEMEL_S_READY;
    }
}

static void on_step(sm_making *m)
{
    if (m->e->state != SEMEL_S_IN_DOUBT) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ILLEGAL_STATE);
        return;
    }
    switch (sm_effect_doubt_step(m->e, m->c, m->now)) {
    case SM_DOUBT_RESEND: sm_life_start_attempt(m, true); break;
    case SM_DOUBT_RERUN: sm_life_start_attempt(m, false); break;
    case SM_DOUBT_PROBE: sm_life_answer(m, SM_DONE, SEMEL_C_UPSTREAM_TIMEOUT); break;
    case SM_DOUBT_HOLD: sm_life_answer(m, SM_REFUSED, SEMEL_C_IN_DOUBT); break;
    }
}

/* "Absent" counts only when what was under way has had time to arrive, and for an irreversible tool
 * only if the probe is the last word. */
static bool absent_counts(const sm_making *m)
{
    return m->now >= sm_time_after(m->e->doubt_end, m->c->probe.settle_ms) &&
           (m->c->class != SM_CLASS_IRREVERSIBLE || m->c->probe.authoritative);
}

static void on_probed(sm_making *m)
{
    sm_effect *e = m->e;
    if (e->state != SEMEL_S_IN_DOUBT || sm_effect_doubt_step(e, m->c, m->now) != SM_DOUBT_PROBE) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ILLEGAL_STATE);
        return;
    }
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    if (m->ev->found == SM_FOUND_APPLIED) {
        sm_life_settle(m, SEMEL_S_SUCCEEDED, m->now);
    } else if (m->ev->found == SM_FOUND_ABSENT && absent_counts(m)) {
        sm_life_note(m, SM_N_CLEARED);
        not_applied(m);
    } else if (m->ev->found == SM_FOUND_ABSENT &&
               m->now < sm_time_after(e->doubt_end, m->c->probe.settle_ms)) {
        sm_life_answer(m, SM_WAIT, SEMEL_C_UPSTREAM_TIMEOUT); /* too early to tell: ask again */
    } else {
        while (m->c->on_in_doubt.steps[e->chain_at] != SM_DOUBT_PROBE)
            e->chain_at++;
        e->chain_at++; /* the probe does not know: the next step, at least hold */
        m->out->changed = true;
    }
}

static void on_resolve(sm_making *m)
{
    if (m->e->state != SEMEL_S_IN_DOUBT) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ILLEGAL_STATE);
        return;
    }
    sm_life_note(m, SM_N_RESOLVED);
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    switch (m->ev->resolution) {
    case SEMEL_RESOLVE_APPLIED: sm_life_settle(m, SEMEL_S_SUCCEEDED, m->now); break;
    case SEMEL_RESOLVE_NOT_APPLIED: not_applied(m); break;
    case SEMEL_RESOLVE_ABANDON:
        m->e->abandoned = true;
        sm_life_settle(m, SEMEL_S_FAILED, m->now);
        break;
    }
}

/* ---- approval --------------------------------------------------------------------------------*/

static bool decides(sm_making *m)
{
    if (m->e->state != SEMEL_S_PENDING) {
        sm_life_answer(m, SM_REFUSED,
                       m->e->state == SEMEL_S_EXPIRED ? SEMEL_C_APPROVAL_EXPIRED
                                                      : SEMEL_C_ILLEGAL_STATE);
        return false;
    }
    if (m->ev->request != m->e->request) {
        sm_life_answer(m, SM_REFUSED,
                       SEMEL_C_KEY_CONFLICT); /* superseded: other arguments wait now */
        return false;
    }
    return true;
}

static void on_approve(sm_making *m)
{
    sm_effect *e = m->e;
    if (!decides(m))
        return;
    if (approves_own(m)) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_FORBIDDEN);
        return;
    }
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    if (sm_life_approved(e, &m->ev->actor))
        return; /* one person, one voice */
    e->approvers[e->approvals++] = m->ev->actor;
    sm_life_note(m, SM_N_APPROVED);
    if (e->approvals < e->quorum)
        return;
    e->state = SEMEL_S_READY;
    e->approved = true;
    e->request_end = sm_time_after(m->now, m->c->approval.expires_ms);
}

static void on_deny(sm_making *m)
{
    if (!decides(m))
        return;
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    sm_life_note(m, SM_N_DENIED);
    sm_life_settle(m, SEMEL_S_DENIED, m->now);
}

static void on_cancel(sm_making *m)
{
    if (m->e->state != SEMEL_S_PENDING && m->e->state != SEMEL_S_READY) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ILLEGAL_STATE);
        return;
    }
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    sm_life_note(m, SM_N_CANCELED);
    sm_life_settle(m, SEMEL_S_CANCELED, m->now);
}

static void on_forget(sm_making *m)
{
    if (!semel_state_settled(m->e->state)) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_ILLEGAL_STATE);
        return;
    }
    m->e->state = SEMEL_S_NONE;
    m->e->settled_at = m->e->window_end = m->e->result_end = 0;
    sm_life_note(m, SM_N_FORGOTTEN);
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
}

/* ---- the function ----------------------------------------------------------------------------*/

static void make(const sm_effect *e, const sm_life_event *ev, const sm_contract *c, int64_t now,
                 sm_move *out)
{
    static void (*const on[])(sm_making *) = {
        [SM_EV_BEGIN] = on_begin,   [SM_EV_RENEW] = on_renew,       [SM_EV_COMMIT] = on_commit,
        [SM_EV_STEP] = on_step,     [SM_EV_PROBED] = on_probed,     [SM_EV_APPROVE] = on_approve,
        [SM_EV_DENY] = on_deny,     [SM_EV_CANCEL] = on_cancel,     [SM_EV_RESOLVE] = on_resolve,
        [SM_EV_FORGET] = on_forget, [SM_EV_WITHDRAW] = on_withdraw, [SM_EV_STRAY] = sm_life_stray,
    };
    memset(out, 0, offsetof(sm_move, next));
    out->answer = SM_DONE;
    sm_effect_copy(&out->next, e);
    sm_making m = {ev, c, now, out, &out->next};
    apply_time(&m);
    if (ev->kind != SM_EV_LOOK)
        on[ev->kind](&m);
}

/* Observe mode never refuses, waits or asks: it executes, and says what it would have done. What
 * would have been asked runs as if nobody had to be; what runs beside the record has no claim, and
 * the record stays as time left it. */
static void observe(const sm_effect *e, const sm_life_event *ev, const sm_contract *c, int64_t now,
                    sm_move *out)
{
    semel_code would = out->answer == SM_REPLAY ? SEMEL_C_ALREADY_DONE : out->code;
    sm_life_event again = *ev;
    again.needs_approval = false;
    if (ev->needs_approval)
        make(e, &again, c, now, out);
    if (out->answer != SM_EXECUTE) {
        again.kind = SM_EV_LOOK;
        make(e, &again, c, now, out);
        out->answer = SM_EXECUTE;
        out->unclaimed = true;
    }
    out->observed = would;
}

void sm_transition(const sm_effect *e, const sm_life_event *ev, const sm_contract *c, int64_t now,
                   sm_move *out)
{
    assert(sm_effect_flaw(e) == NULL);
    make(e, ev, c, now, out);
    if (c->mode == SM_MODE_OBSERVE && ev->kind == SM_EV_BEGIN && out->answer != SM_EXECUTE)
        observe(e, ev, c, now, out);
    assert(sm_effect_flaw(&out->next) == NULL);
}
