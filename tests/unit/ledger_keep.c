/* Waiting, running, subscribing, moving, purging, verifying: the rest of the C API. */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "ledger/service.h"
#include "store/stores.h"

/* ---- waiting ---------------------------------------------------------------------------------*/

typedef struct waiter {
    semel *s;
    const char *tool;
    int64_t wait_ms;
    semel_verdict verdict;
    semel_code code;
    char value[128];
    char claim[128];
    pthread_t thread;
} waiter;

static void *wait_here(void *context)
{
    waiter *w = context;
    semel_answer *a = semel_answer_new();
    semel_call c = call_of(w->tool, "{}");
    c.wait_ms = w->wait_ms;
    semel_begin(w->s, &c, a);
    w->verdict = a->verdict;
    w->code = a->code;
    keep_text(w->value, a->outcome.value);
    keep_text(w->claim, a->claim);
    semel_answer_free(a);
    return NULL;
}

/* The store of this test, which counts the threads that have waited. */
static semel_store_ops counting;
static semel_err (*store_wait)(semel_store *st, const semel_ref *of, uint64_t version,
                               int64_t deadline_ns, semel_fault *fault);
static atomic_int waiting;

static semel_err count_and_wait(semel_store *st, const semel_ref *of, uint64_t version,
                                int64_t deadline_ns, semel_fault *fault)
{
    static _Thread_local bool counted;
    if (!counted)
        atomic_fetch_add(&waiting, 1);
    counted = true;
    return store_wait(st, of, version, deadline_ns, fault);
}

static ledger waited_ledger(const char *contract)
{
    const char *url = fresh_url();
    counting = strncmp(url, "postgres:", 9) == 0 ? sm_store_postgres
               : strncmp(url, "redis:", 6) == 0  ? sm_store_redis
               : in_file()                       ? sm_store_sqlite
                                                 : sm_store_memory;
    store_wait = counting.wait;
    counting.wait = count_and_wait;
    atomic_store(&waiting, 0);
    semel_options o = {.size = sizeof o,
                       .url = url,
                       .store = &counting,
                       .contract = sm_str_from(contract),
                       .one_shot = true};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    return l;
}

/* Until so many threads wait, or have waited. */
static void await_waiters(int n)
{
    while (atomic_load(&waiting) < n)
        usleep(1000);
}

static void start_waiter(waiter *w, semel *s, const char *tool)
{
    *w = (waiter){.s = s, .tool = tool, .wait_ms = 60000};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_here, w), 0);
}

static void a_waiter_gets_the_failure_of_the_attempt_it_joined(void **state)
{
    (void)state;
    ledger l = waited_ledger(NULL);
    begin(&l, "t", "{}");
    waiter w;
    start_waiter(&w, l.s, "t");
    await_waiters(1);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"failed\"");
    pthread_join(w.thread, NULL);
    assert_int_equal(w.verdict, SEMEL_REPLAY);
    assert_string_equal(w.value, "\"failed\"");
    begin(&l, "t", "{}"); /* somebody who did not wait tries again */
    expect_execute(&l);
    end_ledger(&l);
}

static void of_those_who_wait_for_an_approval_one_runs(void **state)
{
    (void)state;
    ledger l = waited_ledger("{version: 1, tools: {t: {class: write, approval: {expires: 1h}}}}");
    begin(&l, "t", "{}");
    waiter w[6];
    for (int i = 0; i < 6; i++)
        start_waiter(&w[i], l.s, "t");
    await_waiters(6);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    int64_t end = sm_clock_deadline_ns(60000);
    const waiter *winner = NULL;
    while (winner == NULL && sm_clock_mono_ns() < end) {
        usleep(5000);
        semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
        semel_get(l.s, &name, l.a);
        for (int i = 0; i < 6 && l.a->state == SEMEL_S_RUNNING; i++)
            winner = pthread_tryjoin_np(w[i].thread, NULL) == 0 ? &w[i] : winner;
    }
    assert_non_null(winner);
    assert_int_equal(winner->verdict, SEMEL_EXECUTE);
    commit_as(&l, winner->claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"once\"");
    for (int i = 0; i < 6; i++) {
        if (&w[i] == winner)
            continue;
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].verdict, SEMEL_REPLAY);
        assert_string_equal(w[i].value, "\"once\"");
    }
    end_ledger(&l);
}

