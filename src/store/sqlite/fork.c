/*
 * Forks: what a child may do about a ledger that its parent has open.
 *
 * SQLite keeps books in memory about the locks that this process has on a file. A child inherits
 * the books but not the locks: a connection that it opened would believe that it holds what nobody
 * holds, and others could move the log away under it. So the child closes what it has inherited
 * (sm_sq_forsake), which ends the books, and opens the ledger anew.
 *
 * That is harmless only if none of these connections was in use when the process forked: ending a
 * transaction that the parent goes on with would change what the parent relies on. So whoever uses
 * SQLite says so, and a fork waits until nobody does. A thread that forks while it uses SQLite
 * itself cannot wait for that. Its child never closes and never opens a ledger of this kind.
 */
#include <pthread.h>
#include <unistd.h>

#include "store/sqlite/sqlite.h"

static pthread_rwlock_t gate = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local unsigned depth; /* how often this thread has entered */
static bool amid;                    /* the fork that is under way came from within */
static bool torn;                    /* this process is the child of such a fork */

/* Entered again, a thread must not wait for a fork that waits for it. */
void sm_sq_enter(void)
{
    if (depth++ == 0)
        pthread_rwlock_rdlock(&gate);
}

void sm_sq_leave(void)
{
    if (--depth == 0)
        pthread_rwlock_unlock(&gate);
}

static void before(void)
{
    amid = depth > 0;
    if (!amid)
        pthread_rwlock_wrlock(&gate);
    sm_sq_share_fork_begins();
}

static void in_parent(void)
{
    sm_sq_share_fork_ends();
    if (!amid)
        pthread_rwlock_unlock(&gate);
}

static void in_child(void)
{
    static const pthread_rwlock_t fresh = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    sm_sq_share_forked();
    torn = torn || amid;
    depth = 0;
    gate = fresh; /* those who were about to enter are not here */
}

static void watch(void)
{
    pthread_atfork(before, in_parent, in_child);
}

bool sm_sq_watch_forks(void)
{
    pthread_once(&once, watch);
    return !torn;
}

void sm_sq_forsake(semel_store *st)
{
    if (torn)
        return;
    for (sm_sq_conn *c = st->pool.idle, *next; c != NULL; c = next) {
        next = c->next;
        sm_sq_conn_close(c);
    }
    sm_sq_conn_close(st->cache.check);
    sm_sq_conn_close(st->checkpoint.conn);
    sm_sq_conn_close(st->writer.conn);
    const int fds[] = {st->log, st->waits.inotify, st->waits.poke};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}
