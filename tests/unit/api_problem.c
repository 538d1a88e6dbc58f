/* Problems: the status of each code, and what a refusal is told with. */
#include "api/problem.h"

#include "unit.h"

static void every_code_has_its_status(void **state)
{
    (void)state;
    static const struct {
        semel_code code;
        int status;
    } rows[] = {
        {SEMEL_C_RETRY_IN_FLIGHT, 409}, {SEMEL_C_AWAITING_APPROVAL, 202},
        {SEMEL_C_IN_DOUBT, 409},        {SEMEL_C_KEY_CONFLICT, 422},
        {SEMEL_C_BAD_ARGUMENTS, 400},   {SEMEL_C_UNKNOWN_TOOL, 404},
        {SEMEL_C_ILLEGAL_STATE, 409},   {SEMEL_C_DENIED, 403},
        {SEMEL_C_FORBIDDEN, 403},       {SEMEL_C_BAD_CLAIM, 403},
        {SEMEL_C_CANCELED, 409},        {SEMEL_C_APPROVAL_EXPIRED, 403},
        {SEMEL_C_ALREADY_DONE, 409},    {SEMEL_C_RESULT_EXPIRED, 410},
        {SEMEL_C_NOT_FOUND, 404},       {SEMEL_C_UPSTREAM_TIMEOUT, 504},
        {SEMEL_C_UPSTREAM_FAILED, 502}, {SEMEL_C_LEDGER_UNAVAILABLE, 503},
        {SEMEL_C_PARTIAL_SUCCESS, 200}, {SEMEL_C_NONE, 200},
        {SEMEL_C_BUDGET_EXCEEDED, 429}, {SEMEL_C_LOOP_DETECTED, 429},
        {SEMEL_C_STOPPED, 403},         {SEMEL_C_CIRCUIT_OPEN, 503},
    };
    assert_int_equal(COUNT(rows), SEMEL_C_COUNT);
    for (size_t i = 0; i < COUNT(rows); i++)
        expect(sm_problem_status(rows[i].code) == rows[i].status, "%s",
               semel_code_name(rows[i].code));
}

static sm_str member(const sm_json *o, const char *name)
{
    const sm_json *v = sm_json_find(o, sm_str_from(name));
    return v == NULL ? (sm_str){0} : sm_json_text(v);
}

static void a_refusal_is_told_with_all_that_is_known(void **state)
{
    (void)state;
    semel_answer a = {.code = SEMEL_C_KEY_CONFLICT,
                      .effect = SM_STR("ef_1"),
                      .state = SEMEL_S_SUCCEEDED,
                      .drift = SM_STR("[\"/amount\"]"),
                      .blocked_by = SM_STR("ef_2"),
                      .request = SM_STR("ap_1"),
                      .retry_after_ms = 1500,
                      .message = SM_STR("a \"quoted\"\nword"),
                      .corrective_action = SM_STR("do it")};
    sm_buf text;
    sm_arena arena;
    const sm_json *o;
    sm_buf_init(&text, 4096);
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_problem_of_answer(&text, 422, &a);
    assert_int_equal(sm_json_read(&arena, sm_buf_view(&text), &sm_json_default_limits, &o, NULL),
                     SM_OK);
    assert_true(sm_str_is(member(o, "type"), "urn:semel:problem:KEY_CONFLICT"));
    assert_true(sm_str_is(member(o, "title"), "Key conflict"));
    assert_true(sm_str_is(member(o, "status"), "422"));
    assert_true(sm_str_is(member(o, "code"), "KEY_CONFLICT"));
    assert_true(sm_str_is(member(o, "detail"), "a \"quoted\"\nword"));
    assert_true(sm_str_is(member(o, "message"), "a \"quoted\"\nword"));
    assert_true(sm_str_is(member(o, "corrective_action"), "do it"));
    assert_true(sm_str_is(member(o, "effect"), "ef_1"));
    assert_true(sm_str_is(member(o, "state"), "succeeded"));
    assert_true(sm_str_is(member(o, "blocked_by"), "ef_2"));
    assert_true(sm_str_is(member(o, "request"), "ap_1"));
    assert_true(sm_str_is(member(o, "retry_after_ms"), "1500"));
    assert_int_equal(sm_json_find(o, SM_STR("drift"))->type, SM_JSON_ARRAY);
    assert_int_equal(sm_json_find(o, SM_STR("retriable"))->type, SM_JSON_FALSE);

    /* Bytes that are no text do not make the answer unreadable. */
    sm_buf_clear(&text);
    a.message = SM_STR("\xff\xfe");
    sm_problem_of_answer(&text, 422, &a);
    assert_int_equal(sm_json_read(&arena, sm_buf_view(&text), &sm_json_default_limits, &o, NULL),
                     SM_OK);
    sm_arena_fini(&arena);
    sm_buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_has_its_status),
        cmocka_unit_test(a_refusal_is_told_with_all_that_is_known),
    };
    return cmocka_run_group_tests_name("api_problem", tests, NULL, NULL);
}
