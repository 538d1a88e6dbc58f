/* What a server's list of tools is made of: hints, defaults, pins, and the contract to start from.
 */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/contract.h"
#include "json/yaml.h"
#include "mcp/reads.h"
#include "mcp/suggest.h"
#include "mcp/tools.h"

/* ---- lists -----------------------------------------------------------------------------------*/

/* Adds one page; `text` is the result as a server writes it. */
static sm_err try_add(mcp_tools *t, const char *text, char cursor[64])
{
    sm_buf b;
    mcp_message m;
    sm_str next = {0};
    sm_fault fault = {0};
    sm_buf_init(&b, MCP_LINE_MAX);
    sm_buf_printf(&b, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}", text);
    expect(mcp_read(sm_buf_view(&b), &m), "<%.200s> is no message: %s", text, m.flaw);
    sm_err e = mcp_tools_add(t, m.result, &next, &fault);
    expect(e == SM_OK || fault.text[0] != '\0', "<%.200s>: no sentence", text);
    sm_buf_fini(&b); /* nothing may be borrowed from it */
    snprintf(cursor, 64, "%.*s", SM_FMT(next));
    return e;
}

static mcp_tools *list(const char *text)
{
    char cursor[64];
    mcp_tools *t = mcp_tools_new();
    assert_non_null(t);
    assert_int_equal(try_add(t, text, cursor), SM_OK);
    return t;
}

/* A list of one tool with these members behind its name. */
static mcp_tools *one(const char *members)
{
    char text[4096];
    snprintf(text, sizeof text, "{\"tools\":[{\"name\":\"a\"%s%s}]}", *members == '\0' ? "" : ",",
             members);
    return list(text);
}

static void expect_hints(const mcp_tool *tool, const char *expected, const char *about)
{
    char got[8];
    snprintf(got, sizeof got, "%d%d%d%d", tool->hints.read_only, tool->hints.destructive,
             tool->hints.idempotent, tool->hints.open_world);
    expect(strcmp(got, expected) == 0, "<%s>: hints are %s, expected %s", about, got, expected);
}

static void hints_have_the_protocols_defaults_unless_plainly_said(void **state)
{
    (void)state;
    static const struct {
        const char *members, *hints;
    } rows[] = {
        {"", "0101"},
        {"\"annotations\":{}", "0101"},
        {"\"annotations\":null", "0101"},
        {"\"annotations\":[true]", "0101"},
        {"\"annotations\":{\"readOnlyHint\":true}", "1101"},
        {"\"annotations\":{\"r\\u0065adOnlyHint\":true}", "1101"},
        {"\"annotations\":{\"readOnlyHint\":\"true\"}", "0101"},
        {"\"annotations\":{\"readOnlyHint\":1}", "0101"},
        {"\"annotations\":{\"destructiveHint\":false,\"openWorldHint\":false}", "0000"},
        {"\"annotations\":{\"destructiveHint\":null,\"openWorldHint\":0}", "0101"},
        {"\"annotations\":{\"idempotentHint\":true}", "0111"},
        {"\"annotations\":{\"readOnlyHint\":true,\"readOnlyHint\":false}", "0101"},
        {"\"annotations\":{\"readOnlyHint\":true},\"annotations\":{\"readOnlyHint\":true}", "0101"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        mcp_tools *t = one(rows[i].members);
        expect_hints(mcp_tools_find(t, SM_STR("a")), rows[i].hints, rows[i].members);
        mcp_tools_free(t);
    }
}

static void tools_keep_the_servers_order_and_are_found_by_name(void **state)
{
    (void)state;
    mcp_tools *t = list("{\"tools\":[{\"name\":\"b\",\"description\":\"1\\n\\u00e9\"},"
                        "{\"name\":\"a\"},{\"name\":\"ab\"},{\"name\":\"b\",\"description\":\"2\","
                        "\"annotations\":{\"readOnlyHint\":true}},{\"name\":\"A\"}]}");
    assert_int_equal(mcp_tools_count(t), 4);
    expect_text(mcp_tools_at(t, 0)->name, "b");
    expect_text(mcp_tools_at(t, 1)->name, "a");
    expect_text(mcp_tools_at(t, 3)->name, "A");
    expect_text(mcp_tools_find(t, SM_STR("b"))->description, "1\n\xC3\xA9");
    expect_hints(mcp_tools_find(t, SM_STR("b")), "0101", "the first description counts");
    assert_ptr_equal(mcp_tools_find(t, SM_STR("ab")), mcp_tools_at(t, 2));
    assert_null(mcp_tools_find(t, SM_STR("c")));
    assert_null(mcp_tools_find(t, SM_STR("")));
    assert_null(mcp_tools_find(t, (sm_str){0}));
    assert_int_equal(mcp_tools_left_out(t), 0);
    mcp_tools_free(t);
}

static void a_tool_without_a_name_that_can_be_called_is_left_out(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}",
        "null",
        "7",
        "\"a\"",
        "[]",
        "{\"name\":7}",
        "{\"name\":\"\"}",
        "{\"name\":null}",
        "{\"name\":\"a\\u0000b\"}",
        "{\"name\":\"a\\nb\"}",
        "{\"name\":\"a\\u009bb\"}",
        "{\"name\":\"a\",\"name\":\"b\"}",
        "{\"name\":\"a\",\"n\\u0061me\":\"a\"}",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"tools\":[%s,{\"name\":\"fine\"}]}", bad[i]);
        mcp_tools *t = list(text);
        expect(mcp_tools_count(t) == 1 && mcp_tools_left_out(t) == 1, "%s was added", bad[i]);
        mcp_tools_free(t);
    }
    char name[400] = {0}, text[700];
    memset(name, 'x', 256);
    snprintf(text, sizeof text, "{\"tools\":[{\"name\":\"%s\"},{\"name\":\"%sx\"}]}", name, name);
    mcp_tools *t = list(text);
    assert_int_equal(mcp_tools_count(t), 1);
    assert_non_null(mcp_tools_find(t, sm_str_from(name)));
    mcp_tools_free(t);
}

static void pages_add_up_until_there_is_no_cursor(void **state)
{
    (void)state;
    static const struct {
        const char *result, *cursor;
    } rows[] = {
        {"{\"tools\":[{\"name\":\"a\"}],\"nextCursor\":\"x\\u0041\"}", "\"x\\u0041\""},
        {"{\"nextCursor\":\"y\",\"tools\":[{\"name\":\"b\"}]}", "\"y\""},
        {"{\"tools\":[],\"nextCursor\":\"\"}", ""},
        {"{\"tools\":[],\"nextCursor\":null}", ""},
        {"{\"tools\":[],\"nextCursor\":{\"page\":2}}", ""},
        {"{\"tools\":[],\"nextCursor\":\"a\",\"nextCursor\":\"b\"}", ""},
        {"{\"tools\":[]}", ""},
    };
    char cursor[64];
    mcp_tools *t = mcp_tools_new();
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_int_equal(try_add(t, rows[i].result, cursor), SM_OK);
        expect(strcmp(cursor, rows[i].cursor) == 0, "%s: <%s>", rows[i].result, cursor);
    }
    assert_int_equal(mcp_tools_count(t), 2);
    mcp_tools_free(t);
}

