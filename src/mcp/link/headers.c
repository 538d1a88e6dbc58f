/*
 * What a message demands of its headers.
 *
 * Legacy: the session's id and the version that initialize agreed on. Modern: a request names its
 * version itself, and its headers repeat what is in it (method, name, and the arguments that the
 * tool's schema marks with x-mcp-header), so that those between can route it. A server compares
 * both, so whatever is repeated is taken from the message as it is sent (param_headers.h).
 */
#include <stdlib.h>

#include "base/base64.h"
#include "base/header.h"
#include "mcp/link/remote.h"
#include "mcp/param_headers.h"

#define OWN_MAX 16u

typedef struct fields {
    sm_arena *arena;
    sm_http_field *v;
    size_t n, room;
    bool failed;
} fields;

static sm_http_field *find(const fields *f, sm_str name)
{
    for (size_t i = 0; i < f->n; i++) {
        if (sm_header_is(f->v[i].name, name))
            return &f->v[i];
    }
    return NULL;
}

/* Adds a header. Both texts are kept as they are. */
static void add(fields *f, sm_str name, sm_str value)
{
    if (f->n == f->room)
        f->failed = true;
    else
        f->v[f->n++] = (sm_http_field){name, value};
}

/* The same, or replaces what is there. */
static void set(fields *f, sm_str name, sm_str value)
{
    sm_http_field *at = find(f, name);
    if (at != NULL)
        at->value = value;
    else
        add(f, name, value);
}

static void set_copy(fields *f, sm_str name, sm_str value)
{
    name = sm_arena_text(f->arena, name);
    value = sm_arena_text(f->arena, value);
    if (name.p == NULL || value.p == NULL)
        f->failed = true;
    else
        set(f, name, value);
}

/* ---- values from the message -----------------------------------------------------------------*/

static void set_value(fields *f, sm_str name, sm_str value)
{
    sm_buf b;
    sm_buf_init(&b, sm_base64_size(MCP_REPEATED_MAX) + 16);
    mcp_header_put(&b, value);
    if (b.err != SM_OK)
        f->failed = true;
    else
        set_copy(f, name, sm_buf_view(&b));
    sm_buf_fini(&b);
}

static void set_argument(void *context, sm_str header, sm_str text, bool number)
{
    fields *f = context;
    char name[sizeof MCP_PARAM_PREFIX + MCP_PARAM_MAX];
    size_t prefix = sizeof MCP_PARAM_PREFIX - 1;
    (void)number;
    memcpy(name, MCP_PARAM_PREFIX, prefix);
    memcpy(name + prefix, header.p, header.n);
    sm_str full = {name, prefix + header.n};
    if (find(f, full) == NULL)
        set_value(f, full, text);
}

/* ---- eras ------------------------------------------------------------------------------------*/

/* The version that a message names itself. False: it is legacy. */
static bool modern_version(const mcp_message *m, char version[MCP_VERSION_MAX + 1])
{
    sm_str meta, value;
    return m->params.p != NULL && sm_raw_find(m->params, "_meta", &meta) &&
           sm_raw_find(meta, "io.modelcontextprotocol/protocolVersion", &value) &&
           sm_raw_text(value, version, MCP_VERSION_MAX + 1) && version[0] != '\0' &&
           sm_header_value(sm_str_from(version));
}

/* What a request is about, decoded. False: nothing, or nothing that a header could repeat. */
static bool read_name(const char *method, sm_str params, char name[MCP_REPEATED_MAX + 1])
{
    const char *member = mcp_name_member(method);
    sm_str value;
    return member != NULL && sm_raw_find(params, member, &value) &&
           sm_raw_text(value, name, MCP_REPEATED_MAX + 1);
}

