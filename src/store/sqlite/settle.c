/*
 * Nothing is answered from a log that may not be on the disk.
 *
 * SQLite publishes a commit, in the index that all processes map (PATH-shm), after its sync. So
 * readers see only durable data, with one exception: recovery. The first connection after a crash
 * rebuilds the index from the bytes in PATH-wal. A process may have written them and been killed
 * before its sync, or its sync may have failed: Linux drops such pages, but still shows them. A
 * power loss then loses what was read.
 *
 * So before a handle answers anything, the log is settled: its bytes are written once more, in
 * place, and synced. Writing marks the pages as dirty again. Then the log is moved into the file
 * and truncated, only to keep it short. If the log cannot be settled, the ledger is not opened.
 *
 * A word in the index says how far this has come. SQLite reserves the word and never touches it
 * (bytes 132 to 135, "notUsed0"). It is zero again whenever a first connection rebuilds the index.
 * A lock of our own could not say as much: when a process is killed, its locks go one after the
 * other, so its lock on the index may go before another one.
 *
 *     UNKNOWN --> SETTLED --> READY <--> WRITING      any --> FAILED
 *
 *     UNKNOWN  rebuilt: nobody knows which part of the log is on the disk
 *     SETTLED  all of the log is on the disk; sm_sq_settle, on opening
 *     READY    the names of the ledger's files are too; sm_sq_settle_begin
 *     WRITING  a transaction is running; everything published is on the disk. A writer that
 *              gets the lock between processes and finds this knows that its owner has died, and
 *              settles the log again: SQLite also recovers when a process dies while it publishes
 *     FAILED   a sync has failed somewhere: all handles refuse until all have closed the ledger.
 *              A handle that was open then would learn of the error from its own next sync. One
 *              that is opened later would not, and might move a log into the file of which the
 *              kernel has dropped the first part
 */
#include "store/sqlite/sqlite.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    UNKNOWN = 0,
    SETTLED = 0x53454D31, /* "SEM1" and so on */
    READY = 0x53454D32,
    WRITING = 0x53454D33,
    FAILED = 0x53454D34
};

enum {
    INDEX_PAGE = 32768, /* SQLite's unit of the index */
    WORD_AT = 132,
    EXTENTS = 64,   /* of a file, looked at at a time */
    BLOCK = 4096,   /* direct writes begin and end at a multiple of this */
    PIECE = 1 << 16 /* of the log, at a time; SQLite writes less than 128 KiB at once */
};

/* ---- the log ---------------------------------------------------------------------------------*/

/* Writes the log over itself and syncs it. Nobody else can append: a transaction has begun. */
static int rewrite(sqlite3_file *log)
{
    sqlite3_int64 size = 0;
    char *piece = sqlite3_malloc(PIECE);
    int rc = piece == NULL ? SQLITE_NOMEM : log->pMethods->xFileSize(log, &size);
    for (sqlite3_int64 at = 0; rc == SQLITE_OK && at < size; at += PIECE) {
        int n = size - at < PIECE ? (int)(size - at) : PIECE;
        rc = log->pMethods->xRead(log, piece, n, at);
        if (rc == SQLITE_OK)
            rc = log->pMethods->xWrite(log, piece, n, at);
    }
    if (rc == SQLITE_OK)
        rc = log->pMethods->xSync(log, SQLITE_SYNC_NORMAL);
    sqlite3_free(piece);
    return rc;
}

/* Writes the log over itself once more, past the cache. After a failed write ext4 treats the blocks
 * as never written: a power loss loses what is written to them through the cache, although its sync
 * succeeds. A direct write repairs that. Closing the log drops no lock: SQLite has none on it. */
