/* Lines: framing, stopping and going on, lines that are too long, and the memory that is held. */
#include "unit.h"

#include <malloc.h>
#include <time.h>

#include "mcp/wire/lines.h"

typedef struct told {
    sm_buf text;      /* every line and a bar; one that is too long as <length id request> */
    unsigned stop_at; /* stops at each line that this divides; 0: never */
    unsigned lines;
} told;

static bool sink(void *context, const mcp_text_line *line)
{
    told *t = context;
    if (line->too_long) {
        assert_null(line->text.p);
        sm_buf_printf(&t->text, "<%lu %.*s %d>", (unsigned long)line->length,
                      line->id.p == NULL ? 1 : (int)line->id.n,
                      line->id.p == NULL ? "-" : line->id.p, line->request);
    } else {
        assert_true(line->length == line->text.n && line->text.n > 0);
        sm_buf_str(&t->text, line->text);
    }
    sm_buf_byte(&t->text, '|');
    t->lines++;
    return t->stop_at == 0 || t->lines % t->stop_at != 0;
}

/* Everything that is told of this text when it comes in pieces of so many bytes. */
static void feed(told *t, size_t line_max, sm_str text, size_t piece)
{
    sm_buf_init(&t->text, (size_t)1 << 30);
    t->lines = 0;
    mcp_lines *l = mcp_lines_new(line_max);
    assert_non_null(l);
    for (size_t at = 0; at < text.n; at += piece) {
        size_t n = text.n - at < piece ? text.n - at : piece;
        char *exact = malloc(n); /* gone afterwards: nothing is borrowed for longer */
        memcpy(exact, text.p + at, n);
        bool stopped;
        assert_true(mcp_lines_add(l, (sm_str){exact, n}, sink, t, &stopped));
        free(exact);
        while (stopped)
            assert_true(mcp_lines_add(l, (sm_str){0}, sink, t, &stopped));
    }
    mcp_lines_free(l);
}

static const struct {
    sm_str text;
    const char *told;
} rows[] = {
    {BYTES(""), ""},
    {BYTES("a"), ""},
    {BYTES("a\n"), "a|"},
    {BYTES("a\nb\n"), "a|b|"},
    {BYTES("a\r\nb\r\n"), "a|b|"},
    {BYTES("a\r\r\n"), "a\r|"},
    {BYTES("\n\n \n\t\r\n\r\na\n\n"), "a|"},
    {BYTES(" a \n"), " a |"},
    {BYTES("0123456789\n"), "0123456789|"},
    {BYTES("0123456789\r\n"), "0123456789|"},
    {BYTES("0123456789a\n"), "<11 - 0>|"},
    {BYTES("0123456789a\r\n"), "<11 - 0>|"},
    {BYTES("0123456789\r\r\n"), "<11 - 0>|"},
    {BYTES("0123456789ab\r\r\nx\n"), "<13 - 0>|x|"},
    {BYTES("{\"id\":123456789}\nb\n"), "<16 123456789 0>|b|"},
    {BYTES("a\n{\"id\":1,\"method\":1}\nb\n"), "a|<19 1 1>|b|"},
    {BYTES("{\"method\":\"m\",\"params\":{\"id\":7},\"id\":\"x\"}\n"), "<41 \"x\" 1>|"},
    {BYTES("{\"result\":{\"method\":\"m\"},\"id\":-1}\n"), "<33 -1 0>|"},
    {BYTES("{ \"id\" : 1 , \"method\" : 2 }\n"), "<27 1 1>|"},
    {BYTES("{\"id\":\"a\\\"}\",\"b\":\"\\\\\"}\n"), "<22 \"a\\\"}\" 0>|"},
    {BYTES("{\"a\":\"id\",\"b\":\"\\\"id\\\":2\",\"id\":3}\n"), "<32 3 0>|"},
    {BYTES("{\"id\":null,\"method\":\"m\"}\n"), "<24 - 1>|"},
    {BYTES("{\"id\":1.5,\"method\":\"m\"}\n"), "<23 - 1>|"},
    {BYTES("{\"id\":[1],\"method\":\"m\"}\n"), "<23 - 1>|"},
    {BYTES("{\"id\":{\"id\":1}}     \n"), "<20 - 0>|"},
    {BYTES("{\"id\":1,\"id\":1}\n"), "<15 - 0>|"},
    {BYTES("{\"ids\":1,\"methods\":1}\n"), "<21 - 0>|"},
    {BYTES("{\"id\":1,\"x\":\"\xE4\xB8\xAD\"} \n"), "<19 1 0>|"},
    {BYTES("{\"id\":1,\"x\":\"abcdef\n"), "<19 - 0>|"},
    {BYTES("{\"id\":1,\"x\":[1,2,3]\n"), "<19 - 0>|"},
    {BYTES("{\"id\":1}{\"id\":2}\n"), "<16 - 0>|"},
    {BYTES("[{\"id\":1,\"method\":1}]\n"), "<21 - 0>|"},
    {BYTES("junk {\"id\":1,\"method\":1}\n"), "<24 - 0>|"},
    {BYTES("\"id\":1,\"method\":1\n"), "<17 - 0>|"},
};

