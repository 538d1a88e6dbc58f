/*
 * The SQLite store: one file on one machine, used by any number of threads and processes.
 *
 * This file opens and closes it and has the table of functions; sqlite.h says where the rest is.
 * A ledger PATH has company: PATH-wal and PATH-shm are SQLite's, PATH-semel is ours.
 */
#include "store/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "store/stores.h"

#define CACHE_BYTES ((size_t)64 << 20)

/* ---- the file --------------------------------------------------------------------------------*/

/* What to do where no ledger can be made; people who named none learn that they can. */
#define NAME_ANOTHER "name a ledger elsewhere with --ledger or SEMEL_LEDGER"

/* Makes the directories that lead to a file, readable by their owner only. */
static semel_err make_parents(char *path, semel_fault *fault)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int error = mkdir(path, 0700) == 0 ? 0 : errno;
        if (error != 0 && error != EEXIST && access(path, F_OK) != 0)
            return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                "the ledger's directory %.300s cannot be made: %s; " NAME_ANOTHER,
                                path, strerror(error));
        *slash = '/';
    }
    return SEMEL_OK;
}

/* Puts the names of a new ledger and of its directories on the disk, so that it is found again
 * after a power failure (I3). A directory that may not be read cannot be synced; it was not made
 * here. */
static int sync_parents(char *path)
{
    for (char *slash = strrchr(path, '/'); slash != NULL && slash != path;
         slash = strrchr(path, '/')) {
        *slash = '\0';
        int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int rc = fd < 0 ? 0 : fsync(fd);
        int saved = errno;
        if (fd >= 0)
            close(fd);
        if (rc != 0 && saved != EINVAL && saved != EROFS) {
            errno = saved;
            return -1;
        }
    }
    return 0;
}

/* Finds the file's one true name, making an empty file if there is none. It is made without being
 * opened: see sqlite_conn.c. */
static semel_err find_file(semel_str url, bool must_exist, char out[PATH_MAX], semel_fault *fault)
{
    static const char scheme[] = "sqlite:";
    size_t skip = sizeof scheme - 1;
    if (url.n <= skip || memcmp(url.p, scheme, skip) != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the ledger's URL must be sqlite: and the path of a file");
    char path[PATH_MAX];
    size_t n = url.n - skip;
    if (n >= sizeof path - 16 || memchr(url.p + skip, '\0', n) != NULL)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the ledger's path is too long");
    memcpy(path, url.p + skip, n);
    path[n] = '\0';

    struct stat about;
    bool there = stat(path, &about) == 0;
    if (!there && (errno != ENOENT || must_exist))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "there is no ledger at %.300s: %s", path,
                            strerror(errno));
    semel_err e = there ? SEMEL_OK : make_parents(path, fault);
    if (e != SEMEL_OK)
        return e;
    if (!there && mknod(path, S_IFREG | 0600, 0) != 0 && errno != EEXIST)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the ledger %.300s cannot be made: %s; " NAME_ANOTHER, path,
                            strerror(errno));
    if (there && !S_ISREG(about.st_mode))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s is not a file", path);
    char real[PATH_MAX];
    if (realpath(path, real) == NULL || strlen(real) >= PATH_MAX - 16)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be found: %s", path,
                            strerror(errno));
    memcpy(out, real, strlen(real) + 1);
    if (!there && sync_parents(real) != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the directory of %.300s cannot be synced: %s", path, strerror(errno));
    return SEMEL_OK;
}

/* Opens the writer's connection if the file is a ledger or may become one. Until that is known
 * nothing is written, not even on closing it again. */
static semel_err open_file(semel_store *st, bool must_exist, int *version, semel_fault *fault)
{
    semel_err e = sm_sq_conn_new(st, &st->writer.conn, fault);
    if (e != SEMEL_OK)
        return e;
    sqlite3 *db = st->writer.conn->db;
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    if (sqlite3_db_readonly(db, "main") == 1)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s is read-only, and a ledger must be written: look at its "
                            "permissions",
                            st->path);
    e = sm_sq_schema_check(st, db, version, fault);
    if (e == SEMEL_OK && *version == 0 && must_exist)
        e = sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s is empty: there is no ledger in it",
                         st->path);
    struct stat about;
    if (e == SEMEL_OK && stat(st->path, &about) != 0)
        e = sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be found", st->path);
    if (e != SEMEL_OK)
        return e;
    st->dev = about.st_dev;
    st->ino = about.st_ino;
    sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    return sm_sq_conn_set(st, st->writer.conn, fault);
}

/* ---- opening and closing ---------------------------------------------------------------------*/

void sm_sq_dispose(semel_store *st)
{
    sm_sq_checkpoint_stop(st);
    sm_sq_waits_fini(st);
    sm_sq_cache_fini(&st->cache);
    for (sm_sq_conn *c = st->pool.idle, *next; c != NULL; c = next) {
        next = c->next;
        sm_sq_conn_close(c);
    }
    sm_sq_conn_close(st->writer.conn);
    sm_sq_share_close(&st->share);
    free(st);
}

static void store_close(semel_store *st)
{
    if (st != NULL && sm_sq_writer_stop(st))
        sm_sq_dispose(st);
}

static void init_locks(semel_store *st)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&st->pool.lock, NULL);
    pthread_cond_init(&st->pool.turn_over, NULL);
    pthread_mutex_init(&st->writer.lock, NULL);
    pthread_cond_init(&st->writer.work, &monotonic);
    pthread_cond_init(&st->writer.space, &monotonic);
    pthread_mutex_init(&st->checkpoint.lock, NULL);
    pthread_cond_init(&st->checkpoint.work, &monotonic);
    pthread_cond_init(&st->checkpoint.done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sm_sq_waits_init(&st->waits);
}

