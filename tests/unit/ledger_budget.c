/* Budgets: what is reserved when an attempt begins, settled when it ends, and refused. */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "ledger/service.h"

#define TOOLS(text) "{version: 1, tools: {" text "}}"

static semel_err begin_in(ledger *l, const char *scope, const char *tool, int n)
{
    char args[32];
    snprintf(args, sizeof args, "{\"n\":%d}", n);
    semel_call c = call_of(tool, args);
    c.scope = sm_str_from(scope);
    return take(l, semel_begin(l->s, &c, l->a));
}

static void runs(ledger *l, const char *scope, const char *tool, int n)
{
    begin_in(l, scope, tool, n);
    expect_execute(l);
    commit(l, "1");
}

static void refused(ledger *l, const char *scope, const char *tool, int n)
{
    begin_in(l, scope, tool, n);
    expect_refused(l, SEMEL_C_BUDGET_EXCEEDED);
    assert_false(l->a->retriable);
    assert_true(l->a->claim.p == NULL);
}

static void commit_cost(ledger *l, semel_kind kind, const char *cost, uint64_t tokens)
{
    semel_outcome o = {.size = sizeof o, .kind = kind, .cost = sm_str_from(cost), .tokens = tokens};
    assert_int_equal(take(l, semel_commit(l->s, sm_str_from(l->claim), &o, l->a)), SEMEL_OK);
}

static void so_many_calls_run_and_no_more(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 3}}"));
    for (int n = 0; n < 3; n++)
        runs(&l, "acme/bot/1", "t", n);
    refused(&l, "acme/bot/1", "t", 3);
    expect_text(l.a->message, "The budget of 3 calls a run for t does not allow this call: 3 calls "
                              "are spent or reserved. Nothing has been done.");
    assert_int_equal(l.a->retry_after_ms, 0); /* it does not come back */
    assert_int_equal(l.a->state, SEMEL_S_NONE);
    begin_in(&l, "acme/bot/1", "t", 0); /* a replay costs nothing */
    expect_replay(&l, "1");
    refused(&l, "acme/bot/1", "t", 3);
    runs(&l, "acme/bot/2", "t", 3);
    end_ledger(&l);
}

static void a_budget_of_a_day_says_when_the_next_one_begins(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: day, calls: 1}}"));
    int n = 0;
    do /* midnight may come between two of them */
        begin_in(&l, "r", "t", n++);
    while (n < 3 && l.a->verdict == SEMEL_EXECUTE);
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    assert_in_range(l.a->retry_after_ms, 1, 24 * 3600 * 1000);
    semel_str advice = l.a->corrective_action;
    assert_non_null(memmem(advice.p, advice.n, "T00:00:00.000Z (in ", 19));
    end_ledger(&l);
}

static void what_was_not_done_is_released(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 1}}"));
    begin_in(&l, "r", "t", 0);
    refused(&l, "r", "t", 1);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
    begin_in(&l, "r", "t", 1);
    expect_execute(&l);
    refused(&l, "r", "t", 0); /* it may be tried again, but not now */
    assert_int_equal(l.a->state, SEMEL_S_FAILED);
    end_ledger(&l);
}

static void what_is_in_doubt_stays_reserved_until_it_is_resolved(void **state)
{
    (void)state;
    const struct {
        semel_resolution how;
        bool frees;
    } rows[] = {{SEMEL_RESOLVE_APPLIED, false},
                {SEMEL_RESOLVE_NOT_APPLIED, true},
                {SEMEL_RESOLVE_ABANDON, false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 1}}"));
        char scope[16];
        snprintf(scope, sizeof scope, "r%zu", i);
        begin_in(&l, scope, "t", 0);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
        char effect[128];
        strcpy(effect, l.effect);
        refused(&l, scope, "t", 1);
        semel_resolve(l.s, sm_str_from(effect), rows[i].how, NULL, SM_STR("I looked"), (sm_str){0},
                      l.a);
        assert_int_equal(l.a->verdict, SEMEL_DONE);
        begin_in(&l, scope, "t", 1);
        expect_verdict(&l, rows[i].frees ? SEMEL_EXECUTE : SEMEL_REFUSED,
                       rows[i].frees ? SEMEL_C_NONE : SEMEL_C_BUDGET_EXCEEDED);
        end_ledger(&l);
    }
}