static void waiters_are_told_that_a_request_expired_or_was_canceled_or_denied(void **state)
{
    (void)state;
    ledger l = waited_ledger("{version: 1, tools: {short: {class: write, approval: {expires: 2s}}, "
                             "long: {class: write, approval: {expires: 1h}}, no: {class: write, "
                             "approval: {expires: 1h}}}}");
    waiter w[3];
    begin(&l, "long", "{}");
    char effect[128];
    strcpy(effect, l.effect);
    begin(&l, "no", "{}");
    start_waiter(&w[1], l.s, "long");
    start_waiter(&w[2], l.s, "no");
    begin(&l, "short", "{}");
    start_waiter(&w[0], l.s, "short");
    await_waiters(3);
    semel_cancel(l.s, sm_str_from(effect), (sm_str){0}, SM_STR("not now"), l.a);
    expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    begin(&l, "no", "{}");
    semel_deny(l.s, sm_str_from(l.request), SM_STR("carol"), SM_STR("no"), l.a);
    static const semel_code expected[] = {SEMEL_C_APPROVAL_EXPIRED, SEMEL_C_CANCELED,
                                          SEMEL_C_DENIED};
    for (int i = 0; i < 3; i++) {
        pthread_join(w[i].thread, NULL);
        expect(w[i].code == expected[i], "%d: %s", i, semel_code_name(w[i].code));
    }
    begin(&l, "short", "{}"); /* those who did not wait may ask again */
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    end_ledger(&l);
}

static void a_wait_ends_at_its_deadline(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    for (int64_t ms = 1; ms <= 125; ms *= 5) {
        semel_call c = call_of("t", "{}");
        c.wait_ms = ms;
        int64_t start = sm_clock_mono_ns();
        semel_begin(l.s, &c, l.a);
        int64_t took = (sm_clock_mono_ns() - start) / 1000000;
        expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
        expect(took >= ms - 1 && took < ms + 10000, "waited %lld of %lld ms", (long long)took,
               (long long)ms);
    }
    end_ledger(&l);
}

/* ---- run -------------------------------------------------------------------------------------*/

typedef struct work {
    atomic_int runs;
    int64_t sleep_us;
    semel_outcome outcome;
    char key[64];
} work;

static void do_work(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    work *w = context;
    atomic_fetch_add(&w->runs, 1);
    snprintf(w->key, sizeof w->key, "%.*s", SM_FMT(execute->idempotency_key));
    usleep((useconds_t)w->sleep_us);
    *outcome = w->outcome;
}

static work work_of(const char *value)
{
    return (work){.outcome = {.size = sizeof(semel_outcome), .value = sm_str_from(value)}};
}

static void run_runs_once_and_answers_everyone(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}, r: {class: read}}}");
    work w = work_of("\"done\"");
    semel_call c = call_of("t", "{}");
    assert_int_equal(semel_run(l.s, &c, do_work, &w, l.a), SEMEL_OK);
    expect_verdict(&l, SEMEL_EXECUTE, SEMEL_C_NONE);
    assert_true(l.a->executed);
    expect_text(l.a->outcome.value, "\"done\"");
    assert_int_equal(strlen(w.key), 43);
    assert_int_equal(semel_run(l.s, &c, do_work, &w, l.a), SEMEL_OK);
    expect_replay(&l, "\"done\"");
    assert_false(l.a->executed);
    assert_int_equal(atomic_load(&w.runs), 1);
    c = call_of("r", "{}");
    for (int i = 0; i < 2; i++) {
        semel_run(l.s, &c, do_work, &w, l.a);
        expect_text(l.a->outcome.value, "\"done\"");
        assert_true(l.a->has_outcome && l.a->outcome.kept);
        assert_int_equal(l.a->outcome.bytes, strlen("\"done\""));
    }
    assert_int_equal(atomic_load(&w.runs), 3);
    end_ledger(&l);
}

static void work_that_does_not_know_is_in_doubt(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    work w = work_of("\"timeout\"");
    w.outcome.kind = SEMEL_FAILURE;
    w.outcome.applied = SEMEL_APPLIED_UNKNOWN;
    semel_call c = call_of("t", "{}");
    assert_int_equal(semel_run(l.s, &c, do_work, &w, l.a), SEMEL_OK);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    assert_true(l.a->executed);
    semel_run(l.s, &c, do_work, &w, l.a);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    assert_int_equal(atomic_load(&w.runs), 1);
    end_ledger(&l);
}

/* ---- subscriptions ---------------------------------------------------------------------------*/

typedef struct listener {
    atomic_uint_fast64_t last;
    atomic_int count;
    atomic_bool disorder;
} listener;

static bool hear(void *context, const semel_event *e)
{
    listener *l = context;
    if (e->seq <= atomic_load(&l->last))
        atomic_store(&l->disorder, true);
    atomic_store(&l->last, e->seq);
    atomic_fetch_add(&l->count, 1);
    return true;
}

