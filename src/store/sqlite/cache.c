/*
 * Settled records that this process knows for sure.
 *
 * An entry is the newest generation of its key as of an epoch, the counter in the page that all
 * processes share. Whoever replaces or removes a settled record bumps it after the commit and
 * before the answer, so while the epoch has not moved, what is here is as it is in the file:
 *
 *   - the epoch is read before the row is, and an entry goes in only while it still is the same;
 *   - this process's writer bumps, then drops the keys that it changed, then answers: so its own
 *     bumps (`known` follows them) spare all other entries;
 *   - a bump by another process voids everything (`floor`).
 *
 * As a backstop against a program that does not know about epochs, SQLite is asked once a second
 * whether anybody else has changed the file; then everything is void too. The writer's connection
 * knows that exactly, but only when it writes; another one is asked meanwhile, and cannot tell our
 * own commits from those of others, so after our own it is believed only once they have stopped.
 *
 * A stamp is the epoch plus the number of times that the backstop has voided everything: both only
 * grow, so equal stamps mean that neither has moved.
 *
 * Each stripe throws out by second chance: an entry that was hit since it was last looked at goes
 * to the young end once more.
 */
#include "store/sqlite/sqlite.h"

#include <stdlib.h>

struct sm_sq_entry {
    sm_sq_entry *chain;
    sm_sq_entry *younger, *older;
    uint64_t stamp;
    size_t bytes;
    bool hit;
    semel_record record; /* texts are behind it, in the same piece of memory */
};

enum { CHECK_MS = 1000, TABLE_FIRST = 64 };

semel_err sm_sq_cache_init(semel_store *st, size_t bytes)
{
    sm_sq_cache *c = &st->cache;
    uint64_t epoch = sm_sq_cache_stamp(st);
    c->stripe_bytes = bytes / SM_SQ_STRIPES;
    atomic_store(&c->known, epoch);
    atomic_store(&c->floor, epoch);
    pthread_mutex_init(&c->epoch_lock, NULL);
    pthread_mutex_init(&c->check_lock, NULL);
    for (size_t i = 0; i < SM_SQ_STRIPES; i++) {
        sm_sq_stripe *s = &c->stripes[i];
        pthread_mutex_init(&s->lock, NULL);
        s->table = calloc(TABLE_FIRST, sizeof *s->table);
        if (s->table == NULL)
            return SEMEL_E_NOMEM;
        s->mask = TABLE_FIRST - 1;
    }
    return SEMEL_OK;
}

void sm_sq_cache_fini(sm_sq_cache *c)
{
    for (size_t i = 0; i < SM_SQ_STRIPES; i++) {
        sm_sq_stripe *s = &c->stripes[i];
        for (sm_sq_entry *e = s->old, *next; e != NULL; e = next) {
            next = e->younger;
            free(e);
        }
        free(s->table);
        s->table = NULL;
    }
    sm_sq_conn_close(c->check);
    c->check = NULL;
}

/* A key is a hash already: its first bytes choose the stripe and the chain. */
static sm_sq_stripe *stripe_of(sm_sq_cache *c, const semel_hash *key)
{
    return &c->stripes[key->b[0] % SM_SQ_STRIPES];
}

static sm_sq_entry **chain_of(const sm_sq_stripe *s, const semel_hash *key)
{
    uint64_t n;
    memcpy(&n, key->b + 8, sizeof n);
    return &s->table[n & s->mask];
}

/* Where the key's entry is linked from; points to NULL if there is none. */
static sm_sq_entry **find(const sm_sq_stripe *s, const semel_hash *key)
{
    sm_sq_entry **at = chain_of(s, key);
    while (*at != NULL && memcmp((*at)->record.key.b, key->b, sizeof key->b) != 0)
        at = &(*at)->chain;
    return at;
}

static void unlist(sm_sq_stripe *s, sm_sq_entry *e)
{
    *(e->younger != NULL ? &e->younger->older : &s->young) = e->older;
    *(e->older != NULL ? &e->older->younger : &s->old) = e->younger;
}

