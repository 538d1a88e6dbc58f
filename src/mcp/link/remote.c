/*
 * The link: what is sent, in what order, and the end.
 *
 * Order: HTTP has none between requests, MCP over a pipe has. So what follows a notification waits
 * until the server has taken it (a call must not overtake notifications/initialized), and what
 * follows initialize waits for its answer, which says what all others have to carry. Answers to the
 * server's own requests wait for nobody, for the server may wait for them.
 */
#include "mcp/link/remote.h"

#include <stdlib.h>

#include "base/header.h"
#include "base/url.h"

/* ---- going in and out ------------------------------------------------------------------------*/

static void release(mcp_remote *r)
{
    free(r->url);
    free(r->shown);
    free(r->headers);
    sm_arena_fini(&r->arena);
    sm_buf_fini(&r->line);
    free(r);
}

void mcp_remote_add(mcp_flights *list, mcp_flight *f)
{
    f->next = NULL;
    f->prev = list->last;
    *(list->last == NULL ? &list->first : &list->last->next) = f;
    list->last = f;
    list->count++;
}

void mcp_remote_enter(mcp_remote *r)
{
    r->inside++;
}

/* A new session begins: the old one's stream, and what it agreed on, are of no use any more. */
static void start_over(mcp_remote *r)
{
    if (r->listener != NULL)
        mcp_flight_end(r->listener);
    r->session[0] = r->version[0] = '\0';
    r->session_gone = false;
}

/* Sends a flight; then it is under way. On failure it is nobody's. */
static sm_err launch(mcp_remote *r, mcp_flight *f, const mcp_message *m)
{
    if (f->initialize)
        start_over(r);
    sm_err e = mcp_flight_send(f, m);
    if (e != SM_OK)
        return e;
    f->barrier = !r->plain && (f->initialize || f->kind == MCP_FLIGHT_NOTICE);
    r->barriers += f->barrier;
    mcp_remote_add(&r->under_way, f);
    return SM_OK;
}

/* Takes the first that waits, and sends it. */
static void send_next(mcp_remote *r)
{
    mcp_flight *f = r->waiting.first;
    mcp_message m;
    mcp_read((sm_str){f->text, f->text_length}, &m);
    mcp_flights *list = &r->waiting;
    list->first = f->next;
    *(f->next == NULL ? &list->last : &f->next->prev) = NULL;
    list->count--;
    r->waiting_bytes -= f->text_length;
    f->waiting = false;
    sm_err e = launch(r, f, &m);
    if (e == SM_OK) {
        free(f->text);
        f->text = NULL;
        return;
    }
    mcp_remote_add(&r->under_way, f); /* only to be lost */
    const char *why = e == SEMEL_E_INVALID ? "HTTP cannot carry one of its headers"
                      : e == SEMEL_E_NOMEM ? "out of memory"
                                           : "the HTTP client was stopped";
    mcp_flight_lose(f, &(mcp_loss){.why = why});
}

static bool is_full(const mcp_remote *r)
{
    return r->waiting_bytes > MCP_WAITING_MAX;
}

void mcp_remote_leave(mcp_remote *r)
{
    while (r->inside == 1 && !r->closed && r->barriers == 0 && r->waiting.first != NULL)
        send_next(r);
    if (r->inside == 1 && !r->closed && r->was_full && !is_full(r)) {
        r->was_full = false;
        r->link.events.room(r->link.events.context);
    }
    if (--r->inside > 0)
        return;
    while (r->dead != NULL) {
        mcp_flight *f = r->dead;
        r->dead = f->next;
        mcp_flight_free(f);
    }
    if (r->closed)
        release(r);
}

/* ---- sending ---------------------------------------------------------------------------------*/

static bool copy_text(sm_str from, char **to, size_t *n)
{
    *to = malloc(from.n + 1);
    if (*to == NULL)
        return false;
    memcpy(*to, from.p, from.n);
    *n = from.n;
    return true;
}

