/*
 * What tools a server has: asked for before the first call, and again when the server says that
 * something has changed, so that every call is judged by what the server says of its tool now.
 *
 * A call waits for that. If it cannot be had, nothing that writes is passed on: without the schema
 * a call would have another identity than its retry with it.
 *
 * Lists that the client asks for are its own: they are passed on, looked at on their way, and lose
 * the tools that the contract hides.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "json/write.h"
#include "mcp/call/call.h"

#define LIST_MS      30000 /* for one page to come */
#define LISTINGS_MAX 3     /* for one call, of a server whose list changes all the time */
#define TTL_LEAST_MS 1000  /* a server that wants to be asked each time is asked this often */
#define HEADERS_MAX  ((size_t)4 << 20)
#define UNTOLD_MS    60000 /* for a list of which nobody may tell us that it has changed */

/* One listing under way. */
typedef struct asking {
    mcp_server *server;
    mcp_session *session;
    mcp_exchange *x; /* the page that is being waited for */
    mcp_tools *tools;
    bool waits;       /* for the server to come back */
    uint64_t changes; /* of the list, when it was first asked for */
    unsigned pages;
    int64_t ttl_ms;               /* -1: none */
    sm_buf meta;                  /* what a modern request carries; empty: an older one */
    sm_arena arena;               /* of: */
    const sm_http_field *headers; /* as of the call that needs it, for a link that wants them */
    size_t header_count;
    mcp_alarm timer;
} asking;

bool mcp_listing_fresh(const mcp_server *s)
{
    return s->listing != NULL && !s->stale && sm_clock_mono_ns() < s->listing->until_ns;
}

mcp_listing *mcp_listing_hold(mcp_listing *l)
{
    if (l != NULL)
        l->holders++;
    return l;
}

void mcp_listing_drop(mcp_listing *l)
{
    if (l == NULL || --l->holders > 0)
        return;
    mcp_tools_free(l->tools);
    free(l);
}

static void tell_pin(void *context, const char *text)
{
    mcp_server *s = context;
    mcp_say(s->hub, MCP_WARN, "%s", text);
}

/* Takes a whole list into use. False when out of memory; the tools are taken in any case. */
static bool learn(const mcp_session *from, mcp_tools *tools, int64_t ttl_ms, uint64_t changes)
{
    mcp_server *s = from->server;
    if (ttl_ms < 0 && from->o.alone)
        ttl_ms = UNTOLD_MS;
    mcp_listing *l = calloc(1, sizeof *l);
    if (l == NULL) {
        mcp_tools_free(tools);
        return false;
    }
    mcp_pins_check(s->pins, tools, s->listing == NULL ? NULL : s->listing->tools, tell_pin, s);
    *l = (mcp_listing){.holders = 1,
                       .tools = tools,
                       .until_ns = ttl_ms < 0 ? INT64_MAX : sm_clock_deadline_ns(ttl_ms)};
    mcp_listing_drop(s->listing);
    s->listing = l;
    s->stale = s->changes != changes; /* it may have been made before the last change */
    return true;
}

/* The shorter of what was said so far and what this page says. */
static int64_t read_ttl(sm_str result, int64_t before)
{
    sm_str text;
    char digits[20] = "";
    if (!sm_raw_find(result, "ttlMs", &text) || text.n >= sizeof digits)
        return before;
    memcpy(digits, text.p, text.n);
    long long ms = atoll(digits);
    ms = ms < TTL_LEAST_MS ? TTL_LEAST_MS : ms;
    return before < 0 || ms < before ? ms : before;
}

/* ---- asking ----------------------------------------------------------------------------------*/

static void finish(asking *q, const char *why_not)
{
    mcp_server *s = q->server;
    mcp_loop_untime(s->hub->loop, &q->timer);
    if (why_not == NULL && !learn(q->session, q->tools, q->ttl_ms, q->changes))
        why_not = "out of memory";
    else if (why_not != NULL)
        mcp_tools_free(q->tools);
    mcp_session *session = q->session;
    mcp_tool_call *calls = session->unlisted;
    session->unlisted = NULL;
    session->listing_now = NULL;
    sm_buf_fini(&q->meta);
    sm_arena_fini(&q->arena);
    free(q);
    while (calls != NULL) {
        mcp_tool_call *call = calls;
        calls = call->next_unlisted;
        call->next_unlisted = NULL;
        if (why_not == NULL && s->stale && call->listings++ < LISTINGS_MAX)
            mcp_listing_need(call->session, call, call->meta);
        else
            mcp_call_listed(call, why_not);
    }
}

static void ask_page(asking *q, sm_str cursor);

static void on_page(mcp_exchange *x, const mcp_message *m)
{
    asking *q = x->context;
    sm_str cursor = {0}, code;
    sm_fault fault = {0};
    q->x = NULL;
    if (m == NULL) {
        finish(q, "the server went away");
    } else if (m->kind == MCP_ERROR) {
        bool none = sm_raw_find(m->error, "code", &code) && sm_str_is(code, "-32601");
        finish(q, none ? NULL : "it answered with an error");
    } else if (mcp_tools_add(q->tools, m->result, &cursor, &fault) != SM_OK) {
        finish(q, fault.text);
    } else if (cursor.p != NULL && ++q->pages >= MCP_PAGES_MAX) {
        finish(q, "its list has no end");
    } else {
        q->ttl_ms = read_ttl(m->result, q->ttl_ms);
        if (cursor.p != NULL)
            ask_page(q, cursor);
        else
            finish(q, NULL);
    }
}

