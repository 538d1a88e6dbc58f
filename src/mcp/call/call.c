/*
 * The life of a call, and what it does for the machine (serve/attempt.h): how its turns come back
 * to the loop, how long it waits, and what follows from what the ledger said.
 */
#include "mcp/call/call.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"

#define ARENA_BYTES ((size_t)160 << 20)

/* ---- its state -------------------------------------------------------------------------------*/

/* What is wrong with what the loop knows of its state, or NULL. */
static const char *phase_flaw(const mcp_tool_call *call)
{
    sm_stage stage = sm_attempt_stage(&call->at);
    if (mcp_call_started(call) ? call->x == NULL && stage != SM_AT_END : stage != SM_AT_REST)
        return "it is asked for by nobody, or before it is started";
    if (call->phase == MCP_LATE ? call->deadline_ns == 0 || stage == SM_AT_REST
                                : !mcp_call_started(call) && call->deadline_ns != 0)
        return "it is late without having waited, or waits before it is started";
    if (call->undecided ? call->session->asking == 0 : call->slot != NULL)
        return "it is not counted, or has a place without being counted";
    return NULL;
}

/* What is wrong with what only its owner may look at, or NULL. */
static const char *call_flaw(const mcp_tool_call *call)
{
    bool begun = sm_attempt_stage(&call->at) != SM_AT_REST;
    bool brought = call->consent == MCP_BROUGHT_YES || call->consent == MCP_BROUGHT_NO;
    if (brought && call->said_about.p == NULL)
        return "an answer about nothing";
    if (!begun && (call->consent == MCP_APPROVED || call->consent == MCP_DENIED))
        return "decided before the ledger asked for it";
    if (!begun && call->knows != MCP_KNOWS_NOTHING)
        return "it was told of what the ledger was not asked for";
    if (call->fate != MCP_UNENDED && call->at.hold == SM_HOLDS_NOTHING)
        return "it has ended at the server, and may not be there";
    switch (call->fate) {
    case MCP_UNENDED:
    case MCP_ANSWERED: return call->why.p != NULL ? "it was not lost, and why" : NULL;
    case MCP_OVERFLOWED: return call->overflow == 0 ? "too long a result of no length" : NULL;
    case MCP_TURNED_DOWN:
        return call->turned_down == 0 || call->why.p == NULL ? "turned down by nothing" : NULL;
    case MCP_UNANSWERED: return call->why.p == NULL ? "lost for no reason" : NULL;
    case MCP_UNKNOWN:
        return call->why.p == NULL         ? "lost for no reason"
               : mcp_call_unrecorded(call) ? "a doubt of which there is no record"
                                           : NULL;
    }
    return "its fate is none";
}

void mcp_call_enter(mcp_tool_call *call, mcp_phase phase)
{
    assert(call->phase <= phase);
    call->phase = phase;
    assert(phase_flaw(call) == NULL);
}

void mcp_call_set_consent(mcp_tool_call *call, mcp_consent consent)
{
    call->consent = consent;
    assert(call_flaw(call) == NULL);
}

void mcp_call_set_knows(mcp_tool_call *call, mcp_knows knows)
{
    assert(call->knows != MCP_HAS_WAITED || knows == MCP_HAS_WAITED);
    call->knows = knows;
    assert(call_flaw(call) == NULL);
}

void mcp_call_set_fate(mcp_tool_call *call, mcp_fate fate)
{
    assert(call->fate == MCP_UNENDED || fate == MCP_UNKNOWN);
    call->fate = fate;
    assert(call_flaw(call) == NULL);
}

/* ---- life ------------------------------------------------------------------------------------*/

static void take(mcp_post *post);
static void on_late(mcp_alarm *t);
static const sm_attempt_ops ops;

mcp_tool_call *mcp_call_new(mcp_session *s, const mcp_message *m)
{
    mcp_tool_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return NULL;
    sm_buf_init(&call->text, 2 * MCP_LINE_MAX);
    sm_buf_init(&call->answer, 2 * MCP_LINE_MAX);
    sm_buf_init(&call->question, MCP_OWN_ID_MAX);
    sm_arena_init(&call->arena, ARENA_BYTES);
    sm_arena_init(&call->said, ARENA_BYTES);
    sm_buf_str(&call->text, m->text);
    call->session = s;
    call->server = s->server;
    call->at.serve = &s->server->hub->serve;
    call->at.ops = &ops;
    call->at.outcome_max = SM_LARGE_OUTCOME_MAX;
    call->post.take = take;
    call->timer.due = on_late;
    call->since_ns = sm_clock_mono_ns();
    call->next = s->server->calls;
    if (call->next != NULL)
        call->next->prev = call;
    s->server->calls = call;
    sm_shares_take(&s->server->hub->calls, s->actor);
    s->writes++;
    s->asking++;
    s->asking_bytes += call->text.len;
    call->undecided = true;
    return call;
}

