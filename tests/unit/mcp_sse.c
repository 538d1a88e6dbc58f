/*
 * Server-sent events: the same events wherever the bytes are cut, bounded, and only whole ones.
 */
#include "unit.h"

#include "mcp/wire/sse.h"

/* What came, as one line of text for each event: type|id|retry|data. */
typedef struct record {
    sm_buf text;
    size_t events, stop_after;
} record;

static bool on_event(void *context, const mcp_sse_event *e)
{
    record *r = context;
    r->events++;
    sm_buf_printf(&r->text, "%.*s|", SM_FMT(e->type));
    if (e->has_id)
        sm_buf_printf(&r->text, "<%.*s>", SM_FMT(e->id));
    sm_buf_printf(&r->text, "|%d|%.*s%s\n", (int)e->retry_ms, SM_FMT(e->data),
                  e->too_long ? "TOO LONG" : "");
    return r->events != r->stop_after;
}

/* Reads a stream in pieces of so many bytes, and compares. */
static void check(sm_str stream, size_t event_max, size_t piece, const char *expected)
{
    record r = {0};
    sm_buf_init(&r.text, 1u << 20);
    mcp_sse *s = mcp_sse_new(event_max);
    assert_non_null(s);
    for (size_t i = 0; i < stream.n; i += piece) {
        size_t n = stream.n - i < piece ? stream.n - i : piece;
        char *copy = malloc(n); /* so that a read behind its end is found */
        assert_non_null(copy);
        memcpy(copy, stream.p + i, n);
        assert_true(mcp_sse_add(s, (sm_str){copy, n}, on_event, &r));
        free(copy);
    }
    sm_str got = r.text.len == 0 ? SM_STR("") : sm_buf_view(&r.text);
    expect(sm_str_is(got, expected), "<%.*s> in pieces of %zu: got <%.*s>, expected <%s>",
           SM_FMT(stream), piece, SM_FMT(got), expected);
    sm_buf_fini(&r.text);
    mcp_sse_free(s);
}

static void events_are_the_same_wherever_they_are_cut(void **state)
{
    (void)state;
    static const struct {
        sm_str stream;
        const char *expected;
    } table[] = {
        {BYTES("data: x\n\n"), "||-1|x\n"},
        {BYTES("data:x\n\n"), "||-1|x\n"},
        {BYTES("data:  x \n\n"), "||-1| x \n"},
        {BYTES("data: x\r\n\r\n"), "||-1|x\n"},
        {BYTES("data: x\r\r"), "||-1|x\n"},
        {BYTES("data: x\r\n\ndata: y\n\r\n"), "||-1|x\n||-1|y\n"},
        {BYTES("data: a\ndata: b\n\n"), "||-1|a\nb\n"},
        {BYTES("data: a\ndata\ndata: b\n\n"), "||-1|a\n\nb\n"},
        {BYTES("event: message\nid: 7\ndata: {}\n\n"), "message|<7>|-1|{}\n"},
        {BYTES("id: 1\ndata: \n\n"), "|<1>|-1|\n"},
        {BYTES("id: 1\nretry: 500\ndata:\n\n"), "|<1>|500|\n"},
        {BYTES("id\n\n"), "|<>|-1|\n"},
        {BYTES("retry: 20\n\n"), "||20|\n"},
        {BYTES("retry: 2x\ndata: a\n\n"), "||-1|a\n"},
        {BYTES("retry:\ndata: a\n\n"), "||-1|a\n"},
        {BYTES(": keepalive\n\n:\r\n\ndata: a\n\n"), "||-1|a\n"},
        {BYTES("event: ping\n\n"), ""},
        {BYTES("datum: a\ndat: b\ndataa: c\nData: d\nretries: 4\n\n"), ""},
        {BYTES("\xEF\xBB\xBF"
               "data: x\n\n"),
         "||-1|x\n"},
        {BYTES("\xEF\xBB"
               "data: x\n\ndata: y\n\n"),
         "||-1|y\n"},
        {BYTES("data: a\xEF\xBB\xBF\n\n"), "||-1|a\xEF\xBB\xBF\n"},
        {BYTES("id: a\0b\ndata: x\n\n"), "||-1|x\n"},
        {BYTES("data: cut short"), ""},
        {BYTES("data: cut short\n"), ""},
        {BYTES("data: x\n\ndata: cut"), "||-1|x\n"},
        {BYTES("data: a:b: c\n\n"), "||-1|a:b: c\n"},
        {BYTES("id: 1\n\ndata: x\n\n"), "|<1>|-1|\n||-1|x\n"},
        {BYTES("event: a\nevent: b\ndata: x\n\n"), "b||-1|x\n"},
        {BYTES("\n\n\r\n"), ""},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        for (size_t piece = 1; piece <= 12; piece++)
            check(table[i].stream, 64, piece, table[i].expected);
        check(table[i].stream, 64, 1000, table[i].expected);
    }
}

