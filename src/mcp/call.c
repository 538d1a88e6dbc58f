/*
 * The way of a call: call.h draws it. Here is its life, what workers do for it, waiting, and what
 * follows from what the ledger said.
 */
#include "mcp/call.h"

#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"

#define ARENA_BYTES ((size_t)160 << 20)

/* ---- life ------------------------------------------------------------------------------------*/

static void take(mcp_post *post);
static void work(sm_job *job, semel_answer *a);
static void wake(sm_waiter *w);
static void on_late(mcp_timer *t);

mcp_call *mcp_call_new(mcp_session *s, const mcp_message *m)
{
    mcp_call *call = calloc(1, sizeof *call);
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
    call->job.run = work;
    call->post.take = take;
    call->waiter.wake = wake;
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

void mcp_call_counted(mcp_call *call)
{
    if (!call->undecided)
        return;
    call->undecided = false;
    call->session->asking--;
    call->session->asking_bytes -= call->text.len;
}

void mcp_call_decided(mcp_call *call)
{
    mcp_session *s = call->session;
    mcp_slot *slot = call->slot;
    mcp_call_counted(call);
    call->slot = NULL;
    if (slot != NULL)
        mcp_slot_decide(s, slot, (sm_str){0});
    mcp_session_regulate(s);
}

void mcp_call_end(mcp_call *call)
{
    mcp_session *s = call->session;
    mcp_hub *hub = s->server->hub;
    mcp_remedy_end(call);
    mcp_call_decided(call);
    if (call->stage == MCP_LISTING)
        mcp_listing_forget(call);
    mcp_loop_untime(hub->loop, &call->timer);
    mcp_progress_end(call);
    *(call->prev != NULL ? &call->prev->next : &s->server->calls) = call->next;
    if (call->next != NULL)
        call->next->prev = call->prev;
    mcp_exchange_free(call->x);
    mcp_listing_drop(call->listing);
    sm_contracts_free(call->ask.contracts);
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

void mcp_call_work(mcp_call *call, mcp_stage stage)
{
    call->stage = stage;
    call->server->hub->elsewhere++;
    sm_pool_add(call->server->hub->pool, &call->job);
}

/* ---- the worker's part -----------------------------------------------------------------------*/

/* The ledger's trouble is for people, not for models. It is said once, until the ledger works. */
static void tell_trouble(mcp_hub *hub, sm_str reason)
{
    if (!atomic_exchange(&hub->told_trouble, true))
        mcp_say(hub, MCP_ERROR_LEVEL, "the ledger cannot be used: %.*s", SM_FMT(reason));
}

void mcp_call_keep(mcp_call *call, const semel_answer *a)
{
    sm_arena_reset(&call->said);
    call->a = *a;
    sm_str *const texts[] = {&call->a.effect,          &call->a.claim,
                             &call->a.request,         &call->a.idempotency_key,
                             &call->a.drift,           &call->a.repeat_of,
                             &call->a.blocked_by,      &call->a.observed,
                             &call->a.message,         &call->a.corrective_action,
                             &call->a.result,          &call->a.outcome.value,
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
    if (a->verdict == SEMEL_EXECUTE && a->claim.p != NULL)
        sm_running_add(call->server->hub->ledger, &call->lease, a, SM_LARGE_OUTCOME_MAX);
}

void mcp_call_ask(mcp_call *call, semel_answer *a)
{
    sm_fault fault = {0};
    sm_err e = call->made ? SM_OK : mcp_call_args(call, a, &fault);
    if (e != SM_OK) {
        *a = (semel_answer){.work = a->work,
                            .verdict = SEMEL_REFUSED,
                            .code = SEMEL_C_BAD_ARGUMENTS,
                            .message =
                                sm_str_from(fault.text[0] != '\0' ? fault.text : semel_err_text(e)),
                            .corrective_action = SM_STR("Correct the call; nothing has run.")};
        call->ask.waits = false;
        mcp_call_keep(call, a);
        return;
    }
    call->made = true;
    sm_ask(call->server->hub->ledger, &call->ask, a);
    mcp_call_keep(call, a);
}

/* It was sent again out of a doubt, and that has not removed the doubt: what the server says of the
 * second time says nothing of the first (I16). One that asks for input may be given that. */
static bool doubt_stays(mcp_call *call, const semel_answer *a)
{
    if (!call->remedy.resends || call->recorded != SM_OK)
        return false;
    if (call->back)
        return call->why.p != NULL;
    if (a->state == SEMEL_S_IN_DOUBT)
        call->why = SM_STR("it was sent once more with the same key, and the server answered that "
                           "this failed");
    return a->state == SEMEL_S_IN_DOUBT;
}

static void on_record_failure(void *context, sm_str reason)
{
    tell_trouble(context, reason);
}

/* Records how it went, or gives the claim back under which nothing was done. Then asks what is to
 * be told, unless the server's own answer is. */
static void record(mcp_call *call, semel_answer *a)
{
    mcp_hub *hub = call->server->hub;
    call->recorded = sm_record(hub->ledger, &call->lease,
                               &(sm_recording){.outcome = call->back ? NULL : &call->outcome,
                                               .actor = call->session->actor,
                                               .patience_ms = SM_RECORD_MS,
                                               .stop = &hub->stopping,
                                               .on_failure = on_record_failure,
                                               .context = hub},
                               a);
    call->put_back = call->recorded == SM_OK && sm_str_is(a->result, SM_PUT_BACK);
    sm_waits_ring(hub->waits, call->ask.id);
    call->unknown = call->unknown || doubt_stays(call, a);
    if (!call->unknown)
        return;
    call->ask.patient = call->ask.ran = true; /* nothing is begun from here */
    mcp_call_ask(call, a);
}

static void decide_approval(mcp_call *call, semel_answer *a)
{
    semel *ledger = call->server->hub->ledger;
    sm_str request = sm_arena_text(&call->arena, call->a.request);
    sm_str actor = call->session->actor;
    if (call->approved)
        semel_approve(ledger, request, actor, a);
    else
        semel_deny(ledger, request, actor, SM_STR("denied in the client"), a);
    sm_waits_ring(call->server->hub->waits, call->ask.id);
    call->ask.joined_generation = 0; /* as if asked for the first time */
    mcp_call_ask(call, a);
}

static void work(sm_job *job, semel_answer *a)
{
    mcp_call *call = (mcp_call *)(void *)((char *)job - offsetof(mcp_call, job));
    switch (call->stage) {
    case MCP_ASKING: mcp_call_ask(call, a); break;
    case MCP_DECIDING: decide_approval(call, a); break;
    case MCP_RECORDING: record(call, a); break;
    case MCP_REMEDYING: mcp_remedy_look(call, a); break;
    case MCP_FINDING: mcp_remedy_find(call, a); break;
    default: break;
    }
    mcp_loop_post(call->server->hub->loop, &call->post);
}

/* ---- waiting ---------------------------------------------------------------------------------*/

static void wake(sm_waiter *w)
{
    mcp_call *call = (mcp_call *)(void *)((char *)w - offsetof(mcp_call, waiter));
    mcp_loop_post(call->server->hub->loop, &call->post);
}

/* Takes a call that is parked back. False: it is being woken. */
static bool unpark(mcp_call *call)
{
    mcp_hub *hub = call->server->hub;
    if (call->stage != MCP_PARKED || !sm_waits_leave(hub->waits, &call->waiter))
        return false;
    hub->elsewhere--;
    return true;
}

void mcp_call_hurry(mcp_call *call)
{
    call->over = true;
    if (call->stage == MCP_PROBING)
        mcp_remedy_late(call);
    else if (unpark(call))
        mcp_call_work(call, MCP_ASKING);
}

void mcp_call_time(mcp_call *call)
{
    if (call->deadline_ns != 0)
        return;
    int64_t wait_ms = mcp_progress_wanted(call->x) ? SM_MCP_LONG_WAIT_MS : SM_MCP_WAIT_MS;
    call->deadline_ns = call->since_ns + wait_ms * 1000000;
    mcp_loop_time(call->server->hub->loop, &call->timer, call->deadline_ns);
}

static void on_late(mcp_timer *t)
{
    mcp_call_hurry((mcp_call *)(void *)((char *)t - offsetof(mcp_call, timer)));
}

bool mcp_call_park(mcp_call *call)
{
    mcp_hub *hub = call->server->hub;
    if (call->over || call->x->canceled)
        return false;
    mcp_call_time(call);
    call->waited = true;
    call->waiter.ask = &call->ask;
    call->stage = MCP_PARKED;
    switch (sm_waits_park(hub->waits, &call->waiter, hub->waiting_max)) {
    case SM_PARKED:
        hub->elsewhere++;
        mcp_call_decided(call);
        return true;
    case SM_RUNG: mcp_call_work(call, MCP_ASKING); return true;
    default: return false;
    }
}

/* ---- back on the loop ------------------------------------------------------------------------*/

static void on_asked(mcp_call *call)
{
    semel_answer *a = &call->a;
    if (a->code == SEMEL_C_LEDGER_UNAVAILABLE)
        tell_trouble(call->server->hub, a->message);
    else if (!sm_str_is(a->result, SM_UNRECORDED))
        atomic_store(&call->server->hub->told_trouble, false);
    if (a->verdict == SEMEL_EXECUTE) {
        mcp_call_execute(call);
    } else if (call->x->canceled) {
        mcp_call_end(call);
    } else if (a->verdict == SEMEL_REPLAY) {
        mcp_call_replay(call);
    } else if (call->ask.full && (call->ask.turned_away || a->code == SEMEL_C_ILLEGAL_STATE)) {
        mcp_call_refuse_with(call, SEMEL_C_BAD_ARGUMENTS,
                             "Make the call again and give all arguments, also those that have a "
                             "default; nothing has run.",
                             "The call leaves out arguments, and the server's defaults for them "
                             "are not those by which the contract would judge it.");
    } else if (a->code == SEMEL_C_AWAITING_APPROVAL) {
        /* The first to be told is told at once, for somebody has to be asked; whoever comes back
         * waits for it. */
        if (!mcp_approve_here(call) &&
            !(call->ask.waits && (call->repeat_pending || call->waited) && mcp_call_park(call)))
            mcp_call_refuse(call);
    } else if ((call->ask.full || !mcp_remedy_take(call)) &&
               (!call->ask.waits || a->code == SEMEL_C_UPSTREAM_TIMEOUT || !mcp_call_park(call))) {
        mcp_call_refuse(call);
    }
}

/* Our attempt has ended in doubt: what is said of that says why. */
static void explain_doubt(mcp_call *call)
{
    semel_answer *a = &call->a;
    bool doubt = a->code == SEMEL_C_IN_DOUBT || a->code == SEMEL_C_UPSTREAM_TIMEOUT;
    bool unheard = call->recorded != SM_OK || a->code == SEMEL_C_LEDGER_UNAVAILABLE;
    if (unheard && !doubt) {
        *a = (semel_answer){.verdict = SEMEL_REFUSED, .code = SEMEL_C_IN_DOUBT};
        a->effect = sm_str_from(call->handle);
        doubt = true;
    }
    if (doubt && a->blocked_by.p == NULL)
        a->message = sm_arena_printf(
            &call->said, "The call may or may not have taken effect: %.*s.", SM_FMT(call->why));
}

void mcp_call_recorded(mcp_call *call)
{
    if (call->recorded != SM_OK && !call->back)
        mcp_say(call->server->hub, MCP_ERROR_LEVEL,
                "%s has run, and its outcome could not be recorded yet", call->handle);
    if (call->put_back)
        mcp_say(call->server->hub, MCP_ERROR_LEVEL,
                "the ledger had lost the record of %s, which ran; it was put back", call->handle);
    if (call->x->canceled) {
        mcp_call_end(call);
    } else if (call->unknown) {
        explain_doubt(call);
        if (call->a.verdict == SEMEL_REPLAY)
            mcp_call_replay(call);
        else
            mcp_call_refuse(call);
    } else if (call->turned_down != 0 && call->x->channel != NULL && call->x->batch == NULL) {
        mcp_loss loss = {.status = call->turned_down, .body = sm_buf_view(&call->answer)};
        call->session->client.fail(call->session->client.context, call->x->channel, &loss);
        mcp_call_end(call);
    } else if (call->back && call->why.p != NULL) {
        mcp_call_refuse_with(call, SEMEL_C_UPSTREAM_FAILED, "Ask again later with the same call.",
                             "Nothing was done: %.*s.", SM_FMT(call->why));
    } else if (call->overflow > 0) {
        mcp_call_overflow(call);
    } else {
        mcp_call_pass(call);
    }
}

static void go_on(mcp_call *call)
{
    switch (call->stage) {
    case MCP_PARKED: /* woken */
        if (call->x->canceled)
            mcp_call_end(call);
        else
            mcp_call_work(call, MCP_ASKING);
        break;
    case MCP_ASKING:
    case MCP_DECIDING: on_asked(call); break;
    case MCP_RECORDING: mcp_call_recorded(call); break;
    case MCP_REMEDYING: mcp_remedy_looked(call); break;
    case MCP_FINDING:
        if (!mcp_remedy_found(call))
            on_asked(call);
        break;
    default: break;
    }
}

static void take(mcp_post *post)
{
    mcp_call *call = (mcp_call *)(void *)((char *)post - offsetof(mcp_call, post));
    mcp_hub *hub = call->server->hub;
    hub->elsewhere--;
    go_on(call);
    if (hub->elsewhere == 0 && hub->settling)
        mcp_loop_stop(hub->loop);
}

void mcp_hub_settle(mcp_hub *hub)
{
    atomic_store(&hub->stopping, true);
    hub->settling = true;
    if (hub->elsewhere > 0)
        mcp_loop_run(hub->loop);
    hub->settling = false;
}

void mcp_call_canceled(mcp_call *call)
{
    call->x->canceled = true;
    if (call->stage == MCP_ELICITING || call->stage == MCP_PROBING || unpark(call))
        mcp_call_end(call);
}

void mcp_call_abandon(mcp_call *call)
{
    sm_running_remove(call->server->hub->ledger, &call->lease);
    mcp_call_end(call);
}
