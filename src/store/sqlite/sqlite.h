/*
 * The SQLite store's private header: its parts, and what they may ask of each other.
 *
 *   sqlite.c      the table of functions, opening and closing
 *   schema.c      tables, views, versions; whether the file is a ledger at all
 *   check.c       whether the file is whole, and agrees with itself
 *   conn.c        connections, their prepared statements, the pool of readers, errors
 *   row.c         records to and from rows
 *   writer.c      the queue of writes and the one thread that commits them together
 *   write.c       what each kind of write decides and does inside the transaction
 *   purge.c       housekeeping, likewise
 *   checkpoint.c  moving the write-ahead log back into the file, beside the writer
 *   read.c        get, notes, counter and health; list.c: query, due and events
 *   cache.c       settled records that this process knows for sure
 *   settle.c      makes the log that was found durable before the first answer
 *   place.c       whether the files are still those that were opened
 *   seen.c        whether the file still has what was acknowledged
 *   share.c       the file beside the ledger: the writers' queue, the epoch, waking
 *   fork.c        what a forked child may do
 *   wait.c        waiting for a change
 *
 * Locks. A thread holds at most one of: the queue's, the pool's, a cache stripe's, a wait bucket's,
 * the checkpointer's; the cache's check lock comes before its epoch lock. None is held across I/O
 * but the check lock, which nobody waits for: it is only tried. The locks between processes are
 * taken by the writer thread, and while a ledger is opened, by threads that hold no other.
 *
 * A handle is poisoned when a sync has failed: the kernel may have dropped what it could not write,
 * so nothing that is known of the file can be relied on. All handles of all processes refuse
 * everything until each of them was closed (settle.c).
 *
 * A handle is lost when the file lacks what was acknowledged: it refuses everything but evidence
 * (seen.c).
 */
#ifndef SM_STORE_SQLITE_SQLITE_H
#define SM_STORE_SQLITE_SQLITE_H

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "semel/store.h"
#include "store/shared/bell.h"
#include "store/shared/copy.h"
#include "store/shared/mark.h"
#include "store/sqlite/sql.h"

#define SM_SQ_SCHEMA         3          /* the version of the file that this code knows */
#define SM_SQ_SCHEMA_OLDEST  2          /* and the oldest that it upgrades */
#define SM_SQ_APPLICATION_ID 0x53454D4C /* "SEML" */
#define SM_SQ_NEVER          INT64_MAX

#define SM_SQ_BATCH_REQUESTS 512u
#define SM_SQ_BATCH_BYTES    ((size_t)4 << 20)
#define SM_SQ_PURGE_MAX      500u /* rows in one purge, so that no caller waits long for it */
#define SM_SQ_PATIENCE_MS    5000 /* how long a write waits for other processes */
#define SM_SQ_BUSY_MS        5000 /* and for programs that do not queue as we do */
#define SM_SQ_TRY_NS         INT64_C(1000000000) /* a commit tells for so long that there can be others */
#define SM_SQ_POOL           8u                  /* readers that are kept */
#define SM_SQ_STRIPES        16u                 /* of the cache */
#define SM_SQ_BESIDE         2u                  /* files that SQLite keeps beside the ledger */

/* ---- connections -----------------------------------------------------------------------------*/

/* One connection and what goes with it. Used by one thread at a time. */
typedef struct sm_sq_conn {
    sqlite3 *db;
    sqlite3_stmt *st[SM_SQL_COUNT_ALL];
    sm_digest digest;
    struct sm_sq_conn *next;      /* in the pool */
    struct sm_sq_conn *next_open; /* of all in this process, see fork.c */
} sm_sq_conn;

typedef struct sm_sq_pool {
    pthread_mutex_t lock;
    sm_sq_conn *idle;
    unsigned count;
    pthread_cond_t turn_over;
    unsigned turns; /* who may read one record now */
} sm_sq_pool;

/* ---- the file beside the ledger --------------------------------------------------------------*/

