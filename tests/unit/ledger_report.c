/* Runs, stops and spend: what is counted, from records and notes, and what is shown of it. */
#include "ledger.h"

#include <pthread.h>

#include "json/json.h"

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

static void stop(ledger *l, semel_stop_kind kind, const char *name)
{
    bool changed;
    semel_fault fault = {0};
    semel_err e = semel_stop(l->s, kind, sm_str_from(name), SM_STR("carol"), SM_STR("too much"),
                             &changed, &fault);
    expect(e == SEMEL_OK && changed, "%s", fault.text);
}

/* ---- what a report says ----------------------------------------------------------------------*/

static sm_arena arena;

static const sm_json *read_report(semel_err e, ledger *l, sm_str text)
{
    const sm_json *root = NULL;
    expect(e == SEMEL_OK, "%s: %.*s", semel_err_name(e), SM_FMT(l->a->message));
    sm_arena_fini(&arena);
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_str kept = sm_arena_text(&arena, text);
    e = sm_json_read(&arena, kept, &sm_json_args_limits, &root, NULL);
    expect(e == SEMEL_OK, "not JSON: %.*s", SM_FMT(text));
    return root;
}

static const sm_json *list(ledger *l, const char *scope)
{
    semel_str text;
    semel_scope_query q = {.size = sizeof q, .scope = sm_str_from(scope)};
    semel_err e = semel_scope_list(l->s, &q, l->a, &text);
    return read_report(e, l, text);
}

static const sm_json *show(ledger *l, const char *scope)
{
    semel_str text;
    semel_scope_query q = {.size = sizeof q, .scope = sm_str_from(scope)};
    semel_err e = semel_scope_show(l->s, &q, l->a, &text);
    return read_report(e, l, text);
}

static const sm_json *spend(ledger *l, semel_spend_by by, const char *scope)
{
    semel_str text;
    semel_spend_query q = {.size = sizeof q, .by = by, .scope = sm_str_from(scope)};
    semel_err e = semel_spend(l->s, &q, l->a, &text);
    return read_report(e, l, text);
}

/* The item of a list whose member `name` is this; NULL if there is none. */
static const sm_json *item_of(const sm_json *root, const char *name, const char *value)
{
    const sm_json *items = sm_json_find(root, SM_STR("items")), *item = items + 1;
    for (uint32_t i = 0; i < items->len; i++, item = sm_json_next(item)) {
        if (sm_str_is(sm_json_text(sm_json_find(item, sm_str_from(name))), value))
            return item;
    }
    return NULL;
}

static void expect_member(const sm_json *of, const char *name, const char *value)
{
    assert_non_null(of);
    const sm_json *v = sm_json_find(of, sm_str_from(name));
    expect(v != NULL && sm_str_is(sm_json_text(v), value), "%s is %.*s, not %s", name,
           v == NULL ? 4 : (int)sm_json_text(v).n, v == NULL ? "none" : sm_json_text(v).p, value);
}

static void expect_true(const sm_json *of, const char *name, bool value)
{
    const sm_json *v = sm_json_find(of, sm_str_from(name));
    expect(v != NULL && v->type == (value ? SM_JSON_TRUE : SM_JSON_FALSE), "%s", name);
}

/* ---- tests -----------------------------------------------------------------------------------*/

static void a_run_is_what_calls_of_its_scope_did(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 0.05, loop: off}, "
                                "a: {class: write, approval: {}}"));
    runs(&l, "acme/bot/1", "t", 1);
    runs(&l, "acme/bot/1", "t", 2);
    begin_in(&l, "acme/bot/1", "t", 1);
    expect_replay(&l, "1");
    begin_in(&l, "acme/bot/1", "t", 1);
    begin_in(&l, "acme/bot/1", "t", 3); /* runs */
    begin_in(&l, "acme/bot/1", "t", 3); /* who waits for it is not refused */
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    begin_in(&l, "acme/bot/1", "a", 1);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    begin_in(&l, "acme/bot/2", "t", 1);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    runs(&l, "acme/botany", "t", 1);
    const sm_json *root = list(&l, "acme/bot");
    assert_int_equal(sm_json_find(root, SM_STR("items"))->len, 2);
    expect_member(root, "looked_at", "5");
    expect_true(root, "complete", true);
    const sm_json *run = item_of(root, "scope", "acme/bot/1");
    expect_member(run, "state", "ok");
    expect_member(run, "effects", "4");
    expect_member(run, "executed", "3");
    expect_member(run, "replays", "2");
    expect_member(run, "refusals", "0");
    expect_member(run, "pending", "1");
    expect_member(run, "in_doubt", "0");
    expect_member(run, "spent", "0.1");
    expect_member(run, "reserved", "0.05");
    run = item_of(root, "scope", "acme/bot/2");
    expect_member(run, "in_doubt", "1");
    expect_member(run, "reserved", "0.05");
    assert_int_equal(sm_json_find(list(&l, NULL), SM_STR("items"))->len, 3);
    end_ledger(&l);
}

