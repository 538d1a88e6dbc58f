/* What is to happen when: a heap, the soonest on top. A timer lives in whatever it is about. */
#ifndef SM_BASE_TIMER_H
#define SM_BASE_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/container.h"

typedef struct sm_timer {
    int64_t due_ns; /* as it was set */
    size_t at;      /* its place in the heap, from 1; 0: it is not set */
} sm_timer;

typedef struct sm_timers {
    sm_timer **v;
    size_t n, room;
} sm_timers;

/* Sets a timer, or sets it anew. False when out of memory: it is not set then. */
bool sm_timer_set(sm_timers *t, sm_timer *x, int64_t due_ns);

/* Accepts one that is not set. */
void sm_timer_clear(sm_timers *t, sm_timer *x);

/* The soonest; NULL if there is none. */
static inline sm_timer *sm_timer_first(const sm_timers *t)
{
    return t->n == 0 ? NULL : t->v[0];
}

void sm_timers_fini(sm_timers *t); /* accepts a zeroed object */

#endif