/* What a request repeats of itself; `tool`: the one that it calls, NULL if nothing is known. */
static void set_repeated(fields *f, const char *method, sm_str params, const mcp_tool *tool)
{
    char name[MCP_REPEATED_MAX + 1];
    sm_str arguments;
    set_copy(f, SM_STR("Mcp-Method"), sm_str_from(method));
    if (read_name(method, params, name))
        set_value(f, SM_STR("Mcp-Name"), sm_str_from(name));
    if (tool != NULL && tool->schema != NULL && sm_raw_find(params, "arguments", &arguments))
        mcp_params_each(tool->schema, arguments, set_argument, f);
}

static void set_modern(fields *f, mcp_remote *r, const mcp_message *m)
{
    set(f, SM_STR("MCP-Protocol-Version"), sm_str_from(r->modern));
    if (m->kind != MCP_REQUEST || !sm_header_value(sm_str_from(m->method)))
        return;
    char name[MCP_REPEATED_MAX + 1];
    const mcp_tool *tool = NULL;
    if (r->tool != NULL && strcmp(m->method, "tools/call") == 0 &&
        read_name(m->method, m->params, name))
        tool = r->tool(r->tool_context, sm_str_from(name));
    set_repeated(f, m->method, m->params, tool);
}

/* What was agreed on; before that, a client that has spoken only modern requests so far says with
 * what it has to say beside them which version those had. */
static void set_legacy(fields *f, mcp_flight *flight)
{
    mcp_remote *r = flight->remote;
    if (flight->initialize)
        return;
    if (r->session[0] != '\0') {
        set(f, SM_STR("Mcp-Session-Id"), sm_str_from(r->session));
        flight->in_session = true;
        flight->session_number = r->session_number;
    }
    const char *version = r->version[0] != '\0' ? r->version : r->modern;
    if (version[0] != '\0')
        set(f, SM_STR("MCP-Protocol-Version"), sm_str_from(version));
}

static void set_era(fields *f, mcp_flight *flight, const mcp_message *m)
{
    char version[MCP_VERSION_MAX + 1];
    flight->modern = modern_version(m, version);
    if (flight->modern) {
        strcpy(flight->remote->modern, version);
        set_modern(f, flight->remote, m);
    } else {
        set_legacy(f, flight);
    }
}

/* ---- all of them -----------------------------------------------------------------------------*/

/* Headers that are not passed on: those of one connection, those that say how a body is read, which
 * we write ourselves, and the one that asks for another coding of the answer. */
static bool not_passed_on(sm_str name)
{
    return sm_header_framing(name) || sm_header_is(name, SM_STR("Host")) ||
           sm_header_is(name, SM_STR("Accept-Encoding")) ||
           sm_header_is(name, SM_STR("Content-Type")) ||
           sm_header_is(name, SM_STR("Content-Encoding"));
}

/* Adds the headers that came with a message, in their order. They replace those that are there,
 * except the configured authorization. */
static void set_all(fields *f, const mcp_remote *r, const sm_http_field *headers, size_t n)
{
    size_t before = f->n;
    for (size_t i = 0; i < n; i++) {
        const sm_http_field *h = &headers[i];
        bool own = false;
        for (size_t k = 0; k < r->header_count && !own; k++)
            own = sm_header_is(h->name, SM_STR("Authorization")) &&
                  sm_header_is(r->headers[k].name, h->name);
        if (own || not_passed_on(h->name))
            continue;
        for (size_t k = 0; k < before; k++) {
            if (!sm_header_is(f->v[k].name, h->name))
                continue;
            memmove(&f->v[k], &f->v[k + 1], (--f->n - k) * sizeof *f->v);
            before--;
            break;
        }
        add(f, h->name, h->value);
    }
}

