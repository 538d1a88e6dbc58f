/*
 * Worker threads.
 *
 * One lock guards the queue and the counts. A thread that is out of work waits for IDLE_MS and then
 * ends; it leaves its name on a list, from which whoever makes the next thread, or ends the pool,
 * joins it: a thread cannot join itself, and one that nobody joins keeps its stack.
 */
#include "gateway/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

#define IDLE_MS 10000

/* The ledger's calls need some tens of kilobytes, their libraries likewise. What is not touched
 * costs nothing. */
#define STACK_BYTES ((size_t)512 << 10)

typedef struct worker {
    gw_pool *pool;
    pthread_t thread;
    semel_answer *answer;
    struct worker *next; /* among those that have ended */
} worker;

struct gw_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* there is a job, or the pool ends */
    pthread_cond_t ended; /* a thread has ended */
    gw_job *first, **last;
    size_t waiting;
    unsigned threads, idle, threads_max;
    worker *over; /* have ended and are not joined yet */
    bool ending;
};

semel_err gw_pool_new(unsigned threads_max, gw_pool **out)
{
    assert(threads_max > 0);
    *out = NULL;
    gw_pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return SEMEL_E_NOMEM;
    p->threads_max = threads_max;
    p->last = &p->first;

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, &monotonic);
    pthread_cond_init(&p->ended, NULL);
    pthread_condattr_destroy(&monotonic);
    *out = p;
    return SEMEL_OK;
}

/* The next job, or NULL if there has been none for long. The lock is held. */
static gw_job *take(gw_pool *p)
{
    if (p->first == NULL) {
        int64_t until = sm_clock_deadline_ns(IDLE_MS);
        struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        p->idle++;
        while (p->first == NULL && !p->ending &&
               pthread_cond_timedwait(&p->work, &p->lock, &t) != ETIMEDOUT)
            ;
        p->idle--;
    }
    gw_job *job = p->first;
    if (job == NULL)
        return NULL;
    p->first = job->next;
    if (p->first == NULL)
        p->last = &p->first;
    p->waiting--;
    return job;
}

static void *work_on(void *context)
{
    worker *me = context;
    gw_pool *p = me->pool;
    pthread_mutex_lock(&p->lock);
    gw_job *job;
    while ((job = take(p)) != NULL) {
        pthread_mutex_unlock(&p->lock);
        job->run(job, me->answer);
        pthread_mutex_lock(&p->lock);
    }
    p->threads--;
    me->next = p->over;
    p->over = me;
    pthread_cond_signal(&p->ended);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static void worker_free(worker *w)
{
    if (w != NULL)
        semel_answer_free(w->answer);
    free(w);
}

static void join(worker *over)
{
    while (over != NULL) {
        worker *next = over->next;
        pthread_join(over->thread, NULL);
        worker_free(over);
        over = next;
    }
}

/* Starts one more thread, which is counted already. */
static void hire(gw_pool *p)
{
    worker *w = calloc(1, sizeof *w);
    if (w != NULL) {
        w->pool = p;
        w->answer = semel_answer_new();
    }
    pthread_mutex_lock(&p->lock);
    worker *over = p->over;
    p->over = NULL;
    /* Under the lock, so that the thread finds its own name written when it ends. */
    if (w == NULL || w->answer == NULL ||
        !sm_thread_start_sized(&w->thread, work_on, w, "semel-worker", STACK_BYTES)) {
        worker_free(w);
        p->threads--;
    }
    pthread_mutex_unlock(&p->lock);
    join(over);
}

/* With no thread at all somebody has to do it. */
static void work_here(gw_pool *p)
{
    semel_answer *a = semel_answer_new();
    for (gw_job *job = NULL; a != NULL; job->run(job, a)) {
        pthread_mutex_lock(&p->lock);
        job = p->threads == 0 && p->first != NULL ? take(p) : NULL;
        pthread_mutex_unlock(&p->lock);
        if (job == NULL)
            break;
    }
    semel_answer_free(a);
}

void gw_pool_add(gw_pool *p, gw_job *job)
{
    job->next = NULL;
    pthread_mutex_lock(&p->lock);
    *p->last = job;
    p->last = &job->next;
    p->waiting++;
    bool more = p->waiting > p->idle && p->threads < p->threads_max;
    if (more)
        p->threads++;
    else
        pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
    if (!more)
        return;

    hire(p);
    pthread_mutex_lock(&p->lock);
    bool nobody = p->threads == 0;
    pthread_mutex_unlock(&p->lock);
    if (nobody)
        work_here(p);
}

size_t gw_pool_waiting(gw_pool *p)
{
    pthread_mutex_lock(&p->lock);
    size_t n = p->waiting;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void gw_pool_free(gw_pool *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->ending = true;
    pthread_cond_broadcast(&p->work);
    while (p->threads > 0)
        pthread_cond_wait(&p->ended, &p->lock);
    worker *over = p->over;
    pthread_mutex_unlock(&p->lock);
    join(over);
    work_here(p);
    pthread_cond_destroy(&p->ended);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    free(p);
}
