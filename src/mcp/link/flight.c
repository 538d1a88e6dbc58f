/*
 * One message on its way, and what comes back for it.
 *
 * What an answer means, where somebody waits for one:
 *
 *     success, events             messages, until the response with the request's id
 *     success, JSON               one message, or an array of them
 *     404 in a session            lost: the session is gone
 *     any other, a JSON-RPC error that has the request's id: the response (but not when plain)
 *     anything else               lost, with status and body
 *
 * Nothing is ever sent again from here: an answer that does not come is lost, and only the HTTP
 * client knows whether anything has left.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/header.h"
#include "base/visible.h"
#include "mcp/link/remote.h"

#define WHY_MAX 512u

mcp_flight *mcp_flight_new(mcp_remote *r, mcp_flight_kind kind)
{
    mcp_flight *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->remote = r;
    f->kind = kind;
    f->retry_ms = -1;
    f->silence_ms = kind == MCP_FLIGHT_REQUEST  ? r->silence_ms
                    : kind == MCP_FLIGHT_LISTEN ? MCP_LISTEN_MS
                                                : MCP_NOTICE_MS;
    sm_buf_init(&f->gathered, MCP_LINE_MAX);
    return f;
}

void mcp_flight_free(mcp_flight *f)
{
    mcp_sse_free(f->sse);
    sm_buf_fini(&f->gathered);
    free(f->text);
    free(f->id);
    free(f->last_id);
    free(f->came_with);
    free(f);
}

/* ---- its end ---------------------------------------------------------------------------------*/

/* What follows need not wait for it any more. */
static void pass(mcp_flight *f)
{
    if (f->barrier)
        f->remote->barriers--;
    f->barrier = false;
}

/* Whoever waits has its way back. */
static mcp_way *let_go(mcp_flight *f)
{
    mcp_way *way = f->way;
    f->way = NULL;
    if (way != NULL)
        way->own = NULL;
    return way;
}

void mcp_flight_end(mcp_flight *f)
{
    mcp_remote *r = f->remote;
    if (f->over)
        return;
    f->over = true;
    let_go(f);
    pass(f);
    mcp_loop_untime(r->link.loop, &f->timer);
    mcp_fetch_drop(f->fetch, true);
    f->fetch = NULL;
    r->held -= f->held;
    if (r->listener == f)
        r->listener = NULL;
    if (f->waiting)
        r->waiting_bytes -= f->text_length;
    mcp_flights *list = f->waiting ? &r->waiting : &r->under_way;
    *(f->prev == NULL ? &list->first : &f->prev->next) = f->next;
    *(f->next == NULL ? &list->last : &f->next->prev) = f->prev;
    list->count--;
    f->next = r->dead;
    r->dead = f;
}

void mcp_flight_lose(mcp_flight *f, const mcp_loss *loss)
{
    mcp_remote *r = f->remote;
    mcp_way *way = let_go(f);
    mcp_flight_end(f);
    if (way != NULL && !r->closed)
        r->link.events.lost(r->link.events.context, way, loss);
}

void mcp_flight_break(mcp_flight *f, const char *format, ...)
{
    char why[WHY_MAX];
    va_list list;
    va_start(list, format);
    vsnprintf(why, sizeof why, format, list);
    va_end(list);
    mcp_flight_lose(f, &(mcp_loss){.sent = true, .why = why});
}

/* The answer is no message. */
static void lose_answer(mcp_flight *f, const char *what)
{
    char why[WHY_MAX];
    bool gone = mcp_flight_orphaned(f);
    if (gone)
        f->remote->session_gone = true;
    snprintf(why, sizeof why, "the server answered %d%s%s%s", f->status, what == NULL ? "" : ": ",
             what == NULL ? "" : what, gone ? ": its session is over" : "");
    mcp_loss loss = {
        .sent = true,
        .why = why,
        .status = f->status,
        .body = f->gathered.len == 0 ? SM_STR("") : sm_buf_view(&f->gathered),
        .session_gone = gone,
    };
    mcp_flight_lose(f, &loss);
}