void mcp_call_counted(mcp_tool_call *call)
{
    if (!call->undecided)
        return;
    call->undecided = false;
    call->session->asking--;
    call->session->asking_bytes -= call->text.len;
}

void mcp_call_decided(mcp_tool_call *call)
{
    mcp_session *s = call->session;
    mcp_slot *slot = call->slot;
    mcp_call_counted(call);
    call->slot = NULL;
    assert(phase_flaw(call) == NULL);
    if (slot != NULL)
        mcp_slot_decide(s, slot, (sm_str){0});
    mcp_session_regulate(s);
}

static void release(sm_attempt *at)
{
    mcp_tool_call *call = mcp_call_of(at);
    mcp_session *s = call->session;
    mcp_hub *hub = s->server->hub;
    mcp_call_decided(call);
    if (call->phase == MCP_LISTING)
        mcp_listing_forget(call);
    mcp_loop_untime(hub->loop, &call->timer);
    mcp_progress_end(call);
    *(call->prev != NULL ? &call->prev->next : &s->server->calls) = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    mcp_exchange_free(call->remedy.probe);
    mcp_exchange_free(call->x);
    mcp_listing_drop(call->listing);
    sm_contracts_free(call->at.ask.contracts);
    sm_arena_fini(&call->said);
    sm_arena_fini(&call->arena);
    sm_buf_fini(&call->question);
    sm_buf_fini(&call->answer);
    sm_buf_fini(&call->text);
    free(call);
    sm_shares_give(&hub->calls, s->actor);
    s->writes--;
    mcp_session_rest(s);
}

void mcp_call_end(mcp_tool_call *call)
{
    if (mcp_call_started(call))
        sm_attempt_end(&call->at);
    else
        release(&call->at);
}

void mcp_call_begin(mcp_tool_call *call)
{
    mcp_call_enter(call, MCP_STARTED);
    call->at.client = call->x;
    sm_attempt_start(&call->at);
}

/* ---- the worker's part -----------------------------------------------------------------------*/

/* The ledger's trouble is for people, not for models. It is said once, until the ledger works. */
static void tell_trouble(mcp_hub *hub, sm_str reason)
{
    if (!atomic_exchange(&hub->told_trouble, true))
        mcp_say(hub, MCP_ERROR_LEVEL, "the ledger cannot be used: %.*s", SM_FMT(reason));
}

static void on_record_failure(void *context, sm_str reason)
{
    tell_trouble(context, reason);
}

void mcp_call_keep(mcp_tool_call *call, const semel_answer *a)
{
    sm_arena_reset(&call->said);
    call->a = *a;
    sm_str *const texts[] = {&call->a.effect,          &call->a.claim,
                             &call->a.request,         &call->a.idempotency_key,
                             &call->a.drift,           &call->a.repeat_of,
                             &call->a.blocked_by,      &call->a.observed,
                             &call->a.message,         &call->a.corrective_action,
                             &call->a.result,          &call->a.warning,
                             &call->a.detector,        &call->a.outcome.value,
                             &call->a.outcome.headers, &call->a.outcome.corrective_action};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (texts[i]->p == NULL)
            continue;
        *texts[i] = sm_arena_text(&call->said, *texts[i]);
        if (texts[i]->p == NULL)
            *texts[i] = SM_STR("");
    }
    call->a.work = NULL;
    call->settled_at = sm_settled_at(a, &call->window_end);
}

/* It was sent again out of a doubt, and that has not removed the doubt: what the server says of the
 * second time says nothing of the first (I16). One that asks for input may be given that. */
static bool doubt_stays(mcp_tool_call *call, const semel_answer *a)
{
    if (!call->at.resends || call->at.ended == SM_ENDED_OWED)
        return false;
    if (call->at.nothing_done)
        return call->why.p != NULL;
    if (a->state == SEMEL_S_IN_DOUBT)
        call->why = SM_STR("it was sent once more with the same key, and the server answered that "
                           "this failed");
    return a->state == SEMEL_S_IN_DOUBT;
}

static bool on_make(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    sm_fault fault = {0};
    sm_err e = mcp_call_args(call, a, &fault);
    if (e != SM_OK)
        *a = (semel_answer){
            .work = a->work,
            .verdict = SEMEL_REFUSED,
            .code = SEMEL_C_BAD_ARGUMENTS,
            .message = sm_arena_text(
                &call->arena, sm_str_from(fault.text[0] != '\0' ? fault.text : semel_err_text(e))),
            .corrective_action = SM_STR("Correct the call; nothing has run.")};
    return e == SM_OK;
}

