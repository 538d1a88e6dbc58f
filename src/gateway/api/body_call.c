/*
 * Calls as clients write them: the body of POST /v1/call and /v1/begin, and the header
 * Idempotency-Key. This is on the path of every replay, so the body is read once and its arguments
 * are handed on as they came: the ledger makes their canonical form itself.
 */
#include "gateway/api/body.h"

#include <stddef.h>

#include "base/limits.h"
#include "core/call.h"
#include "gateway/inside/gateway.h"

#define CALL_WAIT_MS 30000

#define MEMBER(n) .name = #n, .offset = offsetof(semel_call, n)
static const gw_member call_members[] = {
    {MEMBER(scope), .kind = GW_M_TEXT, .required = true},
    {MEMBER(step), .kind = GW_M_LABEL},
    {MEMBER(tool), .kind = GW_M_TEXT, .required = true},
    {MEMBER(args), .kind = GW_M_ANY, .required = true},
    {MEMBER(key), .kind = GW_M_TEXT},
    {MEMBER(wait_ms), .kind = GW_M_COUNT},
    {MEMBER(after), .kind = GW_M_TEXT}, /* last: only in /v1/begin */
};
#define CALL_MEMBERS (sizeof call_members / sizeof call_members[0])
#define WAIT_MEMBER  5

/* ---- keys ------------------------------------------------------------------------------------*/

static sm_err bad_key(sm_fault *fault, const char *why)
{
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "Idempotency-Key: %s; write it as \"KEY\" in quotes, or bare", why);
}

/* Between the quotes, with \" for a quote and \\ for a backslash. */
static sm_err unquote(sm_arena *a, sm_str header, sm_str *key, sm_fault *fault)
{
    char *out = sm_arena_alloc(a, header.n);
    if (out == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    size_t n = 0, i = 1;
    for (; i < header.n && header.p[i] != '"'; i++) {
        if (header.p[i] == '\\' && (++i == header.n || (header.p[i] != '"' && header.p[i] != '\\')))
            return bad_key(fault, "a backslash stands only before a quote or a backslash");
        out[n++] = header.p[i];
    }
    if (i == header.n)
        return bad_key(fault, "the closing quote is missing");
    if (i + 1 != header.n)
        return bad_key(fault, "there is something behind the closing quote");
    *key = (sm_str){out, n};
    return SM_OK;
}

sm_err gw_key_parse(sm_arena *a, sm_str header, sm_str *key, sm_fault *fault)
{
    *key = (sm_str){0};
    if (header.n > 2u * SM_KEY_MAX + 2)
        return bad_key(fault, "it is too long");
    for (size_t i = 0; i < header.n; i++) {
        if (header.p[i] < 0x20 || header.p[i] > 0x7E)
            return bad_key(fault, "it has a character that is not printable ASCII");
    }
    sm_err e = SM_OK;
    if (header.n > 0 && header.p[0] == '"') {
        e = unquote(a, header, key, fault);
    } else {
        *key = sm_arena_text(a, header);
        e = key->p == NULL ? sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory") : SM_OK;
    }
    if (e == SM_OK && key->n == 0)
        e = bad_key(fault, "it is empty");
    if (e == SM_OK && key->n > SM_KEY_MAX)
        e = bad_key(fault, "it is longer than 512 characters");
    return e;
}

bool gw_read_key(gw_request *r, sm_arena *a, sm_str *key)
{
    sm_fault fault = {0};
    sm_str header = gw_header(r, "Idempotency-Key");
    *key = (sm_str){0};
    if (header.p == NULL)
        return true;
    sm_err e = gw_key_parse(a, header, key, &fault);
    if (e != SM_OK)
        gw_body_refuse(r, &fault);
    return e == SM_OK;
}

/* ---- calls -----------------------------------------------------------------------------------*/

static sm_err take_key(sm_arena *a, sm_str header, semel_call *call, sm_fault *fault)
{
    sm_str key;
    if (header.p == NULL)
        return SM_OK;
    sm_err e = gw_key_parse(a, header, &key, fault);
    if (e == SM_OK && call->key.p != NULL && !sm_str_eq(key, call->key))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the header Idempotency-Key and \"key\" of the body differ; give one "
                            "of them, or the same twice");
    if (e == SM_OK)
        call->key = key;
    return e;
}

sm_err gw_call_parse(sm_arena *a, sm_str body, sm_str header, gw_call_form form,
                     int64_t wait_max_ms, semel_call *out, sm_fault *fault)
{
    int64_t wait_ms = form == GW_FORM_CALL ? CALL_WAIT_MS : 0;
    *out =
        (semel_call){.size = sizeof *out, .wait_ms = wait_ms < wait_max_ms ? wait_ms : wait_max_ms};
    gw_member members[CALL_MEMBERS];
    memcpy(members, call_members, sizeof members);
    members[WAIT_MEMBER].max = wait_max_ms;
    sm_err e = gw_object_take(a, body, members, CALL_MEMBERS - (form == GW_FORM_CALL), out, fault);
    if (e == SM_OK)
        e = take_key(a, header, out, fault);
    if (e != SM_OK)
        return e;
    out->args = sm_arena_text(a, out->args); /* it was the body's, which goes with the request */
    return out->args.p == NULL ? sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory") : SM_OK;
}

bool gw_read_call(gw_request *r, sm_arena *a, gw_call_form form, semel_call *out)
{
    sm_fault fault = {0};
    if (!gw_body_json(r))
        return false;
    sm_str header = gw_header(r, "Idempotency-Key");
    sm_err e = gw_call_parse(a, sm_buf_view(&r->body), header, form, r->g->config->limits.wait_ms,
                             out, &fault);
    if (e != SM_OK) {
        gw_body_refuse(r, &fault);
        return false;
    }
    if (gw_who_owns(&r->who, out->scope))
        return true;
    sm_parsed_call parts = {
        .scope = out->scope, .step = out->step, .tool = out->tool, .key = out->key};
    if (sm_call_check(&parts, &fault) != SM_OK) { /* it would be nobody's */
        gw_body_refuse(r, &fault);
        return false;
    }
    gw_problem(r, 403, "FORBIDDEN", "Use a scope of your own, or another token.",
               "This token may only use scopes below \"%s\".", r->who.scope);
    return false;
}
