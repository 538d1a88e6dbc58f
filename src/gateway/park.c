/*
 * Those who wait for somebody else's attempt, for an approval, or for a doubt to be settled.
 *
 * A parked run costs memory and nothing else. It is woken by
 *   - a bell: what this process itself did to the effect (gw_ring);
 *   - a watch: for each effect that somebody waits for, one of a few threads waits in the ledger
 *     for what other processes do. With more effects than threads they take turns;
 *   - the clock: one thread keeps the deadlines of all runs in a heap, those of runs that execute
 *     too;
 *   - its client, who hangs up.
 * Woken, it is added to the workers and asks the ledger again.
 *
 * A change that comes between asking and parking is not missed: bells count, and a run that was
 * rung for since it began to ask is not parked; and a watch names the version that was seen.
 *
 * One lock, for all of this and for the requests of runs. Nothing is called with it held.
 */
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gateway/runs.h"

#define WATCH_MS      1000 /* a turn, if nobody else waits for one */
#define WATCH_TURN_MS 50

struct gw_watch {
    gw_watch *next;   /* in its bucket */
    gw_watch *queued; /* next in the queue of those that want a watcher */
    uint64_t id;
    sm_asking asked; /* what to wait for */
    int64_t look_ns; /* when to look in any case */
    gw_run *runs;
    bool busy; /* a thread waits for it, or it is in the queue */
};

/* ---- watches ---------------------------------------------------------------------------------*/

