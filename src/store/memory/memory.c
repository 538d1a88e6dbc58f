/*
 * The memory store: records in this process, gone when it is closed.
 *
 * For tests and for programs that are one process. It promises all that a store must but durability
 * and sharing; two handles are two ledgers. Its parts, its locks and their order are in memory.h.
 * Here: opening and closing, records and their indexes, reading by name, waiting.
 *
 * Peeking is the path of replays: one stripe's lock, one probe, one allocation, one copy.
 */
#include "store/memory/memory.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/str.h"
#include "store/stores.h"

/* ---- finding ---------------------------------------------------------------------------------*/

sm_mem_stripe *sm_memory_stripe(sm_memory *m, const semel_hash *key)
{
    return &m->stripes[key->b[31] % SM_MEMORY_STRIPES];
}

uint64_t sm_memory_hash(const semel_hash *h)
{
    uint64_t hash;
    memcpy(&hash, h->b, sizeof hash);
    return hash;
}

sm_mem_slot *sm_memory_slot(const sm_mem_stripe *s, const semel_hash *key)
{
    sm_mem_link *link = sm_table_first(&s->slots, sm_memory_hash(key));
    for (; link != NULL; link = sm_table_next(link)) {
        sm_mem_slot *slot = SM_CONTAINER(link, sm_mem_slot, link);
        if (memcmp(&slot->key, key, sizeof *key) == 0)
            return slot;
    }
    return NULL;
}

sm_ident *sm_ident_find(sm_memory *m, uint64_t id)
{
    sm_mem_link *link = sm_table_first(&m->ids, sm_number_hash(id));
    while (link != NULL && SM_CONTAINER(link, sm_ident, link)->id != id)
        link = sm_table_next(link);
    return link == NULL ? NULL : SM_CONTAINER(link, sm_ident, link);
}

void sm_ident_tidy(sm_memory *m, sm_ident *ident)
{
    if (ident->records > 0 || ident->first != NULL)
        return;
    sm_table_remove(&m->ids, &ident->link);
    free(ident);
}

