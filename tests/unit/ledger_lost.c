/* The ledger loses the record of an attempt that runs: its end puts it back, and nothing runs
 * twice. The rows are taken from the file behind the ledger's back. */
#include "ledger.h"

#include <sqlite3.h>

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
        semel_verified v;
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
    lose("DELETE FROM name WHERE generation > 1; DELETE FROM effect WHERE generation > 1");
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
        char handle[64];
        snprintf(handle, sizeof handle, "%.*s", SM_FMT(l.a->effect));
        if (i < 3)
            assert_int_equal(
                semel_forget(l.s, sm_str_from(handle), SM_STR("me"), SM_STR("again"), l.a),
                SEMEL_OK);
    }
    expect(k.verdict == SEMEL_REFUSED && k.code == SEMEL_C_RETRY_IN_FLIGHT, "%d %d", k.verdict,
           k.code);
    assert_int_equal(semel_run(l.s, &call, lose_and_ask_again, &k, l.a), SEMEL_OK);
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    assert_int_equal(runs, 3);
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(a_run_whose_record_is_gone_is_put_back),
        cmocka_unit_test(a_claim_whose_record_is_gone_is_put_back_by_the_handle_that_gave_it),
        cmocka_unit_test(
            what_runs_here_is_not_begun_again_though_its_record_cannot_be_put_back_yet),
    };
    return run_on_stores(NULL, 0, NULL, 0, filed, COUNT(filed));
}
