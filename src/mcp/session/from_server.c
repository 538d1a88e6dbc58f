/*
 * What comes from the server, and where it goes; a server that goes, and one that comes back.
 */
#include <assert.h>
#include <stddef.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/visible.h"
#include "mcp/call/call.h"
#include "mcp/wire/lines.h"

#define JUNK_TOLD 10u

static void note_agreed(mcp_session *s, const mcp_message *m)
{
    sm_str version;
    if (m->kind != MCP_RESULT || !sm_raw_find(m->result, "protocolVersion", &version) ||
        !sm_raw_text(version, s->version, sizeof s->version))
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
    mcp_put_back(&out, m, x);
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
    case MCP_W_OTHER: (x->read != NULL ? mcp_read_answered : mcp_pass_answer)(x, m); break;
    }
}

static void on_server_notification(mcp_session *s, mcp_exchange *x, const mcp_message *m)
{
    bool named;
    mcp_exchange *of = mcp_about(s, m, &named);
    bool progress = strcmp(m->method, "notifications/progress") == 0;
    /* Over HTTP the link knows on whose stream it came, and tokens of several clients may be equal.
     */
    if (of != NULL && (x == NULL || !s->o.anyone))
        x = of;
    if (strcmp(m->method, "notifications/tools/list_changed") == 0)
        mcp_listing_changed(s);
    if (s->o.shared && named && of == NULL)
        return; /* of what nobody waits for any more */
    if (x != NULL && x->canceled && !(progress && x->what == MCP_W_CALL))
        return;
    if (progress && x != NULL && x->what == MCP_W_CALL) {
        mcp_call_progress(x->call, m);
    } else if (x != NULL && s->o.shared) {
        sm_buf out;
        sm_buf_init(&out, 2 * MCP_LINE_MAX);
        mcp_put_back(&out, m, x);
        mcp_tell_client(s, x->channel, sm_buf_view(&out));
        sm_buf_fini(&out);
    } else {
        mcp_tell_client(s, x == NULL ? NULL : x->channel, m->text);
    }
}

/* A server asks its client something. Where there is no session nobody can answer. */
static void on_server_request(mcp_session *s, mcp_exchange *x, const mcp_message *m)
{
    if (x != NULL && x->canceled)
        return; /* whoever could answer has gone */
    if (!s->o.shared) {
        mcp_tell_client(s, x == NULL ? NULL : x->channel, m->text);
        return;
    }
    sm_buf out;
    sm_buf_init(&out, 4096);
    mcp_put_error(&out, m->id, -32601, SM_STR("Method not found"));
    mcp_link_send(s->link, sm_buf_view(&out), NULL);
    sm_buf_fini(&out);
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

static void lose(mcp_session *s, mcp_exchange *x, const mcp_loss *loss);

/* An answer that two readers read differently, or that has neither a result nor an error, does not
 * count: the call may have been done. */
static void on_unreadable(mcp_session *s, mcp_exchange *x)
{
    if (x == NULL || !x->under_way)
        return;
    mcp_link_forget(s->link, &x->way);
    lose(s, x, &(mcp_loss){.sent = true, .why = MCP_UNREADABLE});
}

/* NULL of NULL. */
static mcp_exchange *exchange_of(mcp_way *way)
{
    return way == NULL ? NULL : SM_CONTAINER(way, mcp_exchange, way);
}

static void on_link_message(void *context, mcp_way *way, sm_str text)
{
    mcp_session *s = context;
    mcp_exchange *x = exchange_of(way);
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
    case MCP_REQUEST: on_server_request(s, x, &m); break;
    case MCP_NOTIFICATION: on_server_notification(s, x, &m); break;
    case MCP_BATCH:
        while (sm_raw_next(m.text, &cursor, &name, &item))
            on_link_message(context, way, item);
        break;
    case MCP_INVALID:
        on_junk(s, &m, text);
        if (m.answer)
            on_unreadable(s, x != NULL && x->way.own == NULL ? x : mcp_exchange_find(s, m.id));
        break;
    }
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
        } else if (x->channel != NULL && x->batch == NULL && loss->status != 0 && !x->canceled &&
                   s->life == MCP_OPEN) {
            s->client.fail(s->client.context, x->channel, loss);
            mcp_exchange_free(x);
        } else {
            mcp_reply_error(x, loss->sent ? MCP_E_LOST : MCP_E_AWAY, "%s.", loss->why);
        }
        break;
    }
}

static void on_lost(void *context, mcp_way *way, const mcp_loss *loss)
{
    mcp_session *s = context;
    bool again = loss->session_gone && !mcp_session_starting(s) && s->o.renews;
    lose(s, exchange_of(way), loss);
    if (again)
        mcp_session_begin_again(s);
}

/* The answers to a batch go back together, and have no head of their own. */
static void on_link_head(void *context, mcp_way *way, int status, const sm_http_field *headers,
                         size_t n)
{
    mcp_session *s = context;
    const mcp_exchange *x = exchange_of(way);
    (void)status;
    if (s->client.head != NULL && x->channel != NULL && x->batch == NULL && !x->canceled &&
        s->life == MCP_OPEN)
        s->client.head(s->client.context, x->channel, headers, n);
}