static void a_subscriber_hears_every_event_in_order(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "before", "{}");
    listener heard = {0};
    semel_subscription *sub = NULL;
    assert_int_equal(semel_subscribe(l.s, 0, hear, &heard, &sub, NULL), SEMEL_OK);
    for (int i = 0; i < 20; i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"i\": %d}", i);
        begin(&l, "t", args);
        commit(&l, "1");
    }
    int64_t end = sm_clock_deadline_ns(5000);
    while (atomic_load(&heard.count) < 41 && sm_clock_mono_ns() < end)
        usleep(2000);
    semel_unsubscribe(sub);
    assert_int_equal(atomic_load(&heard.count), 41);
    assert_false(atomic_load(&heard.disorder));
    end_ledger(&l);
}

/* Until there is something to purge, and nothing is left of it. */
static void purge_all(semel *s)
{
    uint64_t done = 0, all = 0;
    int64_t deadline = sm_clock_deadline_ns(60000);
    for (; all == 0 || done > 0; all += done) {
        assert_int_equal(semel_purge(s, NULL, NULL, &done, NULL), SEMEL_OK);
        expect(sm_clock_mono_ns() < deadline, "purged %llu, and there is no end of it",
               (unsigned long long)all);
    }
}

/* ---- moving ----------------------------------------------------------------------------------*/

typedef struct lines {
    char *text[64];
    int count;
} lines;

static bool keep_line(void *context, semel_str line)
{
    lines *k = context;
    assert_true(line.n > 0 && line.p[line.n - 1] == '\n');
    k->text[k->count++] = strndup(line.p, line.n);
    return true;
}

static void what_is_exported_can_be_imported(void **state)
{
    (void)state;
    static const char contract[] = "{version: 1, tools: {t: {class: write}, ask: {class: write, "
                                   "approval: {expires: 1h}}}}";
    ledger l = new_ledger(contract);
    begin(&l, "t", "{\"n\": \"settled\"}");
    commit(&l, "{\"value\": \"\xC3\xA4\"}");
    begin(&l, "t", "{\"n\": \"running\"}");
    begin(&l, "ask", "{}");
    begin(&l, "t", "{\"n\": \"ours\"}");
    commit(&l, "\"theirs\"");
    lines kept = {.count = 0};
    semel_fault fault = {0};
    expect(semel_export(l.s, (sm_str){0}, keep_line, &kept, &fault) == SEMEL_OK, "%s", fault.text);
    assert_int_equal(kept.count, 4);
    ledger m = new_ledger(contract);
    begin(&m, "t", "{\"n\": \"ours\"}");
    commit(&m, "\"ours\"");
    semel_imported count = {.size = sizeof count};
    for (int i = 0; i < 2; i++) { /* a second time changes nothing */
        for (int j = 0; j < kept.count; j++)
            expect(semel_import_line(m.s, sm_str_from(kept.text[j]), &count, &fault) == SEMEL_OK,
                   "%s", fault.text);
    }
    assert_int_equal(count.lines, 8);
    assert_int_equal(count.added, 3);
    assert_int_equal(count.kept, 5);
    begin(&m, "t", "{\"n\": \"settled\"}");
    expect_replay(&m, "{\"value\": \"\xC3\xA4\"}");
    begin(&m, "t", "{\"n\": \"running\"}");
    expect_refused(&m, SEMEL_C_IN_DOUBT);
    begin(&m, "ask", "{}");
    expect_refused(&m, SEMEL_C_AWAITING_APPROVAL);
    begin(&m, "t", "{\"n\": \"ours\"}");
    expect_replay(&m, "\"ours\"");
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(m.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    static const char *const wrong[] = {
        "",         "{}",
        "[1]",      "{\"semel\":2}",
        "nonsense", "{\"semel\":2,\"state\":\"succeeded\",\"key\":\"zz\"}"};
    for (size_t i = 0; i < COUNT(wrong); i++)
        expect(semel_import_line(m.s, sm_str_from(wrong[i]), &count, &fault) != SEMEL_OK, "<%s>",
               wrong[i]);
    for (int i = 0; i < kept.count; i++) {
        /* No cut line is taken for a whole one. */
        for (size_t n = 1; n + 2 < strlen(kept.text[i]); n += 37)
            expect(semel_import_line(m.s, (sm_str){kept.text[i], n}, &count, &fault) != SEMEL_OK,
                   "%zu bytes were accepted", n);
        free(kept.text[i]);
    }
    end_ledger(&l);
    end_ledger(&m);
}

/* Its record here was purged, and its history is still there. */
static void a_newer_generation_that_is_imported_after_a_purge_is_no_flaw(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "w", "{}");
    commit(&l, "1");
    semel_forget(l.s, sm_str_from(l.effect), SM_STR("me"), SM_STR("again"), l.a);
    begin(&l, "w", "{}");
    assert_int_equal(l.a->generation, 2);
    commit(&l, "2");
    lines kept = {.count = 0};
    assert_int_equal(semel_export(l.s, (sm_str){0}, keep_line, &kept, NULL), SEMEL_OK);
    semel_options o = {.size = sizeof o,
                       .url = fresh_url(),
                       .contract = SM_STR("{version: 1, tools: {w: {class: write, window: 1ms}}}"),
                       .one_shot = true,
                       .audit_retention_ms = 1};
    ledger m = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &m.s, NULL), SEMEL_OK);
    begin(&m, "w", "{}");
    commit(&m, "1");
    purge_all(m.s);
    semel_imported count = {.size = sizeof count};
    for (int i = 0; i < kept.count; i++) {
        assert_int_equal(semel_import_line(m.s, sm_str_from(kept.text[i]), &count, NULL), SEMEL_OK);
        free(kept.text[i]);
    }
    assert_true(count.added > 0);
    begin(&m, "w", "{}");
    expect_replay(&m, "2");
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(m.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
    end_ledger(&m);
}

