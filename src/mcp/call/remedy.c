/*
 * Doubts that the contract says how to settle. Nothing happens in the background: whoever makes the
 * same call again has the next steps of `on_in_doubt` taken, before it is answered.
 *
 *     ask: in doubt --> look --> resend -----------------> execute, as any attempt
 *                        ^  `--> probe --> find --> ask: replay, execute, the next step, or hold
 *                        |                   |
 *                        `-- parked <--------' it is absent, but that does not count yet
 *
 * A resend needs the server to have been given a key, the very arguments that it had, and a server
 * that still knows the key. A probe is asked with the recorded arguments, whoever asks now. What
 * cannot be done is said, and stays in doubt; nothing here ever guesses.
 *
 * In one process one call at a time looks after an effect, and equal ones wait for it. Of several
 * processes the ledger lets one change it.
 */
#include "base/clock.h"
#include "core/probe.h"
#include "json/write.h"
#include "mcp/call/call.h"
#include "mcp/wire/names.h"

#define STEPS_MAX 6u /* for one call of a client: what a chain can have, and a probe that waits */

/* What a resend may have to wait before the server gets it. */
#define SENDING_MS (MCP_AWAY_MS + MCP_STARTING_MS)

/* ---- the worker looks ------------------------------------------------------------------------*/

/* Nothing is done, and why. */
static sm_next stop(mcp_tool_call *call, mcp_stays stays, sm_str why)
{
    call->remedy.stays = stays;
    call->remedy.why = why;
    return SM_NEXT_STOP;
}

static sm_next send_again(mcp_tool_call *call, const sm_remedy *what)
{
    if (call->a.drift.n > 0)
        return stop(call, MCP_STAYS_HELD,
                    SM_STR("an earlier call had other arguments, and only with those could it be "
                           "sent again"));
    if (call->at.ask.shape == 0 || call->at.ask.shape != what->shape)
        return stop(call, MCP_STAYS_MEND,
                    SM_STR("the contract does not give the server a key where it had been given "
                           "one, so it is not sent again"));
    if (what->window_left_ms >= SENDING_MS)
        return SM_NEXT_SEND;
    call->a.retry_after_ms = what->window_left_ms;
    return stop(call, MCP_STAYS_LATER, SM_STR("the server may be about to forget its key"));
}

/* Whether a call of the probe's tool cannot change anything. */
static bool only_looks(const mcp_tool_call *call, sm_str tool, const sm_json *args)
{
    const sm_declared_tool *entry = sm_contracts_tool(call->at.ask.contracts, tool);
    return entry != NULL ? sm_contract_variant(&entry->contract, args)->class == SM_CLASS_READ
                         : mcp_call_hinted(call, call->at.ask.contracts, tool);
}

/* The params of the request that probes. */
static sm_err put_probe(mcp_tool_call *call, sm_str tool, const sm_json *args)
{
    sm_buf out, meta;
    sm_buf_init(&out, MCP_LINE_MAX);
    sm_buf_init(&meta, MCP_LINE_MAX);
    mcp_put_own_meta(&meta, call->meta);
    sm_buf_byte(&out, '{');
    sm_put_text(&out, "name", tool);
    sm_put_name(&out, "arguments");
    sm_err e = sm_json_canon(args, &out, (sm_str){0}, NULL);
    sm_put_raw(&out, "_meta", sm_buf_view(&meta));
    sm_buf_byte(&out, '}');
    if (e == SM_OK)
        e = out.err != SM_OK ? out.err : meta.err;
    if (e == SM_OK)
        call->remedy.params = sm_arena_text(&call->arena, sm_buf_view(&out));
    sm_buf_fini(&meta);
    sm_buf_fini(&out);
    return e == SM_OK && call->remedy.params.p == NULL ? SEMEL_E_NOMEM : e;
}

static sm_next make_probe(mcp_tool_call *call, const sm_remedy *what)
{
    const sm_contract *c = call->contract;
    const sm_json *args = NULL, *given = NULL;
    sm_fault fault = {0};
    if (c->origin[SM_F_PROBE].given == NULL)
        return stop(call, MCP_STAYS_MEND, SM_STR("the contract names no probe any more"));
    sm_err e = sm_json_read(&call->arena, what->call.args, &sm_json_args_limits, &args, &fault);
    if (e == SM_OK)
        e = sm_probe_args(&call->arena, &c->probe, args, &given, &fault);
    if (e == SM_OK && !only_looks(call, c->probe.tool, given))
        return stop(call, MCP_STAYS_MEND,
                    sm_arena_printf(&call->arena, "the probe %.*s is no tool that only reads",
                                    SM_FMT(c->probe.tool)));
    if (e == SM_OK)
        e = put_probe(call, c->probe.tool, given);
    call->remedy.settled_ns =
        what->settle_left_ms > 0 ? sm_clock_deadline_ns(what->settle_left_ms) : 0;
    return e == SM_OK ? SM_NEXT_PROBE
                      : stop(call, MCP_STAYS_LATER, SM_STR("the probe could not be made"));
}

