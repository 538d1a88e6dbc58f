/* What a call is answered with. */
#include <stdarg.h>
#include <stdio.h>

#include "mcp/call.h"

/* The answer is about an effect: a repeat may come after it. */
static void about_effect(mcp_call *call, bool done)
{
    mcp_exchange *x = call->x;
    sm_str handle = call->a.effect;
    if (handle.p == NULL || handle.n >= sizeof x->handle)
        return;
    memcpy(x->handle, handle.p, handle.n);
    x->handle[handle.n] = '\0';
    x->effect = call->ask.id;
    x->done = done;
}

static void answer_result(mcp_call *call, sm_buf *result)
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

/* What a person can do about it, as a command that works where the proxy runs. */
static void advise(mcp_call *call)
{
    semel_answer *a = &call->a;
    const char *ledger = call->server->hub->ledger_option;
    sm_str effect = a->blocked_by.p != NULL ? a->blocked_by : a->effect;
    if (a->code == SEMEL_C_AWAITING_APPROVAL && a->request.p != NULL)
        a->corrective_action = sm_arena_printf(
            &call->said,
            "Ask a person to approve it with: semel approve %.*s%s . Then make the same call "
            "again; do not try another way.",
            SM_FMT(a->request), ledger);
    else if (a->code == SEMEL_C_IN_DOUBT && effect.p != NULL)
        a->corrective_action = sm_arena_printf(
            &call->said,
            "Do not try it another way. A person has to find out whether it took effect, and say "
            "so with: semel resolve %.*s%s --not-applied --evidence '...' , or --applied RESULT in "
            "place of --not-applied.",
            SM_FMT(effect), ledger);
    else if (a->code == SEMEL_C_LEDGER_UNAVAILABLE)
        a->message = SM_STR("The ledger cannot be used now, so nothing was done.");
}

void mcp_call_refuse(mcp_call *call)
{
    sm_buf out;
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    about_effect(call, false);
    advise(call);
    mcp_put_refusal(&out, &call->a, call->x->modern);
    answer_result(call, &out);
}

void mcp_call_refuse_with(mcp_call *call, semel_code code, const char *advice, const char *format,
                          ...)
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

void mcp_call_replay(mcp_call *call)
{
    sm_buf out;
    sm_str error = {0}, task;
    const semel_outcome *o = &call->a.outcome;
    if (!call->tasked && !call->x->modern && o->kept && mcp_is_object(o->value) &&
        mcp_find(o->value, "task", &task) && mcp_is_object(task)) {
        sm_str id = {0};
        mcp_find(task, "taskId", &id);
        mcp_call_refuse_with(call, SEMEL_C_ALREADY_DONE,
                             "Ask for the task's result; it must not be started again.",
                             "This call was started as the task %.*s.", SM_FMT(id));
        return;
    }
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    about_effect(call, o->kind == SEMEL_SUCCESS);
    if (mcp_put_replay(&out, call, &error)) {
        answer_result(call, &out);
        return;
    }
    mcp_exchange *x = call->x;
    call->x = NULL;
    sm_buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"error\":", SM_FMT(x->id));
    sm_buf_str(&out, error);
    sm_buf_byte(&out, '}');
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
    mcp_call_end(call);
}

void mcp_call_pass(mcp_call *call)
{
    mcp_exchange *x = call->x;
    mcp_message m;
    mcp_read(sm_buf_view(&call->answer), &m);
    if (!call->unrecorded && call->a.effect.p != NULL)
        about_effect(call,
                     call->recorded == SM_OK && !call->back && call->outcome.kind == SEMEL_SUCCESS);
    call->x = NULL;
    mcp_pass_answer(x, &m);
    mcp_call_end(call);
}
