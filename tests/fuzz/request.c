/*
 * What clients send to the gateway: bodies of calls, and the headers and paths that it looks at.
 *
 * Parts: body, Idempotency-Key (an empty one is absent), path, traceparent, Host. Whatever is
 * refused is refused in words. What is read is bounded and the same every time, its arguments are a
 * document of their own, and a key survives being quoted. A path leads to one route, the trace that
 * is passed on is well formed whatever came, and a host is a name of ours or none.
 */
#include "fuzz.h"

#include <strings.h>

#include "api/body.h"
#include "gateway/api/key.h"
#include "gateway/http/server.h"
#include "gateway/telemetry/trace.h"

#define WAIT_MAX 300000

static void must_be_told(sm_err e, const sm_fault *f)
{
    must(e != SM_OK && f->code == e);
    must(f->text[0] != '\0');
    must(sm_utf8_valid((sm_str){f->text, strlen(f->text)}));
}

static void must_be_equal(sm_str a, sm_str b)
{
    must((a.p == NULL) == (b.p == NULL) && sm_str_eq(a, b));
}

/* A key as RFC 8941 writes it is read as the same key. */
static void must_survive_quoting(sm_arena *a, sm_str key)
{
    char text[2 * SM_KEY_MAX + 2];
    size_t n = 0;
    text[n++] = '"';
    for (size_t i = 0; i < key.n; i++) {
        must(key.p[i] >= 0x20 && key.p[i] <= 0x7E);
        if (key.p[i] == '"' || key.p[i] == '\\')
            text[n++] = '\\';
        text[n++] = key.p[i];
    }
    text[n++] = '"';
    sm_str again;
    must(gw_key_parse(a, (sm_str){text, n}, &again, NULL) == SM_OK);
    must(sm_str_eq(again, key));
}

static void read_key(sm_arena *a, sm_str header)
{
    sm_str key;
    sm_fault f = {0};
    sm_err e = gw_key_parse(a, header, &key, &f);
    if (e != SM_OK) {
        must_be_told(e, &f);
        return;
    }
    must(key.n > 0 && key.n <= SM_KEY_MAX);
    must_survive_quoting(a, key);
    semel_call call = {0};
    must(gw_key_take(a, header, &call, NULL) == SM_OK && sm_str_eq(call.key, key));
}

static void read_call(sm_arena *a, sm_str body, sm_call_form form)
{
    semel_call call, again;
    sm_fault f = {0};
    sm_err e = sm_call_parse(a, body, NULL, form, WAIT_MAX, &call, &f);
    must(sm_call_parse(a, body, NULL, form, WAIT_MAX, &again, NULL) == e);
    if (e != SM_OK) {
        must_be_told(e, &f);
        must(f.at <= body.n);
        return;
    }
    must(call.scope.p != NULL && call.tool.p != NULL && call.args.p != NULL);
    must(call.wait_ms >= 0 && call.wait_ms <= WAIT_MAX);
    must(form == SM_FORM_BEGIN || call.after.p == NULL);
    must_be_equal(call.scope, again.scope);
    must_be_equal(call.step, again.step);
    must_be_equal(call.tool, again.tool);
    must_be_equal(call.args, again.args);
    must_be_equal(call.key, again.key);
    const sm_json *args;
    must(sm_json_read(a, call.args, &sm_json_default_limits, &args, NULL) == SM_OK);
    must_be_sound(args, 0);
}

/* What stands for the variable part of a route is a part of the path. */
static void find_route(sm_str path)
{
    for (gw_method m = GW_GET; m <= GW_OTHER; m++) {
        sm_str rest;
        char allowed[64];
        memset(allowed, 'x', sizeof allowed);
        const gw_route *route = gw_route_find(m, path, &rest, allowed);
        must(memchr(allowed, '\0', sizeof allowed) != NULL);
        must(route == NULL || route->handle != NULL);
        must(rest.p == NULL || (rest.p >= path.p && rest.p + rest.n <= path.p + path.n));
    }
}

static void follow_trace(sm_str parent)
{
    gw_trace t, again;
    char text[GW_TRACEPARENT_TEXT];
    gw_trace_start(&t, parent, (sm_str){0});
    gw_trace_parent(&t, text);
    must(strlen(text) == GW_TRACEPARENT_TEXT - 1);
    gw_trace_start(&again, (sm_str){text, strlen(text)}, (sm_str){0});
    must(strcmp(again.id, t.id) == 0 && strcmp(again.parent, t.span) == 0);
    must(again.sampled == t.sampled);
}

/* Letters in any case, and a port behind it; nothing else makes another text one of our names. */
static void check_host(sm_str host)
{
    static const char name[] = "semel.example";
    static const gw_mount mount = {.names = {{name, sizeof name - 1}}, .name_count = 1};
    size_t n = sizeof name - 1;
    bool equal = host.n >= n && strncasecmp(host.p, name, n) == 0;
    for (size_t i = n; equal && i < host.n; i++)
        equal = i == n ? host.p[i] == ':' : host.p[i] >= '0' && host.p[i] <= '9';
    must(gw_host_allowed(&mount, host) == equal);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_str rest = input(data, size), body = {0}, header = {0}, path = {0}, parent = {0}, host = {0};
    next_part(&rest, &body);
    next_part(&rest, &header);
    next_part(&rest, &path);
    next_part(&rest, &parent);
    next_part(&rest, &host);
    if (header.n == 0)
        header = (sm_str){0};
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    if (path.p != NULL)
        find_route(path);
    if (parent.p != NULL)
        follow_trace(parent);
    if (host.p != NULL)
        check_host(host);
    if (header.p != NULL)
        read_key(&a, header);
    read_call(&a, body, SM_FORM_CALL);
    read_call(&a, body, SM_FORM_BEGIN);
    sm_arena_fini(&a);
    return 0;
}