static void refusals_are_counted_by_what_they_are_about(void **state)
{
    (void)state;
    ledger l = new_ledger(
        TOOLS("t: {class: write, key: explicit, budget: {per: run, calls: 1}}, "
              "d: {class: write, approval: {}}, in: {class: irreversible, key: {fields: [/n]}}"));
    semel_call c = call_of("t", "{\"n\":1}");
    c.key = SM_STR("k");
    take(&l, semel_begin(l.s, &c, l.a));
    expect_execute(&l);
    commit(&l, "1");
    char effect[128];
    strcpy(effect, l.effect);
    c.args = SM_STR("{\"n\":2}");
    for (int i = 0; i < 3; i++) {
        take(&l, semel_begin(l.s, &c, l.a));
        expect_refused(&l, SEMEL_C_KEY_CONFLICT);
    }
    c.key = SM_STR("another");
    semel_begin(l.s, &c, l.a);
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    begin_in(&l, "test", "d", 1);
    semel_deny(l.s, sm_str_from(l.request), SM_STR("carol"), SM_STR("no"), l.a);
    begin_in(&l, "test", "d", 1);
    expect_refused(&l, SEMEL_C_DENIED);
    begin_in(&l, "test", "in", 1);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    begin_in(&l, "test", "in", 2); /* held by the other one */
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    stop(&l, SEMEL_STOP_TOOL, "t*");
    c.key = SM_STR("a third");
    semel_begin(l.s, &c, l.a);
    expect_refused(&l, SEMEL_C_STOPPED);
    /* What is wrong with the call itself says nothing about the run. */
    c.args = SM_STR("{");
    assert_int_equal(semel_begin(l.s, &c, l.a), SEMEL_E_SYNTAX);
    expect_member(show(&l, "test"), "refusals", "7");
    semel_str story;
    semel_name name = {.size = sizeof name, .text = sm_str_from(effect)};
    semel_err e = semel_show(l.s, &name, l.a, &story);
    const sm_json *shown = read_report(e, &l, story);
    expect_member(shown, "refusals", "3");
    expect_member(shown, "replays", "0");
    end_ledger(&l);
}

static void what_is_settled_goes_on_answering_while_everything_is_stopped(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}, look: {class: read}"));
    runs(&l, "r", "t", 1);
    begin_in(&l, "r", "t", 2);
    char claim[128];
    strcpy(claim, l.claim);
    stop(&l, SEMEL_STOP_ALL, NULL);
    begin_in(&l, "r", "t", 1);
    expect_replay(&l, "1");
    begin_in(&l, "r", "look", 1);
    expect_execute(&l);
    begin_in(&l, "r", "t", 3);
    expect_refused(&l, SEMEL_C_STOPPED);
    strcpy(l.claim, claim);
    assert_int_equal(commit(&l, "2"), SEMEL_OK); /* what had begun ends */
    begin_in(&l, "r", "t", 2);
    expect_replay(&l, "2");
    end_ledger(&l);
}