static void an_event_over_the_bound_is_told_and_not_held(void **state)
{
    (void)state;
    for (size_t piece = 1; piece <= 20; piece++) {
        check(SM_STR("data: 12345678\n\n"), 8, piece, "||-1|12345678\n");
        check(SM_STR("data: 123456789\n\ndata: ok\n\n"), 8, piece, "||-1|TOO LONG\n||-1|ok\n");
        check(SM_STR("id: 4\ndata: 1234\ndata: 5678\ndata: 9\n\ndata: ok\n\n"), 8, piece,
              "|<4>|-1|TOO LONG\n||-1|ok\n");
    }
    mcp_sse *s = mcp_sse_new(1000);
    record r = {0};
    assert_non_null(s);
    for (int i = 0; i < 10000; i++)
        assert_true(mcp_sse_add(s, SM_STR("data: of a line without end"), on_event, &r));
    assert_true(mcp_sse_held(s) <= 1001);
    for (int i = 0; i < 10000; i++)
        assert_true(mcp_sse_add(s, SM_STR("\n: comments are not held\nid"), on_event, &r));
    assert_true(mcp_sse_held(s) <= 1001);
    mcp_sse_free(s);
}

static void an_id_that_is_too_long_counts_as_none(void **state)
{
    (void)state;
    sm_buf b;
    sm_buf_init(&b, 1u << 20);
    sm_buf_text(&b, "id: ");
    for (unsigned i = 0; i <= MCP_EVENT_ID_MAX; i++)
        sm_buf_byte(&b, 'x');
    sm_buf_text(&b, "\ndata: a\n\nid: b\ndata: c\n\n");
    check(sm_buf_view(&b), 64, 7, "|<>|-1|a\n|<b>|-1|c\n");
    sm_buf_fini(&b);
}

static void a_sink_that_has_enough_is_not_called_again(void **state)
{
    (void)state;
    record r = {.stop_after = 2};
    sm_buf_init(&r.text, 4096);
    mcp_sse *s = mcp_sse_new(64);
    assert_non_null(s);
    assert_true(mcp_sse_add(s, SM_STR("data: 1\n\ndata: 2\n\ndata: 3\n\n"), on_event, &r));
    assert_int_equal(r.events, 2);
    mcp_sse_free(s);
    sm_buf_fini(&r.text);
}

static void a_large_event_comes_whole(void **state)
{
    (void)state;
    size_t n = (size_t)1 << 20;
    sm_buf b;
    sm_buf_init(&b, 2 * n);
    sm_buf_text(&b, "data: ");
    for (size_t i = 0; i < n; i++)
        sm_buf_byte(&b, (char)('a' + i % 26));
    sm_buf_text(&b, "\n\n");
    record r = {0};
    sm_buf_init(&r.text, 2 * n);
    mcp_sse *s = mcp_sse_new(n);
    assert_non_null(s);
    for (size_t i = 0; i < b.len; i += 1000)
        assert_true(
            mcp_sse_add(s, (sm_str){b.p + i, b.len - i < 1000 ? b.len - i : 1000}, on_event, &r));
    assert_int_equal(r.events, 1);
    assert_int_equal(r.text.len, n + 6);
    assert_memory_equal(r.text.p + 5, b.p + 6, n);
    assert_int_equal(mcp_sse_held(s), 0);
    mcp_sse_free(s);
    sm_buf_fini(&r.text);
    sm_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_are_the_same_wherever_they_are_cut),
        cmocka_unit_test(an_event_over_the_bound_is_told_and_not_held),
        cmocka_unit_test(an_id_that_is_too_long_counts_as_none),
        cmocka_unit_test(a_sink_that_has_enough_is_not_called_again),
        cmocka_unit_test(a_large_event_comes_whole),
    };
    return cmocka_run_group_tests_name("mcp_sse", tests, NULL, NULL);
}
