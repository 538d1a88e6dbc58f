/*
 * The Redis store's parts, for its own files.
 *
 *     redis.c     opening and closing; the table of functions
 *     url.c       what the URL says
 *     conn.c      one connection: sockets, deadlines, the greeting
 *     node.c      servers, their pools of connections, the map of a cluster's slots
 *     ask.c       questions in batches: sent by node, followed, asked again
 *     reply.c     reading and checking answers
 *     script.c    the Lua scripts, scripts/NAME.lua: every transition is one
 *     row.c       records, events and notes as bytes
 *     write.c     claim, apply, counters
 *     read.c      get, query, due
 *     log.c       the order of all events; seals
 *     note.c      notes
 *     trust.c     whether the server still has what it has acknowledged
 *     purge.c     housekeeping
 *     wait.c      waiting, and the thread that hears of other processes' writes
 *     settings.c  what a server's settings promise
 *     health.c    what is in the ledger
 *     check.c     whether what leads to records agrees with them
 *
 * Keys. P is the prefix, SS the shard in two hexadecimal digits, ID and G an effect's id and
 * generation. All that one write touches has one hash tag, so it lies in one slot of a cluster.
 *
 *     P{SS}r:ID  a:ID  o:ID     the newest generation: record, arguments, outcome
 *     P{SS}r:ID:G  a:  o:       older ones
 *     P{SS}v:ID                 which older ones there are
 *     P{SS}h:ID                 the effect's events, by stamp
 *     P{SS}all  open            records by birth; those that are not settled, by state and birth
 *     P{SS}due  gone            records by when to look at them, and by when purge may take of them
 *     P{SS}g:GROUP              what runs or is in doubt in a group, by when it bars
 *     P{SS}log                  events that have no seq yet
 *     P{SS}tick                 the last stamp, and the first one: they never go
 *     P{SS}c:NAME               a counter, which the server removes at its end
 *     P{SS}n:ID  notes          notes of an id, and all of them by age; SS is of the id here
 *     P{semel}meta  seq  log  epoch  sealed  seals     what the whole ledger has one of
 *
 * A stamp is the server's time in microseconds, made to grow within its shard: 14 hexadecimal
 * digits. A record's birth is a stamp and its shard: 16 digits, unique in the ledger. A member of
 * the sets of records is birth, id (16 digits) and generation.
 *
 * A write never knows its seq: no counter can be in the same slot as every shard. The order of all
 * events is made when somebody looks (log.c).
 *
 * Locks: a node's, the map's, the ear's (wait.c). A thread holds one at a time, and none
 * while it talks to a server.
 */
#ifndef SM_STORE_REDIS_REDIS_H
#define SM_STORE_REDIS_REDIS_H

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "semel/store.h"
#include "store/shared/bell.h"
#include "store/shared/copy.h"
#include "store/shared/gate.h"
#include "store/shared/mark.h"

#define SM_RD_SHARDS     256u
#define SM_RD_SLOTS      16384u
#define SM_RD_NODES_MAX  512u
#define SM_RD_PREFIX_MAX 64u
#define SM_RD_SCHEMA     2u
#define SM_RD_GLOBAL     SM_RD_SHARDS /* in place of a shard: what the ledger has one of */
#define SM_RD_STAMP      14u          /* characters of a stamp, a birth, an id */
#define SM_RD_BIRTH      16u
#define SM_RD_ID         16u
#define SM_RD_BATCH_MAX  ((size_t)256 << 20) /* bytes of questions, and of answers */

/* ---- what the URL says: url.c ----------------------------------------------------------*/

#define SM_RD_PLACES_MAX 16u
typedef struct sm_rd_place {
    const char *host; /* or the path of a socket */
    int port;         /* 0: a socket */
} sm_rd_place;

typedef struct sm_rd_config {
    sm_rd_place places[SM_RD_PLACES_MAX]; /* the first that can be used is */
    unsigned n_places;
    sm_str user, password;
    int db;
    sm_str prefix;
    unsigned pool;
    int64_t timeout_ms;
    bool accept_loss;
    enum { SM_RD_FIND_OUT, SM_RD_PLAIN, SM_RD_CLUSTER } cluster;
} sm_rd_config;

/* Texts are made in the arena. No fault repeats a part of the URL that may be secret. */
semel_err sm_rd_config_read(sm_arena *a, semel_str url, sm_rd_config *out, semel_fault *fault);

