/*
 * A session: one client's conversation with one server.
 *
 * Whatever is not a call of a tool that writes is passed on as it came. What comes from the two
 * sides is in from_client.c and from_server.c.
 */
#include "mcp/session/session.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/limits.h"
#include "json/write.h"
#include "mcp/call/call.h"

#define QUESTION_PREFIX "\"semel-ask-"

/* ---- for people ------------------------------------------------------------------------------*/

void mcp_say(mcp_hub *hub, mcp_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hub->say(hub->say_context, level, text);
}

/* ---- life ------------------------------------------------------------------------------------*/

const char *mcp_session_flaw(const mcp_session *s)
{
    bool timed = s->away_timer.timer.at != 0;
    if (s->reach != MCP_THERE && s->link == NULL)
        return "there is no server that could be away";
    switch (s->reach) {
    case MCP_THERE: return timed ? "a server is waited for that is there" : NULL;
    case MCP_LAPSED:
        return timed                                 ? "a server is waited for that is there"
               : !s->link->exchanges || !s->o.renews ? "it has forgotten no session of ours"
                                                     : NULL;
    case MCP_DOWN:
    case MCP_AWAY: return s->link->exchanges ? "a server over HTTP is asked each time" : NULL;
    case MCP_STARTING:
    case MCP_STARTING_LATE: return NULL;
    }
    return "its server is in no state";
}

static void move(mcp_session *s, mcp_life life)
{
    assert(s->life <= life);
    s->life = life;
    assert(mcp_session_flaw(s) == NULL);
}

static sm_str own_text(sm_str text)
{
    char *copy = text.p == NULL ? NULL : malloc(text.n + 1);
    if (copy == NULL)
        return (sm_str){0};
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    return (sm_str){copy, text.n};
}

sm_err mcp_session_new(mcp_server *server, const mcp_session_options *o, mcp_session **out)
{
    mcp_session *s = *out = calloc(1, sizeof *s);
    if (s == NULL)
        return SEMEL_E_NOMEM;
    uint64_t random[3] = {0};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        free(s);
        *out = NULL;
        return SEMEL_E_CRYPTO;
    }
    snprintf(s->own_name, sizeof s->own_name, "\"semel-%08x-", (uint32_t)random[0]);
    snprintf(s->question_name, sizeof s->question_name, QUESTION_PREFIX "%016llx%016llx-",
             (unsigned long long)random[1], (unsigned long long)random[2]);
    s->server = server;
    s->o = *o;
    s->client = *o->client;
    s->actor = own_text(o->actor);
    s->scope = own_text(o->scope);
    s->last = &s->first;
    s->away_timer.due = mcp_session_late;
    s->order_timer.due = mcp_order_late;
    pthread_mutex_init(&s->told_lock, NULL);
    sm_buf_init(&s->initialize, MCP_LINE_MAX);
    sm_buf_init(&s->level, MCP_LINE_MAX);
    s->next = server->sessions;
    if (s->next != NULL)
        s->next->prev = s;
    server->sessions = s;
    /* Without these the session would not be bound to its scope. */
    bool bound =
        (s->actor.p != NULL || o->actor.p == NULL) && (s->scope.p != NULL || o->scope.p == NULL);
    return bound ? SM_OK : SEMEL_E_NOMEM;
}

void mcp_session_attach(mcp_session *s, mcp_link *link)
{
    s->link = link;
}

void mcp_session_asked(mcp_session *s, int64_t since_ms)
{
    s->asked_ms = since_ms;
}

bool mcp_session_paused(const mcp_session *s)
{
    return s->paused;
}

size_t mcp_session_writes(const mcp_session *s)
{
    return s->writes;
}

void mcp_session_rest(mcp_session *s)
{
    if (s->life != MCP_FREED)
        s->client.rest(s->client.context);
}

bool mcp_session_elsewhere(const mcp_session *s)
{
    for (const mcp_tool_call *call = s->server->calls; call != NULL; call = call->next)
        if (call->session == s && mcp_call_started(call) && call->at.stage != SM_AT_EXECUTING &&
            call->at.stage != SM_AT_DOOR)
            return true;
    return false;
}

bool mcp_session_busy(const mcp_session *s, bool requests)
{
    return s->writes > 0 || s->first != NULL || (requests && s->requests > s->listening);
}