static void what_it_really_cost_is_what_counts(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 0.05, budget: {per: run, cost: 0.1}}"));
    begin_in(&l, "r", "t", 0);
    commit_cost(&l, SEMEL_SUCCESS, "0.01", 0);
    assert_int_equal(events_saying(&l, "\"cost\":\"0.05\""), 1);
    assert_int_equal(events_saying(&l, "\"cost\":\"0.01\""), 1);
    begin_in(&l, "r", "t", 1);
    commit_cost(&l, SEMEL_SUCCESS, "0.04", 0);
    begin_in(&l, "r", "t", 2); /* 0.05 are left, and that is enough */
    expect_execute(&l);
    refused(&l, "r", "t", 3);
    expect_text(l.a->message,
                "The budget of 0.1 a run for t does not allow this call: 0.1 are spent or "
                "reserved, and it may take 0.05. Nothing has been done.");
    commit_cost(&l, SEMEL_SUCCESS, "0.07", 0); /* more than declared: it is spent */
    refused(&l, "r", "t", 3);
    end_ledger(&l);
}

static void an_amount_that_is_none_is_refused_and_nothing_is_recorded(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "cheap", "-1", "0.0000000001", "1e30", "0x1", "1,5"};
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, cost: 1}}"));
    begin_in(&l, "r", "t", 0);
    for (size_t i = 0; i < COUNT(wrong); i++) {
        semel_outcome o = {.size = sizeof o, .cost = sm_str_from(wrong[i])};
        semel_err e = semel_commit(l.s, sm_str_from(l.claim), &o, l.a);
        expect(e == SEMEL_E_BAD_ARGUMENTS, "%s: %s", wrong[i], semel_err_name(e));
    }
    commit_cost(&l, SEMEL_SUCCESS, "1e-9", 0);
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    assert_int_equal(events_saying(&l, "\"cost\":\"0.000000001\""), 1);
    end_ledger(&l);
}

static void tokens_that_nobody_declared_count_once_they_are_known(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: agent, tokens: 100}}"));
    begin_in(&l, "acme/bot/1", "t", 0);
    commit_cost(&l, SEMEL_SUCCESS, NULL, 99);
    begin_in(&l, "acme/bot/2", "t", 1);
    expect_execute(&l);
    commit_cost(&l, SEMEL_SUCCESS, NULL, 1);
    refused(&l, "acme/bot/3", "t", 2);
    expect_text(l.a->message,
                "The budget of 100 tokens an agent for t does not allow this call: 100 tokens are "
                "spent or reserved, and it may take 0 tokens. Nothing has been done.");
    runs(&l, "acme/other/1", "t", 2);
    end_ledger(&l);
}

static void a_failure_that_cost_something_did_cost_it(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("t: {class: write, cost: 1, budget: {per: run, calls: 1, cost: 2.5}}"));
    begin_in(&l, "r", "t", 0);
    commit_cost(&l, SEMEL_FAILURE, "1", 0);
    assert_int_equal(l.a->state, SEMEL_S_FAILED);
    begin_in(&l, "r", "t", 0);
    expect_execute(&l);
    commit_cost(&l, SEMEL_FAILURE, "0.75", 0);
    refused(&l, "r", "t", 0); /* 1.75 are spent; it was never done */
    end_ledger(&l);
}

static void all_budgets_must_allow_it(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: [{per: run, calls: 2}, {per: tenant, "
                                "calls: 3}, {per: day, cost: 100}]}"));
    runs(&l, "acme/a/1", "t", 0);
    runs(&l, "acme/a/1", "t", 1);
    refused(&l, "acme/a/1", "t", 2);
    runs(&l, "acme/b/1", "t", 0);
    refused(&l, "acme/b/2", "t", 0);
    expect(memmem(l.a->message.p, l.a->message.n, "3 calls a tenant", 16) != NULL, "%.*s",
           SM_FMT(l.a->message));
    runs(&l, "acme/a/1", "other", 0);
    runs(&l, "zeta/b/2", "t", 0); /* what was refused took nothing from the others */
    runs(&l, "zeta/b/2", "t", 1);
    end_ledger(&l);
}

static void a_budget_in_defaults_is_for_all_together(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, defaults: {budget: {per: run, calls: 2}}, tools: {a: "
                          "{class: write}, b: {class: write}}}");
    runs(&l, "r", "a", 0);
    runs(&l, "r", "unlisted", 0);
    refused(&l, "r", "b", 0);
    expect(memmem(l.a->message.p, l.a->message.n, "for all calls", 13) != NULL, "%.*s",
           SM_FMT(l.a->message));
    refused(&l, "r", "unlisted", 1);
    end_ledger(&l);
}

