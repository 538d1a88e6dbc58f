/* Orders of events that once led to a second execution, or to a claim nobody could be sure of. */
#include "ledger.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "ledger/work/holder.h"
#include "store/stores.h"

#define RERUN "{version: 1, tools: {t: {class: write_idempotent, " SHORT_LEASE "}}}"

/* Two attempts, the first in doubt and the second running. */
static ledger two_attempts(char first[128], char second[128])
{
    ledger l = new_ledger(RERUN);
    begin(&l, "t", "{}");
    expect_execute(&l);
    strcpy(first, l.claim);
    outlive_lease();
    begin(&l, "t", "{}");
    expect_execute(&l);
    strcpy(second, l.claim);
    return l;
}

static void a_known_success_is_not_lost_to_a_later_failure_that_was_applied(void **state)
{
    (void)state;
    char first[128], second[128];
    ledger l = two_attempts(first, second);
    commit_as(&l, first, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    commit_as(&l, second, SEMEL_FAILURE, SEMEL_APPLIED_YES, "\"half\"");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

static void the_first_of_two_late_successes_is_the_outcome(void **state)
{
    (void)state;
    char claims[3][128];
    ledger l = new_ledger("{version: 1, tools: {t: {class: write_idempotent}}}");
    for (size_t i = 0; i < COUNT(claims); i++) {
        begin(&l, "t", "{}");
        expect_execute(&l);
        strcpy(claims[i], l.claim);
        if (i < 2)
            commit_as(&l, claims[i], SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "");
    }
    for (size_t i = 0; i < 2; i++) {
        commit_as(&l, claims[i], SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, i == 0 ? "1" : "2");
        expect_text(l.a->result, "late_evidence");
    }
    commit_as(&l, claims[2], SEMEL_FAILURE, SEMEL_APPLIED_NO, "");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    begin(&l, "t", "{}");
    expect_replay(&l, "1");
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

static void what_is_known_to_be_applied_is_held_while_another_attempt_is_in_doubt(void **state)
{
    (void)state;
    char first[128], second[128];
    ledger l = two_attempts(first, second);
    commit_as(&l, second, SEMEL_FAILURE, SEMEL_APPLIED_YES, "\"half\"");
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

static void the_same_outcome_of_another_attempt_is_evidence_and_no_repeat(void **state)
{
    (void)state;
    char first[128], second[128];
    ledger l = two_attempts(first, second);
    commit_as(&l, second, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    expect_text(l.a->result, "committed");
    commit_as(&l, second, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    expect_text(l.a->result, "committed"); /* its answer was lost */
    commit_as(&l, first, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    expect_text(l.a->result, "late_evidence"); /* both have run */
    end_ledger(&l);
}

static bool has_no_outcome(void *context, const semel_answer *item, const semel_record *r)
{
    (void)context;
    expect(r->outcome.p == NULL, "%.*s has the outcome of an attempt before", SM_FMT(item->effect));
    return true;
}

static void a_doubt_does_not_have_the_outcome_of_an_earlier_attempt(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    begin(&l, "t", "{}");
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"old\"");
    begin(&l, "t", "{}");
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "\"new\"");
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    semel_query q = {.size = sizeof q};
    assert_int_equal(semel_list(l.s, &q, has_no_outcome, NULL, NULL), SEMEL_OK);
    begin(&l, "t", "{}");
    semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_APPLIED, NULL, SM_STR("seen"),
                  (sm_str){0}, l.a);
    begin(&l, "t", "{}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    assert_null(l.a->outcome.value.p); /* nobody knows what it returned */
    end_ledger(&l);
}

static void an_attempt_that_was_applied_after_all_settles_what_was_resolved(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    char claim[128];
    strcpy(claim, l.claim);
    outlive_lease();
    begin(&l, "t", "{}");
    semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_NOT_APPLIED, NULL, SM_STR("no"),
                  (sm_str){0}, l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    commit_as(&l, claim, SEMEL_FAILURE, SEMEL_APPLIED_YES, "\"it was\"");
    assert_int_equal(l.a->state, SEMEL_S_FAILED);
    begin(&l, "t", "{}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    end_ledger(&l);
}

static void a_request_that_expired_long_ago_is_expired(void **state)
{
    (void)state;
    ledger l =
        new_ledger("{version: 1, tools: {t: {class: write, window: 20ms, approval: {expires: "
                   "20ms}}}}");
    begin(&l, "t", "{}");
    outlive(40); /* the request and its window */
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    expect_refused(&l, SEMEL_C_APPROVAL_EXPIRED);
    assert_int_equal(l.a->state, SEMEL_S_EXPIRED);
    end_ledger(&l);
}

static bool keep_first(void *context, semel_str line)
{
    *(char **)context = strndup(line.p, line.n);
    return false;
}

static void an_imported_doubt_is_not_lost(void **state)
{
    (void)state;
    static const char *const locals[] = {
        "{version: 1, tools: {t: {class: write, window: 10ms}}}",            /* window over */
        "{version: 1, tools: {t: {class: write, approval: {expires: 1h}}}}", /* pending */
        "{version: 1, tools: {t: {class: write}}}",                          /* failed, may run */
    };
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    char *line = NULL;
    assert_int_equal(semel_export(l.s, (sm_str){0}, keep_first, &line, NULL), SEMEL_OK);
    for (size_t i = 0; i < COUNT(locals); i++) {
        ledger m = new_ledger(locals[i]);
        begin(&m, "t", "{}");
        char claim[128];
        strcpy(claim, m.claim);
        if (i != 1)
            commit_as(&m, m.claim, i == 0 ? SEMEL_SUCCESS : SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
        outlive(10);
        semel_imported count = {.size = sizeof count};
        assert_int_equal(semel_import_line(m.s, sm_str_from(line), &count, NULL), SEMEL_OK);
        expect(count.added == 1, "row %zu", i);
        if (i == 0) { /* a claim from before is no claim on what was imported */
            commit_as(&m, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "2");
            expect_text(m.a->result, "late_evidence");
        }
        begin(&m, "t", "{}");
        expect_refused(&m, SEMEL_C_IN_DOUBT);
        end_ledger(&m);
    }
    free(line);
    end_ledger(&l);
}

static void an_older_attempts_secret_is_checked_too(void **state)
{
    (void)state;
    char first[128], second[128];
    ledger l = two_attempts(first, second);
    char *last = &first[strlen(first) - 1];
    *last = *last == '0' ? '1' : '0';
    commit_as(&l, first, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"forged\"");
    expect_refused(&l, SEMEL_C_BAD_CLAIM);
    end_ledger(&l);
}

static void approvals_by_the_gateway_only_are_not_taken_here(void **state)
{
    (void)state;
    ledger l =
        new_ledger("{version: 1, tools: {t: {class: write, approval: {via: gateway, expires: "
                   "1h}}}}");
    begin(&l, "t", "{}");
    char request[128];
    strcpy(request, l.request);
    semel_approve(l.s, sm_str_from(request), SM_STR("carol"), l.a);
    expect_refused(&l, SEMEL_C_FORBIDDEN);
    semel_deny(l.s, sm_str_from(request), SM_STR("carol"), SM_STR("no"), l.a);
    expect_refused(&l, SEMEL_C_FORBIDDEN);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    assert_string_equal(l.request, request); /* neither counted */
    end_ledger(&l);
}

static semel_err no_peek(semel_store *st, const semel_hash *key, semel_room *room,
                         semel_record *cur, int64_t *now)
{
    (void)st, (void)key, (void)room, (void)cur, (void)now;
    return SEMEL_E_NOT_FOUND;
}

static semel_err no_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                        int64_t *now, semel_fault *fault)
{
    (void)st, (void)ref, (void)room, (void)cur, (void)now, (void)fault;
    return SEMEL_E_UNAVAILABLE;
}

static void without_a_ledger_only_observed_tools_run(void **state)
{
    (void)state;
    semel_store_ops broken = sm_store_memory;
    broken.peek = no_peek;
    broken.get = no_get;
    semel *s = NULL;
    semel_options o = {.size = sizeof o,
                       .url = "memory:",
                       .store = &broken,
                       .one_shot = true,
                       .contract = SM_STR("{version: 1, tools: {o: {class: write, mode: observe}, "
                                          "w: {class: write}, r: {class: read}, "
                                          "p: {class: write, mode: observe, key: none}, "
                                          "n: {class: write, key: none}}}")};
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    ledger l = {.s = s, .a = semel_answer_new()};
    begin(&l, "o", "{}");
    expect_execute(&l);
    expect_text(l.a->observed, "LEDGER_UNAVAILABLE");
    begin(&l, "r", "{}");
    expect_execute(&l);
    begin(&l, "p", "{}"); /* nor is this one recorded, but what is stopped is asked for */
    expect_execute(&l);
    expect_text(l.a->observed, "LEDGER_UNAVAILABLE");
    assert_true(l.a->claim.p == NULL);
    static const char *const others[] = {"w", "n"};
    for (size_t i = 0; i < COUNT(others); i++) {
        assert_int_equal(begin(&l, others[i], "{}"), SEMEL_E_UNAVAILABLE);
        expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
    }
    end_ledger(&l);
}

/* A process whose first thread ends while another one holds a claim. */
static void *hold_on(void *context)
{
    int *ready = context;
    ledger l = {.s = open_ledger(getenv("SEMEL_TEST_URL"), NULL, true), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    if (write(*ready, "x", 1) == 1)
        for (;;)
            pause();
    return NULL;
}

static void a_process_whose_first_thread_ended_still_holds_its_claim(void **state)
{
    (void)state;
    int ready[2];
    char url[512], byte;
    strcpy(url, fresh_url());
    setenv("SEMEL_TEST_URL", url, 1);
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        pthread_create(&thread, NULL, hold_on, &ready[1]);
        pthread_exit(NULL);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    usleep(50000);
    ledger l = {.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

#define PAY "{version: 1, tools: {pay: {class: irreversible, key: {fields: [/to]}}}}"

/* An attempt that runs although its process is gone. */
static void leave_an_attempt(const char *url)
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ledger l = {.s = open_ledger(url, PAY, true), .a = semel_answer_new()};
        begin(&l, "pay", "{\"to\": \"ann\"}");
        if (write(ready[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(ready[1]); /* a child that dies is not waited for */
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void the_barrier_sees_an_attempt_whose_process_is_gone(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    leave_an_attempt(url);
    ledger l = {.s = open_ledger(url, PAY, true), .a = semel_answer_new()};
    begin(&l, "pay", "{\"to\": \"anne\"}"); /* the model changed an argument */
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    assert_non_null(l.a->blocked_by.p);
    end_ledger(&l);
}

static semel_err no_query(semel_store *st, const semel_filter *f, uint64_t *cursor, size_t limit,
                          semel_record_sink *sink, void *context, semel_fault *fault)
{
    (void)st, (void)f, (void)cursor, (void)limit, (void)sink, (void)context, (void)fault;
    return SEMEL_E_UNAVAILABLE;
}

static void nothing_passes_a_barrier_whose_company_is_not_known(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    leave_an_attempt(url);
    semel_store_ops blind = sm_store_sqlite;
    blind.query = no_query;
    ledger l = {.a = semel_answer_new()};
    semel_options o = {
        .size = sizeof o, .url = url, .store = &blind, .contract = SM_STR(PAY), .one_shot = true};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    assert_int_equal(begin(&l, "pay", "{\"to\": \"anne\"}"), SEMEL_E_UNAVAILABLE);
    expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
    end_ledger(&l);
}

/* So that another process with the same number is not taken for it. */
static void a_process_is_known_by_when_it_began(void **state)
{
    (void)state;
    char text[1024];
    FILE *f = fopen("/proc/self/stat", "r");
    assert_non_null(fgets(text, sizeof text, f));
    fclose(f);
    char *rest = NULL, *word = strtok_r(strrchr(text, ')') + 1, " ", &rest);
    for (int field = 3; field < 22; field++)
        word = strtok_r(NULL, " ", &rest);
    sm_holder self;
    sm_holder_self(&self);
    assert_int_equal(self.start, strtoull(word, NULL, 10));
    sm_holder before = self;
    assert_false(sm_holder_gone(&before, &self));
    before.start--;
    assert_true(sm_holder_gone(&before, &self));
}

typedef struct slow {
    semel *s;
    sem_t begun, may_end;
    atomic_bool done;
} slow;

static void wait_for_the_end(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    slow *w = context;
    (void)execute;
    sem_post(&w->begun);
    sem_wait(&w->may_end);
    outcome->value = SM_STR("\"slept\"");
}

static void *run_slowly(void *context)
{
    slow *w = context;
    semel_answer *a = semel_answer_new();
    semel_call c = call_of("t", "{}");
    semel_run(w->s, &c, wait_for_the_end, w, a);
    atomic_store(&w->done, sm_str_is(a->outcome.value, "\"slept\""));
    semel_answer_free(a);
    return NULL;
}

static void work_longer_than_its_lease_keeps_it(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    slow w = {.s = open_ledger(url, NULL, false)};
    pthread_t thread;
    sem_init(&w.begun, 0, 0);
    sem_init(&w.may_end, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, run_slowly, &w), 0);
    sem_wait(&w.begun);
    sleep(16); /* longer than the lease of what the library runs */
    ledger l = {.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    sem_post(&w.may_end);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&w.done));
    begin(&l, "t", "{}");
    expect_replay(&l, "\"slept\"");
    end_ledger(&l);
    semel_close(w.s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_known_success_is_not_lost_to_a_later_failure_that_was_applied),
        cmocka_unit_test(the_first_of_two_late_successes_is_the_outcome),
        cmocka_unit_test(what_is_known_to_be_applied_is_held_while_another_attempt_is_in_doubt),
        cmocka_unit_test(the_same_outcome_of_another_attempt_is_evidence_and_no_repeat),
        cmocka_unit_test(a_doubt_does_not_have_the_outcome_of_an_earlier_attempt),
        cmocka_unit_test(an_attempt_that_was_applied_after_all_settles_what_was_resolved),
        cmocka_unit_test(a_request_that_expired_long_ago_is_expired),
        cmocka_unit_test(an_imported_doubt_is_not_lost),
        cmocka_unit_test(an_older_attempts_secret_is_checked_too),
        cmocka_unit_test(approvals_by_the_gateway_only_are_not_taken_here),
        cmocka_unit_test(without_a_ledger_only_observed_tools_run),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(a_process_whose_first_thread_ended_still_holds_its_claim),
        cmocka_unit_test(the_barrier_sees_an_attempt_whose_process_is_gone),
        cmocka_unit_test(a_process_is_known_by_when_it_began),
        cmocka_unit_test(work_longer_than_its_lease_keeps_it),
    };
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(nothing_passes_a_barrier_whose_company_is_not_known),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), filed, COUNT(filed));
}
