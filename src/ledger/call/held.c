/*
 * Equal calls while the ledger does not say what became of an attempt of this handle.
 *
 * A ledger may be out of reach when an attempt ends, and stay so. The handle knows the attempt
 * (running.c), so an equal call is never answered as if nothing had been done:
 *
 *     it runs, or its end is being recorded    RETRY_IN_FLIGHT
 *     it has ended, and the end is settled     a replay, with the result SM_UNRECORDED
 *     it has ended, and the end is not         RETRY_IN_FLIGHT, which says that it ran
 *
 * The call is judged by the record as it was when the attempt began. A call that would not have
 * joined the attempt, such as one with other arguments (I6), keeps the ledger's answer.
 */
#include "ledger/call/begin.h"

#include <stdlib.h>

#include "ledger/call/commit.h"
#include "ledger/work/ledger.h"

/* Whether the ledger's answer leaves open what became of the effect. */
static bool leaves_open(const semel_answer *a)
{
    return a->blocked_by.p == NULL && a->verdict == SEMEL_REFUSED &&
           (a->code == SEMEL_C_LEDGER_UNAVAILABLE || a->code == SEMEL_C_RETRY_IN_FLIGHT ||
            a->code == SEMEL_C_UPSTREAM_TIMEOUT || a->code == SEMEL_C_IN_DOUBT);
}

/* Whether the call, judged by the record that was seen, joins the attempt. */
static bool joins(sm_begun *b, const sm_held *h)
{
    sm_work *w = b->w;
    w->cur = h->seen->record;
    if (sm_load_cur(w) != SM_OK)
        return false;
    w->now = sm_now(b->s);
    w->memo.effect.lease_end = w->now + SM_RUN_LEASE_MS; /* this handle keeps it */
    return sm_begun_judge(b) == SM_OK && w->step.answer == SM_WAIT &&
           w->step.code == SEMEL_C_RETRY_IN_FLIGHT;
}

static sm_err answer_refused(sm_begun *b, semel_code code, const char *message)
{
    sm_work *w = b->w;
    sm_err e = sm_answer_about(w, b->a);
    if (e != SM_OK)
        return sm_answer_error(w, b->a, e);
    sm_count(&b->s->refused);
    b->a->message = message == NULL ? (sm_str){0} : sm_str_from(message);
    b->a->retry_after_ms = semel_code_retriable(code) ? 1000 : 0;
    return sm_answer_refuse(w, b->a, code, SM_OK);
}

/* The answer that the record would give if it had the outcome. */
static sm_err answer_ended(sm_begun *b, const sm_held *h)
{
    sm_work *w = b->w;
    semel_answer *a = b->a;
    semel_outcome o = h->outcome;
    o.applied = sm_applied_by(&w->memo, &o);
    sm_judge(b->s, w,
             &(sm_life_event){
                 .kind = SM_EV_COMMIT, .fence = h->fence, .outcome = o.kind, .applied = o.applied});
    if (w->step.answer != SM_DONE || !semel_state_settled(w->step.next.state))
        return answer_refused(b, SEMEL_C_RETRY_IN_FLIGHT,
                              "The call has run; the ledger has yet to record how it ended.");
    sm_effect_copy(&w->memo.effect, &w->step.next);
    sm_err e = sm_begun_judge(b);
    if (e == SM_OK && w->step.answer == SM_REFUSED) /* on_hit: fail, or results are not kept */
        return answer_refused(b, w->step.code, NULL);
    e = sm_answer_after(w, a, e);
    if (e != SM_OK)
        return e;
    sm_count(&b->s->replays);
    a->verdict = SEMEL_REPLAY;
    a->has_outcome = true;
    a->outcome = o;
    a->result = SM_STR(SM_UNRECORDED);
    a->code = a->state == SEMEL_S_PARTIAL ? SEMEL_C_PARTIAL_SUCCESS : SEMEL_C_NONE;
    if (a->code != SEMEL_C_NONE)
        sm_answer_words(w, a);
    return SM_OK;
}

sm_err sm_begun_held(sm_begun *b, sm_err e)
{
    sm_work *w = b->w;
    semel_answer *a = b->a;
    sm_held h;
    uint64_t id = 0;
    bool unreachable = a->code == SEMEL_C_LEDGER_UNAVAILABLE;
    if (!leaves_open(a) || b->id.contract->mode == SM_MODE_OBSERVE ||
        sm_effect_id(&w->keyer.digest, &b->id.key.hash, &id) != SM_OK ||
        !sm_running_find(b->s, w, id, &h))
        return e;
    free(w->recalled);
    w->recalled = h.seen; /* the workspace's from here on */
    const semel_record *seen = &h.seen->record;
    bool other = w->cur.version != 0 && w->cur.id == id &&
                 (w->cur.generation != seen->generation || w->cur.fence != h.fence);
    if (other || (!h.ended && !unreachable))
        return e;
    semel_answer said = *a;
    *a = (semel_answer){.work = w};
    if (!joins(b, &h)) {
        *a = said;
        return e;
    }
    if (b->asking != NULL)
        b->asking->waits = b->asking->turned_away = false;
    return h.ended ? answer_ended(b, &h) : answer_refused(b, SEMEL_C_RETRY_IN_FLIGHT, NULL);
}
