/*
 * When a server that is in trouble may be tried again.
 *
 * While all is well the gate is open and costs one atomic read. After a failure it is shut for a
 * moment, which doubles with every failure up to a few seconds and is never quite the same twice,
 * so that many clients of a server that comes back do not come all at once. When the moment is over
 * one caller goes through and tries; its success opens the gate for all.
 *
 * A caller that finds it shut waits, if the trouble is young: a server that restarts is then not
 * noticed. If it is older than the patience that the gate was made with, the caller is refused at
 * once with the reason of the last failure.
 */
#ifndef SM_STORE_SHARED_GATE_H
#define SM_STORE_SHARED_GATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/error.h"

typedef struct sm_gate {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    atomic_uint failures;   /* in a row; 0: open */
    bool trying;            /* one caller is through */
    int64_t patience_ns;
    int64_t since_ns; /* when the trouble began */
    int64_t next_ns;  /* when to try next */
    uint64_t seed;
    sm_fault why;
} sm_gate;

void sm_gate_init(sm_gate *g, int64_t patience_ns);
void sm_gate_fini(sm_gate *g);

/* Waits for leave to try the server, until that time of CLOCK_MONOTONIC at most. SM_OK obliges to
 * say how it went, by one of the next two. SEMEL_E_UNAVAILABLE with the last failure's reason. */
sm_err sm_gate_enter(sm_gate *g, int64_t deadline_ns, sm_fault *fault);

/* The server answered; it could not be reached, or did not answer in time. */
void sm_gate_good(sm_gate *g);
void sm_gate_bad(sm_gate *g, const sm_fault *why);

#endif
