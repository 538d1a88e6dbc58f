/*
 * An effect: the ledger's record of one key, as far as its life goes.
 *
 * What a store keeps beside it (arguments, outcomes' bytes, names, history) does not decide what
 * happens next and is not here. An effect is plain data.
 */
#ifndef SM_CORE_EFFECT_H
#define SM_CORE_EFFECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/digest.h"
#include "base/limits.h"

/* Attempts that may have touched the world and of which nobody knows. More than this many and the
 * effect is held for a person. */
#define SM_DOUBTS_MAX 16u

/* People who approved the newest request; also the largest quorum. */
#define SM_APPROVERS_MAX 16u

typedef struct sm_effect {
    semel_state state;
    uint64_t generation; /* from 1; a deliberate repeat, or a use after the window, is a new one */
    uint64_t fence;      /* of the newest attempt; grows for ever, 0 before the first */
    uint64_t base_fence; /* the newest of earlier generations */
    uint64_t attempt;    /* attempts of this generation */
    uint64_t run;        /* grows when an attempt starts from failed; part of the downstream key */

    sm_hash ran;          /* the digest of what the newest attempt runs */
    int64_t lease_end;    /* running */
    bool resending;       /* running: the attempt is a resend */
    uint32_t doubt_count; /* how many of `doubts` */
    uint8_t chain_at;     /* index into the contract's on_in_doubt */
    int64_t doubt_end;    /* the later of lease's end and commit when the newest doubt arose */
    int64_t first_sent;   /* when the first attempt of this run began: the downstream's window */

    bool applied;   /* failed: known to be applied, never re-run */
    bool abandoned; /* failed: a person gave up on it */
    uint64_t late;  /* fence of a success that came while a newer attempt runs; 0 none */
    bool late_partial;

    uint64_t request; /* number of the newest approval request; 0 none */
    sm_hash digest;   /* what the request is bound to (I7) */
    int64_t
        request_end; /* running, in doubt: until when the approval that it used was good; or 0 */
    uint32_t quorum;
    uint32_t approvals; /* how many of `approvers` */
    bool approved;      /* ready: by an approval that is not consumed yet */
    uint32_t asked;     /* how many `askers` */
    bool crowded;       /* more have asked than are remembered */

    int64_t settled_at;
    int64_t window_end; /* INT64_MAX: never */
    int64_t result_end;

    /* Lists come last: nearly always they are empty, and what is beyond their counts is neither
     * set, copied nor looked at. */
    uint64_t doubts[SM_DOUBTS_MAX]; /* fences of attempts in doubt, oldest first */
    sm_hash approvers[SM_APPROVERS_MAX];
    sm_hash askers[SM_ASKERS_MAX]; /* for this call, where it needs approval */
} sm_effect;

/* An effect's bytes in front of its lists. */
#define SM_EFFECT_HEAD offsetof(sm_effect, doubts)

static inline void sm_effect_copy(sm_effect *to, const sm_effect *from)
{
    memcpy(to, from, SM_EFFECT_HEAD);
    for (uint32_t i = 0; i < from->doubt_count; i++)
        to->doubts[i] = from->doubts[i];
    for (uint32_t i = 0; i < from->approvals; i++)
        to->approvers[i] = from->approvers[i];
    for (uint32_t i = 0; i < from->asked; i++)
        to->askers[i] = from->askers[i];
}

/* Whether it is settled, and certainly happened. */
static inline bool sm_effect_applied(const sm_effect *e)
{
    return e->state == SEMEL_S_SUCCEEDED || e->state == SEMEL_S_PARTIAL ||
           (e->state == SEMEL_S_FAILED && e->applied);
}

/* Whether it certainly happened, or must never be tried again. */
static inline bool sm_effect_done(const sm_effect *e)
{
    return sm_effect_applied(e) || (e->state == SEMEL_S_FAILED && e->abandoned);
}

/* The first thing that is wrong with an effect, or NULL: the executable twin of the diagram. */
const char *sm_effect_flaw(const sm_effect *e);

#endif
