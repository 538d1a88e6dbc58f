/* Undoing: which call undoes an effect, what an undo may pass, and decisions that name a version.
 */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "core/undo.h"
#include "ledger/service.h"

#define SHOP                                                                                       \
    "{version: 1, tools: {"                                                                        \
    "charge: {class: write, compensate: {tool: refund, args: {/charge: {outcome: /id}, "           \
    "/by/agent: /agent}}}, "                                                                       \
    "refund: {class: write, window: 1h, budget: {per: run, calls: 1}}, "                           \
    "other: {class: write}, "                                                                      \
    "card: {class: write, compensate: {tool: refund, args: {/charge: /number}}}}}"

static sm_handle handle_of(const ledger *l)
{
    sm_handle h;
    assert_true(sm_handle_parse("ef_", sm_str_from(l->effect), &h));
    return h;
}

/* Something that succeeded with this outcome. */
static sm_handle did(ledger *l, const char *tool, const char *args, const char *outcome)
{
    begin(l, tool, args);
    expect_execute(l);
    commit_as(l, l->claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, outcome);
    return handle_of(l);
}

/* Asks for the call of an undo, as whoever executes it does. */
static void ask_undo(ledger *l, const sm_undo *u)
{
    sm_asking q = {.call = u->call, .undoes = true, .lease_ms = 5000};
    take(l, sm_ask(l->s, &q, l->a)); /* the call's texts live in another answer */
    sm_contracts_free(q.contracts);
}

static sm_undo undo_of(ledger *l, const sm_handle *h, semel_answer *a)
{
    sm_undo u;
    assert_int_equal(sm_undo_of(l->s, h, a, &u), SEMEL_OK);
    return u;
}

static void the_call_is_made_of_arguments_and_outcome_and_has_the_handle_as_key(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    sm_undo u = undo_of(&l, &h, b);
    assert_int_equal(u.status, SM_UNDO_TODO);
    expect_text(u.call.tool, "refund");
    expect_text(u.call.args, "{\"by\":{\"agent\":\"a7\"},\"charge\":\"ch_1\"}");
    expect_text(u.call.scope, "test");
    char key[200];
    snprintf(key, sizeof key, "undo:%s", l.effect);
    expect_text(u.call.key, key);
    assert_true(u.undo.p == NULL);
    ask_undo(&l, &u);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
    sm_handle undo = handle_of(&l);
    u = undo_of(&l, &h, b);
    assert_int_equal(u.status, SM_UNDO_DONE);
    expect_text(u.undo, l.effect);
    u = undo_of(&l, &undo, b); /* an undo is not undone */
    assert_int_equal(u.status, SM_UNDO_NOTHING);
    semel_answer_free(b);
    end_ledger(&l);
}

static void a_run_can_neither_forge_nor_block_its_undo(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    char key[SM_UNDO_KEY_TEXT];
    static const char *const calls[][2] = {
        {"other", "{}"},
        {"refund", "{\"by\":{\"agent\":\"a7\"},\"charge\":\"ch_1\"}"},
        {"refund", "{\"by\":{\"agent\":\"a7\"},\"charge\":\"ch_1\",\"amount\":0}"}};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        semel_call call = call_of(calls[i][0], calls[i][1]);
        call.key = (sm_str){key, sm_undo_key(&h, key)};
        take(&l, semel_begin(l.s, &call, l.a));
        expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
        assert_non_null(memmem(l.a->message.p, l.a->message.n, "only for undoing", 16));
        sm_asking q = {.call = call, .lease_ms = 5000};
        take(&l, sm_ask(l.s, &q, l.a));
        expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
        sm_contracts_free(q.contracts);
    }
    semel_call call = call_of("other", "{}");
    call.key = SM_STR("undo:that"); /* nor anything else that looks like it */
    take(&l, semel_begin(l.s, &call, l.a));
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    sm_undo u = undo_of(&l, &h, b);
    assert_int_equal(u.status, SM_UNDO_TODO);
    assert_true(u.undo.p == NULL);
    semel_answer_free(b);
    end_ledger(&l);
}