/* Where that is, for people, without its secrets. */
void sm_rd_config_where(const sm_rd_config *c, char *out, size_t n);

/* ---- one connection: conn.c ------------------------------------------------------------*/

typedef struct sm_rd_node sm_rd_node;

typedef struct sm_rd_conn {
    struct sm_rd_conn *next; /* in the pool */
    int fd;
    redisReader *reader;
    redisReplyObjectFunctions make; /* the reader's, but for a bound of arrays */
    redisReplyObjectFunctions *own; /* the reader's as they were */
    int64_t master_ns;              /* when it last said what it is */
    unsigned era;                   /* the node's when it was opened */
    bool reused;
    bool replica; /* of a cluster, when it was opened: what it promises was not judged */
} sm_rd_conn;

/* How an attempt to talk to a server ended. */
typedef enum sm_rd_talk {
    SM_RD_FINE,
    SM_RD_LOST,    /* it is gone, or did not answer in time */
    SM_RD_BUSY,    /* it is there, and says that it will answer later */
    SM_RD_REFUSED, /* it answered, and asking again now will not help */
} sm_rd_talk;

/* How people call a server: HOST:PORT, or the path of its socket. */
#define SM_RD_NODE_NAME 300u /* of a node, for people */
void sm_rd_node_name(const sm_rd_node *node, char out[SM_RD_NODE_NAME]);

/* Connects and greets: the user, the database, and whether it is a master. */
sm_rd_talk sm_rd_conn_open(semel_store *st, sm_rd_node *node, int64_t deadline_ns, sm_rd_conn **out,
                           semel_fault *fault);
void sm_rd_conn_close(sm_rd_conn *c); /* accepts NULL */

/* Whether the server of a connection that was kept is still a master. One of a cluster is not
 * asked: it sends on what is not its own. */
bool sm_rd_conn_is_master(const semel_store *st, sm_rd_conn *c, int64_t deadline_ns);

/* Asks a connection that was made long ago what the server promises now. */
sm_rd_talk sm_rd_conn_check(semel_store *st, const sm_rd_node *node, sm_rd_conn *c,
                            int64_t deadline_ns, semel_fault *fault);

/* Sends what is in `out` and reads `n` answers. *got says how many came; those are the caller's. */
sm_rd_talk sm_rd_exchange(sm_rd_conn *c, sm_str out, redisReply **replies, size_t n, size_t *got,
                          int64_t deadline_ns, const char **why);

/* Reads what is there or comes until then; *reply is NULL if that is no whole answer yet. */
sm_rd_talk sm_rd_hear(sm_rd_conn *c, int stop_fd, int64_t until_ns, redisReply **reply);

/* ---- servers: node.c -------------------------------------------------------------------*/

struct sm_rd_node {
    char *host;
    int port; /* 0: `host` is a socket's path */
    sm_gate gate;
    pthread_mutex_t lock;
    pthread_cond_t freed; /* CLOCK_MONOTONIC */
    sm_rd_conn *idle;
    unsigned open;          /* idle and lent */
    atomic_llong judged_ns; /* when its settings were last looked at */
    atomic_uint era;        /* counts losses of durability: older connections are not used */
    atomic_bool modern;     /* Redis 7 or newer: scripts may say how they are to be run */
};

typedef struct sm_rd_map {
    pthread_mutex_t lock; /* for changes */
    _Atomic(sm_rd_node *) nodes[SM_RD_NODES_MAX];
    atomic_uint n;
    atomic_ushort owner[SM_RD_SLOTS]; /* index of a node */
} sm_rd_map;

semel_err sm_rd_map_init(semel_store *st);
void sm_rd_map_fini(semel_store *st);

/* The node of that address, made if there is none. NULL: out of memory, or too many. */
sm_rd_node *sm_rd_node_of(semel_store *st, const char *host, int port);
sm_rd_node *sm_rd_node_at(semel_store *st, unsigned index);
unsigned sm_rd_node_index(semel_store *st, const sm_rd_node *node);
unsigned sm_rd_owner(semel_store *st, uint16_t slot);
void sm_rd_own(semel_store *st, uint16_t slot, const sm_rd_node *node);

/* Reads the map of a cluster from any node that answers. Of plain servers the first that is a
 * master owns all slots. */
