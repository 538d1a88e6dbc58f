/*
 * The loop: epoll for descriptors, an eventfd that rings for the mailbox, a heap of timers.
 *
 * A turn waits, then gives out what came: events of descriptors in one batch (the mailbox is one of
 * them), the files that are always ready, the timers that are due. Whoever is called may unwatch
 * anything. What is left of the batch is searched then, so that nobody is called who has said that
 * they are gone; and the list of files is walked by a cursor that moves off what is taken out.
 *
 * One lock, the mailbox's, held for a few instructions and a write that cannot block. The bell is
 * rung under it: whoever was the last to post has let go of the loop before it can be freed.
 */
#include "mcp/loop.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"

#define EVENTS   64
#define RETRY_MS 10 /* when there was no memory for a timer */
#define MS       1000000

struct mcp_loop {
    size_t kept; /* see mcp_loop_keep */
    bool settling;
    int epoll, bell;
    mcp_descriptor bell_watch;
    atomic_bool stopping;

    pthread_mutex_t lock;
    mcp_post *posts, **posts_end; /* under the lock */

    struct epoll_event batch[EVENTS];
    int batch_at, batch_n;         /* what of it has not been given out */
    mcp_descriptor *always;        /* files that something is wanted of */
    mcp_descriptor *always_cursor; /* the next of them to be called */

    sm_timers timers;
    mcp_alarm *unset; /* for which there was no memory; they are set as soon as there is some */
};

/* ---- the mailbox -----------------------------------------------------------------------------*/

