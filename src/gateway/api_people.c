/*
 * What people decide about an effect: approve, deny, cancel, resolve, forget.
 *
 * Who decides comes from the token and from nowhere else (I7). The effect of the path is checked
 * against the token's scope before anything is looked at.
 */
#include "gateway/api.h"

#include <stddef.h>

#include "ledger/service.h"

typedef struct people_body {
    sm_str request, reason, evidence;
    int result;
    gw_object outcome;
} people_body;

#define MEMBER(n) .name = #n, .offset = offsetof(people_body, n)
#define COUNT(t)  (sizeof(t) / sizeof(t)[0])

static const char *const results[] = {"applied", "not_applied", "abandon", NULL};
_Static_assert(SEMEL_RESOLVE_APPLIED == 0 && SEMEL_RESOLVE_NOT_APPLIED == 1 &&
                   SEMEL_RESOLVE_ABANDON == 2,
               "see results");

/* A decision: what its body holds, and how it is told to the ledger. */
typedef struct decision {
    const gw_member *members;
    size_t count;
    bool of_request;     /* it is about a request and not only about an effect */
    bool body_optional;  /* none at all is fine */
    const char *needs;   /* a text that must not be empty */
    size_t needs_offset; /* where that is */
    void (*tell)(gw_request *r, sm_arena *arena, sm_str effect, const people_body *b,
                 semel_answer *a);
} decision;

/* Whether the request of the body is one of the effect of the path. */
static bool same_effect(gw_request *r, const sm_handle *effect, sm_str request)
{
    sm_handle h;
    if (!sm_handle_parse("ap_", request, &h)) {
        gw_problem(r, 400, "BAD_ARGUMENTS", "GET /v1/approvals lists the requests that wait.",
                   "\"request\" is not an approval request's handle (ap_...)");
        return false;
    }
    if (h.shard == effect->shard && h.id == effect->id && h.generation == effect->generation &&
        (effect->request == 0 || effect->request == h.request))
        return true;
    gw_problem(r, 400, "BAD_ARGUMENTS", "Name the effect that the request is about.",
               "the request of the body is not one of the effect in the path");
    return false;
}

static bool read_body(gw_request *r, sm_arena *arena, const decision *d, people_body *b)
{
    *b = (people_body){0};
    if (d->body_optional && r->body.len == 0)
        return true;
    if (!gw_body_read(r, arena, d->members, d->count, b))
        return false;
    if (d->needs == NULL || ((const sm_str *)((const char *)b + d->needs_offset))->n > 0)
        return true;
    gw_problem(r, 400, "BAD_ARGUMENTS", "Say it in a few words; it is kept in the audit trail.",
               "\"%s\" is empty", d->needs);
    return false;
}

static void decide(gw_request *r, semel_answer *a, const decision *d)
{
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_handle h;
    people_body b;
    char effect[SM_HANDLE_TEXT];
    if (!read_body(r, &arena, d, &b) || !gw_effect_named(r, a, &h) ||
        (d->of_request && !same_effect(r, &h, b.request)))
        goto cleanup;
    d->tell(r, &arena, (sm_str){effect, sm_handle_effect(&h, effect)}, &b, a);
cleanup:
    sm_arena_fini(&arena);
}

/* ---- approve, deny ---------------------------------------------------------------------------*/

static void tell_approve(gw_request *r, sm_arena *arena, sm_str effect, const people_body *b,
                         semel_answer *a)
{
    (void)arena;
    (void)effect;
    semel_approve(r->g->ledger, b->request, sm_str_from(r->who.actor), a);
    gw_reply_answer(r, a);
}

static void approve(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(request), .kind = GW_M_TEXT, .required = true}};
    static const decision d = {
        .members = members, .count = COUNT(members), .of_request = true, .tell = tell_approve};
    decide(r, a, &d);
}

void gw_on_approve(gw_request *r)
{
    gw_work(r, approve);
}