int64_t mcp_session_patience_ms(const mcp_session *s)
{
    int64_t longest = 0;
    for (const mcp_tool_call *call = s->server->calls; call != NULL; call = call->next) {
        if (call->session != s || call->at.stage != SM_AT_EXECUTING)
            continue;
        int64_t lease = call->contract->lease_ms;
        lease = lease < SM_LEASE_MAX_MS ? lease : SM_LEASE_MAX_MS;
        longest = lease > longest ? lease : longest;
    }
    return longest;
}

void *mcp_session_context(const mcp_session *s)
{
    return s->client.context;
}

/* Nobody wants the answer any more, and the server is told. */
static void drop(mcp_session *s, mcp_exchange *x)
{
    if (x->under_way && s->o.shared) {
        sm_buf out;
        sm_buf_init(&out, 4096);
        mcp_put_request(&out, (sm_str){0}, "notifications/cancelled");
        sm_put_open(&out, "params", '{');
        sm_put_raw(&out, "requestId", x->sent_id);
        sm_buf_text(&out, "}}");
        mcp_link_send(s->link, sm_buf_view(&out), NULL);
        sm_buf_fini(&out);
    }
    mcp_exchange_free(x);
}

void mcp_session_gone(mcp_session *s, mcp_channel *channel, bool cancels)
{
    for (size_t i = 0; i < MCP_BUCKETS; i++) {
        for (mcp_exchange *x = s->table[i], *next; x != NULL; x = next) {
            next = x->next;
            if (x->channel != channel || channel == NULL)
                continue;
            x->channel = NULL;
            if (x->batch != NULL)
                mcp_batch_gone(x->batch);
            if (x->canceled)
                continue;
            if (x->what == MCP_W_CALL) {
                mcp_call_canceled(x->call);
                next = s->table[i]; /* a request of ours may have gone with it */
            } else if (cancels) {
                drop(s, x);
            } else {
                x->canceled = true;
            }
        }
    }
}

void mcp_session_deaf(mcp_session *s)
{
    mcp_tool_call *next;
    s->deaf = true;
    if (!mcp_session_ready(s))
        mcp_session_await(s, MCP_DEAF_MS);
    for (mcp_tool_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s && call->at.stage == SM_AT_DOOR)
            mcp_call_refuse(call);
    }
}

void mcp_session_end(mcp_session *s)
{
    mcp_tool_call *next;
    move(s, MCP_ENDED);
    for (size_t i = 0; i < MCP_BUCKETS; i++) {
        for (mcp_exchange *x = s->table[i]; x != NULL; x = x->next) {
            x->channel = NULL;
            x->canceled = true;
            if (x->batch != NULL)
                mcp_batch_gone(x->batch);
        }
    }
    for (mcp_tool_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s)
            mcp_call_canceled(call);
    }
}

void mcp_session_wind_up(mcp_session *s)
{
    mcp_tool_call *next;
    for (mcp_tool_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s && call->at.stage == SM_AT_PARKED)
            mcp_call_hurry(call);
        else if (call->session == s && call->at.stage == SM_AT_DOOR)
            mcp_call_refuse(call);
    }
}

void mcp_session_free(mcp_session *s)
{
    if (s == NULL)
        return;
    move(s, MCP_FREED);
    mcp_listing_leave(s);
    mcp_tool_call *next;
    for (mcp_tool_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s)
            mcp_call_end(call);
    }
    for (size_t i = 0; i < MCP_BUCKETS; i++)
        while (s->table[i] != NULL)
            mcp_exchange_free(s->table[i]);
    mcp_slots_free(s);
    mcp_loop_untime(s->server->hub->loop, &s->away_timer);
    mcp_loop_untime(s->server->hub->loop, &s->order_timer);
    mcp_link_close(s->link);
    *(s->prev != NULL ? &s->prev->next : &s->server->sessions) = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    sm_buf_fini(&s->level);
    sm_buf_fini(&s->initialize);
    pthread_mutex_destroy(&s->told_lock);
    free((char *)(uintptr_t)s->actor.p);
    free((char *)(uintptr_t)s->scope.p);
    free(s);
}

const mcp_tool *mcp_session_tool(void *context, sm_str name)
{
    const mcp_server *server = ((mcp_session *)context)->server;
    return server->listing == NULL ? NULL : mcp_tools_find(server->listing->tools, name);
}

void mcp_session_elicits(mcp_session *s, bool elicits)
{
    s->elicits = elicits;
}

bool mcp_is_question(sm_str id)
{
    size_t n = sizeof QUESTION_PREFIX - 1;
    return id.n > n && memcmp(id.p, QUESTION_PREFIX, n) == 0;
}
