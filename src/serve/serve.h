/*
 * All attempts of a front end: what they work with, their deadlines, and how many there are.
 *
 * One lock, sm_serve.lock, is for everything that comes to an attempt from elsewhere: its client
 * leaves, its time is up, the process ends. Whether an attempt may wait is judged, and the attempt
 * parked, in one step under this lock; so each of these comes before that and is seen, or after it
 * and finds the attempt parked. Of all who want a parked attempt, the one that takes it out of the
 * waits has it. To the others it is an attempt that a worker has, and the worker finds for itself
 * what has happened.
 *
 * Nothing that may block for long is called with the lock held.
 */
#ifndef SM_SERVE_SERVE_H
#define SM_SERVE_SERVE_H

#include <pthread.h>

#include "base/timer.h"
#include "serve/pool.h"
#include "serve/waits.h"

typedef struct sm_serve sm_serve;
typedef struct sm_attempt sm_attempt;

/* What attempts need of a ledger and of time. Tests put a simulated one in its place; semel_run,
 * which neither parks nor looks after doubts, has ask, claim, record, ring and add. */
typedef struct sm_serve_deps {
    sm_err (*ask)(sm_serve *s, sm_asking *q, semel_answer *a);
    void (*claim)(sm_serve *s, sm_running *r, const semel_answer *execute, size_t most);
    sm_err (*record)(sm_serve *s, sm_running *r, const sm_recording *what, semel_answer *a);
    void (*passed)(sm_serve *s, const sm_passed *p, const semel_outcome *o, semel_answer *a);
    void (*let_go)(sm_serve *s, sm_running *r); /* its lease is kept no longer */
    sm_err (*give_back)(sm_serve *s, sm_str claim, semel_answer *a);
    sm_err (*look)(sm_serve *s, const sm_handle *effect, semel_answer *a, sm_remedy *out);
    sm_err (*resend)(sm_serve *s, const sm_handle *effect, int64_t lease_ms, semel_answer *a);
    sm_err (*probed)(sm_serve *s, const sm_handle *effect, sm_found_kind found,
                     const semel_outcome *outcome, semel_answer *a);

    uint64_t (*heard)(sm_serve *s, uint64_t id);
    void (*ring)(sm_serve *s, uint64_t id);
    sm_parked (*park)(sm_serve *s, sm_waiter *w);
    bool (*leave)(sm_serve *s, sm_waiter *w);

    void (*add)(sm_serve *s, sm_job *job); /* to the workers */
    int64_t (*now_ns)(const sm_serve *s);
} sm_serve_deps;

extern const sm_serve_deps sm_serve_real;

struct sm_serve {
    const sm_serve_deps *deps;
    semel *ledger;
    sm_pool *pool;
    sm_waits *waits;
    int64_t record_ms;                                /* how long it is tried to record an end */
    size_t waiting_max;                               /* attempts that wait at once */
    const atomic_bool *ending;                        /* nobody has time any more */
    void (*on_failure)(void *context, sm_str reason); /* the ledger could not record an end */
    void *context;

    bool started;
    pthread_mutex_t lock;
    pthread_cond_t tick;  /* the first deadline has changed */
    pthread_cond_t quiet; /* no attempt is left */
    bool draining;        /* nobody waits any more */
    bool stop;
    size_t alive; /* attempts that have started and have not ended */
    sm_timers timers;
    pthread_t clock;
    bool clocked;
    atomic_size_t away;  /* attempts that a worker has, or that are parked */
    sm_attempt *leading; /* those that look after an effect */
};

/* The caller has filled in what comes first. Without a clock nothing has a deadline here. */
void sm_serve_init(sm_serve *s);
sm_err sm_serve_clock(sm_serve *s, sm_fault *fault);
void sm_serve_fini(sm_serve *s); /* accepts a zeroed object */

/* Nobody waits from now on: those who are parked get their answer. Waits until no attempt is left
 * or the time is up; true if none is. */
bool sm_serve_drain(sm_serve *s, int64_t deadline_ns);

/* ---- for attempt.c ---------------------------------------------------------------------------*/

/* An attempt has ended. */
void sm_serve_exit(sm_serve *s);

/* Sets a deadline, if there is a clock. The caller holds the lock. False when out of memory. */
bool sm_serve_time(sm_serve *s, sm_timer *timer, int64_t until_ns);

/* The time of an attempt's client is up. Called with the lock, and returns with it. */
void sm_attempt_expire(sm_attempt *at);

#endif