static void a_budget_of_a_tool_holds_beside_that_of_defaults(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, defaults: {budget: {per: tenant, calls: 3}}, tools: {a: "
                          "{class: write}, b: {class: write, budget: {per: run, calls: 2}}}}");
    for (int n = 0; n < 2; n++) {
        begin_in(&l, "t/a/1", "b", n);
        expect_execute(&l);
    }
    refused(&l, "t/a/1", "b", 2); /* its own */
    begin_in(&l, "t/a/2", "b", 3);
    expect_execute(&l);
    refused(&l, "t/a/2", "b", 4); /* that of all calls */
    refused(&l, "t/a/3", "a", 5);
    begin_in(&l, "other/a/1", "b", 6);
    expect_execute(&l);
    end_ledger(&l);
}

static void tools_of_one_pattern_share_its_budget(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("'mail_*': {class: write, budget: {per: run, calls: 2}}"));
    runs(&l, "r", "mail_ann", 0);
    runs(&l, "r", "mail_bob", 0);
    refused(&l, "r", "mail_carol", 0);
    end_ledger(&l);
}

static void nothing_is_reserved_for_what_waits_for_approval(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, approval: {expires: 1h}, budget: {per: run, "
                                "calls: 1}}, u: {class: write}"));
    begin_in(&l, "r", "t", 0);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    char request[128];
    strcpy(request, l.request);
    begin_in(&l, "r", "t", 1);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    runs(&l, "r", "t", 1);
    semel_approve(l.s, sm_str_from(request), SM_STR("carol"), l.a);
    refused(&l, "r", "t", 0);
    assert_int_equal(l.a->state, SEMEL_S_READY); /* the approval is not used up */
    end_ledger(&l);
}

static void every_generation_is_charged(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 2}}"));
    for (int i = 0; i < 2; i++) {
        runs(&l, "r", "t", 0);
        semel_forget(l.s, sm_str_from(l.effect), (sm_str){0}, SM_STR("again"), l.a);
    }
    refused(&l, "r", "t", 0);
    end_ledger(&l);
}

static void a_second_attempt_at_one_effect_is_not_charged_again(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write_idempotent, budget: {per: run, calls: 1}}"));
    begin_in(&l, "r", "t", 0);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    begin_in(&l, "r", "t", 0); /* rerun */
    expect_execute(&l);
    commit(&l, "1");
    refused(&l, "r", "t", 1);
    end_ledger(&l);
}

static void observe_mode_counts_and_lets_it_run(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, mode: observe, budget: {per: run, calls: 1}}"));
    begin_in(&l, "r", "t", 0);
    expect_execute(&l);
    assert_null(l.a->observed.p);
    assert_null(l.a->warning.p);
    commit(&l, "1");
    begin_in(&l, "r", "t", 1);
    expect_execute(&l);
    expect_text(l.a->observed, "BUDGET_EXCEEDED");
    assert_true(l.a->claim.p != NULL);
    commit(&l, "1");
    end_ledger(&l);
}

/* Whoever commits may say any cost. What does not fit into the counter is as good as endless. */
static void an_end_is_recorded_although_its_cost_does_not_fit(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 1, budget: {per: tenant, cost: 5}}")),
           m = l;
    const char *most = "9223372036.854775807";
    begin_in(&l, "r", "t", 0);
    expect_execute(&l);
    begin_in(&m, "r", "t", 1);
    expect_execute(&m);
    commit_cost(&l, SEMEL_SUCCESS, most, 0);
    assert_int_equal(l.a->verdict, SEMEL_DONE);
    commit_cost(&m, SEMEL_SUCCESS, most, 0);
    assert_int_equal(m.a->verdict, SEMEL_DONE);
    refused(&l, "r", "t", 2);
    semel_str json;
    semel_scope_query q = {.size = sizeof q, .scope = SM_STR("r")};
    assert_int_equal(semel_scope_show(l.s, &q, l.a, &json), SEMEL_OK);
    end_ledger(&l);
}

