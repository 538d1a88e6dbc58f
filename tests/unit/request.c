/* HTTP requests as arguments: methods that are named beside their own, and secrets in a query. */
#include "core/request.h"

#include "unit.h"

static void a_field_that_names_a_method_is_found_in_every_spelling(void **state)
{
    (void)state;
    static const char *const names[] = {"_method",
                                        "_METHOD",
                                        "__method",
                                        " _method",
                                        ".method",
                                        "_method[]",
                                        "_method.x",
                                        "X-HTTP-Method-Override",
                                        "x_method_override",
                                        "?_method",
                                        "\xEF\xBB\xBF_method",
                                        "?X-HTTP-Method-Override",
                                        "X-HTTP-Method-Override "};
    static const char *const others[] = {"method", "payment_method", "_methods", "_methodx",     "",
                                         "_",      "_meth",          "method_",  "http_method_x"};
    for (size_t i = 0; i < COUNT(names); i++)
        expect(sm_name_method(sm_str_from(names[i])), "%s", names[i]);
    for (size_t i = 0; i < COUNT(others); i++)
        expect(!sm_name_method(sm_str_from(others[i])), "%s", others[i]);
}

static void a_request_acts_on_its_path_by_any_method_that_it_names(void **state)
{
    static const struct {
        const char *request;
        bool overrides;
        sm_acts acts;
    } rows[] = {
        {"{\"method\":\"PUT\"}", false, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\"}", false, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"query\":\"_method=put\"}", true, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"query\":\"a=1;%5Fmethod=DELETE\"}", true, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"query\":\"_method=POST\"}", true, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"form\":{\"_method\":\"PATCH\"}}", true, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"form\":{\"a\":1,\"_method\":[\"POST\",\"PATCH\"]}}", true,
         SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"form\":{\"_method\":null}}", true, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"body\":{\"_method\":\"PUT\"}}", true, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"body\":{\"a\":{\"_method\":\"PUT\"}}}", false, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"body\":[\"_method\"]}", false, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"headers\":{\"x-http-method\":\"PUT\",\"_method\":\"x\"}}", true,
         SM_ACTS_ON_PATH},
        {"{\"method\":\"PUT\",\"query\":\"partNumber=1&uploadId=u\"}", false, SM_ACTS_ON_PART},
        {"{\"method\":\"POST\",\"query\":\"uploads\"}", false, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"query\":\"x-id=a&uploads=\"}", false, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"query\":\"uploads\",\"body\":{}}", false, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"query\":\"uploadId=u\"}", false, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"POST\",\"query\":\"uploadId=u\",\"body_sha256\":\"x\"}", false,
         SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"query\":\"uploadId=u\",\"form\":{}}", false, SM_ACTS_ON_NOTHING},
        {"{\"method\":\"MKCOL\"}", false, SM_ACTS_ON_PATH},
        {"{\"method\":\"DELETE\",\"query\":\"uploadId=u\"}", false, SM_ACTS_ON_PATH},
        {"{\"method\":\"POST\",\"query\":\"partNumber=1\"}", false, SM_ACTS_ON_NOTHING},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *v;
        assert_int_equal(
            sm_json_read(*state, sm_str_from(rows[i].request), &sm_json_default_limits, &v, NULL),
            SM_OK);
        expect(sm_request_overrides(*state, v) == rows[i].overrides, "%s", rows[i].request);
        expect(sm_request_acts(*state, v) == rows[i].acts, "%s", rows[i].request);
    }
}

static void what_some_readers_drop_is_trimmed_off_a_name(void **state)
{
    (void)state;
    static const struct {
        const char *name, *plain;
    } rows[] = {
        {"", ""},
        {"a", "a"},
        {"_a-", "_a-"},
        {"a?", "a?"},
        {"?a", "a"},
        {"??#a", "a"},
        {" \t?\xEF\xBB\xBF a b \r\n", "a b"},
        {"\xC2\xA0\xE3\x80\x80\xC3\xA4\xE2\x80\x8B", "\xC3\xA4"},
        {"\xBF"
         "a\xBF",
         "\xBF"
         "a\xBF"},
        {"?", ""},
        {" ", ""},
        {"\xEF\xBB\xBF", ""},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_name_trim(sm_str_from(rows[i].name)), rows[i].plain);
}

