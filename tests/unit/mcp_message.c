/* JSON-RPC messages: what they are, what is found in them, and how they are changed. */
#include "unit.h"

#include "json/scan.h"

#include "mcp/message.h"

static sm_str exact; /* a copy that ends where it ends: the sanitizer watches */

static mcp_message read_as(sm_str text)
{
    mcp_message m;
    free((char *)exact.p);
    exact = (sm_str){malloc(text.n == 0 ? 1 : text.n), text.n};
    if (text.n > 0)
        memcpy((char *)exact.p, text.p, text.n);
    bool good = mcp_read(exact, &m);
    assert_true(good == (m.kind != MCP_INVALID));
    assert_true(good == (m.flaw[0] == '\0'));
    return m;
}

static int exact_teardown(void **state)
{
    (void)state;
    free((char *)exact.p);
    exact = (sm_str){0};
    return 0;
}

static void expect_part(sm_str actual, const char *expected, const char *row)
{
    if (expected == NULL)
        expect(actual.p == NULL, "%s: there is <%.*s>", row, SM_FMT(actual));
    else
        expect(actual.p != NULL && sm_str_is(actual, expected), "%s: got <%.*s>", row,
               SM_FMT(actual));
}

static void messages_are_what_their_members_say(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        mcp_message_kind kind;
        const char *id, *method, *params, *result, *error;
    } rows[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}", MCP_REQUEST, "1", "ping", 0, 0, 0},
        {"{\"method\":\"a\",\"params\":{},\"jsonrpc\":\"2.0\",\"id\":\"x\"}", MCP_REQUEST, "\"x\"",
         "a", "{}", 0, 0},
        {"{\"method\":\"a\",\"params\":[ 1 ] ,\"jsonrpc\":\"2.0\"}", MCP_NOTIFICATION, 0, "a",
         "[ 1 ]", 0, 0},
        {" {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"a\":1}}\t", MCP_RESULT, "0", "", 0,
         "{\"a\":1}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":-7,\"result\":null}", MCP_RESULT, "-7", "", 0, "null", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"\",\"error\":{}}", MCP_ERROR, "\"\"", "", 0, 0, "{}"},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}", MCP_ERROR, "null", "", 0, 0, "{}"},
        {"{\"jsonrpc\":\"2.0\",\"error\":{}}", MCP_ERROR, 0, "", 0, 0, "{}"},
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"result\":1}", MCP_RESULT, "null", "", 0, "1", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":9007199254740993,\"method\":\"\"}", MCP_REQUEST,
         "9007199254740993", "", 0, 0, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"a\\u0062\",\"method\":\"m\"}", MCP_REQUEST, "\"a\\u0062\"",
         "m", 0, 0, 0},
        {"{\"jsonrp\\u0063\":\"\\u0032.0\",\"m\\u0065thod\":\"tools\\/c\\u0061ll\",\"\\u0069d\":3}",
         MCP_REQUEST, "3", "tools/call", 0, 0, 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"x\":1,\"x\":2,\"ids\":6}", MCP_REQUEST,
         "1", "m", 0, 0, 0},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\"id\":1,\"id\":2,\"method\":0}}",
         MCP_NOTIFICATION, 0, "m", "{\"id\":1,\"id\":2,\"method\":0}", 0, 0},
        {"[{\"jsonrpc\":\"2.0\",\"method\":\"m\"}]", MCP_BATCH, 0, "", 0, 0, 0},
        {"[1]", MCP_BATCH, 0, "", 0, 0, 0},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        mcp_message m = read_as(sm_str_from(rows[i].text));
        expect(m.kind == rows[i].kind, "%s: kind %d, %s", rows[i].text, m.kind, m.flaw);
        expect_part(m.id, rows[i].id, rows[i].text);
        expect_part(m.params, rows[i].params, rows[i].text);
        expect_part(m.result, rows[i].result, rows[i].text);
        expect_part(m.error, rows[i].error, rows[i].text);
        assert_string_equal(m.method, rows[i].method);
        assert_true(m.code != MCP_E_JUNK);
    }
}

static void blanks_around_a_message_are_not_part_of_it(void **state)
{
    (void)state;
    mcp_message m = read_as(SM_STR(" \t\r\n{\"jsonrpc\":\"2.0\",\"method\":\"m\"} \r\n"));
    assert_int_equal(m.kind, MCP_NOTIFICATION);
    expect_text(m.text, "{\"jsonrpc\":\"2.0\",\"method\":\"m\"}");
}

