/*
 * Those runs that wait for somebody else's attempt, for an approval, or for a doubt to be settled;
 * the deadlines of all runs; and whose request is whose.
 *
 * A parked run costs memory and nothing else. It is woken by whatever changes its effect
 * (serve/waits.h), and beyond that by
 *   - the clock: one thread keeps the deadlines of all runs in a heap, those of runs that execute
 *     too;
 *   - its client, who hangs up;
 *   - the end of the gateway.
 * Woken, it is added to the workers and asks the ledger again.
 *
 * Two locks: that of gw_runs, for all of this and for the requests of runs; and inside it that of
 * the waits, which calls nothing. Parking and leaving are done under the first, and so are one step
 * with what is decided there:
 *   - whether a run may wait is judged and the run is parked at once. A client that goes, and the
 *     end of the gateway, come before that and are seen, or after it and find the run parked;
 *   - a run loses its request, and its deadline with that, under this lock before it is freed. So
 *     the clock and a client that goes have a run that is there, whoever may be waking it.
 * Of all who want a parked run, the one that takes it out of the waits has it: the clock, a client
 * that goes (sm_waits_leave said true), or whoever wakes it, who adds it to the workers. To the
 * others it is a run that a worker has, and the worker finds for itself that its time is up, its
 * request gone or the gateway ending.
 *
 * Waking adds to the workers, which may even do the work there and then: it is done without any
 * lock, as is everything else that is called.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gateway/runs.h"

/* ---- the clock -------------------------------------------------------------------------------*/

static void answer_in_flight(gw_request *r, const char *handle)
{
    semel_answer a = {
        .verdict = SEMEL_REFUSED,
        .code = SEMEL_C_RETRY_IN_FLIGHT,
        .state = SEMEL_S_RUNNING,
        .effect = sm_str_from(handle),
        .retriable = true,
        .retry_after_ms = 1000,
        .message = SM_STR("The call is running; its outcome is not known yet."),
        .corrective_action = SM_STR("Ask again later with the same call; it will not run twice."),
    };
    gw_reply_refusal(r, &a);
}

/* A run's time is up. Called with the lock, and returns with it. */
static void expire(gw_runs *s, gw_run *run)
{
    sm_timer_clear(&s->timers, &run->timer);
    if (sm_waits_leave(s->g->waits, &run->waiter)) {
        pthread_mutex_unlock(&s->lock);
        sm_pool_add(s->g->pool, &run->job); /* asks once more, and waits no longer */
    } else if (run->phase != GW_ASKS && run->request != NULL) {
        char handle[SM_HANDLE_TEXT];
        memcpy(handle, run->handle, sizeof handle);
        gw_request *r = run->request;
        run->request = NULL;
        r->own = NULL;
        pthread_mutex_unlock(&s->lock);
        answer_in_flight(r, handle);
    } else {
        pthread_mutex_unlock(&s->lock); /* a worker has it, and looks at the clock itself */
    }
    pthread_mutex_lock(&s->lock);
}

