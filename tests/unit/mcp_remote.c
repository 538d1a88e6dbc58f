/*
 * The link over Streamable HTTP against servers that are right and servers that are not: what is
 * sent and in what order, what an answer means, what is known when there is none.
 */
#include "mcp_peer.h"

#include "base/clock.h"
#include "mcp/link.h"

/* ---- the owner of a link ---------------------------------------------------------------------*/

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

static void tell(told t)
{
    assert_true(told_count < TOLD_MAX);
    list[told_count++] = t;
    if (on_told != NULL)
        on_told(&list[told_count - 1]);
}

static void on_message(void *context, mcp_way *way, sm_str text)
{
    (void)context;
    tell((told){.text = strndup(text.p, text.n), .way = way});
}

static void on_lost(void *context, mcp_way *way, const mcp_loss *l)
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

static void on_head(void *context, mcp_way *way, int status, const sm_http_field *h, size_t n)
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

static void on_too_long(void *context, sm_str id, uint64_t length)
{
    (void)context, (void)id, (void)length;
    too_longs++;
}

static void on_room(void *context)
{
    (void)context;
    rooms++;
}

/* ---- running the loop ------------------------------------------------------------------------*/

typedef struct until {
    mcp_timer timer; /* first */
    bool (*reached)(size_t n);
    size_t n;
    int64_t end_ns;
    bool right;
} until;

static void look(mcp_timer *t)
{
    until *u = (until *)t;
    u->right = u->reached(u->n);
    if (u->right || sm_clock_mono_ns() > u->end_ns)
        mcp_loop_stop(loop);
    else
        mcp_loop_time(loop, &u->timer, sm_clock_deadline_ns(2));
}

static void run_until(bool (*reached)(size_t n), size_t n, const char *what)
{
    until u = {.timer.due = look, .reached = reached, .n = n};
    u.end_ns = sm_clock_deadline_ns(20000);
    mcp_loop_time(loop, &u.timer, 0);
    mcp_loop_run(loop);
    mcp_loop_untime(loop, &u.timer);
    expect(u.right, "waited in vain for %zu %s", n, what);
}

static bool told_reached(size_t n)
{
    return told_count >= n;
}

static bool asked_reached(size_t n)
{
    return server.count >= n;
}

static bool idle_reached(size_t n)
{
    return sm_http_under_way(http) <= n;
}

static bool never(size_t n)
{
    (void)n;
    return false;
}

static void wait_told(size_t n)
{
    run_until(told_reached, n, "things told");
}

static void wait_asked(size_t n)
{
    run_until(asked_reached, n, "requests");
}

/* Lets time pass. */
static void rest(int64_t ms)
{
    until u = {.timer.due = look, .reached = never, .end_ns = sm_clock_deadline_ns(ms)};
    mcp_loop_time(loop, &u.timer, 0);
    mcp_loop_run(loop);
    mcp_loop_untime(loop, &u.timer);
}

/* ---- a test ----------------------------------------------------------------------------------*/

static mcp_remote_options options;

static void open_link(peer_script *script)
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

static int start(void **state)
{
    (void)state;
    sm_fault fault;
    peer_start(&server);
    return mcp_loop_new(&loop, &fault) == SM_OK && sm_http_start(NULL, &http, &fault) == SM_OK ? 0
                                                                                               : -1;
}

static int end(void **state)
{
    (void)state;
    sm_http_stop(http);
    mcp_loop_free(loop);
    peer_stop(&server);
    return 0;
}

static int begin_test(void **state)
{
    (void)state;
    peer_clear(&server);
    options = (mcp_remote_options){0};
    on_told = NULL;
    told_count = heads = rooms = too_longs = 0;
    head_session[0] = '\0';
    link_ = NULL;
    return 0;
}

static int end_test(void **state)
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

static bool send_text(const char *text, mcp_way *way)
{
    return mcp_link_send(link_, sm_str_from(text), way);
}

static void expect_message(size_t i, const mcp_way *way, const char *text)
{
    expect(!list[i].lost && list[i].way == way && strcmp(list[i].text, text) == 0,
           "told %zu: %s<%s>, expected <%s>", i, list[i].lost ? "lost: " : "", list[i].text, text);
}

static void expect_lost(size_t i, const mcp_way *way, bool sent, const char *part)
{
    expect(list[i].lost && list[i].way == way && list[i].sent == sent &&
               strstr(list[i].text, part) != NULL,
           "told %zu: %s %s<%s>, expected <%s>", i, list[i].lost ? "lost" : "message",
           list[i].sent ? "sent " : "", list[i].text, part);
    assert_null(strstr(list[i].text, "secret"));
}

static void expect_header(const peer_request *r, const char *name, const char *value)
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
static bool greet(int fd, const peer_request *r, bool *go_on)
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