sm_next mcp_remedy_step(sm_attempt *at, const sm_remedy *what, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    (void)a;
    call->remedy.steps++;
    if (what->state != SEMEL_S_IN_DOUBT || what->fence != call->a.fence)
        return SM_NEXT_ASK; /* it has changed */
    if (what->upstream)
        return stop(call, MCP_STAYS_LATER, SM_STR("whoever executed it is finding out"));
    return what->step == SM_DOUBT_RESEND  ? send_again(call, what)
           : what->step == SM_DOUBT_PROBE ? make_probe(call, what)
                                          : SM_NEXT_ASK;
}

/* ---- the worker finds ------------------------------------------------------------------------*/

static const sm_json *read_value(mcp_tool_call *call, sm_str text)
{
    const sm_json *value = NULL;
    return sm_json_read(&call->arena, text, &sm_json_default_limits, &value, NULL) == SM_OK ? value
                                                                                            : NULL;
}

/* The first text of a result, if it is JSON. */
static const sm_json *read_text(mcp_tool_call *call, sm_str result)
{
    sm_str content, name, item, part;
    size_t cursor = 0;
    if (!sm_raw_find(result, "content", &content))
        return NULL;
    while (sm_raw_next(content, &cursor, &name, &item)) {
        if (!sm_raw_find(item, "type", &part) || !sm_raw_is(part, "text") ||
            !sm_raw_find(item, "text", &part))
            continue;
        char *text = sm_arena_alloc(&call->arena, part.n + 1);
        return text != NULL && sm_raw_text(part, text, part.n + 1)
                   ? read_value(call, sm_str_from(text))
                   : NULL;
    }
    return NULL;
}

/* The part of a probe's answer that is judged; NULL if it has none, or if two readers would read it
 * differently. */
static const sm_json *read_answer(mcp_tool_call *call)
{
    mcp_message m;
    sm_str part;
    char flaw[MCP_FLAW_MAX];
    mcp_read(sm_buf_view(&call->answer), &m);
    if (m.kind != MCP_RESULT || !mcp_names_plain(m.result, &mcp_names_result, flaw) ||
        (sm_raw_find(m.result, "isError", &part) && sm_raw_is_true(part)) ||
        (sm_raw_find(m.result, "resultType", &part) && !sm_raw_is(part, "complete")))
        return NULL;
    if (sm_raw_find(m.result, "structuredContent", &part) && !sm_str_is(part, "null"))
        return read_value(call, part);
    const sm_json *text = read_text(call, m.result);
    return text != NULL ? text : read_value(call, m.result);
}

sm_next mcp_remedy_found(sm_attempt *at, sm_found_kind *kind, semel_outcome *outcome, bool *write,
                         semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    (void)a;
    outcome->kind = SEMEL_SUCCESS;
    *kind = sm_probe_judge(&call->arena, &call->contract->probe, read_answer(call), false,
                           &outcome->value);
    bool early = *kind == SM_FOUND_ABSENT && sm_clock_mono_ns() < call->remedy.settled_ns;
    *write = !early; /* nothing is known yet that is worth writing down */
    return early ? stop(call, MCP_STAYS_EARLY, (sm_str){0}) : SM_NEXT_ASK;
}

/* ---- on the loop -----------------------------------------------------------------------------*/

static void say_unknown(mcp_tool_call *call, const char *why)
{
    call->a.message = sm_arena_printf(
        &call->said, "The call may or may not have taken effect, which is not known yet: %s.", why);
}

/* It stays in doubt, and may be asked for again. */
static void put_off(mcp_tool_call *call, const char *why)
{
    say_unknown(call, why);
    if (call->x->canceled)
        mcp_call_end(call); /* its client was answered before */
    else
        mcp_call_refuse(call);
}

