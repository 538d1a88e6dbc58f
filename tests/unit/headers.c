/* The headers of a tool's answer that are kept with its outcome. */
#include "core/headers.h"

#include "unit.h"

static void headers_are_kept_by_a_list(void **state)
{
    const sm_http_field fields[] = {
        {SM_STR("content-type"), SM_STR("application/json; x=\"y\"")},
        {SM_STR("Set-Cookie"), SM_STR("session=1")},
        {SM_STR("Authorization"), SM_STR("x")},
        {SM_STR("Connection"), SM_STR("keep-alive")},
        {SM_STR("Content-Length"), SM_STR("1")},
        {SM_STR("Transfer-Encoding"), SM_STR("chunked")},
        {SM_STR("Location"), SM_STR("/a")},
        {SM_STR("location"), SM_STR("/b")},
        {SM_STR("ETag"), SM_STR("\xFF")},
        {SM_STR("Link"), SM_STR("a\x01")},
        {SM_STR("X-Request-Id"), SM_STR("r-1")},
        {SM_STR("X-Secret"), SM_STR("z")},
    };
    sm_buf b;
    sm_buf_init(&b, 1u << 20);
    sm_headers_keep(fields, COUNT(fields), &b);
    sm_buf_byte(&b, '\0');
    assert_string_equal(canonical(*state, document(*state, b.p)),
                        "{\"Content-Type\":\"application/json; x=\\\"y\\\"\",\"Location\":\"/a\","
                        "\"X-Request-Id\":\"r-1\"}");
    sm_buf_clear(&b);
    sm_headers_keep(NULL, 0, &b);
    expect_text(sm_buf_view(&b), "{}");
    sm_buf_fini(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(headers_are_kept_by_a_list),
    };
    return cmocka_run_group_tests_name("headers", tests, NULL, NULL);
}
