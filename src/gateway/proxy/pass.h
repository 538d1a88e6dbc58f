/* Requests that change nothing and pass through, as a stream with a bounded part of it in memory.
 */
#ifndef SM_GATEWAY_PROXY_PASS_H
#define SM_GATEWAY_PROXY_PASS_H

#include "gateway/inside/gateway.h"
#include "upstream/upstream.h"

/* Makes the upstream's request from the client's: those of its headers that are passed on
 * (forward.c), which come first, *given many (unless NULL), and the configuration's. Everything is
 * in the arena. On failure gw_proxy_refuse answers (proxy.c). */
sm_err gw_proxy_request(const gw_request *r, sm_arena *a, const gw_upstream_api *api, sm_str path,
                        bool write, sm_upstream_call *up, size_t *given, sm_fault *fault);

/* The arguments of the call that it is (args.c); `n` headers of the client are passed on. */
sm_err gw_proxy_args(const gw_request *r, sm_arena *a, const gw_upstream_api *api,
                     const sm_http_field *headers, size_t n, sm_str path, sm_str *out);

/* Takes headers out of a request, of the first *given: those that the configuration ignores, but
 * credentials, without which the API would refuse it, except for cookies; and those that only say
 * how it came here. What the client has signed stays. Whether there were any (headers.c). */
bool gw_proxy_leave(const gw_request *r, const gw_upstream_api *api, sm_upstream_call *up,
                    size_t *given);

/* The list of headers that a signature of AWS's kind (SigV4) covers, with semicolons; absent if
 * there is none. The upstream must get them as they came (forward.c). */
sm_str gw_signed_headers(const gw_request *r);

/* Whether a header of this name decides how a body is read, or is part of the request's identity
 * (headers.c). */
bool gw_proxy_header_decides(const gw_upstream_api *api, sm_str name);

/* Whether Connection lists such a header. It is not passed on then, so the API would read another
 * request than the one that was judged (forward.c). */
bool gw_hides_header(const gw_request *r, const gw_upstream_api *api);

/* Whether two headers have names that some servers take for one, such as X_A and X-A. Which of the
 * two such a server reads depends on their order, which is not recorded (headers.c). */
bool gw_proxy_twins(const sm_http_field *headers, size_t n);

void gw_proxy_refuse(gw_request *r, sm_err e, const sm_fault *fault);

/* Whether the request asks for another path than its own, which no request may (override.c). */
bool gw_asks_other_path(const gw_request *r);

/* Whether a request that only reads asks for another method: it would go around the ledger. `args`
 * are its arguments, for what its body says; NULL if it has no body (override.c). */
bool gw_asks_other_method(const gw_request *r, sm_arena *a, const sm_json *args);

/* Whether the request asks for another protocol than HTTP (forward.c). */
bool gw_is_upgrade(const gw_request *r);

/* Sends the request (which is copied), and answers `r` with what comes back. On the server's
 * thread. */
void gw_pass(gw_request *r, const sm_http_request *request);

/* The same for a stream that has no end of its own: it is cut when the gateway is told to end,
 * which is when gw_pass_quiesce is called, after `draining` was set. */
void gw_pass_stream(gw_request *r, const sm_http_request *request);
void gw_pass_quiesce(const gateway *g);

/* Whether a header belongs to one connection and not to the message; whether a list, with
 * this character between its words, has a word (forward.c). */
bool gw_hop_by_hop(sm_str name);
bool gw_lists(sm_str list, char between, sm_str word);

#endif
