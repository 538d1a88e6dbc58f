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
#include "mcp/call.h"
#include "mcp/names.h"
#include "json/canon.h"

#define STEPS_MAX 6u /* for one call of a client: what a chain can have, and a probe that waits */

/* What a resend may have to wait before the server gets it. */
#define SENDING_MS (MCP_AWAY_MS + MCP_STARTING_MS)

/* ---- the worker looks ------------------------------------------------------------------------*/

static void decide(mcp_call *call, mcp_remedy_next next, sm_str why)
{
    call->remedy.next = next;
    call->remedy.why = why;
}

static void send_again(mcp_call *call, const sm_remedy *what, semel_answer *a)
{
    mcp_hub *hub = call->server->hub;
    if (call->a.drift.n > 0) {
        decide(call, MCP_NEXT_HOLD,
               SM_STR("an earlier call had other arguments, and only with those could it be sent "
                      "again"));
    } else if (call->ask.shape == 0 || call->ask.shape != what->shape) {
        decide(call, MCP_NEXT_MEND,
               SM_STR("the contract does not give the server a key where it had been given one, so "
                      "it is not sent again"));
    } else if (what->window_left_ms < SENDING_MS) {
        call->a.retry_after_ms = what->window_left_ms;
        decide(call, MCP_NEXT_LATER, SM_STR("the server may be about to forget its key"));
    } else if (sm_resend(hub->ledger, &call->remedy.effect, SM_RUN_LEASE_MS, a) == SM_OK &&
               a->verdict == SEMEL_EXECUTE) {
        mcp_call_keep(call, a);
        decide(call, MCP_NEXT_SEND, (sm_str){0});
        sm_waits_ring(hub->waits, call->ask.id);
    }
}

/* Whether a call of the probe's tool cannot change anything. */
static bool only_looks(const mcp_call *call, sm_str tool, const sm_json *args)
{
    const sm_tool *entry = sm_contracts_tool(call->ask.contracts, tool);
    return entry != NULL ? sm_contract_variant(&entry->contract, args)->class == SM_CLASS_READ
                         : mcp_call_hinted(call, call->ask.contracts, tool);
}

/* The params of the request that probes. */
static sm_err put_probe(mcp_call *call, sm_str tool, const sm_json *args)
{
    sm_buf out, meta;
    sm_buf_init(&out, MCP_LINE_MAX);
    sm_buf_init(&meta, MCP_LINE_MAX);
    mcp_put_own_meta(&meta, call->meta);
    sm_buf_text(&out, "{\"name\":");
    sm_json_put_string(&out, tool);
    sm_buf_text(&out, ",\"arguments\":");
    sm_err e = sm_json_canon(args, &out, (sm_str){0}, NULL);
    if (meta.len > 0) {
        sm_buf_text(&out, ",\"_meta\":");
        sm_buf_str(&out, sm_buf_view(&meta));
    }
    sm_buf_byte(&out, '}');
    if (e == SM_OK)
        e = out.err != SM_OK ? out.err : meta.err;
    if (e == SM_OK)
        call->remedy.params = sm_arena_text(&call->arena, sm_buf_view(&out));
    sm_buf_fini(&meta);
    sm_buf_fini(&out);
    return e == SM_OK && call->remedy.params.p == NULL ? SEMEL_E_NOMEM : e;
}

static void make_probe(mcp_call *call, const sm_remedy *what)
{
    const sm_contract *c = call->contract;
    const sm_json *args = NULL, *given = NULL;
    sm_fault fault = {0};
    if (c->origin[SM_F_PROBE].given == NULL) {
        decide(call, MCP_NEXT_MEND, SM_STR("the contract names no probe any more"));
        return;
    }
    sm_err e = sm_json_read(&call->arena, what->call.args, &sm_json_args_limits, &args, &fault);
    if (e == SM_OK)
        e = sm_probe_args(&call->arena, &c->probe, args, &given, &fault);
    if (e == SM_OK && !only_looks(call, c->probe.tool, given)) {
        decide(call, MCP_NEXT_MEND,
               sm_arena_printf(&call->arena, "the probe %.*s is no tool that only reads",
                               SM_FMT(c->probe.tool)));
        return;
    }
    if (e == SM_OK)
        e = put_probe(call, c->probe.tool, given);
    call->remedy.settled_ns =
        what->settle_left_ms > 0 ? sm_clock_deadline_ns(what->settle_left_ms) : 0;
    if (e == SM_OK)
        decide(call, MCP_NEXT_PROBE, (sm_str){0});
    else
        decide(call, MCP_NEXT_LATER, SM_STR("the probe could not be made"));
}

