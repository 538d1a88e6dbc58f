/* Runs that repeat themselves: warned, blocked, stopped, reopened; and what people stop. */
#include "ledger.h"

#include <pthread.h>

#include "base/clock.h"
#include "ledger/guard/board.h"
#include "ledger/guard/runs.h"
#include "ledger/service.h"
#include "ledger/work/ledger.h"

#define TOOLS(text) "{version: 1, tools: {" text "}}" /* it is on by default */

static semel_err begin_in(ledger *l, const char *scope, const char *tool, const char *args)
{
    semel_call c = call_of(tool, args);
    c.scope = sm_str_from(scope);
    return take(l, semel_begin(l->s, &c, l->a));
}

static bool says(sm_str text, const char *part)
{
    return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

/* The call runs once, and is answered from its record from then on. */
static void done_once(ledger *l, const char *scope, const char *tool, const char *args)
{
    begin_in(l, scope, tool, args);
    expect_execute(l);
    commit(l, "\"sent\"");
    assert_true(l->a->warning.p == NULL);
}

static void expect_loop(ledger *l, const char *detector, uint32_t period, uint32_t count)
{
    expect_refused(l, SEMEL_C_LOOP_DETECTED);
    expect(sm_str_is(l->a->detector, detector) && l->a->period == period && l->a->count == count,
           "%.*s, period %u, %u times", SM_FMT(l->a->detector), l->a->period, l->a->count);
    assert_false(l->a->retriable);
}

/* How often the ledger is told what a run does depends on time, beyond once for each step. */
static bool add_what(void *context, const semel_event *e)
{
    if (e->id != 0 && !sm_str_is(e->what, "looped")) /* nor a seal */
        strncat(strncat(context, e->what.p, e->what.n), " ", 2);
    return true;
}

/* What the events of the whole ledger are called, in their order. */
static const char *all_that_happened(ledger *l)
{
    static char text[4096];
    uint64_t after = 0;
    text[0] = '\0';
    assert_int_equal(semel_events(l->s, (sm_str){0}, &after, 100, add_what, text, NULL), SEMEL_OK);
    return text;
}

static void a_repeated_call_is_warned_of_then_blocked_then_its_run_is_stopped(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write}, other: {class: write}, get: {class: read}"));
    done_once(&l, "run-1", "mail", "{\"to\":\"ann\"}");
    begin_in(&l, "run-1", "mail", "{\"to\":\"ann\"}");
    expect_replay(&l, "\"sent\"");
    assert_true(l.a->warning.p == NULL);
    for (uint32_t count = 3; count <= 4; count++) {
        begin_in(&l, "run-1", "mail", "{\"to\":\"ann\"}");
        expect_replay(&l, "\"sent\"");
        expect(says(l.a->warning, count == 3
                                      ? "The same call returned the same result 3 times. Use "
                                        "the result you have, change the arguments, or stop."
                                      : "4 times"),
               "%.*s", SM_FMT(l.a->warning));
        assert_int_equal(l.a->count, count);
    }
    for (uint32_t count = 5; count <= 8; count++) {
        begin_in(&l, "run-1", "mail", "{\"to\":\"ann\"}");
        expect_loop(&l, "repeat", 1, count);
        assert_true(l.a->has_outcome); /* nothing is lost */
        expect_text(l.a->outcome.value, "\"sent\"");
        expect(says(l.a->corrective_action,
                    count < 8 ? "change the arguments, or stop" : "A person can reopen the run"),
               "%u: %.*s", count, SM_FMT(l.a->corrective_action));
        assert_int_equal(says(l.a->message, "The run is stopped now"), count == 8);
    }
    /* From now on nothing is written in this run, whatever it is. */
    begin_in(&l, "run-1", "other", "{}");
    expect_loop(&l, "repeat", 1, 8);
    assert_true(says(l.a->message, "until a person reopens it"));
    begin_in(&l, "run-1", "mail", "{\"to\":\"ann\"}");
    expect_loop(&l, "repeat", 1, 8);
    begin_in(&l, "run-1", "get", "{}"); /* but it may go on reading */
    expect_execute(&l);
    begin_in(&l, "run-2", "mail", "{\"to\":\"ann\"}");
    expect_execute(&l);
    expect_text(sm_str_from(all_that_happened(&l)), "started settled tripped started ");
    end_ledger(&l);
}

static void whoever_reopens_a_run_lets_it_begin_anew(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write, loop: {warn: 2, block: 2, trip: 3}}"));
    bool changed;
    done_once(&l, "r", "mail", "{}");
    begin_in(&l, "r", "mail", "{}");
    expect_loop(&l, "repeat", 1, 2);
    begin_in(&l, "r", "mail", "{}");
    expect_loop(&l, "repeat", 1, 3);
    begin_in(&l, "r", "mail", "{\"n\":2}");
    expect_refused(&l, SEMEL_C_LOOP_DETECTED);
    assert_int_equal(
        semel_scope_reset(l.s, SM_STR("r"), SM_STR("carol"), SM_STR("mended"), &changed, NULL),
        SEMEL_OK);
    assert_true(changed);
    begin_in(&l, "r", "mail", "{}");
    expect_replay(&l, "\"sent\"");
    begin_in(&l, "r", "mail", "{\"n\":2}");
    expect_execute(&l);
    semel_scope_reset(l.s, SM_STR("r"), SM_STR("carol"), SM_STR("again"), &changed, NULL);
    assert_false(changed);
    end_ledger(&l);
}

static bool reset(ledger *l, const char *scope)
{
    bool changed;
    assert_int_equal(
        semel_scope_reset(l->s, sm_str_from(scope), SM_STR("carol"), SM_STR("why"), &changed, NULL),
        SEMEL_OK);
    return changed;
}

