/*
 * The owner of a link, for the tests: what it is told is kept in a list, and the loop runs until
 * something has come.
 */
#ifndef SM_TESTS_MCP_OWNER_H
#define SM_TESTS_MCP_OWNER_H

#include "mcp_peer.h"

#include "base/clock.h"
#include "mcp/link.h"

typedef struct told {
    char *text;   /* of a message, or why */
    mcp_way *way; /* as it was told */
    bool lost, sent, gone;
    int status;
    char *body;
} told;

#define TOLD_MAX 8192

static mcp_loop *loop;
static sm_http *http;
static mcp_link *link_;
static told list[TOLD_MAX];
static size_t told_count, heads, rooms, too_longs;
static int head_status;
static char head_session[64];
static void (*on_told)(const told *t); /* what the owner does in the middle of it */

static inline void tell(told t)
{
    assert_true(told_count < TOLD_MAX);
    list[told_count++] = t;
    if (on_told != NULL)
        on_told(&list[told_count - 1]);
}

static inline void on_message(void *context, mcp_way *way, sm_str text)
{
    (void)context;
    tell((told){.text = strndup(text.p, text.n), .way = way});
}

static inline void on_lost(void *context, mcp_way *way, const mcp_loss *l)
{
    (void)context;
    assert_non_null(way);
    assert_null(way->own);
    tell((told){
        .text = strdup(l->why),
        .way = way,
        .lost = true,
        .sent = l->sent,
        .gone = l->session_gone,
        .status = l->status,
        .body = l->body.p == NULL ? NULL : strndup(l->body.p, l->body.n),
    });
}

static inline void on_head(void *context, mcp_way *way, int status, const sm_http_field *h,
                           size_t n)
{
    (void)context;
    assert_non_null(way);
    heads++;
    head_status = status;
    for (size_t i = 0; i < n; i++) {
        if (strncasecmp(h[i].name.p, "mcp-session-id", h[i].name.n) == 0)
            snprintf(head_session, sizeof head_session, "%.*s", SM_FMT(h[i].value));
    }
}

static inline void on_too_long(void *context, const mcp_text_line *line)
{
    (void)context, (void)line;
    too_longs++;
}

static inline void on_room(void *context)
{
    (void)context;
    rooms++;
}

/* ---- running the loop ------------------------------------------------------------------------*/

typedef struct until {
    mcp_alarm timer; /* first */
    bool (*reached)(size_t n);
    size_t n;
    int64_t end_ns;
    bool right;
} until;

static inline void look(mcp_alarm *t)
{
    until *u = (until *)t;
    u->right = u->reached(u->n);
    if (u->right || sm_clock_mono_ns() > u->end_ns)
        mcp_loop_stop(loop);
    else
        mcp_loop_time(loop, &u->timer, sm_clock_deadline_ns(2));
}

static inline void run_until(bool (*reached)(size_t n), size_t n, const char *what)
{
    until u = {.timer.due = look, .reached = reached, .n = n};
    u.end_ns = sm_clock_deadline_ns(20000);
    mcp_loop_time(loop, &u.timer, 0);
    mcp_loop_run(loop);
    mcp_loop_untime(loop, &u.timer);
    expect(u.right, "waited in vain for %zu %s", n, what);
}

static inline bool told_reached(size_t n)
{
    return told_count >= n;
}

static inline bool asked_reached(size_t n)
{
    return asked_count() >= n;
}

static inline bool idle_reached(size_t n)
{
    return sm_http_under_way(http) <= n;
}

static inline bool never(size_t n)
{
    (void)n;
    return false;
}

static inline void wait_told(size_t n)
{
    run_until(told_reached, n, "things told");
}

static inline void wait_asked(size_t n)
{
    run_until(asked_reached, n, "requests");
}

/* Lets time pass. */
static inline void rest(int64_t ms)
{
    until u = {.timer.due = look, .reached = never, .end_ns = sm_clock_deadline_ns(ms)};
    mcp_loop_time(loop, &u.timer, 0);
    mcp_loop_run(loop);
    mcp_loop_untime(loop, &u.timer);
}

/* ---- a test ----------------------------------------------------------------------------------*/

static mcp_remote_options options;

