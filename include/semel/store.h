/*
 * Stores: what keeps the ledger's records.
 *
 * A store is a table of functions. It keeps records, events, counters and notes, and knows nothing
 * about what they mean: every rule of an effect's life is in the library above. What a store must
 * get right is atomicity, durability, order and waking waiters; one conformance suite checks it.
 *
 * For every function:
 *   - it may be called from any thread at any time between open and close;
 *   - SEMEL_E_UNAVAILABLE means that nothing is known to have been recorded and that the call may
 *     be tried again later; SEMEL_E_CORRUPT that this ledger is damaged; in both cases `fault` (may
 *     be NULL) has a sentence that says what to do. SEMEL_E_NOMEM is possible everywhere. A store
 *     never goes on by guessing (I8);
 *   - texts in what is passed in are borrowed for the call. Texts in records and events that come
 *     out of `claim`, `apply`, `peek` and `get` are allocated from `room` and belong to the caller;
 *     those given to a sink are borrowed until the sink returns;
 *   - times are milliseconds since 1970 by the store's clock; 0 is absent and INT64_MAX is never.
 *
 * How this grows
 *
 *   SEMEL_STORE_VERSION counts the versions of this header. A store's table starts with its size,
 *   and with the version that the store was compiled against.
 *
 *   - The table, semel_write, semel_ref, semel_room and semel_store_env grow at their end.
 *   - semel_record, semel_filter and semel_health lie within other structures, so their sizes stay.
 *     What is new takes the place of spare words, which are zero until then.
 *   - semel_event, semel_counter and semel_note stay as they are. What is new about an event goes
 *     into its `body`. Most of what is new about an effect goes into its `life`, which is opaque.
 *     Neither needs a new version.
 *
 *   A store that was compiled against an older version goes on working. What its table does not
 *   have counts as NULL. The library gives such a store zero in every field that came later, and
 *   zero always means what it meant before. It refuses a call that cannot do without, since a store
 *   cannot keep what it does not know (I8).
 *
 *   semel_open refuses a store that was compiled against a newer version than the library: it may
 *   count on fields and answers that the library does not give. It also refuses a table whose size
 *   or version is not set. The fault's code is SEMEL_E_BAD_ARGUMENTS.
 */
#ifndef SEMEL_STORE_H
#define SEMEL_STORE_H

#include "semel/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header, see above. */
#define SEMEL_STORE_VERSION 1

/* Memory of whoever asks. NULL when there is none left. A store may allocate from a thread of its
 * own while the caller waits for it, but from one thread at a time. */
typedef struct semel_room {
    void *(*alloc)(struct semel_room *room, size_t n);
} semel_room;

/*
 * One generation of one key. (id, generation) names it. `id` is the first 8 bytes, big-endian, of
 * SHA-256 over "semel-effect-1" and the key (1 if they are all zero), so that a store may find
 * either from the key. Equal ids mean equal keys but for a collision of 64 bits, which a store must
 * answer with SEMEL_E_CORRUPT rather than confuse the two.
 */
typedef struct semel_record {
    semel_hash key;
    uint64_t id;
    uint64_t generation; /* from 1 */
    uint64_t version;    /* from 1; grows by one with every write to this generation */
    uint8_t shard;       /* first byte of SHA-256 of the scope's first segment */
    uint8_t state;       /* semel_state */
    uint8_t tombstone;   /* kept after its window to inform: payloads go, the record stays longer */
    uint64_t fence;
    semel_hash group;       /* of scope and tool: what a barrier is about; zero: no barrier */
    semel_hash fingerprint; /* of tool and full arguments */
    semel_hash head;        /* hash of the newest event */
    uint64_t events;        /* how many there are */
    int64_t created_at;
    int64_t updated_at;
    int64_t lease_end;           /* running, else 0 */
    int64_t due_at;              /* when somebody should look at it; 0: nothing is due */
    int64_t settled_at;          /* 0 until settled; the next three likewise */
    int64_t result_end;          /* the outcome's bytes may go */
    int64_t window_end;          /* the key is free, the arguments may go */
    int64_t purge_at;            /* the record may go */
    semel_str scope, step, tool; /* step may be absent */
    semel_str caller;            /* the caller's own key; may be absent */
    semel_str args;              /* canonical JSON without what the contract redacts */
    semel_str life;              /* opaque: the rest of the life's state */
    semel_str outcome;           /* opaque: what the tool returned; absent if nothing or dropped */
    uint64_t spare[4];           /* zero */
} semel_record;

