/* What a server needs of a ledger: waiting for what was asked, giving claims back, recording how
 * attempts ended, and other contracts while it runs. */
#include "ledger/work/ledger.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "core/report.h"

bool sm_ask_wait(semel *s, const sm_asking *q, int64_t deadline_ns)
{
    return s->ops->wait(s->store, &q->of, q->version, deadline_ns, NULL) != SEMEL_E_TIMEOUT;
}

sm_err sm_give_back(semel *s, sm_str claim, sm_str actor, semel_answer *a)
{
    sm_handle h;
    sm_unclaimed what;
    if (!sm_handle_parse("cl_", claim, &h))
        return SEMEL_E_NOT_FOUND;
    sm_err e = sm_unclaim(s, &h, SM_HEALTH_UNTRIED, actor, a, &what);
    if (e == SEMEL_E_UNAVAILABLE)
        sm_withdraw(s, &h); /* the keeper goes on trying */
    return e == SM_OK && what != SM_CLAIM_BACK ? SEMEL_E_NOT_FOUND : e;
}

/* ---- recording -------------------------------------------------------------------------------*/

#define PAUSE_MS 100

static sm_err record_once(semel *s, sm_running *r, const sm_recording *what, semel_answer *a)
{
    sm_unclaimed back;
    return what->outcome == NULL ? sm_unclaim(s, &r->claim, r->health, what->actor, a, &back)
                                 : sm_running_end(s, r, what->outcome, what->actor, a);
}

/* Whether an answer is UNAVAILABLE because the store has lost acknowledged data: asking again does
 * not help. */
static bool ledger_lost(const semel_answer *a)
{
    return ((const sm_work *)a->work)->fault.code == SEMEL_E_CORRUPT;
}

sm_err sm_record(semel *s, sm_running *r, const sm_recording *what, semel_answer *a)
{
    int64_t deadline = sm_clock_deadline_ns(what->patience_ms);
    r->health = what->health;
    sm_err e = record_once(s, r, what, a);
    if (e != SM_OK && what->outcome != NULL)
        sm_running_unrecorded(s, r);
    if (e != SM_OK && what->on_failure != NULL)
        what->on_failure(what->context, sm_str_from(sm_work_of(a)->fault.text[0] != '\0'
                                                        ? sm_work_of(a)->fault.text
                                                        : semel_err_text(e)));
    while (e == SEMEL_E_UNAVAILABLE && !ledger_lost(a) && sm_clock_mono_ns() < deadline &&
           (what->stop == NULL || !atomic_load(what->stop))) {
        usleep(PAUSE_MS * 1000);
        e = record_once(s, r, what, a);
    }
    if (e != SM_OK && what->outcome == NULL)
        sm_withdraw(s, &r->claim); /* the keeper goes on trying */
    if (e != SM_OK && e != SEMEL_E_BAD_ARGUMENTS && what->outcome != NULL)
        sm_running_owe(s, r, what->outcome, what->actor);
    else
        sm_running_remove(s, r);
    return e;
}

int64_t sm_settled_at(const semel_answer *a, int64_t *window_end)
{
    const sm_work *w = a->work;
    bool settled = semel_state_settled(a->state);
    *window_end = settled ? w->memo.effect.window_end : 0;
    return settled ? w->memo.effect.settled_at : 0;
}

/* ---- contracts -------------------------------------------------------------------------------*/

const sm_contracts *sm_contracts_now(semel *s, semel_answer *a)
{
    return sm_contracts_of(s, sm_work_of(a));
}

sm_contracts *sm_contracts_keep(semel *s, semel_answer *a)
{
    sm_contracts_of(s, sm_work_of(a));
    return sm_contracts_hold(sm_work_of(a)->contracts);
}

/* Retries across a change of identity are not recognised: whoever changes it is told. */
static void warn_of_identity(const sm_contracts *old, const sm_contracts *new, sm_report *report)
{
    sm_buf before, after;
    sm_buf_init(&before, SM_ARENA_MAX);
    sm_buf_init(&after, SM_ARENA_MAX);
    for (uint32_t i = 0; i < new->tool_count; i++) {
        const sm_declared_tool *t = &new->tools[i];
        const sm_contract *known = t->glob ? NULL : sm_contracts_find(old, t->name);
        if (known == NULL)
            continue;
        sm_buf_clear(&before);
        sm_buf_clear(&after);
        sm_contract_identity(known, &before);
        sm_contract_identity(&t->contract, &after);
        if (!sm_str_eq(sm_buf_view(&before), sm_buf_view(&after)))
            sm_report_add(report, SM_WARNING, t->given->at,
                          "the identity of %.*s has changed: retries of calls that were made "
                          "before are not recognised",
                          SM_FMT(t->name));
    }
    sm_buf_fini(&before);
    sm_buf_fini(&after);
}

sm_err sm_contracts_replace(semel *s, sm_str name, sm_str text, sm_report *report, sm_fault *fault)
{
    sm_contracts *new;
    sm_err e = sm_contracts_read(name, text, &new, report);
    if (e != SM_OK)
        return sm_fault_set(fault, e, "%.*s: %s", SM_FMT(name), semel_err_text(e));
    e = sm_ledger_fits_all(s, new, fault);
    if (e != SM_OK) {
        sm_contracts_free(new);
        return e;
    }
    pthread_mutex_lock(&s->contracts_lock);
    sm_contracts *old = atomic_exchange(&s->contracts, sm_contracts_hold(new));
    pthread_mutex_unlock(&s->contracts_lock);
    warn_of_identity(old, new, report);
    sm_contracts_free(old);
    sm_contracts_free(new);
    return SM_OK;
}

sm_err sm_try_write(semel *s, sm_fault *fault)
{
    return s->ops->try_write != NULL ? s->ops->try_write(s->store, fault) : SM_OK;
}

void sm_refuse(semel_answer *a, semel_code code)
{
    sm_answer_refuse(sm_work_start(a), a, code, SM_OK);
}

void sm_refuse_fault(semel_answer *a, sm_err e, const sm_fault *fault)
{
    sm_work *w = sm_work_start(a);
    w->fault = *fault;
    sm_answer_error(w, a, e);
}

sm_str sm_answer_fault(const semel_answer *a)
{
    const sm_work *w = a->work;
    return w != NULL && w->fault.text[0] != '\0' ? sm_str_from(w->fault.text) : (sm_str){0};
}

void sm_answer_reword(semel_answer *a)
{
    a->message = (sm_str){0};
    sm_answer_words(a->work, a);
}

sm_arena *sm_answer_arena(const semel_answer *a)
{
    return &((sm_work *)a->work)->call;
}

sm_str sm_answer_budget_warning(const semel_answer *a)
{
    const sm_work *w = a->work;
    return w == NULL ? (sm_str){0} : w->budget_warning;
}

void sm_pending_of(const semel_answer *a, sm_pending *out)
{
    const sm_work *w = a->work;
    const semel_record *r = &w->cur;
    *out = (sm_pending){
        .scope = r->scope,
        .step = r->step,
        .tool = r->tool,
        .args = r->args,
        .created_at = r->created_at,
        .expires_at = w->memo.effect.request_end,
        .approvals = w->memo.effect.approvals,
        .quorum = w->memo.effect.quorum,
    };
}