/* Below the first warning the ledger is not told, and the answer is the same. */
static void a_run_that_only_this_process_knows_is_reopened(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write, loop: {warn: 3, block: 3, trip: 9}}"));
    done_once(&l, "r", "mail", "{}");
    begin_in(&l, "r", "mail", "{}");
    expect_replay(&l, "\"sent\"");
    expect_text(sm_str_from(all_that_happened(&l)), "started settled ");
    assert_true(reset(&l, "r"));
    expect_text(sm_str_from(all_that_happened(&l)), "started settled reopened ");
    assert_false(reset(&l, "r")); /* it has begun anew */
    for (int i = 1; i <= 2; i++) {
        begin_in(&l, "r", "mail", "{}");
        expect_replay(&l, "\"sent\"");
    }
    begin_in(&l, "r", "mail", "{}");
    expect_loop(&l, "repeat", 1, 3);
    end_ledger(&l);
}

static void nothing_is_written_about_a_run_that_does_not_repeat_itself(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write}"));
    done_once(&l, "r", "mail", "{\"to\":\"ann\"}");
    done_once(&l, "r", "mail", "{\"to\":\"bob\"}");
    assert_false(reset(&l, "r"));
    assert_false(reset(&l, "nobody"));
    expect_text(sm_str_from(all_that_happened(&l)), "started settled started settled ");
    end_ledger(&l);
}

static void a_failure_that_is_tried_again_and_again_is_a_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    for (int i = 1; i <= 4; i++) {
        begin_in(&l, "r", "t", "{}");
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no such user\"");
        expect((l.a->warning.p != NULL) == (i >= 3), "%d: %.*s", i, SM_FMT(l.a->warning));
    }
    begin_in(&l, "r", "t", "{}"); /* the fifth would be the same again */
    expect_loop(&l, "repeat", 1, 5);
    expect(says(l.a->message, "returned the same result 4 times"), "%.*s", SM_FMT(l.a->message));
    assert_true(l.a->has_outcome);
    end_ledger(&l);
}

static void other_results_are_progress(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    for (int i = 1; i <= 20; i++) {
        char error[32];
        snprintf(error, sizeof error, "\"error %d\"", i / 2);
        begin_in(&l, "r", "t", "{}");
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, error);
        assert_true(l.a->warning.p == NULL);
    }
    end_ledger(&l);
}

static void parts_of_results_that_differ_each_time_do_not_hide_a_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: {volatile: [/at]}}"));
    for (int i = 1; i <= 4; i++) {
        char error[64];
        snprintf(error, sizeof error, "{\"at\":%d,\"error\":\"busy\"}", i);
        begin_in(&l, "r", "t", "{}");
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, error);
    }
    begin_in(&l, "r", "t", "{}");
    expect_loop(&l, "repeat", 1, 5);
    end_ledger(&l);
}

static void calls_that_alternate_are_a_cycle(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("a: {class: write}, b: {class: write}"));
    done_once(&l, "r", "a", "{}");
    done_once(&l, "r", "b", "{}");
    for (int i = 2; i <= 4; i++) {
        begin_in(&l, "r", "a", "{}");
        assert_int_equal(l.a->verdict, SEMEL_REPLAY);
        begin_in(&l, "r", "b", "{}");
        assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    }
    assert_true(says(l.a->warning, "The same 2 calls returned the same results 4 times."));
    begin_in(&l, "r", "a", "{}"); /* the fifth has only begun, and b was new after the first a */
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    begin_in(&l, "r", "b", "{}");
    expect_loop(&l, "cycle", 2, 5);
    end_ledger(&l);
}

static void a_long_list_is_no_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write}"));
    for (int i = 0; i < 500; i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"to\":%d}", i);
        done_once(&l, "r", "mail", args);
    }
    end_ledger(&l);
}

static void the_same_call_under_other_keys_is_the_same_call(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    for (int i = 1; i <= 5; i++) {
        char key[16];
        snprintf(key, sizeof key, "call_%d", i);
        semel_call c = call_of("t", "{}");
        c.key = sm_str_from(key);
        take(&l, semel_begin(l.s, &c, l.a));
        if (i == 5)
            break;
        expect_execute(&l);
        commit(&l, "1");
    }
    expect_loop(&l, "repeat", 1, 5);
    end_ledger(&l);
}

static void a_call_with_a_key_gets_its_outcome_when_it_is_blocked(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    semel_call c = call_of("t", "{}");
    c.key = SM_STR("k");
    take(&l, semel_begin(l.s, &c, l.a));
    expect_execute(&l);
    commit(&l, "1");
    for (uint32_t count = 2; count <= 9; count++) {
        take(&l, semel_begin(l.s, &c, l.a));
        if (count < 5)
            expect_replay(&l, "1");
        else
            expect_loop(&l, "repeat", 1, count < 8 ? count : 8);
        expect_text(l.a->outcome.value, "1");
    }
    end_ledger(&l);
}

static void whoever_joins_a_call_in_flight_does_not_count(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    begin_in(&l, "r", "t", "{}");
    expect_execute(&l);
    char claim[128];
    strcpy(claim, l.claim);
    for (int i = 0; i < 10; i++) {
        begin_in(&l, "r", "t", "{}");
        expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    }
    commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    begin_in(&l, "r", "t", "{}");
    expect_replay(&l, "1");
    assert_true(l.a->warning.p == NULL);
    end_ledger(&l);
}

