/* The answers of begin, but for that to whoever runs an attempt (execute.c). */
#include "ledger/guard/guard.h"
#include "ledger/work/ledger.h"

/* ---- refusals, for the journal ---------------------------------------------------------------*/

/* What is wrong with a call itself says nothing about its run, and would let anybody flood the
 * journal. A wait is not a refusal: for an attempt, an approval or the ledger. */
static bool tells_of_run(semel_code code)
{
    switch (code) {
    case SEMEL_C_NONE:
    case SEMEL_C_RETRY_IN_FLIGHT:
    case SEMEL_C_AWAITING_APPROVAL:
    case SEMEL_C_UPSTREAM_TIMEOUT:
    case SEMEL_C_UPSTREAM_FAILED:
    case SEMEL_C_LEDGER_UNAVAILABLE:
    case SEMEL_C_BAD_ARGUMENTS:
    case SEMEL_C_UNKNOWN_TOOL:
    case SEMEL_C_ILLEGAL_STATE: return false;
    default: return true;
    }
}

static void note_refusal(sm_begun *b, semel_code code, const semel_record *about)
{
    const sm_asking *q = b->asking;
    bool record = about != NULL && about->version != 0;
    bool wanted = q == NULL || (!q->ran && !q->quiet); /* else it looks after what is left over */
    sm_count(&b->s->refused);
    if (wanted && tells_of_run(code))
        sm_journal_add(&b->s->journal, SM_JOT_REFUSED, code, record ? about->id : 0,
                       record ? about->generation : 0, sm_now(b->s), b->call.scope, b->call.tool);
}

/* ---- answers ---------------------------------------------------------------------------------*/

sm_err sm_begun_refuse(sm_begun *b, semel_code code)
{
    note_refusal(b, code, &b->w->cur);
    if (b->w->cur.version != 0) {
        sm_err e = sm_answer_about(b->w, b->a);
        if (e != SM_OK)
            return sm_answer_error(b->w, b->a, e);
    }
    const sm_effect *e = &b->w->memo.effect;
    if (code == SEMEL_C_RETRY_IN_FLIGHT && e->state == SEMEL_S_RUNNING) {
        int64_t left = e->lease_end - b->w->now;
        b->a->retry_after_ms = left < 1000 && left > 0 ? left : 1000;
    } else if (semel_code_retriable(code) && code != SEMEL_C_AWAITING_APPROVAL &&
               b->a->retry_after_ms == 0) {
        b->a->retry_after_ms = 1000; /* nobody knows when an approval comes */
    }
    return sm_answer_refuse(b->w, b->a, code, SM_OK);
}

sm_err sm_begun_replay(sm_begun *b, semel_code code, bool joined)
{
    sm_work *w = b->w;
    semel_code loop = SEMEL_C_NONE;
    sm_err e = sm_answer_about(w, b->a);
    if (e != SM_OK)
        return sm_answer_error(w, b->a, e);
    if (!joined && !sm_guard_replay(b, &loop))
        return SEMEL_E_UNAVAILABLE;
    if (loop != SEMEL_C_NONE) {
        note_refusal(b, loop, &w->cur);
        return sm_answer_refuse(w, b->a, loop, SM_OK);
    }
    sm_count(&b->s->replays);
    sm_journal_add(&b->s->journal, SM_JOT_REPLAYED, SEMEL_C_NONE, w->cur.id, w->cur.generation,
                   w->now, (sm_str){0}, (sm_str){0});
    b->a->verdict = SEMEL_REPLAY;
    b->a->code = code;
    if (code != SEMEL_C_NONE)
        sm_answer_words(w, b->a);
    return SM_OK;
}

sm_err sm_begun_pass(sm_begun *b, sm_jot what)
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
    sm_count(&b->s->executes);
    return SM_OK;
}

sm_err sm_begun_blocked(sm_begun *b)
{
    sm_work *w = b->w;
    semel_answer *a = b->a;
    a->blocked_by = sm_answer_handle(w, &w->cur);
    a->message = SM_STR("Another call of this tool in this scope may or may not have taken effect; "
                        "until that is resolved no other is let through.");
    note_refusal(b, SEMEL_C_IN_DOUBT, NULL); /* the record is that of the other call */
    return sm_answer_refuse(w, a, SEMEL_C_IN_DOUBT, SM_OK);
}
