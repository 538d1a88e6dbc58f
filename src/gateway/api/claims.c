/*
 * POST /v1/begin, /v1/commit and /v1/renew: for agents that execute their tools themselves.
 *
 * A claim is given to whoever may run, and outlives the gateway: it belongs to the agent's process,
 * which this machine knows nothing of. It is a secret, but a token of another tenant cannot use it
 * all the same, and is not told that it exists.
 */
#include <stddef.h>

#include "base/clock.h"
#include "base/limits.h"
#include "gateway/api/api.h"
#include "gateway/run/run.h"
#include "gateway/telemetry/metrics.h"

/* ---- begin -----------------------------------------------------------------------------------*/

static void answer_begin(gw_run *run, gw_request *r, const semel_answer *a)
{
    gw_count_answer(run->g->metrics, a);
    gw_reply_answer(r, a);
}

static const gw_run_ops begin_ops = {.answer = answer_begin, .hands_over = true};

/* A run that ends where others begin to execute: whoever must wait is parked and costs no thread.
 */
void gw_on_begin(gw_request *r)
{
    gw_run *run = gw_run_new(r->g, r);
    if (run == NULL) {
        gw_out_of_memory(r);
        return;
    }
    if (!gw_read_call(r, &run->arena, GW_FORM_BEGIN, &run->at.ask.call)) {
        gw_run_free(run);
        return;
    }
    run->ops = &begin_ops;
    run->at.ask.call.flags = SEMEL_CALL_DETACHED;
    run->at.ask.actor = sm_arena_text(&run->arena, sm_str_from(r->who.actor));
    run->deadline_ns = sm_clock_deadline_ns(run->at.ask.call.wait_ms);
    if (run->at.ask.actor.p == NULL) { /* who asks must not become anybody */
        gw_run_free(run);
        gw_out_of_memory(r);
        return;
    }
    gw_run_start(run);
}

/* ---- commit ----------------------------------------------------------------------------------*/

typedef struct commit_body {
    gw_outcome_body outcome; /* first: its members are read in place */
    sm_str claim;
    int kind, applied;
    sm_str corrective_action;
    sm_str cost;
    int64_t tokens; /* -1: not given */
} commit_body;

static const char *const kinds[] = {"success", "failure", "partial", NULL};
static const char *const applieds[] = {"no", "yes", "unknown", NULL};
_Static_assert(SEMEL_SUCCESS == 0 && SEMEL_FAILURE == 1 && SEMEL_PARTIAL == 2, "see kinds");
_Static_assert(SEMEL_APPLIED_NO == 1 && SEMEL_APPLIED_YES == 2 && SEMEL_APPLIED_UNKNOWN == 3,
               "see applieds: the default comes before them");
_Static_assert(offsetof(commit_body, outcome) == 0, "GW_OUTCOME_MEMBERS says so");

#define MEMBER(type, n) .name = #n, .offset = offsetof(type, n)
static const gw_member commit_members[] = {
    {MEMBER(commit_body, claim), .kind = GW_M_TEXT, .required = true},
    {MEMBER(commit_body, kind), .kind = GW_M_CHOICE, .names = kinds, .required = true},
    {MEMBER(commit_body, applied), .kind = GW_M_CHOICE, .names = applieds},
    {MEMBER(commit_body, corrective_action), .kind = GW_M_TEXT},
    {MEMBER(commit_body, cost), .kind = GW_M_AMOUNT},
    {MEMBER(commit_body, tokens), .kind = GW_M_COUNT, .max = SM_TOKENS_MAX},
    GW_OUTCOME_MEMBERS,
};

static bool read_commit(gw_request *r, sm_arena *arena, sm_str *claim, semel_outcome *o)
{
    commit_body b = {.applied = -1, .tokens = -1};
    if (!gw_body_read(r, arena, commit_members, sizeof commit_members / sizeof commit_members[0],
                      &b))
        return false;
    *claim = b.claim;
    *o = (semel_outcome){
        .size = sizeof *o,
        .kind = (semel_kind)b.kind,
        .applied = (semel_applied)(b.applied + 1),
        .corrective_action = b.corrective_action,
        .cost = b.cost,
        .tokens = b.tokens == 0  ? SEMEL_TOKENS_NONE
                  : b.tokens < 0 ? 0
                                 : (uint64_t)b.tokens,
    };
    sm_fault fault = {0};
    sm_err e = gw_outcome_take(arena, &b.outcome, o, &fault);
    if (e == SM_OK && o->kind != SEMEL_FAILURE && o->applied > SEMEL_APPLIED_DEFAULT &&
        o->applied != SEMEL_APPLIED_YES)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"applied\": \"%s\" does not go with \"kind\": \"%s\"; it is for "
                         "failures",
                         applieds[b.applied], kinds[b.kind]);
    if (e != SM_OK)
        gw_body_refuse(r, &fault);
    return e == SM_OK;
}

/* Whether the claim's effect is in the token's scope; else the request has its answer, which is the
 * same as for a claim that nobody was given. */
static bool may_use(gw_request *r, semel_answer *a, sm_str claim)
{
    sm_handle h;
    if (sm_handle_parse("cl_", claim, &h))
        return r->who.scope[0] == '\0' || gw_may_see(r, a, &h, SEMEL_C_BAD_CLAIM);
    gw_reply_code(r, a, SEMEL_C_BAD_CLAIM);
    return false;
}

static void commit(gw_request *r, semel_answer *a)
{
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_str claim;
    semel_outcome o;
    if (read_commit(r, &arena, &claim, &o) && may_use(r, a, claim)) {
        sm_commit_as(r->g->ledger, claim, &o, SM_OUTCOME_MAX, sm_str_from(r->who.actor), a);
        sm_waits_ring_handle(r->g->waits, a->effect);
        if (a->verdict == SEMEL_DONE && sm_str_is(a->result, SM_PUT_BACK))
            gw_say_fields(&r->g->log, GW_ERROR, GW_SAID_PUT_BACK,
                          (gw_log_field[]){{"effect", a->effect, false}}, 1);
        gw_reply_answer(r, a);
    }
    sm_arena_fini(&arena);
}

void gw_on_commit(gw_request *r)
{
    gw_work(r, commit);
}

/* ---- renew -----------------------------------------------------------------------------------*/

typedef struct renew_body {
    sm_str claim;
    int64_t lease_ms;
} renew_body;

static const gw_member renew_members[] = {
    {MEMBER(renew_body, claim), .kind = GW_M_TEXT, .required = true},
    {MEMBER(renew_body, lease_ms), .kind = GW_M_COUNT, .min = 1, .max = SM_LEASE_MAX_MS},
};

static void renew(gw_request *r, semel_answer *a)
{
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    renew_body b = {0};
    if (gw_body_read(r, &arena, renew_members, sizeof renew_members / sizeof renew_members[0],
                     &b) &&
        may_use(r, a, b.claim)) {
        sm_renew_as(r->g->ledger, b.claim, b.lease_ms, sm_str_from(r->who.actor), a);
        gw_reply_answer(r, a);
    }
    sm_arena_fini(&arena);
}

void gw_on_renew(gw_request *r)
{
    gw_work(r, renew);
}