static void whoever_has_waited_for_a_call_in_flight_does_not_count(void **state)
{
    (void)state;
    enum { WAITERS = 10 };
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    sm_asking q[WAITERS];
    begin_in(&l, "test", "t", "{}");
    expect_execute(&l);
    char claim[128];
    strcpy(claim, l.claim);
    for (int i = 0; i < WAITERS; i++) {
        q[i] = (sm_asking){.call = call_of("t", "{}"), .lease_ms = 5000};
        take(&l, sm_ask(l.s, &q[i], l.a));
        assert_true(q[i].waits);
    }
    commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    for (int i = 0; i < WAITERS; i++) {
        take(&l, sm_ask(l.s, &q[i], l.a));
        expect_replay(&l, "1");
        assert_true(l.a->warning.p == NULL);
        sm_contracts_free(q[i].contracts);
    }
    end_ledger(&l);
}

static void reads_and_tools_that_are_not_listed_are_only_warned_of(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("get: {class: read}, poll: {class: read, loop: {poll: true}}, "
                                "strict: {class: read, loop: {block: 4}}"));
    for (int i = 1; i <= 20; i++) {
        begin_in(&l, "r", "get", "{}");
        assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
        expect((l.a->warning.p != NULL) == (i >= 3), "%d: %.*s", i, SM_FMT(l.a->warning));
    }
    assert_true(says(l.a->warning, "The same call was made 20 times in a row."));
    for (int i = 1; i <= 20; i++) {
        begin_in(&l, "r", "poll", "{}");
        assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
        assert_true(l.a->warning.p == NULL);
    }
    for (int i = 1; i <= 3; i++) {
        begin_in(&l, "r", "strict", "{}");
        assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
    }
    begin_in(&l, "r", "strict", "{}");
    expect_loop(&l, "repeat", 1, 4);
    done_once(&l, "r", "unlisted", "{}");
    for (int i = 2; i <= 20; i++) {
        begin_in(&l, "r", "unlisted", "{}");
        expect_replay(&l, "\"sent\"");
        expect((l.a->warning.p != NULL) == (i >= 3), "%d: %.*s", i, SM_FMT(l.a->warning));
    }
    end_ledger(&l);
}

static void observing_changes_nothing(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: {mode: observe}}, u: {class: write, loop: "
                                "off}"));
    done_once(&l, "r", "t", "{}");
    done_once(&l, "r", "u", "{}");
    for (int i = 0; i < 20; i++) {
        begin_in(&l, "r", "t", "{}");
        expect_replay(&l, "\"sent\"");
        assert_true(l.a->warning.p == NULL);
        begin_in(&l, "r", "u", "{}");
        expect_replay(&l, "\"sent\"");
        assert_true(l.a->warning.p == NULL);
    }
    end_ledger(&l);
}

static void observing_lets_a_failing_call_run(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: {mode: observe}}"));
    for (int i = 1; i <= 20; i++) {
        begin_in(&l, "r", "t", "{}");
        expect_execute(&l);
        expect(sm_str_is(l.a->observed, i < 5 ? "" : "LOOP_DETECTED") ||
                   (i < 5 && l.a->observed.p == NULL),
               "%d: %.*s", i, SM_FMT(l.a->observed));
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no\"");
        assert_true(l.a->warning.p == NULL);
    }
    sm_loop seen;
    assert_int_equal(sm_runs_look(l.s, SM_STR("r"), &seen, NULL), SM_OK);
    assert_int_equal(sm_loop_now(&seen, 4).count, 20); /* what would have been blocked has run */
    end_ledger(&l);
}

/* Between two repeats of one call: nothing that we refuse counts. */
static void refuse_some(ledger *l)
{
    begin_in(l, "r", "t", "[1]"); /* not an object */
    expect_refused(l, SEMEL_C_BAD_ARGUMENTS);
    begin_in(l, "r", "hidden", "{");
    expect_refused(l, SEMEL_C_BAD_ARGUMENTS);
    semel_call c = call_of("t", "{\"n\":2}");
    c.scope = SM_STR("r");
    c.key = SM_STR("k");
    take(l, semel_begin(l->s, &c, l->a));
    expect_refused(l, SEMEL_C_KEY_CONFLICT);
    begin_in(l, "r", "slow", "{}");
    expect_refused(l, SEMEL_C_RETRY_IN_FLIGHT);
    begin_in(l, "r", "asks", "{}");
    expect_refused(l, SEMEL_C_AWAITING_APPROVAL);
    semel_renew(l->s, SM_STR("cl_nothing"), 0, l->a);
    expect_refused(l, SEMEL_C_BAD_CLAIM);
}

static void what_is_refused_ends_no_streak(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, input: {type: object}}, slow: {class: write}, "
                                "asks: {class: write, approval: {}}"));
    begin_in(&l, "r", "slow", "{}");
    expect_execute(&l);
    semel_call keyed = call_of("t", "{\"n\":1}");
    keyed.scope = SM_STR("r");
    keyed.key = SM_STR("k");
    take(&l, semel_begin(l.s, &keyed, l.a));
    expect_execute(&l);
    commit(&l, "1");
    done_once(&l, "r", "t", "{}");
    for (uint32_t count = 2; count <= 8; count++) {
        if (count <= 4)
            refuse_some(&l);
        begin_in(&l, "r", "t", "{}");
        if (count >= 5)
            expect_loop(&l, "repeat", 1, count);
        else
            expect_replay(&l, "\"sent\"");
        assert_int_equal(l.a->warning.p != NULL, count == 3 || count == 4);
    }
    end_ledger(&l);
}