static void stops_are_listed_with_who_when_and_why(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    semel_str text;
    stop(&l, SEMEL_STOP_SCOPE, "acme");
    stop(&l, SEMEL_STOP_SCOPE, "acme/bot");
    stop(&l, SEMEL_STOP_SCOPE, "other");
    stop(&l, SEMEL_STOP_TOOL, "pay*");
    semel_err e = semel_stops(l.s, (sm_str){0}, l.a, &text);
    const sm_json *root = read_report(e, &l, text);
    assert_int_equal(sm_json_find(root, SM_STR("items"))->len, 4);
    const sm_json *one = item_of(root, "name", "acme/bot");
    expect_member(one, "kind", "scope");
    expect_member(one, "reason", "too much");
    expect_member(one, "by", "carol");
    assert_non_null(sm_json_find(one, SM_STR("since")));
    /* Of a scope: those in it, those that stop it, and tools. */
    e = semel_stops(l.s, SM_STR("acme/bot"), l.a, &text);
    root = read_report(e, &l, text);
    assert_int_equal(sm_json_find(root, SM_STR("items"))->len, 3);
    assert_null(item_of(root, "name", "other"));
    e = semel_stops(l.s, SM_STR("a//b"), l.a, &text);
    assert_int_equal(e, SEMEL_E_BAD_ARGUMENTS);
    end_ledger(&l);
}

static void a_run_says_how_far_it_is_on_the_ladder(void **state)
{
    (void)state;
    static const char *const states[] = {"ok",      "warned",  "warned",  "looping",
                                         "looping", "looping", "stopped", "stopped"};
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    runs(&l, "r", "t", 1);
    for (size_t i = 0; i < COUNT(states); i++) {
        begin_in(&l, "r", "t", 1);
        expect_member(show(&l, "r"), "state", states[i]);
    }
    const sm_json *root = show(&l, "r"), *loop = sm_json_find(root, SM_STR("loop"));
    expect_member(loop, "detector", "repeat");
    expect_member(loop, "period", "1");
    expect_member(loop, "count", "8");
    expect_true(loop, "tripped", true);
    assert_int_equal(sm_json_find(root, SM_STR("stops"))->len, 1);
    expect_member(item_of(list(&l, NULL), "scope", "r"), "state", "stopped");
    bool changed;
    semel_scope_reset(l.s, SM_STR("r"), SM_STR("carol"), SM_STR("mended"), &changed, NULL);
    assert_true(changed);
    root = show(&l, "r");
    expect_member(root, "state", "ok");
    expect_true(sm_json_find(root, SM_STR("loop")), "tripped", false);
    semel_scope_reset(l.s, SM_STR("r"), SM_STR("carol"), SM_STR("mended"), &changed, NULL);
    assert_false(changed);
    end_ledger(&l);
}

static void budgets_tell_what_is_spent_from_what_is_reserved(void **state)
{
    (void)state;
    ledger l = new_ledger(
        TOOLS("t: {class: write, cost: 0.5, budget: [{per: run, calls: 10, cost: 5}, "
              "{per: tenant, cost: 100}]}, u: {class: write, budget: {per: run, calls: 1}}"));
    runs(&l, "acme/bot/1", "t", 1);
    begin_in(&l, "acme/bot/1", "t", 2); /* runs */
    begin_in(&l, "acme/else/2", "t", 3);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    runs(&l, "acme/else/2", "t", 4);
    runs(&l, "other/bot/1", "t", 4);
    const sm_json *budgets = sm_json_find(show(&l, "acme/bot/1"), SM_STR("budgets"));
    assert_int_equal(budgets->len, 2); /* that of u was never used */
    const sm_json *run = budgets + 1, *tenant = sm_json_next(run);
    expect_member(run, "of", "t");
    expect_member(run, "per", "run");
    expect_member(sm_json_find(run, SM_STR("calls")), "cap", "10");
    expect_member(sm_json_find(run, SM_STR("calls")), "spent", "1");
    expect_member(sm_json_find(run, SM_STR("calls")), "reserved", "1");
    expect_member(sm_json_find(run, SM_STR("cost")), "cap", "5");
    expect_member(sm_json_find(run, SM_STR("cost")), "spent", "0.5");
    expect_member(sm_json_find(run, SM_STR("cost")), "reserved", "0.5");
    expect_member(tenant, "per", "tenant");
    expect_member(sm_json_find(tenant, SM_STR("cost")), "spent", "1");
    expect_member(sm_json_find(tenant, SM_STR("cost")), "reserved", "1");
    end_ledger(&l);
}