static gw_watch **watch_at(gw_runs *s, uint64_t id)
{
    gw_watch **at = &s->watches[id % GW_BUCKETS];
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void watch_drop(gw_runs *s, gw_watch *w)
{
    if (w->busy || w->runs != NULL)
        return;
    gw_watch **at = watch_at(s, w->id);
    *at = w->next;
    free(w);
}

static void unpark(gw_runs *s, gw_run *run)
{
    gw_watch *w = run->watch;
    if (run->prev_parked != NULL)
        run->prev_parked->next_parked = run->next_parked;
    else
        w->runs = run->next_parked;
    if (run->next_parked != NULL)
        run->next_parked->prev_parked = run->prev_parked;
    run->watch = NULL;
    s->parked--;
    watch_drop(s, w);
}

/* Takes all runs of a watch off it, as a list. */
static gw_run *unpark_all(gw_runs *s, gw_watch *w)
{
    gw_run *list = w->runs;
    for (gw_run *run = list; run != NULL; run = run->next_parked) {
        run->watch = NULL;
        s->parked--;
    }
    w->runs = NULL;
    watch_drop(s, w);
    return list;
}

static void add_all(gw_runs *s, gw_run *list)
{
    while (list != NULL) {
        gw_run *run = list;
        list = list->next_parked;
        sm_pool_add(s->g->pool, &run->job);
    }
}

static void watch_queue(gw_runs *s, gw_watch *w)
{
    w->busy = true;
    w->queued = NULL;
    *s->queue_end = w;
    s->queue_end = &w->queued;
    pthread_cond_signal(&s->wanted);
}

static gw_watch *queue_take(gw_runs *s)
{
    gw_watch *w = s->queue;
    s->queue = w->queued;
    if (s->queue == NULL)
        s->queue_end = &s->queue;
    return w;
}

static bool newer(const sm_asking *a, const sm_asking *b)
{
    return a->of.generation != b->of.generation ? a->of.generation > b->of.generation
                                                : a->version > b->version;
}

/* One turn at one watch. Called with the lock, and returns with it. */
static void watch_turn(gw_runs *s, gw_watch *w)
{
    sm_asking asked = w->asked;
    asked.of.key = &asked.key;
    int64_t until = sm_clock_deadline_ns(s->queue == NULL ? WATCH_MS : WATCH_TURN_MS);
    until = w->look_ns < until ? w->look_ns : until;
    pthread_mutex_unlock(&s->lock);
    bool changed = sm_ask_wait(s->g->ledger, &asked, until);
    pthread_mutex_lock(&s->lock);
    w->busy = false;
    if (w->runs == NULL) {
        watch_drop(s, w);
    } else if ((changed && !newer(&w->asked, &asked)) || sm_clock_mono_ns() >= w->look_ns) {
        gw_run *list = unpark_all(s, w);
        pthread_mutex_unlock(&s->lock);
        add_all(s, list);
        pthread_mutex_lock(&s->lock);
    } else {
        watch_queue(s, w);
    }
}

static void *watch(void *context)
{
    gw_runs *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (s->queue != NULL) {
            watch_turn(s, queue_take(s));
            continue;
        }
        s->idle++;
        pthread_cond_wait(&s->wanted, &s->lock);
        s->idle--;
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

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
    if (run->watch != NULL) {
        unpark(s, run);
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

uint64_t gw_park_heard(gw_runs *s, uint64_t id)
{
    pthread_mutex_lock(&s->lock);
    uint64_t heard = s->bells[id % GW_BUCKETS];
    pthread_mutex_unlock(&s->lock);
    return heard;
}

/* The watch of a run's effect, made if there is none. NULL when out of memory. */
static gw_watch *watch_for(gw_runs *s, const gw_run *run)
{
    gw_watch **at = watch_at(s, run->ask.id), *w = *at;
    if (w == NULL) {
        w = calloc(1, sizeof *w);
        if (w == NULL)
            return NULL;
        w->id = run->ask.id;
        *at = w;
    }
    /* The newest of what was seen: whoever saw older is woken by it all the same. */
    if (w->runs == NULL || newer(&run->ask, &w->asked)) {
        w->asked = run->ask;
        w->look_ns = sm_clock_deadline_ns(run->ask.look_ms);
    }
    return w;
}

gw_parked gw_park(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    /* A client that went before the run began was not told to us. */
    bool stay = run->request != NULL && !atomic_load(&run->request->gone) && !s->draining &&
                sm_clock_mono_ns() < run->deadline_ns && !s->stop &&
                s->parked < (size_t)run->g->config->limits.waiting;
    bool rung = run->rung != s->bells[run->ask.id % GW_BUCKETS];
    gw_watch *w = stay && !rung ? watch_for(s, run) : NULL;
    if (w != NULL) {
        run->watch = w;
        run->prev_parked = NULL;
        run->next_parked = w->runs;
        if (w->runs != NULL)
            w->runs->prev_parked = run;
        w->runs = run;
        s->parked++;
        if (!w->busy)
            watch_queue(s, w);
        if (s->idle == 0 && s->queue != NULL && s->watcher_count < GW_WATCHERS_MAX &&
            sm_thread_start(&s->watchers[s->watcher_count], watch, s, "semel-watcher"))
            s->watcher_count++;
    }
    pthread_mutex_unlock(&s->lock);
    return w != NULL ? GW_PARKED : stay && rung ? GW_RUNG : GW_OVER;
}

void gw_park_time(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    if (run->timer.at == 0 && run->request != NULL &&
        sm_timer_set(&s->timers, &run->timer, run->deadline_ns) && run->timer.at == 1)
        pthread_cond_signal(&s->tick);
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
    bool parked = run != NULL && run->watch != NULL;
    if (run != NULL) {
        r->own = NULL;
        run->request = NULL;
        sm_timer_clear(&s->timers, &run->timer);
        if (parked)
            unpark(s, run);
    }
    pthread_mutex_unlock(&s->lock);
    if (run == NULL)
        return; /* somebody is answering it right now */
    if (parked)
        gw_run_end(run);
    gw_problem(r, 499, "CANCELED", NULL, "The client has gone.");
}

/* ---- bells -----------------------------------------------------------------------------------*/

void gw_ring(gateway *g, uint64_t id)
{
    gw_runs *s = g->runs;
    pthread_mutex_lock(&s->lock);
    s->bells[id % GW_BUCKETS]++;
    gw_watch *w = *watch_at(s, id);
    gw_run *list = w == NULL ? NULL : unpark_all(s, w);
    pthread_mutex_unlock(&s->lock);
    add_all(s, list);
}

void gw_ring_handle(gateway *g, sm_str handle)
{
    sm_handle h;
    if (sm_handle_parse("ef_", handle, &h) || sm_handle_parse("ap_", handle, &h))
        gw_ring(g, h.id);
}

/* ---- all of them -----------------------------------------------------------------------------*/

sm_err gw_runs_start(gateway *g, gw_runs **out, sm_fault *fault)
{
    gw_runs *s = *out = calloc(1, sizeof *s);
    if (s == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    s->g = g;
    s->queue_end = &s->queue;
    pthread_condattr_t attr;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->tick, &attr);
    pthread_cond_init(&s->wanted, &attr);
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
    gw_run *list = NULL;
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    for (size_t i = 0; i < GW_BUCKETS; i++) {
        for (gw_watch *w = s->watches[i], *next; w != NULL; w = next) {
            next = w->next;
            gw_run *some = unpark_all(s, w);
            while (some != NULL) {
                gw_run *run = some;
                some = some->next_parked;
                run->next_parked = list;
                list = run;
            }
        }
    }
    pthread_mutex_unlock(&s->lock);
    add_all(s, list);
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
    pthread_cond_broadcast(&s->wanted);
    pthread_mutex_unlock(&s->lock);
    if (s->clocked)
        pthread_join(s->clock, NULL);
    for (unsigned i = 0; i < s->watcher_count; i++)
        pthread_join(s->watchers[i], NULL);
    for (size_t i = 0; i < GW_BUCKETS; i++) {
        while (s->watches[i] != NULL) {
            gw_watch *w = s->watches[i];
            s->watches[i] = w->next;
            free(w);
        }
    }
    pthread_cond_destroy(&s->quiet);
    pthread_cond_destroy(&s->wanted);
    pthread_cond_destroy(&s->tick);
    pthread_mutex_destroy(&s->lock);
    sm_timers_fini(&s->timers);
    free(s);
}

gw_runs_count gw_runs_counted(gw_runs *s)
{
    pthread_mutex_lock(&s->lock);
    gw_runs_count count = {.in_flight = s->in_flight, .parked = s->parked};
    pthread_mutex_unlock(&s->lock);
    return count;
}
