/*
 * /proxy/NAME/...: an HTTP API behind the ledger, for clients that know nothing of it but another
 * base URL.
 *
 * What can change the world is a call of the tool proxy.NAME with the arguments method, path,
 * query, and body (JSON) or body_sha256 (anything else): equal requests are one action. An
 * Idempotency-Key of the client's names the action instead, and another request with the same key
 * is a conflict. Safe methods (GET, HEAD, OPTIONS) pass, as a stream, and are recorded nowhere.
 *
 * The request is put together when it comes, with the exact bytes of its body; the client may be
 * gone by the time it is sent. Nothing is sent again in the background, for the ledger has no exact
 * bytes: an effect in doubt is held, or runs again with the client's own repeat where the contract
 * says `rerun`.
 */
#include <strings.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/limits.h"
#include "core/wire.h"
#include "gateway/body.h"
#include "gateway/pass.h"
#include "gateway/run.h"
#include "gateway/trace.h"
#include "json/canon.h"

#define WAIT_BEYOND_MS 30000 /* how long a client may wait for more than one exchange */

/* ---- where to --------------------------------------------------------------------------------*/

static const gw_upstream_api *find_api(const gw_config *c, sm_str name)
{
    for (uint32_t i = 0; i < c->proxies.n; i++) {
        if (sm_str_eq(c->proxies.v[i].name, name))
            return &c->proxies.v[i];
    }
    return NULL;
}

static bool sound_query(sm_str query)
{
    for (size_t i = 0; i < query.n; i++) {
        unsigned char c = (unsigned char)query.p[i];
        if (c <= 0x20 || c >= 0x7F || c == '#')
            return false;
    }
    return true;
}

/* ---- headers ---------------------------------------------------------------------------------*/

static bool named(sm_str name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (strlen(*names) == name.n && strncasecmp(*names, name.p, name.n) == 0)
            return true;
    }
    return false;
}

/* What belongs to one connection, and not to the message. */
bool gw_hop_by_hop(sm_str name)
{
    static const char *const names[] = {"connection",
                                        "keep-alive",
                                        "te",
                                        "trailer",
                                        "transfer-encoding",
                                        "upgrade",
                                        "proxy-authenticate",
                                        "proxy-authorization",
                                        "proxy-connection",
                                        NULL};
    return named(name, names);
}

typedef struct copying {
    sm_arena *arena;
    sm_upstream_call *up;
    const gw_upstream_api *api;
    sm_str connection; /* names more that belongs to the connection */
    bool write;
    bool own_token; /* Authorization was for us */
    sm_err err;
} copying;

/* Gathers the values of Connection, of which there may be several. */
static bool gather_connection(void *context, sm_str name, sm_str value)
{
    static const char *const names[] = {"connection", NULL};
    sm_buf *list = context;
    if (named(name, names)) {
        sm_buf_str(list, value);
        sm_buf_byte(list, ',');
    }
    return true;
}

/* Whether a list such as that has a word. */
static bool lists(sm_str list, sm_str word)
{
    while (list.n > 0) {
        size_t n = 0, end;
        while (n < list.n && list.p[n] != ',')
            n++;
        sm_str item = {list.p, n};
        list = n == list.n ? (sm_str){"", 0} : (sm_str){list.p + n + 1, list.n - n - 1};
        while (item.n > 0 && (item.p[0] == ' ' || item.p[0] == '\t'))
            item = (sm_str){item.p + 1, item.n - 1};
        for (end = item.n; end > 0 && (item.p[end - 1] == ' ' || item.p[end - 1] == '\t'); end--)
            continue;
        if (end == word.n && strncasecmp(item.p, word.p, end) == 0)
            return true;
    }
    return false;
}