/* There is no whole answer. */
static void lose_exchange(mcp_flight *f, const sm_http_result *result)
{
    sm_buf why;
    sm_buf_init(&why, WHY_MAX);
    const char *shown = f->remote->shown;
    sm_buf_text(&why, shown);
    sm_buf_text(&why, result->sent ? ": " : " cannot be reached: ");
    sm_visible_put(&why, sm_str_from(result->error == NULL ? "it ended" : result->error));
    sm_buf_byte(&why, '\0');
    bool whole = why.err == SM_OK && why.len > 0;
    mcp_flight_lose(f, &(mcp_loss){.sent = result->sent, .why = whole ? why.p : shown});
    sm_buf_fini(&why);
}

/* ---- messages that came ----------------------------------------------------------------------*/

/* Whether two ids are the same, however they are written. */
static bool same_id(sm_str a, sm_str b)
{
    char decoded[MCP_ID_MAX + 1];
    if (sm_str_eq(a, b))
        return a.n > 0;
    return sm_raw_is_string(a) && sm_raw_is_string(b) && sm_raw_text(a, decoded, sizeof decoded) &&
           sm_raw_is(b, decoded);
}

static bool answers(const mcp_flight *f, const mcp_message *m)
{
    return f->way != NULL && f->id != NULL && (m->kind == MCP_RESULT || m->kind == MCP_ERROR) &&
           same_id((sm_str){f->id, f->id_length}, m->id);
}

/* Servers that answer on another stream are not right, and easily understood. Plain requests stand
 * alone: those of different clients may have the same id. */
static mcp_flight *asked_elsewhere(const mcp_remote *r, const mcp_message *m)
{
    if (r->plain || (m->kind != MCP_RESULT && m->kind != MCP_ERROR))
        return NULL;
    mcp_flight *other = r->under_way.first;
    while (other != NULL && !answers(other, m))
        other = other->next;
    return other;
}

static void due(mcp_alarm *t)
{
    mcp_flight *f = SM_CONTAINER(t, mcp_flight, timer);
    mcp_remote *r = f->remote;
    mcp_remote_enter(r);
    mcp_flight_end(f);
    mcp_remote_leave(r);
}

/* A stream that does not end by itself after the answer is ended a little later; a connection that
 * ends by itself can be used again. */
static void answered(mcp_flight *f, const mcp_message *m)
{
    mcp_remote *r = f->remote;
    sm_str version;
    if (f->initialize && m->kind == MCP_RESULT &&
        (!sm_raw_find(m->result, "protocolVersion", &version) ||
         !sm_raw_text(version, r->version, sizeof r->version) ||
         !sm_header_value(sm_str_from(r->version))))
        r->version[0] = '\0';
    pass(f);
    f->timer.due = due;
    mcp_loop_time(r->link.loop, &f->timer, sm_clock_deadline_ns(MCP_AFTER_ANSWER_MS));
}

/* A message is one line; what breaks it is between its parts. */
static sm_str one_line(mcp_remote *r, sm_str text)
{
    if (memchr(text.p, '\n', text.n) == NULL && memchr(text.p, '\r', text.n) == NULL)
        return text;
    sm_buf_clear(&r->line);
    sm_buf_str(&r->line, text);
    for (size_t i = 0; i < r->line.len; i++) {
        if (r->line.p[i] == '\n' || r->line.p[i] == '\r')
            r->line.p[i] = ' ';
    }
    return sm_buf_view(&r->line);
}

static void give_one(mcp_flight *f, const mcp_message *m, sm_str text)
{
    mcp_remote *r = f->remote;
    mcp_flight *of = answers(f, m) ? f : asked_elsewhere(r, m);
    mcp_way *way = of == NULL ? f->way : let_go(of);
    if (of != NULL)
        answered(of, m);
    text = one_line(r, text);
    if (text.n > 0)
        r->link.events.message(r->link.events.context, way, text);
}

