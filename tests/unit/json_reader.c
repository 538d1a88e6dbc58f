/* The strict reader: what it accepts, what it refuses and where, and its limits. */
#include "unit.h"

/* Writes a document as it was read, members in their own order and numbers as spelled, and checks
 * on the way that spans, lengths and the sorted order fit together. */
static const sm_json *dump(const sm_json *v, sm_buf *out)
{
    const sm_json *end = v + 1;
    switch (v->type) {
    case SM_JSON_NULL: sm_buf_text(out, "null"); break;
    case SM_JSON_FALSE: sm_buf_text(out, "false"); break;
    case SM_JSON_TRUE: sm_buf_text(out, "true"); break;
    case SM_JSON_NUMBER: sm_buf_str(out, sm_json_text(v)); break;
    case SM_JSON_STRING: sm_json_put_string(out, sm_json_text(v)); break;
    default:
        sm_buf_byte(out, v->type == SM_JSON_OBJECT ? '{' : '[');
        for (uint32_t i = 0; i < v->len; i++) {
            if (i > 0)
                sm_buf_byte(out, ',');
            if (v->type == SM_JSON_OBJECT) {
                assert_int_equal(end->type, SM_JSON_STRING);
                end = dump(end, out);
                sm_buf_byte(out, ':');
            }
            end = dump(end, out);
        }
        sm_buf_byte(out, v->type == SM_JSON_OBJECT ? '}' : ']');
    }
    assert_ptr_equal(end, v + v->span);
    return end;
}

static const char *dump_text(sm_arena *a, const sm_json *v)
{
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    dump(v, &out);
    sm_str text = sm_arena_text(a, sm_buf_view(&out));
    sm_buf_fini(&out);
    return text.p;
}

static void every_kind_of_value_is_read(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text, *dump;
    } rows[] = {
        {"null", "null"},
        {"true", "true"},
        {"false", "false"},
        {"0", "0"},
        {"-0", "-0"},
        {"\"\"", "\"\""},
        {"[]", "[]"},
        {"{}", "{}"},
        {" \t\r\n null \t\r\n ", "null"},
        {"[ ]", "[]"},
        {"{ }", "{}"},
        {"[1 , 2,3 ]", "[1,2,3]"},
        {"[[],[[]],{}]", "[[],[[]],{}]"},
        {"{\"b\":[1,2],\"a\":null}", "{\"b\":[1,2],\"a\":null}"},
        {"{ \"\" : { \"\" : { } } }", "{\"\":{\"\":{}}}"},
        {"\"\x7F\"", "\"\x7F\""},
        {"\"'/\"", "\"'/\""},
        {"\"\xC2\x80\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\"",
         "\"\xC2\x80\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\""},
        {"\"\xEF\xBB\xBF\"", "\"\xEF\xBB\xBF\""}, /* inside a string it is a character */
        {"\"\xEF\xBF\xBE\"", "\"\xEF\xBF\xBE\""}, /* a noncharacter is one too */
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
        {"\"\\u0041\\u00e9\\u00E9\\u20aC\"", "\"A\xC3\xA9\xC3\xA9\xE2\x82\xAC\""},
        {"\"\\ud83d\\ude00\"", "\"\xF0\x9F\x98\x80\""},
        {"\"\\uD800\\uDC00\"", "\"\xF0\x90\x80\x80\""},
        {"\"\\uDBFF\\uDFFF\"", "\"\xF4\x8F\xBF\xBF\""},
        {"\"\\uD7FF\\uE000\"", "\"\xED\x9F\xBF\xEE\x80\x80\""},
        {"\"\\u005cu0041\"", "\"\\\\u0041\""}, /* what was decoded is not decoded again */
        {"\"\\u001f\\u007f\"", "\"\\u001f\x7F\""},
        {"{\"a\":1,\"b\":{\"c\":[true,{\"d\":\"e\"}]}}",
         "{\"a\":1,\"b\":{\"c\":[true,{\"d\":\"e\"}]}}"},
        {"{\"\\u0061\":1,\"A\":2}", "{\"a\":1,\"A\":2}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_str_from(dump_text(a, document(a, rows[i].text))), rows[i].dump);
}

static void numbers_keep_their_exact_text(void **state)
{
    sm_arena *a = *state;
    static const char *const rows[] = {
        "0",
        "-0",
        "1",
        "-1",
        "1234567890",
        "0.0",
        "-0.0",
        "1.50",
        "0.1e1",
        "1E5",
        "1e+05",
        "1e-05",
        "1.0E-0",
        "1e400",
        "0e0",
        "100000000000000000000000",
        "9007199254740993",
        "18446744073709551615",
        "0.1000000000000000055511151231257827",
        "-1.7976931348623157e308",
        "4.9e-324",
        "1e99999999999999999999999999",
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *v = document(a, rows[i]);
        assert_int_equal(v->type, SM_JSON_NUMBER);
        expect_text(sm_json_text(v), rows[i]);
        char inside[128];
        snprintf(inside, sizeof inside, "{\"n\":[%s,%s ]}", rows[i], rows[i]);
        v = sm_json_find(document(a, inside), SM_STR("n"));
        expect_text(sm_json_text(v + 1), rows[i]);
        expect_text(sm_json_text(v + 2), rows[i]);
    }
}

/* Strings of every length around the widths that are looked at in one piece, ending in each of the
 * ways in which a run of plain characters can end. */
static void strings_of_any_length_are_read(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *source, *decoded;
    } tails[] = {{"", ""},
                 {"\\n", "\n"},
                 {"\\u0000", "\0"},
                 {"\xC3\xA9", "\xC3\xA9"},
                 {"\\u00e9", "\xC3\xA9"},
                 {"\x7F", "\x7F"}};
    for (size_t n = 0; n < 70; n++) {
        for (size_t i = 0; i < COUNT(tails); i++) {
            for (size_t more = 0; more < 20; more += 19) {
                char text[128] = "\"", plain[64 * 2];
                memset(plain, '~', sizeof plain);
                sprintf(text + 1, "%.*s%s%.*s\"", (int)n, plain, tails[i].source, (int)more, plain);
                const sm_json *v = document(a, text);
                size_t tail = i == 2 ? 1 : strlen(tails[i].decoded);
                assert_int_equal(v->len, n + tail + more);
                assert_memory_equal(v->text, plain, n);
                assert_memory_equal(v->text + n, tails[i].decoded, tail);
                assert_memory_equal(v->text + n + tail, plain, more);
            }
        }
        sm_arena_reset(a);
    }
}