static void initialize(void)
{
    init_way = (mcp_way){0};
    assert_true(send_text(INIT, &init_way));
    wait_told(1);
    expect_message(0, &init_way, INIT_RESULT);
    assert_null(init_way.own);
    assert_true(send_text(INITIALIZED, NULL));
}

/* ---- legacy ----------------------------------------------------------------------------------*/

static bool legacy_script(int fd, const peer_request *r)
{
    bool go_on;
    if (greet(fd, r, &go_on))
        return go_on;
    if (strcmp(r->method, "GET") == 0) {
        if (!open_stream(fd, "") || !say(fd, ": hello\n\ndata: " NOTE "\n\n"))
            return false;
        wait_for_end(fd);
        return false;
    }
    if (body_has(r, ":1,"))
        return reply_json(fd, "\n " PONG("1") "\r\n");
    open_stream(fd, "");
    say(fd, "event: message\ndata: " NOTE "\n\nevent: other\ndata: x\n\n");
    say(fd, "data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":2,\ndata: \"result\":{}}\n\n");
    return false;
}

static void a_session_is_kept_and_ended(void **state)
{
    (void)state;
    sm_http_field own[] = {{SM_STR("Authorization"), SM_STR("Bearer secret")},
                           {SM_STR("X-Team"), SM_STR("a")}};
    options.headers = own;
    options.header_count = 2;
    open_link(legacy_script);
    initialize();
    wait_told(2); /* from the stream of its own */
    expect_message(1, NULL, NOTE);
    mcp_way one = {0}, two = {0};
    assert_true(send_text(PING("1"), &one));
    wait_told(3);
    expect_message(2, &one, PONG("1"));
    assert_null(one.own);
    assert_true(send_text(PING("2"), &two));
    wait_told(5);
    expect_message(3, &two, NOTE);
    expect_message(4, &two, "{\"jsonrpc\":\"2.0\", \"id\":2, \"result\":{}}");
    mcp_link_close(link_);
    link_ = NULL;
    run_until(idle_reached, 0, "exchanges under way at the end");
    assert_int_equal(server.count, 6);
    static const char *const methods[] = {"POST", "POST", "GET", "POST", "POST", "DELETE"};
    for (unsigned i = 0; i < 6; i++) {
        const peer_request *r = &server.requests[i];
        assert_string_equal(r->method, methods[i]);
        assert_non_null(strstr(r->head, " /mcp?secret=yes HTTP/1.1"));
        expect_header(r, "Authorization", "Bearer secret");
        expect_header(r, "X-Team", "a");
        expect_header(r, "Mcp-Session-Id", i == 0 ? NULL : "s-1");
        expect_header(r, "MCP-Protocol-Version", i == 0 ? NULL : "2025-06-18");
        expect_header(r, "Mcp-Method", NULL);
        expect_header(r, "Content-Type",
                      strcmp(methods[i], "POST") == 0 ? "application/json" : NULL);
        expect_header(r, "Accept",
                      strcmp(methods[i], "POST") == 0 ? "application/json, text/event-stream"
                                                      : "text/event-stream");
    }
    assert_string_equal(server.requests[3].body, PING("1"));
}

static bool slow_beginning_script(int fd, const peer_request *r)
{
    bool go_on;
    if (strcmp(r->method, "GET") == 0)
        return reply(fd, 405, NULL, "Allow: POST\r\n", "");
    if (body_has(r, "initialize"))
        usleep(60000);
    if (greet(fd, r, &go_on))
        return go_on;
    return body_has(r, ":1,") ? reply_json(fd, PONG("1")) : reply_json(fd, PONG("2"));
}

static void nothing_overtakes_the_beginning(void **state)
{
    (void)state;
    open_link(slow_beginning_script);
    mcp_way ways[3] = {0};
    assert_true(send_text(INIT, &ways[0]));
    assert_true(send_text(INITIALIZED, NULL));
    assert_true(send_text(PING("1"), &ways[1]));
    assert_true(send_text(PING("2"), &ways[2]));
    rest(20);
    assert_int_equal(server.count, 1);
    wait_told(3);
    expect_message(0, &ways[0], INIT_RESULT);
    run_until(asked_reached, 5, "requests");
    assert_true(body_has(&server.requests[0], "\"initialize\""));
    assert_true(body_has(&server.requests[1], "notifications/initialized"));
    for (unsigned i = 2; i < 5; i++)
        expect_header(&server.requests[i], "Mcp-Session-Id", "s-1");
    rest(50); /* 405: it is not asked for a stream again */
    assert_int_equal(server.count, 5);
}

static bool stuck_script(int fd, const peer_request *r)
{
    if (body_has(r, "notifications"))
        wait_for_end(fd);
    return reply(fd, 202, NULL, "", "");
}

