/*
 * The Postgres store's private header: its parts, and what they may ask of each other.
 *
 *   postgres.c  the table of functions, opening and closing
 *   url.c       the ledger's URL: our own options, and what libpq gets
 *   option.c    which option of it nobody knows
 *   host.c      lists of hosts in it, one host at a time
 *   conn.c      one connection: connecting, sending, waiting, all against a deadline
 *   error.c     what an error of the server or of the network means
 *   pool.c      connections that are kept, and asking one question until it is answered
 *   sql.h       every statement
 *   open.c      opening a ledger: the server, and what it must be set to
 *   schema.c    tables, versions, rights; views.c: for people
 *   row.c       records to parameters and from rows
 *   write.c     claim, apply and seal
 *   read.c      get, events, notes, counter; list.c: query and due
 *   keep.c      journal and purge; health.c
 *   trust.c     whether the server still has what it acknowledged
 *   wait.c      waiting for a change, and the thread that listens
 *
 * Every write is one statement in a transaction of its own, under READ COMMITTED. That is what an
 * event's seq rests on: it is the transaction's id (plus an offset, for a ledger that was moved to
 * another server), so it is unique, and what has no smaller one running is all there will be before
 * it. Within one effect it grows: a write succeeds only if its statement's snapshot has seen its
 * predecessor, and takes its id after that snapshot.
 *
 * A connection is used by one thread at a time and is never kept after something was left
 * unanswered on it. The lock of the pool is not held across input or output; the digest's and the
 * listener's are held alone.
 */
#ifndef SM_STORE_POSTGRES_POSTGRES_H
#define SM_STORE_POSTGRES_POSTGRES_H

#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "semel/store.h"
#include "store/postgres/sql.h"
#include "store/shared/bell.h"
#include "store/shared/copy.h"
#include "store/shared/gate.h"
#include "store/shared/mark.h"

#define SM_PG_SCHEMA         3 /* the version of the tables that this code knows */
#define SM_PG_SCHEMA_OLDEST  2 /* and the oldest that it upgrades */
#define SM_PG_SERVER_MIN     130000
#define SM_PG_NEVER          INT64_MAX
#define SM_PG_NAME_MAX       48u /* of the schema; the channel's name must fit into 63 */
#define SM_PG_PURGE_MAX      500u
#define SM_PG_OPTIONS_MAX    64u
#define SM_PG_POOL_MAX       200 /* connections of one handle */
#define SM_PG_STATEMENT_NAME 24u

/* ---- url.c --------------------------------------------------------------------------*/

/* Where to connect: libpq's options. The values may be secrets. */
typedef struct sm_pg_target {
    PQconninfoOption *options;
    const char *keys[SM_PG_OPTIONS_MAX + 1], *values[SM_PG_OPTIONS_MAX + 1];
    char timeout[24], idle[24];
    atomic_size_t host; /* of several, the one that worked last */
} sm_pg_target;

typedef struct sm_pg_settings {
    sm_pg_target main, listen; /* `listen` without options: there is none */
    bool pooler;               /* nothing may outlive a transaction */
    bool accept_loss;
    char schema[SM_PG_NAME_MAX + 1];
    char channel[64];
    int64_t pool, timeout_ms;
} sm_pg_settings;

/* Reads the ledger's URL. No fault repeats any part of it but names of options. fini accepts a
 * zeroed object. */
sm_err sm_pg_settings_init(sm_pg_settings *s, semel_str url, semel_fault *fault);
void sm_pg_settings_fini(sm_pg_settings *s);

/* ---- host.c -------------------------------------------------------------------------*/

#define SM_PG_HOST_MAX   256u
#define SM_PG_HOST_LISTS 3u

/* A target's values with one of its hosts. Borrows the others. */
typedef struct sm_pg_host {
    const char *values[SM_PG_OPTIONS_MAX + 1];
    char items[SM_PG_HOST_LISTS][SM_PG_HOST_MAX];
} sm_pg_host;

/* How many hosts there are to try one by one; and the one with a number from 0. */
size_t sm_pg_hosts(const sm_pg_target *t);
void sm_pg_host_init(sm_pg_host *h, const sm_pg_target *t, size_t at);

/* ---- option.c -----------------------------------------------------------------------*/

/* What nobody knows among the options of a text that libpq could not read: true with a fault that
 * names it. `what` is the text's name for people, `own` (which ends with a NULL) and `own_list` are
 * the options of ours that it may have. */
bool sm_pg_find_unknown(const char *text, const char *what, const char *const *own,
                        const char *own_list, semel_fault *fault);

/* ---- row.c --------------------------------------------------------------------------*/

