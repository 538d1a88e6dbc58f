/* Striped tables of counters. */
#include "ledger/work/journal.h"

#include <stdio.h>
#include <stdlib.h>

#define SLOTS    2048u /* in a stripe; a power of two */
#define USED_MAX (SLOTS / 4 * 3)

static const char *jot_name(sm_jot what)
{
    static const char *const names[] = {"replayed", "passed", "observed", "refused"};
    return names[what];
}

void sm_journal_init(sm_journal *j)
{
    for (size_t i = 0; i < SM_JOURNAL_STRIPES; i++) {
        j->stripes[i].slots = NULL;
        j->stripes[i].used = 0;
        pthread_mutex_init(&j->stripes[i].lock, NULL);
    }
}

static void slots_free(sm_jotted *slots)
{
    for (uint32_t i = 0; slots != NULL && i < SLOTS; i++)
        free(slots[i].names);
    free(slots);
}

void sm_journal_fini(sm_journal *j)
{
    for (size_t i = 0; i < SM_JOURNAL_STRIPES; i++) {
        slots_free(j->stripes[i].slots);
        pthread_mutex_destroy(&j->stripes[i].lock);
    }
}

static uint64_t mix(uint64_t v)
{
    v ^= v >> 31;
    v *= 0x9E3779B97F4A7C15u;
    return v ^ v >> 29;
}

/* Calls without a record are told apart by their names. */
static uint64_t hash_names(sm_str scope, sm_str tool)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < scope.n; i++)
        h = (h ^ (uint8_t)scope.p[i]) * 1099511628211u;
    h = (h ^ 0xFF) * 1099511628211u;
    for (size_t i = 0; i < tool.n; i++)
        h = (h ^ (uint8_t)tool.p[i]) * 1099511628211u;
    return h;
}

static bool same(const sm_jotted *n, sm_jot what, semel_code code, uint64_t id, uint64_t generation,
                 sm_str scope, sm_str tool)
{
    if (n->id != id || n->generation != generation || n->what != what || n->code != code)
        return false;
    return id != 0 || (sm_str_eq(scope, (sm_str){n->names, n->scope_bytes}) &&
                       sm_str_eq(tool, (sm_str){n->names + n->scope_bytes, n->tool_bytes}));
}

static bool name_slot(sm_jotted *n, sm_str scope, sm_str tool)
{
    n->names = malloc(scope.n + tool.n + 1);
    if (n->names == NULL)
        return false;
    memcpy(n->names, scope.p, scope.n);
    memcpy(n->names + scope.n, tool.p, tool.n);
    n->scope_bytes = (uint32_t)scope.n;
    n->tool_bytes = (uint32_t)tool.n;
    return true;
}

void sm_journal_add(sm_journal *j, sm_jot what, semel_code code, uint64_t id, uint64_t generation,
                    int64_t now, sm_str scope, sm_str tool)
{
    uint64_t h = mix((id == 0 ? hash_names(scope, tool) : id) + generation * 31 + (uint64_t)what +
                     (uint64_t)code * 8);
    struct sm_journal_stripe *s = &j->stripes[h % SM_JOURNAL_STRIPES];
    pthread_mutex_lock(&s->lock);
    if (s->slots == NULL)
        s->slots = calloc(SLOTS, sizeof *s->slots);
    for (uint64_t at = h / SM_JOURNAL_STRIPES; s->slots != NULL; at++) {
        sm_jotted *n = &s->slots[at % SLOTS];
        if (n->count > 0 && !same(n, what, code, id, generation, scope, tool))
            continue;
        if (n->count == 0) {
            if (s->used >= USED_MAX || (id == 0 && !name_slot(n, scope, tool)))
                break; /* bounded: beyond this the journal counts too low until it is written */
            s->used++;
            n->id = id;
            n->generation = generation;
            n->what = what;
            n->code = code;
            n->first_at = now;
        }
        n->count++;
        n->last_at = now;
        break;
    }
    pthread_mutex_unlock(&s->lock);
}

static void flush_slots(sm_jotted *slots, const semel_store_ops *ops, semel_store *store)
{
    semel_note notes[64];
    char whats[64][40];
    size_t n = 0;
    sm_err e = SM_OK;
    for (uint32_t i = 0; i <= SLOTS && e == SM_OK; i++) {
        if (n == sizeof notes / sizeof notes[0] || (i == SLOTS && n > 0)) {
            e = ops->journal(store, notes, n, NULL);
            n = 0;
        }
        if (i == SLOTS || slots[i].count == 0)
            continue;
        const sm_jotted *t = &slots[i];
        snprintf(whats[n], sizeof whats[n], "%s%s%s", jot_name(t->what),
                 t->code == SEMEL_C_NONE ? "" : " ", semel_code_name(t->code));
        notes[n] = (semel_note){
            .id = t->id,
            .generation = t->generation,
            .first_at = t->first_at,
            .last_at = t->last_at,
            .count = t->count,
            .what = sm_str_from(whats[n]),
            .scope = {t->names, t->scope_bytes},
            .tool = {t->names == NULL ? NULL : t->names + t->scope_bytes, t->tool_bytes},
        };
        n++;
    }
}

void sm_journal_flush(sm_journal *j, const semel_store_ops *ops, semel_store *store)
{
    for (size_t i = 0; i < SM_JOURNAL_STRIPES; i++) {
        struct sm_journal_stripe *s = &j->stripes[i];
        pthread_mutex_lock(&s->lock);
        sm_jotted *slots = s->used > 0 ? s->slots : NULL;
        if (slots != NULL) {
            s->slots = NULL;
            s->used = 0;
        }
        pthread_mutex_unlock(&s->lock);
        if (slots == NULL)
            continue;
        flush_slots(slots, ops, store);
        slots_free(slots);
    }
}
