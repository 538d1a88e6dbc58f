/*
 * Progress of a call. The server's own goes to every client that waits for the same call. While a
 * call waits, the proxy sends progress too, so that a client that asked for it does not give up.
 *
 * The values for one token must grow. The proxy's are tiny, so that the server's are larger; a
 * value that does not grow is not sent.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "json/write.h"
#include "mcp/call/call.h"

#define STEP 1e-6

bool mcp_progress_wanted(const mcp_exchange *x)
{
    sm_str token = x->token;
    return token.p != NULL && token.n > 0 && strchr("\"-0123456789", token.p[0]) != NULL;
}

/* ---- what the server says --------------------------------------------------------------------*/

/* Whether the server's value is larger than the last one that the client got. */
static bool grows(mcp_tool_call *call, const mcp_message *m)
{
    char digits[64] = "";
    sm_str value;
    if (!sm_raw_find(m->params, "progress", &value) || value.n >= sizeof digits)
        return !call->beaten;
    memcpy(digits, value.p, value.n);
    double said = strtod(digits, NULL);
    if (call->beaten && !(said > call->progress))
        return false;
    call->progress = said;
    return true;
}

static void tell(mcp_tool_call *to, const mcp_message *m, sm_str token)
{
    sm_buf out;
    if (to->x == NULL || to->x->canceled || to->x->token.p == NULL || !grows(to, m))
        return;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    sm_raw_put_edited(&out, m->text, &(sm_raw_edit){.at = token, .with = to->x->token}, 1);
    if (out.err == SM_OK)
        mcp_tell_client(to->session, to->x->channel, sm_buf_view(&out));
    sm_buf_fini(&out);
}

void mcp_call_progress(mcp_tool_call *call, const mcp_message *m)
{
    sm_str token;
    if (!sm_raw_find(m->params, "progressToken", &token))
        return;
    if (call->session->o.shared)
        tell(call, m, token);
    else if (!call->x->canceled && grows(call, m))
        mcp_tell_client(call->session, call->x->channel, m->text);
    for (mcp_tool_call *other = call->server->calls; other != NULL; other = other->next)
        if (other != call && other->at.stage == SM_AT_PARKED && other->at.ask.id == call->at.ask.id)
            tell(other, m, token);
}

/* ---- what we say -----------------------------------------------------------------------------*/

/* The words for what a call waits for; absent if it waits for its server, which sends progress
 * itself. The ledger's answer may be read only while no worker has the call. */
static sm_str waits_for(mcp_tool_call *call, char room[128])
{
    const semel_answer *a = &call->a;
    if (call->phase == MCP_LISTING)
        return SM_STR("Waiting for the server to list its tools.");
    switch (sm_attempt_stage(&call->at)) {
    case SM_AT_EXECUTING: return (sm_str){0};
    case SM_AT_DOOR: return SM_STR("Waiting for the user to approve this call.");
    case SM_AT_PROBING: return SM_STR("Asking the server what became of an earlier attempt.");
    case SM_AT_PARKED: break;
    default: return SM_STR("Waiting for the ledger.");
    }
    if (a->code == SEMEL_C_UPSTREAM_TIMEOUT)
        return SM_STR("Waiting until it is known what became of an earlier attempt.");
    if (a->code != SEMEL_C_AWAITING_APPROVAL)
        return SM_STR("Waiting for the same call, which is under way.");
    snprintf(room, 128, "Waiting for a person to decide the approval request %.*s.",
             SM_FMT(a->request));
    return sm_str_from(room);
}

/* The next value: larger than every value sent for this call, and for other calls, because their
 * client may use the same token. */
static double next_value(mcp_tool_call *call)
{
    double value = STEP * (double)++call->session->beats;
    if (value <= call->progress)
        value = call->progress + STEP;
    return value > call->progress ? value : nextafter(call->progress, INFINITY);
}

static void on_beat(mcp_alarm *t)
{
    mcp_tool_call *call = SM_CONTAINER(t, mcp_tool_call, beat);
    mcp_exchange *x = call->x;
    char room[128];
    if (x == NULL || x->canceled)
        return;
    mcp_loop_time(call->server->hub->loop, t, sm_clock_deadline_ns(SM_MCP_PROGRESS_MS));
    sm_str text = waits_for(call, room);
    if (text.p == NULL)
        return;
    double value = next_value(call);
    if (!isfinite(value))
        return; /* JSON has no larger number than the server's last value */
    sm_buf out;
    sm_buf_init(&out, MCP_LINE_MAX);
    call->progress = value;
    call->beaten = true;
    mcp_put_request(&out, (sm_str){0}, "notifications/progress");
    sm_put_open(&out, "params", '{');
    sm_put_raw(&out, "progressToken", x->token);
    sm_put_name(&out, "progress");
    sm_buf_printf(&out, "%.17g", call->progress);
    sm_put_text(&out, "message", text);
    sm_buf_text(&out, "}}");
    if (out.err == SM_OK)
        mcp_tell_client(call->session, x->channel, sm_buf_view(&out));
    sm_buf_fini(&out);
}

void mcp_progress_start(mcp_tool_call *call)
{
    call->beat.due = on_beat;
    call->progress = -INFINITY;
    if (mcp_progress_wanted(call->x))
        mcp_loop_time(call->server->hub->loop, &call->beat,
                      sm_clock_deadline_ns(SM_MCP_PROGRESS_MS));
}

void mcp_progress_end(mcp_tool_call *call)
{
    mcp_loop_untime(call->server->hub->loop, &call->beat);
}