/* What is told after an attempt: the server's own answer, or what the ledger says. */
static bool on_recorded(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    if (call->fate != MCP_UNKNOWN && !mcp_call_unrecorded(call) && doubt_stays(call, a))
        mcp_call_set_fate(call, MCP_UNKNOWN);
    at->ask.patient = true; /* nothing is begun from here */
    return call->fate == MCP_UNKNOWN;
}

/* Whether the ledger was asked in this turn, or gave a claim. */
static bool has_asked(const sm_attempt *at)
{
    switch (sm_attempt_stage(at)) {
    case SM_AT_RECORDING: return at->told_by_ledger;
    case SM_AT_LOOKING: return at->next == SM_NEXT_SEND;
    case SM_AT_FINDING: return at->next == SM_NEXT_ASK;
    default: return true;
    }
}

static void on_turned(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    mcp_hub *hub = call->server->hub;
    if (has_asked(at)) {
        mcp_call_keep(call, a);
        if (a->code == SEMEL_C_LEDGER_UNAVAILABLE)
            tell_trouble(hub, a->message);
        else if (!sm_str_is(a->result, SM_UNRECORDED))
            atomic_store(&hub->told_trouble, false);
    } else if (a->warning.p != NULL) { /* it has run, and its run repeats itself */
        call->a.warning = sm_arena_text(&call->said, a->warning);
    }
    mcp_loop_post(hub->loop, &call->post);
}

