/*
 * Writes of the memory store: insert or get, compare and swap, counters, the barrier.
 *
 * A write is made whole before it is tried: its item, its event, and the copy for the caller. Then,
 * with both locks held, everything that may refuse it is asked, and room is had in every index.
 * From there on nothing can fail, so a write is done in all its parts or in none.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/str.h"
#include "store/memory/memory.h"

/* A write in the making. What it does not need is NULL; what is left in it was not used. */
typedef struct change {
    sm_mem_slot *slot; /* a new key */
    sm_ident *ident;   /* perhaps a new id */
    sm_entry *entry;   /* a new generation */
    sm_item *item;
    sm_logged *event;
    sm_entry *target;  /* whose item becomes the new one */
    sm_mem_slot *home; /* the slot that the target is or will be in */
} change;

static void change_fini(sm_memory *m, change *c)
{
    free(c->slot);
    free(c->ident);
    free(c->entry);
    sm_item_drop(m, c->item);
    sm_logged_drop(m, c->event);
}

/* ---- counters --------------------------------------------------------------------------------*/

static uint64_t name_hash(semel_str name)
{
    uint64_t hash = 0xCBF29CE484222325u;
    for (size_t i = 0; i < name.n; i++)
        hash = (hash ^ (uint8_t)name.p[i]) * 0x100000001B3u;
    return sm_number_hash(hash);
}

static sm_tally *tally_find(sm_memory *m, semel_str name)
{
    sm_mem_link *link = sm_table_first(&m->tallies, name_hash(name));
    for (; link != NULL; link = sm_table_next(link)) {
        sm_tally *t = SM_CONTAINER(link, sm_tally, link);
        if (sm_str_eq((semel_str){t->name, t->n}, name))
            return t;
    }
    return NULL;
}

static sm_tally *tally_make(sm_memory *m, semel_str name)
{
    sm_tally *t = tally_find(m, name);
    if (t != NULL)
        return t;
    t = malloc(sizeof *t + name.n);
    if (t == NULL)
        return NULL;
    *t = (sm_tally){.n = name.n};
    if (name.n > 0)
        memcpy(t->name, name.p, name.n);
    sm_table_add(&m->tallies, &t->link, name_hash(name));
    return t;
}

/* The sum, held at the ends of the range. */
static int64_t sum(int64_t a, int64_t b)
{
    int64_t result;
    if (!__builtin_add_overflow(a, b, &result))
        return result;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

/* The counter stays at least so long; there is room in the heap. */
static void tally_keep(sm_memory *m, sm_tally *t, int64_t until)
{
    if (until == 0)
        until = INT64_MAX;
    if (until > t->until)
        t->until = until;
    if (t->until == INT64_MAX)
        sm_heap_remove(&m->tallies_over, &t->over);
    else
        sm_heap_set(&m->tallies_over, &t->over, t->until);
}

/* Judges all counters of a write before it changes any; one may be named twice. */
static semel_err counters_apply(sm_memory *m, const semel_write *w)
{
    semel_err err = SEMEL_OK;
    size_t n = 0;
    if (!sm_heap_reserve(&m->tallies_over, m->tallies.count + w->n_counters))
        return SEMEL_E_NOMEM;
    for (; n < w->n_counters && err == SEMEL_OK; n++) {
        const semel_counter *c = &w->counters[n];
        sm_tally *t = tally_make(m, c->name);
        if (t == NULL) {
            err = SEMEL_E_NOMEM;
            break;
        }
        if (!t->judged)
            t->next = t->value;
        t->judged = true;
        int64_t next = sum(t->next, c->delta);
        if (c->delta >= 0 && (next > c->cap || next - c->delta != t->next))
            err = SEMEL_E_OVER_CAP;
        t->next = next;
    }
    while (n-- > 0) {
        sm_tally *t = tally_find(m, w->counters[n].name);
        if (err == SEMEL_OK) {
            t->value = t->next;
            tally_keep(m, t, w->counters[n].until);
        }
        t->judged = false;
    }
    return err;
}

semel_err sm_memory_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                            semel_fault *fault)
{
    (void)fault;
    (void)shard;
    sm_memory *m = sm_memory_of(st);
    pthread_mutex_lock(&m->commit);
    const sm_tally *t = tally_find(m, name);
    *value = t == NULL ? 0 : t->value;
    pthread_mutex_unlock(&m->commit);
    return SEMEL_OK;
}