/* Nor does a counter that is full keep a call from running that no cap holds. */
static void observe_mode_runs_although_a_counter_is_full(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("t: {class: write, mode: observe, cost: 1, budget: {per: run, cost: 5}}"));
    begin_in(&l, "r", "t", 0);
    expect_execute(&l);
    commit_cost(&l, SEMEL_SUCCESS, "9223372036.854775807", 0);
    for (int n = 1; n < 3; n++) {
        begin_in(&l, "r", "t", n);
        expect_execute(&l);
        expect_text(l.a->observed, "BUDGET_EXCEEDED");
        assert_true(l.a->claim.p != NULL && l.a->warning.p == NULL);
        assert_int_equal(events_saying(&l, "nearly_spent"), 0);
        commit(&l, "1");
        assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    }
    end_ledger(&l);
}

static void who_settles_needs_no_contract(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, cost: 1, budget: {per: run, cost: 1.5}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    begin_in(&l, "r", "t", 0);
    ledger m = {.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
    strcpy(m.claim, l.claim);
    commit_cost(&m, SEMEL_SUCCESS, "0.5", 0);
    end_ledger(&m);
    begin_in(&l, "r", "t", 1);
    expect_execute(&l);
    refused(&l, "r", "t", 2);
    end_ledger(&l);
}

/* The number of sentences of a warning about budgets. */
static int warnings(const ledger *l)
{
    static const char sign[] = "Of the budget of";
    const char *at = l->a->warning.p, *end = at == NULL ? NULL : at + l->a->warning.n;
    int n = 0;
    while (at != NULL && (at = memmem(at, (size_t)(end - at), sign, sizeof sign - 1)) != NULL) {
        n++;
        at++;
    }
    return n;
}

static int warned_by(ledger *l, const char *scope, const char *tool, int n)
{
    begin_in(l, scope, tool, n);
    expect_execute(l);
    int found = warnings(l);
    commit(l, "1");
    return found;
}

static void the_call_that_reaches_four_fifths_is_warned_once(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 10}}"));
    for (int n = 0; n < 10; n++) {
        int found = warned_by(&l, "r", "t", n);
        expect(found == (n == 7), "call %d: %d warnings", n + 1, found);
        assert_int_equal(events_saying(&l, "\"nearly_spent\":\"calls per run\""), n == 7);
    }
    refused(&l, "r", "t", 10);
    assert_int_equal(warnings(&l), 0);
    for (int n = 0; n < 8; n++)
        assert_int_equal(warned_by(&l, "other", "t", n), n == 7);
    begin_in(&l, "r", "t", 7);
    expect_replay(&l, "1");
    assert_int_equal(warnings(&l), 0);
    end_ledger(&l);
}

static void a_warning_says_what_is_left_and_what_to_do(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 0.05, budget: {per: day, cost: 0.3, soft: "
                                "50%}}"));
    for (int n = 0; n < 2; n++)
        assert_int_equal(warned_by(&l, "acme/bot/1", "t", n), 0);
    begin_in(&l, "acme/bot/1", "t", 2);
    expect_text(l.a->warning,
                "Of the budget of 0.3 a day for t, 0.15 are spent or reserved. Do what "
                "matters most first.");
    end_ledger(&l);
}

static void each_budget_and_measure_warns_on_its_own(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 1, budget: [{per: run, calls: 5, cost: "
                                "10}, {per: tenant, calls: 5, soft: off}]}"));
    const int expected[] = {0, 0, 0, 1, 0};
    for (int n = 0; n < 5; n++)
        assert_int_equal(warned_by(&l, "r", "t", n), expected[n]);
    ledger m = new_ledger(TOOLS("t: {class: write, cost: 1, budget: {per: run, calls: 5, cost: "
                                "5}}"));
    for (int n = 0; n < 4; n++)
        assert_int_equal(warned_by(&m, "r2", "t", n), n == 3 ? 2 : 0);
    end_ledger(&l);
    end_ledger(&m);
}

static void a_line_that_is_crossed_again_after_a_release_is_not_told_again(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 2, soft: 90%}}"));
    assert_int_equal(warned_by(&l, "r", "t", 0), 0);
    for (int i = 0; i < 3; i++) {
        begin_in(&l, "r", "t", 1);
        expect_execute(&l);
        assert_int_equal(warnings(&l), i == 0);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
    }
    end_ledger(&l);
}

