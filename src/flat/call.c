/*
 * Begin and commit: attempts of programs that use the flat door.
 *
 * A begin is an attempt of the machine (serve/attempt.h) whose client is whoever sent the request.
 * When it may run, its client is told so, and the attempt stays: its claim is held here and its
 * lease is kept, until a commit names it. Then whoever commits is the client. A claim that is not
 * held, because it is detached or of another process, is committed as over HTTP.
 *
 *     begin ---> waits ---> "execute": among the claims ---> commit ---> recorded, answer
 *       |          |               |
 *       `----------+--> replay,    `--> nobody wanted the answer any more: given back
 *                       refused
 */
#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/limits.h"
#include "flat/inside.h"
#include "json/write.h"

struct fl_call {
    sm_attempt at;
    fl_core *core;
    sm_arena arena;
    int64_t deadline_ns;
    sm_handle claim; /* once it is held */
    fl_call *next;   /* among the claims */
};

static fl_call *call_of(sm_attempt *at)
{
    return SM_CONTAINER(at, fl_call, at);
}

/* ---- claims that are held --------------------------------------------------------------------*/

static fl_call **bucket_of(fl_claims *k, const sm_handle *claim)
{
    return &k->bucket[claim->id % FL_CLAIM_BUCKETS];
}

/* False: the door is closing. */
static bool hold(fl_call *call)
{
    fl_claims *k = &call->core->claims;
    pthread_mutex_lock(&k->lock);
    fl_call **at = bucket_of(k, &call->claim);
    bool held = !k->ended;
    if (held) {
        call->next = *at;
        *at = call;
    }
    pthread_mutex_unlock(&k->lock);
    return held;
}

static bool same_claim(const sm_handle *a, const sm_handle *b)
{
    return a->id == b->id && a->generation == b->generation && a->fence == b->fence &&
           CRYPTO_memcmp(a->secret, b->secret, sizeof a->secret) == 0;
}

/* Takes a claim out: whoever has it ends it. NULL: it is not held. */
static fl_call *take(fl_core *c, sm_str claim)
{
    sm_handle h;
    fl_claims *k = &c->claims;
    if (!sm_handle_parse("cl_", claim, &h))
        return NULL;
    pthread_mutex_lock(&k->lock);
    fl_call **at = bucket_of(k, &h);
    while (*at != NULL && !same_claim(&(*at)->claim, &h))
        at = &(*at)->next;
    fl_call *call = *at;
    if (call != NULL)
        *at = call->next;
    pthread_mutex_unlock(&k->lock);
    return call;
}

void fl_claims_end(fl_core *c)
{
    fl_claims *k = &c->claims;
    fl_call *held = NULL;
    pthread_mutex_lock(&k->lock);
    k->ended = true;
    for (size_t i = 0; i < FL_CLAIM_BUCKETS; i++) {
        for (fl_call *call = k->bucket[i], *next; call != NULL; call = next) {
            next = call->next;
            call->next = held;
            held = call;
        }
        k->bucket[i] = NULL;
    }
    pthread_mutex_unlock(&k->lock);
    for (fl_call *next; held != NULL; held = next) {
        next = held->next;
        sm_attempt_end(&held->at);
    }
}

/* ---- what the machine asks of a call ---------------------------------------------------------*/

static int64_t until(sm_attempt *at, const semel_answer *a)
{
    (void)a;
    return call_of(at)->deadline_ns;
}

static void end(sm_attempt *at)
{
    fl_call *call = call_of(at);
    if (at->ask.contracts != NULL)
        sm_contracts_free(at->ask.contracts);
    sm_arena_fini(&call->arena);
    free(call);
}

static void parted(void *client)
{
    ((fl_client *)client)->call = NULL;
}

/* It runs and is not recorded. Whoever runs it may tell how it ended, with this number. */
static void deliver_pass(const fl_call *call, fl_client *client, const semel_answer *a)
{
    sm_buf *out = &client->answer;
    sm_answer_put_json(a, out);
    if (out->err == SM_OK && call->at.ask.passed != 0) {
        char number[24];
        int n = snprintf(number, sizeof number, "%llu", (unsigned long long)call->at.ask.passed);
        out->len--; /* the brace: there is more */
        sm_put_text(out, "pass", (sm_str){number, (size_t)n});
        sm_buf_byte(out, '}');
    }
    fl_deliver(&call->core->port, client);
}

static void execute(sm_attempt *at, semel_answer *a)
{
    fl_call *call = call_of(at);
    fl_core *core = call->core;
    fl_client *client = sm_attempt_take_client(at);
    if (client != NULL && at->hold == SM_HOLDS_NO_CLAIM) {
        deliver_pass(call, client, a);
        sm_attempt_end(at);
        return;
    }
    sm_handle_parse("cl_", a->claim, &call->claim);
    if (client != NULL) {
        sm_answer_put_json(a, &client->answer); /* what cannot be told must not be held */
        bool told = client->answer.err == SM_OK, held = told && hold(call);
        if (told && !held) {
            sm_buf_clear(&client->answer);
            fl_deliver_closed(&core->port, client);
        } else {
            fl_deliver(&core->port, client); /* from here on anybody may commit it */
        }
        if (held)
            return;
    }
    at->nothing_done = true; /* nobody will run it */
    sm_attempt_done(at);
}

static bool recorded(sm_attempt *at, semel_answer *a)
{
    (void)at, (void)a;
    return false; /* what the commit came to is the answer */
}