void mcp_remedy_look(mcp_call *call, semel_answer *a)
{
    mcp_remedy *r = &call->remedy;
    sm_remedy what;
    decide(call, MCP_NEXT_ASK, (sm_str){0});
    if (!sm_handle_parse("ef_", call->a.effect, &r->effect) ||
        sm_remedy_of(call->server->hub->ledger, &r->effect, a, &what) != SM_OK ||
        what.state != SEMEL_S_IN_DOUBT || what.fence != call->a.fence)
        return; /* it has changed */
    r->effect.fence = what.fence;
    if (what.upstream)
        decide(call, MCP_NEXT_LATER, SM_STR("whoever executed it is finding out"));
    else if (what.step == SM_DOUBT_RESEND)
        send_again(call, &what, a);
    else if (what.step == SM_DOUBT_PROBE)
        make_probe(call, &what);
}

/* ---- the worker finds ------------------------------------------------------------------------*/

static const sm_json *read_value(mcp_call *call, sm_str text)
{
    const sm_json *value = NULL;
    return sm_json_read(&call->arena, text, &sm_json_default_limits, &value, NULL) == SM_OK ? value
                                                                                            : NULL;
}

/* The first text of a result, if it is JSON. */
static const sm_json *read_text(mcp_call *call, sm_str result)
{
    sm_str content, name, item, part;
    size_t cursor = 0;
    if (!mcp_find(result, "content", &content))
        return NULL;
    while (mcp_next(content, &cursor, &name, &item)) {
        if (!mcp_find(item, "type", &part) || !mcp_is(part, "text") ||
            !mcp_find(item, "text", &part))
            continue;
        char *text = sm_arena_alloc(&call->arena, part.n + 1);
        return text != NULL && mcp_text(part, text, part.n + 1)
                   ? read_value(call, sm_str_from(text))
                   : NULL;
    }
    return NULL;
}

/* The part of a probe's answer that is judged; NULL if it has none, or if two readers would read it
 * differently. */
static const sm_json *read_answer(mcp_call *call)
{
    mcp_message m;
    sm_str part;
    char flaw[MCP_FLAW_MAX];
    mcp_read(sm_buf_view(&call->answer), &m);
    if (m.kind != MCP_RESULT || !mcp_names_plain(m.result, &mcp_names_result, flaw) ||
        (mcp_find(m.result, "isError", &part) && mcp_is_true(part)) ||
        (mcp_find(m.result, "resultType", &part) && !mcp_is(part, "complete")))
        return NULL;
    if (mcp_find(m.result, "structuredContent", &part) && !sm_str_is(part, "null"))
        return read_value(call, part);
    const sm_json *text = read_text(call, m.result);
    return text != NULL ? text : read_value(call, m.result);
}

void mcp_remedy_find(mcp_call *call, semel_answer *a)
{
    mcp_remedy *r = &call->remedy;
    mcp_hub *hub = call->server->hub;
    semel_outcome outcome = {.size = sizeof outcome, .kind = SEMEL_SUCCESS};
    sm_found_kind found = sm_probe_judge(&call->arena, &call->contract->probe, read_answer(call),
                                         false, &outcome.value);
    r->early = found == SM_FOUND_ABSENT && sm_clock_mono_ns() < r->settled_ns;
    if (r->early)
        return; /* nothing is known yet that is worth writing down */
    /* If that cannot be written, or there is nothing to write any more, asking tells. */
    sm_probed(hub->ledger, &r->effect, found, &outcome, a);
    sm_waits_ring(hub->waits, call->ask.id);
    mcp_call_ask(call, a);
}

/* ---- on the loop -----------------------------------------------------------------------------*/

static void say_unknown(mcp_call *call, const char *why)
{
    call->a.message = sm_arena_printf(
        &call->said, "The call may or may not have taken effect, which is not known yet: %s.", why);
}

/* It stays in doubt, and may be asked for again. */
static void put_off(mcp_call *call, const char *why)
{
    say_unknown(call, why);
    if (call->x->canceled)
        mcp_call_end(call); /* its client was answered before */
    else
        mcp_call_refuse(call);
}