static void what_is_no_list_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{}", "[]", "null", "{\"tools\":null}", "{\"tools\":{}}", "{\"tools\":[],\"tools\":[]}",
    };
    char cursor[64];
    for (size_t i = 0; i < COUNT(bad); i++) {
        mcp_tools *t = mcp_tools_new();
        expect(try_add(t, bad[i], cursor) == SEMEL_E_INVALID, "%s was taken", bad[i]);
        mcp_tools_free(t);
    }
}

/* Ten thousand tools, and some more; then memory that ends. */
static void a_list_is_bounded_in_number_and_in_memory(void **state)
{
    (void)state;
    sm_buf b;
    char cursor[64];
    sm_buf_init(&b, MCP_LINE_MAX);
    sm_buf_text(&b, "{\"tools\":[");
    for (unsigned i = 0; i < MCP_TOOLS_MAX + 5; i++)
        sm_buf_printf(&b, "%s{\"name\":\"t%u\"}", i == 0 ? "" : ",", i * 7919 % 10007);
    sm_buf_text(&b, "]}");
    sm_buf_byte(&b, '\0');
    mcp_tools *t = list(b.p);
    assert_int_equal(mcp_tools_count(t), MCP_TOOLS_MAX);
    assert_int_equal(mcp_tools_left_out(t), 5);
    for (size_t i = 0; i < MCP_TOOLS_MAX; i += 97) {
        const mcp_tool *tool = mcp_tools_at(t, i);
        assert_ptr_equal(mcp_tools_find(t, tool->name), tool);
    }
    mcp_tools_free(t);

    t = mcp_tools_new();
    size_t read = 0;
    for (unsigned page = 0; page < 12; page++) {
        sm_buf_clear(&b);
        sm_buf_text(&b, "{\"tools\":[");
        for (unsigned i = 0; i < 40; i++) {
            sm_buf_printf(&b, "%s{\"name\":\"t%u-%u\",\"inputSchema\":{\"enum\":[0",
                          i == 0 ? "" : ",", page, i);
            for (unsigned j = 0; j < 20000; j++)
                sm_buf_text(&b, ",1");
            sm_buf_text(&b, "]}}");
        }
        sm_buf_text(&b, "]}");
        sm_buf_byte(&b, '\0');
        assert_int_equal(try_add(t, b.p, cursor), SM_OK);
    }
    assert_int_equal(mcp_tools_count(t), 12 * 40);
    for (size_t i = 0; i < mcp_tools_count(t); i++)
        read += mcp_tools_at(t, i)->schema != NULL;
    expect(read > 0 && read < 12 * 40, "%zu schemas were kept", read);
    mcp_tools_free(t);
    sm_buf_fini(&b);
}

static void a_schema_that_cannot_be_read_counts_as_none(void **state)
{
    (void)state;
    char deep[1200] = "\"inputSchema\":{\"properties\":{\"x\":{\"default\":";
    for (int i = 0; i < 200; i++)
        strcat(deep, "[");
    for (int i = 0; i < 200; i++)
        strcat(deep, "]");
    strcat(deep, "}}}");
    const char *const bad[] = {
        "",
        "\"inputSchema\":null",
        "\"inputSchema\":true",
        "\"inputSchema\":[]",
        "\"inputSchema\":{\"properties\":{\"x\":{\"default\":1,\"default\":2}}}",
        "\"inputSchema\":{\"properties\":{\"x\":{\"default\":1e999}}}",
        "\"inputSchema\":{\"properties\":{\"x\":{\"default\":1}}},\"inputSchema\":{}",
        deep,
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        mcp_tools *t = one(bad[i]);
        const mcp_tool *tool = mcp_tools_at(t, 0);
        expect(tool->schema == NULL && tool->fill == NULL, "<%.80s> was read", bad[i]);
        mcp_tools_free(t);
    }
}

static void equal_schemas_have_equal_digests(void **state)
{
    (void)state;
    mcp_tools *a = one("\"inputSchema\":{\"type\":\"object\",\"minProperties\":1.0}");
    mcp_tools *b = one("\"inputSchema\" : { \"minProperties\":1, \"ty\\u0070e\":\"object\" }");
    mcp_tools *c = one("\"inputSchema\":{\"type\":\"object\",\"minProperties\":2}");
    const sm_hash *x = &mcp_tools_at(a, 0)->schema_digest, *y = &mcp_tools_at(b, 0)->schema_digest;
    assert_memory_equal(x, y, sizeof *x);
    assert_memory_not_equal(x, &mcp_tools_at(c, 0)->schema_digest, sizeof *x);
    mcp_tools_free(a);
    mcp_tools_free(b);
    mcp_tools_free(c);
}

/* ---- defaults --------------------------------------------------------------------------------*/

