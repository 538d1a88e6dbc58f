/*
 * The rule: a server is waited for as long as it makes headway with writes, so that their outcomes
 * are recorded, and each has the lease of its contract for that. Then the server gets what any MCP
 * client gives it: a moment to end by itself, SIGTERM, a moment, SIGKILL; the signals go to its
 * whole group. What it has not answered is lost with it, and so in doubt.
 *
 * A server that answers nothing cannot make this longer by what it says beside.
 */
#include "mcp/session/parting.h"

#include <stddef.h>

#include "base/clock.h"
#include "base/limits.h"

static int64_t due_ns(const mcp_parting *p)
{
    int64_t patience_ms = mcp_session_patience_ms(p->session);
    if (p->signals > 0 || patience_ms < SM_MCP_END_MS)
        patience_ms = SM_MCP_END_MS;
    return p->since_ns + patience_ms * 1000000;
}

static void on_time(mcp_alarm *t)
{
    mcp_parting *p = SM_CONTAINER(t, mcp_parting, timer);
    if (sm_clock_mono_ns() >= due_ns(p)) {
        if (p->child == NULL || !mcp_child_runs(p->child) || p->signals == 2) {
            mcp_loop_stop(p->hub->loop);
            return;
        }
        if (p->signals == 0 && p->writes > 0)
            mcp_say(p->hub, MCP_WARN,
                    "the client has gone, and a call was not answered within its lease; the server "
                    "is ended");
        mcp_child_ask(p->child, p->signals++ == 0 ? SIGTERM : SIGKILL);
        p->since_ns = sm_clock_mono_ns();
    }
    mcp_loop_time(p->hub->loop, &p->timer, due_ns(p));
}

void mcp_parting_init(mcp_parting *p, mcp_hub *hub, mcp_session *session, mcp_link *child)
{
    *p = (mcp_parting){.timer = {.due = on_time}, .hub = hub, .session = session, .child = child};
}

void mcp_parting_fini(mcp_parting *p)
{
    if (p->begun)
        mcp_loop_untime(p->hub->loop, &p->timer);
}

static void start_anew(mcp_parting *p)
{
    p->writes = mcp_session_writes(p->session);
    p->since_ns = sm_clock_mono_ns();
    mcp_loop_time(p->hub->loop, &p->timer, due_ns(p));
}

void mcp_parting_begin(mcp_parting *p)
{
    if (p->begun)
        return;
    p->begun = true;
    start_anew(p);
}

void mcp_parting_rest(mcp_parting *p)
{
    if (p->begun && p->signals == 0 && mcp_session_writes(p->session) < p->writes)
        start_anew(p);
}