/* It stays in doubt, and asking again does not help. */
static void hold(mcp_call *call, bool mend)
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
    mcp_call *call = x->context;
    call->remedy.probe = NULL;
    sm_buf_clear(&call->answer);
    if (m != NULL)
        sm_buf_str(&call->answer, m->text);
    if (m == NULL)
        put_off(call, "the server went away while it was asked what became of it");
    else if (call->answer.err != SM_OK)
        put_off(call, "the proxy is out of memory");
    else
        mcp_call_work(call, MCP_FINDING);
}

static void send_probe(mcp_call *call)
{
    mcp_remedy *r = &call->remedy;
    mcp_session *s = call->session;
    const sm_http_field *headers;
    size_t n;
    const mcp_tool *tool = call->listing == NULL
                               ? NULL
                               : mcp_tools_find(call->listing->tools, call->contract->probe.tool);
    bool there = !s->down && !s->starting;
    if (there && mcp_headers_beside(&call->arena, &call->x->way, "tools/call", r->params, tool,
                                    &headers, &n))
        r->probe = mcp_request(s, "tools/call", r->params, headers, n, on_probed, call);
    if (r->probe == NULL)
        put_off(call, "the server cannot be asked now what became of it");
}

static bool led_by_another(const mcp_call *call)
{
    for (const mcp_call *other = call->server->calls; other != NULL; other = other->next)
        if (other != call && other->remedy.leads && other->ask.id == call->ask.id)
            return true;
    return false;
}

bool mcp_remedy_take(mcp_call *call)
{
    mcp_remedy *r = &call->remedy;
    if (call->a.code != SEMEL_C_UPSTREAM_TIMEOUT || call->a.state != SEMEL_S_IN_DOUBT ||
        !call->ask.waits || call->over || r->steps >= STEPS_MAX)
        return false;
    if (!r->leads && led_by_another(call))
        return mcp_call_park(call);
    r->leads = true;
    r->steps++;
    mcp_call_time(call);
    mcp_call_work(call, MCP_REMEDYING);
    return true;
}

void mcp_remedy_looked(mcp_call *call)
{
    mcp_remedy *r = &call->remedy;
    if (r->next == MCP_NEXT_SEND) {
        r->resends = true;
        mcp_call_execute(call);
        return;
    }
    if (call->x->canceled) {
        mcp_call_end(call);
        return;
    }
    switch (r->next) {
    case MCP_NEXT_PROBE:
        mcp_call_decided(call); /* others need not wait for the probe */
        call->stage = MCP_PROBING;
        if (call->over) /* its time was up while a worker had it */
            mcp_remedy_late(call);
        if (mcp_session_ready(call->session))
            send_probe(call);
        break;
    case MCP_NEXT_LATER: put_off(call, r->why.p); break;
    case MCP_NEXT_HOLD:
    case MCP_NEXT_MEND: hold(call, r->next == MCP_NEXT_MEND); break;
    default: mcp_call_work(call, MCP_ASKING); break;
    }
}

bool mcp_remedy_found(mcp_call *call)
{
    const mcp_remedy *r = &call->remedy;
    if (!r->early)
        return false;
    int64_t left_ms = (r->settled_ns - sm_clock_mono_ns()) / 1000000 + 1;
    call->ask.look_ms = left_ms > 1 ? left_ms : 1;
    if (call->x->canceled) {
        mcp_call_end(call);
    } else if (r->settled_ns >= call->deadline_ns || !mcp_call_park(call)) {
        call->a.retry_after_ms = call->ask.look_ms;
        put_off(call, "nothing of it was found, and something may still be under way");
    }
    return true;
}

void mcp_remedy_go_on(mcp_session *s)
{
    mcp_call *next;
    for (mcp_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s && call->stage == MCP_PROBING && call->remedy.probe == NULL &&
            mcp_session_ready(s))
            send_probe(call);
    }
}

void mcp_remedy_late(mcp_call *call)
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

void mcp_remedy_end(mcp_call *call)
{
    mcp_remedy *r = &call->remedy;
    mcp_exchange_free(r->probe);
    r->probe = NULL;
    if (!r->leads)
        return;
    r->leads = false;
    sm_waits_ring(call->server->hub->waits, call->ask.id); /* another one may go on */
}
