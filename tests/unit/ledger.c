/* The ledger's stories through the C API, on every store. */
#include "ledger.h"

static void an_equal_call_is_answered_with_the_recorded_bytes(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    assert_int_equal(begin(&l, "charge", "{\"amount\": 10, \"to\": \"ann\"}"), SEMEL_OK);
    expect_execute(&l);
    assert_int_equal(l.a->idempotency_key.n, 43);
    expect(strncmp(l.claim, "cl_", 3) == 0, "claim %s", l.claim);
    assert_int_equal(commit(&l, "{ \"id\" : 7 }"), SEMEL_OK);
    expect_text(l.a->result, "committed");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    for (int i = 0; i < 3; i++) {
        begin(&l, "charge", "{\"to\": \"ann\", \"amount\": 10.0}");
        expect_replay(&l, "{ \"id\" : 7 }");
        assert_true(l.a->outcome.is_json);
    }
    begin(&l, "charge", "{\"to\": \"bob\", \"amount\": 10}");
    expect_execute(&l);
    end_ledger(&l);
}

static void any_bytes_are_kept_as_an_outcome(void **state)
{
    (void)state;
    static const struct {
        sm_str value;
        bool json;
    } rows[] = {
        {BYTES("NaN"), false}, {BYTES("\"a\\u0000b\""), true}, {BYTES("\xFF\x00\x01"), false},
        {BYTES(""), false},    {BYTES("2026-11-15"), false},   {BYTES(" [1] "), true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        ledger l = new_ledger(NULL);
        begin(&l, "t", "{}");
        semel_outcome o = {.size = sizeof o, .value = rows[i].value};
        assert_int_equal(semel_commit(l.s, sm_str_from(l.claim), &o, l.a), SEMEL_OK);
        begin(&l, "t", "{}");
        expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
        expect(sm_str_eq(l.a->outcome.value, rows[i].value), "row %zu came back different", i);
        expect(l.a->outcome.is_json == rows[i].json, "row %zu", i);
        semel_str json;
        assert_int_equal(semel_answer_json(l.a, &json), SEMEL_OK);
        sm_arena arena;
        sm_arena_init(&arena, SM_ARENA_MAX);
        const sm_json *root;
        sm_fault fault = {0};
        expect(sm_json_read(&arena, json, &sm_json_default_limits, &root, &fault) == SM_OK,
               "<%.*s>: %s", SM_FMT(json), fault.text);
        sm_arena_fini(&arena);
        end_ledger(&l);
    }
}

static void an_outcome_too_large_is_done_without_its_bytes(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    size_t n = ((size_t)1 << 20) + 1;
    char *big = malloc(n);
    memset(big, 'x', n);
    semel_outcome o = {.size = sizeof o, .value = {big, n}};
    assert_int_equal(semel_commit(l.s, sm_str_from(l.claim), &o, l.a), SEMEL_OK);
    begin(&l, "t", "{}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    assert_false(l.a->outcome.kept);
    assert_int_equal(l.a->outcome.bytes, n);
    free(big);
    end_ledger(&l);
}

static void a_conflict_names_the_places_that_differ(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {charge: {class: write, key: {fields: [/order], "
                          "match: [/amount]}}}}");
    begin(&l, "charge", "{\"order\": 1, \"amount\": 5, \"note\": \"a\"}");
    expect_execute(&l);
    begin(&l, "charge", "{\"order\": 1, \"amount\": 6, \"note\": \"b\"}");
    expect_refused(&l, SEMEL_C_KEY_CONFLICT);
    expect_text(l.a->drift, "[\"/amount\",\"/note\"]");
    commit(&l, "1");
    begin(&l, "charge", "{\"order\": 1, \"amount\": 5, \"note\": \"other\"}");
    expect_replay(&l, "1");
    end_ledger(&l);
}

static void a_callers_key_belongs_to_one_tool_and_its_arguments(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    semel_call c = call_of("a", "{\"x\": 1}");
    c.key = SM_STR("k");
    take(&l, semel_begin(l.s, &c, l.a));
    expect_execute(&l);
    commit(&l, "1");
    semel_begin(l.s, &c, l.a);
    expect_replay(&l, "1");
    c.tool = SM_STR("b");
    semel_begin(l.s, &c, l.a);
    expect_refused(&l, SEMEL_C_KEY_CONFLICT);
    c.tool = SM_STR("a");
    c.args = SM_STR("{\"x\": 2}");
    semel_begin(l.s, &c, l.a);
    expect_refused(&l, SEMEL_C_KEY_CONFLICT);
    end_ledger(&l);
}

static void bad_calls_are_refused_and_nothing_is_recorded(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, unlisted: hide, tools: {known: {class: write}}}");
    assert_int_equal(begin(&l, "known", "{\"a\": 1, \"a\": 2}"), SEMEL_E_DUPLICATE);
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    assert_int_equal(begin(&l, "other", "{}"), SEMEL_E_UNKNOWN_TOOL);
    expect_refused(&l, SEMEL_C_UNKNOWN_TOOL);
    semel_call c = {.size = sizeof c, .tool = SM_STR("known")};
    assert_int_equal(semel_begin(l.s, &c, l.a), SEMEL_E_BAD_ARGUMENTS);
    semel_stats stats = {.size = sizeof stats};
    assert_int_equal(semel_stats_get(l.s, false, &stats, NULL), SEMEL_OK);
    assert_int_equal(stats.store.last_seq, 0);
    end_ledger(&l);
}

static void a_running_call_is_in_flight_and_then_in_doubt(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    char claim[128];
    strcpy(claim, l.claim);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    assert_true(l.a->retriable && l.a->retry_after_ms > 0);
    outlive_lease();
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    /* Its own late success settles it. */
    commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"late\"");
    expect_text(l.a->result, "late_settled");
    begin(&l, "t", "{}");
    expect_replay(&l, "\"late\"");
    end_ledger(&l);
}

static void a_commit_after_the_lease_is_in_time_while_nobody_has_looked(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    outlive_lease();
    commit(&l, "1");
    expect_text(l.a->result, "committed");
    end_ledger(&l);
}

static void committing_twice_is_harmless(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    commit(&l, "1");
    expect_text(l.a->result, "committed");
    commit(&l, "1");
    expect_text(l.a->result, "committed");
    commit(&l, "2");
    expect_text(l.a->result, "late_evidence");
    begin(&l, "t", "{}");
    expect_replay(&l, "1");
    end_ledger(&l);
}

static void only_the_claims_secret_commits(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    char forged[128];
    strcpy(forged, l.claim);
    char *last = &forged[strlen(forged) - 1];
    *last = *last == '0' ? '1' : '0';
    commit_as(&l, forged, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    expect_refused(&l, SEMEL_C_BAD_CLAIM);
    commit_as(&l, "cl_nonsense", SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    expect_refused(&l, SEMEL_C_BAD_CLAIM);
    semel_renew(l.s, sm_str_from(forged), 0, l.a);
    expect_refused(&l, SEMEL_C_BAD_CLAIM);
    semel_renew(l.s, sm_str_from(l.claim), 60000, l.a);
    expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    end_ledger(&l);
}

static void an_amount_that_cannot_be_compared_needs_approval(void **state)
{
    (void)state;
    static const char *const odd[] = {"{}", "{\"amount\": \"5\"}", "{\"amount\": null}",
                                      "{\"amount\": [5]}"};
    for (size_t i = 0; i < COUNT(odd); i++) {
        ledger l = new_ledger("{version: 1, tools: {pay: {class: write, approval: {when: [{field: "
                              "/amount, over: 100}], expires: 1h}}}}");
        begin(&l, "pay", odd[i]);
        expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
        end_ledger(&l);
    }
}

static void an_approval_is_for_exactly_these_arguments(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {pay: {class: write, key: {fields: [/to]}, "
                          "approval: {when: [{field: /amount, over: 100}], expires: 1h}}}}");
    begin(&l, "pay", "{\"to\": \"ann\", \"amount\": 10}");
    expect_execute(&l);
    commit(&l, "1");
    begin(&l, "pay", "{\"to\": \"bob\", \"amount\": 500}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    char first[128];
    strcpy(first, l.request);
    semel_approve(l.s, sm_str_from(first), SM_STR("carol"), l.a);
    expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    /* Approved 500: 99999 asks again, and the old approval is gone. */
    begin(&l, "pay", "{\"to\": \"bob\", \"amount\": 99999}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    assert_string_not_equal(first, l.request);
    semel_approve(l.s, sm_str_from(first), SM_STR("carol"), l.a);
    expect_refused(&l, SEMEL_C_KEY_CONFLICT);
    begin(&l, "pay", "{\"to\": \"bob\", \"amount\": 500}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    begin(&l, "pay", "{\"to\": \"bob\", \"amount\": 500}");
    expect_execute(&l);
    end_ledger(&l);
}

static void a_denial_stays_and_says_why(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {pay: {class: write, approval: {expires: 1h}}}}");
    begin(&l, "pay", "{}");
    semel_deny(l.s, sm_str_from(l.request), SM_STR("carol"), SM_STR("too much"), l.a);
    assert_int_equal(l.a->state, SEMEL_S_DENIED);
    begin(&l, "pay", "{}");
    expect_refused(&l, SEMEL_C_DENIED);
    expect(strstr(l.a->message.p, "too much") != NULL, "%s", l.a->message.p);
    end_ledger(&l);
}

static void a_person_resolves_what_is_in_doubt(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) {
        ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
        begin(&l, "t", "{}");
        outlive_lease();
        begin(&l, "t", "{}");
        expect_refused(&l, SEMEL_C_IN_DOUBT);
        semel_outcome o = {.size = sizeof o, .value = SM_STR("{\"found\": 1}")};
        semel_resolve(l.s, sm_str_from(l.effect), (semel_resolution)how, how == 0 ? &o : NULL,
                      SM_STR("looked at the bank"), (sm_str){0}, l.a);
        expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
        begin(&l, "t", "{}");
        if (how == SEMEL_RESOLVE_APPLIED)
            expect_replay(&l, "{\"found\": 1}");
        else if (how == SEMEL_RESOLVE_NOT_APPLIED)
            expect_execute(&l);
        else
            expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
        if (how != SEMEL_RESOLVE_NOT_APPLIED) { /* it is settled: there is nothing to resolve */
            semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_ABANDON, NULL, SM_STR("x"),
                          (sm_str){0}, l.a);
            expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
        }
        end_ledger(&l);
    }
}

static void the_doubt_barrier_holds_other_keys_of_the_tool(void **state)
{
    (void)state;
    ledger l = new_ledger(
        "{version: 1, tools: {wire: {class: irreversible, key: {fields: [/to]}, " SHORT_LEASE
        "}, mail: {class: write}}}");
    begin(&l, "wire", "{\"to\": \"ann\"}");
    expect_execute(&l);
    char effect[128];
    strcpy(effect, l.effect);
    outlive_lease();
    begin(&l, "wire", "{\"to\": \"anne\"}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    expect_text(l.a->blocked_by, effect);
    begin(&l, "mail", "{}");
    expect_execute(&l);
    semel_call c = call_of("wire", "{\"to\": \"bob\"}");
    c.scope = SM_STR("elsewhere");
    semel_begin(l.s, &c, l.a);
    expect_execute(&l);
    begin(&l, "wire", "{\"to\": \"ann\"}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    semel_resolve(l.s, sm_str_from(effect), SEMEL_RESOLVE_APPLIED, NULL, SM_STR("seen"),
                  (sm_str){0}, l.a);
    begin(&l, "wire", "{\"to\": \"anne\"}");
    expect_execute(&l);
    end_ledger(&l);
}

static void a_deliberate_repeat_is_a_generation_of_its_own(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, on_repeat: run, "
                          "repeat_after: 1ms}}}");
    begin(&l, "t", "{}");
    char down[128];
    keep_text(down, l.a->idempotency_key);
    commit(&l, "1");
    char first[128];
    strcpy(first, l.effect);
    usleep(3000);
    begin(&l, "t", "{}");
    expect_replay(&l, "1");
    semel_call c = call_of("t", "{}");
    c.after = sm_str_from(first);
    take(&l, semel_begin(l.s, &c, l.a));
    expect_execute(&l);
    assert_int_equal(l.a->generation, 2);
    assert_string_not_equal(first, l.effect);
    expect(strncmp(down, l.a->idempotency_key.p, 43) != 0, "the downstream key did not change");
    commit(&l, "2");
    begin(&l, "t", "{}");
    expect_replay(&l, "2");
    /* Each is found by its own handle. */
    semel_name name = {.size = sizeof name, .text = sm_str_from(first)};
    semel_get(l.s, &name, l.a);
    expect_replay(&l, "1");
    end_ledger(&l);
}

static void a_window_that_is_over_frees_the_key_and_says_what_was(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: irreversible, key: {fields: [/a]}, "
                          "window: 20ms, result_window: 5ms}}}");
    begin(&l, "t", "{\"a\": 1}");
    char first[128];
    strcpy(first, l.effect);
    commit(&l, "1");
    outlive(20);
    begin(&l, "t", "{\"a\": 1}");
    expect_execute(&l);
    assert_int_equal(l.a->generation, 2);
    expect_text(l.a->repeat_of, first);
    end_ledger(&l);
}

static void a_result_that_is_over_is_not_given_out(void **state)
{
    (void)state;
    ledger l =
        new_ledger("{version: 1, tools: {t: {class: write, window: 1h, result_window: 5ms}}}");
    begin(&l, "t", "{}");
    commit(&l, "\"secret\"");
    char effect[128];
    strcpy(effect, l.effect);
    outlive(5);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RESULT_EXPIRED);
    semel_str json;
    assert_int_equal(semel_answer_json(l.a, &json), SEMEL_OK);
    expect(memmem(json.p, json.n, "secret", 6) == NULL, "%.*s", SM_FMT(json));
    semel_name name = {.size = sizeof name, .text = sm_str_from(effect)};
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    expect(memmem(json.p, json.n, "secret", 6) == NULL, "%.*s", SM_FMT(json));
    end_ledger(&l);
}

static void what_a_program_gets_wrong_is_refused_and_can_be_put_right(void **state)
{
    (void)state;
    semel *none = NULL;
    semel_fault fault;
    assert_int_equal(semel_open(&(semel_options){.url = "memory:"}, &none, &fault),
                     SEMEL_E_BAD_ARGUMENTS);
    ledger l = new_ledger(NULL);
    semel_call c = call_of("t", "{}");
    c.size = 0;
    assert_int_equal(semel_begin(l.s, &c, l.a), SEMEL_E_BAD_ARGUMENTS);
    c = call_of("t", "{}");
    c.after = SM_STR("ef_nonsense");
    assert_int_equal(semel_begin(l.s, &c, l.a), SEMEL_E_BAD_ARGUMENTS);
    begin(&l, "t", "{}");
    const semel_outcome wrong[] = {
        {.size = 0},
        {.size = sizeof(semel_outcome), .kind = (semel_kind)77},
        {.size = sizeof(semel_outcome), .applied = (semel_applied)99},
        {.size = sizeof(semel_outcome), .status = -5},
        {.size = sizeof(semel_outcome), .headers = SM_STR("not json")},
        {.size = sizeof(semel_outcome), .corrective_action = SM_STR("\xFF")},
    };
    for (size_t i = 0; i < COUNT(wrong); i++)
        expect(semel_commit(l.s, sm_str_from(l.claim), &wrong[i], l.a) == SEMEL_E_BAD_ARGUMENTS,
               "row %zu", i);
    assert_int_equal(semel_renew(l.s, sm_str_from(l.claim), INT64_MAX, l.a), SEMEL_E_BAD_ARGUMENTS);
    assert_int_equal(semel_renew(l.s, sm_str_from(l.claim), -1, l.a), SEMEL_E_BAD_ARGUMENTS);
    commit(&l, "1");
    expect_text(l.a->result, "committed");
    end_ledger(&l);
}

static void failures_are_retried_or_replayed_as_the_contract_says(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {w: {class: write}, i: {class: irreversible, "
                          "key: {fields: [/a]}, barrier: off}}}");
    begin(&l, "w", "{}");
    char down[128];
    keep_text(down, l.a->idempotency_key);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_DEFAULT, "\"no\"");
    assert_int_equal(l.a->state, SEMEL_S_FAILED);
    begin(&l, "w", "{}");
    expect_execute(&l);
    assert_int_equal(l.a->attempt, 2);
    expect(strncmp(down, l.a->idempotency_key.p, 43) != 0, "a new run has a new downstream key");
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_YES, "\"half\"");
    begin(&l, "w", "{}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    begin(&l, "i", "{\"a\": 1}");
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_DEFAULT, "\"?\"");
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    begin(&l, "i", "{\"a\": 2}");
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"refused\"");
    begin(&l, "i", "{\"a\": 2}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    assert_int_equal(l.a->outcome.kind, SEMEL_FAILURE);
    end_ledger(&l);
}

static void a_partial_outcome_is_replayed_with_what_is_left_to_do(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    semel_outcome o = {.size = sizeof o,
                       .kind = SEMEL_PARTIAL,
                       .value = SM_STR("{\"sent\": 2}"),
                       .corrective_action = SM_STR("send the third by hand")};
    semel_commit(l.s, sm_str_from(l.claim), &o, l.a);
    begin(&l, "t", "{}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_PARTIAL_SUCCESS);
    expect_text(l.a->corrective_action, "send the third by hand");
    end_ledger(&l);
}

static void a_late_success_wins_over_an_attempt_that_did_nothing(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write_idempotent, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    char old[128];
    strcpy(old, l.claim);
    outlive_lease();
    begin(&l, "t", "{}");
    expect_execute(&l);
    assert_int_equal(l.a->fence, 2);
    char current[128];
    strcpy(current, l.claim);
    commit_as(&l, old, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"old\"");
    expect_text(l.a->result, "late_evidence");
    assert_int_equal(l.a->state, SEMEL_S_RUNNING);
    commit_as(&l, current, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"nothing\"");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    begin(&l, "t", "{}");
    expect_replay(&l, "\"old\"");
    end_ledger(&l);
}

static void forgetting_drops_the_payload_and_lets_it_run_again(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{\"secret\": 1}");
    commit(&l, "\"private\"");
    char first[128];
    strcpy(first, l.effect);
    semel_forget(l.s, sm_str_from(first), (sm_str){0}, SM_STR("asked to"), l.a);
    expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(first)};
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    expect(memmem(json.p, json.n, "private", 7) == NULL, "%.*s", SM_FMT(json));
    expect(memmem(json.p, json.n, "\"secret\"", 8) == NULL, "%.*s", SM_FMT(json));
    expect(memmem(json.p, json.n, "asked to", 8) != NULL, "%.*s", SM_FMT(json));
    begin(&l, "t", "{\"secret\": 1}");
    expect_execute(&l);
    end_ledger(&l);
}

static void reads_pass_and_are_not_recorded(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {find: {class: read}}}");
    for (int i = 0; i < 2; i++) {
        begin(&l, "find", "{}");
        expect_execute(&l);
        assert_null(l.a->claim.p);
        assert_null(l.a->effect.p);
    }
    end_ledger(&l);
}

static void observe_mode_executes_and_says_what_it_would_have_said(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, mode: observe}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    begin(&l, "t", "{}");
    expect_execute(&l);
    assert_null(l.a->claim.p);
    expect_text(l.a->observed, "RETRY_IN_FLIGHT");
    end_ledger(&l);
    l = new_ledger(
        "{version: 1, tools: {t: {class: write, mode: observe, approval: {quorum: 1}}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    assert_non_null(l.a->claim.p);
    expect_text(l.a->observed, "AWAITING_APPROVAL");
    end_ledger(&l);
    l = new_ledger("{version: 1, tools: {t: {class: irreversible, key: {fields: [/a]}, mode: "
                   "observe}}}");
    begin(&l, "t", "{\"a\": 1}");
    char effect[128];
    strcpy(effect, l.effect);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    begin(&l, "t", "{\"a\": 2}");
    expect_execute(&l);
    expect_text(l.a->observed, "IN_DOUBT");
    expect_text(l.a->blocked_by, effect);
    end_ledger(&l);
}

static void redacted_values_are_never_stored(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, key: {fields: [/user]}, "
                          "redact: [/password, /cards/0/number]}}}");
    begin(
        &l, "t",
        "{\"user\": 1, \"password\": \"hunter2\", \"cards\": [{\"number\": \"4242 4242 4242\"}]}");
    expect_execute(&l);
    commit(&l, "1");
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    semel_str json;
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    expect(memmem(json.p, json.n, "hunter2", 7) == NULL, "%.*s", SM_FMT(json));
    expect(memmem(json.p, json.n, "4242 4242", 9) == NULL, "%.*s", SM_FMT(json));
    expect(memmem(json.p, json.n, "[redacted]", 10) != NULL, "%.*s", SM_FMT(json));
    begin(
        &l, "t",
        "{\"user\": 1, \"password\": \"hunter2\", \"cards\": [{\"number\": \"4242 4242 4242\"}]}");
    expect_replay(&l, "1");
    end_ledger(&l);
}