static mcp_flight *flight_of(mcp_remote *r, const mcp_message *m, mcp_way *way)
{
    mcp_flight_kind kind = m->kind == MCP_REQUEST        ? MCP_FLIGHT_REQUEST
                           : m->kind == MCP_NOTIFICATION ? MCP_FLIGHT_NOTICE
                                                         : MCP_FLIGHT_REPLY;
    mcp_flight *f = mcp_flight_new(r, kind);
    if (f == NULL)
        return NULL;
    f->way = way;
    f->initialize = !r->plain && kind == MCP_FLIGHT_REQUEST && strcmp(m->method, "initialize") == 0;
    f->initialized = !r->plain && kind == MCP_FLIGHT_NOTICE &&
                     strcmp(m->method, "notifications/initialized") == 0;
    if (kind == MCP_FLIGHT_REQUEST && !copy_text(m->id, &f->id, &f->id_length)) {
        mcp_flight_free(f);
        return NULL;
    }
    return f;
}

/* Puts it at the end of those that wait. */
static bool wait_turn(mcp_remote *r, mcp_flight *f, sm_str text)
{
    if (!copy_text(text, &f->text, &f->text_length))
        return false;
    f->waiting = true;
    r->waiting_bytes += text.n;
    r->was_full |= is_full(r);
    mcp_remote_add(&r->waiting, f);
    return true;
}

static bool remote_send(mcp_link *l, sm_str text, mcp_way *way)
{
    mcp_remote *r = (mcp_remote *)l;
    mcp_message m;
    mcp_read(text, &m);
    if (m.kind == MCP_INVALID || m.kind == MCP_BATCH || r->held + text.n > MCP_HELD_MAX ||
        r->waiting.count + r->under_way.count >= MCP_FLIGHTS_MAX)
        return false;
    mcp_flight *f = flight_of(r, &m, way);
    if (f == NULL)
        return false;
    bool turn =
        !r->plain && f->kind != MCP_FLIGHT_REPLY && (r->barriers > 0 || r->waiting.first != NULL);
    bool right = turn ? wait_turn(r, f, m.text) : launch(r, f, &m) == SM_OK;
    if (!right) {
        mcp_flight_free(f);
        return false;
    }
    f->text_length = f->held = m.text.n;
    r->held += f->held;
    if (way != NULL)
        way->own = f;
    return true;
}

static void remote_forget(mcp_link *l, mcp_way *way)
{
    mcp_remote *r = (mcp_remote *)l;
    mcp_flight *f = way->own;
    if (f == NULL)
        return;
    mcp_remote_enter(r);
    mcp_flight_end(f);
    mcp_remote_leave(r);
}

static bool remote_full(const mcp_link *l)
{
    return is_full((const mcp_remote *)l);
}

/* ---- the end ---------------------------------------------------------------------------------*/

static void ignore_head(void *context, int status, const sm_http_field *headers, size_t n)
{
    (void)context, (void)status, (void)headers, (void)n;
}

static void ignore_data(void *context, sm_str piece)
{
    (void)context, (void)piece;
}

static void ignore_done(void *context, const sm_http_result *r)
{
    (void)context, (void)r;
}

/* Tells the server that its session is not needed any more. Whether it hears that is its affair. */
static void end_session(mcp_remote *r)
{
    mcp_flight *f = mcp_flight_new(r, MCP_FLIGHT_REPLY);
    if (f == NULL)
        return;
    sm_http_request request = {
        .method = "DELETE", .url = sm_str_from(r->url), .timeout_ms = MCP_DELETE_MS};
    mcp_fetch_events events = {ignore_head, ignore_data, ignore_done, NULL};
    mcp_fetch *x = NULL;
    if (mcp_remote_headers(f, NULL, &request.headers, &request.header_count) &&
        mcp_fetch_start(r->link.loop, r->http, &request, 0, &events, &x) == SM_OK)
        mcp_fetch_drop(x, false);
    sm_arena_reset(&r->arena);
    mcp_flight_free(f);
}

