/* approve, deny, cancel, resolve, forget: what people decide about an effect. */
#include "base/limits.h"
#include "base/utf8.h"
#include "ledger/work/ledger.h"

/* One decision, and what it leaves in the record. */
typedef struct decision {
    sm_life_event ev;
    sm_str actor, reason, evidence;
    const semel_outcome *outcome;
    bool forgets;
    bool unproven; /* set: the contract wants an authenticated actor, and this one is not */
} decision;

static sm_err check_text(sm_work *w, const char *what, sm_str text)
{
    if (text.n > SM_REASON_MAX)
        return sm_fault_set(&w->fault, SEMEL_E_LIMIT, "%s is longer than %u bytes", what,
                            SM_REASON_MAX);
    if (text.p != NULL && !sm_utf8_valid(text))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "%s is not UTF-8", what);
    return SM_OK;
}

/* Reasons are kept where outcomes are, and leave with them. */
static const semel_outcome *kept_reason(const decision *d, semel_outcome *room)
{
    bool refuses = d->ev.kind == SM_EV_DENY || d->ev.kind == SM_EV_CANCEL;
    if (!refuses || d->reason.p == NULL)
        return d->outcome;
    *room = (semel_outcome){
        .size = sizeof *room,
        .kind = SEMEL_FAILURE,
        .applied = SEMEL_APPLIED_NO,
        .value = d->reason,
        .bytes = d->reason.n,
        .kept = true,
    };
    return room;
}

static sm_err decide_once(semel *s, sm_work *w, const sm_handle *h, decision *d)
{
    sm_err e = sm_load_handle(s, w, h, true);
    if (e != SM_OK)
        return e;
    if (h->generation != w->cur.generation) {
        w->step = (sm_move){.answer = SM_REFUSED, .code = SEMEL_C_ILLEGAL_STATE};
        return h->generation > w->cur.generation ? SEMEL_E_NOT_FOUND : SM_OK;
    }
    if (h->request > w->memo.effect.request)
        return SEMEL_E_NOT_FOUND; /* nobody has asked for that yet */
    e = sm_digest_bytes(&w->keyer.digest, d->actor.p, d->actor.n, &d->ev.actor);
    if (e != SM_OK)
        return e;
    bool approves = d->ev.kind == SM_EV_APPROVE, denies = d->ev.kind == SM_EV_DENY;
    d->unproven = (approves || denies) && w->memo.terms.via == 1 && !d->ev.proven;
    if (d->unproven) {
        w->step = (sm_move){.answer = SM_REFUSED, .code = SEMEL_C_FORBIDDEN};
        return SM_OK;
    }
    d->ev.needs_approval = w->memo.terms.asks;
    d->ev.digest = w->memo.effect.ran;
    sm_judge(s, w, &d->ev);
    if (!w->step.changed || (w->step.answer == SM_REFUSED && w->step.next.state == SEMEL_S_NONE))
        return SM_OK;
    sm_body_start(w);
    if (h->request != 0)
        sm_body_number(w, "request", h->request);
    sm_body_text(w, "reason", d->reason);
    sm_body_text(w, "evidence", d->evidence);
    semel_outcome room;
    bool done = w->step.answer == SM_DONE;
    sm_change change = {
        .actor = d->actor,
        .outcome = done ? kept_reason(d, &room) : NULL,
        .drop_outcome = done && d->forgets,
        .drop_args = done && d->forgets,
    };
    if (change.outcome != NULL) {
        sm_hash digest;
        sm_str v = change.outcome->value;
        e = sm_digest_bytes(&w->keyer.digest, v.n == 0 ? "" : v.p, v.n, &digest);
        sm_body_number(w, "bytes", change.outcome->bytes);
        sm_body_hash(w, "sha256", &digest);
    }
    return e == SM_OK ? sm_write(s, w, &change) : e;
}

static void explain_forbidden(const sm_work *w, const decision *d, semel_answer *a)
{
    if (d->unproven) {
        a->message = SM_STR("The contract lets only the gateway take approvals.");
        a->corrective_action = SM_STR("Approve or deny it there.");
    } else if (w->memo.effect.crowded) {
        a->message = SM_STR("So many have asked for this call that nobody can approve it.");
        a->corrective_action =
            SM_STR("Cancel it. It can be approved when it is asked for again after its window.");
    } else {
        a->message = SM_STR("You have asked for this call, so you cannot approve it.");
        a->corrective_action = SM_STR("Somebody else has to approve it.");
    }
}