/* A full counter, the only reason to fail, rings as well. */
static void ring(mcp_loop *l)
{
    const uint64_t one = 1;
    while (write(l->bell, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void mcp_loop_post(mcp_loop *l, mcp_post *post)
{
    post->next = NULL;
    pthread_mutex_lock(&l->lock);
    bool first = l->posts == NULL;
    *l->posts_end = post;
    l->posts_end = &post->next;
    if (first)
        ring(l);
    pthread_mutex_unlock(&l->lock);
}

void mcp_loop_unpost(mcp_loop *l, mcp_post *post)
{
    pthread_mutex_lock(&l->lock);
    mcp_post **at = &l->posts;
    while (*at != NULL && *at != post)
        at = &(*at)->next;
    if (*at != NULL) {
        *at = post->next;
        if (l->posts_end == &post->next)
            l->posts_end = at;
    }
    pthread_mutex_unlock(&l->lock);
}

/* Gives out what has been posted until now. False if there was nothing. */
static bool give_out(mcp_loop *l)
{
    pthread_mutex_lock(&l->lock);
    mcp_post *posts = l->posts;
    l->posts = NULL;
    l->posts_end = &l->posts;
    pthread_mutex_unlock(&l->lock);
    bool any = posts != NULL;
    while (posts != NULL) {
        mcp_post *post = posts;
        posts = post->next; /* it may be posted again, or be gone, from here on */
        post->take(post);
    }
    return any;
}

static void on_bell(mcp_descriptor *w, unsigned ready)
{
    (void)ready;
    mcp_loop *l = SM_CONTAINER(w, mcp_loop, bell_watch);
    uint64_t count;
    while (read(l->bell, &count, sizeof count) < 0 && errno == EINTR)
        ;
    give_out(l);
}

/* ---- descriptors -----------------------------------------------------------------------------*/

/* Nothing more is told of it, not even what has come already. */
static void detach(mcp_loop *l, mcp_descriptor *w)
{
    if (!w->added)
        return;
    w->added = false;
    if (w->always) {
        if (l->always_cursor == w)
            l->always_cursor = w->next_always;
        mcp_descriptor **at = &l->always;
        while (*at != w)
            at = &(*at)->next_always;
        *at = w->next_always;
        return;
    }
    epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
    for (int i = l->batch_at; i < l->batch_n; i++) {
        if (l->batch[i].data.ptr == w)
            l->batch[i].data.ptr = NULL;
    }
}

static bool add_to_epoll(mcp_loop *l, mcp_descriptor *w, unsigned wants)
{
    struct epoll_event e = {.data.ptr = w};
    e.events = (wants & MCP_READABLE ? (uint32_t)EPOLLIN : 0u) |
               (wants & MCP_WRITABLE ? (uint32_t)EPOLLOUT : 0u);
    return epoll_ctl(l->epoll, w->added ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, w->fd, &e) == 0;
}

bool mcp_loop_watch(mcp_loop *l, mcp_descriptor *w, unsigned wants)
{
    if (wants == 0) {
        /* Out of epoll altogether: it would tell of errors and ends all the same, again and again.
         */
        detach(l, w);
        w->wants = 0;
        return true;
    }
    if (w->added && wants == w->wants)
        return true;
    if (!w->always && !add_to_epoll(l, w, wants)) {
        if (w->added || errno != EPERM) {
            mcp_loop_unwatch(l, w);
            return false;
        }
        w->always = true;
    }
    if (w->always && !w->added) {
        w->next_always = l->always;
        l->always = w;
    }
    w->added = true;
    w->wants = wants;
    return true;
}

void mcp_loop_unwatch(mcp_loop *l, mcp_descriptor *w)
{
    detach(l, w);
    w->wants = 0;
    w->always = false; /* its next descriptor may be of another kind */
}

static void give_events(mcp_loop *l)
{
    while (l->batch_at < l->batch_n) {
        const struct epoll_event *e = &l->batch[l->batch_at++];
        mcp_descriptor *w = e->data.ptr;
        if (w == NULL)
            continue;
        unsigned ready = (e->events & EPOLLIN ? (unsigned)MCP_READABLE : 0u) |
                         (e->events & EPOLLOUT ? (unsigned)MCP_WRITABLE : 0u);
        ready &= w->wants; /* which may have changed since the batch came */
        if (e->events & (EPOLLHUP | EPOLLERR))
            ready = MCP_READABLE | MCP_WRITABLE;
        if (ready != 0)
            w->ready(w, ready);
    }
}

static void give_always(mcp_loop *l)
{
    l->always_cursor = l->always;
    while (l->always_cursor != NULL) {
        mcp_descriptor *w = l->always_cursor;
        l->always_cursor = w->next_always;
        w->ready(w, w->wants);
    }
}

/* ---- timers ----------------------------------------------------------------------------------*/

static void unset_remove(mcp_loop *l, mcp_alarm *t)
{
    mcp_alarm **at = &l->unset;
    while (*at != NULL && *at != t)
        at = &(*at)->next_unset;
    if (*at != NULL)
        *at = t->next_unset;
}

void mcp_loop_time(mcp_loop *l, mcp_alarm *t, int64_t due_ns)
{
    unset_remove(l, t);
    if (sm_timer_set(&l->timers, &t->timer, due_ns))
        return;
    t->timer.due_ns = due_ns;
    t->next_unset = l->unset;
    l->unset = t;
}

void mcp_loop_untime(mcp_loop *l, mcp_alarm *t)
{
    unset_remove(l, t);
    sm_timer_clear(&l->timers, &t->timer);
}

static void set_again(mcp_loop *l)
{
    while (l->unset != NULL && sm_timer_set(&l->timers, &l->unset->timer, l->unset->timer.due_ns))
        l->unset = l->unset->next_unset;
}

/* Calls those that are due. One that sets itself anew, to a time that has passed, has to wait for
 * the others and for the next turn. */
static void give_timers(mcp_loop *l)
{
    if (l->timers.n == 0)
        return;
    int64_t now = sm_clock_mono_ns();
    for (size_t most = l->timers.n; most > 0; most--) {
        sm_timer *first = sm_timer_first(&l->timers);
        if (first == NULL || first->due_ns > now)
            return;
        mcp_alarm *t = SM_CONTAINER(first, mcp_alarm, timer);
        sm_timer_clear(&l->timers, first);
        t->due(t);
    }
}

/* How long the next turn may wait, in milliseconds; -1: for ever. */
static int patience(const mcp_loop *l)
{
    if (l->always != NULL)
        return 0;
    const sm_timer *first = sm_timer_first(&l->timers);
    int most = l->unset != NULL ? RETRY_MS : -1;
    if (first == NULL)
        return most;
    int64_t left_ns = first->due_ns - sm_clock_mono_ns();
    if (left_ns <= 0)
        return 0;
    /* Rounded up: a turn that comes too early would wait for nothing, and then for nothing again.
     */
    int64_t left_ms = left_ns / MS + (left_ns % MS != 0);
    if (most >= 0 && left_ms > most)
        return most;
    return left_ms < INT32_MAX ? (int)left_ms : INT32_MAX;
}

/* ---- the loop --------------------------------------------------------------------------------*/

static void turn(mcp_loop *l)
{
    set_again(l);
    int n = epoll_wait(l->epoll, l->batch, EVENTS, patience(l));
    l->batch_at = 0;
    l->batch_n = n > 0 ? n : 0; /* a signal is no event */
    give_events(l);
    give_always(l);
    give_timers(l);
}

void mcp_loop_run(mcp_loop *l)
{
    while (!atomic_exchange(&l->stopping, false))
        turn(l);
}

void mcp_loop_stop(mcp_loop *l)
{
    int saved = errno; /* this may be in a signal's handler */
    atomic_store(&l->stopping, true);
    ring(l);
    errno = saved;
}

sm_err mcp_loop_new(mcp_loop **out, sm_fault *fault)
{
    *out = NULL;
    mcp_loop *l = calloc(1, sizeof *l);
    if (l == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    pthread_mutex_init(&l->lock, NULL);
    l->posts_end = &l->posts;
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->bell_watch = (mcp_descriptor){.fd = l->bell, .ready = on_bell};
    if (l->epoll < 0 || l->bell < 0 || !mcp_loop_watch(l, &l->bell_watch, MCP_READABLE)) {
        sm_err e =
            sm_fault_set(fault, SEMEL_E_IO, "descriptors cannot be watched: %s", strerror(errno));
        mcp_loop_free(l);
        return e;
    }
    *out = l;
    return SM_OK;
}

void mcp_loop_free(mcp_loop *l)
{
    if (l == NULL)
        return;
    while (give_out(l))
        ;
    if (l->epoll >= 0)
        close(l->epoll);
    if (l->bell >= 0)
        close(l->bell);
    pthread_mutex_destroy(&l->lock);
    sm_timers_fini(&l->timers);
    free(l);
}

void mcp_loop_keep(mcp_loop *l, int change)
{
    l->kept += (size_t)change;
    if (l->kept == 0 && l->settling)
        mcp_loop_stop(l);
}

typedef struct settling {
    mcp_alarm timer;
    mcp_loop *loop;
} settling;

static void lose_patience(mcp_alarm *t)
{
    mcp_loop_stop(SM_CONTAINER(t, settling, timer)->loop);
}

void mcp_loop_settle(mcp_loop *l, int64_t most_ms)
{
    settling p = {.timer = {.due = lose_patience}, .loop = l};
    if (l->kept == 0)
        return;
    l->settling = true;
    mcp_loop_time(l, &p.timer, sm_clock_deadline_ns(most_ms));
    mcp_loop_run(l);
    mcp_loop_untime(l, &p.timer);
    l->settling = false;
}

size_t mcp_loop_kept(const mcp_loop *l)
{
    return l->kept;
}
