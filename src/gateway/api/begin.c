/*
 * POST /v1/begin: for agents that execute their tools themselves.
 *
 * A claim is given to whoever may run, and outlives the gateway: it belongs to the agent's process,
 * which this machine knows nothing of.
 */
#include "base/clock.h"
#include "gateway/api/api.h"
#include "gateway/run/run.h"
#include "gateway/telemetry/metrics.h"

static void answer_begin(gw_run *run, gw_request *r, const semel_answer *a)
{
    gw_count_answer(run->g->metrics, a);
    gw_reply_answer(r, a);
}

static const gw_run_ops begin_ops = {.answer = answer_begin, .hands_over = true};

/* A run that ends where others begin to execute: whoever must wait is parked and costs no thread.
 */
void gw_on_begin(gw_request *r)
{
    gw_run *run = gw_run_new(r->g, r);
    if (run == NULL) {
        gw_out_of_memory(r);
        return;
    }
    if (!gw_read_call(r, &run->arena, SM_FORM_BEGIN, &run->at.ask.call)) {
        gw_run_free(run);
        return;
    }
    run->ops = &begin_ops;
    run->at.ask.call.flags = SEMEL_CALL_DETACHED;
    run->at.ask.actor = sm_arena_text(&run->arena, sm_str_from(r->who.actor));
    run->deadline_ns = sm_clock_deadline_ns(run->at.ask.call.wait_ms);
    if (run->at.ask.actor.p == NULL) { /* who asks must not become anybody */
        gw_run_free(run);
        gw_out_of_memory(r);
        return;
    }
    gw_run_start(run);
}
