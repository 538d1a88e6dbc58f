/*
 * The link over Streamable HTTP with much to hear, and an owner that acts in the middle of it.
 */
#include "mcp_owner.h"

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

static bool huge_listen_script(int fd, const peer_request *r)
{
    bool go_on;
    if (greet(fd, r, &go_on))
        return go_on;
    huge_bytes = MCP_LINE_MAX + 1;
    huge_script(fd, r); /* an event, and the stream stays open */
    say(fd, "data: " NOTE "\n\n");
    wait_for_end(fd);
    return false;
}

static void what_is_too_long_to_be_listened_to_is_told(void **state)
{
    (void)state;
    open_link(huge_listen_script);
    initialize();
    wait_told(2);
    expect_message(1, NULL, NOTE);
    assert_int_equal(too_longs, 1);
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

static bool busy_script(int fd, const peer_request *r)
{
    (void)r;
    return reply(fd, 503, "text/html", "", "<p>no</p>");
}

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
    server.script = busy_script;
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
    server.script = busy_script;
    open_link(busy_script);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        remote_test(messages_are_bounded),
        remote_test(what_is_too_long_to_be_listened_to_is_told),
        remote_test(a_server_that_says_much_waits_for_the_loop),
        remote_test(the_owner_may_act_in_the_middle),
        remote_test(a_link_that_is_closed_at_once_tells_nothing),
    };
    return cmocka_run_group_tests_name("mcp_remote_load", tests, start, end);
}
