/*
 * Headers that repeat the body: how values travel and come back, and when the headers of a call fit
 * its arguments.
 */
#include "unit.h"

#include "mcp/param_headers.h"

/* ---- values ----------------------------------------------------------------------------------*/

static void a_value_comes_back_as_it_was(void **state)
{
    (void)state;
    static const sm_str table[] = {
        {"eu", 2},
        {"", 0},
        {" a", 2},
        {"a ", 2},
        {"\ta", 2},
        {"a b", 3},
        {"a\tb", 3},
        {"caf\xC3\xA9", 5},
        {"=?base64?x?=", 12},
        {"a\nb", 3},
        {"a\0b", 3},
        {"=?base64?", 9},
    };
    for (size_t i = 0; i < COUNT(table); i++) {
        sm_buf sent, back;
        sm_buf_init(&sent, 1024);
        sm_buf_init(&back, 1024);
        mcp_header_put(&sent, table[i]);
        for (size_t k = 0; k < sent.len; k++)
            assert_true(sent.p[k] == '\t' || (sent.p[k] >= 0x20 && sent.p[k] <= 0x7E));
        assert_true(mcp_header_take(&back, sm_buf_view(&sent)));
        assert_true(sm_str_eq(sm_buf_view(&back), table[i]));
        sm_buf_fini(&back);
        sm_buf_fini(&sent);
    }
}

static void what_is_no_base64_says_nothing(void **state)
{
    (void)state;
    static const char *const table[] = {
        "=?base64?a?=", "=?base64?YQ?=",   "=?base64?YQ=?=", "=?base64?Y Q=?=",
        "=?base64?!?=", "=?base64?/w==?=", "=?base64?YR==?="};
    for (size_t i = 0; i < COUNT(table); i++) {
        sm_buf back;
        sm_buf_init(&back, 1024);
        sm_buf_text(&back, "before");
        assert_false(mcp_header_take(&back, sm_str_from(table[i])));
        assert_true(sm_str_is(sm_buf_view(&back), "before"));
        sm_buf_fini(&back);
    }
}

/* ---- fitting ---------------------------------------------------------------------------------*/

#define REGION             "\"region\":{\"type\":\"string\",\"x-mcp-header\":\"Region\"}"
#define COUNTED            "\"count\":{\"type\":\"integer\",\"x-mcp-header\":\"Count\"}"
#define OBJECT(properties) "{\"type\":\"object\",\"properties\":{" properties "}}"

typedef struct fit_case {
    const char *schema, *arguments, *name, *value;
    bool fits;
} fit_case;

static bool fits(sm_arena *a, const fit_case *c)
{
    mcp_tool tool = {.name = SM_STR("t"), .schema = document(a, c->schema)};
    sm_http_field headers[2] = {{SM_STR("Mcp-Name"), SM_STR("t")}};
    size_t n = 1;
    sm_str header;
    if (c->name != NULL)
        headers[n++] = (sm_http_field){sm_str_from(c->name), sm_str_from(c->value)};
    bool fit = mcp_params_fit(&tool, sm_str_from(c->arguments), headers, n, &header);
    assert_true(fit == (header.p == NULL));
    return fit;
}

