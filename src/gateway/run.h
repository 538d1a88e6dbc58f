/*
 * A run: one call of a tool that the gateway executes itself, from asking the ledger to answering
 * whoever asked.
 *
 *     ask ---> replay, refused ----------------------------------------------> answer
 *      | \                                                                        ^
 *      |  `--> somebody else is at it: parked, asked again when that changes -----+
 *      v                                                                          |
 *     execute ---> send ---> judge ---> commit -----------------------------------'
 *                   ^          |
 *                   '- pause --'  only what surely was not applied, or a resend
 *
 * Asking and committing block on the ledger and are done by workers; sending is done by the HTTP
 * client's thread; a run that is parked or under way costs no thread. A client that hangs up is
 * forgotten; its run goes on, and the outcome is recorded for the retry.
 */
#ifndef SM_GATEWAY_RUN_H
#define SM_GATEWAY_RUN_H

#include "effect/upstream.h"
#include "gateway/gateway.h"
#include "ledger/service.h"

typedef struct gw_run gw_run;

/* What a front end decides about a run. */
typedef struct gw_run_ops {
    /* Makes the request, before the ledger is asked; everything in the run's arena. `c` and `args`
     * (the full arguments) are borrowed. On failure the call is refused: BAD_ARGUMENTS or
     * UNKNOWN_TOOL with the fault's words. */
    sm_err (*prepare)(gw_run *run, const sm_contract *c, const sm_json *args, sm_fault *fault);

    /* Answers run->request, which is there. `a` says what became of the call; if it ran just now
     * and its result was not kept by the ledger, a->outcome has it all the same. */
    void (*answer)(gw_run *run, const semel_answer *a);
} gw_run_ops;

struct gw_run {
    gw_job job;
    gateway *g;
    const gw_run_ops *ops;
    gw_request *request; /* NULL: nobody waits for it */
    sm_arena arena;
    sm_asking ask; /* its texts are in the arena */
    sm_upstream_call up;
    int64_t deadline_ns;        /* until when the client waits for others */
    void *own;                  /* the front end's */
    struct gw_run_state *state; /* run.c */
};

/* A run with an arena of its own; NULL when out of memory. The front end fills in ask and ops. */
gw_run *gw_run_new(gateway *g, gw_request *r);
void gw_run_free(gw_run *run); /* one that was not started */

/* Starts it. The run is its own from here on, and the request is held by the caller already. */
void gw_run_start(gw_run *run);

/* Replies with the outcome's own status and bytes, its kept headers, Semel-Effect and
 * Idempotent-Replayed; with a problem where there is none. */
void gw_reply_outcome(gw_request *r, const semel_answer *a);

#endif