size_t sm_order_find(const sm_order *o, uint64_t number)
{
    size_t low = 0, high = o->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (o->p[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- items -----------------------------------------------------------------------------------*/

/* The texts of a record, in the order in which an item keeps them. */
#define TEXTS 7u
static void texts_of(semel_record *r, semel_str *out[TEXTS])
{
    semel_str *all[TEXTS] = {&r->scope, &r->step, &r->tool,   &r->caller,
                             &r->args,  &r->life, &r->outcome};
    memcpy(out, all, sizeof all);
}

sm_item *sm_item_new(sm_memory *m, const semel_record *r)
{
    semel_record copy = *r;
    semel_str *texts[TEXTS];
    texts_of(&copy, texts);
    size_t n = 0;
    for (size_t i = 0; i < TEXTS; i++)
        n += texts[i]->n;
    sm_item *item = malloc(sizeof *item + n);
    if (item == NULL)
        return NULL;
    atomic_init(&item->held, 1);
    item->n = n;
    char *end = item->text;
    for (size_t i = 0; i < TEXTS; i++) {
        if (texts[i]->p == NULL)
            continue;
        memcpy(end, texts[i]->p, texts[i]->n);
        texts[i]->p = end;
        end += texts[i]->n;
    }
    item->r = copy;
    atomic_fetch_add_explicit(&m->bytes, sizeof *item + n, memory_order_relaxed);
    return item;
}

void sm_item_hold(sm_item *item)
{
    atomic_fetch_add_explicit(&item->held, 1, memory_order_relaxed);
}

void sm_item_drop(sm_memory *m, sm_item *item)
{
    if (item == NULL || atomic_fetch_sub_explicit(&item->held, 1, memory_order_acq_rel) > 1)
        return;
    atomic_fetch_sub_explicit(&m->bytes, sizeof *item + item->n, memory_order_relaxed);
    free(item);
}

semel_err sm_item_copy(const sm_item *item, semel_room *room, semel_record *out)
{
    /* Even no bytes take a piece of the room: an empty text is not an absent one. */
    char *copy = room->alloc(room, item->n == 0 ? 1 : item->n);
    if (copy == NULL)
        return SEMEL_E_NOMEM;
    memcpy(copy, item->text, item->n);
    *out = item->r;
    semel_str *texts[TEXTS];
    texts_of(out, texts);
    for (size_t i = 0; i < TEXTS; i++) {
        if (texts[i]->p != NULL)
            texts[i]->p = copy + (texts[i]->p - item->text);
    }
    return SEMEL_OK;
}

/* ---- indexes ---------------------------------------------------------------------------------*/

static bool is_zero(const semel_hash *h)
{
    static const semel_hash zero;
    return memcmp(h, &zero, sizeof zero) == 0;
}

void sm_entry_index(sm_memory *m, sm_entry *e)
{
    const semel_record *r = &e->item->r;
    assert(r->state < SEMEL_S_COUNT);
    m->in_state[r->state]++;
    if (!semel_state_settled(r->state) && r->due_at > 0 && r->due_at < INT64_MAX)
        sm_heap_set(&m->due, &e->due, r->due_at);
    int64_t gone_at = sm_record_next_purge(r);
    if (gone_at < INT64_MAX)
        sm_heap_set(&m->gone, &e->gone, gone_at);
    e->grouped =
        (r->state == SEMEL_S_RUNNING || r->state == SEMEL_S_IN_DOUBT) && !is_zero(&r->group);
    if (e->grouped)
        sm_table_add(&m->groups, &e->in_group, sm_memory_hash(&r->group));
}

void sm_entry_unindex(sm_memory *m, sm_entry *e)
{
    m->in_state[e->item->r.state]--;
    sm_heap_remove(&m->due, &e->due);
    sm_heap_remove(&m->gone, &e->gone);
    if (e->grouped)
        sm_table_remove(&m->groups, &e->in_group);
    e->grouped = false;
}

/* ---- reading by name -------------------------------------------------------------------------*/

static semel_err memory_peek(semel_store *st, const semel_hash *key, semel_room *room,
                             semel_record *cur, int64_t *now)
{
    sm_mem_stripe *s = sm_memory_stripe(sm_memory_of(st), key);
    semel_err err = SEMEL_E_NOT_FOUND;
    *now = sm_clock_ms();
    pthread_mutex_lock(&s->lock);
    const sm_mem_slot *slot = sm_memory_slot(s, key);
    if (slot != NULL && semel_state_settled(slot->newest->item->r.state))
        err = sm_item_copy(slot->newest->item, room, cur);
    pthread_mutex_unlock(&s->lock);
    return err;
}

static semel_err memory_get(semel_store *st, const semel_ref *ref, semel_room *room,
                            semel_record *cur, int64_t *now, semel_fault *fault)
{
    (void)fault;
    sm_memory *m = sm_memory_of(st);
    semel_hash key;
    uint64_t generation = 0;
    *now = sm_clock_ms();
    if (ref->key != NULL) {
        key = *ref->key;
    } else {
        pthread_mutex_lock(&m->commit);
        const sm_ident *ident = sm_ident_find(m, ref->id);
        if (ident != NULL)
            key = ident->key;
        pthread_mutex_unlock(&m->commit);
        if (ident == NULL)
            return SEMEL_E_NOT_FOUND;
        generation = ref->generation;
    }

    sm_mem_stripe *s = sm_memory_stripe(m, &key);
    semel_err err = SEMEL_E_NOT_FOUND;
    pthread_mutex_lock(&s->lock);
    const sm_mem_slot *slot = sm_memory_slot(s, &key);
    const sm_entry *e = slot == NULL ? NULL : slot->newest;
    while (e != NULL && generation != 0 && e->item->r.generation != generation)
        e = e->older;
    if (e != NULL)
        err = sm_item_copy(e->item, room, cur);
    pthread_mutex_unlock(&s->lock);
    return err;
}

/* ---- waiting ---------------------------------------------------------------------------------*/

void sm_stripe_wake(sm_mem_stripe *s, const semel_hash *key)
{
    for (sm_waiter *w = s->waiters; w != NULL; w = w->next) {
        if (memcmp(w->key, key, sizeof *key) == 0)
            pthread_cond_signal(&w->changed);
    }
}

static struct timespec deadline_of(int64_t ns)
{
    if (ns < 0)
        ns = 0;
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

static semel_err wait_log(sm_memory *m, uint64_t seq, const struct timespec *deadline)
{
    int timed_out = 0;
    pthread_mutex_lock(&m->commit);
    m->log_waiters++;
    while (m->last_seq <= seq && timed_out != ETIMEDOUT)
        timed_out = pthread_cond_timedwait(&m->logged, &m->commit, deadline);
    m->log_waiters--;
    semel_err err = m->last_seq > seq ? SEMEL_OK : SEMEL_E_TIMEOUT;
    pthread_mutex_unlock(&m->commit);
    return err;
}

static bool unchanged(const sm_mem_stripe *s, const semel_ref *of, uint64_t version)
{
    const sm_mem_slot *slot = sm_memory_slot(s, of->key);
    return slot != NULL && slot->newest->item->r.generation == of->generation &&
           slot->newest->item->r.version == version;
}

static semel_err memory_wait(semel_store *st, const semel_ref *of, uint64_t version,
                             int64_t deadline_ns, semel_fault *fault)
{
    sm_memory *m = sm_memory_of(st);
    struct timespec deadline = deadline_of(deadline_ns);
    if (of == NULL)
        return wait_log(m, version, &deadline);

    sm_mem_stripe *s = sm_memory_stripe(m, of->key);
    sm_waiter self = {.key = of->key};
    if (pthread_cond_init(&self.changed, &m->monotonic) != 0)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    int timed_out = 0;
    pthread_mutex_lock(&s->lock);
    self.next = s->waiters;
    s->waiters = &self;
    while (unchanged(s, of, version) && timed_out != ETIMEDOUT)
        timed_out = pthread_cond_timedwait(&self.changed, &s->lock, &deadline);
    semel_err err = unchanged(s, of, version) ? SEMEL_E_TIMEOUT : SEMEL_OK;
    sm_waiter **at = &s->waiters;
    while (*at != &self)
        at = &(*at)->next;
    *at = self.next;
    pthread_mutex_unlock(&s->lock);
    pthread_cond_destroy(&self.changed);
    return err;
}

/* ---- opening and closing ---------------------------------------------------------------------*/

static void slots_free(sm_memory *m, sm_mem_stripe *s)
{
    size_t from = 0;
    for (sm_mem_link *link; (link = sm_table_take(&s->slots, &from)) != NULL;) {
        sm_mem_slot *slot = SM_CONTAINER(link, sm_mem_slot, link);
        for (sm_entry *e = slot->newest, *older; e != NULL; e = older) {
            older = e->older;
            sm_item_drop(m, e->item);
            free(e);
        }
        free(slot);
    }
    sm_table_fini(&s->slots);
}

static void log_free(sm_memory *m, sm_mem_log *log)
{
    for (size_t i = log->head; i < log->n; i++)
        sm_logged_drop(m, log->p[i]);
    free(log->p);
}

static void memory_close(semel_store *st)
{
    if (st == NULL)
        return;
    sm_memory *m = sm_memory_of(st);
    for (size_t i = 0; i < SM_MEMORY_STRIPES; i++) {
        slots_free(m, &m->stripes[i]);
        pthread_mutex_destroy(&m->stripes[i].lock);
    }
    while (m->notes_old.n > 0)
        sm_jotted_free(m, SM_CONTAINER(m->notes_old.p[0], sm_jotted, old));
    log_free(m, &m->log);
    log_free(m, &m->seals);
    size_t from = 0;
    for (sm_mem_link *link; (link = sm_table_take(&m->ids, &from)) != NULL;)
        free(SM_CONTAINER(link, sm_ident, link));
    from = 0;
    for (sm_mem_link *link; (link = sm_table_take(&m->tallies, &from)) != NULL;)
        free(SM_CONTAINER(link, sm_tally, link));
    sm_table_fini(&m->ids);
    sm_table_fini(&m->tallies);
    sm_table_fini(&m->groups);
    sm_table_fini(&m->notes);
    sm_heap_fini(&m->due);
    sm_heap_fini(&m->gone);
    sm_heap_fini(&m->tallies_over);
    sm_heap_fini(&m->notes_old);
    free(m->order.p);
    pthread_mutex_destroy(&m->commit);
    pthread_mutex_destroy(&m->notes_lock);
    pthread_cond_destroy(&m->logged);
    pthread_condattr_destroy(&m->monotonic);
    free(m);
}

static semel_err memory_open(semel_str url, const semel_store_env *env, semel_store **out,
                             uint32_t *caps, semel_fault *fault)
{
    *out = NULL;
    *caps = 0;
    if (!sm_str_is(url, "memory:"))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "a ledger in memory has no name: its URL is \"memory:\"");
    if (env->must_exist)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "a ledger in memory is always a new one, and a new one was not asked "
                            "for; name a ledger that lasts, such as sqlite:PATH");

    sm_memory *m = aligned_alloc(_Alignof(sm_memory), sizeof *m);
    if (m == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    memset(m, 0, sizeof *m);
    pthread_condattr_init(&m->monotonic);
    pthread_condattr_setclock(&m->monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&m->commit, NULL);
    pthread_mutex_init(&m->notes_lock, NULL);
    pthread_cond_init(&m->logged, &m->monotonic);
    bool ok = sm_table_init(&m->ids) && sm_table_init(&m->tallies) && sm_table_init(&m->groups) &&
              sm_table_init(&m->notes);
    for (size_t i = 0; i < SM_MEMORY_STRIPES; i++) {
        pthread_mutex_init(&m->stripes[i].lock, NULL);
        ok = sm_table_init(&m->stripes[i].slots) && ok;
    }
    if (!ok) {
        memory_close((semel_store *)(void *)m);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    }
    *out = (semel_store *)(void *)m;
    return SEMEL_OK;
}

const semel_store_ops sm_store_memory = {
    .size = sizeof(semel_store_ops),
    .version = SEMEL_STORE_VERSION,
    .scheme = "memory",
    .open = memory_open,
    .close = memory_close,
    .claim = sm_memory_claim,
    .apply = sm_memory_apply,
    .peek = memory_peek,
    .get = memory_get,
    .query = sm_memory_query,
    .events = sm_memory_events,
    .due = sm_memory_due,
    .wait = memory_wait,
    .journal = sm_memory_journal,
    .notes = sm_memory_notes,
    .seal = sm_memory_seal,
    .purge = sm_memory_purge,
    .counter = sm_memory_counter,
    .health = sm_memory_health,
};