/* It stays in doubt, and asking again does not help. */
static void hold(mcp_tool_call *call, bool mend)
{
    semel_answer *a = &call->a;
    sm_str why = call->remedy.why;
    if (mend)
        mcp_say(call->server->hub, MCP_ERROR_LEVEL, "the doubt about %.*s cannot be settled: %.*s",
                SM_FMT(a->effect), SM_FMT(why));
    a->code = SEMEL_C_IN_DOUBT;
    a->retriable = false;
    a->retry_after_ms = 0;
    a->message = sm_arena_printf(&call->said, "The call may or may not have taken effect: %.*s.",
                                 SM_FMT(why));
    mcp_call_refuse(call);
}

static void on_probed(mcp_exchange *x, const mcp_message *m)
{
    mcp_tool_call *call = x->context;
    call->remedy.probe = NULL;
    sm_buf_clear(&call->answer);
    if (m != NULL)
        sm_buf_str(&call->answer, m->text);
    if (m == NULL)
        put_off(call, "the server went away while it was asked what became of it");
    else if (call->answer.err != SM_OK)
        put_off(call, "the proxy is out of memory");
    else
        sm_attempt_probed(&call->at);
}

static void send_probe(mcp_tool_call *call)
{
    mcp_repair *r = &call->remedy;
    mcp_session *s = call->session;
    const sm_http_field *headers;
    size_t n;
    const mcp_tool *tool = call->listing == NULL
                               ? NULL
                               : mcp_tools_find(call->listing->tools, call->contract->probe.tool);
    if (mcp_session_there(s) && mcp_headers_beside(&call->arena, &call->x->way, "tools/call",
                                                   r->params, tool, &headers, &n))
        r->probe = mcp_request(s, "tools/call", r->params, headers, n, on_probed, call);
    if (r->probe == NULL)
        put_off(call, "the server cannot be asked now what became of it");
}

bool mcp_remedy_looks(sm_attempt *at, const semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    bool looks = a->code == SEMEL_C_UPSTREAM_TIMEOUT && a->state == SEMEL_S_IN_DOUBT &&
                 at->ended == SM_NOT_ENDED && at->ask.waits && !at->ask.full &&
                 call->phase != MCP_LATE && !call->x->canceled && call->remedy.steps < STEPS_MAX;
    if (looks)
        mcp_call_time(call);
    return looks;
}

void mcp_remedy_probe(sm_attempt *at)
{
    mcp_tool_call *call = mcp_call_of(at);
    if (call->x->canceled) {
        mcp_call_end(call);
        return;
    }
    mcp_call_decided(call);      /* others need not wait for the probe */
    if (call->phase == MCP_LATE) /* its time was up while a worker had it */
        mcp_remedy_late(call);
    if (mcp_session_ready(call->session))
        send_probe(call);
}

/* It was found absent, which does not count yet: it is looked at again when it does. */
static void wait_until_settled(mcp_tool_call *call)
{
    const mcp_repair *r = &call->remedy;
    int64_t left_ms = (r->settled_ns - sm_clock_mono_ns()) / 1000000 + 1;
    call->at.ask.look_ms = left_ms > 1 ? left_ms : 1;
    if (call->phase != MCP_LATE && r->settled_ns < call->deadline_ns) {
        mcp_call_set_knows(call, MCP_HAS_WAITED); /* a worker may have it from here on */
        if (sm_attempt_park(&call->at, call->deadline_ns))
            return;
    }
    call->a.retry_after_ms = call->at.ask.look_ms;
    put_off(call, "nothing of it was found, and something may still be under way");
}

void mcp_remedy_stays(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    (void)a; /* it is call->a */
    if (call->x->canceled) {
        mcp_call_end(call);
        return;
    }
    switch (call->remedy.stays) {
    case MCP_STAYS_EARLY: wait_until_settled(call); break;
    case MCP_STAYS_LATER: put_off(call, call->remedy.why.p); break;
    case MCP_STAYS_HELD: hold(call, false); break;
    case MCP_STAYS_MEND: hold(call, true); break;
    }
}

void mcp_remedy_go_on(mcp_session *s)
{
    mcp_tool_call *next;
    for (mcp_tool_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s && call->at.stage == SM_AT_PROBING && call->remedy.probe == NULL &&
            mcp_session_ready(s))
            send_probe(call);
    }
}

void mcp_remedy_late(mcp_tool_call *call)
{
    if (call->x->canceled) {
        mcp_call_end(call);
        return;
    }
    /* The client would give up soon. The probe goes on: the next call uses what it finds. */
    say_unknown(call, "the server was asked what became of it, and has not answered yet");
    mcp_call_refuse_early(call);
    mcp_loop_time(call->server->hub->loop, &call->timer, sm_clock_deadline_ns(SM_MCP_LONG_WAIT_MS));
}
