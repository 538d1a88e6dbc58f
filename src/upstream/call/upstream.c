/* Making a request out of a contract and arguments. */
#include "upstream/upstream.h"

#include <stdlib.h>

#include "base/header.h"
#include "base/url.h"
#include "core/budget.h"
#include "json/number.h"
#include "upstream/call/body.h"

#define URL_MAX    ((size_t)16 << 10)
#define HEADER_MAX ((size_t)16 << 10)
#define SPARE      8u /* headers that may be added before the list has to grow */

static sm_err no_memory(sm_fault *fault)
{
    return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
}

/* Moves what was written into the arena. */
static sm_err keep(sm_arena *a, sm_buf *b, sm_str *out)
{
    sm_err e = b->err;
    *out = e == SM_OK ? sm_arena_text(a, b->p == NULL ? SM_STR("") : sm_buf_view(b)) : (sm_str){0};
    sm_buf_fini(b);
    return e == SM_OK && out->p == NULL ? SEMEL_E_NOMEM : e;
}

/* ---- the URL ---------------------------------------------------------------------------------*/

/* The text of an argument that a placeholder names. */
static sm_err argument_text(sm_arena *a, sm_str name, const sm_json *args, sm_str *out,
                            sm_fault *fault)
{
    const sm_json *v;
    if (name.p[0] == '/') {
        sm_pointer pointer;
        sm_err e = sm_pointer_parse(a, name, &pointer, fault);
        if (e != SM_OK)
            return e;
        v = sm_pointer_get(&pointer, args);
    } else {
        v = sm_json_find(args, name);
    }
    if (v == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the URL of this tool needs the argument %.*s", SM_FMT(name));
    switch (v->type) {
    case SM_JSON_STRING: *out = sm_json_text(v); return SM_OK;
    case SM_JSON_TRUE: *out = SM_STR("true"); return SM_OK;
    case SM_JSON_FALSE: *out = SM_STR("false"); return SM_OK;
    case SM_JSON_NUMBER: {
        char *number = sm_arena_alloc(a, SM_NUMBER_MAX);
        if (number == NULL)
            return no_memory(fault);
        *out = (sm_str){number, sm_number_canonical(sm_json_text(v), number)};
        if (out->n > 0)
            return SM_OK;
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the argument %.*s is too large: it has no finite value", SM_FMT(name));
    }
    default:
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the argument %.*s goes into the URL and so must be a text, a number "
                            "or a boolean, not %s",
                            SM_FMT(name), sm_json_type_name(v));
    }
}

/* Whether the URL so far leads nowhere but down. */
static bool path_stays(sm_str url)
{
    const char *host = memmem(url.p, url.n, "://", 3);
    const char *path =
        host == NULL ? NULL : memchr(host + 3, '/', url.n - (size_t)(host + 3 - url.p));
    return path == NULL || sm_path_stays((sm_str){path, url.n - (size_t)(path - url.p)});
}

static sm_err make_url(sm_arena *a, sm_str template, const sm_json *args, sm_str *out,
                       sm_fault *fault)
{
    sm_buf url;
    sm_url_part part;
    sm_err e = SM_OK;
    sm_buf_init(&url, URL_MAX);
    for (size_t at = 0; e == SM_OK && sm_url_template_next(template, &at, &part);) {
        if (!part.argument) {
            sm_buf_str(&url, part.text);
            continue;
        }
        sm_str value;
        e = argument_text(a, part.text, args, &value, fault);
        if (e != SM_OK)
            break;
        if (!part.query && value.n == 0)
            e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                             "the argument %.*s is part of a path and so must not be empty",
                             SM_FMT(part.text));
        else
            sm_percent_encode(&url, value);
        if (e == SM_OK && !part.query && !path_stays(sm_buf_view(&url)))
            e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                             "the argument %.*s is part of a path and so must not make a segment "
                             "of it \".\" or \"..\"",
                             SM_FMT(part.text));
    }
    if (e != SM_OK) {
        sm_buf_fini(&url);
        return e;
    }
    e = keep(a, &url, out);
    if (e == SEMEL_E_LIMIT)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the arguments make the URL longer than %zu bytes", URL_MAX);
    return e == SM_OK ? e : no_memory(fault);
}

/* ---- headers ---------------------------------------------------------------------------------*/

/* Puts in the value of one variable. Nothing that is said of it tells its value. */
static sm_err put_variable(sm_buf *out, sm_str name, sm_fault *fault)
{
    char key[256];
    if (name.n >= sizeof key)
        return sm_fault_set(fault, SEMEL_E_INVALID,
                            "the name of an environment variable is too "
                            "long");
    memcpy(key, name.p, name.n);
    key[name.n] = '\0';
    sm_str value = sm_str_from(getenv(key));
    if (value.p == NULL)
        return sm_fault_set(fault, SEMEL_E_INVALID, "the environment variable %s is not set", key);
    if (!sm_header_value(value))
        return sm_fault_set(fault, SEMEL_E_INVALID,
                            "the environment variable %s holds a line feed or another control "
                            "character and cannot be sent in a header",
                            key);
    sm_buf_str(out, value);
    return SM_OK;
}

