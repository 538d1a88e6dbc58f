/* The ledger loses the record of an attempt that runs: its end puts it back, and nothing runs
 * twice. The rows are taken from the file behind the ledger's back. */
#include "ledger.h"

#include <sqlite3.h>

#include "ledger/service.h"
#include "store/stores.h"

static char url[512];
static unsigned runs;

static void lose(const char *sql)
{
    sqlite3 *db = NULL;
    char *error = NULL;
    assert_int_equal(sqlite3_open(url + strlen("sqlite:"), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    expect(sqlite3_exec(db, sql, NULL, NULL, &error) == SQLITE_OK, "%s: %s", sql, error);
    sqlite3_close(db);
}

#define CONTRACT "{version: 1, tools: {t: {class: write}}}"
#define RECORDS  "DELETE FROM name; DELETE FROM effect"
#define ALL_GONE RECORDS "; DELETE FROM event"

static ledger start(const char *contract)
{
    ledger l = {0};
    snprintf(url, sizeof url, "%s", fresh_url());
    l.s = open_ledger(url, contract, false);
    l.a = semel_answer_new();
    runs = 0;
    return l;
}

/* As somebody does who has looked at what ran. */
static void open_anew(ledger *l)
{
    semel_close(l->s);
    forget_notes(url);
    l->s = open_ledger(url, CONTRACT, false);
}

static void work(void *context, const semel_answer *execute, semel_outcome *o)
{
    (void)execute;
    runs++;
    lose(context);
    o->kind = SEMEL_SUCCESS;
    o->value = SM_STR("{\"id\":7}");
}

static void a_run_whose_record_is_gone_is_put_back(void **state)
{
    (void)state;
    static const char *const losses[] = {RECORDS, ALL_GONE};
    for (size_t i = 0; i < COUNT(losses); i++) {
        ledger l = start(CONTRACT);
        semel_call call = call_of("t", "{}");
        assert_int_equal(semel_run(l.s, &call, work, (void *)(uintptr_t)losses[i], l.a), SEMEL_OK);
        expect(l.a->executed && sm_str_is(l.a->result, "put_back"), "%.*s", SM_FMT(l.a->result));
        expect(sm_str_is(l.a->outcome.value, "{\"id\":7}"), "%.*s", SM_FMT(l.a->outcome.value));
        if (i > 0) { /* the events too: nothing is answered until it is opened anew */
            assert_int_equal(semel_run(l.s, &call, work, NULL, l.a), SEMEL_E_UNAVAILABLE);
            open_anew(&l);
        }
        assert_int_equal(semel_run(l.s, &call, work, (void *)(uintptr_t)losses[i], l.a), SEMEL_OK);
        assert_int_equal(l.a->verdict, SEMEL_REPLAY);
        assert_int_equal(runs, 1);
        semel_verified v = {.size = sizeof v};
        assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
        expect(v.flaws > 0, "verifying does not tell that something was lost");
        end_ledger(&l);
    }
}

static void a_claim_whose_record_is_gone_is_put_back_by_the_handle_that_gave_it(void **state)
{
    (void)state;
    ledger l = start(CONTRACT);
    begin(&l, "t", "{}");
    expect_execute(&l);
    lose(RECORDS);
    commit(&l, "\"done\"");
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

/* What a call was charged was lost with its record, and comes back with it, if it did something. */
static void what_a_lost_attempt_was_charged_comes_back_with_it(void **state)
{
    (void)state;
    static const char *const contracts[] = {
        "{version: 1, tools: {t: {class: write, budget: {per: run, calls: 1}}}}",
        "{version: 1, tools: {t: {class: write, limit: {per: /to, calls: 1, window: 1h}}}}"};
    for (size_t i = 0; i < 2 * COUNT(contracts); i++) {
        bool fails = i % 2 == 1;
        ledger l = start(contracts[i / 2]);
        begin(&l, "t", "{\"to\":1,\"n\":1}");
        expect_execute(&l);
        lose(RECORDS "; DELETE FROM counter");
        commit_as(&l, l.claim, fails ? SEMEL_FAILURE : SEMEL_SUCCESS,
                  fails ? SEMEL_APPLIED_NO : SEMEL_APPLIED_DEFAULT, "1");
        expect_text(l.a->result, "put_back");
        begin(&l, "t", "{\"to\":1,\"n\":2}");
        expect_verdict(&l, fails ? SEMEL_EXECUTE : SEMEL_REFUSED,
                       fails ? SEMEL_C_NONE : SEMEL_C_BUDGET_EXCEEDED);
        end_ledger(&l);
    }
}

/* With what it says that it has cost, and not with what is declared. */
static void what_a_lost_attempt_has_cost_comes_back_with_it(void **state)
{
    (void)state;
    ledger l = start("{version: 1, tools: {t: {class: write, cost: 1, budget: {per: run, calls: 5, "
                     "cost: 5}}}}");
    begin(&l, "t", "{\"n\":1}");
    expect_execute(&l);
    lose(RECORDS "; DELETE FROM counter");
    semel_outcome o = {.size = sizeof o, .cost = SM_STR("4.5")};
    assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
    expect_text(l.a->result, "put_back");
    begin(&l, "t", "{\"n\":2}");
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    assert_non_null(memmem(l.a->message.p, l.a->message.n, "4.5 are spent", 13));
    end_ledger(&l);
}

/* Whatever else the store has lost: it answers no question about slots then. */
static void a_limited_call_is_put_back_although_events_are_lost(void **state)
{
    (void)state;
    ledger l = start("{version: 1, tools: {t: {class: write, limit: {per: /to, calls: 1, window: "
                     "1h}}}}");
    begin(&l, "t", "{\"to\":1}");
    expect_execute(&l);
    lose(ALL_GONE "; DELETE FROM counter");
    assert_int_equal(commit(&l, "\"done\""), SEMEL_OK);
    expect_text(l.a->result, "put_back");
    end_ledger(&l);
}

/* As if others had it by now. What the attempt reserved besides is released all the same, once. */
static void an_end_is_recorded_although_its_slot_is_another_ones(void **state)
{
    (void)state;
    ledger l = start("{version: 1, tools: {t: {class: write, cost: 1, limit: {per: /to, calls: 1, "
                     "window: 1h}, budget: {per: run, calls: 1, cost: 5}}}}");
    begin(&l, "t", "{\"to\":1}");
    expect_execute(&l);
    lose("UPDATE counter SET value = value + 2 WHERE name LIKE 'limit:%'");
    semel_outcome o = {.size = sizeof o, .kind = SEMEL_FAILURE, .cost = SM_STR("2")};
    assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
    assert_int_equal(l.a->state, SEMEL_S_FAILED);
    begin(&l, "t", "{\"to\":1,\"n\":2}"); /* it was not freed */
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    assert_non_null(memmem(l.a->message.p, l.a->message.n, "with the same /to", 17));
    begin(&l, "t", "{\"to\":2}");
    expect_execute(&l);
    o = (semel_outcome){.size = sizeof o, .kind = SEMEL_FAILURE, .cost = SM_STR("3")};
    assert_int_equal(take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a)), SEMEL_OK);
    begin(&l, "t", "{\"to\":3}");
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    assert_non_null(memmem(l.a->message.p, l.a->message.n, "5 are spent", 11));
    end_ledger(&l);
}

/* A store may remove a counter while somebody takes its slot. */
static void what_is_left_of_a_slot_is_taken_for_a_window(void **state)
{
    (void)state;
    ledger l = start("{version: 1, tools: {t: {class: write, limit: {per: /to, calls: 1, window: "
                     "1h}}}}");
    begin(&l, "t", "{\"to\":1}");
    expect_execute(&l);
    lose("UPDATE counter SET value = 7200000 WHERE name LIKE 'limit:%'");
    begin(&l, "t", "{\"to\":1,\"n\":2}");
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    assert_int_equal(l.a->retry_after_ms, 3600000);
    end_ledger(&l);
}

static void a_claim_that_an_agent_has_is_not_given_to_another_when_its_record_is_lost(void **state)
{
    (void)state;
    ledger l =
        start("{version: 1, tools: {t: {class: write}, u: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    lose(RECORDS);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    begin(&l, "u", "{}");
    expect_execute(&l);
    lose(RECORDS);
    outlive_lease();
    begin(&l, "u", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    commit(&l, "\"done\"");
    begin(&l, "u", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

static void a_claim_is_renewed_and_committed_after_its_record_was_lost(void **state)
{
    (void)state;
    ledger l = start(CONTRACT);
    begin(&l, "t", "{}");
    expect_execute(&l);
    for (int i = 0; i < 2; i++) { /* what is remembered is not used up */
        lose(RECORDS);
        assert_int_equal(semel_renew(l.s, sm_str_from(l.claim), 600000, l.a), SEMEL_OK);
        expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    }
    lose(RECORDS);
    char forged[128];
    strcpy(forged, l.claim);
    forged[strlen(forged) - 1] = forged[strlen(forged) - 1] == '0' ? '1' : '0';
    semel_renew(l.s, sm_str_from(forged), 600000, l.a);
    expect_refused(&l, SEMEL_C_BAD_CLAIM);
    commit(&l, "\"done\"");
    expect_text(l.a->result, "put_back");
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

/* Its process lives, so its lease is kept, though nobody could renew it meanwhile. */
static void what_runs_here_is_put_back_with_a_new_lease(void **state)
{
    (void)state;
    sm_running r = {0};
    const semel_outcome done = {.size = sizeof done, .value = SM_STR("\"done\"")};
    ledger l = start("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    expect_execute(&l);
    sm_running_add(l.s, &r, l.a, SM_OUTCOME_MAX);
    lose(RECORDS);
    outlive_lease();
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    assert_int_equal(sm_record(l.s, &r, &(sm_recording){.outcome = &done}, l.a), SM_OK);
    expect_text(l.a->result, "put_back");
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

/* The event that had the claim is gone too. A later one tells nobody that something is. */
static void a_claim_that_was_put_back_can_still_be_committed_late(void **state)
{
    (void)state;
    for (int renewed = 0; renewed < 2; renewed++) {
        char claim[128];
        ledger l = start("{version: 1, tools: {t: {class: write_idempotent}}}");
        begin(&l, "t", "{\"n\": 1}");
        expect_execute(&l);
        strcpy(claim, l.claim);
        begin(&l, "t", "{\"n\": 2}");
        expect_execute(&l);
        lose("DELETE FROM name WHERE n = 1; DELETE FROM effect WHERE n = 1; DELETE FROM event"
             " WHERE n = 1");
        if (renewed) {
            semel_renew(l.s, sm_str_from(claim), 600000, l.a);
            expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
        }
        commit_as(&l, claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "");
        assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
        begin(&l, "t", "{\"n\": 1}");
        expect_execute(&l);
        commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"late\"");
        expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
        expect_text(l.a->result, "late_evidence");
        end_ledger(&l);
    }
}

#define ALL_BUT_THE_FIRST                                                                          \
    "DELETE FROM name WHERE generation > 1; DELETE FROM effect WHERE generation > 1"

static void again(ledger *l)
{
    char handle[128];
    strcpy(handle, l->effect);
    semel_forget(l->s, sm_str_from(handle), SM_STR("me"), SM_STR("again"), l->a);
    expect_verdict(l, SEMEL_DONE, SEMEL_C_NONE);
}

/* Its claim would be of no use under another number, so it cannot be put back before its end. */
static void what_was_lost_and_cannot_be_put_back_is_in_doubt_after_its_lease(void **state)
{
    (void)state;
    ledger l = start("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    for (int i = 0; i < 2; i++) {
        begin(&l, "t", "{}");
        expect_execute(&l);
        commit(&l, "\"before\"");
        again(&l);
    }
    begin(&l, "t", "{}");
    expect_execute(&l);
    assert_int_equal(l.a->generation, 3);
    lose(ALL_BUT_THE_FIRST);
    outlive_lease();
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    commit(&l, "\"done\"");
    expect_text(l.a->result, "put_back");
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

typedef struct asking {
    semel *s;
    unsigned lose_at; /* the run during which the ledger loses all but the first generation */
    semel_verdict verdict;
    semel_code code;
} asking;

static void lose_and_ask_again(void *context, const semel_answer *execute, semel_outcome *o)
{
    (void)execute;
    asking *k = context;
    o->kind = SEMEL_SUCCESS;
    o->value = SM_STR("{\"id\":7}");
    if (++runs != k->lose_at)
        return;
    lose(ALL_BUT_THE_FIRST);
    semel_answer *a = semel_answer_new();
    semel_call call = call_of("t", "{}");
    assert_int_equal(semel_begin(k->s, &call, a), SEMEL_OK);
    k->verdict = a->verdict;
    k->code = a->code;
    semel_answer_free(a);
}

static void what_runs_here_is_not_begun_again_though_its_record_cannot_be_put_back_yet(void **state)
{
    (void)state;
    ledger l = start(CONTRACT);
    semel_call call = call_of("t", "{}");
    asking k = {.s = l.s, .lose_at = 3};
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(semel_run(l.s, &call, lose_and_ask_again, &k, l.a), SEMEL_OK);
        assert_true(l.a->executed);
        keep_text(l.effect, l.a->effect);
        if (i < 3)
            again(&l);
    }
    expect(k.verdict == SEMEL_REFUSED && k.code == SEMEL_C_RETRY_IN_FLIGHT, "%d %d", k.verdict,
           k.code);
    assert_int_equal(semel_run(l.s, &call, lose_and_ask_again, &k, l.a), SEMEL_OK);
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    assert_int_equal(l.a->generation, 2); /* after the one that is left */
    assert_int_equal(runs, 3);
    end_ledger(&l);
}

/* While somebody waits, the ledger loses its records. */
static semel_err lose_and_wake(semel_store *st, const semel_ref *of, uint64_t version,
                               int64_t deadline_ns, semel_fault *fault)
{
    (void)st, (void)of, (void)version, (void)deadline_ns, (void)fault;
    lose(RECORDS);
    return SEMEL_OK;
}

/* Another handle runs it, so the one that waits cannot put it back. */
static void what_is_waited_for_is_not_run_when_its_record_is_lost(void **state)
{
    (void)state;
    semel_store_ops losing = sm_store_sqlite;
    losing.wait = lose_and_wake;
    ledger runs_it = start(CONTRACT), l = {.a = semel_answer_new()};
    begin(&runs_it, "t", "{}");
    expect_execute(&runs_it);
    semel_options o = {.size = sizeof o, .url = url, .store = &losing, .one_shot = true};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    semel_call call = call_of("t", "{}");
    call.wait_ms = 60000;
    assert_int_equal(semel_begin(l.s, &call, l.a), SEMEL_OK);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
    end_ledger(&runs_it);
}

/* The memory store: a commit's first write is overtaken by a renewal of the same claim, and then
 * the store turns out to have lost something. */
static semel_store_ops racing;
static semel *raced;
static const char *raced_claim; /* NULL: nothing happens */
static bool raced_lost;

static semel_err race_apply(semel_store *st, const semel_write *w, semel_room *room,
                            semel_record *cur, int64_t *now, semel_fault *fault)
{
    const char *claim = raced_claim;
    if (claim != NULL) {
        semel_answer *a = semel_answer_new();
        raced_claim = NULL;
        assert_int_equal(semel_renew(raced, sm_str_from(claim), 600000, a), SEMEL_OK);
        assert_int_equal(a->verdict, SEMEL_DONE);
        semel_answer_free(a);
        raced_lost = true;
    }
    return sm_store_memory.apply(st, w, room, cur, now, fault);
}

static semel_err race_get(semel_store *st, const semel_ref *ref, semel_room *room,
                          semel_record *cur, int64_t *now, semel_fault *fault)
{
    if (!raced_lost)
        return sm_store_memory.get(st, ref, room, cur, now, fault);
    sm_fault_set(fault, SEMEL_E_CORRUPT, "something was lost");
    return SEMEL_E_UNAVAILABLE;
}

static void
a_commit_that_a_renewal_overtook_is_evidence_though_the_store_has_lost_something(void **state)
{
    (void)state;
    racing = sm_store_memory;
    racing.apply = race_apply;
    racing.get = race_get;
    racing.peek = NULL;
    semel_options o = {.size = sizeof o, .url = "memory:", .store = &racing, .one_shot = true};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    begin(&l, "t", "{}");
    expect_execute(&l);
    raced = l.s;
    raced_claim = l.claim;
    assert_int_equal(commit(&l, "\"done\""), SEMEL_OK);
    expect_text(l.a->result, "put_back");
    raced_lost = false;
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(
            a_commit_that_a_renewal_overtook_is_evidence_though_the_store_has_lost_something),
        cmocka_unit_test(a_run_whose_record_is_gone_is_put_back),
        cmocka_unit_test(what_a_lost_attempt_was_charged_comes_back_with_it),
        cmocka_unit_test(what_a_lost_attempt_has_cost_comes_back_with_it),
        cmocka_unit_test(a_limited_call_is_put_back_although_events_are_lost),
        cmocka_unit_test(an_end_is_recorded_although_its_slot_is_another_ones),
        cmocka_unit_test(what_is_left_of_a_slot_is_taken_for_a_window),
        cmocka_unit_test(a_claim_that_an_agent_has_is_not_given_to_another_when_its_record_is_lost),
        cmocka_unit_test(what_runs_here_is_put_back_with_a_new_lease),
        cmocka_unit_test(a_claim_that_was_put_back_can_still_be_committed_late),
        cmocka_unit_test(what_was_lost_and_cannot_be_put_back_is_in_doubt_after_its_lease),
        cmocka_unit_test(a_claim_is_renewed_and_committed_after_its_record_was_lost),
        cmocka_unit_test(a_claim_whose_record_is_gone_is_put_back_by_the_handle_that_gave_it),
        cmocka_unit_test(
            what_runs_here_is_not_begun_again_though_its_record_cannot_be_put_back_yet),
        cmocka_unit_test(what_is_waited_for_is_not_run_when_its_record_is_lost),
    };
    return run_on_stores(NULL, 0, NULL, 0, filed, COUNT(filed));
}
