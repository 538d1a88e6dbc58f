/*
 * Whether a request may come in: decided from its head alone, before any of its body is read.
 *
 * In this order: that its head has no flaw; that Host is a name of ours, since a page
 * whose name was made to lead here (DNS rebinding) sends its own; that it comes from no page, or
 * from one that may call us; the route; the token, its role and its scope; and that we still take
 * work. Everything is refused that is not known to be right.
 *
 * An address of a proxy's own has its own names for Host and one route, that of the proxy. There
 * Authorization is always the API's: our token comes in Semel-Token, or the configuration says who
 * comes without one.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/suggest.h"
#include "gateway/http/server.h"
#include "gateway/telemetry/trace.h"

/* ---- where from ------------------------------------------------------------------------------*/

static bool same_name(sm_str a, sm_str b)
{
    return a.n == b.n && strncasecmp(a.p, b.p, a.n) == 0;
}

/* A literal address, with or without a port: nobody can make a name of theirs be one. */
static bool is_address(sm_str host)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char at[16];
    bool six = host.n > 0 && host.p[0] == '[';
    const char *end = six ? memchr(host.p, ']', host.n) : memchr(host.p, ':', host.n);
    if (six && end == NULL)
        return false;
    size_t n = end == NULL ? host.n : (size_t)(end - host.p);
    n -= six;
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, host.p + six, n);
    text[n] = '\0';
    return inet_pton(six ? AF_INET6 : AF_INET, text, at) == 1;
}

/* What Host has without the port, which says nothing about whose name it is. */
static sm_str without_port(sm_str host)
{
    size_t n = host.n;
    while (n > 0 && host.p[n - 1] >= '0' && host.p[n - 1] <= '9')
        n--;
    return n > 0 && host.p[n - 1] == ':' ? (sm_str){host.p, n - 1} : host;
}

bool gw_host_allowed(const gw_mount *m, sm_str host)
{
    sm_str name = without_port(host);
    for (unsigned i = 0; i < m->name_count; i++)
        if (same_name(m->names[i], host) || same_name(m->names[i], name))
            return true;
    return m->any_address && is_address(host);
}

/* Of our own pages (their authority is what the browser put into Host), or one that is listed. */
static bool origin_allowed(gw_inner *q)
{
    const gw_config *config = q->r.g->config;
    for (uint32_t i = 0; i < config->origins.n && !q->listed; i++)
        q->listed = same_name(config->origins.v[i], q->origin);
    if (q->listed)
        return true;
    for (int i = 0; i < 2; i++) {
        sm_str scheme = i == 0 ? SM_STR("http://") : SM_STR("https://");
        if (q->origin.n > scheme.n && strncasecmp(q->origin.p, scheme.p, scheme.n) == 0)
            return q->host.p != NULL &&
                   same_name((sm_str){q->origin.p + scheme.n, q->origin.n - scheme.n}, q->host);
    }
    return false;
}

/* Whether the client needs no token here, because the configuration says who it is. */
static bool is_known_client(const gw_inner *q)
{
    return q->r.mounted != NULL && q->r.mounted->client.on && q->token.p == NULL;
}

/* Where a browser needs no token, no page of another site may make it ask. Browsers leave out
 * Origin where a page embeds an address or links to it, and say in this header that they do. */
static bool comes_from_elsewhere(const gw_inner *q)
{
    sm_str site = gw_header(&q->r, "Sec-Fetch-Site");
    return is_known_client(q) && site.p != NULL && !q->listed &&
           !same_name(site, SM_STR("same-origin")) && !same_name(site, SM_STR("none"));
}

static bool check_place(gw_inner *q)
{
    gw_request *r = &q->r;
    if (q->flaw != NULL) {
        gw_problem(r, 400, "BAD_ARGUMENTS", "Send a request that means one thing only.", "%s",
                   q->flaw);
        return false;
    }
    if (q->host.p != NULL && !q->conn->local && !gw_host_allowed(q->conn->mount, q->host)) {
        gw_problem(r, 403, "NOT_ALLOWED",
                   "Use the address that the gateway listens on, or list the name under `hosts` in "
                   "its configuration.",
                   "this gateway is not known by the name that Host has");
        return false;
    }
    if ((q->origin.p != NULL && !origin_allowed(q)) || comes_from_elsewhere(q)) {
        gw_problem(r, 403, "NOT_ALLOWED",
                   "List the page's origin under `origins` in the gateway's configuration.",
                   "pages of this origin may not call the gateway");
        return false;
    }
    return true;
}