static void enlist(sm_sq_stripe *s, sm_sq_entry *e)
{
    e->younger = NULL;
    e->older = s->young;
    *(s->young != NULL ? &s->young->younger : &s->old) = e;
    s->young = e;
}

static void take_out(sm_sq_stripe *s, sm_sq_entry **at)
{
    sm_sq_entry *e = *at;
    *at = e->chain;
    unlist(s, e);
    s->bytes -= e->bytes;
    s->count--;
    free(e);
}

static void make_room(sm_sq_stripe *s, size_t bound)
{
    while (s->bytes > bound) {
        sm_sq_entry *e = s->old;
        if (e->hit) {
            e->hit = false;
            unlist(s, e);
            enlist(s, e);
        } else {
            take_out(s, find(s, &e->record.key));
        }
    }
}

/* Twice as many chains; without memory for them, chains just get longer. */
static void widen(sm_sq_stripe *s)
{
    size_t n = (s->mask + 1) * 2;
    sm_sq_entry **table = calloc(n, sizeof *table);
    if (table == NULL)
        return;
    free(s->table);
    s->table = table;
    s->mask = n - 1;
    for (sm_sq_entry *e = s->old; e != NULL; e = e->younger) {
        sm_sq_entry **at = chain_of(s, &e->record.key);
        e->chain = *at;
        *at = e;
    }
}

/* A room that is the memory behind an entry. */
typedef struct behind {
    semel_room room;
    void *p;
} behind;

static void *behind_alloc(semel_room *room, size_t n)
{
    (void)n;
    return ((behind *)room)->p;
}

void sm_sq_cache_put(semel_store *st, const semel_record *r, uint64_t stamp)
{
    sm_sq_cache *c = &st->cache;
    size_t bytes = sizeof(sm_sq_entry) + sm_record_bytes(r);
    /* Not worth the malloc if it is void already, nor if it would push out all others. */
    if (!semel_state_settled(r->state) || bytes > c->stripe_bytes || sm_sq_cache_stamp(st) != stamp)
        return;
    sm_sq_entry *e = malloc(bytes);
    if (e == NULL)
        return;
    *e = (sm_sq_entry){.stamp = stamp, .bytes = bytes};
    behind rest = {{behind_alloc}, e + 1};
    sm_record_copy(r, &rest.room, &e->record);

    sm_sq_stripe *s = stripe_of(c, &r->key);
    pthread_mutex_lock(&s->lock);
    sm_sq_entry **at = find(s, &r->key);
    if (sm_sq_cache_stamp(st) != stamp) {
        pthread_mutex_unlock(&s->lock);
        free(e);
        return;
    }
    if (*at != NULL)
        take_out(s, at);
    at = chain_of(s, &r->key);
    e->chain = *at;
    *at = e;
    enlist(s, e);
    s->bytes += bytes;
    s->count++;
    make_room(s, c->stripe_bytes);
    if (s->count > s->mask)
        widen(s);
    pthread_mutex_unlock(&s->lock);
}

void sm_sq_cache_drop(sm_sq_cache *c, const semel_hash *key)
{
    sm_sq_stripe *s = stripe_of(c, key);
    pthread_mutex_lock(&s->lock);
    sm_sq_entry **at = find(s, key);
    if (*at != NULL)
        take_out(s, at);
    pthread_mutex_unlock(&s->lock);
}

uint64_t sm_sq_cache_stamp(semel_store *st)
{
    return atomic_load(&atomic_load(&st->share.page)->epoch) + atomic_load(&st->cache.voids);
}

void sm_sq_cache_bump(semel_store *st)
{
    sm_sq_cache *c = &st->cache;
    pthread_mutex_lock(&c->epoch_lock);
    uint64_t before = atomic_fetch_add(&atomic_load(&st->share.page)->epoch, 1);
    if (atomic_load(&c->known) != before) /* somebody else's bump came before ours */
        atomic_store(&c->floor, before + 1 + atomic_load(&c->voids));
    atomic_store(&c->known, before + 1);
    pthread_mutex_unlock(&c->epoch_lock);
}

