/*
 * What people decide about an effect: approve, deny, cancel, resolve, forget.
 *
 * Who decides comes from the token and from nowhere else (I7). The effect of the path is checked
 * against the token's scope before the ledger is told anything. Whoever waits for the effect is
 * woken afterwards.
 */
#include <stddef.h>

#include "gateway/api/api.h"
#include "gateway/run/run.h"
#include "ledger/service.h"

typedef struct people_body {
    sm_str request, reason, evidence;
    int result; /* semel_resolution, or COMPENSATE */
    gw_object outcome;
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
    const gw_member *members;
    size_t count;
    bool of_request;    /* it is about a request and not only about an effect */
    bool body_optional; /* none at all is fine */
} decision;

#define IF_VERSION                                                                                 \
    {                                                                                              \
        MEMBER(if_version), .kind = GW_M_COUNT, .min = 1, .max = INT64_MAX                         \
    }

/* ---- what all of them share ------------------------------------------------------------------*/

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

/* A text that must be there must also say something. */
static const char *empty_text(const decision *d, const people_body *b)
{
    for (size_t i = 0; i < d->count; i++) {
        const gw_member *m = &d->members[i];
        const void *at = (const char *)b + m->offset;
        if (m->required && m->kind == GW_M_TEXT && ((const sm_str *)at)->n == 0)
            return m->name;
    }
    return NULL;
}

/* What a person says the tool returned. */
static bool read_outcome(gw_request *r, sm_arena *arena, people_body *b)
{
    static const gw_member members[] = {GW_OUTCOME_MEMBERS};
    gw_outcome_body body = {0};
    sm_fault fault = {0};
    if (b->outcome.node == NULL)
        return true;
    sm_err e = SM_OK;
    if (b->result != SEMEL_RESOLVE_APPLIED)
        e = sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS,
                         "\"outcome\" goes with \"result\": \"applied\" only");
    if (e == SM_OK)
        e = gw_object_read(arena, &b->outcome, members, COUNT(members), &body, &fault);
    if (e == SM_OK)
        e = gw_outcome_take(arena, &body, &b->found, &fault);
    if (e != SM_OK)
        gw_body_refuse(r, &fault);
    return e == SM_OK;
}

static bool read_body(gw_request *r, sm_arena *arena, const decision *d, people_body *b)
{
    *b = (people_body){.found.size = sizeof b->found};
    if (d->body_optional && r->body.len == 0)
        return true;
    if (!gw_body_read(r, arena, d->members, d->count, b))
        return false;
    const char *empty = empty_text(d, b);
    if (empty == NULL)
        return read_outcome(r, arena, b);
    gw_problem(r, 400, "BAD_ARGUMENTS", "Say it in a few words; it is kept in the audit trail.",
               "\"%s\" is empty", empty);
    return false;
}

static void decide(gw_request *r, semel_answer *a, const decision *d)
{
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_handle h;
    people_body b;
    if (!read_body(r, &arena, d, &b) || !gw_effect_named(r, a, &h) ||
        (d->of_request && !same_effect(r, &h, b.request)))
        goto cleanup;
    if (d->what == SEMEL_DECIDE_RESOLVE && b.result == COMPENSATE) {
        gw_undo_resolve(r, a, &h, b.evidence, (uint64_t)b.if_version);
        goto cleanup;
    }
    char effect[SM_HANDLE_TEXT];
    sm_str name = {effect, sm_handle_effect(&h, effect)};
    semel_decision decided = {
        .size = sizeof decided,
        .what = d->what,
        .name = d->of_request ? b.request : name,
        .actor = sm_str_from(r->who.actor),
        .reason = d->what == SEMEL_DECIDE_RESOLVE ? b.evidence : b.reason,
        .how = (semel_resolution)b.result,
        .outcome = b.outcome.node == NULL ? NULL : &b.found,
        .if_version = (uint64_t)b.if_version,
    };
    sm_decide(r->g->ledger, &decided, a);
    sm_waits_ring(r->g->waits, h.id);
    gw_reply_answer(r, a);
cleanup:
    sm_arena_fini(&arena);
}

/* ---- each of them ----------------------------------------------------------------------------*/

static void approve(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(request), .kind = GW_M_TEXT, .required = true},
                                        IF_VERSION};
    static const decision d = {.what = SEMEL_DECIDE_APPROVE,
                               .members = members,
                               .count = COUNT(members),
                               .of_request = true};
    decide(r, a, &d);
}

void gw_on_approve(gw_request *r)
{
    gw_work(r, approve);
}

static void deny(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {{MEMBER(request), .kind = GW_M_TEXT, .required = true},
                                        {MEMBER(reason), .kind = GW_M_TEXT, .required = true},
                                        IF_VERSION};
    static const decision d = {
        .what = SEMEL_DECIDE_DENY, .members = members, .count = COUNT(members), .of_request = true};
    decide(r, a, &d);
}

void gw_on_deny(gw_request *r)
{
    gw_work(r, deny);
}

static const gw_member reason_members[] = {{MEMBER(reason), .kind = GW_M_TEXT}, IF_VERSION};

static void cancel(gw_request *r, semel_answer *a)
{
    static const decision d = {.what = SEMEL_DECIDE_CANCEL,
                               .members = reason_members,
                               .count = COUNT(reason_members),
                               .body_optional = true};
    decide(r, a, &d);
}

void gw_on_cancel(gw_request *r)
{
    gw_work(r, cancel);
}

static void forget(gw_request *r, semel_answer *a)
{
    static const decision d = {.what = SEMEL_DECIDE_FORGET,
                               .members = reason_members,
                               .count = COUNT(reason_members),
                               .body_optional = true};
    decide(r, a, &d);
}

void gw_on_forget(gw_request *r)
{
    gw_work(r, forget);
}

static void resolve(gw_request *r, semel_answer *a)
{
    static const gw_member members[] = {
        {MEMBER(result), .kind = GW_M_CHOICE, .names = results, .required = true},
        {MEMBER(evidence), .kind = GW_M_TEXT, .required = true},
        {MEMBER(outcome), .kind = GW_M_OBJECT},
        IF_VERSION,
    };
    static const decision d = {
        .what = SEMEL_DECIDE_RESOLVE, .members = members, .count = COUNT(members)};
    decide(r, a, &d);
}

void gw_on_resolve(gw_request *r)
{
    gw_work(r, resolve);
}
