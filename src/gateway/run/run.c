/*
 * The way of a run: run.h draws it.
 *
 * Every exchange is judged by what was on the wire (upstream/upstream.h). Within one attempt only
 * what surely was not applied is sent again, with the same key (I15); a resend may also repeat what
 * nobody knows of, because the upstream recognises its key.
 */
#include "gateway/run/run.h"

#include <assert.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/limits.h"
#include "gateway/run/runs.h"
#include "gateway/telemetry/metrics.h"
#include "gateway/telemetry/trace.h"

static void send(gw_run *run, int64_t pause_ms);

/* ---- making and ending -----------------------------------------------------------------------*/

gw_run *gw_run_new(gateway *g, gw_request *r)
{
    gw_run *run = calloc(1, sizeof *run);
    if (run == NULL)
        return NULL;
    run->g = g;
    run->at.serve = &g->runs->serve;
    run->at.outcome_max = SM_OUTCOME_MAX;
    run->at.client = r;
    run->at.ask.call.size = sizeof run->at.ask.call;
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
    semel_call *to = &run->at.ask.call;
    *to = *call;
    sm_str *const texts[] = {&to->scope, &to->step, &to->tool, &to->args, &to->key, &to->after};
    return sm_arena_keep(&run->arena, texts, sizeof texts / sizeof texts[0]);
}

void gw_run_free(gw_run *run)
{
    sm_contracts_free(run->at.ask.contracts);
    sm_contracts_free(run->probing.contracts);
    sm_buf_fini(&run->body);
    sm_buf_fini(&run->headers);
    sm_buf_fini(&run->given);
    sm_arena_fini(&run->arena);
    free(run);
}

const char *gw_run_flaw(const gw_run *run)
{
    if (run->repeat > GW_CARRIED)
        return "not a state";
    if (run->repeat != GW_REPEATS_NOT && run->at.ask.down == NULL)
        return "it may be sent again to an upstream that takes no key";
    if (run->relay.r != NULL && !run->relay.began)
        return "it passes on what has not begun";
    if (run->gives.p != NULL && run->cut)
        return "it gives the headers of a body that it does not have";
    return NULL;
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
    const sm_attempt *at = &run->at;
    if (at->ended == SM_NOT_ENDED || at->ended == SM_ENDED_UNRECORDED ||
        (waited && !doubt && run->doubt == NULL))
        return;
    char status[16];
    snprintf(status, sizeof status, "%d", at->outcome.status);
    gw_log_field fields[] = {
        {"effect", sm_str_from(at->handle), false},
        {"tool", at->ask.call.tool, false},
        {"state", sm_str_from(semel_state_name(a->state)), false},
        {"upstream", at->outcome.status != 0 ? sm_str_from(status) : (sm_str){0}, true},
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
static bool answer_client(gw_run *run, const semel_answer *a)
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

/* Counts a run that starts or stops executing. */
static void count_in_flight(gw_run *run, int change)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->serve.lock);
    if (change > 0)
        sm_shares_take(&s->in_flight, run->at.ask.actor);
    else
        sm_shares_give(&s->in_flight, run->at.ask.actor);
    pthread_mutex_unlock(&s->serve.lock);
}

/* Whether there is room for one more execution. */
static sm_vacancy room_for(gw_run *run)
{
    gw_runs *s = run->g->runs;
    pthread_mutex_lock(&s->serve.lock);
    sm_vacancy room =
        sm_shares_room(&s->in_flight, run->at.ask.actor, (size_t)run->g->config->limits.in_flight);
    pthread_mutex_unlock(&s->serve.lock);
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
    if (run->at.resends && sm_clock_deadline_ns(*pause_ms) >= run->until_ns)
        return false; /* the upstream would take it for another one */
    return run->ruling.passing || (run->read && !res->complete) ||
           (run->at.resends && run->ruling.kind == SEMEL_FAILURE &&
            run->ruling.applied == SEMEL_APPLIED_UNKNOWN);
}

static void on_done(void *context, const sm_http_result *res)
{
    gw_run *run = context;
    gw_relay_over(run, res->complete);
    gw_count_exchange(run->g->metrics, run->at.ask.call.tool, res);
    sm_upstream_judge(&run->up, res, sm_clock_ms(), &run->ruling);
    tell_why(run, res);
    int64_t pause_ms;
    if (worth_another(run, res, &pause_ms)) {
        send(run, pause_ms);
        return;
    }
    gw_result_keep(run, res);
    run->at.nothing_done =
        sm_upstream_gives_back(&run->ruling, run->replays_failures, run->at.resends);
    run->at.health = run->unsent ? SM_HEALTH_UNTRIED : run->ruling.health;
    sm_attempt_done(&run->at);
}

