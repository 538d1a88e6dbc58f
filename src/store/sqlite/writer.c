/*
 * The queue of writes, and the one thread that commits them together.
 *
 * A sync costs more than everything else, so all that wait share one. Callers add their request to
 * the batch that gathers and sleep on its word. The writer takes its turn among processes, opens a
 * transaction and runs what has gathered; what arrives while it does so joins the same transaction,
 * up to a bound; then it closes the batch, commits, and wakes all its callers at once. Nothing is
 * ever delayed in the hope of company.
 *
 *     gather --> [request, request, ...] --> transaction --> commit + sync --> answers
 *
 * Requests of one batch see each other's effects in their order. Each gets its own answer. An error
 * that is one request's fault has the transaction run again without it; an error of the transaction
 * is everybody's.
 *
 * A request that the writer has not taken within SM_SQ_PATIENCE_MS is withdrawn by its caller: some
 * process may have been stopped while it held the lock.
 */
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"

enum { CLOSE_WAIT_S = 1 }; /* for a writer that stands in line among processes */

/* ---- callers ---------------------------------------------------------------------------------*/

static void futex_wait(_Atomic uint32_t *word, uint32_t seen, int64_t ms)
{
    struct timespec limit = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &limit, NULL, 0);
}

static void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void batch_append(sm_sq_batch *b, sm_sq_request *r)
{
    r->next = NULL;
    *b->last = r;
    b->last = &r->next;
    b->count++;
    b->bytes += r->bytes;
}

/* Takes a request out again. False: the writer has it. */
static bool withdraw(sm_sq_writer *w, sm_sq_batch *b, sm_sq_request *r)
{
    pthread_mutex_lock(&w->lock);
    bool ours = !r->taken;
    if (ours) {
        sm_sq_request **at = &b->first;
        while (*at != r)
            at = &(*at)->next;
        *at = r->next;
        if (b->last == &r->next)
            b->last = at;
        b->count--;
        b->bytes -= r->bytes;
    }
    pthread_mutex_unlock(&w->lock);
    return ours;
}

static semel_err too_busy(semel_store *st, semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                        "%.300s has been busy for %d seconds: another process holds it, or its "
                        "disk is stuck. Nothing was recorded; try again",
                        st->path, SM_SQ_PATIENCE_MS / 1000);
}

/* Adds a request to the batch that gathers. NULL: there was no space for it in time. */
static sm_sq_batch *enqueue(sm_sq_writer *w, sm_sq_request *r, int64_t deadline_ns, uint32_t *seen)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    sm_sq_batch *b = NULL;
    int rc = 0;
    pthread_mutex_lock(&w->lock);
    while (rc == 0 && w->gather->count > 0 &&
           (w->gather->count >= SM_SQ_BATCH_REQUESTS ||
            w->gather->bytes + r->bytes > SM_SQ_BATCH_BYTES))
        rc = pthread_cond_timedwait(&w->space, &w->lock, &until);
    if (rc == 0) {
        b = w->gather;
        *seen = atomic_load_explicit(&b->word, memory_order_relaxed);
        batch_append(b, r);
        if (w->idle)
            pthread_cond_signal(&w->work);
    }
    pthread_mutex_unlock(&w->lock);
    return b;
}

/* Whether the request is refused because the handle is lost. Evidence never is. */
static bool barred(semel_store *st, sm_sq_request *r)
{
    if ((r->w != NULL && r->w->evidence) || !sm_sq_lost(st, r->fault))
        return false;
    r->err = SEMEL_E_UNAVAILABLE;
    r->wrote = r->unsettled = false;
    r->n_keys = 0;
    return true;
}