/* An event that is in the ledger, unless it was purged; seq 0: none. */
typedef struct sm_sq_seen {
    uint64_t seq;
    semel_hash hash;
} sm_sq_seen;

/* The first page of PATH-semel, mapped by every process that has the ledger open. */
typedef struct sm_sq_page {
    char magic[8];
    _Atomic uint64_t epoch;   /* grows when a settled record was replaced or removed */
    _Atomic uint32_t waiters; /* threads of any process that wait for a change */
    sm_sq_seen newest;        /* seen.c; written by those who hold the lock of writers */
    uint64_t newest_sum;      /* tells whether it was written whole */
} sm_sq_page;

typedef struct sm_sq_share {
    char path[PATH_MAX];
    int fd;
    dev_t dev;
    ino_t ino;
    _Atomic(sm_sq_page *) page;
    sm_sq_page *old[8]; /* mappings of side files that were deleted; readers may still look */
    unsigned old_count;
    struct sm_sq_share *next; /* of all that are open in this process */
} sm_sq_share;

/* ---- the cache -------------------------------------------------------------------------------*/

typedef struct sm_sq_entry sm_sq_entry;

typedef struct sm_sq_stripe {
    pthread_mutex_t lock;
    sm_sq_entry **table; /* a power of two of chains */
    size_t mask;
    size_t count;
    size_t bytes;
    sm_sq_entry *young, *old; /* in the order in which they will be thrown out, but for a touch */
} __attribute__((aligned(64))) sm_sq_stripe;

typedef struct sm_sq_cache {
    size_t stripe_bytes;        /* bound of one stripe */
    _Atomic uint64_t known;     /* the epoch up to which every bump was ours or has been heeded */
    _Atomic uint64_t floor;     /* entries with an earlier stamp are void */
    _Atomic uint64_t voids;     /* how often the backstop has voided everything */
    _Atomic int64_t checked_at; /* when the backstop last looked, in ms */
    _Atomic uint64_t own_commits;
    atomic_bool foreign; /* the writer has seen a commit by somebody else */
    pthread_mutex_t epoch_lock;
    pthread_mutex_t check_lock;
    sm_sq_conn *check;    /* the backstop's connection, made when it is first needed */
    int64_t data_version; /* this and the next two as of the last look */
    uint64_t own_seen;
    bool unsure; /* the file had changed, perhaps by others than us */
    sm_sq_stripe stripes[SM_SQ_STRIPES];
} sm_sq_cache;

/* ---- waiting ---------------------------------------------------------------------------------*/

typedef struct sm_sq_waits {
    sm_bell bell;
    pthread_mutex_t lock; /* guards the watcher's start */
    pthread_t thread;
    bool started;
    atomic_bool watching; /* inotify works: no need to poll */
    int inotify, poke;
} sm_sq_waits;

/* ---- writing ---------------------------------------------------------------------------------*/

typedef enum sm_sq_kind {
    SM_SQ_CLAIM,
    SM_SQ_APPLY,
    SM_SQ_JOURNAL,
    SM_SQ_SEAL,
    SM_SQ_PURGE,
    SM_SQ_TRY /* changes nothing */
} sm_sq_kind;

/* One write on its way through the writer. It lives on its caller's stack, who sleeps until the
 * batch that it became part of is durable. Memory for an answer is taken from the caller's room by
 * the writer thread, while the caller sleeps. */
typedef struct sm_sq_request {
    sm_sq_kind kind;
    size_t bytes; /* about how much it writes */
    struct sm_sq_request *next;
    bool taken; /* by the writer: it can no longer be withdrawn */

    const semel_write *w; /* claim, apply */
    semel_room *room;
    semel_record *cur;
    const semel_note *notes; /* journal */
    size_t n;
    const semel_event *seal;
    uint64_t expect;
    size_t limit; /* purge */
    uint64_t events_to;
    int64_t notes_before;
    semel_hash *keys; /* of the records that were changed or removed; `limit` fit */
    size_t n_keys;

    semel_fault *fault;
    semel_err err; /* what is to be answered */
    int64_t now;
    uint64_t stamp; /* under which `cur` or what was written may be put into the cache */
    bool wrote;     /* claim, apply: `w` was written, with `version` */
    bool unsettled; /* a settled record was replaced */
    bool spoiled;   /* its own fault; the batch is run again without it */
    uint64_t version;
    uint64_t done;
    bool left;
} sm_sq_request;