/*
 * One entry of the audit trail, written in the same atomic write as the change it is about (I9).
 * The events of an effect are numbered from 1 and each carries the hash of the one before it. Seals
 * are events of no effect (id 0): they form one chain of their own.
 */
typedef struct semel_event {
    uint64_t seq; /* given by the store: grows over the whole ledger, in the order of commits */
    uint64_t id;
    uint64_t generation;
    uint8_t shard;  /* the effect's */
    uint64_t index; /* from 1 within the effect, or among seals */
    int64_t at;
    semel_str what;  /* "started", or several: "doubted,started" */
    semel_str actor; /* who caused it; may be absent */
    semel_str body;  /* a JSON object */
    semel_hash prev, hash;
} semel_event;

/* A number that is changed together with a record. The write is refused if the counter would exceed
 * `cap`; a negative delta is never refused. Purge removes a counter when the latest `until` of its
 * writes is over; the next write to it starts from 0. */
typedef struct semel_counter {
    semel_str name;
    int64_t delta;
    int64_t cap;   /* INT64_MAX: none */
    int64_t until; /* 0: the counter stays for ever */
} semel_counter;

/*
 * A write. `now` is the store's time that its times were reckoned with, as the caller knows it:
 * what the store gave out with the record, or with another answer a moment ago. A store with a
 * clock of its own (SEMEL_STORE_CLOCK) refuses a write whose `now` is more than
 * SEMEL_CLOCK_SLACK_MS away from it with SEMEL_E_STALE: the caller's idea of its time was wrong, or
 * the write was long under way. It never moves the times that are in the write, for the event's
 * hash is made of them.
 */
#define SEMEL_CLOCK_SLACK_MS 30000

typedef struct semel_write {
    semel_record next;
    uint64_t expect_generation, expect_version; /* apply: what the write was reckoned from */
    int64_t now;
    semel_event event; /* seq is not set */
    const semel_counter *counters;
    size_t n_counters;
    bool barred_by_group; /* refuse while another key of next.group is in doubt */
    bool alone;           /* with that: also while another key of the group runs at all */
    bool same_args;       /* apply: `next.args` is as stored, and need not be written again */
    bool same_outcome;    /* apply: likewise */
    bool evidence; /* it puts back what the store has lost: the handle takes it, although it refuses
                      everything else because of that loss */
} semel_write;

/* Something that happened without changing a record, such as replays. Outside of the chain. */
typedef struct semel_note {
    uint64_t id; /* 0: a call without a record */
    uint64_t generation;
    int64_t first_at, last_at;
    uint64_t count;
    semel_str what; /* "replayed", "passed", or "observed" or "refused" and a code */
    semel_str scope, tool;
} semel_note;

/* Names one record: by key (the newest generation), or by id and generation (0: the newest). A
 * store that keeps shards apart looks into all of them if the shard is not known. */
typedef struct semel_ref {
    const semel_hash *key; /* NULL: by id */
    uint64_t id;
    uint64_t generation;
    bool sharded; /* the next is known */
    uint8_t shard;
} semel_ref;

/* Which records a query gives. All given conditions must hold. */
typedef struct semel_filter {
    uint32_t states;         /* bits 1u << state; 0: any state */
    semel_str tool;          /* a name, or a pattern with * and ?; absent: any */
    semel_str scope;         /* whole leading segments; absent: any */
    int64_t since, until;    /* created_at in [since, until); 0: no bound */
    const semel_hash *group; /* NULL: any */
    uint64_t spare[4];       /* zero */
} semel_filter;

typedef struct semel_health {
    uint64_t records;                    /* about how many */
    uint64_t in_state[SEMEL_STATES_MAX]; /* exact for the states that are not settled, else 0 */
    uint64_t bytes;                      /* on disk or in memory */
    uint64_t last_seq;                   /* of the newest event ever, purged or not; 0 none */
    uint64_t seal_seq;                   /* newest seal, 0 none */
    uint64_t seal_index;
    semel_hash seal_hash;
    int64_t seal_at;
    int64_t oldest_event_at; /* seals left out; 0: there is none */
    uint64_t schema;
    char where[512];      /* for people: the file, or the server without its secrets */
    char server[128];     /* for people: what keeps it, such as "PostgreSQL 15.18" */
    char durability[512]; /* for people: what a crash of the machine may lose; empty: nothing */
    uint64_t purged_to;   /* events up to this number count as purged; 0: the store keeps no such
                             number */
    uint64_t spare[8];    /* zero */
} semel_health;