/* The outcome could not be recorded yet. The effect has happened, and that is the answer. */
static void deliver_owed(const fl_call *call, fl_client *client, const semel_answer *a)
{
    sm_buf *out = &client->answer;
    sm_buf_byte(out, '{');
    sm_put_text(out, "verdict", SM_STR("done"));
    sm_put_text(out, "effect", sm_str_from(call->at.handle));
    sm_put_text(out, "result", SM_STR(SM_UNRECORDED));
    sm_put_text(out, "message", a->message);
    sm_buf_byte(out, '}');
    fl_deliver(&call->core->port, client);
}

static void answer(sm_attempt *at, semel_answer *a)
{
    fl_call *call = call_of(at);
    fl_client *client = sm_attempt_take_client(at);
    bool executes = at->ended == SM_NOT_ENDED && a->verdict == SEMEL_EXECUTE; /* detached */
    if (client == NULL && executes && a->claim.p != NULL)
        sm_attempt_give_back(at, a);
    else if (client != NULL && at->ended == SM_ENDED_BACK)
        fl_deliver_text(&call->core->port, client, SM_STR(SM_RELEASED));
    else if (client != NULL && at->ended == SM_ENDED_OWED && a->code == SEMEL_C_LEDGER_UNAVAILABLE)
        deliver_owed(call, client, a);
    else if (client != NULL)
        fl_deliver_answer(&call->core->port, client, a);
    sm_attempt_end(at);
}

static const sm_attempt_ops holding = {
    .turned = sm_attempt_go_on,
    .until = until,
    .execute = execute,
    .recorded = recorded,
    .answer = answer,
    .parted = parted,
    .end = end,
};

/* "Execute" is an answer like others. */
static const sm_attempt_ops handing = {
    .turned = sm_attempt_go_on,
    .until = until,
    .answer = answer,
    .parted = parted,
    .end = end,
};

/* Its next turn is taken on this thread. */
static void take_here(sm_attempt *at)
{
    fl_own *own = fl_own_get();
    if (own != NULL)
        own->here = &at->job;
}

/* ---- begin -----------------------------------------------------------------------------------*/

static bool keep_call(sm_arena *arena, const semel_call *from, semel_call *to)
{
    *to = *from;
    sm_str *const texts[] = {&to->scope, &to->step, &to->tool, &to->args, &to->key, &to->after};
    return sm_arena_keep(arena, texts, sizeof texts / sizeof *texts);
}

bool fl_begin_known(fl_core *c, fl_client *client, const semel_call *given, semel_answer *a)
{
    sm_asking known = {.call = *given};
    bool replayed = sm_ask_memory(c->ledger, &known, a);
    if (replayed)
        fl_deliver_answer(&c->port, client, a);
    return replayed;
}

void fl_begin(fl_core *c, fl_client *client, const semel_call *given, bool detached)
{
    fl_call *call = calloc(1, sizeof *call);
    if (call != NULL)
        sm_arena_init(&call->arena, SM_ARENA_MAX);
    if (call == NULL || !keep_call(&call->arena, given, &call->at.ask.call)) {
        if (call != NULL)
            sm_arena_fini(&call->arena);
        free(call);
        fl_deliver_problem(&c->port, client, 503, "OVERLOADED", "Try again later.",
                           "There is no memory for the call.");
        return;
    }
    sm_attempt *at = &call->at;
    call->core = c;
    call->deadline_ns = sm_clock_deadline_ns(given->wait_ms);
    at->serve = &c->serve;
    at->ops = detached ? &handing : &holding;
    at->client = client;
    at->outcome_max = SM_OUTCOME_MAX;
    at->ask.lease_ms = detached ? 0 : SM_RUN_LEASE_MS;
    if (detached)
        at->ask.call.flags |= SEMEL_CALL_DETACHED;
    pthread_mutex_lock(&c->serve.lock);
    client->call = call; /* from here on it may be given up */
    pthread_mutex_unlock(&c->serve.lock);
    take_here(at);
    sm_attempt_start(at);
}

/* While an attempt has the client nobody else gives it an answer; and whoever takes it from the
 * attempt does so under the lock. */
bool fl_cancel(fl_core *c, uint64_t tag)
{
    sm_serve *s = &c->serve;
    pthread_mutex_lock(&s->lock);
    fl_client *client;
    fl_call *call = fl_port_find(&c->port, tag, &client);
    bool parked = call != NULL && sm_attempt_lose_client(&call->at);
    pthread_mutex_unlock(&s->lock);
    if (parked)
        sm_attempt_end(&call->at);
    if (call != NULL)
        fl_deliver_problem(&c->port, client, 499, "CANCELED", NULL, "The request was given up.");
    return call != NULL;
}

/* ---- commit ----------------------------------------------------------------------------------*/

static bool keep_outcome(sm_arena *arena, const semel_outcome *from, semel_outcome *to)
{
    *to = *from;
    if (to->value.n > SM_OUTCOME_MAX) { /* it is not kept */
        to->bytes = to->value.n;
        to->value.n = 0;
    }
    sm_str *const texts[] = {&to->value, &to->corrective_action, &to->headers, &to->cost};
    return sm_arena_keep(arena, texts, sizeof texts / sizeof *texts);
}

/* The client takes the attempt, which ends. */
static void finish(fl_call *call, fl_client *client)
{
    call->at.client = client; /* while it executes nobody else looks */
    take_here(&call->at);
    sm_attempt_done(&call->at);
}

bool fl_end_held(fl_core *c, fl_client *client, sm_str claim, const semel_outcome *o)
{
    fl_call *call = take(c, claim);
    if (call == NULL)
        return false;
    if (o != NULL && !keep_outcome(&call->arena, o, &call->at.outcome)) {
        fl_deliver_problem(&c->port, client, 503, "OVERLOADED", "Commit again.",
                           "There is no memory for the outcome.");
        if (!hold(call))
            sm_attempt_end(&call->at);
        return true;
    }
    call->at.nothing_done = o == NULL;
    finish(call, client);
    return true;
}
