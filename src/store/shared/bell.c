/* Buckets of sleeping threads, each with a lock, a condition and a count of rings. */
#include "store/shared/bell.h"

#include <time.h>

void sm_bell_init(sm_bell *b)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (size_t i = 0; i <= SM_BELL_BUCKETS; i++) {
        b->buckets[i] = (sm_bell_bucket){0};
        pthread_mutex_init(&b->buckets[i].lock, NULL);
        pthread_cond_init(&b->buckets[i].rung, &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
}

void sm_bell_fini(sm_bell *b)
{
    for (size_t i = 0; i <= SM_BELL_BUCKETS; i++) {
        pthread_cond_destroy(&b->buckets[i].rung);
        pthread_mutex_destroy(&b->buckets[i].lock);
    }
}

sm_bell_bucket *sm_bell_of(sm_bell *b, const semel_hash *key)
{
    return &b->buckets[key == NULL ? SM_BELL_BUCKETS : key->b[1] % SM_BELL_BUCKETS];
}

uint64_t sm_bell_enter(sm_bell_bucket *k)
{
    pthread_mutex_lock(&k->lock);
    k->sleepers++;
    uint64_t turn = k->turns;
    pthread_mutex_unlock(&k->lock);
    return turn;
}

void sm_bell_leave(sm_bell_bucket *k)
{
    pthread_mutex_lock(&k->lock);
    k->sleepers--;
    pthread_mutex_unlock(&k->lock);
}

uint64_t sm_bell_sleep(sm_bell_bucket *k, uint64_t turn, int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    pthread_mutex_lock(&k->lock);
    int rc = 0;
    while (k->turns == turn && rc == 0)
        rc = pthread_cond_timedwait(&k->rung, &k->lock, &until);
    turn = k->turns;
    pthread_mutex_unlock(&k->lock);
    return turn;
}

static void ring(sm_bell_bucket *k)
{
    pthread_mutex_lock(&k->lock);
    if (k->sleepers > 0) {
        k->turns++;
        pthread_cond_broadcast(&k->rung);
    }
    pthread_mutex_unlock(&k->lock);
}

void sm_bell_ring(sm_bell *b, const semel_hash *key)
{
    ring(sm_bell_of(b, key));
}

void sm_bell_ring_all(sm_bell *b)
{
    for (size_t i = 0; i <= SM_BELL_BUCKETS; i++)
        ring(&b->buckets[i]);
}
