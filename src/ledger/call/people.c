/* approve, deny, cancel, resolve, forget: what people decide about an effect. */
#include <inttypes.h>

#include "base/given.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "ledger/work/ledger.h"

/* One decision, and what it leaves in the record. */
typedef struct decision {
    sm_life_event ev;
    sm_str actor, reason, evidence;
    const semel_outcome *outcome;
    uint64_t if_version; /* 0: whatever it is */
    bool forgets;
    bool changed;  /* set: the effect is of another version */
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
    /* The write replaces this very version or fails, so nothing comes in between. */
    d->changed = d->if_version != 0 && d->if_version != w->cur.version;
    if (d->changed) {
        sm_look_now(s, w);
        w->step = (sm_move){.answer = SM_REFUSED, .code = SEMEL_C_ILLEGAL_STATE};
        return SM_OK;
    }
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

static void explain_changed(sm_work *w, uint64_t if_version, semel_answer *a)
{
    a->message = sm_arena_printf(&w->call,
                                 "The effect has changed since version %" PRIu64
                                 ": it is %s now, version %" PRIu64 ". Nothing has been done.",
                                 if_version, semel_state_name(a->state), a->version);
    a->corrective_action = SM_STR("Look at it again, then decide with the version that it has.");
}

static void explain_illegal(sm_work *w, const decision *d, semel_answer *a)
{
    if (d->changed)
        explain_changed(w, d->if_version, a);
    else
        a->message = sm_arena_printf(&w->call, "The effect is %s; that cannot be done to it.",
                                     semel_state_name(a->state));
}

bool sm_decision_stale(semel_answer *a, uint64_t if_version)
{
    sm_work *w = sm_work_of(a);
    if (if_version == 0 || a->version == if_version)
        return false;
    explain_changed(w, if_version, a);
    sm_answer_refuse(w, a, SEMEL_C_ILLEGAL_STATE, SM_OK);
    return true;
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
                explain_illegal(w, d, a);
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

/* What a decision comes to: its event, and what it leaves. `o` has room for an outcome. */
static sm_err make(sm_work *w, const semel_decision *given, semel_outcome *o, decision *d)
{
    static const sm_event_kind kinds[] = {
        [SEMEL_DECIDE_APPROVE] = SM_EV_APPROVE, [SEMEL_DECIDE_DENY] = SM_EV_DENY,
        [SEMEL_DECIDE_CANCEL] = SM_EV_CANCEL,   [SEMEL_DECIDE_RESOLVE] = SM_EV_RESOLVE,
        [SEMEL_DECIDE_FORGET] = SM_EV_FORGET,
    };
    if ((unsigned)given->what >= sizeof kinds / sizeof kinds[0])
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "the decision is not a valid semel_decides");
    bool resolves = given->what == SEMEL_DECIDE_RESOLVE;
    *d = (decision){.ev = {.kind = kinds[given->what]},
                    .actor = given->actor,
                    .if_version = given->if_version,
                    .forgets = given->what == SEMEL_DECIDE_FORGET};
    *(resolves ? &d->evidence : &d->reason) = given->reason;
    if (!resolves)
        return SM_OK;
    d->ev.resolution = given->how;
    if (given->outcome != NULL) {
        sm_err e = sm_outcome_read(o, given->outcome, &w->fault);
        if (e != SM_OK)
            return e;
    }
    if (given->how == SEMEL_RESOLVE_ABANDON)
        *o = (semel_outcome){.size = sizeof *o,
                             .kind = SEMEL_FAILURE,
                             .applied = SEMEL_APPLIED_UNKNOWN,
                             .value = SM_STR("\"abandoned\"")};
    else
        o->kind = SEMEL_SUCCESS;
    sm_arena reading;
    sm_arena_init(&reading, SM_ARENA_MAX);
    sm_outcome_settle(&reading, o, SM_OUTCOME_MAX);
    sm_arena_fini(&reading);
    d->outcome = given->how == SEMEL_RESOLVE_NOT_APPLIED ? NULL : o;
    return SM_OK;
}

static sm_err decide_given(semel *s, const semel_decision *given, bool proven, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    semel_outcome o = {.size = sizeof o};
    decision d;
    sm_err e = make(w, given, &o, &d);
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    d.ev.proven = proven;
    bool of_request = d.ev.kind == SM_EV_APPROVE || d.ev.kind == SM_EV_DENY;
    return decide(s, of_request ? "ap_" : "ef_", given->name, &d, a);
}

sm_err sm_decide(semel *s, const semel_decision *given, semel_answer *a)
{
    return decide_given(s, given, true, a);
}

semel_err semel_decide(semel *s, const semel_decision *given, semel_answer *a)
{
    semel_decision ours;
    sm_work *w = sm_work_start(a);
    sm_err e = sm_given_read(&ours, sizeof ours, given, SM_FIRST_SIZE(semel_decision, if_version),
                             "the decision", &w->fault);
    return e == SM_OK ? decide_given(s, &ours, false, a) : sm_answer_error(w, a, e);
}

semel_err semel_approve(semel *s, semel_str request, semel_str actor, semel_answer *a)
{
    semel_decision d = {.what = SEMEL_DECIDE_APPROVE, .name = request, .actor = actor};
    return decide_given(s, &d, false, a);
}

semel_err semel_deny(semel *s, semel_str request, semel_str actor, semel_str reason,
                     semel_answer *a)
{
    semel_decision d = {
        .what = SEMEL_DECIDE_DENY, .name = request, .actor = actor, .reason = reason};
    return decide_given(s, &d, false, a);
}

semel_err semel_cancel(semel *s, semel_str effect, semel_str actor, semel_str reason,
                       semel_answer *a)
{
    semel_decision d = {
        .what = SEMEL_DECIDE_CANCEL, .name = effect, .actor = actor, .reason = reason};
    return decide_given(s, &d, false, a);
}

semel_err semel_forget(semel *s, semel_str effect, semel_str actor, semel_str reason,
                       semel_answer *a)
{
    semel_decision d = {
        .what = SEMEL_DECIDE_FORGET, .name = effect, .actor = actor, .reason = reason};
    return decide_given(s, &d, false, a);
}

semel_err semel_resolve(semel *s, semel_str effect, semel_resolution how,
                        const semel_outcome *outcome, semel_str evidence, semel_str actor,
                        semel_answer *a)
{
    semel_decision d = {.what = SEMEL_DECIDE_RESOLVE,
                        .name = effect,
                        .actor = actor,
                        .reason = evidence,
                        .how = how,
                        .outcome = outcome};
    return decide_given(s, &d, false, a);
}
