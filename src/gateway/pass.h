/* Requests that change nothing and pass through, as a stream with a bounded part of it in memory.
 */
#ifndef SM_GATEWAY_PASS_H
#define SM_GATEWAY_PASS_H

#include "effect/upstream.h"
#include "gateway/gateway.h"

/* Makes the upstream's request from the client's: its headers but for those that are ours, and the
 * configuration's. Everything is in the arena. On failure gw_proxy_refuse answers (proxy.c). */
sm_err gw_proxy_request(const gw_request *r, sm_arena *a, const gw_upstream_api *api, sm_str path,
                        bool write, sm_upstream_call *up, sm_fault *fault);
void gw_proxy_refuse(gw_request *r, sm_err e, const sm_fault *fault);

/* Sends the request (which is copied), and answers `r` with what comes back. On the server's
 * thread. */
void gw_pass(gw_request *r, const sm_http_request *request);

/* The same for a stream that has no end of its own: it is cut when the gateway is told to end,
 * which is when gw_pass_quiesce is called, after `draining` was set. */
void gw_pass_stream(gw_request *r, const sm_http_request *request);
void gw_pass_quiesce(const gateway *g);

/* Whether a header belongs to one connection and not to the message (proxy.c). */
bool gw_hop_by_hop(sm_str name);

/* Whether a header of an upstream's answer is passed on: not what is ours to say. */
bool gw_passes_on(sm_str name);

#endif