static void send(gw_run *run, int64_t pause_ms)
{
    sm_http_callbacks callbacks = {
        .done = on_done, .head = gw_relay_head, .data = gw_relay_data, .context = run};
    sm_serve *s = run->at.serve;
    run->tries++;
    /* It may be over before it is known here: so it is sent under the lock, and `done` waits. */
    pthread_mutex_lock(&s->lock);
    sm_err e = sm_http_send(run->g->http, &run->up.request, pause_ms, &callbacks, &run->relay.x);
    pthread_mutex_unlock(&s->lock);
    if (e == SM_OK)
        return;
    sm_http_result nothing = {.error = e == SEMEL_E_UNAVAILABLE ? "the gateway is being stopped"
                                                                : semel_err_text(e)};
    run->tries = run->up.retry.attempts;
    run->unsent = true;
    on_done(run, &nothing);
}

/* ---- for the machine -------------------------------------------------------------------------*/

/* If it cannot be sent after all, the claim is given back: nothing was done. */
void gw_run_execute(sm_attempt *at, semel_answer *a)
{
    gw_run *run = gw_run_of(at);
    sm_fault fault = {0};
    bool keyed = at->hold == SM_HOLDS_CLAIM;
    sm_err e = keyed ? sm_upstream_key(&run->arena, &run->up, a->idempotency_key, &fault) : SM_OK;
    count_in_flight(run, 1);
    if (e == SM_OK) {
        run->tries = 0;
        sm_attempt_time(at, run->deadline_ns);
        send(run, 0);
        return;
    }
    gw_run_refuse(run, 500, "MISCONFIGURED", "Tell whoever runs the gateway; nothing was done.",
                  "%s", fault.text);
    at->nothing_done = true;
    sm_attempt_done(at);
}

sm_err gw_run_prepare(sm_attempt *at, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    gw_run *run = gw_run_of(at);
    run->replays_failures = c->failures == SM_FAILURES_REPLAY;
    run->read = c->class == SM_CLASS_READ;
    if (run->prepared)
        return SM_OK; /* it is asked again */
    sm_err e = run->ops->prepare == NULL ? SM_OK : run->ops->prepare(run, c, args, fault);
    run->prepared = e == SM_OK;
    return e == SM_OK && at->ops->execute != NULL
               ? gw_trace_send(&run->trace, &run->arena, &run->up)
               : e;
}

/* The ledger is told, so that no claim and no approval is used for nothing, and what needs no room
 * is answered all the same. */
bool gw_run_full(sm_attempt *at)
{
    gw_run *run = gw_run_of(at);
    return atomic_load(&run->g->draining) || room_for(run) != SM_ROOM;
}

static void turn_away(gw_run *run)
{
    if (atomic_load(&run->g->draining))
        gw_run_refuse(run, 503, "DRAINING", "Try again later, or elsewhere; nothing was done.",
                      "The gateway is being stopped.");
    else
        gw_run_refuse(run, 503, "OVERLOADED", "Try again later; nothing was done.", "%s",
                      room_for(run) == SM_ROOM_OWN_TAKEN
                          ? "This token has its share of executions running: a quarter of "
                            "limits.in_flight."
                          : "All executions that limits.in_flight allows are running.");
}

/* Whether others look after a doubt: in the background, or with a request that carries it, too. */
static bool looked_after(const gw_run *run)
{
    return run->at.ask.upstream || run->at.ops->execute == NULL ||
           (run->repeat == GW_CARRIES && run->at.hold == SM_HOLDS_NOTHING);
}

static int64_t until(sm_attempt *at, const semel_answer *a)
{
    const gw_run *run = gw_run_of(at);
    bool approval = a->code == SEMEL_C_AWAITING_APPROVAL && run->approval_ns != 0;
    if (a->code == SEMEL_C_UPSTREAM_TIMEOUT && !looked_after(run))
        return 0;
    return approval && run->approval_ns < run->deadline_ns ? run->approval_ns : run->deadline_ns;
}

/* An attempt is in doubt, and the upstream knows its key. The client has sent the same request
 * again, so it may go to the upstream once more, with that key. */
static bool looks(sm_attempt *at, const semel_answer *a)
{
    const gw_run *run = gw_run_of(at);
    return a->code == SEMEL_C_UPSTREAM_TIMEOUT && run->repeat == GW_CARRIES && a->drift.n == 0 &&
           at->hold == SM_HOLDS_NOTHING && !at->ask.full;
}

static sm_next step(sm_attempt *at, const sm_remedy *what, semel_answer *a)
{
    gw_run *run = gw_run_of(at);
    (void)a;
    run->repeat = GW_CARRIED;
    assert(gw_run_flaw(run) == NULL);
    run->until_ns = sm_clock_deadline_ns(what->window_left_ms);
    return what->state == SEMEL_S_IN_DOUBT && what->step == SM_DOUBT_RESEND &&
                   what->shape == at->ask.shape && !gw_run_full(at)
               ? SM_NEXT_SEND
               : SM_NEXT_ASK;
}