/* Sinks return false to stop. */
typedef bool semel_record_sink(void *context, const semel_record *r, int64_t now);
typedef bool semel_event_sink(void *context, const semel_event *e);
typedef bool semel_note_sink(void *context, const semel_note *n);

enum {
    SEMEL_STORE_DURABLE = 1, /* what was acknowledged survives a crash of the machine */
    SEMEL_STORE_SHARED = 2,  /* other processes may use it at the same time */
    SEMEL_STORE_CLOCK = 4,   /* time is the store's own, not this machine's */
    SEMEL_STORE_NOTIFY = 8,  /* `wait` is woken by other processes' writes too */
    SEMEL_STORE_LOSSY = 16,  /* a crash may lose what was acknowledged, and nobody has agreed to
                                that: nothing irreversible is begun on it */
};

/* What a store is opened with. Look at nothing beyond its size. */
typedef struct semel_store_env {
    size_t size;         /* sizeof this, in the version of the library */
    size_t cache_bytes;  /* for settled records, if the store keeps a cache */
    bool must_exist;     /* do not make a new ledger */
    bool migrate;        /* make it, or bring it up to this version's schema */
    uint32_t partitions; /* with migrate: of a new ledger's tables, where the store has such */
    bool default_place;  /* the user named no ledger: its directories may be made too */
} semel_store_env;

typedef struct semel_store semel_store;

/*
 * If a durable store finds that it has lost acknowledged data, it refuses everything but evidence
 * from then on: nobody can know what ran. It answers SEMEL_E_UNAVAILABLE, and the fault's code is
 * SEMEL_E_CORRUPT.
 */

