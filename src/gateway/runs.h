/* All runs of a gateway: what run.c, park.c and remedy.c share. */
#ifndef SM_GATEWAY_RUNS_H
#define SM_GATEWAY_RUNS_H

#include <pthread.h>

#include "base/shares.h"
#include "gateway/run.h"

struct gw_runs {
    gateway *g;
    pthread_mutex_t lock;
    pthread_cond_t tick;  /* the first deadline has changed */
    pthread_cond_t quiet; /* no run is left */
    bool stop, draining;

    size_t alive;        /* runs that have started and have not ended */
    sm_shares in_flight; /* those that execute, by who asked */

    pthread_t clock;
    bool clocked;
    sm_timers timers; /* of runs: until when their clients wait */

    struct gw_remedy *remedies; /* remedy.c: under way */
    size_t remedy_count;
};

/* A run is over: it is released. */
void gw_run_end(gw_run *run);

/* Keeps what an exchange came to, whose ruling and reason are known, as the run's outcome
 * (result.c). */
void gw_result_keep(gw_run *run, const sm_http_result *res);

/* The client of a run has hung up. */
void gw_run_gone(gw_request *r);

#endif