static void on_woken(sm_attempt *at)
{
    mcp_tool_call *call = mcp_call_of(at);
    mcp_loop_post(call->server->hub->loop, &call->post);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

void mcp_call_hurry(mcp_tool_call *call)
{
    mcp_call_enter(call, MCP_LATE);
    if (call->at.stage == SM_AT_PROBING)
        mcp_remedy_late(call);
    else
        sm_attempt_hurry(&call->at);
}

void mcp_call_time(mcp_tool_call *call)
{
    if (call->deadline_ns != 0)
        return;
    int64_t wait_ms = mcp_progress_wanted(call->x) ? SM_MCP_LONG_WAIT_MS : SM_MCP_WAIT_MS;
    call->deadline_ns = call->since_ns + wait_ms * 1000000;
    mcp_loop_time(call->server->hub->loop, &call->timer, call->deadline_ns);
}

static void on_late(mcp_alarm *t)
{
    mcp_call_hurry(SM_CONTAINER(t, mcp_tool_call, timer));
}

/* Whether somebody will change what a refusal says is missing. A doubt is another call's to look
 * after, or this one's own, before it waits. The first to be told of an approval is told at once,
 * for somebody has to be asked; whoever comes back waits for it. */
static bool worth_waiting(const mcp_tool_call *call, const semel_answer *a)
{
    switch (a->code) {
    case SEMEL_C_UPSTREAM_TIMEOUT: return mcp_remedy_looks((sm_attempt *)&call->at, a);
    case SEMEL_C_AWAITING_APPROVAL: return call->knows != MCP_KNOWS_NOTHING;
    default: return true;
    }
}

static int64_t until(sm_attempt *at, const semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    if (call->phase == MCP_LATE || call->x->canceled || !worth_waiting(call, a))
        return 0;
    mcp_call_time(call);
    mcp_call_decided(call);
    mcp_call_set_knows(call, MCP_HAS_WAITED);
    return call->deadline_ns;
}

/* ---- what is told ----------------------------------------------------------------------------*/

static bool on_detour(sm_attempt *at, semel_answer *a)
{
    return a->code == SEMEL_C_AWAITING_APPROVAL && at->ended == SM_NOT_ENDED &&
           !mcp_call_of(at)->x->canceled && mcp_approve_here(at, a);
}

/* Answers with what the ledger said. */
static void answer_ledger(mcp_tool_call *call)
{
    const semel_answer *a = &call->a;
    const sm_asking *q = &call->at.ask;
    if (a->verdict == SEMEL_REPLAY)
        mcp_call_replay(call);
    else if (call->at.ended == SM_NOT_ENDED && q->full &&
             (q->turned_away || a->code == SEMEL_C_ILLEGAL_STATE))
        mcp_call_refuse_with(call, SEMEL_C_BAD_ARGUMENTS,
                             "Make the call again and give all arguments, also those that have a "
                             "default; nothing has run.",
                             "The call leaves out arguments, and the server's defaults for them "
                             "are not those by which the contract would judge it.");
    else
        mcp_call_refuse(call);
}

/* Our attempt has ended in doubt: what is said of that says why. */
static void explain_doubt(mcp_tool_call *call)
{
    semel_answer *a = &call->a;
    bool doubt = a->code == SEMEL_C_IN_DOUBT || a->code == SEMEL_C_UPSTREAM_TIMEOUT;
    bool unheard = call->at.ended == SM_ENDED_OWED || a->code == SEMEL_C_LEDGER_UNAVAILABLE;
    if (unheard && !doubt) {
        *a = (semel_answer){.verdict = SEMEL_REFUSED, .code = SEMEL_C_IN_DOUBT};
        a->effect = sm_str_from(call->at.handle);
        doubt = true;
    }
    if (doubt && a->blocked_by.p == NULL)
        a->message = sm_arena_printf(
            &call->said, "The call may or may not have taken effect: %.*s.", SM_FMT(call->why));
}

static void answer_unanswered(mcp_tool_call *call)
{
    bool nothing = call->at.nothing_done;
    mcp_call_refuse_with(call, SEMEL_C_UPSTREAM_FAILED, "Ask again later with the same call.",
                         nothing ? "Nothing was done: %.*s." : "The call got no answer: %.*s.",
                         SM_FMT(call->why));
}

/* Over HTTP the client gets the status as it is. */
static void answer_turned_down(mcp_tool_call *call)
{
    mcp_loss loss = {.status = call->turned_down, .body = sm_buf_view(&call->answer)};
    if (call->x->channel == NULL || call->x->batch != NULL) {
        answer_unanswered(call);
        return;
    }
    call->session->client.fail(call->session->client.context, call->x->channel, &loss);
    mcp_call_end(call);
}

/* Answers with how it ended at the server. */
static void answer_own(mcp_tool_call *call)
{
    switch (call->fate) {
    case MCP_UNENDED:
    case MCP_ANSWERED: mcp_call_pass(call); break;
    case MCP_OVERFLOWED: mcp_call_overflow(call); break;
    case MCP_TURNED_DOWN: answer_turned_down(call); break;
    case MCP_UNANSWERED: answer_unanswered(call); break;
    case MCP_UNKNOWN:
        explain_doubt(call);
        answer_ledger(call);
        break;
    }
}

static void on_answer(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    mcp_hub *hub = call->server->hub;
    (void)a; /* it is call->a */
    if (at->ended == SM_ENDED_OWED)
        mcp_say(hub, MCP_ERROR_LEVEL, "%s has run, and its outcome could not be recorded yet",
                at->handle);
    if (at->ended == SM_ENDED_PUT_BACK)
        mcp_say(hub, MCP_ERROR_LEVEL,
                "the ledger had lost the record of %s, which ran; it was put back", at->handle);
    if (call->x->canceled)
        mcp_call_end(call);
    else if (at->ended == SM_NOT_ENDED)
        answer_ledger(call);
    else
        answer_own(call);
}

static const sm_attempt_ops ops = {
    .turned = on_turned,
    .woken = on_woken,
    .make = on_make,
    .prepare = mcp_call_prepare,
    .detour = on_detour,
    .until = until,
    .execute = mcp_call_execute,
    .recorded = on_recorded,
    .answer = on_answer,
    .end = release,
    .looks = mcp_remedy_looks,
    .step = mcp_remedy_step,
    .probe = mcp_remedy_probe,
    .found = mcp_remedy_found,
    .stays = mcp_remedy_stays,
};

/* ---- back on the loop ------------------------------------------------------------------------*/

static void take(mcp_post *post)
{
    mcp_tool_call *call = SM_CONTAINER(post, mcp_tool_call, post);
    mcp_hub *hub = call->server->hub;
    if (call->at.stage != SM_AT_PARKED)
        sm_attempt_go_on(&call->at, &call->a);
    else if (call->x->canceled) /* woken */
        mcp_call_end(call);
    else
        sm_attempt_ask(&call->at, NULL);
    if (hub->settling && atomic_load(&hub->serve.away) == 0)
        mcp_loop_stop(hub->loop);
}

void mcp_hub_start(mcp_hub *hub)
{
    hub->serve = (sm_serve){.deps = &sm_serve_real,
                            .ledger = hub->ledger,
                            .pool = hub->pool,
                            .waits = hub->waits,
                            .record_ms = SM_RECORD_MS,
                            .waiting_max = hub->waiting_max,
                            .ending = &hub->stopping,
                            .on_failure = on_record_failure,
                            .context = hub};
    sm_serve_init(&hub->serve);
}

void mcp_hub_settle(mcp_hub *hub)
{
    atomic_store(&hub->stopping, true);
    hub->settling = true;
    while (atomic_load(&hub->serve.away) > 0)
        mcp_loop_run(hub->loop); /* others may stop it, too */
    hub->settling = false;
}

void mcp_call_canceled(mcp_tool_call *call)
{
    sm_attempt *at = &call->at;
    call->x->canceled = true;
    if (!mcp_call_started(call))
        return;
    pthread_mutex_lock(&at->serve->lock);
    bool parked = sm_attempt_lose_client(at);
    pthread_mutex_unlock(&at->serve->lock);
    if (parked || at->stage == SM_AT_DOOR || at->stage == SM_AT_PROBING)
        mcp_call_end(call);
}
