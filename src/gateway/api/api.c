/*
 * What the files of the API share.
 *
 * A token sees its own scopes. Whatever lies outside of them is told apart from what does not exist
 * by nothing: the same status, the same words.
 */
#include "gateway/api/api.h"

#include <stdio.h>

#include "base/base64.h"
#include "base/clock.h"
#include "base/duration.h"
#include "base/stamp.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "core/headers.h"
#include "json/write.h"
#include "ledger/service.h"

#define QUOTED_MAX  60u
#define HEADERS_MAX 64u

/* So much of a client's text as is repeated to it. */
static sm_str shown(sm_str text)
{
    return sm_utf8_valid(text) ? sm_utf8_cut(text, QUOTED_MAX) : SM_STR("...");
}

/* ---- refusing --------------------------------------------------------------------------------*/

void gw_reply_code(gw_request *r, semel_answer *a, semel_code code)
{
    sm_refuse(a, code);
    gw_reply_refusal(r, a);
}

void gw_reply_fault(gw_request *r, semel_answer *a, sm_err e, const sm_fault *fault)
{
    sm_refuse_fault(a, e, fault);
    gw_reply_refusal(r, a);
}

/* ---- naming ----------------------------------------------------------------------------------*/

bool gw_may_see(gw_request *r, semel_answer *a, const sm_handle *h, semel_code missing)
{
    sm_str scope;
    sm_fault fault = {0};
    sm_err e = sm_scope_of(r->g->ledger, h, a, &scope, &fault);
    if (e == SM_OK && gw_who_owns(&r->who, scope))
        return true;
    if (e == SM_OK || e == SEMEL_E_NOT_FOUND)
        gw_reply_code(r, a, missing);
    else
        gw_reply_fault(r, a, e, &fault);
    return false;
}

bool gw_effect_named(gw_request *r, semel_answer *a, sm_handle *h)
{
    if (sm_handle_parse("ef_", r->rest, h) || sm_handle_parse("ap_", r->rest, h))
        return gw_may_see(r, a, h, SEMEL_C_NOT_FOUND);
    gw_problem(r, 400, "BAD_ARGUMENTS", "Name an effect as answers do; GET /v1/effects lists them.",
               "\"%.*s\" is neither an effect's handle (ef_...) nor a request's (ap_...)",
               SM_FMT(shown(r->rest)));
    return false;
}

/* ---- queries ---------------------------------------------------------------------------------*/

typedef struct reading {
    const gw_member *members;
    size_t count;
    char *out;
    uint64_t seen;
    sm_fault fault;
} reading;

static bool no_parameter(reading *q, sm_str name)
{
    sm_nearest nearest = {0};
    char list[256] = "";
    for (size_t i = 0, at = 0; i < q->count; i++) {
        sm_nearest_try(&nearest, name, sm_str_from(q->members[i].name));
        int n =
            snprintf(list + at, sizeof list - at, "%s%s", i == 0 ? "" : ", ", q->members[i].name);
        at += n > 0 && (size_t)n < sizeof list - at ? (size_t)n : 0;
    }
    sm_str near = sm_nearest_get(&nearest, name);
    if (near.p != NULL)
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS,
                     "there is no parameter \"%.*s\"; did you mean \"%.*s\"?", SM_FMT(shown(name)),
                     SM_FMT(near));
    else
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS,
                     "there is no parameter \"%.*s\"; there are: %s", SM_FMT(shown(name)),
                     q->count == 0 ? "none" : list);
    return false;
}

bool gw_cursor_parse(sm_str text, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || v > (UINT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(text.p[i] - '0');
    }
    *out = v;
    return text.n > 0;
}

static bool take_parameter(void *context, sm_str name, sm_str value)
{
    reading *q = context;
    size_t i = 0;
    while (i < q->count && !sm_str_is(name, q->members[i].name))
        i++;
    if (i == q->count)
        return no_parameter(q, name);
    const gw_member *m = &q->members[i];
    if (q->seen >> i & 1) {
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS, "the parameter \"%s\" is given twice",
                     m->name);
        return false;
    }
    q->seen |= (uint64_t)1 << i;
    if (value.p == NULL || value.n == 0)
        return true;
    if (m->kind == GW_M_TEXT) {
        *(sm_str *)(void *)(q->out + m->offset) = value;
        if (sm_utf8_valid(value) && memchr(value.p, '\0', value.n) == NULL)
            return true;
        sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS, "the parameter \"%s\" is not UTF-8 text",
                     m->name);
        return false;
    }
    uint64_t n;
    if (gw_cursor_parse(value, &n) && n >= (uint64_t)m->min && n <= (uint64_t)m->max) {
        *(int64_t *)(void *)(q->out + m->offset) = (int64_t)n;
        return true;
    }
    sm_fault_set(&q->fault, SEMEL_E_BAD_ARGUMENTS,
                 "the parameter \"%s\" must be a whole number from %lld to %lld, not \"%.*s\"",
                 m->name, (long long)m->min, (long long)m->max, SM_FMT(shown(value)));
    return false;
}

