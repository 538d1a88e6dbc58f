/*
 * What runs did, and what it cost.
 *
 * Whatever is asked for, only what is in the scope that who asks is bound to is counted: budgets
 * that it shares with others, a tenant's for a token of one agent, are left out. A run outside of
 * it is indistinguishable from a missing one. Fewer effects are looked at than on the command line,
 * because a worker is busy meanwhile; `complete` says whether that was all.
 */
#include <stddef.h>

#include "api/operation.h"
#include "base/limits.h"
#include "base/utf8.h"

#define EFFECTS_MAX 10000u
#define LIMIT_MAX   1000
#define COUNT(t)    (sizeof(t) / sizeof(t)[0])

typedef struct query {
    sm_str scope, since, cursor, by;
    int64_t limit;
} query;

#define MEMBER(n) .name = #n, .offset = offsetof(query, n)
#define LIMIT                                                                                      \
    {                                                                                              \
        MEMBER(limit), .kind = SM_M_COUNT, .min = 1, .max = LIMIT_MAX                              \
    }

/* Reads the query, its times and its scope. */
static bool read_query(sm_operation *op, const sm_object_member *members, size_t count, query *q,
                       int64_t *since, sm_str *scope)
{
    sm_fault fault = {0};
    *since = 0;
    if (!sm_op_parameters(op, members, count, q))
        return false;
    sm_err e = sm_time_parse("since", q->since, since, &fault);
    if (e == SM_OK && q->scope.n > SM_SCOPE_MAX)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS, "a scope is not that long");
    if (e != SM_OK) {
        sm_op_refuse(op, &fault);
        return false;
    }
    return sm_op_choose_scope(op, q->scope, scope);
}

/* ---- runs ------------------------------------------------------------------------------------*/

void sm_api_scopes(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {{MEMBER(scope), .kind = SM_M_TEXT},
                                               {MEMBER(since), .kind = SM_M_TEXT},
                                               LIMIT,
                                               {MEMBER(cursor), .kind = SM_M_TEXT}};
    query q = {0};
    semel_scope_query asked = {.size = sizeof asked, .effects_max = EFFECTS_MAX};
    sm_str json;
    if (!read_query(op, members, COUNT(members), &q, &asked.since, &asked.scope))
        return;
    asked.limit = (size_t)q.limit;
    asked.cursor = q.cursor;
    semel_err e = semel_scope_list(op->ledger, &asked, a, &json);
    sm_op_report(op, a, e, json);
}

void sm_api_scope(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {{MEMBER(since), .kind = SM_M_TEXT}, LIMIT};
    query q = {0};
    semel_scope_query asked = {.size = sizeof asked, .effects_max = EFFECTS_MAX};
    sm_str json;
    if (!read_query(op, members, COUNT(members), &q, &asked.since, &asked.within))
        return;
    asked.limit = (size_t)q.limit;
    asked.scope = op->name;
    semel_err e = sm_op_owns(op, op->name) ? semel_scope_show(op->ledger, &asked, a, &json)
                                           : SEMEL_E_NOT_FOUND;
    if (e == SEMEL_E_NOT_FOUND)
        sm_op_problem(op, 404, "NOT_FOUND", "GET /v1/scopes lists the runs.",
                      "Nothing is known of this run.");
    else
        sm_op_report(op, a, e, json);
}

/* ---- what it cost ----------------------------------------------------------------------------*/

static bool read_by(sm_operation *op, sm_str text, semel_spend_by *by)
{
    static const char *const names[] = {"tool", "scope", "agent", "day"};
    *by = SEMEL_SPEND_TOOL;
    for (size_t i = 0; i < COUNT(names); i++) {
        if (text.p == NULL || sm_str_is(text, names[i])) {
            *by = (semel_spend_by)i;
            return true;
        }
    }
    sm_op_problem(op, 400, "BAD_ARGUMENTS", "Correct the query.",
                  "by: \"%.*s\" is not one of tool, scope, agent, day",
                  SM_FMT(sm_utf8_cut(text, SM_QUOTED_MAX)));
    return false;
}

void sm_api_spend(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {{MEMBER(by), .kind = SM_M_TEXT},
                                               {MEMBER(scope), .kind = SM_M_TEXT},
                                               {MEMBER(since), .kind = SM_M_TEXT},
                                               LIMIT};
    query q = {0};
    semel_spend_query asked = {.size = sizeof asked, .effects_max = EFFECTS_MAX};
    sm_str json;
    if (!read_query(op, members, COUNT(members), &q, &asked.since, &asked.scope) ||
        !read_by(op, q.by, &asked.by))
        return;
    asked.limit = (size_t)q.limit;
    semel_err e = semel_spend(op->ledger, &asked, a, &json);
    sm_op_report(op, a, e, json);
}