static bool count_flaws(void *context, semel_str text)
{
    print_message("# flaw: %.*s\n", SM_FMT(text));
    ++*(int *)context;
    return true;
}

static void the_trail_of_all_this_verifies(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write_idempotent, " SHORT_LEASE "}}}");
    for (int i = 0; i < 50; i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        begin(&l, "t", args);
        if (i % 20 == 7) {
            outlive_lease();
            begin(&l, "t", args);
        }
        if (i % 5 != 4)
            commit(&l, "{}");
        if (i == 25)
            assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    }
    int flaws = 0;
    semel_verified v = {.size = sizeof v};
    semel_fault fault = {0};
    semel_err e = semel_verify(l.s, count_flaws, NULL, &flaws, &v, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    assert_int_equal(v.flaws, 0);
    assert_int_equal(v.effects, 50);
    assert_int_equal(v.seals, 1);
    assert_true(v.unsealed > 0 && v.unsealed < v.events);
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    assert_int_equal(semel_verify(l.s, count_flaws, NULL, &flaws, &v, NULL), SEMEL_OK);
    assert_int_equal(v.unsealed, 0);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_equal_call_is_answered_with_the_recorded_bytes),
        cmocka_unit_test(any_bytes_are_kept_as_an_outcome),
        cmocka_unit_test(an_outcome_too_large_is_done_without_its_bytes),
        cmocka_unit_test(a_conflict_names_the_places_that_differ),
        cmocka_unit_test(a_callers_key_belongs_to_one_tool_and_its_arguments),
        cmocka_unit_test(bad_calls_are_refused_and_nothing_is_recorded),
        cmocka_unit_test(a_running_call_is_in_flight_and_then_in_doubt),
        cmocka_unit_test(a_commit_after_the_lease_is_in_time_while_nobody_has_looked),
        cmocka_unit_test(committing_twice_is_harmless),
        cmocka_unit_test(only_the_claims_secret_commits),
        cmocka_unit_test(an_amount_that_cannot_be_compared_needs_approval),
        cmocka_unit_test(an_approval_is_for_exactly_these_arguments),
        cmocka_unit_test(a_denial_stays_and_says_why),
        cmocka_unit_test(a_person_resolves_what_is_in_doubt),
        cmocka_unit_test(the_doubt_barrier_holds_other_keys_of_the_tool),
        cmocka_unit_test(a_deliberate_repeat_is_a_generation_of_its_own),
        cmocka_unit_test(a_window_that_is_over_frees_the_key_and_says_what_was),
        cmocka_unit_test(a_result_that_is_over_is_not_given_out),
        cmocka_unit_test(what_a_program_gets_wrong_is_refused_and_can_be_put_right),
        cmocka_unit_test(failures_are_retried_or_replayed_as_the_contract_says),
        cmocka_unit_test(a_partial_outcome_is_replayed_with_what_is_left_to_do),
        cmocka_unit_test(a_late_success_wins_over_an_attempt_that_did_nothing),
        cmocka_unit_test(forgetting_drops_the_payload_and_lets_it_run_again),
        cmocka_unit_test(reads_pass_and_are_not_recorded),
        cmocka_unit_test(observe_mode_executes_and_says_what_it_would_have_said),
        cmocka_unit_test(redacted_values_are_never_stored),
        cmocka_unit_test(the_trail_of_all_this_verifies),
    };
    return run_on_stores(tests, COUNT(tests), NULL, 0, NULL, 0);
}
