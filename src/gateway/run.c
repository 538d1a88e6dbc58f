/*
 * The way of a run: run.h draws it.
 *
 * Every exchange is judged by what was on the wire (effect/upstream.h). Within one attempt only
 * what surely was not applied is sent again, with the same key (I15); a resend may also repeat what
 * nobody knows of, because the upstream recognises its key.
 */
#include "gateway/run.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "gateway/metrics.h"
#include "gateway/runs.h"
#include "gateway/trace.h"

static void work(sm_job *job, semel_answer *a);
static void send(gw_run *run, int64_t pause_ms);

/* ---- making and ending -----------------------------------------------------------------------*/

gw_run *gw_run_new(gateway *g, gw_request *r)
{
    gw_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return NULL;
    run->job.run = work;
    run->g = g;
    run->request = r;
    run->ask.call.size = sizeof run->ask.call;
    sm_arena_init(&run->arena, SM_ARENA_MAX);
    if (r == NULL)
        gw_trace_start(&run->trace, (sm_str){0}, (sm_str){0});
    else
        run->trace = r->trace;
    if (run->trace.state.p != NULL)
        run->trace.state = sm_arena_text(&run->arena, run->trace.state);
    sm_buf_init(&run->body, (size_t)g->config->limits.result_bytes + 1);
    sm_buf_init(&run->headers, SM_ARENA_MAX);
    sm_buf_init(&run->given, SM_ARENA_MAX);
    return run;
}

bool gw_run_call(gw_run *run, const semel_call *call)
{
    semel_call *to = &run->ask.call;
    *to = *call;
    sm_str *const texts[] = {&to->scope, &to->step, &to->tool, &to->args, &to->key, &to->after};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i]->p == NULL)
            continue;
        *texts[i] = sm_arena_text(&run->arena, *texts[i]);
        if (texts[i]->p == NULL)
            return false;
    }
    return true;
}

void gw_run_free(gw_run *run)
{
    sm_contracts_free(run->ask.contracts);
    sm_buf_fini(&run->body);
    sm_buf_fini(&run->headers);
    sm_buf_fini(&run->given);
    sm_arena_fini(&run->arena);
    free(run);
}

void gw_run_end(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    if (--s->alive == 0)
        pthread_cond_broadcast(&s->quiet);
    pthread_mutex_unlock(&s->lock);
    gw_run_free(run);
}

sm_err gw_run_refuse(gw_run *run, int status, const char *code, const char *advice,
                     const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(run->refusal.text, sizeof run->refusal.text, format, args);
    va_end(args);
    run->refusal.status = status;
    run->refusal.code = code;
    run->refusal.advice = advice;
    return SEMEL_E_BAD_ARGUMENTS;
}

/* Something happened that no line of a request tells of: nobody waits for it, or it is in doubt. */
static void tell(const gw_run *run, const semel_answer *a, bool waited)
{
    bool doubt = a->state == SEMEL_S_IN_DOUBT;
    if (!run->ran || run->unrecorded || (waited && !doubt && run->doubt == NULL))
        return;
    char status[16];
    snprintf(status, sizeof status, "%d", run->outcome.status);
    gw_log_field fields[] = {
        {"effect", sm_str_from(run->handle), false},
        {"tool", run->ask.call.tool, false},
        {"state", sm_str_from(semel_state_name(a->state)), false},
        {"upstream", run->outcome.status != 0 ? sm_str_from(status) : (sm_str){0}, true},
        {"why", run->why[0] != '\0' ? sm_str_from(run->why) : (sm_str){0}, false},
        {"trace", sm_str_from(run->trace.id), false},
    };
    const char *what = run->doubt != NULL ? run->doubt : doubt ? "in doubt" : "executed";
    gw_say_fields(&run->g->log,
                  run->doubt != NULL ? GW_ERROR
                  : doubt            ? GW_WARN
                                     : GW_INFO,
                  what, fields, sizeof fields / sizeof fields[0]);
}

/* Answers whoever still waits. */
static bool answer(gw_run *run, const semel_answer *a)
{
    if (gw_relay_end(run, a))
        return true;
    gw_request *r = gw_run_take(run);
    if (r != NULL && run->refusal.status != 0)
        gw_problem(r, run->refusal.status, run->refusal.code, run->refusal.advice, "%s",
                   run->refusal.text);
    else if (r != NULL)
        run->ops->answer(run, r, a);
    return r != NULL;
}

