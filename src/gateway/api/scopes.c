/*
 * GET /v1/scopes, /v1/scopes/{scope} and /v1/spend: what runs did, and what it cost.
 *
 * Whatever is asked for, only what is in the token's scope is counted: budgets that it shares with
 * others, a tenant's for a token of one agent, are left out. A run outside of it is
 * indistinguishable from a missing one. Fewer effects are looked at than on the command line,
 * because a worker is busy meanwhile; `complete` says whether that was all.
 */
#include <stddef.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "gateway/api/api.h"

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
        MEMBER(limit), .kind = GW_M_COUNT, .min = 1, .max = LIMIT_MAX                              \
    }

/* Reads the query, its times and its scope. */
static bool read_query(gw_request *r, const gw_member *members, size_t count, query *q,
                       int64_t *since, sm_str *scope)
{
    sm_fault fault = {0};
    *since = 0;
    if (!gw_query_read(r, members, count, q))
        return false;
    sm_err e = gw_read_time("since", q->since, since, &fault);
    if (e == SM_OK && q->scope.n > SM_SCOPE_MAX)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS, "a scope is not that long");
    if (e != SM_OK) {
        gw_body_refuse(r, &fault);
        return false;
    }
    return gw_choose_scope(r, q->scope, scope);
}

static void reply(gw_request *r, semel_answer *a, semel_err e, sm_str json)
{
    if (e == SEMEL_OK)
        gw_reply_json(r, 200, json);
    else
        gw_reply_refusal(r, a);
}

/* ---- runs ------------------------------------------------------------------------------------*/

static void list_scopes(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(scope), .kind = GW_M_TEXT},
                                        {MEMBER(since), .kind = GW_M_TEXT},
                                        LIMIT,
                                        {MEMBER(cursor), .kind = GW_M_TEXT}};
    query q = {0};
    semel_scope_query asked = {.size = sizeof asked, .effects_max = EFFECTS_MAX};
    sm_str json;
    if (!read_query(r, members, COUNT(members), &q, &asked.since, &asked.scope))
        return;
    asked.limit = (size_t)q.limit;
    asked.cursor = q.cursor;
    semel_err e = semel_scope_list(r->g->ledger, &asked, a, &json);
    reply(r, a, e, json);
}

void gw_on_scopes(gw_request *r)
{
    gw_work(r, list_scopes);
}

static void show_scope(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(since), .kind = GW_M_TEXT}, LIMIT};
    query q = {0};
    semel_scope_query asked = {.size = sizeof asked, .effects_max = EFFECTS_MAX};
    sm_str json;
    if (!read_query(r, members, COUNT(members), &q, &asked.since, &asked.within))
        return;
    asked.limit = (size_t)q.limit;
    asked.scope = r->rest;
    semel_err e = gw_who_owns(&r->who, r->rest) ? semel_scope_show(r->g->ledger, &asked, a, &json)
                                                : SEMEL_E_NOT_FOUND;
    if (e == SEMEL_E_NOT_FOUND)
        gw_problem(r, 404, "NOT_FOUND", "GET /v1/scopes lists the runs.",
                   "Nothing is known of this run.");
    else
        reply(r, a, e, json);
}

void gw_on_scope(gw_request *r)
{
    gw_work(r, show_scope);
}

/* ---- what it cost ----------------------------------------------------------------------------*/

static bool read_by(gw_request *r, sm_str text, semel_spend_by *by)
{
    static const char *const names[] = {"tool", "scope", "agent", "day"};
    *by = SEMEL_SPEND_TOOL;
    for (size_t i = 0; i < COUNT(names); i++) {
        if (text.p == NULL || sm_str_is(text, names[i])) {
            *by = (semel_spend_by)i;
            return true;
        }
    }
    gw_problem(r, 400, "BAD_ARGUMENTS", "Correct the query.",
               "by: \"%.*s\" is not one of tool, scope, agent, day", SM_FMT(sm_utf8_cut(text, 60)));
    return false;
}

static void tell_spend(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(by), .kind = GW_M_TEXT},
                                        {MEMBER(scope), .kind = GW_M_TEXT},
                                        {MEMBER(since), .kind = GW_M_TEXT},
                                        LIMIT};
    query q = {0};
    semel_spend_query asked = {.size = sizeof asked, .effects_max = EFFECTS_MAX};
    sm_str json;
    if (!read_query(r, members, COUNT(members), &q, &asked.since, &asked.scope) ||
        !read_by(r, q.by, &asked.by))
        return;
    asked.limit = (size_t)q.limit;
    semel_err e = semel_spend(r->g->ledger, &asked, a, &json);
    reply(r, a, e, json);
}

void gw_on_spend(gw_request *r)
{
    gw_work(r, tell_spend);
}