static void tell_deny(gw_request *r, sm_arena *arena, sm_str effect, const people_body *b,
                      semel_answer *a)
{
    (void)arena;
    (void)effect;
    semel_deny(r->g->ledger, b->request, sm_str_from(r->who.actor), b->reason, a);
    gw_reply_answer(r, a);
}

static void deny(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(request), .kind = GW_M_TEXT, .required = true},
                                        {MEMBER(reason), .kind = GW_M_TEXT, .required = true}};
    static const decision d = {.members = members,
                               .count = COUNT(members),
                               .of_request = true,
                               .needs = "reason",
                               .needs_offset = offsetof(people_body, reason),
                               .tell = tell_deny};
    decide(r, a, &d);
}

void gw_on_deny(gw_request *r)
{
    gw_work(r, deny);
}

/* ---- cancel, forget --------------------------------------------------------------------------*/

static const gw_member reason_members[] = {{MEMBER(reason), .kind = GW_M_TEXT}};

static void tell_cancel(gw_request *r, sm_arena *arena, sm_str effect, const people_body *b,
                        semel_answer *a)
{
    (void)arena;
    semel_cancel(r->g->ledger, effect, sm_str_from(r->who.actor), b->reason, a);
    gw_reply_answer(r, a);
}

static void cancel(gw_request *r, semel_answer *a)
{
    static const decision d = {.members = reason_members,
                               .count = COUNT(reason_members),
                               .body_optional = true,
                               .tell = tell_cancel};
    decide(r, a, &d);
}

void gw_on_cancel(gw_request *r)
{
    gw_work(r, cancel);
}

static void tell_forget(gw_request *r, sm_arena *arena, sm_str effect, const people_body *b,
                        semel_answer *a)
{
    (void)arena;
    semel_forget(r->g->ledger, effect, sm_str_from(r->who.actor), b->reason, a);
    gw_reply_answer(r, a);
}

static void forget(gw_request *r, semel_answer *a)
{
    static const decision d = {.members = reason_members,
                               .count = COUNT(reason_members),
                               .body_optional = true,
                               .tell = tell_forget};
    decide(r, a, &d);
}

void gw_on_forget(gw_request *r)
{
    gw_work(r, forget);
}

/* ---- resolve ---------------------------------------------------------------------------------*/

static void tell_resolve(gw_request *r, sm_arena *arena, sm_str effect, const people_body *b,
                         semel_answer *a)
{
    static const gw_member members[] = {GW_OUTCOME_MEMBERS};
    gw_outcome_body body = {0};
    semel_outcome o = {.size = sizeof o};
    sm_fault fault = {0};
    sm_err e = SM_OK;
    bool given = b->outcome.node != NULL;
    if (given && b->result != SEMEL_RESOLVE_APPLIED)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"outcome\" goes with \"result\": \"applied\" only");
    if (e == SM_OK && given)
        e = gw_object_read(arena, &b->outcome, members, COUNT(members), &body, &fault);
    if (e == SM_OK && given)
        e = gw_outcome_take(arena, &body, &o, &fault);
    if (e != SM_OK) {
        gw_body_refuse(r, &fault);
        return;
    }
    semel_resolve(r->g->ledger, effect, (semel_resolution)b->result, given ? &o : NULL, b->evidence,
                  sm_str_from(r->who.actor), a);
    gw_reply_answer(r, a);
}

static void resolve(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {
        {MEMBER(result), .kind = GW_M_CHOICE, .names = results, .required = true},
        {MEMBER(evidence), .kind = GW_M_TEXT, .required = true},
        {MEMBER(outcome), .kind = GW_M_OBJECT},
    };
    static const decision d = {.members = members,
                               .count = COUNT(members),
                               .needs = "evidence",
                               .needs_offset = offsetof(people_body, evidence),
                               .tell = tell_resolve};
    decide(r, a, &d);
}

void gw_on_resolve(gw_request *r)
{
    gw_work(r, resolve);
}