static void an_answer_to_the_server_waits_for_nobody(void **state)
{
    (void)state;
    open_link(stuck_script);
    mcp_way way = {0};
    assert_true(send_text(NOTE, NULL));
    assert_true(send_text(PING("1"), &way));
    assert_true(send_text(PONG("\"x\""), NULL));
    wait_asked(2);
    assert_true(body_has(&server.requests[0], "\"x\"") || body_has(&server.requests[1], "\"x\""));
    mcp_link_forget(link_, &way);
    assert_null(way.own);
    rest(20);
    assert_int_equal(server.count, 2);
    assert_int_equal(told_count, 0);
}

static void a_queue_that_grows_is_full(void **state)
{
    (void)state;
    open_link(stuck_script);
    assert_true(send_text(NOTE, NULL));
    size_t n = (size_t)1 << 20;
    char *text = malloc(n + 128);
    sprintf(text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"%*s\"}", (int)n, "");
    mcp_way ways[5] = {0};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(mcp_link_full(link_), i == 4);
        assert_true(send_text(text, &ways[i]));
    }
    assert_true(mcp_link_full(link_));
    free(text);
    for (int i = 0; i < 5; i++) {
        mcp_link_forget(link_, &ways[i]);
        assert_int_equal(rooms, i >= 1);
    }
    assert_false(mcp_link_full(link_));
    assert_false(send_text("[" PING("1") "]", NULL));
    assert_false(send_text("junk", NULL));
}

/* ---- answers ---------------------------------------------------------------------------------*/

typedef struct answer_row {
    const char *name;
    int status;
    const char *type, *body;
    const char *message; /* what is told as one; NULL: it is lost, and: */
    const char *why;
} answer_row;

static const answer_row answers[] = {
    {"array", 200, "application/json", "[" NOTE "," PONG("1") "]", NULL, NULL},
    {"error with id", 400, "application/json",
     "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32020,\"message\":\"m\"}}",
     "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32020,\"message\":\"m\"}}", NULL},
    {"error of another type", 500, "text/plain",
     "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"m\"}}",
     "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"m\"}}", NULL},
    {"error without id", 400, "application/json",
     "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"m\"}}", NULL,
     "the server answered 400"},
    {"error of another", 400, "application/json",
     "{\"jsonrpc\":\"2.0\",\"id\":\"1\",\"error\":{\"code\":-32000,\"message\":\"m\"}}", NULL,
     "the server answered 400"},
    {"busy", 503, "text/html", "<p>no</p>", NULL, "the server answered 503"},
    {"404 without session", 404, NULL, "", NULL, "the server answered 404"},
    {"redirect", 307, NULL, "", NULL, "redirections are not followed"},
    {"accepted", 202, NULL, "", NULL, "the server answered 202"},
    {"no content", 204, NULL, "", NULL, "the server answered 204"},
    {"another type", 200, "text/plain", "hello", NULL, "the server answered 200"},
    {"nothing", 200, "application/json", "", NULL, "something else"},
};
static const answer_row *row;

static bool row_script(int fd, const peer_request *r)
{
    (void)r;
    return reply(fd, row->status, row->type, "", row->body);
}

static void an_answer_is_a_message_or_lost(void **state)
{
    (void)state;
    open_link(row_script);
    size_t at = 0;
    for (size_t i = 0; i < COUNT(answers); i++) {
        mcp_way way = {0};
        row = &answers[i];
        assert_true(send_text(PING("1"), &way));
        wait_told(at + 1);
        rest(5);
        if (row->message != NULL) {
            expect_message(at++, &way, row->message);
        } else if (row->why == NULL) {
            expect_message(at++, &way, NOTE);
            expect_message(at++, &way, PONG("1"));
        } else {
            expect_lost(at, &way, true, row->why);
            expect(list[at].status == row->status && !list[at].gone, "%s", row->name);
            assert_string_equal(list[at++].body, row->body);
        }
        assert_int_equal(told_count, at);
        assert_null(way.own);
    }
}

static bool junk_script(int fd, const peer_request *r)
{
    if (body_has(r, ":1,"))
        return reply_json(fd, "{\"jsonrpc\": nonsense");
    open_stream(fd, "");
    say(fd, "data: nonsense\ndata: more\n\ndata: " PONG("7") "\n\ndata: " PONG("2") "\n\n");
    say(fd, "data: " NOTE "\n\n");
    return false;
}

static void junk_is_passed_on_and_is_no_answer(void **state)
{
    (void)state;
    open_link(junk_script);
    mcp_way one = {0}, two = {0};
    assert_true(send_text(PING("1"), &one));
    wait_told(2);
    expect_message(0, &one, "{\"jsonrpc\": nonsense");
    expect_lost(1, &one, true, "something else than a response");
    assert_true(send_text(PING("2"), &two));
    wait_told(6);
    expect_message(2, &two, "nonsense more");
    expect_message(3, &two, PONG("7"));
    expect_message(4, &two, PONG("2"));
    expect_message(5, NULL, NOTE);
}