semel_err sm_rd_map_learn(semel_store *st, int64_t deadline_ns, semel_fault *fault);
bool sm_rd_has_others(const semel_store *st); /* servers that may take over from one that fails */

/* The nodes that own slots now; returns how many. */
unsigned sm_rd_masters(semel_store *st, unsigned out[SM_RD_NODES_MAX]);

/* Lends a connection, within the bounds of gate and pool; takes it back, or closes it. */
sm_rd_talk sm_rd_borrow(semel_store *st, sm_rd_node *node, int64_t deadline_ns, sm_rd_conn **out,
                        semel_fault *fault);
void sm_rd_return(sm_rd_node *node, sm_rd_conn *c);
void sm_rd_discard(sm_rd_node *node, sm_rd_conn *c);
void sm_rd_forget_idle(sm_rd_node *node); /* they may be as broken as the one that failed */

uint16_t sm_rd_slot(sm_str key); /* of a key with or without a hash tag */

/* ---- scripts: script.c -----------------------------------------------------------------*/

typedef enum sm_rd_script {
    SM_RD_WRITE,
    SM_RD_RECORD, /* write.lua, for what is under way: a full server does it, too */
    SM_RD_WATCH,
    SM_RD_REAP,
    SM_RD_NUMBER,
    SM_RD_DEQUEUE,
    SM_RD_UNNUMBER,
    SM_RD_SEAL,
    SM_RD_NOTE_DROP,
    SM_RD_CHECK,
    SM_RD_GROUP,
    SM_RD_SCRIPT_COUNT
} sm_rd_script;

#define SM_RD_NO_SCRIPT SM_RD_SCRIPT_COUNT
#define SM_RD_SHA       40u

/* Its text, and how long that is; `out` may be NULL. */
size_t sm_rd_script_put(sm_rd_script script, sm_buf *out);
semel_err sm_rd_script_names(char names[SM_RD_SCRIPT_COUNT][SM_RD_SHA + 1]);

/* ---- questions: ask.c ------------------------------------------------------------------*/

typedef struct sm_rd_shape sm_rd_shape;

typedef struct sm_rd_ask {
    sm_rd_script script;      /* or SM_RD_NO_SCRIPT */
    const sm_rd_shape *shape; /* what is an answer to it; NULL: anything */
    size_t at, len;           /* the arguments, in the batch's bytes */
    unsigned argc;
    uint16_t slot;
    int node;          /* asks this node and no other; -1: the owner of the slot */
    bool once;         /* ... for this time only, after ASKING */
    bool whole;        /* the server does not know the script: send its text */
    bool tolerant;     /* an error is an answer */
    bool unsure;       /* was sent before, and perhaps done, without an answer */
    redisReply *reply; /* owned by the batch */
} sm_rd_ask;

typedef struct sm_rd_batch {
    semel_store *st;
    sm_buf bytes;
    sm_rd_ask *asks;
    size_t n, cap;
    semel_err err; /* remembered by whoever adds */
    bool evidence; /* asked although the store has lost something */
} sm_rd_batch;

void sm_rd_batch_init(sm_rd_batch *b, semel_store *st);
void sm_rd_batch_fini(sm_rd_batch *b);
void sm_rd_batch_clear(sm_rd_batch *b); /* for the next questions; forgets the answers */

/* Begins a question to the node of a shard (or SM_RD_GLOBAL): a command, or a script with so many
 * keys. What follows are its arguments. Errors are remembered until the batch is run. */
void sm_rd_command(sm_rd_batch *b, unsigned shard, const char *name);
void sm_rd_command_at(sm_rd_batch *b, unsigned node, const char *name); /* to this very node */
void sm_rd_call(sm_rd_batch *b, unsigned shard, sm_rd_script script, unsigned keys);