semel_err sm_sq_submit(semel_store *st, sm_sq_request *r)
{
    semel_err e = sm_sq_synced(st, r->fault);
    if (e == SEMEL_OK && barred(st, r))
        e = r->err;
    if (e != SEMEL_OK)
        return e;
    int64_t deadline_ns = sm_clock_mono_ns() + SM_SQ_PATIENCE_MS * INT64_C(1000000);
    uint32_t seen = 0;
    sm_sq_batch *b = enqueue(&st->writer, r, deadline_ns, &seen);
    if (b == NULL)
        return too_busy(st, r->fault);
    while (atomic_load_explicit(&b->word, memory_order_acquire) == seen) {
        futex_wait(&b->word, seen, SM_SQ_PATIENCE_MS);
        if (sm_clock_mono_ns() >= deadline_ns && withdraw(&st->writer, b, r))
            return too_busy(st, r->fault);
    }
    return r->err;
}

/* ---- the writer ------------------------------------------------------------------------------*/

static int run_statement(sm_sq_conn *c, sm_sq_statement which)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    return stmt == NULL ? rc : sm_sq_run(stmt);
}

/* The requests of a batch that the writer has taken, in their order. */
typedef struct taken {
    sm_sq_request *first, **last;
    size_t count, bytes;
    bool closed;
} taken;

/* Begins a transaction and learns the newest numbers. */
static int begin(semel_store *st)
{
    sm_sq_writer *w = &st->writer;
    int rc = sm_sq_seen_file(st);
    if (rc == SQLITE_OK)
        rc = run_statement(w->conn, SM_SQL_BEGIN);
    if (rc != SQLITE_OK)
        return rc;
    w->changes = sqlite3_total_changes64(w->conn->db);
    return sm_sq_seen_look(st);
}

static void roll_back(semel_store *st)
{
    if (sqlite3_get_autocommit(st->writer.conn->db) == 0)
        run_statement(st->writer.conn, SM_SQL_ROLLBACK);
}

/* Whether an error is about what one request wanted to write, and not about the file. */
static bool own_fault(int rc)
{
    int code = rc & 0xFF;
    return code == SQLITE_TOOBIG || code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH;
}

/* Runs the requests from `r` on. When one is at fault, all from `first` are run again without it.
 */
static int execute_from(semel_store *st, sm_sq_request *first, sm_sq_request *r)
{
    int rc = SQLITE_OK;
    while (r != NULL && rc == SQLITE_OK) {
        if (!r->spoiled && !barred(st, r))
            rc = r->kind == SM_SQ_PURGE ? sm_sq_execute_purge(st, r) : sm_sq_execute(st, r);
        if (own_fault(rc)) {
            r->spoiled = true;
            r->wrote = false;
            r->err = sm_sq_fault(st, rc, r->fault);
            roll_back(st);
            rc = begin(st);
            r = first;
        } else {
            r = r->next;
        }
    }
    return rc;
}

/* Takes the requests that have gathered, at the end of what was taken before. The batch is closed
 * when there are none, or with the last that fit: who comes now becomes part of the next one. */
static sm_sq_request *take(sm_sq_writer *w, sm_sq_batch *b, taken *t)
{
    pthread_mutex_lock(&w->lock);
    sm_sq_request *first = b->first;
    for (sm_sq_request *r = first; r != NULL; r = r->next)
        r->taken = true;
    t->count += b->count;
    t->bytes += b->bytes;
    if (first != NULL) {
        *t->last = first;
        t->last = b->last;
    }
    b->first = NULL;
    b->last = &b->first;
    b->count = 0;
    b->bytes = 0;
    t->closed = first == NULL || t->count >= SM_SQ_BATCH_REQUESTS || t->bytes >= SM_SQ_BATCH_BYTES;
    if (t->closed)
        w->gather = b == &w->batches[0] ? &w->batches[1] : &w->batches[0];
    pthread_cond_broadcast(&w->space);
    pthread_mutex_unlock(&w->lock);
    return first;
}

/* Has the writer seen a commit that was not its own? The cache wants to know. */
static void notice_others(semel_store *st)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_DATA_VERSION, &rc);
    if (stmt == NULL)
        return;
    int64_t version = sqlite3_step(stmt) == SQLITE_ROW ? sm_sq_int(stmt, 0) : 0;
    sqlite3_reset(stmt);
    if (version != st->writer.data_version && st->writer.data_version != 0)
        atomic_store(&st->cache.foreign, true);
    st->writer.data_version = version;
}