/* What is gathered while the writer is busy. Callers sleep on `word`. */
typedef struct sm_sq_batch {
    sm_sq_request *first, **last;
    size_t count;
    size_t bytes;
    _Atomic uint32_t word; /* grows when the batch is done */
} sm_sq_batch;

typedef struct sm_sq_writer {
    sm_sq_conn *conn;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t work;  /* there is something to do */
    pthread_cond_t space; /* a full batch has been taken */
    bool idle, stop;
    bool ended;          /* the thread touches nothing any more, unless it was abandoned */
    bool abandoned;      /* by who closes: the thread disposes of the store */
    atomic_bool in_line; /* the thread waits for its turn among processes */
    sm_sq_batch batches[2];
    sm_sq_batch *gather;
    uint64_t last_n, last_seq; /* within a transaction: the newest that exist */
    uint64_t floor;            /* likewise: events up to here count as purged */
    sm_sq_seen newest;         /* likewise: the newest event that is there */
    sm_sq_seen seen;           /* the newest event that was there after a commit */
    uint64_t marked;           /* the newest one that is in the user's note, and */
    int64_t marked_ns;         /* when that was written */
    struct timespec file_at;   /* when the file itself was last written to, and */
    uint32_t file_counter;     /* SQLite's counter of changes in it then */
    int64_t data_version;      /* of this connection: changes when somebody else commits */
    int64_t changes;           /* rows changed before this transaction */
    _Atomic int64_t wrote_ns;  /* when something was last committed */
} sm_sq_writer;

typedef struct sm_sq_checkpoint {
    sm_sq_conn *conn;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bool wanted, busy, stop;
    atomic_bool finish; /* little is left: the writer does the rest */
    atomic_int frames;  /* in the log after the newest commit */
} sm_sq_checkpoint;

struct semel_store {
    char path[PATH_MAX];
    dev_t dev;
    ino_t ino;
    ino_t beside[SM_SQ_BESIDE]; /* of the log and of its index */
    int log;                    /* the log, to read; -1: none */
    atomic_bool poisoned;
    atomic_bool lost;
    _Atomic uint32_t *word; /* settle.c; NULL until it is found */
    sm_sq_share share;
    sm_mark mark; /* seen.c */
    sm_sq_pool pool;
    sm_sq_cache cache;
    sm_sq_waits waits;
    sm_sq_writer writer;
    sm_sq_checkpoint checkpoint;
};

/* CLOCK_REALTIME in ms, which is this store's clock; CLOCK_MONOTONIC in ns. */

/* ---- sqlite.c --------------------------------------------------------------------------------*/

/* Frees a store whose writer has ended. */
void sm_sq_dispose(semel_store *st);

/* ---- conn.c ---------------------------------------------------------------------------*/

/* Opens the file, which exists, and does not look at it yet. */
semel_err sm_sq_conn_new(semel_store *st, sm_sq_conn **out, semel_fault *fault);

/* Sets what every connection sets, which reads the file. */
semel_err sm_sq_conn_set(semel_store *st, sm_sq_conn *c, semel_fault *fault);

/* Both. */
semel_err sm_sq_conn_open(semel_store *st, sm_sq_conn **out, semel_fault *fault);
void sm_sq_conn_close(sm_sq_conn *c); /* accepts NULL */

/* The prepared statement, reset and with nothing bound that matters. NULL: *rc says why. */
sqlite3_stmt *sm_sq_stmt(sm_sq_conn *c, sm_sq_statement which, int *rc);

