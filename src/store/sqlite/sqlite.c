/*
 * The SQLite store: one file on one machine, used by any number of threads and processes.
 *
 * This file opens and closes it and has the table of functions; sqlite.h says where the rest is.
 * A ledger PATH has company: PATH-wal and PATH-shm are SQLite's, PATH-semel is ours.
 */
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/trust.h"
#include "store/stores.h"

#define CACHE_BYTES ((size_t)64 << 20)

/* ---- the file --------------------------------------------------------------------------------*/

/* What to do where no ledger can be made; people who named none learn that they can. */
#define NAME_ANOTHER "name a ledger elsewhere with --ledger or SEMEL_LEDGER"

static semel_err not_there(const char *path, semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "there is no ledger at %.300s: %s", path,
                        strerror(errno));
}

static semel_err not_made(const char *path, semel_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                        "the ledger %.300s cannot be made: %s; " NAME_ANOTHER, path,
                        strerror(errno));
}

/* The directory of a ledger that is about to be made. It is made only in the default place: a typo
 * in a name must not make a new, empty ledger. */
static semel_err check_directory(char *path, bool make, semel_fault *fault)
{
    char directory[PATH_MAX];
    if (make && !sm_make_parents(path))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the ledger's directory %.300s cannot be made: %s; " NAME_ANOTHER, path,
                            strerror(errno));
    sm_directory_of(path, directory);
    if (access(directory, F_OK) == 0)
        return SEMEL_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "there is no directory %.300s for the ledger (%s): if the name is right, "
                        "make it with mkdir -p",
                        directory, strerror(errno));
}

/* Root makes a file that belongs to the owner of its directory. The file gets its name after it has
 * its owner: so nobody can put another file in its place for root to give away. */