static inline void open_link(peer_script *script)
{
    server.script = script;
    options.http = http;
    if (options.url.p == NULL)
        options.url = sm_str_from(server.url);
    mcp_link_events events = {
        .message = on_message,
        .head = on_head,
        .lost = on_lost,
        .too_long = on_too_long,
        .room = on_room,
    };
    sm_fault fault = {0};
    sm_err e = mcp_remote_open(loop, &options, &events, &link_, &fault);
    expect(e == SM_OK, "%s", fault.text);
}

static inline int start(void **state)
{
    (void)state;
    sm_fault fault;
    peer_start(&server);
    return mcp_loop_new(&loop, &fault) == SM_OK && sm_http_start(NULL, &http, &fault) == SM_OK ? 0
                                                                                               : -1;
}

static inline int end(void **state)
{
    (void)state;
    sm_http_stop(http);
    sm_http_free(http);
    mcp_loop_free(loop);
    peer_stop(&server);
    return 0;
}

static inline int begin_test(void **state)
{
    (void)state;
    peer_forget(&server);
    options = (mcp_remote_options){0};
    on_told = NULL;
    told_count = heads = rooms = too_longs = 0;
    head_session[0] = '\0';
    link_ = NULL;
    return 0;
}

static inline int end_test(void **state)
{
    (void)state;
    mcp_link_close(link_);
    run_until(idle_reached, 0, "exchanges under way at the end");
    for (size_t i = 0; i < told_count; i++) {
        free(list[i].text);
        free(list[i].body);
    }
    told_count = 0;
    return 0;
}

static inline bool send_text(const char *text, mcp_way *way)
{
    return mcp_link_send(link_, sm_str_from(text), way);
}

static inline void expect_message(size_t i, const mcp_way *way, const char *text)
{
    expect(!list[i].lost && list[i].way == way && strcmp(list[i].text, text) == 0,
           "told %zu: %s<%s>, expected <%s>", i, list[i].lost ? "lost: " : "", list[i].text, text);
}

static inline void expect_lost(size_t i, const mcp_way *way, bool sent, const char *part)
{
    expect(list[i].lost && list[i].way == way && list[i].sent == sent &&
               strstr(list[i].text, part) != NULL,
           "told %zu: %s %s<%s>, expected <%s>", i, list[i].lost ? "lost" : "message",
           list[i].sent ? "sent " : "", list[i].text, part);
    assert_null(strstr(list[i].text, "secret"));
}

static inline void expect_header(const peer_request *r, const char *name, const char *value)
{
    const char *got = header(r, name);
    expect(value == NULL ? got == NULL : got != NULL && strcmp(got, value) == 0,
           "%s of <%s>: got <%s>, expected <%s>", name, r->body, got == NULL ? "-" : got,
           value == NULL ? "-" : value);
}

#define INIT                                                                                       \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"initialize\",\"params\":{\"protocolVersion\":"     \
    "\"2025-11-25\",\"capabilities\":{},\"clientInfo\":{\"name\":\"t\",\"version\":\"1\"}}}"
#define INIT_RESULT                                                                                \
    "{\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-06-18\","                \
    "\"capabilities\":{},\"serverInfo\":{\"name\":\"s\",\"version\":\"1\"}}}"
#define INITIALIZED "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"
#define PING(id)    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"ping\"}"
#define PONG(id)    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"result\":{}}"
#define NOTE        "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}"
#define MODERN      "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}"

/* What a right server says to the beginning; false: it is none of that. */
static inline bool greet(int fd, const peer_request *r, bool *go_on)
{
    if (strcmp(r->method, "DELETE") == 0)
        *go_on = reply(fd, 200, NULL, "", "");
    else if (body_has(r, "\"initialize\""))
        *go_on = reply(fd, 200, "application/json", "Mcp-Session-Id: s-1\r\n", INIT_RESULT);
    else if (strcmp(r->method, "POST") == 0 && !body_has(r, "\"id\""))
        *go_on = reply(fd, 202, NULL, "", "");
    else
        return false;
    return true;
}

static mcp_way init_way;

static inline void initialize(void)
{
    init_way = (mcp_way){0};
    assert_true(send_text(INIT, &init_way));
    wait_told(1);
    expect_message(0, &init_way, INIT_RESULT);
    assert_null(init_way.own);
    assert_true(send_text(INITIALIZED, NULL));
}

#define remote_test(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

#endif