#define SM_PG_PARAMS_MAX 48

/* The parameters of a statement, all in binary. What is added must stay until it was sent. */
typedef struct sm_pg_args {
    int n;
    Oid types[SM_PG_PARAMS_MAX];
    const char *values[SM_PG_PARAMS_MAX];
    int lengths[SM_PG_PARAMS_MAX];
    uint64_t numbers[SM_PG_PARAMS_MAX]; /* big-endian */
} sm_pg_args;

void sm_pg_add_int(sm_pg_args *a, int64_t value);
void sm_pg_add_bytes(sm_pg_args *a, semel_str s);        /* NULL for an absent one */
void sm_pg_add_hash(sm_pg_args *a, const semel_hash *h); /* NULL for zero */
void sm_pg_add_text(sm_pg_args *a, const char *text);
void sm_pg_add_array(sm_pg_args *a, bool bytes, semel_str encoded);

/* Arrays, encoded as the server reads them: begin with the count, then each element. */
void sm_pg_array_start(sm_buf *b, bool bytes, size_t n);
void sm_pg_array_int(sm_buf *b, int64_t value);
void sm_pg_array_bytes(sm_buf *b, semel_str s);

/* Up to when whoever bars its group refuses this write, if that is later than now. */
int64_t sm_pg_bars_until(const semel_write *w);

/* A write's parameters, $1 to $41. Only one that replaces a record can leave parts of it. */
void sm_pg_add_write(sm_pg_args *a, const semel_write *w, bool replaces);

bool sm_pg_null(const PGresult *r, int row, int column);
int64_t sm_pg_int(const PGresult *r, int row, int column); /* 0 for NULL; any width */
bool sm_pg_bool(const PGresult *r, int row, int column);
semel_str sm_pg_bytes(const PGresult *r, int row, int column); /* borrowed */
void sm_pg_hash(const PGresult *r, int row, int column, semel_hash *out);

/* The record that begins in `column`; its texts are borrowed from the result. */
void sm_pg_record_view(const PGresult *r, int row, int column, semel_record *out);
#define SM_PG_RECORD_COLUMNS 27

/* A copy whose texts are one piece of memory from `room`. */
semel_err sm_pg_record_copy(const semel_record *from, semel_room *room, semel_record *to,
                            semel_fault *fault);

/* ---- error.c ------------------------------------------------------------------------*/

/* What became of a question. */
typedef enum sm_pg_fate {
    SM_PG_DONE,
    SM_PG_AGAIN,  /* surely undone by the server; the same may be tried at once */
    SM_PG_LOST,   /* no connection, or none that is of use; nobody knows what the server did */
    SM_PG_FAILED, /* surely undone, and trying again would not help */
} sm_pg_fate;

/* What an error result means, after which the connection is still there or not. Sets *err and the
 * fault. */
sm_pg_fate sm_pg_judge(const semel_store *st, const PGresult *r, bool connected, sm_err *err,
                       semel_fault *fault);

/* Whether an error or notice ends the session. */
bool sm_pg_is_end(const PGresult *r);

/* A fault from libpq's own words about a connection; from nothing but a deadline. `where` is what
 * the connection leads to, for people. */
void sm_pg_fault_conn(const char *where, const PGconn *pg, semel_fault *fault);
void sm_pg_fault_late(const semel_store *st, const char *where, semel_fault *fault);

/* Whether such a fault is about a server that starts or stops. Only a hint: the words are the
 * server's, in its language. */
bool sm_pg_is_passing(const semel_fault *why);

semel_err sm_pg_nomem(semel_fault *fault);
semel_err sm_pg_collision(const semel_store *st, semel_fault *fault);

/* ---- conn.c -------------------------------------------------------------------------*/

typedef struct sm_pg_conn {
    PGconn *pg;
    bool prepared[SM_PGQ_COUNT];
    bool warned; /* by the server, since the last statement was sent */
    bool ended;  /* the server has said goodbye */
    bool judged; /* its server was compared with the one that was opened: sm_pg_trust */
    int64_t idle_since_ns;
    struct sm_pg_conn *next; /* in the pool */
} sm_pg_conn;

/* Connects and sets what every connection sets. Of several hosts each gets a share of the time, the
 * one that worked last first. NULL with a fault; so too if the server is not durable any more. */
sm_pg_conn *sm_pg_connect(const semel_store *st, sm_pg_target *target, int64_t deadline_ns,
                          semel_fault *fault);
void sm_pg_disconnect(sm_pg_conn *c); /* accepts NULL */