static bool make_for_owner(const char *path, const char *directory)
{
    char fresh[PATH_MAX + 16];
    snprintf(fresh, sizeof fresh, "%s-XXXXXX", path);
    int fd = mkostemp(fresh, O_CLOEXEC);
    if (fd < 0)
        return false;
    sm_give_away(fd, directory);
    close(fd);
    /* Not by a second name that is then removed: a ledger must never have two. */
    bool made = renameat2(AT_FDCWD, fresh, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
    int saved = errno;
    if (!made)
        unlink(fresh);
    errno = saved;
    return made;
}

/* Makes an empty file, without opening it under its name: see conn.c. */
static semel_err make_file(const char *path, semel_fault *fault)
{
    char directory[PATH_MAX];
    struct stat about;
    sm_directory_of(path, directory);
    bool for_owner = geteuid() == 0 && stat(directory, &about) == 0 && about.st_uid != 0;
    bool made = for_owner ? make_for_owner(path, directory) : mknod(path, S_IFREG | 0600, 0) == 0;
    return made || errno == EEXIST ? SEMEL_OK : not_made(path, fault);
}

/* Whether nobody else can change the ledger or the files beside it, from which SQLite recovers.
 * They are beside `real`, to which a link at `path` leads. */
static semel_err check_owners(const char *path, const char *real, semel_fault *fault)
{
    static const char *const beside[] = {"-wal", "-shm", "-journal", "-semel"};
    struct stat about, other;
    char name[PATH_MAX + 16];
    if (stat(real, &about) != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be found: %s", path,
                            strerror(errno));
    semel_err e = sm_trust(path, &about, true, SEMEL_E_BAD_ARGUMENTS, fault);
    for (size_t i = 0; e == SEMEL_OK && i < sizeof beside / sizeof *beside; i++) {
        snprintf(name, sizeof name, "%s%s", real, beside[i]);
        if (lstat(name, &other) == 0)
            e = sm_trust_beside(name, &other, &about, SEMEL_E_BAD_ARGUMENTS, fault);
    }
    return e;
}

/* Syncs the names of a new ledger and of its directories, so that it is found again after a power
 * failure (I3). Done before the file becomes a ledger: the process that made the names may have
 * died before it synced them. */
static int sync_parents(char *path)
{
    for (char *slash = strrchr(path, '/'); slash != NULL && slash != path;
         slash = strrchr(path, '/')) {
        *slash = '\0';
        if (sm_sq_sync_directory(path) != 0)
            return -1;
    }
    return 0;
}

/* The path that a URL names, and what is there. */
static semel_err find_path(semel_str url, char path[PATH_MAX], bool *there, semel_fault *fault)
{
    static const char scheme[] = "sqlite:";
    size_t skip = sizeof scheme - 1;
    if (url.n <= skip || memcmp(url.p, scheme, skip) != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the ledger's URL must be sqlite: and the path of a file");
    size_t n = url.n - skip;
    if (n >= PATH_MAX - 16 || memchr(url.p + skip, '\0', n) != NULL)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the ledger's path is too long");
    memcpy(path, url.p + skip, n);
    path[n] = '\0';
    struct stat about;
    *there = stat(path, &about) == 0;
    return *there || errno == ENOENT ? SEMEL_OK : not_there(path, fault);
}

/* The one true name of a file that is there, and may be used. */
static semel_err find_real(const char *path, char out[PATH_MAX], semel_fault *fault)
{
    if (realpath(path, out) == NULL || strlen(out) >= PATH_MAX - 16)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be found: %s", path,
                            strerror(errno));
    return check_owners(path, out, fault);
}

/* Finds the file's one true name, making an empty file if there is none. */
static semel_err find_file(semel_str url, const semel_store_env *env, char out[PATH_MAX],
                           semel_fault *fault)
{
    char path[PATH_MAX];
    bool there;
    semel_err e = find_path(url, path, &there, fault);
    if (e == SEMEL_OK && !there) {
        e = env->must_exist ? not_there(path, fault)
                            : check_directory(path, env->default_place, fault);
        if (e == SEMEL_OK)
            e = make_file(path, fault);
    }
    return e == SEMEL_OK ? find_real(path, out, fault) : e;
}

semel_err sm_sqlite_place(semel_str url, bool default_place, semel_fault *fault)
{
    char path[PATH_MAX], real[PATH_MAX];
    bool there;
    semel_err e = find_path(url, path, &there, fault);
    if (e != SEMEL_OK || there)
        return e == SEMEL_OK ? find_real(path, real, fault) : e;
    if (default_place)
        return SEMEL_OK; /* what leads to it is made with it */
    e = check_directory(path, false, fault);
    sm_directory_of(path, real);
    return e == SEMEL_OK && access(real, W_OK | X_OK) != 0 ? not_made(path, fault) : e;
}

/* Turns an empty file into a ledger, or upgrades an older one. */
static semel_err make_ledger(semel_store *st, int version, semel_fault *fault)
{
    char path[PATH_MAX];
    memcpy(path, st->path, sizeof path);
    if (version == 0 && sync_parents(path) != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the directory of %.300s cannot be synced: %s", st->path,
                            strerror(errno));
    semel_err e = sm_sq_share_lock(&st->share, fault);
    if (e == SEMEL_OK) {
        e = sm_sq_schema_make(st, st->writer.conn->db, fault);
        sm_sq_share_unlock(&st->share);
    }
    return e;
}

/* Opens the writer's connection if the file is a ledger or may become one. */
static semel_err open_file(semel_store *st, bool must_exist, int *version, semel_fault *fault)
{
    semel_err e = sm_sq_conn_new(st, &st->writer.conn, fault);
    if (e != SEMEL_OK)
        return e;
    sqlite3 *db = st->writer.conn->db;
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
    if (e == SEMEL_OK && about.st_nlink > 1)
        e = sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                         "%.300s has %lu names (hard links), and each would have a log of its own: "
                         "remove the others, or make them copies",
                         st->path, (unsigned long)about.st_nlink);
    if (e != SEMEL_OK)
        return e;
    st->dev = about.st_dev;
    st->ino = about.st_ino;
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
    /* The last connection moves the log into the file, unless a sync has failed. */
    if (st->writer.conn != NULL && st->word != NULL && sm_sq_synced(st, NULL) == SEMEL_OK &&
        sm_sq_log_is_ours(st))
        sqlite3_db_config(st->writer.conn->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0, NULL);
    st->word = NULL;
    sm_sq_seen_mark(st, true);
    sm_sq_conn_close(st->writer.conn);
    sm_sq_share_close(&st->share);
    if (st->log >= 0)
        close(st->log);
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
    if (!sm_sq_may_open())
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "this process was forked while its parent used a ledger in SQLite, and "
                            "cannot use one: start it anew (exec, spawn)");
    semel_store *st = aligned_alloc(_Alignof(semel_store), sizeof *st);
    if (st == NULL)
        return sm_sq_nomem(fault);
    memset(st, 0, sizeof *st);
    st->log = -1;
    init_locks(st);
    sm_sq_enter();
    int version = 0;
    semel_err e = find_file(url, env, st->path, fault);
    sm_sq_seen_start(st);
    if (e == SEMEL_OK)
        e = open_file(st, env->must_exist, &version, fault);
    if (e == SEMEL_OK)
        e = sm_sq_share_open(&st->share, st->path, fault);
    if (e == SEMEL_OK && (version < SM_SQ_SCHEMA || !sm_sq_schema_logs(st->writer.conn->db)))
        e = make_ledger(st, version, fault);
    if (e == SEMEL_OK)
        e = sm_sq_settle(st, fault);
    if (e == SEMEL_OK)
        e = sm_sq_seen_open(st, fault);
    sm_sq_leave();
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

static semel_err store_try_write(semel_store *st, semel_fault *fault)
{
    sm_sq_request r = {.kind = SM_SQ_TRY, .bytes = 4096, .fault = fault};
    semel_err e = sm_sq_sound(st, fault);
    if (e == SEMEL_OK)
        e = sm_sq_in_place(st, fault);
    bool just_now = sm_clock_mono_ns() - atomic_load(&st->writer.wrote_ns) < SM_SQ_TRY_NS;
    return e == SEMEL_OK && !just_now ? sm_sq_submit(st, &r) : e;
}

const semel_store_ops sm_store_sqlite = {
    .size = sizeof(semel_store_ops),
    .version = SEMEL_STORE_VERSION,
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
    .try_write = store_try_write,
    .forsake = sm_sq_forsake,
};