static bool id_script(int fd, const peer_request *r)
{
    (void)r;
    return reply_json(fd, PONG("\"caf\xC3\xA9/1\""));
}

static void an_id_may_be_written_otherwise(void **state)
{
    (void)state;
    open_link(id_script);
    mcp_way way = {0};
    assert_true(send_text(PING("\"caf\\u00e9\\/1\""), &way));
    wait_told(1);
    expect_message(0, &way, PONG("\"caf\xC3\xA9/1\""));
    assert_null(way.own);
}

/* ---- no answer -------------------------------------------------------------------------------*/

static bool close_script(int fd, const peer_request *r)
{
    if (body_has(r, ":1,"))
        return false;
    if (body_has(r, ":2,")) {
        say(fd, "HTTP/1.1 200 X\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{");
        return false;
    }
    if (body_has(r, ":3,")) {
        open_chunks(fd);
        say_chunk(fd, "data: " NOTE "\n\n");
        return false;
    }
    if (body_has(r, ":4,")) {
        open_stream(fd, "");
        say(fd, "data: " NOTE "\n\n");
        return false;
    }
    wait_for_end(fd);
    return false;
}

static void what_may_have_left_is_known(void **state)
{
    (void)state;
    options.silence_ms = 300;
    open_link(close_script);
    mcp_way ways[6] = {0};
    ways[1].write = ways[3].write = true;
    assert_true(send_text(PING("1"), &ways[1]));
    wait_told(1);
    expect_lost(0, &ways[1], true, "the connection was lost before an answer came");
    assert_true(send_text(PING("2"), &ways[2]));
    wait_told(2);
    expect_lost(1, &ways[2], true, "the answer broke off");
    assert_true(send_text(PING("3"), &ways[3]));
    wait_told(4);
    expect_lost(3, &ways[3], true, "broke off");
    assert_true(send_text(PING("4"), &ways[4]));
    wait_told(6);
    expect_lost(5, &ways[4], true, "broke off");
    assert_true(send_text(PING("5"), &ways[5]));
    wait_told(7);
    expect_lost(6, &ways[5], true, "no answer in time");
    assert_int_equal(list[6].status, 0);
    assert_int_equal(server.count, 5);
}

static void a_server_that_is_not_there_got_nothing(void **state)
{
    (void)state;
    int port, fd = listen_here(&port, 1);
    close(fd);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/mcp?secret=yes", port);
    options.url = sm_str_from(url);
    open_link(close_script);
    mcp_way way = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(1);
    expect_lost(0, &way, false, "/mcp cannot be reached: ");
}

static bool gone_script(int fd, const peer_request *r)
{
    bool go_on;
    if (strcmp(r->method, "GET") == 0)
        return reply(fd, 405, NULL, "", "");
    if (greet(fd, r, &go_on))
        return go_on;
    return reply(fd, 404, "application/json", "",
                 "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":-32001,\"message\":\"m\"}}");
}

static void a_session_that_is_gone_is_told(void **state)
{
    (void)state;
    open_link(gone_script);
    initialize();
    mcp_way way = {0}, again = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(2);
    expect_lost(1, &way, true, "the server answered 404");
    assert_true(list[1].gone);
    assert_int_equal(list[1].status, 404);
    unsigned before = server.count;
    assert_true(send_text(INIT, &again));
    wait_told(3);
    expect_message(2, &again, INIT_RESULT);
    expect_header(&server.requests[before], "Mcp-Session-Id", NULL);
    expect_header(&server.requests[before], "MCP-Protocol-Version", NULL);
}

/* ---- coming back -----------------------------------------------------------------------------*/

static bool resume_script(int fd, const peer_request *r)
{
    bool go_on;
    if (greet(fd, r, &go_on))
        return go_on;
    const char *last = header(r, "Last-Event-ID");
    if (strcmp(r->method, "GET") == 0 && last == NULL)
        return reply(fd, 405, NULL, "", "");
    if (strcmp(r->method, "POST") == 0) {
        open_chunks(fd);
        say_chunk(fd, "id: a-1\nretry: 30\ndata: \n\ndata: " NOTE "\nid: a-2\n\ndata: {\"cut");
        return false;
    }
    if (strcmp(last, "a-2") == 0 && r->serial % 2 == 1)
        return reply(fd, 503, NULL, "", "");
    open_stream(fd, "");
    if (strcmp(last, "a-2") == 0)
        say(fd, "id: a-3\ndata: " NOTE "\n\n"); /* and the connection is closed again */
    else
        say(fd, "id: a-4\ndata: " PONG("1") "\n\n");
    return false;
}

