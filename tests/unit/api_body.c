/* Bodies of requests: what is read, what is refused and in which words. */
#include "api/body.h"

#include "unit.h"

static sm_arena arena;

static int start(void **state)
{
    (void)state;
    sm_arena_init(&arena, SM_ARENA_MAX);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sm_arena_fini(&arena);
    return 0;
}

static sm_err call(const char *body, sm_call_form form, semel_call *out, sm_fault *fault)
{
    *fault = (sm_fault){0};
    return sm_call_parse(&arena, sm_str_from(body), NULL, form, 300000, out, fault);
}

static void a_call_is_read_whole(void **state)
{
    (void)state;
    semel_call c;
    sm_fault f;
    const char *body = " {\"scope\": \"a/b\", \"step\": 3.0,\n\"args\" : {\"x\" : [1, 2 ] , "
                       "\"q\":\"}\\\"\"}\t, \"tool\":\"pay\\u00e9\", \"wait_ms\": 5} \n";
    assert_int_equal(call(body, SM_FORM_CALL, &c, &f), SM_OK);
    expect_text(c.scope, "a/b");
    expect_text(c.step, "3");
    expect_text(c.tool, "pay\xC3\xA9");
    expect_text(c.args, "{\"x\" : [1, 2 ] , \"q\":\"}\\\"\"}");
    assert_int_equal(c.wait_ms, 5);
    assert_null(c.key.p);
    assert_null(c.after.p);
    assert_int_equal(c.size, sizeof c);
}

/* A body is `before`, the arguments, and `after`. */
static void arguments_survive(const char *before, sm_str args, const char *after)
{
    sm_buf body;
    semel_call c;
    sm_fault f = {0};
    sm_buf_init(&body, 1000);
    sm_buf_text(&body, before);
    sm_buf_str(&body, args);
    sm_buf_text(&body, after);
    assert_int_equal(sm_call_parse(&arena, sm_buf_view(&body), NULL, SM_FORM_CALL, 0, &c, &f),
                     SM_OK);
    expect(sm_str_eq(c.args, args), "got <%.*s>, expected <%.*s>", SM_FMT(c.args), SM_FMT(args));
    sm_buf_fini(&body);
}

static void arguments_may_be_any_value_in_any_place(void **state)
{
    (void)state;
    static const char *const values[] = {"null", "true",   "-1.50", "\"\"",      "\"a,}\\\\\"",
                                         "[]",   "{ \t }", "[{}]",  "{\"a\":{}}"};
    for (size_t i = 0; i < COUNT(values); i++) {
        sm_str args = sm_str_from(values[i]);
        arguments_survive("{\"args\":\n", args, " \n,\"scope\":\"s\",\"tool\":\"t\"}");
        arguments_survive("{\"tool\":\"t\",\"scope\":\"s\",\"args\":", args, "}");
        arguments_survive("{\"tool\":\"t\",\"scope\":\"s\",\"args\": ", args, " } ");
    }
}

static void a_call_waits_by_its_form(void **state)
{
    (void)state;
    semel_call c;
    sm_fault f = {0};
    const char *body = "{\"scope\":\"s\",\"tool\":\"t\",\"args\":{}}";
    assert_int_equal(call(body, SM_FORM_CALL, &c, &f), SM_OK);
    assert_int_equal(c.wait_ms, 30000);
    assert_int_equal(call(body, SM_FORM_BEGIN, &c, &f), SM_OK);
    assert_int_equal(c.wait_ms, 0);
    assert_int_equal(sm_call_parse(&arena, sm_str_from(body), NULL, SM_FORM_CALL, 100, &c, &f),
                     SM_OK);
    assert_int_equal(c.wait_ms, 100);
}

static void only_begin_has_after(void **state)
{
    (void)state;
    semel_call c;
    sm_fault f;
    const char *body = "{\"scope\":\"s\",\"tool\":\"t\",\"args\":{},\"after\":\"ef_x\"}";
    assert_int_equal(call(body, SM_FORM_BEGIN, &c, &f), SM_OK);
    expect_text(c.after, "ef_x");
    assert_int_equal(call(body, SM_FORM_CALL, &c, &f), SEMEL_E_BAD_ARGUMENTS);
}

