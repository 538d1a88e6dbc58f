/* Keys that callers give: the header Idempotency-Key. */
#include "gateway/api/key.h"

#include "base/limits.h"

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

sm_err gw_key_take(sm_arena *a, sm_str header, semel_call *call, sm_fault *fault)
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
