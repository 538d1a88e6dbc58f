/*
 * The gateway's insides: what its files share.
 *
 *     http/server.c    connections, limits, TLS; http/request.c: requests and replies;
 *                      http/route.c: who may go where
 *     api/call.c       POST /v1/call; proxy/proxy.c: /proxy/NAME/...; both make runs (run/run.h)
 *     run/run.c        a call that the gateway executes: what it does for the machine of attempts
 *                      (serve/attempt.h)
 *     run/remedy.c     effects in doubt, and approved ones whose caller does not come back
 *     mcp/door.c       /mcp/NAME
 *     api/api.c        what a worker does for other requests under /v1 (api/api.h of the layer
 *                      below); api/stream.c: server-sent events
 *
 * Threads: those of the HTTP server, which never block; workers (serve/pool.h), which block on the
 * ledger only; one that accepts; one of the HTTP client; one that watches held connections; one
 * that keeps time for those who wait, and some that wait in the ledger for them (serve/waits.h);
 * two for streams of events; the loop of MCP; the log's; those of the ledger. No lock is held
 * across a call of the ledger, and nobody is woken under one.
 */
#ifndef SM_GATEWAY_INSIDE_GATEWAY_H
#define SM_GATEWAY_INSIDE_GATEWAY_H

#include "api/api.h"
#include "gateway/gateway.h"
#include "gateway/http/request.h"
#include "semel/semel.h"
#include "serve/pool.h"
#include "serve/waits.h"
#include "upstream/http.h"

typedef struct gw_http_server gw_http_server; /* http/server.h */
typedef struct gw_metrics gw_metrics;         /* telemetry/metrics_put.h */
typedef struct gw_stream gw_stream;           /* api/stream.h */
typedef struct gw_runs gw_runs;               /* run/runs.h */
typedef struct gw_mcp gw_mcp;                 /* mcp/mcp.h */

struct gateway {
    const gw_config *config;
    gw_log log;
    semel *ledger;
    sm_http *http;
    gw_tokens *tokens;
    sm_pool *pool;
    sm_waits *waits; /* rung after whatever this process does to an effect */
    gw_metrics *metrics;
    gw_stream *stream;
    gw_runs *runs;
    gw_mcp *mcp; /* NULL: there are no MCP servers */
    gw_http_server *server;
    atomic_bool draining; /* SIGTERM came: no new work */
    struct {
        atomic_bool down;        /* the log says that the ledger cannot be used */
        _Atomic int64_t told_ns; /* when it last said anything about that */
    } trouble;
};

/* ---- the server (server.c) -------------------------------------------------------------------*/

sm_err gw_server_start(gateway *g, gw_http_server **out, sm_fault *fault);

/* No new connections; those that are open get an answer. */
void gw_server_quiesce(gw_http_server *s);
void gw_server_stop(gw_http_server *s);          /* accepts NULL */
size_t gw_server_connections(gw_http_server *s); /* how many are open */
size_t gw_server_busy(gw_http_server *s);        /* requests that are not over */

/* The drain's time is over: whoever still waits is told so, and to ask again (http/watch.c). */
void gw_server_give_up(gw_http_server *s);

/* ---- the ledger's troubles (trouble.c) -------------------------------------------------------*/

/* Somebody was refused because the ledger cannot be used; something was recorded in it. */
void gw_ledger_fails(gateway *g, sm_str reason);
void gw_ledger_works(gateway *g);

/* ---- streams of events (stream.c) ------------------------------------------------------------*/

sm_err gw_stream_start(gateway *g, gw_stream **out, sm_fault *fault);
void gw_stream_quiesce(gw_stream *s); /* ends all streams and takes no more; accepts NULL */
void gw_stream_stop(gw_stream *s);    /* once the server has stopped; accepts NULL */
size_t gw_stream_count(gw_stream *s); /* how many are open */

/* ---- MCP servers (mcp.c) ---------------------------------------------------------------------*/

sm_err gw_mcp_start(gateway *g, gw_mcp **out, sm_fault *fault);

/* Nothing is taken any more; waits for what writes until then, and for the servers to end. Then
 * nothing of it runs any more. Accepts NULL. */
void gw_mcp_quiesce(gw_mcp *m, int64_t deadline_ns);
void gw_mcp_stop(gw_mcp *m); /* once workers and HTTP client have stopped; accepts NULL */

/* ---- routes (route.c) ------------------------------------------------------------------------*/

enum {
    GW_OPEN = 1,  /* no token needed */
    GW_WHOLE = 2, /* only for tokens that are bound to no scope */
    GW_WORKS = 4, /* refused while draining: it could start something */
    GW_ANY_METHOD = 8,
    GW_READS = 16,   /* a question to the ledger that settles nothing: others go first */
    GW_PROXIED = 32, /* leads to an API behind the gateway, whose clients know nothing of ours */
};

typedef struct gw_route {
    gw_method method;
    const char *path; /* "/v1/effects/{id}/events": one {segment} at most, given as `rest`; or
                         ending in a slash and a star: the rest of the path is given as it came */
    unsigned roles;   /* bits of gw_role */
    unsigned flags;
    void (*handle)(gw_request *r);
    sm_api_fn *operation; /* of gw_on_operation: what a worker does */
} gw_route;

extern const gw_route gw_routes[];
extern const size_t gw_route_count;

/* The route of a method and path; if there is none, *allowed lists the methods that the path has
 * ("" if it is no path of ours). Sets *rest. */
const gw_route *gw_route_find(gw_method method, sm_str path, sm_str *rest, char allowed[64]);

/* Whether a path leads to an API behind the gateway. */
bool gw_route_proxied(sm_str path);

/* ---- handlers --------------------------------------------------------------------------------*/

void gw_on_call(gw_request *r);  /* api/call.c */
void gw_on_proxy(gw_request *r); /* proxy/proxy.c */
void gw_on_mcp(gw_request *r);   /* mcp/door.c */

void gw_on_begin(gw_request *r);     /* api/begin.c */
void gw_on_undo(gw_request *r);      /* api/undo.c */
void gw_on_operation(gw_request *r); /* api/api.c: an operation of the JSON language */

void gw_on_stream(gw_request *r);  /* api/stream.c */
void gw_on_metrics(gw_request *r); /* telemetry/metrics_put.c */
void gw_on_health(gw_request *r);  /* api/health.c */
void gw_on_ready(gw_request *r);
void gw_on_openapi(gw_request *r);

#endif