static void an_undo_with_other_arguments_is_not_taken_for_it(void **state)
{
    (void)state;
    static const char *const others[] = {
        "{\"by\":{\"agent\":\"a7\"},\"charge\":\"ch_9\"}",
        "{\"by\":{\"agent\":\"a7\"},\"charge\":\"ch_1\",\"amount\":0}", /* and one more */
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ledger l = new_ledger(SHOP);
        semel_answer *b = semel_answer_new();
        sm_handle h = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
        sm_undo u = undo_of(&l, &h, b);
        u.call.args = sm_str_from(others[i]);
        ask_undo(&l, &u);
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
        u = undo_of(&l, &h, b);
        assert_int_equal(u.status, SM_UNDO_CANNOT);
        assert_non_null(strstr(u.why.p, "it was undone with other arguments"));
        semel_answer_free(b);
        end_ledger(&l);
    }
}

static void a_redacted_value_is_never_used(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h = did(&l, "card", "{\"number\":\"[redacted]\"}", "{}");
    sm_undo u = undo_of(&l, &h, b);
    assert_int_equal(u.status, SM_UNDO_CANNOT);
    expect_text(u.why, "/number of its arguments is redacted");
    semel_answer_free(b);
    end_ledger(&l);
}

static void replace_contracts(ledger *l, const char *text)
{
    sm_report report;
    sm_report_init(&report, sm_str_from(text));
    assert_int_equal(sm_contracts_replace(l->s, SM_STR("test"), sm_str_from(text), &report, NULL),
                     SM_OK);
    sm_report_fini(&report);
}

#define ROOM_TOOLS                                                                                 \
    "close: {class: write}, refund: {class: write}, "                                              \
    "room: {class: write, redact: [/kind], compensate: {tool: close, args: {/id: /id}}"
#define ROOM_PAID                                                                                  \
    "{when: [{field: /kind, equals: paid}], compensate: {tool: refund, args: {/charge: /id}}}"

static void the_variant_is_the_recorded_one_and_not_guessed_from_what_is_stored(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {" ROOM_TOOLS ", variants: [" ROOM_PAID "]}}}");
    semel_answer *b = semel_answer_new();
    sm_handle paid = did(&l, "room", "{\"id\":1,\"kind\":\"paid\"}", "{}");
    sm_handle free = did(&l, "room", "{\"id\":2,\"kind\":\"free\"}", "{}");
    sm_undo u = undo_of(&l, &paid, b);
    assert_int_equal(u.status, SM_UNDO_TODO);
    expect_text(u.call.tool, "refund");
    u = undo_of(&l, &free, b);
    assert_int_equal(u.status, SM_UNDO_TODO);
    expect_text(u.call.tool, "close");
    replace_contracts(&l, "{version: 1, tools: {" ROOM_TOOLS "}}}");
    u = undo_of(&l, &paid, b);
    assert_int_equal(u.status, SM_UNDO_CANNOT);
    expect_text(u.why, "the variant of its contract does not exist any more");
    u = undo_of(&l, &free, b);
    assert_int_equal(u.status, SM_UNDO_TODO);
    semel_answer_free(b);
    end_ledger(&l);
}

static void what_was_forgotten_cannot_be_undone(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    take(&l, semel_forget(l.s, sm_str_from(l.effect), (sm_str){0}, (sm_str){0}, l.a));
    sm_undo u = undo_of(&l, &h, b);
    assert_int_equal(u.status, SM_UNDO_CANNOT);
    assert_non_null(strstr(u.why.p, "forgotten"));
    begin(&l, "charge", "{}");
    expect_execute(&l);
    h = handle_of(&l);
    assert_int_equal(sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a), SEMEL_OK);
    u = undo_of(&l, &h, b); /* nothing was done under a claim that was given back */
    assert_int_equal(u.status, SM_UNDO_NOTHING);
    semel_answer_free(b);
    end_ledger(&l);
}

static void stop(ledger *l, semel_stop_kind kind, const char *name)
{
    bool changed;
    semel_fault fault;
    assert_int_equal(
        semel_stop(l->s, kind, sm_str_from(name), (sm_str){0}, SM_STR("enough"), &changed, &fault),
        SEMEL_OK);
}

static void a_persons_undo_passes_stops_of_the_run_but_not_of_its_tool(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle first = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    sm_handle second = did(&l, "charge", "{\"agent\":\"a8\"}", "{\"id\":\"ch_2\"}");
    stop(&l, SEMEL_STOP_SCOPE, "test");
    begin(&l, "other", "{}");
    expect_refused(&l, SEMEL_C_STOPPED);
    sm_undo u = undo_of(&l, &first, b);
    ask_undo(&l, &u);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    assert_int_equal(semel_show(l.s, &name, b, &json), SEMEL_OK);
    assert_non_null(memmem(json.p, json.n, "\"despite\":\"scope\"", 17)); /* and it is recorded */
    u = undo_of(&l, &second, b);
    semel_call call = u.call; /* which no agent can make */
    take(&l, semel_begin(l.s, &call, l.a));
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    stop(&l, SEMEL_STOP_TOOL, "ref*");
    ask_undo(&l, &u);
    expect_refused(&l, SEMEL_C_STOPPED);
    semel_answer_free(b);
    end_ledger(&l);
}