static void spend_is_exact_and_says_what_duplicates_would_have_cost(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, cost: 0.1}, free: {class: write}"));
    for (int n = 0; n < 10; n++)
        runs(&l, "acme/bot/1", "t", n);
    begin_in(&l, "acme/bot/2", "t", 0);
    semel_outcome o = {.size = sizeof o, .cost = SM_STR("0.000000001"), .tokens = 7};
    assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
    begin_in(&l, "acme/bot/2", "t", 1); /* runs */
    runs(&l, "acme/mail/1", "free", 1);
    begin_in(&l, "acme/bot/1", "t", 3);
    for (int n = 0; n < 6; n++) /* blocked from the fifth on: these are not executed either */
        begin_in(&l, "acme/bot/1", "t", 5);
    expect_refused(&l, SEMEL_C_LOOP_DETECTED);
    const sm_json *root = spend(&l, SEMEL_SPEND_TOOL, NULL);
    const sm_json *t = item_of(root, "name", "t");
    assert_ptr_equal(t, sm_json_find(root, SM_STR("items")) + 1); /* who spent most comes first */
    expect_member(t, "effects", "12");
    expect_member(t, "executed", "12");
    expect_member(t, "spent", "1.000000001");
    expect_member(t, "reserved", "0.1");
    expect_member(t, "tokens", "7");
    expect_member(t, "duplicates", "7");
    expect_member(t, "saved", "0.7");
    expect_member(item_of(root, "name", "free"), "spent", "0");
    expect_member(sm_json_find(root, SM_STR("total")), "effects", "13");
    expect_member(sm_json_find(root, SM_STR("total")), "saved", "0.7");
    root = spend(&l, SEMEL_SPEND_AGENT, NULL);
    assert_int_equal(sm_json_find(root, SM_STR("items"))->len, 2);
    expect_member(item_of(root, "name", "acme/bot"), "spent", "1.000000001");
    root = spend(&l, SEMEL_SPEND_SCOPE, "acme/bot/2");
    assert_int_equal(sm_json_find(root, SM_STR("items"))->len, 1);
    expect_member(item_of(root, "name", "acme/bot/2"), "spent", "0.000000001");
    root = spend(&l, SEMEL_SPEND_DAY, NULL);
    expect_member(sm_json_find(root, SM_STR("total")), "duplicates", "7");
    end_ledger(&l);
}

static void sums_beyond_what_a_counter_holds_are_exact(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    for (int n = 0; n < 3; n++) {
        begin_in(&l, "r", "t", n);
        semel_outcome o = {.size = sizeof o, .cost = SM_STR("9223372036.854775807")};
        assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
    }
    expect_member(sm_json_find(spend(&l, SEMEL_SPEND_TOOL, NULL), SM_STR("total")), "spent",
                  "27670116110.564327421");
    end_ledger(&l);
}

/* What several attempts of an effect have cost, and what is reserved of a budget: there is room for
 * one such number. */
static void sums_that_do_not_fit_are_the_most_that_can_be_shown(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS(
        "t: {class: write}, big: {class: write, mode: observe, cost: 9000000000, budget: {per: run, cost: 5}}"));
    static const char most[] = "9223372036.854775807";
    for (int i = 0; i < 3; i++) { /* two that failed, and one that did not */
        begin_in(&l, "r", "t", 0);
        expect_execute(&l);
        semel_outcome o = {.size = sizeof o,
                           .kind = i < 2 ? SEMEL_FAILURE : SEMEL_SUCCESS,
                           .cost = sm_str_from(most)};
        assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
        expect_member(item_of(show(&l, "r"), "effect", l.effect), "cost", most);
    }
    for (int n = 0; n < 3; n++) {
        begin_in(&l, "s", "big", n);
        expect_execute(&l);
    }
    const sm_json *cost =
        sm_json_find(sm_json_find(show(&l, "s"), SM_STR("budgets")) + 1, SM_STR("cost"));
    expect_member(cost, "reserved", most);
    expect_member(cost, "spent", "0");
    end_ledger(&l);
}

