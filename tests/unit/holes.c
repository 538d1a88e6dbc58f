/*
 * Ways in which ledgers of this kind were seen to fail, each shown to be closed here. The number in
 * a test's name is only an order.
 */
#include "ledger.h"

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"

/* Runs `work` in a process of its own that opens the ledger, then is killed without mercy. */
static void in_killed_process(const char *url, const char *contract, void (*work)(ledger *l))
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        work(&l);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(ready[0]);
    close(ready[1]);
}

static void hole_01_a_worker_that_was_taken_over_overwrites_the_new_owner(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write_idempotent, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    char loser[128], owner[128];
    strcpy(loser, l.claim);
    outlive_lease();
    begin(&l, "t", "{}");
    expect_execute(&l);
    strcpy(owner, l.claim);
    commit_as(&l, loser, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"loser\"");
    expect_text(l.a->result, "late_evidence");
    commit_as(&l, owner, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"owner\"");
    expect_text(l.a->result, "committed");
    commit_as(&l, loser, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"loser again\"");
    begin(&l, "t", "{}");
    expect_replay(&l, "\"owner\"");
    end_ledger(&l);
}

static void hole_02_retries_put_off_the_moment_at_which_an_attempt_counts_as_lost(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    int64_t end = sm_clock_deadline_ns(1100);
    while (sm_clock_mono_ns() < end) {
        begin(&l, "t", "{}");
        usleep(20000);
    }
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

static void start_one(ledger *l)
{
    begin(l, "t", "{}");
    expect_execute(l);
}

static void hole_03_after_a_kill_a_retry_waits_for_ever(void **state)
{
    (void)state;
    static const char contract[] =
        "{version: 1, tools: {t: {class: write}, r: {class: write_idempotent}}}";
    char url[512];
    strcpy(url, fresh_url());
    in_killed_process(url, contract, start_one);
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    semel_call c = call_of("t", "{}");
    c.wait_ms = 30000;
    int64_t start = sm_clock_mono_ns();
    semel_begin(l.s, &c, l.a);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    expect(sm_clock_mono_ns() - start < 1000000000, "the retry waited");
    end_ledger(&l);
}

static void ask_one(ledger *l)
{
    begin(l, "t", "{}");
    expect_refused(l, SEMEL_C_AWAITING_APPROVAL);
}

static void hole_04_a_crash_while_approval_is_asked_for_runs_it_unapproved(void **state)
{
    (void)state;
    static const char contract[] = "{version: 1, tools: {t: {class: write_idempotent, lease: 1ms, "
                                   "approval: {expires: 1h}}}}";
    char url[512];
    strcpy(url, fresh_url());
    in_killed_process(url, contract, ask_one);
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    usleep(5000);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    assert_int_equal(l.a->attempt, 0);
    end_ledger(&l);
}

static void hole_05_approved_for_ten_and_executed_for_99999(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {pay: {class: write, key: {fields: [/to]}, "
                          "approval: {expires: 1h}}}}");
    begin(&l, "pay", "{\"to\": \"ann\", \"amount\": 10}");
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    begin(&l, "pay", "{\"to\": \"ann\", \"amount\": 99999}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    begin(&l, "pay", "{\"to\": \"ann\", \"amount\": 99999}");
    expect_execute(&l);
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    semel_show(l.s, &name, l.a, &json);
    expect(memmem(json.p, json.n, "\"amount\":99999", 14) != NULL,
           "what ran is not what is recorded: %.*s", SM_FMT(json));
    end_ledger(&l);
}

static void hole_06_an_error_that_cannot_be_written_down_blocks_the_key(void **state)
{
    (void)state;
    static const sm_str errors[] = {BYTES("\xFF\xFE"), BYTES("Traceback (most recent call last)"),
                                    BYTES(""), BYTES("{\"unclosed\": ")};
    for (size_t i = 0; i < COUNT(errors); i++) {
        ledger l = new_ledger(NULL);
        begin(&l, "t", "{}");
        semel_outcome o = {.size = sizeof o, .kind = SEMEL_FAILURE, .value = errors[i]};
        semel_commit(l.s, sm_str_from(l.claim), &o, l.a);
        assert_int_equal(l.a->state, SEMEL_S_FAILED);
        begin(&l, "t", "{}");
        expect_execute(&l);
        end_ledger(&l);
    }
}

static void hole_07_a_success_whose_result_is_not_json_is_recorded_as_failed(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    static const sm_str value = BYTES("a\0NaN\xFF");
    semel_outcome o = {.size = sizeof o, .value = value};
    semel_commit(l.s, sm_str_from(l.claim), &o, l.a);
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    begin(&l, "t", "{}");
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    assert_true(sm_str_eq(l.a->outcome.value, value));
    end_ledger(&l);
}

static void hole_08_every_exception_is_cached_for_ever(void **state)
{
    (void)state;
    static const struct {
        const char *contract;
        semel_applied applied;
        semel_verdict next;
    } rows[] = {
        {"{class: write}", SEMEL_APPLIED_NO, SEMEL_EXECUTE},
        {"{class: write}", SEMEL_APPLIED_YES, SEMEL_REPLAY},
        {"{class: write}", SEMEL_APPLIED_UNKNOWN, SEMEL_REFUSED},
        {"{class: write, failures: replay}", SEMEL_APPLIED_NO, SEMEL_REPLAY},
        {"{class: write_idempotent}", SEMEL_APPLIED_UNKNOWN, SEMEL_EXECUTE},
        {"{class: irreversible, key: {fields: [/a]}}", SEMEL_APPLIED_DEFAULT, SEMEL_REFUSED},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        char contract[200];
        snprintf(contract, sizeof contract, "{version: 1, tools: {t: %s}}", rows[i].contract);
        ledger l = new_ledger(contract);
        begin(&l, "t", "{\"a\": 1}");
        commit_as(&l, l.claim, SEMEL_FAILURE, rows[i].applied, "\"error\"");
        begin(&l, "t", "{\"a\": 1}");
        expect(l.a->verdict == rows[i].next, "row %zu: %d", i, (int)l.a->verdict);
        end_ledger(&l);
    }
}

static void hole_09_parts_of_a_key_run_into_each_other(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    semel_call a = call_of("y", "{}"), b = call_of("x|y", "{}");
    a.scope = SM_STR("tenant1|x");
    b.scope = SM_STR("tenant1");
    semel_begin(l.s, &a, l.a);
    expect_execute(&l);
    semel_begin(l.s, &b, l.a);
    expect_execute(&l);
    end_ledger(&l);
}

static void hole_10_a_bounded_store_forgets_what_is_still_live(void **state)
{
    (void)state;
    semel *s = NULL;
    semel_options o = {.size = sizeof o, .url = fresh_url(), .cache_bytes = 4096, .one_shot = true};
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    ledger l = {.s = s, .a = semel_answer_new()};
    char args[40];
    for (int i = 0; i < 300; i++) {
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        begin(&l, "t", args);
        expect_execute(&l);
        if (i % 2 == 0)
            commit(&l, args);
    }
    for (int i = 0; i < 300; i++) {
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        begin(&l, "t", args);
        if (i % 2 == 0)
            expect_replay(&l, args);
        else
            expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    }
    end_ledger(&l);
}

static void hole_11_a_waiter_ignores_its_deadline_while_a_transaction_is_open(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    ledger l = {.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    sqlite3 *other = NULL;
    assert_int_equal(sqlite3_open(url + strlen("sqlite:"), &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    semel_call c = call_of("t", "{}");
    c.wait_ms = 200;
    int64_t start = sm_clock_mono_ns();
    semel_begin(l.s, &c, l.a);
    int64_t took = (sm_clock_mono_ns() - start) / 1000000;
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    expect(took >= 195 && took < 400, "waited %lld ms of 200", (long long)took);
    sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL);
    sqlite3_close(other);
    end_ledger(&l);
}

typedef struct pager {
    pthread_mutex_t lock;
    int calls;
    int fail; /* so many fail first */
    char request[128];
} pager;

static bool page(void *context, semel_str request, semel_str answer)
{
    pager *p = context;
    pthread_mutex_lock(&p->lock);
    bool ok = p->calls++ >= p->fail;
    keep_text(p->request, request);
    pthread_mutex_unlock(&p->lock);
    expect(memmem(answer.p, answer.n, "AWAITING_APPROVAL", 17) != NULL, "%.*s", SM_FMT(answer));
    return ok;
}

static int calls_of(pager *p)
{
    pthread_mutex_lock(&p->lock);
    int n = p->calls;
    pthread_mutex_unlock(&p->lock);
    return n;
}

static semel *open_with_pager(const char *url, pager *p)
{
    semel *s = NULL;
    semel_options o = {.size = sizeof o,
                       .url = url,
                       .contract = SM_STR("{version: 1, tools: {t: {class: write, approval: "
                                          "{expires: 1h}}}}"),
                       .on_approval = p == NULL ? NULL : page,
                       .on_approval_context = p};
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    return s;
}

static bool await_calls(pager *p, int n, int64_t ms)
{
    int64_t end = sm_clock_deadline_ns(ms);
    while (calls_of(p) < n && sm_clock_mono_ns() < end)
        usleep(5000);
    return calls_of(p) >= n;
}

static void hole_12_an_approval_notice_that_fails_is_never_given_again(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    pager p = {.lock = PTHREAD_MUTEX_INITIALIZER, .fail = 1};
    ledger l = {.s = open_with_pager(url, &p), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    expect(await_calls(&p, 1, 3000), "nobody was told");
    assert_string_equal(p.request, l.request);
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    semel_show(l.s, &name, l.a, &json);
    expect(memmem(json.p, json.n, "\"told\"", 6) == NULL, "a failed notice counted as told");
    if (in_memory()) {
        expect(await_calls(&p, 2, 5000), "nobody was told again");
        end_ledger(&l);
        return;
    }
    end_ledger(&l);
    /* The process that asked is gone. Another one tells somebody, once it is time. */
    pager q = {.lock = PTHREAD_MUTEX_INITIALIZER};
    ledger m = {.s = open_with_pager(url, &q), .a = semel_answer_new()};
    expect(await_calls(&q, 1, 14000), "the second process told nobody");
    assert_string_equal(q.request, p.request);
    usleep(300000);
    assert_int_equal(calls_of(&q), 1);
    name.text = sm_str_from(q.request);
    semel_show(m.s, &name, m.a, &json);
    expect(memmem(json.p, json.n, "\"told\"", 6) != NULL, "%.*s", SM_FMT(json));
    end_ledger(&m);
}

static void hole_13_there_is_no_heartbeat(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, lease: 4s}}}");
    begin(&l, "t", "{}");
    char claim[128];
    strcpy(claim, l.claim);
    for (int i = 0; i < 4; i++) {
        usleep(1100000);
        semel_renew(l.s, sm_str_from(claim), 0, l.a);
        expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
        begin(&l, "t", "{}");
        expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    }
    usleep(4050000);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    semel_renew(l.s, sm_str_from(claim), 0, l.a);
    expect_refused(&l, SEMEL_C_BAD_CLAIM);
    end_ledger(&l);
}

static bool count_items(void *context, const semel_answer *item, const semel_record *record)
{
    (void)item;
    (void)record;
    ++*(size_t *)context;
    return true;
}

static void hole_14_replays_write_and_nothing_is_purged_and_lists_are_unbounded(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    semel_options o = {.size = sizeof o,
                       .url = url,
                       .one_shot = true,
                       .audit_retention_ms = 1,
                       .contract = SM_STR("{version: 1, tools: {t: {class: write, window: 1ms}, "
                                          "k: {class: write, loop: off}}}")};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    begin(&l, "k", "{}");
    commit(&l, "1");
    int before = events_saying(&l, "");
    char wal[520];
    struct stat at, then;
    snprintf(wal, sizeof wal, "%s-wal", url + (in_file() ? strlen("sqlite:") : 0));
    if (in_file())
        assert_int_equal(stat(wal, &at), 0);
    for (int i = 0; i < 1000; i++) {
        begin(&l, "k", "{}");
        expect_replay(&l, "1");
    }
    assert_int_equal(before, 2);
    assert_int_equal(events_saying(&l, ""), before);
    if (in_file()) {
        assert_int_equal(stat(wal, &then), 0);
        assert_int_equal(then.st_mtim.tv_nsec, at.st_mtim.tv_nsec);
        assert_int_equal(then.st_size, at.st_size);
    }
    char args[40];
    for (int i = 0; i < 120; i++) {
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        begin(&l, "t", args);
        commit(&l, "1");
    }
    size_t n = 0;
    semel_query q = {.size = sizeof q};
    assert_int_equal(semel_list(l.s, &q, count_items, &n, NULL), SEMEL_OK);
    assert_int_equal(n, 50);
    assert_true(q.cursor != 0);
    usleep(5000);
    uint64_t done = 0;
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_true(done >= 120);
    n = 0;
    q = (semel_query){.size = sizeof q, .limit = 1000};
    do
        assert_int_equal(semel_list(l.s, &q, count_items, &n, NULL), SEMEL_OK);
    while (q.cursor != 0);
    assert_int_equal(n, 1);
    begin(&l, "k", "{}");
    expect_replay(&l, "1");
    end_ledger(&l);
}

static void hole_15_there_is_no_history_of_attempts_and_people(void **state)
{
    (void)state;
    ledger l = new_ledger(
        "{version: 1, tools: {t: {class: write, approval: {expires: 1h}, " SHORT_LEASE "}}}");
    begin(&l, "t", "{}");
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    begin(&l, "t", "{}");
    expect_execute(&l);
    outlive_lease();
    begin(&l, "t", "{}");
    semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_APPLIED, NULL, SM_STR("receipt 17"),
                  SM_STR("dave"), l.a);
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    static const char *const told[] = {
        "\"requested\"", "\"approved\"", "\"started\"", "\"doubted\"",    "\"resolved,settled\"",
        "\"carol\"",     "\"dave\"",     "\"tester\"",  "\"receipt 17\"", "\"fence\":1"};
    for (size_t i = 0; i < COUNT(told); i++)
        expect(memmem(json.p, json.n, told[i], strlen(told[i])) != NULL, "%s is not in %.*s",
               told[i], SM_FMT(json));
    end_ledger(&l);
}

typedef struct waiter {
    semel *s;
    int64_t at; /* when it had its answer */
    bool good;
} waiter;

static void *wait_for_it(void *context)
{
    waiter *w = context;
    semel_answer *a = semel_answer_new();
    semel_call c = call_of("t", "{}");
    c.wait_ms = 20000;
    semel_begin(w->s, &c, a);
    w->at = sm_clock_mono_ns();
    w->good = a->verdict == SEMEL_REPLAY && sm_str_is(a->outcome.value, "\"now\"");
    semel_answer_free(a);
    return NULL;
}

static void hole_16_a_second_caller_learns_late_because_it_polls(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    waiter waiters[8];
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) {
        waiters[i] = (waiter){.s = l.s};
        pthread_create(&threads[i], NULL, wait_for_it, &waiters[i]);
    }
    usleep(300000);
    commit(&l, "\"now\"");
    int64_t done = sm_clock_mono_ns();
    for (int i = 0; i < 8; i++) {
        pthread_join(threads[i], NULL);
        assert_true(waiters[i].good);
        /* Not at the end of their wait; a busy machine takes its time. */
        expect(waiters[i].at - done < 5000000000, "learned %lld us late",
               (long long)(waiters[i].at - done) / 1000);
    }
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hole_01_a_worker_that_was_taken_over_overwrites_the_new_owner),
        cmocka_unit_test(hole_02_retries_put_off_the_moment_at_which_an_attempt_counts_as_lost),
        cmocka_unit_test(hole_05_approved_for_ten_and_executed_for_99999),
        cmocka_unit_test(hole_06_an_error_that_cannot_be_written_down_blocks_the_key),
        cmocka_unit_test(hole_07_a_success_whose_result_is_not_json_is_recorded_as_failed),
        cmocka_unit_test(hole_08_every_exception_is_cached_for_ever),
        cmocka_unit_test(hole_09_parts_of_a_key_run_into_each_other),
        cmocka_unit_test(hole_10_a_bounded_store_forgets_what_is_still_live),
        cmocka_unit_test(hole_12_an_approval_notice_that_fails_is_never_given_again),
        cmocka_unit_test(hole_13_there_is_no_heartbeat),
        cmocka_unit_test(hole_14_replays_write_and_nothing_is_purged_and_lists_are_unbounded),
        cmocka_unit_test(hole_15_there_is_no_history_of_attempts_and_people),
        cmocka_unit_test(hole_16_a_second_caller_learns_late_because_it_polls),
    };
    /* These need a ledger that outlives a process. */
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(hole_03_after_a_kill_a_retry_waits_for_ever),
        cmocka_unit_test(hole_04_a_crash_while_approval_is_asked_for_runs_it_unapproved),
    };
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(hole_11_a_waiter_ignores_its_deadline_while_a_transaction_is_open),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), filed, COUNT(filed));
}
