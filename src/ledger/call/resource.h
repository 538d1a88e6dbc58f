/* What effects act on, and who has written it last (resource.c). */
#ifndef SM_LEDGER_CALL_RESOURCE_H
#define SM_LEDGER_CALL_RESOURCE_H

#include "ledger/work/ledger.h"

#define SM_RESOURCE_NAME (sizeof "resource:" + SM_HASH_TEXT)

/* A caller's key or step names the action: a call that has one is a retry, whatever others have
 * written since. */
static inline bool sm_always_retry(sm_str key, sm_str step)
{
    return key.p != NULL || step.p != NULL;
}

/* How often it was written, as far as any answer depends on that. */
sm_err sm_resource_count(semel *s, const sm_resource *r, uint8_t shard, uint64_t *count,
                         semel_fault *fault);

/* Whether others have written the resource, or may have, since the effect of w->cur, which is
 * settled as applied. */
sm_err sm_resource_overwritten(semel *s, sm_work *w, const sm_resource *r, bool *out);

/* The events that made the count are about to be purged: puts it into the body of the next one. */
sm_err sm_resource_keep(semel *s, sm_work *w);

/* What a write does about the resource. */
typedef struct sm_counting {
    enum {
        SM_COUNT_NOTHING,
        SM_COUNT_SEEN,    /* notes the count: an attempt begins, or is asked about */
        SM_COUNT_WRITTEN, /* adds one: the effect was applied, or may have been */
    } does;
    uint64_t before; /* the count that the record had noted */
    bool evidence;   /* see sm_change */
    bool moved;      /* the record comes from another ledger */
} sm_counting;

/* By the step in w->step over w->memo; before either is changed. */
sm_counting sm_counting_of(const sm_work *w, const sm_change *change);

/* Reads the count, and sets w->memo, the event's body and the counter. If the write is
 * refused with SEMEL_E_OVER_CAP, others were faster: it is made anew. */
sm_err sm_counting_take(semel *s, sm_work *w, const sm_counting *c, uint8_t shard,
                        sm_counters *out);

#endif
