/* One number for each period, and a short list of what was seen since something new was done. */
#include "core/loop.h"

#include <assert.h>
#include <string.h>

static_assert(SM_LOOP_CYCLE_MAX == 32, "a bit of sm_loop.progressed for each");

/* Where counts stop, so that none overflows. */
#define MANY (UINT32_MAX - 2)

const char *sm_loop_name(sm_loop_detector d)
{
    static const char *const names[] = {"repeat", "cycle", "no_progress"};
    return names[d];
}

static bool same_entry(const sm_loop_entry *a, const sm_loop_entry *b)
{
    return a->call == b->call && a->result == b->result;
}

/* The entry p before the next one. */
static const sm_loop_entry *before(const sm_loop *l, uint32_t p)
{
    return &l->tail[(l->calls - p) % SM_LOOP_CYCLE_MAX];
}

const sm_loop_entry *sm_loop_last(const sm_loop *l)
{
    return l->calls == 0 ? NULL : before(l, 1);
}

/* Of several the one with most copies; of these the shortest period. No_progress comes last: if it
 * has one copy more than a cycle, that is the cycle's next copy, which has begun. */
static void take_better(sm_loop_match *best, sm_loop_detector detector, uint32_t period,
                        uint32_t count, uint64_t result)
{
    if (count <= best->count)
        return;
    bool next_copy = detector == SM_LOOP_NO_PROGRESS && best->detector == SM_LOOP_CYCLE &&
                     count == best->count + 1;
    if (!next_copy)
        *best = (sm_loop_match){.detector = detector, .period = period};
    best->count = count;
    best->result = result;
}

/* The copies of a period of which so many entries in a row are equal to the one before them. Most
 * periods are not better than what was found, which a product tells sooner than a quotient. */
static void take_period(sm_loop_match *best, uint32_t period, uint32_t same, uint64_t result)
{
    if (same >= (uint64_t)best->count * period)
        take_better(best, period == 1 ? SM_LOOP_REPEAT : SM_LOOP_CYCLE, period, same / period + 1,
                    result);
}

sm_loop_match sm_loop_foresee(const sm_loop *l, uint64_t call, uint32_t max_cycle)
{
    assert(l->periods <= SM_LOOP_CYCLE_MAX);
    sm_loop_match best = {.detector = SM_LOOP_REPEAT, .period = 1, .count = 1};
    for (uint32_t p = 1; p <= max_cycle && p <= l->periods && p <= l->calls; p++) {
        const sm_loop_entry *e = before(l, p);
        if (e->call == call)
            take_period(&best, p, l->same[p - 1] + 1, e->result);
    }
    for (uint32_t i = 0; i < l->seen_count; i++) {
        if (l->seen[i].entry.call == call)
            take_better(&best, SM_LOOP_NO_PROGRESS, 0, l->seen[i].count + 1,
                        l->seen[i].entry.result);
    }
    return best;
}

/* Counts how often the entry was there since the last progress. It becomes the first of them. */
static void see(sm_loop *l, sm_loop_entry entry, bool progress)
{
    if (progress)
        l->seen_count = 0;
    uint32_t at = 0;
    while (at < l->seen_count && !same_entry(&l->seen[at].entry, &entry))
        at++;
    sm_loop_seen now = {entry, 1};
    if (at < l->seen_count)
        now.count = l->seen[at].count + (l->seen[at].count < MANY);
    else if (l->seen_count < SM_LOOP_SEEN_MAX)
        l->seen_count++;
    else
        at--; /* in the place of the oldest */
    memmove(&l->seen[1], &l->seen[0], at * sizeof l->seen[0]);
    l->seen[0] = now;
}

sm_loop_match sm_loop_now(const sm_loop *l, uint32_t max_cycle)
{
    const sm_loop_entry *last = sm_loop_last(l);
    if (last == NULL)
        return (sm_loop_match){.detector = SM_LOOP_REPEAT, .period = 1};
    sm_loop_match best = {SM_LOOP_REPEAT, 1, 1, last->result};
    for (uint32_t p = 1; p <= max_cycle && p <= l->periods && p < l->calls; p++)
        take_period(&best, p, l->same[p - 1], last->result);
    if (l->seen_count > 0)
        take_better(&best, SM_LOOP_NO_PROGRESS, 0, l->seen[0].count, last->result);
    return best;
}

sm_loop_match sm_loop_add(sm_loop *l, sm_loop_entry entry, bool progress, uint32_t max_cycle)
{
    assert(l->periods <= SM_LOOP_CYCLE_MAX);
    for (uint32_t p = 1; p <= l->periods && p <= l->calls; p++) {
        uint32_t *same = &l->same[p - 1];
        *same = same_entry(before(l, p), &entry) ? *same + (*same < MANY) : 0;
    }
    uint32_t at = l->calls++ % SM_LOOP_CYCLE_MAX;
    l->tail[at] = entry;
    l->progressed = (l->progressed & ~(1u << at)) | (uint32_t)progress << at;
    see(l, entry, progress);
    return sm_loop_now(l, max_cycle);
}

/* Of those that are not remembered, some may have done something new. */
void sm_loop_append(sm_loop *to, const sm_loop *from, uint64_t newest)
{
    bool forgotten = newest > SM_LOOP_CYCLE_MAX;
    uint64_t n = forgotten ? SM_LOOP_CYCLE_MAX : newest;
    if (to->periods < from->periods)
        to->periods = from->periods;
    for (uint64_t i = from->calls - n; i < from->calls; i++) {
        uint32_t at = i % SM_LOOP_CYCLE_MAX;
        sm_loop_add(to, from->tail[at], forgotten || (from->progressed >> at & 1) != 0,
                    to->periods);
        forgotten = false;
    }
}