/* Steps a statement that gives no rows, and resets it. SQLITE_OK when it is done. */
int sm_sq_run(sqlite3_stmt *stmt);

/* A reader from the pool; it never waits for another one. Give it back. */
semel_err sm_sq_reader(semel_store *st, sm_sq_conn **out, semel_fault *fault);
void sm_sq_reader_return(semel_store *st, sm_sq_conn *c);

/* The same around the reading of one record, which many callers do at once: opening a connection
 * takes far longer than to wait for one of those that are there. Nothing in between may call back
 * or wait. */
semel_err sm_sq_turn(semel_store *st, sm_sq_conn **out, semel_fault *fault);
void sm_sq_turn_over(semel_store *st, sm_sq_conn *c);

/* Tells a write that was refused from one that failed. SQLITE_FULL: for a quota or a limit on the
 * size of files. SQLITE_READONLY: the file or its disk must not be written. As with a full disk
 * nothing was committed, and it passes. Any other error stays as it is. */
int sm_sq_unwritten(sqlite3 *db, bool log, int rc);

/* SQLite's result code as ours, with a sentence. A failed sync poisons the handle. */
semel_err sm_sq_fault(semel_store *st, int rc, semel_fault *fault);
void sm_sq_poison(semel_store *st);

/* SEMEL_OK unless the handle is poisoned; and unless it is poisoned or lost. */
semel_err sm_sq_synced(semel_store *st, semel_fault *fault);
semel_err sm_sq_sound(semel_store *st, semel_fault *fault);

semel_err sm_sq_nomem(semel_fault *fault);
semel_err sm_sq_collision(semel_store *st, semel_fault *fault);

/* ---- schema.c -------------------------------------------------------------------------*/

/* Whether the file is a ledger (*version > 0) or empty (*version 0). Writes nothing. */
semel_err sm_sq_schema_check(semel_store *st, sqlite3 *db, int *version, semel_fault *fault);

/* Whether the file has a write-ahead log, as a ledger must. */
bool sm_sq_schema_logs(sqlite3 *db);

/* Brings the file to SM_SQ_SCHEMA. The lock between processes is held. */
semel_err sm_sq_schema_make(semel_store *st, sqlite3 *db, semel_fault *fault);

/* Whether tables, indexes, views and triggers are those that this code makes. */
int sm_sq_schema_is_ours(sqlite3 *db, bool *ours);

/* ---- check.c --------------------------------------------------------------------------*/

/* SEMEL_E_CORRUPT with a sentence if something is wrong. */
semel_err sm_sq_check(semel_store *st, sqlite3 *db, semel_fault *fault);

/* ---- row.c ----------------------------------------------------------------------------*/

int64_t sm_sq_int(sqlite3_stmt *stmt, int column);
semel_str sm_sq_text(sqlite3_stmt *stmt, int column);             /* borrowed; absent for NULL */
void sm_sq_hash(sqlite3_stmt *stmt, int column, semel_hash *out); /* zero for NULL */
int sm_sq_bind_text(sqlite3_stmt *stmt, int parameter, semel_str s);
int sm_sq_bind_blob(sqlite3_stmt *stmt, int parameter, semel_str s);
int sm_sq_bind_hash(sqlite3_stmt *stmt, int parameter, const semel_hash *h); /* NULL for zero */
bool sm_sq_hash_is_zero(const semel_hash *h);

/* A row of SM_SQ_RECORD; texts are borrowed until the statement moves. */
void sm_sq_record_view(sqlite3_stmt *stmt, semel_record *out);

/* Binds the 28 parameters of EFFECT_ADD and EFFECT_SET. */
int sm_sq_record_bind(sqlite3_stmt *stmt, int64_t n, uint64_t version, const semel_record *r);

/* When purge has next something to do for a record with these, or 0. */
int64_t sm_sq_sweep_at(int64_t result_end, int64_t window_end, int64_t purge_at, bool has_outcome,
                       bool has_args);