/* Makes a transaction of all that gathers, up to its commit, which is what syncs. */
static int transact(semel_store *st, sm_sq_batch *b, taken *t)
{
    int rc = begin(st);
    if (rc == SQLITE_OK)
        notice_others(st);
    while (rc == SQLITE_OK && !t->closed) {
        sm_sq_request *from = take(&st->writer, b, t);
        rc = execute_from(st, t->first, from);
    }
    if (rc == SQLITE_OK) {
        rc = run_statement(st->writer.conn, SM_SQL_COMMIT);
        if ((rc & 0xFF) == SQLITE_IOERR)
            sm_sq_poison(st); /* nobody knows how much of it reached the disk */
    }
    if (rc != SQLITE_OK)
        roll_back(st);
    return rc;
}

/* After the commit and before the answers: the cache, and who waits in other processes. */
static void publish(semel_store *st, const taken *t)
{
    bool unsettled = false, wrote = false, tried = false;
    for (sm_sq_request *r = t->first; r != NULL; r = r->next) {
        tried = tried || r->kind == SM_SQ_TRY;
        unsettled = unsettled || r->unsettled || r->n_keys > 0;
        wrote = wrote || r->wrote || r->n_keys > 0;
    }
    if (tried || sqlite3_total_changes64(st->writer.conn->db) != st->writer.changes) {
        atomic_fetch_add(&st->cache.own_commits, 1);
        atomic_store(&st->writer.wrote_ns, sm_clock_mono_ns());
    }
    /* The stamp is from before the bump: what one request of the batch saw, a later one may have
     * replaced, so after a bump nothing of this batch goes into the cache. */
    uint64_t stamp = sm_sq_cache_stamp(st);
    if (unsettled)
        sm_sq_cache_bump(st);
    for (sm_sq_request *r = t->first; r != NULL; r = r->next) {
        r->stamp = stamp;
        if (r->unsettled)
            sm_sq_cache_drop(&st->cache, &r->w->next.key);
        for (size_t i = 0; i < r->n_keys; i++)
            sm_sq_cache_drop(&st->cache, &r->keys[i]);
    }
    if (wrote)
        sm_sq_share_pulse(&st->share);
}

/* Who waits in this process. */
static void wake(semel_store *st, const taken *t)
{
    bool events = false;
    for (sm_sq_request *r = t->first; r != NULL; r = r->next) {
        events = events || r->wrote;
        if (r->wrote && r->w != NULL)
            sm_sq_wake(st, &r->w->next.key);
        for (size_t i = 0; i < r->n_keys; i++)
            sm_sq_wake(st, &r->keys[i]);
    }
    if (events)
        sm_sq_wake(st, NULL);
}

/* Everybody gets the error that spoiled the transaction, but those who were at fault themselves. */
static void refuse(semel_store *st, taken *t, int rc, const semel_fault *why)
{
    for (sm_sq_request *r = t->first; r != NULL; r = r->next) {
        if (r->spoiled)
            continue;
        r->wrote = r->unsettled = false;
        r->n_keys = 0;
        if (rc != SQLITE_OK) {
            if (!barred(st, r))
                r->err = sm_sq_fault(st, rc, r->fault);
        } else {
            r->err = why->code;
            if (r->fault != NULL)
                *r->fault = *why;
        }
        if (sm_sq_synced(st, NULL) != SEMEL_OK)
            r->err = sm_sq_synced(st, r->fault);
    }
}

/* Takes this process's turn, and lets sm_sq_writer_stop know where the thread is. */
static semel_err take_turn(semel_store *st, semel_fault *why)
{
    atomic_store(&st->writer.in_line, true);
    semel_err e = sm_sq_share_lock(&st->share, why);
    atomic_store(&st->writer.in_line, false);
    return e;
}

