/* From a client's request to the upstream's. */
#ifndef SM_GATEWAY_PROXY_FORWARD_H
#define SM_GATEWAY_PROXY_FORWARD_H

#include "gateway/inside/gateway.h"
#include "upstream/upstream.h"

/* Makes the upstream's request from the client's: those of its headers that are passed on, which
 * come first, *given many (unless NULL), and the configuration's. Everything is in the arena. On
 * failure gw_proxy_refuse answers (proxy.h). */
sm_err gw_proxy_request(const gw_request *r, sm_arena *a, const gw_upstream_api *api, sm_str path,
                        bool write, sm_upstream_call *up, size_t *given, sm_fault *fault);

/* The list of headers that a signature of AWS's kind (SigV4) covers, with semicolons; absent if
 * there is none. The upstream must get them as they came. */
sm_str gw_signed_headers(const gw_request *r);

/* Whether Connection lists a header that decides (headers.h). It is not passed on then, so the API
 * would read another request than the one that was judged. */
bool gw_hides_header(const gw_request *r, const gw_upstream_api *api);

/* Whether the request asks for another protocol than HTTP. */
bool gw_is_upgrade(const gw_request *r);

/* Whether a header belongs to one connection and not to the message; whether a list, with this
 * character between its words, has a word. */
bool gw_hop_by_hop(sm_str name);
bool gw_lists(sm_str list, char between, sm_str word);

#endif
