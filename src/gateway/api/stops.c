/*
 * POST /v1/stop and /v1/resume, GET /v1/stops, POST /v1/scopes/{scope}/reset: the stop button.
 *
 * A token that is bound to a scope stops and resumes within it, never a tool or everything: those
 * are other tenants' too; nor does it resume what somebody stopped who is not bound to the scope.
 * Who it was comes from the token.
 */
#include <stddef.h>

#include "gateway/api/api.h"
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

/* The scope that the token is bound to; absent: none. */
static sm_str bound_to(const gw_request *r)
{
    return r->who.scope[0] == '\0' ? (sm_str){0} : sm_str_from(r->who.scope);
}

/* ---- what is meant ---------------------------------------------------------------------------*/

static bool refuse_body(gw_request *r, const char *message)
{
    gw_problem(r, 400, "BAD_ARGUMENTS", "Correct the body.", "%s", message);
    return false;
}

static bool may_stop(gw_request *r, const target *t)
{
    if (t->kind == SEMEL_STOP_SCOPE ? gw_who_owns(&r->who, t->name) : r->who.scope[0] == '\0')
        return true;
    gw_problem(r, 403, "FORBIDDEN", "Name a scope of your own, or use another token.",
               "This token may only stop and resume scopes below \"%s\".", r->who.scope);
    return false;
}

/* Exactly one of scope, tool and all. */
static bool read_target(gw_request *r, const stop_body *b, target *out)
{
    if ((b->scope.p != NULL) + (b->tool.p != NULL) + (b->all.p != NULL) != 1)
        return refuse_body(r, "say what: one of \"scope\", \"tool\" and \"all\": true");
    if (b->all.p != NULL && !sm_str_is(b->all, "true"))
        return refuse_body(r, "\"all\" can only be true; leave it out to name a scope or a tool");
    *out = b->all.p != NULL    ? (target){SEMEL_STOP_ALL, {0}}
           : b->tool.p != NULL ? (target){SEMEL_STOP_TOOL, b->tool}
                               : (target){SEMEL_STOP_SCOPE, b->scope};
    return may_stop(r, out);
}

static bool has_reason(gw_request *r, sm_str reason)
{
    return reason.n > 0 ||
           refuse_body(r, "\"reason\" is empty: whoever is refused is told it, and it "
                          "stays in the audit trail");
}

/* `t` is NULL for a run that was reopened. */
static void reply(gw_request *r, const target *t, bool stopped, bool changed)
{
    static const char *const kinds[] = {"all", "scope", "tool"};
    sm_buf out;
    sm_buf_init(&out, GW_PAGE_BYTES);
    sm_buf_byte(&out, '{');
    if (t != NULL) {
        sm_put_text(&out, "kind", sm_str_from(kinds[t->kind]));
        sm_put_text(&out, "name", t->name);
        sm_put_bool(&out, "stopped", stopped);
    } else {
        sm_put_text(&out, "scope", r->rest);
    }
    sm_put_bool(&out, "changed", changed);
    sm_buf_byte(&out, '}');
    if (out.err == SM_OK)
        gw_reply_json(r, 200, sm_buf_view(&out));
    else
        gw_out_of_memory(r);
    sm_buf_fini(&out);
}

/* ---- stop, resume ----------------------------------------------------------------------------*/

static void stop(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(scope), .kind = GW_M_TEXT},
                                        {MEMBER(tool), .kind = GW_M_TEXT},
                                        {MEMBER(all), .kind = GW_M_ANY},
                                        {MEMBER(reason), .kind = GW_M_TEXT, .required = true}};
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    stop_body b = {0};
    target t;
    sm_fault fault = {0};
    bool changed;
    if (gw_body_read(r, &arena, members, COUNT(members), &b) && has_reason(r, b.reason) &&
        read_target(r, &b, &t)) {
        sm_err e = sm_stop(r->g->ledger, t.kind, t.name, sm_str_from(r->who.actor), bound_to(r),
                           b.reason, &changed, &fault);
        if (e == SM_OK)
            reply(r, &t, true, changed);
        else
            gw_reply_fault(r, a, e, &fault);
    }
    sm_arena_fini(&arena);
}

void gw_on_stop(gw_request *r)
{
    gw_work(r, stop);
}

static void resume(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(scope), .kind = GW_M_TEXT},
                                        {MEMBER(tool), .kind = GW_M_TEXT},
                                        {MEMBER(all), .kind = GW_M_ANY},
                                        {MEMBER(reason), .kind = GW_M_TEXT}};
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    stop_body b = {0};
    target t;
    sm_fault fault = {0};
    bool changed;
    if (gw_body_read(r, &arena, members, COUNT(members), &b) && read_target(r, &b, &t)) {
        sm_err e = sm_resume(r->g->ledger, t.kind, t.name, sm_str_from(r->who.actor), bound_to(r),
                             b.reason, &changed, &fault);
        if (e == SEMEL_E_BARRED)
            gw_problem(r, 403, "FORBIDDEN", "Ask whoever stopped it; GET /v1/stops says who.",
                       "This was stopped by somebody whose token is not bound to \"%s\".",
                       r->who.scope);
        else if (e != SM_OK)
            gw_reply_fault(r, a, e, &fault);
        else if (changed)
            reply(r, &t, false, true);
        else
            gw_problem(r, 404, "NOT_FOUND",
                       "GET /v1/stops lists what is stopped. A run that was stopped because it "
                       "repeats itself is reopened by POST /v1/scopes/{scope}/reset.",
                       "This is not stopped.");
    }
    sm_arena_fini(&arena);
}

void gw_on_resume(gw_request *r)
{
    gw_work(r, resume);
}

/* ---- the list --------------------------------------------------------------------------------*/

static void list_stops(gw_request *r, semel_answer *a)
{
    sm_str json;
    if (!gw_query_read(r, NULL, 0, NULL))
        return;
    if (semel_stops(r->g->ledger, bound_to(r), a, &json) == SEMEL_OK)
        gw_reply_json(r, 200, json);
    else
        gw_reply_refusal(r, a);
}

void gw_on_stops(gw_request *r)
{
    gw_work(r, list_stops);
}

/* ---- reset -----------------------------------------------------------------------------------*/

static void reset(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(reason), .kind = GW_M_TEXT, .required = true}};
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    stop_body b = {0};
    sm_fault fault = {0};
    if (gw_body_read(r, &arena, members, COUNT(members), &b) && has_reason(r, b.reason)) {
        bool changed = false;
        sm_err e = SM_OK;
        if (gw_who_owns(&r->who, r->rest))
            e = semel_scope_reset(r->g->ledger, r->rest, sm_str_from(r->who.actor), b.reason,
                                  &changed, &fault);
        if (e != SM_OK)
            gw_reply_fault(r, a, e, &fault);
        else if (changed)
            reply(r, NULL, false, true);
        else
            gw_problem(r, 404, "NOT_FOUND", "GET /v1/stops lists what is stopped.",
                       "This run does not repeat itself.");
    }
    sm_arena_fini(&arena);
}

void gw_on_reset(gw_request *r)
{
    gw_work(r, reset);
}
