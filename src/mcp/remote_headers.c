/*
 * What a message demands of its headers.
 *
 * Legacy: the session's id and the version that initialize agreed on. Modern: a request names its
 * version itself, and its headers repeat what is in it (method, name, and the arguments that the
 * tool's schema marks with x-mcp-header), so that those between can route it. A server compares
 * both, so whatever is repeated is taken from the message as it is sent.
 *
 * Values that no header can hold travel as =?base64?...?=, and so do those that look like it.
 */
#include <stdlib.h>

#include "base/base64.h"
#include "core/wire.h"
#include "mcp/remote.h"
#include "json/number.h"

#define VALUE_MAX  8192u /* bytes of a value that is repeated */
#define NAME_MAX   1024u /* bytes of an argument's name */
#define PARAMS_MAX 128u  /* arguments of one call that are repeated */
#define OWN_MAX    16u

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

/* Adds a header, or replaces what is there. Both texts are kept as they are. */
static void set(fields *f, sm_str name, sm_str value)
{
    sm_http_field *at = find(f, name);
    if (at != NULL) {
        at->value = value;
    } else if (f->n == f->room) {
        f->failed = true;
    } else {
        f->v[f->n++] = (sm_http_field){name, value};
    }
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

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool wants_base64(sm_str s)
{
    static const char before[] = "=?base64?", after[] = "?=";
    if (s.n == 0 || blank(s.p[0]) || blank(s.p[s.n - 1]))
        return true;
    if (s.n >= sizeof before - 1 + sizeof after - 1 &&
        memcmp(s.p, before, sizeof before - 1) == 0 && memcmp(s.p + s.n - 2, after, 2) == 0)
        return true;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\t' && (s.p[i] < 0x20 || s.p[i] > 0x7E))
            return true;
    }
    return false;
}

static void set_value(fields *f, sm_str name, sm_str value)
{
    if (!wants_base64(value)) {
        set_copy(f, name, value);
        return;
    }
    sm_buf b;
    sm_buf_init(&b, sm_base64_size(VALUE_MAX) + 16);
    sm_buf_text(&b, "=?base64?");
    sm_base64_put(&b, value);
    sm_buf_text(&b, "?=");
    if (b.err != SM_OK)
        f->failed = true;
    else
        set_copy(f, name, sm_buf_view(&b));
    sm_buf_fini(&b);
}

/* Integers that some readers would round are not repeated: nobody could compare them. */
static bool safe_number(sm_str text)
{
    size_t sign = text.n > 0 && text.p[0] == '-';
    sm_str digits = {text.p + sign, text.n - sign};
    static const char most[] = "9007199254740991";
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return true; /* a fraction, or an exponent */
    }
    return digits.n < sizeof most - 1 ||
           (digits.n == sizeof most - 1 && memcmp(digits.p, most, digits.n) <= 0);
}

/* One argument, if it is of a kind that is repeated. */
static void set_argument(fields *f, sm_str header, sm_str value)
{
    char text[VALUE_MAX + 1], name[64 + sizeof "Mcp-Param-"];
    sm_str given;
    if (!sm_header_name(header) || header.n > 64 || value.n == 0)
        return;
    if (mcp_is_string(value)) {
        if (!mcp_text(value, text, sizeof text))
            return;
        given = sm_str_from(text);
    } else if (value.p[0] == '-' || (value.p[0] >= '0' && value.p[0] <= '9')) {
        given = (sm_str){text, sm_number_canonical(value, text)};
        if (given.n == 0 || !safe_number(given))
            return;
    } else if (value.p[0] == 't' || value.p[0] == 'f') {
        given = value;
    } else {
        return; /* null, or something with parts */
    }
    memcpy(name, "Mcp-Param-", 10);
    memcpy(name + 10, header.p, header.n);
    sm_str full = {name, 10 + header.n};
    if (find(f, full) == NULL)
        set_value(f, full, given);
}

/* The arguments that a schema marks, at any depth of objects. The schema's own depth is bounded by
 * its reader. */
