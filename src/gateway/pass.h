/* Requests that change nothing and pass through, as a stream with a bounded part of it in memory.
 */
#ifndef SM_GATEWAY_PASS_H
#define SM_GATEWAY_PASS_H

#include "gateway/gateway.h"

/* Sends the request (which is copied), and answers `r` with what comes back. On the server's
 * thread. */
void gw_pass(gw_request *r, const sm_http_request *request);

/* Whether a header belongs to one connection and not to the message (proxy.c). */
bool gw_hop_by_hop(sm_str name);

#endif