static void by_hand_the_call_that_the_rule_makes_begins_and_no_other(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    did(&l, "refund", "{}", "{}"); /* all that the budget allows */
    stop(&l, SEMEL_STOP_SCOPE, "test");
    sm_undo u = undo_of(&l, &h, b);
    semel_call right = u.call;
    right.flags = SEMEL_CALL_UNDOES | SEMEL_CALL_DETACHED;
    semel_call wrong[6];
    for (size_t i = 0; i < 6; i++)
        wrong[i] = right;
    wrong[0].tool = SM_STR("other");
    wrong[1].args = SM_STR("{\"by\":{\"agent\":\"a7\"},\"charge\":\"ch_1\",\"amount\":0}");
    wrong[2].scope = SM_STR("elsewhere");
    wrong[3].key = SM_STR("mine");
    wrong[4].key = (sm_str){0};
    wrong[5].after = u.effect;
    for (size_t i = 0; i < 6; i++) {
        take(&l, semel_begin(l.s, &wrong[i], l.a));
        expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    }
    right.args = SM_STR("{ \"charge\": \"ch_1\", \"by\": {\"agent\": \"a7\"} }");
    take(&l, semel_begin(l.s, &right, l.a));
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
    take(&l, semel_begin(l.s, &right, l.a));
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    semel_answer *c = semel_answer_new();
    assert_int_equal(undo_of(&l, &h, c).status, SM_UNDO_DONE);
    semel_answer_free(c);
    semel_answer_free(b);
    end_ledger(&l);
}

static void a_used_up_budget_does_not_keep_a_run_from_being_undone(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h[2];
    h[0] = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    h[1] = did(&l, "charge", "{\"agent\":\"a8\"}", "{\"id\":\"ch_2\"}");
    did(&l, "refund", "{}", "{}"); /* all that the budget allows */
    begin(&l, "refund", "{\"charge\":1}");
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    for (int i = 0; i < 2; i++) {
        sm_undo u = undo_of(&l, &h[i], b);
        ask_undo(&l, &u);
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
    }
    semel_answer_free(b);
    end_ledger(&l);
}

/* Whoever commits may say any cost, so a run could fill the counters of its own undo. */
static void a_full_counter_does_not_keep_a_run_from_being_undone(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, defaults: {budget: {per: run, cost: 5}}, tools: {"
                          "charge: {class: write, compensate: {tool: refund, args: {/charge: "
                          "{outcome: /id}}}}, refund: {class: write, cost: 1}}}");
    semel_answer *b = semel_answer_new();
    begin(&l, "charge", "{}");
    expect_execute(&l);
    semel_outcome o = {.size = sizeof o,
                       .value = SM_STR("{\"id\":1}"),
                       .is_json = true,
                       .cost = SM_STR("9223372036.854775807")};
    assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
    sm_handle h = handle_of(&l);
    begin(&l, "refund", "{}");
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    sm_undo u = undo_of(&l, &h, b);
    ask_undo(&l, &u);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
    u = undo_of(&l, &h, b);
    assert_int_equal(u.status, SM_UNDO_DONE);
    semel_answer_free(b);
    end_ledger(&l);
}

/* Whoever looks again whether a run is undone asks for each of its undos again. */
static void an_undo_that_is_asked_for_again_and_again_is_no_loop(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    semel_answer *b = semel_answer_new();
    sm_handle h = did(&l, "charge", "{\"agent\":\"a7\"}", "{\"id\":\"ch_1\"}");
    sm_undo u = undo_of(&l, &h, b);
    ask_undo(&l, &u);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}");
    for (int i = 0; i < 10; i++) {
        ask_undo(&l, &u);
        expect_replay(&l, "{}");
        assert_true(l.a->warning.p == NULL);
    }
    semel_answer_free(b);
    end_ledger(&l);
}

