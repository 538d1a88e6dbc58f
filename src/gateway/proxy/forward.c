/*
 * Makes the upstream's request from the client's: which headers are passed on.
 *
 * An API behind /proxy/ gets all headers but the gateway's own, those of one connection, and those
 * that the configuration sets. Some servers take an underscore in a header's name for a dash, so
 * both count as the same here (sm_header_alike): a header that is replaced must not come back in
 * another spelling. Deciding headers in another spelling were refused before (gateway/http/head.c).
 *
 * A token of the gateway must not reach an API. What is passed on of a request is searched for
 * texts of that form, and if there is one, the request is refused.
 *
 * An MCP server gets only the headers that the protocol knows. The gateway has judged the body as
 * JSON in UTF-8. So it labels the body itself, and passes on no header of a client that could make
 * a server read the body in another way. A session gets the server's own id there.
 */
#include "gateway/proxy/forward.h"

#include <strings.h>

#include "base/base64.h"
#include "base/header.h"
#include "base/limits.h"
#include "base/url.h"
#include "core/request.h"
#include "gateway/mcp/mcp.h"
#include "gateway/proxy/headers.h"
#include "gateway/telemetry/trace.h"

static bool named(sm_str name, const char *const *names)
{
    for (; *names != NULL; names++) {
        if (sm_header_alike(name, sm_str_from(*names)))
            return true;
    }
    return false;
}

/* Headers that belong to one connection, not to the message. */
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
    sm_str connection; /* lists further headers of the connection */
    sm_str covered;    /* lists headers that the client has signed */
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

/* Takes the next word off a list, with this character between its words. False at the end. */
static bool next_word(sm_str *list, char between, sm_str *word)
{
    size_t n = 0;
    if (list->n == 0)
        return false;
    while (n < list->n && list->p[n] != between)
        n++;
    *word = sm_header_trim((sm_str){list->p, n});
    n += n < list->n;
    *list = (sm_str){list->p + n, list->n - n};
    return true;
}

/* Whether a list, with this character between its words, has a word. */
bool gw_lists(sm_str list, char between, sm_str word)
{
    sm_str item;
    while (next_word(&list, between, &item))
        if (sm_header_is(item, word))
            return true;
    return false;
}

/* A search for a header that Connection takes away. */
typedef struct taking {
    const gw_upstream_api *api;
    bool found;
} taking;

static bool takes_deciding(void *context, sm_str name, sm_str value)
{
    taking *t = context;
    sm_str word;
    if (!sm_header_is(name, SM_STR("connection")))
        return true;
    while (!t->found && next_word(&value, ',', &word))
        t->found = word.n > 0 && !gw_hop_by_hop(word) && gw_proxy_header_decides(t->api, word);
    return !t->found;
}

bool gw_hides_header(const gw_request *r, const gw_upstream_api *api)
{
    taking t = {.api = api};
    gw_headers_each(r, takes_deciding, &t);
    return t.found;
}

/* In Authorization, or in the query of a URL that was signed. */
sm_str gw_signed_headers(const gw_request *r)
{
    static const char name[] = "SignedHeaders=";
    sm_str a = gw_header(r, "Authorization");
    if (a.n < 5 || strncmp(a.p, "AWS4-", 5) != 0)
        return gw_query(r, "X-Amz-SignedHeaders");
    const char *at = memmem(a.p, a.n, name, sizeof name - 1);
    if (at == NULL)
        return (sm_str){0};
    at += sizeof name - 1;
    const char *end = memchr(at, ',', a.n - (size_t)(at - a.p));
    return (sm_str){at, (size_t)((end == NULL ? a.p + a.n : end) - at)};
}

/* A request for another protocol on this connection, such as websockets. h2c asks for HTTP/2 and
 * does not need it: Java's client asks so with each first request. */
bool gw_is_upgrade(const gw_request *r)
{
    sm_str to = gw_header(r, "Upgrade");
    return to.n > 0 && !sm_header_is(to, SM_STR("h2c"));
}

/* The headers of a client that an MCP server gets. */
static bool of_mcp(sm_str name)
{
    static const char *const names[] = {
        "accept",   "accept-language",      "authorization",  "last-event-id", "mcp-method",
        "mcp-name", "mcp-protocol-version", "mcp-session-id", "user-agent"};
    static const char param[] = "mcp-param-";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (sm_header_is(name, sm_str_from(names[i])))
            return true;
    }
    return name.n >= sizeof param && strncasecmp(name.p, param, sizeof param - 1) == 0;
}

