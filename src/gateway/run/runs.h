/* All runs of a gateway: what run.c, relay.c and remedy.c share. */
#ifndef SM_GATEWAY_RUN_RUNS_H
#define SM_GATEWAY_RUN_RUNS_H

#include "base/shares.h"
#include "gateway/run/run.h"

struct gw_runs {
    gateway *g;
    sm_serve serve;

    /* Under its lock: */
    sm_shares in_flight; /* those that execute, by who asked */
    size_t remedies;     /* effects that are looked after (remedy.c) */
};

static inline gw_run *gw_run_of(sm_attempt *at)
{
    return SM_CONTAINER(at, gw_run, at);
}

/* What the machine calls for a run with a client (run.c) as for one that looks after an effect
 * (remedy.c). */
#define GW_RUN_EXECUTES                                                                            \
    .turned = gw_run_turned, .prepare = gw_run_prepare, .full = gw_run_full,                       \
    .execute = gw_run_execute, .recorded = gw_run_recorded, .answer = gw_run_answer

void gw_run_turned(sm_attempt *at, semel_answer *a);
sm_err gw_run_prepare(sm_attempt *at, const sm_contract *c, const sm_json *args, sm_fault *fault);
bool gw_run_full(sm_attempt *at);
void gw_run_execute(sm_attempt *at, semel_answer *a);
bool gw_run_recorded(sm_attempt *at, semel_answer *a);
void gw_run_answer(sm_attempt *at, semel_answer *a);

/* Keeps what an exchange came to, whose ruling and reason are known, as the run's outcome
 * (result.c). */
void gw_result_keep(gw_run *run, const sm_http_result *res);

#endif