static void pages_have_every_run_once_and_bounds_are_told(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    char scope[32], cursor[600] = "";
    for (int n = 0; n < 7; n++) {
        snprintf(scope, sizeof scope, "r%d", n);
        runs(&l, scope, "t", n);
    }
    unsigned seen = 0;
    semel_scope_query q = {.size = sizeof q, .limit = 3};
    for (int pages = 0;; pages++) {
        semel_str text;
        assert_true(pages < 4);
        semel_err e = semel_scope_list(l.s, &q, l.a, &text);
        const sm_json *root = read_report(e, &l, text);
        for (int n = 0; n < 7; n++) {
            snprintf(scope, sizeof scope, "r%d", n);
            if (item_of(root, "scope", scope) != NULL) {
                assert_false(seen >> n & 1);
                seen |= 1u << n;
            }
        }
        const sm_json *next = sm_json_find(root, SM_STR("cursor"));
        if (next == NULL)
            break;
        snprintf(cursor, sizeof cursor, "%.*s", SM_FMT(sm_json_text(next)));
        q.cursor = sm_str_from(cursor);
    }
    assert_int_equal(seen, 0x7F);
    semel_str text;
    semel_scope_query few = {.size = sizeof few, .since = INT64_MAX / 2};
    semel_err e = semel_scope_list(l.s, &few, l.a, &text);
    assert_int_equal(sm_json_find(read_report(e, &l, text), SM_STR("items"))->len, 0);
    few = (semel_scope_query){.size = sizeof few, .cursor = SM_STR("7")};
    assert_int_equal(semel_scope_list(l.s, &few, l.a, &text), SEMEL_E_BAD_ARGUMENTS);
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    few = (semel_scope_query){.size = sizeof few, .scope = SM_STR("nobodys")};
    assert_int_equal(semel_scope_show(l.s, &few, l.a, &text), SEMEL_E_NOT_FOUND);
    expect_refused(&l, SEMEL_C_NOT_FOUND);
    assert_int_equal(semel_scope_list(l.s, &(semel_scope_query){0}, l.a, &text),
                     SEMEL_E_BAD_ARGUMENTS);
    end_ledger(&l);
}

static bool stop_scan(void *context, uint64_t done, uint64_t total)
{
    (void)total;
    *(uint64_t *)context = done;
    return false;
}

/* A scan looks at whole pages. */
static void a_scan_that_is_cut_short_says_so(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: off}"));
    for (int n = 0; n < 600; n++)
        begin_in(&l, "r", "t", n);
    uint64_t done = 0;
    semel_str text;
    semel_spend_query q = {.size = sizeof q, .effects_max = 1};
    semel_err e = semel_spend(l.s, &q, l.a, &text);
    expect_true(read_report(e, &l, text), "complete", false);
    q = (semel_spend_query){.size = sizeof q, .progress = stop_scan, .context = &done};
    e = semel_spend(l.s, &q, l.a, &text);
    expect_true(read_report(e, &l, text), "complete", false);
    assert_true(done > 0 && done < 600);
    q = (semel_spend_query){.size = sizeof q};
    e = semel_spend(l.s, &q, l.a, &text);
    const sm_json *root = read_report(e, &l, text);
    expect_true(root, "complete", true);
    expect_member(root, "looked_at", "600");
    end_ledger(&l);
}

/* ---- several threads -------------------------------------------------------------------------*/

#define THREADS 4
#define CALLS   50

static void *call_again(void *context)
{
    semel_answer *a = semel_answer_new();
    for (int n = 0; n < CALLS; n++) {
        semel_call c = call_of("t", "{\"n\":1}");
        semel_begin(context, &c, a);
    }
    semel_answer_free(a);
    return NULL;
}

static void what_several_threads_replay_is_counted(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, loop: off}"));
    runs(&l, "test", "t", 1);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_again, l.s), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    expect_member(show(&l, "test"), "replays", "200");
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_is_what_calls_of_its_scope_did),
        cmocka_unit_test(refusals_are_counted_by_what_they_are_about),
        cmocka_unit_test(what_is_settled_goes_on_answering_while_everything_is_stopped),
        cmocka_unit_test(stops_are_listed_with_who_when_and_why),
        cmocka_unit_test(a_run_says_how_far_it_is_on_the_ladder),
        cmocka_unit_test(budgets_tell_what_is_spent_from_what_is_reserved),
        cmocka_unit_test(spend_is_exact_and_says_what_duplicates_would_have_cost),
        cmocka_unit_test(sums_beyond_what_a_counter_holds_are_exact),
        cmocka_unit_test(sums_that_do_not_fit_are_the_most_that_can_be_shown),
        cmocka_unit_test(pages_have_every_run_once_and_bounds_are_told),
        cmocka_unit_test(a_scan_that_is_cut_short_says_so),
        cmocka_unit_test(what_several_threads_replay_is_counted),
    };
    int failed = run_on_stores(tests, COUNT(tests), NULL, 0, NULL, 0);
    sm_arena_fini(&arena);
    return failed;
}