/* What is left over of the attempt is looked at again, but not at once. */
static void put_off(gw_run *run, semel_answer *a)
{
    const sm_attempt *at = &run->at;
    sm_handle effect = at->effect;
    if (at->resends || sm_handle_parse("ef_", sm_str_from(at->handle), &effect))
        gw_remedy_later(run->g, &effect, at->number, run->ruling.retry_after_ms, a);
}

bool gw_run_recorded(sm_attempt *at, semel_answer *a)
{
    gw_run *run = gw_run_of(at);
    semel_state state = a->state;
    count_in_flight(run, -1);
    run->doubt = at->ended == SM_ENDED_OWED
                     ? "a call has run, and its outcome could not be recorded yet"
                 : at->ended == SM_ENDED_PUT_BACK ? GW_SAID_PUT_BACK
                                                  : NULL;
    if (at->ended == SM_ENDED_OWED)
        a->result = SM_STR(SM_UNRECORDED);
    bool doubt = at->ended != SM_ENDED_OWED && state == SEMEL_S_IN_DOUBT && at->number > 1;
    if (run->refusal.status == 0 && (at->ended == SM_ENDED_BACK || doubt))
        put_off(run, a);
    a->state = state;
    return at->ended == SM_ENDED_OPEN && (!at->resends || run->repeat != GW_REPEATS_NOT);
}

/* Our attempt has ended in doubt: what is said of that says why. */
static void explain_doubt(const gw_run *run, semel_answer *a, char text[512])
{
    if (run->at.ended == SM_NOT_ENDED || run->why[0] == '\0' ||
        (a->code != SEMEL_C_IN_DOUBT && a->code != SEMEL_C_UPSTREAM_TIMEOUT) ||
        a->blocked_by.p != NULL)
        return;
    snprintf(text, 512, "The call may or may not have taken effect: %s.", run->why);
    a->message = sm_str_from(text);
}

/* The answer to requests that waited for this very attempt: the result as it came, also if it was
 * too large to be kept, or if the ledger could not record it or had lost the attempt. */
static void make_result(gw_run *run, semel_answer *a)
{
    const sm_attempt *at = &run->at;
    a->verdict = SEMEL_EXECUTE;
    a->executed = true;
    a->has_outcome = true;
    a->effect = at->ended == SM_ENDED_UNRECORDED ? (sm_str){0} : sm_str_from(at->handle);
    a->code = a->state == SEMEL_S_PARTIAL ? SEMEL_C_PARTIAL_SUCCESS : SEMEL_C_NONE;
    a->claim = (sm_str){0};
    a->outcome = at->outcome;
    a->outcome.kept = !run->cut;
    a->retriable = false;
    a->message = a->corrective_action = (sm_str){0};
    if (run->ops->relays && a->outcome.kept && a->outcome.status != 0) {
        a->outcome.headers = (sm_str){0};
        run->gives = sm_buf_view(&run->given);
        assert(gw_run_flaw(run) == NULL);
    }
    if (run->read && a->outcome.status == 0 && run->refusal.status == 0)
        gw_run_refuse(run, run->late ? 504 : 502, /* nothing can have been done */
                      run->late ? "UPSTREAM_TIMEOUT" : "UPSTREAM_FAILED", "Try again later.",
                      "The tool gave no answer: %s.", run->why);
}

void gw_run_answer(sm_attempt *at, semel_answer *a)
{
    gw_run *run = gw_run_of(at);
    char text[512];
    bool own = at->ended != SM_NOT_ENDED && !at->told_by_ledger;
    if (at->ask.turned_away)
        turn_away(run);
    if (own || (at->ended != SM_NOT_ENDED && a->verdict == SEMEL_EXECUTE)) {
        make_result(run, a); /* also if it is only observed: once is what was asked for */
    } else {
        explain_doubt(run, a, text);
        if (at->ended != SM_NOT_ENDED && a->verdict == SEMEL_REPLAY)
            a->executed = true; /* it is what became of this very call */
    }
    bool told = answer_client(run, a);
    tell(run, a, told);
    if (!told && at->ops->execute == NULL && a->verdict == SEMEL_EXECUTE && a->claim.p != NULL)
        sm_attempt_give_back(at, a); /* nobody was told to run it */
    sm_attempt_end(at);
}

void gw_run_turned(sm_attempt *at, semel_answer *a)
{
    sm_attempt_go_on(at, a);
}

/* ---- the client ------------------------------------------------------------------------------*/

