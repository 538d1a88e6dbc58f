/*
 * Streams of events: the answer to a request, and the one on which a legacy server says something
 * of its own accord.
 *
 * A legacy server may close a connection whenever it has named an event's id, and expects to be
 * asked for the rest: with a GET that names the last one, after the pause that it wished for. That
 * asks for nothing to be done, so it is as good for a write as for a read. A stream without ids
 * cannot be come back to, and in the modern era none can.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/header.h"
#include "mcp/link/remote.h"
#include "mcp/wire/lines.h"

#define FAILURES_MAX    5 /* GETs in a row that did not even begin a stream */
#define PAUSE_MS        1000
#define PAUSE_MAX_MS    30000
#define PAUSE_LEAST_MS  20 /* even if a server wishes for none */
#define PAUSE_LISTEN_MS 60000

/* ---- events ----------------------------------------------------------------------------------*/

void mcp_stream_begin(mcp_flight *f)
{
    mcp_sse_free(f->sse);
    f->sse = mcp_sse_new(MCP_LINE_MAX);
    f->body = MCP_BODY_STREAM;
    if (f->sse == NULL)
        mcp_flight_break(f, "out of memory for what the server says");
}

/* An id that no header can hold cannot be come back to. */
static void keep_id(mcp_flight *f, sm_str id)
{
    free(f->last_id);
    f->last_id = NULL;
    if (id.n > 0 && sm_header_value(id))
        f->last_id = strndup(id.p, id.n);
}

static bool on_event(void *context, const mcp_sse_event *e)
{
    mcp_flight *f = context;
    f->heard_ns = sm_clock_mono_ns();
    f->failures = 0;
    if (e->has_id)
        keep_id(f, e->id);
    if (e->retry_ms >= 0)
        f->retry_ms = e->retry_ms;
    const mcp_link_events *events = &f->remote->link.events;
    if (e->too_long && f->way != NULL)
        mcp_flight_break(f, "the server sent an event of %ju bytes", (uintmax_t)e->length);
    else if (e->too_long)
        events->too_long(events->context, &(mcp_text_line){.too_long = true, .length = e->length});
    else if (e->data.n > 0 && (e->type.n == 0 || sm_str_is(e->type, "message")))
        mcp_flight_give(f, e->data);
    return !f->over;
}

void mcp_stream_add(mcp_flight *f, sm_str piece)
{
    if (!mcp_sse_add(f->sse, piece, on_event, f) && !f->over)
        mcp_flight_break(f, "out of memory for what the server says");
}

/* ---- coming back -----------------------------------------------------------------------------*/

static int64_t pause_ms(const mcp_flight *f, int64_t most)
{
    int64_t ms = PAUSE_MS;
    if (f->retry_ms >= 0) {
        ms = f->retry_ms < PAUSE_LEAST_MS ? PAUSE_LEAST_MS : f->retry_ms;
    } else {
        for (unsigned i = 0; i < f->failures && ms < most; i++)
            ms += ms / 2;
    }
    return ms < most ? ms : most;
}

/* Whether it may be otherwise later: the server is busy, or still holds the stream's old
 * connection. */
static bool may_pass(int status)
{
    return status >= 500 || status == 408 || status == 409 || status == 429;
}

/* What is said of a GET that got no stream. */
static void refuse(mcp_flight *f)
{
    mcp_loss loss = {.sent = true, .session_gone = mcp_flight_orphaned(f)};
    char why[128];
    snprintf(why, sizeof why, "the answer broke off, and the server answered %d to going on",
             f->status);
    loss.why = why;
    f->remote->session_gone |= loss.session_gone;
    mcp_flight_lose(f, &loss);
}

void mcp_stream_head(mcp_flight *f, bool events)
{
    if (events) {
        if (f->kind == MCP_FLIGHT_REQUEST)
            f->failures = 0; /* a stream where nothing comes is bounded by time */
        mcp_stream_begin(f);
    } else if (!may_pass(f->status)) {
        if (f->kind == MCP_FLIGHT_LISTEN)
            mcp_flight_end(f); /* 405: there is no such stream; or it is not for us */
        else
            refuse(f);
    } else {
        f->body = MCP_BODY_REST;
    }
}

/* Whether there is somewhere to come back to: a plain link has no session but its clients' own. */
static bool has_session(const mcp_flight *f)
{
    return !f->remote->plain ||
           mcp_header_find(f->came_with, f->came_with_count, "Mcp-Session-Id").p != NULL;
}

static void come_back(mcp_flight *f, const char *why)
{
    mcp_remote *r = f->remote;
    bool silent = sm_clock_mono_ns() - f->heard_ns > f->silence_ms * 1000000;
    if (f->modern || !has_session(f) || r->session_gone || f->last_id == NULL || silent ||
        f->failures >= FAILURES_MAX) {
        mcp_flight_break(f, "the answer of %s broke off: %s", r->shown, why);
        return;
    }
    f->resumed = true;
    int64_t pause = pause_ms(f, f->retry_ms >= 0 ? f->silence_ms : PAUSE_MAX_MS);
    f->failures++;
    if (mcp_flight_get(f, pause) != SM_OK)
        mcp_flight_break(f, "the answer of %s broke off: %s", r->shown, why);
}

void mcp_stream_end(mcp_flight *f, const char *why)
{
    if (f->kind != MCP_FLIGHT_LISTEN) {
        come_back(f, why);
        return;
    }
    int64_t pause = pause_ms(f, PAUSE_LISTEN_MS);
    f->failures++;
    if (f->remote->session_gone || mcp_flight_get(f, pause) != SM_OK)
        mcp_flight_end(f);
}

/* ---- listening -------------------------------------------------------------------------------*/

void mcp_stream_listen(mcp_remote *r)
{
    if (r->listener != NULL)
        mcp_flight_end(r->listener);
    mcp_flight *f = mcp_flight_new(r, MCP_FLIGHT_LISTEN);
    if (f == NULL)
        return; /* what the server may say of its own accord is not heard */
    if (mcp_flight_get(f, 0) != SM_OK) {
        mcp_flight_free(f);
        return;
    }
    r->listener = f;
    mcp_remote_add(&r->under_way, f);
}