void mcp_flight_give(mcp_flight *f, sm_str text)
{
    mcp_message m;
    mcp_read(text, &m);
    if (m.kind != MCP_BATCH) {
        give_one(f, &m, m.text.n > 0 ? m.text : text);
        return;
    }
    sm_str all = m.text, name, item;
    for (size_t cursor = 0; !f->over && sm_raw_next(all, &cursor, &name, &item);) {
        mcp_read(item, &m);
        give_one(f, &m, item);
    }
}

/* ---- the exchange ----------------------------------------------------------------------------*/

/* What a header says of a type, without its parameters. */
static bool type_is(sm_str value, const char *type)
{
    size_t n = 0;
    while (n < value.n && value.p[n] != ';' && value.p[n] != ' ' && value.p[n] != '\t')
        n++;
    return value.p != NULL && sm_header_is((sm_str){value.p, n}, sm_str_from(type));
}

/* Visible ASCII only, as the protocol says; anything else could not be sent back. */
static void keep_session(mcp_remote *r, sm_str id)
{
    r->session[0] = '\0';
    r->session_gone = false;
    r->session_number++;
    if (id.p == NULL || id.n > MCP_SESSION_ID_MAX)
        return;
    for (size_t i = 0; i < id.n; i++) {
        if (id.p[i] < 0x21 || id.p[i] > 0x7E)
            return;
    }
    memcpy(r->session, id.p, id.n);
    r->session[id.n] = '\0';
}

/* What becomes of the body. Events are no body for anything but a request, and might never end. */
static void choose_body(mcp_flight *f, bool success, sm_str type)
{
    bool events = type_is(type, "text/event-stream");
    bool wanted = success && f->kind == MCP_FLIGHT_REQUEST;
    if (wanted && events)
        mcp_stream_begin(f);
    else if (events)
        lose_answer(f, NULL);
    else if (wanted && type_is(type, "application/json"))
        f->body = MCP_BODY_WHOLE;
    else
        f->body = MCP_BODY_REST;
}

static void on_head(void *context, int status, const sm_http_field *headers, size_t n)
{
    mcp_flight *f = context;
    mcp_remote *r = f->remote;
    bool success = status >= 200 && status <= 299;
    sm_str type = mcp_header_find(headers, n, "Content-Type");
    mcp_remote_enter(r);
    f->status = status;
    if (f->kind == MCP_FLIGHT_LISTEN || f->resumed) {
        mcp_stream_head(f, success && type_is(type, "text/event-stream"));
        mcp_remote_leave(r);
        return;
    }
    f->heard_ns = sm_clock_mono_ns();
    if (f->initialize && success)
        keep_session(r, mcp_header_find(headers, n, "Mcp-Session-Id"));
    if (f->kind == MCP_FLIGHT_NOTICE)
        pass(f);
    if (f->initialized && success)
        mcp_stream_listen(r);
    if (r->plain && f->way != NULL && r->link.events.head != NULL)
        r->link.events.head(r->link.events.context, f->way, status, headers, n);
    if (!f->over)
        choose_body(f, success, type);
    mcp_remote_leave(r);
}

/* What the link holds of this flight has changed. */
static void weigh(mcp_flight *f, size_t now)
{
    mcp_remote *r = f->remote;
    r->held += now - f->held;
    f->held = now;
    if (r->held > MCP_HELD_MAX)
        mcp_flight_break(f, "the server says more at once than can be held");
}