static bool copy_header(void *context, sm_str name, sm_str value)
{
    static const char *const ours[] = {"host",        "content-length", "expect",
                                       "semel-token", "semel-scope",    "semel-step",
                                       "traceparent", "tracestate",     NULL};
    /* A recorded answer is replayed to others: it must be one that everybody can read. */
    static const char *const of_writes[] = {"idempotency-key", "accept-encoding", "range", NULL};
    static const char *const secret[] = {"authorization", NULL};
    copying *c = context;
    bool leave = gw_hop_by_hop(name) || lists(c->connection, name) || named(name, ours) ||
                 (c->write && named(name, of_writes)) || (c->own_token && named(name, secret));
    for (uint32_t i = 0; i < c->api->headers.n && !leave; i++) {
        sm_str set = c->api->headers.v[i].name;
        leave = set.n == name.n && strncasecmp(set.p, name.p, name.n) == 0;
    }
    if (leave)
        return true;
    sm_str n = sm_arena_text(c->arena, name), v = sm_arena_text(c->arena, value);
    c->err = n.p == NULL || v.p == NULL ? SEMEL_E_NOMEM : sm_upstream_header(c->arena, c->up, n, v);
    return c->err == SM_OK;
}

/* The configuration's headers, with their secrets. */
static sm_err add_configured(sm_arena *a, sm_upstream_call *up, const gw_upstream_api *api,
                             sm_fault *fault)
{
    sm_buf value;
    sm_err e = SM_OK;
    sm_buf_init(&value, SM_ARENA_MAX);
    for (uint32_t i = 0; e == SM_OK && i < api->headers.n; i++) {
        sm_buf_clear(&value);
        e = gw_expand(api->headers.v[i].value, &value, fault);
        sm_str text = sm_arena_text(a, sm_buf_view(&value));
        if (e == SM_OK)
            e = text.p == NULL ? SEMEL_E_NOMEM
                               : sm_upstream_header(a, up, api->headers.v[i].name, text);
    }
    if (value.cap > 0)
        explicit_bzero(value.p, value.cap);
    sm_buf_fini(&value);
    return e;
}

/* A run adds its own; what passes has no run. */
static sm_err add_trace(sm_arena *a, sm_upstream_call *up, const gw_trace *trace)
{
    char text[GW_TRACEPARENT_TEXT];
    gw_trace_parent(trace, text);
    sm_str parent = sm_arena_text(a, sm_str_from(text));
    sm_err e =
        parent.p == NULL ? SEMEL_E_NOMEM : sm_upstream_header(a, up, SM_STR("traceparent"), parent);
    return e == SM_OK && trace->state.p != NULL
               ? sm_upstream_header(a, up, SM_STR("tracestate"), trace->state)
               : e;
}

/* ---- the request -----------------------------------------------------------------------------*/

sm_err gw_proxy_request(const gw_request *r, sm_arena *a, const gw_upstream_api *api, sm_str path,
                        bool write, sm_upstream_call *up, sm_fault *fault)
{
    bool query = r->query.p != NULL && r->query.n > 0;
    *up = (sm_upstream_call){.key = api->idempotency, .retry = api->retry};
    up->rejects_before_work = api->rejects_before_work;
    sm_str method = sm_arena_text(a, sm_str_from(r->method_text));
    sm_http_request *q = &up->request;
    const char *mark = memchr(api->url.p, '?', api->url.n) == NULL ? "?" : "&";
    q->url = sm_arena_printf(a, "%.*s%.*s%s%.*s", SM_FMT(api->url), SM_FMT(path), query ? mark : "",
                             query ? (int)r->query.n : 0, query ? r->query.p : "");
    q->method = method.p;
    q->timeout_ms = api->timeout_ms;
    q->write = write;
    q->body_max = (size_t)r->g->config->limits.result_bytes;
    q->trickle = !write;
    if (r->body.len > 0 || r->method == GW_POST || r->method == GW_PUT || r->method == GW_PATCH)
        q->body = sm_arena_text(a, r->body.len > 0 ? sm_buf_view(&r->body) : SM_STR(""));
    if (method.p == NULL || q->url.p == NULL)
        return SEMEL_E_NOMEM;
    sm_buf connection;
    sm_buf_init(&connection, SM_ARENA_MAX);
    gw_headers_each(r, gather_connection, &connection);
    copying c = {.arena = a,
                 .up = up,
                 .api = api,
                 .connection = sm_buf_view(&connection),
                 .write = write,
                 .own_token = gw_header(r, "Semel-Token").p == NULL,
                 .err = connection.err};
    if (c.err == SM_OK)
        gw_headers_each(r, copy_header, &c);
    sm_buf_fini(&connection);
    sm_err e = c.err == SM_OK ? add_configured(a, up, api, fault) : c.err;
    return e == SM_OK && !write ? add_trace(a, up, &r->trace) : e;
}