static void what_is_wrong_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *body, *words;
        unsigned line, column;
    } rows[] = {
        {"", "the body is empty; a JSON object is expected, with \"scope\", \"tool\" and \"args\"",
         0, 0},
        {" \n",
         "the body is empty; a JSON object is expected, with \"scope\", \"tool\" and \"args\"", 0,
         0},
        {"[1]", "the body must be a JSON object, not an array", 1, 1},
        {" 7", "the body must be a JSON object, not a number", 1, 2},
        {"{\"scope\": \"s\",\n  \"tool\" \"t\"}", "expected ':' after the name, found '\"'", 2, 10},
        {"{\"scope\":\"s\"", "the text ends where ',' or '}' was expected", 1, 13},
        {"{\"scope\":\"\xFF\"}", "not valid UTF-8", 1, 11},
        {"{\"tool\":\"t\",\"tool\":\"t\"}", "this name appears twice in the same object", 1, 13},
        {"{\"scop\":\"s\"}", "\"scop\" is no member of this request; did you mean \"scope\"?", 1,
         2},
        {"{\"x\":1}",
         "\"x\" is no member of this request; its members are scope, step, tool, args, key and wait_ms",
         1, 2},
        {"{}", "\"scope\" is missing; it must be a string", 1, 1},
        {"{\"scope\":\"s\",\"tool\":\"t\"}", "\"args\" is missing; it may be any JSON value", 1, 1},
        {"{\"scope\":5}", "\"scope\" must be a string, not a number (5)", 1, 10},
        {"{\"scope\":null}", "\"scope\" must be a string, not null", 1, 10},
        {"{\"step\":1.5}", "\"step\" must be a string or a whole number, not a number (1.5)", 1, 9},
        {"{\"step\":1e30}", "\"step\" must be a string or a whole number, not a number (1e30)", 1,
         9},
        {"{\"wait_ms\":-1}",
         "\"wait_ms\" must be a whole number from 0 to 300000, not a number (-1)", 1, 12},
        {"{\"wait_ms\":300001}",
         "\"wait_ms\" must be a whole number from 0 to 300000, not a number (300001)", 1, 12},
        {"{\"wait_ms\":\"5\"}",
         "\"wait_ms\" must be a whole number from 0 to 300000, not a string (\"5\")", 1, 12},
        {"{\"wait_ms\":99999999999999999999}",
         "\"wait_ms\" must be a whole number from 0 to 300000, not a number (99999999999999999999)",
         1, 12},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_call c;
        sm_fault f;
        expect(call(rows[i].body, SM_FORM_CALL, &c, &f) != SM_OK, "<%s>", rows[i].body);
        expect(strcmp(f.text, rows[i].words) == 0, "<%s>: %s", rows[i].body, f.text);
        expect(f.line == rows[i].line && f.column == rows[i].column, "<%s>: at %u:%u", rows[i].body,
               f.line, f.column);
    }
}

static void too_deep_is_refused(void **state)
{
    (void)state;
    char body[1000] = "{\"scope\":\"s\",\"tool\":\"t\",\"args\":";
    size_t n = strlen(body);
    memset(body + n, '[', 200);
    memset(body + n + 200, ']', 200);
    strcpy(body + n + 400, "}");
    semel_call c;
    sm_fault f;
    assert_int_equal(call(body, SM_FORM_CALL, &c, &f), SEMEL_E_LIMIT);
    assert_string_equal(f.text, "nested too deeply: at most 128 levels");
}

