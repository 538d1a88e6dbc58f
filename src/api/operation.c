/*
 * What operations share: refusing, naming, reading bodies.
 *
 * Whoever is bound to a scope sees what is in it. An effect that lies outside is indistinguishable
 * from a missing one: the same status, the same words.
 */
#include "api/operation.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "ledger/service.h"

#define MESSAGE_MAX 1024u

/* ---- refusing --------------------------------------------------------------------------------*/

sm_str sm_quoted(sm_str text)
{
    return sm_utf8_valid(text) ? sm_utf8_cut(text, SM_QUOTED_MAX) : SM_STR("...");
}

void sm_op_problem(sm_operation *op, int status, const char *code, const char *advice,
                   const char *format, ...)
{
    char message[MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    op->door->problem(op, status, code, advice, message);
}

void sm_op_refuse(sm_operation *op, const sm_fault *fault)
{
    char where[64] = "";
    if (fault->line > 0)
        snprintf(where, sizeof where, " (line %u, column %u)", fault->line, fault->column);
    if (fault->code == SEMEL_E_NOMEM)
        sm_op_problem(op, 503, "OVERLOADED", "Try again later.",
                      "There is no memory for this request");
    else
        sm_op_problem(op, 400, "BAD_ARGUMENTS", "Correct the request; nothing has run.", "%s%s",
                      fault->text, where);
}

void sm_op_code(sm_operation *op, semel_answer *a, semel_code code)
{
    sm_refuse(a, code);
    op->door->answer(op, a);
}

void sm_op_fault(sm_operation *op, semel_answer *a, sm_err e, const sm_fault *fault)
{
    sm_refuse_fault(a, e, fault);
    op->door->answer(op, a);
}

/* ---- naming ----------------------------------------------------------------------------------*/

bool sm_op_may_use(sm_operation *op, sm_str scope)
{
    if (sm_op_owns(op, scope))
        return true;
    sm_op_problem(op, 403, "FORBIDDEN", "Use a scope of your own, or another token.",
                  "This token may only use scopes below \"%.*s\".", SM_FMT(op->bound));
    return false;
}

bool sm_op_choose_scope(sm_operation *op, sm_str asked, sm_str *out)
{
    while (asked.n > 0 && asked.p[asked.n - 1] == '/')
        asked.n--;
    *out = op->bound;
    if (asked.n == 0)
        return true;
    *out = asked;
    if (sm_op_owns(op, asked))
        return true;
    sm_op_problem(op, 403, "FORBIDDEN", "Leave the scope out to see all of yours.",
                  "This token may only see scopes below \"%.*s\".", SM_FMT(op->bound));
    return false;
}

bool sm_op_may_see(sm_operation *op, semel_answer *a, const sm_handle *h, semel_code missing)
{
    sm_str scope;
    sm_fault fault = {0};
    sm_err e = sm_scope_of(op->ledger, h, a, &scope, &fault);
    if (e == SM_OK && sm_op_owns(op, scope))
        return true;
    if (e == SM_OK || e == SEMEL_E_NOT_FOUND)
        sm_op_code(op, a, missing);
    else
        sm_op_fault(op, a, e, &fault);
    return false;
}

bool sm_op_effect(sm_operation *op, semel_answer *a, sm_handle *h)
{
    if (sm_handle_parse("ef_", op->name, h) || sm_handle_parse("ap_", op->name, h))
        return sm_op_may_see(op, a, h, SEMEL_C_NOT_FOUND);
    sm_op_problem(op, 400, "BAD_ARGUMENTS",
                  "Name an effect as answers do; GET /v1/effects lists them.",
                  "\"%.*s\" is neither an effect's handle (ef_...) nor a request's (ap_...)",
                  SM_FMT(sm_quoted(op->name)));
    return false;
}

/* ---- bodies ----------------------------------------------------------------------------------*/

static bool may_read(sm_operation *op)
{
    return op->door->reads == NULL || op->door->reads(op);
}

bool sm_op_body(sm_operation *op, const sm_object_member *members, size_t count, void *out)
{
    sm_fault fault = {0};
    if (!may_read(op))
        return false;
    sm_err e = sm_object_take(op->arena, op->body, op->taken, members, count, out, &fault);
    if (e != SM_OK)
        sm_op_refuse(op, &fault);
    return e == SM_OK;
}

bool sm_op_call(sm_operation *op, sm_call_form form, int64_t wait_max_ms, semel_call *out)
{
    sm_fault fault = {0};
    if (!may_read(op))
        return false;
    sm_err e = sm_call_parse(op->arena, op->body, op->taken, form, wait_max_ms, out, &fault);
    if (e != SM_OK)
        sm_op_refuse(op, &fault);
    return e == SM_OK;
}

bool sm_op_may_call(sm_operation *op, const semel_call *call)
{
    sm_parsed_call parts = {
        .scope = call->scope, .step = call->step, .tool = call->tool, .key = call->key};
    sm_fault fault = {0};
    if (!sm_op_owns(op, call->scope) && sm_call_check(&parts, &fault) != SM_OK) {
        sm_op_refuse(op, &fault); /* it would be nobody's */
        return false;
    }
    return sm_op_may_use(op, call->scope);
}