static void a_nul_escape_stands_inside_a_string(void **state)
{
    sm_arena *a = *state;
    const sm_json *v = document(a, "{\"a\\u0000b\":\"\\u0000\"}");
    assert_int_equal(v[1].len, 3);
    assert_memory_equal(v[1].text, "a\0b", 3);
    assert_int_equal(v[2].len, 1);
    assert_int_equal(v[2].text[0], 0);
    assert_null(sm_json_find(v, SM_STR("a")));
    assert_non_null(sm_json_find(v, SM_STR("a\0b")));
}

typedef struct refusal {
    sm_str text;
    uint32_t line, column;
    const char *word; /* in the sentence */
} refusal;

static void expect_refusal(sm_arena *a, const refusal *r, sm_err code)
{
    const sm_json *root = (const sm_json *)r;
    sm_fault f = {0};
    sm_err e = sm_json_read(a, r->text, &sm_json_default_limits, &root, &f);
    expect(e == code, "<%.*s> gave %s: %s", SM_FMT(r->text), semel_err_name(e), f.text);
    assert_int_equal(f.code, code);
    assert_null(root);
    expect(strstr(f.text, r->word) != NULL, "<%.*s>: no \"%s\" in \"%s\"", SM_FMT(r->text), r->word,
           f.text);
    expect(f.line == r->line && f.column == r->column, "<%.*s> at %u:%u, not %u:%u (%s)",
           SM_FMT(r->text), f.line, f.column, r->line, r->column, f.text);
    assert_true(f.at <= r->text.n);
    assert_int_equal(sm_json_read(a, r->text, &sm_json_default_limits, &root, NULL), code);
}