bool gw_query_read(gw_request *r, const gw_member *members, size_t count, void *out)
{
    reading q = {.members = members, .count = count, .out = out};
    gw_query_each(r, take_parameter, &q);
    if (q.fault.code == SM_OK)
        return true;
    gw_problem(r, 400, "BAD_ARGUMENTS", "Correct the query.", "%s", q.fault.text);
    return false;
}

sm_err gw_read_time(const char *name, sm_str text, int64_t *out, sm_fault *fault)
{
    int64_t ms;
    if (text.p == NULL)
        return SM_OK;
    if (sm_duration_parse(text, &ms)) {
        int64_t now = sm_clock_ms();
        *out = ms < now ? now - ms : 1;
        return SM_OK;
    }
    if (sm_stamp_parse(text, out) && *out > 0)
        return SM_OK;
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                        "%s: write a time such as 2026-03-01T12:00:00Z, or how long ago, such as "
                        "2h, not \"%.*s\"",
                        name, SM_FMT(sm_utf8_cut(text, 60)));
}

bool gw_choose_scope(gw_request *r, sm_str asked, sm_str *out)
{
    while (asked.n > 0 && asked.p[asked.n - 1] == '/')
        asked.n--;
    *out = r->who.scope[0] == '\0' ? (sm_str){0} : sm_str_from(r->who.scope);
    if (asked.n == 0)
        return true;
    *out = asked;
    if (gw_who_owns(&r->who, asked))
        return true;
    gw_problem(r, 403, "FORBIDDEN", "Leave the scope out to see all of yours.",
               "This token may only see scopes below \"%s\".", r->who.scope);
    return false;
}

/* ---- outcomes --------------------------------------------------------------------------------*/

static sm_err take_headers(sm_arena *a, const gw_object *o, sm_str *out, sm_fault *fault)
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
                                SM_FMT(shown(sm_json_text(name))), sm_json_type_name(name + 1));
        sm_str text = sm_json_text(name + 1);
        for (size_t k = 0; k < text.n; k++) {
            unsigned char c = (unsigned char)text.p[k];
            if ((c < 0x20 && c != '\t') || c == 0x7F)
                return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                    "\"headers\": \"%.*s\" has a control character",
                                    SM_FMT(shown(sm_json_text(name))));
        }
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

sm_err gw_outcome_take(sm_arena *a, const gw_outcome_body *b, semel_outcome *out, sm_fault *fault)
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

/* ---- writing ---------------------------------------------------------------------------------*/

void gw_page_start(gw_page *p)
{
    p->items = 0;
    sm_buf_init(&p->out, SM_ARENA_MAX);
    sm_buf_byte(&p->out, '{');
    sm_put_open(&p->out, "items", '[');
}

void gw_page_item(gw_page *p)
{
    p->items++;
    sm_put_item(&p->out);
}

bool gw_page_full(const gw_page *p)
{
    return p->out.len > GW_PAGE_BYTES || p->out.err != SM_OK;
}

void gw_page_reply(gw_request *r, semel_answer *a, gw_page *p, uint64_t cursor)
{
    sm_buf_byte(&p->out, ']');
    if (cursor != 0)
        sm_buf_printf(&p->out, ",\"cursor\":\"%llu\"", (unsigned long long)cursor);
    sm_buf_byte(&p->out, '}');
    if (p->out.err == SM_OK)
        gw_reply_json(r, 200, sm_buf_view(&p->out));
    else
        gw_reply_fault(r, a, p->out.err, &(sm_fault){0});
    sm_buf_fini(&p->out);
}

void gw_put_text(sm_buf *out, const char *name, sm_str text)
{
    if (sm_utf8_valid(text))
        sm_put_text(out, name, text);
}