static void defaults_fill_what_is_missing(void **state)
{
    sm_arena *a = *state;
    static const char flat[] =
        "{\"properties\":{\"n\":{\"default\":5},\"s\":{\"default\":\"\\u00e9\"},"
        "\"z\":{\"default\":null},\"o\":{\"default\":{\"k\":[1,2]}},\"free\":{}}}";
    static const char nested[] =
        "{\"properties\":{\"in\":{\"properties\":{\"a\":{\"default\":1},"
        "\"deep\":{\"properties\":{\"b\":{\"default\":2}}}}},"
        "\"own\":{\"default\":{\"x\":0},\"properties\":{\"x\":{\"default\":9},"
        "\"y\":{\"default\":8},\"w\":{\"properties\":{\"v\":{\"default\":7}}}}}}}";
    static const char odd[] =
        "{\"$ref\":\"#/$defs/x\",\"properties\":{\"a\":{\"$ref\":\"#/$defs/y\"},"
        "\"b\":{\"anyOf\":[{\"default\":1}]},\"c\":true,\"d\":null,\"properties\":{\"default\":3},"
        "\"__proto__\":{\"default\":4}},\"default\":{\"e\":5},"
        "\"allOf\":[{\"properties\":{\"f\":{\"default\":6}}}]}";
    static const struct {
        const char *schema, *args, *expected;
    } rows[] = {
        {flat, "{}", "{\"n\":5,\"o\":{\"k\":[1,2]},\"s\":\"\xC3\xA9\",\"z\":null}"},
        {flat, NULL, "{\"n\":5,\"o\":{\"k\":[1,2]},\"s\":\"\xC3\xA9\",\"z\":null}"},
        {flat, "{\"z\":1,\"n\":null,\"s\":\"\",\"o\":0}",
         "{\"z\":1,\"n\":null,\"s\":\"\",\"o\":0}"},
        {flat, "{\"free\":true,\"s\":\"x\"}",
         "{\"free\":true,\"s\":\"x\",\"n\":5,\"o\":{\"k\":[1,2]},\"z\":null}"},
        {flat, " { \"n\" : 1.50, \"s\":\"\\u0041\", \"z\":1, \"o\":1e2 } ", NULL},
        {flat, "{\"n\":12345678901234567890.50,\"s\":\"\\n\",\"z\":[ 1 ]}",
         "{\"n\":12345678901234567890.50,\"s\":\"\\n\",\"z\":[1],\"o\":{\"k\":[1,2]}}"},
        {nested, "{}", "{\"own\":{\"x\":0,\"y\":8}}"},
        {nested, "{\"own\":{},\"in\":{}}", "{\"own\":{\"x\":9,\"y\":8},\"in\":{\"a\":1}}"},
        {nested, "{\"own\":[{}],\"in\":{\"a\":0,\"deep\":{}}}",
         "{\"own\":[{}],\"in\":{\"a\":0,\"deep\":{\"b\":2}}}"},
        {nested, "{\"own\":{\"x\":1,\"y\":1,\"w\":{}},\"in\":7}",
         "{\"own\":{\"x\":1,\"y\":1,\"w\":{\"v\":7}},\"in\":7}"},
        {odd, "{\"a\":{},\"c\":{}}", "{\"a\":{},\"c\":{},\"__proto__\":4,\"properties\":3}"},
        {"{\"properties\":[{\"default\":1}]}", "{}", NULL},
        {"{\"properties\":{\"a\":{\"type\":\"string\"}}}", "{ \"a\" : 1 }", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char members[1024];
        snprintf(members, sizeof members, "\"inputSchema\":%s", rows[i].schema);
        mcp_tools *t = one(members);
        sm_str args = sm_str_from(rows[i].args), out;
        while (args.n > 0 && args.p[0] == ' ')
            args = (sm_str){args.p + 1, args.n - 1}; /* as a range of a message is */
        while (args.n > 0 && args.p[args.n - 1] == ' ')
            args.n--;
        sm_fault fault = {0};
        sm_err e =
            mcp_tool_fill(mcp_tools_at(t, 0), a, args, &sm_json_default_limits, &out, &fault);
        expect(e == SM_OK, "%s: %s", rows[i].args, fault.text);
        if (rows[i].expected != NULL)
            expect_text(out, rows[i].expected);
        else
            assert_ptr_equal(out.p, args.p); /* as they are */
        mcp_tools_free(t);
    }
}

static void arguments_that_are_no_object_are_refused(void **state)
{
    sm_arena *a = *state;
    static const char *const bad[] = {"null", "[]", "7", "\"{}\"", ""};
    mcp_tools *t = one("\"inputSchema\":{\"properties\":{\"n\":{\"default\":5}}}");
    mcp_tools *none = one("");
    sm_str out;
    for (size_t i = 0; i < COUNT(bad); i++) {
        const mcp_tool *tools[] = {mcp_tools_at(t, 0), mcp_tools_at(none, 0), NULL};
        for (size_t j = 0; j < COUNT(tools); j++) {
            sm_fault fault = {0};
            sm_err e = mcp_tool_fill(tools[j], a, sm_str_from(bad[i]), &sm_json_default_limits,
                                     &out, &fault);
            expect(e == SEMEL_E_BAD_ARGUMENTS, "%s was taken", bad[i]);
            assert_string_equal(fault.text, "arguments must be an object");
        }
    }
    sm_fault fault = {0};
    assert_int_equal(mcp_tool_fill(mcp_tools_at(t, 0), a, SM_STR("{\"a\":1,\"a\":2}"),
                                   &sm_json_default_limits, &out, &fault),
                     SEMEL_E_DUPLICATE);
    const sm_json_limits small = {.bytes = 20, .depth = 8, .values = 100};
    assert_int_equal(mcp_tool_fill(mcp_tools_at(t, 0), a, SM_STR("{\"abcdefgh\":\"ijk\"}"), &small,
                                   &out, &fault),
                     SEMEL_E_LIMIT);
    assert_non_null(strstr(fault.text, "defaults"));
    assert_int_equal(mcp_tool_fill(NULL, a, (sm_str){0}, &small, &out, &fault), SM_OK);
    expect_text(out, "{}");
    mcp_tools_free(none);
    mcp_tools_free(t);
}

/* As many arguments as properties, in an order that suits nobody: it takes no time to speak of. */
static void filling_is_not_quadratic(void **state)
{
    sm_arena *a = *state;
    sm_buf b, args;
    sm_buf_init(&b, MCP_LINE_MAX);
    sm_buf_init(&args, MCP_LINE_MAX);
    sm_buf_text(&b, "{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"properties\":{");
    for (unsigned i = 0; i < 20000; i++)
        sm_buf_printf(&b, "%s\"p%u\":{\"default\":%u}", i == 0 ? "" : ",", i, i);
    sm_buf_text(&b, "}}}]}");
    sm_buf_byte(&b, '\0');
    sm_buf_byte(&args, '{');
    for (unsigned i = 0; i < 20000; i++)
        sm_buf_printf(&args, "%s\"p%u\":0", i == 0 ? "" : ",", i * 7919 % 20011);
    sm_buf_byte(&args, '}');
    mcp_tools *t = list(b.p);
    sm_str out;
    sm_fault fault = {0};
    assert_int_equal(mcp_tool_fill(mcp_tools_at(t, 0), a, sm_buf_view(&args),
                                   &sm_json_default_limits, &out, &fault),
                     SM_OK);
    assert_true(out.n > args.len); /* eleven of them are missing */
    mcp_tools_free(t);
    sm_buf_fini(&args);
    sm_buf_fini(&b);
}

/* ---- filtering -------------------------------------------------------------------------------*/

static bool is_lower(void *context, sm_str name)
{
    (void)context;
    return name.p[0] >= 'a' && name.p[0] <= 'z';
}

static void filtering_leaves_the_rest_byte_for_byte(void **state)
{
    (void)state;
    static const struct {
        const char *result, *expected;
    } rows[] = {
        {"{\"x\":1 , \"tools\" : [ {\"name\":\"a\",\"n\":1.0}\t,\n {\"name\":\"b\"} ],\"y\":\"\\u0041\"}",
         NULL},
        {"{\"tools\":[]}", NULL},
        {"{\"tools\":[ ],\"nextCursor\":\"c\"}", NULL},
        {"{\"tools\":[{\"name\":\"A\"}],\"z\":0}", "{\"tools\":[],\"z\":0}"},
        {"{\"tools\":[ {\"name\":\"A\"} , {\"name\":\"b\"} ,  {\"name\":\"C\"} , {\"name\":\"d\"} ]}",
         "{\"tools\":[ {\"name\":\"b\"} , {\"name\":\"d\"} ]}"},
        {"{\"tools\":[{\"name\":\"a\"},{\"name\":\"B\"}]}", "{\"tools\":[{\"name\":\"a\"}]}"},
        {"{\"tools\":[{\"name\":\"A\",\"name\":\"a\"},{\"name\":\"a\",\"x\":[{\"name\":\"B\"}]}]}",
         "{\"tools\":[{\"name\":\"a\",\"x\":[{\"name\":\"B\"}]}]}"},
        {"{\"tools\":[7,{},{\"name\":\"\\u0061\"}]}", "{\"tools\":[{\"name\":\"\\u0061\"}]}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char text[512];
        mcp_message m;
        sm_buf out;
        sm_buf_init(&out, 1024);
        snprintf(text, sizeof text, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":%s}", rows[i].result);
        assert_true(mcp_read(sm_str_from(text), &m));
        assert_int_equal(mcp_tools_filter(m.result, is_lower, NULL, &out), SM_OK);
        expect_text(sm_buf_view(&out),
                    rows[i].expected != NULL ? rows[i].expected : rows[i].result);
        sm_buf_fini(&out);
    }
    mcp_message m;
    sm_buf out;
    sm_buf_init(&out, 1024);
    assert_true(mcp_read(SM_STR("{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{\"tools\":[],\"tools\":"
                                "[{\"name\":\"A\"}]}}"),
                         &m));
    assert_int_equal(mcp_tools_filter(m.result, is_lower, NULL, &out), SEMEL_E_INVALID);
    sm_buf_fini(&out);
}

/* ---- pins ------------------------------------------------------------------------------------*/

typedef struct place {
    char top[64], file[128];
} place;

static int place_setup(void **state)
{
    static place p;
    strcpy(p.top, "/tmp/semel-pins-XXXXXX");
    assert_non_null(mkdtemp(p.top));
    snprintf(p.file, sizeof p.file, "%s/a/pins.json", p.top);
    *state = &p;
    return 0;
}

static size_t files_in(const char *directory, bool remove_them)
{
    DIR *d = opendir(directory);
    size_t n = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        n += e->d_name[0] != '.';
        if (remove_them)
            unlink(path);
    }
    if (d != NULL)
        closedir(d);
    return n;
}

static int place_teardown(void **state)
{
    const place *p = *state;
    char inner[100];
    snprintf(inner, sizeof inner, "%s/a", p->top);
    files_in(inner, true);
    rmdir(inner);
    files_in(p->top, true);
    rmdir(p->top);
    return 0;
}

#define with_place(test) cmocka_unit_test_setup_teardown(test, place_setup, place_teardown)

typedef struct told {
    size_t n;
    char text[8][1024];
} told;

static void keep(void *context, const char *text)
{
    told *t = context;
    if (t->n < COUNT(t->text))
        snprintf(t->text[t->n], sizeof t->text[0], "%s", text);
    t->n++;
}

/* Checks a list of one tool against the pins; returns its hints afterwards. */
static mcp_hints pin(const char *file, const char *members, told *t)
{
    *t = (told){0};
    mcp_tools *tools = one(members);
    mcp_pins_check(file, tools, NULL, keep, t);
    mcp_hints h = mcp_tools_at(tools, 0)->hints;
    mcp_tools_free(tools);
    return h;
}

#define HINTS(r, d, i, o)                                                                          \
    "\"annotations\":{\"readOnlyHint\":" #r ",\"destructiveHint\":" #d ",\"idempotentHint\":" #i   \
    ",\"openWorldHint\":" #o "}"

static void a_loosened_hint_is_told_and_not_believed(void **state)
{
    const place *p = *state;
    told t;
    mcp_hints h = pin(p->file, HINTS(false, true, false, true), &t);
    assert_int_equal(t.n, 0);
    assert_true(!h.read_only && h.destructive && !h.idempotent && h.open_world);
    for (int again = 0; again < 2; again++) {
        h = pin(p->file, HINTS(true, false, true, false), &t);
        assert_int_equal(t.n, 4);
        for (size_t i = 0; i < 4; i++) {
            expect(strstr(t.text[i], "\"a\"") != NULL, "%s", t.text[i]);
            expect(strstr(t.text[i], "first seen (20") != NULL, "%s", t.text[i]);
            expect(strstr(t.text[i], "To decide yourself") != NULL, "%s", t.text[i]);
        }
        assert_non_null(strstr(t.text[0], "read-only"));
        assert_true(!h.read_only && h.destructive && !h.idempotent && h.open_world);
    }
    pin(p->file, HINTS(false, true, false, true), &t);
    assert_int_equal(t.n, 0);
}

static void a_tightened_hint_counts_and_is_no_news(void **state)
{
    const place *p = *state;
    told t;
    pin(p->file, HINTS(true, false, true, false), &t);
    mcp_hints h = pin(p->file, HINTS(false, true, false, true), &t);
    assert_int_equal(t.n, 0);
    assert_true(!h.read_only && h.destructive && !h.idempotent && h.open_world);
    h = pin(p->file, HINTS(true, false, true, false), &t);
    assert_int_equal(t.n, 0); /* as it was seen first */
    assert_true(h.read_only && !h.destructive && h.idempotent && !h.open_world);
}

static void a_changed_schema_is_told_once(void **state)
{
    const place *p = *state;
    told t;
    pin(p->file, "\"inputSchema\":{\"type\":\"object\",\"required\":[\"x\"]}", &t);
    pin(p->file, "\"inputSchema\":{\"required\":[\"x\"],\"type\":\"object\"}", &t);
    assert_int_equal(t.n, 0);
    pin(p->file, "\"inputSchema\":{\"type\":\"object\"}", &t);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.text[0], "input schema"));
    pin(p->file, "\"inputSchema\":{\"type\":\"object\"}", &t);
    assert_int_equal(t.n, 0);
    pin(p->file, "", &t);
    assert_int_equal(t.n, 1);
    pin(p->file, "", &t);
    assert_int_equal(t.n, 0);
}