gw_request *gw_run_take(gw_run *run)
{
    return sm_attempt_take_client(&run->at);
}

static void on_parted(void *client)
{
    gw_request *r = client;
    r->own = NULL;
}

static bool is_here(const void *client)
{
    return !gw_is_gone(client);
}

static void on_late(void *client, const char *handle)
{
    semel_answer a = {
        .verdict = SEMEL_REFUSED,
        .code = SEMEL_C_RETRY_IN_FLIGHT,
        .state = SEMEL_S_RUNNING,
        .effect = sm_str_from(handle),
        .retriable = true,
        .retry_after_ms = 1000,
        .message = SM_STR("The call is running; its outcome is not known yet."),
        .corrective_action = SM_STR("Ask again later with the same call; it will not run twice."),
    };
    if (handle[0] == '\0') { /* nothing is recorded of it: it only reads, or is only observed */
        a.code = SEMEL_C_UPSTREAM_TIMEOUT;
        a.state = SEMEL_S_NONE;
        a.effect = (sm_str){0};
        a.message = SM_STR("The tool has not answered in the time that was given.");
        a.corrective_action = SM_STR("Ask again with more time; the call will run again.");
    }
    gw_reply_refusal(client, &a);
}

/* The client of a run has hung up. */
static void on_gone(gw_request *r)
{
    sm_serve *s = &r->g->runs->serve;
    pthread_mutex_lock(&s->lock);
    gw_run *run = r->own;
    if (run != NULL && run->at.client != r)
        run = NULL; /* the answer is under way, and goes on without the client (relay.c) */
    bool parked = run != NULL && sm_attempt_lose_client(&run->at);
    pthread_mutex_unlock(&s->lock);
    if (run == NULL)
        return; /* somebody is answering it right now */
    if (parked)
        sm_attempt_end(&run->at);
    gw_problem(r, 499, "CANCELED", NULL, "The client has gone.");
}

static void end(sm_attempt *at)
{
    gw_run_free(gw_run_of(at));
}

static const sm_attempt_ops serving = {
    GW_RUN_EXECUTES, .until = until, .here = is_here, .parted = on_parted,
    .late = on_late, .end = end,     .looks = looks,  .step = step,
};

/* "Execute" is an answer like others. */
static const sm_attempt_ops handing = {
    .turned = gw_run_turned,
    .prepare = gw_run_prepare,
    .until = until,
    .answer = gw_run_answer,
    .here = is_here,
    .parted = on_parted,
    .late = on_late,
    .end = end,
};

void gw_run_start(gw_run *run)
{
    sm_attempt *at = &run->at;
    gw_request *r = at->client;
    assert(gw_run_flaw(run) == NULL);
    at->ops = run->ops->hands_over ? &handing : &serving;
    at->ask.lease_ms = run->ops->hands_over ? 0 : SM_RUN_LEASE_MS;
    at->ask.patient = !run->ops->hands_over;
    pthread_mutex_lock(&at->serve->lock);
    r->own = run;
    r->on_gone = on_gone;
    pthread_mutex_unlock(&at->serve->lock);
    gw_hold(r); /* from here on it may be called */
    sm_attempt_start(at);
}

/* ---- all of them -----------------------------------------------------------------------------*/

static void on_record_failure(void *context, sm_str reason)
{
    gw_ledger_fails(context, reason);
}

sm_err gw_runs_start(gateway *g, gw_runs **out, sm_fault *fault)
{
    gw_runs *s = *out = calloc(1, sizeof *s);
    if (s == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    s->g = g;
    s->serve = (sm_serve){.deps = &sm_serve_real,
                          .ledger = g->ledger,
                          .pool = g->pool,
                          .waits = g->waits,
                          .record_ms = SM_RECORD_MS,
                          .waiting_max = (size_t)g->config->limits.waiting,
                          .ending = &g->draining,
                          .on_failure = on_record_failure,
                          .context = g};
    sm_serve_init(&s->serve);
    sm_err e = sm_serve_clock(&s->serve, fault);
    if (e != SM_OK) {
        gw_runs_stop(s);
        *out = NULL;
    }
    return e;
}

bool gw_runs_drain(gw_runs *s, int64_t deadline_ns)
{
    return sm_serve_drain(&s->serve, deadline_ns);
}

void gw_runs_stop(gw_runs *s)
{
    if (s == NULL)
        return;
    sm_serve_fini(&s->serve);
    sm_shares_fini(&s->in_flight);
    free(s);
}

size_t gw_runs_in_flight(gw_runs *s)
{
    pthread_mutex_lock(&s->serve.lock);
    size_t in_flight = s->in_flight.taken;
    pthread_mutex_unlock(&s->serve.lock);
    return in_flight;
}