static void set_arguments(fields *f, const sm_json *schema, sm_str arguments)
{
    const sm_json *properties = sm_json_find(schema, SM_STR("properties"));
    if (properties == NULL || properties->type != SM_JSON_OBJECT || !mcp_is_object(arguments))
        return;
    const sm_json *name = properties + 1;
    for (uint32_t i = 0; i < properties->len; i++, name = sm_json_next(name + 1)) {
        const sm_json *property = name + 1;
        const sm_json *header = sm_json_find(property, SM_STR("x-mcp-header"));
        bool deeper = sm_json_find(property, SM_STR("properties")) != NULL;
        char text[NAME_MAX];
        sm_str value;
        if ((header == NULL && !deeper) || name->len >= sizeof text ||
            memchr(name->text, '\0', name->len) != NULL)
            continue;
        memcpy(text, name->text, name->len);
        text[name->len] = '\0';
        if (!mcp_find(arguments, text, &value))
            continue;
        if (header != NULL && header->type == SM_JSON_STRING)
            set_argument(f, sm_json_text(header), value);
        if (deeper)
            set_arguments(f, property, value);
    }
}

/* ---- eras ------------------------------------------------------------------------------------*/

/* Which member of the parameters a method is about; NULL: none. */
static const char *name_of(const char *method)
{
    static const struct {
        const char *method, *member;
    } table[] = {
        {"tools/call", "name"},  {"prompts/get", "name"},    {"resources/read", "uri"},
        {"tasks/get", "taskId"}, {"tasks/update", "taskId"}, {"tasks/cancel", "taskId"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(method, table[i].method) == 0)
            return table[i].member;
    }
    return NULL;
}

/* The version that a message names itself. False: it is legacy. */
static bool modern_version(const mcp_message *m, char version[MCP_VERSION_MAX + 1])
{
    sm_str meta, value;
    return m->params.p != NULL && mcp_find(m->params, "_meta", &meta) &&
           mcp_find(meta, "io.modelcontextprotocol/protocolVersion", &value) &&
           mcp_text(value, version, MCP_VERSION_MAX + 1) && version[0] != '\0' &&
           sm_header_value(sm_str_from(version));
}

/* What a request is about, decoded. False: nothing, or nothing that a header could repeat. */
static bool read_name(const char *method, sm_str params, char name[VALUE_MAX + 1])
{
    const char *member = name_of(method);
    sm_str value;
    return member != NULL && mcp_find(params, member, &value) &&
           mcp_text(value, name, VALUE_MAX + 1);
}

/* What a request repeats of itself; `tool`: the one that it calls, NULL if nothing is known. */
static void set_repeated(fields *f, const char *method, sm_str params, const mcp_tool *tool)
{
    char name[VALUE_MAX + 1];
    sm_str arguments;
    set_copy(f, SM_STR("Mcp-Method"), sm_str_from(method));
    if (read_name(method, params, name))
        set_value(f, SM_STR("Mcp-Name"), sm_str_from(name));
    if (tool != NULL && tool->schema != NULL && mcp_find(params, "arguments", &arguments))
        set_arguments(f, tool->schema, arguments);
}

static void set_modern(fields *f, mcp_remote *r, const mcp_message *m)
{
    set(f, SM_STR("MCP-Protocol-Version"), sm_str_from(r->modern));
    if (m->kind != MCP_REQUEST || !sm_header_value(sm_str_from(m->method)))
        return;
    char name[VALUE_MAX + 1];
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

/* Headers of one connection, and one that would have the answer come in another coding. */
static bool not_passed_on(sm_str name)
{
    return sm_header_framing(name) || sm_header_is(name, SM_STR("Host")) ||
           sm_header_is(name, SM_STR("Accept-Encoding"));
}

static void set_all(fields *f, const mcp_remote *r, const sm_http_field *headers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const sm_http_field *h = &headers[i];
        bool own = false;
        for (size_t k = 0; k < r->header_count && !own; k++)
            own = sm_header_is(h->name, SM_STR("Authorization")) &&
                  sm_header_is(r->headers[k].name, h->name);
        if (!own && !not_passed_on(h->name))
            set(f, h->name, h->value);
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
        if (sm_header_is(name, SM_STR("Content-Type")))
            continue; /* of what was sent, and nothing is when coming back */
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
    fields f = {.arena = &r->arena, .room = r->header_count + ways + OWN_MAX + PARAMS_MAX};
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
    static const char prefix[] = "Mcp-Param-";
    sm_str start = {name.p, sizeof prefix - 1};
    return sm_header_is(name, SM_STR("Mcp-Method")) || sm_header_is(name, SM_STR("Mcp-Name")) ||
           (name.n > start.n && sm_header_is(start, SM_STR(prefix)));
}

bool mcp_headers_beside(sm_arena *a, const mcp_way *way, const char *method, sm_str params,
                        const mcp_tool *tool, const sm_http_field **out, size_t *n)
{
    fields f = {.arena = a, .room = way->header_count + OWN_MAX + PARAMS_MAX};
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
