/*
 * Housekeeping of the memory store: purge and health.
 *
 * Purge takes what a heap of times says is over, one record at a time, with the locks in their
 * order: the heap names a key, the key's stripe is locked, and the record is judged again. Only
 * settled records and those of state none are ever in that heap.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/memory/memory.h"

/* ---- purge -----------------------------------------------------------------------------------*/

/* Forgets an entry's place, and closes the gaps when they are most of the order. */
static void order_remove(sm_order *o, const sm_entry *e)
{
    o->p[sm_order_find(o, e->number)].entry = NULL;
    if (++o->gaps <= o->n / 2)
        return;
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++) {
        if (o->p[i].entry != NULL)
            o->p[n++] = o->p[i];
    }
    o->n = n;
    o->gaps = 0;
}

/* Removes a whole record. Both locks are held. */
static void entry_remove(sm_memory *m, sm_mem_stripe *s, sm_mem_slot *slot, sm_entry *e)
{
    sm_entry **at = &slot->newest;
    while (*at != e)
        at = &(*at)->older;
    *at = e->older;
    sm_entry_unindex(m, e);
    order_remove(&m->order, e);
    m->records--;
    sm_ident *ident = sm_ident_find(m, e->item->r.id);
    ident->records--;
    sm_ident_tidy(m, ident);
    sm_item_drop(m, e->item);
    free(e);
    sm_stripe_wake(s, &slot->key);
    if (slot->newest == NULL) {
        sm_table_remove(&s->slots, &slot->link);
        free(slot);
    }
}

/* Drops the payloads whose time is over. Both locks are held. */
static semel_err entry_shrink(sm_memory *m, sm_entry *e, int64_t now)
{
    semel_record next = e->item->r;
    bool window_over = next.window_end > 0 && next.window_end <= now;
    if (window_over || (next.result_end > 0 && next.result_end <= now))
        next.outcome = (semel_str){0};
    if (window_over)
        next.args = (semel_str){0};
    sm_item *item = sm_item_new(m, &next);
    if (item == NULL)
        return SEMEL_E_NOMEM;
    sm_entry_unindex(m, e);
    sm_item_drop(m, e->item);
    e->item = item;
    sm_entry_index(m, e);
    return SEMEL_OK;
}