/* ---- where to --------------------------------------------------------------------------------*/

static sm_str nearest_path(sm_str path)
{
    sm_nearest nearest = {0};
    for (size_t i = 0; i < gw_route_count; i++)
        sm_nearest_try(&nearest, path, sm_str_from(gw_routes[i].path));
    return sm_nearest_get(&nearest, path);
}

/* The route of a request with this method. An address of a proxy's own has that of proxies only. */
static const gw_route *route_of(gw_inner *q, gw_method method, char allowed[64])
{
    sm_str path = q->r.mounted != NULL ? SM_STR("/proxy/") : q->r.path;
    return gw_route_find(method, path, &q->r.rest, allowed);
}

static bool find_route(gw_inner *q)
{
    gw_request *r = &q->r;
    char allowed[64];
    q->r.route = route_of(q, r->method, allowed);
    if (q->r.route != NULL) {
        if ((q->r.route->flags & GW_ANY_METHOD) == 0 && r->rest.p != NULL)
            r->rest = gw_decode(&q->arena, r->rest, false);
        return true;
    }
    if (allowed[0] != '\0') {
        gw_set(r, "Allow", sm_str_from(allowed));
        gw_problem(r, 405, "NO_ROUTE", "Use one of the methods that Allow lists.",
                   "this path takes %s", allowed);
        return false;
    }
    sm_str near = nearest_path(r->path);
    if (near.p != NULL)
        gw_problem(r, 404, "NO_ROUTE", "See /openapi.json for all paths.",
                   "there is no such path; did you mean %.*s?", SM_FMT(near));
    else
        gw_problem(r, 404, "NO_ROUTE", "See /openapi.json for all paths.", "there is no such path");
    return false;
}

/* A browser asks before it lets a page of another origin call us. It shows no token then. */
static bool is_preflight(const gw_inner *q)
{
    return q->listed && q->r.method == GW_OPTIONS &&
           gw_header(&q->r, "Access-Control-Request-Method").p != NULL;
}

static bool answer_preflight(gw_inner *q)
{
#define X(name, does) ", " #name
    static const char every[] = SM_METHODS(X, X);
#undef X
    gw_request *r = &q->r;
    char allowed[64];
    q->r.route = route_of(q, GW_OTHER, allowed);
    if (q->r.route == NULL && allowed[0] == '\0')
        return false;
    gw_set(r, "Access-Control-Allow-Methods",
           sm_str_from(q->r.route != NULL ? every + 2 : allowed));
    gw_set(
        r, "Access-Control-Allow-Headers",
        SM_STR("Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Mcp-Method, "
               "Mcp-Name, MCP-Protocol-Version, Mcp-Session-Id, Semel-Scope, Semel-Step, "
               "Semel-Token, Traceparent, Tracestate"));
    gw_set(r, "Access-Control-Max-Age", SM_STR("600"));
    gw_reply_bare(r, 204, 0);
    return true;
}

/* ---- who -------------------------------------------------------------------------------------*/

/* The token that was shown; absent: none. */
static sm_str shown_token(const gw_inner *q)
{
    /* Behind /proxy/ Authorization is the upstream's, if ours comes by the other header. */
    if (q->r.mounted != NULL || (q->token.p != NULL && (q->r.route->flags & GW_ANY_METHOD) != 0))
        return q->token;
    sm_str a = q->authorization;
    if (a.n < 7 || strncasecmp(a.p, "Bearer ", 7) != 0)
        return (sm_str){0};
    size_t at = 7;
    while (at < a.n && a.p[at] == ' ')
        at++;
    return (sm_str){a.p + at, a.n - at};
}

/* Whether a token of ours is where it would be sent to the API. */
static bool shows_token_to_api(const gw_inner *q)
{
    sm_str a = q->authorization, prefix = SM_STR("Bearer " GW_TOKEN_PREFIX);
    return q->r.mounted != NULL && a.n > prefix.n && strncasecmp(a.p, prefix.p, prefix.n) == 0;
}