/* What is no message, and the id that it can be answered with. */
static void what_is_no_message_is_refused_with_its_id(void **state)
{
    (void)state;
    static const struct {
        const char *text, *id;
    } rows[] = {
        {"{}", 0},
        {"1", 0},
        {"\"text\"", 0},
        {"null", 0},
        {"[]", 0},
        {"[ ]", 0},
        {"{\"id\":1,\"method\":\"m\"}", "1"},
        {"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"m\"}", "1"},
        {"{\"jsonrpc\":2.0,\"id\":1,\"method\":\"m\"}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":1}", "\"x\""},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":null}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":null}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":\"{}\"}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":true}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"result\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"error\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"error\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"result\":1}", 0},
        /* Ids. */
        {"{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.0,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1e2,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.5,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":true,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":{},\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":[1],\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1.0,\"result\":1}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":false,\"error\":{}}", 0},
        /* Twice, as they decode. */
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":1,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"i\\u0064\":2,\"method\":\"m\"}", 0},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"method\":\"n\"}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"\\u006dethod\":\"n\"}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{},\"params\":{}}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":1,\"result\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":1,\"error\":1}", "1"},
        {"{\"jsonrpc\":\"2.0\",\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\"}", "1"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        mcp_message m = read_as(sm_str_from(rows[i].text));
        expect(m.kind == MCP_INVALID && m.code != MCP_E_JUNK, "%s: kind %d", rows[i].text, m.kind);
        expect_part(m.id, rows[i].id, rows[i].text);
    }
}

static void text_that_is_no_json_is_junk(void **state)
{
    (void)state;
    static const sm_str rows[] = {
        BYTES(""),
        BYTES(" "),
        BYTES("{"),
        BYTES("}"),
        BYTES("["),
        BYTES("{]"),
        BYTES("[}"),
        BYTES("[1"),
        BYTES("[1,"),
        BYTES("[1,]"),
        BYTES("[,1]"),
        BYTES("[1 2]"),
        BYTES("[[]"),
        BYTES("[{}"),
        BYTES("[{]}"),
        BYTES("[[}]"),
        BYTES("{}}"),
        BYTES("{} {}"),
        BYTES("{}x"),
        BYTES("{\"a\"}"),
        BYTES("{\"a\":}"),
        BYTES("{\"a\":1,}"),
        BYTES("{,}"),
        BYTES("{a:1}"),
        BYTES("{'a':1}"),
        BYTES("{\"a\" 1}"),
        BYTES("{\"a\":1 \"b\":2}"),
        BYTES("{\"a\":1;\"b\":2}"),
        BYTES("{\"a\":"),
        BYTES("{\"a"),
        BYTES("{\"a\":[{\"b\":[}]}"),
        BYTES("[01]"),
        BYTES("[-]"),
        BYTES("[-01]"),
        BYTES("[1.]"),
        BYTES("[.5]"),
        BYTES("[1e]"),
        BYTES("[1e+]"),
        BYTES("[+1]"),
        BYTES("[1.5.5]"),
        BYTES("[0x10]"),
        BYTES("[NaN]"),
        BYTES("[tru]"),
        BYTES("[truee]"),
        BYTES("[True]"),
        BYTES("[nul"),
        BYTES("nul"),
        BYTES("-"),
        BYTES("1."),
        BYTES("\""),
        BYTES("\"\\"),
        BYTES("\"\\\""),
        BYTES("\"\\u12"),
        BYTES("[\"\\x\"]"),
        BYTES("[\"\\u12G4\"]"),
        BYTES("[\"\\U1234\"]"),
        BYTES("[\"a\nb\"]"),
        BYTES("[\"a\tb\"]"),
        BYTES("[\"a\0b\"]"),
        BYTES("[\"0123456789\x01\"]"),
        BYTES("[\"\x80\"]"),
        BYTES("[\"\xC3\"]"),
        BYTES("[\"\xC0\x80\"]"),
        BYTES("[\"\xED\xA0\x80\"]"),
        BYTES("[\"\xF4\x90\x80\x80\"]"),
        BYTES("[\"\xE4\xB8"),
        BYTES("[1]\0"),
        BYTES("\xEF\xBB\xBF{}"),
        BYTES("[1]\f"),
        BYTES("[\xC2\xA0]"),
        BYTES("Listening on port 3000"),
        BYTES("// comment\n{}"),
        BYTES("{\"a\":1}/* */"),
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        mcp_message m = read_as(rows[i]);
        expect(m.kind == MCP_INVALID && m.code == MCP_E_JUNK, "<%.*s> passed", SM_FMT(rows[i]));
        expect(m.id.p == NULL, "<%.*s> has an id", SM_FMT(rows[i]));
        assert_memory_equal(m.flaw, "not JSON: ", 10);
    }
}

/* A cut message is junk, wherever it is cut. */
static void no_beginning_of_a_message_is_one(void **state)
{
    (void)state;
    static const char whole[] =
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\"a\":[1.5e+3,true,null,"
        "\"\xE4\xB8\xAD\\u00e9\\n\"],\"b\":{}}}";
    for (size_t n = 0; n < sizeof whole - 1; n++)
        expect(read_as((sm_str){whole, n}).code == MCP_E_JUNK, "%zu bytes passed", n);
    assert_int_equal(read_as(SM_STR(whole)).kind, MCP_REQUEST);
}

