/*
 * Worker threads.
 *
 * One lock guards the queues and the counts. A thread that is out of work waits for IDLE_MS and
 * then ends; it leaves its name on a list, from which whoever makes the next thread, or ends the
 * pool, joins it: a thread cannot join itself, and one that nobody joins keeps its stack.
 */
#include "serve/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "ledger/service.h"

#define IDLE_MS 10000

/* The ledger's calls need some tens of kilobytes, their libraries likewise. What is not touched
 * costs nothing. */
#define STACK_BYTES ((size_t)512 << 10)

typedef struct worker {
    sm_pool *pool;
    pthread_t thread;
    semel_answer *answer;
    struct worker *next; /* among those that have ended */
} worker;

typedef struct queue {
    sm_job *first, **last;
    size_t count;
} queue;

struct sm_pool {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* there is a job, or the pool ends */
    pthread_cond_t ended; /* a thread has ended */
    queue settle, read;
    unsigned threads, idle, threads_max;
    unsigned reading, reading_max; /* threads that have a job which only reads */
    worker *over;                  /* have ended and are not joined yet */
    bool ending;
};

sm_err sm_pool_new(unsigned threads_max, sm_pool **out)
{
    assert(threads_max > 0);
    *out = NULL;
    sm_pool *p = calloc(1, sizeof *p);
    if (p == NULL)
        return SEMEL_E_NOMEM;
    p->threads_max = threads_max;
    p->reading_max = threads_max > 1 ? threads_max / 2 : 1;
    p->settle.last = &p->settle.first;
    p->read.last = &p->read.first;

    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, &monotonic);
    pthread_cond_init(&p->ended, NULL);
    pthread_condattr_destroy(&monotonic);
    *out = p;
    return SM_OK;
}

static void queue_add(queue *q, sm_job *job)
{
    job->next = NULL;
    *q->last = job;
    q->last = &job->next;
    q->count++;
}

static sm_job *queue_take(queue *q)
{
    sm_job *job = q->first;
    q->first = job->next;
    if (q->first == NULL)
        q->last = &q->first;
    q->count--;
    return job;
}

/* Jobs that a thread may take now. The lock is held. */
static size_t ready(const sm_pool *p)
{
    size_t room = p->reading < p->reading_max ? p->reading_max - p->reading : 0;
    return p->settle.count + (p->read.count < room ? p->read.count : room);
}

/* The next job, or NULL if there has been none for long. The lock is held. */
static sm_job *take(sm_pool *p)
{
    if (ready(p) == 0) {
        int64_t until = sm_clock_deadline_ns(IDLE_MS);
        struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        p->idle++;
        while (ready(p) == 0 && !p->ending &&
               pthread_cond_timedwait(&p->work, &p->lock, &t) != ETIMEDOUT)
            ;
        p->idle--;
    }
    if (ready(p) == 0)
        return NULL;
    bool reads = p->settle.first == NULL;
    p->reading += reads;
    return queue_take(reads ? &p->read : &p->settle);
}

/* Runs a job, which may be gone afterwards. The lock is held, and let go of meanwhile. */
static void run(sm_pool *p, sm_job *job, semel_answer *a)
{
    bool reads = job->reads;
    pthread_mutex_unlock(&p->lock);
    job->run(job, a);
    sm_answer_rest(a);
    pthread_mutex_lock(&p->lock);
    p->reading -= reads;
}

static void *work_on(void *context)
{
    worker *me = context;
    sm_pool *p = me->pool;
    pthread_mutex_lock(&p->lock);
    sm_job *job;
    while ((job = take(p)) != NULL)
        run(p, job, me->answer);
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
static void hire(sm_pool *p)
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
static void work_here(sm_pool *p)
{
    semel_answer *a = semel_answer_new();
    pthread_mutex_lock(&p->lock);
    while (a != NULL && p->threads == 0 && ready(p) > 0)
        run(p, take(p), a);
    pthread_mutex_unlock(&p->lock);
    semel_answer_free(a);
}

void sm_pool_add(sm_pool *p, sm_job *job)
{
    pthread_mutex_lock(&p->lock);
    queue_add(job->reads ? &p->read : &p->settle, job);
    bool more = ready(p) > p->idle && p->threads < p->threads_max;
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

size_t sm_pool_waiting(sm_pool *p)
{
    pthread_mutex_lock(&p->lock);
    size_t n = p->settle.count + p->read.count;
    pthread_mutex_unlock(&p->lock);
    return n;
}

void sm_pool_free(sm_pool *p)
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
