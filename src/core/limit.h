/*
 * Limits: how often one destination may be acted on within a time. Pure.
 *
 * A destination is a value of an argument: one recipient, one customer, one card. It has as many
 * slots as calls are allowed. A slot is a counter that says until when it is taken, and that only
 * grows, so that taking and freeing it are compare-and-swap by the counter's cap:
 *
 *     0             never taken, or long ago
 *     2 * end       taken until then
 *     2 * end + 1   was taken until then, and is free: nothing was done
 *
 * A call takes one free slot of each of its destinations in the write that lets it begin. So in any
 * window at most that many calls begin which did something, or may have. An effect takes its slots
 * once: what runs again out of doubt after a slot's end begins without one.
 *
 * A store may remove a counter that is long over while somebody takes the slot. What that leaves is
 * too small to be a time; such a slot counts as taken until the store removes it, too.
 */
#ifndef SM_CORE_LIMIT_H
#define SM_CORE_LIMIT_H

#include "core/contract.h"

/* A destination's name: a keyed hash, because its value may be somebody's address. */
typedef struct sm_destination {
    uint8_t id[16];
    const sm_limit_rule *rule;
} sm_destination;

typedef struct sm_destinations {
    uint32_t n;
    sm_destination v[SM_DESTINATIONS_MAX];
} sm_destinations;

/* A slot that an effect has taken. */
typedef struct sm_slot {
    uint8_t id[16]; /* the destination's */
    uint8_t number;
    int64_t end;
} sm_slot;

/* The destinations of a call. An argument that is a list has one for each element.
 * SEMEL_E_BAD_ARGUMENTS if an argument is absent or is no plain value: whoever leaves it out must
 * not get round the limit. */
sm_err sm_destinations_find(sm_buf *scratch, const sm_limits *limits, sm_str scope,
                            const sm_json *args, const sm_hash *secret, sm_destinations *out,
                            sm_fault *fault);

/* The name of a slot's counter. */
#define SM_SLOT_NAME 64u
sm_str sm_slot_name(const uint8_t id[16], uint32_t number, char text[SM_SLOT_NAME]);

/* Whether a slot can be taken now. If not, *free_at is when it can; INT64_MAX: nobody knows. */
bool sm_slot_free(int64_t value, int64_t now, int64_t *free_at);

/* Until when a slot of this value is taken by somebody who takes it now. */
int64_t sm_slot_take(int64_t value, int64_t now, int64_t window_ms);

static inline int64_t sm_slot_taken(int64_t end)
{
    return 2 * end;
}

static inline int64_t sm_slot_freed(int64_t end)
{
    return 2 * end + 1;
}

/* How long a slot's counter matters. */
int64_t sm_slot_until(int64_t end);

#endif
