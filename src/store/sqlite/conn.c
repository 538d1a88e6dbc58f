/*
 * Connections: how they are set up, their statements, the pool of readers, and what SQLite's errors
 * mean to a caller.
 *
 * Connections are opened without SQLite's own mutexes: each is used by one thread at a time. The
 * file itself is never opened or closed by us directly, because closing any descriptor of it would
 * drop the locks that SQLite holds on it in this process.
 */
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const sql[] = {
#define X(name, text) text,
    SM_SQ_STATEMENTS(X)
#undef X
};

static const char settings[] = "PRAGMA synchronous = FULL;"
                               "PRAGMA trusted_schema = OFF;"
                               "PRAGMA cell_size_check = ON;"
                               "PRAGMA wal_autocheckpoint = 0;"
                               "PRAGMA temp_store = MEMORY;";

semel_err sm_sq_conn_new(semel_store *st, sm_sq_conn **out, semel_fault *fault)
{
    *out = NULL;
    sm_sq_conn *c = calloc(1, sizeof *c);
    if (c == NULL)
        return sm_sq_nomem(fault);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    sm_sq_enter();
    sm_sq_conn_enlist(c);
    int rc = sqlite3_open_v2(st->path, &c->db, flags, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(c->db, 1);
        sqlite3_busy_timeout(c->db, SM_SQ_BUSY_MS);
        sqlite3_db_config(c->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
        sqlite3_db_config(c->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL); /* see dispose */
        /* The ledger has no triggers, and this code uses no views: planted ones do not run. */
        sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
        sqlite3_db_config(c->db, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
    }
    sm_sq_leave();
    semel_err e = rc == SQLITE_OK ? sm_digest_init(&c->digest) : sm_sq_fault(st, rc, fault);
    if (e == SEMEL_E_CRYPTO)
        sm_fault_set(fault, e, "libcrypto has no SHA-256");
    if (e == SEMEL_OK)
        *out = c;
    else
        sm_sq_conn_close(c);
    return e;
}

semel_err sm_sq_conn_set(semel_store *st, sm_sq_conn *c, semel_fault *fault)
{
    sm_sq_enter();
    int rc = sqlite3_exec(c->db, settings, NULL, NULL, NULL);
    sm_sq_leave();
    return rc == SQLITE_OK ? SEMEL_OK : sm_sq_fault(st, rc, fault);
}

semel_err sm_sq_conn_open(semel_store *st, sm_sq_conn **out, semel_fault *fault)
{
    *out = NULL;
    semel_err e = sm_sq_in_place(st, fault); /* SQLite would make a log that is not there */
    if (e == SEMEL_OK)
        e = sm_sq_conn_new(st, out, fault);
    if (e == SEMEL_OK)
        e = sm_sq_conn_set(st, *out, fault);
    if (e != SEMEL_OK) {
        sm_sq_conn_close(*out);
        *out = NULL;
    }
    return e;
}

void sm_sq_conn_close(sm_sq_conn *c)
{
    if (c == NULL)
        return;
    sm_sq_enter();
    sm_sq_conn_delist(c);
    for (size_t i = 0; i < SM_SQL_COUNT_ALL; i++)
        sqlite3_finalize(c->st[i]);
    sm_digest_fini(&c->digest);
    sqlite3_close(c->db);
    sm_sq_leave();
    free(c);
}

sqlite3_stmt *sm_sq_stmt(sm_sq_conn *c, sm_sq_statement which, int *rc)
{
    *rc = SQLITE_OK;
    if (c->st[which] == NULL)
        *rc = sqlite3_prepare_v3(c->db, sql[which], -1, SQLITE_PREPARE_PERSISTENT, &c->st[which],
                                 NULL);
    return c->st[which];
}

int sm_sq_run(sqlite3_stmt *stmt)
{
    int rc = sqlite3_step(stmt);
    int reset = sqlite3_reset(stmt);
    if (rc == SQLITE_DONE || rc == SQLITE_ROW)
        return SQLITE_OK;
    return sm_sq_unwritten(sqlite3_db_handle(stmt), true, reset != SQLITE_OK ? reset : rc);
}

semel_err sm_sq_reader(semel_store *st, sm_sq_conn **out, semel_fault *fault)
{
    semel_err e = sm_sq_sound(st, fault);
    if (e != SEMEL_OK)
        return e;
    sm_sq_enter();
    pthread_mutex_lock(&st->pool.lock);
    sm_sq_conn *c = st->pool.idle;
    if (c != NULL) {
        st->pool.idle = c->next;
        st->pool.count--;
    }
    pthread_mutex_unlock(&st->pool.lock);
    *out = c;
    if (c == NULL)
        e = sm_sq_conn_open(st, out, fault);
    if (e != SEMEL_OK)
        sm_sq_leave();
    return e;
}

void sm_sq_reader_return(semel_store *st, sm_sq_conn *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&st->pool.lock);
    bool keep = st->pool.count < SM_SQ_POOL;
    if (keep) {
        c->next = st->pool.idle;
        st->pool.idle = c;
        st->pool.count++;
    }
    pthread_mutex_unlock(&st->pool.lock);
    if (!keep)
        sm_sq_conn_close(c);
    sm_sq_leave();
}

semel_err sm_sq_turn(semel_store *st, sm_sq_conn **out, semel_fault *fault)
{
    sm_sq_enter(); /* before it waits: whoever has a turn may be waited for inside */
    pthread_mutex_lock(&st->pool.lock);
    while (st->pool.turns >= SM_SQ_POOL)
        pthread_cond_wait(&st->pool.turn_over, &st->pool.lock);
    st->pool.turns++;
    pthread_mutex_unlock(&st->pool.lock);
    semel_err e = sm_sq_reader(st, out, fault);
    if (e != SEMEL_OK)
        sm_sq_turn_over(st, NULL);
    return e;
}

void sm_sq_turn_over(semel_store *st, sm_sq_conn *c)
{
    if (c != NULL)
        sm_sq_reader_return(st, c);
    pthread_mutex_lock(&st->pool.lock);
    st->pool.turns--;
    pthread_cond_signal(&st->pool.turn_over);
    pthread_mutex_unlock(&st->pool.lock);
    sm_sq_leave();
}

/* ---- errors ----------------------------------------------------------------------------------*/

void sm_sq_poison(semel_store *st)
{
    atomic_store(&st->poisoned, true);
}

static bool is_poisoned(const semel_store *st)
{
    return atomic_load_explicit(&st->poisoned, memory_order_relaxed) || sm_sq_settle_failed(st);
}

semel_err sm_sq_synced(semel_store *st, semel_fault *fault)
{
    if (!is_poisoned(st))
        return SEMEL_OK;
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                        "a write to %.300s could not be synced to its disk, so nobody knows what "
                        "it holds: close it in every process that has it open, and open it again",
                        st->path);
}

