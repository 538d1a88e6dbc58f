/*
 * A limited number of places, such as for executions or streams. One owner has a quarter of them at
 * most, so that one tenant cannot take all.
 *
 * Not thread-safe: the caller holds a lock.
 */
#ifndef SM_BASE_SHARES_H
#define SM_BASE_SHARES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

#define SM_SHARES_BUCKETS 256u

typedef struct sm_shares {
    size_t taken;
    struct sm_share *owners[SM_SHARES_BUCKETS]; /* those who have a place */
} sm_shares;                                    /* zeroed: nobody has one */

void sm_shares_fini(sm_shares *s);

/* Whether an owner gets one of `most` places. An absent owner has no share and may have all. */
typedef enum sm_vacancy { SM_ROOM, SM_ROOM_OWN_TAKEN, SM_ROOM_ALL_TAKEN } sm_vacancy;
sm_vacancy sm_shares_room(const sm_shares *s, sm_str owner, size_t most);

/* Take a place, whether or not there is room, and give it back. When out of memory, the place is
 * counted and its owner is not. */
void sm_shares_take(sm_shares *s, sm_str owner);
void sm_shares_give(sm_shares *s, sm_str owner);

#endif