static void what_the_grammar_allows_passes(void **state)
{
    (void)state;
    static const char *const values[] = {
        "\"\\ud800\"",
        "\"\\udc00\\ud800\"",
        "1e999",
        "-0",
        "0.0",
        "1E-5",
        "{\"a\":1,\"a\":2}",
        "\"\\u0000\"",
        "\"\x7F\xF4\x8F\xBF\xBF\"",
        "[ [ ] , { } ]",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
    };
    for (size_t i = 0; i < COUNT(values); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"x\": %s }", values[i]);
        mcp_message m = read_as(sm_str_from(text));
        expect(m.kind == MCP_NOTIFICATION, "%s: %s", values[i], m.flaw);
    }
}

/* A string is looked at in blocks: what must be noticed is noticed at any place in them. */
static void every_byte_of_a_string_is_looked_at(void **state)
{
    (void)state;
    for (size_t n = 0; n < 40; n++) {
        for (size_t at = 0; at < n; at++) {
            for (int byte = 0; byte < 256; byte++) {
                char text[64] = "[\"";
                memset(text + 2, 'x', n);
                memcpy(text + 2 + n, "\"]", 2);
                text[2 + at] = (char)byte;
                /* A quote ends it early, a backslash is no escape of an x. */
                bool good = byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\';
                if (byte == '\\' && at == n - 1)
                    continue; /* escapes the quote: the text ends inside the string */
                mcp_message m;
                expect(mcp_read((sm_str){text, n + 4}, &m) == good, "byte %02X at %zu of %zu", byte,
                       at, n);
            }
        }
    }
}

static sm_str nested(sm_buf *b, const char *before, unsigned depth, const char *behind)
{
    sm_buf_init(b, (size_t)1 << 20);
    sm_buf_text(b, before);
    for (unsigned i = 0; i < depth; i++)
        sm_buf_text(b, i % 3 == 0 ? "{\"a\":" : "[");
    sm_buf_text(b, "1");
    for (unsigned i = depth; i-- > 0;)
        sm_buf_text(b, i % 3 == 0 ? "}" : "]");
    sm_buf_text(b, behind);
    return sm_buf_view(b);
}

static void depth_is_bounded_and_can_be_answered(void **state)
{
    (void)state;
    sm_buf b;
    mcp_message m = read_as(nested(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":",
                                   SM_SCAN_DEPTH_MAX - 1, ",\"id\":7}"));
    assert_int_equal(m.kind, MCP_REQUEST);
    sm_buf_fini(&b);
    m = read_as(nested(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":", SM_SCAN_DEPTH_MAX,
                       ",\"id\":7}"));
    assert_int_equal(m.kind, MCP_INVALID);
    assert_true(m.code != MCP_E_JUNK);
    expect_text(m.id, "7");
    assert_non_null(strstr(m.flaw, "1024"));
    sm_buf_fini(&b);
    m = read_as(
        nested(&b, "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":", 20000, ",\"id\":7"));
    assert_true(m.code == MCP_E_JUNK);
    sm_buf_fini(&b);

    m = read_as(nested(&b, "[", SM_SCAN_DEPTH_MAX - 1, "]"));
    assert_int_equal(m.kind, MCP_BATCH);
    sm_buf_fini(&b);
    m = read_as(nested(&b, "[", SM_SCAN_DEPTH_MAX, "]"));
    assert_int_equal(m.kind, MCP_INVALID);
    assert_true(m.code != MCP_E_JUNK);
    sm_buf_fini(&b);
}

static void ids_are_bounded(void **state)
{
    (void)state;
    for (size_t n = MCP_ID_MAX - 1; n <= MCP_ID_MAX + 1; n++) {
        for (int string = 0; string < 2; string++) {
            char id[MCP_ID_MAX + 2], text[MCP_ID_MAX + 64];
            memset(id, '7', n);
            id[n] = '\0';
            if (string)
                id[0] = id[n - 1] = '"';
            int length =
                snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"id\":%s}", id);
            mcp_message m = read_as((sm_str){text, (size_t)length});
            assert_int_equal(m.kind, n <= MCP_ID_MAX ? MCP_REQUEST : MCP_INVALID);
            assert_true((m.id.p != NULL) == (n <= MCP_ID_MAX));
        }
    }
}

static void a_method_never_looks_like_another(void **state)
{
    (void)state;
    static const struct {
        const char *written, *decoded;
    } rows[] = {
        {"tools/call\\u0000x", "tools/call\xEF\xBF\xBDx"},
        {"tools/call\\u0000", "tools/call\xEF\xBF\xBD"},
        {"tools/call\\ud800", "tools/call\xEF\xBF\xBD"},
        {"\\udc00tools/call", "\xEF\xBF\xBDtools/call"},
        {"\\ud83d\\ude00", "\xF0\x9F\x98\x80"},
        {"\\ud83d\\ud83d\\ude00", "\xEF\xBF\xBD\xF0\x9F\x98\x80"},
        {"\\ud83d\\n", "\xEF\xBF\xBD\n"},
        {"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00E9\xC3\xA9", "\"\\/\b\f\n\r\t\xC3\xA9\xC3\xA9"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\"}", rows[i].written);
        mcp_message m = read_as(sm_str_from(text));
        assert_string_equal(m.method, rows[i].decoded);
    }
    /* A longer one is cut, between two characters. */
    for (size_t before = 120; before < 132; before++) {
        char text[256];
        int n = snprintf(text, sizeof text,
                         "{\"jsonrpc\":\"2.0\",\"method\":\"%0*d\xE4\xB8\xAD!\"}", (int)before, 0);
        mcp_message m = read_as((sm_str){text, (size_t)n});
        size_t right = before > MCP_METHOD_MAX       ? MCP_METHOD_MAX
                       : before + 3 > MCP_METHOD_MAX ? before
                       : before + 4 > MCP_METHOD_MAX ? before + 3
                                                     : before + 4;
        assert_int_equal(strlen(m.method), right);
    }
}