static void on_late(mcp_alarm *t)
{
    asking *q = SM_CONTAINER(t, asking, timer);
    mcp_exchange_free(q->x);
    finish(q, "it did not answer in time");
}

static void ask_page(asking *q, sm_str cursor)
{
    q->waits = !mcp_session_ready(q->session);
    if (q->waits)
        return; /* the server is being started again: see mcp_listing_go_on */
    sm_buf params;
    sm_buf_init(&params, MCP_LINE_MAX);
    sm_buf_byte(&params, '{');
    sm_put_raw(&params, "_meta", sm_buf_view(&q->meta));
    sm_put_raw(&params, "cursor", cursor);
    sm_buf_byte(&params, '}');
    sm_str all = q->meta.len > 0 || cursor.n > 0 ? sm_buf_view(&params) : (sm_str){0};
    q->x = mcp_request(q->session, "tools/list", all, q->headers, q->header_count, on_page, q);
    sm_buf_fini(&params);
    if (q->x == NULL)
        finish(q, "the server is not running");
    else
        mcp_loop_time(q->server->hub->loop, &q->timer, sm_clock_deadline_ns(LIST_MS));
}

/* Starts asking through a session. False when out of memory. */
static bool start(mcp_session *s, const mcp_way *way, sm_str meta)
{
    asking *q = calloc(1, sizeof *q);
    if (q == NULL)
        return false;
    q->server = s->server;
    q->session = s;
    q->ttl_ms = -1;
    q->changes = s->server->changes;
    q->timer.due = on_late;
    sm_buf_init(&q->meta, MCP_LINE_MAX);
    sm_arena_init(&q->arena, HEADERS_MAX);
    q->tools = mcp_tools_new();
    if (q->tools == NULL || !mcp_headers_beside(&q->arena, way, "tools/list", (sm_str){0}, NULL,
                                                &q->headers, &q->header_count)) {
        mcp_tools_free(q->tools);
        sm_arena_fini(&q->arena);
        free(q);
        return false;
    }
    mcp_put_own_meta(&q->meta, meta);
    s->listing_now = q;
    ask_page(q, (sm_str){0});
    return true;
}

void mcp_listing_need(mcp_session *s, mcp_tool_call *call, sm_str meta)
{
    mcp_call_enter(call, MCP_LISTING);
    mcp_tool_call **at = &s->unlisted; /* in the order in which they came */
    while (*at != NULL)
        at = &(*at)->next_unlisted;
    *at = call;
    if (s->listing_now != NULL || start(s, &call->x->way, meta))
        return;
    s->unlisted = NULL;
    mcp_call_listed(call, "out of memory");
}

void mcp_listing_changed(mcp_session *s)
{
    s->server->stale = true;
    s->server->changes++;
    /* A change is worth knowing of even if nobody calls anything. */
    if (s->listing_now == NULL && s->version[0] != '\0')
        start(s, &(mcp_way){0}, (sm_str){0});
}

void mcp_listing_forget(mcp_tool_call *call)
{
    mcp_tool_call **at = &call->session->unlisted;
    while (*at != NULL && *at != call)
        at = &(*at)->next_unlisted;
    if (*at != NULL)
        *at = call->next_unlisted;
}

void mcp_listing_go_on(mcp_session *s)
{
    asking *q = s->listing_now;
    if (q != NULL && q->waits)
        ask_page(q, (sm_str){0});
}

void mcp_listing_leave(mcp_session *s)
{
    asking *q = s->listing_now;
    if (q == NULL)
        return;
    mcp_exchange_free(q->x);
    q->x = NULL;
    finish(q, "the session has ended");
}

/* ---- on their way to the client --------------------------------------------------------------*/

static bool shown(void *context, sm_str name)
{
    return sm_contracts_tool(context, name) != NULL;
}

/* A whole list on one page tells as much as one that we ask for. */
static void look_at(const mcp_session *from, sm_str result, uint64_t changes)
{
    sm_str cursor;
    sm_fault fault;
    mcp_tools *tools = mcp_tools_new();
    if (tools != NULL && mcp_tools_add(tools, result, &cursor, &fault) == SM_OK && cursor.p == NULL)
        learn(from, tools, read_ttl(result, -1), changes);
    else
        mcp_tools_free(tools);
}

void mcp_listing_pass(mcp_exchange *x, const mcp_message *m)
{
    mcp_server *s = x->session->server;
    const sm_contracts *set = sm_contracts_now(s->hub->ledger, s->hub->answer);
    if (m->kind != MCP_RESULT) {
        mcp_pass_answer(x, m);
        return;
    }
    if (x->first_page)
        look_at(x->session, m->result, x->changes);
    if (set->unlisted != SM_UNLISTED_HIDE) {
        mcp_pass_answer(x, m);
        return;
    }
    sm_buf result;
    sm_buf_init(&result, 2 * MCP_LINE_MAX);
    if (mcp_tools_filter(m->result, shown, (void *)(uintptr_t)set, &result) == SM_OK)
        mcp_reply_result(x, sm_buf_view(&result));
    else
        mcp_reply_error(x, -32603, "The server's list of tools could not be read.");
    sm_buf_fini(&result);
}
