/* The chained table doubles when it holds as many links as buckets; the heap is binary. */
#include "store/memory/index.h"

#include <assert.h>
#include <stdlib.h>

#define BUCKETS_MIN 16u
#define TIMERS_MIN  64u

bool sm_table_init(sm_mem_table *t)
{
    *t = (sm_mem_table){.mask = BUCKETS_MIN - 1};
    t->buckets = calloc(BUCKETS_MIN, sizeof *t->buckets);
    return t->buckets != NULL;
}

void sm_table_fini(sm_mem_table *t)
{
    free(t->buckets);
    *t = (sm_mem_table){0};
}

static void grow(sm_mem_table *t)
{
    size_t size = (t->mask + 1) * 2;
    sm_mem_link **buckets = calloc(size, sizeof *buckets);
    if (buckets == NULL)
        return;
    for (size_t i = 0; i <= t->mask; i++) {
        for (sm_mem_link *link = t->buckets[i], *next; link != NULL; link = next) {
            sm_mem_link **bucket = &buckets[link->hash & (size - 1)];
            next = link->next;
            link->next = *bucket;
            *bucket = link;
        }
    }
    free(t->buckets);
    t->buckets = buckets;
    t->mask = size - 1;
}

void sm_table_add(sm_mem_table *t, sm_mem_link *link, uint64_t hash)
{
    if (t->count > t->mask)
        grow(t);
    sm_mem_link **bucket = &t->buckets[hash & t->mask];
    *link = (sm_mem_link){.next = *bucket, .hash = hash};
    *bucket = link;
    t->count++;
}

void sm_table_remove(sm_mem_table *t, sm_mem_link *link)
{
    sm_mem_link **at = &t->buckets[link->hash & t->mask];
    while (*at != link) {
        assert(*at != NULL);
        at = &(*at)->next;
    }
    *at = link->next;
    t->count--;
}

sm_mem_link *sm_table_take(sm_mem_table *t, size_t *from)
{
    if (t->count == 0)
        return NULL;
    while (t->buckets[*from] == NULL)
        ++*from;
    sm_mem_link *link = t->buckets[*from];
    t->buckets[*from] = link->next;
    t->count--;
    return link;
}

bool sm_heap_reserve(sm_heap *h, size_t n)
{
    if (n <= h->cap)
        return true;
    size_t cap = h->cap == 0 ? TIMERS_MIN : h->cap * 2;
    if (cap < n)
        cap = n;
    sm_mem_timer **p = realloc(h->p, cap * sizeof *p);
    if (p == NULL)
        return false;
    h->p = p;
    h->cap = cap;
    return true;
}

void sm_heap_fini(sm_heap *h)
{
    free(h->p);
    *h = (sm_heap){0};
}

static void put(sm_heap *h, size_t i, sm_mem_timer *t)
{
    h->p[i] = t;
    t->place = i + 1;
}

/* Moves the timer at `i` towards the root or the leaves until the order is right. */
static void settle(sm_heap *h, size_t i)
{
    sm_mem_timer *t = h->p[i];
    for (; i > 0 && h->p[(i - 1) / 2]->at > t->at; i = (i - 1) / 2)
        put(h, i, h->p[(i - 1) / 2]);
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->p[child + 1]->at < h->p[child]->at)
            child++;
        if (h->p[child]->at >= t->at)
            break;
        put(h, i, h->p[child]);
    }
    put(h, i, t);
}

void sm_heap_set(sm_heap *h, sm_mem_timer *t, int64_t at)
{
    t->at = at;
    if (t->place == 0) {
        assert(h->n < h->cap);
        put(h, h->n++, t);
    }
    settle(h, t->place - 1);
}

void sm_heap_remove(sm_heap *h, sm_mem_timer *t)
{
    if (t->place == 0)
        return;
    size_t i = t->place - 1;
    sm_mem_timer *last = h->p[--h->n];
    t->place = 0;
    if (last == t)
        return;
    put(h, i, last);
    settle(h, i);
}

bool sm_heap_sound(const sm_heap *h)
{
    for (size_t i = 0; i < h->n; i++) {
        if (h->p[i]->place != i + 1 || h->p[i]->at < h->p[i == 0 ? 0 : (i - 1) / 2]->at)
            return false;
    }
    return true;
}
