/*
 * Whether the gateway lives and works, and the document that describes its API.
 *
 * /healthz says that the process answers, whatever the ledger does: restarting a gateway does not
 * bring a ledger back. /readyz says whether the ledger takes writes: it tries a small one, once a
 * second at most.
 */
#include "gateway/api/api.h"
#include "gateway/api/openapi.h"
#include "gateway/telemetry/metrics.h"

void gw_on_health(gw_request *r)
{
    gw_reply(r, 200, "text/plain; charset=utf-8", SM_STR("ok\n"));
}

static void ready(gw_request *r, semel_answer *a)
{
    semel_stats stats;
    sm_fault fault = {0};
    sm_err e = gw_ledger_stats(r->g, &stats, &fault);
    if (e == SM_OK)
        gw_reply(r, 200, "text/plain; charset=utf-8", SM_STR("ready\n"));
    else
        gw_reply_code(r, a, SEMEL_C_LEDGER_UNAVAILABLE); /* anybody may ask: no words about where */
}

void gw_on_ready(gw_request *r)
{
    if (atomic_load(&r->g->draining))
        gw_problem(r, 503, "DRAINING", "Use another gateway.", "The gateway is about to end.");
    else
        gw_work(r, ready);
}

void gw_on_openapi(gw_request *r)
{
    gw_reply(r, 200, "application/json", (sm_str){gw_openapi, gw_openapi_bytes});
}
