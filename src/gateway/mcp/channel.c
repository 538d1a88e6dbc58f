/*
 * What requests of MCP clients over HTTP are answered with.
 *
 * A request that is answered by one message gets it as JSON; one that is told something before gets
 * a stream of events. What the server says that belongs to no request goes to whoever listens: a
 * request that is under way, else the session's own stream; else it is lost, as it would be without
 * us.
 *
 * A channel belongs to the loop, except when its client hangs up (on_gone). That is posted. A
 * channel that was answered stays until no such post can come any more, which the lock decides.
 */
#include "gateway/mcp/mcp.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/header.h"
#include "gateway/mcp/modern.h"
#include "gateway/run/returned.h"
#include "gateway/run/run.h"

#define FLOW_BYTES ((size_t)20 << 20) /* not taken by a client: one large message, and some */
#define TYPE_BYTES 256u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- its state -------------------------------------------------------------------------------*/

const char *gw_channel_flaw(const mcp_channel *c)
{
    bool answered = c->state == GW_CH_ANSWERED, child = c->site->argv != NULL;
    if (c->kind > GW_CH_DELETE || c->state > GW_CH_ANSWERED)
        return "not a state";
    if (answered != (c->r == NULL))
        return "answered with its request still there, or without one before";
    if (answered && (c->talk != NULL || c->leaving != NULL))
        return "answered, and something may still answer it";
    if (c->state == GW_CH_FLOWS && c->talk == NULL)
        return "a stream that nobody fills";
    if (c->kind == GW_CH_DELETE ? c->talk != NULL : c->leaving != NULL)
        return "it ends a session that it takes part in, or leaves without ending one";
    if (!child && (c->kind == GW_CH_OPENING || c->kind == GW_CH_STREAM))
        return "a session of ours, with a server that has its own";
    return NULL;
}

static void enter(mcp_channel *c, gw_channel_state state)
{
    c->state = state;
    assert(gw_channel_flaw(c) == NULL);
}

void gw_channel_is(mcp_channel *c, gw_channel_kind kind)
{
    c->kind = kind;
    assert(gw_channel_flaw(c) == NULL);
}

/* ---- the end of a channel --------------------------------------------------------------------*/

void gw_channel_free(mcp_channel *c)
{
    sm_buf_fini(&c->body);
    sm_arena_fini(&c->arena);
    free(c);
}

/* Takes the request away. *gone: a post is on its way; if not, none can come any more. */
static gw_request *part(mcp_channel *c, bool *gone)
{
    gw_request *r = c->r;
    pthread_mutex_lock(&lock);
    r->own = NULL;
    *gone = c->gone;
    pthread_mutex_unlock(&lock);
    gw_talk_leave(c);
    c->r = NULL;
    enter(c, GW_CH_ANSWERED);
    return r;
}

/* The same, to answer it. The channel is freed, or is when its last post comes. */
static gw_request *take(mcp_channel *c)
{
    bool gone;
    gw_request *r = part(c, &gone);
    if (!gone)
        gw_channel_free(c);
    return r;
}

static void on_gone_taken(mcp_post *post)
{
    mcp_channel *c = SM_CONTAINER(post, mcp_channel, gone_post);
    if (c->state != GW_CH_ANSWERED) {
        gw_talk *t = c->talk;
        if (t != NULL)
            mcp_session_gone(t->session, c, gw_channel_modern(c));
        gw_leave_alone(c);
        bool flows = c->state == GW_CH_FLOWS, gone;
        gw_request *r = part(c, &gone);
        if (flows)
            gw_flow_end(r, false);
        else
            gw_problem(r, 499, "CANCELED", NULL, "The client has gone.");
    }
    gw_channel_free(c);
}

/* On a thread of the server's. */
static void on_gone(gw_request *r)
{
    pthread_mutex_lock(&lock);
    mcp_channel *c = r->own;
    if (c != NULL && !c->gone) {
        c->gone = true;
        c->gone_post.take = on_gone_taken;
        mcp_loop_post(c->site->all->hub.loop, &c->gone_post);
    }
    pthread_mutex_unlock(&lock);
}

void gw_channel_post(mcp_channel *c)
{
    gw_request *r = c->r;
    pthread_mutex_lock(&lock); /* whoever hangs up now is heard of after it */
    r->own = c;
    r->on_gone = on_gone;
    gw_hold(r);
    mcp_loop_post(c->site->all->hub.loop, &c->post);
    pthread_mutex_unlock(&lock);
}

/* ---- answers ---------------------------------------------------------------------------------*/

void gw_channel_answer(mcp_channel *c, int status, sm_str text)
{
    bool flows = c->state == GW_CH_FLOWS;
    gw_request *r = take(c);
    if (flows) {
        gw_flow_end(r, true);
        return;
    }
    if (status == 405)
        gw_set(r, "Allow", SM_STR("POST"));
    gw_reply(r, status, "application/json", text);
}

void gw_channel_error(mcp_channel *c, int status, int code, const char *text)
{
    sm_buf out;
    sm_buf_init(&out, 4096);
    mcp_put_error(&out, c->id, code, sm_str_from(text));
    gw_channel_answer(c, status, sm_buf_view(&out));
    sm_buf_fini(&out);
}

void gw_channel_bare(mcp_channel *c, int status)
{
    gw_request *r = take(c);
    gw_reply(r, status, "application/json", SM_STR(""));
}

void gw_channel_end(mcp_channel *c)
{
    gw_channel_flow(c);
    gw_flow_end(take(c), true);
}