void sm_rd_arg(sm_rd_batch *b, sm_str s);
void sm_rd_arg_text(sm_rd_batch *b, const char *text);
void sm_rd_arg_int(sm_rd_batch *b, int64_t n);
void sm_rd_argf(sm_rd_batch *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A key of a shard or of the whole ledger: "all", and "r:" with an id and perhaps a generation
 * (0: none). */
void sm_rd_key(sm_rd_batch *b, unsigned shard, const char *name);
void sm_rd_key_id(sm_rd_batch *b, unsigned shard, const char *kind, uint64_t id,
                  uint64_t generation);
void sm_rd_key_name(sm_rd_batch *b, unsigned shard, const char *kind, sm_str name);

/* Gets an answer to every question, or fails. Until the deadline it follows redirections, waits for
 * a server that loads or restarts, and asks again. */
semel_err sm_rd_run(sm_rd_batch *b, int64_t deadline_ns, semel_fault *fault);

/* What a server's error means for the caller, in a sentence. */
semel_err sm_rd_explain(sm_str error, semel_fault *fault);

/* ---- answers: reply.c ------------------------------------------------------------------*/

/* What a command, or a script, is answered with; NULL: anything. Whether it was. */
const sm_rd_shape *sm_rd_shape_of(const char *command);
const sm_rd_shape *sm_rd_shape_of_script(sm_rd_script script);
bool sm_rd_fits(const sm_rd_ask *ask);

/* Looked at with care: what is not there is absent. */
static inline const redisReply *sm_rd_reply(const sm_rd_batch *b, size_t i)
{
    return b->asks[i].reply;
}
const redisReply *sm_rd_element(const redisReply *r, size_t i);
size_t sm_rd_elements(const redisReply *r);
sm_str sm_rd_text(const redisReply *r);    /* absent if it is no text */
int64_t sm_rd_number(const redisReply *r); /* a number, or text that is one; 0 if neither */
bool sm_rd_time(const redisReply *r, int64_t *now_ms); /* of the command TIME */

/* ---- bytes: row.c ----------------------------------------------------------------------*/

#define SM_RD_HEAD 35u /* see row.c */
#define SM_RD_TAIL 51u

/* The record as it is stored, but for its birth, which goes between the two. */
void sm_rd_record_pack(const semel_record *r, uint64_t version, char head[SM_RD_HEAD],
                       sm_buf *tail);

/* Reads a record back; its texts point into what was given. Arguments and outcome are absent from
 * it. SEMEL_E_CORRUPT. */
semel_err sm_rd_record_unpack(sm_str bytes, semel_record *out, char birth[SM_RD_BIRTH],
                              semel_fault *fault);

void sm_rd_event_pack(const semel_event *e, sm_buf *out);
semel_err sm_rd_event_unpack(sm_str bytes, semel_event *out, semel_fault *fault);
void sm_rd_note_pack(const semel_note *n, sm_buf *out);
semel_err sm_rd_note_unpack(sm_str bytes, semel_note *out, semel_fault *fault);

/* A member of the sets of records, without or with its state in front. */
typedef struct sm_rd_member {
    char birth[SM_RD_BIRTH];
    uint64_t id, generation;
} sm_rd_member;
bool sm_rd_member_read(sm_str text, sm_rd_member *out);
uint64_t sm_rd_hex(const char *p, size_t n, bool *good);

/* ---- the store -------------------------------------------------------------------------------*/

/* The thread that hears of other processes' writes. */
typedef struct sm_rd_ear {
    pthread_mutex_t lock;
    pthread_t thread;
    bool started;
    int stop_fd; /* an eventfd */
    atomic_bool hears;
} sm_rd_ear;

/* What this handle has seen of a shard: its newest stamp and its first one; 0: nothing yet. */
typedef struct sm_rd_ticks {
    atomic_ullong last, first;
} sm_rd_ticks;

#define SM_RD_NAME 64u

struct semel_store {
    sm_arena arena; /* the configuration */
    sm_rd_config config;
    bool cluster;
    bool opened;           /* from then on a server that is gone may come back */
    bool durable;          /* as it was opened */
    char name[SM_RD_NAME]; /* of the ledger, as its key `meta` says it */
    sm_rd_ticks seen[SM_RD_SHARDS];
    atomic_bool lost;        /* a durable server has lost something: nothing is answered */
    sm_mark mark;            /* for the next handle; of one that is not durable there is none */
    atomic_llong noted_ns;   /* when that was written */
    atomic_ullong greetings; /* connections that were made */
    uint16_t slots[SM_RD_SHARDS + 1];
    char scripts[SM_RD_SCRIPT_COUNT][SM_RD_SHA + 1];
    sm_rd_map map;
    sm_bell bell;
    sm_rd_ear ear;
    atomic_ullong hints[1024]; /* where an id was last seen: all but its last 8 bits, and a shard */
    atomic_ullong serial;      /* for notes */
    atomic_uint tries;         /* of sm_rd_try_write */
    uint64_t tag;              /* of this handle, likewise */
};

int64_t sm_rd_deadline(const semel_store *st);

semel_err sm_rd_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                      semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault);
semel_err sm_rd_apply(semel_store *st, const semel_write *w, semel_room *room, semel_record *cur,
                      int64_t *now, semel_fault *fault);

