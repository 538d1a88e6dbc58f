/*
 * The stop button.
 *
 * Whoever is bound to a scope stops and resumes within it, never a tool or everything: those are
 * other tenants' too; nor what somebody stopped who is not bound to the scope.
 */
#include <stddef.h>

#include "api/operation.h"
#include "json/write.h"

#define COUNT(t) (sizeof(t) / sizeof(t)[0])

typedef struct stop_body {
    sm_str scope, tool, all, reason;
} stop_body;

#define MEMBER(n) .name = #n, .offset = offsetof(stop_body, n)

typedef struct target {
    semel_stop_kind kind;
    sm_str name;
} target;

/* ---- what is meant ---------------------------------------------------------------------------*/

static bool refuse_body(sm_operation *op, const char *message)
{
    sm_op_problem(op, 400, "BAD_ARGUMENTS", "Correct the body.", "%s", message);
    return false;
}

static bool may_stop(sm_operation *op, const target *t)
{
    if (t->kind == SEMEL_STOP_SCOPE ? sm_op_owns(op, t->name) : op->bound.n == 0)
        return true;
    sm_op_problem(op, 403, "FORBIDDEN", "Name a scope of your own, or use another token.",
                  "This token may only stop and resume scopes below \"%.*s\".", SM_FMT(op->bound));
    return false;
}

/* Exactly one of scope, tool and all. */
static bool read_target(sm_operation *op, const stop_body *b, target *out)
{
    if ((b->scope.p != NULL) + (b->tool.p != NULL) + (b->all.p != NULL) != 1)
        return refuse_body(op, "say what: one of \"scope\", \"tool\" and \"all\": true");
    if (b->all.p != NULL && !sm_str_is(b->all, "true"))
        return refuse_body(op, "\"all\" can only be true; leave it out to name a scope or a tool");
    *out = b->all.p != NULL    ? (target){SEMEL_STOP_ALL, {0}}
           : b->tool.p != NULL ? (target){SEMEL_STOP_TOOL, b->tool}
                               : (target){SEMEL_STOP_SCOPE, b->scope};
    return may_stop(op, out);
}

static bool has_reason(sm_operation *op, sm_str reason)
{
    return reason.n > 0 ||
           refuse_body(op, "\"reason\" is empty: whoever is refused is told it, and it "
                           "stays in the audit trail");
}

/* `t` is NULL for a run that was reopened. */
static void reply(sm_operation *op, const target *t, bool stopped, bool changed)
{
    static const char *const kinds[] = {"all", "scope", "tool"};
    sm_buf out;
    sm_buf_init(&out, SM_PAGE_BYTES);
    sm_buf_byte(&out, '{');
    if (t != NULL) {
        sm_put_text(&out, "kind", sm_str_from(kinds[t->kind]));
        sm_put_text(&out, "name", t->name);
        sm_put_bool(&out, "stopped", stopped);
    } else {
        sm_put_text(&out, "scope", op->name);
    }
    sm_put_bool(&out, "changed", changed);
    sm_buf_byte(&out, '}');
    if (out.err == SM_OK)
        op->door->json(op, sm_buf_view(&out));
    else
        sm_op_refuse(op, &(sm_fault){.code = SEMEL_E_NOMEM});
    sm_buf_fini(&out);
}

/* ---- stop, resume ----------------------------------------------------------------------------*/

void sm_api_stop(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {MEMBER(scope), .kind = SM_M_TEXT},
        {MEMBER(tool), .kind = SM_M_TEXT},
        {MEMBER(all), .kind = SM_M_ANY},
        {MEMBER(reason), .kind = SM_M_TEXT, .required = true}};
    stop_body b = {0};
    target t;
    sm_fault fault = {0};
    bool changed;
    if (sm_op_body(op, members, COUNT(members), &b) && has_reason(op, b.reason) &&
        read_target(op, &b, &t)) {
        sm_err e =
            sm_stop(op->ledger, t.kind, t.name, op->actor, op->bound, b.reason, &changed, &fault);
        if (e == SM_OK)
            reply(op, &t, true, changed);
        else
            sm_op_fault(op, a, e, &fault);
    }
}

void sm_api_resume(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {{MEMBER(scope), .kind = SM_M_TEXT},
                                               {MEMBER(tool), .kind = SM_M_TEXT},
                                               {MEMBER(all), .kind = SM_M_ANY},
                                               {MEMBER(reason), .kind = SM_M_TEXT}};
    stop_body b = {0};
    target t;
    sm_fault fault = {0};
    bool changed;
    if (sm_op_body(op, members, COUNT(members), &b) && read_target(op, &b, &t)) {
        sm_err e =
            sm_resume(op->ledger, t.kind, t.name, op->actor, op->bound, b.reason, &changed, &fault);
        if (e == SEMEL_E_BARRED)
            sm_op_problem(op, 403, "FORBIDDEN", "Ask whoever stopped it; GET /v1/stops says who.",
                          "This was stopped by somebody whose token is not bound to \"%.*s\".",
                          SM_FMT(op->bound));
        else if (e != SM_OK)
            sm_op_fault(op, a, e, &fault);
        else if (changed)
            reply(op, &t, false, true);
        else
            sm_op_problem(op, 404, "NOT_FOUND",
                          "GET /v1/stops lists what is stopped. A run that was stopped because it "
                          "repeats itself is reopened by POST /v1/scopes/{scope}/reset.",
                          "This is not stopped.");
    }
}

/* ---- the list --------------------------------------------------------------------------------*/

void sm_api_stops(sm_operation *op, semel_answer *a)
{
    sm_str json;
    if (!sm_op_parameters(op, NULL, 0, NULL))
        return;
    semel_err e = semel_stops(op->ledger, op->bound, a, &json);
    sm_op_report(op, a, e, json);
}

/* ---- reset -----------------------------------------------------------------------------------*/

void sm_api_reset(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {MEMBER(reason), .kind = SM_M_TEXT, .required = true}};
    stop_body b = {0};
    sm_fault fault = {0};
    if (sm_op_body(op, members, COUNT(members), &b) && has_reason(op, b.reason)) {
        bool changed = false;
        sm_err e = SM_OK;
        if (sm_op_owns(op, op->name))
            e = semel_scope_reset(op->ledger, op->name, op->actor, b.reason, &changed, &fault);
        if (e != SM_OK)
            sm_op_fault(op, a, e, &fault);
        else if (changed)
            reply(op, NULL, false, true);
        else
            sm_op_problem(op, 404, "NOT_FOUND", "GET /v1/stops lists what is stopped.",
                          "This run does not repeat itself.");
    }
}
