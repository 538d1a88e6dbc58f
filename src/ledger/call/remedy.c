/*
 * What is left over of effects that Semel executes itself, and whose caller may never come back:
 * doubts that the contract says how to settle, and what was approved or found not to have been
 * applied, and has not run.
 *
 * The ledger finds them and writes down what was found out. Sending and probing is the business of
 * whoever executes.
 */
#include <sys/random.h>

#include "base/duration.h"
#include "base/limits.h"
#include "ledger/guard/guard.h"
#include "ledger/work/ledger.h"

void sm_on_due(semel *s, sm_due_fn *fn, void *context)
{
    s->on_due_context = context;
    atomic_store(&s->on_due, fn);
}

/* Loads the very generation that the handle names, if it is still the newest. */
static sm_err load(semel *s, sm_work *w, const sm_handle *h)
{
    sm_err e = sm_load_handle(s, w, h, true);
    return e == SM_OK && h->generation != w->cur.generation ? SEMEL_E_NOT_FOUND : e;
}

sm_err sm_remedy_of(semel *s, const sm_handle *effect, semel_answer *a, sm_remedy *out)
{
    sm_work *w = sm_work_start(a);
    *out = (sm_remedy){.step = SM_DOUBT_HOLD};
    sm_err e = load(s, w, effect);
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    const sm_effect *now = &w->memo.effect;
    if ((now->state != SEMEL_S_IN_DOUBT && now->state != SEMEL_S_READY) || w->cur.args.p == NULL)
        return SM_OK;
    sm_contract terms;
    sm_terms_contract(&w->memo.terms, &terms);
    const semel_record *r = &w->cur;
    out->upstream = w->memo.terms.upstream;
    out->state = now->state;
    if (now->state == SEMEL_S_IN_DOUBT)
        out->step = sm_effect_doubt_step(now, &terms, w->now);
    out->attempt = now->attempt;
    out->shape = w->memo.shape;
    out->key = r->key;
    out->fence = now->fence;
    out->window_left_ms = sm_time_after(now->first_sent, w->memo.terms.down_window_ms) - w->now;
    out->doubt_age_ms = now->doubt_end == 0 ? 0 : w->now - now->doubt_end;
    out->settle_left_ms = sm_time_after(now->doubt_end, w->memo.terms.settle_ms) - w->now;
    out->call = (semel_call){
        .size = sizeof out->call,
        .scope = sm_work_copy(w, r->scope),
        .step = sm_work_copy(w, r->step),
        .tool = sm_work_copy(w, r->tool),
        .args = sm_work_copy(w, r->args),
        .key = sm_work_copy(w, r->caller),
    };
    return out->call.args.p == NULL ? sm_answer_error(w, a, SEMEL_E_NOMEM) : sm_answer_about(w, a);
}

#define STOPPED_PAUSE_MS 5000 /* until a stop is looked at again */

sm_err sm_resend(semel *s, const sm_handle *effect, int64_t lease_ms, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    uint8_t secret[SM_SECRET_BYTES];
    if (getrandom(secret, sizeof secret, 0) != sizeof secret)
        return sm_answer_error(w, a, SEMEL_E_CRYPTO);
    for (int races = 0; races < SM_RACES_MAX; races++) {
        sm_err e = load(s, w, effect);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        sm_contract terms;
        sm_terms_contract(&w->memo.terms, &terms);
        bool there = w->memo.effect.state == SEMEL_S_IN_DOUBT &&
                     (effect->fence == 0 || effect->fence == w->memo.effect.fence) &&
                     sm_effect_doubt_step(&w->memo.effect, &terms, w->now) == SM_DOUBT_RESEND;
        if (!there)
            return sm_answer_refuse(w, a, SEMEL_C_ILLEGAL_STATE, SM_OK);
        semel_code stopped;
        e = sm_guard_stopped(s, w, a, &stopped);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        if (stopped != SEMEL_C_NONE) {
            e = sm_put_off(s, effect, STOPPED_PAUSE_MS, a);
            return e == SM_OK ? sm_answer_refuse(w, a, SEMEL_C_STOPPED, SM_OK) : e;
        }
        sm_judge(s, w, &(sm_life_event){.kind = SM_EV_STEP, .lease_ms = lease_ms});
        sm_body_start(w);
        e = sm_write(s, w,
                     &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0}), .secret = secret});
        if (e == SEMEL_E_STALE)
            continue;
        return e == SM_OK ? sm_execute(s, w, secret, lease_ms, a) : sm_answer_error(w, a, e);
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}

