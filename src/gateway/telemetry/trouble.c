/*
 * Whether the ledger can be used, for those who read the log.
 *
 * Clients are told that it cannot, and no more; the reason is for the log, where it is said once a
 * second at most, however many are refused. That it can be used again is known when it has recorded
 * something: reading may go on all the while.
 */
#include "base/clock.h"
#include "gateway/inside/gateway.h"

#define TELL_NS ((int64_t)1000000000)

/* Whether it is this thread's turn to say something. */
static bool may_tell(gateway *g)
{
    int64_t now = sm_clock_mono_ns(), told = atomic_load(&g->trouble.told_ns);
    return (told == 0 || now - told >= TELL_NS) &&
           atomic_compare_exchange_strong(&g->trouble.told_ns, &told, now);
}

void gw_ledger_fails(gateway *g, sm_str reason)
{
    if (!may_tell(g))
        return;
    atomic_store(&g->trouble.down, true);
    gw_log_field why = {"reason", reason, false};
    gw_say_fields(&g->log, GW_ERROR, "the ledger cannot be used", &why, 1);
}

void gw_ledger_works(gateway *g)
{
    if (!atomic_load_explicit(&g->trouble.down, memory_order_relaxed) || !may_tell(g))
        return;
    atomic_store(&g->trouble.down, false);
    gw_say(&g->log, GW_INFO, "the ledger can be used again", NULL);
}
