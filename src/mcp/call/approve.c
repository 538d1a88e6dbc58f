/*
 * Asking the client's own user for an approval, where the contract lets whoever asks approve.
 *
 * In the era of sessions that is a question to the client in the middle of the call
 * (elicitation/create); later it is an answer that asks for input, after which the client makes the
 * call again. What it comes back with names the approval request; that counts only if the ledger,
 * asked anew, still awaits that very request for this very call (I7), so nothing has to be signed.
 */
#include "base/base64.h"
#include "base/visible.h"
#include "json/write.h"
#include "mcp/call/call.h"
#include "mcp/wire/names.h"

#define STATE    "semel-approval:"
#define QUESTION "semel-approval"

#define SHOWN_MAX 4000u /* bytes of the arguments that the user is shown */

/* The arguments by value, so that spaces and escapes cannot hide anything. */
static void put_args(sm_buf *out, mcp_tool_call *call)
{
    const sm_json *value = NULL;
    sm_buf canon;
    sm_buf_init(&canon, 2 * MCP_LINE_MAX);
    if (sm_json_read(&call->arena, call->at.ask.call.args, &sm_json_args_limits, &value, NULL) !=
            SM_OK ||
        sm_json_canon(value, &canon, (sm_str){0}, NULL) != SM_OK || canon.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_str shown = sm_buf_view(&canon);
    while (shown.n > SHOWN_MAX || (shown.n < canon.len && (shown.p[shown.n] & 0xC0) == 0x80))
        shown.n = shown.n > SHOWN_MAX ? SHOWN_MAX : shown.n - 1;
    sm_visible_put(out, shown);
    if (shown.n < canon.len)
        sm_buf_printf(out, "... (%zu bytes in all; semel show %.*s shows them)", canon.len,
                      SM_FMT(call->a.effect));
    sm_buf_fini(&canon);
}

/* What the user is asked: a sentence with the tool and its arguments, and a box to tick. */
static void put_question(sm_buf *out, mcp_tool_call *call)
{
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    sm_buf_text(&text, "Allow this call of ");
    sm_visible_put(&text, call->tool);
    sm_buf_text(&text, ", once?\n");
    put_args(&text, call);
    if (text.err != SM_OK)
        out->err = text.err;
    sm_buf_byte(out, '{');
    sm_put_text(out, "mode", SM_STR("form"));
    sm_put_text(out, "message", sm_buf_view(&text));
    sm_put_raw(out, "requestedSchema",
               SM_STR("{\"type\":\"object\",\"properties\":{\"approve\":{\"type\":\"boolean\","
                      "\"title\":\"Approve\",\"description\":"
                      "\"Yes: it runs once, with exactly these arguments.\"}},"
                      "\"required\":[\"approve\"]}"));
    sm_buf_byte(out, '}');
    sm_buf_fini(&text);
}

static bool ask_legacy(mcp_tool_call *call)
{
    mcp_session *s = call->session;
    char id[MCP_OWN_ID_MAX];
    size_t n = mcp_question_id(s, id);
    sm_buf_clear(&call->question);
    sm_buf_bytes(&call->question, id, n);
    sm_buf out;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    mcp_put_request(&out, (sm_str){id, n}, "elicitation/create");
    sm_put_name(&out, "params");
    put_question(&out, call);
    sm_buf_byte(&out, '}');
    bool right = out.err == SM_OK && call->question.err == SM_OK;
    if (right) {
        mcp_call_decided(call);
        sm_attempt_take(&call->at);
        mcp_tell_client(s, call->x->channel, sm_buf_view(&out));
    }
    sm_buf_fini(&out);
    return right;
}

/* What the call brought to answer the server's own questions, for when it comes back: the client
 * keeps one state only. */
static void put_legs(sm_buf *out, const mcp_tool_call *call)
{
    static const char *const names[] = {"requestState", "inputResponses"};
    sm_buf legs;
    sm_str part;
    sm_buf_init(&legs, MCP_LINE_MAX);
    sm_buf_byte(&legs, '{');
    for (size_t i = 0; i < 2; i++)
        if (sm_raw_find(call->params, names[i], &part))
            sm_put_raw(&legs, names[i], part);
    if (legs.len > 1) {
        sm_buf_byte(&legs, '}');
        sm_buf_byte(out, ':');
        sm_base64_put(out, sm_buf_view(&legs));
    }
    out->err = out->err != SM_OK ? out->err : legs.err;
    sm_buf_fini(&legs);
}

static bool ask_modern(mcp_tool_call *call)
{
    sm_buf out;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    sm_buf_byte(&out, '{');
    sm_put_text(&out, "resultType", SM_STR("input_required"));
    sm_put_open(&out, "inputRequests", '{');
    sm_put_open(&out, QUESTION, '{');
    sm_put_text(&out, "method", SM_STR("elicitation/create"));
    sm_put_name(&out, "params");
    put_question(&out, call);
    sm_buf_text(&out, "}}");
    sm_put_open(&out, "requestState", '"');
    sm_buf_printf(&out, STATE "%.*s", SM_FMT(call->a.request));
    put_legs(&out, call);
    sm_buf_text(&out, "\"}");
    bool right = out.err == SM_OK;
    if (right) {
        mcp_exchange *x = call->x;
        call->x = NULL;
        mcp_reply_result(x, sm_buf_view(&out));
        mcp_call_end(call);
    }
    sm_buf_fini(&out);
    return right;
}

/* Whether the client says, with a modern request, that it can ask its user. */
static bool elicits(const mcp_tool_call *call)
{
    sm_str part;
    return sm_raw_find(call->meta, "io.modelcontextprotocol/clientCapabilities", &part) &&
           sm_raw_find(part, "elicitation", &part);
}

/* On a worker: writes down what the user said. Then the ledger is asked as if for the first time.
 */
static void decide(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    semel *ledger = call->server->hub->ledger;
    sm_str request = sm_arena_text(&call->arena, call->a.request);
    sm_str actor = call->session->actor;
    if (call->consent == MCP_APPROVED)
        semel_approve(ledger, request, actor, a);
    else
        semel_deny(ledger, request, actor, SM_STR("denied in the client"), a);
    sm_waits_ring(call->server->hub->waits, at->ask.id);
    at->ask.joined_generation = 0;
}

bool mcp_approve_here(sm_attempt *at, semel_answer *a)
{
    mcp_tool_call *call = mcp_call_of(at);
    (void)a; /* it is call->a */
    const sm_approval *how = &call->contract->approval;
    if (call->contract == NULL || !how->self_approval || how->via != 0 ||
        !call->server->o.approve_here || call->a.request.p == NULL)
        return false;
    switch (call->consent) {
    case MCP_UNASKED: break;
    case MCP_BROUGHT_YES:
    case MCP_BROUGHT_NO:
        if (!sm_str_eq(call->said_about, call->a.request))
            break;
        mcp_call_set_consent(call, call->consent == MCP_BROUGHT_YES ? MCP_APPROVED : MCP_DENIED);
        sm_attempt_ask(&call->at, decide);
        return true;
    case MCP_APPROVED:
    case MCP_DENIED:
    case MCP_PUT_ASIDE: return false;
    }
    return call->x->modern ? elicits(call) && ask_modern(call)
                           : call->session->elicits && ask_legacy(call);
}

/* The user's answer: true if accepted with the box ticked. No answer if the user dismissed the
 * question, or if the message can be read in two ways. */
typedef enum reply { PUT_ASIDE, YES, NO } reply;

static reply read_reply(sm_str result)
{
    sm_str action, content, approve;
    char flaw[MCP_FLAW_MAX];
    if (!mcp_names_plain(result, &mcp_names_reply, flaw) || !sm_raw_find(result, "action", &action))
        return PUT_ASIDE;
    if (sm_raw_is(action, "decline"))
        return NO;
    if (!sm_raw_is(action, "accept") || !sm_raw_find(result, "content", &content) ||
        !sm_raw_find(content, "approve", &approve))
        return PUT_ASIDE;
    return sm_raw_is_true(approve) ? YES : NO;
}

void mcp_approve_answered(mcp_session *s, const mcp_message *m)
{
    for (mcp_tool_call *call = s->server->calls; call != NULL; call = call->next) {
        if (call->session != s || call->at.stage != SM_AT_DOOR ||
            !sm_str_eq(sm_buf_view(&call->question), m->id))
            continue;
        reply said = m->kind == MCP_RESULT ? read_reply(m->result) : PUT_ASIDE;
        mcp_call_set_consent(call, said == YES  ? MCP_APPROVED
                                   : said == NO ? MCP_DENIED
                                                : MCP_PUT_ASIDE);
        if (said == PUT_ASIDE)
            mcp_call_refuse(call);
        else
            sm_attempt_ask(&call->at, decide);
        return;
    }
}

/* The params with what answers the server's own questions put back, or without any. */
static bool restore_legs(mcp_tool_call *call, sm_str packed)
{
    sm_buf legs, one, two;
    sm_str state = {0}, responses = {0};
    sm_buf_init(&legs, MCP_LINE_MAX);
    sm_buf_init(&one, 2 * MCP_LINE_MAX);
    sm_buf_init(&two, 2 * MCP_LINE_MAX);
    bool right =
        packed.n == 0 || (sm_base64_take(&legs, packed) && sm_raw_is_json(sm_buf_view(&legs)));
    if (right && packed.n > 0) {
        if (!sm_raw_find(sm_buf_view(&legs), "requestState", &state))
            state = (sm_str){0};
        if (!sm_raw_find(sm_buf_view(&legs), "inputResponses", &responses))
            responses = (sm_str){0};
    }
    sm_raw_put_with(&one, call->params, "requestState", state);
    sm_raw_put_with(&two, sm_buf_view(&one), "inputResponses", responses);
    sm_str params = sm_arena_text(&call->arena, sm_buf_view(&two));
    right = right && one.err == SM_OK && two.err == SM_OK && params.p != NULL;
    if (right)
        call->params = params;
    sm_buf_fini(&two);
    sm_buf_fini(&one);
    sm_buf_fini(&legs);
    return right;
}

void mcp_approve_read(mcp_tool_call *call)
{
    sm_str state, responses, response;
    if (!sm_raw_find(call->params, "requestState", &state) || !sm_raw_is_string(state))
        return;
    sm_str text = {state.p + 1, state.n - 2}; /* ours has nothing that is escaped */
    size_t n = strlen(STATE);
    if (text.n <= n || memcmp(text.p, STATE, n) != 0)
        return;
    sm_str request = {text.p + n, text.n - n}, packed = {"", 0};
    const char *colon = memchr(request.p, ':', request.n);
    if (colon != NULL) {
        packed = (sm_str){colon + 1, (size_t)(request.p + request.n - colon - 1)};
        request.n = (size_t)(colon - request.p);
    }
    reply said = PUT_ASIDE;
    if (sm_raw_find(call->params, "inputResponses", &responses) &&
        sm_raw_find(responses, QUESTION, &response))
        said = read_reply(response);
    if (!restore_legs(call, packed))
        return; /* not as we made it: another call, which the server is asked about */
    call->said_about = sm_arena_text(&call->arena, request);
    if (said == PUT_ASIDE)
        mcp_call_set_consent(call, MCP_PUT_ASIDE);
    else if (call->said_about.p != NULL)
        mcp_call_set_consent(call, said == YES ? MCP_BROUGHT_YES : MCP_BROUGHT_NO);
}