static int rewrite_directly(sqlite3_file *log, const char *path)
{
    char name[PATH_MAX + 8];
    sqlite3_int64 size = 0;
    snprintf(name, sizeof name, "%s-wal", path);
    int fd = open(name, O_WRONLY | O_DIRECT | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == EINVAL ? SQLITE_OK : SQLITE_IOERR_WRITE; /* not on this file system */
    char *piece = aligned_alloc(BLOCK, PIECE);
    int rc = piece == NULL ? SQLITE_NOMEM : log->pMethods->xFileSize(log, &size);
    for (sqlite3_int64 at = 0; rc == SQLITE_OK && at < size; at += PIECE) {
        size_t n = size - at < PIECE ? (size_t)(size - at) : PIECE;
        size_t whole = (n + BLOCK - 1) / BLOCK * BLOCK;
        memset(piece + n, 0, whole - n);
        rc = log->pMethods->xRead(log, piece, (int)n, at);
        ssize_t wrote = rc == SQLITE_OK ? pwrite(fd, piece, whole, at) : 0;
        if (wrote < 0 && errno == EINVAL)
            break; /* nor in blocks of this size */
        if (rc == SQLITE_OK && wrote != (ssize_t)whole)
            rc = wrote < 0 && errno == ENOSPC ? SQLITE_FULL : SQLITE_IOERR_WRITE;
    }
    if (rc == SQLITE_OK && ftruncate(fd, size) != 0)
        rc = SQLITE_IOERR_TRUNCATE;
    if (rc == SQLITE_OK && fsync(fd) != 0)
        rc = SQLITE_IOERR_FSYNC;
    free(piece);
    close(fd);
    return rc;
}

/* Whether the file system treats blocks of this file as never written. Blocks after its end do not
 * count: XFS reserves some for appending. */
static bool has_lost_blocks(int fd, uint64_t size)
{
    union {
        struct fiemap map;
        char room[sizeof(struct fiemap) + EXTENTS * sizeof(struct fiemap_extent)];
    } u;
    for (uint64_t from = 0; from < size;) {
        memset(&u, 0, sizeof u);
        u.map.fm_start = from;
        u.map.fm_length = size - from;
        u.map.fm_flags = FIEMAP_FLAG_SYNC;
        u.map.fm_extent_count = EXTENTS;
        if (ioctl(fd, FS_IOC_FIEMAP, &u.map) != 0 || u.map.fm_mapped_extents == 0)
            return false; /* no more of them, or the file system cannot tell */
        for (uint32_t i = 0; i < u.map.fm_mapped_extents; i++) {
            const struct fiemap_extent *e = &u.map.fm_extents[i];
            if ((e->fe_flags & FIEMAP_EXTENT_UNWRITTEN) != 0)
                return true;
            if ((e->fe_flags & FIEMAP_EXTENT_LAST) != 0)
                return false;
            from = e->fe_logical + e->fe_length;
        }
    }
    return false;
}

/* The same for the ledger's own file, after a log was moved into it and the sync failed. It cannot
 * be written directly: closing our descriptor would drop SQLite's locks. So this looks through one
 * of SQLite's own descriptors. */
static bool file_has_lost_blocks(const semel_store *st)
{
    bool lost = false;
    DIR *all = opendir("/proc/self/fd");
    if (all == NULL)
        return false;
    for (struct dirent *d; !lost && (d = readdir(all)) != NULL;) {
        int fd = atoi(d->d_name);
        struct stat about;
        if (fd > 2 && fstat(fd, &about) == 0 && about.st_dev == st->dev &&
            about.st_ino == st->ino) {
            lost = has_lost_blocks(fd, (uint64_t)about.st_size);
            break;
        }
    }
    closedir(all);
    return lost;
}

/* Moves the log into the file. This may fail, for a reader or a full disk: the log is durable where
 * it is. */
static int empty(sqlite3 *db)
{
    sqlite3_busy_timeout(db, 0);
    int rc = sqlite3_wal_checkpoint_v2(db, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    rc = sm_sq_unwritten(db, false, rc);
    sqlite3_busy_timeout(db, SM_SQ_BUSY_MS);
    int code = rc & 0xFF;
    bool later = code == SQLITE_BUSY || code == SQLITE_LOCKED || code == SQLITE_FULL ||
                 code == SQLITE_READONLY;
    return later ? SQLITE_OK : rc;
}

static int settle_log(semel_store *st)
{
    sqlite3 *db = st->writer.conn->db;
    sqlite3_file *log = NULL;
    sqlite3_int64 size = 0;
    int rc = sqlite3_file_control(db, NULL, SQLITE_FCNTL_JOURNAL_POINTER, (void *)&log);
    if (rc == SQLITE_OK)
        rc = log->pMethods->xFileSize(log, &size);
    if (rc != SQLITE_OK || size == 0)
        return rc;
    rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK) {
        rc = rewrite(log);
        if (rc == SQLITE_OK)
            rc = rewrite_directly(log, st->path);
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); /* nothing was changed */
    }
    if (rc == SQLITE_OK && file_has_lost_blocks(st))
        rc = SQLITE_IOERR_CORRUPTFS;
    return rc == SQLITE_OK ? empty(db) : rc;
}

int sm_sq_sync_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = fd < 0 ? 0 : fsync(fd);
    int saved = errno;
    if (fd >= 0)
        close(fd);
    errno = saved;
    return rc == 0 || saved == EINVAL || saved == EROFS ? 0 : -1;
}