static void polling_is_narrow(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("poll: {class: read, loop: {poll: true, warn: 2, block: 2}}, "
                                "look: {class: read, loop: off}, get: {class: read}, mail: "
                                "{class: write}"));
    for (int i = 0; i < 20; i++) {
        begin_in(&l, "r", "poll", "{}");
        assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
        assert_true(l.a->warning.p == NULL);
    }
    /* With others in between it is a cycle like every other. */
    done_once(&l, "r", "mail", "{}");
    begin_in(&l, "r", "poll", "{}");
    assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
    begin_in(&l, "r", "mail", "{}");
    expect_replay(&l, "\"sent\"");
    begin_in(&l, "r", "poll", "{}");
    expect_loop(&l, "cycle", 2, 2);
    for (int i = 0; i < 2; i++) { /* nor is another read the same as polling */
        begin_in(&l, "r2", "get", "{}");
        assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
        begin_in(&l, "r2", "poll", "{}");
    }
    expect_loop(&l, "cycle", 2, 2);
    end_ledger(&l);
    /* And only a read can be declared so, one by one. */
    const char *const wide[] = {TOOLS("t: {class: write, loop: {poll: true}}"),
                                TOOLS("\"t*\": {class: read, loop: {poll: true}}"),
                                "{version: 1, defaults: {loop: {poll: true}}, tools: {}}"};
    for (size_t i = 0; i < COUNT(wide); i++) {
        semel_options o = {.size = sizeof o, .url = "memory:", .contract = sm_str_from(wide[i])};
        semel *s;
        assert_int_equal(semel_open(&o, &s, NULL), SEMEL_E_INVALID);
    }
}

/* ---- what agents do --------------------------------------------------------------------------*/

/* The call runs and does something new, and nobody is warned. */
static void does(ledger *l, const char *tool, int n)
{
    char args[32];
    snprintf(args, sizeof args, "{\"n\":%d}", n);
    done_once(l, "r", tool, args);
}

static void reads(ledger *l, const char *tool)
{
    begin_in(l, "r", tool, "{}");
    assert_int_equal(l->a->verdict, SEMEL_EXECUTE);
}

static void edits_and_tests_in_turn_are_no_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("edit: {class: write}, test: {class: read}"));
    for (int i = 0; i < 40; i++) {
        does(&l, "edit", i);
        reads(&l, "test");
        assert_true(l.a->warning.p == NULL);
    }
    end_ledger(&l);
}

/* The run tells the ledger of itself when it is warned, and takes over what is known there. */
static void work_that_was_new_is_new_after_the_ledger_was_told(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("edit: {class: write}, test: {class: read, loop: {block: 5}}, "
                                "mail: {class: write}"));
    for (int i = 0; i < 4; i++) {
        does(&l, "edit", i);
        reads(&l, "test");
    }
    done_once(&l, "r", "mail", "{}");
    for (int i = 0; i < 3; i++)
        begin_in(&l, "r", "mail", "{}");
    assert_true(l.a->warning.p != NULL); /* here it was told */
    reads(&l, "test");
    assert_true(l.a->warning.p == NULL);
    end_ledger(&l);
}

static void a_batch_that_reads_the_same_between_its_items_is_no_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("template: {class: read}, send: {class: write}"));
    for (int i = 0; i < 500; i++) {
        reads(&l, "template");
        assert_true(l.a->warning.p == NULL);
        does(&l, "send", i);
    }
    end_ledger(&l);
}

static void read_and_failing_edit_and_failing_test_are_a_cycle_of_three(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("look: {class: read}, edit: {class: write}, test: {class: read}"));
    int edits = 0;
    for (int round = 1; round <= 20; round++) {
        reads(&l, "look");
        begin_in(&l, "r", "edit", "{}");
        if (l.a->verdict != SEMEL_EXECUTE)
            break;
        edits++;
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no match\"");
        assert_int_equal(l.a->warning.p != NULL, round >= 3);
        reads(&l, "test");
    }
    assert_int_equal(edits, 4);
    expect_loop(&l, "cycle", 3, 5);
    end_ledger(&l);
}

static void the_same_error_85_times_runs_four_times(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    int ran = 0, warned = 0;
    for (int i = 1; i <= 85; i++) {
        begin_in(&l, "r", "t", "{}");
        if (l.a->verdict == SEMEL_EXECUTE) {
            ran++;
            commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no such user\"");
            warned += l.a->warning.p != NULL;
        } else {
            expect_refused(&l, SEMEL_C_LOOP_DETECTED);
        }
    }
    assert_int_equal(ran, 4);
    assert_int_equal(warned, 2);
    assert_true(says(l.a->message, "until a person reopens it"));
    end_ledger(&l);
}

/* A read whose results the caller tells; the warning of its end. */
static void read_ended(ledger *l, const char *tool, const char *result)
{
    sm_asking q = {.call = call_of(tool, "{}"), .tells = true};
    q.call.scope = SM_STR("r");
    assert_int_equal(sm_ask(l->s, &q, l->a), SM_OK);
    assert_int_equal(l->a->verdict, SEMEL_EXECUTE);
    assert_true(l->a->warning.p == NULL);
    sm_contracts_free(q.contracts);
    sm_passed p = {q.passed, SM_STR("r"), sm_str_from(tool)};
    semel_outcome o = {.size = sizeof o, .value = sm_str_from(result), .is_json = true};
    sm_pass_ended(l->s, &p, &o, l->a);
}

static void a_read_that_returns_something_new_is_no_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("status: {class: read}, noisy: {class: read, loop: {volatile: "
                                "[/nonce]}}"));
    char result[64];
    for (int i = 0; i < 50; i++) { /* polling, although nobody has declared it */
        snprintf(result, sizeof result, "{\"percent\":%d}", 2 * i);
        read_ended(&l, "status", result);
        assert_true(l.a->warning.p == NULL);
    }
    for (int i = 1; i <= 10; i++) {
        read_ended(&l, "status", "{\"percent\":99}");
        assert_int_equal(l.a->warning.p != NULL, i >= 3);
    }
    for (int i = 1; i <= 10; i++) {
        snprintf(result, sizeof result, "{\"nonce\":%d,\"state\":\"pending\"}", i);
        read_ended(&l, "noisy", result);
        assert_int_equal(l.a->warning.p != NULL, i >= 3);
    }
    for (int i = 1; i <= 10; i++) { /* what nobody declared to be volatile hides it */
        read_ended(&l, "status", (snprintf(result, sizeof result, "%d", i), result));
        assert_true(l.a->warning.p == NULL);
    }
    end_ledger(&l);
}

