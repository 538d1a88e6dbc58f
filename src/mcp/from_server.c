/*
 * What comes from the server, and where it goes; a server that goes, and one that comes back.
 */
#include <stddef.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/visible.h"
#include "mcp/call.h"
#include "mcp/remote.h"

#define JUNK_TOLD 10u

static void note_agreed(mcp_session *s, const mcp_message *m)
{
    sm_str version;
    if (m->kind != MCP_RESULT || !mcp_find(m->result, "protocolVersion", &version) ||
        !mcp_text(version, s->version, sizeof s->version))
        s->version[0] = '\0';
}

/* The answer with the id that the client gave. */
void mcp_pass_answer(mcp_exchange *x, const mcp_message *m)
{
    if (!x->session->o.shared) {
        mcp_reply(x, m->text);
        return;
    }
    sm_buf out;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    mcp_put_edited(&out, m->text, &(mcp_edit){.at = m->id, .with = x->id}, 1);
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
}

static void on_answer(mcp_session *s, mcp_exchange *x, const mcp_message *m)
{
    size_t n = strlen(s->own_name);
    if (x == NULL) {
        bool ours = m->id.n > n && memcmp(m->id.p, s->own_name, n) == 0;
        if (!ours) /* late, or to nobody: the client knows what to make of it */
            mcp_tell_client(s, NULL, m->text);
        return;
    }
    if (!x->under_way)
        return; /* it has its answer, or has not been asked yet */
    mcp_link_forget(s->link, &x->way);
    x->under_way = false;
    switch (x->what) {
    case MCP_W_OWN:
        x->answered(x, m);
        mcp_exchange_free(x);
        break;
    case MCP_W_CALL: mcp_call_answered(x->call, m); break;
    case MCP_W_LIST: mcp_listing_pass(x, m); break;
    case MCP_W_INITIALIZE:
        note_agreed(s, m);
        mcp_pass_answer(x, m);
        break;
    case MCP_W_DISCOVER:
    case MCP_W_OTHER: mcp_pass_answer(x, m); break;
    }
}

/* The request that a progress notification is about. */
static mcp_exchange *progressing(mcp_session *s, sm_str token)
{
    for (size_t i = 0; i < MCP_BUCKETS; i++)
        for (mcp_exchange *x = s->table[i]; x != NULL; x = x->next)
            if (x->token.p != NULL && sm_str_eq(x->token, token))
                return x;
    return NULL;
}

static void on_server_notification(mcp_session *s, mcp_exchange *x, const mcp_message *m)
{
    sm_str token;
    if (strcmp(m->method, "notifications/progress") == 0 &&
        mcp_find(m->params, "progressToken", &token)) {
        mcp_exchange *of = progressing(s, token);
        x = of != NULL ? of : x;
        if (x != NULL && x->what == MCP_W_CALL) {
            mcp_call_progress(x->call, m);
            return;
        }
    } else if (strcmp(m->method, "notifications/tools/list_changed") == 0) {
        mcp_listing_changed(s);
    }
    if (x == NULL || !x->canceled)
        mcp_tell_client(s, x == NULL ? NULL : x->channel, m->text);
}

static void on_junk(mcp_session *s, const mcp_message *m, sm_str text)
{
    if (s->junk++ >= JUNK_TOLD)
        return;
    sm_buf shown;
    sm_buf_init(&shown, 1024);
    sm_visible_put(&shown, (sm_str){text.p, text.n < 160 ? text.n : 160});
    mcp_say(s->server->hub, MCP_WARN, "the server printed what is no message (%s); dropped: %.*s%s",
            m->flaw, (int)shown.len, shown.p, s->junk == JUNK_TOLD ? "; no more is told" : "");
    sm_buf_fini(&shown);
}

static void on_link_message(void *context, mcp_way *way, sm_str text)
{
    mcp_session *s = context;
    mcp_exchange *x = (mcp_exchange *)(void *)way;
    mcp_message m;
    size_t cursor = 0;
    sm_str name, item;
    mcp_read(text, &m);
    switch (m.kind) {
    case MCP_RESULT:
    case MCP_ERROR:
        /* Over HTTP the link knows whose answer it is, however the server writes the id. */
        on_answer(s, x != NULL && x->way.own == NULL ? x : mcp_exchange_find(s, m.id), &m);
        break;
    case MCP_REQUEST: mcp_tell_client(s, x == NULL ? NULL : x->channel, m.text); break;
    case MCP_NOTIFICATION: on_server_notification(s, x, &m); break;
    case MCP_BATCH:
        while (mcp_next(m.text, &cursor, &name, &item))
            on_link_message(context, way, item);
        break;
    case MCP_INVALID: on_junk(s, &m, text); break;
    }
}

/* Plain HTTP: the client is answered in the form in which the server answers. */
static void on_head(void *context, mcp_way *way, int status, const sm_http_field *headers, size_t n)
{
    mcp_session *s = context;
    mcp_exchange *x = (mcp_exchange *)(void *)way;
    sm_str type = mcp_header_find(headers, n, "Content-Type");
    if (x->channel != NULL && !x->canceled && x->batch == NULL && status == 200 &&
        s->client.streams != NULL && type.n >= 17 &&
        strncasecmp(type.p, "text/event-stream", 17) == 0)
        s->client.streams(s->client.context, x->channel);
}

