/*
 * Those who wait, without a thread of their own: bells, watches, and the threads that watch.
 *
 * A waiter is in one of three places, and moves between them under the lock:
 *
 *     with its owner --- park ---> on a watch --- leave ---------------------> with its owner
 *                                      |
 *                                      '--- ring, wake_all, the watch ---> being woken
 *
 * Whoever takes it off its watch has it alone. So of one that leaves and one that wakes exactly one
 * succeeds; and a waiter that is being woken belongs to the waker until `wake` is called, which is
 * once. Nothing is called with the lock held: neither the ledger nor `wake`.
 *
 * What is seen in the ledger is told apart by generation and version, which only grow.
 *   - Nobody on a watch has seen less than what the watch waits with. Whoever saw more is woken
 *     together with those who did not, and asks once for nothing.
 *   - Whoever would park with less than that has missed a change, and is told at once. If the
 *     ledger really went back, the watch finds that out in its next turn, and is no more.
 *   - A watch that all have left may be kept by a thread that still waits with what they had seen.
 *     Those who come next may have seen more: what that thread finds is no news to them.
 *
 * It keeps no deadlines, and does not know who waits for what reason.
 */
#include "serve/waits.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/shares.h"
#include "base/thread.h"

#define BUCKETS       4096u
#define WATCHERS_MAX  16u
#define WATCH_MS      1000 /* a turn, if nobody else waits for one */
#define WATCH_TURN_MS 50

typedef struct sm_watch {
    struct sm_watch *next;   /* in its bucket */
    struct sm_watch *queued; /* next in the queue of those that want a watcher */
    uint64_t id;
    sm_asking asked; /* what to wait with: only key, of and version */
    int64_t look_ns; /* when to look in any case */
    sm_waiter *waiters;
    bool busy; /* a thread waits for it, or it is in the queue */
} sm_watch;

struct sm_waits {
    semel *ledger;
    pthread_mutex_t lock;
    pthread_cond_t wanted; /* a watch wants a watcher */
    bool stop;
    sm_shares parked; /* by who asks */

    uint64_t bells[BUCKETS];
    sm_watch *watches[BUCKETS];
    sm_watch *queue, **queue_end;
    unsigned queue_count;
    pthread_t watchers[WATCHERS_MAX];
    unsigned watcher_count, idle;
};

/* ---- watches ---------------------------------------------------------------------------------*/