static void what_is_not_json_is_refused_where_it_stops_being_json(void **state)
{
    sm_arena *a = *state;
    static const refusal rows[] = {
        /* nothing at all */
        {BYTES(""), 1, 1, "ends where a value"},
        {BYTES(" \n "), 2, 2, "ends where a value"},
        /* words */
        {BYTES("nul"), 1, 1, "a value, found 'n'"},
        {BYTES("tru"), 1, 1, "found 't'"},
        {BYTES("True"), 1, 1, "found 'T'"},
        {BYTES("NULL"), 1, 1, "found 'N'"},
        {BYTES("nullx"), 1, 5, "more text"},
        {BYTES("[truefalse]"), 1, 6, "',' or ']'"},
        {BYTES("undefined"), 1, 1, "found 'u'"},
        {BYTES("NaN"), 1, 1, "found 'N'"},
        {BYTES("Infinity"), 1, 1, "found 'I'"},
        {BYTES("abc"), 1, 1, "found 'a'"},
        {BYTES("'a'"), 1, 1, "found '''"},
        {BYTES("// note\n1"), 1, 1, "found '/'"},
        {BYTES("/* note */ 1"), 1, 1, "found '/'"},
        {BYTES("1 // note"), 1, 3, "more text"},
        /* numbers */
        {BYTES("-"), 1, 2, "ends where a digit"},
        {BYTES("[-]"), 1, 3, "a digit, found ']'"},
        {BYTES("-a"), 1, 2, "a digit"},
        {BYTES("-Infinity"), 1, 2, "a digit"},
        {BYTES("+1"), 1, 1, "found '+'"},
        {BYTES(".5"), 1, 1, "found '.'"},
        {BYTES("-.5"), 1, 2, "a digit"},
        {BYTES("1."), 1, 3, "after the decimal point"},
        {BYTES("[1.]"), 1, 4, "after the decimal point"},
        {BYTES("1.e1"), 1, 3, "after the decimal point"},
        {BYTES("1e"), 1, 3, "in the exponent"},
        {BYTES("1e+"), 1, 4, "in the exponent"},
        {BYTES("1E-x"), 1, 4, "in the exponent"},
        {BYTES("1e1.5"), 1, 4, "more text"},
        {BYTES("01"), 1, 1, "leading zeros"},
        {BYTES("-01"), 1, 2, "leading zeros"},
        {BYTES("[00]"), 1, 2, "leading zeros"},
        {BYTES("0x10"), 1, 2, "more text"},
        {BYTES("1_000"), 1, 2, "more text"},
        {BYTES("--1"), 1, 2, "a digit"},
        {BYTES("1 2"), 1, 3, "more text"},
        {BYTES("\xD9\xA1"), 1, 1, "0xD9"},
        /* strings */
        {BYTES("\""), 1, 2, "ends inside a string"},
        {BYTES("\"abc"), 1, 5, "ends inside a string"},
        {BYTES("[\"abc]"), 1, 7, "ends inside a string"},
        {BYTES("\"a\tb\""), 1, 3, "control character"},
        {BYTES("\"a\nb\""), 1, 3, "control character"},
        {BYTES("\"a\rb\""), 1, 3, "control character"},
        {BYTES("\"\x1F\""), 1, 2, "control character"},
        {BYTES("\"a long string that goes on and then \x01 breaks\""), 1, 38, "control character"},
        {BYTES("\"\\x41\""), 1, 2, "unknown escape"},
        {BYTES("\"\\'\""), 1, 2, "unknown escape"},
        {BYTES("\"\\U0041\""), 1, 2, "unknown escape"},
        {BYTES("\"\\0\""), 1, 2, "unknown escape"},
        {BYTES("\"\\a\""), 1, 2, "unknown escape"},
        {BYTES("\"\\\n\""), 1, 2, "unknown escape"},
        {BYTES("\"ab\\"), 1, 5, "ends inside a string"},
        {BYTES("\"\\u"), 1, 2, "four hexadecimal digits"},
        {BYTES("\"\\u12"), 1, 2, "four hexadecimal digits"},
        {BYTES("\"\\u12\""), 1, 2, "four hexadecimal digits"},
        {BYTES("\"\\u12G4\""), 1, 2, "four hexadecimal digits"},
        {BYTES("\"\\u 123\""), 1, 2, "four hexadecimal digits"},
        {BYTES("\"\\u+123\""), 1, 2, "four hexadecimal digits"},
        {BYTES("\"ok\\u12\""), 1, 4, "four hexadecimal digits"},
        /* arrays */
        {BYTES("["), 1, 2, "ends where a value"},
        {BYTES("[[["), 1, 4, "ends where a value"},
        {BYTES("[[[[[[[[[["), 1, 11, "ends where a value"},
        {BYTES("[[[]"), 1, 5, "',' or ']'"},
        {BYTES("[1"), 1, 3, "ends where ',' or ']'"},
        {BYTES("[1,"), 1, 4, "ends where a value"},
        {BYTES("[1,]"), 1, 4, "a value, found ']'"},
        {BYTES("[,1]"), 1, 2, "a value, found ','"},
        {BYTES("[,]"), 1, 2, "a value, found ','"},
        {BYTES("[1,,2]"), 1, 4, "a value, found ','"},
        {BYTES("[1 2]"), 1, 4, "',' or ']', found '2'"},
        {BYTES("[1:2]"), 1, 3, "',' or ']', found ':'"},
        {BYTES("[1}"), 1, 3, "',' or ']', found '}'"},
        {BYTES("]"), 1, 1, "found ']'"},
        {BYTES("[]]"), 1, 3, "more text"},
        {BYTES("[][]"), 1, 3, "more text"},
        {BYTES("[\n 1,\n 2\n"), 4, 1, "ends where"},
        /* objects */
        {BYTES("{"), 1, 2, "ends where a name"},
        {BYTES("{{{"), 1, 2, "a name in double quotes, found '{'"},
        {BYTES("{\"a\""), 1, 5, "ends where ':'"},
        {BYTES("{\"a\":"), 1, 6, "ends where a value"},
        {BYTES("{\"a\":1"), 1, 7, "ends where ',' or '}'"},
        {BYTES("{\"a\":1,"), 1, 8, "ends where a name"},
        {BYTES("{\"a\":1,}"), 1, 8, "a name in double quotes, found '}'"},
        {BYTES("{,}"), 1, 2, "a name"},
        {BYTES("{a:1}"), 1, 2, "a name in double quotes, found 'a'"},
        {BYTES("{'a':1}"), 1, 2, "a name"},
        {BYTES("{1:1}"), 1, 2, "a name"},
        {BYTES("{null:1}"), 1, 2, "a name"},
        {BYTES("{[]:1}"), 1, 2, "a name"},
        {BYTES("{\"a\" 1}"), 1, 6, "':' after the name, found '1'"},
        {BYTES("{\"a\",1}"), 1, 5, "':' after the name, found ','"},
        {BYTES("{\"a\"}"), 1, 5, "':' after the name"},
        {BYTES("{\"a\"::1}"), 1, 6, "a value, found ':'"},
        {BYTES("{\"a\":,}"), 1, 6, "a value, found ','"},
        {BYTES("{\"a\":}"), 1, 6, "a value, found '}'"},
        {BYTES("{\"a\":1]"), 1, 7, "',' or '}', found ']'"},
        {BYTES("{\"a\":1 \"b\":2}"), 1, 8, "',' or '}'"},
        {BYTES("{\"a\":1;\"b\":2}"), 1, 7, "',' or '}'"},
        {BYTES("{\"a\":{\"b\":{\"c\":"), 1, 16, "ends where a value"},
        {BYTES("}"), 1, 1, "found '}'"},
        {BYTES("{}}"), 1, 3, "more text"},
        {BYTES("{}{}"), 1, 3, "more text"},
        {BYTES("{\n  \"a\": 1,\n  \"b\": tru\n}"), 3, 8, "a value"},
        /* space that is no space in JSON */
        {BYTES("\f1"), 1, 1, "0x0C"},
        {BYTES("\v1"), 1, 1, "0x0B"},
        {BYTES("\xC2\xA0"
               "1"),
         1, 1, "0xC2"},
        {BYTES("1\xE2\x80\xA8"), 1, 2, "more text"},
        {BYTES("[1,\f2]"), 1, 4, "0x0C"},
        /* NUL bytes, which are also the reader's own sentinel */
        {BYTES("\0"), 1, 1, "0x00"},
        {BYTES("1\0"), 1, 2, "more text"},
        {BYTES("[\0]"), 1, 2, "0x00"},
        {BYTES("[1\0]"), 1, 3, "0x00"},
        {BYTES("[1,\0"), 1, 4, "0x00"},
        {BYTES("-\0"), 1, 2, "0x00"},
        {BYTES("\"a\0b\""), 1, 3, "control character"},
        {BYTES("\"\0\""), 1, 2, "control character"},
        {BYTES("\"\\\0\""), 1, 2, "unknown escape"},
        {BYTES("\"\\u00\0\0\""), 1, 2, "four hexadecimal digits"},
        {BYTES("{\"a\"\0:1}"), 1, 5, "0x00"},
        {BYTES("nu\0l"), 1, 1, "a value"},
        /* a byte-order mark */
        {BYTES("\xEF\xBB\xBF"), 1, 1, "byte-order mark"},
        {BYTES("\xEF\xBB\xBF{}"), 1, 1, "byte-order mark"},
        {BYTES(" \xEF\xBB\xBF{}"), 1, 2, "0xEF"},
        {BYTES("\xFE\xFF\0{\0}"), 1, 1, "0xFE"},
        {BYTES("{\0}\0"), 1, 2, "0x00"},
        /* columns count characters, not bytes */
        {BYTES("{\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\": x}"), 1, 9, "found 'x'"},
        {BYTES("[\"\xF0\x9F\x98\x80\",\r\n \"\\u0041\\ud83d\\ude00\", ?]"), 2, 24, "found '?'"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_refusal(a, &rows[i], SEMEL_E_SYNTAX);
    expect_refusal(a, &(refusal){{NULL, 0}, 1, 1, "ends where a value"}, SEMEL_E_SYNTAX);
}

static void text_that_is_not_utf_8_is_refused(void **state)
{
    sm_arena *a = *state;
    static const refusal rows[] = {
        {BYTES("\"\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"ab\xBF\""), 1, 4, "UTF-8"},
        {BYTES("\"\xC0\xAF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xC0\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"\xC1\xBF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xE0\x80\xAF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xE0\x9F\xBF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xF0\x80\x80\xAF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xF0\x8F\xBF\xBF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xED\xA0\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"\xED\xBF\xBF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xED\xA0\xBD\xED\xB8\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"\xF4\x90\x80\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"\xF5\x80\x80\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"\xF8\x88\x80\x80\x80\""), 1, 2, "UTF-8"},
        {BYTES("\"\xFF\""), 1, 2, "UTF-8"},
        {BYTES("\"\xC3\""), 1, 2, "UTF-8"},
        {BYTES("\"\xE2\x82\""), 1, 2, "UTF-8"},
        {BYTES("\"\xF0\x9F\x98\""), 1, 2, "UTF-8"},
        {BYTES("\"\xC3"), 1, 2, "UTF-8"},
        {BYTES("\"\xE2\x82"), 1, 2, "UTF-8"},
        {BYTES("\"\xF0\x9F\x98"), 1, 2, "UTF-8"},
        {BYTES("\"caf\xE9\""), 1, 5, "UTF-8"},
        {BYTES("{\"\xE9\":1}"), 1, 3, "UTF-8"},
        {BYTES("\"\xC3\xA9 and then a long run of text \xE9\""), 1, 32, "UTF-8"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_refusal(a, &rows[i], SEMEL_E_SYNTAX);
}

static void half_a_surrogate_pair_is_refused(void **state)
{
    sm_arena *a = *state;
    static const refusal rows[] = {
        {BYTES("\"\\ud800\""), 1, 2, "without the second"},
        {BYTES("\"\\uDBFF\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800x\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\n\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\u0041\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\ud800\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\ud800\\udc00\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\udbff\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\ue000\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\u"), 1, 2, "without the second"},
        {BYTES("\"\\ud800\\udc0\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800\xED\xB0\x80\""), 1, 2, "without the second"},
        {BYTES("\"\\ud800"), 1, 2, "without the second"},
        {BYTES("\"\\udc00\""), 1, 2, "without the first"},
        {BYTES("\"\\uDFFF\""), 1, 2, "without the first"},
        {BYTES("\"\\udc00\\ud800\""), 1, 2, "without the first"},
        {BYTES("\"\\ud83d\\ude00\\ude00\""), 1, 14, "without the first"},
        {BYTES("{\"ok\":\"\",\"\\ud800\":1}"), 1, 11, "without the second"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_refusal(a, &rows[i], SEMEL_E_SYNTAX);
}

static void a_name_given_twice_is_refused_at_the_second(void **state)
{
    sm_arena *a = *state;
    static const refusal rows[] = {
        {BYTES("{\"a\":1,\"a\":1}"), 1, 8, "twice"},
        {BYTES("{\"\":1,\"\":2}"), 1, 7, "twice"},
        {BYTES("{\"a\":1,\"\\u0061\":2}"), 1, 8, "twice"},
        {BYTES("{\"\\u0061\":1,\"a\":2}"), 1, 13, "twice"},
        {BYTES("{\"\\u00e9\":1,\"\xC3\xA9\":2}"), 1, 13, "twice"},
        {BYTES("{\"\\ud83d\\ude00\":1,\"\xF0\x9F\x98\x80\":2}"), 1, 19, "twice"},
        {BYTES("{\"\\/\":1,\"/\":2}"), 1, 9, "twice"},
        {BYTES("{\"a\\u0000\":1,\"a\\u0000\":2}"), 1, 14, "twice"},
        {BYTES("{\"a\":1,\"b\":2,\"a\":3}"), 1, 14, "twice"},
        {BYTES("{\"b\":1,\"a\":2,\"b\":3}"), 1, 14, "twice"},
        {BYTES("{\"a\":1,\"a\":2,\"a\":3}"), 1, 8, "twice"},
        {BYTES("{\"b\":1,\"a\":2,\"b\":3,\"a\":4}"), 1, 14, "twice"},
        {BYTES("{\"a\":1,\"b\":2,\"b\":3,\"a\":4}"), 1, 14, "twice"},
        {BYTES("{\"a\":{\"b\":1,\"b\":2},\"a\":3}"), 1, 13, "twice"},
        {BYTES("[{\"x\":1},\n {\"x\":1,\n  \"x\":2}]"), 3, 3, "twice"},
        {BYTES("{\"a\":{\"a\":1},\"a\":2}"), 1, 14, "twice"},
        {BYTES("{\"same_prefix_1\":1,\"same_prefix_2\":1,\"same_prefix_1\":1}"), 1, 38, "twice"},
        {BYTES("{\"\xE2\x82\xAC_name\":1,\"\xE2\x82\xAC_namf\":1,\"\xE2\x82\xAC_name\":1}"), 1, 24,
         "twice"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_refusal(a, &rows[i], SEMEL_E_DUPLICATE);
}

static void names_that_only_look_alike_are_different(void **state)
{
    sm_arena *a = *state;
    static const char *const rows[] = {
        "{\"a\":1,\"A\":2}",
        "{\"a\":1,\"a \":2}",
        "{\"a\":1,\"a\\u0000\":2,\"a\\u0000\\u0000\":3}",
        "{\"a\\u0000\":1,\"a\":2}",
        "{\"\":1,\"\\u0000\":2}",
        "{\"\xC3\xA9\":1,\"e\xCC\x81\":2}", /* composed and decomposed: no normalisation */
        "{\"12345678\":1,\"123456789\":2,\"1234567\":3}",
        "{\"12345678a\":1,\"12345678b\":2,\"12345678\":3}",
        "{\"a\":{\"a\":{\"a\":1}}}",
        "[{\"a\":1},{\"a\":1}]",
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        document(a, rows[i]);
}

/* An object of `n` members whose names share a prefix, in an order made by the seed; if `twice` is
 * below n, that member's name is given again at the end. */
static sm_str wide_object(sm_arena *a, uint32_t n, const char *prefix, uint32_t twice,
                          uint64_t seed)
{
    uint32_t *order = sm_arena_alloc(a, n * sizeof *order);
    for (uint32_t i = 0; i < n; i++)
        order[i] = i;
    for (uint32_t i = n - 1; i > 0; i--) {
        uint32_t j = random_below(&seed, i + 1), swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
    sm_buf b;
    sm_buf_init(&b, 1 << 20);
    sm_buf_byte(&b, '{');
    for (uint32_t i = 0; i < n; i++)
        sm_buf_printf(&b, "%s\"%s%u\":%u", i == 0 ? "" : ",", prefix, order[i], i);
    if (twice < n)
        sm_buf_printf(&b, ",\"%s%u\":0", prefix, twice);
    sm_buf_byte(&b, '}');
    sm_str text = sm_arena_text(a, sm_buf_view(&b));
    sm_buf_fini(&b);
    return text;
}

static void duplicates_are_found_in_objects_of_any_size(void **state)
{
    sm_arena *a = *state;
    static const char *const prefixes[] = {"",
                                           "n",
                                           "1234567",
                                           "12345678",
                                           "a prefix that is much longer than eight bytes ",
                                           "\xC3\xA9t\xC3\xA9",
                                           "\xF0\x9F\x98\x80\xEF\xAC\xB3"};
    static const uint32_t sizes[] = {1, 2, 3, 15, 16, 17, 18, 33, 1000};
    for (size_t p = 0; p < COUNT(prefixes); p++) {
        for (size_t s = 0; s < COUNT(sizes); s++) {
            uint32_t n = sizes[s];
            sm_str text = wide_object(a, n, prefixes[p], n, p * 100 + s);
            const sm_json *root = NULL;
            assert_int_equal(sm_json_read(a, text, &sm_json_default_limits, &root, NULL), SM_OK);
            assert_int_equal(root->len, n);
            const uint32_t samples[] = {0, n / 2, n - 1};
            for (size_t i = 0; i < COUNT(samples); i++) {
                sm_fault f;
                text = wide_object(a, n, prefixes[p], samples[i], p * 100 + s);
                expect(sm_json_read(a, text, &sm_json_default_limits, &root, &f) ==
                           SEMEL_E_DUPLICATE,
                       "%u names, prefix %s", n, prefixes[p]);
                char last[128];
                snprintf(last, sizeof last, "\"%s%u\":0}", prefixes[p], samples[i]);
                assert_int_equal(f.at, text.n - strlen(last));
            }
            sm_arena_reset(a);
        }
    }
}

static void members_keep_their_order_and_know_how_they_sort(void **state)
{
    sm_arena *a = *state;
    static const uint32_t sizes[] = {1, 2, 9, 16, 17, 300};
    for (size_t s = 0; s < COUNT(sizes); s++) {
        uint32_t n = sizes[s];
        const sm_json *root = NULL;
        sm_str text = wide_object(a, n, "name ", n, s);
        assert_int_equal(sm_json_read(a, text, &sm_json_default_limits, &root, NULL), SM_OK);
        const sm_json *name = root + 1;
        for (uint32_t i = 0; i < n; i++, name = sm_json_next(name + 1)) {
            char place[16];
            snprintf(place, sizeof place, "%u", i);
            expect_text(sm_json_text(name + 1), place);
            assert_ptr_equal(sm_json_find(root, sm_json_text(name)), name + 1);
        }
        const sm_json *previous = NULL;
        for (uint32_t i = 0; i < n; i++) {
            const sm_json *next = sm_json_sorted(root, i, previous);
            if (previous != NULL)
                assert_true(strncmp(previous->text, next->text, 12) < 0);
            previous = next;
        }
    }
    assert_null(document(a, "{\"a\":1,\"b\":2,\"c\":3}")->order);
    assert_null(sm_json_find(document(a, "{\"a\":1}"), SM_STR("b")));
    assert_null(sm_json_find(document(a, "[1]"), SM_STR("0")));
    assert_null(sm_json_find(NULL, SM_STR("a")));
}

static void nodes_know_where_they_stood(void **state)
{
    sm_arena *a = *state;
    const sm_json *v = document(a, " {\"b\": [1, \"\\u0041x\"], \"a\" :null}");
    static const uint32_t at[] = {1, 2, 7, 8, 11, 23, 28};
    assert_int_equal(v->span, COUNT(at));
    for (size_t i = 0; i < COUNT(at); i++)
        assert_int_equal(v[i].at, at[i]);
}

/* "[[[...]]]" or {"a":{"a":...}}, `depth` of them. */
static sm_str nested(sm_arena *a, uint32_t depth, bool objects)
{
    sm_buf b;
    sm_buf_init(&b, 1 << 20);
    for (uint32_t i = 0; i < depth; i++)
        sm_buf_text(&b, objects ? i + 1 < depth ? "{\"a\":" : "{" : "[");
    for (uint32_t i = 0; i < depth; i++)
        sm_buf_text(&b, objects ? "}" : "]");
    sm_str text = sm_arena_text(a, sm_buf_view(&b));
    sm_buf_fini(&b);
    return text;
}

static void the_depth_limit_is_exact(void **state)
{
    sm_arena *a = *state;
    static const uint32_t depths[] = {0, 1, 2, 48, SM_JSON_DEPTH_MAX};
    for (size_t i = 0; i < COUNT(depths); i++) {
        sm_json_limits limits = sm_json_default_limits;
        limits.depth = depths[i];
        for (int objects = 0; objects < 2; objects++) {
            const sm_json *root;
            sm_fault f = {0};
            if (depths[i] > 0)
                assert_int_equal(sm_json_read(a, nested(a, depths[i], objects), &limits, &root, &f),
                                 SM_OK);
            sm_str over = nested(a, depths[i] + 1, objects);
            assert_int_equal(sm_json_read(a, over, &limits, &root, &f), SEMEL_E_LIMIT);
            assert_non_null(strstr(f.text, "deep"));
            assert_int_equal(f.at, depths[i] * (objects ? 5 : 1));
        }
    }
    /* Siblings do not add up. */
    sm_json_limits two = sm_json_default_limits;
    two.depth = 2;
    const sm_json *root;
    assert_int_equal(sm_json_read(a, SM_STR("[[],{},[],[[]]]"), &two, &root, NULL), SEMEL_E_LIMIT);
    assert_int_equal(sm_json_read(a, SM_STR("[[],{},[],[1]]"), &two, &root, NULL), SM_OK);
}

static void nesting_without_end_is_refused_for_its_depth(void **state)
{
    sm_arena *a = *state;
    static const uint32_t sizes[] = {SM_JSON_DEPTH_MAX + 1, 150, 200, 1000, 100000, 1000000};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        for (int objects = 0; objects < 2; objects++) {
            sm_str text = nested(a, sizes[i] / (objects ? 6 : 1), objects);
            text.n = objects ? text.n / 6 * 5 : text.n / 2; /* none is closed */
            sm_fault f;
            const sm_json *root;
            sm_err e = sm_json_read(a, text, &sm_json_default_limits, &root, &f);
            if (objects && sizes[i] / 6 <= SM_JSON_DEPTH_MAX)
                assert_int_equal(e, SEMEL_E_SYNTAX);
            else
                expect(e == SEMEL_E_LIMIT && strstr(f.text, "deep") != NULL, "%u: %s", sizes[i],
                       f.text);
        }
        sm_arena_reset(a);
    }
}

static void open_containers_of_any_number_are_a_syntax_error(void **state)
{
    sm_arena *a = *state;
    for (uint32_t depth = 1; depth <= SM_JSON_DEPTH_MAX; depth++) {
        sm_str text = nested(a, depth, false);
        text.n = depth;
        sm_fault f;
        const sm_json *root;
        expect(sm_json_read(a, text, &sm_json_default_limits, &root, &f) == SEMEL_E_SYNTAX,
               "%u open arrays: %s", depth, f.text);
        assert_int_equal(f.column, depth + 1);
    }
}

static void the_value_limit_is_exact(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *text;
        uint32_t values;
    } rows[] = {
        {"1", 1},       {"[]", 1},        {"{}", 1},        {"[1]", 2},
        {"[1,2,3]", 4}, {"[[],[[]]]", 4}, {"{\"a\":1}", 3}, {"{\"a\":1,\"b\":{\"c\":[1,2]}}", 9},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_json_limits limits = sm_json_default_limits;
        const sm_json *root;
        sm_fault f = {0};
        limits.values = rows[i].values;
        expect(sm_json_read(a, sm_str_from(rows[i].text), &limits, &root, &f) == SM_OK,
               "%s within %u: %s", rows[i].text, limits.values, f.text);
        assert_int_equal(root->span, rows[i].values);
        for (limits.values = 0; limits.values < rows[i].values; limits.values++) {
            sm_err e = sm_json_read(a, sm_str_from(rows[i].text), &limits, &root, &f);
            expect(e == SEMEL_E_LIMIT, "%s within %u: %s", rows[i].text, limits.values,
                   semel_err_name(e));
            assert_non_null(strstr(f.text, "too many values"));
            assert_true(f.line == 1 && f.column >= 1);
        }
    }
}

static void the_default_value_limit_holds(void **state)
{
    sm_arena *a = *state;
    sm_buf b;
    sm_buf_init(&b, 1 << 20);
    sm_buf_byte(&b, '[');
    for (uint32_t i = 0; i < SM_JSON_VALUES_MAX - 1; i++)
        sm_buf_text(&b, i == 0 ? "0" : ",0");
    sm_buf_byte(&b, ']');
    const sm_json *root;
    assert_int_equal(sm_json_read(a, sm_buf_view(&b), &sm_json_default_limits, &root, NULL), SM_OK);
    b.len--;
    sm_buf_text(&b, ",0]");
    assert_int_equal(sm_json_read(a, sm_buf_view(&b), &sm_json_default_limits, &root, NULL),
                     SEMEL_E_LIMIT);
    sm_buf_fini(&b);
}

static void the_size_limit_is_exact(void **state)
{
    sm_arena *a = *state;
    static const char text[] = "[\n\"\xC3\xA9\"]";
    sm_json_limits limits = sm_json_default_limits;
    const sm_json *root;
    sm_fault f;
    limits.bytes = sizeof text - 1;
    assert_int_equal(sm_json_read(a, SM_STR(text), &limits, &root, &f), SM_OK);
    limits.bytes--;
    assert_int_equal(sm_json_read(a, SM_STR(text), &limits, &root, &f), SEMEL_E_LIMIT);
    assert_non_null(strstr(f.text, "too large"));
    assert_int_equal(f.line, 2);
    assert_int_equal(f.column, 4);

    char *large = malloc(SM_JSON_BYTES_MAX + 1);
    memset(large, 'x', SM_JSON_BYTES_MAX + 1);
    large[0] = large[SM_JSON_BYTES_MAX - 1] = '"';
    sm_str at = {large, SM_JSON_BYTES_MAX}, over = {large, SM_JSON_BYTES_MAX + 1};
    assert_int_equal(sm_json_read(a, at, &sm_json_default_limits, &root, NULL), SM_OK);
    assert_int_equal(root->len, SM_JSON_BYTES_MAX - 2);
    assert_int_equal(sm_json_read(a, over, &sm_json_default_limits, &root, NULL), SEMEL_E_LIMIT);
    free(large);
}

/* Every size of arena, from nothing to enough: each allocation fails once. */
static void an_arena_that_is_too_small_is_out_of_memory(void **state)
{
    (void)state;
    static const char many_members[] =
        "{\"9\":1,\"8\":1,\"7\":1,\"6\":1,\"5\":1,\"4\":1,\"3\":1,\"2\":1,\"1\":1,"
        "\"0\":1,\"H\":1,\"G\":1,\"F\":1,\"E\":1,\"D\":1,\"C\":1,\"B\":1,\"A\":1}";
    static const char *const texts[] = {
        "1",
        "[1,2,3]",
        "{\"z\":1,\"y\":[2,{\"b\":1,\"a\":2}],\"x\":\"\\u0041\"}",
        many_members,
    };
    for (size_t i = 0; i < COUNT(texts); i++) {
        bool enough = false;
        for (size_t limit = 0; !enough; limit += 16) {
            sm_arena a;
            sm_arena_init(&a, limit);
            const sm_json *root;
            sm_fault f = {0};
            sm_err e = sm_json_read(&a, sm_str_from(texts[i]), &sm_json_default_limits, &root, &f);
            if (e == SM_OK) {
                enough = true;
            } else {
                assert_int_equal(e, SEMEL_E_NOMEM);
                assert_null(root);
                assert_string_equal(f.text, semel_err_text(SEMEL_E_NOMEM));
            }
            sm_arena_fini(&a);
            assert_true(limit < 100000);
        }
    }
}

static void the_text_may_be_gone_afterwards(void **state)
{
    sm_arena *a = *state;
    static const char text[] = "{\"name\":[1.50,\"value\",\"\\u0041\"]}";
    char *exact = malloc(sizeof text - 1); /* the sanitizer watches its end */
    memcpy(exact, text, sizeof text - 1);
    const sm_json *root;
    assert_int_equal(
        sm_json_read(a, (sm_str){exact, sizeof text - 1}, &sm_json_default_limits, &root, NULL),
        SM_OK);
    memset(exact, '#', sizeof text - 1);
    free(exact);
    assert_string_equal(dump_text(a, root), "{\"name\":[1.50,\"value\",\"A\"]}");
}

static void types_have_names_for_sentences(void **state)
{
    sm_arena *a = *state;
    assert_string_equal(sm_json_type_name(document(a, "null")), "null");
    assert_string_equal(sm_json_type_name(document(a, "1")), "a number");
    assert_string_equal(sm_json_type_name(document(a, "\"\"")), "a string");
    assert_string_equal(sm_json_type_name(document(a, "[]")), "an array");
    assert_string_equal(sm_json_type_name(document(a, "{}")), "an object");
}

/* Cutting a good document anywhere, or changing any byte of it, gives a document or a refusal with
 * a position inside the text. */
static void no_damage_goes_unplaced(void **state)
{
    sm_arena *a = *state;
    static const char good[] = "{\"a\":[1,-2.5e3,true,null,\"\\u00e9\\ud83d\\ude00x\"],"
                               "\"b\":{\"c\":\"\xE2\x82\xAC\",\"d\":[]}}";
    size_t n = sizeof good - 1;
    for (size_t i = 0; i < n; i++) {
        for (int byte = -1; byte < 256; byte++) {
            char text[sizeof good];
            memcpy(text, good, n);
            if (byte >= 0)
                text[i] = (char)byte;
            sm_str s = {text, byte >= 0 ? n : i};
            const sm_json *root;
            sm_fault f = {0};
            sm_err e = sm_json_read(a, s, &sm_json_default_limits, &root, &f);
            if (e != SM_OK)
                expect(f.line >= 1 && f.column >= 1 && f.at <= s.n && f.text[0] != '\0',
                       "byte %zu as %02X", i, (unsigned)byte);
            else
                expect(byte >= 0, "cut at %zu and still read", i);
            sm_arena_reset(a);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(every_kind_of_value_is_read),
        with_arena(numbers_keep_their_exact_text),
        with_arena(strings_of_any_length_are_read),
        with_arena(a_nul_escape_stands_inside_a_string),
        with_arena(what_is_not_json_is_refused_where_it_stops_being_json),
        with_arena(text_that_is_not_utf_8_is_refused),
        with_arena(half_a_surrogate_pair_is_refused),
        with_arena(a_name_given_twice_is_refused_at_the_second),
        with_arena(names_that_only_look_alike_are_different),
        with_arena(duplicates_are_found_in_objects_of_any_size),
        with_arena(members_keep_their_order_and_know_how_they_sort),
        with_arena(nodes_know_where_they_stood),
        with_arena(the_depth_limit_is_exact),
        with_arena(nesting_without_end_is_refused_for_its_depth),
        with_arena(open_containers_of_any_number_are_a_syntax_error),
        with_arena(the_value_limit_is_exact),
        with_arena(the_default_value_limit_holds),
        with_arena(the_size_limit_is_exact),
        cmocka_unit_test(an_arena_that_is_too_small_is_out_of_memory),
        with_arena(the_text_may_be_gone_afterwards),
        with_arena(types_have_names_for_sentences),
        with_arena(no_damage_goes_unplaced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