/* Memory for one record at a time, for sinks: each alloc gives the same piece again. */
typedef struct sm_sq_scratch {
    semel_room room;
    void *p;
    size_t n;
} sm_sq_scratch;

/* A reader and such memory. Give it back. */
typedef struct sm_sq_reading {
    sm_sq_conn *c;
    sm_sq_scratch scratch;
} sm_sq_reading;
semel_err sm_sq_reading_start(semel_store *st, sm_sq_reading *r, semel_fault *fault);
void sm_sq_reading_end(semel_store *st, sm_sq_reading *r);

/* ---- writer.c, write.c, purge.c -----------------------------------------*/

semel_err sm_sq_writer_start(semel_store *st, semel_fault *fault);

/* False: the thread waits for a process that may never go on. The store is the thread's from then
 * on, who disposes of it when its turn comes, if ever: that memory and its files are lost until the
 * process ends, which is better than a close that hangs. */
bool sm_sq_writer_stop(semel_store *st);

/* Hands a request to the writer and sleeps until it is answered. Returns its err. */
semel_err sm_sq_submit(semel_store *st, sm_sq_request *r);

/* Run by the writer thread inside its transaction. An SQLite error spoils the transaction; every
 * other answer is in the request, and then nothing was written for it. */
int sm_sq_execute(semel_store *st, sm_sq_request *r);
int sm_sq_execute_purge(semel_store *st, sm_sq_request *r);

/* ---- checkpoint.c ---------------------------------------------------------------------*/

void sm_sq_checkpoint_stop(semel_store *st);

/* Called by the writer: after a commit that left `frames` pages in the log, and before a batch. */
void sm_sq_checkpoint_note(semel_store *st, int frames);
void sm_sq_checkpoint_finish(semel_store *st);

/* ---- settle.c -------------------------------------------------------------------------*/

/* On opening: makes the log that was found durable, or says why not. The file has a log. */
semel_err sm_sq_settle(semel_store *st, semel_fault *fault);

/* For the writer, which holds the lock between processes: before a transaction, and after one whose
 * log is synced. */
int sm_sq_settle_begin(semel_store *st);
void sm_sq_settle_end(semel_store *st);

/* A sync has failed, here or elsewhere. */
void sm_sq_settle_fail(semel_store *st);
bool sm_sq_settle_failed(const semel_store *st);

/* 0 also if nobody can sync it: it is not readable, or its file system has no syncs. */
int sm_sq_sync_directory(const char *path);

/* The index, as words. */
_Atomic uint32_t *sm_sq_settle_index(const semel_store *st);

/* ---- place.c --------------------------------------------------------------------------*/

/* SEMEL_OK if the file, its log and the log's index are still those that were opened, and the log
 * holds what the index counts: what is written to another file is lost. Any thread may ask. */
semel_err sm_sq_in_place(semel_store *st, semel_fault *fault);
semel_err sm_sq_placed(semel_store *st, semel_fault *fault); /* on opening, when all are there */

/* Whether the log may be moved into the file at the end: nobody has used it by another index. */
bool sm_sq_log_is_ours(const semel_store *st);

/* ---- seen.c ---------------------------------------------------------------------------*/

/* Whether the handle is lost. Then the fault says so, with the code SEMEL_E_CORRUPT. */
bool sm_sq_lost(semel_store *st, semel_fault *fault);

/* By the writer's connection, which holds the lock between processes. Before a transaction it looks
 * at the file itself; within it, for the events, and sets the newest numbers; after its commit it
 * notes the newest event. */
int sm_sq_seen_file(semel_store *st);
int sm_sq_seen_look(semel_store *st);
void sm_sq_seen_note(semel_store *st);

/* By the writer's thread, after its answers, and at the end: notes the newest event for the next
 * process of this user. Once a second is enough, unless it is the end. */
void sm_sq_seen_mark(semel_store *st, bool end);

/* On opening: finds the user's note; then refuses a file that lacks what is noted there or by
 * others in PATH-semel. */