static void only_the_key_of_an_undo_may_pass(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    sm_asking q = {.call = call_of("refund", "{}"), .undoes = true};
    q.call.key = SM_STR("mine");
    take(&l, sm_ask(l.s, &q, l.a));
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    sm_contracts_free(q.contracts);
    end_ledger(&l);
}

static void a_scope_has_its_own_effects_and_none_of_those_below(void **state)
{
    (void)state;
    ledger l = new_ledger(SHOP);
    sm_handle h[2], page[8];
    h[0] = did(&l, "other", "{\"n\":1}", "{}");
    semel_call below = call_of("other", "{}");
    below.scope = SM_STR("test/below");
    take(&l, semel_begin(l.s, &below, l.a));
    h[1] = did(&l, "other", "{\"n\":2}", "{}");
    uint64_t cursor = 0;
    size_t all = 0;
    do { /* one at a time */
        size_t n;
        sm_fault fault;
        assert_int_equal(sm_scope_effects(l.s, SM_STR("test"), &cursor, page + all, 1, &n, &fault),
                         SEMEL_OK);
        all += n;
    } while (cursor != 0);
    assert_int_equal(all, 2);
    assert_int_equal(page[0].id, h[1].id);
    assert_int_equal(page[1].id, h[0].id);
    end_ledger(&l);
}

/* ---- versions --------------------------------------------------------------------------------*/

static void decide(ledger *l, semel_decides what, uint64_t version)
{
    semel_decision d = {.size = sizeof d,
                        .what = what,
                        .name = sm_str_from(what == SEMEL_DECIDE_APPROVE ? l->request : l->effect),
                        .reason = SM_STR("why"),
                        .how = SEMEL_RESOLVE_APPLIED,
                        .if_version = version};
    take(l, semel_decide(l->s, &d, l->a));
}

static void a_decision_about_another_version_changes_nothing(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}, "
                          "asks: {class: write, approval: {}}}}");
    begin(&l, "asks", "{}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    uint64_t version = l.a->version;
    assert_int_not_equal(version, 0);
    decide(&l, SEMEL_DECIDE_APPROVE, version + 1);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    assert_int_equal(l.a->state, SEMEL_S_PENDING);
    assert_int_equal(l.a->version, version);
    assert_non_null(memmem(l.a->message.p, l.a->message.n, "pending_approval now", 20));
    decide(&l, SEMEL_DECIDE_APPROVE, version);
    assert_int_equal(l.a->verdict, SEMEL_DONE);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    assert_true(l.a->version > version);

    begin(&l, "t", "{}");
    expect_execute(&l);
    version = l.a->version;
    char claim[128];
    strcpy(claim, l.claim);
    outlive_lease(); /* it is in doubt when somebody looks, and nothing has been written */
    decide(&l, SEMEL_DECIDE_RESOLVE, version + 7);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "{}"); /* it settles itself */
    decide(&l, SEMEL_DECIDE_RESOLVE, version);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    decide(&l, SEMEL_DECIDE_FORGET, version);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    decide(&l, SEMEL_DECIDE_FORGET, l.a->version);
    assert_int_equal(l.a->verdict, SEMEL_DONE);
    end_ledger(&l);
}

static void a_stale_decision_is_refused_from_what_was_read(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    outlive_lease();
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    take(&l, semel_get(l.s, &name, l.a));
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    uint64_t version = l.a->version;
    assert_false(sm_decision_stale(l.a, 0));
    assert_false(sm_decision_stale(l.a, version));
    assert_true(sm_decision_stale(l.a, version + 1));
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    assert_non_null(memmem(l.a->message.p, l.a->message.n, "it is in_doubt now", 18));
    take(&l, semel_get(l.s, &name, l.a)); /* and nothing was written */
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    assert_int_equal(l.a->version, version);
    end_ledger(&l);
}

/* Before a doubt is undone. Else it could be tried again after its undo. */
static void a_doubt_that_is_held_is_left_to_people(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, on_in_doubt: [rerun, hold]}}}");
    for (int n = 0; n < 2; n++) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\":%d}", n);
        begin(&l, "t", args);
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
        sm_handle h;
        assert_true(sm_handle_parse("ef_", sm_str_from(l.effect), &h));
        uint64_t version = l.a->version;
        assert_int_equal(sm_doubt_hold(l.s, &h, version + 1, l.a), SM_OK); /* not this one */
        expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
        if (n == 0) {
            assert_int_equal(sm_doubt_hold(l.s, &h, version, l.a), SM_OK);
            assert_int_equal(l.a->verdict, SEMEL_DONE);
            version = l.a->version;
            assert_int_equal(sm_doubt_hold(l.s, &h, version, l.a), SM_OK); /* once is enough */
            assert_int_equal(l.a->version, version);
        }
        begin(&l, "t", args);
        expect_verdict(&l, n == 0 ? SEMEL_REFUSED : SEMEL_EXECUTE,
                       n == 0 ? SEMEL_C_IN_DOUBT : SEMEL_C_NONE);
        if (n == 1) { /* it runs */
            assert_int_equal(sm_doubt_hold(l.s, &h, 0, l.a), SM_OK);
            expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
        }
    }
    end_ledger(&l);
}