static void write_file(const char *path, const char *text)
{
    char dir[140];
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(path, '/') - path), path);
    mkdir(dir, 0700);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A list that comes every second says the same things every second. */
static void what_was_told_of_the_list_before_is_not_told_again(void **state)
{
    const place *p = *state;
    told t;
    pin(p->file, HINTS(false, true, false, true), &t);
    mcp_tools *first = one(HINTS(true, true, false, true));
    mcp_pins_check(p->file, first, NULL, keep, &t);
    assert_int_equal(t.n, 1);
    mcp_tools *same = one(HINTS(true, true, false, true));
    write_file(p->file, "not looked at");
    mcp_pins_check(p->file, same, first, keep, &t);
    assert_int_equal(t.n, 1);
    assert_false(mcp_tools_at(same, 0)->hints.read_only);
    unlink(p->file);
    mcp_tools *more =
        list("{\"tools\":[{\"name\":\"a\"," HINTS(true, false, false, true) "},"
                                                                            "{\"name\":\"b\"}]}");
    mcp_pins_check(p->file, more, same, keep, &t);
    assert_int_equal(t.n, 1); /* the file is gone, so this is what was seen first */
    assert_true(mcp_tools_find(more, SM_STR("a"))->hints.read_only);
    mcp_tools_free(more);
    mcp_tools_free(same);
    mcp_tools_free(first);
}

static const sm_json *read_file(sm_arena *a, const char *path)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return document(a, text);
}

static void the_file_is_its_owners_and_keeps_tools_that_are_gone(void **state)
{
    const place *p = *state;
    told t;
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    pin(p->file, HINTS(true, true, false, true), &t);
    struct stat st;
    assert_int_equal(stat(p->file, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    mcp_tools *other = list("{\"tools\":[{\"name\":\"\\\"q\\\\\"},{\"name\":\"\\u202eb\"}]}");
    t = (told){0};
    mcp_pins_check(p->file, other, NULL, keep, &t);
    mcp_tools_free(other);
    assert_int_equal(t.n, 0);
    const sm_json *root = read_file(&a, p->file);
    const sm_json *tools = sm_json_find(root, SM_STR("tools"));
    assert_int_equal(tools->len, 3);
    const sm_json *entry = sm_json_find(tools, SM_STR("a"));
    assert_int_equal(sm_json_find(entry, SM_STR("readOnlyHint"))->type, SM_JSON_TRUE);
    assert_int_equal(sm_json_find(entry, SM_STR("inputSchemaSha256"))->len, 64);
    assert_non_null(sm_json_find(tools, SM_STR("\"q\\")));
    /* A name that would turn the line around is told as what it is. */
    other = list("{\"tools\":[{\"name\":\"\\u202eb\",\"annotations\":{\"readOnlyHint\":true}}]}");
    mcp_pins_check(p->file, other, NULL, keep, &t);
    mcp_tools_free(other);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.text[0], "\"\\u202Eb\""));
    sm_arena_fini(&a);
    char inner[100];
    snprintf(inner, sizeof inner, "%s/a", p->top);
    assert_int_equal(files_in(inner, false), 2); /* it and its lock: nothing is left beside them */
}

