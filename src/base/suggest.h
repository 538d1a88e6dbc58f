/* "Did you mean": the nearest of some known names to one that is not among them. */
#ifndef SM_BASE_SUGGEST_H
#define SM_BASE_SUGGEST_H

#include <stddef.h>

#include "base/str.h"

/* Edits (insert, delete, replace, swap neighbours) between two texts; texts longer than 64 bytes
 * are as far apart as can be. */
size_t sm_edit_distance(sm_str a, sm_str b);

/* Keeps the nearest candidate seen so far; start from {0}. */
typedef struct sm_nearest {
    sm_str name;
    size_t distance;
} sm_nearest;

void sm_nearest_try(sm_nearest *n, sm_str wrong, sm_str candidate);

/* The candidate, if it is near enough to be worth saying; `p` is NULL otherwise. */
sm_str sm_nearest_get(const sm_nearest *n, sm_str wrong);

#endif