/* "agent or admin": who may go where others may not. */
static void role_names(unsigned roles, char out[80])
{
    size_t n = 0;
    for (unsigned role = GW_AGENT; role <= GW_ADMIN; role *= 2) {
        if ((roles & role) == 0)
            continue;
        bool last = roles < role * 2;
        n += (size_t)snprintf(out + n, 80 - n, "%s%s",
                              n == 0 ? ""
                              : last ? " or "
                                     : ", ",
                              gw_role_name((gw_role)role));
    }
}

/* Who comes without a token to an address where none is needed. */
static void take_client(gw_who *who, const gw_client *client)
{
    *who = (gw_who){.role = GW_AGENT};
    snprintf(who->actor, sizeof who->actor, "%.*s", SM_FMT(client->name));
    snprintf(who->scope, sizeof who->scope, "%.*s", SM_FMT(client->scope));
}

static bool check_token(gw_inner *q)
{
    gw_request *r = &q->r;
    if ((q->r.route->flags & GW_OPEN) != 0)
        return true;
    if (shows_token_to_api(q)) {
        gw_problem(
            r, 400, "BAD_ARGUMENTS",
            "Send the gateway's token as `Semel-Token: TOKEN`. Authorization is the API's here.",
            "Authorization has a token of the gateway, and would be sent to the API.");
        return false;
    }
    if (is_known_client(q)) {
        take_client(&r->who, &r->mounted->client);
        return true;
    }
    sm_str token = shown_token(q);
    if (token.n == 0 || !gw_tokens_check(r->g->tokens, token, sm_clock_ms(), &r->who)) {
        memset(&r->who, 0, sizeof r->who);
        gw_set(r, "WWW-Authenticate",
               r->mounted != NULL ? SM_STR("Semel-Token") : SM_STR("Bearer"));
        gw_problem(
            r, 401, "UNAUTHENTICATED",
            r->mounted != NULL ? "Send `Semel-Token: TOKEN`; `semel token create` makes a token. "
                                 "Authorization is the API's here."
            : r->proxied
                ? "Send `Authorization: Bearer TOKEN`, or `Semel-Token: TOKEN` if Authorization "
                  "is the API's; `semel token create` makes a token."
                : "Send `Authorization: Bearer TOKEN`; `semel token create` makes a token.",
            token.p == NULL ? "no token was shown"
                            : "this token is not, or no longer, one that is known here");
        return false;
    }
    if ((q->r.route->roles & r->who.role) == 0) {
        char names[80];
        role_names(q->r.route->roles, names);
        gw_problem(r, 403, "NOT_ALLOWED", "Use a token of such a role.",
                   "this takes the role %s; the token has the role %s", names,
                   gw_role_name(r->who.role));
        return false;
    }
    if ((q->r.route->flags & GW_WHOLE) != 0 && r->who.scope[0] != '\0') {
        gw_problem(r, 403, "NOT_ALLOWED", "Use a token that is bound to no scope.",
                   "this is about all scopes, and the token is bound to one");
        return false;
    }
    return true;
}

/* ---- all of it -------------------------------------------------------------------------------*/

bool gw_admit(gw_inner *q)
{
    gw_request *r = &q->r;
    gw_trace_start(&r->trace, q->traceparent, q->tracestate);
    if (!check_place(q) || (is_preflight(q) && answer_preflight(q)) || !find_route(q) ||
        !check_token(q))
        return false;
    if ((q->r.route->flags & GW_WORKS) != 0 &&
        atomic_load_explicit(&r->g->draining, memory_order_relaxed)) {
        gw_problem(r, 503, "DRAINING",
                   "Ask again; another gateway, or this one after its start, will answer.",
                   "the gateway is about to stop and takes no new work");
        return false;
    }
    if (q->length > r->g->config->limits.body_bytes) {
        gw_problem(r, 413, "TOO_LARGE", "Send less, or raise limits.body.",
                   "a request's body may have %lld bytes",
                   (long long)r->g->config->limits.body_bytes);
        return false;
    }
    return true;
}