/* ---- inside ----------------------------------------------------------------------------------*/

static void members_and_elements_come_in_order_as_written(void **state)
{
    (void)state;
    static const struct {
        const char *value, *parts;
    } rows[] = {
        {"{}", ""},
        {"{ }", ""},
        {"[]", ""},
        {"[ \n]", ""},
        {"1", ""},
        {"\"{}\"", ""},
        {"", ""},
        {"{\"a\":1}", "a=1;"},
        {" {\"a\":1}", ""}, /* no value of ours begins with a blank */
        {"{ \"a\" : [1, {\"b\":2}] , \"\\u0062\":\"}\" }", "a=[1, {\"b\":2}];\\u0062=\"}\";"},
        {"{\"\":{},\"x\\\"y\":null}", "={};x\\\"y=null;"},
        {"[1,2 , \"a,b\",[],{}]", "1;2;\"a,b\";[];{};"},
        {"{\"a\":1,\"a\":2}", "a=1;a=2;"},
        {"{\"a\" : \"1\" ,\"b\"\t:\t-1.5e3}", "a=\"1\";b=-1.5e3;"},
        /* What mcp_read would not have passed has parts up to where it is wrong. */
        {"{\"a\":1,}", "a=1;"},
        {"[1 2]", "1;"},
        {"[1,2", "1;2;"},
        {"{\"a\"", ""},
        {"{\"a\":", ""},
        {"[", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char parts[128] = "";
        size_t cursor = 0;
        sm_str name, item;
        while (sm_raw_next(sm_str_from(rows[i].value), &cursor, &name, &item)) {
            if (name.p != NULL)
                sprintf(parts + strlen(parts), "%.*s=", SM_FMT(name));
            sprintf(parts + strlen(parts), "%.*s;", SM_FMT(item));
        }
        assert_null(item.p);
        expect(strcmp(parts, rows[i].parts) == 0, "%s: got %s", rows[i].value, parts);
    }
    size_t cursor = 0;
    sm_str name, item;
    assert_false(sm_raw_next((sm_str){0}, &cursor, &name, &item));
}

static void members_are_found_by_what_their_names_mean(void **state)
{
    (void)state;
    static const struct {
        const char *object, *name, *value;
        bool plain; /* and nothing else could be taken for it */
    } rows[] = {
        {"{\"a\":1,\"b\":2}", "b", "2", true},
        {"{\"a\":1,\"b\":2}", "c", NULL, false},
        {"{\"a\":{\"b\":1},\"b\":2}", "b", "2", true},
        {"{\"a\":1,\"a\":2}", "a", "1", false},
        {"{\"\\u0061\":1,\"a\":2}", "a", "1", false},
        {"{\"\\u0061\":1}", "a", "1", true},
        {"{\"\\u00e9\":1}", "\xC3\xA9", "1", true},
        {"{\"\xC3\xA9\":1}", "\xC3\xA9", "1", true},
        {"{\"\\ud83d\\ude00\":1}", "\xF0\x9F\x98\x80", "1", true},
        {"{\"\\ud83d\":1}", "\xEF\xBF\xBD", NULL, false},
        {"{\"a\\u0000\":1}", "a", NULL, false},
        {"{\"\\u0000\":1}", "", NULL, false},
        {"{\"\":1}", "", "1", true},
        {"{\"a\\/b\":1}", "a/b", "1", true},
        {"{\"a\\n\":1}", "a", NULL, false},
        {"{\"a\":1}", "ab", NULL, false},
        {"{\"ab\":1}", "a", NULL, false},
        {"{\"A\":1}", "a", NULL, false},
        {"{\"a\":1,\"A\":2}", "a", "1", false},
        {"{\"_a\":1,\"a\":2}", "a", "2", false},
        {"{\"a\\u0000\":1,\"a\":2}", "a", "2", false},
        {"[\"a\",1]", "a", NULL, false},
        {"\"a\"", "a", NULL, false},
        {"{}", "a", NULL, false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str value;
        bool found = sm_raw_find(sm_str_from(rows[i].object), rows[i].name, &value);
        assert_true(found == (rows[i].value != NULL));
        expect_part(value, rows[i].value, rows[i].object);
        found = sm_raw_find_plain(sm_str_from(rows[i].object), rows[i].name, &value);
        expect(found == rows[i].plain, "%s", rows[i].object);
    }
}

static void strings_are_decoded_whole_or_not_at_all(void **state)
{
    (void)state;
    static const struct {
        const char *value, *text;
    } rows[] = {
        {"\"\"", ""},
        {"\"abc\"", "abc"},
        {"\"1234567\"", "1234567"},
        {"\"12345678\"", NULL},
        {"\"\xE4\xB8\xAD\xE6\x96\x87!\"", "\xE4\xB8\xAD\xE6\x96\x87!"},
        {"\"\xE4\xB8\xAD\xE6\x96\x87!!\"", NULL},
        {"\"\\u0041\\n\"", "A\n"},
        {"\"\\uD83D\\uDE00\"", "\xF0\x9F\x98\x80"},
        {"\"\\uD83D\"", NULL},
        {"\"\\uDE00\"", NULL},
        {"\"a\\u0000b\"", NULL},
        {"1", NULL},
        {"null", NULL},
        {"", NULL},
        {"\"", NULL},
        {"{}", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char out[8] = "before";
        bool is = sm_raw_text(sm_str_from(rows[i].value), out, sizeof out);
        expect(is == (rows[i].text != NULL), "%s", rows[i].value);
        assert_string_equal(out, is ? rows[i].text : "");
        assert_true(!is || sm_raw_is(sm_str_from(rows[i].value), rows[i].text));
    }
    assert_false(sm_raw_is(SM_STR("\"a\""), "b"));
    assert_false(sm_raw_is(SM_STR("a"), "a"));
    assert_false(sm_raw_is(SM_STR("\"a\\u0000\""), "a"));
    assert_false(sm_raw_is((sm_str){0}, ""));
}

/* ---- what servers may read differently -------------------------------------------------------*/

/* Other spellings of a name, of which lenient readers take each for it. */
static void spell(sm_buf *out, const char *name, unsigned how)
{
    sm_buf_clear(out);
    for (const char *p = name; *p != '\0'; p++) {
        bool last = p[1] == '\0';
        char upper = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
        switch (how) {
        case 0: sm_buf_byte(out, p == name || p[-1] == '/' || p[-1] == '_' ? upper : *p); break;
        case 1: sm_buf_byte(out, upper); break;
        case 2: sm_buf_printf(out, "\\u%04x", upper); break;
        case 3: sm_buf_printf(out, last ? "%c\\u0000" : "%c", *p); break;
        case 4: sm_buf_printf(out, last ? "%c_" : "%c", *p); break;
        case 5: sm_buf_printf(out, last ? "-%c" : "%c", *p); break;
        case 6: sm_buf_text(out, *p == 's' ? "\xC5\xBF" : *p == 'k' ? "\xE2\x84\xAA" : ""); break;
        case 7: sm_buf_printf(out, last ? "%c\\ud800" : "%c", *p); break;
        case 8: sm_buf_printf(out, last ? "\\ufeff%c" : "%c", *p); break;
        case 9: sm_buf_text(out, *p == 'i' ? "\\u0131" : ""); break;
        }
        if ((how == 6 && *p != 's' && *p != 'k') || (how == 9 && *p != 'i'))
            sm_buf_byte(out, *p);
    }
    sm_buf_byte(out, '\0');
}

/* The names that decide, each in a message with %s where another spelling of it is added. */
static const struct {
    const char *name, *text;
} deciding[] = {
    {"jsonrpc", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"%s\":\"2.0\"}"},
    {"id", "{\"jsonrpc\":\"2.0\",\"%s\":2,\"id\":1,\"method\":\"ping\"}"},
    {"method", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"%s\":\"tools/call\"}"},
    {"method", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"%s\":\"tools/call\"}"},
    {"params", "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"%s\":{}}"},
    {"result", "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{},\"%s\":{}}"},
    {"error", "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"%s\":{}}"},
#define ASKED(method, params)                                                                      \
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"" method "\",\"params\":" params "}"
    {"name", ASKED("tools/call", "{\"name\":\"look\",\"%s\":\"pay\"}")},
    {"arguments", ASKED("tools/call", "{\"name\":\"pay\",\"%s\":{\"a\":1}}")},
    {"_meta", ASKED("tools/call", "{\"name\":\"pay\",\"%s\":{}}")},
    {"task", ASKED("tools/call", "{\"name\":\"pay\",\"%s\":{}}")},
    {"idempotencyKey", ASKED("tools/call", "{\"name\":\"pay\",\"%s\":\"k\"}")},
    {"inputResponses", ASKED("tools/call", "{\"name\":\"pay\",\"%s\":{}}")},
    {"requestState", ASKED("tools/call", "{\"name\":\"pay\",\"%s\":\"x\"}")},
    {"semel-approval",
     ASKED("tools/call", "{\"name\":\"pay\",\"inputResponses\":{\"%s\":{\"action\":\"accept\"}}}")},
    {"action",
     ASKED("tools/call", "{\"name\":\"pay\",\"inputResponses\":{\"semel-approval\":{\"%s\":1}}}")},
    {"approve", ASKED("tools/call", "{\"name\":\"pay\",\"inputResponses\":{\"semel-approval\":{"
                                    "\"content\":{\"%s\":true}}}}")},
    {"semel/scope", ASKED("tools/call", "{\"name\":\"pay\",\"_meta\":{\"%s\":\"x\"}}")},
    {"semel/step", ASKED("tools/call", "{\"name\":\"pay\",\"_meta\":{\"%s\":\"x\"}}")},
    {"semel/after", ASKED("tools/call", "{\"name\":\"pay\",\"_meta\":{\"%s\":\"x\"}}")},
    {"progressToken", ASKED("any/method", "{\"_meta\":{\"%s\":\"x\"}}")},
    {"io.modelcontextprotocol/protocolVersion",
     ASKED("any/method", "{\"_meta\":{\"%s\":\"2026-07-28\"}}")},
    {"io.modelcontextprotocol/clientCapabilities",
     ASKED("tools/call", "{\"name\":\"pay\",\"_meta\":{\"%s\":{}}}")},
    {"requestId", ASKED("notifications/cancelled", "{\"requestId\":1,\"%s\":2}")},
    {"capabilities", ASKED("initialize", "{\"%s\":{\"elicitation\":{}}}")},
    {"elicitation", ASKED("initialize", "{\"capabilities\":{\"%s\":{}}}")},
    {"cursor", ASKED("tools/list", "{\"%s\":\"x\"}")},
    {"uri", ASKED("resources/read", "{\"%s\":\"x\"}")},
    {"taskId", ASKED("tasks/cancel", "{\"%s\":\"x\"}")},
    {"tools/call", ASKED("%s", "{\"name\":\"pay\"}")},
    {"notifications/cancelled", ASKED("%s", "{\"requestId\":1}")},
};

static sm_str written(sm_buf *out, const char *text, const char *name)
{
    const char *at = strstr(text, "%s");
    sm_buf_clear(out);
    sm_buf_bytes(out, text, (size_t)(at - text));
    sm_buf_text(out, name);
    sm_buf_text(out, at + 2);
    return sm_buf_view(out);
}

static void no_name_is_one_that_others_take_for_a_deciding_name(void **state)
{
    (void)state;
    sm_buf name, text;
    mcp_message m;
    sm_buf_init(&name, 1000);
    sm_buf_init(&text, 4000);
    for (size_t i = 0; i < COUNT(deciding); i++) {
        for (unsigned how = 0; how < 10; how++) {
            spell(&name, deciding[i].name, how);
            if (strcmp(name.p, deciding[i].name) == 0)
                continue;
            written(&text, deciding[i].text, name.p);
            expect(!mcp_read_client(sm_buf_view(&text), &m) && m.flaw[0] != '\0' &&
                       m.code != MCP_E_JUNK,
                   "%.*s passed", SM_FMT(sm_buf_view(&text)));
        }
        /* Names that only resemble it are anybody's. */
        char other[64];
        snprintf(other, sizeof other, "%sx", deciding[i].name);
        written(&text, deciding[i].text, other);
        expect(mcp_read_client(sm_buf_view(&text), &m), "%.*s: %s", SM_FMT(sm_buf_view(&text)),
               m.flaw);
    }
    sm_buf_fini(&text);
    sm_buf_fini(&name);
}

static void a_deciding_name_is_there_once(void **state)
{
    (void)state;
    static const char *const rows[] = {
        ASKED("tools/call", "{\"name\":\"look\",\"name\":\"pay\"}"),
        ASKED("tools/call", "{\"name\":\"look\",\"n\\u0061me\":\"look\"}"),
        ASKED("tools/call", "{\"name\":\"pay\",\"_meta\":{\"semel/scope\":1,\"semel/scope\":1}}"),
        ASKED("any/method", "{\"_meta\":{},\"_meta\":{}}"),
        ASKED("notifications/cancelled", "{\"requestId\":1,\"requestId\":1}"),
    };
    mcp_message m;
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(!mcp_read_client(sm_str_from(rows[i]), &m) && m.code == MCP_E_PARAMS, "%s", rows[i]);
    /* What decides nothing may be there in any spelling: only the server reads it. */
    assert_true(mcp_read_client(
        SM_STR(ASKED("tools/call", "{\"name\":\"pay\",\"arguments\":{\"Name\":1,\"NAME\":2},"
                                   "\"_meta\":{\"vendor\":1,\"Vendor\":2}}")),
        &m));
    assert_true(mcp_read_client(SM_STR(ASKED("vendor/method", "{\"Name\":1,\"name\":2}")), &m));
}

/* A client reads the server's answer too. The proxy does not look into its params. */
static void an_answer_that_can_be_read_in_two_ways_is_told_apart(void **state)
{
    (void)state;
    mcp_message m = read_as(SM_STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{},\"Result\":{}}"));
    assert_true(m.kind == MCP_INVALID && m.answer);
    expect_text(m.id, "1");
    m = read_as(SM_STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"a\",\"Method\":\"b\"}"));
    assert_true(m.kind == MCP_INVALID && !m.answer);
    m = read_as(SM_STR(ASKED("tools/call", "{\"name\":\"a\",\"Name\":\"b\"}")));
    assert_int_equal(m.kind, MCP_REQUEST);
}

/* Neither tells that the call failed. */
static void an_answer_without_a_result_and_with_no_proper_error_is_told_apart(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":null}",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":\"no\"}",
        "{\"jsonrpc\":\"2.0\",\"id\":1}",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        mcp_message m = read_as(sm_str_from(texts[i]));
        assert_true(m.kind == MCP_INVALID && m.answer);
        expect_text(m.id, "1");
    }
    mcp_message m = read_as(SM_STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"params\":{}}"));
    assert_true(m.kind == MCP_INVALID && !m.answer);
}

