/* Probes: what another tool is asked with, and what its answer means. */
#include "contracts.h"

#include "core/probe.h"
#include "json/canon.h"

#define TOOL(probe)                                                                                \
    "version: 1\ntools:\n  find: {class: read}\n  t: {on_in_doubt: [probe, hold], probe: {tool: "  \
    "find, " probe "}}\n"

static const sm_probe *probe_of(const sm_contracts *set)
{
    return &sm_contracts_find(set, SM_STR("t"))->probe;
}

static void arguments_are_mapped_and_what_is_absent_stays_absent(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *args, *mapped;
    } rows[] = {
        {"{\"id\":7,\"at\":{\"city\":\"x\"},\"rest\":1}",
         "{\"city\":\"x\",\"where\":{\"order\":7}}"},
        {"{\"id\":null,\"at\":[]}", "{\"where\":{\"order\":null}}"},
        {"{}", "{}"},
    };
    sm_contracts *set = contracts(TOOL("args: {/where/order: /id, /city: /at/city}, "
                                       "applied: {when: [{field: /a, exists: true}]}"));
    for (size_t i = 0; i < COUNT(rows); i++) {
        const sm_json *mapped;
        sm_buf text;
        sm_buf_init(&text, 4096);
        assert_int_equal(sm_probe_args(a, probe_of(set), document(a, rows[i].args), &mapped, NULL),
                         SM_OK);
        assert_int_equal(sm_json_canon(mapped, &text, (sm_str){0}, NULL), SM_OK);
        expect(sm_str_is(sm_buf_view(&text), rows[i].mapped), "%.*s", (int)text.len, text.p);
        sm_buf_fini(&text);
    }
    sm_contracts_free(set);
}

static void an_answer_is_judged_by_its_conditions(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *said; /* NULL: nothing that can be judged */
        bool failed;
        sm_found_kind found;
        const char *outcome; /* NULL: absent */
    } rows[] = {
        {"{\"data\":[{\"id\":1.0,\"b\":2}]}", false, SM_FOUND_APPLIED, "{\"b\":2,\"id\":1}"},
        {"{\"data\":[{\"id\":1}]}", true, SM_FOUND_UNKNOWN, NULL},
        {"{\"data\":[]}", false, SM_FOUND_ABSENT, NULL},
        {"{\"data\":[]}", true, SM_FOUND_ABSENT, NULL},
        {"{\"error\":\"busy\"}", false, SM_FOUND_UNKNOWN, NULL}, /* it lacks everything */
        {"{\"data\":[{}]}", false, SM_FOUND_UNKNOWN, NULL},
        {"\"text\"", false, SM_FOUND_UNKNOWN, NULL},
        {NULL, false, SM_FOUND_UNKNOWN, NULL},
    };
    sm_contracts *set =
        contracts(TOOL("applied: {when: [{field: /data/0/id, exists: true}], outcome: /data/0}, "
                       "absent: {when: [{field: /data/0, exists: false}]}"));
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str outcome;
        const sm_json *said = rows[i].said == NULL ? NULL : document(a, rows[i].said);
        sm_found_kind found = sm_probe_judge(a, probe_of(set), said, rows[i].failed, &outcome);
        expect(found == rows[i].found, "row %zu: %d", i, (int)found);
        if (rows[i].outcome == NULL)
            assert_null(outcome.p);
        else
            assert_true(sm_str_is(outcome, rows[i].outcome));
    }
    sm_contracts_free(set);
}

static void without_absent_nothing_is_ever_proved_absent(void **state)
{
    sm_arena *a = *state;
    sm_str outcome;
    sm_contracts *set = contracts(TOOL("applied: {when: [{field: /id, exists: true}]}"));
    assert_int_equal(sm_probe_judge(a, probe_of(set), document(a, "{}"), false, &outcome),
                     SM_FOUND_UNKNOWN);
    /* Nothing is said to be the outcome: all of it is. */
    assert_int_equal(sm_probe_judge(a, probe_of(set), document(a, "{\"id\":1}"), false, &outcome),
                     SM_FOUND_APPLIED);
    assert_true(sm_str_is(outcome, "{\"id\":1}"));
    sm_contracts_free(set);
}

static void an_outcome_that_the_answer_lacks_is_none(void **state)
{
    sm_arena *a = *state;
    sm_str outcome;
    sm_contracts *set =
        contracts(TOOL("applied: {when: [{field: /id, exists: true}], outcome: /receipt}"));
    assert_int_equal(sm_probe_judge(a, probe_of(set), document(a, "{\"id\":1}"), false, &outcome),
                     SM_FOUND_APPLIED);
    assert_null(outcome.p);
    sm_contracts_free(set);
}

/* An amount that is missing or is a text says nothing about how large it is. */
static void what_cannot_be_compared_proves_nothing(void **state)
{
    sm_arena *a = *state;
    static const char *const said[] = {"{}", "{\"paid\":\"500\"}", "{\"paid\":null}"};
    sm_contracts *set = contracts(TOOL("applied: {when: [{field: /paid, over: 100}]}, "
                                       "absent: {when: [{field: /paid, under: 1}]}"));
    for (size_t i = 0; i < COUNT(said); i++) {
        sm_str outcome;
        sm_found_kind found =
            sm_probe_judge(a, probe_of(set), document(a, said[i]), false, &outcome);
        expect(found == SM_FOUND_UNKNOWN, "%s: %d", said[i], (int)found);
    }
    sm_contracts_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(arguments_are_mapped_and_what_is_absent_stays_absent),
        with_arena(an_answer_is_judged_by_its_conditions),
        with_arena(without_absent_nothing_is_ever_proved_absent),
        with_arena(an_outcome_that_the_answer_lacks_is_none),
        with_arena(what_cannot_be_compared_proves_nothing),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