/* ---- what may refuse a write -----------------------------------------------------------------*/

/* The item of another key that bars this write, or NULL. The commit lock is held, so an item that
 * is in the index stays. */
static const sm_item *barrier_find(sm_memory *m, const semel_write *w, int64_t now)
{
    if (!w->barred_by_group)
        return NULL;
    /* A zero group is never in the index. */
    sm_mem_link *link = sm_table_first(&m->groups, sm_memory_hash(&w->next.group));
    for (; link != NULL; link = sm_table_next(link)) {
        const sm_item *other = SM_CONTAINER(link, sm_entry, in_group)->item;
        if (memcmp(&other->r.group, &w->next.group, sizeof other->r.group) == 0 &&
            memcmp(&other->r.key, &w->next.key, sizeof other->r.key) != 0 &&
            (other->r.state == SEMEL_S_IN_DOUBT || other->r.lease_end <= now || w->alone))
            return other;
    }
    return NULL;
}

static bool order_reserve(sm_order *o)
{
    if (o->n < o->cap)
        return true;
    size_t cap = o->cap == 0 ? 64 : o->cap * 2;
    void *p = realloc(o->p, cap * sizeof *o->p);
    if (p == NULL)
        return false;
    o->p = p;
    o->cap = cap;
    return true;
}

static semel_err admit(sm_memory *m, const semel_write *w, int64_t now, semel_room *room,
                       semel_record *cur, semel_fault *fault)
{
    const sm_ident *ident = sm_ident_find(m, w->next.id);
    if (ident != NULL && memcmp(&ident->key, &w->next.key, sizeof ident->key) != 0)
        return sm_fault_set(fault, SEMEL_E_CORRUPT,
                            "two keys have one id; give one of the calls another scope or step");
    const sm_item *bar = barrier_find(m, w, now);
    if (bar != NULL) {
        semel_err err = sm_item_copy(bar, room, cur);
        return err != SEMEL_OK ? err : SEMEL_E_BARRED;
    }
    size_t timers = (size_t)m->records + 1;
    if (!sm_log_reserve(&m->log) || !order_reserve(&m->order) ||
        !sm_heap_reserve(&m->due, timers) || !sm_heap_reserve(&m->gone, timers))
        return SEMEL_E_NOMEM;
    return counters_apply(m, w);
}

/* ---- writing ---------------------------------------------------------------------------------*/

/* Everything is allowed and there is room. Takes out of the change what it uses; what it leaves
 * there, the old item among it, is freed without the locks. */
static void publish(sm_memory *m, const semel_write *w, change *c)
{
    sm_ident *ident = sm_ident_find(m, w->next.id);
    if (ident == NULL) {
        ident = c->ident;
        c->ident = NULL;
        assert(ident != NULL);
        *ident = (sm_ident){.id = w->next.id, .key = w->next.key};
        sm_table_add(&m->ids, &ident->link, sm_number_hash(ident->id));
    }

    sm_item *old = NULL;
    if (c->entry != NULL) {
        c->entry = NULL; /* it is the target */
        c->target->number = ++m->last_number;
        c->target->older = c->home->newest;
        c->home->newest = c->target;
        m->order.p[m->order.n].number = c->target->number;
        m->order.p[m->order.n++].entry = c->target;
        ident->records++;
        m->records++;
    } else {
        old = c->target->item;
        sm_entry_unindex(m, c->target);
    }
    c->target->item = c->item;
    c->item = old;
    sm_entry_index(m, c->target);

    if (ident->last == NULL)
        ident->first = c->event;
    else
        ident->last->next = c->event;
    ident->last = c->event;
    sm_log_append(m, &m->log, c->event);
    c->event = NULL;
}

