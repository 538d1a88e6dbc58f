/*
 * Waiting for a change.
 *
 * A waiter registers, reads, and sleeps until it is woken, then reads again. It registers before
 * the first read, both with its bucket and in the page that processes share, so a change is either
 * seen by the read or wakes it. The writer of this process wakes the bucket of each key that it
 * changed. Other processes write to the side file when they see waiters in the page, and a thread
 * here watches the file and wakes everybody; without inotify the waiters poll.
 *
 * Every wake may be for nothing: what counts is what is read. As a backstop a waiter reads again
 * once in a while even if nobody wakes it.
 */
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

#include "core/handle.h"

#include "base/thread.h"

enum { BACKSTOP_MS = 1000, POLL_MS = 5 };

void sm_sq_waits_init(sm_sq_waits *w)
{
    sm_bell_init(&w->bell);
    pthread_mutex_init(&w->lock, NULL);
    w->inotify = w->poke = -1;
}

void sm_sq_wake(semel_store *st, const semel_hash *key)
{
    sm_bell_ring(&st->waits.bell, key);
}

/* ---- other processes -------------------------------------------------------------------------*/

static bool watch(semel_store *st)
{
    return inotify_add_watch(st->waits.inotify, st->share.path, IN_MODIFY) >= 0;
}

/* Watches the side file until the eventfd says 1, to stop; anything else is a new side file. */
static void *watch_main(void *arg)
{
    semel_store *st = arg;
    sm_sq_waits *w = &st->waits;
    struct pollfd on[2] = {{.fd = w->inotify, .events = POLLIN}, {.fd = w->poke, .events = POLLIN}};
    for (;;) {
        if (poll(on, 2, -1) < 0 && errno != EINTR)
            break;
        uint64_t poked = 0;
        if ((on[1].revents & POLLIN) != 0 && read(w->poke, &poked, sizeof poked) > 0) {
            if (poked % 2 == 1)
                return NULL;
            if (!watch(st))
                break;
        }
        char events[4096];
        if ((on[0].revents & POLLIN) != 0 && read(w->inotify, events, sizeof events) < 0 &&
            errno != EAGAIN && errno != EINTR)
            break;
        sm_bell_ring_all(&w->bell);
    }
    atomic_store(&w->watching, false);
    return NULL;
}

static void start_watching(semel_store *st)
{
    sm_sq_waits *w = &st->waits;
    pthread_mutex_lock(&w->lock);
    if (w->inotify < 0) {
        w->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        w->poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (w->inotify >= 0 && w->poke >= 0 && watch(st) &&
            sm_thread_start(&w->thread, watch_main, st, "semel-inotify")) {
            w->started = true;
            atomic_store(&w->watching, true);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

static void poke(sm_sq_waits *w, uint64_t number)
{
    pthread_mutex_lock(&w->lock);
    if (w->started) {
        ssize_t ignored = write(w->poke, &number, sizeof number);
        (void)ignored;
    }
    pthread_mutex_unlock(&w->lock);
}

void sm_sq_waits_renewed(semel_store *st)
{
    poke(&st->waits, 2);
}

void sm_sq_waits_fini(semel_store *st)
{
    sm_sq_waits *w = &st->waits;
    poke(w, 1);
    if (w->started)
        pthread_join(w->thread, NULL);
    if (w->inotify >= 0)
        close(w->inotify);
    if (w->poke >= 0)
        close(w->poke);
}

/* ---- waiters ---------------------------------------------------------------------------------*/

/* Reads whether there is news. With `of` NULL: an event after seq `version`. Many are woken at
 * once, so they take turns: a connection for each would use up the file descriptors. */
static semel_err read_news(semel_store *st, const semel_ref *of, uint64_t version, bool *news,
                           semel_fault *fault)
{
    sm_sq_conn *c = NULL;
    semel_err e = sm_sq_turn(st, &c, fault);
    if (e != SEMEL_OK)
        return e;
    int rc = SQLITE_OK;
    sqlite3_stmt *stmt = NULL;
    uint64_t id = 0;
    if (of != NULL && (e = sm_effect_id(&c->digest, of->key, &id)) != SEMEL_OK)
        goto cleanup;
    stmt = sm_sq_stmt(c, of == NULL ? SM_SQL_LAST_SEQ : SM_SQL_HEAD, &rc);
    if (stmt == NULL) {
        e = sm_sq_fault(st, rc, fault);
        goto cleanup;
    }
    if (of != NULL)
        sqlite3_bind_int64(stmt, 1, (int64_t)id);
    rc = sqlite3_step(stmt);
    if (of == NULL)
        *news = rc == SQLITE_ROW && (uint64_t)sm_sq_int(stmt, 0) > version;
    else
        *news = rc == SQLITE_DONE || (uint64_t)sm_sq_int(stmt, 2) != of->generation ||
                (uint64_t)sm_sq_int(stmt, 3) != version;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        e = sm_sq_fault(st, rc, fault);
    sqlite3_reset(stmt);
cleanup:
    sm_sq_turn_over(st, c);
    return e;
}

semel_err sm_sq_wait(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                     semel_fault *fault)
{
    sm_bell_bucket *b = sm_bell_of(&st->waits.bell, of == NULL ? NULL : of->key);
    sm_sq_page *page = atomic_load(&st->share.page);
    atomic_fetch_add(&page->waiters, 1);
    start_watching(st);
    uint64_t turn = sm_bell_enter(b);

    semel_err e;
    bool news = false;
    for (;;) {
        e = read_news(st, of, version, &news, fault);
        if (e != SEMEL_OK || news)
            break;
        int64_t now_ns = sm_clock_mono_ns();
        if (now_ns >= deadline_ns) {
            e = SEMEL_E_TIMEOUT;
            break;
        }
        int64_t nap_ms = atomic_load(&st->waits.watching) ? BACKSTOP_MS : POLL_MS;
        int64_t until_ns = now_ns + nap_ms * 1000000;
        turn = sm_bell_sleep(b, turn, until_ns < deadline_ns ? until_ns : deadline_ns);
    }

    sm_bell_leave(b);
    atomic_fetch_sub(&page->waiters, 1);
    return e;
}
