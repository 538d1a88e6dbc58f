/* Timers in a heap. */
#include "base/timer.h"

#include <stdlib.h>

static void place(sm_timers *t, size_t at, sm_timer *x)
{
    t->v[at] = x;
    x->at = at + 1;
}

static void rise(sm_timers *t, size_t at, sm_timer *x)
{
    while (at > 0 && t->v[(at - 1) / 2]->due_ns > x->due_ns) {
        place(t, at, t->v[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    place(t, at, x);
}

static void sink(sm_timers *t, size_t at, sm_timer *x)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= t->n)
            break;
        if (child + 1 < t->n && t->v[child + 1]->due_ns < t->v[child]->due_ns)
            child++;
        if (t->v[child]->due_ns >= x->due_ns)
            break;
        place(t, at, t->v[child]);
        at = child;
    }
    place(t, at, x);
}

bool sm_timer_set(sm_timers *t, sm_timer *x, int64_t due_ns)
{
    sm_timer_clear(t, x);
    if (t->n == t->room) {
        size_t room = t->room == 0 ? 64 : 2 * t->room;
        sm_timer **v = realloc(t->v, room * sizeof *v);
        if (v == NULL)
            return false;
        t->v = v;
        t->room = room;
    }
    x->due_ns = due_ns;
    rise(t, t->n++, x);
    return true;
}

void sm_timer_clear(sm_timers *t, sm_timer *x)
{
    if (x->at == 0)
        return;
    size_t at = x->at - 1;
    sm_timer *last = t->v[--t->n];
    x->at = 0;
    if (last == x)
        return;
    if (at > 0 && t->v[(at - 1) / 2]->due_ns > last->due_ns)
        rise(t, at, last);
    else
        sink(t, at, last);
}

void sm_timers_fini(sm_timers *t)
{
    free(t->v);
    *t = (sm_timers){0};
}