static void a_stream_that_named_its_events_is_gone_on_with(void **state)
{
    (void)state;
    open_link(resume_script);
    initialize();
    wait_asked(3);
    mcp_way way = {.write = true};
    int64_t began = sm_clock_mono_ns();
    assert_true(send_text(PING("1"), &way));
    wait_told(4);
    expect_message(1, &way, NOTE);
    expect_message(2, &way, NOTE);
    expect_message(3, &way, PONG("1"));
    assert_true(sm_clock_mono_ns() - began > 60 * 1000000);
    unsigned posts = 0;
    for (unsigned i = 3; i < server.count; i++) {
        posts += strcmp(server.requests[i].method, "POST") == 0;
        expect_header(&server.requests[i], "Mcp-Session-Id", "s-1");
    }
    assert_int_equal(posts, 1);
}

static bool refuse_script(int fd, const peer_request *r)
{
    bool go_on;
    if (greet(fd, r, &go_on))
        return go_on;
    if (strcmp(r->method, "GET") == 0)
        return reply(fd, header(r, "Last-Event-ID") == NULL ? 405 : 404, NULL, "", "");
    open_stream(fd, "");
    say(fd, "id: 1\nretry: 1\ndata:\n\n");
    return false;
}

static void going_on_that_is_refused_is_lost(void **state)
{
    (void)state;
    open_link(refuse_script);
    mcp_way way = {0}, in_session = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(1);
    expect_lost(0, &way, true, "the server answered 404 to going on");
    assert_false(list[0].gone);
    assert_int_equal(list[0].status, 0);
    free(list[0].text);
    told_count = 0;
    initialize();
    assert_true(send_text(PING("1"), &in_session));
    wait_told(2);
    assert_true(list[1].gone);
}

static bool empty_script(int fd, const peer_request *r)
{
    open_stream(fd, "");
    if (strcmp(r->method, "POST") == 0)
        say(fd, "id: 1\nretry: 1\ndata:\n\n");
    return false;
}

static void going_on_for_nothing_ends(void **state)
{
    (void)state;
    options.silence_ms = 200;
    open_link(empty_script);
    mcp_way way = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(1);
    expect_lost(0, &way, true, "broke off");
    assert_in_range(server.count, 3, 14);
}

static bool listen_script(int fd, const peer_request *r)
{
    bool go_on;
    if (greet(fd, r, &go_on))
        return go_on;
    if (strcmp(r->method, "POST") == 0) {
        open_stream(fd, ""); /* the answer comes elsewhere */
        wait_for_end(fd);
        return false;
    }
    const char *last = header(r, "Last-Event-ID");
    if (r->serial == 2)
        return reply(fd, 503, NULL, "Retry-After: 1\r\n", "");
    open_stream(fd, "");
    if (last == NULL) {
        say(fd, "retry: 25\nid: 9\ndata: " NOTE "\n\n");
        return false;
    }
    say(fd, "data: " PONG("1") "\n\n");
    wait_for_end(fd);
    return false;
}

static void listening_is_begun_again(void **state)
{
    (void)state;
    open_link(listen_script);
    initialize();
    wait_told(2);
    expect_message(1, NULL, NOTE);
    mcp_way way = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(3);
    expect_message(2, &way, PONG("1"));
    assert_null(way.own);
}

/* ---- modern ----------------------------------------------------------------------------------*/

static bool modern_script(int fd, const peer_request *r)
{
    if (strcmp(r->method, "POST") == 0 && !body_has(r, "\"id\""))
        return reply(fd, 202, NULL, "", "");
    if (body_has(r, "break")) {
        open_stream(fd, "");
        say(fd, "id: 1\nretry: 1\ndata:\n\n");
        return false;
    }
    return reply(fd, 200, "application/json", "Mcp-Session-Id: not-for-us\r\n", PONG("1"));
}

static mcp_tool tool;
static const mcp_tool *tool_of(void *context, sm_str name)
{
    assert_ptr_equal(context, &tool);
    return sm_str_eq(name, tool.name) ? &tool : NULL;
}

#define CALL(name, arguments)                                                                      \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":" name           \
    ",\"arguments\":" arguments "," MODERN "}}"

static void call_once(const char *text, size_t n)
{
    mcp_way way = {0};
    assert_true(send_text(text, &way));
    wait_told(n + 1);
    expect_message(n, &way, PONG("1"));
}