/* What was really spent may cross the line when it is settled: whoever begins next is told. */
static void what_was_spent_beyond_the_line_is_told_to_the_next_call(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, tokens: 100}}"));
    begin_in(&l, "r", "t", 0);
    commit_cost(&l, SEMEL_SUCCESS, NULL, 79);
    begin_in(&l, "r", "t", 1);
    assert_int_equal(warnings(&l), 0);
    commit_cost(&l, SEMEL_SUCCESS, NULL, 1);
    assert_int_equal(warned_by(&l, "r", "t", 2), 1);
    assert_int_equal(warned_by(&l, "r", "t", 3), 0);
    end_ledger(&l);
}

static void tokens_may_be_none(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, tokens: 60, budget: {per: run, tokens: 119}}"));
    begin_in(&l, "r", "t", 0);
    commit_cost(&l, SEMEL_SUCCESS, NULL, SEMEL_TOKENS_NONE);
    runs(&l, "r", "t", 1);
    refused(&l, "r", "t", 2);
    end_ledger(&l);
}

static void purging_forgets_no_budget(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 1}}"));
    runs(&l, "r", "t", 0);
    uint64_t done;
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    refused(&l, "r", "t", 1);
    end_ledger(&l);
}

/* Nor is that counted in the budgets that it had before. */
static void without_a_budget_nothing_is_counted(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, budget: {per: run, cost: 5}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    ledger m = {.s = open_ledger(url, TOOLS("t: {class: write}"), true), .a = semel_answer_new()};
    begin_in(&l, "r", "t", 0);
    commit_cost(&l, SEMEL_FAILURE, "1", 0);
    begin_in(&m, "r", "t", 0);
    expect_execute(&m);
    commit_cost(&m, SEMEL_SUCCESS, "100", 0);
    runs(&l, "r", "t", 1);
    end_ledger(&m);
    end_ledger(&l);
}

static void no_process_warns_again(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, budget: {per: run, calls: 5}}");
    int found = 0;
    for (int n = 0; n < 5; n++) {
        ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        int here = warned_by(&l, "r", "t", n);
        expect(here == (n == 3), "call %d: %d warnings", n + 1, here);
        found += here;
        end_ledger(&l);
    }
    assert_int_equal(found, 1);
    /* A higher cap has a line of its own. */
    const char *more = TOOLS("t: {class: write, budget: {per: run, calls: 10}}");
    for (int n = 5; n < 10; n++) {
        ledger l = {.s = open_ledger(url, more, true), .a = semel_answer_new()};
        assert_int_equal(warned_by(&l, "r", "t", n), n == 7);
        end_ledger(&l);
    }
}

static void work_that_costs(void *context, const semel_answer *execute, semel_outcome *o)
{
    (void)execute;
    o->cost = sm_str_from(context);
}

/* A budget's warning comes with the claim; whoever lets Semel run the work gets it at the end. */
static void the_warning_reaches_who_lets_it_run(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, budget: {per: run, calls: 1}}"));
    semel_call c = call_of("t", "{}");
    assert_int_equal(semel_run(l.s, &c, work_that_costs, NULL, l.a), SEMEL_OK);
    assert_int_equal(l.a->verdict, SEMEL_EXECUTE);
    assert_int_equal(warnings(&l), 1);
    end_ledger(&l);
}

static void a_cost_that_cannot_be_read_loses_no_outcome_of_what_ran(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 0.5, budget: {per: run, cost: 1}}"));
    semel_call c = call_of("t", "{}");
    char wrong[] = "cheap";
    assert_int_equal(take(&l, semel_run(l.s, &c, work_that_costs, wrong, l.a)), SEMEL_OK);
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    assert_int_equal(events_saying(&l, "\"ignored\":\"cost\""), 1);
    assert_int_equal(events_saying(&l, "cheap"), 0);
    end_ledger(&l);
}

typedef struct crowd {
    semel *s;
    atomic_int next, ran, refused, other, warned;
} crowd;

static void *call_often(void *context)
{
    crowd *c = context;
    semel_answer *a = semel_answer_new();
    for (int n; (n = atomic_fetch_add(&c->next, 1)) < 120;) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\":%d}", n);
        semel_call call = call_of("t", args);
        semel_begin(c->s, &call, a);
        atomic_fetch_add(a->verdict == SEMEL_EXECUTE          ? &c->ran
                         : a->code == SEMEL_C_BUDGET_EXCEEDED ? &c->refused
                                                              : &c->other,
                         1);
        if (a->warning.n > 0)
            atomic_fetch_add(&c->warned, 1);
        if (a->verdict == SEMEL_EXECUTE) {
            char claim[128];
            keep_text(claim, a->claim);
            semel_outcome o = {.size = sizeof o};
            semel_commit(c->s, sm_str_from(claim), &o, a);
        }
    }
    semel_answer_free(a);
    return NULL;
}