semel_err sm_sq_sound(semel_store *st, semel_fault *fault)
{
    semel_err e = sm_sq_synced(st, fault);
    return e == SEMEL_OK && sm_sq_lost(st, fault) ? SEMEL_E_UNAVAILABLE : e;
}

int sm_sq_unwritten(sqlite3 *db, bool log, int rc)
{
    int which = log ? SQLITE_FCNTL_JOURNAL_POINTER : SQLITE_FCNTL_FILE_POINTER, why = 0;
    sqlite3_file *file = NULL;
    if (rc != SQLITE_IOERR_WRITE ||
        sqlite3_file_control(db, NULL, which, (void *)&file) != SQLITE_OK ||
        file->pMethods == NULL ||
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &why) != SQLITE_OK)
        return rc;
    if (why == EDQUOT || why == EFBIG || why == ENOSPC)
        return SQLITE_FULL;
    return why == EPERM || why == EACCES || why == EROFS ? SQLITE_READONLY : rc;
}

semel_err sm_sq_nomem(semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
}

semel_err sm_sq_collision(semel_store *st, semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_CORRUPT,
                        "two keys in %.300s have one id: run `semel doctor` on it", st->path);
}

static semel_err io_fault(semel_store *st, int rc, semel_fault *fault)
{
    switch (rc) {
    case SQLITE_IOERR_NOMEM: return sm_sq_nomem(fault);
    case SQLITE_IOERR_FSYNC:
    case SQLITE_IOERR_DIR_FSYNC:
        sm_sq_poison(st);
        sm_sq_settle_fail(st);
        return sm_sq_sound(st, fault);
    case SQLITE_IOERR_CORRUPTFS:
        return sm_fault_set(fault, SEMEL_E_CORRUPT,
                            "the file system of %.300s is damaged: check it, then run `semel "
                            "doctor`",
                            st->path);
    default:
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the disk of %.300s does not read or write as it should (error %d); "
                            "look at the system's log",
                            st->path, rc);
    }
}

semel_err sm_sq_fault(semel_store *st, int rc, semel_fault *fault)
{
    const char *path = st->path;
    switch (rc & 0xFF) {
    case SQLITE_NOMEM: return sm_sq_nomem(fault);
    case SQLITE_IOERR: return io_fault(st, rc, fault);
    case SQLITE_FULL:
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "no space left for %.300s: its disk or its owner's quota is full, or a "
                            "limit on the size of files is reached. Make room and try again",
                            path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
        return sm_fault_set(fault, SEMEL_E_CORRUPT,
                            "%.300s is damaged (%s): run `semel doctor`, and restore it from an "
                            "export",
                            path, sqlite3_errstr(rc & 0xFF));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s has been locked by another program for too long; try again",
                            path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s cannot be written: the file or its directory is read-only",
                            path);
    case SQLITE_CANTOPEN:
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s cannot be opened: look at its permissions and at those of its "
                            "directory, in which a ledger makes files of its own",
                            path);
    case SQLITE_TOOBIG:
        return sm_fault_set(fault, SEMEL_E_LIMIT, "a text is too large for %.300s", path);
    default:
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be used: %s", path,
                            sqlite3_errstr(rc));
    }
}