static void a_modern_request_says_itself_in_its_headers(void **state)
{
    (void)state;
    static const struct {
        const char *text, *method, *name;
    } table[] = {
        {CALL("\"add\"", "{}"), "tools/call", "add"},
        {CALL("\"caf\xC3\xA9\"", "{}"), "tools/call", "=?base64?Y2Fmw6k=?="},
        {CALL("\" a\"", "{}"), "tools/call", "=?base64?IGE=?="},
        {CALL("\"=?base64?x?=\"", "{}"), "tools/call", "=?base64?PT9iYXNlNjQ/eD89?="},
        {CALL("\"a\\nb\"", "{}"), "tools/call", "=?base64?YQpi?="},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"resources/read\",\"params\":{" MODERN
         ",\"uri\":\"file:///a\"}}",
         "resources/read", "file:///a"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"prompts/get\",\"params\":{" MODERN
         ",\"name\":\"p\"}}",
         "prompts/get", "p"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tasks/get\",\"params\":{" MODERN
         ",\"taskId\":\"t\"}}",
         "tasks/get", "t"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"server/discover\",\"params\":{" MODERN "}}",
         "server/discover", NULL},
    };
    open_link(modern_script);
    for (size_t i = 0; i < COUNT(table); i++) {
        call_once(table[i].text, i);
        const peer_request *r = &server.requests[i];
        expect_header(r, "Mcp-Method", table[i].method);
        expect_header(r, "Mcp-Name", table[i].name);
        expect_header(r, "MCP-Protocol-Version", "2026-07-28");
        expect_header(r, "Mcp-Session-Id", NULL);
    }
    assert_true(send_text(NOTE, NULL));
    wait_asked(COUNT(table) + 1);
    expect_header(&server.requests[COUNT(table)], "MCP-Protocol-Version", "2026-07-28");
    expect_header(&server.requests[COUNT(table)], "Mcp-Method", NULL);
}

static void arguments_that_a_schema_marks_are_headers(void **state)
{
    sm_arena *a = *state;
    static const char schema[] = "{\"type\":\"object\",\"properties\":{"
                                 "\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"},"
                                 "\"count\":{\"type\":\"integer\",\"x-mcp-header\":\"Count\"},"
                                 "\"dry\":{\"type\":\"boolean\",\"x-mcp-header\":\"Dry\"},"
                                 "\"bad\":{\"type\":\"string\",\"x-mcp-header\":\"not a name\"},"
                                 "\"odd\":{\"type\":\"string\",\"x-mcp-header\":7},"
                                 "\"list\":{\"type\":\"array\",\"x-mcp-header\":\"List\"},"
                                 "\"in\":{\"type\":\"object\",\"properties\":{"
                                 "\"deep\":{\"type\":\"string\",\"x-mcp-header\":\"Deep\"},"
                                 "\"twice\":{\"type\":\"string\",\"x-mcp-header\":\"region\"}}},"
                                 "\"plain\":{\"type\":\"string\"}}}";
    tool = (mcp_tool){.name = SM_STR("t"), .schema = document(a, schema)};
    options.tool = tool_of;
    options.tool_context = &tool;
    static const struct {
        const char *text, *region, *count, *dry, *deep;
    } table[] = {
        {CALL("\"t\"", "{\"region\":\"eu\",\"count\":42.0,\"dry\":true,\"in\":{\"deep\":\"d\"},"
                       "\"bad\":\"b\",\"odd\":\"o\",\"list\":[1],\"plain\":\"p\"}"),
         "eu", "42", "true", "d"},
        {CALL("\"t\"", "{\"region\":\"\",\"count\":-7,\"dry\":false,\"in\":{}}"),
         "=?base64?"
         "?=",
         "-7", "false", NULL},
        {CALL("\"t\"", "{\"region\":null,\"count\":9007199254740993,\"in\":\"x\"}"), NULL, NULL,
         NULL, NULL},
        {CALL("\"t\"", "{\"r\\u0065gion\":\"\\u4e16\",\"in\":{\"twice\":\"x\"}}"),
         "=?base64?5LiW?=", NULL, NULL, NULL},
        {CALL("\"other\"", "{\"region\":\"eu\"}"), NULL, NULL, NULL, NULL},
    };
    open_link(modern_script);
    for (size_t i = 0; i < COUNT(table); i++) {
        call_once(table[i].text, i);
        const peer_request *r = &server.requests[i];
        expect_header(r, "Mcp-Param-Region", table[i].region);
        expect_header(r, "Mcp-Param-Count", table[i].count);
        expect_header(r, "Mcp-Param-Dry", table[i].dry);
        expect_header(r, "Mcp-Param-Deep", table[i].deep);
        expect_header(r, "Mcp-Param-List", NULL);
        assert_null(strstr(r->head, "not a name"));
    }
}

static void a_modern_stream_is_not_come_back_to(void **state)
{
    (void)state;
    open_link(modern_script);
    mcp_way way = {0};
    assert_true(send_text(CALL("\"break\"", "{}"), &way));
    wait_told(1);
    expect_lost(0, &way, true, "broke off");
    rest(50);
    assert_int_equal(server.count, 1);
}

/* ---- plain -----------------------------------------------------------------------------------*/