static void callers_at_once_do_not_pass_the_cap(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 0.1, budget: [{per: run, calls: 100}, "
                                "{per: tenant, cost: 5}]}"));
    crowd c = {.s = l.s};
    pthread_t threads[8];
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &c), 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    expect(c.ran == 50 && c.refused == 70 && c.other == 0, "%d ran, %d refused, %d other", c.ran,
           c.refused, c.other);
    expect(c.warned == 1, "%d were warned", c.warned); /* of the cost; 80 calls are never made */
    end_ledger(&l);
}

static bool import_line(void *context, semel_str line)
{
    semel_imported count = {.size = sizeof count};
    assert_int_equal(semel_import_line(context, line, &count, NULL), SEMEL_OK);
    return true;
}

static void what_is_imported_was_charged_elsewhere(void **state)
{
    (void)state;
    const char *contract = TOOLS("t: {class: write, budget: {per: run, calls: 1}}");
    ledger l = new_ledger(contract), m = new_ledger(contract);
    begin_in(&l, "r", "t", 0);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    assert_int_equal(semel_export(l.s, (sm_str){0}, import_line, m.s, NULL), SEMEL_OK);
    begin_in(&m, "r", "t", 1);
    expect_execute(&m);
    semel_resolve(m.s, sm_str_from(l.effect), SEMEL_RESOLVE_NOT_APPLIED, NULL, SM_STR("no"),
                  (sm_str){0}, m.a);
    assert_int_equal(m.a->state, SEMEL_S_READY);
    refused(&m, "r", "t", 2); /* nothing was released */
    end_ledger(&l);
    end_ledger(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_calls_run_and_no_more),
        cmocka_unit_test(a_budget_of_a_day_says_when_the_next_one_begins),
        cmocka_unit_test(what_was_not_done_is_released),
        cmocka_unit_test(what_is_in_doubt_stays_reserved_until_it_is_resolved),
        cmocka_unit_test(what_it_really_cost_is_what_counts),
        cmocka_unit_test(an_amount_that_is_none_is_refused_and_nothing_is_recorded),
        cmocka_unit_test(tokens_that_nobody_declared_count_once_they_are_known),
        cmocka_unit_test(a_failure_that_cost_something_did_cost_it),
        cmocka_unit_test(all_budgets_must_allow_it),
        cmocka_unit_test(a_budget_in_defaults_is_for_all_together),
        cmocka_unit_test(a_budget_of_a_tool_holds_beside_that_of_defaults),
        cmocka_unit_test(tools_of_one_pattern_share_its_budget),
        cmocka_unit_test(nothing_is_reserved_for_what_waits_for_approval),
        cmocka_unit_test(every_generation_is_charged),
        cmocka_unit_test(a_second_attempt_at_one_effect_is_not_charged_again),
        cmocka_unit_test(observe_mode_counts_and_lets_it_run),
        cmocka_unit_test(observe_mode_runs_although_a_counter_is_full),
        cmocka_unit_test(the_call_that_reaches_four_fifths_is_warned_once),
        cmocka_unit_test(a_warning_says_what_is_left_and_what_to_do),
        cmocka_unit_test(each_budget_and_measure_warns_on_its_own),
        cmocka_unit_test(a_line_that_is_crossed_again_after_a_release_is_not_told_again),
        cmocka_unit_test(what_was_spent_beyond_the_line_is_told_to_the_next_call),
        cmocka_unit_test(tokens_may_be_none),
        cmocka_unit_test(purging_forgets_no_budget),
        cmocka_unit_test(the_warning_reaches_who_lets_it_run),
        cmocka_unit_test(a_cost_that_cannot_be_read_loses_no_outcome_of_what_ran),
        cmocka_unit_test(callers_at_once_do_not_pass_the_cap),
        cmocka_unit_test(what_is_imported_was_charged_elsewhere),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(an_end_is_recorded_although_its_cost_does_not_fit),
        cmocka_unit_test(who_settles_needs_no_contract),
        cmocka_unit_test(without_a_budget_nothing_is_counted),
        cmocka_unit_test(no_process_warns_again),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
}