/* The same, and ends the run. */
static void finish(gw_run *run, const semel_answer *a)
{
    tell(run, a, answer(run, a));
    gw_run_end(run);
}

/* Counts a run that starts or stops executing. */
static void count_in_flight(gw_run *run, int change)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    if (change > 0)
        sm_shares_take(&s->in_flight, run->ask.actor);
    else
        sm_shares_give(&s->in_flight, run->ask.actor);
    pthread_mutex_unlock(&s->lock);
}

static sm_room room_in_flight(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    sm_room room =
        sm_shares_room(&s->in_flight, run->ask.actor, (size_t)run->g->config->limits.in_flight);
    pthread_mutex_unlock(&s->lock);
    return room;
}

/* ---- the exchange ----------------------------------------------------------------------------*/

/* What the exchange was like, for people. */
static void tell_why(gw_run *run, const sm_http_result *res)
{
    run->why[0] = '\0';
    if (res->complete && run->ruling.kind == SEMEL_FAILURE)
        snprintf(run->why, sizeof run->why, "the upstream answered %d", res->status);
    else if (!res->complete)
        snprintf(run->why, sizeof run->why, "%s%s", res->error,
                 res->sent ? "" : "; nothing was sent");
}

static uint64_t some_number(void)
{
    return (uint64_t)sm_clock_mono_ns() * 0x9E3779B97F4A7C15u;
}

/* Whether to send it again, and after what pause. */
static bool worth_another(const gw_run *run, const sm_http_result *res, int64_t *pause_ms)
{
    if (run->tries >= run->up.retry.attempts || atomic_load(&run->g->draining) || run->relay.began)
        return false;
    *pause_ms =
        sm_upstream_pause(&run->up.retry, run->tries, run->ruling.retry_after_ms, some_number());
    if (run->resend && sm_clock_deadline_ns(*pause_ms) >= run->until_ns)
        return false; /* the upstream would take it for another one */
    return run->ruling.passing || (run->read && !res->complete) ||
           (run->resend && run->ruling.kind == SEMEL_FAILURE &&
            run->ruling.applied == SEMEL_APPLIED_UNKNOWN);
}

static void on_done(void *context, const sm_http_result *res)
{
    gw_run *run = context;
    gw_relay_over(run, res->complete);
    gw_count_exchange(run->g->metrics, run->ask.call.tool, res);
    sm_upstream_judge(&run->up, res, sm_clock_ms(), &run->ruling);
    tell_why(run, res);
    int64_t pause_ms;
    if (worth_another(run, res, &pause_ms)) {
        send(run, pause_ms);
        return;
    }
    gw_result_keep(run, res);
    sm_pool_add(run->g->pool, &run->job);
}

static void send(gw_run *run, int64_t pause_ms)
{
    sm_http_callbacks callbacks = {
        .done = on_done, .head = gw_relay_head, .data = gw_relay_data, .context = run};
    gw_runs *s = run->g->runs;
    run->tries++;
    /* It may be over before it is known here: so it is sent under the lock, and `done` waits. */
    pthread_mutex_lock(&s->lock);
    sm_err e = sm_http_send(run->g->http, &run->up.request, pause_ms, &callbacks, &run->relay.x);
    pthread_mutex_unlock(&s->lock);
    if (e == SM_OK)
        return;
    sm_http_result nothing = {.error = semel_err_text(e)};
    run->tries = run->up.retry.attempts;
    on_done(run, &nothing);
}

/* ---- the attempt -----------------------------------------------------------------------------*/

static void copy_text(char out[SM_HANDLE_TEXT], sm_str text)
{
    size_t n = text.n < SM_HANDLE_TEXT ? text.n : SM_HANDLE_TEXT - 1;
    if (n > 0)
        memcpy(out, text.p, n);
    out[n] = '\0';
}

/* The attempt is ours. If it cannot be sent after all, the claim is given back: nothing was done.
 * This is the only way to send, and a run passes it once: from here on the ledger begins nothing
 * for it. */
