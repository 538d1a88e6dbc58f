/*
 * One HTTP request of a client, from its first byte to the end of its answer.
 *
 * A handler runs on a thread of the HTTP server, which must not block: it answers at once
 * (gw_reply...), or hands the request to a worker (gw_work), or keeps it and answers later from any
 * thread (gw_hold, then one of the replies). Exactly one reply is made for each request.
 *
 * Life: the connection owns one reference, and whoever holds the request another one (gw_hold takes
 * it, the reply gives it back). When the client hangs up while the request is held, gw_is_gone says
 * so and on_gone, if set, is called once, on a thread that must not block; a reply that is made
 * afterwards goes nowhere and is still to be made.
 */
#ifndef SM_GATEWAY_HTTP_REQUEST_H
#define SM_GATEWAY_HTTP_REQUEST_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/method.h"
#include "gateway/tokens.h"
#include "semel/semel.h"

typedef struct gateway gateway;
typedef struct gw_request gw_request;
struct gw_route; /* inside/gateway.h */

#define X(name, does) GW_##name,
typedef enum gw_method { SM_METHODS(X, X) GW_OTHER } gw_method;
#undef X

/* W3C trace context: what came, or what was made for this request. */
typedef struct gw_trace {
    char id[33];     /* 32 hexadecimal digits */
    char parent[17]; /* of whoever called us; empty: the trace began here */
    char span[17];   /* ours */
    bool sampled;
    sm_str state; /* tracestate as it came, or absent */
} gw_trace;

/*
 * Whether the client is there.
 *
 *     HERE --+---------------> GONE ---.    it hangs up, or the server ends
 *            |                  ^      |
 *            +---> UNHEARD -----'      |    the server had ended when it was held
 *            |                         v
 *            '---> GIVEN_UP --------> LOST  we end before it has its answer
 *
 * The server moves it, from any thread, under the request's lock. Whoever moves it from HERE or
 * UNHEARD calls on_gone then, but to UNHEARD.
 */
typedef enum gw_presence {
    GW_HERE,
    GW_GIVEN_UP, /* here; but we end, and any problem that is its answer says so */
    GW_UNHEARD,  /* gone, and on_gone was not called yet */
    GW_GONE,
    GW_LOST, /* gone, and given up */
} gw_presence;

struct gw_request {
    gateway *g;
    const struct gw_route *route; /* NULL: none was found yet */
    gw_method method;
    const char *method_text;
    const struct gw_upstream_api *mounted;  /* it came to an address of this API's own; NULL: to one
                                               of the gateway's */
    const struct gw_upstream_api *upstream; /* the API that it is passed on to; NULL: none */
    sm_str target;                          /* its path there, behind the API's url */
    bool secure;                            /* the client speaks TLS to us */
    sm_str path;                            /* as sent, without the query */
    sm_str rest;  /* of the path, behind the route's prefix; decoded if the route says so */
    sm_str query; /* as sent, without the question mark; absent: none */
    sm_buf body;  /* the whole of it, at most the configured limit */
    bool proxied; /* for an API behind the gateway: refusals are in words that its clients read
                     (problem.h) */
    gw_who who;   /* who asks; all zero on routes that are open to everybody */
    gw_trace trace;
    int64_t began_ns;
    sm_str effect; /* for the log: the handle that the answer names */
    void *own;     /* the handler's */
    void (*on_gone)(gw_request *r);
    _Atomic gw_presence client; /* the server's (gw_is_gone) */

    /* Gets each header of an answer that passes through; true: it has set what the client gets
     * instead. May be NULL. */
    bool (*on_header)(gw_request *r, sm_str name, sm_str value);
};

/* Whether the client has gone; from any thread. */
static inline bool gw_is_gone(const gw_request *r)
{
    return atomic_load(&r->client) >= GW_UNHEARD;
}

/* A header by its name, or a query parameter (decoded); absent if it is missing. Valid until the
 * reply. Of a repeated header it gives the first value; deciding headers are not repeated
 * (head.c). */
sm_str gw_header(const gw_request *r, const char *name);
sm_str gw_query(const gw_request *r, const char *name);

/* Told each header (or query parameter) in turn; false stops. */
typedef bool gw_pair_fn(void *context, sm_str name, sm_str value);
void gw_headers_each(const gw_request *r, gw_pair_fn *each, void *context);
void gw_query_each(const gw_request *r, gw_pair_fn *each, void *context);

/* ---- answering -------------------------------------------------------------------------------*/

/* A header of the answer; before the reply. One that could be no header is left out; Content-Length
 * and Transfer-Encoding are the server's to say. */
void gw_set(gw_request *r, const char *name, sm_str value);

/* Adds Semel-Warning, if the answer has a warning: bounded, and in plain ASCII. */
void gw_set_warning(gw_request *r, const semel_answer *a);

/* The reply. The body is copied. */
void gw_reply(gw_request *r, int status, const char *content_type, sm_str body);
void gw_reply_json(gw_request *r, int status, sm_str json);

/* A reply that has no body by its nature, to HEAD or with 204 or 304; `bytes` is what HEAD says of
 * the body that GET would have. */
#define GW_BYTES_UNKNOWN UINT64_MAX
void gw_reply_bare(gw_request *r, int status, uint64_t bytes);

/* What the ledger refused, or an error of ours, as problem+json (RFC 9457): type, title, status,
 * detail, and the fields code, retriable, retry_after_ms, message, corrective_action, effect.
 * Retry-After is set where it applies. */
void gw_reply_refusal(gw_request *r, const semel_answer *a);

/* An answer of the ledger: a refusal as above, else the answer's JSON with status 200. */
void gw_reply_answer(gw_request *r, const semel_answer *a);

/* A problem that is the gateway's own. `code` is one of the codes of semel.h by name, or one of the
 * gateway's: UNAUTHENTICATED, NOT_ALLOWED, TOO_LARGE, OVERLOADED, DRAINING, NO_ROUTE,
 * MISCONFIGURED, UNSUPPORTED. The message says what is wrong, `advice` (may be NULL) what to do
 * instead. */
void gw_problem(gw_request *r, int status, const char *code, const char *advice, const char *format,
                ...) __attribute__((format(printf, 5, 6)));

/* That there is no memory for the request. */
void gw_out_of_memory(gw_request *r);

/* An answer whose body comes piece by piece, from any thread, until gw_flow_end. The request is
 * held from gw_flow_start on. It has the length that Content-Length was set to, or none is told.
 *
 * gw_flow_push takes a piece, or returns false if more is waiting than the bound allows: then
 * nothing was taken, and `on_room` (may be NULL) is called once there is room again. After the
 * client has hung up pieces are taken and dropped. */
#define GW_FLOW_BYTES ((size_t)256 << 10) /* the bound for what others produce */
void gw_flow_start(gw_request *r, int status, size_t bound, void (*on_room)(gw_request *r));
bool gw_flow_push(gw_request *r, sm_str piece);
void gw_flow_end(gw_request *r, bool whole); /* not whole: the connection is cut */

/* ---- elsewhere -------------------------------------------------------------------------------*/

/* Runs on a worker thread, with an answer to work with that is the thread's own. It may block on
 * the ledger. The function must reply, or have handed the request on. */
typedef void gw_job_fn(gw_request *r, semel_answer *a);
void gw_work(gw_request *r, gw_job_fn *work);

/* Keeps the request beyond the handler's return. Called on the server's thread. */
void gw_hold(gw_request *r);

#endif