/* ---- the call --------------------------------------------------------------------------------*/

/* The arguments that name the action: a JSON body counts by its value, any other by its digest. */
static sm_err put_args(const gw_request *r, sm_arena *a, sm_str path, sm_str *out)
{
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_buf_text(&text, "{\"method\":");
    sm_json_put_string(&text, sm_str_from(r->method_text));
    sm_buf_text(&text, ",\"path\":");
    sm_json_put_string(&text, path);
    if (r->query.p != NULL && r->query.n > 0) {
        sm_buf_text(&text, ",\"query\":");
        sm_json_put_string(&text, r->query);
    }
    const sm_json *body = NULL;
    sm_str bytes = sm_buf_view(&r->body);
    sm_err e = SM_OK;
    sm_json_limits limits = sm_json_default_limits;
    limits.depth -= 2; /* it goes into an object */
    limits.bytes -= SM_JSON_BYTES_MAX / 4;
    if (bytes.n > 0 && sm_json_read(a, bytes, &limits, &body, NULL) == SM_OK) {
        size_t before = text.len;
        sm_buf_text(&text, ",\"body\":");
        if (sm_json_canon(body, &text, bytes, NULL) != SM_OK ||
            text.len > SM_JSON_BYTES_MAX - 1024) {
            text.len = before;
            text.err = SM_OK;
            body = NULL;
        }
    }
    if (bytes.n > 0 && body == NULL) {
        sm_digest digest = {0};
        sm_hash hash;
        char hex[SM_HASH_HEX + 1] = "";
        e = sm_digest_init(&digest);
        if (e == SM_OK)
            e = sm_digest_bytes(&digest, bytes.p, bytes.n, &hash);
        if (e == SM_OK)
            sm_hash_hex(&hash, hex);
        sm_digest_fini(&digest);
        sm_buf_printf(&text, ",\"body_sha256\":\"%s\"", hex);
    }
    sm_buf_byte(&text, '}');
    *out = sm_arena_text(a, sm_buf_view(&text));
    e = e != SM_OK ? e : text.err != SM_OK ? text.err : out->p == NULL ? SEMEL_E_NOMEM : SM_OK;
    sm_buf_fini(&text);
    return e;
}

/* The scope that the client names, else the token's own. False: the request has its answer. */
static bool find_scope(gw_request *r, sm_arena *a, sm_str *out)
{
    sm_str given = gw_header(r, "Semel-Scope");
    if (given.p == NULL)
        given = sm_str_from(r->who.scope);
    if (given.n == 0) {
        gw_problem(r, 400, "BAD_ARGUMENTS",
                   "Send the header Semel-Scope, or use a token that is bound to a scope.",
                   "The call has no scope: this token is bound to none.");
        return false;
    }
    if (!gw_who_owns(&r->who, given)) {
        gw_problem(r, 403, "FORBIDDEN", "Use a scope below the token's own.",
                   "This token may not act in that scope.");
        return false;
    }
    *out = sm_arena_text(a, given);
    return out->p != NULL;
}

/* ---- the run ---------------------------------------------------------------------------------*/

