/*
 * The memory store's parts, for its own files.
 *
 *     stripe (64)             slot: one key        entry: one generation      item: one version
 *     lock, table of slots -> newest, ...     ->   older, timers, ...     ->  record and its texts
 *
 * An item is immutable and counted: whoever holds a count may read it without a lock. A write makes
 * a new item and swaps a pointer.
 *
 * The commit lock guards all that spans keys: the log of events, seals, counters, ids, groups,
 * states, timers, and the order of records. It makes the order of commits.
 *
 * Locks, in the order in which they are taken:
 *     1. one stripe's lock
 *     2. the commit lock
 *     3. the notes' lock (alone: nothing is held with it)
 * No two stripes are ever held together, and no lock is held while a sink runs.
 *
 * What a lock guards:
 *   - a stripe's lock: its table and waiters, slot.newest, entry.older;
 *   - the commit lock: everything in sm_memory that is not the stripes' or the notes';
 *   - both: entry.item. To read it either is enough, to swap it takes both. So a reader of a
 *     record sees the event of its newest write, and a reader of an event sees the write (I9).
 *
 * Nothing is evicted. A record leaves by purge, when it is settled and its time is over.
 */
#ifndef SM_STORE_MEMORY_MEMORY_H
#define SM_STORE_MEMORY_MEMORY_H

#include <pthread.h>
#include <stdatomic.h>

#include "semel/store.h"
#include "store/memory/index.h"
#include "store/shared/copy.h"

#include "base/clock.h"

#define SM_MEMORY_STRIPES 64u
#define SM_MEMORY_BATCH   256u /* records or events that are gathered under one hold of the lock */

typedef struct sm_item {
    atomic_uint held;
    size_t n; /* bytes of text */
    semel_record r;
    char text[];
} sm_item;

typedef struct sm_entry {
    sm_item *item;
    struct sm_entry *older; /* the generation before, if it is still there */
    uint64_t number;        /* place in the order in which records began */
    sm_mem_timer due;       /* not settled: due_at */
    sm_mem_timer gone;      /* settled or none: when purge has something to take from it */
    sm_mem_link in_group;   /* running or in doubt, with a group */
    bool grouped;
} sm_entry;

typedef struct sm_mem_slot {
    sm_mem_link link;
    semel_hash key;
    sm_entry *newest;
} sm_mem_slot;

/* Somebody who waits for a key to change. It lives on the waiter's stack. */
typedef struct sm_waiter {
    struct sm_waiter *next;
    const semel_hash *key;
    pthread_cond_t changed;
} sm_waiter;

typedef struct sm_mem_stripe {
    pthread_mutex_t lock;
    sm_mem_table slots;
    sm_waiter *waiters;
} __attribute__((aligned(64))) sm_mem_stripe;

typedef struct sm_logged {
    atomic_uint held;
    size_t n;
    struct sm_logged *next; /* of the same id */
    semel_event e;
    char text[];
} sm_logged;

/* What an id belongs to, as long as there are records or events of it. */
typedef struct sm_ident {
    sm_mem_link link;
    uint64_t id;
    semel_hash key;
    size_t records;
    sm_logged *first, *last; /* its events */
} sm_ident;

/* Events in order of seq; the first `head` are gone. */
typedef struct sm_mem_log {
    sm_logged **p;
    size_t head, n, cap;
} sm_mem_log;

/* Records in the order in which they began; an entry that is gone leaves its number until the next
 * time that the gaps are closed. */
typedef struct sm_order {
    struct {
        uint64_t number;
        sm_entry *entry;
    } * p;
    size_t n, cap, gaps;
} sm_order;

typedef struct sm_tally {
    sm_mem_link link;
    int64_t value;
    int64_t next; /* while a write is being judged */
    bool judged;
    int64_t until;     /* INT64_MAX: it stays; 0: not written yet */
    sm_mem_timer over; /* until */
    size_t n;
    char name[];
} sm_tally;

/* The notes of one id, oldest first. */
typedef struct sm_notebook {
    sm_mem_link link;
    uint64_t id;
    struct sm_jotted *first, *last;
} sm_notebook;

typedef struct sm_jotted {
    struct sm_notebook *book;
    struct sm_jotted *next, *prev;
    sm_mem_timer old; /* last_at */
    semel_note note;
    size_t n;
    char text[];
} sm_jotted;