static void *keep_time(void *context)
{
    gw_runs *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        const sm_timer *first = sm_timer_first(&s->timers);
        if (first == NULL) {
            pthread_cond_wait(&s->tick, &s->lock);
            continue;
        }
        int64_t at = first->due_ns;
        if (at <= sm_clock_mono_ns()) {
            expire(s, SM_TIMER_OWNER(first, gw_run, timer));
            continue;
        }
        struct timespec until = {.tv_sec = (time_t)(at / 1000000000),
                                 .tv_nsec = (long)(at % 1000000000)};
        pthread_cond_timedwait(&s->tick, &s->lock, &until);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- parking ---------------------------------------------------------------------------------*/

static void wake(sm_waiter *waiter)
{
    gw_run *run = (gw_run *)(void *)((char *)waiter - offsetof(gw_run, waiter));
    sm_pool_add(run->g->pool, &run->job);
}

/* The caller holds the lock of all runs. False when out of memory. */
static bool set_timer(gw_runs *s, gw_run *run, int64_t until_ns)
{
    if (run->timer.at != 0 && run->timer.due_ns == until_ns)
        return true;
    if (!sm_timer_set(&s->timers, &run->timer, until_ns))
        return false;
    if (run->timer.at == 1)
        pthread_cond_signal(&s->tick);
    return true;
}

gw_parked gw_park(gw_run *run, int64_t until_ns)
{
    gw_runs *s = run->g->runs;
    size_t most = (size_t)run->g->config->limits.waiting;
    gw_parked parked = GW_OVER;
    run->waiter.ask = &run->ask;
    run->waiter.wake = wake;
    pthread_mutex_lock(&s->lock);
    /* A client that went before the run began was not told to us. */
    if (run->request != NULL && !atomic_load(&run->request->gone) && !s->draining &&
        sm_clock_mono_ns() < until_ns && set_timer(s, run, until_ns)) {
        switch (sm_waits_park(run->g->waits, &run->waiter, most)) {
        case SM_PARKED: parked = GW_PARKED; break;
        case SM_RUNG: parked = GW_RUNG; break;
        case SM_NO_ROOM: break;
        }
    }
    pthread_mutex_unlock(&s->lock);
    return parked;
}

void gw_park_time(gw_run *run, int64_t until_ns)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    if (run->request != NULL)
        set_timer(s, run, until_ns);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the request of a run --------------------------------------------------------------------*/

gw_request *gw_run_take(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    gw_request *r = run->request;
    run->request = NULL;
    if (r != NULL)
        r->own = NULL;
    sm_timer_clear(&s->timers, &run->timer);
    pthread_mutex_unlock(&s->lock);
    return r;
}

void gw_run_gone(gw_request *r)
{
    gw_runs *s = r->g->runs;
    pthread_mutex_lock(&s->lock);
    gw_run *run = r->own;
    bool parked = false;
    if (run != NULL && run->request != r)
        run = NULL; /* the answer is under way, and goes on without the client (relay.c) */
    if (run != NULL) {
        r->own = NULL;
        run->request = NULL;
        sm_timer_clear(&s->timers, &run->timer);
        parked = sm_waits_leave(r->g->waits, &run->waiter);
    }
    pthread_mutex_unlock(&s->lock);
    if (run == NULL)
        return; /* somebody is answering it right now */
    if (parked)
        gw_run_end(run);
    gw_problem(r, 499, "CANCELED", NULL, "The client has gone.");
}

/* ---- all of them -----------------------------------------------------------------------------*/

sm_err gw_runs_start(gateway *g, gw_runs **out, sm_fault *fault)
{
    gw_runs *s = *out = calloc(1, sizeof *s);
    if (s == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    s->g = g;
    pthread_condattr_t attr;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->tick, &attr);
    pthread_cond_init(&s->quiet, &attr);
    pthread_condattr_destroy(&attr);
    s->clocked = sm_thread_start(&s->clock, keep_time, s, "semel-clock");
    if (s->clocked)
        return SM_OK;
    gw_runs_stop(s);
    *out = NULL;
    return sm_fault_set(fault, SEMEL_E_NOMEM, "no thread can be started");
}

bool gw_runs_drain(gw_runs *s, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    pthread_mutex_lock(&s->lock);
    s->draining = true; /* nobody parks any more */
    pthread_mutex_unlock(&s->lock);
    sm_waits_wake_all(s->g->waits);
    pthread_mutex_lock(&s->lock);
    while (s->alive > 0 && sm_clock_mono_ns() < deadline_ns)
        pthread_cond_timedwait(&s->quiet, &s->lock, &until);
    bool none = s->alive == 0;
    pthread_mutex_unlock(&s->lock);
    return none;
}

void gw_runs_stop(gw_runs *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->tick);
    pthread_mutex_unlock(&s->lock);
    if (s->clocked)
        pthread_join(s->clock, NULL);
    pthread_cond_destroy(&s->quiet);
    pthread_cond_destroy(&s->tick);
    pthread_mutex_destroy(&s->lock);
    sm_timers_fini(&s->timers);
    sm_shares_fini(&s->in_flight);
    free(s);
}

size_t gw_runs_in_flight(gw_runs *s)
{
    pthread_mutex_lock(&s->lock);
    size_t in_flight = s->in_flight.taken;
    pthread_mutex_unlock(&s->lock);
    return in_flight;
}