static semel_err store_open(semel_str url, const semel_store_env *env, semel_store **out,
                            uint32_t *caps, semel_fault *fault)
{
    *out = NULL;
    semel_store *st = aligned_alloc(_Alignof(semel_store), sizeof *st);
    if (st == NULL)
        return sm_sq_nomem(fault);
    memset(st, 0, sizeof *st);
    init_locks(st);
    int version = 0;
    semel_err e = find_file(url, env->must_exist, st->path, fault);
    if (e == SEMEL_OK)
        e = open_file(st, env->must_exist, &version, fault);
    if (e == SEMEL_OK)
        e = sm_sq_share_open(&st->share, st->path, fault);
    if (e == SEMEL_OK && (version < SM_SQ_SCHEMA || !sm_sq_schema_logs(st->writer.conn->db))) {
        e = sm_sq_share_lock(&st->share, fault);
        if (e == SEMEL_OK) {
            e = sm_sq_schema_make(st, st->writer.conn->db, fault);
            sm_sq_share_unlock(&st->share);
        }
    }
    size_t bytes = env->cache_bytes == 0 ? CACHE_BYTES : env->cache_bytes;
    if (e == SEMEL_OK && sm_sq_cache_init(st, bytes) != SEMEL_OK)
        e = sm_sq_nomem(fault);
    if (e == SEMEL_OK)
        e = sm_sq_writer_start(st, fault);
    if (e != SEMEL_OK) {
        store_close(st);
        return e;
    }
    *caps = SEMEL_STORE_DURABLE | SEMEL_STORE_SHARED | SEMEL_STORE_NOTIFY;
    *out = st;
    return SEMEL_OK;
}

/* ---- writes ----------------------------------------------------------------------------------*/

/* Submits a claim or an apply. What was written is copied out by the caller's own thread, which
 * has the time that the writer lacks; and it also goes into the cache from here. */
static semel_err submit_write(semel_store *st, sm_sq_kind kind, const semel_write *w,
                              semel_room *room, semel_record *cur, int64_t *now, bool *wrote,
                              semel_fault *fault)
{
    sm_sq_request r = {.kind = kind,
                       .bytes = sm_record_bytes(&w->next) + w->event.body.n + 512,
                       .w = w,
                       .room = room,
                       .cur = cur,
                       .fault = fault};
    semel_err e = sm_sq_submit(st, &r);
    *now = r.now != 0 ? r.now : sm_clock_ms();
    *wrote = r.wrote;
    if (e == SEMEL_OK && r.wrote) {
        if (sm_record_copy(&w->next, room, cur) != SEMEL_OK)
            return sm_sq_nomem(fault);
        cur->version = r.version;
    }
    if (e == SEMEL_OK || e == SEMEL_E_STALE)
        sm_sq_cache_put(st, cur, r.stamp);
    return e;
}

static semel_err store_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                             semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    return submit_write(st, SM_SQ_CLAIM, fresh, room, cur, now, inserted, fault);
}

static semel_err store_apply(semel_store *st, const semel_write *w, semel_room *room,
                             semel_record *cur, int64_t *now, semel_fault *fault)
{
    bool wrote;
    return submit_write(st, SM_SQ_APPLY, w, room, cur, now, &wrote, fault);
}

static semel_err store_journal(semel_store *st, const semel_note *notes, size_t n,
                               semel_fault *fault)
{
    sm_sq_request r = {
        .kind = SM_SQ_JOURNAL, .bytes = n * 128, .notes = notes, .n = n, .fault = fault};
    return n == 0 ? SEMEL_OK : sm_sq_submit(st, &r);
}

static semel_err store_seal(semel_store *st, const semel_event *seal, uint64_t expect,
                            semel_fault *fault)
{
    sm_sq_request r = {.kind = SM_SQ_SEAL,
                       .bytes = seal->body.n + 512,
                       .seal = seal,
                       .expect = expect,
                       .fault = fault};
    return sm_sq_submit(st, &r);
}

static semel_err store_purge(semel_store *st, size_t limit, uint64_t events_to,
                             int64_t notes_before, uint64_t *done, bool *left, semel_fault *fault)
{
    semel_hash *keys = malloc(SM_SQ_PURGE_MAX * sizeof *keys);
    if (keys == NULL)
        return sm_sq_nomem(fault);
    sm_sq_request r = {.kind = SM_SQ_PURGE,
                       .bytes = SM_SQ_PURGE_MAX * 256,
                       .limit = limit < SM_SQ_PURGE_MAX ? limit : SM_SQ_PURGE_MAX,
                       .events_to = events_to,
                       .notes_before = notes_before,
                       .keys = keys,
                       .fault = fault};
    semel_err e = sm_sq_submit(st, &r);
    free(keys);
    if (e == SEMEL_OK) {
        *done += r.done;
        *left = r.left;
    }
    return e;
}

const semel_store_ops sm_store_sqlite = {
    .size = sizeof(semel_store_ops),
    .scheme = "sqlite",
    .open = store_open,
    .close = store_close,
    .claim = store_claim,
    .apply = store_apply,
    .peek = sm_sq_peek,
    .get = sm_sq_get,
    .query = sm_sq_query,
    .events = sm_sq_events,
    .due = sm_sq_due,
    .wait = sm_sq_wait,
    .journal = store_journal,
    .notes = sm_sq_notes,
    .seal = store_seal,
    .purge = store_purge,
    .counter = sm_sq_counter,
    .health = sm_sq_health,
};