/* A header's value with its ${NAME}s put in; contracts are checked for whole ones. */
static sm_err expand(sm_arena *a, sm_str text, sm_str *out, sm_fault *fault)
{
    sm_buf b;
    sm_err e = SM_OK;
    sm_buf_init(&b, HEADER_MAX);
    for (size_t i = 0; i < text.n && e == SM_OK; i++) {
        const char *close = i + 1 < text.n && text.p[i] == '$' && text.p[i + 1] == '{'
                                ? memchr(text.p + i, '}', text.n - i)
                                : NULL;
        if (close == NULL) {
            sm_buf_byte(&b, text.p[i]);
            continue;
        }
        size_t end = (size_t)(close - text.p);
        e = put_variable(&b, (sm_str){text.p + i + 2, end - i - 2}, fault);
        i = end;
    }
    if (e != SM_OK) {
        sm_buf_fini(&b);
        return e;
    }
    e = keep(a, &b, out);
    if (e == SEMEL_E_LIMIT)
        return sm_fault_set(fault, SEMEL_E_INVALID, "a header is longer than %zu bytes",
                            HEADER_MAX);
    return e == SM_OK ? e : no_memory(fault);
}

static sm_http_field *find_header(sm_upstream_call *call, sm_str name)
{
    for (size_t i = 0; i < call->request.header_count; i++) {
        if (sm_header_is(call->headers[i].name, name))
            return &call->headers[i];
    }
    return NULL;
}

/* Removes all headers that some server could take for this one. */
static void drop_header(sm_upstream_call *call, sm_str name)
{
    size_t kept = 0;
    for (size_t i = 0; i < call->request.header_count; i++) {
        if (!sm_header_alike(call->headers[i].name, name))
            call->headers[kept++] = call->headers[i];
    }
    call->request.header_count = kept;
}

sm_err sm_upstream_header(sm_arena *a, sm_upstream_call *call, sm_str name, sm_str value)
{
    size_t n = call->request.header_count;
    if (n == call->header_room) {
        size_t room = n + SPARE;
        sm_http_field *more = sm_arena_alloc(a, room * sizeof *more);
        if (more == NULL)
            return SEMEL_E_NOMEM;
        if (n > 0)
            memcpy(more, call->headers, n * sizeof *more);
        call->headers = more;
        call->header_room = room;
        call->request.headers = more;
    }
    call->headers[n] = (sm_http_field){name, value};
    call->request.header_count = n + 1;
    return SM_OK;
}

static sm_err make_headers(sm_arena *a, const sm_upstream *u, sm_upstream_call *call,
                           sm_fault *fault)
{
    for (uint32_t i = 0; i < u->headers.n; i++) {
        sm_str name = sm_arena_text(a, u->headers.v[i].name), value;
        if (name.p == NULL)
            return no_memory(fault);
        sm_err e = expand(a, u->headers.v[i].value, &value, fault);
        if (e != SM_OK)
            return e;
        if (sm_upstream_header(a, call, name, value) != SM_OK)
            return no_memory(fault);
    }
    if (call->body == SM_BODY_NONE || find_header(call, SM_STR("Content-Type")) != NULL)
        return SM_OK;
    sm_str type = call->body == SM_BODY_FORM ? SM_STR("application/x-www-form-urlencoded")
                                             : SM_STR("application/json");
    if (sm_upstream_header(a, call, SM_STR("Content-Type"), type) != SM_OK)
        return no_memory(fault);
    return SM_OK;
}

/* ---- the whole -------------------------------------------------------------------------------*/

/* What is left of the arguments when the body is made again with a key among them: a copy, for the
 * call may outlive whatever the arguments were read into. */
static sm_err keep_args(sm_arena *a, const sm_json *args, sm_upstream_call *call, sm_fault *fault)
{
    sm_str text;
    sm_err e = sm_upstream_body(a, SM_BODY_JSON, args, &text, fault);
    if (e != SM_OK)
        return e;
    sm_json_limits limits = sm_json_default_limits;
    limits.bytes = SM_UPSTREAM_BODY_MAX;
    return sm_json_read(a, text, &limits, &call->args, fault);
}

sm_err sm_upstream_make(sm_arena *a, const sm_contract *c, const sm_json *args,
                        sm_upstream_call *out, sm_fault *fault)
{
    const sm_upstream *u = &c->upstream;
    *out = (sm_upstream_call){
        .request = {.method = sm_method_name(u->method),
                    .timeout_ms = u->timeout_ms,
                    .write = c->class != SM_CLASS_READ,
                    .body_max = SM_OUTCOME_MAX},
        .key = *sm_contract_key_rule(c),
        .retry = u->retry,
        .rejects_before_work = u->rejects_before_work,
        .body = u->method == SM_METHOD_GET ? SM_BODY_NONE : u->body,
    };
    sm_str *const names[] = {&out->key.header, &out->key.argument, &out->key.meta};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i]->p == NULL)
            continue;
        *names[i] = sm_arena_text(a, *names[i]);
        if (names[i]->p == NULL)
            return no_memory(fault);
    }
    sm_err e = make_url(a, u->url, args, &out->request.url, fault);
    if (e == SM_OK)
        e = make_headers(a, u, out, fault);
    if (e == SM_OK)
        e = sm_upstream_body(a, out->body, args, &out->request.body, fault);
    if (e == SM_OK && out->key.argument.p != NULL)
        e = keep_args(a, args, out, fault);
    return e == SM_OK ? sm_upstream_priced(a, out, &u->cost, &u->tokens) : e;
}

