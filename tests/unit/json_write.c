/* Writing objects member by member: commas, and what is left out. */
#include "unit.h"

#include "json/write.h"

static void commas_stand_between_members_and_elements_only(void **state)
{
    (void)state;
    sm_buf b;
    sm_buf_init(&b, 1000);
    sm_buf_byte(&b, '{');
    sm_put_open(&b, "list", '[');
    for (int i = 0; i < 2; i++) {
        sm_put_item(&b);
        sm_buf_byte(&b, '{');
        sm_put_bool(&b, "odd", i == 1);
        sm_put_signed(&b, "n", -i);
        sm_buf_byte(&b, '}');
    }
    sm_buf_byte(&b, ']');
    sm_put_text(&b, "text", SM_STR("ends like an object {"));
    sm_put_raw(&b, "raw", SM_STR("{}"));
    sm_put_open(&b, "empty", '{');
    sm_buf_byte(&b, '}');
    sm_put_number(&b, "most", UINT64_MAX);
    sm_put_signed(&b, "least", INT64_MIN);
    sm_buf_text(&b, "}");
    sm_buf_byte(&b, '\0');
    assert_string_equal(b.p, "{\"list\":[{\"odd\":false,\"n\":0},{\"odd\":true,\"n\":-1}],"
                             "\"text\":\"ends like an object {\",\"raw\":{},\"empty\":{},"
                             "\"most\":18446744073709551615,\"least\":-9223372036854775808}");
    sm_buf_fini(&b);
}

static void what_is_absent_is_left_out(void **state)
{
    (void)state;
    sm_buf b;
    sm_buf_init(&b, 1000);
    sm_buf_byte(&b, '{');
    sm_put_text(&b, "absent", (sm_str){0});
    sm_put_raw(&b, "nothing", SM_STR(""));
    sm_put_stamp(&b, "never", 0);
    sm_put_text(&b, "empty", SM_STR(""));
    sm_put_stamp(&b, "at", 1);
    sm_put_hash(&b, "hash", &(sm_hash){{0}});
    sm_buf_text(&b, "}");
    sm_buf_byte(&b, '\0');
    assert_string_equal(b.p, "{\"empty\":\"\",\"at\":\"1970-01-01T00:00:00.001Z\","
                             "\"hash\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}");
    sm_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_stand_between_members_and_elements_only),
        cmocka_unit_test(what_is_absent_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