/* Another process has bumped the epoch: nothing from before counts. */
static void heed(semel_store *st)
{
    sm_sq_cache *c = &st->cache;
    pthread_mutex_lock(&c->epoch_lock);
    uint64_t epoch = atomic_load(&atomic_load(&st->share.page)->epoch);
    if (atomic_load(&c->known) != epoch) {
        atomic_store(&c->floor, epoch + atomic_load(&c->voids));
        atomic_store(&c->known, epoch);
    }
    pthread_mutex_unlock(&c->epoch_lock);
}

void sm_sq_cache_void(semel_store *st)
{
    sm_sq_cache *c = &st->cache;
    pthread_mutex_lock(&c->epoch_lock);
    uint64_t voids = atomic_fetch_add(&c->voids, 1) + 1;
    uint64_t epoch = atomic_load(&atomic_load(&st->share.page)->epoch);
    atomic_store(&c->floor, epoch + voids);
    atomic_store(&c->known, epoch);
    pthread_mutex_unlock(&c->epoch_lock);
}

/* Asks SQLite for its number of the file's contents. False: nobody can tell. */
static bool data_version(semel_store *st, int64_t *version)
{
    sm_sq_cache *c = &st->cache;
    if (c->check == NULL && sm_sq_conn_open(st, &c->check, NULL) != SEMEL_OK)
        return false;
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c->check, SM_SQL_DATA_VERSION, &rc);
    if (stmt == NULL)
        return false;
    bool known = sqlite3_step(stmt) == SQLITE_ROW;
    *version = known ? sm_sq_int(stmt, 0) : 0;
    sqlite3_reset(stmt);
    return known;
}

/* The backstop. One thread looks, and the others do not wait for it. */
static void look(semel_store *st, int64_t now)
{
    sm_sq_cache *c = &st->cache;
    if (pthread_mutex_trylock(&c->check_lock) != 0)
        return;
    atomic_store(&c->checked_at, now);
    bool first = c->check == NULL;
    uint64_t commits = atomic_load(&c->own_commits);
    bool quiet = commits == c->own_seen;
    bool foreign = atomic_exchange(&c->foreign, false);
    int64_t version = 0;
    sm_sq_enter();
    bool known = data_version(st, &version);
    sm_sq_leave();
    bool moved = first || version != c->data_version;
    if (!known || foreign || (quiet && !first && (moved || c->unsure))) {
        sm_sq_cache_void(st);
        c->unsure = false;
    } else {
        c->unsure = moved;
    }
    c->own_seen = commits;
    c->data_version = version;
    pthread_mutex_unlock(&c->check_lock);
}

semel_err sm_sq_peek(semel_store *st, const semel_hash *key, semel_room *room, semel_record *cur,
                     int64_t *now)
{
    sm_sq_cache *c = &st->cache;
    if (sm_sq_sound(st, NULL) != SEMEL_OK)
        return SEMEL_E_NOT_FOUND;
    *now = sm_clock_ms();
    if (atomic_load(&atomic_load(&st->share.page)->epoch) != atomic_load(&c->known))
        heed(st);
    sm_sq_stripe *s = stripe_of(c, key);
    semel_err err = SEMEL_E_NOT_FOUND;
    pthread_mutex_lock(&s->lock);
    sm_sq_entry **at = find(s, key);
    if (*at != NULL && (*at)->stamp < atomic_load(&c->floor)) {
        take_out(s, at);
    } else if (*at != NULL) {
        (*at)->hit = true;
        err = sm_record_copy(&(*at)->record, room, cur);
    }
    pthread_mutex_unlock(&s->lock);
    int64_t checked_at = atomic_load_explicit(&c->checked_at, memory_order_relaxed);
    if (err == SEMEL_OK && (*now - checked_at >= CHECK_MS || *now < checked_at))
        look(st, *now);
    return err;
}
