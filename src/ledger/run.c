/*
 * run: begin, the work, commit. Everyone else waits and gets the same bytes.
 *
 * While the work runs no lock is held, and the keeper renews the lease. If the outcome cannot be
 * recorded, committing is tried again until the lease that was last renewed has ended: by then
 * somebody else may have called the effect in doubt, which is the truth.
 */
#include <unistd.h>

#include "base/clock.h"
#include "ledger/ledger.h"

#define COMMIT_PAUSE_MS 100

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

static sm_err commit_work(semel *s, sm_str claim, const semel_outcome *o, semel_answer *a)
{
    int64_t deadline = sm_clock_deadline_ns(SM_RUN_LEASE_MS);
    for (;;) {
        sm_err e = semel_commit(s, claim, o, a);
        if (e != SEMEL_E_UNAVAILABLE || sm_clock_mono_ns() >= deadline)
            return e;
        usleep(COMMIT_PAUSE_MS * 1000);
    }
}

semel_err semel_run(semel *s, const semel_call *call, semel_work_fn *work, void *context,
                    semel_answer *a)
{
    semel_call bound = *call;
    bound.flags &= ~(uint32_t)SEMEL_CALL_DETACHED;
    sm_err e = sm_begin(s, &bound, SM_RUN_LEASE_MS, a);
    if (e != SM_OK || a->verdict != SEMEL_EXECUTE)
        return e;
    semel_outcome o = {.size = sizeof o};
    if (a->claim.p == NULL) { /* a read: nothing is recorded */
        work(context, a, &o);
        a->executed = true;
        a->has_outcome = true;
        a->outcome = o;
        a->outcome.kept = true;
        a->outcome.bytes = o.value.n;
        sm_outcome_settle(&sm_work_of(a)->call, &o);
        a->outcome.is_json = o.is_json;
        return SM_OK;
    }
    char claim[SM_HANDLE_TEXT];
    memcpy(claim, a->claim.p, a->claim.n);
    sm_str secret = {claim, a->claim.n};
    sm_running running = {0};
    sm_handle_parse("cl_", secret, &running.claim);
    sm_keeper_add(s, &running);
    work(context, a, &o);
    sm_keeper_remove(s, &running);
    e = commit_work(s, secret, &o, a);
    if (e == SM_OK && a->verdict == SEMEL_DONE) {
        answer_executed(a);
        return SM_OK;
    }
    a->executed = true;
    if (e != SM_OK) { /* it ran, and could not be recorded */
        a->has_outcome = true;
        a->outcome = o;
    }
    return e;
}