static void lines_are_the_same_in_pieces_of_any_size(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        for (size_t piece = 1; piece <= rows[i].text.n + 1; piece++) {
            told t = {0};
            feed(&t, 10, rows[i].text, piece);
            expect(sm_str_is(sm_buf_view(&t.text), rows[i].told),
                   "<%.*s> by %zu: got %.*s, expected %s", SM_FMT(rows[i].text), piece,
                   SM_FMT(sm_buf_view(&t.text)), rows[i].told);
            sm_buf_fini(&t.text);
        }
    }
}

/* All rows in one stream, stopped in many ways. */
static void a_stop_loses_nothing(void **state)
{
    (void)state;
    sm_buf all, right;
    sm_buf_init(&all, 10000);
    sm_buf_init(&right, 10000);
    for (size_t i = 2; i < COUNT(rows); i++) {
        sm_buf_str(&all, rows[i].text);
        sm_buf_text(&right, rows[i].told);
    }
    for (unsigned stop_at = 0; stop_at < 5; stop_at++) {
        for (size_t piece = 1; piece <= all.len; piece += piece < 50 ? 1 : 97) {
            told t = {.stop_at = stop_at};
            feed(&t, 10, sm_buf_view(&all), piece);
            expect(sm_str_eq(sm_buf_view(&t.text), sm_buf_view(&right)), "%u, %zu", stop_at, piece);
            sm_buf_fini(&t.text);
        }
    }
    sm_buf_fini(&all);
    sm_buf_fini(&right);
}

static void what_comes_after_a_stop_is_held_in_order(void **state)
{
    (void)state;
    told t = {.stop_at = 1};
    sm_buf_init(&t.text, 1000);
    mcp_lines *l = mcp_lines_new(10);
    bool stopped;
    assert_true(mcp_lines_add(l, SM_STR("a\nb\nc"), sink, &t, &stopped));
    assert_true(stopped);
    assert_int_equal(mcp_lines_held(l), 3);
    expect_text(sm_buf_view(&t.text), "a|");
    /* A piece in spite of the stop: what was held goes first, and it stops again. */
    assert_true(mcp_lines_add(l, SM_STR("c\nd\n"), sink, &t, &stopped));
    assert_true(stopped);
    assert_int_equal(mcp_lines_held(l), 5);
    assert_true(mcp_lines_add(l, SM_STR("e"), sink, &t, NULL));
    expect_text(sm_buf_view(&t.text), "a|b|cc|");
    t.stop_at = 0;
    assert_true(mcp_lines_add(l, (sm_str){0}, sink, &t, &stopped));
    assert_false(stopped);
    expect_text(sm_buf_view(&t.text), "a|b|cc|d|");
    assert_int_equal(mcp_lines_held(l), 1);
    /* The end of a stream. */
    assert_true(mcp_lines_add(l, SM_STR("\n"), sink, &t, &stopped));
    expect_text(sm_buf_view(&t.text), "a|b|cc|d|e|");
    assert_int_equal(mcp_lines_held(l), 0);
    mcp_lines_free(l);
    mcp_lines_free(NULL);
    sm_buf_fini(&t.text);
}

/* Ids of a line that is too long: as long as they may be, and one byte more. */
static void a_long_id_is_told_up_to_its_bound(void **state)
{
    (void)state;
    for (size_t n = MCP_ID_MAX - 1; n <= MCP_ID_MAX + 2; n++) {
        sm_buf text, right;
        sm_buf_init(&text, 10000);
        sm_buf_init(&right, 10000);
        sm_buf_printf(&text, "{\"method\":\"m\", \"id\" : %0*d  \t}\n", (int)n, 0);
        text.p[text.len - n - 5] = '7';
        memset(text.p + text.len - n - 4, '1', n - 1);
        size_t length = text.len - 1;
        if (n <= MCP_ID_MAX) {
            sm_buf_printf(&right, "<%zu 7", length);
            for (size_t i = 1; i < n; i++)
                sm_buf_byte(&right, '1');
            sm_buf_text(&right, " 1>|");
        } else {
            sm_buf_printf(&right, "<%zu - 1>|", length);
        }
        for (size_t piece = 1; piece < 2000; piece += 333) {
            told t = {0};
            feed(&t, 100, sm_buf_view(&text), piece);
            expect(sm_str_eq(sm_buf_view(&t.text), sm_buf_view(&right)), "%zu: got %.*s", n,
                   SM_FMT(sm_buf_view(&t.text)));
            sm_buf_fini(&t.text);
        }
        sm_buf_fini(&text);
        sm_buf_fini(&right);
    }
}

static bool count_bytes(void *context, const mcp_text_line *line)
{
    *(uint64_t *)context += line->length;
    return true;
}

