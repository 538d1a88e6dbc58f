/*
 * The call of an undo over HTTP: an attempt (serve/attempt.h) whose client is the calling thread,
 * and which waits for nobody. It is recorded as a gateway would: a gateway on the same ledger can
 * look after it if it ends in doubt.
 *
 * An exchange is one request. If it could not be sent, the claim is given back and nothing was
 * done.
 */
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/limits.h"
#include "cli/undo/undo.h"
#include "core/headers.h"
#include "json/write.h"
#include "serve/attempt.h"
#include "upstream/upstream.h"

typedef struct one_undo {
    sm_serve serve;
    sm_attempt at;
    sm_http *http;
    semel_answer *answer;
    sm_arena arena;
    sm_upstream_call up;
    sm_upstream_ruling ruling;
    bool replays_failures;
    bool looked; /* at the doubt that an earlier attempt has left */
    sm_buf body, headers;
    char why[SEMEL_FAULT_TEXT_MAX]; /* how the exchange went wrong; empty: it did not */
    sm_err err;

    pthread_mutex_t lock;
    pthread_cond_t over;
    bool ended; /* under the lock */
} one_undo;

static one_undo *undo_of(sm_attempt *at)
{
    return SM_CONTAINER(at, one_undo, at);
}

/* ---- what it works with ----------------------------------------------------------------------*/

static sm_err ask(sm_serve *s, sm_asking *q, semel_answer *a)
{
    return SM_CONTAINER(s, one_undo, serve)->err = sm_ask(s->ledger, q, a);
}

static void claim(sm_serve *s, sm_running *r, const semel_answer *execute, size_t most)
{
    sm_running_add(s->ledger, r, execute, most);
}

static sm_err record(sm_serve *s, sm_running *r, const sm_recording *what, semel_answer *a)
{
    return SM_CONTAINER(s, one_undo, serve)->err = sm_record(s->ledger, r, what, a);
}

static void let_go(sm_serve *s, sm_running *r)
{
    sm_running_remove(s->ledger, r);
}

static sm_err look(sm_serve *s, const sm_handle *effect, semel_answer *a, sm_remedy *out)
{
    return sm_remedy_of(s->ledger, effect, a, out);
}

static sm_err resend(sm_serve *s, const sm_handle *effect, int64_t lease_ms, semel_answer *a)
{
    return sm_resend(s->ledger, effect, lease_ms, a);
}

static uint64_t heard(sm_serve *s, uint64_t id)
{
    (void)s, (void)id;
    return 0;
}

static void ring(sm_serve *s, uint64_t id)
{
    (void)s, (void)id;
}

static void take_turn(sm_serve *s, sm_job *job)
{
    job->run(job, SM_CONTAINER(s, one_undo, serve)->answer);
}

static const sm_serve_deps here = {.ask = ask,
                                   .claim = claim,
                                   .record = record,
                                   .let_go = let_go,
                                   .look = look,
                                   .resend = resend,
                                   .heard = heard,
                                   .ring = ring,
                                   .add = take_turn};

/* ---- the exchange ----------------------------------------------------------------------------*/

/* Keeps what came back, beyond the callback. */
static void keep(one_undo *u, const sm_http_result *r)
{
    sm_upstream_judge(&u->up, r, sm_clock_ms(), &u->ruling);
    semel_outcome *o = &u->at.outcome;
    *o = (semel_outcome){.size = sizeof *o, .kind = u->ruling.kind};
    o->applied = o->kind == SEMEL_FAILURE ? u->ruling.applied : SEMEL_APPLIED_DEFAULT;
    u->at.nothing_done = sm_upstream_gives_back(&u->ruling, u->replays_failures, u->at.resends);
    u->at.health = u->ruling.health;
    if (r->complete) {
        o->status = r->status;
        sm_buf_str(&u->body, r->body);
        sm_headers_keep(r->headers, r->header_count, &u->headers);
        if (u->ruling.kind == SEMEL_FAILURE)
            snprintf(u->why, sizeof u->why, "the upstream answered %d", r->status);
    } else {
        snprintf(u->why, sizeof u->why, "%s%s", r->error, r->sent ? "" : "; nothing was sent");
        sm_buf_byte(&u->body, '{');
        sm_put_text(&u->body, "error", sm_str_from(u->why));
        sm_buf_byte(&u->body, '}');
    }
    o->value = u->body.len == 0 ? SM_STR("") : sm_buf_view(&u->body);
    o->bytes = o->value.n + (r->cut || u->body.err != SM_OK);
    if (r->complete && o->bytes == o->value.n)
        sm_upstream_spent(&u->arena, &u->up, o->value, o);
    if (u->headers.len > 0 && u->headers.err == SM_OK)
        o->headers = sm_buf_view(&u->headers);
}

static void on_done(void *context, const sm_http_result *r)
{
    one_undo *u = context;
    pthread_mutex_lock(&u->lock);
    keep(u, r);
    u->ended = true;
    pthread_cond_signal(&u->over);
    pthread_mutex_unlock(&u->lock);
}