/* Keeps what came with a request, for who comes back for its answer. False when out of memory. */
static bool keep_way(mcp_flight *f)
{
    const mcp_way *way = f->way;
    if (way == NULL || f->kind != MCP_FLIGHT_REQUEST || f->modern || way->header_count == 0)
        return true;
    size_t size = way->header_count * sizeof *f->came_with;
    for (size_t i = 0; i < way->header_count; i++)
        size += way->headers[i].name.n + way->headers[i].value.n;
    f->came_with = malloc(size);
    if (f->came_with == NULL)
        return false;
    char *at = (char *)(f->came_with + way->header_count);
    for (size_t i = 0; i < way->header_count; i++) {
        sm_str name = way->headers[i].name, value = way->headers[i].value;
        f->came_with[f->came_with_count++] = (sm_http_field){{at, name.n}, {at + name.n, value.n}};
        memcpy(at, name.p, name.n);
        memcpy(at + name.n, value.p, value.n);
        at += name.n + value.n;
    }
    return true;
}

bool mcp_remote_headers(mcp_flight *flight, const mcp_message *m, const sm_http_field **out,
                        size_t *n)
{
    mcp_remote *r = flight->remote;
    size_t ways = m == NULL             ? flight->came_with_count
                  : flight->way == NULL ? 0
                                        : flight->way->header_count;
    fields f = {.arena = &r->arena, .room = r->header_count + ways + OWN_MAX + MCP_REPEATED_ARGS};
    f.v = sm_arena_zalloc(f.arena, f.room, sizeof *f.v);
    if (f.v == NULL)
        return false;
    for (size_t i = 0; i < r->header_count; i++)
        set(&f, r->headers[i].name, r->headers[i].value);
    if (m == NULL) {
        /* What came with a message also says who asks, when its answer is come back for. */
        set_all(&f, r, flight->came_with, flight->came_with_count);
        set(&f, SM_STR("Accept"), SM_STR("text/event-stream"));
        if (flight->last_id != NULL)
            set(&f, SM_STR("Last-Event-ID"), sm_str_from(flight->last_id));
        set_legacy(&f, flight);
    } else {
        set(&f, SM_STR("Content-Type"), SM_STR("application/json"));
        set(&f, SM_STR("Accept"), SM_STR("application/json, text/event-stream"));
        char version[MCP_VERSION_MAX + 1];
        if (r->plain)
            flight->modern = modern_version(m, version);
        else
            set_era(&f, flight, m);
        if (flight->way != NULL)
            set_all(&f, r, flight->way->headers, flight->way->header_count);
        f.failed |= !keep_way(flight);
    }
    *out = f.v;
    *n = f.n;
    return !f.failed;
}

/* Whether a header repeats a part of its own request. */
static bool repeats(sm_str name)
{
    sm_str start = {name.p, sizeof MCP_PARAM_PREFIX - 1};
    return sm_header_is(name, SM_STR("Mcp-Method")) || sm_header_is(name, SM_STR("Mcp-Name")) ||
           (name.n > start.n && sm_header_is(start, SM_STR(MCP_PARAM_PREFIX)));
}

bool mcp_headers_beside(sm_arena *a, const mcp_way *way, const char *method, sm_str params,
                        const mcp_tool *tool, const sm_http_field **out, size_t *n)
{
    fields f = {.arena = a, .room = way->header_count + OWN_MAX + MCP_REPEATED_ARGS};
    bool modern = false;
    *out = NULL;
    *n = 0;
    if (way->header_count == 0)
        return true;
    f.v = sm_arena_zalloc(a, f.room, sizeof *f.v);
    if (f.v == NULL)
        return false;
    for (size_t i = 0; i < way->header_count; i++) {
        const sm_http_field *h = &way->headers[i];
        modern = modern || sm_header_is(h->name, SM_STR("Mcp-Method"));
        if (!repeats(h->name))
            set_copy(&f, h->name, h->value);
    }
    if (modern)
        set_repeated(&f, method, params, tool);
    *out = f.v;
    *n = f.n;
    return !f.failed;
}

sm_str mcp_header_find(const sm_http_field *headers, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++) {
        if (sm_header_is(headers[i].name, sm_str_from(name)))
            return headers[i].value;
    }
    return (sm_str){0};
}