/* Whether a header of the client is not passed on. */
static bool stays(const copying *c, sm_str name)
{
    static const char *const ours[] = {"content-length", "expect",     "semel-token",
                                       "semel-scope",    "semel-step", "traceparent",
                                       "tracestate",     NULL};
    static const char *const host[] = {"host", NULL};
    static const char *const key[] = {"idempotency-key", NULL};
    /* A recorded answer is replayed to others: it must be one that everybody can read. */
    static const char *const form[] = {"accept-encoding", NULL};
    static const char *const secret[] = {"authorization", NULL};
    if (gw_hop_by_hop(name) || gw_lists(c->connection, ',', name) || named(name, ours) ||
        (!c->api->pass_host && named(name, host)) || (c->write && named(name, key)) ||
        (c->write && named(name, form) && !gw_lists(c->covered, ';', name)) ||
        (c->own_token && named(name, secret)) || (c->api->mcp && !of_mcp(name)))
        return true;
    for (uint32_t i = 0; i < c->api->headers.n; i++) {
        if (sm_header_alike(name, c->api->headers.v[i].name))
            return true;
    }
    sm_str declared = c->api->idempotency.header;
    return c->write && declared.p != NULL && sm_header_alike(name, declared);
}

static bool copy_header(void *context, sm_str name, sm_str value)
{
    copying *c = context;
    if (stays(c, name))
        return true;
    if (c->api->mcp && sm_header_is(name, SM_STR("Mcp-Session-Id")))
        value = gw_owner_session(value);
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

/* Whether credentials of the scheme Basic have a token in them. */
static bool basic_has_token(sm_arena *a, sm_str value)
{
    static const char scheme[] = "basic ";
    const size_t n = sizeof scheme - 1;
    if (value.n <= n || strncasecmp(value.p, scheme, n) != 0)
        return false;
    sm_str text = sm_header_trim((sm_str){value.p + n, value.n - n});
    while (text.n > 0 && text.p[text.n - 1] == '=')
        text.n--;
    text = sm_arena_printf(a, "%.*s%s", SM_FMT(text), &"==="[3 - (4 - text.n % 4) % 4]);
    sm_buf bytes;
    sm_buf_init(&bytes, SM_ARENA_MAX);
    bool has =
        text.p != NULL && sm_base64_take(&bytes, text) && gw_token_inside(sm_buf_view(&bytes));
    if (bytes.cap > 0)
        explicit_bzero(bytes.p, bytes.cap);
    sm_buf_fini(&bytes);
    return has;
}

/* Whether a text has a token in it, as it is or behind percent signs. */
static bool has_token(sm_arena *a, sm_str text)
{
    if (text.n == 0 || gw_token_inside(text))
        return text.n > 0;
    return memchr(text.p, '%', text.n) != NULL && gw_token_inside(sm_path_plain(a, text));
}

/* Nothing that is passed on of the client's may have a token of ours. The sentence says where. */
static sm_err find_token(const gw_request *r, sm_arena *a, const sm_upstream_call *up, sm_str path,
                         sm_fault *fault)
{
    static const char told[] = "has a token of the gateway, and would be sent to the API.";
    for (size_t i = 0; i < up->request.header_count; i++) {
        const sm_http_field *h = &up->headers[i];
        if (has_token(a, h->value) || basic_has_token(a, h->value))
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "The header %.*s %s",
                                h->name.n > 64 ? 64 : (int)h->name.n, h->name.p, told);
    }
    if (has_token(a, r->query))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "The query %s", told);
    if (has_token(a, path))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "The path %s", told);
    return SM_OK;
}

/* A run adds its own; what passes has no run. */
sm_err gw_proxy_request(const gw_request *r, sm_arena *a, const gw_upstream_api *api, sm_str path,
                        bool write, sm_upstream_call *up, size_t *given, sm_fault *fault)
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
    bool has_body = r->body.len > 0 || (sm_method_does(r->method_text) & SM_METHOD_SENDS) != 0;
    bool own_body = api->mcp && write; /* a message of MCP, which its caller sends */
    if (has_body)
        q->body =
            r->body.len == 0 || own_body ? SM_STR("") : sm_arena_text(a, sm_buf_view(&r->body));
    if (method.p == NULL || q->url.p == NULL || (has_body && q->body.p == NULL))
        return SEMEL_E_NOMEM;
    sm_buf connection;
    sm_buf_init(&connection, SM_ARENA_MAX);
    gw_headers_each(r, gather_connection, &connection);
    copying c = {.arena = a,
                 .up = up,
                 .api = api,
                 .connection = sm_buf_view(&connection),
                 .covered = gw_signed_headers(r),
                 .write = write,
                 .own_token = r->mounted == NULL && gw_header(r, "Semel-Token").p == NULL,
                 .err = connection.err};
    if (c.err == SM_OK)
        gw_headers_each(r, copy_header, &c);
    sm_buf_fini(&connection);
    if (given != NULL)
        *given = q->header_count;
    sm_err e = c.err == SM_OK ? find_token(r, a, up, path, fault) : c.err;
    if (e == SM_OK)
        e = sm_upstream_priced(a, up, &api->cost, &api->tokens);
    if (e == SM_OK)
        e = add_configured(a, up, api, fault);
    if (e == SM_OK && api->mcp && q->body.p != NULL)
        e = sm_upstream_header(a, up, SM_STR("Content-Type"), SM_STR("application/json"));
    return e == SM_OK && !write ? gw_trace_send(&r->trace, a, up) : e;
}
