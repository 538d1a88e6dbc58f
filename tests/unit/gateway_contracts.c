/* What the gateway makes of contracts before any call: names that were probably meant. */
#include "contracts.h"

#include "gateway/nearest.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_misspelt_tool_is_recognised),
        cmocka_unit_test(without_tools_nothing_is_meant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
