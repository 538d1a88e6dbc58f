/*
 * The routes: one table, looked through from its top, where those are that are used most.
 *
 * A path is matched as it was sent: nothing is decoded, no dot segments are resolved, and a slash
 * at the end makes another path. So what is matched here is what is logged, and what a route was
 * found for is what its roles are checked for.
 */
#include "gateway/inside/gateway.h"

#include <stdio.h>

#define ALL   (GW_AGENT | GW_APPROVER | GW_OPERATOR | GW_ADMIN)
#define CALLS (GW_AGENT | GW_ADMIN)
#define SAYS  (GW_APPROVER | GW_OPERATOR | GW_ADMIN)
#define RUNS  (GW_OPERATOR | GW_ADMIN)

const gw_route gw_routes[] = {
    {GW_POST, "/v1/call", CALLS, GW_WORKS, gw_on_call, NULL},
    {GW_POST, "/v1/begin", CALLS, GW_WORKS, gw_on_begin, NULL},
    {GW_POST, "/v1/commit", CALLS, 0, gw_on_operation, sm_api_commit},
    {GW_POST, "/v1/renew", CALLS, 0, gw_on_operation, sm_api_renew},
    {GW_POST, "/v1/release", CALLS, 0, gw_on_operation, sm_api_release},
    {GW_OTHER, "/proxy/*", CALLS, GW_WORKS | GW_ANY_METHOD | GW_PROXIED, gw_on_proxy, NULL},
    {GW_OTHER, "/mcp/{name}", CALLS, GW_WORKS | GW_ANY_METHOD, gw_on_mcp, NULL},
    {GW_GET, "/v1/effects", ALL, GW_READS, gw_on_operation, sm_api_effects},
    {GW_GET, "/v1/effects/{id}", ALL, GW_READS, gw_on_operation, sm_api_effect},
    {GW_GET, "/v1/effects/{id}/events", ALL, GW_READS, gw_on_operation, sm_api_events},
    {GW_GET, "/v1/tools", ALL, GW_READS, gw_on_operation, sm_api_tools},
    {GW_GET, "/v1/stream", ALL, GW_READS, gw_on_stream, NULL},
    {GW_GET, "/v1/approvals", SAYS, GW_READS, gw_on_operation, sm_api_approvals},
    {GW_POST, "/v1/effects/{id}/approve", SAYS, 0, gw_on_operation, sm_api_approve},
    {GW_POST, "/v1/effects/{id}/deny", SAYS, 0, gw_on_operation, sm_api_deny},
    {GW_POST, "/v1/effects/{id}/cancel", RUNS, 0, gw_on_operation, sm_api_cancel},
    {GW_POST, "/v1/effects/{id}/resolve", RUNS, 0, gw_on_operation, sm_api_resolve},
    {GW_POST, "/v1/effects/{id}/forget", RUNS, 0, gw_on_operation, sm_api_forget},
    {GW_GET, "/v1/scopes", ALL, GW_READS, gw_on_operation, sm_api_scopes},
    {GW_GET, "/v1/scopes/{scope}", ALL, GW_READS, gw_on_operation, sm_api_scope},
    {GW_GET, "/v1/spend", ALL, GW_READS, gw_on_operation, sm_api_spend},
    {GW_GET, "/v1/stops", ALL, GW_READS, gw_on_operation, sm_api_stops},
    {GW_POST, "/v1/stop", RUNS, 0, gw_on_operation, sm_api_stop},
    {GW_POST, "/v1/resume", RUNS, 0, gw_on_operation, sm_api_resume},
    {GW_POST, "/v1/scopes/{scope}/reset", RUNS, 0, gw_on_operation, sm_api_reset},
    {GW_GET, "/v1/scopes/{scope}/undo", RUNS, GW_READS, gw_on_operation, sm_api_undo_plan},
    {GW_POST, "/v1/scopes/{scope}/undo", RUNS, GW_WORKS, gw_on_undo, NULL},
    {GW_GET, "/metrics", RUNS, GW_WHOLE | GW_READS, gw_on_metrics, NULL},
    {GW_GET, "/healthz", 0, GW_OPEN, gw_on_health, NULL},
    {GW_GET, "/readyz", 0, GW_OPEN, gw_on_ready, NULL},
    {GW_GET, "/openapi.json", 0, GW_OPEN, gw_on_openapi, NULL},
};
const size_t gw_route_count = sizeof gw_routes / sizeof gw_routes[0];

/* Whether a path is one that the pattern describes; *rest is what stands for its variable part. */
static bool fits(const char *pattern, sm_str path, sm_str *rest)
{
    const char *at = path.p, *end = path.p + path.n;
    *rest = (sm_str){0};
    for (const char *c = pattern; *c != '\0'; c++) {
        if (*c == '*') {
            *rest = (sm_str){at, (size_t)(end - at)};
            return true;
        }
        if (*c == '{') {
            const char *slash = memchr(at, '/', (size_t)(end - at));
            *rest = (sm_str){at, (size_t)((slash == NULL ? end : slash) - at)};
            if (rest->n == 0)
                return false;
            at += rest->n;
            c = strchr(c, '}');
        } else if (at == end || *at++ != *c) {
            return false;
        }
    }
    return at == end;
}

const gw_route *gw_route_find(gw_method method, sm_str path, sm_str *rest, char allowed[64])
{
    if (method == GW_HEAD)
        method = GW_GET; /* the server leaves out the body */
    size_t n = 0;
    allowed[0] = '\0';
    for (size_t i = 0; i < gw_route_count; i++) {
        const gw_route *route = &gw_routes[i];
        if (!fits(route->path, path, rest))
            continue;
        if (route->method == method || (route->flags & GW_ANY_METHOD) != 0)
            return route;
        n += (size_t)snprintf(allowed + n, 64 - n, "%s%s%s", n > 0 ? ", " : "",
                              sm_methods[route->method].name,
                              route->method == GW_GET ? ", HEAD" : "");
    }
    *rest = (sm_str){0};
    return NULL;
}

bool gw_route_proxied(sm_str path)
{
    sm_str rest;
    for (size_t i = 0; i < gw_route_count; i++)
        if ((gw_routes[i].flags & GW_PROXIED) != 0 && fits(gw_routes[i].path, path, &rest))
            return true;
    return false;
}
