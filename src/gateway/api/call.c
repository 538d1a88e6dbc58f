/*
 * POST /v1/call: the gateway executes a tool whose contract has an upstream, and answers with what
 * it said, byte for byte.
 *
 * What was settled before is answered here on the server's own thread, if the ledger knows it
 * without looking anything up; everything else is a run.
 */
#include "base/clock.h"
#include "gateway/api/api.h"
#include "gateway/api/nearest.h"
#include "gateway/run/run.h"

/* What was probably meant, if nobody listed the tool. */
static sm_str nearest(gw_run *run)
{
    semel_answer *a = semel_answer_new();
    if (a == NULL)
        return (sm_str){0};
    const sm_contracts *set = sm_contracts_now(run->g->ledger, a);
    sm_str tool = run->at.ask.call.tool, near = {0};
    if (sm_contracts_tool(set, tool) == NULL)
        near = gw_nearest_tool(set, tool);
    if (near.p != NULL)
        near = sm_arena_text(&run->arena, near);
    semel_answer_free(a);
    return near;
}

static sm_err refuse_unknown(gw_run *run, sm_str near)
{
    return gw_run_refuse(run, 404, "UNKNOWN_TOOL",
                         "Use a tool that the contract lists; GET /v1/tools tells which.",
                         "No contract lists the tool %.*s; did you mean %.*s?",
                         SM_FMT(run->at.ask.call.tool), SM_FMT(near));
}

sm_err gw_call_prepare(gw_run *run, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    sm_str near = c->origin[SM_F_UPSTREAM].given == NULL ? nearest(run) : (sm_str){0};
    if (near.p != NULL)
        return refuse_unknown(run, near);
    if (c->origin[SM_F_UPSTREAM].given == NULL)
        return gw_run_refuse(
            run, 422, "BAD_ARGUMENTS",
            "Use POST /v1/begin, execute the tool yourself, then POST /v1/commit; or give the tool "
            "an upstream in its contract.",
            "The contract of %.*s has no upstream, so the gateway cannot execute it.",
            SM_FMT(run->at.ask.call.tool));
    run->at.ask.shape = sm_upstream_shape(c);
    sm_err e = sm_upstream_make(&run->arena, c, args, &run->up, fault);
    run->up.request.body_max = (size_t)run->g->config->limits.result_bytes;
    if (e != SEMEL_E_INVALID)
        return e;
    gw_say(&run->g->log, GW_ERROR, "a tool cannot be executed", "why", fault->text, NULL);
    return gw_run_refuse(run, 500, "MISCONFIGURED",
                         "Tell whoever runs the gateway; trying again does not help.", "%s",
                         fault->text);
}

static void answer(gw_run *run, gw_request *r, const semel_answer *a)
{
    sm_str near = a->code == SEMEL_C_UNKNOWN_TOOL ? nearest(run) : (sm_str){0};
    if (near.p == NULL) {
        gw_reply_outcome(r, a);
        return;
    }
    refuse_unknown(run, near);
    gw_problem(r, run->refusal.status, run->refusal.code, run->refusal.advice, "%s",
               run->refusal.text);
}

static const gw_run_ops ops = {.prepare = gw_call_prepare, .answer = answer};

void gw_on_call(gw_request *r)
{
    gw_own *own = gw_own_get();
    if (own == NULL) {
        gw_out_of_memory(r);
        return;
    }
    sm_asking known = {.actor = sm_str_from(r->who.actor)};
    if (!gw_read_call(r, &own->arena, SM_FORM_CALL, &known.call))
        return;
    if (sm_ask_memory(r->g->ledger, &known, own->answer)) {
        gw_reply_outcome(r, own->answer);
        return;
    }
    gw_run *run = gw_run_new(r->g, r);
    if (run != NULL)
        run->at.ask.actor = sm_arena_text(&run->arena, known.actor);
    /* Without memory for who asks, it must not become a call of anybody. */
    if (run == NULL || !gw_run_call(run, &known.call) || run->at.ask.actor.p == NULL) {
        if (run != NULL)
            gw_run_free(run);
        gw_out_of_memory(r);
        return;
    }
    run->ops = &ops;
    run->at.ask.upstream = true;
    run->deadline_ns = sm_clock_deadline_ns(known.call.wait_ms);
    gw_run_start(run);
}
