/*
 * Those who wait for somebody else's attempt, for an approval, or for a doubt to be settled,
 * without a thread of their own.
 *
 * Whoever asked (sm_ask) and was told to wait is parked, and is woken by
 *   - a bell: what this process itself did to the effect (sm_waits_ring);
 *   - a watch: for each effect that somebody waits for, one of a few threads waits in the ledger
 *     for what other processes do. With more effects than threads they take turns.
 * Deadlines are their owner's business: it takes the waiter out (sm_waits_leave).
 *
 * A change that comes between asking and parking is not missed: bells count, and one that has rung
 * since it was heard before asking is told at once; and a watch names the version that was seen.
 *
 * From any thread. Whatever may wake somebody (ring, ring_handle, wake_all) is called without a
 * lock of the caller's own, for `wake` may want it; everything else does nothing but its own work
 * under its own lock, and may be called with one held.
 */
#ifndef SM_SERVE_WAITS_H
#define SM_SERVE_WAITS_H

#include "ledger/service.h"

typedef struct sm_waits sm_waits;

/* Lives in whatever waits; zeroed before it is parked first. It and what was asked stay until it
 * has left or has been woken. */
typedef struct sm_waiter {
    const sm_asking *ask;                   /* as sm_ask left it */
    uint64_t heard;                         /* the bell's count before it was asked */
    void (*wake)(struct sm_waiter *waiter); /* without any lock; it is not parked any more */
    struct sm_waiter *next, *prev;
    struct sm_watch *watch; /* NULL: it is not parked */
} sm_waiter;

sm_err sm_waits_new(semel *s, sm_waits **out);

/* Nobody may be parked any more. Accepts NULL. */
void sm_waits_free(sm_waits *w);

/* What is counted of an effect's bell; to be asked before the ledger is. */
uint64_t sm_waits_heard(sm_waits *w, uint64_t id);

/* PARKED: `wake` will be called once, from some thread, unless the caller leaves before; that may
 * happen before this returns. RUNG: the effect has changed since the caller asked, so ask again.
 * NO_ROOM: out of memory, of threads, of the `most` places for all who are parked, or of this
 * actor's share of them (ask->actor, base/shares.h). */
typedef enum sm_parked { SM_PARKED, SM_RUNG, SM_NO_ROOM } sm_parked;
sm_parked sm_waits_park(sm_waits *w, sm_waiter *waiter, size_t most);

/* Takes a waiter out. True: whoever asked for that has it, and nobody wakes it. False: it is being
 * woken, or has been, or was never parked. */
bool sm_waits_leave(sm_waits *w, sm_waiter *waiter);

/* An effect has changed, by whatever this process did. The second takes ef_... or ap_... and
 * ignores anything else. */
void sm_waits_ring(sm_waits *w, uint64_t id);
void sm_waits_ring_handle(sm_waits *w, sm_str handle);

/* Wakes everybody. */
void sm_waits_wake_all(sm_waits *w);

size_t sm_waits_parked(sm_waits *w); /* how many there are */

#endif
