/* What the headers of a request through the reverse proxy mean. */
#ifndef SM_GATEWAY_PROXY_HEADERS_H
#define SM_GATEWAY_PROXY_HEADERS_H

#include "gateway/proxy/args.h"
#include "upstream/upstream.h"

/* Takes headers out of a request, of the first *given: those that the configuration ignores, but
 * credentials, without which the API would refuse it, except for cookies; and those that only say
 * how it came here. What the client has signed stays. Whether there were any. */
bool gw_proxy_leave(const gw_request *r, const gw_upstream_api *api, sm_upstream_call *up,
                    size_t *given);

/* Whether a header of this name decides how a body is read, or is part of the request's identity.
 */
bool gw_proxy_header_decides(const gw_upstream_api *api, sm_str name);

/* Whether two headers have names that some servers take for one, such as X_A and X-A. Which of the
 * two such a server reads depends on their order, which is not recorded. */
bool gw_proxy_twins(const sm_http_field *headers, size_t n);

/* Appends the members that hold headers; after the body. */
sm_err gw_put_headers(gw_writing *w);

#endif
