/*
 * A call at the server: what it is sent as, and what came of it.
 *
 * What a result says decides what is recorded of it. A tool that answered has answered, whatever it
 * said; what was turned down before any work (unknown tool, wrong parameters) did nothing; a server
 * that asks for input has not begun; a server that was lost after the first byte of the call had
 * left leaves a doubt, and nothing here ever sends it again.
 */
#include <stdio.h>
#include <stdlib.h>

#include "core/budget.h"
#include "json/write.h"
#include "mcp/call/call.h"
#include "mcp/wire/lines.h"
#include "mcp/wire/names.h"

/* ---- executing -------------------------------------------------------------------------------*/

/* A member of an object, at the end of a pointer's tokens. */
static void put_at(sm_buf *out, sm_str object, const sm_str *tokens, uint32_t n, sm_str value)
{
    char name[512];
    sm_str inner = {0};
    snprintf(name, sizeof name, "%.*s", SM_FMT(tokens[0]));
    if (n == 1) {
        sm_raw_put_with(out, object, name, value);
        return;
    }
    sm_buf next;
    sm_buf_init(&next, 2 * MCP_LINE_MAX);
    if (!sm_raw_find(object, name, &inner) || !sm_raw_is_object(inner))
        inner = (sm_str){0};
    put_at(&next, inner, tokens + 1, n - 1, value);
    sm_raw_put_with(out, object, name, sm_buf_view(&next));
    out->err = out->err != SM_OK ? out->err : next.err;
    sm_buf_fini(&next);
}

static bool given(sm_str name)
{
    return name.p != NULL && name.n > 0;
}

/* The params as the server gets them: without what was meant for us, and with the downstream's key
 * where the contract says that it goes, whatever a model wrote there. */
static sm_err put_params(mcp_tool_call *call, sm_buf *out)
{
    const sm_idempotency *how = &call->contract->idempotency;
    sm_buf key, part;
    sm_err e = SM_OK;
    sm_buf_init(&key, 256);
    sm_buf_init(&part, 2 * MCP_LINE_MAX);
    sm_str params = call->params;
    sm_json_put_string(&key, call->a.idempotency_key);
    if (!mcp_call_unrecorded(call) && given(how->meta)) {
        put_at(&part, call->meta, &how->meta, 1, sm_buf_view(&key));
        sm_raw_put_with(out, params, "_meta", sm_buf_view(&part));
    } else if (!mcp_call_unrecorded(call) && given(how->argument)) {
        sm_pointer pointer;
        e = sm_pointer_place(&call->arena, how->argument, &pointer, NULL);
        if (e == SM_OK)
            put_at(&part, call->args, pointer.tokens, pointer.count, sm_buf_view(&key));
        sm_raw_put_with(out, params, "arguments", sm_buf_view(&part));
    } else {
        sm_buf_str(out, params);
    }
    e = e != SM_OK ? e : part.err != SM_OK ? part.err : out->err;
    sm_buf_fini(&part);
    sm_buf_fini(&key);
    return e;
}

/* The message as the server gets it: as it came, but for its params, and what clients that share a
 * link do not share. */
static sm_err put_message(mcp_tool_call *call, sm_buf *out)
{
    mcp_message m, sent;
    sm_buf params, text;
    sm_buf_init(&params, 2 * MCP_LINE_MAX);
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    mcp_read(sm_buf_view(&call->text), &m);
    sm_err e = put_params(call, &params);
    sm_raw_put_edited(&text, m.text, &(sm_raw_edit){.at = m.params, .with = sm_buf_view(&params)},
                      1);
    e = e != SM_OK ? e : text.err;
    if (e == SM_OK && mcp_read(sm_buf_view(&text), &sent))
        mcp_put_sent(out, &sent, call->x);
    sm_buf_fini(&text);
    sm_buf_fini(&params);
    return e != SM_OK ? e : out->err;
}

/* Nothing was done under the claim: it is given back. */
static void give_back(mcp_tool_call *call, sm_health health)
{
    call->at.nothing_done = true;
    call->at.health = health;
    mcp_call_decided(call);
    sm_attempt_done(&call->at);
}