static void headers_fit_if_they_say_what_is_given(void **state)
{
    static const fit_case table[] = {
        {OBJECT(REGION), "{\"region\":\"eu\"}", "Mcp-Param-Region", "eu", true},
        {OBJECT(REGION), "{\"region\":\"eu\"}", "mcp-param-REGION", " eu\t", true},
        {OBJECT(REGION), "{\"region\":\"eu\"}", "Mcp-Param-Region", "=?base64?ZXU=?=", true},
        {OBJECT(REGION), "{\"region\":\"eu\"}", "Mcp-Param-Region", "EU", false},
        {OBJECT(REGION), "{\"region\":\"eu\"}", "Mcp-Param-Region", "", false},
        {OBJECT(REGION), "{\"region\":\"eu\"}", "Mcp-Param-Regions", "eu", false},
        {OBJECT(REGION), "{\"region\":\"eu\"}", "Region", "eu", false},
        {OBJECT(REGION), "{\"region\":\"eu\"}", NULL, NULL, false},
        {OBJECT(REGION), "{\"r\\u0065gion\":\"eu\"}", NULL, NULL, false},
        {OBJECT(REGION), "{\"region\":null}", "Mcp-Param-Region", "eu", true},
        {OBJECT(REGION), "{}", "Mcp-Param-Region", "eu", true},
        {OBJECT(REGION), "{\"region\":[\"eu\"]}", NULL, NULL, true},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "42", true},
        {OBJECT(COUNTED), "{\"count\":42.0}", "Mcp-Param-Count", "42", true},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "42.0", true},
        {OBJECT(COUNTED), "{\"count\":4.2e1}", "Mcp-Param-Count", "42", true},
        {OBJECT(COUNTED), "{\"count\":-1}", "Mcp-Param-Count", "-1", true},
        {OBJECT(COUNTED), "{\"count\":-1}", "Mcp-Param-Count", "1", false},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "42.", false},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "4.2.0", false},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "-", false},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "0x2A", false},
        {OBJECT(COUNTED), "{\"count\":42}", "Mcp-Param-Count", "4.2e1", false},
        {OBJECT(COUNTED), "{\"count\":9007199254740992}", NULL, NULL, true},
        {OBJECT(COUNTED), "{\"count\":1e21}", NULL, NULL, true},
        {OBJECT(COUNTED), "{\"count\":1e-7}", NULL, NULL, false},
    };
    for (size_t i = 0; i < COUNT(table); i++)
        expect(fits(*state, &table[i]) == table[i].fits, "%s with %s", table[i].arguments,
               table[i].value != NULL ? table[i].value : "nothing");
}

static void a_header_that_is_there_twice_does_not_fit(void **state)
{
    mcp_tool tool = {.name = SM_STR("t"), .schema = document(*state, OBJECT(REGION))};
    sm_http_field headers[] = {{SM_STR("Mcp-Param-Region"), SM_STR("eu")},
                               {SM_STR("mcp-param-region"), SM_STR("eu")}};
    sm_str header;
    assert_true(mcp_params_fit(&tool, SM_STR("{\"region\":\"eu\"}"), headers, 1, &header));
    assert_false(mcp_params_fit(&tool, SM_STR("{\"region\":\"eu\"}"), headers, 2, &header));
    assert_true(sm_str_is(header, "Region"));
}

static void marks_that_break_the_rules_are_not_heeded(void **state)
{
    static const char *const table[] = {
        OBJECT(REGION ",\"other\":{\"type\":\"string\",\"x-mcp-header\":\"REGION\"}"),
        OBJECT(REGION ",\"other\":{\"type\":\"array\",\"x-mcp-header\":\"Other\"}"),
        OBJECT(REGION ",\"other\":{\"x-mcp-header\":\"Other\"}"),
        OBJECT(REGION ",\"other\":{\"type\":\"string\",\"x-mcp-header\":\"no name\"}"),
        OBJECT(REGION ",\"other\":{\"type\":\"string\",\"x-mcp-header\":\"\"}"),
        OBJECT(REGION ",\"other\":{\"type\":\"string\",\"x-mcp-header\":7}"),
        "{\"type\":\"object\",\"properties\":[]}",
        "true",
    };
    for (size_t i = 0; i < COUNT(table); i++)
        assert_true(
            fits(*state, &(fit_case){.schema = table[i], .arguments = "{\"region\":\"x\"}"}));
}

static void what_is_not_known_is_not_compared(void **state)
{
    sm_str header;
    mcp_tool tool = {.name = SM_STR("t")};
    assert_true(mcp_params_fit(NULL, SM_STR("{}"), NULL, 0, &header));
    assert_true(mcp_params_fit(&tool, SM_STR("{\"region\":\"eu\"}"), NULL, 0, &header));
    tool.schema = document(*state, OBJECT(REGION));
    assert_true(mcp_params_fit(&tool, (sm_str){0}, NULL, 0, &header));
    assert_true(mcp_params_fit(&tool, SM_STR("[1]"), NULL, 0, &header));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_value_comes_back_as_it_was),
        cmocka_unit_test(what_is_no_base64_says_nothing),
        with_arena(headers_fit_if_they_say_what_is_given),
        with_arena(a_header_that_is_there_twice_does_not_fit),
        with_arena(marks_that_break_the_rules_are_not_heeded),
        with_arena(what_is_not_known_is_not_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