static void what_is_forgotten_elsewhere_is_not_imported(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL), m = new_ledger(NULL);
    begin(&l, "t", "{}");
    commit(&l, "1");
    semel_forget(l.s, sm_str_from(l.effect), (sm_str){0}, (sm_str){0}, l.a);
    lines kept = {.count = 0};
    assert_int_equal(semel_export(l.s, (sm_str){0}, keep_line, &kept, NULL), SEMEL_OK);
    semel_imported count = {.size = sizeof count};
    for (int i = 0; i < 3; i++)
        assert_int_equal(semel_import_line(m.s, sm_str_from(kept.text[0]), &count, NULL), SEMEL_OK);
    assert_int_equal(count.added, 0);
    free(kept.text[0]);
    end_ledger(&l);
    end_ledger(&m);
}

static void an_imported_success_settles_what_is_in_doubt_here(void **state)
{
    (void)state;
    static const char contract[] = "{version: 1, tools: {t: {class: write, " SHORT_LEASE "}}}";
    ledger l = new_ledger(contract), m = new_ledger(contract);
    begin(&l, "t", "{}");
    commit(&l, "\"it was done\"");
    lines kept = {.count = 0};
    assert_int_equal(semel_export(l.s, (sm_str){0}, keep_line, &kept, NULL), SEMEL_OK);
    begin(&m, "t", "{}");
    outlive_lease();
    begin(&m, "t", "{}");
    expect_refused(&m, SEMEL_C_IN_DOUBT);
    semel_imported count = {.size = sizeof count};
    assert_int_equal(semel_import_line(m.s, sm_str_from(kept.text[0]), &count, NULL), SEMEL_OK);
    begin(&m, "t", "{}");
    expect_replay(&m, "\"it was done\"");
    free(kept.text[0]);
    end_ledger(&l);
    end_ledger(&m);
}

/* ---- what events and `show` say ---------------------------------------------------------------*/

static void an_event_says_whether_a_failure_was_applied(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"full\"");
    assert_int_equal(events_saying(&l, "\"applied\":\"no\""), 1);
    end_ledger(&l);
}

static void what_is_shown_says_how_many_must_approve(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, approval: {quorum: 2}}}}");
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    const char *expected = "\"quorum\":2,\"approvals\":1";
    expect(memmem(json.p, json.n, expected, strlen(expected)) != NULL, "%.*s", SM_FMT(json));
    end_ledger(&l);
}

/* ---- purging ---------------------------------------------------------------------------------*/

static void purging_keeps_what_is_open_and_what_still_informs(void **state)
{
    (void)state;
    ledger l = new_ledger(
        "{version: 1, tools: {w: {class: write, window: 10ms}, i: {class: "
        "irreversible, key: {fields: [/a]}, window: 10ms}, d: {class: write, " SHORT_LEASE
        ", window: 10ms}}}");
    begin(&l, "w", "{}");
    commit(&l, "1");
    begin(&l, "i", "{\"a\": 1}");
    char tombstone[128];
    strcpy(tombstone, l.effect);
    commit(&l, "\"payload\"");
    begin(&l, "d", "{}");
    outlive_lease();
    begin(&l, "d", "{}");
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    uint64_t done;
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_true(done > 0);
    begin(&l, "d", "{}"); /* what is unresolved never expires (I17) */
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(tombstone)};
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    expect(memmem(json.p, json.n, "payload", 7) == NULL, "%.*s", SM_FMT(json));
    begin(&l, "i", "{\"a\": 1}");
    expect_execute(&l);
    expect_text(l.a->repeat_of, tombstone);
    begin(&l, "w", "{}");
    expect_execute(&l);
    assert_int_equal(l.a->generation, 2); /* while the first one's history lasts */
    assert_null(l.a->repeat_of.p);
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