static void execute(gw_run *run, semel_answer *a)
{
    assert(!run->ran);
    run->unrecorded = a->claim.p == NULL;
    copy_text(run->handle, a->effect);
    copy_text(run->claim, a->claim);
    run->ask.joined_generation = a->generation;
    run->ask.joined_fence = a->fence;
    run->ask.joined_request = 0;
    sm_fault fault = {0};
    sm_err e = run->unrecorded ? SM_OK
                               : sm_upstream_key(&run->arena, &run->up, a->idempotency_key, &fault);
    if (e == SM_OK) {
        count_in_flight(run, 1);
        run->ran = run->ask.ran = true;
        run->attempt = a->attempt;
        run->tries = 0;
        run->phase = GW_COMMITS;
        gw_park_time(run, run->deadline_ns);
        if (!run->unrecorded)
            sm_running_add(run->g->ledger, &run->lease, a, SM_OUTCOME_MAX);
        send(run, 0);
        return;
    }
    if (!run->unrecorded)
        sm_give_back(run->g->ledger, sm_str_from(run->claim), a);
    sm_waits_ring(run->g->waits, run->resend ? run->effect.id : run->ask.id);
    gw_run_refuse(run, 500, "MISCONFIGURED", "Tell whoever runs the gateway; nothing was done.",
                  "%s", fault.text);
    finish(run, a);
}

/* The answer to requests that waited for this very attempt: the result as it came, also if it was
 * too large to be kept, or if the ledger could not record it or had lost the attempt. */
static void answer_result(gw_run *run, semel_answer *a)
{
    a->verdict = SEMEL_EXECUTE;
    a->executed = true;
    a->has_outcome = true;
    a->effect = run->unrecorded ? (sm_str){0} : sm_str_from(run->handle);
    a->code = a->state == SEMEL_S_PARTIAL ? SEMEL_C_PARTIAL_SUCCESS : SEMEL_C_NONE;
    a->outcome = run->outcome;
    a->outcome.kept = !run->cut;
    a->retriable = false;
    a->message = a->corrective_action = (sm_str){0};
    if (run->ops->relays && a->outcome.kept && a->outcome.status != 0) {
        a->outcome.headers = (sm_str){0};
        run->gives = true;
    }
    if (run->read && a->outcome.status == 0) /* nothing can have been done */
        gw_run_refuse(run, run->late ? 504 : 502,
                      run->late ? "UPSTREAM_TIMEOUT" : "UPSTREAM_FAILED", "Try again later.",
                      "The tool gave no answer: %s.", run->why);
    finish(run, a);
}

/* ---- asking ----------------------------------------------------------------------------------*/

static sm_err prepare(sm_asking *q, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    gw_run *run = (gw_run *)(void *)((char *)q - offsetof(gw_run, ask));
    run->waiter.heard = sm_waits_heard(run->g->waits, q->id);
    run->replays_failures = c->failures == SM_FAILURES_REPLAY;
    run->read = c->class == SM_CLASS_READ;
    if (run->prepared)
        return SM_OK; /* it is asked again */
    sm_err e = run->ops->prepare == NULL ? SM_OK : run->ops->prepare(run, c, args, fault);
    run->prepared = e == SM_OK;
    return e == SM_OK && !run->ops->hands_over ? gw_trace_send(&run->trace, &run->arena, &run->up)
                                               : e;
}

/* Our attempt has ended in doubt: what is said of that says why. */
static void explain_doubt(const gw_run *run, semel_answer *a, char text[512])
{
    if (!run->ran || run->why[0] == '\0' ||
        (a->code != SEMEL_C_IN_DOUBT && a->code != SEMEL_C_UPSTREAM_TIMEOUT) ||
        a->blocked_by.p != NULL)
        return;
    snprintf(text, 512, "The call may or may not have taken effect: %s.", run->why);
    a->message = sm_str_from(text);
}

/* Whether nothing more may begin: the ledger is told, so that no claim and no approval is used for
 * nothing, and what needs no room is answered all the same. */
static bool is_full(gw_run *run)
{
    return !run->ops->hands_over &&
           (atomic_load(&run->g->draining) || room_in_flight(run) != SM_ROOM);
}