static void a_file_that_cannot_be_used_is_told_and_left_alone(void **state)
{
    const place *p = *state;
    static const char *const bad[] = {
        "",
        "{",
        "[]",
        "{\"version\":2,\"tools\":{}}",
        "{\"version\":1}",
        "{\"version\":1,\"tools\":[]}",
        "{\"version\":1,\"tools\":{\"a\":{},\"a\":{}}}",
        "\xFF",
    };
    for (size_t i = 0; i < COUNT(bad); i++) {
        told t;
        char now[100] = {0};
        write_file(p->file, bad[i]);
        mcp_hints h = pin(p->file, HINTS(true, false, true, false), &t);
        expect(t.n == 1, "<%s>: %zu told", bad[i], t.n);
        expect(strstr(t.text[0], p->file) != NULL, "%s", t.text[0]);
        assert_true(h.read_only);
        FILE *f = fopen(p->file, "r");
        fread(now, 1, sizeof now - 1, f);
        fclose(f);
        assert_string_equal(now, bad[i]);
    }
    told t;
    pin(NULL, "", &t);
    assert_int_equal(t.n, 0);
    char path[300];
    snprintf(path, sizeof path, "%s/b/pins.json", p->file); /* below what is a file */
    pin(path, "", &t);
    assert_int_equal(t.n, 1);
    snprintf(path, sizeof path, "%s/a", p->top); /* a directory */
    pin(path, "", &t);
    assert_int_equal(t.n, 1);
}

/* ---- pinned defaults -------------------------------------------------------------------------*/

#define SCHEMA(properties) "\"inputSchema\":{\"properties\":{" properties "}}"
#define WHEN(value)        SCHEMA("\"when\":{\"default\":" value "}")

/* The arguments of a call of the tool `a`, filled. */
static sm_err fill_args(const mcp_tools *tools, const char *args, char out[256])
{
    sm_arena a;
    sm_str filled = {0};
    sm_fault fault = {0};
    sm_arena_init(&a, SM_ARENA_MAX);
    sm_err e = mcp_tool_fill(mcp_tools_known(tools, SM_STR("a")), &a, sm_str_from(args),
                             &sm_json_default_limits, &filled, &fault);
    expect(e == SM_OK || fault.text[0] != '\0', "no sentence");
    snprintf(out, 256, "%.*s", SM_FMT(filled));
    sm_arena_fini(&a);
    return e;
}

/* The same after a list of this one tool was checked against the pins. */
static void expect_filled(const char *file, const char *members, const char *args,
                          const char *expected, told *t)
{
    char out[256];
    *t = (told){0};
    mcp_tools *tools = one(members);
    mcp_pins_check(file, tools, NULL, keep, t);
    sm_err e = fill_args(tools, args, out);
    expect((e == SM_OK) == (expected != NULL), "%s: %d", members, e);
    if (expected != NULL)
        expect(strcmp(out, expected) == 0, "<%s> instead of <%s>", out, expected);
    mcp_tools_free(tools);
}

static void the_defaults_that_were_seen_first_count_for_ever(void **state)
{
    const place *p = *state;
    told t;
    expect_filled(p->file, WHEN("\"1\""), "{}", "{\"when\":\"1\"}", &t);
    assert_int_equal(t.n, 0);
    expect_filled(p->file, WHEN("\"2\""), "{}", "{\"when\":\"1\"}", &t);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.text[0], "still equals the first default"));
    expect_filled(p->file, WHEN("\"2\""), "{\"when\":\"2\"}", "{\"when\":\"2\"}", &t);
    assert_int_equal(t.n, 0); /* once */
    expect_filled(p->file, SCHEMA("\"when\":{\"default\":\"1\"},\"new\":{\"default\":0}"), "{}",
                  "{\"when\":\"1\"}", &t);
    expect_filled(p->file, SCHEMA("\"when\":{\"type\":\"string\"}"), "{}", "{\"when\":\"1\"}", &t);
    expect_filled(p->file, "", "{}", "{\"when\":\"1\"}", &t);
    expect_filled(p->file, WHEN("{\"a\":[1.50,null]}"), "{}", "{\"when\":\"1\"}", &t);
}

static void a_tool_that_was_seen_without_defaults_gets_none(void **state)
{
    const place *p = *state;
    told t;
    expect_filled(p->file, SCHEMA("\"n\":{}"), "{}", "{}", &t);
    expect_filled(p->file, WHEN("1"), "{}", "{}", &t);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.text[0], "and no new one"));
}

/* What is written is read as it was, at any depth. */
static void pinned_defaults_are_those_of_the_schema(void **state)
{
    const place *p = *state;
    static const char members[] =
        SCHEMA("\"\\u00e9\\\"\":{\"default\":\"\\n\\u2028\"},\"o\":{\"default\":{\"x\":1.50e+2},"
               "\"properties\":{\"y\":{\"default\":null},\"in\":{\"properties\":{\"z\":{"
               "\"default\":[]}}}}}");
    static const char filled[] =
        "{\"o\":{\"x\":1.50e+2,\"y\":null},\"\xC3\xA9\\\"\":\"\\n\xE2\x80\xA8\"}";
    told t;
    expect_filled(p->file, members, "{}", filled, &t);
    expect_filled(p->file, members, "{}", filled, &t);
    assert_int_equal(t.n, 0);
    expect_filled(p->file, "", "{}", filled, &t);
    expect_filled(p->file, "", "{\"o\":{\"in\":{}},\"\\u00e9\\\"\":1}",
                  "{\"o\":{\"in\":{\"z\":[]},\"y\":null},\"\xC3\xA9\\\"\":1}", &t);
}

static void a_default_that_cannot_be_kept_does_not_count(void **state)
{
    const place *p = *state;
    told t;
    expect_filled(NULL, WHEN("1"), "{}", "{}", &t);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.text[0], "does not equal its default"));
    write_file(p->file, "{}");
    char path[300];
    snprintf(path, sizeof path, "%s/b/pins.json", p->file); /* below what is a file */
    expect_filled(path, WHEN("1"), "{}", "{}", &t);
    assert_int_equal(t.n, 1);
    assert_non_null(strstr(t.text[0], "does not equal its default"));
}

static void while_the_pins_cannot_be_used_nothing_may_be_left_out(void **state)
{
    const place *p = *state;
    told t;
    static const char *const bad[] = {"", "{", "{\"version\":2,\"tools\":{}}"};
    for (size_t i = 0; i < COUNT(bad); i++) {
        write_file(p->file, bad[i]);
        expect_filled(p->file, WHEN("1"), "{}", NULL, &t);
        assert_int_equal(t.n, 1);
        assert_non_null(strstr(t.text[0], "are refused"));
        expect_filled(p->file, WHEN("1"), "{\"when\":2}", "{\"when\":2}", &t);
        expect_filled(p->file, SCHEMA("\"n\":{}"), "{}", "{}", &t);
    }
    unlink(p->file);
    char lock[200];
    snprintf(lock, sizeof lock, "%s.lock", p->file);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(flock(fd, LOCK_EX), 0); /* somebody is about to pin another default */
    expect_filled(p->file, WHEN("1"), "{}", NULL, &t);
    assert_int_equal(access(p->file, F_OK), -1);
    close(fd);
    mcp_tools *first = one(WHEN("1")), *next = one(WHEN("1"));
    char out[256];
    write_file(p->file, "{");
    mcp_pins_check(p->file, first, NULL, keep, &t);
    assert_int_equal(fill_args(first, "{}", out), SEMEL_E_BAD_ARGUMENTS);
    unlink(p->file);
    mcp_pins_check(p->file, next, first, keep, &t); /* it is looked at again */
    assert_int_equal(fill_args(next, "{}", out), SM_OK);
    assert_string_equal(out, "{\"when\":1}");
    mcp_tools_free(next);
    mcp_tools_free(first);
}