/* Whatever begins in the millisecond in which the record may go. */
static void what_begins_anew_as_soon_as_its_record_may_be_purged_is_no_flaw(void **state)
{
    (void)state;
    semel_options o = {.size = sizeof o,
                       .url = fresh_url(),
                       .contract = SM_STR("{version: 1, tools: {w: {class: write, window: 1ms, "
                                          "loop: off}}}"),
                       .one_shot = true,
                       .audit_retention_ms = 1};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    semel_verified v = {.size = sizeof v};
    for (int i = 0; i < 30; i++) {
        begin(&l, "w", "{}");
        commit(&l, "1");
        purge_all(l.s);
        begin(&l, "w", "{}");
        commit(&l, "1");
        assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
        assert_int_equal(v.flaws, 0);
    }
    end_ledger(&l);
}

static void a_newer_generation_is_not_purged_before_an_older_one(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    if (strcmp(url, "memory:") == 0)
        return; /* two contracts after another need a ledger that stays */
    static const char *const contracts[] = {
        "{version: 1, tools: {t: {class: write, window: 1h, on_repeat: run, repeat_after: 1ms}}}",
        "{version: 1, tools: {t: {class: write, window: 10ms, on_repeat: run, repeat_after: 1ms}}}"};
    char first[128] = "";
    for (size_t i = 0; i < 2; i++) {
        semel_options o = {.size = sizeof o,
                           .url = url,
                           .one_shot = true,
                           .audit_retention_ms = 1,
                           .contract = sm_str_from(contracts[i])};
        ledger l = {.a = semel_answer_new()};
        assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
        semel_call c = call_of("t", "{}");
        if (i > 0)
            c.after = sm_str_from(first);
        take(&l, semel_begin(l.s, &c, l.a));
        expect_execute(&l);
        strcpy(first, l.effect);
        commit(&l, i == 0 ? "\"first\"" : "\"second\"");
        outlive(20);
        uint64_t done;
        assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
        if (i > 0) {
            begin(&l, "t", "{}"); /* not a replay of the first */
            expect_execute(&l);
            assert_int_equal(l.a->generation, 3);
        }
        end_ledger(&l);
    }
}

static void events_leave_only_under_a_seal(void **state)
{
    (void)state;
    semel *s = NULL;
    semel_options o = {
        .size = sizeof o, .url = fresh_url(), .one_shot = true, .audit_retention_ms = 1};
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    ledger l = {.s = s, .a = semel_answer_new()};
    begin(&l, "t", "{}");
    commit(&l, "1");
    usleep(5000);
    uint64_t done;
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.events, 2); /* nothing is sealed yet */
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    begin(&l, "later", "{}");
    usleep(5000);
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_int_equal(done, 2);
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    assert_int_equal(v.events, 2); /* "later" began, and "t" is kept */
    begin(&l, "t", "{}");          /* the record outlives its history */
    expect_replay(&l, "1");
    begin(&l, "more", "{}");
    commit(&l, "1");
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK); /* goes on where the last one ended */
    usleep(5000);
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    assert_int_equal(v.unsealed, 0);
    end_ledger(&l);
}

/* Records are purged first, and then those that stay get an event: there it is stopped. */
static bool stop_soon(void *context, uint64_t done, uint64_t total)
{
    (void)done, (void)total;
    return ++*(unsigned *)context < 2;
}

/* Records get a new event before their old ones go. That is done in parts, and each part is done
 * once.
 */
static void a_purge_that_is_stopped_goes_on_where_it_was(void **state)
{
    (void)state;
    enum { EFFECTS = 1200 };
    semel *s = NULL;
    semel_options o = {
        .size = sizeof o, .url = fresh_url(), .one_shot = true, .audit_retention_ms = 1};
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    ledger l = {.s = s, .a = semel_answer_new()};
    for (int i = 0; i < EFFECTS; i++) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\": %d}", i);
        begin(&l, "t", args);
    }
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    usleep(5000);
    uint64_t done;
    semel_verified v = {.size = sizeof v};
    for (int round = 0; round < 2; round++) { /* two pages */
        unsigned calls = 0;
        assert_int_equal(semel_purge(l.s, stop_soon, &calls, &done, NULL), SEMEL_OK);
        assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
        assert_int_equal(done > 0, round > 0);
        assert_int_equal(v.flaws, round); /* those that are still there */
        assert_int_equal(v.events, round == 0 ? EFFECTS + 1000 : EFFECTS);
    }
    assert_int_equal(semel_purge(l.s, NULL, NULL, &done, NULL), SEMEL_OK);
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    assert_int_equal(v.events, EFFECTS);
    end_ledger(&l);
}