/* One try at writing down what a probe found. */
static sm_err write_found(semel *s, sm_work *w, sm_found_kind found, const semel_outcome *outcome)
{
    static const char *const names[] = {"applied", "absent", "unknown"};
    sm_life_event ev = {.kind = SM_EV_PROBED,
                        .found = found,
                        .needs_approval = w->memo.terms.asks,
                        .digest = w->memo.effect.ran};
    sm_judge(s, w, &ev);
    sm_change change = {.actor = sm_ledger_actor(s, (sm_str){0})};
    if (w->step.answer == SM_REFUSED)
        return SM_OK;
    if (w->step.answer == SM_WAIT) { /* too early to tell: look again when it is not */
        w->step.changed = true;
        change.next_at = w->memo.effect.doubt_end + w->memo.terms.settle_ms;
    } else if (w->step.next.state == SEMEL_S_READY) {
        change.next_at = w->now; /* it runs again, though nobody asks */
    } else if (found == SM_FOUND_APPLIED) {
        change.outcome = outcome;
    }
    sm_body_start(w);
    sm_body_text(w, "probe", sm_str_from(names[found]));
    if (change.outcome != NULL) {
        sm_hash digest;
        sm_str v = outcome->value;
        sm_err e = sm_digest_bytes(&w->keyer.digest, v.n == 0 ? "" : v.p, v.n, &digest);
        if (e != SM_OK)
            return e;
        sm_body_number(w, "bytes", outcome->bytes);
        sm_body_hash(w, "sha256", &digest);
    }
    return sm_write(s, w, &change);
}

sm_err sm_probed(semel *s, const sm_handle *effect, sm_found_kind found,
                 const semel_outcome *outcome, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    semel_outcome o = *outcome;
    sm_outcome_settle(&w->call, &o, SM_OUTCOME_MAX);
    for (int races = 0; races < SM_RACES_MAX; races++) {
        sm_err e = load(s, w, effect);
        if (e == SM_OK && w->memo.effect.fence != effect->fence)
            return sm_answer_refuse(w, a, SEMEL_C_ILLEGAL_STATE, SM_OK);
        if (e == SM_OK)
            e = write_found(s, w, found, &o);
        if (e == SEMEL_E_STALE)
            continue;
        e = sm_answer_after(w, a, e);
        if (e != SM_OK)
            return e;
        a->verdict = SEMEL_DONE;
        a->code = w->step.code;
        return w->step.answer == SM_REFUSED ? sm_answer_refuse(w, a, w->step.code, SM_OK) : SM_OK;
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}

sm_err sm_put_off(semel *s, const sm_handle *effect, int64_t pause_ms, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    for (int races = 0; races < SM_RACES_MAX; races++) {
        sm_err e = load(s, w, effect);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        if (w->memo.effect.state != SEMEL_S_IN_DOUBT && w->memo.effect.state != SEMEL_S_READY)
            return SM_OK;
        w->step = (sm_move){.next = w->memo.effect, .changed = true};
        sm_body_start(w);
        e = sm_write(
            s, w,
            &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0}), .next_at = w->now + pause_ms});
        if (e != SEMEL_E_STALE)
            return e == SM_OK ? e : sm_answer_error(w, a, e);
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}

sm_err sm_doubt_hold(semel *s, const sm_handle *effect, uint64_t if_version, semel_answer *a)
{
    sm_work *w = sm_work_start(a);
    for (int races = 0; races < SM_RACES_MAX; races++) {
        sm_err e = load(s, w, effect);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        e = sm_answer_about(w, a);
        if (e != SM_OK)
            return sm_answer_error(w, a, e);
        a->verdict = SEMEL_DONE;
        if (sm_decision_stale(a, if_version))
            return SM_OK;
        sm_judge(s, w, &(sm_life_event){.kind = SM_EV_LOOK}); /* its lease may be over */
        sm_effect *next = &w->step.next;
        if (next->state != SEMEL_S_IN_DOUBT)
            return sm_answer_refuse(w, a, SEMEL_C_ILLEGAL_STATE, SM_OK);
        uint8_t last = (uint8_t)(w->memo.terms.on_in_doubt.count - 1);
        if (!w->step.changed && next->chain_at == last)
            return SM_OK;
        next->chain_at = last;
        w->step.changed = true;
        sm_body_start(w);
        sm_body_text(w, "remedy", SM_STR("hold"));
        e = sm_write(s, w, &(sm_change){.actor = sm_ledger_actor(s, (sm_str){0})});
        if (e == SEMEL_E_STALE)
            continue;
        e = sm_answer_after(w, a, e);
        if (e == SM_OK)
            a->verdict = SEMEL_DONE;
        return e;
    }
    return sm_answer_error(w, a, SEMEL_E_UNAVAILABLE);
}