/* A tool that comes and goes is the same tool. */
static void a_tool_that_is_gone_keeps_its_defaults(void **state)
{
    const place *p = *state;
    char out[256];
    told t = {0};
    mcp_tools *lists[4] = {one(WHEN("1")), list("{\"tools\":[]}"),
                           list("{\"tools\":[{\"name\":\"b\"}]}"), one(WHEN("2"))};
    for (size_t i = 0; i < COUNT(lists); i++) {
        mcp_pins_check(p->file, lists[i], i == 0 ? NULL : lists[i - 1], keep, &t);
        assert_int_equal(fill_args(lists[i], "{}", out), SM_OK);
        assert_string_equal(out, "{\"when\":1}");
        assert_int_equal(mcp_tools_find(lists[i], SM_STR("a")) != NULL, i == 0 || i == 3);
    }
    assert_int_equal(mcp_tools_count(lists[2]), 1);
    mcp_tools *fresh = list("{\"tools\":[{\"name\":\"0\"},{\"name\":\"c\"}]}");
    mcp_pins_check(p->file, fresh, NULL, keep, &t); /* as another process sees it */
    assert_int_equal(fill_args(fresh, "{}", out), SM_OK);
    assert_string_equal(out, "{\"when\":1}");
    assert_non_null(mcp_tools_find(fresh, SM_STR("c")));
    mcp_tools_free(fresh);
    for (size_t i = 0; i < COUNT(lists); i++)
        mcp_tools_free(lists[i]);
}

static void a_pin_of_an_older_version_gets_the_defaults_of_now(void **state)
{
    const place *p = *state;
    told t;
    write_file(p->file, "{\"version\":1,\"tools\":{\"a\":{\"readOnlyHint\":false}}}");
    expect_filled(p->file, WHEN("1"), "{}", "{\"when\":1}", &t);
    expect_filled(p->file, WHEN("2"), "{}", "{\"when\":1}", &t);
    write_file(p->file, "{\"version\":1,\"tools\":{\"a\":{\"inputDefaults\":7}}}");
    expect_filled(p->file, WHEN("2"), "{}", "{}", &t);
}

static void defaults_that_are_too_large_or_too_deep_are_not_pinned(void **state)
{
    const place *p = *state;
    static char members[300000];
    told t;
    size_t n =
        (size_t)snprintf(members, sizeof members, "%s",
                         "{\"tools\":[{\"name\":\"a\",\"inputSchema\":{\"properties\":{\"x\":{"
                         "\"default\":\"");
    memset(members + n, 'x', 70000);
    strcpy(members + n + 70000, "\"}}}}]}");
    for (int deep = 0; deep < 2; deep++) {
        t = (told){0};
        if (deep == 1) {
            memset(members + n - 1, '[', 122);
            memset(members + n + 121, ']', 122);
            strcpy(members + n + 243, "}}}}]}");
        }
        for (int again = 0; again < 2; again++) {
            char out[256];
            mcp_tools *tools = list(members);
            mcp_pins_check(p->file, tools, NULL, keep, &t);
            assert_int_equal(fill_args(tools, "{}", out), SM_OK);
            assert_string_equal(out, "{}");
            mcp_tools_free(tools);
        }
        assert_int_equal(t.n, 1);
        assert_non_null(strstr(t.text[0], "too large"));
        unlink(p->file);
    }
}

static void an_entry_that_lacks_something_counts_as_the_stricter(void **state)
{
    const place *p = *state;
    told t;
    write_file(p->file, "{\"version\":1,\"tools\":{\"a\":{\"readOnlyHint\":\"yes\"},\"b\":7}}");
    mcp_hints h = pin(p->file, HINTS(true, false, true, false), &t);
    assert_int_equal(t.n, 4);
    assert_non_null(strstr(t.text[0], "(earlier)"));
    assert_true(!h.read_only && h.destructive);
}

/* Each process adds tools of its own, again and again; somebody reads all the while. */
static void several_processes_pin_at_once(void **state)
{
    const place *p = *state;
    enum { WRITERS = 4, ROUNDS = 10 };
    pid_t pids[WRITERS];
    for (int w = 0; w < WRITERS; w++) {
        pids[w] = fork();
        assert_true(pids[w] >= 0);
        for (int r = 0; pids[w] == 0 && r < ROUNDS; r++) {
            char text[100];
            told t = {0};
            snprintf(text, sizeof text, "{\"tools\":[{\"name\":\"w%d-%d\"}]}", w, r);
            mcp_tools *tools = list(text);
            mcp_pins_check(p->file, tools, NULL, keep, &t);
            mcp_tools_free(tools);
            if (t.n > 0)
                _exit(1);
        }
        if (pids[w] == 0)
            _exit(0);
    }
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    for (int left = WRITERS; left > 0;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            assert_int_equal(status, 0);
            left--;
        }
        if (access(p->file, F_OK) == 0)
            read_file(&a, p->file); /* never torn */
        sm_arena_reset(&a);
    }
    const sm_json *tools = sm_json_find(read_file(&a, p->file), SM_STR("tools"));
    assert_int_equal(tools->len, WRITERS * ROUNDS);
    sm_arena_fini(&a);
}

/* ---- the contract to start from --------------------------------------------------------------*/

/* Reads a suggestion as a contract; every error fails, and so does a warning. */
static sm_contracts *contracts(sm_str text)
{
    sm_report report;
    sm_contracts *set = NULL;
    assert_int_equal(sm_report_init(&report, text), SM_OK);
    sm_err e = sm_contracts_read(SM_STR("suggested.yaml"), text, &set, &report);
    expect(e == SM_OK && report.count == 0, "line %u: %s\n%.*s",
           report.count > 0 ? report.items[0].line : 0,
           report.count > 0 ? report.items[0].text.p : "", SM_FMT(text));
    sm_report_fini(&report);
    return set;
}

/* A text for a terminal: printable, and nothing that turns or hides what is there. */
static void expect_harmless(sm_str text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        expect((c >= 0x20 && c != 0x7F) || c == '\n', "byte %02X at %zu", c, i);
        expect(!(c == 0xC2 && (unsigned char)text.p[i + 1] < 0xA0), "a control at %zu", i);
        expect(!(c == 0xE2 && (unsigned char)text.p[i + 1] == 0x80 &&
                 (unsigned char)text.p[i + 2] >= 0x8B && (unsigned char)text.p[i + 2] <= 0xAE &&
                 !((unsigned char)text.p[i + 2] >= 0x90 && (unsigned char)text.p[i + 2] <= 0xA7)),
               "a control at %zu", i);
    }
}

static void suggest(const char *result, const char *server, const char *command, sm_buf *out)
{
    mcp_tools *t = list(result);
    sm_buf_init(out, SM_ARENA_MAX);
    assert_int_equal(mcp_suggest_put(t, sm_str_from(server), command, out), SM_OK);
    mcp_tools_free(t);
    expect_harmless(sm_buf_view(out));
}

