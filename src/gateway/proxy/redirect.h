/*
 * Redirects and links of an API behind the proxy.
 *
 * A client that follows one must come back to the gateway: its next request would go around the
 * ledger otherwise, and could carry a token of the gateway's to the API. So an address below the
 * proxy's `url` becomes the same place below the proxy:
 *
 *   - Location and Content-Location become a path, which holds whatever name the client has for us.
 *     One that is relative is seen from the request's own at the API.
 *   - Link becomes an absolute URL, since some SDKs put a base in front of a path; behind another
 *     proxy a path, too.
 *
 * Other addresses stay as they are, or become absolute if they are paths of the API. But if a
 * redirect would make the client send a write there, the redirect is not passed on.
 */
#ifndef SM_GATEWAY_PROXY_REDIRECT_H
#define SM_GATEWAY_PROXY_REDIRECT_H

#include "base/buf.h"
#include "gateway/http/request.h"

/* Appends the value that the client gets of such a header. False if it is none of them, or stays
 * as it is. */
bool gw_redirect_map(const gw_request *r, sm_str name, sm_str value, sm_buf *out);

/* Whether an answer with this status and Location sends the client's write to a place that is not
 * behind the proxy. */
bool gw_redirect_strays(const gw_request *r, int status, sm_str location);

/* The host that a Location names, for people; absent if it names none. */
sm_str gw_redirect_host(sm_str location);

#endif
