/*
 * What is counted, for GET /metrics.
 *
 * Counting is for the path of every request: a few additions to numbers that one processor mostly
 * has to itself, no lock. What can be asked of others when somebody looks (how many runs are in
 * flight, how many effects are in doubt) is not counted here.
 *
 * Label values are from fixed lists, but for the names of tools, of which only so many are told
 * apart.
 */
#ifndef SM_GATEWAY_TELEMETRY_METRICS_H
#define SM_GATEWAY_TELEMETRY_METRICS_H

#include "gateway/inside/gateway.h"
#include "upstream/http.h"

/* Routes that can be told apart; there are fewer. */
#define GW_ROUTES_MAX 32u

sm_err gw_metrics_new(gw_metrics **out);
void gw_metrics_free(gw_metrics *m); /* accepts NULL */

/* The end of a request. `route` is one of gw_routes, or NULL if there was none for it. */
void gw_count_request(gw_metrics *m, const gw_route *route, int status, int64_t took_ns);

/* What somebody who asked for a call was told. */
void gw_count_answer(gw_metrics *m, const semel_answer *a);

/* The end of an exchange with an upstream, for a tool. */
void gw_count_exchange(gw_metrics *m, sm_str tool, const sm_http_result *result);

/* The ledger's state, at most a second old. SEMEL_E_UNAVAILABLE if it does not answer, or not yet.
 * Blocks on the ledger: one caller at a time asks, the others get what is known. */
sm_err gw_ledger_stats(gateway *g, semel_stats *out, sm_fault *fault);

#endif