/* ---- many callers ----------------------------------------------------------------------------*/

enum { CALLERS = 16, CALLS_EACH = 100 };

typedef struct crowd {
    semel *s;
    atomic_uint replays, refused;
    atomic_uint_fast32_t highest;
} crowd;

static void *call_again(void *context)
{
    crowd *c = context;
    ledger l = {.s = c->s, .a = semel_answer_new()};
    for (int i = 0; i < CALLS_EACH; i++) {
        begin_in(&l, "r", "t", "{}");
        atomic_fetch_add(l.a->verdict == SEMEL_REPLAY ? &c->replays : &c->refused, 1);
        uint_fast32_t highest = atomic_load(&c->highest);
        while (l.a->count > highest &&
               !atomic_compare_exchange_weak(&c->highest, &highest, l.a->count))
            continue;
    }
    semel_answer_free(l.a);
    return NULL;
}

static bool count_looped(void *context, const semel_event *e)
{
    *(unsigned *)context += sm_str_is(e->what, "looped");
    return true;
}

/* All repeat one call, and none waits for the others to tell the ledger: they do so one at a time,
 * ten times a second. And what several tell is not counted twice. */
static void many_callers_of_one_call_do_not_wait_for_each_other(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: {warn: 2, block: 100000}}"));
    crowd c = {.s = l.s};
    pthread_t threads[CALLERS];
    done_once(&l, "r", "t", "{}");
    int64_t began_ns = sm_clock_mono_ns();
    for (int i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_again, &c), 0);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    int64_t took_ms = (sm_clock_mono_ns() - began_ns) / 1000000;
    assert_int_equal(c.replays, CALLERS * CALLS_EACH);
    assert_int_equal(c.refused, 0);
    expect(c.highest <= CALLERS * CALLS_EACH + 1, "counted %u", (unsigned)c.highest);
    unsigned looped = 0;
    uint64_t after = 0, before;
    do {
        before = after;
        assert_int_equal(semel_events(l.s, (sm_str){0}, &after, 100, count_looped, &looped, NULL),
                         SEMEL_OK);
    } while (after != before);
    expect(looped >= 1 && looped <= took_ms / 100 + 2, "told %u times in %lld ms", looped,
           (long long)took_ms);
    end_ledger(&l);
}

static void an_answer_from_memory_counts_too(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    done_once(&l, "scope", "t", "{}");
    for (int i = 2; i <= 4; i++) {
        sm_asking q = {.call = call_of("t", "{}")};
        q.call.scope = SM_STR("scope");
        bool memory = sm_ask_memory(l.s, &q, l.a);
        if (!memory) {
            assert_int_equal(sm_ask(l.s, &q, l.a), SM_OK);
            sm_contracts_free(q.contracts);
        }
        assert_int_equal(l.a->verdict, SEMEL_REPLAY);
        assert_int_equal(l.a->warning.p != NULL, i >= 3);
    }
    sm_asking q = {.call = call_of("t", "{}")};
    q.call.scope = SM_STR("scope");
    assert_false(sm_ask_memory(l.s, &q, l.a));
    assert_int_equal(sm_ask(l.s, &q, l.a), SM_OK);
    sm_contracts_free(q.contracts);
    expect_loop(&l, "repeat", 1, 5);
    end_ledger(&l);
}

/* ---- several processes -----------------------------------------------------------------------*/

static void two_handles_of_one_ledger_count_together(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}");
    ledger l[2];
    for (int i = 0; i < 2; i++)
        l[i] = (ledger){.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    done_once(&l[0], "r", "t", "{}");
    int calls = 1;
    do {
        ledger *now = &l[calls++ % 2];
        begin_in(now, "r", "t", "{}");
    } while (l[(calls - 1) % 2].a->code != SEMEL_C_LOOP_DETECTED && calls < 40);
    expect(calls >= 5 && calls <= 8, "blocked at call %d", calls);
    end_ledger(&l[0]);
    end_ledger(&l[1]);
}

static void a_process_that_starts_again_goes_on_counting(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}");
    ledger l = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    done_once(&l, "r", "t", "{}");
    for (int i = 2; i <= 4; i++) {
        begin_in(&l, "r", "t", "{}");
        expect_replay(&l, "\"sent\"");
    }
    end_ledger(&l);
    l = (ledger){.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    int more = 0;
    do {
        begin_in(&l, "r", "t", "{}");
        more++;
    } while (l.a->code != SEMEL_C_LOOP_DETECTED && more < 20);
    expect(more == 1, "blocked after %d more", more);
    end_ledger(&l);
}

static void a_process_that_is_restarted_after_every_call_counts_them(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}");
    for (int n = 1; n <= 6; n++) { /* the first one repeats nothing, and tells nothing */
        ledger l = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
        begin_in(&l, "r", "t", "{}");
        if (n == 1)
            commit(&l, "1");
        expect(l.a->verdict == (n == 1  ? SEMEL_DONE
                                : n < 6 ? SEMEL_REPLAY
                                        : SEMEL_REFUSED) &&
                   (l.a->warning.p != NULL) == (n == 4 || n == 5),
               "call %d: verdict %d, %.*s", n, (int)l.a->verdict, SM_FMT(l.a->warning));
        end_ledger(&l);
    }
}

/* Whether or not this process has refused something since the run was stopped, and whoever stopped
 * it. */
