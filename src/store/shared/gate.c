/* The gate: a count of failures, a time to try next, and one caller who tries. */
#include "store/shared/gate.h"

#include <errno.h>

#include "base/clock.h"

#define FIRST_NS  (50 * 1000000ll)
#define MOST_NS   (5000 * 1000000ll)
#define DOUBLINGS 7u

void sm_gate_init(sm_gate *g, int64_t patience_ns)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    *g = (sm_gate){.patience_ns = patience_ns,
                   .seed = (uint64_t)sm_clock_mono_ns() ^ (uint64_t)(uintptr_t)g};
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void sm_gate_fini(sm_gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

sm_err sm_gate_enter(sm_gate *g, int64_t deadline_ns, sm_fault *fault)
{
    if (atomic_load(&g->failures) == 0)
        return SM_OK;
    sm_err e = SM_OK;
    pthread_mutex_lock(&g->lock);
    while (atomic_load(&g->failures) > 0) {
        int64_t now = sm_clock_mono_ns();
        if (!g->trying && now >= g->next_ns) {
            g->trying = true;
            break;
        }
        if (now >= deadline_ns || now - g->since_ns > g->patience_ns) {
            if (fault != NULL)
                *fault = g->why;
            e = SEMEL_E_UNAVAILABLE;
            break;
        }
        int64_t until = g->trying || g->next_ns > deadline_ns ? deadline_ns : g->next_ns;
        struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
        pthread_cond_timedwait(&g->changed, &g->lock, &t);
    }
    pthread_mutex_unlock(&g->lock);
    return e;
}

void sm_gate_good(sm_gate *g)
{
    if (atomic_load(&g->failures) == 0)
        return;
    pthread_mutex_lock(&g->lock);
    atomic_store(&g->failures, 0);
    g->trying = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* Somewhere between half of the pause and all of it. */
static int64_t pause_ns(sm_gate *g, unsigned failures)
{
    g->seed ^= g->seed << 13;
    g->seed ^= g->seed >> 7;
    g->seed ^= g->seed << 17;
    int64_t most = FIRST_NS << (failures < DOUBLINGS ? failures : DOUBLINGS);
    most = most < MOST_NS ? most : MOST_NS;
    return most / 2 + (int64_t)(g->seed % (uint64_t)(most / 2));
}

void sm_gate_bad(sm_gate *g, const sm_fault *why)
{
    pthread_mutex_lock(&g->lock);
    int64_t now = sm_clock_mono_ns();
    unsigned failures = atomic_load(&g->failures);
    g->why = *why;
    if (failures == 0)
        g->since_ns = now;
    /* Many callers may have been under way when it broke: together they are one failure. */
    if (failures == 0 || now >= g->next_ns) {
        g->next_ns = now + pause_ns(g, failures);
        atomic_store(&g->failures, failures + 1);
    }
    g->trying = false;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}
