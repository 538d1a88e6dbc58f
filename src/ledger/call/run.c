/*
 * run: begin, the work, commit. Everyone else waits and gets the same bytes.
 *
 * While the work runs no lock is held, and the keeper renews the lease. If the outcome cannot be
 * recorded, run tries again until the last renewed lease has ended. From then on others may rightly
 * call the effect in doubt. The caller gets the outcome, and the keeper goes on trying.
 */
#include "base/limits.h"
#include "ledger/service.h"

/* Tells what was just committed, which the answer about it does not have if nothing was kept. */
static void answer_executed(semel_answer *a)
{
    a->verdict = SEMEL_EXECUTE;
    a->executed = true;
    a->code = a->state == SEMEL_S_PARTIAL ? SEMEL_C_PARTIAL_SUCCESS : SEMEL_C_NONE;
    if (a->state == SEMEL_S_IN_DOUBT) {
        a->verdict = SEMEL_REFUSED;
        a->code = SEMEL_C_IN_DOUBT;
    }
    if (a->code != SEMEL_C_NONE)
        sm_answer_words(sm_work_of(a), a);
}

/* The outcome as it came, because the ledger does not have it, or had lost its record. */
static void answer_own(semel_answer *a, const semel_outcome *o)
{
    a->executed = true;
    a->has_outcome = true;
    a->outcome = *o;
    a->outcome.kept = true;
    a->outcome.bytes = o->value.n;
}

semel_err semel_run(semel *s, const semel_call *call, semel_work_fn *work, void *context,
                    semel_answer *a)
{
    sm_err e = sm_begin(s, call, true, SM_RUN_LEASE_MS, a);
    if (e != SM_OK || a->verdict != SEMEL_EXECUTE)
        return e;
    semel_outcome o = {.size = sizeof o};
    if (a->claim.p == NULL) { /* a read: nothing is recorded */
        work(context, a, &o);
        answer_own(a, &o);
        sm_outcome_settle(&sm_work_of(a)->call, &o, SM_OUTCOME_MAX);
        a->outcome.is_json = o.is_json;
        return SM_OK;
    }
    sm_running running = {0};
    sm_running_add(s, &running, a, SM_OUTCOME_MAX);
    work(context, a, &o);
    e = sm_record(s, &running, &(sm_recording){.outcome = &o, .patience_ms = SM_RUN_LEASE_MS}, a);
    if (e == SM_OK && a->verdict == SEMEL_DONE) {
        bool put_back = sm_str_is(a->result, SM_PUT_BACK);
        answer_executed(a);
        if (put_back && a->code != SEMEL_C_IN_DOUBT)
            answer_own(a, &o);
        return SM_OK;
    }
    a->executed = true;
    if (e != SM_OK) /* it ran, and could not be recorded */
        answer_own(a, &o);
    return e;
}
