/*
 * What the link over Streamable HTTP sends in its headers: of modern requests, of those that are
 * passed on plainly, and what it refuses to send.
 */
#include "mcp_owner.h"

#include <strings.h>

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
        const peer_request *r = asked(i);
        expect_header(r, "Mcp-Method", table[i].method);
        expect_header(r, "Mcp-Name", table[i].name);
        expect_header(r, "MCP-Protocol-Version", "2026-07-28");
        expect_header(r, "Mcp-Session-Id", NULL);
    }
    assert_true(send_text(NOTE, NULL));
    wait_asked(COUNT(table) + 1);
    expect_header(asked(COUNT(table)), "MCP-Protocol-Version", "2026-07-28");
    expect_header(asked(COUNT(table)), "Mcp-Method", NULL);
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
        const peer_request *r = asked(i);
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
    assert_int_equal(asked_count(), 1);
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
    expect_header(asked(0), "Authorization", "Bearer ours");
    expect_header(asked(0), "Mcp-Session-Id", "abc");
    expect_header(asked(0), "Accept", "application/json");
    expect_header(asked(0), "Accept-Encoding", NULL);
    assert_true(send_text(PING("2"), &two));
    wait_told(2);
    expect_lost(1, &two, true, "the server answered 400");
    assert_int_equal(list[1].status, 400);
    assert_non_null(strstr(list[1].body, "\"id\":2"));
    expect_header(asked(1), "Mcp-Session-Id", NULL);
    assert_true(send_text(NOTE, &three));
    wait_told(3);
    expect_lost(2, &three, true, "the server answered 202");
    assert_int_equal(heads, 3);
}

/* ---- beside a client's request ---------------------------------------------------------------*/

static const char *value_of(const sm_http_field *v, size_t n, const char *name)
{
    static char text[256];
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        if (v[i].name.n != strlen(name) || strncasecmp(v[i].name.p, name, v[i].name.n) != 0)
            continue;
        found++;
        snprintf(text, sizeof text, "%.*s", SM_FMT(v[i].value));
    }
    assert_true(found <= 1);
    return found == 0 ? "(none)" : text;
}

static void a_request_of_ours_repeats_itself_and_not_the_one_it_stands_beside(void **state)
{
    sm_arena *a = *state;
    sm_http_field with[] = {{SM_STR("authorization"), SM_STR("Bearer theirs")},
                            {SM_STR("mcp-method"), SM_STR("tools/call")},
                            {SM_STR("Mcp-Name"), SM_STR("pay")},
                            {SM_STR("mcp-param-region"), SM_STR("us")},
                            {SM_STR("Mcp-Param-Count"), SM_STR("3")},
                            {SM_STR("MCP-Protocol-Version"), SM_STR("2026-07-28")}};
    mcp_tool look = {.name = SM_STR("l\xC3\xB6ok"),
                     .schema = document(a, "{\"properties\":{\"region\":{\"x-mcp-header\":"
                                           "\"Region\"}}}")};
    mcp_way way = {.headers = with, .header_count = COUNT(with)};
    const sm_http_field *v;
    size_t n;
    sm_str params = SM_STR("{\"name\":\"l\xC3\xB6ok\",\"arguments\":{\"region\":\"eu\"}}");
    assert_true(mcp_headers_beside(a, &way, "tools/call", params, &look, &v, &n));
    assert_string_equal(value_of(v, n, "Authorization"), "Bearer theirs");
    assert_string_equal(value_of(v, n, "MCP-Protocol-Version"), "2026-07-28");
    assert_string_equal(value_of(v, n, "Mcp-Method"), "tools/call");
    assert_string_equal(value_of(v, n, "Mcp-Name"), "=?base64?bMO2b2s=?=");
    assert_string_equal(value_of(v, n, "Mcp-Param-Region"), "eu");
    assert_string_equal(value_of(v, n, "Mcp-Param-Count"), "(none)");
    assert_true(mcp_headers_beside(a, &way, "tools/list", (sm_str){0}, NULL, &v, &n));
    assert_string_equal(value_of(v, n, "Mcp-Method"), "tools/list");
    assert_string_equal(value_of(v, n, "Mcp-Name"), "(none)");
    assert_string_equal(value_of(v, n, "Mcp-Param-Region"), "(none)");
    /* The older era repeats nothing. */
    way = (mcp_way){.headers = with, .header_count = 1};
    assert_true(mcp_headers_beside(a, &way, "tools/call", params, &look, &v, &n));
    assert_int_equal(n, 1);
    assert_true(mcp_headers_beside(a, &(mcp_way){0}, "tools/call", params, &look, &v, &n));
    assert_int_equal(n, 0);
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
        remote_test(a_modern_request_says_itself_in_its_headers),
        cmocka_unit_test_setup_teardown(arguments_that_a_schema_marks_are_headers, begin_with_arena,
                                        end_with_arena),
        remote_test(a_modern_stream_is_not_come_back_to),
        remote_test(a_plain_link_passes_on_what_it_is_given),
        cmocka_unit_test_setup_teardown(
            a_request_of_ours_repeats_itself_and_not_the_one_it_stands_beside, arena_setup,
            arena_teardown),
        remote_test(what_cannot_be_sent_is_refused),
    };
    return cmocka_run_group_tests_name("mcp_remote_headers", tests, start, end);
}