static sm_watch **watch_at(sm_waits *w, uint64_t id)
{
    sm_watch **at = &w->watches[id % BUCKETS];
    while (*at != NULL && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static void watch_drop(sm_waits *w, sm_watch *on)
{
    if (on->busy || on->waiters != NULL)
        return;
    sm_watch **at = watch_at(w, on->id);
    *at = on->next;
    free(on);
}

static bool newer(const sm_asking *a, const sm_asking *b)
{
    return a->of.generation != b->of.generation ? a->of.generation > b->of.generation
                                                : a->version > b->version;
}

/* The watch of what was asked for, made if there is none. NULL when out of memory. */
static sm_watch *watch_for(sm_waits *w, const sm_asking *q)
{
    sm_watch **at = watch_at(w, q->id), *on = *at;
    if (on == NULL) {
        on = calloc(1, sizeof *on);
        if (on == NULL)
            return NULL;
        on->id = q->id;
        *at = on;
    }
    int64_t look_ns = sm_clock_deadline_ns(q->look_ms);
    if (on->waiters == NULL) {
        /* The texts of the call are its owner's, and may be gone before the watch is. */
        on->asked = (sm_asking){.key = q->key, .of = q->of, .version = q->version};
        on->look_ns = look_ns;
    } else if (look_ns < on->look_ns) {
        on->look_ns = look_ns;
    }
    return on;
}

static void watch_queue(sm_waits *w, sm_watch *on)
{
    on->busy = true;
    on->queued = NULL;
    *w->queue_end = on;
    w->queue_end = &on->queued;
    w->queue_count++;
    pthread_cond_signal(&w->wanted);
}

static sm_watch *queue_take(sm_waits *w)
{
    sm_watch *on = w->queue;
    w->queue = on->queued;
    if (w->queue == NULL)
        w->queue_end = &w->queue;
    w->queue_count--;
    return on;
}

/* ---- waiters ---------------------------------------------------------------------------------*/

static void add(sm_waits *w, sm_watch *on, sm_waiter *waiter)
{
    waiter->watch = on;
    waiter->prev = NULL;
    waiter->next = on->waiters;
    if (on->waiters != NULL)
        on->waiters->prev = waiter;
    on->waiters = waiter;
    sm_shares_take(&w->parked, waiter->ask->actor);
    if (!on->busy)
        watch_queue(w, on);
}

static void take(sm_waits *w, sm_waiter *waiter)
{
    sm_watch *on = waiter->watch;
    if (waiter->prev != NULL)
        waiter->prev->next = waiter->next;
    else
        on->waiters = waiter->next;
    if (waiter->next != NULL)
        waiter->next->prev = waiter->prev;
    waiter->watch = NULL;
    sm_shares_give(&w->parked, waiter->ask->actor);
    watch_drop(w, on);
}

/* Takes all waiters of a watch off it, in front of a list of others. */
static sm_waiter *take_all(sm_waits *w, sm_watch *on, sm_waiter *others)
{
    sm_waiter *list = on->waiters;
    for (sm_waiter *x = list; x != NULL; x = x->next) {
        x->watch = NULL;
        sm_shares_give(&w->parked, x->ask->actor);
        if (x->next == NULL) {
            x->next = others;
            break;
        }
    }
    on->waiters = NULL;
    watch_drop(w, on);
    return list != NULL ? list : others;
}

/* Without the lock. Each may be gone, or parked again, as soon as it is woken. */
static void wake(sm_waiter *list)
{
    while (list != NULL) {
        sm_waiter *waiter = list;
        list = list->next;
        waiter->wake(waiter);
    }
}

/* ---- watchers --------------------------------------------------------------------------------*/

/* One turn at one watch. Called with the lock, and returns with it. */
static void watch_turn(sm_waits *w, sm_watch *on)
{
    if (on->waiters == NULL) { /* they left while it was in the queue */
        on->busy = false;
        watch_drop(w, on);
        return;
    }
    sm_asking asked = on->asked;
    asked.of.key = &asked.key;
    int64_t until = sm_clock_deadline_ns(w->queue == NULL ? WATCH_MS : WATCH_TURN_MS);
    until = on->look_ns < until ? on->look_ns : until;
    pthread_mutex_unlock(&w->lock);
    bool changed = sm_ask_wait(w->ledger, &asked, until);
    pthread_mutex_lock(&w->lock);
    on->busy = false;
    if (on->waiters == NULL) {
        watch_drop(w, on);
    } else if ((changed && !newer(&on->asked, &asked)) || sm_clock_mono_ns() >= on->look_ns) {
        sm_waiter *list = take_all(w, on, NULL);
        pthread_mutex_unlock(&w->lock);
        wake(list);
        pthread_mutex_lock(&w->lock);
    } else {
        watch_queue(w, on);
    }
}

static void *watch(void *context)
{
    sm_waits *w = context;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (w->queue != NULL) {
            watch_turn(w, queue_take(w));
            continue;
        }
        w->idle++;
        pthread_cond_wait(&w->wanted, &w->lock);
        w->idle--;
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Whether there is anybody to watch; one more is started if all have something to do. */
static bool staffed(sm_waits *w, const sm_watch *on)
{
    bool watched = on != NULL && on->busy;
    if (!watched && w->queue_count >= w->idle && w->watcher_count < WATCHERS_MAX &&
        sm_thread_start(&w->watchers[w->watcher_count], watch, w, "semel-watcher"))
        w->watcher_count++;
    return w->watcher_count > 0;
}

/* ---- parking ---------------------------------------------------------------------------------*/

uint64_t sm_waits_heard(sm_waits *w, uint64_t id)
{
    pthread_mutex_lock(&w->lock);
    uint64_t heard = w->bells[id % BUCKETS];
    pthread_mutex_unlock(&w->lock);
    return heard;
}

sm_parked sm_waits_park(sm_waits *w, sm_waiter *waiter, size_t most)
{
    const sm_asking *q = waiter->ask;
    sm_parked parked = SM_NO_ROOM;
    pthread_mutex_lock(&w->lock);
    assert(waiter->watch == NULL);
    sm_watch *on = *watch_at(w, q->id);
    if (sm_shares_room(&w->parked, q->actor, most) == SM_ROOM) {
        if (waiter->heard != w->bells[q->id % BUCKETS] || (on != NULL && newer(&on->asked, q))) {
            parked = SM_RUNG;
        } else if (staffed(w, on) && (on = watch_for(w, q)) != NULL) {
            add(w, on, waiter);
            parked = SM_PARKED;
        }
    }
    pthread_mutex_unlock(&w->lock);
    return parked;
}

bool sm_waits_leave(sm_waits *w, sm_waiter *waiter)
{
    pthread_mutex_lock(&w->lock);
    bool parked = waiter->watch != NULL;
    if (parked)
        take(w, waiter);
    pthread_mutex_unlock(&w->lock);
    return parked;
}

size_t sm_waits_parked(sm_waits *w)
{
    pthread_mutex_lock(&w->lock);
    size_t parked = w->parked.taken;
    pthread_mutex_unlock(&w->lock);
    return parked;
}

/* ---- waking ----------------------------------------------------------------------------------*/

void sm_waits_ring(sm_waits *w, uint64_t id)
{
    pthread_mutex_lock(&w->lock);
    w->bells[id % BUCKETS]++;
    sm_watch *on = *watch_at(w, id);
    sm_waiter *list = on == NULL ? NULL : take_all(w, on, NULL);
    pthread_mutex_unlock(&w->lock);
    wake(list);
}

void sm_waits_ring_handle(sm_waits *w, sm_str handle)
{
    sm_handle h;
    if (sm_handle_parse("ef_", handle, &h) || sm_handle_parse("ap_", handle, &h))
        sm_waits_ring(w, h.id);
}

void sm_waits_wake_all(sm_waits *w)
{
    sm_waiter *list = NULL;
    pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < BUCKETS; i++) {
        for (sm_watch *on = w->watches[i], *next; on != NULL; on = next) {
            next = on->next;
            list = take_all(w, on, list);
        }
    }
    pthread_mutex_unlock(&w->lock);
    wake(list);
}

/* ---- all of it -------------------------------------------------------------------------------*/

sm_err sm_waits_new(semel *s, sm_waits **out)
{
    sm_waits *w = *out = calloc(1, sizeof *w);
    if (w == NULL)
        return SEMEL_E_NOMEM;
    w->ledger = s;
    w->queue_end = &w->queue;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wanted, NULL);
    return SM_OK;
}

void sm_waits_free(sm_waits *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    assert(w->parked.taken == 0);
    sm_shares_fini(&w->parked);
    w->stop = true;
    pthread_cond_broadcast(&w->wanted);
    pthread_mutex_unlock(&w->lock);
    for (unsigned i = 0; i < w->watcher_count; i++)
        pthread_join(w->watchers[i], NULL);
    for (size_t i = 0; i < BUCKETS; i++) {
        while (w->watches[i] != NULL) {
            sm_watch *on = w->watches[i];
            w->watches[i] = on->next;
            free(on);
        }
    }
    pthread_cond_destroy(&w->wanted);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