static void run_batch(semel_store *st, sm_sq_batch *b)
{
    taken t = {.last = &t.first};
    semel_fault why = {0};
    int rc = SQLITE_OK;
    semel_err e = sm_sq_synced(st, &why);
    if (e == SEMEL_OK)
        e = sm_sq_in_place(st, &why);
    if (e == SEMEL_OK)
        e = take_turn(st, &why);
    if (e == SEMEL_OK) {
        if (sm_sq_share_renew(&st->share)) {
            sm_sq_cache_void(st);
            sm_sq_waits_renewed(st);
            take_turn(st, NULL);
        }
        sm_sq_enter();
        rc = sm_sq_settle_begin(st);
        if (rc == SQLITE_OK) {
            sm_sq_checkpoint_finish(st);
            rc = transact(st, b, &t);
            if ((rc & 0xFF) != SQLITE_IOERR)
                sm_sq_settle_end(st);
        }
        if (rc == SQLITE_OK) {
            e = sm_sq_in_place(st, &why); /* else others do not find what was committed */
            if (e == SEMEL_OK)
                sm_sq_seen_note(st);
            publish(st, &t);
        }
        sm_sq_leave();
        sm_sq_share_unlock(&st->share);
    }
    while (!t.closed)
        take(&st->writer, b, &t);
    if (e != SEMEL_OK || rc != SQLITE_OK)
        refuse(st, &t, rc, &why);
    else
        wake(st, &t);
    atomic_fetch_add_explicit(&b->word, 1, memory_order_release);
    futex_wake_all(&b->word); /* from here on the requests are gone */
    sm_sq_seen_mark(st, false);
}

static void *writer_main(void *arg)
{
    semel_store *st = arg;
    sm_sq_writer *w = &st->writer;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        if (w->gather->first == NULL) {
            w->idle = true;
            pthread_cond_wait(&w->work, &w->lock);
            w->idle = false;
            continue;
        }
        sm_sq_batch *b = w->gather;
        pthread_mutex_unlock(&w->lock);
        run_batch(st, b);
        pthread_mutex_lock(&w->lock);
    }
    w->ended = true;
    bool abandoned = w->abandoned;
    pthread_cond_broadcast(&w->space);
    pthread_mutex_unlock(&w->lock);
    if (abandoned)
        sm_sq_dispose(st);
    return NULL;
}

static int on_commit(void *context, sqlite3 *db, const char *name, int frames)
{
    (void)db;
    (void)name;
    sm_sq_checkpoint_note(context, frames);
    return SQLITE_OK;
}

semel_err sm_sq_writer_start(semel_store *st, semel_fault *fault)
{
    sm_sq_writer *w = &st->writer;
    for (size_t i = 0; i < 2; i++)
        w->batches[i].last = &w->batches[i].first;
    w->gather = &w->batches[0];
    sqlite3_wal_hook(w->conn->db, on_commit, st);
    sqlite3_exec(w->conn->db, "PRAGMA cache_size = -16384", NULL, NULL, NULL);
    if (!sm_thread_start(&w->thread, writer_main, st, "semel-writer"))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "a thread could not be started");
    w->started = true;
    return SEMEL_OK;
}

/* A thread that stands in line behind a stopped process cannot be called back: the wait for such a
 * lock has no limit, and polling instead would let the fastest process starve the others. */
bool sm_sq_writer_stop(semel_store *st)
{
    sm_sq_writer *w = &st->writer;
    if (!w->started)
        return true;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->work);
    while (!w->ended && !w->abandoned) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += CLOSE_WAIT_S;
        int rc = 0;
        while (!w->ended && rc == 0)
            rc = pthread_cond_timedwait(&w->space, &w->lock, &until);
        w->abandoned = !w->ended && atomic_load(&w->in_line);
    }
    bool ended = w->ended;
    pthread_t thread = w->thread;
    if (ended)
        w->started = false;
    else
        pthread_detach(thread);
    pthread_mutex_unlock(&w->lock); /* from here on an abandoned store may be gone */
    if (ended)
        pthread_join(thread, NULL);
    return ended;
}
