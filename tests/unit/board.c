/* The board: who has room on it, for how long, and what it says of circuits. */
#include "unit.h"

#include <stdio.h>

#include "core/board.h"

#define DAY_MS ((int64_t)24 * 3600 * 1000)
#define NOW    ((int64_t)1800000000000)

static sm_arena arena;

static sm_str name_of(const char *what, int n, size_t bytes)
{
    char *text = sm_arena_alloc(&arena, bytes + 32);
    int head = snprintf(text, 32, "%s-%d/", what, n);
    memset(text + head, 'x', bytes);
    return (sm_str){text, (size_t)head + bytes};
}

static bool loops(sm_board *b, int n, size_t bytes, int64_t at)
{
    return sm_board_add(&arena, b,
                        &(sm_halt){.kind = SM_HALT_LOOP,
                                   .name = name_of("run", n, bytes),
                                   .at = at,
                                   .match = {.period = 1, .count = 8}});
}

static bool is_stopped(const sm_board *b, int n, size_t bytes)
{
    return sm_board_find(b, SM_HALT_LOOP, name_of("run", n, bytes)) != NULL;
}

/* As it is written and read. */
static size_t bytes_of(const sm_board *b)
{
    sm_buf out;
    sm_board again;
    sm_buf_init(&out, 16 * SM_BOARD_MAX);
    sm_board_put(b, &out);
    assert_int_equal(out.err, SM_OK);
    assert_true(sm_board_read(&arena, sm_arena_text(&arena, sm_buf_view(&out)), &again));
    assert_int_equal(again.n, b->n);
    assert_int_equal(again.n_circuits, b->n_circuits);
    size_t n = out.len;
    sm_buf_fini(&out);
    return n;
}

static void begin_board(sm_board *b)
{
    sm_arena_fini(&arena);
    sm_arena_init(&arena, (size_t)1 << 30);
    *b = (sm_board){0};
}

static void thousands_of_runs_that_loop_leave_room_for_the_stop_button(void **state)
{
    (void)state;
    sm_board b;
    begin_board(&b);
    int added = 0;
    for (int n = 0; n < 5000; n++)
        added += loops(&b, n, 490, NOW + n);
    assert_int_equal(sm_board_loops(&b), added);
    assert_in_range(bytes_of(&b), SM_BOARD_MAX / 4, SM_BOARD_MAX / 2);
    for (int n = 0; n < 60; n++) { /* 270 KB of them */
        sm_halt h = {.kind = SM_HALT_SCOPE,
                     .name = name_of("acme", n, 490),
                     .reason = name_of("\"why\"", n, 4000),
                     .at = NOW};
        assert_true(sm_board_add(&arena, &b, &h));
    }
    assert_true(sm_board_add(&arena, &b, &(sm_halt){.kind = SM_HALT_ALL, .at = NOW}));
    assert_int_equal(sm_board_loops(&b), added); /* nobody had to go */
    for (int n = 60; n < 200; n++) {
        sm_halt h = {.kind = SM_HALT_SCOPE,
                     .name = name_of("acme", n, 490),
                     .reason = name_of("why", n, 4000),
                     .at = NOW};
        assert_true(sm_board_add(&arena, &b, &h));
    }
    assert_true(bytes_of(&b) <= SM_BOARD_MAX);
    assert_true(sm_board_loops(&b) < (uint32_t)added);
    assert_false(is_stopped(&b, 0, 490)); /* the oldest */
    assert_true(is_stopped(&b, added - 1, 490));
}

static void a_board_that_is_full_of_runs_takes_what_a_person_stops(void **state)
{
    (void)state;
    sm_board b;
    begin_board(&b);
    b.halts = sm_arena_zalloc(&arena, SM_HALTS_MAX, sizeof *b.halts);
    for (b.n = 0; b.n < SM_HALTS_MAX; b.n++)
        b.halts[b.n] =
            (sm_halt){.kind = SM_HALT_LOOP, .name = name_of("run", (int)b.n, 1), .at = NOW + b.n};
    assert_true(sm_board_add(&arena, &b, &(sm_halt){.kind = SM_HALT_ALL, .at = NOW}));
    assert_non_null(sm_board_stops(&b, SM_STR("any"), SM_STR("t")));
    assert_false(is_stopped(&b, 0, 1));
    assert_true(is_stopped(&b, 1, 1));
}

static void only_a_run_that_was_stopped_a_day_ago_makes_room_for_another_one(void **state)
{
    (void)state;
    sm_board b;
    begin_board(&b);
    for (int n = 0; n < (int)SM_LOOP_HALTS_MAX; n++)
        assert_true(loops(&b, n, 1, NOW + n));
    assert_false(loops(&b, 9999, 1, NOW + DAY_MS - 1)); /* it is blocked */
    assert_true(is_stopped(&b, 0, 1));
    assert_true(loops(&b, 9999, 1, NOW + DAY_MS));
    assert_false(is_stopped(&b, 0, 1));
    assert_true(is_stopped(&b, 1, 1));
    assert_int_equal(sm_board_loops(&b), SM_LOOP_HALTS_MAX);
}

