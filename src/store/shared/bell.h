/*
 * A bell for those who wait: buckets of sleeping threads of this process, by key.
 *
 * Whoever waits comes in first, then looks whether there is news, and sleeps if there is none; so
 * news is either seen or rings. A ring may be for another key of the same bucket: what counts is
 * what is read afterwards.
 */
#ifndef SM_STORE_SHARED_BELL_H
#define SM_STORE_SHARED_BELL_H

#include <pthread.h>

#include "semel/types.h"

#define SM_BELL_BUCKETS 64u

typedef struct sm_bell_bucket {
    pthread_mutex_t lock;
    pthread_cond_t rung; /* CLOCK_MONOTONIC */
    uint64_t turns;      /* rings that somebody heard */
    size_t sleepers;
} sm_bell_bucket;

typedef struct sm_bell {
    sm_bell_bucket buckets[SM_BELL_BUCKETS + 1]; /* the last: who waits for any event */
} sm_bell;

void sm_bell_init(sm_bell *b);
void sm_bell_fini(sm_bell *b);

/* The bucket of a key; NULL: of any event. */
sm_bell_bucket *sm_bell_of(sm_bell *b, const semel_hash *key);

/* Comes in and returns the turn to sleep after; goes out. */
uint64_t sm_bell_enter(sm_bell_bucket *k);
void sm_bell_leave(sm_bell_bucket *k);

/* Sleeps until it has rung since `turn`, or until that time of CLOCK_MONOTONIC. Returns the turn to
 * sleep after next; the same one if the time is up. */
uint64_t sm_bell_sleep(sm_bell_bucket *k, uint64_t turn, int64_t until_ns);

void sm_bell_ring(sm_bell *b, const semel_hash *key); /* NULL: those who wait for any event */
void sm_bell_ring_all(sm_bell *b);

#endif