typedef struct sm_memory {
    sm_mem_stripe stripes[SM_MEMORY_STRIPES];
    pthread_condattr_t monotonic;
    atomic_size_t bytes;

    pthread_mutex_t commit;
    pthread_cond_t logged; /* there is a new event */
    size_t log_waiters;
    uint64_t last_seq;
    sm_mem_log log;   /* of effects */
    sm_mem_log seals; /* seals stay when events go */
    sm_mem_table ids;
    sm_mem_table tallies;
    sm_mem_table groups;
    sm_heap due, gone, tallies_over;
    uint64_t last_number;
    sm_order order;
    uint64_t records;
    uint64_t in_state[SEMEL_S_COUNT];

    pthread_mutex_t notes_lock;
    sm_mem_table notes;
    sm_heap notes_old;
} sm_memory;

static inline sm_memory *sm_memory_of(semel_store *st)
{
    return (sm_memory *)(void *)st;
}

/* ---- records: memory.c -----------------------------------------------------------------------*/

/* Keys are uniform: their first bytes choose the stripe, the next ones are the hash. */
sm_mem_stripe *sm_memory_stripe(sm_memory *m, const semel_hash *key);
uint64_t sm_memory_hash(const semel_hash *h);
sm_mem_slot *sm_memory_slot(const sm_mem_stripe *s, const semel_hash *key);

/* An item with a copy of the record and its texts, held once. NULL: out of memory. */
sm_item *sm_item_new(sm_memory *m, const semel_record *r);
void sm_item_hold(sm_item *item);
void sm_item_drop(sm_memory *m, sm_item *item); /* accepts NULL */

/* The record for somebody else, its texts in one piece of their room. */
semel_err sm_item_copy(const sm_item *item, semel_room *room, semel_record *out);

/* Puts an entry into the indexes that its item calls for, and takes it out of them. The commit lock
 * is held, and there is room in the heaps. */
void sm_entry_index(sm_memory *m, sm_entry *e);
void sm_entry_unindex(sm_memory *m, sm_entry *e);

/* Wakes those who wait for this key. The stripe's lock is held. */
void sm_stripe_wake(sm_mem_stripe *s, const semel_hash *key);

sm_ident *sm_ident_find(sm_memory *m, uint64_t id);
void sm_ident_tidy(sm_memory *m, sm_ident *ident); /* frees it if nothing is left of it */

/* The first place in the order whose number is at least `number`. */
size_t sm_order_find(const sm_order *o, uint64_t number);

/* ---- writes: write.c ------------------------------------------------------------------*/

semel_err sm_memory_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                          semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault);
semel_err sm_memory_apply(semel_store *st, const semel_write *w, semel_room *room,
                          semel_record *cur, int64_t *now, semel_fault *fault);
semel_err sm_memory_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                            semel_fault *fault);

/* ---- events, notes: log.c -------------------------------------------------------------*/

sm_logged *sm_logged_new(sm_memory *m, const semel_event *e);
void sm_logged_drop(sm_memory *m, sm_logged *l); /* accepts NULL */

bool sm_log_reserve(sm_mem_log *log); /* room for one more */

/* Gives the event its seq and wakes who waits for it. The commit lock is held; there is room. */
void sm_log_append(sm_memory *m, sm_mem_log *log, sm_logged *l);

semel_err sm_memory_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                           semel_event_sink *sink, void *context, semel_fault *fault);
semel_err sm_memory_seal(semel_store *st, const semel_event *seal, uint64_t expect,
                         semel_fault *fault);
semel_err sm_memory_journal(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault);
semel_err sm_memory_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                          semel_note_sink *sink, void *context, semel_fault *fault);
void sm_jotted_free(sm_memory *m, sm_jotted *j); /* takes it out of its book and the heap */

/* ---- queries: query.c -----------------------------------------------------------------*/

semel_err sm_memory_query(semel_store *st, const semel_filter *filter, uint64_t *cursor,
                          size_t limit, semel_record_sink *sink, void *context, semel_fault *fault);
semel_err sm_memory_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                        semel_fault *fault);

/* ---- housekeeping: keep.c -------------------------------------------------------------*/

semel_err sm_memory_purge(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                          uint64_t *done, bool *left, semel_fault *fault);
semel_err sm_memory_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault);

#endif
