/* Requests that change nothing and pass through, as a stream with a bounded part of it in memory.
 */
#ifndef SM_GATEWAY_PROXY_PASS_H
#define SM_GATEWAY_PROXY_PASS_H

#include "gateway/inside/gateway.h"

/* Sends the request (which is copied), and answers `r` with what comes back. On the server's
 * thread. */
void gw_pass(gw_request *r, const sm_http_request *request);

/* The same for a stream that has no end of its own: it is cut when the gateway is told to end,
 * which is when gw_pass_quiesce is called, after `draining` was set. */
void gw_pass_stream(gw_request *r, const sm_http_request *request);
void gw_pass_quiesce(const gateway *g);

#endif