static void objects_inside_are_read_by_their_own_table(void **state)
{
    (void)state;
    struct inner {
        sm_str value;
        int64_t status;
        int kind;
    } inner = {.status = 7};
    struct outer {
        sm_object outcome;
        sm_str evidence;
    } outer = {0};
    static const char *const kinds[] = {"one", "two", NULL};
    const sm_object_member outers[] = {
        {.name = "outcome", .kind = SM_M_OBJECT, .offset = offsetof(struct outer, outcome)},
        {.name = "evidence", .kind = SM_M_TEXT, .offset = offsetof(struct outer, evidence)},
    };
    const sm_object_member inners[] = {
        {.name = "status", .kind = SM_M_COUNT, .max = 9, .offset = offsetof(struct inner, status)},
        {.name = "kind",
         .kind = SM_M_CHOICE,
         .names = kinds,
         .offset = offsetof(struct inner, kind)},
        {.name = "value", .kind = SM_M_ANY, .offset = offsetof(struct inner, value)},
    };
    sm_object o;
    sm_fault f = {0};
    sm_str text =
        SM_STR("{\"outcome\":{\"kind\":\"two\", \"value\": [ {} ] } , \"evidence\":\"e\"}");
    assert_int_equal(sm_object_parse(&arena, text, &o, &f), SM_OK);
    assert_int_equal(sm_object_read(&arena, &o, outers, 2, &outer, &f), SM_OK);
    assert_int_equal(sm_object_read(&arena, &outer.outcome, inners, 3, &inner, &f), SM_OK);
    expect_text(inner.value, "[ {} ]");
    assert_int_equal(inner.status, 7);
    assert_int_equal(inner.kind, 1);
    text = SM_STR("{\"kind\":\"three\"}");
    assert_int_equal(sm_object_parse(&arena, text, &o, &f), SM_OK);
    assert_int_equal(sm_object_read(&arena, &o, inners, 3, &inner, &f), SEMEL_E_BAD_ARGUMENTS);
    assert_string_equal(f.text, "\"kind\" must be \"one\" or \"two\", not a string (\"three\")");
}

static void a_request_of_one_member_is_told_of_one(void **state)
{
    (void)state;
    sm_str request = {0};
    sm_fault f = {0};
    const sm_object_member members[] = {{.name = "request", .kind = SM_M_TEXT, .required = true}};
    static const struct {
        const char *body, *says;
    } rows[] = {
        {"", "the body is empty; a JSON object is expected, with \"request\""},
        {"{}", "\"request\" is missing; it must be a string"},
        {"{\"effect\":\"ef_1\"}",
         "\"effect\" is no member of this request; its only member is request"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_err e =
            sm_object_take(&arena, sm_str_from(rows[i].body), NULL, members, 1, &request, &f);
        assert_int_equal(e, SEMEL_E_BAD_ARGUMENTS);
        assert_string_equal(f.text, rows[i].says);
    }
    sm_str body = SM_STR("{\"request\":\"ap_1\"}");
    assert_int_equal(sm_object_take(&arena, body, NULL, members, 1, &request, &f), SM_OK);
    expect_text(request, "ap_1");
}

static void members_that_the_door_has_read_are_passed_over(void **state)
{
    (void)state;
    static const char *const taken[] = {"op", "detached", NULL};
    sm_str request = {0};
    semel_call c;
    sm_fault f = {0};
    const sm_object_member members[] = {{.name = "request", .kind = SM_M_TEXT, .required = true}};
    sm_str body = SM_STR("{\"op\":[1],\"request\":\"ap_1\"}");
    assert_int_equal(sm_object_take(&arena, body, taken, members, 1, &request, &f), SM_OK);
    expect_text(request, "ap_1");
    body = SM_STR("{\"op\":\"approve\",\"opp\":1}");
    assert_int_equal(sm_object_take(&arena, body, taken, members, 1, &request, &f),
                     SEMEL_E_BAD_ARGUMENTS);
    assert_string_equal(f.text, "\"opp\" is no member of this request; its only member is request");
    body = SM_STR("{\"scope\":\"s\",\"tool\":\"t\",\"args\":[ 1 ],\"detached\":true}");
    assert_int_equal(sm_call_parse(&arena, body, taken, SM_FORM_BEGIN, 0, &c, &f), SM_OK);
    expect_text(c.args, "[ 1 ]");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_call_is_read_whole),
        cmocka_unit_test(arguments_may_be_any_value_in_any_place),
        cmocka_unit_test(a_call_waits_by_its_form),
        cmocka_unit_test(only_begin_has_after),
        cmocka_unit_test(what_is_wrong_is_said),
        cmocka_unit_test(too_deep_is_refused),
        cmocka_unit_test(objects_inside_are_read_by_their_own_table),
        cmocka_unit_test(a_request_of_one_member_is_told_of_one),
        cmocka_unit_test(members_that_the_door_has_read_are_passed_over),
    };
    return cmocka_run_group_tests_name("api_body", tests, start, end);
}
