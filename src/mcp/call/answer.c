/* What a call is answered with. */
#include <stdarg.h>
#include <stdio.h>

#include "json/write.h"
#include "mcp/call/call.h"

/* Whether a result is only the handle of a task that goes on. */
static bool is_task(sm_str result)
{
    sm_str part;
    return sm_raw_is_object(result) &&
           ((sm_raw_find(result, "task", &part) && sm_raw_is_object(part)) ||
            (sm_raw_find(result, "resultType", &part) && sm_str_is(part, "\"task\"")));
}

/* The answer is about an effect: a repeat may come after it if the client knows the result. The
 * answer to a later leg never shows that: the client's timeout may have begun with the first leg.
 */
static void about_effect(mcp_tool_call *call, bool done)
{
    mcp_exchange *x = call->x;
    sm_str handle = call->a.effect;
    if (handle.p == NULL || handle.n >= sizeof x->handle)
        return;
    memcpy(x->handle, handle.p, handle.n);
    x->handle[handle.n] = '\0';
    x->effect = call->at.ask.id;
    x->done = done && !call->legged;
}

static void answer_result(mcp_tool_call *call, sm_buf *result)
{
    mcp_exchange *x = call->x;
    call->x = NULL;
    if (result->err == SM_OK)
        mcp_reply_result(x, sm_buf_view(result));
    else
        mcp_reply_error(x, -32603, "The proxy is out of memory.");
    sm_buf_fini(result);
    mcp_call_end(call);
}

/* Whether people approve through a gateway, not with the `semel` program. */
static bool by_gateway(const mcp_tool_call *call)
{
    return call->server->hub->gateway ||
           (call->contract != NULL && call->contract->approval.via != 0);
}

/* The text names the request and the role of who decides. It holds a command only if the contract
 * lets the user approve: a model with a shell would run it. The call is retriable, as the object
 * says, but once it is approved and not after a time. */
static void advise_approval(mcp_tool_call *call)
{
    semel_answer *a = &call->a;
    bool self =
        !by_gateway(call) && call->contract != NULL && call->contract->approval.self_approval;
    sm_str command = {"", 0};
    if (self)
        command =
            sm_arena_printf(&call->said, " The user may approve it with: semel approve %.*s%s .",
                            SM_FMT(a->request), call->server->hub->ledger_option);
    a->corrective_action = sm_arena_printf(
        &call->said,
        "Do not call this tool again with these arguments before it is approved, and do not try "
        "another way. Tell the user that the approval request %.*s is waiting for %s.%.*s Once it "
        "is approved, make the same call again: then it runs, once.",
        SM_FMT(a->request),
        by_gateway(call) ? "an approver of the gateway" : "an operator of the ledger",
        SM_FMT(command));
}

static void advise_doubt(mcp_tool_call *call)
{
    semel_answer *a = &call->a;
    bool other = a->blocked_by.p != NULL;
    sm_str effect = other ? a->blocked_by : a->effect;
    a->corrective_action = sm_arena_printf(
        &call->said,
        "Do not call this tool again with these arguments%s, and do not try another way. Tell the "
        "user that the effect %.*s is in doubt: %s has to find out whether it happened, and "
        "resolve it.",
        other ? " before that is resolved" : "", SM_FMT(effect),
        call->server->hub->gateway ? "an operator of the gateway" : "an operator of the ledger");
}

/* A model that comes back at once would only wait again. */
static void advise_waiting(semel_answer *a)
{
    if (a->retry_after_ms < SM_MCP_RETRY_MS)
        a->retry_after_ms = SM_MCP_RETRY_MS;
    a->corrective_action =
        sm_str_from("Do something else, or wait some seconds; then make the same "
                    "call again to get its result. It will not run twice.");
}

/* Advice for the model if a person has to decide. */
static void advise(mcp_tool_call *call)
{
    semel_answer *a = &call->a;
    if (a->code == SEMEL_C_AWAITING_APPROVAL && a->request.p != NULL)
        advise_approval(call);
    else if (a->code == SEMEL_C_IN_DOUBT && (a->effect.p != NULL || a->blocked_by.p != NULL))
        advise_doubt(call);
    else if (a->code == SEMEL_C_RETRY_IN_FLIGHT)
        advise_waiting(a);
    else if (a->code == SEMEL_C_LEDGER_UNAVAILABLE)
        a->message = SM_STR("The ledger cannot be used now, so nothing was done.");
}

static void put_refusal(mcp_tool_call *call, sm_buf *out)
{
    sm_buf_init(out, 4 * MCP_LINE_MAX);
    about_effect(call, false);
    advise(call);
    mcp_put_refusal(out, &call->a, call->x->modern);
}

void mcp_call_refuse(mcp_tool_call *call)
{
    sm_buf out;
    put_refusal(call, &out);
    answer_result(call, &out);
}

void mcp_call_overflow(mcp_tool_call *call)
{
    bool failed = call->at.outcome.kind == SEMEL_FAILURE;
    call->a = (semel_answer){.verdict = SEMEL_REFUSED, .code = SEMEL_C_RESULT_EXPIRED};
    call->a.effect = sm_str_from(call->at.handle);
    call->a.message = sm_arena_printf(
        &call->said, "%s has %llu bytes, which is too large to pass on.",
        failed ? "The tool answered that it failed; its answer" : "This was done; its result",
        (unsigned long long)call->overflow);
    call->a.corrective_action =
        failed
            ? SM_STR("Tell the user; do not make the same call again.")
            : SM_STR("Do not call this tool again to get the result: go on without it, or read it "
                     "from where the call took effect.");
    mcp_call_refuse(call);
}