static void lose(mcp_session *s, mcp_exchange *x, const mcp_loss *loss)
{
    x->under_way = false;
    switch (x->what) {
    case MCP_W_OWN:
        x->answered(x, NULL);
        mcp_exchange_free(x);
        break;
    case MCP_W_CALL: mcp_call_lost(x->call, loss); break;
    default:
        if (x->what == MCP_W_DISCOVER && loss->status >= 400 && loss->status < 500) {
            /* A server of the older era. Whoever asks knows that by this code. */
            mcp_reply_error(x, -32601, "Method not found");
        } else if (x->channel != NULL && loss->status != 0 && !x->canceled) {
            s->client.fail(s->client.context, x->channel, loss);
            mcp_exchange_free(x);
        } else {
            mcp_reply_error(x, loss->sent ? MCP_E_LOST : MCP_E_AWAY, "%s.", loss->why);
        }
        break;
    }
}

static void begin_again(mcp_session *s);

static void on_lost(void *context, mcp_way *way, const mcp_loss *loss)
{
    mcp_session *s = context;
    bool again = loss->session_gone && !s->starting && s->o.renews;
    lose(s, (mcp_exchange *)(void *)way, loss);
    if (again)
        begin_again(s);
}

static void on_link_too_long(void *context, sm_str id, uint64_t length)
{
    mcp_session *s = context;
    char why[96];
    snprintf(why, sizeof why, "the server's answer has %llu bytes, and at most %zu are read",
             (unsigned long long)length, MCP_LINE_MAX);
    mcp_say(s->server->hub, MCP_WARN, "%s", why);
    mcp_exchange *x = id.p == NULL ? NULL : mcp_exchange_find(s, id);
    if (x == NULL || !x->under_way)
        return;
    mcp_link_forget(s->link, &x->way);
    lose(s, x, &(mcp_loss){.sent = true, .why = why});
}

/* ---- a server that goes and comes back -------------------------------------------------------*/

static void on_room(void *context)
{
    mcp_session_regulate(context);
}

void mcp_session_late(mcp_timer *t)
{
    mcp_session *s = (mcp_session *)(void *)((char *)t - offsetof(mcp_session, away_timer));
    s->away = true;
    mcp_listing_go_on(s);
    mcp_remedy_go_on(s);
    mcp_session_flush(s); /* whatever waits is answered with that */
}

static void on_down(void *context, const char *why, bool for_good)
{
    mcp_session *s = context;
    s->down = true;
    s->starting = false;
    if (!for_good)
        mcp_say(s->server->hub, MCP_WARN, "%s; it is started again", why);
    if (for_good) {
        s->away = true;
        mcp_listing_go_on(s);
        mcp_remedy_go_on(s);
        mcp_session_flush(s);
        s->client.over(s->client.context);
    } else {
        mcp_loop_time(s->server->hub->loop, &s->away_timer, sm_clock_deadline_ns(MCP_AWAY_MS));
    }
}

static void started(mcp_session *s)
{
    s->starting = s->away = false;
    mcp_loop_untime(s->server->hub->loop, &s->away_timer);
    mcp_listing_go_on(s);
    mcp_remedy_go_on(s);
    mcp_session_flush(s);
}

/* The new server is told what the old one was: the client does not know that it has gone. */
static void on_initialized(mcp_exchange *x, const mcp_message *m)
{
    mcp_session *s = x->session;
    if (m == NULL)
        return; /* gone again */
    if (m->kind != MCP_RESULT)
        mcp_say(s->server->hub, MCP_WARN,
                "the server that was started again turns initialize down");
    mcp_link_send(s->link, SM_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"),
                  NULL);
    if (s->level.len > 0)
        mcp_request(s, "logging/setLevel", sm_buf_view(&s->level), NULL, 0, mcp_ignore, NULL);
    started(s);
}

void mcp_ignore(mcp_exchange *x, const mcp_message *m)
{
    (void)x;
    (void)m;
}

static void begin_again(mcp_session *s)
{
    s->server->stale = true;
    s->starting = s->initialize.len > 0 && mcp_request(s, "initialize", sm_buf_view(&s->initialize),
                                                       NULL, 0, on_initialized, NULL) != NULL;
    if (s->starting)
        mcp_loop_time(s->server->hub->loop, &s->away_timer, sm_clock_deadline_ns(MCP_STARTING_MS));
    else
        started(s);
}

static void on_up(void *context)
{
    mcp_session *s = context;
    s->down = s->away = false;
    mcp_loop_untime(s->server->hub->loop, &s->away_timer);
    begin_again(s);
}

mcp_link_events mcp_session_events(mcp_session *s)
{
    return (mcp_link_events){.message = on_link_message,
                             .head = on_head,
                             .lost = on_lost,
                             .too_long = on_link_too_long,
                             .up = on_up,
                             .down = on_down,
                             .room = on_room,
                             .context = s};
}
