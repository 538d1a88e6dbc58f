/*
 * Commits, renewals and releases, for those that execute their tools themselves.
 *
 * A claim is given to whoever may run. It is a secret, but another tenant cannot use it all the
 * same, and is not told that it exists.
 */
#include <stddef.h>

#include "api/operation.h"
#include "base/limits.h"
#include "ledger/service.h"

/* ---- commit ----------------------------------------------------------------------------------*/

typedef struct commit_body {
    sm_outcome_body outcome; /* first: its members are read in place */
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
_Static_assert(offsetof(commit_body, outcome) == 0, "SM_OUTCOME_MEMBERS says so");

#define MEMBER(type, n) .name = #n, .offset = offsetof(type, n)
static const sm_object_member commit_members[] = {
    {MEMBER(commit_body, claim), .kind = SM_M_TEXT, .required = true},
    {MEMBER(commit_body, kind), .kind = SM_M_CHOICE, .names = kinds, .required = true},
    {MEMBER(commit_body, applied), .kind = SM_M_CHOICE, .names = applieds},
    {MEMBER(commit_body, corrective_action), .kind = SM_M_TEXT},
    {MEMBER(commit_body, cost), .kind = SM_M_AMOUNT},
    {MEMBER(commit_body, tokens), .kind = SM_M_COUNT, .max = SM_TOKENS_MAX},
    SM_OUTCOME_MEMBERS,
};

static bool read_commit(sm_operation *op, sm_str *claim, semel_outcome *o)
{
    commit_body b = {.applied = -1, .tokens = -1};
    if (!sm_op_body(op, commit_members, sizeof commit_members / sizeof commit_members[0], &b))
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
    sm_err e = sm_outcome_take(op->arena, &b.outcome, o, &fault);
    if (e == SM_OK && o->kind != SEMEL_FAILURE && o->applied > SEMEL_APPLIED_DEFAULT &&
        o->applied != SEMEL_APPLIED_YES)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"applied\": \"%s\" does not go with \"kind\": \"%s\"; it is for "
                         "failures",
                         applieds[b.applied], kinds[b.kind]);
    if (e != SM_OK)
        sm_op_refuse(op, &fault);
    return e == SM_OK;
}

/* Who commits or renews, if that is known for certain. */
static sm_str authenticated(const sm_operation *op)
{
    return op->known ? op->actor : (sm_str){0};
}

/* Whether the claim's effect is in the scope that who asks is bound to; else the request has its
 * answer, which is the same as for a claim that nobody was given. */
static bool may_use(sm_operation *op, semel_answer *a, sm_str claim)
{
    sm_handle h;
    if (sm_handle_parse("cl_", claim, &h))
        return op->bound.n == 0 || sm_op_may_see(op, a, &h, SEMEL_C_BAD_CLAIM);
    sm_op_code(op, a, SEMEL_C_BAD_CLAIM);
    return false;
}

static bool ended_at_door(sm_operation *op, sm_str claim, const semel_outcome *o)
{
    return op->door->ends != NULL && op->door->ends(op, claim, o);
}

void sm_api_commit(sm_operation *op, semel_answer *a)
{
    sm_str claim;
    semel_outcome o;
    if (read_commit(op, &claim, &o) && may_use(op, a, claim) && !ended_at_door(op, claim, &o)) {
        sm_commit_as(op->ledger, claim, &o, SM_OUTCOME_MAX, authenticated(op), a);
        sm_waits_ring_handle(op->waits, a->effect);
        op->door->answer(op, a);
    }
}

/* ---- renew -----------------------------------------------------------------------------------*/

typedef struct renew_body {
    sm_str claim;
    int64_t lease_ms;
} renew_body;

static const sm_object_member renew_members[] = {
    {MEMBER(renew_body, claim), .kind = SM_M_TEXT, .required = true},
    {MEMBER(renew_body, lease_ms), .kind = SM_M_COUNT, .min = 1, .max = SM_LEASE_MAX_MS},
};

void sm_api_renew(sm_operation *op, semel_answer *a)
{
    renew_body b = {0};
    if (sm_op_body(op, renew_members, sizeof renew_members / sizeof renew_members[0], &b) &&
        may_use(op, a, b.claim)) {
        sm_renew_as(op->ledger, b.claim, b.lease_ms, authenticated(op), a);
        op->door->answer(op, a);
    }
}

/* ---- release ---------------------------------------------------------------------------------*/

typedef struct release_body {
    sm_str claim;
} release_body;

static const sm_object_member release_members[] = {
    {MEMBER(release_body, claim), .kind = SM_M_TEXT, .required = true},
};

void sm_api_release(sm_operation *op, semel_answer *a)
{
    release_body b = {0};
    if (sm_op_body(op, release_members, 1, &b) && may_use(op, a, b.claim) &&
        !ended_at_door(op, b.claim, NULL)) {
        sm_err e = sm_give_back(op->ledger, b.claim, authenticated(op), a);
        sm_handle h;
        if (sm_handle_parse("cl_", b.claim, &h))
            sm_waits_ring(op->waits, h.id);
        if (e == SM_OK)
            op->door->json(op, SM_STR(SM_RELEASED));
        else if (e == SEMEL_E_NOT_FOUND)
            sm_op_code(op, a, SEMEL_C_BAD_CLAIM);
        else
            sm_op_fault(op, a, e, &(sm_fault){0});
    }
}
