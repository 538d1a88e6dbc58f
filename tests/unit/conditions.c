/* Conditions and schemas: what holds, what fits, and what is said when it does not. */
#include "contracts.h"

#include <locale.h>

/* A contract whose approval has the given `when`, and whose variant 1 has the same. */
static sm_contracts *with_condition(sm_arena *a, const char *when)
{
    sm_str text = sm_arena_printf(a,
                                  "version: 1\ntools:\n  t: {approval: {when: [%s]}, variants: "
                                  "[{when: [%s]}]}\n",
                                  when, when);
    return contracts(text.p);
}

static void conditions_hold_as_written(void **state)
{
    sm_arena *a = *state;
    /* What a careful reader (approval) and a plain one (variants) make of it. */
    static const struct {
        const char *when, *document;
        bool careful, plain;
    } rows[] = {
        {"{field: /a, equals: 1}", "{\"a\":1.0}", true, true},
        {"{field: /a, equals: 1}", "{\"a\":2}", false, false},
        {"{field: /a, equals: 1}", "{\"a\":\"1\"}", true, false},
        {"{field: /a, equals: true}", "{\"a\":false}", false, false},
        {"{field: /a, equals: {b: [1]}}", "{\"a\":{\"b\":[1e0]}}", true, true},
        {"{field: /a, equals: 9007199254740993}", "{\"a\":9007199254740992}", false, false},
        {"{field: /a, in: [usd, eur]}", "{\"a\":\"eur\"}", true, true},
        {"{field: /a, in: [usd, eur]}", "{\"a\":\"gbp\"}", false, false},
        {"{field: /a, in: [usd, eur]}", "{\"a\":5}", true, false},
        {"{field: /a, over: 50000}", "{\"a\":50000}", false, false},
        {"{field: /a, over: 50000}", "{\"a\":50000.0000000000000000001}", true, true},
        {"{field: /a, over: 50000}", "{\"a\":\"60000\"}", true, false},
        {"{field: /a, over: 50000}", "{\"a\":\"10\"}", true, false},
        {"{field: /a, over: 50000}", "{}", true, false},
        {"{field: /a, over: 50000}", "{\"a\":null}", true, false},
        {"{field: /a, over: \"49.99\"}", "{\"a\":\"50.00\"}", true, true},
        {"{field: /a, over: \"49.99\"}", "{\"a\":\"49.99\"}", false, false},
        {"{field: /a, over: \"49.99\"}", "{\"a\":49.98}", false, false},
        {"{field: /a, over: \"49.99\"}", "{\"a\":\"lots\"}", true, false},
        {"{field: /a, under: 10}", "{\"a\":9}", true, true},
        {"{field: /a, under: 10}", "{\"a\":10}", false, false},
        {"{field: /a, under: 10}", "{\"a\":\"9\"}", true, false},
        {"{field: /a, under: 10}", "{\"a\":\"50\"}", true, false},
        {"{field: /a, under: 10}", "{}", true, false},
        {"{field: /a, under: 10}", "{\"a\":null}", true, false},
        {"{field: /a, under: \"10\"}", "{\"a\":\"few\"}", true, false},
        {"{field: /a, over: 1, under: 10}", "{\"a\":5}", true, true},
        {"{field: /a, over: 1, under: 10}", "{\"a\":50}", false, false},
        {"{field: /a, matches: 'ab+'}", "{\"a\":\"abb\"}", true, true},
        {"{field: /a, matches: 'ab+'}", "{\"a\":\"xabb\"}", false, false},
        {"{field: /a, matches: 'a|b'}", "{\"a\":\"bx\"}", false, false},
        {"{field: /a, matches: '.*'}", "{\"a\":\"x\\u0000y\"}", true, false},
        {"{field: /a, matches: '.*'}", "{\"a\":[]}", true, false},
        {"{field: /a, begins: [query, '{']}", "{\"a\":\"query { b }\"}", true, true},
        {"{field: /a, begins: [query, '{']}", "{\"a\":\" \\n\\t{ b }\"}", true, true},
        {"{field: /a, begins: [query, '{']}", "{\"a\":\"query\"}", true, true},
        {"{field: /a, begins: [query, '{']}", "{\"a\":\"quer\"}", false, false},
        {"{field: /a, begins: [query, '{']}", "{\"a\":\"mutation { query }\"}", false, false},
        {"{field: /a, begins: [query, '{']}", "{\"a\":\"  \"}", false, false},
        {"{field: /a, begins: [query, '{']}", "{\"a\":[\"query\"]}", true, false},
        {"{field: /a, begins: [query, '{']}", "{}", true, false},
        {"{field: /a, exists: true}", "{\"a\":null}", true, true},
        {"{field: /a, exists: true}", "{}", false, false},
        {"{field: /a, exists: false}", "{}", true, true},
        {"{field: /a, exists: false}", "{\"a\":0}", false, false},
        {"{field: /a, exists: true, over: 5}", "{}", false, false},
        {"{field: /a, over: 5}, {field: /b, equals: x}", "{\"a\":1,\"b\":\"x\"}", true, true},
        {"{field: /a, over: 5}, {field: /b, equals: x}", "{\"a\":1,\"b\":\"y\"}", false, false},
        {"{field: /a/1/b, equals: 1}", "{\"a\":[0,{\"b\":1}]}", true, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_contracts *set = with_condition(a, rows[i].when);
        const sm_contract *c = &set->tools[0].contract;
        const sm_json *args = document(a, rows[i].document);
        expect(sm_conditions_hold(&c->approval.when, args, true) == rows[i].careful,
               "careful: %s on %s", rows[i].when, rows[i].document);
        expect((sm_contract_variant(c, args) != c) == rows[i].plain, "plain: %s on %s",
               rows[i].when, rows[i].document);
        sm_contracts_free(set);
    }
}

static void arguments_that_do_not_fit_are_told_with_their_pointer(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *schema, *document;
        const char *says; /* NULL: it fits */
    } rows[] = {
        {"{}", "5", NULL},
        {"{type: object}", "{}", NULL},
        {"{type: object}", "[]", "the arguments: must be object, not an array"},
        {"{type: [string, 'null']}", "null", NULL},
        {"{type: [string, 'null']}", "1", "must be null or string, not a number"},
        {"{type: integer}", "1.0", NULL},
        {"{type: integer}", "1e2", NULL},
        {"{type: integer}", "12345678901234567890123", NULL},
        {"{type: integer}", "1.5", "must be integer"},
        {"{type: number}", "1.5", NULL},
        {"{type: boolean}", "false", NULL},
        {"{required: [a, b]}", "{\"a\":1}", "/b: is required"},
        {"{required: [a/b]}", "{}", "/a~1b: is required"},
        {"{required: [a]}", "5", NULL},
        {"{properties: {a: {type: string}}}", "{\"a\":1}", "/a: must be string"},
        {"{properties: {a: {properties: {b: {type: string}}}}}", "{\"a\":{\"b\":1}}",
         "/a/b: must be string"},
        {"{properties: {a: {}}, additionalProperties: false}", "{\"a\":1}", NULL},
        {"{properties: {a: {}}, additionalProperties: false}", "{\"a\":1,\"x\":2}",
         "/x: is not an argument of this tool"},
        {"{properties: {a: {}}, additionalProperties: {type: string}}", "{\"x\":2}",
         "/x: must be string"},
        {"{additionalProperties: true}", "{\"x\":2}", NULL},
        {"{enum: [usd, eur]}", "\"usd\"", NULL},
        {"{enum: [usd, eur]}", "\"gbp\"", "must be one of [\"usd\",\"eur\"]"},
        {"{enum: [1, {a: 2}]}", "{\"a\":2.0}", NULL},
        {"{minimum: 1, maximum: 10}", "1", NULL},
        {"{minimum: 1, maximum: 10}", "0.9999999999999999999999", "must be at least 1"},
        {"{minimum: 1, maximum: 10}", "10.0000000000000000001", "must be at most 10"},
        {"{minimum: 1, maximum: 10}", "10.0", NULL},
        {"{minimum: 1}", "\"0\"", NULL},
        {"{minLength: 2}", "\"\xC3\xA9\"", "at least 2 characters, has 1"},
        {"{minLength: 1}", "\"\xC3\xA9\"", NULL},
        {"{maxLength: 1}", "\"\xC3\xA9\"", NULL},
        {"{maxLength: 0}", "\"a\"", "at most 0 characters, has 1"},
        {"{pattern: 'b+'}", "\"abc\"", NULL},
        {"{pattern: '^b'}", "\"abc\"", "must match ^b"},
        {"{items: {type: number}}", "[1,2]", NULL},
        {"{items: {type: number}}", "[1,\"2\"]", "/1: must be number"},
        {"{items: {type: number}}", "{}", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str text = sm_arena_printf(a, "version: 1\ntools:\n  t: {input: %s}\n", rows[i].schema);
        sm_contracts *set = contracts(text.p);
        sm_fault fault = {0};
        sm_err e =
            sm_schema_check(set->tools[0].contract.input, document(a, rows[i].document), &fault);
        if (rows[i].says == NULL) {
            expect(e == SM_OK, "%s on %s: %s", rows[i].schema, rows[i].document, fault.text);
        } else {
            expect(e == SEMEL_E_BAD_ARGUMENTS && strstr(fault.text, rows[i].says) != NULL,
                   "%s on %s: <%s>", rows[i].schema, rows[i].document, fault.text);
        }
        sm_contracts_free(set);
    }
}

/* What a hostile value could make expensive is not matched at all. */
static void a_value_too_long_to_match_is_not_matched(void **state)
{
    sm_arena *a = *state;
    sm_contracts *set = contracts("version: 1\ntools:\n  t: {input: {properties: {a: {pattern: "
                                  "'[0-9]+-[0-9]+'}}}, approval: {when: [{field: /a, matches: "
                                  "'x*'}]}, variants: [{when: [{field: /a, matches: '1*'}]}]}\n");
    const sm_contract *c = &set->tools[0].contract;
    for (size_t n = SM_MATCH_MAX; n <= SM_MATCH_MAX + 1; n++) {
        sm_buf text;
        sm_buf_init(&text, SM_ARENA_MAX);
        sm_buf_text(&text, "{\"a\":\"");
        for (size_t i = 0; i < n; i++)
            sm_buf_byte(&text, '1');
        sm_buf_text(&text, "\"}");
        sm_buf_byte(&text, '\0');
        const sm_json *args = document(a, text.p);
        bool fits = n == SM_MATCH_MAX;
        sm_fault fault;
        assert_int_equal(sm_schema_check(c->input, args, &fault), SEMEL_E_BAD_ARGUMENTS);
        assert_true((strstr(fault.text, "too long") == NULL) == fits);
        assert_int_equal(sm_conditions_hold(&c->approval.when, args, true), !fits);
        assert_int_equal(sm_contract_variant(c, args) != c, fits);
        sm_buf_fini(&text);
    }
    sm_contracts_free(set);
}

static void patterns_mean_the_same_in_every_locale(void **state)
{
    sm_arena *a = *state;
    static const char *const locales[] = {"C", "C.UTF-8"};
    for (size_t i = 0; i < COUNT(locales); i++) {
        assert_non_null(setlocale(LC_ALL, locales[i]));
        sm_contracts *set = with_condition(a, "{field: /a, matches: '..'}");
        const sm_contract *c = &set->tools[0].contract;
        expect(sm_contract_variant(c, document(a, "{\"a\":\"\xC3\xA9\"}")) != c, "%s", locales[i]);
        sm_contracts_free(set);
    }
    setlocale(LC_ALL, "C");
}

static void absence_is_proved_only_by_an_answer_of_the_expected_form(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *document;
        bool proved;
    } cases[] = {{"{\"data\":[]}", true},
                 {"{\"data\":{}}", true},
                 {"{\"data\":[{}]}", false},
                 {"{\"data\":\"who knows\"}", false},
                 {"{\"data\":null}", false},
                 {"{\"error\":\"slow down\"}", false},
                 {"[]", false}};
    sm_contracts *set = with_condition(a, "{field: /data/0, exists: false}");
    const sm_contract *c = &set->tools[0].contract;
    for (size_t i = 0; i < COUNT(cases); i++)
        expect(sm_conditions_prove(&c->approval.when, document(a, cases[i].document)) ==
                   cases[i].proved,
               "%s", cases[i].document);
    sm_contracts_free(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(conditions_hold_as_written),
        with_arena(arguments_that_do_not_fit_are_told_with_their_pointer),
        with_arena(a_value_too_long_to_match_is_not_matched),
        with_arena(patterns_mean_the_same_in_every_locale),
        with_arena(absence_is_proved_only_by_an_answer_of_the_expected_form),
    };
    return cmocka_run_group_tests_name("conditions", tests, NULL, NULL);
}