/* Nobody has looked at it since its lease was over. */
static void an_attempt_that_was_not_heard_of_is_held_as_a_doubt(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write_idempotent, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    sm_handle h = handle_of(&l);
    outlive_lease();
    assert_int_equal(sm_doubt_hold(l.s, &h, 0, l.a), SM_OK);
    expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

enum { RACERS = 8 };

typedef struct racer {
    semel *s;
    const char *request;
    uint64_t version;
    atomic_int *ready;
    int number;
    bool done;
} racer;

static void *race(void *context)
{
    racer *r = context;
    semel_answer *a = semel_answer_new();
    char actor[32];
    snprintf(actor, sizeof actor, "racer-%d", r->number);
    semel_decision d = {.size = sizeof d,
                        .what = SEMEL_DECIDE_APPROVE,
                        .name = sm_str_from(r->request),
                        .actor = sm_str_from(actor),
                        .if_version = r->version};
    atomic_fetch_add(r->ready, 1);
    while (atomic_load(r->ready) < RACERS)
        sched_yield();
    semel_decide(r->s, &d, a);
    r->done = a->verdict == SEMEL_DONE;
    if (!r->done)
        assert_int_equal(a->code, SEMEL_C_ILLEGAL_STATE);
    semel_answer_free(a);
    return NULL;
}

/* Each approval changes the effect, so of all who have seen the same version one is let through. */
static void of_racing_decisions_about_one_version_one_is_done(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, approval: {quorum: 16}}}}");
    for (int round = 0; round < 20; round++) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\":%d}", round);
        begin(&l, "t", args);
        expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
        pthread_t threads[RACERS];
        racer racers[RACERS];
        atomic_int ready = 0;
        for (int i = 0; i < RACERS; i++) {
            racers[i] = (racer){l.s, l.request, l.a->version, &ready, i, false};
            assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
        }
        int done = 0;
        for (int i = 0; i < RACERS; i++) {
            pthread_join(threads[i], NULL);
            done += racers[i].done;
        }
        assert_int_equal(done, 1);
    }
    end_ledger(&l);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_call_is_made_of_arguments_and_outcome_and_has_the_handle_as_key),
        cmocka_unit_test(a_run_can_neither_forge_nor_block_its_undo),
        cmocka_unit_test(an_undo_with_other_arguments_is_not_taken_for_it),
        cmocka_unit_test(a_redacted_value_is_never_used),
        cmocka_unit_test(the_variant_is_the_recorded_one_and_not_guessed_from_what_is_stored),
        cmocka_unit_test(what_was_forgotten_cannot_be_undone),
        cmocka_unit_test(a_persons_undo_passes_stops_of_the_run_but_not_of_its_tool),
        cmocka_unit_test(by_hand_the_call_that_the_rule_makes_begins_and_no_other),
        cmocka_unit_test(a_used_up_budget_does_not_keep_a_run_from_being_undone),
        cmocka_unit_test(a_full_counter_does_not_keep_a_run_from_being_undone),
        cmocka_unit_test(an_undo_that_is_asked_for_again_and_again_is_no_loop),
        cmocka_unit_test(only_the_key_of_an_undo_may_pass),
        cmocka_unit_test(a_scope_has_its_own_effects_and_none_of_those_below),
        cmocka_unit_test(a_decision_about_another_version_changes_nothing),
        cmocka_unit_test(a_stale_decision_is_refused_from_what_was_read),
        cmocka_unit_test(a_doubt_that_is_held_is_left_to_people),
        cmocka_unit_test(an_attempt_that_was_not_heard_of_is_held_as_a_doubt),
        cmocka_unit_test(of_racing_decisions_about_one_version_one_is_done),
    };
    return run_on_stores(tests, sizeof tests / sizeof tests[0], NULL, 0, NULL, 0);
}