void mcp_call_execute(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    mcp_session *s = call->session;
    mcp_exchange *x = call->x;
    (void)a; /* it is call->a */
    mcp_call_counted(call);
    call->why = (sm_str){0};
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    if (x->canceled) {
        give_back(call, SM_HEALTH_UNTRIED); /* whoever asked has changed their mind in time */
    } else if (put_message(call, &text) != SM_OK) {
        call->why = SM_STR("the proxy is out of memory");
        mcp_call_set_fate(call, MCP_UNANSWERED);
        give_back(call, SM_HEALTH_UNTRIED);
    } else {
        mcp_slot *slot = call->slot;
        call->slot = NULL;
        x->way.write = true;
        if (slot != NULL)
            mcp_slot_decide(s, slot, sm_buf_view(&text));
        else
            mcp_forward(s, sm_buf_view(&text), x);
    }
    sm_buf_fini(&text);
}

/* ---- what the server said --------------------------------------------------------------------*/

/* Whether a JSON-RPC error says that the request was not even understood. Others, wrong parameters
 * among them, are also said by servers whose tool has run. */
static bool not_understood(int code)
{
    return code == -32700 || code == -32600;
}

/* Whether it says that nobody knows: the server's own call was cut short. */
static bool cut_short(int code)
{
    return code == -32000 || code == -32001;
}

/* Whether it says what a server over HTTP says by the status 400: the request's headers, its
 * version, or what its client can do, is not enough. It counts for as much as that. */
static bool not_enough(const mcp_tool_call *call, int code)
{
    return (code == -32020 || code == -32021 || code == -32022) &&
           call->contract->class != SM_CLASS_IRREVERSIBLE;
}

static void judge_error(mcp_tool_call *call, const mcp_message *m)
{
    sm_str code_text;
    char digits[16] = "";
    semel_outcome *o = &call->at.outcome;
    if (sm_raw_find(m->error, "code", &code_text) && code_text.n < sizeof digits)
        memcpy(digits, code_text.p, code_text.n);
    int code = atoi(digits);
    o->kind = SEMEL_FAILURE;
    o->status = code > 0 ? code : code < -1 ? -code : 1; /* none is negative in the ledger */
    o->value = m->error;
    o->applied = not_understood(code) || not_enough(call, code) ? SEMEL_APPLIED_NO
                 : cut_short(code)                              ? SEMEL_APPLIED_UNKNOWN
                                                                : SEMEL_APPLIED_DEFAULT;
}

/* One of the few values that `_meta` has for us; NULL: it is not there. */
static const sm_json *read_meta(mcp_tool_call *call, sm_str meta, const char *name)
{
    const sm_json *value;
    sm_str text;
    bool read = sm_raw_find(meta, name, &text) &&
                sm_json_read(&call->arena, text, &sm_json_default_limits, &value, NULL) == SM_OK;
    return read ? value : NULL;
}

/* What the server says that the call cost. */
static void judge_cost(mcp_tool_call *call, sm_str result)
{
    sm_str meta;
    if (sm_raw_find(result, "_meta", &meta) && sm_raw_is_object(meta))
        sm_spent_take(read_meta(call, meta, "semel/cost"), read_meta(call, meta, "semel/tokens"),
                      &call->at.outcome);
}

/* A tool that says that it failed has answered. What that means for what was done follows from its
 * class: of what is irreversible nobody knows. */
static void judge_result(mcp_tool_call *call, const mcp_message *m)
{
    sm_str failed;
    bool error = sm_raw_find(m->result, "isError", &failed) && sm_raw_is_true(failed);
    call->at.outcome.kind = error ? SEMEL_FAILURE : SEMEL_SUCCESS;
    call->at.outcome.value = m->result;
    judge_cost(call, m->result);
}