static void a_suggestion_follows_the_hints_and_permits_nothing(void **state)
{
    (void)state;
    sm_buf out;
    suggest(
        "{\"tools\":[{\"name\":\"get\"," HINTS(
            true, true, true,
            true) "},"
                  "{\"name\":\"put\"," HINTS(
                      false, true, true,
                      true) ",\"inputSchema\":{\"required\":"
                            "[\"path\",\"a/b~c\",\"x, y]: #\"]}},"
                            "{\"name\":\"drop\",\"description\":\"Drops  all\\n\\nof it.\",\"inputSchema\":"
                            "{\"properties\":{\"Idempotency-Key\":{}},\"required\":[\"id\"]}},"
                            "{\"name\":\"note\"," HINTS(false, false, false, false) "}]}",
        "files-0a1b2c3d", "npx -y server", &out);
    sm_contracts *set = contracts(sm_buf_view(&out));
    static const struct {
        const char *name;
        sm_class class;
    } rows[] = {{"get", SM_CLASS_READ},
                {"put", SM_CLASS_WRITE},
                {"drop", SM_CLASS_WRITE},
                {"note", SM_CLASS_WRITE},
                {"unknown", SM_CLASS_WRITE}};
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_int_equal(sm_contracts_find(set, sm_str_from(rows[i].name))->class, rows[i].class);
    assert_int_equal(set->tool_count, 4);
    assert_int_equal(sm_contracts_find(set, SM_STR("drop"))->idempotency.argument.n, 0);
    sm_contracts_free(set);
    sm_buf_byte(&out, '\0');
    assert_non_null(strstr(out.p, "# Drops all of it.\n"));
    assert_non_null(strstr(out.p, "write_idempotent if you trust that"));
    assert_non_null(strstr(out.p, "# key: { fields: [/path, \"/a~1b~0c\", \"/x, y]: #\"] }\n"));
    assert_non_null(strstr(out.p, "# idempotency: { argument: /Idempotency-Key }"));
    assert_non_null(strstr(out.p, "npx -y server"));
    sm_buf_fini(&out);
}

/* Names and descriptions of real servers: SQLite, Kubernetes, files, GitHub. */
static void tools_that_sound_like_reads_are_known_by_their_words(void **state)
{
    (void)state;
    static const struct {
        const char *name, *description;
        bool reads;
    } rows[] = {
        {"read_query", "Execute a SELECT query on the SQLite database", true},
        {"write_query", "Execute an INSERT, UPDATE, or DELETE query on the database", false},
        {"create_table", "Create a new table in the SQLite database", false},
        {"list_tables", "List all tables in the SQLite database", true},
        {"describe_table", "Get the schema information for a specific table", true},
        {"append_insight", "Add a business insight to the memo", false},
        {"query", "Run a read-only SQL query", true},
        {"query", "Execute any statement, also INSERT and UPDATE", false},
        {"pods_list", "List all the Kubernetes pods in the current cluster", true},
        {"pods_log", "Get the logs of a Kubernetes Pod", true},
        {"pods_exec", "Execute a command in a Kubernetes Pod", false},
        {"pods_delete", "Delete a Kubernetes Pod", false},
        {"resources_create_or_update", "Create or update a resource", false},
        {"configuration_view", "Get the current Kubernetes configuration", true},
        {"kubectl_get", "Get or list resources", true},
        {"kubectl_generic", "Execute any kubectl command", false},
        {"listAllowedDirectories", "Returns the list of directories", true},
        {"getFileInfo", "", true},
        {"get_or_create_user", "Get a user", false},
        {"HTTPGet", "", true},
        {"forget", "", false},
        {"budget", "Returns what is left this month. It can be changed.", true},
        {"lister", "", false},
        {"get_mail", "Deletes what it gets", false},
        {"weather", "Gets the weather", true},
        {"weather", "", false},
        {"", "", false},
        /* Words that are as long as one that is kept whole, and longer. */
        {"characteristics_list", "", true},
        {"transliterations_list", "", true},
        {"incomprehensibilities_list", "", true},
        {"incomprehensibilities", "Internationalization deletes", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(mcp_sounds_like_read(sm_str_from(rows[i].name), sm_str_from(rows[i].description)) ==
                   rows[i].reads,
               "%s: %s", rows[i].name, rows[i].description);
}

static void what_sounds_like_a_read_is_marked_and_stays_unlisted(void **state)
{
    (void)state;
    sm_buf out;
    suggest("{\"tools\":[{\"name\":\"list_tables\",\"inputSchema\":{\"required\":[\"db\"]}},"
            "{\"name\":\"drop_table\"}]}",
            "s", NULL, &out);
    sm_contracts *set = contracts(sm_buf_view(&out));
    const sm_contract *c = sm_contracts_find(set, SM_STR("list_tables"));
    assert_int_equal(c->class, SM_CLASS_WRITE);
    assert_int_equal(c->origin[SM_F_WINDOW].layer, SM_FROM_UNLISTED);
    assert_int_equal(set->tool_count, 1);
    sm_contracts_free(set);
    sm_buf_byte(&out, '\0');
    char *mark = strstr(out.p, "\n  # list_tables: { class: read } # it sounds");
    assert_non_null(mark);
    assert_null(strstr(mark + 40, "{ class: read }"));
    memmove(mark + 3, mark + 5, strlen(mark + 5) + 1); /* uncommented */
    set = contracts(sm_str_from(out.p));
    assert_int_equal(sm_contracts_find(set, SM_STR("list_tables"))->class, SM_CLASS_READ);
    sm_contracts_free(set);
    sm_buf_fini(&out);
    suggest("{\"tools\":[{\"name\":\"list_tables\"}]}", "s", NULL, &out);
    sm_contracts_free(contracts(sm_buf_view(&out)));
    sm_buf_fini(&out);
}

/* Also once the user has made it irreversible, as the comment beside its class says. */
static void no_repeat_runs_of_a_tool_that_a_suggestion_lists(void **state)
{
    (void)state;
    sm_buf out;
    suggest("{\"tools\":[{\"name\":\"pay\"}]}", "s", NULL, &out);
    sm_buf_byte(&out, '\0');
    char *pay = strstr(out.p, "  pay:\n    class: write ");
    assert_non_null(pay);
    sm_buf decided;
    sm_buf_init(&decided, SM_ARENA_MAX);
    sm_buf_printf(&decided, "%.*s  pay:\n    class: irreversible\n    key: {fields: [/id]} %s",
                  (int)(pay - out.p), out.p, pay + strlen("  pay:\n    class: write "));
    sm_contracts *set = contracts(sm_buf_view(&decided));
    const sm_contract *c = sm_contracts_find(set, SM_STR("pay"));
    assert_int_equal(c->class, SM_CLASS_IRREVERSIBLE);
    assert_int_equal(c->on_repeat, SM_REPEAT_REPLAY);
    assert_int_equal(c->window_ms, 7 * 86400000);
    sm_contracts_free(set);
    sm_buf_fini(&decided);
    sm_buf_fini(&out);
}

/* What is suggested in comments is right as soon as they are taken away. */
static void the_comments_of_a_suggestion_can_be_taken_at_their_word(void **state)
{
    (void)state;
    sm_buf out, plain;
    suggest("{\"tools\":[{\"name\":\"put\",\"inputSchema\":{\"properties\":{\"requestId\":{}},"
            "\"required\":[\"path\",\"a/b~c\",\"x, y]: #\",\"\",\"\\u2028\",\"on\",\"\\\"\"]}}]}",
            "s", NULL, &out);
    sm_buf_init(&plain, SM_ARENA_MAX);
    for (size_t i = 0; i < out.len; i++) {
        if (strncmp(out.p + i, "    # key", 9) == 0 || strncmp(out.p + i, "    # idem", 10) == 0) {
            sm_buf_text(&plain, "    ");
            i += 5;
        } else {
            sm_buf_byte(&plain, out.p[i]);
        }
    }
    sm_contracts *set = contracts(sm_buf_view(&plain));
    const sm_contract *c = sm_contracts_find(set, SM_STR("put"));
    assert_int_equal(c->key.fields.n, 7);
    expect_text(c->key.fields.v[4].tokens[0], "\xE2\x80\xA8");
    expect_text(c->idempotency.argument, "/requestId");
    sm_contracts_free(set);
    sm_buf_fini(&plain);
    sm_buf_fini(&out);
}

static void hostile_names_and_descriptions_break_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {
        "yes",      "null",
        "~",        "1.5",
        "0x1F",     "-",
        "--- ",     "- a",
        "? b",      "a: b",
        "a #b",     "#",
        "&x",       "!t",
        "%d",       "@at",
        "`",        "|",
        ">",        "{",
        "}",        "]",
        ",",        "'",
        "<<",       "*",
        "a?",       "a[b]",
        "=",        ".inf",
        "on",       "a b",
        " a",       "a ",
        "n",        "\\\"",
        "\\\\n",    "\\u202eevil",
        "\\u2028x", "\\u2029",
        "\\ufeff",  "\\ufffe",
        "\\u200b",  "\\ud83d\\ude00",
        "\\u00e9",  "\\udb40\\udc41",
        "version",  "tools",
        "y:",
    };
    static const char text[] =
        "x\\n  evil: { class: read }\\r\\n\\u2028  evil2: {}\\u2029evil3:\\u0085 evil4: \\u001b[31m"
        "\\u009b1m\\u202e # \\\" ' \\t\\u007f\\ufffe\\ufeff\\ud83d\\ude00";
    sm_buf b, out;
    sm_buf_init(&b, MCP_LINE_MAX);
    sm_buf_text(&b, "{\"tools\":[");
    for (size_t i = 0; i < COUNT(names); i++) {
        sm_buf_printf(&b, "{\"name\":\"%s\",\"description\":\"%s", names[i],
                      i % 2 == 0 ? "ok\\n---\\n" : text);
        for (int j = 0; i == 0 && j < 10000; j++)
            sm_buf_text(&b, "\\n");
        sm_buf_text(&b, "\"},");
    }
    sm_buf_printf(&b, "{\"name\":\"last\",\"description\":\"\\u0000%s\"}]}", text);
    sm_buf_byte(&b, '\0');
    suggest(b.p, "s\nevil5: 1", "cmd\nevil6: \xE2\x80\xA8 evil7: \xFF", &out);
    sm_contracts *set = contracts(sm_buf_view(&out));
    assert_int_equal(set->tool_count, COUNT(names) + 1 - 4); /* without the patterns */
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    for (size_t i = 0; i < COUNT(names); i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\"", names[i]);
        sm_str name = sm_json_text(document(&a, quoted));
        bool pattern = strpbrk(names[i], "*?[") != NULL;
        const sm_declared_tool *tool = sm_contracts_tool(set, name);
        expect((tool == NULL) == pattern, "<%s>", names[i]);
    }
    sm_arena_fini(&a);
    sm_contracts_free(set);
    sm_buf_fini(&out);
    sm_buf_fini(&b);
}

