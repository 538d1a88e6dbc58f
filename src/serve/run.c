/*
 * semel_run: an attempt whose client is the calling thread. Its turns are taken there and then, and
 * for others it waits in the ledger.
 *
 * While the work runs no lock is held, and the lease is renewed in the background. If the outcome
 * cannot be recorded, that is tried until the last renewed lease has ended. From then on others may
 * rightly call the effect in doubt. The caller gets the outcome, and the background goes on trying.
 */
#include "base/container.h"
#include "base/limits.h"
#include "serve/attempt.h"

typedef struct one_run {
    sm_serve serve;
    sm_attempt at;
    const semel_call *call;
    semel_work_fn *work;
    void *context;
    semel_answer *answer;
    semel_answer begun; /* what allowed the work */
    sm_err err;         /* of the last turn */
} one_run;

static one_run *run_of(sm_serve *s)
{
    return SM_CONTAINER(s, one_run, serve);
}

/* ---- what it works with ----------------------------------------------------------------------*/

static sm_err ask(sm_serve *s, sm_asking *q, semel_answer *a)
{
    (void)q;
    return run_of(s)->err = sm_begin_run(s->ledger, run_of(s)->call, a);
}

static void claim(sm_serve *s, sm_running *r, const semel_answer *execute, size_t most)
{
    sm_running_add(s->ledger, r, execute, most);
}

static sm_err record(sm_serve *s, sm_running *r, const sm_recording *what, semel_answer *a)
{
    return run_of(s)->err = sm_record(s->ledger, r, what, a);
}

/* Whoever waits in the ledger is woken by the write. */
static void ring(sm_serve *s, uint64_t id)
{
    (void)s, (void)id;
}

static void take_turn(sm_serve *s, sm_job *job)
{
    job->run(job, run_of(s)->answer);
}

static const sm_serve_deps here = {
    .ask = ask, .claim = claim, .record = record, .ring = ring, .add = take_turn};

/* ---- what it does ----------------------------------------------------------------------------*/

static void execute(sm_attempt *at, semel_answer *a)
{
    one_run *run = run_of(at->serve);
    run->begun = *a;
    run->work(run->context, a, &at->outcome);
    sm_attempt_done(at);
}

/* What was committed is the answer, whatever it is. */
static bool recorded(sm_attempt *at, semel_answer *a)
{
    (void)at, (void)a;
    return false;
}

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
        sm_answer_reword(a);
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

static void answer(sm_attempt *at, semel_answer *a)
{
    one_run *run = run_of(at->serve);
    if (at->ended == SM_ENDED_UNRECORDED) { /* a read */
        *a = run->begun;
        answer_own(a, &at->outcome);
        sm_outcome_settle(sm_answer_arena(a), &at->outcome, SM_OUTCOME_MAX);
        a->outcome.is_json = at->outcome.is_json;
    } else if (at->ended != SM_NOT_ENDED && run->err == SM_OK && a->verdict == SEMEL_DONE) {
        answer_executed(a);
        if (at->ended == SM_ENDED_PUT_BACK && a->code != SEMEL_C_IN_DOUBT)
            answer_own(a, &at->outcome);
    } else if (at->ended != SM_NOT_ENDED) { /* it ran, and could not be recorded */
        a->executed = true;
        if (run->err != SM_OK)
            answer_own(a, &at->outcome);
    }
    sm_attempt_end(at);
}

static void end(sm_attempt *at)
{
    (void)at;
}

static const sm_attempt_ops ops = {.turned = sm_attempt_go_on,
                                   .execute = execute,
                                   .recorded = recorded,
                                   .answer = answer,
                                   .end = end};

semel_err semel_run(semel *s, const semel_call *call, semel_work_fn *work, void *context,
                    semel_answer *a)
{
    one_run run = {
        .serve = {.deps = &here, .ledger = s, .record_ms = SM_RUN_LEASE_MS},
        .at = {.ops = &ops, .outcome_max = SM_OUTCOME_MAX, .outcome.size = sizeof(semel_outcome)},
        .call = call,
        .work = work,
        .context = context,
        .answer = a,
    };
    run.at.serve = &run.serve;
    sm_serve_init(&run.serve);
    sm_attempt_start(&run.at);
    sm_serve_fini(&run.serve);
    return run.err;
}
