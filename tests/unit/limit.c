/* Slots of limits: when they are free, and what taking them comes to. */
#include "unit.h"

#include "core/limit.h"

#define T0   ((int64_t)1700000000000)
#define HOUR ((int64_t)3600000)

static void a_slot_is_free_when_its_time_is_over_or_it_was_freed(void **state)
{
    (void)state;
    const struct {
        int64_t value;
        bool free;
        int64_t free_at;
    } rows[] = {
        {0, true, 0},
        {sm_slot_taken(T0), true, T0},
        {sm_slot_taken(T0 + 1), false, T0 + 1},
        {sm_slot_freed(T0 + HOUR), true, T0 + HOUR},
        {sm_slot_freed(T0 - HOUR), true, T0 - HOUR},
        /* what is left if a store removes the counter while somebody takes the slot */
        {2 * HOUR, false, INT64_MAX},
        {2 * HOUR + 1, false, INT64_MAX},
        {1, false, INT64_MAX},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        int64_t at;
        bool free = sm_slot_free(rows[i].value, T0, &at);
        expect(free == rows[i].free && at == rows[i].free_at, "row %zu: %d %lld", i, free,
               (long long)at);
    }
}

static void a_slot_only_grows(void **state)
{
    (void)state;
    const int64_t values[] = {0, sm_slot_taken(T0), sm_slot_freed(T0 + HOUR),
                              sm_slot_freed(T0 + 2 * HOUR)};
    for (size_t i = 0; i < COUNT(values); i++) {
        int64_t end = sm_slot_take(values[i], T0, HOUR);
        expect(end >= T0 + HOUR && sm_slot_taken(end) > values[i] &&
                   sm_slot_freed(end) > sm_slot_taken(end),
               "row %zu: until %lld", i, (long long)end);
    }
    assert_int_equal(sm_slot_take(0, T0, HOUR), T0 + HOUR);
    assert_int_equal(sm_slot_take(sm_slot_freed(T0 + HOUR), T0, HOUR), T0 + HOUR + 1);
}

static sm_destination destination(const char *of, const char *scope, const char *args,
                                  const char *per, int64_t window, uint8_t secret)
{
    sm_arena a;
    sm_buf scratch;
    sm_fault fault = {0};
    const sm_json *tree;
    sm_destinations out;
    sm_hash key = {{secret}};
    sm_arena_init(&a, 1 << 20);
    sm_buf_init(&scratch, 4096);
    sm_limit_rule rule = {.calls = 1, .window_ms = window};
    assert_int_equal(sm_pointer_parse(&a, sm_str_from(per), &rule.per, NULL), SM_OK);
    assert_int_equal(sm_json_read(&a, sm_str_from(args), &sm_json_args_limits, &tree, NULL), SM_OK);
    sm_limits limits = {&rule, 1, sm_str_from(of)};
    assert_int_equal(
        sm_destinations_find(&scratch, &limits, sm_str_from(scope), tree, &key, &out, &fault),
        SM_OK);
    assert_int_equal(out.n, 1);
    sm_buf_fini(&scratch);
    sm_arena_fini(&a);
    return out.v[0];
}

static void a_destination_is_a_value_of_a_tool_and_a_tenant(void **state)
{
    (void)state;
    sm_destination d = destination("t", "acme/bot/1", "{\"to\":\"ann\"}", "/to", HOUR, 1);
    sm_destination same =
        destination("t", "acme/x", "{\"to\":\"\\u0061nn\",\"n\":1}", "/to", HOUR, 1);
    assert_memory_equal(d.id, same.id, sizeof d.id);
    const sm_destination others[] = {
        destination("u", "acme/bot/1", "{\"to\":\"ann\"}", "/to", HOUR, 1),
        destination("t", "acm/e", "{\"to\":\"ann\"}", "/to", HOUR, 1),
        destination("t", "acme/bot/1", "{\"to\":\"bob\"}", "/to", HOUR, 1),
        destination("t", "acme/bot/1", "{\"cc\":\"ann\"}", "/cc", HOUR, 1),
        destination("t", "acme/bot/1", "{\"to\":\"ann\"}", "/to", 2 * HOUR, 1),
        destination("t", "acme/bot/1", "{\"to\":\"ann\"}", "/to", HOUR, 2),
    };
    for (size_t i = 0; i < COUNT(others); i++)
        expect(memcmp(d.id, others[i].id, sizeof d.id) != 0, "row %zu", i);
    char text[SM_SLOT_NAME];
    sm_str name = sm_slot_name(d.id, 99, text);
    assert_true(name.n < SM_SLOT_NAME && memmem(name.p, name.n, "ann", 3) == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slot_is_free_when_its_time_is_over_or_it_was_freed),
        cmocka_unit_test(a_slot_only_grows),
        cmocka_unit_test(a_destination_is_a_value_of_a_tool_and_a_tenant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
