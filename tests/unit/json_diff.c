/* Where two documents differ. */
#include "unit.h"

#include "json/diff.h"

typedef struct heard {
    sm_arena *arena;
    sm_buf text;
    size_t stop_after;
} heard;

/* Writes "pointer a b; " for each difference, - for a side that has nothing. */
static bool hear(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    heard *h = context;
    sm_buf_printf(&h->text, "%.*s ", SM_FMT(pointer));
    sm_buf_text(&h->text, a == NULL ? "-" : canonical(h->arena, a));
    sm_buf_byte(&h->text, ' ');
    sm_buf_text(&h->text, b == NULL ? "-" : canonical(h->arena, b));
    sm_buf_text(&h->text, "; ");
    return h->stop_after == 0 || --h->stop_after > 0;
}

static const char *differences(sm_arena *a, const char *one, const char *other, size_t stop_after)
{
    heard h = {.arena = a, .stop_after = stop_after};
    sm_buf_init(&h.text, 1 << 20);
    assert_int_equal(sm_json_diff(document(a, one), document(a, other), hear, &h), SM_OK);
    sm_str text = sm_arena_text(a, sm_buf_view(&h.text));
    sm_buf_fini(&h.text);
    return text.p;
}

static void equal_values_do_not_differ(void **state)
{
    sm_arena *a = *state;
    static const char *const rows[][2] = {
        {"null", "null"},
        {"{\"a\":1,\"b\":[2,{\"c\":null}]}", "{\"b\":[2.0,{\"c\":null}],\"a\":1e0}"},
        {"[1,1.0,10e-1,-0]", "[1.0,1,1,0]"},
        {"1e21", "1000000000000000000000"},
        {"0.1", "0.1000000000000000055511151231257827"},
        {"1e-400", "0"},
        {"1e400", "1e400"}, /* no form, but the same text */
        {"\"\\u0061\\/\"", "\"a/\""},
        {"{\"\\u0061\":\"\\ud83d\\ude00\"}", "{\"a\":\"\xF0\x9F\x98\x80\"}"},
        {"[]", "[ ]"},
        {"{}", "{ }"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_text(sm_str_from(differences(a, rows[i][0], rows[i][1], 0)), "");
        assert_true(sm_json_equal(document(a, rows[i][0]), document(a, rows[i][1])));
    }
}

static void differences_are_told_in_canonical_order(void **state)
{
    sm_arena *a = *state;
    static const struct {
        const char *a, *b, *differences;
    } rows[] = {
        {"1", "2", " 1 2; "}, /* the empty pointer: the whole document */
        {"1", "\"1\"", " 1 \"1\"; "},
        {"true", "false", " true false; "},
        {"null", "false", " null false; "},
        {"9007199254740992", "9007199254740993", " 9007199254740992 9007199254740993; "},
        {"{}", "[]", " {} []; "},
        {"[]", "{\"a\":1}", " [] {\"a\":1}; "},
        {"{\"a\":1}", "{\"a\":2}", "/a 1 2; "},
        {"{\"a\":1}", "{}", "/a 1 -; "},
        {"{}", "{\"a\":1}", "/a - 1; "},
        {"{\"a\":1}", "{\"b\":1}", "/a 1 -; /b - 1; "},
        {"{\"b\":1,\"a\":1,\"c\":1}", "{\"c\":2,\"a\":2,\"b\":2}", "/a 1 2; /b 1 2; /c 1 2; "},
        {"{\"d\":1,\"b\":1}", "{\"a\":1,\"c\":1,\"e\":1}",
         "/a - 1; /b 1 -; /c - 1; /d 1 -; /e - 1; "},
        {"{\"\\ufb33\":1,\"\\ud83d\\ude00\":1}", "{}",
         "/\xF0\x9F\x98\x80 1 -; /\xEF\xAC\xB3 1 -; "},
        /* containers of the same kind are looked into, others are told whole */
        {"{\"a\":{\"b\":{\"c\":1,\"d\":2}}}", "{\"a\":{\"b\":{\"c\":1,\"d\":3}}}", "/a/b/d 2 3; "},
        {"{\"a\":{\"b\":1}}", "{\"a\":[1]}", "/a {\"b\":1} [1]; "},
        {"{\"a\":{\"b\":1}}", "{\"a\":null}", "/a {\"b\":1} null; "},
        {"{\"a\":{\"b\":1}}", "{}", "/a {\"b\":1} -; "},
        {"{\"a\":{}}", "{\"a\":{\"b\":{\"c\":1}}}", "/a/b - {\"c\":1}; "},
        /* arrays: by index, whatever was inserted */
        {"[1,2,3]", "[1,3]", "/1 2 3; /2 3 -; "},
        {"[1]", "[1,2,3]", "/1 - 2; /2 - 3; "},
        {"[]", "[[]]", "/0 - []; "},
        {"[[1,2],[3]]", "[[1],[3,4]]", "/0/1 2 -; /1/1 - 4; "},
        {"[0,1,2,3,4,5,6,7,8,9,10,11]", "[0,1,2,3,4,5,6,7,8,9,10,12]", "/11 11 12; "},
        /* after a container has ended, the path is that of the one around it */
        {"{\"a\":{\"x\":1},\"b\":[[1],2],\"c\":3}", "{\"a\":{\"x\":2},\"b\":[[2],3],\"c\":4}",
         "/a/x 1 2; /b/0/0 1 2; /b/1 2 3; /c 3 4; "},
        {"{\"a/b\":{\"c~d\":1},\"\":{\"\":1}}", "{\"a/b\":{\"c~d\":2},\"\":{\"\":2}}",
         "// 1 2; /a~1b/c~0d 1 2; "},
        {"{\"amount\":10,\"memo\":\"a\"}", "{\"amount\":99999,\"memo\":\"a\"}",
         "/amount 10 99999; "},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        expect_text(sm_str_from(differences(a, rows[i].a, rows[i].b, 0)), rows[i].differences);
        assert_false(sm_json_equal(document(a, rows[i].a), document(a, rows[i].b)));
        assert_false(sm_json_equal(document(a, rows[i].b), document(a, rows[i].a)));
    }
}

static void numbers_without_a_form_differ_unless_spelled_alike(void **state)
{
    sm_arena *a = *state;
    assert_false(sm_json_equal(document(a, "1e400"), document(a, "10e399")));
    assert_false(sm_json_equal(document(a, "1e400"), document(a, "1")));
    assert_true(sm_json_equal(document(a, "1e400"), document(a, "1e400")));
}

static void the_listener_can_stop(void **state)
{
    sm_arena *a = *state;
    static const char one[] = "{\"a\":1,\"b\":{\"c\":1},\"d\":1}";
    static const char other[] = "{\"a\":2,\"b\":{\"c\":2},\"d\":2}";
    assert_string_equal(differences(a, one, other, 1), "/a 1 2; ");
    assert_string_equal(differences(a, one, other, 2), "/a 1 2; /b/c 1 2; ");
    assert_string_equal(differences(a, one, other, 3), "/a 1 2; /b/c 1 2; /d 1 2; ");
}

static void the_deepest_documents_are_compared(void **state)
{
    sm_arena *a = *state;
    char one[2 * SM_JSON_DEPTH_MAX + 2], other[2 * SM_JSON_DEPTH_MAX + 2], expected[600] = "";
    for (uint32_t i = 0; i < SM_JSON_DEPTH_MAX; i++) {
        one[i] = '[';
        one[SM_JSON_DEPTH_MAX + 1 + i] = ']';
        strcat(expected, "/0");
    }
    one[SM_JSON_DEPTH_MAX] = '1';
    one[2 * SM_JSON_DEPTH_MAX + 1] = '\0';
    memcpy(other, one, sizeof one);
    other[SM_JSON_DEPTH_MAX] = '2';
    strcat(expected, " 1 2; ");
    assert_string_equal(differences(a, one, other, 0), expected);
}

static void large_objects_are_merged_by_name(void **state)
{
    sm_arena *a = *state;
    sm_buf one, other;
    sm_buf_init(&one, 1 << 20);
    sm_buf_init(&other, 1 << 20);
    for (int i = 0; i < 300; i++)
        sm_buf_printf(&one, "%c\"the name of member %03d\":%d", i == 0 ? '{' : ',', i * 7 % 300,
                      i * 7 % 300);
    for (int i = 0; i < 300; i++)
        sm_buf_printf(&other, "%c\"the name of member %03d\":%d.0", i == 0 ? '{' : ',',
                      i == 250 ? 999 : i, i);
    sm_buf_bytes(&one, "}", 2);
    sm_buf_bytes(&other, "}", 2);
    assert_string_equal(differences(a, one.p, other.p, 0),
                        "/the name of member 250 250 -; /the name of member 999 - 250; ");
    sm_buf_fini(&one);
    sm_buf_fini(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        with_arena(equal_values_do_not_differ),
        with_arena(differences_are_told_in_canonical_order),
        with_arena(numbers_without_a_form_differ_unless_spelled_alike),
        with_arena(the_listener_can_stop),
        with_arena(the_deepest_documents_are_compared),
        with_arena(large_objects_are_merged_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