/* Takes up what the last durable handle of this user has noted, and compares. */
semel_err sm_rd_trust_start(semel_store *st, int64_t deadline_ns, semel_fault *fault);

/* Notes the newest stamp that was seen, for the next handle; `soon`: unless it was just done. */
void sm_rd_trust_note(semel_store *st);
void sm_rd_trust_note_soon(semel_store *st);

/* Before a write: whether the ledger is still the one that was opened, as far as the shard's own
 * ticks cannot tell. */
semel_err sm_rd_trust(semel_store *st, uint8_t shard, int64_t deadline_ns, semel_fault *fault);

/* Puts what was seen of a shard into a question, and takes it from an answer. */
void sm_rd_arg_seen(sm_rd_batch *b, uint8_t shard, bool nothing); /* as if nothing was */
void sm_rd_seen(semel_store *st, uint8_t shard, const redisReply *tick);

/* Whether a shard's key `tick`, if it is there, holds two stamps. */
bool sm_rd_tick_sound(const redisReply *reply);

/* Something that was acknowledged is gone. SEMEL_OK: that was to be expected; what was seen is
 * forgotten. */
semel_err sm_rd_bereft(semel_store *st, semel_fault *fault);
bool sm_rd_lost(semel_store *st, semel_fault *fault); /* whether that has happened for good */

semel_err sm_rd_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                        semel_fault *fault);

/* Where an id was seen, for next time; tells, or says that it does not know. */
void sm_rd_hint(semel_store *st, uint64_t id, uint8_t shard);
bool sm_rd_hinted(semel_store *st, uint64_t id, uint8_t *shard);

/* The id and, if it is known or can be found, the shard of what a ref names. NOT_FOUND. */
semel_err sm_rd_find(semel_store *st, const semel_ref *ref, uint64_t *id, uint8_t *shard,
                     int64_t deadline_ns, semel_fault *fault);

semel_err sm_rd_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                    int64_t *now, semel_fault *fault);
semel_err sm_rd_query(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                      semel_record_sink *sink, void *context, semel_fault *fault);
semel_err sm_rd_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                    semel_fault *fault);

/* Gives every event that was committed before this call its seq; *last is the newest one's. */
semel_err sm_rd_collate(semel_store *st, uint64_t *last, int64_t deadline_ns, semel_fault *fault);
semel_err sm_rd_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault);
semel_err sm_rd_seal(semel_store *st, const semel_event *seal, uint64_t expect, semel_fault *fault);

semel_err sm_rd_journal(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault);
semel_err sm_rd_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                      semel_note_sink *sink, void *context, semel_fault *fault);

semel_err sm_rd_purge(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                      uint64_t *done, bool *left, semel_fault *fault);

void sm_rd_ear_init(semel_store *st);
void sm_rd_ear_fini(semel_store *st);
bool sm_rd_may_wake(semel_store *st, int64_t deadline_ns); /* whether its user may tell and hear */
semel_err sm_rd_wait(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                     semel_fault *fault);

/* What the servers' settings mean for what was acknowledged: empty if nothing may be lost. */
semel_err sm_rd_durability(semel_store *st, char *out, size_t n, char *version, size_t version_n,
                           int64_t deadline_ns, semel_fault *fault);

/* The same for one connection: the questions, as many as there are answers to judge. Refused if the
 * store was opened as durable and this server is not. */
#define SM_RD_SETTINGS 7u
void sm_rd_settings_put(sm_buf *out);
unsigned sm_rd_settings_major(redisReply *const *replies); /* version; 0 if it is not known */
sm_rd_talk sm_rd_settings_judge(semel_store *st, redisReply *const *replies, const char *name,
                                semel_fault *fault);

/* SEMEL_E_CORRUPT with a sentence if something is wrong. */
semel_err sm_rd_check(semel_store *st, semel_fault *fault);
semel_err sm_rd_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault);
semel_err sm_rd_try_write(semel_store *st, semel_fault *fault);

#endif
