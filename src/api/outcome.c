/* Outcomes as clients write them. */
#include "api/operation.h"
#include "base/base64.h"
#include "core/headers.h"

#define HEADERS_MAX 64u

static sm_err take_headers(sm_arena *a, const sm_object *o, sm_str *out, sm_fault *fault)
{
    sm_http_field fields[HEADERS_MAX];
    size_t n = 0;
    const sm_json *name = o->node + 1;
    if (o->node->len > HEADERS_MAX)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "\"headers\" has more than %u members",
                            HEADERS_MAX);
    for (uint32_t i = 0; i < o->node->len; i++, name = sm_json_next(name + 1)) {
        if (name[1].type != SM_JSON_STRING)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "\"headers\": \"%.*s\" must be a string, not %s",
                                SM_FMT(sm_quoted(sm_json_text(name))), sm_json_type_name(name + 1));
        sm_str text = sm_json_text(name + 1);
        if (!sm_header_value(text))
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "\"headers\": \"%.*s\" has a control character",
                                SM_FMT(sm_quoted(sm_json_text(name))));
        fields[n++] = (sm_http_field){sm_json_text(name), text};
    }
    sm_buf kept;
    sm_buf_init(&kept, SM_JSON_BYTES_MAX);
    sm_headers_keep(fields, n, &kept);
    *out = kept.len > 2 ? sm_arena_text(a, sm_buf_view(&kept)) : (sm_str){0};
    bool lost = kept.err != SM_OK || (kept.len > 2 && out->p == NULL);
    sm_buf_fini(&kept);
    return lost ? sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory") : SM_OK;
}

static sm_err take_bytes(sm_arena *a, sm_str base64, sm_str *out, sm_fault *fault)
{
    sm_buf bytes;
    sm_buf_init(&bytes, base64.n + 4);
    sm_err e = SM_OK;
    if (!sm_base64_take(&bytes, base64))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"value_base64\" is not base64 with padding (RFC 4648 section 4)");
    *out = sm_arena_text(a, sm_buf_view(&bytes));
    if (e == SM_OK && (bytes.err != SM_OK || out->p == NULL))
        e = sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    sm_buf_fini(&bytes);
    return e;
}

sm_err sm_outcome_take(sm_arena *a, const sm_outcome_body *b, semel_outcome *out, sm_fault *fault)
{
    out->status = (int)b->status;
    out->value = b->value;
    sm_err e = SM_OK;
    if (b->value.p != NULL && b->value_base64.p != NULL)
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"value\" and \"value_base64\" exclude each other");
    else if (b->value_base64.p != NULL)
        e = take_bytes(a, b->value_base64, &out->value, fault);
    if (e == SM_OK && b->headers.node != NULL)
        e = take_headers(a, &b->headers, &out->headers, fault);
    return e;
}