static void a_message_is_one_line_for_every_reader(void **state)
{
    (void)state;
    static const struct {
        const char *text, *line;
    } rows[] = {
        {"{\"a\":\r\n[1,\r2]\n}", "{\"a\":  [1, 2] }"},
        {"{\"a\":\"\xE2\x80\xA8|\xE2\x80\xA9|\xC2\x85\"}", "{\"a\":\"\\u2028|\\u2029|\\u0085\"}"},
        {"{\"a\":\"\xE2\x80\xA7\xE2\x80\xAA\xC2\x84\xC2\xA8\xE2\x82\xAC\"}",
         "{\"a\":\"\xE2\x80\xA7\xE2\x80\xAA\xC2\x84\xC2\xA8\xE2\x82\xAC\"}"},
        {"\xE2\x80", "\xE2\x80"},
        {"\xC2", "\xC2"},
        {"", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_buf b;
        sm_buf_init(&b, 1000);
        sm_raw_put_line(&b, sm_str_from(rows[i].text));
        expect_text(sm_buf_view(&b), rows[i].line);
        sm_buf_fini(&b);
    }
}

static void ids_that_a_server_cannot_tell_apart_are_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool same;
    } rows[] = {
        {"1", "1", true},
        {"1", "\"1\"", false},
        {"0", "-0", true},
        {"9007199254740992", "9007199254740993", true},
        {"9007199254740991", "9007199254740992", false},
        {"-9007199254740993", "-9007199254740992", true},
        {"100000000000000000000", "100000000000000000001", true},
        {"\"a\\/b\"", "\"a/b\"", true},
        {"\"\\ud800\"", "\"\\udfff\"", true},
        {"\"\\ud800\"", "\"\xEF\xBF\xBD\"", true},
        {"\"a\"", "\"b\"", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char one[MCP_ID_MAX + 2], other[MCP_ID_MAX + 2];
        bool same = sm_str_eq(mcp_id_key(sm_str_from(rows[i].a), one),
                              mcp_id_key(sm_str_from(rows[i].b), other));
        expect(same == rows[i].same, "%s, %s", rows[i].a, rows[i].b);
    }
}

