/* The moves of an effect's life. */
#include "core/life.h"

#include <assert.h>

#include "base/duration.h"

void sm_life_note(sm_making *m, sm_history n)
{
    assert(m->out->note_count < SM_NOTES_MAX);
    m->out->notes[m->out->note_count++] = n;
    m->out->changed = true;
}

void sm_life_answer(sm_making *m, sm_reaction a, semel_code code)
{
    m->out->answer = a;
    m->out->code = code;
}

bool sm_life_same_hash(const sm_hash *a, const sm_hash *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

void sm_life_clear_request(sm_effect *e)
{
    e->request_end = 0;
    e->quorum = 0;
    e->approvals = 0;
    e->approved = false;
    memset(&e->digest, 0, sizeof e->digest);
    memset(e->approvers, 0, sizeof e->approvers);
}

void sm_life_clear_askers(sm_effect *e)
{
    e->asked = 0;
    e->crowded = false;
}

void sm_life_clear_doubts(sm_effect *e)
{
    memset(e->doubts, 0, sizeof e->doubts);
    e->doubt_count = 0;
    e->chain_at = 0;
    e->doubt_end = 0;
}

/* Windows start when an effect is settled (I17). */
void sm_life_settle(sm_making *m, semel_state state, int64_t at)
{
    sm_effect *e = m->e;
    assert(semel_state_settled(state));
    sm_life_clear_doubts(e);
    sm_life_clear_request(e);
    e->state = state;
    e->lease_end = 0;
    e->resending = false;
    e->late = 0;
    e->late_partial = false;
    e->settled_at = at;
    e->window_end = sm_time_after(at, m->c->window_ms);
    e->result_end = sm_time_after(at, m->c->result_window_ms);
    if (state != SEMEL_S_FAILED)
        e->applied = e->abandoned = false;
    sm_life_note(m, SM_N_SETTLED);
}

bool sm_life_doubts_fence(const sm_effect *e, uint64_t fence)
{
    for (uint32_t i = 0; i < e->doubt_count; i++) {
        if (e->doubts[i] == fence)
            return true;
    }
    return false;
}

/* A full list may lack some doubts, so none is removed from it: a person decides. */
void sm_life_remove_doubt(sm_making *m, uint64_t fence)
{
    sm_effect *e = m->e;
    if (e->doubt_count == SM_DOUBTS_MAX)
        return;
    for (uint32_t i = 0; i < e->doubt_count; i++) {
        if (e->doubts[i] != fence)
            continue;
        memmove(&e->doubts[i], &e->doubts[i + 1], (e->doubt_count - i - 1) * sizeof e->doubts[0]);
        e->doubts[--e->doubt_count] = 0;
        sm_life_note(m, SM_N_CLEARED);
        return;
    }
}

/* A resend that has not settled the doubt gives way to the next step. If that is `hold`, there is
 * nothing better than another resend, as long as the downstream remembers the key. */
static void go_along_chain(sm_making *m)
{
    sm_effect *e = m->e;
    unsigned next = e->chain_at + 1u;
    if (e->resending && next < m->c->on_in_doubt.count &&
        m->c->on_in_doubt.steps[next] != SM_DOUBT_HOLD)
        e->chain_at++;
}

/* A running attempt ended without a word, or without knowing. */
void sm_life_enter_doubt(sm_making *m, int64_t at)
{
    sm_effect *e = m->e;
    if (e->late != 0) { /* an older attempt did succeed: that is the outcome */
        sm_life_settle(m, e->late_partial ? SEMEL_S_PARTIAL : SEMEL_S_SUCCEEDED, at);
        sm_life_note(m, SM_N_DOUBLE_EFFECT);
        return;
    }
    if (e->doubt_count == 0)
        e->chain_at = 0;
    else
        go_along_chain(m);
    if (e->doubt_count < SM_DOUBTS_MAX)
        e->doubts[e->doubt_count++] = e->fence;
    else
        e->chain_at = (uint8_t)(m->c->on_in_doubt.count - 1);
    e->state = SEMEL_S_IN_DOUBT;
    e->doubt_end = at;
    e->lease_end = 0;
    e->resending = false;
    sm_life_note(m, SM_N_DOUBTED);
}

/* The current attempt surely did nothing; what is known of the others decides. */
void sm_life_end_not_applied(sm_making *m)
{
    sm_effect *e = m->e;
    if (e->late != 0) {
        sm_life_settle(m, e->late_partial ? SEMEL_S_PARTIAL : SEMEL_S_SUCCEEDED, m->now);
    } else if (e->doubt_count > 0) {
        go_along_chain(m);
        e->state = SEMEL_S_IN_DOUBT;
        e->lease_end = 0;
        e->resending = false;
        sm_life_note(m, SM_N_DOUBTED);
    } else {
        sm_life_settle(m, SEMEL_S_FAILED, m->now);
    }
}

static void sm_life_new_generation(sm_making *m)
{
    sm_effect *e = m->e;
    sm_life_clear_doubts(e);
    sm_life_clear_request(e);
    e->generation++;
    e->base_fence = e->fence;
    e->attempt = e->run = 0;
    e->applied = e->abandoned = false;
    e->settled_at = e->window_end = e->result_end = 0;
}

void sm_life_start_attempt(sm_making *m, bool resending)
{
    sm_effect *e = m->e;
    if (e->doubt_count == 0)
        e->first_sent = m->now;
    e->state = SEMEL_S_RUNNING;
    e->fence++;
    e->attempt++;
    e->lease_end = sm_time_after(m->now, m->ev->lease_ms);
    e->resending = resending;
    if (m->ev->kind == SM_EV_BEGIN)
        e->ran = m->ev->digest;
    e->settled_at = e->window_end = e->result_end = 0;
    if (!e->approved && e->doubt_count == 0)
        sm_life_clear_request(e);
    e->approved = false; /* an approval is used once (I7); who gave it, and how long it was good,
                            counts again if the attempt is withdrawn */
    memset(&e->digest, 0, sizeof e->digest);
    sm_life_note(m, SM_N_STARTED);
    sm_life_answer(m, SM_EXECUTE, SEMEL_C_NONE);
}

static bool among(const sm_hash *list, uint32_t n, const sm_hash *actor)
{
    for (uint32_t i = 0; i < n; i++) {
        if (sm_life_same_hash(&list[i], actor))
            return true;
    }
    return false;
}

bool sm_life_asked(const sm_effect *e, const sm_hash *actor)
{
    return among(e->askers, e->asked, actor);
}

bool sm_life_approved(const sm_effect *e, const sm_hash *actor)
{
    return among(e->approvers, e->approvals, actor);
}

void sm_life_remember_asker(sm_making *m)
{
    sm_effect *e = m->e;
    if (e->crowded || sm_life_asked(e, &m->ev->actor))
        return;
    if (e->asked < SM_ASKERS_MAX)
        e->askers[e->asked++] = m->ev->actor;
    else
        e->crowded = true;
    if (!m->out->changed)
        sm_life_note(m, SM_N_ASKED);
}

void sm_life_ask(sm_making *m)
{
    sm_effect *e = m->e;
    sm_life_clear_request(e);
    e->state = SEMEL_S_PENDING;
    e->request++;
    e->digest = m->ev->digest;
    e->quorum = (uint32_t)m->c->approval.quorum;
    e->request_end = sm_time_after(m->now, m->c->approval.expires_ms);
    e->settled_at = e->window_end = e->result_end = 0;
    sm_life_note(m, SM_N_REQUESTED);
    sm_life_answer(m, SM_WAIT, SEMEL_C_AWAITING_APPROVAL);
}

/* The fresh path: barrier, approval, attempt. */
void sm_life_start(sm_making *m)
{
    if (m->ev->barred) {
        sm_life_answer(m, SM_REFUSED, SEMEL_C_IN_DOUBT);
        return;
    }
    if (m->e->state == SEMEL_S_NONE)
        sm_life_new_generation(m);
    if (m->ev->needs_approval)
        sm_life_ask(m);
    else
        sm_life_start_attempt(m, false);
}

/* ---- stray attempts --------------------------------------------------------------------------*/

semel_state sm_life_outcome_state(const sm_life_event *ev)
{
    return ev->outcome == SEMEL_SUCCESS   ? SEMEL_S_SUCCEEDED
           : ev->outcome == SEMEL_FAILURE ? SEMEL_S_FAILED
                                          : SEMEL_S_PARTIAL;
}

/* The stray attempt becomes the newest one, and a person has to find out. */
static void doubt_stray(sm_making *m)
{
    sm_effect *e = m->e;
    sm_life_clear_request(e);
    e->settled_at = e->window_end = e->result_end = 0;
    e->fence++;
    e->attempt++;
    sm_life_enter_doubt(m, m->now);
    e->chain_at = (uint8_t)(m->c->on_in_doubt.count - 1);
}

void sm_life_stray(sm_making *m)
{
    sm_effect *e = m->e;
    if (e->state == SEMEL_S_NONE) { /* it begins a generation of its own */
        sm_life_answer(m, SM_REFUSED, SEMEL_C_BAD_CLAIM);
        return;
    }
    bool success = m->ev->outcome != SEMEL_FAILURE;
    bool applied = success || m->ev->applied == SEMEL_APPLIED_YES;
    bool running = e->state == SEMEL_S_RUNNING, done = sm_effect_done(e);
    sm_life_note(m, SM_N_PUT_BACK);
    sm_life_answer(m, SM_DONE, SEMEL_C_NONE);
    if (!running && !done && applied) {
        e->applied = !success;
        sm_life_settle(m, sm_life_outcome_state(m->ev), m->now);
    } else if (!running && !done && m->ev->applied == SEMEL_APPLIED_UNKNOWN) {
        doubt_stray(
            m); /* in doubt too: clearing the other attempts proves nothing about it (I16) */
    } else {
        sm_life_answer(m, SM_EVIDENCE, SEMEL_C_NONE);
        sm_life_note(m, SM_N_LATE);
        if (done && applied)
            sm_life_note(m, SM_N_DOUBLE_EFFECT);
        if (running && success && e->late == 0) {
            e->late = e->fence;
            e->late_partial = m->ev->outcome == SEMEL_PARTIAL;
        }
    }
}