static void tell_session(mcp_channel *c)
{
    if (c->kind == GW_CH_OPENING)
        gw_set(c->r, "Mcp-Session-Id", sm_str_from(c->talk->id));
}

void gw_channel_flow(mcp_channel *c)
{
    if (c->state == GW_CH_FLOWS)
        return;
    enter(c, GW_CH_FLOWS);
    tell_session(c);
    gw_set(c->r, "Content-Type", SM_STR("text/event-stream"));
    gw_set(c->r, "Cache-Control", SM_STR("no-cache, no-transform"));
    gw_flow_start(c->r, 200, FLOW_BYTES, NULL);
}

/* One event. False if the client does not take so much. */
static bool push(mcp_channel *c, sm_str text)
{
    sm_buf out;
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    sm_buf_text(&out, "event: message\ndata: ");
    sm_raw_put_line(&out, text);
    sm_buf_text(&out, "\n\n");
    bool pushed = out.err == SM_OK && gw_flow_push(c->r, sm_buf_view(&out));
    sm_buf_fini(&out);
    return pushed;
}

/* Who hears what belongs to no request. */
static mcp_channel *listener(gw_talk *t)
{
    for (mcp_channel *c = t->channels; c != NULL; c = c->next)
        if (c->kind != GW_CH_STREAM && c->kind != GW_CH_SUBSCRIPTION)
            return c;
    return t->stream;
}

/* An answer that went out proves nothing: a proxy, or a program that gave up, may have read it. */
static uint64_t deliver(void *context, mcp_channel *c, sm_str text, bool last)
{
    gw_talk *t = context;
    bool answers = c != NULL && last;
    if (c == NULL)
        c = listener(t);
    if (c == NULL || c->state == GW_CH_ANSWERED)
        return 0;
    if (!answers) {
        gw_channel_flow(c);
        push(c, text); /* what a client does not take in time is lost to it */
        return 0;
    }
    tell_session(c);
    bool flows = c->state == GW_CH_FLOWS, whole = !flows || push(c, text);
    int status = gw_channel_modern(c) && c->site->argv != NULL ? gw_modern_status(text) : 200;
    gw_request *r = take(c);
    if (flows)
        gw_flow_end(r, whole);
    else
        gw_reply(r, status, "application/json", text);
    return 0;
}

static void set_header(mcp_channel *c, const sm_http_field *h)
{
    sm_str name = sm_arena_text(&c->arena, h->name);
    if (name.p != NULL)
        gw_set(c->r, name.p, h->value);
}

/* What a server over HTTP says of its answer is passed on; but how that is framed is ours. */
static void on_head(void *context, mcp_channel *c, const sm_http_field *headers, size_t n)
{
    (void)context;
    for (size_t i = 0; c->state == GW_CH_WAITS && i < n; i++) {
        const sm_http_field *h = &headers[i];
        if (sm_header_is(h->name, SM_STR("Content-Type")))
            c->type = sm_arena_text(&c->arena, h->value);
        else if (sm_header_is(h->name, SM_STR("Mcp-Session-Id")))
            gw_owner_tell(c->r, h->value);
        else if (gw_passes_on(h->name) && !sm_header_is(h->name, SM_STR("Content-Length")))
            set_header(c, h);
    }
    if (c->state != GW_CH_ANSWERED && c->type.n >= 17 &&
        memcmp(c->type.p, "text/event-stream", 17) == 0)
        gw_channel_flow(c); /* and so do we */
}

/* A stream has sent its status already. An error of JSON-RPC in the body says the same. */
static void fail_late(mcp_channel *c, const mcp_loss *loss)
{
    sm_buf out;
    mcp_message m;
    char why[64];
    sm_buf_init(&out, 4096 + MCP_ID_MAX);
    mcp_read(loss->body, &m);
    snprintf(why, sizeof why, "The server answered with the HTTP status %d.", loss->status);
    bool says = m.kind == MCP_ERROR && m.id.p != NULL && sm_str_eq(m.id, c->id);
    if (!says)
        mcp_put_error(&out, c->id, -32603, sm_str_from(why));
    bool whole = push(c, says ? m.text : sm_buf_view(&out));
    sm_buf_fini(&out);
    gw_flow_end(take(c), whole);
}

/* A server over HTTP has answered with something else than a message. */
static void fail(void *context, mcp_channel *c, const mcp_loss *loss)
{
    (void)context;
    if (c->state == GW_CH_ANSWERED)
        return;
    if (c->state == GW_CH_FLOWS) { /* its head has gone out, because the client got progress */
        fail_late(c, loss);
        return;
    }
    /* The reply copies it, and the channel may be gone by then. */
    char type[TYPE_BYTES] = "application/json";
    if (c->type.p != NULL)
        snprintf(type, sizeof type, "%.*s", SM_FMT(c->type));
    gw_reply(take(c), loss->status, type, loss->body);
}

static void on_pause(void *context, bool paused)
{
    ((gw_talk *)context)->paused = paused;
}

static void on_rest(void *context)
{
    (void)context; /* talks that are over are looked at now and then */
}

static void on_over(void *context)
{
    gw_talk *t = context;
    mcp_session_wind_up(t->session);
    t->lost = true;
}

const mcp_client_ops gw_mcp_client = {.deliver = deliver,
                                      .head = on_head,
                                      .fail = fail,
                                      .pause = on_pause,
                                      .rest = on_rest,
                                      .over = on_over};