static void exchange(one_undo *u)
{
    sm_http_callbacks callbacks = {.done = on_done, .context = u};
    sm_err e = sm_http_send(u->http, &u->up.request, 0, &callbacks, NULL);
    if (e != SM_OK) {
        keep(u, &(sm_http_result){.error = semel_err_text(e)});
        u->at.health = SM_HEALTH_UNTRIED;
        return;
    }
    pthread_mutex_lock(&u->lock);
    while (!u->ended)
        pthread_cond_wait(&u->over, &u->lock);
    pthread_mutex_unlock(&u->lock);
}

/* ---- for the machine -------------------------------------------------------------------------*/

static sm_err prepare(sm_attempt *at, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    one_undo *u = undo_of(at);
    if (u->up.request.url.p != NULL)
        return SM_OK; /* it is asked again */
    if (c->origin[SM_F_UPSTREAM].given == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the contract of %.*s has no upstream",
                            SM_FMT(at->ask.call.tool));
    at->ask.shape = sm_upstream_shape(c);
    u->replays_failures = c->failures == SM_FAILURES_REPLAY;
    sm_err e = sm_upstream_make(&u->arena, c, args, &u->up, fault);
    u->up.request.body_max = SM_OUTCOME_MAX;
    return e == SEMEL_E_INVALID ? SEMEL_E_BAD_ARGUMENTS : e;
}

static void execute(sm_attempt *at, semel_answer *a)
{
    one_undo *u = undo_of(at);
    sm_fault fault = {0};
    if (sm_upstream_key(&u->arena, &u->up, a->idempotency_key, &fault) == SM_OK) {
        exchange(u);
    } else {
        snprintf(u->why, sizeof u->why, "%s", fault.text);
        at->nothing_done = true;
        at->health = SM_HEALTH_UNTRIED;
    }
    sm_attempt_done(at);
}

/* An earlier attempt is in doubt, and the upstream knows its key: the same request again settles
 * it.
 */
static bool looks(sm_attempt *at, const semel_answer *a)
{
    one_undo *u = undo_of(at);
    bool may = a->code == SEMEL_C_UPSTREAM_TIMEOUT && at->hold == SM_HOLDS_NOTHING && !u->looked;
    u->looked |= may;
    return may;
}

static sm_next step(sm_attempt *at, const sm_remedy *what, semel_answer *a)
{
    (void)a;
    return what->state == SEMEL_S_IN_DOUBT && what->step == SM_DOUBT_RESEND &&
                   what->shape == at->ask.shape && what->window_left_ms > 0
               ? SM_NEXT_SEND
               : SM_NEXT_ASK;
}

static int64_t until(sm_attempt *at, const semel_answer *a)
{
    (void)at, (void)a;
    return 0;
}

static void answer(sm_attempt *at, semel_answer *a)
{
    one_undo *u = undo_of(at);
    sm_arena *arena = sm_answer_arena(a);
    if (at->ended == SM_ENDED_BACK) {
        a->code = SEMEL_C_UPSTREAM_FAILED;
        a->verdict = SEMEL_REFUSED;
        a->message = sm_arena_printf(arena, "Nothing was done: %s.", u->why);
    } else if (at->ended != SM_NOT_ENDED && u->why[0] != '\0') {
        a->message = sm_arena_printf(
            arena, "%s: %s.",
            a->state == SEMEL_S_IN_DOUBT ? "It may or may not have taken effect" : "It has failed",
            u->why);
        if (u->ruling.passing && a->state == SEMEL_S_FAILED) { /* worth trying again */
            a->verdict = SEMEL_REFUSED;
            a->code = SEMEL_C_UPSTREAM_FAILED;
        }
    }
    sm_attempt_end(at);
}

static void end(sm_attempt *at)
{
    (void)at;
}

static const sm_attempt_ops ops = {.turned = sm_attempt_go_on,
                                   .prepare = prepare,
                                   .until = until,
                                   .execute = execute,
                                   .looks = looks,
                                   .step = step,
                                   .answer = answer,
                                   .end = end};

sm_err cli_undo_http(semel *s, sm_http *http, const semel_call *call, semel_answer *a)
{
    one_undo u = {
        .serve = {.deps = &here, .ledger = s, .record_ms = SM_RUN_LEASE_MS},
        .at = {.ops = &ops,
               .outcome_max = SM_OUTCOME_MAX,
               .ask = {.call = *call,
                       .upstream = true,
                       .undoes = true,
                       .large = true,
                       .lease_ms = SM_RUN_LEASE_MS}},
        .http = http,
        .answer = a,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .over = PTHREAD_COND_INITIALIZER,
    };
    u.at.serve = &u.serve;
    sm_arena_init(&u.arena, SM_ARENA_MAX);
    sm_buf_init(&u.body, SM_OUTCOME_MAX + 1);
    sm_buf_init(&u.headers, SM_ARENA_MAX);
    sm_serve_init(&u.serve);
    sm_attempt_start(&u.at);
    sm_serve_fini(&u.serve);
    sm_contracts_free(u.at.ask.contracts);
    sm_buf_fini(&u.body);
    sm_buf_fini(&u.headers);
    sm_arena_fini(&u.arena);
    return u.err;
}