static void remote_close(mcp_link *l)
{
    mcp_remote *r = (mcp_remote *)l;
    mcp_remote_enter(r);
    r->closed = true;
    while (r->waiting.first != NULL)
        mcp_flight_end(r->waiting.first);
    while (r->under_way.first != NULL)
        mcp_flight_end(r->under_way.first);
    if (r->session[0] != '\0' && !r->session_gone)
        end_session(r);
    mcp_remote_leave(r);
}

/* ---- the beginning ---------------------------------------------------------------------------*/

/* All headers and their texts in one piece. */
static bool copy_headers(mcp_remote *r, const mcp_remote_options *o)
{
    size_t size = o->header_count * sizeof *o->headers + 1;
    for (size_t i = 0; i < o->header_count; i++)
        size += o->headers[i].name.n + o->headers[i].value.n;
    r->headers = malloc(size);
    if (r->headers == NULL)
        return false;
    char *at = (char *)(r->headers + o->header_count);
    for (size_t i = 0; i < o->header_count; i++) {
        sm_str name = o->headers[i].name, value = o->headers[i].value;
        r->headers[i] = (sm_http_field){{at, name.n}, {at + name.n, value.n}};
        memcpy(at, name.p, name.n);
        memcpy(at + name.n, value.p, value.n);
        at += name.n + value.n;
    }
    r->header_count = o->header_count;
    return true;
}

/* No message for people holds a value. */
static sm_err check(const mcp_remote_options *o, sm_fault *fault)
{
    sm_err e = sm_url_check(o->url, fault);
    for (size_t i = 0; e == SM_OK && i < o->header_count; i++) {
        const sm_http_field *h = &o->headers[i];
        if (!sm_header_name(h->name) || sm_header_framing(h->name))
            e = sm_fault_set(fault, SEMEL_E_INVALID,
                             "header %zu has a name that is none of a header to be sent", i + 1);
        else if (!sm_header_value(h->value))
            e = sm_fault_set(fault, SEMEL_E_INVALID,
                             "the value of the header %.*s holds control characters",
                             SM_FMT(h->name));
    }
    return e;
}

static void hold(mcp_link *l, bool held)
{
    mcp_remote *r = SM_CONTAINER(l, mcp_remote, link);
    for (mcp_flight *f = r->under_way.first; f != NULL; f = f->next)
        mcp_fetch_hold(f->fetch, held);
}

sm_err mcp_remote_open(mcp_loop *loop, const mcp_remote_options *o, const mcp_link_events *events,
                       mcp_link **out, sm_fault *fault)
{
    static const mcp_link_ops ops = {.send = remote_send,
                                     .forget = remote_forget,
                                     .full = remote_full,
                                     .hold = hold,
                                     .close = remote_close};
    *out = NULL;
    sm_err e = check(o, fault);
    if (e != SM_OK)
        return e;
    mcp_remote *r = calloc(1, sizeof *r);
    if (r == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    r->link = (mcp_link){.ops = &ops, .events = *events, .loop = loop, .exchanges = true};
    r->http = o->http;
    r->silence_ms = o->silence_ms > 0 ? o->silence_ms : MCP_SILENCE_MS;
    r->plain = o->plain;
    r->tool = o->tool;
    r->tool_context = o->tool_context;
    sm_arena_init(&r->arena, (size_t)1 << 20);
    sm_buf_init(&r->line, MCP_LINE_MAX);
    r->url = strndup(o->url.p, o->url.n);
    r->shown = strndup(o->url.p, o->url.n);
    if (r->url == NULL || r->shown == NULL || !copy_headers(r, o)) {
        release(r);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    }
    r->shown[strcspn(r->shown, "?#")] = '\0';
    *out = &r->link;
    return SM_OK;
}
