/*
 * W3C trace context: reading what came, and making what did not.
 *
 * Ids of traces name things and protect nothing, so they come from a generator of the thread's own
 * that asks the system for a seed once.
 */
#ifndef SM_GATEWAY_TELEMETRY_TRACE_H
#define SM_GATEWAY_TELEMETRY_TRACE_H

#include "gateway/http/request.h"
#include "upstream/upstream.h"

/* Room for a traceparent and its NUL. */
#define GW_TRACEPARENT_TEXT 56u

/* Continues the trace that `parent` names, if it is well formed; else begins one. `parent` and
 * `state` are the values of the headers traceparent and tracestate, or absent. */
void gw_trace_start(gw_trace *t, sm_str parent, sm_str state);

/* The header for a request of ours: the trace, and our span as its parent. */
void gw_trace_parent(const gw_trace *t, char out[GW_TRACEPARENT_TEXT]);

/* Adds the headers of the trace to a request. */
sm_err gw_trace_send(const gw_trace *t, sm_arena *a, sm_upstream_call *up);

#endif