static void
a_run_that_loops_is_off_the_board_after_a_month_and_what_people_stop_is_not(void **state)
{
    (void)state;
    sm_board b;
    begin_board(&b);
    sm_halt all = {.kind = SM_HALT_ALL, .at = NOW};
    assert_true(sm_board_add(&arena, &b, &all));
    assert_true(loops(&b, 1, 1, NOW));
    assert_true(loops(&b, 2, 1, NOW + 1));
    sm_board_tidy(&b, NOW + SM_LOOP_KEPT_MS);
    assert_int_equal(b.n, 2);
    assert_false(is_stopped(&b, 1, 1));
    assert_true(is_stopped(&b, 2, 1));
}

/* ---- circuits --------------------------------------------------------------------------------*/

static sm_circuit circuit_of(int n, sm_circuit_state state, int64_t since)
{
    return (sm_circuit){
        .of.tool = name_of("tool", n, 1), .state = state, .since = since, .failures = 1};
}

static void a_tool_that_failed_once_is_off_the_board_when_its_row_is_over(void **state)
{
    (void)state;
    sm_board b;
    begin_board(&b);
    sm_circuit closed = circuit_of(1, SM_CIRCUIT_CLOSED, NOW),
               open = circuit_of(2, SM_CIRCUIT_OPEN, NOW);
    assert_true(sm_board_set_circuit(&arena, &b, &closed));
    assert_true(sm_board_set_circuit(&arena, &b, &open));
    sm_board_tidy(&b, NOW + DAY_MS); /* its failure may be up to half a day younger */
    assert_int_equal(b.n_circuits, 2);
    closed.since = NOW + DAY_MS / 4;
    assert_true(sm_board_says(&b, &closed));
    closed.since = NOW + DAY_MS / 2;
    assert_false(sm_board_says(&b, &closed));
    assert_true(sm_board_set_circuit(&arena, &b, &closed));
    sm_board_tidy(&b, NOW + DAY_MS + DAY_MS / 2);
    assert_int_equal(b.n_circuits, 2);
    sm_board_tidy(&b, NOW + 2 * DAY_MS);
    assert_int_equal(b.n_circuits, 1);
    assert_int_equal(b.circuits[0].state, SM_CIRCUIT_OPEN);
}

static void the_closed_circuit_that_failed_longest_ago_makes_room_for_any_other(void **state)
{
    (void)state;
    sm_board b;
    begin_board(&b);
    for (int n = 0; n < (int)SM_CIRCUITS_MAX; n++) {
        sm_circuit c = circuit_of(n, SM_CIRCUIT_CLOSED, NOW - n);
        assert_true(sm_board_set_circuit(&arena, &b, &c));
    }
    for (int n = 0; n < 2; n++) {
        sm_circuit c = circuit_of(9000 + n, n == 0 ? SM_CIRCUIT_CLOSED : SM_CIRCUIT_OPEN, NOW);
        assert_true(sm_board_set_circuit(&arena, &b, &c));
        assert_true(sm_board_says(&b, &c));
        sm_str oldest = name_of("tool", (int)SM_CIRCUITS_MAX - 1 - n, 1);
        assert_null(sm_board_circuit(&b, &(sm_circuit_name){.tool = oldest}));
        assert_int_equal(b.n_circuits, SM_CIRCUITS_MAX);
    }
    for (int n = 0; n < 5000; n++) { /* long names have a quarter of it */
        sm_circuit c = circuit_of(10000 + n, SM_CIRCUIT_OPEN, NOW);
        c.of.upstream = name_of("https://host", n, 240);
        sm_board_set_circuit(&arena, &b, &c);
    }
    assert_true(bytes_of(&b) <= SM_BOARD_MAX / 4 + 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thousands_of_runs_that_loop_leave_room_for_the_stop_button),
        cmocka_unit_test(a_board_that_is_full_of_runs_takes_what_a_person_stops),
        cmocka_unit_test(only_a_run_that_was_stopped_a_day_ago_makes_room_for_another_one),
        cmocka_unit_test(
            a_run_that_loops_is_off_the_board_after_a_month_and_what_people_stop_is_not),
        cmocka_unit_test(a_tool_that_failed_once_is_off_the_board_when_its_row_is_over),
        cmocka_unit_test(the_closed_circuit_that_failed_longest_ago_makes_room_for_any_other),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sm_arena_fini(&arena);
    return failed;
}
