/*
 * Forks: what a child may do about a ledger that its parent has open.
 *
 * SQLite keeps books in memory about the locks that this process has on a file. A child inherits
 * the books but not the locks: a connection that it opened would believe that it holds what nobody
 * holds, and others could move the log away under it. So the child closes what it has inherited
 * (sm_sq_forsake), which ends the books, and opens the ledger anew.
 *
 * The books belong to the file, so all connections of the process have to be closed, whatever
 * handle they are of. That is harmless only if none of them was in use when the process forked:
 * ending a transaction that the parent goes on with would change what the parent relies on. So
 * whoever uses SQLite says so, and a fork waits until nobody does, but not for long: a thread that
 * uses SQLite may wait for the one that forks. The child of a fork that did not wait for all of
 * them, or of a thread that used SQLite itself, closes nothing and never opens a ledger of this
 * kind.
 */
#include <pthread.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"

/* How long a fork waits for those who use SQLite. */
#define FORK_WAIT_NS INT64_C(2000000000)

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held by who forks, until it has */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static unsigned inside, forking;     /* threads that use SQLite, and that wait to fork */
static bool amid;                    /* the fork that is under way waited in vain */
static _Thread_local unsigned depth; /* how often this thread has entered */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool torn; /* this process must not use SQLite, see above */

static pthread_mutex_t conns_lock = PTHREAD_MUTEX_INITIALIZER;
static sm_sq_conn *conns;     /* all that are open in this process */
static sm_sq_conn *inherited; /* those that the parent opened */

/* Entered again, a thread must not wait for a fork that waits for it. */
void sm_sq_enter(void)
{
    if (depth++ > 0)
        return;
    pthread_mutex_lock(&gate);
    while (forking > 0)
        pthread_cond_wait(&changed, &gate);
    inside++;
    pthread_mutex_unlock(&gate);
}

void sm_sq_leave(void)
{
    if (--depth > 0)
        return;
    pthread_mutex_lock(&gate);
    if (--inside == 0)
        pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&gate);
}

static void before(void)
{
    int64_t until_ns = sm_clock_mono_ns() + FORK_WAIT_NS;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int rc = 0;
    pthread_mutex_lock(&gate);
    forking++;
    while (depth == 0 && inside > 0 && rc == 0)
        rc = pthread_cond_clockwait(&changed, &gate, CLOCK_MONOTONIC, &until);
    forking--;
    amid = inside > 0;
    sm_sq_share_fork_begins();
}

static void in_parent(void)
{
    sm_sq_share_fork_ends();
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&gate);
}

static void in_child(void)
{
    static const pthread_cond_t fresh = PTHREAD_COND_INITIALIZER;
    static const pthread_mutex_t fresh_lock = PTHREAD_MUTEX_INITIALIZER;
    sm_sq_share_forked();
    torn = torn || amid;
    conns_lock = fresh_lock;
    sm_sq_conn **last = &inherited;
    while (*last != NULL)
        last = &(*last)->next_open;
    *last = conns;
    conns = NULL;
    inside = depth > 0;
    forking = 0;
    changed = fresh; /* those who waited are not here */
    pthread_mutex_unlock(&gate);
}

static void watch(void)
{
    pthread_atfork(before, in_parent, in_child);
}

/* ---- connections -----------------------------------------------------------------------------*/

void sm_sq_conn_enlist(sm_sq_conn *c)
{
    pthread_mutex_lock(&conns_lock);
    c->next_open = conns;
    conns = c;
    pthread_mutex_unlock(&conns_lock);
}

void sm_sq_conn_delist(sm_sq_conn *c)
{
    pthread_mutex_lock(&conns_lock);
    sm_sq_conn **at = &conns;
    while (*at != NULL && *at != c)
        at = &(*at)->next_open;
    if (*at != NULL)
        *at = c->next_open;
    pthread_mutex_unlock(&conns_lock);
}

bool sm_sq_may_open(void)
{
    pthread_once(&once, watch);
    pthread_mutex_lock(&conns_lock);
    sm_sq_conn *c = torn ? NULL : inherited;
    inherited = torn ? inherited : NULL;
    pthread_mutex_unlock(&conns_lock);
    for (sm_sq_conn *next; c != NULL; c = next) {
        next = c->next_open;
        sm_sq_conn_close(c);
    }
    return !torn;
}

void sm_sq_forsake(semel_store *st)
{
    const int fds[] = {st->log, st->waits.inotify, st->waits.poke};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}
