/*
 * Resources: whether an effect is the last one that has written what it acts on.
 *
 * A resource has a counter of its writes in the store. The write that settles an effect as applied
 * adds one to it, and the record keeps the count that it made; the counter's cap makes that a
 * compare-and-swap. The effect answers repeats as long as the counter has this value. If others
 * wrote while the attempt ran, nobody knows who was last: the record keeps 0, which no counter has.
 *
 * An attempt that ends in doubt may have written the resource, so it counts at once. If it is
 * found to have been applied, it counts once more: nobody knows when it was.
 *
 * The counter outlasts the longest window of the effects that it counts. Once it is gone, no answer
 * depends on it.
 */
#include "ledger/call/resource.h"

#include <stdio.h>

#include "base/duration.h"

/* A counter stays so much longer than any answer depends on it: hardly ever does a write find one
 * that purge removes at that very moment, and a doubt has time to be resolved. */
#define LINGER_MS ((int64_t)86400000)

static int64_t until(const sm_work *w)
{
    int64_t end = w->memo.effect.window_end; /* a doubt has none yet */
    return sm_time_after(end != 0 ? end : w->now, LINGER_MS);
}

static sm_str name_of(const sm_resource *r, char text[SM_RESOURCE_NAME])
{
    char hash[SM_HASH_TEXT + 1];
    sm_hash_text(&r->hash, hash);
    int n = snprintf(text, SM_RESOURCE_NAME, "resource:%s", hash);
    return (sm_str){text, (size_t)n};
}

sm_err sm_resource_count(semel *s, const sm_resource *r, uint8_t shard, uint64_t *count,
                         semel_fault *fault)
{
    char text[SM_RESOURCE_NAME];
    int64_t value = 0;
    sm_err e = s->ops->counter(s->store, shard, name_of(r, text), &value, fault);
    if (e == SM_OK)
        *count = value > 0 ? (uint64_t)value : 0;
    return e;
}

/* What the event says: verifying compares it with the counter. */
static void put_count(sm_work *w, const char *name, uint64_t count)
{
    sm_body_hash(w, "resource", &w->memo.resource.hash);
    sm_body_number(w, name, count);
    if (until(w) != INT64_MAX)
        sm_body_number(w, "until", (uint64_t)until(w));
}

/* Whether the step ends an attempt in doubt. A full list does not grow. */
static bool doubts_more(const sm_move *step, const sm_effect *before)
{
    return step->next.doubt_count > before->doubt_count ||
           (step->next.doubt_count == SM_DOUBTS_MAX && sm_step_noted(step, SM_N_DOUBTED));
}

sm_counting sm_counting_of(const sm_work *w, const sm_change *change)
{
    const sm_effect *next = &w->step.next;
    bool moved =
        change->import != NULL && !change->returns; /* to this ledger: it was written there */
    bool asks = sm_step_noted(&w->step, SM_N_REQUESTED);
    bool starts = sm_step_noted(&w->step, SM_N_STARTED);
    sm_counting c = {.before = w->memo.written, .evidence = change->evidence, .moved = moved};
    bool applied = sm_effect_applied(next);
    if (moved)
        c.does = (applied || next->doubt_count > 0) && w->memo.written != 0 ? SM_COUNT_WRITTEN
                 : applied                                                  ? SM_COUNT_NOTHING
                                                                            : SM_COUNT_SEEN;
    else if ((applied && !sm_effect_applied(&w->memo.effect)) ||
             doubts_more(&w->step, &w->memo.effect))
        c.does = SM_COUNT_WRITTEN;
    else if (change->identity != NULL && (asks || starts) && next->doubt_count == 0)
        c.does = SM_COUNT_SEEN;
    return c;
}

sm_err sm_counting_take(semel *s, sm_work *w, const sm_counting *c, uint8_t shard, sm_counters *out)
{
    sm_memo *m = &w->memo;
    uint64_t count = c->before;
    if (!m->terms.resource || c->does == SM_COUNT_NOTHING)
        return SM_OK;
    sm_err e = sm_resource_count(s, &m->resource, shard, &count, &w->fault);
    /* A store that has lost something takes evidence, and answers nothing. */
    bool blind = e == SEMEL_E_UNAVAILABLE && c->evidence;
    if (e != SM_OK && !blind)
        return e;
    if (c->does == SM_COUNT_SEEN) {
        m->written = count;
        return SM_OK;
    }
    /* Nobody knows who was last, if the counter cannot be read. */
    bool last = !blind && (c->moved || count == c->before || count == 0);
    m->written = last ? count + 1 : 0;
    out->v[out->n] = (semel_counter){.name = name_of(&m->resource, out->name[out->n]),
                                     .delta = 1,
                                     .cap = blind ? INT64_MAX : (int64_t)count + 1,
                                     .until = until(w)};
    out->n++;
    put_count(w, "written", count + 1);
    return SM_OK;
}

sm_err sm_resource_keep(semel *s, sm_work *w)
{
    uint64_t count;
    if (!w->memo.terms.resource || !sm_effect_applied(&w->memo.effect))
        return SM_OK;
    sm_err e = sm_resource_count(s, &w->memo.resource, w->cur.shard, &count, &w->fault);
    if (e == SM_OK)
        put_count(w, "count", count);
    return e;
}

sm_err sm_resource_overwritten(semel *s, sm_work *w, const sm_resource *r, bool *out)
{
    const sm_memo *m = &w->memo;
    bool same = m->terms.resource && memcmp(&m->resource, r, sizeof *r) == 0;
    uint64_t count;
    *out = false;
    sm_err e = sm_resource_count(s, r, w->cur.shard, &count, &w->fault);
    *out = e == SM_OK && count != (same ? m->written : 0);
    return e;
}