typedef struct semel_store_ops {
    size_t size;        /* sizeof(semel_store_ops) */
    uint32_t version;   /* SEMEL_STORE_VERSION */
    const char *scheme; /* "memory", "sqlite" */

    /* Opens what `url` names (the whole URL, scheme included), making it where that is possible and
     * allowed. SEMEL_E_UNAVAILABLE: it is not there, is something else, cannot be written, or was
     * made by a newer version; if the fault's code is SEMEL_E_BAD_ARGUMENTS, a person has to put
     * something right. Sets *caps. May block on I/O. */
    semel_err (*open)(semel_str url, const semel_store_env *env, semel_store **out, uint32_t *caps,
                      semel_fault *fault);

    /* Lets go of everything. No other call is under way, and none follows. Accepts NULL. */
    void (*close)(semel_store *st);

    /* Insert or get: the one way in which a key's first generation comes to be.
     *
     * If there is no record of fresh->next.key, the record (version 1), its event and its counters
     * are written, *inserted is true and *cur is what was written. Otherwise nothing is written and
     * *cur is the newest generation. Either is durable on return: what *cur says was not only
     * pending somewhere. *now is the store's time of the decision.
     *
     * SEMEL_E_BARRED: fresh->barred_by_group, and another key of the group is in doubt, or runs
     * with a lease that is over, or runs (fresh->alone); *cur is that record. SEMEL_E_OVER_CAP.
     * SEMEL_E_STALE: fresh->now is not the store's time, and there is no record; cur->version is 0,
     * and *now is right. Nothing is written in these cases.
     *
     * After SEMEL_E_UNAVAILABLE it is unknown whether the write took effect: get tells. */
    semel_err (*claim)(semel_store *st, const semel_write *fresh, semel_room *room,
                       semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault);

    /* Compare and swap. The newest generation of w->next.key must be expect_generation, with
     * version expect_version. If the write changes that generation, its head must be w->event.prev:
     * a record that was lost, and made anew by others, may have the same version.
     *
     * If w->next.generation is that generation, the record is replaced and its version grows by
     * one; if it is the one after it, a new record begins with version 1 and the old one stays as
     * it is. The event and the counters are written with it. All is durable on return; waiters are
     * woken. On success *cur is what was written.
     *
     * SEMEL_E_STALE: another generation, version or head, or w->now is not the store's time; *cur
     * is the newest generation as it is. SEMEL_E_NOT_FOUND: there is no record. SEMEL_E_BARRED
     * (*cur is the record in doubt), SEMEL_E_OVER_CAP. Nothing is written in these cases.
     *
     * After SEMEL_E_UNAVAILABLE it is unknown whether the write took effect: get tells. */
    semel_err (*apply)(semel_store *st, const semel_write *w, semel_room *room, semel_record *cur,
                       int64_t *now, semel_fault *fault);

    /* The newest generation of a key, if this process knows it for sure without any I/O; else
     * SEMEL_E_NOT_FOUND, which says nothing. Only settled records need be known. May be NULL. */
    semel_err (*peek)(semel_store *st, const semel_hash *key, semel_room *room, semel_record *cur,
                      int64_t *now);

    /* One record as it is durably now. SEMEL_E_NOT_FOUND, with *now all the same. */
    semel_err (*get)(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                     int64_t *now, semel_fault *fault);

    /* Records, the newest first, all generations. *cursor is 0 to start, and afterwards what to
     * pass for more; 0 again when there is no more. Gives at most `limit` records and may give
     * fewer before the end (a store bounds the work of one call), so look at the cursor. */
    semel_err (*query)(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                       semel_record_sink *sink, void *context, semel_fault *fault);

    /* Events with seq > *after in order of seq, at most `limit`: with `of` NULL all of them, seals
     * too, else those of one effect, named by its id (all of its generations if generation is 0).
     * *after becomes the last one given. Whoever reads all of them misses none: an event whose seq
     * is smaller than one that was given never appears later. */
    semel_err (*events)(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                        semel_event_sink *sink, void *context, semel_fault *fault);

    /* Records that are not settled and whose due_at is at or before the store's now, the longest
     * due first: lost leases, expiring requests, notices that nobody got. */
    semel_err (*due)(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                     semel_fault *fault);

    /* Blocks until the newest generation of of->key is another than (of->generation, version) or is
     * gone, or until CLOCK_MONOTONIC reaches deadline_ns: SEMEL_E_TIMEOUT, at once and never later
     * than a scheduler's delay. May return SEMEL_OK early for no reason. With `of` NULL: until
     * there is an event after seq `version`. */
    semel_err (*wait)(semel_store *st, const semel_ref *of, uint64_t version, int64_t deadline_ns,
                      semel_fault *fault);

    /* Writes notes. May be lost in a crash. */
    semel_err (*journal)(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault);

    /* The notes of one effect (all of its generations if generation is 0), oldest first; with id 0
     * the notes of calls without a record. At most `limit`, the newest ones. */
    semel_err (*notes)(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                       semel_note_sink *sink, void *context, semel_fault *fault);

    /* Writes a seal if the newest seal's seq is still `expect` (0: there is none yet), else
     * SEMEL_E_STALE. Durable on return. */
    semel_err (*seal)(semel_store *st, const semel_event *seal, uint64_t expect,
                      semel_fault *fault);

    /* Housekeeping by the store's clock, in one short transaction that touches at most `limit`
     * records, events, notes and counters: outcomes after result_end, arguments too after
     * window_end, records after purge_at (settled, or state none); events but not seals with seq <=
     * events_to; notes older than notes_before; counters whose `until` is over. *left says whether
     * there is more to do; *done grows by what was removed. There is a seal with seq > events_to:
     * the newest event is never removed. */
    semel_err (*purge)(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                       uint64_t *done, bool *left, semel_fault *fault);

    /* The value of a counter; 0 if it was never written or was removed. A counter belongs to the
     * shard of the records that it was written with: one name is used in one shard only. */
    semel_err (*counter)(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                         semel_fault *fault);

    /* The state of the store. If `thorough`, it also checks itself, which may take long:
     * SEMEL_E_CORRUPT with a sentence if something is wrong. Every record must be found by its key,
     * its id and its group, and everything derived from records must agree with them. Writes
     * meanwhile must not disturb the check. */
    semel_err (*health)(semel_store *st, bool thorough, semel_health *out, semel_fault *fault);

    /* Whether a write would succeed now: SEMEL_OK, or its error. Makes a durable write that changes
     * nothing, unless a write has just succeeded. May block as a write does. May be NULL: then
     * health answers for writes too. */
    semel_err (*try_write)(semel_store *st, semel_fault *fault);

    /* In a child made by fork, of a store that its parent has open: lets go of what the child
     * inherited, and writes nothing. No other thread of the child knows the store, and it is not
     * used any more; its memory may stay. May be NULL: then everything stays. */
    void (*forsake)(semel_store *st);
} semel_store_ops;

#ifdef __cplusplus
}
#endif

#endif