static void a_run_that_another_process_reopens_begins_anew_here(void **state)
{
    (void)state;
    enum { NOTHING_SINCE, A_NEW_CALL_SINCE, A_REPEAT_SINCE, STOPPED_ELSEWHERE, CASES };
    const char *contract = TOOLS("t: {class: write, loop: {warn: 2, block: 2, trip: 3}}");
    for (int i = 0; i < CASES; i++) {
        char url[512];
        strcpy(url, fresh_url());
        ledger l = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
        ledger m = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        done_once(&l, "r", "t", "{}");
        begin_in(&l, "r", "t", "{}");
        expect_loop(&l, "repeat", 1, 2);
        ledger *last = i == STOPPED_ELSEWHERE ? &m : &l;
        for (int calls = 0; calls < 2 && last->a->count < 3; calls++)
            begin_in(last, "r", "t", "{}"); /* another process may not know of the newest one */
        expect_loop(last, "repeat", 1, 3);
        assert_int_equal(sm_board_refresh(l.s, 0, NULL), SM_OK);
        if (i != NOTHING_SINCE) {
            begin_in(&l, "r", "t", i == A_REPEAT_SINCE ? "{}" : "{\"n\":1}");
            expect_loop(&l, "repeat", 1, 3);
        }
        assert_true(reset(&m, "r"));
        assert_int_equal(sm_board_refresh(l.s, 0, NULL), SM_OK);
        begin_in(&l, "r", "t", "{}");
        expect_replay(&l, "\"sent\"");
        begin_in(&l, "r", "t", "{}");
        expect_loop(&l, "repeat", 1, 2);
        end_ledger(&m);
        end_ledger(&l);
    }
}

/* It knows of one call that the ledger was not told of. */
static void what_a_process_has_seen_counts_beside_what_the_ledger_tells_it(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}, u: {class: write}");
    ledger l = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    done_once(&l, "r", "t", "{}");
    for (int i = 0; i < 2; i++)
        begin_in(&l, "r", "t", "{}");
    assert_true(l.a->warning.p != NULL); /* here it was told */
    ledger m = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    done_once(&m, "r", "u", "{}");
    for (int i = 2; i <= 3; i++) {
        begin_in(&m, "r", "u", "{}");
        expect_replay(&m, "\"sent\"");
        assert_int_equal(m.a->warning.p != NULL, i == 3);
    }
    end_ledger(&m);
    end_ledger(&l);
}

