/* What the gateway makes of contracts before any call: names that were probably meant, variables
 * that are not set. */
#include "contracts.h"

#include <stdlib.h>

#include "gateway/api/nearest.h"
#include "gateway/config.h"

static void a_misspelt_tool_is_recognised(void **state)
{
    (void)state;
    sm_contracts *set = contracts("version: 1\n"
                                  "tools:\n"
                                  "  billing.charge: { class: write }\n"
                                  "  billing.refund: { class: write }\n"
                                  "  billing.char*: { class: write }\n");
    expect_text(gw_nearest_tool(set, SM_STR("billing.chrage")), "billing.charge");
    expect_text(gw_nearest_tool(set, SM_STR("Billing.Refund")), "billing.refund");
    assert_null(gw_nearest_tool(set, SM_STR("mail.send")).p);
    assert_null(gw_nearest_tool(set, (sm_str){0}).p);
    sm_contracts_free(set);
}

static void without_tools_nothing_is_meant(void **state)
{
    (void)state;
    sm_contracts *set;
    assert_int_equal(sm_contracts_none(&set), SM_OK);
    assert_null(gw_nearest_tool(set, SM_STR("billing.charge")).p);
    sm_contracts_free(set);
}

/* Everything that is found about variables, one "line:column: text" each, in the arena. */
static const char *unset(sm_arena *a, const char *text)
{
    sm_report report;
    sm_buf out;
    sm_contracts *set = contracts(text);
    assert_int_equal(sm_report_init(&report, sm_str_from(text)), SM_OK);
    gw_contract_variables(set, SM_WARNING, &report);
    assert_int_equal(report.errors, 0);
    sm_report_sort(&report);
    sm_buf_init(&out, SM_ARENA_MAX);
    for (uint32_t i = 0; i < report.count; i++)
        sm_buf_printf(&out, "%u:%u: %.*s\n", report.items[i].line, report.items[i].column,
                      SM_FMT(report.items[i].text));
    sm_str copy = sm_arena_text(a, sm_buf_view(&out));
    sm_buf_fini(&out);
    sm_report_fini(&report);
    sm_contracts_free(set);
    return copy.p == NULL ? "" : copy.p;
}

#define UP(headers) "{ upstream: { url: 'http://x', headers: { " headers " } } }\n"

static void variables_that_are_not_set_are_found_once(void **state)
{
    setenv("SM_SET", "secret", 1);
    setenv("SM_EMPTY", "", 1);
    unsetenv("SM_A");
    unsetenv("SM_B");
    const char *found =
        unset(*state,
              "version: 1\n"
              "tools:\n"
              "  one: " UP("A: 'x${SM_SET}${SM_A}', B: '${SM_B}'") "  two: " UP(
                  "A: '${SM_A}${SM_A}'") "  three: " UP("A: '${SM_EMPTY} $ {SM_C}', B: '${SM_A}'"));
    assert_string_equal(
        found,
        "3:53: the environment variable SM_A is not set, and the header A of one and 2 other "
        "tools needs it: calls fail without it\n"
        "3:77: the environment variable SM_B is not set, and the header B of one needs it: "
        "calls fail without it\n");
    found = unset(*state, "version: 1\ntools:\n  one: " UP("A: '${SM_SET}'") "  two: {}\n");
    assert_string_equal(found, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misspelt_tool_is_recognised),
        cmocka_unit_test(without_tools_nothing_is_meant),
        with_arena(variables_that_are_not_set_are_found_once),
    };
    return cmocka_run_group_tests_name("gateway_contracts", tests, NULL, NULL);
}