/* How many tables of a schema are not logged, as one column of a question. */
#define SM_PG_UNLOGGED                                                                             \
    "(SELECT pg_catalog.count(*) FROM pg_catalog.pg_class WHERE relnamespace ="                    \
    " '\"%s\"'::pg_catalog.regnamespace AND relpersistence <> 'p')"

/* Whether these settings promise what the ledger was opened with. They are three columns from
 * `first` on: synchronous_commit, fsync, full_page_writes. */
bool sm_pg_check_durable(const semel_store *st, const PGresult *r, int first, semel_fault *fault);

/* Whether the server is there and says that it takes no connections yet, or any more: it starts,
 * stops or recovers. May block for two seconds. */
bool sm_pg_rejects(const sm_pg_target *target);

/* Whether an idle connection seems to be alive. */
bool sm_pg_alive(sm_pg_conn *c);

/* A lock on a group, taken in the same transaction before the statement is run, whose snapshot is
 * then from after the lock. */
typedef struct sm_pg_lock {
    bool wanted, shared;
    int64_t key;
} sm_pg_lock;

/* Runs one of the list's statements, after the lock and the guard in the same transaction. A guard
 * is the text of a statement that fails if the rest must not be run; NULL: there is none. *sent:
 * the server may have got it. On SM_PG_DONE *out is the caller's to clear; else *err and the fault
 * say what is wrong. */
sm_pg_fate sm_pg_run(const semel_store *st, sm_pg_conn *c, sm_pg_statement which,
                     const sm_pg_args *args, const sm_pg_lock *lock, const char *guard,
                     int64_t deadline_ns, PGresult **out, bool *sent, sm_err *err,
                     semel_fault *fault);

/* Runs any text; results are text too, the last one's if there are several. */
sm_pg_fate sm_pg_run_text(const semel_store *st, sm_pg_conn *c, const char *sql,
                          int64_t deadline_ns, PGresult **out, sm_err *err, semel_fault *fault);

/* ---- pool.c -------------------------------------------------------------------------*/

typedef struct sm_pg_turn sm_pg_turn;

typedef struct sm_pg_pool {
    pthread_mutex_t lock;
    sm_pg_conn *idle;
    int64_t open;              /* connections, and leaves to open one */
    sm_pg_turn *first, **last; /* who waits for one, in order */
} sm_pg_pool;

void sm_pg_pool_init(sm_pg_pool *p);
void sm_pg_pool_fini(sm_pg_pool *p);

/* One question. It is asked until it is answered, the time is up, or asking again cannot help. */
typedef struct sm_pg_question {
    sm_pg_statement which;
    const sm_pg_args *args;
    sm_pg_lock lock;
    bool writes;         /* an unknown end of it is told as such, and a warning makes it one */
    bool evidence;       /* asked although the server has lost something */
    int64_t deadline_ns; /* 0: the store's timeout */
    bool resent;         /* out: an earlier try may have taken effect */
} sm_pg_question;

semel_err sm_pg_ask(semel_store *st, sm_pg_question *q, PGresult **out, semel_fault *fault);

/* For opening and for migrations: a connection, to be put back or dropped. */
semel_err sm_pg_take(semel_store *st, int64_t deadline_ns, sm_pg_conn **out, semel_fault *fault);
void sm_pg_put(semel_store *st, sm_pg_conn *c);
void sm_pg_drop(semel_store *st, sm_pg_conn *c);

/* ---- trust.c ------------------------------------------------------------------------*/

/* What this handle knows of the server, to notice that the server has lost something. */
typedef struct sm_pg_trust {
    pthread_mutex_t lock;
    sm_seen newest;               /* the newest acknowledged event; seq 0: none yet */
    sm_seen last[SM_PG_POOL_MAX]; /* a ring of the events acknowledged last, one per connection */
    size_t seen;                  /* how many were ever put there */
    atomic_llong next;            /* the largest next transaction id that the server has shown */
    atomic_llong judged_ns;       /* when the server was last asked */
    atomic_bool lost;
    sm_mark mark;       /* the note for the next handle */
    atomic_llong noted; /* the number there */
} sm_pg_trust;

/* For a ledger that was just opened on this connection: starts from an earlier handle's note. */
void sm_pg_trust_start(semel_store *st, sm_pg_conn *c, int64_t deadline_ns);

/* Writes the note. */
void sm_pg_trust_note(semel_store *st);

/* An event was acknowledged. */
void sm_pg_seen(semel_store *st, const sm_seen *event);

/* Whether the server is known to have lost acknowledged data. */
bool sm_pg_lost(semel_store *st, semel_fault *fault);

/* Appends a guard for a write behind a pooler; nothing if none is needed. */
void sm_pg_trust_guard(semel_store *st, sm_buf *out);