static void a_request_that_servers_may_read_as_another_one_is_odd(void **state)
{
    static const struct {
        const char *request;
        bool odd;
    } rows[] = {
        {"{\"path\":\"/a\",\"query\":\"a=?1&b= 2\"}", false},
        {"{\"path\":\"/a\",\"query\":\"?a=1\"}", true},
        {"{\"path\":\"/a\",\"query\":\"b=1&+a=1\"}", true},
        {"{\"path\":\"/a\",\"query\":\"a%20=1\"}", true},
        {"{\"path\":\"/a\",\"query\":\"%ef%bb%bfa\"}", true},
        {"{\"form\":{\"a\":1},\"headers\":{\"content-type\":\"x/form\"}}", false},
        {"{\"body_sha256\":\"x\"}", true},
        {"{\"body_sha256\":\"x\",\"headers\":{\"content-type\":\"\"}}", true},
        {"{\"body_sha256\":\"x\",\"headers\":{\"content-type\":[\"text/plain\",\"a/b\"]}}", true},
        {"{\"body_sha256\":\"x\",\"headers\":{\"content-type\":\"application/json\"}}", true},
        {"{\"body_sha256\":\"x\",\"headers\":{\"content-type\":\"Multipart/Mixed\"}}", true},
        {"{\"body_sha256\":\"x\",\"headers\":{\"content-type\":\"text/plain\"}}", false},
        {"{\"body_sha256\":\"x\",\"headers\":{\"content-type\":\"image/png\"}}", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *v;
        assert_int_equal(
            sm_json_read(*state, sm_str_from(rows[i].request), &sm_json_default_limits, &v, NULL),
            SM_OK);
        expect(sm_request_odd(*state, v) == rows[i].odd, "%s", rows[i].request);
    }
}

static void secrets_in_a_query_are_marked_and_nothing_else_changes(void **state)
{
    static const struct {
        const char *query, *stored;
    } rows[] = {
        {"", ""},
        {"a=1&b", "a=1&b"},
        {"token=x", "token=[redacted]"},
        {"access_token=x&a=1", "access_token=[redacted]&a=1"},
        {"a=1&accessToken=x=y;p=2", "a=1&accessToken=[redacted]"},
        {"&&API-KEY=x&&", "&&API-KEY=[redacted]&&"},
        {"pass%77ord=x", "pass%77ord=[redacted]"},
        {"user[password]=x", "user[password]=[redacted]"},
        {"key=x&sig=y&auth=z", "key=[redacted]&sig=[redacted]&auth=[redacted]"},
        {"sort_key=x&design=y&author=z", "sort_key=x&design=y&author=z"},
        {"X-Amz-Signature=x&X-Amz-Date=1", "X-Amz-Signature=[redacted]&X-Amz-Date=1"},
        {"secret_key=x&tokens=3", "secret_key=[redacted]&tokens=3"},
        {"token=&token", "token=&token"},
        {"token=a;b;c&d=1", "token=[redacted]&d=1"},
        {"token=;b&d=1", "token=[redacted]&d=1"},
        {"a=1;token=b&d=1", "a=1;token=[redacted]&d=1"},
        {"token=%zz%", "token=[redacted]"},
        {"token%=x", "token%=[redacted]"},
        {"sessionid=x&PHPSESSID=y&X-Amz-Credential=z",
         "sessionid=[redacted]&PHPSESSID=[redacted]&X-Amz-Credential=z"},
        {"subscription-key=x&assertion=y", "subscription-key=[redacted]&assertion=[redacted]"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_query_redact(*state, sm_str_from(rows[i].query)), rows[i].stored);
}

static void two_spellings_of_a_path_are_one(void **state)
{
    static const struct {
        const char *path, *plain;
    } rows[] = {
        {"", ""},
        {"/items/x(y)", "/items/x(y)"},
        {"/items/x%28y%29", "/items/x(y)"},
        {"/a%2fb%7e", "/a/b~"},
        {"/%c3%a4%20%0a%7f", "/%C3%A4%20%0A%7F"},
        {"/%2541%25", "/%2541%25"},
        {"/%zz%4%", "/%zz%4%"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        expect_text(sm_path_plain(*state, sm_str_from(rows[i].path)), rows[i].plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_field_that_names_a_method_is_found_in_every_spelling),
        with_arena(a_request_acts_on_its_path_by_any_method_that_it_names),
        cmocka_unit_test(what_some_readers_drop_is_trimmed_off_a_name),
        with_arena(a_request_that_servers_may_read_as_another_one_is_odd),
        with_arena(two_spellings_of_a_path_are_one),
        with_arena(secrets_in_a_query_are_marked_and_nothing_else_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
