/*
 * Worker threads: where servers block on the ledger, so that what serves never does.
 *
 * Threads are made when there is work and none is idle, up to a bound, and end after a while
 * without any. Many of them waiting for one sync is what makes a group commit, so the bound is well
 * above the number of processors.
 *
 * Jobs are of two classes, each taken in the order in which they came. Those that only read wait
 * for those that settle something, and have half of the threads at most: however much is asked for
 * at once, a call finds a thread.
 */
#ifndef SM_SERVE_POOL_H
#define SM_SERVE_POOL_H

#include <stdbool.h>

#include "base/error.h"
#include "semel/semel.h"

typedef struct sm_pool sm_pool;

/* A job lives in whatever it is about. It may be added again once it runs. */
typedef struct sm_job {
    struct sm_job *next;
    void (*run)(struct sm_job *job, semel_answer *a); /* the answer is the thread's own */
    bool reads;                                       /* settles nothing */
} sm_job;

sm_err sm_pool_new(unsigned threads_max, sm_pool **out);

/* From any thread. Does not block, unless no thread at all can be made: then the caller's runs it.
 */
void sm_pool_add(sm_pool *pool, sm_job *job);

size_t sm_pool_waiting(sm_pool *pool); /* jobs that no thread has taken yet */

/* Runs what is left, and ends the threads. Accepts NULL. */
void sm_pool_free(sm_pool *pool);

#endif