void mcp_call_refuse_early(mcp_tool_call *call)
{
    sm_buf out;
    put_refusal(call, &out);
    mcp_answer_result(call->x, sm_buf_view(&out));
    sm_buf_fini(&out);
}

void mcp_call_refuse_with(mcp_tool_call *call, semel_code code, const char *advice,
                          const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    call->a = (semel_answer){.verdict = SEMEL_REFUSED,
                             .code = code,
                             .retriable = semel_code_retriable(code),
                             .message = sm_arena_text(&call->said, sm_str_from(text)),
                             .corrective_action = sm_str_from(advice)};
    sm_buf out;
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    mcp_put_refusal(&out, &call->a, call->x->modern);
    answer_result(call, &out);
}

void mcp_call_replay(mcp_tool_call *call)
{
    sm_buf out;
    sm_str error = {0}, task;
    const semel_outcome *o = &call->a.outcome;
    if (!call->tasked && !call->x->modern && o->kept && sm_raw_is_object(o->value) &&
        sm_raw_find(o->value, "task", &task) && sm_raw_is_object(task)) {
        sm_str id = {0};
        sm_raw_find(task, "taskId", &id);
        mcp_call_refuse_with(call, SEMEL_C_ALREADY_DONE,
                             "Ask for the task's result; it must not be started again.",
                             "This call was started as the task %.*s.", SM_FMT(id));
        return;
    }
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    about_effect(call, o->kind == SEMEL_SUCCESS && mcp_has_result(call) && !is_task(o->value) &&
                           !sm_str_is(call->a.result, SM_UNRECORDED));
    if (mcp_put_replay(&out, call, &error)) {
        answer_result(call, &out);
        return;
    }
    mcp_exchange *x = call->x;
    call->x = NULL;
    mcp_put_answer(&out, x->id);
    sm_put_raw(&out, "error", error);
    sm_buf_byte(&out, '}');
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
    mcp_call_end(call);
}

/* The ledger could not record the call, or had lost its record. The client still gets the server's
 * answer; `_meta` says what went wrong. */
static void mark_doubt(mcp_tool_call *call)
{
    mcp_message m;
    sm_str meta = {0};
    mcp_read(sm_buf_view(&call->answer), &m);
    if (mcp_call_unrecorded(call) || call->at.nothing_done || m.kind != MCP_RESULT ||
        (call->at.ended != SM_ENDED_OWED && call->at.ended != SM_ENDED_PUT_BACK))
        return;
    sm_buf marked, result, text;
    sm_buf_init(&marked, 2 * MCP_LINE_MAX);
    sm_buf_init(&result, 2 * MCP_LINE_MAX);
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    if (!sm_raw_find(m.result, "_meta", &meta) || !sm_raw_is_object(meta))
        meta = (sm_str){0};
    sm_raw_put_with(&marked, meta, "semel/doubt",
                    call->at.ended == SM_ENDED_PUT_BACK ? SM_STR("\"" SM_PUT_BACK "\"")
                                                        : SM_STR("\"" SM_UNRECORDED "\""));
    sm_raw_put_with(&result, m.result, "_meta", sm_buf_view(&marked));
    sm_raw_put_edited(&text, m.text, &(sm_raw_edit){.at = m.result, .with = sm_buf_view(&result)},
                      1);
    if (marked.err == SM_OK && result.err == SM_OK && text.err == SM_OK) {
        sm_buf_clear(&call->answer);
        sm_buf_str(&call->answer, sm_buf_view(&text));
    }
    sm_buf_fini(&text);
    sm_buf_fini(&result);
    sm_buf_fini(&marked);
}

/* The run repeats itself: the model is told beside what the tool returned. */
static void add_warning(mcp_tool_call *call)
{
    mcp_message m;
    sm_buf text;
    if (call->a.warning.n == 0)
        return;
    mcp_read(sm_buf_view(&call->answer), &m);
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    mcp_put_warned(&text, &m, call->a.warning,
                   mcp_call_unrecorded(call) ? (sm_str){0} : call->a.effect);
    if (text.err == SM_OK) {
        sm_buf_clear(&call->answer);
        sm_buf_str(&call->answer, sm_buf_view(&text));
    }
    sm_buf_fini(&text);
}

void mcp_call_pass(mcp_tool_call *call)
{
    mcp_exchange *x = call->x;
    mcp_message m;
    mark_doubt(call);
    add_warning(call);
    mcp_read(sm_buf_view(&call->answer), &m);
    if (!mcp_call_unrecorded(call) && call->a.effect.p != NULL)
        about_effect(call, call->at.ended != SM_ENDED_OWED && !call->at.nothing_done &&
                               call->at.outcome.kind == SEMEL_SUCCESS && !is_task(m.result));
    call->x = NULL;
    mcp_pass_answer(x, &m);
    mcp_call_end(call);
}

void mcp_read_answered(mcp_exchange *x, const mcp_message *m)
{
    mcp_hub *hub = x->session->server->hub;
    bool failed = m->kind != MCP_RESULT;
    semel_outcome o = {.size = sizeof o,
                       .kind = failed ? SEMEL_FAILURE : SEMEL_SUCCESS,
                       .value = failed ? m->error : m->result,
                       .is_json = true};
    sm_pass_ended(hub->ledger, &x->read->passed, &o, hub->answer);
    mcp_message warned = *m;
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    if (hub->answer->warning.n > 0)
        mcp_put_warned(&text, m, hub->answer->warning, (sm_str){0});
    if (text.len > 0 && text.err == SM_OK)
        mcp_read(sm_buf_view(&text), &warned);
    mcp_pass_answer(x, &warned);
    sm_buf_fini(&text);
}