/* The log's name must be on the disk before anything in the log counts. SQLite syncs the directory
 * too, but goes on if that fails. */
static int settle_names(const char *path)
{
    char directory[PATH_MAX];
    size_t n = (size_t)(strrchr(path, '/') - path);
    memcpy(directory, path, n);
    memcpy(directory + n, "/", 2);
    return sm_sq_sync_directory(directory) == 0 ? SQLITE_OK : SQLITE_IOERR_DIR_FSYNC;
}

/* ---- the word --------------------------------------------------------------------------------*/

/* The word of the index that this handle's connections share, for as long as the writer's is open.
 * SQLite maps the index when it first reads by it; after a change of the journal it has not yet. */
static int find_word(semel_store *st)
{
    sqlite3 *db = st->writer.conn->db;
    sqlite3_file *file = NULL;
    void volatile *page = NULL;
    int rc = sqlite3_exec(db, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_file_control(db, NULL, SQLITE_FCNTL_FILE_POINTER, (void *)&file);
    if (rc == SQLITE_OK && (file->pMethods->iVersion < 2 || file->pMethods->xShmMap == NULL))
        rc = SQLITE_IOERR_SHMMAP;
    if (rc == SQLITE_OK)
        rc = file->pMethods->xShmMap(file, 0, INDEX_PAGE, 0, &page);
    if (rc == SQLITE_OK && page == NULL)
        rc = SQLITE_IOERR_SHMMAP;
    if (rc == SQLITE_OK)
        st->word = (_Atomic uint32_t *)(uintptr_t)((char volatile *)page + WORD_AT);
    return rc;
}

_Atomic uint32_t *sm_sq_settle_index(const semel_store *st)
{
    return st->word - WORD_AT / sizeof *st->word;
}

/* A later SQLite may find a use for the word. */
static bool is_ours(uint32_t word)
{
    return word == UNKNOWN || (word >= SETTLED && word <= FAILED);
}

static bool move_word(semel_store *st, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(st->word, &from, to);
}

void sm_sq_settle_fail(semel_store *st)
{
    if (st->word != NULL)
        atomic_store(st->word, FAILED);
}

bool sm_sq_settle_failed(const semel_store *st)
{
    return st->word != NULL && atomic_load_explicit(st->word, memory_order_relaxed) == FAILED;
}

/* ---- opening and writing ---------------------------------------------------------------------*/

semel_err sm_sq_settle(semel_store *st, semel_fault *fault)
{
    int rc = find_word(st);
    if (rc != SQLITE_OK)
        return sm_sq_fault(st, rc, fault);
    if (!is_ours(atomic_load(st->word)))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s-shm is of a version of SQLite that semel does not know yet",
                            st->path);
    if (atomic_load(st->word) == UNKNOWN) {
        semel_err e = sm_sq_share_lock_soon(&st->share, fault);
        if (e != SEMEL_OK)
            return e;
        if (atomic_load(st->word) == UNKNOWN) {
            rc = settle_log(st);
            if (rc == SQLITE_OK)
                move_word(st, UNKNOWN, SETTLED);
        }
        sm_sq_share_unlock(&st->share);
    }
    if (rc != SQLITE_OK) {
        semel_err e = sm_sq_fault(st, rc, fault); /* poisons, if a sync has failed */
        if (rc == SQLITE_IOERR_CORRUPTFS)
            return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                "a write to %.300s has failed, and its file system would lose what "
                                "is written to the same blocks: stop every process that has it "
                                "open, copy the file and put the copy in its place, then try again",
                                st->path);
        if ((rc & 0xFF) != SQLITE_IOERR)
            return e;
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "the log of %.300s cannot be made safe on its disk (error %d), so "
                            "nothing is answered from it: look at the system's log, then try again",
                            st->path, rc);
    }
    return sm_sq_sound(st, fault);
}

int sm_sq_settle_begin(semel_store *st)
{
    uint32_t seen = atomic_load(st->word);
    int rc = SQLITE_OK;
    if (seen != SETTLED && seen != READY && seen != FAILED)
        rc = settle_log(st);
    if (rc == SQLITE_OK && seen != READY && seen != FAILED)
        rc = settle_names(st->path);
    if (rc == SQLITE_OK && (seen == FAILED || !move_word(st, seen, WRITING)))
        rc = SQLITE_IOERR_FSYNC; /* somebody else's */
    return rc;
}

void sm_sq_settle_end(semel_store *st)
{
    move_word(st, WRITING, READY);
}