static void answer(gw_run *run, gw_request *r, const semel_answer *a)
{
    (void)run;
    gw_reply_outcome(r, a);
}

static const gw_run_ops ops = {.answer = answer};

void gw_proxy_refuse(gw_request *r, sm_err e, const sm_fault *fault)
{
    if (e == SEMEL_E_INVALID)
        gw_problem(r, 500, "MISCONFIGURED",
                   "Tell whoever runs the gateway; trying again does not help.", "%s", fault->text);
    else
        gw_problem(r, 503, "OVERLOADED", "Try again later.", "The gateway is out of memory.");
}

/* An unsafe method: once. */
static void run_once(gw_request *r, const gw_upstream_api *api, sm_str path)
{
    gw_run *run = gw_run_new(r->g, r);
    sm_fault fault = {0};
    if (run == NULL) {
        gw_proxy_refuse(r, SEMEL_E_NOMEM, &fault);
        return;
    }
    sm_arena *a = &run->arena;
    semel_call *call = &run->ask.call;
    if (!find_scope(r, a, &call->scope) || !gw_read_key(r, a, &call->key)) {
        gw_run_free(run);
        return;
    }
    sm_err e = put_args(r, a, path, &call->args);
    if (e == SM_OK)
        e = gw_proxy_request(r, a, api, path, true, &run->up, &fault);
    if (e != SM_OK) {
        gw_run_free(run);
        gw_proxy_refuse(r, e, &fault);
        return;
    }
    /* A client that sends a key reckons with an upstream that takes one. */
    if (call->key.p != NULL && run->up.key.header.p == NULL)
        run->up.key.header = SM_STR("Idempotency-Key");
    sm_str step = gw_header(r, "Semel-Step");
    call->step = step.p == NULL ? step : sm_arena_text(a, step);
    call->tool = sm_arena_printf(a, "proxy.%.*s", SM_FMT(api->name));
    run->ops = &ops;
    run->ask.actor = sm_arena_text(a, sm_str_from(r->who.actor));
    run->deadline_ns = sm_clock_deadline_ns(api->timeout_ms + WAIT_BEYOND_MS);
    gw_hold(r);
    gw_run_start(run);
}

void gw_on_proxy(gw_request *r)
{
    const char *slash = memchr(r->rest.p, '/', r->rest.n);
    size_t n = slash == NULL ? r->rest.n : (size_t)(slash - r->rest.p);
    sm_str name = {r->rest.p, n};
    sm_str path = slash == NULL ? SM_STR("") : (sm_str){slash, r->rest.n - n};
    const gw_upstream_api *api = find_api(r->g->config, name);
    if (strcmp(r->method_text, "TRACE") == 0 || strcmp(r->method_text, "CONNECT") == 0) {
        /* TRACE gives back what was sent, secrets and all. */
        gw_problem(r, 405, "NOT_ALLOWED", "Use another method.", "%s is not passed on.",
                   r->method_text);
    } else if (api == NULL) {
        gw_problem(r, 404, "NO_ROUTE", "Use one of the names under `proxies` in the configuration.",
                   "No API is configured under that name.");
    } else if (!sm_path_stays(path) || (r->query.p != NULL && !sound_query(r->query))) {
        gw_problem(r, 400, "BAD_ARGUMENTS",
                   "Percent-encode what is not plain, and leave out \".\" and \"..\" segments.",
                   "The path or query cannot be passed on as it is.");
    } else if (r->method == GW_GET || r->method == GW_HEAD || r->method == GW_OPTIONS) {
        sm_arena a;
        sm_upstream_call up;
        sm_fault fault = {0};
        sm_arena_init(&a, SM_ARENA_MAX);
        sm_err e = gw_proxy_request(r, &a, api, path, false, &up, &fault);
        if (e == SM_OK)
            gw_pass(r, &up.request);
        else
            gw_proxy_refuse(r, e, &fault);
        sm_arena_fini(&a);
    } else {
        run_once(r, api, path);
    }
}