static void turn_away(gw_run *run)
{
    if (atomic_load(&run->g->draining))
        gw_run_refuse(run, 503, "DRAINING", "Try again later, or elsewhere; nothing was done.",
                      "The gateway is being stopped.");
    else
        gw_run_refuse(run, 503, "OVERLOADED", "Try again later; nothing was done.", "%s",
                      room_in_flight(run) == SM_ROOM_OWN_TAKEN
                          ? "This token has its share of executions running: a quarter of "
                            "limits.in_flight."
                          : "All executions that limits.in_flight allows are running.");
}

/* Until when the client waits for what the answer says is missing. */
static int64_t patience(const gw_run *run, const semel_answer *a)
{
    bool approval = a->code == SEMEL_C_AWAITING_APPROVAL && run->approval_ns != 0;
    return approval && run->approval_ns < run->deadline_ns ? run->approval_ns : run->deadline_ns;
}

/* Whether there is somebody who will change what is waited for. A doubt of what is not looked after
 * in the background stays until the client asks again. */
static bool worth_waiting(const gw_run *run, const semel_answer *a)
{
    return run->ask.waits && sm_clock_mono_ns() < patience(run, a) &&
           (a->code != SEMEL_C_UPSTREAM_TIMEOUT || run->ask.upstream || run->ops->hands_over);
}

/* An attempt is in doubt, and the upstream knows its key. The client has sent the same request
 * again, so it goes to the upstream once more, with that key. False: the ledger is to be asked
 * again. */
static bool send_again(gw_run *run, semel_answer *a)
{
    sm_remedy what;
    run->resent = true;
    if (!sm_handle_parse("ef_", a->effect, &run->effect) ||
        sm_remedy_of(run->g->ledger, &run->effect, a, &what) != SM_OK ||
        what.state != SEMEL_S_IN_DOUBT || what.step != SM_DOUBT_RESEND ||
        what.shape != run->ask.shape || room_in_flight(run) != SM_ROOM)
        return false;
    run->until_ns = sm_clock_deadline_ns(what.window_left_ms);
    run->effect.fence = what.fence;
    if (sm_resend(run->g->ledger, &run->effect, SM_RUN_LEASE_MS, a) != SM_OK ||
        a->verdict != SEMEL_EXECUTE)
        return false; /* somebody else was faster */
    run->resend = true;
    execute(run, a);
    return true;
}

static void ask(gw_run *run, semel_answer *a)
{
    gw_run_ops const *ops = run->ops;
    run->phase = GW_ASKS;
    for (;;) {
        run->ask.full = is_full(run);
        sm_ask(run->g->ledger, &run->ask, a);
        if (a->code == SEMEL_C_UPSTREAM_TIMEOUT && run->carries && a->drift.n == 0 && !run->ran &&
            !run->resent && !run->ask.full) {
            if (send_again(run, a))
                return;
            continue;
        }
        if (run->ask.turned_away)
            turn_away(run);
        if (a->verdict == SEMEL_EXECUTE && !ops->hands_over) {
            if (run->ran && a->claim.p == NULL) /* observed: once is what was asked for */
                answer_result(run, a);
            else
                execute(run, a);
            return;
        }
        if (!worth_waiting(run, a))
            break;
        gw_parked parked = gw_park(run, patience(run, a));
        if (parked == GW_PARKED)
            return;
        if (parked == GW_OVER)
            break;
    }
    char text[512];
    explain_doubt(run, a, text);
    if (run->ran && a->verdict == SEMEL_REPLAY)
        a->executed = true; /* it is what became of this very call */
    bool waited = answer(run, a);
    if (!waited && a->verdict == SEMEL_EXECUTE && a->claim.p != NULL) {
        copy_text(run->claim, a->claim); /* nobody was told to run it */
        sm_give_back(run->g->ledger, sm_str_from(run->claim), a);
        sm_waits_ring(run->g->waits, run->ask.id);
    } else {
        tell(run, a, waited);
    }
    gw_run_end(run);
}

/* ---- committing ------------------------------------------------------------------------------*/

/* Not applied, for a reason that passes, and the contract replays failures: the tool has not
 * answered, and the key stays free. So it has not if it sent the request to another place. A resend
 * is tried again later. */
