/*
 * What people decide about an effect: approve, deny, cancel, resolve, forget.
 *
 * Who decides comes from the door and from nowhere else (I7). The effect is checked against the
 * scope that who asks is bound to before the ledger is told anything. Whoever waits for the effect
 * is woken afterwards.
 */
#include <stddef.h>

#include "api/operation.h"
#include "ledger/service.h"

typedef struct people_body {
    sm_str request, reason, evidence;
    int result; /* semel_resolution, or COMPENSATE */
    sm_object outcome;
    semel_outcome found; /* what `outcome` says */
    int64_t if_version;  /* 0: whatever it is now */
} people_body;

#define MEMBER(n) .name = #n, .offset = offsetof(people_body, n)
#define COUNT(t)  (sizeof(t) / sizeof(t)[0])

static const char *const results[] = {"applied", "not_applied", "abandon", "compensate", NULL};
#define COMPENSATE 3
_Static_assert(SEMEL_RESOLVE_APPLIED == 0 && SEMEL_RESOLVE_NOT_APPLIED == 1 &&
                   SEMEL_RESOLVE_ABANDON == 2,
               "see results");

/* A decision: what its body holds. */
typedef struct decision {
    semel_decides what;
    const sm_object_member *members;
    size_t count;
    bool of_request;    /* it is about a request and not only about an effect */
    bool body_optional; /* none at all is fine */
} decision;

#define IF_VERSION                                                                                 \
    {                                                                                              \
        MEMBER(if_version), .kind = SM_M_COUNT, .min = 1, .max = INT64_MAX                         \
    }

/* ---- what all of them share ------------------------------------------------------------------*/

/* Whether the request of the body is one of the effect. */
static bool same_effect(sm_operation *op, const sm_handle *effect, sm_str request)
{
    sm_handle h;
    if (!sm_handle_parse("ap_", request, &h)) {
        sm_op_problem(op, 400, "BAD_ARGUMENTS", "GET /v1/approvals lists the requests that wait.",
                      "\"request\" is not an approval request's handle (ap_...)");
        return false;
    }
    if (h.shard == effect->shard && h.id == effect->id && h.generation == effect->generation &&
        (effect->request == 0 || effect->request == h.request))
        return true;
    sm_op_problem(op, 400, "BAD_ARGUMENTS", "Name the effect that the request is about.",
                  "the request of the body is not one of the effect in the path");
    return false;
}

/* A text that must be there must also say something. */
static const char *empty_text(const decision *d, const people_body *b)
{
    for (size_t i = 0; i < d->count; i++) {
        const sm_object_member *m = &d->members[i];
        const void *at = (const char *)b + m->offset;
        if (m->required && m->kind == SM_M_TEXT && ((const sm_str *)at)->n == 0)
            return m->name;
    }
    return NULL;
}

/* What a person says the tool returned. */
static bool read_outcome(sm_operation *op, people_body *b)
{
    static const sm_object_member members[] = {SM_OUTCOME_MEMBERS};
    sm_outcome_body body = {0};
    sm_fault fault = {0};
    if (b->outcome.node == NULL)
        return true;
    sm_err e = SM_OK;
    if (b->result != SEMEL_RESOLVE_APPLIED)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"outcome\" goes with \"result\": \"applied\" only");
    if (e == SM_OK)
        e = sm_object_read(op->arena, &b->outcome, members, COUNT(members), &body, &fault);
    if (e == SM_OK)
        e = sm_outcome_take(op->arena, &body, &b->found, &fault);
    if (e != SM_OK)
        sm_op_refuse(op, &fault);
    return e == SM_OK;
}

static bool read_body(sm_operation *op, const decision *d, people_body *b)
{
    *b = (people_body){.found.size = sizeof b->found};
    if (d->body_optional && op->body.n == 0)
        return true;
    if (!sm_op_body(op, d->members, d->count, b))
        return false;
    const char *empty = empty_text(d, b);
    if (empty == NULL)
        return read_outcome(op, b);
    sm_op_problem(op, 400, "BAD_ARGUMENTS", "Say it in a few words; it is kept in the audit trail.",
                  "\"%s\" is empty", empty);
    return false;
}

static void compensate(sm_operation *op, semel_answer *a, const sm_handle *effect,
                       const people_body *b)
{
    if (op->door->compensate != NULL)
        op->door->compensate(op, a, effect, b->evidence, (uint64_t)b->if_version);
    else
        sm_op_problem(op, 422, "BAD_ARGUMENTS", "Use semel resolve --compensate, or a gateway.",
                      "\"compensate\" executes a tool, and nothing is executed here.");
}

static void decide(sm_operation *op, semel_answer *a, const decision *d)
{
    sm_handle h;
    people_body b;
    if (!read_body(op, d, &b) || !sm_op_effect(op, a, &h) ||
        (d->of_request && !same_effect(op, &h, b.request)))
        return;
    if (d->what == SEMEL_DECIDE_RESOLVE && b.result == COMPENSATE) {
        compensate(op, a, &h, &b);
        return;
    }
    char effect[SM_HANDLE_TEXT];
    sm_str name = {effect, sm_handle_effect(&h, effect)};
    semel_decision decided = {
        .size = sizeof decided,
        .what = d->what,
        .name = d->of_request ? b.request : name,
        .actor = op->actor,
        .reason = d->what == SEMEL_DECIDE_RESOLVE ? b.evidence : b.reason,
        .how = (semel_resolution)b.result,
        .outcome = b.outcome.node == NULL ? NULL : &b.found,
        .if_version = (uint64_t)b.if_version,
    };
    if (op->known)
        sm_decide(op->ledger, &decided, a);
    else
        semel_decide(op->ledger, &decided, a);
    sm_waits_ring(op->waits, h.id);
    op->door->answer(op, a);
}

/* ---- each of them ----------------------------------------------------------------------------*/

void sm_api_approve(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {MEMBER(request), .kind = SM_M_TEXT, .required = true}, IF_VERSION};
    static const decision d = {.what = SEMEL_DECIDE_APPROVE,
                               .members = members,
                               .count = COUNT(members),
                               .of_request = true};
    decide(op, a, &d);
}

void sm_api_deny(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {MEMBER(request), .kind = SM_M_TEXT, .required = true},
        {MEMBER(reason), .kind = SM_M_TEXT, .required = true},
        IF_VERSION};
    static const decision d = {
        .what = SEMEL_DECIDE_DENY, .members = members, .count = COUNT(members), .of_request = true};
    decide(op, a, &d);
}

static const sm_object_member reason_members[] = {{MEMBER(reason), .kind = SM_M_TEXT}, IF_VERSION};

void sm_api_cancel(sm_operation *op, semel_answer *a)
{
    static const decision d = {.what = SEMEL_DECIDE_CANCEL,
                               .members = reason_members,
                               .count = COUNT(reason_members),
                               .body_optional = true};
    decide(op, a, &d);
}

void sm_api_forget(sm_operation *op, semel_answer *a)
{
    static const decision d = {.what = SEMEL_DECIDE_FORGET,
                               .members = reason_members,
                               .count = COUNT(reason_members),
                               .body_optional = true};
    decide(op, a, &d);
}

void sm_api_resolve(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {MEMBER(result), .kind = SM_M_CHOICE, .names = results, .required = true},
        {MEMBER(evidence), .kind = SM_M_TEXT, .required = true},
        {MEMBER(outcome), .kind = SM_M_OBJECT},
        IF_VERSION,
    };
    static const decision d = {
        .what = SEMEL_DECIDE_RESOLVE, .members = members, .count = COUNT(members)};
    decide(op, a, &d);
}