static void processes_that_make_one_call_each_count_together(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    done_once(&l, "r", "t", "{}");
    end_ledger(&l);
    int calls = 1;
    semel_code code;
    do {
        l = (ledger){.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        begin_in(&l, "r", "t", "{}");
        code = l.a->code;
        calls++;
        end_ledger(&l);
    } while (code != SEMEL_C_LOOP_DETECTED && calls < 20);
    expect(calls >= 5 && calls <= 8, "blocked at call %d", calls);
}

static void a_failing_call_of_processes_that_make_one_each_stops_its_run(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}");
    int ran = 0, warned = 0, blocked = 0;
    for (int calls = 0; calls < 12; calls++) {
        ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        begin_in(&l, "r", "t", "{}");
        char claim[128];
        strcpy(claim, l.claim);
        bool runs = l.a->verdict == SEMEL_EXECUTE;
        if (!runs)
            expect_refused(&l, SEMEL_C_LOOP_DETECTED);
        blocked += !runs && !says(l.a->message, "until a person reopens it");
        end_ledger(&l);
        if (!runs)
            continue;
        ran++;
        l = (ledger){.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        commit_as(&l, claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no such user\"");
        warned += l.a->warning.p != NULL;
        end_ledger(&l);
    }
    expect(ran >= 4 && ran <= 7, "ran %d times", ran); /* a step later at most */
    assert_true(warned >= 1);
    expect(blocked >= 1 && blocked <= 4, "blocked %d times before its run was stopped", blocked);
}

/* ---- the table of runs -----------------------------------------------------------------------*/

static const sm_loop_rule only_warns = {.on = true, .warn = 3, .max_cycle = 4};

/* A read, at this time. */
static sm_loop_finding read_at(ledger *l, const char *scope, uint64_t result, int64_t now)
{
    const sm_loop_call c = {
        .scope = sm_str_from(scope), .call = 7, .rule = &only_warns, .now = now, .passes = true};
    return sm_runs_replay(l->s, &c, result);
}

static void a_run_that_was_idle_for_an_hour_begins_anew(void **state)
{
    (void)state;
    enum { HOUR_MS = 3600000 };
    ledger l = new_ledger(NULL);
    assert_int_equal(read_at(&l, "r", 1, 1000).match.count, 1);
    assert_int_equal(read_at(&l, "r", 1, 1000 + HOUR_MS).match.count, 2);
    assert_int_equal(read_at(&l, "r", 1, 1000 + 2 * HOUR_MS).match.count, 3);
    assert_int_equal(read_at(&l, "r", 1, 1000 + 3 * HOUR_MS + 1).match.count, 1);
    end_ledger(&l);
}

static void what_counts_is_what_was_returned_and_not_what_was_expected(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    for (uint32_t i = 1; i <= 3; i++)
        assert_int_equal(read_at(&l, "r", 1, 1000).level, i < 3 ? SM_LOOP_FINE : SM_LOOP_WARN);
    sm_loop_finding f = read_at(&l, "r", 2, 1000);
    assert_int_equal(f.level, SM_LOOP_FINE);
    assert_int_equal(f.match.count, 1);
    end_ledger(&l);
}

static void the_run_that_was_not_heard_of_for_longest_makes_room(void **state)
{
    (void)state;
    enum { MANY = 40000 };
    ledger l = new_ledger(NULL);
    char scope[16];
    sm_loop seen;
    int64_t now = sm_now(l.s);
    for (int n = 0; n < MANY; n++) {
        snprintf(scope, sizeof scope, "run-%d", n);
        read_at(&l, scope, 1, now);
        read_at(&l, "always", 1, now);
    }
    assert_int_equal(sm_runs_look(l.s, SM_STR("run-0"), &seen, NULL), SM_OK);
    assert_int_equal(seen.calls, 0);
    assert_int_equal(sm_runs_look(l.s, sm_str_from(scope), &seen, NULL), SM_OK);
    assert_int_equal(seen.calls, 1);
    assert_int_equal(sm_runs_look(l.s, SM_STR("always"), &seen, NULL), SM_OK);
    assert_int_equal(seen.calls, MANY);
    end_ledger(&l);
}

/* Another version wrote it, or it is damaged. */
static void what_is_no_loop_state_says_nothing(void **state)
{
    (void)state;
    const struct {
        const char *text;
        bool is;
    } rows[] = {
        {"[2,1,\"2\",\"1\",[1],[\"5\",\"6\",\"5\",\"6\"],[\"5\",\"6\",2]]", true},
        {"[2,0,\"0\",\"0\",[],[],[]]", true},
        {"[2,0,\"0\",\"0\",[],[],[],1]", false},
        {"[2]", false},
        {"[]", false},
        {"{}", false},
        {"[", false},
        {"[1,1,\"1\",[0],[\"5\",\"6\"],[]]", false},
        {"[3,1,\"1\",\"0\",[0],[\"5\",\"6\"],[]]", false},
        {"[2,2,\"1\",\"0\",[0],[\"5\",\"6\"],[]]", false},
        {"[2,33,\"0\",\"0\",[],[],[]]", false},
        {"[2,1,\"2\",\"0\",[0],[\"5\",\"6\"],[]]", false},
        {"[2,1,\"1\",\"0\",[0],[\"5\"],[]]", false},
        {"[2,1,\"1\",\"0\",[0],[\"5\",\"6\"],[\"5\"]]", false},
        {"[2,1,\"1\",\"0\",0,[\"5\",\"6\"],[]]", false},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_arena a;
        sm_loop seen;
        sm_arena_init(&a, 1 << 20);
        expect(sm_runs_read(&a, sm_str_from(rows[i].text), &seen) == rows[i].is, "%s",
               rows[i].text);
        if (i == 0) {
            assert_int_equal(seen.calls, 2);
            assert_int_equal(seen.progressed, 1);
            assert_int_equal(sm_loop_now(&seen, 1).count, 2);
            assert_int_equal(sm_loop_foresee(&seen, 5, 1).count, 3);
        }
        sm_arena_fini(&a);
    }
}

/* ---- the stop button -------------------------------------------------------------------------*/

static void stop(ledger *l, semel_stop_kind kind, const char *name)
{
    bool changed;
    semel_fault fault;
    expect(semel_stop(l->s, kind, sm_str_from(name), SM_STR("carol"), SM_STR("too many mails"),
                      &changed, &fault) == SEMEL_OK,
           "%s", fault.text);
    assert_true(changed);
}

static void resume(ledger *l, semel_stop_kind kind, const char *name)
{
    bool changed;
    assert_int_equal(
        semel_resume(l->s, kind, sm_str_from(name), SM_STR("carol"), (sm_str){0}, &changed, NULL),
        SEMEL_OK);
    assert_true(changed);
}

static void nothing_new_is_written_below_what_is_stopped(void **state)
{
    (void)state;
    const struct {
        semel_stop_kind kind;
        const char *name, *scope, *tool;
        bool stops;
    } rows[] = {
        {SEMEL_STOP_ALL, NULL, "acme/bot/1", "mail", true},
        {SEMEL_STOP_SCOPE, "acme", "acme/bot/1", "mail", true},
        {SEMEL_STOP_SCOPE, "acme/bot", "acme/bot/1", "mail", true},
        {SEMEL_STOP_SCOPE, "acme/bot/1", "acme/bot/1", "mail", true},
        {SEMEL_STOP_SCOPE, "acme/b", "acme/bot/1", "mail", false},
        {SEMEL_STOP_SCOPE, "acme/bot/1/x", "acme/bot/1", "mail", false},
        {SEMEL_STOP_TOOL, "mail", "acme/bot/1", "mail", true},
        {SEMEL_STOP_TOOL, "ma*", "acme/bot/1", "mail", true},
        {SEMEL_STOP_TOOL, "mai", "acme/bot/1", "mail", false},
    };
    ledger l = new_ledger(TOOLS("mail: {class: write}, get: {class: read}, raw: {class: write}"));
    done_once(&l, "acme/bot/1", "mail", "{}");
    for (size_t i = 0; i < COUNT(rows); i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\":%zu}", i);
        begin_in(&l, rows[i].scope, rows[i].tool, "{\"running\":1}");
        stop(&l, rows[i].kind, rows[i].name);
        begin_in(&l, rows[i].scope, rows[i].tool, args);
        expect((l.a->code == SEMEL_C_STOPPED) == rows[i].stops, "row %zu: %s", i,
               semel_code_name(l.a->code));
        if (rows[i].stops) {
            assert_true(says(l.a->message, "stopped by carol: too many mails."));
            assert_int_equal(l.a->state, SEMEL_S_NONE);
        }
        begin_in(&l, "acme/bot/1", "get", "{}"); /* reading is allowed */
        assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
        resume(&l, rows[i].kind, rows[i].name);
        begin_in(&l, rows[i].scope, rows[i].tool, args);
        expect_verdict(&l, rows[i].stops ? SEMEL_EXECUTE : SEMEL_REFUSED,
                       rows[i].stops ? SEMEL_C_NONE : SEMEL_C_RETRY_IN_FLIGHT);
    }
    end_ledger(&l);
}