static bool gives_back(const gw_run *run)
{
    return run->ruling.elsewhere || (run->ruling.passing && (run->replays_failures || run->resend));
}

/* What is left over of the attempt is looked at again, but not at once. */
static void put_off(gw_run *run, semel_answer *a)
{
    sm_handle effect = run->effect;
    if (run->resend || sm_handle_parse("ef_", sm_str_from(run->handle), &effect))
        gw_remedy_later(run->g, &effect, run->attempt, run->ruling.retry_after_ms, a);
}

/* What went wrong when the outcome was recorded, or NULL. */
static const char *doubt_of(sm_err e, const semel_answer *a)
{
    if (e != SM_OK || a->verdict != SEMEL_DONE)
        return "a call has run, and its outcome could not be recorded yet";
    return sm_str_is(a->result, SM_PUT_BACK) ? GW_SAID_PUT_BACK : NULL;
}

static void on_record_failure(void *context, sm_str reason)
{
    gw_ledger_fails(context, reason);
}

static void settle(gw_run *run, semel_answer *a)
{
    gateway *g = run->g;
    bool back = gives_back(run);
    sm_err e = sm_record(g->ledger, &run->lease,
                         &(sm_recording){.outcome = back ? NULL : &run->outcome,
                                         .actor = run->ask.actor,
                                         .patience_ms = SM_RECORD_MS,
                                         .stop = &g->draining,
                                         .on_failure = on_record_failure,
                                         .context = g},
                         a);
    semel_state state = a->state;
    run->doubt = back ? NULL : doubt_of(e, a);
    if (run->doubt != NULL && (e != SM_OK || a->verdict != SEMEL_DONE))
        a->result = SM_STR(SM_UNRECORDED);
    bool settled = e == SM_OK && a->verdict == SEMEL_DONE && sm_str_is(a->result, "committed") &&
                   semel_state_settled(state);
    count_in_flight(run, -1);
    if (back || (e == SM_OK && state == SEMEL_S_IN_DOUBT && run->attempt > 1))
        put_off(run, a);
    sm_waits_ring(g->waits, run->resend ? run->effect.id : run->ask.id);
    a->state = state;
    if (run->resend && !run->carries) {
        tell(run, a, false);
        gw_run_end(run);
    } else if (settled || back || run->doubt != NULL) {
        answer_result(run, a);
    } else { /* in doubt, or decided by others meanwhile: the ledger tells */
        ask(run, a);
    }
}

/* ---- the worker's turn -----------------------------------------------------------------------*/

static void resend(gw_run *run, semel_answer *a)
{
    sm_err e = sm_resend(run->g->ledger, &run->effect, SM_RUN_LEASE_MS, a);
    if (e == SM_OK && a->verdict == SEMEL_EXECUTE &&
        gw_trace_send(&run->trace, &run->arena, &run->up) == SM_OK)
        execute(run, a);
    else
        gw_run_end(run); /* somebody else was faster, or it is to be tried later */
}

static void work(sm_job *job, semel_answer *a)
{
    gw_run *run = (gw_run *)(void *)((char *)job - offsetof(gw_run, job));
    switch (atomic_load(&run->phase)) {
    case GW_ASKS: ask(run, a); break;
    case GW_RESENDS: resend(run, a); break;
    case GW_COMMITS:
        if (run->unrecorded) {
            count_in_flight(run, -1);
            *a = (semel_answer){.work = a->work};
            answer_result(run, a);
        } else {
            settle(run, a);
        }
        break;
    }
}

static void start(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->lock);
    s->alive++;
    if (run->request != NULL) {
        run->request->own = run;
        run->request->on_gone = gw_run_gone;
    }
    pthread_mutex_unlock(&s->lock);
    sm_pool_add(run->g->pool, &run->job);
}

void gw_run_start(gw_run *run)
{
    run->phase = GW_ASKS;
    run->ask.prepare = prepare;
    run->ask.lease_ms = run->ops->hands_over ? 0 : SM_RUN_LEASE_MS;
    run->ask.patient = !run->ops->hands_over;
    start(run);
}

void gw_run_resend(gw_run *run, const sm_handle *effect)
{
    run->phase = GW_RESENDS;
    run->resend = true;
    run->effect = *effect;
    start(run);
}
