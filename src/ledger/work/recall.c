/* A table with a few locks, so that callers seldom meet. */
#include "ledger/work/recall.h"

#include <stdlib.h>
#include <string.h>

#define TEXTS 7

static void texts_of(semel_record *r, semel_str *out[TEXTS])
{
    semel_str *const all[TEXTS] = {&r->scope, &r->step, &r->tool,   &r->caller,
                                   &r->args,  &r->life, &r->outcome};
    memcpy(out, all, sizeof all);
}

static size_t bytes_of(const semel_record *r)
{
    return r->scope.n + r->step.n + r->tool.n + r->caller.n + r->args.n + r->life.n + r->outcome.n;
}

/* Copies the texts of `r`, which become those in `to`. */
static void move_texts(semel_record *r, char *to)
{
    semel_str *texts[TEXTS];
    texts_of(r, texts);
    for (size_t i = 0; i < TEXTS; i++) {
        if (texts[i]->p == NULL)
            continue;
        memcpy(to, texts[i]->p, texts[i]->n);
        texts[i]->p = to;
        to += texts[i]->n;
    }
}

/* An id is a hash already. */
static sm_recalled **lock(sm_recall *m, uint64_t id)
{
    pthread_mutex_lock(&m->locks[id % SM_RECALL_LOCKS]);
    return &m->slots[id % SM_RECALL_SLOTS];
}

static void unlock(sm_recall *m, uint64_t id)
{
    pthread_mutex_unlock(&m->locks[id % SM_RECALL_LOCKS]);
}

_Static_assert(SM_RECALL_SLOTS % SM_RECALL_LOCKS == 0, "a slot has one lock");

void sm_recall_init(sm_recall *m)
{
    for (size_t i = 0; i < SM_RECALL_LOCKS; i++)
        pthread_mutex_init(&m->locks[i], NULL);
}

void sm_recall_fini(sm_recall *m)
{
    for (size_t i = 0; i < SM_RECALL_SLOTS; i++)
        free(m->slots[i]);
    for (size_t i = 0; i < SM_RECALL_LOCKS; i++)
        pthread_mutex_destroy(&m->locks[i]);
}

sm_recalled *sm_recalled_copy(const semel_record *r)
{
    sm_recalled *e = malloc(sizeof *e + bytes_of(r));
    if (e != NULL) {
        e->record = *r;
        move_texts(&e->record, e->bytes);
    }
    return e;
}

void sm_recall_put(sm_recall *m, const semel_record *r)
{
    sm_recalled *e = bytes_of(r) > SM_RECALL_BYTES_MAX ? NULL : sm_recalled_copy(r);
    if (e == NULL)
        return;
    sm_recalled **slot = lock(m, r->id);
    sm_recalled *old = *slot;
    *slot = e;
    unlock(m, r->id);
    free(old);
}

static bool is_attempt(const sm_recalled *e, uint64_t id, uint64_t generation, uint64_t fence)
{
    return e != NULL && e->record.id == id && e->record.generation == generation &&
           e->record.fence == fence;
}

sm_recalled *sm_recall_find(sm_recall *m, uint64_t id)
{
    sm_recalled **slot = lock(m, id), *e = *slot;
    sm_recalled *found = e != NULL && e->record.id == id ? sm_recalled_copy(&e->record) : NULL;
    unlock(m, id);
    return found;
}

sm_recalled *sm_recall_find_attempt(sm_recall *m, uint64_t id, uint64_t generation, uint64_t fence)
{
    sm_recalled **slot = lock(m, id), *e = *slot;
    sm_recalled *found = is_attempt(e, id, generation, fence) ? sm_recalled_copy(&e->record) : NULL;
    unlock(m, id);
    return found;
}

void sm_recall_drop(sm_recall *m, uint64_t id, uint64_t generation, uint64_t fence)
{
    sm_recalled **slot = lock(m, id), *e = *slot;
    if (is_attempt(e, id, generation, fence))
        *slot = NULL;
    else
        e = NULL;
    unlock(m, id);
    free(e);
}