static void what_is_under_way_ends_and_what_is_settled_answers(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("mail: {class: write}, raw: {class: write, key: {strategy: none}}"));
    done_once(&l, "r", "mail", "{\"n\":1}");
    begin_in(&l, "r", "mail", "{\"n\":2}");
    expect_execute(&l);
    stop(&l, SEMEL_STOP_ALL, NULL);
    commit(&l, "2");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    begin_in(&l, "r", "mail", "{\"n\":1}");
    expect_replay(&l, "\"sent\"");
    begin_in(&l, "r", "raw", "{}"); /* not even what nobody records */
    expect_refused(&l, SEMEL_C_STOPPED);
    end_ledger(&l);
}

static void every_process_knows_within_a_second(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write}");
    ledger l = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    ledger m = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    begin_in(&l, "r", "t", "{\"n\":0}");
    expect_execute(&l);
    stop(&m, SEMEL_STOP_SCOPE, "r");
    int64_t stopped_ns = sm_clock_mono_ns(), late_ns = 0;
    for (int n = 1; sm_clock_mono_ns() < stopped_ns + 1500000000; n++) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\":%d}", n);
        begin_in(&l, "r", "t", args);
        if (l.a->verdict == SEMEL_EXECUTE)
            late_ns = sm_clock_mono_ns() - stopped_ns;
    }
    expect(late_ns < 1000000000, "a write began %.2f s later", (double)late_ns / 1e9);
    expect_refused(&l, SEMEL_C_STOPPED);
    end_ledger(&m);
    end_ledger(&l);
}

static bool count_item(void *context, const semel_answer *a, const semel_record *r)
{
    (void)a;
    (void)r;
    ++*(unsigned *)context;
    return true;
}

static void what_guards_share_is_no_effect(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: {warn: 2, block: 2, trip: 3}}"));
    done_once(&l, "r", "t", "{}");
    for (int i = 0; i < 2; i++)
        begin_in(&l, "r", "t", "{}");
    stop(&l, SEMEL_STOP_ALL, NULL);
    semel_query q = {.size = sizeof q};
    unsigned listed = 0;
    assert_int_equal(semel_list(l.s, &q, count_item, &listed, NULL), SEMEL_OK);
    assert_int_equal(listed, 1);
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_repeated_call_is_warned_of_then_blocked_then_its_run_is_stopped),
        cmocka_unit_test(whoever_reopens_a_run_lets_it_begin_anew),
        cmocka_unit_test(a_run_that_only_this_process_knows_is_reopened),
        cmocka_unit_test(nothing_is_written_about_a_run_that_does_not_repeat_itself),
        cmocka_unit_test(a_failure_that_is_tried_again_and_again_is_a_loop),
        cmocka_unit_test(other_results_are_progress),
        cmocka_unit_test(parts_of_results_that_differ_each_time_do_not_hide_a_loop),
        cmocka_unit_test(calls_that_alternate_are_a_cycle),
        cmocka_unit_test(a_long_list_is_no_loop),
        cmocka_unit_test(the_same_call_under_other_keys_is_the_same_call),
        cmocka_unit_test(a_call_with_a_key_gets_its_outcome_when_it_is_blocked),
        cmocka_unit_test(whoever_joins_a_call_in_flight_does_not_count),
        cmocka_unit_test(whoever_has_waited_for_a_call_in_flight_does_not_count),
        cmocka_unit_test(reads_and_tools_that_are_not_listed_are_only_warned_of),
        cmocka_unit_test(observing_changes_nothing),
        cmocka_unit_test(observing_lets_a_failing_call_run),
        cmocka_unit_test(what_is_refused_ends_no_streak),
        cmocka_unit_test(polling_is_narrow),
        cmocka_unit_test(edits_and_tests_in_turn_are_no_loop),
        cmocka_unit_test(work_that_was_new_is_new_after_the_ledger_was_told),
        cmocka_unit_test(a_batch_that_reads_the_same_between_its_items_is_no_loop),
        cmocka_unit_test(read_and_failing_edit_and_failing_test_are_a_cycle_of_three),
        cmocka_unit_test(the_same_error_85_times_runs_four_times),
        cmocka_unit_test(a_read_that_returns_something_new_is_no_loop),
        cmocka_unit_test(many_callers_of_one_call_do_not_wait_for_each_other),
        cmocka_unit_test(an_answer_from_memory_counts_too),
        cmocka_unit_test(a_run_that_was_idle_for_an_hour_begins_anew),
        cmocka_unit_test(what_counts_is_what_was_returned_and_not_what_was_expected),
        cmocka_unit_test(nothing_new_is_written_below_what_is_stopped),
        cmocka_unit_test(what_is_under_way_ends_and_what_is_settled_answers),
        cmocka_unit_test(what_guards_share_is_no_effect),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(two_handles_of_one_ledger_count_together),
        cmocka_unit_test(a_process_that_starts_again_goes_on_counting),
        cmocka_unit_test(a_process_that_is_restarted_after_every_call_counts_them),
        cmocka_unit_test(a_run_that_another_process_reopens_begins_anew_here),
        cmocka_unit_test(what_a_process_has_seen_counts_beside_what_the_ledger_tells_it),
        cmocka_unit_test(processes_that_make_one_call_each_count_together),
        cmocka_unit_test(a_failing_call_of_processes_that_make_one_each_stops_its_run),
        cmocka_unit_test(every_process_knows_within_a_second),
    };
    const struct CMUnitTest once[] = {
        cmocka_unit_test(the_run_that_was_not_heard_of_for_longest_makes_room),
        cmocka_unit_test(what_is_no_loop_state_says_nothing),
    };
    int failed = run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
    ledger_url = "memory:";
    return failed + cmocka_run_group_tests(once, NULL, NULL);
}