/* ---- keys ------------------------------------------------------------------------------------*/

static void a_keyed_seal_cannot_be_made_without_its_key(void **state)
{
    (void)state;
    char url[512], path[160], other[170];
    strcpy(url, fresh_url());
    snprintf(path, sizeof path, "%s/key", ledger_scratch());
    snprintf(other, sizeof other, "%s-other", path);
    FILE *f = fopen(path, "w");
    fputs("0123456789abcdef0123456789abcdef", f);
    fclose(f);
    f = fopen(other, "w");
    fputs("another key, which is not the same", f);
    fclose(f);
    semel *s = NULL;
    semel_options o = {.size = sizeof o, .url = url, .one_shot = true, .seal_key_path = path};
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    ledger l = {.s = s, .a = semel_answer_new()};
    begin(&l, "t", "{}");
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_true(v.flaws == 0 && v.seals == 1 && v.unkeyed == 0);
    end_ledger(&l);
    o.seal_key_path = other;
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    assert_int_equal(semel_verify(s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 1);
    semel_close(s);
    o.seal_key_path = NULL;
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    assert_int_equal(semel_verify(s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_true(v.flaws == 0 && v.unkeyed == 1);
    /* Without the key nobody seals where others did with it. */
    assert_int_equal(semel_seal(s, NULL), SEMEL_E_INVALID);
    semel_close(s);
    /* A ledger that somebody without the key has made and sealed is not taken for the real one. */
    o.url = fresh_url();
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    l = (ledger){.s = s, .a = semel_answer_new()};
    begin(&l, "t", "{}");
    assert_int_equal(semel_seal(l.s, NULL), SEMEL_OK);
    end_ledger(&l);
    o.seal_key_path = path;
    assert_int_equal(semel_open(&o, &s, NULL), SEMEL_OK);
    assert_int_equal(semel_verify(s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 1);
    semel_close(s);
    o.seal_key_path = "/nonexistent/key";
    semel_fault fault;
    assert_int_equal(semel_open(&o, &s, &fault), SEMEL_E_IO);
    assert_null(s);
}

/* ---- secrets ---------------------------------------------------------------------------------*/

static bool file_has(const char *path, const char *text)
{
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return false;
    static char bytes[4 << 20];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    return memmem(bytes, n, text, strlen(text)) != NULL;
}

static void neither_redacted_values_nor_claims_are_in_the_files(void **state)
{
    (void)state;
    char url[512], wal[520];
    strcpy(url, fresh_url());
    const char *path = url + strlen("sqlite:");
    snprintf(wal, sizeof wal, "%s-wal", path);
    ledger l = {.s = open_ledger(url,
                                 "{version: 1, tools: {t: {class: write, key: {fields: [/user]}, "
                                 "redact: [/password]}}}",
                                 true),
                .a = semel_answer_new()};
    begin(&l, "t", "{\"user\": \"ann\", \"password\": \"hunter2hunter2\"}");
    const char *secret = strrchr(l.claim, '.') + 1;
    begin(&l, "t", "{\"user\": \"ann\", \"password\": \"hunter3hunter3\"}");
    commit(&l, "\"kept-value\"");
    assert_true(file_has(wal, "kept-value")); /* the search does find what is there */
    static const char *const secrets[] = {"hunter2hunter2", "hunter3hunter3"};
    for (size_t i = 0; i < COUNT(secrets); i++)
        assert_false(file_has(wal, secrets[i]) || file_has(path, secrets[i]));
    assert_false(file_has(wal, secret) || file_has(path, secret));
    end_ledger(&l);
    assert_true(file_has(path, "kept-value"));
    assert_false(file_has(path, secrets[0]) || file_has(path, secret));
}

/* ---- symptoms --------------------------------------------------------------------------------*/

typedef struct symptoms {
    int equal, near, window, stale;
    char pointer[64], tool[64];
} symptoms;

static bool note_symptom(void *context, const semel_symptom *s)
{
    symptoms *n = context;
    n->equal += strcmp(s->kind, "equal_arguments") == 0;
    n->window += strcmp(s->kind, "short_window") == 0;
    if (strcmp(s->kind, "stale_replay") == 0) {
        n->stale++;
        snprintf(n->tool, sizeof n->tool, "%.*s", SM_FMT(s->tool));
    }
    if (strcmp(s->kind, "near_duplicate") == 0) {
        n->near++;
        snprintf(n->pointer, sizeof n->pointer, "%.*s", SM_FMT(s->pointer));
    }
    return true;
}

static void the_doctor_sees_keys_that_should_have_been_equal(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {mail: {class: write}, late: {class: write, window: "
                          "5ms}}}");
    begin(&l, "mail", "{\"to\": \"ann\", \"request_id\": \"r1\", \"text\": \"x\"}");
    begin(&l, "mail", "{\"to\": \"ann\", \"request_id\": \"r2\", \"text\": \"x\"}");
    semel_call c = call_of("pay", "{\"amount\": 1}");
    c.key = SM_STR("uuid-1");
    semel_begin(l.s, &c, l.a);
    c.key = SM_STR("uuid-2");
    semel_begin(l.s, &c, l.a);
    begin(&l, "late", "{}");
    commit(&l, "1");
    outlive(5);
    begin(&l, "late", "{}");
    expect_execute(&l);
    symptoms n = {0};
    semel_fault fault = {0};
    expect(semel_doctor(l.s, 10000, note_symptom, NULL, &n, &fault) == SEMEL_OK, "%s", fault.text);
    assert_int_equal(n.equal, 1);
    assert_int_equal(n.near, 1);
    assert_string_equal(n.pointer, "/request_id");
    assert_int_equal(n.window, 1);
    end_ledger(&l);
}

static void the_doctor_compares_calls_of_two_arguments(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "mail", "{\"to\": \"ann\", \"nonce\": 1}");
    begin(&l, "mail", "{\"to\": \"ann\", \"nonce\": 2}");
    begin(&l, "ping", "{\"n\": 1}");
    begin(&l, "ping", "{\"n\": 2}");
    symptoms n = {0};
    assert_int_equal(semel_doctor(l.s, 10000, note_symptom, NULL, &n, NULL), SEMEL_OK);
    assert_int_equal(n.near, 1);
    assert_string_equal(n.pointer, "/nonce");
    end_ledger(&l);
}

typedef struct leavers {
    unsigned n;
    char text[1000];
} leavers;

static bool note_leaver(void *context, const semel_symptom *s)
{
    leavers *x = context;
    if (strcmp(s->kind, "never_committed") != 0)
        return true;
    x->n++;
    size_t n = strlen(x->text);
    snprintf(x->text + n, sizeof x->text - n, "%.*s %.*s %llu %.*s;", SM_FMT(s->actor),
             SM_FMT(s->tool), (unsigned long long)s->count, SM_FMT(s->effect));
    assert_non_null(memmem(s->text.p, s->text.n, "commit every claim", 18));
    return true;
}

/* A claim that this one takes. */
static void claim_as(ledger *l, const char *actor, const char *tool, int n)
{
    char args[32];
    snprintf(args, sizeof args, "{\"n\":%d}", n);
    sm_asking q = {.call = call_of(tool, args), .actor = sm_str_from(actor)};
    take(l, sm_ask(l->s, &q, l->a));
    expect_execute(l);
    sm_contracts_free(q.contracts);
}

static void the_doctor_tells_who_leaves_claims_uncommitted(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {pay: {class: write, " SHORT_LEASE ", barrier: "
                          "false}, slow: {class: write, lease: 1h, barrier: false}}}");
    char effect[2][128];
    leavers x = {0};
    claim_as(&l, "ann", "pay", 1);
    claim_as(&l, "ann", "pay", 2);
    strcpy(effect[0], l.effect);
    claim_as(&l, "bob", "pay", 3);
    strcpy(effect[1], l.effect);
    claim_as(&l, "bob", "slow", 4);
    commit(&l, "1");
    claim_as(&l, "bob", "slow", 5); /* in doubt, and bob has said so */
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    claim_as(&l, "eve", "slow", 6); /* at work */
    outlive_lease();
    begin(&l, "pay", "{\"n\":1}"); /* somebody has looked at one of them */
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    assert_int_equal(semel_doctor(l.s, 10000, note_leaver, NULL, &x, NULL), SEMEL_OK);
    char expected[600];
    snprintf(expected, sizeof expected, "bob pay 1 %s;ann pay 2 %s;", effect[1], effect[0]);
    assert_string_equal(x.text, expected);
    end_ledger(&l);
}

static void the_doctor_takes_no_document_of_guards_for_an_effect(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, breaker: {failures: 1}}, u: "
                          "{class: write, breaker: {failures: 1}}}}");
    static const char *const tools[] = {"t", "u"};
    for (int i = 0; i < 2; i++) {
        begin(&l, tools[i], "{}");
        semel_outcome o = {
            .size = sizeof o, .kind = SEMEL_FAILURE, .applied = SEMEL_APPLIED_NO, .status = 500};
        semel_commit(l.s, sm_str_from(l.claim), &o, l.a);
    }
    symptoms n = {0};
    assert_int_equal(semel_doctor(l.s, 10000, note_symptom, NULL, &n, NULL), SEMEL_OK);
    assert_int_equal(n.equal, 0);
    end_ledger(&l);
}

static int stale_ones(ledger *l, symptoms *n)
{
    semel_fault fault = {0};
    *n = (symptoms){0};
    expect(semel_doctor(l->s, 10000, note_symptom, NULL, n, &fault) == SEMEL_OK, "%s", fault.text);
    return n->stale;
}

/* Until the handle's clock is past what was just settled. It is behind the clock of a server by as
 * long as an answer takes. */
static void outlast(ledger *l)
{
    int64_t window_end, settled = sm_settled_at(l->a, &window_end);
    semel_stats stats = {.size = sizeof stats};
    do {
        usleep(1000);
        assert_int_equal(semel_stats_get(l->s, false, &stats, NULL), SEMEL_OK);
    } while (sm_clock_ms() + stats.ahead_ms <= settled);
}

static void the_doctor_sees_reads_that_were_answered_from_the_record_after_a_write(void **state)
{
    (void)state;
    symptoms n;
    ledger l = new_ledger("{version: 1, tools: {listed: {class: write}, put: {class: write}}}");
    for (int i = 0; i < 2; i++) {
        const char *args = i == 0 ? "{}" : "{\"more\": 1}";
        begin(&l, "look", args);
        commit(&l, "1");
        begin(&l, "listed", args);
        commit(&l, "1");
    }
    outlast(&l);
    begin(&l, "look", "{}");
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    begin(&l, "look", "{\"more\": 1}");
    assert_int_equal(stale_ones(&l, &n), 1); /* of each tool one is told */
    assert_string_equal(n.tool, "look");
    end_ledger(&l);

    l = new_ledger("{version: 1, tools: {listed: {class: write}, put: {class: write}}}");
    begin(&l, "look", "{}");
    commit(&l, "1");
    begin(&l, "look", "{}"); /* nothing had been done since */
    usleep(3000);
    begin(&l, "put", "{}");
    commit(&l, "1");
    begin(&l, "listed", "{}");
    commit(&l, "1");
    begin(&l, "listed", "{}"); /* somebody thought of that one */
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    assert_int_equal(stale_ones(&l, &n), 0);
    outlast(&l);
    begin(&l, "look", "{}");
    assert_int_equal(stale_ones(&l, &n), 1);
    end_ledger(&l);
}

static void evidence_is_not_taken_for_a_changed_outcome(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    begin(&l, "t", "{}");
    commit(&l, "1");
    commit(&l, "2");
    expect_text(l.a->result, "late_evidence");
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.events, 3);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_waiter_gets_the_failure_of_the_attempt_it_joined),
        cmocka_unit_test(of_those_who_wait_for_an_approval_one_runs),
        cmocka_unit_test(waiters_are_told_that_a_request_expired_or_was_canceled_or_denied),
        cmocka_unit_test(a_wait_ends_at_its_deadline),
        cmocka_unit_test(run_runs_once_and_answers_everyone),
        cmocka_unit_test(work_that_does_not_know_is_in_doubt),
        cmocka_unit_test(a_subscriber_hears_every_event_in_order),
        cmocka_unit_test(what_is_exported_can_be_imported),
        cmocka_unit_test(what_is_forgotten_elsewhere_is_not_imported),
        cmocka_unit_test(a_newer_generation_that_is_imported_after_a_purge_is_no_flaw),
        cmocka_unit_test(an_imported_success_settles_what_is_in_doubt_here),
        cmocka_unit_test(purging_keeps_what_is_open_and_what_still_informs),
        cmocka_unit_test(what_begins_anew_as_soon_as_its_record_may_be_purged_is_no_flaw),
        cmocka_unit_test(an_event_says_whether_a_failure_was_applied),
        cmocka_unit_test(what_is_shown_says_how_many_must_approve),
        cmocka_unit_test(a_newer_generation_is_not_purged_before_an_older_one),
        cmocka_unit_test(events_leave_only_under_a_seal),
        cmocka_unit_test(a_purge_that_is_stopped_goes_on_where_it_was),
        cmocka_unit_test(evidence_is_not_taken_for_a_changed_outcome),
        cmocka_unit_test(the_doctor_sees_keys_that_should_have_been_equal),
        cmocka_unit_test(the_doctor_compares_calls_of_two_arguments),
        cmocka_unit_test(the_doctor_tells_who_leaves_claims_uncommitted),
        cmocka_unit_test(the_doctor_takes_no_document_of_guards_for_an_effect),
        cmocka_unit_test(the_doctor_sees_reads_that_were_answered_from_the_record_after_a_write),
    };
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(a_keyed_seal_cannot_be_made_without_its_key),
        cmocka_unit_test(neither_redacted_values_nor_claims_are_in_the_files),
    };
    return run_on_stores(tests, COUNT(tests), NULL, 0, filed, COUNT(filed));
}