void sm_sq_seen_start(semel_store *st);
semel_err sm_sq_seen_open(semel_store *st, semel_fault *fault);

/* A new ledger is about to be made: what is noted was about another one. */
void sm_sq_seen_forget(semel_store *st);

/* ---- share.c --------------------------------------------------------------------------*/

semel_err sm_sq_share_open(sm_sq_share *s, const char *ledger, semel_fault *fault);
void sm_sq_share_close(sm_sq_share *s);

/* Joins the queue of writers of all processes and waits for its turn. Blocks. */
semel_err sm_sq_share_lock(sm_sq_share *s, semel_fault *fault);
void sm_sq_share_unlock(sm_sq_share *s);

/* Likewise, out of line and for SM_SQ_PATIENCE_MS at most. */
semel_err sm_sq_share_lock_soon(sm_sq_share *s, semel_fault *fault);

/* Makes a deleted side file anew. True if it did, so that nobody can know what others did since. */
bool sm_sq_share_renew(sm_sq_share *s);

/* Tells the waiters of other processes that something has changed. */
void sm_sq_share_pulse(sm_sq_share *s);

/* Around a fork. The child lets go of all files and mappings. */
void sm_sq_share_fork_begins(void);
void sm_sq_share_fork_ends(void);
void sm_sq_share_forked(void);

/* ---- fork.c ----------------------------------------------------------------------------------*/

/* Around every use of SQLite: a fork waits until nobody is in between. A thread may enter again. */
void sm_sq_enter(void);
void sm_sq_leave(void);

/* Around the life of a connection. */
void sm_sq_conn_enlist(sm_sq_conn *c);
void sm_sq_conn_delist(sm_sq_conn *c);

/* Before a ledger is opened: in a child, closes what all of the parent's ledgers had open. False:
 * this process may not use SQLite, see fork.c. */
bool sm_sq_may_open(void);

/* In a child, of a store that its parent has open: it is not used any more; its memory stays. */
void sm_sq_forsake(semel_store *st);

/* ---- cache.c --------------------------------------------------------------------------*/

semel_err sm_sq_cache_init(semel_store *st, size_t bytes);
void sm_sq_cache_fini(sm_sq_cache *c);

/* Read this before the row that is to be put in. */
uint64_t sm_sq_cache_stamp(semel_store *st);

/* Keeps a copy of a settled record that was the newest of its key under `stamp`. A cache that lacks
 * memory forgets instead. */
void sm_sq_cache_put(semel_store *st, const semel_record *r, uint64_t stamp);
void sm_sq_cache_drop(sm_sq_cache *c, const semel_hash *key);
void sm_sq_cache_void(semel_store *st); /* everything */

/* By the writer, who holds the lock between processes: a settled record was replaced. Afterwards it
 * drops the keys that it changed, and only then answers. */
void sm_sq_cache_bump(semel_store *st);

semel_err sm_sq_peek(semel_store *st, const semel_hash *key, semel_room *room, semel_record *cur,
                     int64_t *now);

/* ---- wait.c ---------------------------------------------------------------------------*/

void sm_sq_waits_init(sm_sq_waits *w);
void sm_sq_waits_fini(semel_store *st);
void sm_sq_wake(semel_store *st, const semel_hash *key); /* NULL: those who wait for any event */
void sm_sq_waits_renewed(semel_store *st);               /* the side file is another one */

/* ---- functions of the table ------------------------------------------------------------------*/

semel_err sm_sq_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                    int64_t *now, semel_fault *fault);
semel_err sm_sq_query(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                      semel_record_sink *sink, void *context, semel_fault *fault);
semel_err sm_sq_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault);
semel_err sm_sq_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                    semel_fault *fault);
semel_err sm_sq_wait(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                     semel_fault *fault);
semel_err sm_sq_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                      semel_note_sink *sink, void *context, semel_fault *fault);
semel_err sm_sq_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                        semel_fault *fault);
semel_err sm_sq_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault);

#endif
