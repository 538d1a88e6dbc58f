/*
 * Redirects and links of an API behind the proxy.
 *
 * A client that follows one must come back to the gateway: its next request would go around the
 * ledger otherwise, and could carry a token of the gateway's to the API. So an address below the
 * proxy's `url` becomes the same place below the proxy:
 *
 *     Location, Content-Location   a path: it holds whatever name the client has for us
 *     Link                         an absolute URL, since some SDKs put a base in front of a path;
 *                                  behind another proxy a path, too
 *
 * A relative address is seen from the request's own path at the API.
 *
 * Other addresses stay as they are, or become absolute if they are relative: they are the API's.
 * But if a redirect could make the client send a write there, the redirect is not passed on.
 */
#ifndef SM_GATEWAY_PROXY_REDIRECT_H
#define SM_GATEWAY_PROXY_REDIRECT_H

#include "base/buf.h"
#include "gateway/http/request.h"

/* Appends the value that the client gets of such a header. False if it is none of them, or stays
 * as it is. */
bool gw_redirect_map(const gw_request *r, sm_str name, sm_str value, sm_buf *out);

/* Whether clients may send a write again, to the place that Location names, if it is answered with
 * this status. After 303 all of them make a GET of it, and after 301 and 302 of a POST. */
bool gw_redirect_repeats(const gw_request *r, int status);

/* Whether a Location leads to a place that is not behind the proxy. */
bool gw_redirect_strays(const gw_request *r, sm_str location);

/* The host that a Location names, for people; absent if it names none. */
sm_str gw_redirect_host(sm_str location);

#endif
