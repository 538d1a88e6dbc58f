/*
 * The JSON language over HTTP. The token says who asks and what scope that is bound to, the path
 * what it is about; parameters are the query.
 */
#include "gateway/api/api.h"

#include <strings.h>

#include "base/container.h"
#include "base/utf8.h"
#include "gateway/api/key.h"
#include "gateway/run/run.h"
#include "ledger/service.h"

gw_request *gw_request_of(const sm_operation *op)
{
    return SM_CONTAINER(op, gw_http_operation, op)->r;
}

/* ---- the door --------------------------------------------------------------------------------*/

static void answer(sm_operation *op, const semel_answer *a)
{
    gw_request *r = gw_request_of(op);
    if (a->verdict == SEMEL_DONE && sm_str_is(a->result, SM_PUT_BACK))
        gw_say_fields(&r->g->log, GW_ERROR, GW_SAID_PUT_BACK,
                      (gw_log_field[]){{"effect", a->effect, false}}, 1);
    gw_reply_answer(r, a);
}

static void reply_json(sm_operation *op, sm_str json)
{
    gw_reply_json(gw_request_of(op), 200, json);
}

static void problem(sm_operation *op, int status, const char *code, const char *advice,
                    const char *message)
{
    gw_problem(gw_request_of(op), status, code, advice, "%s", message);
}

static bool is_json(sm_str type)
{
    static const sm_str json = {"application/json", 16};
    if (type.p == NULL)
        return true;
    if (type.n < json.n || strncasecmp(type.p, json.p, json.n) != 0)
        return false;
    size_t i = json.n;
    while (i < type.n && memchr(" \t\r\n", type.p[i], 4) != NULL)
        i++;
    return i == type.n || type.p[i] == ';';
}

/* Whether the request says that its body is JSON, or nothing of it. */
static bool reads(sm_operation *op)
{
    sm_str type = gw_header(gw_request_of(op), "Content-Type");
    if (is_json(type))
        return true;
    sm_op_problem(op, 415, "BAD_ARGUMENTS", "Send Content-Type: application/json.",
                  "the body must be application/json, not \"%.*s\"",
                  SM_FMT(sm_utf8_cut(type, SM_QUOTED_MAX)));
    return false;
}

static void parameters(sm_operation *op, sm_parameter_fn *each, void *context)
{
    gw_query_each(gw_request_of(op), each, context);
}

static bool is_gone(const sm_operation *op)
{
    return gw_is_gone(gw_request_of(op));
}

static const sm_door http_door = {
    .answer = answer,
    .json = reply_json,
    .problem = problem,
    .reads = reads,
    .parameters = parameters,
    .is_gone = is_gone,
    .compensate = gw_undo_resolve,
};

void gw_operation(gw_http_operation *o, gw_request *r, sm_arena *arena)
{
    *o = (gw_http_operation){
        .op = {.door = &http_door,
               .ledger = r->g->ledger,
               .waits = r->g->waits,
               .arena = arena,
               .actor = sm_str_from(r->who.actor),
               .known = true,
               .bound = r->who.scope[0] == '\0' ? (sm_str){0} : sm_str_from(r->who.scope),
               .name = r->rest,
               .body = sm_buf_view(&r->body)},
        .r = r,
    };
}

/* ---- handlers --------------------------------------------------------------------------------*/

static void work(gw_request *r, semel_answer *a)
{
    gw_http_operation o;
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    gw_operation(&o, r, &arena);
    r->route->operation(&o.op, a);
    sm_arena_fini(&arena);
}

void gw_on_operation(gw_request *r)
{
    gw_work(r, work);
}

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

/* ---- calls -----------------------------------------------------------------------------------*/

static bool take_key(sm_operation *op, sm_str header, semel_call *call)
{
    sm_fault fault = {0};
    sm_err e = gw_key_take(op->arena, header, call, &fault);
    if (e != SM_OK)
        sm_op_refuse(op, &fault);
    return e == SM_OK;
}

bool gw_read_key(gw_request *r, sm_arena *a, sm_str *key)
{
    gw_http_operation o;
    semel_call call = {0};
    gw_operation(&o, r, a);
    bool good = take_key(&o.op, gw_header(r, "Idempotency-Key"), &call);
    *key = call.key;
    return good;
}

bool gw_read_call(gw_request *r, sm_arena *a, sm_call_form form, semel_call *out)
{
    gw_http_operation o;
    gw_operation(&o, r, a);
    return sm_op_call(&o.op, form, r->g->config->limits.wait_ms, out) &&
           take_key(&o.op, gw_header(r, "Idempotency-Key"), out) && sm_op_may_call(&o.op, out);
}