static bool plain_script(int fd, const peer_request *r)
{
    if (body_has(r, "notifications"))
        return reply(fd, 202, NULL, "", "");
    if (body_has(r, ":2,"))
        return reply(fd, 400, "application/json", "",
                     "{\"jsonrpc\":\"2.0\",\"id\":2,\"error\":{\"code\":1,\"message\":\"m\"}}");
    return reply(fd, 200, "application/json", "Mcp-Session-Id: theirs\r\n", PONG("1"));
}

static void a_plain_link_passes_on_what_it_is_given(void **state)
{
    (void)state;
    sm_http_field own[] = {{SM_STR("authorization"), SM_STR("Bearer ours")}};
    sm_http_field with[] = {{SM_STR("Authorization"), SM_STR("Bearer theirs")},
                            {SM_STR("Mcp-Session-Id"), SM_STR("abc")},
                            {SM_STR("Accept-Encoding"), SM_STR("gzip")},
                            {SM_STR("Content-Length"), SM_STR("1")},
                            {SM_STR("accept"), SM_STR("application/json")}};
    options.headers = own;
    options.header_count = 1;
    options.plain = true;
    open_link(plain_script);
    mcp_way one = {.headers = with, .header_count = COUNT(with)}, two = {0}, three = {0};
    assert_true(send_text(PING("1"), &one));
    wait_told(1);
    expect_message(0, &one, PONG("1"));
    assert_int_equal(heads, 1);
    assert_int_equal(head_status, 200);
    assert_string_equal(head_session, "theirs");
    expect_header(&server.requests[0], "Authorization", "Bearer ours");
    expect_header(&server.requests[0], "Mcp-Session-Id", "abc");
    expect_header(&server.requests[0], "Accept", "application/json");
    expect_header(&server.requests[0], "Accept-Encoding", NULL);
    assert_true(send_text(PING("2"), &two));
    wait_told(2);
    expect_lost(1, &two, true, "the server answered 400");
    assert_int_equal(list[1].status, 400);
    assert_non_null(strstr(list[1].body, "\"id\":2"));
    expect_header(&server.requests[1], "Mcp-Session-Id", NULL);
    assert_true(send_text(NOTE, &three));
    wait_told(3);
    expect_lost(2, &three, true, "the server answered 202");
    assert_int_equal(heads, 3);
}

/* ---- size ------------------------------------------------------------------------------------*/

static size_t huge_bytes;

static bool huge_script(int fd, const peer_request *r)
{
    char *body = malloc(huge_bytes + 64);
    size_t n = (size_t)sprintf(body, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"x\":\"");
    memset(body + n, 'x', huge_bytes - n - 3);
    memcpy(body + huge_bytes - 3, "\"}}", 3);
    bool said;
    if (body_has(r, "whole")) {
        said = say(fd,
                   "HTTP/1.1 200 X\r\nContent-Type: application/json\r\n"
                   "Content-Length: %zu\r\n\r\n",
                   huge_bytes) &&
               say_bytes(fd, body, huge_bytes);
    } else {
        said = open_stream(fd, "") && say(fd, "id: 1\ndata: ") && say_bytes(fd, body, huge_bytes) &&
               say(fd, "\n\n");
        said = false;
    }
    free(body);
    return said;
}

static void messages_are_bounded(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"whole\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"stream\"}",
    };
    open_link(huge_script);
    size_t n = 0;
    for (size_t i = 0; i < 4; i++) {
        mcp_way way = {0};
        huge_bytes = MCP_LINE_MAX + (i & 1);
        assert_true(send_text(texts[i / 2], &way));
        wait_told(n + 1);
        if (i & 1)
            expect_lost(n, &way, true, i == 1 ? "more than is held" : "an event of 16777217 bytes");
        else
            assert_int_equal(strlen(list[n].text), MCP_LINE_MAX);
        n++;
    }
}

static bool flood_script(int fd, const peer_request *r)
{
    (void)r;
    open_chunks(fd);
    for (int i = 0; i < 2000; i++) {
        if (!say_chunk(fd, "data: " NOTE "\n\n"))
            return false;
    }
    say_chunk(fd, "data: " PONG("1") "\n\n");
    return say(fd, "0\r\n\r\n");
}

/* The loop does nothing for a while: the server has to wait, and then everything comes. */
static void a_server_that_says_much_waits_for_the_loop(void **state)
{
    (void)state;
    open_link(flood_script);
    mcp_way way = {0}, again = {0};
    assert_true(send_text(PING("1"), &way));
    usleep(100000);
    wait_told(2001);
    expect_message(1999, &way, NOTE);
    expect_message(2000, &way, PONG("1"));
    unsigned connections = server.connections;
    assert_true(send_text(PING("1"), &again));
    wait_told(4002);
    assert_int_equal(server.connections, connections); /* the same connection */
}