/* Before a connection is used: whether its server still promises what it did when the ledger was
 * opened, and still has what it acknowledged. Asks on every new connection, and if the last answer
 * is more than a second old. Not SM_PG_DONE: do not use the connection. */
sm_pg_fate sm_pg_trust_conn(semel_store *st, sm_pg_conn *c, int64_t deadline_ns, sm_err *err,
                            semel_fault *fault);

/* ---- open.c -------------------------------------------------------------------------*/

/* A ledger that is being opened. */
typedef struct sm_pg_opening {
    semel_store *st;
    const semel_store_env *env;
    sm_pg_conn *conn;
    int64_t deadline_ns;
    bool lost;          /* the connection is of no more use */
    semel_fault *fault; /* never NULL */
} sm_pg_opening;

/* Looks at the server and at the ledger, makes or upgrades it where that is wanted and allowed, and
 * sets what `st` knows about both. SEMEL_E_BAD_ARGUMENTS: trying again does not help. */
semel_err sm_pg_open(semel_store *st, const semel_store_env *env, semel_fault *fault);

/* Runs a text with @ and # in it; its rows are text. `out` may be NULL. */
semel_err sm_pg_opening_run(sm_pg_opening *o, const char *sql, PGresult **out);

/* What the first row of such a result has: a number (0: no row), a text. */
int64_t sm_pg_number(const PGresult *r, int column);
bool sm_pg_is(const PGresult *r, int column, const char *text);

/* ---- schema.c, views.c -----------------------------------------------------*/

/* The ledger in a server that will do. */
semel_err sm_pg_schema_open(sm_pg_opening *o);

/* Appends the statements that make the views; @ stands for the schema. */
void sm_pg_views_put(sm_buf *b);

/* A copy with @ and # filled in; NULL without memory. */
char *sm_pg_fill_in(const sm_pg_settings *s, const char *sql);

/* ---- wait.c -------------------------------------------------------------------------*/

typedef struct sm_pg_waits {
    sm_bell bell;
    pthread_mutex_t lock;
    pthread_t thread;
    bool started;
    int stop; /* an eventfd */
    atomic_bool listening;
} sm_pg_waits;

void sm_pg_waits_init(sm_pg_waits *w);
void sm_pg_waits_fini(semel_store *st);

/* Whether what `listen` names, if it is given, hears what is told in the ledger's database. */
semel_err sm_pg_listen_try(sm_pg_opening *o);

/* ---- the store -------------------------------------------------------------------------------*/

struct semel_store {
    sm_pg_settings settings;
    char *sql[SM_PGQ_COUNT];
    char names[SM_PGQ_COUNT][SM_PG_STATEMENT_NAME];
    char where[256];      /* for people: database, host and port */
    char durability[256]; /* for people: what a crash may lose */
    char user[64];
    uint32_t caps;
    bool opened;
    sm_gate gate;
    sm_pg_trust trust;
    sm_pg_pool pool;
    sm_pg_waits waits;
    pthread_mutex_t digest_lock;
    sm_digest digest;
};

/* The id of a key's effects. */
semel_err sm_pg_id(semel_store *st, const semel_hash *key, uint64_t *id, semel_fault *fault);

/* ---- functions of the table ------------------------------------------------------------------*/

semel_err sm_pg_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                      semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault);
semel_err sm_pg_apply(semel_store *st, const semel_write *w, semel_room *room, semel_record *cur,
                      int64_t *now, semel_fault *fault);
semel_err sm_pg_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                    int64_t *now, semel_fault *fault);
semel_err sm_pg_query(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                      semel_record_sink *sink, void *context, semel_fault *fault);
semel_err sm_pg_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault);
semel_err sm_pg_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                    semel_fault *fault);
semel_err sm_pg_wait(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                     semel_fault *fault);
semel_err sm_pg_journal(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault);
semel_err sm_pg_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                      semel_note_sink *sink, void *context, semel_fault *fault);
semel_err sm_pg_seal(semel_store *st, const semel_event *seal, uint64_t expect, semel_fault *fault);
semel_err sm_pg_purge(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                      uint64_t *done, bool *left, semel_fault *fault);
semel_err sm_pg_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                        semel_fault *fault);
semel_err sm_pg_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault);
semel_err sm_pg_try_write(semel_store *st, semel_fault *fault);

/* Waits until what was committed before this call can be read by who follows all events, unless
 * some transaction of the server keeps it up for long. *newest is the newest seq of that. */
semel_err sm_pg_settle(semel_store *st, uint64_t *newest, semel_fault *fault);

#endif