void mcp_call_answered(mcp_tool_call *call, const mcp_message *m)
{
    sm_str type;
    sm_buf_clear(&call->answer);
    sm_buf_str(&call->answer, m->text);
    if (call->answer.err != SM_OK) {
        mcp_call_lost(call, &(mcp_loss){.sent = true, .why = "the proxy is out of memory"});
        return;
    }
    mcp_message own;
    char flaw[MCP_FLAW_MAX];
    mcp_read(sm_buf_view(&call->answer), &own);
    if (mcp_call_unrecorded(call)) {
        mcp_call_set_fate(call, MCP_ANSWERED);
        call->at.outcome =
            (semel_outcome){.size = sizeof call->at.outcome,
                            .kind = own.kind == MCP_RESULT ? SEMEL_SUCCESS : SEMEL_FAILURE,
                            .value = own.kind == MCP_RESULT ? own.result : own.error,
                            .is_json = true};
        sm_attempt_done(&call->at);
        return;
    }
    if (!mcp_names_plain(own.result, &mcp_names_result, flaw) ||
        !mcp_names_plain(own.error, &mcp_names_error, flaw)) {
        mcp_call_lost(call, &(mcp_loss){.sent = true, .why = MCP_UNREADABLE});
        return;
    }
    mcp_call_set_fate(call, MCP_ANSWERED);
    call->at.outcome = (semel_outcome){.size = sizeof call->at.outcome};
    call->at.nothing_done = own.kind == MCP_RESULT && call->x->modern &&
                            sm_raw_find(own.result, "resultType", &type) &&
                            sm_raw_is(type, "input_required");
    if (call->at.nothing_done)
        call->at.health = SM_HEALTH_ANSWERED;
    if (own.kind == MCP_RESULT)
        judge_result(call, &own);
    else
        judge_error(call, &own);
    call->at.outcome.bytes = call->at.outcome.value.n;
    sm_attempt_done(&call->at);
}

void mcp_call_overflowed(mcp_tool_call *call, const mcp_text_line *line)
{
    call->overflow = line->length;
    mcp_call_set_fate(call, MCP_OVERFLOWED);
    call->at.outcome = (semel_outcome){.size = sizeof call->at.outcome,
                                       .kind = line->failed ? SEMEL_FAILURE : SEMEL_SUCCESS,
                                       .bytes = line->length};
    sm_attempt_done(&call->at);
}

/* Whether an HTTP status says that the request was turned down at the server's door, so that no
 * tool has seen it. For what is irreversible only those count that nothing else is said by. */
static bool turned_down(const mcp_tool_call *call, const mcp_loss *loss)
{
    switch (loss->status) {
    case 401:
    case 403:
    case 405:
    case 406:
    case 411:
    case 413:
    case 414:
    case 415:
    case 421:
    case 426:
    case 431: return true;
    case 400:
    case 404:
    case 410:
    case 422:
    case 429: return loss->session_gone || call->contract->class != SM_CLASS_IRREVERSIBLE;
    default: return false;
    }
}

void mcp_call_lost(mcp_tool_call *call, const mcp_loss *loss)
{
    call->why = sm_arena_text(&call->arena, sm_str_from(loss->why));
    if (call->why.p == NULL)
        call->why = SM_STR("the proxy is out of memory");
    if (turned_down(call, loss)) {
        call->turned_down = loss->status;
        sm_buf_clear(&call->answer);
        sm_buf_str(&call->answer, loss->body);
        mcp_call_set_fate(call, MCP_TURNED_DOWN);
        give_back(call, loss->status == 429 ? SM_HEALTH_FAILED : SM_HEALTH_ANSWERED);
        return;
    }
    if (!loss->sent) {
        mcp_call_set_fate(call, MCP_UNANSWERED);
        give_back(call, SM_HEALTH_FAILED);
        return;
    }
    if (mcp_call_unrecorded(call)) {
        mcp_call_set_fate(call, MCP_UNANSWERED);
        sm_attempt_done(&call->at);
        return;
    }
    sm_buf_clear(&call->answer);
    sm_buf_byte(&call->answer, '{');
    sm_put_text(&call->answer, "error", call->why);
    sm_buf_byte(&call->answer, '}');
    mcp_call_set_fate(call, MCP_UNKNOWN);
    call->at.outcome = (semel_outcome){.size = sizeof call->at.outcome,
                                       .kind = SEMEL_FAILURE,
                                       .applied = SEMEL_APPLIED_UNKNOWN,
                                       .value = sm_buf_view(&call->answer),
                                       .bytes = call->answer.len};
    sm_attempt_done(&call->at);
}
