/*
 * Queries of the memory store: records by what they are, and records that are due.
 *
 * Items are gathered and held under the commit lock and given to the sink without it, so a sink may
 * use the store. One query looks at a bounded number of records; its cursor is the number of the
 * last one it looked at, which stays good whatever is written or purged meanwhile.
 */
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "core/glob.h"
#include "store/memory/memory.h"

#define LOOK_MAX 4096u /* records that one query looks at */

static bool in_scope(semel_str prefix, semel_str scope)
{
    return prefix.n == 0 || (scope.n >= prefix.n && memcmp(scope.p, prefix.p, prefix.n) == 0 &&
                             (scope.n == prefix.n || scope.p[prefix.n] == '/'));
}

static bool matches(const semel_filter *f, const semel_record *r)
{
    return (f->states == 0 || (f->states >> r->state & 1u) != 0) &&
           (f->since == 0 || r->created_at >= f->since) &&
           (f->until == 0 || r->created_at < f->until) &&
           (f->group == NULL || memcmp(f->group, &r->group, sizeof r->group) == 0) &&
           (f->scope.p == NULL || in_scope(f->scope, r->scope)) &&
           (f->tool.p == NULL || sm_glob_matches(f->tool, r->tool));
}

/* Gives each item to the sink until it says stop, and lets go of all. Returns how many it saw. */
static size_t give(sm_memory *m, sm_item *const *items, size_t n, semel_record_sink *sink,
                   void *context)
{
    size_t seen = 0;
    bool on = true;
    int64_t now = sm_clock_ms();
    for (size_t i = 0; i < n; i++) {
        if (on) {
            seen++;
            on = sink(context, &items[i]->r, now);
        }
        sm_item_drop(m, items[i]);
    }
    return seen;
}

semel_err sm_memory_query(semel_store *st, const semel_filter *filter, uint64_t *cursor,
                          size_t limit, semel_record_sink *sink, void *context, semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    sm_item *items[SM_MEMORY_BATCH];
    uint64_t numbers[SM_MEMORY_BATCH];
    size_t n = 0;
    if (limit > SM_MEMORY_BATCH)
        limit = SM_MEMORY_BATCH;

    pthread_mutex_lock(&m->commit);
    size_t i = *cursor == 0 ? m->order.n : sm_order_find(&m->order, *cursor);
    uint64_t at = *cursor;
    for (size_t looks = 0; i > 0 && n < limit && looks < LOOK_MAX; looks++) {
        sm_entry *e = m->order.p[--i].entry;
        at = m->order.p[i].number;
        if (e == NULL || !matches(filter, &e->item->r))
            continue;
        sm_item_hold(e->item);
        numbers[n] = at;
        items[n++] = e->item;
    }
    bool end = i == 0;
    pthread_mutex_unlock(&m->commit);

    size_t seen = give(m, items, n, sink, context);
    if (seen < n)
        *cursor = numbers[seen - 1];
    else
        *cursor = end ? 0 : at;
    return SEMEL_OK;
}

/* The longest due come out of the heap in order, and go back into it. */
semel_err sm_memory_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                        semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    sm_item **items = NULL;
    sm_mem_timer **taken = NULL;
    size_t n = 0;
    semel_err err = SEMEL_OK;
    int64_t now = sm_clock_ms();

    pthread_mutex_lock(&m->commit);
    if (limit > m->due.n)
        limit = m->due.n;
    if (sm_heap_due(&m->due, now) == NULL)
        limit = 0;
    if (limit > 0) {
        items = calloc(limit, sizeof(void *));
        taken = calloc(limit, sizeof(void *));
        if (items == NULL || taken == NULL) {
            err = SEMEL_E_NOMEM;
            limit = 0;
        }
    }
    for (sm_mem_timer *t; n < limit && (t = sm_heap_due(&m->due, now)) != NULL; n++) {
        sm_heap_remove(&m->due, t);
        taken[n] = t;
        items[n] = SM_CONTAINER(t, sm_entry, due)->item;
        sm_item_hold(items[n]);
    }
    for (size_t i = 0; i < n; i++)
        sm_heap_set(&m->due, taken[i], taken[i]->at);
    pthread_mutex_unlock(&m->commit);

    give(m, items, n, sink, context);
    free(items);
    free(taken);
    return err;
}