/* The largest line, byte by byte: each costs the same. And its memory does not stay. */
static void a_line_of_16_mib_may_come_byte_by_byte(void **state)
{
    (void)state;
    mcp_lines *l = mcp_lines_new(MCP_LINE_MAX);
    uint64_t seen = 0;
    struct timespec began, ended;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &began);
    for (size_t i = 0; i < MCP_LINE_MAX; i++)
        assert_true(mcp_lines_add(l, SM_STR("x"), count_bytes, &seen, NULL));
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    assert_true(ended.tv_sec - began.tv_sec < 30); /* by the square it would be a day */
    assert_int_equal(mcp_lines_held(l), MCP_LINE_MAX);
    assert_int_equal(seen, 0);
    assert_true(mcp_lines_add(l, SM_STR("\r\n"), count_bytes, &seen, NULL));
    assert_int_equal(seen, MCP_LINE_MAX);
    assert_int_equal(mcp_lines_held(l), 0);

    /* One byte more is not held but counted. */
    char *much = malloc(MCP_LINE_MAX);
    memset(much, 'x', MCP_LINE_MAX);
    seen = 0;
    for (int i = 0; i < 10; i++) {
        assert_true(mcp_lines_add(l, (sm_str){much, MCP_LINE_MAX}, count_bytes, &seen, NULL));
        assert_int_equal(mcp_lines_held(l), i == 0 ? MCP_LINE_MAX : 0);
    }
    assert_true(mcp_lines_add(l, SM_STR("\nab\n"), count_bytes, &seen, NULL));
    assert_int_equal(seen, 10 * MCP_LINE_MAX + 2);
    free(much);
    mcp_lines_free(l);
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Whether the allocator tells: a sanitizer's does not. */
static bool allocations_are_told(void)
{
    size_t before = allocated();
    void *volatile some = malloc(1 << 20);
    bool grown = allocated() > before;
    free(some);
    return grown;
}

static void memory_of_a_large_line_is_given_back(void **state)
{
    (void)state;
    if (!allocations_are_told())
        skip();
    mcp_lines *l = mcp_lines_new(MCP_LINE_MAX);
    uint64_t seen = 0;
    size_t before = allocated();
    static char piece[1 << 16];
    memset(piece, 'x', sizeof piece);
    for (int i = 0; i < 100; i++)
        assert_true(mcp_lines_add(l, (sm_str){piece, sizeof piece}, count_bytes, &seen, NULL));
    assert_true(allocated() >= before + 100 * sizeof piece);
    assert_true(mcp_lines_add(l, SM_STR("\na\nb"), count_bytes, &seen, NULL));
    assert_true(allocated() < before + (100 << 10));
    mcp_lines_free(l);
}

static const char *told_result;

static bool result_sink(void *context, const mcp_text_line *line)
{
    (void)context;
    assert_true(line->too_long);
    told_result = !line->result ? "none" : line->failed ? "failed" : "done";
    return true;
}

static void of_a_long_answer_is_told_whether_it_says_done(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"{'id':1,'result':{'content':[{'text':'isError'}]}}", "done"},
        {"{'result':{'a':{'isError':true},'isError':false},'id':1}", "done"},
        {"{'result':{'content':[1,2],'isError' : true},'id':1}", "failed"},
        {"{'result':{'isError':true,'content':[',']},'id':1}", "failed"},
        {"{'result':{'resultType':'complete','b':'x'},'id':1}", "done"},
        {"{'result':{'resultType':'input_required'},'id':1}", "none"},
        {"{'result':{'resultType':'\\u0069nput_required'},'id':1}", "none"},
        {"{'result':{'isError':true,'isError':false},'id':1}", "none"},
        {"{'result':{'is\\u0045rror':true},'id':1}", "none"},
        {"{'result':{'a':1},'result':{'a':1},'id':1}", "none"},
        {"{'result':{'a':1},'error':{'code':1},'id':1}", "none"},
        {"{'error':{'result':{'a':1},'code':1},'id':1}", "none"},
        {"{'method':'a','result':{'a':1},'id':1}", "none"},
        {"{'result':['isError',1,2,3,4,5],'id':1}", "none"},
        {"{'result':'isError and more','id':1}", "none"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[128];
        size_t n = (size_t)snprintf(text, sizeof text, "%s\n", cases[i].text);
        for (size_t at = 0; at < n; at++)
            text[at] = text[at] == '\'' ? '"' : text[at];
        for (size_t piece = 1; piece <= n; piece += n - 1) {
            mcp_lines *l = mcp_lines_new(16);
            told_result = "nothing";
            for (size_t at = 0; at < n; at += piece)
                assert_true(mcp_lines_add(l, (sm_str){text + at, piece}, result_sink, NULL, NULL));
            mcp_lines_free(l);
            assert_string_equal(told_result, cases[i].want);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_a_long_answer_is_told_whether_it_says_done),
        cmocka_unit_test(lines_are_the_same_in_pieces_of_any_size),
        cmocka_unit_test(a_stop_loses_nothing),
        cmocka_unit_test(what_comes_after_a_stop_is_held_in_order),
        cmocka_unit_test(a_long_id_is_told_up_to_its_bound),
        cmocka_unit_test(a_line_of_16_mib_may_come_byte_by_byte),
        cmocka_unit_test(memory_of_a_large_line_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
