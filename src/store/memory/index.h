/*
 * What the memory store finds things with: a hash table and a heap of times, both intrusive.
 *
 * Their nodes are members of what they index, so adding to them allocates nothing but room for
 * pointers, and that can be had before a write begins. They have no locks of their own.
 */
#ifndef SM_STORE_MEMORY_INDEX_H
#define SM_STORE_MEMORY_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/container.h"

/* ---- a chained hash table --------------------------------------------------------------------*/

/* Several links may have one hash: whoever looks compares. */
typedef struct sm_mem_link {
    struct sm_mem_link *next;
    uint64_t hash;
} sm_mem_link;

typedef struct sm_mem_table {
    sm_mem_link **buckets;
    size_t mask;
    size_t count;
} sm_mem_table;

bool sm_table_init(sm_mem_table *t); /* false: out of memory */
void sm_table_fini(sm_mem_table *t); /* the table, not what is in it; accepts a zeroed one */

/* Never fails: a table that cannot grow becomes slower. */
void sm_table_add(sm_mem_table *t, sm_mem_link *link, uint64_t hash);
void sm_table_remove(sm_mem_table *t, sm_mem_link *link);

/* The first link with this hash, and the next one after `link`; NULL when there is none. */
static inline sm_mem_link *sm_table_same(sm_mem_link *link, uint64_t hash)
{
    while (link != NULL && link->hash != hash)
        link = link->next;
    return link;
}

static inline sm_mem_link *sm_table_first(const sm_mem_table *t, uint64_t hash)
{
    return sm_table_same(t->buckets[hash & t->mask], hash);
}

static inline sm_mem_link *sm_table_next(const sm_mem_link *link)
{
    return sm_table_same(link->next, link->hash);
}

/* Takes a link out of the table; NULL when it is empty. For letting go of everything: *from is 0 to
 * start, and nothing is added meanwhile. */
sm_mem_link *sm_table_take(sm_mem_table *t, size_t *from);

/* A well mixed hash of a number. */
static inline uint64_t sm_number_hash(uint64_t x)
{
    x = (x ^ x >> 32) * 0x9E3779B97F4A7C15u;
    return x ^ x >> 29;
}

/* ---- a heap of times -------------------------------------------------------------------------*/

typedef struct sm_mem_timer {
    int64_t at;
    size_t place; /* in the heap, from 1; 0: in none */
} sm_mem_timer;

typedef struct sm_heap {
    sm_mem_timer **p;
    size_t n, cap;
} sm_heap;

/* Makes room for `n` timers in all; false: out of memory, and nothing changed. */
bool sm_heap_reserve(sm_heap *h, size_t n);
void sm_heap_fini(sm_heap *h);

/* Puts a timer in, or moves it. There must be room. */
void sm_heap_set(sm_heap *h, sm_mem_timer *t, int64_t at);

/* Takes a timer out, if it is in. */
void sm_heap_remove(sm_heap *h, sm_mem_timer *t);

/* The earliest timer if it is at or before `now`, else NULL. */
static inline sm_mem_timer *sm_heap_due(const sm_heap *h, int64_t now)
{
    return h->n > 0 && h->p[0]->at <= now ? h->p[0] : NULL;
}

/* Whether parents come before their children, and every timer knows its place. */
bool sm_heap_sound(const sm_heap *h);

#endif
