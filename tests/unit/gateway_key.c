/* Keys in the header Idempotency-Key, and beside one of the body. */
#include "gateway/api/key.h"

#include "unit.h"

#include "base/limits.h"

static sm_arena arena;

static int start(void **state)
{
    (void)state;
    sm_arena_init(&arena, SM_ARENA_MAX);
    return 0;
}

static int end(void **state)
{
    (void)state;
    sm_arena_fini(&arena);
    return 0;
}

static void keys_come_quoted_and_bare(void **state)
{
    (void)state;
    static const struct {
        const char *header, *key;
    } rows[] = {
        {"abc", "abc"},
        {"\"abc\"", "abc"},
        {"\"a\\\"b\\\\c\"", "a\"b\\c"},
        {"a\"b", "a\"b"},
        {"a b;c=1,d", "a b;c=1,d"},
        {"8e03978e-40d5-43e8-bc93-6894a57f9324", "8e03978e-40d5-43e8-bc93-6894a57f9324"},
        {"", NULL},
        {"\"\"", NULL},
        {"\"abc", NULL},
        {"\"", NULL},
        {"\"abc\\", NULL},
        {"\"a\\bc\"", NULL},
        {"\"abc\";x=1", NULL},
        {"\"a\", \"b\"", NULL},
        {"caf\xC3\xA9", NULL},
        {"a\tb", NULL},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str key;
        sm_fault f = {0};
        sm_err e = gw_key_parse(&arena, sm_str_from(rows[i].header), &key, &f);
        expect((e == SM_OK) == (rows[i].key != NULL), "<%s>: %s", rows[i].header, f.text);
        if (rows[i].key != NULL)
            expect_text(key, rows[i].key);
    }
    char longest[2 * SM_KEY_MAX + 10];
    memset(longest, 'k', sizeof longest);
    sm_str key;
    sm_fault f;
    assert_int_equal(gw_key_parse(&arena, (sm_str){longest, SM_KEY_MAX}, &key, &f), SM_OK);
    assert_int_not_equal(gw_key_parse(&arena, (sm_str){longest, SM_KEY_MAX + 1}, &key, &f), SM_OK);
    assert_int_not_equal(gw_key_parse(&arena, (sm_str){longest, sizeof longest}, &key, &f), SM_OK);
}

static void two_keys_must_be_equal(void **state)
{
    (void)state;
    semel_call c = {0};
    sm_fault f;
    assert_int_equal(gw_key_take(&arena, SM_STR("\"k-1\""), &c, &f), SM_OK);
    expect_text(c.key, "k-1");
    assert_int_equal(gw_key_take(&arena, SM_STR("k-1"), &c, &f), SM_OK);
    assert_int_equal(gw_key_take(&arena, (sm_str){0}, &c, &f), SM_OK);
    expect_text(c.key, "k-1");
    assert_int_equal(gw_key_take(&arena, SM_STR("k-2"), &c, &f), SEMEL_E_BAD_ARGUMENTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_come_quoted_and_bare),
        cmocka_unit_test(two_keys_must_be_equal),
    };
    return cmocka_run_group_tests_name("gateway_key", tests, start, end);
}