static void on_link_too_long(void *context, const mcp_text_line *line)
{
    mcp_session *s = context;
    char why[96];
    snprintf(why, sizeof why, "the server's answer has %llu bytes, and at most %zu are read",
             (unsigned long long)line->length, MCP_LINE_MAX);
    mcp_say(s->server->hub, MCP_WARN, "%s", why);
    mcp_exchange *x = line->id.p == NULL ? NULL : mcp_exchange_find(s, line->id);
    if (x == NULL || !x->under_way)
        return;
    mcp_link_forget(s->link, &x->way);
    x->under_way = false;
    if (line->result && x->what == MCP_W_CALL && !mcp_call_unrecorded(x->call))
        mcp_call_overflowed(x->call, line);
    else
        lose(s, x, &(mcp_loss){.sent = true, .why = why});
}

/* ---- a server that goes and comes back -------------------------------------------------------*/

static void on_room(void *context)
{
    mcp_session_regulate(context);
}

static void move(mcp_session *s, mcp_reach reach)
{
    if (reach == MCP_THERE || reach == MCP_LAPSED)
        mcp_loop_untime(s->server->hub->loop, &s->away_timer);
    s->reach = reach;
    assert(mcp_session_flaw(s) == NULL);
}

/* The server is there, or has been away for long: what waits for it is sent, or answered with that.
 */
static void go_on(mcp_session *s)
{
    mcp_listing_go_on(s);
    mcp_remedy_go_on(s);
    mcp_session_flush(s);
    mcp_session_rest(s); /* the last that waited may have been no request */
}

void mcp_session_late(mcp_alarm *t)
{
    mcp_session *s = SM_CONTAINER(t, mcp_session, away_timer);
    if (!mcp_session_there(s))
        move(s, mcp_session_starting(s) ? MCP_STARTING_LATE : MCP_AWAY);
    go_on(s);
}

void mcp_session_await(mcp_session *s, int64_t ms)
{
    int64_t most_ms = s->deaf && ms > MCP_DEAF_MS ? MCP_DEAF_MS : ms;
    mcp_loop_time(s->server->hub->loop, &s->away_timer, sm_clock_deadline_ns(most_ms));
}

static void on_down(void *context, const char *why, bool for_good)
{
    mcp_session *s = context;
    bool late = s->reach == MCP_STARTING_LATE; /* what waited has its answer already */
    move(s, for_good || late ? MCP_AWAY : MCP_DOWN);
    if (for_good) {
        go_on(s);
        s->client.over(s->client.context);
    } else {
        mcp_say(s->server->hub, MCP_WARN, "%s; it is started again", why);
        mcp_session_await(s, MCP_AWAY_MS);
    }
}

static void started(mcp_session *s, mcp_reach reach)
{
    move(s, reach);
    go_on(s);
}

/* The new server is told what the old one was: the client does not know that it has gone. */
static void on_initialized(mcp_exchange *x, const mcp_message *m)
{
    mcp_session *s = x->session;
    if (m == NULL && s->link->exchanges) {
        /* A child tells when it is back; over HTTP the next message has to try. */
        mcp_say(s->server->hub, MCP_WARN,
                "the server has forgotten the session, and takes no new one");
        started(s, MCP_LAPSED);
    }
    if (m == NULL)
        return; /* gone again */
    move(s, MCP_THERE);
    if (m->kind != MCP_RESULT)
        mcp_say(s->server->hub, MCP_WARN,
                "the server that was started again turns initialize down");
    mcp_link_send(s->link, SM_STR(MCP_INITIALIZED), NULL);
    if (s->level.len > 0)
        mcp_request(s, "logging/setLevel", sm_buf_view(&s->level), NULL, 0, mcp_ignore, NULL);
    started(s, MCP_THERE);
}

void mcp_ignore(mcp_exchange *x, const mcp_message *m)
{
    (void)x;
    (void)m;
}

void mcp_session_greeted(mcp_session *s)
{
    move(s, MCP_THERE);
}

void mcp_session_begin_again(mcp_session *s)
{
    s->server->stale = true;
    move(s, MCP_THERE);
    if (s->initialize.len > 0 && mcp_request(s, "initialize", sm_buf_view(&s->initialize), NULL, 0,
                                             on_initialized, NULL) != NULL) {
        move(s, MCP_STARTING);
        mcp_session_await(s, MCP_STARTING_MS);
    } else {
        started(s, MCP_THERE);
    }
}

static void on_up(void *context)
{
    mcp_session *s = context;
    mcp_session_begin_again(s);
}

mcp_link_events mcp_session_events(mcp_session *s)
{
    return (mcp_link_events){.message = on_link_message,
                             .head = on_link_head,
                             .lost = on_lost,
                             .too_long = on_link_too_long,
                             .up = on_up,
                             .down = on_down,
                             .room = on_room,
                             .context = s};
}