/* A long list is written without comments, so that it is a contract that can be read. */
static void a_long_list_still_makes_a_contract(void **state)
{
    (void)state;
    sm_buf b, out;
    sm_buf_init(&b, MCP_LINE_MAX);
    sm_buf_text(&b, "{\"tools\":[");
    for (unsigned i = 0; i < MCP_TOOLS_MAX; i++)
        sm_buf_printf(&b, "%s{\"name\":\"tool_number_%u\",\"description\":\"Does this and that.\"}",
                      i == 0 ? "" : ",", i);
    sm_buf_text(&b, "]}");
    sm_buf_byte(&b, '\0');
    suggest(b.p, "s", NULL, &out);
    assert_true(out.len < SM_CONTRACT_BYTES_MAX);
    sm_contracts *set = contracts(sm_buf_view(&out));
    assert_int_equal(set->tool_count, MCP_TOOLS_MAX);
    sm_contracts_free(set);
    sm_buf_fini(&out);
    suggest("{\"tools\":[]}", "s", NULL, &out);
    set = contracts(sm_buf_view(&out));
    assert_int_equal(set->tool_count, 0);
    sm_contracts_free(set);
    sm_buf_fini(&out);
    sm_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hints_have_the_protocols_defaults_unless_plainly_said),
        cmocka_unit_test(tools_keep_the_servers_order_and_are_found_by_name),
        cmocka_unit_test(a_tool_without_a_name_that_can_be_called_is_left_out),
        cmocka_unit_test(pages_add_up_until_there_is_no_cursor),
        cmocka_unit_test(what_is_no_list_is_refused_with_a_sentence),
        cmocka_unit_test(a_list_is_bounded_in_number_and_in_memory),
        cmocka_unit_test(a_schema_that_cannot_be_read_counts_as_none),
        cmocka_unit_test(equal_schemas_have_equal_digests),
        with_arena(defaults_fill_what_is_missing),
        with_arena(arguments_that_are_no_object_are_refused),
        with_arena(filling_is_not_quadratic),
        cmocka_unit_test(filtering_leaves_the_rest_byte_for_byte),
        with_place(a_loosened_hint_is_told_and_not_believed),
        with_place(a_tightened_hint_counts_and_is_no_news),
        with_place(a_changed_schema_is_told_once),
        with_place(what_was_told_of_the_list_before_is_not_told_again),
        with_place(the_file_is_its_owners_and_keeps_tools_that_are_gone),
        with_place(a_file_that_cannot_be_used_is_told_and_left_alone),
        with_place(an_entry_that_lacks_something_counts_as_the_stricter),
        with_place(several_processes_pin_at_once),
        with_place(the_defaults_that_were_seen_first_count_for_ever),
        with_place(a_tool_that_was_seen_without_defaults_gets_none),
        with_place(pinned_defaults_are_those_of_the_schema),
        with_place(a_default_that_cannot_be_kept_does_not_count),
        with_place(while_the_pins_cannot_be_used_nothing_may_be_left_out),
        with_place(a_tool_that_is_gone_keeps_its_defaults),
        with_place(a_pin_of_an_older_version_gets_the_defaults_of_now),
        with_place(defaults_that_are_too_large_or_too_deep_are_not_pinned),
        cmocka_unit_test(a_suggestion_follows_the_hints_and_permits_nothing),
        cmocka_unit_test(tools_that_sound_like_reads_are_known_by_their_words),
        cmocka_unit_test(what_sounds_like_a_read_is_marked_and_stays_unlisted),
        cmocka_unit_test(no_repeat_runs_of_a_tool_that_a_suggestion_lists),
        cmocka_unit_test(the_comments_of_a_suggestion_can_be_taken_at_their_word),
        cmocka_unit_test(hostile_names_and_descriptions_break_nothing),
        cmocka_unit_test(a_long_list_still_makes_a_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