/* The stripe's lock is held. On success *cur is what was written. */
static semel_err commit(sm_memory *m, const semel_write *w, change *c, int64_t now,
                        semel_room *room, semel_record *cur, semel_fault *fault)
{
    if (c->item == NULL || c->event == NULL)
        return SEMEL_E_NOMEM;
    c->event->e.id = w->next.id;
    c->event->e.generation = w->next.generation;
    c->event->e.shard = w->next.shard;
    semel_record written;
    semel_err err = sm_item_copy(c->item, room, &written);
    if (err != SEMEL_OK)
        return err;
    pthread_mutex_lock(&m->commit);
    err = admit(m, w, now, room, cur, fault);
    if (err == SEMEL_OK) {
        publish(m, w, c);
        *cur = written;
    }
    pthread_mutex_unlock(&m->commit);
    return err;
}

semel_err sm_memory_claim(semel_store *st, const semel_write *fresh, semel_room *room,
                          semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    sm_memory *m = sm_memory_of(st);
    sm_mem_stripe *s = sm_memory_stripe(m, &fresh->next.key);
    change c = {0};
    semel_err err;
    *inserted = false;
    memset(cur, 0, sizeof *cur);

    pthread_mutex_lock(&s->lock);
    *now = sm_clock_ms();
    const sm_mem_slot *slot = sm_memory_slot(s, &fresh->next.key);
    if (slot != NULL) {
        err = sm_item_copy(slot->newest->item, room, cur);
        goto cleanup;
    }
    semel_record next = fresh->next;
    next.version = 1;
    c = (change){.slot = calloc(1, sizeof *c.slot),
                 .ident = malloc(sizeof *c.ident),
                 .entry = calloc(1, sizeof *c.entry),
                 .item = sm_item_new(m, &next),
                 .event = sm_logged_new(m, &fresh->event)};
    c.target = c.entry;
    c.home = c.slot;
    err = c.slot == NULL || c.ident == NULL || c.entry == NULL
              ? SEMEL_E_NOMEM
              : commit(m, fresh, &c, *now, room, cur, fault);
    if (err == SEMEL_OK) {
        c.slot->key = next.key;
        sm_table_add(&s->slots, &c.slot->link, sm_memory_hash(&next.key));
        c.slot = NULL;
        *inserted = true;
        sm_stripe_wake(s, &next.key);
    }

cleanup:
    pthread_mutex_unlock(&s->lock);
    change_fini(m, &c);
    return err;
}

/* Whether a write was reckoned from this record. */
static bool follows(const semel_record *newest, const semel_write *w)
{
    return newest->generation == w->expect_generation && newest->version == w->expect_version &&
           sm_write_follows(w, &newest->head);
}

semel_err sm_memory_apply(semel_store *st, const semel_write *w, semel_room *room,
                          semel_record *cur, int64_t *now, semel_fault *fault)
{
    sm_memory *m = sm_memory_of(st);
    sm_mem_stripe *s = sm_memory_stripe(m, &w->next.key);
    change c = {0};
    semel_err err = SEMEL_E_NOT_FOUND;
    memset(cur, 0, sizeof *cur);

    pthread_mutex_lock(&s->lock);
    *now = sm_clock_ms();
    sm_mem_slot *slot = sm_memory_slot(s, &w->next.key);
    if (slot == NULL)
        goto cleanup;
    const semel_record *newest = &slot->newest->item->r;
    if (!follows(newest, w)) {
        err = sm_item_copy(slot->newest->item, room, cur);
        err = err != SEMEL_OK ? err : SEMEL_E_STALE;
        goto cleanup;
    }
    assert(w->next.id == newest->id);
    semel_record next = w->next;
    c.home = slot;
    c.target = slot->newest;
    if (next.generation == newest->generation) {
        next.version = newest->version + 1;
        if (w->same_args)
            next.args = newest->args;
        if (w->same_outcome)
            next.outcome = newest->outcome;
    } else {
        next.version = 1;
        c.target = c.entry = calloc(1, sizeof *c.entry);
    }
    c.item = sm_item_new(m, &next);
    c.event = sm_logged_new(m, &w->event);
    err = c.target == NULL ? SEMEL_E_NOMEM : commit(m, w, &c, *now, room, cur, fault);
    if (err == SEMEL_OK)
        sm_stripe_wake(s, &next.key);

cleanup:
    pthread_mutex_unlock(&s->lock);
    change_fini(m, &c);
    return err;
}