static sm_err decide(semel *s, const char *prefix, sm_str name, decision *d, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    sm_handle h;
    d->actor = sm_ledger_actor(s, d->actor);
    sm_err e = check_text(w, "the reason", d->reason);
    if (e == SM_OK)
        e = check_text(w, "the evidence", d->evidence);
    if (e == SM_OK && (d->actor.n > SM_ACTOR_MAX || !sm_utf8_valid(d->actor)))
        e = sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                         "the actor is not a name of at most %u bytes", SM_ACTOR_MAX);
    if (e == SM_OK && !sm_handle_parse(prefix, name, &h))
        e = sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "\"%.*s\" is not %s",
                         (int)(name.n < 60 ? name.n : 60), name.p,
                         prefix[0] == 'a' ? "an approval request's handle (ap_...)"
                                          : "an effect's handle (ef_...)");
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    d->ev.request = h.request;
    for (int races = 0; races < SM_RACES_MAX; races++) {
        e = decide_once(s, w, &h, d);
        if (e == SEMEL_E_STALE)
            continue;
        e = sm_answer_after(w, a, e);
        if (e != SM_OK)
            return e;
        if (w->step.answer == SM_REFUSED) {
            if (w->step.code == SEMEL_C_ILLEGAL_STATE)
                a->message =
                    sm_arena_printf(&w->call, "The effect is %s; that cannot be done to it.",
                                    semel_state_name(a->state));
            if (w->step.code == SEMEL_C_FORBIDDEN)
                explain_forbidden(w, d, a);
            if (w->step.code == SEMEL_C_KEY_CONFLICT)
                a->message = SM_STR("This request was superseded: other arguments wait now.");
            return sm_answer_refuse(w, a, w->step.code, SM_OK);
        }
        if (a->state == SEMEL_S_READY)
            sm_keeper_stir(s); /* it may run without being asked for again */
        a->verdict = SEMEL_DONE;
        return SM_OK;
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}

semel_err sm_approve(semel *s, semel_str request, semel_str actor, semel_answer *a)
{
    decision d = {.ev = {.kind = SM_EV_APPROVE, .proven = true}, .actor = actor};
    return decide(s, "ap_", request, &d, a);
}

semel_err sm_deny(semel *s, semel_str request, semel_str actor, semel_str reason, semel_answer *a)
{
    decision d = {.ev = {.kind = SM_EV_DENY, .proven = true}, .actor = actor, .reason = reason};
    return decide(s, "ap_", request, &d, a);
}

semel_err semel_approve(semel *s, semel_str request, semel_str actor, semel_answer *a)
{
    decision d = {.ev = {.kind = SM_EV_APPROVE}, .actor = actor};
    return decide(s, "ap_", request, &d, a);
}

semel_err semel_deny(semel *s, semel_str request, semel_str actor, semel_str reason,
                     semel_answer *a)
{
    decision d = {.ev = {.kind = SM_EV_DENY}, .actor = actor, .reason = reason};
    return decide(s, "ap_", request, &d, a);
}

semel_err semel_cancel(semel *s, semel_str effect, semel_str actor, semel_str reason,
                       semel_answer *a)
{
    decision d = {.ev = {.kind = SM_EV_CANCEL}, .actor = actor, .reason = reason};
    return decide(s, "ef_", effect, &d, a);
}

semel_err semel_forget(semel *s, semel_str effect, semel_str actor, semel_str reason,
                       semel_answer *a)
{
    decision d = {.ev = {.kind = SM_EV_FORGET}, .actor = actor, .reason = reason, .forgets = true};
    return decide(s, "ef_", effect, &d, a);
}

semel_err semel_resolve(semel *s, semel_str effect, semel_resolution how,
                        const semel_outcome *outcome, semel_str evidence, semel_str actor,
                        semel_answer *a)
{
    semel_outcome o = {.size = sizeof o};
    if (outcome != NULL) {
        sm_work *w = sm_work_start(a);
        sm_err e = sm_outcome_read(&o, outcome, &w->fault);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
    }
    sm_arena reading;
    sm_arena_init(&reading, SM_ARENA_MAX);
    if (how == SEMEL_RESOLVE_ABANDON)
        o = (semel_outcome){.size = sizeof o,
                            .kind = SEMEL_FAILURE,
                            .applied = SEMEL_APPLIED_UNKNOWN,
                            .value = SM_STR("\"abandoned\"")};
    else
        o.kind = SEMEL_SUCCESS;
    sm_outcome_settle(&reading, &o, SM_OUTCOME_MAX);
    sm_arena_fini(&reading);
    decision d = {
        .ev = {.kind = SM_EV_RESOLVE, .resolution = how},
        .actor = actor,
        .evidence = evidence,
        .outcome = how == SEMEL_RESOLVE_NOT_APPLIED ? NULL : &o,
    };
    return decide(s, "ef_", effect, &d, a);
}