static void on_data(void *context, sm_str piece)
{
    mcp_flight *f = context;
    mcp_remote *r = f->remote;
    mcp_remote_enter(r);
    if (f->body == MCP_BODY_STREAM) {
        mcp_stream_add(f, piece);
    } else if (f->body == MCP_BODY_WHOLE) {
        sm_buf_str(&f->gathered, piece);
        if (f->gathered.err != SM_OK) {
            sm_buf_clear(&f->gathered);
            lose_answer(f, "with more than is held of one message");
        }
    } else if (!f->resumed && f->kind != MCP_FLIGHT_LISTEN) {
        size_t room = MCP_FAILURE_BODY_MAX - f->gathered.len;
        sm_buf_bytes(&f->gathered, piece.p, piece.n < room ? piece.n : room);
        if (piece.n > room && f->way == NULL)
            mcp_flight_end(f);
    }
    if (!f->over)
        weigh(f, f->text_length + f->gathered.len + (f->sse == NULL ? 0 : mcp_sse_held(f->sse)));
    mcp_remote_leave(r);
}

/* The whole of a success. */
static void end_whole(mcp_flight *f)
{
    if (f->gathered.len > 0)
        mcp_flight_give(f, sm_buf_view(&f->gathered));
    if (f->way != NULL && !f->over)
        lose_answer(f, "with something else than a response to the request");
    else
        mcp_flight_end(f);
}

/* The end of an answer that is no success, or of a success without a message. */
static void end_rest(mcp_flight *f)
{
    mcp_message m;
    bool gone = mcp_flight_orphaned(f);
    if (!f->remote->plain && !gone && f->gathered.len > 0 &&
        mcp_read(sm_buf_view(&f->gathered), &m) && m.kind == MCP_ERROR && answers(f, &m)) {
        give_one(f, &m, m.text);
        mcp_flight_end(f);
        return;
    }
    bool redirect = f->status >= 300 && f->status <= 399;
    lose_answer(f,
                redirect ? "redirections are not followed, write the URL that it leads to" : NULL);
}

static void on_done(void *context, const sm_http_result *result)
{
    mcp_flight *f = context;
    mcp_remote *r = f->remote;
    f->fetch = NULL;
    mcp_remote_enter(r);
    if (f->kind == MCP_FLIGHT_LISTEN || (f->way != NULL && (f->resumed || f->sse != NULL)))
        mcp_stream_end(f, result->complete ? "it ended" : result->error);
    else if (f->way == NULL)
        mcp_flight_end(f);
    else if (f->body == MCP_BODY_REST)
        end_rest(f); /* the status tells, whether or not all of the body came */
    else if (!result->complete)
        lose_exchange(f, result);
    else
        end_whole(f);
    mcp_remote_leave(r);
}

static sm_err start(mcp_flight *f, sm_http_request *request, const mcp_message *m, int64_t pause_ms)
{
    mcp_remote *r = f->remote;
    mcp_fetch_events events = {.head = on_head, .data = on_data, .done = on_done, .context = f};
    request->url = sm_str_from(r->url);
    request->timeout_ms = f->silence_ms;
    sm_err e = SEMEL_E_NOMEM;
    if (mcp_remote_headers(f, m, &request->headers, &request->header_count))
        e = mcp_fetch_start(r->link.loop, r->http, request, pause_ms, &events, &f->fetch);
    sm_arena_reset(&r->arena);
    f->body = MCP_BODY_NONE;
    return e;
}

sm_err mcp_flight_send(mcp_flight *f, const mcp_message *m)
{
    sm_http_request request = {
        .method = "POST", .body = m->text, .write = f->way != NULL && f->way->write};
    if (strcmp(m->method, "subscriptions/listen") == 0)
        f->silence_ms = MCP_LISTEN_MS;
    return start(f, &request, m, 0);
}

sm_err mcp_flight_get(mcp_flight *f, int64_t pause_ms)
{
    return start(f, &(sm_http_request){.method = "GET"}, NULL, pause_ms);
}

bool mcp_flight_orphaned(const mcp_flight *f)
{
    return f->status == 404 && f->in_session && f->session_number == f->remote->session_number;
}