/* ---- what it cost ----------------------------------------------------------------------------*/

static sm_err keep_pointer(sm_arena *a, const sm_pointer *from, sm_pointer *to)
{
    *to = (sm_pointer){0};
    if (from->text.p == NULL)
        return SM_OK;
    sm_str text = sm_arena_text(a, from->text);
    return text.p == NULL ? SEMEL_E_NOMEM : sm_pointer_parse(a, text, to, NULL);
}

sm_err sm_upstream_priced(sm_arena *a, sm_upstream_call *call, const sm_pointer *cost,
                          const sm_pointer *tokens)
{
    sm_err e = keep_pointer(a, cost, &call->cost);
    return e == SM_OK ? keep_pointer(a, tokens, &call->tokens) : e;
}

static const sm_json *value_at(const sm_pointer *p, const sm_json *root)
{
    return p->text.p == NULL ? NULL : sm_pointer_get(p, root);
}

void sm_upstream_spent(sm_arena *a, const sm_upstream_call *call, sm_str body, semel_outcome *out)
{
    const sm_json *root;
    if ((call->cost.text.p != NULL || call->tokens.text.p != NULL) && body.n > 0 &&
        sm_json_read(a, body, &sm_json_default_limits, &root, NULL) == SM_OK)
        sm_spent_take(value_at(&call->cost, root), value_at(&call->tokens, root), out);
}

/* ---- the key ---------------------------------------------------------------------------------*/

/* A key as a header's value: as it is, or as a string of RFC 8941. */
static sm_err header_key(sm_arena *a, sm_str key, bool quoted, sm_str *out, sm_fault *fault)
{
    sm_buf b;
    sm_buf_init(&b, HEADER_MAX);
    if (quoted)
        sm_buf_byte(&b, '"');
    for (size_t i = 0; i < key.n; i++) {
        if (quoted && (key.p[i] == '"' || key.p[i] == '\\'))
            sm_buf_byte(&b, '\\');
        sm_buf_byte(&b, key.p[i]);
    }
    if (quoted)
        sm_buf_byte(&b, '"');
    sm_err e = keep(a, &b, out);
    return e == SM_OK ? e : sm_fault_set(fault, e, "%s", semel_err_text(e));
}

sm_err sm_upstream_key(sm_arena *a, sm_upstream_call *call, sm_str key, sm_fault *fault)
{
    for (size_t i = 0; i < key.n; i++) {
        if (key.p[i] < 0x20 || key.p[i] > 0x7E)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "the key for the upstream holds a character that cannot be sent");
    }
    if (call->key.header.p != NULL) {
        sm_str value;
        sm_err e = header_key(a, key, call->key.style == 1, &value, fault);
        if (e != SM_OK)
            return e;
        drop_header(call, call->key.header);
        if (sm_upstream_header(a, call, call->key.header, value) != SM_OK)
            return no_memory(fault);
    }
    if (call->key.argument.p != NULL && call->args != NULL) {
        const sm_json *args;
        sm_err e = sm_upstream_args_with(a, call->args, call->key.argument, key, &args, fault);
        if (e == SM_OK)
            e = sm_upstream_body(a, call->body, args, &call->request.body, fault);
        return e;
    }
    return SM_OK;
}

static void mix(uint64_t *h, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < n; i++)
        *h = (*h ^ p[i]) * 0x100000001B3u;
    *h = (*h ^ n) * 0x100000001B3u; /* where one text ends and the next begins */
}

uint64_t sm_upstream_shape_of(const sm_upstream *u, const sm_idempotency *key)
{
    uint64_t h = 0xCBF29CE484222325u;
    int numbers[] = {u->method, u->body, key->style};
    mix(&h, numbers, sizeof numbers);
    mix(&h, u->url.p, u->url.n);
    mix(&h, key->header.p, key->header.n);
    mix(&h, key->argument.p, key->argument.n);
    for (uint32_t i = 0; i < u->headers.n; i++) {
        mix(&h, u->headers.v[i].name.p, u->headers.v[i].name.n);
        mix(&h, u->headers.v[i].value.p, u->headers.v[i].value.n);
    }
    return h;
}

uint64_t sm_upstream_shape(const sm_contract *c)
{
    return sm_upstream_shape_of(&c->upstream, sm_contract_key_rule(c));
}