/* ---- changing --------------------------------------------------------------------------------*/

static void edits_change_their_ranges_and_nothing_else(void **state)
{
    (void)state;
    const sm_str text = SM_STR("0123456789");
    const sm_raw_edit edits[] = {
        {{text.p, 0}, SM_STR("<")},       {{text.p, 2}, SM_STR("ab")},
        {{text.p + 4, 1}, {0}},           {{text.p + 5, 0}, SM_STR("!")},
        {{text.p + 9, 1}, SM_STR("XYZ")}, {{text.p + 10, 0}, SM_STR(">")},
    };
    sm_buf b;
    sm_buf_init(&b, 100);
    sm_raw_put_edited(&b, text, edits, COUNT(edits));
    expect_text(sm_buf_view(&b), "<ab23!5678XYZ>");
    sm_buf_clear(&b);
    sm_raw_put_edited(&b, text, NULL, 0);
    expect_text(sm_buf_view(&b), "0123456789");
    sm_buf_clear(&b);
    sm_raw_put_edited(&b, (sm_str){0}, NULL, 0);
    assert_int_equal(b.len, 0);
    sm_buf_fini(&b);
}

static void a_member_is_set_or_taken_out(void **state)
{
    (void)state;
    static const struct {
        const char *object, *with, *without;
    } rows[] = {
        {NULL, "{\"k\":[9]}", "{}"},
        {"{}", "{\"k\":[9]}", "{}"},
        {"{ }", "{\"k\":[9] }", "{ }"},
        {"null", "{\"k\":[9]}", "{}"},
        {"[1]", "{\"k\":[9]}", "{}"},
        {"{\"a\":1}", "{\"k\":[9],\"a\":1}", "{\"a\":1}"},
        {"{ \"a\" : 1 }", "{\"k\":[9], \"a\" : 1 }", "{ \"a\" : 1 }"},
        {"{\"k\":1}", "{\"k\":[9]}", "{}"},
        {"{ \"k\" : 1 }", "{ \"k\" : [9] }", "{  }"},
        {"{\"k\":1,\"a\":2}", "{\"k\":[9],\"a\":2}", "{\"a\":2}"},
        {"{\"a\":1, \"k\":2}", "{\"a\":1, \"k\":[9]}", "{\"a\":1}"},
        {"{\"a\":1,\"k\":2 , \"b\":3}", "{\"a\":1,\"k\":[9] , \"b\":3}", "{\"a\":1 , \"b\":3}"},
        {"{\"k\":1,\"k\":2}", "{\"k\":[9]}", "{}"},
        {"{\"k\":1,\"k\":2,\"k\":3}", "{\"k\":[9]}", "{}"},
        {"{ \"k\":1, \"k\":2, \"a\":3 }", "{ \"k\":[9], \"a\":3 }", "{ \"a\":3 }"},
        {"{\"k\":1,\"a\":2,\"k\":3}", "{\"k\":[9],\"a\":2}", "{\"a\":2}"},
        {"{\"a\":1,\"k\":2,\"k\":3,\"b\":4}", "{\"a\":1,\"k\":[9],\"b\":4}", "{\"a\":1,\"b\":4}"},
        {"{\"k\":1,\"a\":2,\"k\":3,\"b\":4,\"k\":5}", "{\"k\":[9],\"a\":2,\"b\":4}",
         "{\"a\":2,\"b\":4}"},
        {"{\"\\u006b\":1,\"k\":2}", "{\"\\u006b\":[9]}", "{}"},
        {"{\"a\":{\"k\":1}}", "{\"k\":[9],\"a\":{\"k\":1}}", "{\"a\":{\"k\":1}}"},
        /* Those that some readers take for it. */
        {"{\"K\":1}", "{\"k\":[9]}", "{}"},
        {"{\"K\":1,\"a\":2}", "{\"k\":[9],\"a\":2}", "{\"a\":2}"},
        {"{\"\xE2\x84\xAA\":1,\"k\":2,\"k\\u0000\":3}", "{\"k\":[9]}", "{}"},
        {"{\"k\":1,\"_k\":2}", "{\"k\":[9],\"_k\":2}", "{\"_k\":2}"},
        {"{\"a\":1,\"k\":2,\"\\u004b\":3}", "{\"a\":1,\"k\":[9]}", "{\"a\":1}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_buf b;
        sm_buf_init(&b, 1000);
        sm_raw_put_with(&b, sm_str_from(rows[i].object), "k", SM_STR("[9]"));
        expect_text(sm_buf_view(&b), rows[i].with);
        sm_buf_clear(&b);
        sm_raw_put_with(&b, sm_str_from(rows[i].object), "k", (sm_str){0});
        expect_text(sm_buf_view(&b), rows[i].without);
        sm_buf_fini(&b);
    }
}

static void a_name_that_is_put_in_is_escaped(void **state)
{
    (void)state;
    sm_buf b;
    sm_buf_init(&b, 1000);
    sm_raw_put_with(&b, (sm_str){0}, "a\"b\\\n", SM_STR("1"));
    expect_text(sm_buf_view(&b), "{\"a\\\"b\\\\\\n\":1}");
    sm_str value;
    assert_true(sm_raw_find(sm_buf_view(&b), "a\"b\\\n", &value));
    sm_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_what_their_members_say),
        cmocka_unit_test(blanks_around_a_message_are_not_part_of_it),
        cmocka_unit_test(what_is_no_message_is_refused_with_its_id),
        cmocka_unit_test(text_that_is_no_json_is_junk),
        cmocka_unit_test(no_beginning_of_a_message_is_one),
        cmocka_unit_test(what_the_grammar_allows_passes),
        cmocka_unit_test(every_byte_of_a_string_is_looked_at),
        cmocka_unit_test(depth_is_bounded_and_can_be_answered),
        cmocka_unit_test(ids_are_bounded),
        cmocka_unit_test(a_method_never_looks_like_another),
        cmocka_unit_test(members_and_elements_come_in_order_as_written),
        cmocka_unit_test(members_are_found_by_what_their_names_mean),
        cmocka_unit_test(strings_are_decoded_whole_or_not_at_all),
        cmocka_unit_test(no_name_is_one_that_others_take_for_a_deciding_name),
        cmocka_unit_test(a_deciding_name_is_there_once),
        cmocka_unit_test(an_answer_that_can_be_read_in_two_ways_is_told_apart),
        cmocka_unit_test(an_answer_without_a_result_and_with_no_proper_error_is_told_apart),
        cmocka_unit_test(a_message_is_one_line_for_every_reader),
        cmocka_unit_test(ids_that_a_server_cannot_tell_apart_are_the_same),
        cmocka_unit_test(edits_change_their_ranges_and_nothing_else),
        cmocka_unit_test(a_member_is_set_or_taken_out),
        cmocka_unit_test(a_name_that_is_put_in_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, exact_teardown);
}