/* ---- in the middle of it ---------------------------------------------------------------------*/

static mcp_way later;

static void close_it(const told *t)
{
    (void)t;
    mcp_link_close(link_);
    link_ = NULL;
}

static void forget_it(const told *t)
{
    if (t->way != NULL && t->way->own != NULL)
        mcp_link_forget(link_, t->way);
}

static void send_another(const told *t)
{
    if (t->way != &later)
        assert_true(send_text(PING("1"), &later));
}

static void the_owner_may_act_in_the_middle(void **state)
{
    (void)state;
    mcp_way one = {0}, two = {0}, three = {0}, four = {0};
    open_link(flood_script);
    on_told = forget_it;
    assert_true(send_text(PING("1"), &one));
    wait_told(1);
    rest(20);
    assert_int_equal(told_count, 1);
    on_told = send_another;
    server.script = row_script;
    row = &answers[5];
    assert_true(send_text(PING("1"), &two));
    wait_told(3);
    expect_lost(2, &later, true, "503");
    on_told = close_it;
    server.script = flood_script;
    assert_true(send_text(PING("1"), &three));
    assert_true(send_text(PING("1"), &four));
    wait_told(4);
    rest(20);
    assert_int_equal(told_count, 4);
    assert_null(link_);
    server.script = row_script;
    open_link(row_script);
    assert_true(send_text(PING("1"), &one));
    wait_told(5);
    assert_true(list[4].lost);
    assert_null(link_);
}

static void a_link_that_is_closed_at_once_tells_nothing(void **state)
{
    (void)state;
    open_link(flood_script);
    mcp_way ways[20] = {0};
    for (int i = 0; i < 20; i++)
        assert_true(send_text(PING("1"), &ways[i]));
    mcp_link_close(link_);
    link_ = NULL;
    rest(30);
    assert_int_equal(told_count, 0);
}

static void what_cannot_be_sent_is_refused(void **state)
{
    (void)state;
    mcp_link_events events = {0};
    sm_fault fault = {0};
    static const struct {
        sm_str url;
        sm_http_field header;
        const char *text;
    } table[] = {
        {BYTES("ftp://a"), {BYTES("a"), BYTES("b")}, ""},
        {BYTES("http://user:secret@a/"), {BYTES("a"), BYTES("b")}, ""},
        {BYTES("http://a/"), {BYTES("a"), BYTES("secret\r\nb: c")}, "header a holds control"},
        {BYTES("http://a/"), {BYTES("a b"), BYTES("secret")}, "header 1"},
        {BYTES("http://a/"), {BYTES("Content-Length"), BYTES("secret")}, "header 1"},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        options.http = http;
        options.url = table[i].url;
        options.headers = &table[i].header;
        options.header_count = 1;
        assert_int_not_equal(mcp_remote_open(loop, &options, &events, &link_, &fault), SM_OK);
        assert_null(link_);
        expect(strstr(fault.text, table[i].text) != NULL, "%s", fault.text);
        assert_null(strstr(fault.text, "secret"));
    }
}

#define remote_test(test) cmocka_unit_test_setup_teardown(test, begin_test, end_test)

static int begin_with_arena(void **state)
{
    return arena_setup(state) == 0 ? begin_test(state) : -1;
}

static int end_with_arena(void **state)
{
    end_test(state);
    return arena_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        remote_test(a_session_is_kept_and_ended),
        remote_test(nothing_overtakes_the_beginning),
        remote_test(an_answer_to_the_server_waits_for_nobody),
        remote_test(a_queue_that_grows_is_full),
        remote_test(an_answer_is_a_message_or_lost),
        remote_test(junk_is_passed_on_and_is_no_answer),
        remote_test(an_id_may_be_written_otherwise),
        remote_test(what_may_have_left_is_known),
        remote_test(a_server_that_is_not_there_got_nothing),
        remote_test(a_session_that_is_gone_is_told),
        remote_test(a_stream_that_named_its_events_is_gone_on_with),
        remote_test(going_on_that_is_refused_is_lost),
        remote_test(going_on_for_nothing_ends),
        remote_test(listening_is_begun_again),
        remote_test(a_modern_request_says_itself_in_its_headers),
        cmocka_unit_test_setup_teardown(arguments_that_a_schema_marks_are_headers, begin_with_arena,
                                        end_with_arena),
        remote_test(a_modern_stream_is_not_come_back_to),
        remote_test(a_plain_link_passes_on_what_it_is_given),
        remote_test(messages_are_bounded),
        remote_test(a_server_that_says_much_waits_for_the_loop),
        remote_test(the_owner_may_act_in_the_middle),
        remote_test(a_link_that_is_closed_at_once_tells_nothing),
        remote_test(what_cannot_be_sent_is_refused),
    };
    return cmocka_run_group_tests_name("mcp_remote", tests, start, end);
}
