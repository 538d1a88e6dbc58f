/*
 * The link over Streamable HTTP, legacy, against servers that are right and servers that are not:
 * what is sent and in what order, what an answer means, what is known when there is none, coming
 * back to a stream that broke.
 */
#include "mcp_owner.h"

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
    assert_int_equal(asked_count(), 6);
    static const char *const methods[] = {"POST", "POST", "GET", "POST", "POST", "DELETE"};
    for (unsigned i = 0; i < 6; i++) {
        const peer_request *r = asked(i);
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
    assert_string_equal(asked(3)->body, PING("1"));
}

/* How many requests had come when the first and the second one were answered. */
static atomic_uint asked_by_then[2];

/* The server takes its time with the beginning, so that a request that overtakes it has come by
 * then. */
static bool slow_beginning_script(int fd, const peer_request *r)
{
    bool go_on;
    if (strcmp(r->method, "GET") == 0)
        return reply(fd, 405, NULL, "Allow: POST\r\n", "");
    if (r->serial < 2) {
        usleep(60000);
        asked_by_then[r->serial] = asked_count();
    }
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
    wait_told(3);
    expect_message(0, &ways[0], INIT_RESULT);
    wait_asked(5);
    assert_int_equal(asked_by_then[0], 1);
    assert_int_equal(asked_by_then[1], 2);
    assert_true(body_has(asked(0), "\"initialize\""));
    assert_true(body_has(asked(1), "notifications/initialized"));
    for (unsigned i = 2; i < 5; i++)
        expect_header(asked(i), "Mcp-Session-Id", "s-1");
    rest(50); /* 405: it is not asked for a stream again */
    assert_int_equal(asked_count(), 5);
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
    assert_true(body_has(asked(0), "\"x\"") || body_has(asked(1), "\"x\""));
    mcp_link_forget(link_, &way);
    assert_null(way.own);
    rest(20);
    assert_int_equal(asked_count(), 2);
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
    assert_int_equal(asked_count(), 5);
}

/* Each connection has its first request answered, and is closed on the second. */
static bool worn_script(int fd, const peer_request *r)
{
    static __thread unsigned served;
    return served++ == 0 && reply_json(fd, body_has(r, ":1,") ? PONG("1") : PONG("2"));
}

static void a_write_is_sent_once_on_a_connection_that_dies(void **state)
{
    (void)state;
    open_link(worn_script);
    mcp_way first = {0}, write = {.write = true}, second = {0}, read = {0};
    assert_true(send_text(PING("1"), &first));
    wait_told(1);
    assert_true(send_text(PING("2"), &write));
    wait_told(2);
    expect_lost(1, &write, true, "the connection was lost before an answer came");
    assert_int_equal(asked_count(), 2);
    assert_true(send_text(PING("1"), &second));
    wait_told(3);
    assert_true(send_text(PING("2"), &read));
    wait_told(4);
    expect_message(3, &read, PONG("2"));
    assert_int_equal(asked_count(), 5);
}

static void a_server_that_is_not_there_got_nothing(void **state)
{
    (void)state;
    int port, nobody = bind_here(&port);
    char url[64];
    snprintf(url, sizeof url, "http://127.0.0.1:%d/mcp?secret=yes", port);
    options.url = sm_str_from(url);
    open_link(close_script);
    mcp_way way = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(1);
    expect_lost(0, &way, false, "/mcp cannot be reached: ");
    close(nobody);
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

/* The newest request with this body: others, such as the one for the stream, come when they come.
 */
static const peer_request *newest_asked(const char *body)
{
    for (unsigned i = asked_count(); i-- > 0;) {
        if (strcmp(asked(i)->body, body) == 0)
            return asked(i);
    }
    fail_msg("<%s> was not asked", body);
    return NULL;
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
    assert_true(send_text(INIT, &again));
    wait_told(3);
    expect_message(2, &again, INIT_RESULT);
    expect_header(newest_asked(INIT), "Mcp-Session-Id", NULL);
    expect_header(newest_asked(INIT), "MCP-Protocol-Version", NULL);
}

static void a_session_that_is_gone_is_not_ended(void **state)
{
    (void)state;
    open_link(gone_script);
    initialize();
    mcp_way way = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(2);
    mcp_link_close(link_);
    link_ = NULL;
    run_until(idle_reached, 0, "exchanges under way at the end");
    for (unsigned i = 0; i < asked_count(); i++)
        assert_string_not_equal(asked(i)->method, "DELETE");
}

static bool pong_script(int fd, const peer_request *r)
{
    bool go_on;
    if (greet(fd, r, &go_on))
        return go_on;
    if (strcmp(r->method, "GET") == 0)
        return reply(fd, 405, NULL, "", "");
    return reply_json(fd, PONG("1"));
}

/* Neither the one that would go at once nor the one that waits for its turn leaves its owner
 * waiting, and what stands behind it goes on. */
static void what_cannot_be_sent_is_told(void **state)
{
    (void)state;
    sm_http_field bad = {SM_STR("x-note"), SM_STR("a\r\nb: c")};
    mcp_way now = {.headers = &bad, .header_count = 1}, behind = {0}, turn = now;
    open_link(pong_script);
    assert_false(send_text(PING("1"), &now));
    initialize();
    assert_true(send_text(PING("1"), &turn));
    assert_true(send_text(PING("1"), &behind));
    wait_told(3);
    expect_lost(1, &turn, false, "HTTP cannot carry one of its headers");
    expect_message(2, &behind, PONG("1"));
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
    for (unsigned i = 3; i < asked_count(); i++) {
        posts += strcmp(asked(i)->method, "POST") == 0;
        expect_header(asked(i), "Mcp-Session-Id", "s-1");
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

static bool unnamed_script(int fd, const peer_request *r)
{
    (void)r;
    open_stream(fd, "");
    say(fd, "id: 1\nretry: 1\ndata: " NOTE "\n\nid:\ndata: " NOTE "\n\n");
    return false;
}

static void a_stream_that_takes_its_id_back_is_not_gone_on_with(void **state)
{
    (void)state;
    open_link(unnamed_script);
    mcp_way way = {0};
    assert_true(send_text(PING("1"), &way));
    wait_told(3);
    expect_message(1, &way, NOTE);
    expect_lost(2, &way, true, "broke off");
    assert_int_equal(asked_count(), 1);
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
    assert_in_range(asked_count(), 3, 14);
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
        remote_test(a_write_is_sent_once_on_a_connection_that_dies),
        remote_test(a_server_that_is_not_there_got_nothing),
        remote_test(a_session_that_is_gone_is_told),
        remote_test(a_session_that_is_gone_is_not_ended),
        remote_test(what_cannot_be_sent_is_told),
        remote_test(a_stream_that_named_its_events_is_gone_on_with),
        remote_test(going_on_that_is_refused_is_lost),
        remote_test(a_stream_that_takes_its_id_back_is_not_gone_on_with),
        remote_test(going_on_for_nothing_ends),
        remote_test(listening_is_begun_again),
    };
    return cmocka_run_group_tests_name("mcp_remote", tests, start, end);
}