/* Takes from the record that `key` and `generation` name what its times allow, if they still do. */
static semel_err record_purge(sm_memory *m, const semel_hash *key, uint64_t generation, int64_t now,
                              uint64_t *done)
{
    sm_mem_stripe *s = sm_memory_stripe(m, key);
    semel_err err = SEMEL_OK;
    pthread_mutex_lock(&s->lock);
    pthread_mutex_lock(&m->commit);
    sm_mem_slot *slot = sm_memory_slot(s, key);
    sm_entry *e = slot == NULL ? NULL : slot->newest;
    while (e != NULL && e->item->r.generation != generation)
        e = e->older;
    if (e != NULL && sm_record_next_purge(&e->item->r) <= now) {
        if (e->item->r.purge_at > 0 && e->item->r.purge_at <= now)
            entry_remove(m, s, slot, e);
        else
            err = entry_shrink(m, e, now);
        if (err == SEMEL_OK)
            ++*done;
    }
    pthread_mutex_unlock(&m->commit);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static semel_err records_purge(sm_memory *m, size_t *budget, int64_t now, uint64_t *done)
{
    semel_err err = SEMEL_OK;
    for (; *budget > 0 && err == SEMEL_OK; --*budget) {
        semel_hash key;
        uint64_t generation;
        pthread_mutex_lock(&m->commit);
        const sm_mem_timer *t = sm_heap_due(&m->gone, now);
        if (t != NULL) {
            const semel_record *r = &SM_CONTAINER(t, sm_entry, gone)->item->r;
            key = r->key;
            generation = r->generation;
        }
        pthread_mutex_unlock(&m->commit);
        if (t == NULL)
            break;
        err = record_purge(m, &key, generation, now, done);
    }
    return err;
}

static bool event_goes(const sm_mem_log *log, uint64_t events_to)
{
    return log->head < log->n && log->p[log->head]->e.seq <= events_to;
}

/* An effect's events leave in the order of their seq, so each is the first of its chain. */
static bool events_purge(sm_memory *m, size_t *budget, uint64_t events_to, uint64_t *done)
{
    sm_mem_log *log = &m->log;
    pthread_mutex_lock(&m->commit);
    for (; *budget > 0 && event_goes(log, events_to); --*budget, ++*done) {
        sm_logged *l = log->p[log->head++];
        sm_ident *ident = sm_ident_find(m, l->e.id);
        ident->first = l->next;
        if (ident->first == NULL)
            ident->last = NULL;
        sm_ident_tidy(m, ident);
        sm_logged_drop(m, l);
    }
    bool left = event_goes(log, events_to);
    pthread_mutex_unlock(&m->commit);
    return left;
}

static bool notes_purge(sm_memory *m, size_t *budget, int64_t before, uint64_t *done)
{
    /* Older than, so not those at that very time. */
    int64_t last = before > INT64_MIN ? before - 1 : before;
    sm_mem_timer *t;
    pthread_mutex_lock(&m->notes_lock);
    for (; *budget > 0 && (t = sm_heap_due(&m->notes_old, last)) != NULL; --*budget, ++*done)
        sm_jotted_free(m, SM_CONTAINER(t, sm_jotted, old));
    bool left = sm_heap_due(&m->notes_old, last) != NULL;
    pthread_mutex_unlock(&m->notes_lock);
    return left;
}

static bool tallies_purge(sm_memory *m, size_t *budget, int64_t now, uint64_t *done)
{
    sm_mem_timer *t;
    pthread_mutex_lock(&m->commit);
    for (; *budget > 0 && (t = sm_heap_due(&m->tallies_over, now)) != NULL; --*budget, ++*done) {
        sm_tally *tally = SM_CONTAINER(t, sm_tally, over);
        sm_heap_remove(&m->tallies_over, t);
        sm_table_remove(&m->tallies, &tally->link);
        free(tally);
    }
    bool left = sm_heap_due(&m->tallies_over, now) != NULL;
    pthread_mutex_unlock(&m->commit);
    return left;
}

semel_err sm_memory_purge(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                          uint64_t *done, bool *left, semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    int64_t now = sm_clock_ms();
    size_t budget = limit;
    semel_err err = records_purge(m, &budget, now, done);
    bool events_left = events_purge(m, &budget, events_to, done);
    bool notes_left = notes_purge(m, &budget, notes_before, done);
    bool tallies_left = tallies_purge(m, &budget, now, done);
    pthread_mutex_lock(&m->commit);
    *left = events_left || notes_left || tallies_left || sm_heap_due(&m->gone, now) != NULL;
    pthread_mutex_unlock(&m->commit);
    return err;
}

/* ---- health ----------------------------------------------------------------------------------*/

/* The first thing that is wrong, or NULL. The commit lock is held. */
static const char *flaw(const sm_memory *m)
{
    uint64_t in_state[SEMEL_S_COUNT] = {0}, records = 0, last = 0;
    for (size_t i = 0; i < m->order.n; i++) {
        if (m->order.p[i].number <= last)
            return "records are out of order";
        last = m->order.p[i].number;
        if (m->order.p[i].entry == NULL)
            continue;
        records++;
        in_state[m->order.p[i].entry->item->r.state]++;
    }
    if (records != m->records || memcmp(in_state, m->in_state, sizeof in_state) != 0)
        return "the counts of records are wrong";
    if (!sm_heap_sound(&m->due) || !sm_heap_sound(&m->gone) || !sm_heap_sound(&m->tallies_over))
        return "times are out of order";
    const sm_mem_log *logs[] = {&m->log, &m->seals};
    for (size_t k = 0; k < 2; k++) {
        last = 0;
        for (size_t i = logs[k]->head; i < logs[k]->n; i++) {
            if (logs[k]->p[i]->e.seq <= last || logs[k]->p[i]->e.seq > m->last_seq)
                return "events are out of order";
            last = logs[k]->p[i]->e.seq;
        }
    }
    return NULL;
}

semel_err sm_memory_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    sm_memory *m = sm_memory_of(st);
    memset(out, 0, sizeof *out);
    out->schema = 1;
    snprintf(out->where, sizeof out->where, "memory");
    snprintf(out->durability, sizeof out->durability, "it is gone when the program ends");
    out->bytes = atomic_load_explicit(&m->bytes, memory_order_relaxed);

    pthread_mutex_lock(&m->commit);
    out->records = m->records;
    for (size_t i = 0; i < SEMEL_S_COUNT; i++)
        out->in_state[i] = semel_state_settled(i) ? 0 : m->in_state[i];
    out->last_seq = m->last_seq;
    if (m->seals.n > 0) {
        const semel_event *seal = &m->seals.p[m->seals.n - 1]->e;
        out->seal_seq = seal->seq;
        out->seal_index = seal->index;
        out->seal_hash = seal->hash;
        out->seal_at = seal->at;
    }
    if (m->log.head < m->log.n)
        out->oldest_event_at = m->log.p[m->log.head]->e.at;
    const char *wrong = thorough ? flaw(m) : NULL;
    pthread_mutex_unlock(&m->commit);
    if (wrong != NULL)
        return sm_fault_set(fault, SEMEL_E_CORRUPT, "the ledger in memory is damaged: %s", wrong);
    return SEMEL_OK;
}
