/* A table of pointers that are exchanged whole, so that it needs no lock. */
#include "ledger/recall.h"

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
static _Atomic(sm_recalled *) *slot_of(sm_recall *m, uint64_t id)
{
    return &m->slots[id % SM_RECALL_SLOTS];
}

void sm_recall_fini(sm_recall *m)
{
    for (size_t i = 0; i < SM_RECALL_SLOTS; i++)
        free(atomic_exchange(&m->slots[i], NULL));
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
    if (e != NULL)
        free(atomic_exchange(slot_of(m, r->id), e));
}

sm_recalled *sm_recall_find(sm_recall *m, uint64_t id)
{
    _Atomic(sm_recalled *) *slot = slot_of(m, id);
    sm_recalled *e = atomic_load(slot) == NULL ? NULL : atomic_exchange(slot, NULL);
    if (e == NULL)
        return NULL;
    sm_recalled *found = e->record.id == id ? sm_recalled_copy(&e->record) : NULL;
    sm_recalled *empty = NULL;
    if (!atomic_compare_exchange_strong(slot, &empty, e))
        free(e); /* a newer one has come */
    return found;
}

sm_recalled *sm_recall_take(sm_recall *m, uint64_t id, uint64_t generation, uint64_t fence)
{
    sm_recalled *e = atomic_exchange(slot_of(m, id), NULL);
    if (e == NULL)
        return NULL;
    if (e->record.id != id) { /* somebody else's: back to its place */
        free(atomic_exchange(slot_of(m, id), e));
        return NULL;
    }
    if (e->record.generation == generation && e->record.fence == fence)
        return e;
    free(e);
    return NULL;
}
