/* Limits: how often one destination may be acted on, whatever the run. */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/digest.h"

#define TOOLS(text)  "{version: 1, tools: {" text "}}"
#define MAIL(limits) TOOLS("mail: {class: write, limit: " limits "}")

/* A call that differs from the others by `n`. */
static semel_err mail_in(ledger *l, const char *scope, const char *to, int n)
{
    char args[256];
    snprintf(args, sizeof args, "{\"to\":%s,\"n\":%d}", to, n);
    semel_call c = call_of("mail", args);
    c.scope = sm_str_from(scope);
    return take(l, semel_begin(l->s, &c, l->a));
}

static void runs(ledger *l, const char *scope, const char *to, int n)
{
    mail_in(l, scope, to, n);
    expect_execute(l);
    commit(l, "1");
}

static void refused(ledger *l, const char *scope, const char *to, int n)
{
    mail_in(l, scope, to, n);
    expect_refused(l, SEMEL_C_BUDGET_EXCEEDED);
    assert_false(l->a->retriable);
    assert_true(l->a->claim.p == NULL);
}

static bool says(sm_str text, const char *part)
{
    return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

static void one_destination_is_acted_on_so_often_whatever_the_run(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 3, window: 1h}"));
    runs(&l, "acme/bot/1", "\"ann\"", 0);
    runs(&l, "acme/bot/2", "\"ann\"", 1);
    runs(&l, "acme/other/1", "\"ann\"", 2);
    refused(&l, "acme/bot/3", "\"ann\"", 3);
    expect_text(l.a->message, "3 calls with the same /to were made within 1h, which is the limit. "
                              "Nothing has been done.");
    expect(says(l.a->corrective_action, "Do not make a call with this /to again before 2") &&
               says(l.a->corrective_action, "(in "),
           "%.*s", SM_FMT(l.a->corrective_action));
    expect(l.a->retry_after_ms > 3000000 && l.a->retry_after_ms <= 3600000, "after %lld",
           (long long)l.a->retry_after_ms);
    assert_false(says(l.a->message, "ann") || says(l.a->corrective_action, "ann"));
    for (int n = 0; n < 3; n++)
        runs(&l, "acme/bot/1", "\"bob\"", n);
    runs(&l, "zeta/bot/1", "\"ann\"", 3);    /* another tenant has its own */
    mail_in(&l, "acme/bot/1", "\"ann\"", 0); /* a replay takes nothing */
    expect_replay(&l, "1");
    end_ledger(&l);
}

static void what_was_not_done_does_not_count(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 1, window: 1h}"));
    for (int n = 0; n < 3; n++) {
        mail_in(&l, "r", "\"ann\"", n);
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
    }
    runs(&l, "r", "\"ann\"", 3);
    refused(&l, "r", "\"ann\"", 4);
    end_ledger(&l);
}

static void what_is_in_doubt_counts_until_it_is_resolved(void **state)
{
    (void)state;
    const struct {
        semel_resolution how;
        bool frees;
    } rows[] = {{SEMEL_RESOLVE_APPLIED, false},
                {SEMEL_RESOLVE_NOT_APPLIED, true},
                {SEMEL_RESOLVE_ABANDON, false}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        ledger l = new_ledger(MAIL("{per: /to, calls: 1, window: 1h}"));
        char to[16], effect[128];
        snprintf(to, sizeof to, "%zu", i);
        mail_in(&l, "r", to, 0);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
        strcpy(effect, l.effect);
        refused(&l, "r", to, 1);
        semel_resolve(l.s, sm_str_from(effect), rows[i].how, NULL, SM_STR("I looked"), (sm_str){0},
                      l.a);
        assert_int_equal(l.a->verdict, SEMEL_DONE);
        mail_in(&l, "r", to, 1);
        expect_verdict(&l, rows[i].frees ? SEMEL_EXECUTE : SEMEL_REFUSED,
                       rows[i].frees ? SEMEL_C_NONE : SEMEL_C_BUDGET_EXCEEDED);
        end_ledger(&l);
    }
}

/* How much sooner than its window a slot may be free. Times are whole milliseconds. A server's
 * clock is known as well as its answers are quick. */
static int64_t early_ms(void)
{
    return in_memory() || in_file() ? 1 : 50;
}

/* Never more than 2 within any window, whenever it began. */
static void the_window_slides(void **state)
{
    (void)state;
    enum { CALLS = 2, WINDOW_MS = 300, RUNS = 7 };
    ledger l = new_ledger(MAIL("{per: /to, calls: 2, window: 300ms}"));
    int64_t before[RUNS], after[RUNS];
    int ran = 0;
    for (int n = 0; ran < RUNS; n++) {
        before[ran] = sm_clock_mono_ns();
        mail_in(&l, "r", "\"ann\"", n);
        after[ran] = sm_clock_mono_ns();
        if (l.a->verdict != SEMEL_EXECUTE) {
            assert_int_equal(l.a->code, SEMEL_C_BUDGET_EXCEEDED);
            continue;
        }
        commit(&l, "1");
        ran++;
    }
    for (int i = CALLS; i < RUNS; i++) {
        int64_t apart = (after[i] - before[i - CALLS]) / 1000000;
        expect(apart >= WINDOW_MS - early_ms(), "call %d came %lld ms after call %d", i,
               (long long)apart, i - CALLS);
    }
    end_ledger(&l);
}

/* Nobody frees a slot that somebody else has by now. */
static void an_attempt_that_took_longer_than_the_window_frees_nothing(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 1, window: 200ms}")), m = l;
    mail_in(&l, "r", "\"ann\"", 0);
    expect_execute(&l);
    int64_t asked;
    do { /* the slot is free again when the window is over */
        asked = sm_clock_mono_ns();
        mail_in(&m, "r", "\"ann\"", 1);
    } while (m.a->verdict != SEMEL_EXECUTE);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
    int n = 2;
    do
        mail_in(&l, "r", "\"ann\"", n++);
    while (l.a->verdict != SEMEL_EXECUTE);
    int64_t apart = (sm_clock_mono_ns() - asked) / 1000000;
    expect(apart >= 200 - early_ms(), "after %lld ms", (long long)apart);
    end_ledger(&l);
}

static void a_list_is_as_many_destinations(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 1, window: 1h}"));
    runs(&l, "r", "[\"ann\",\"bob\",\"ann\"]", 0);
    refused(&l, "r", "\"ann\"", 1);
    refused(&l, "r", "[\"carol\",\"bob\"]", 2);
    runs(&l, "r", "\"carol\"", 3); /* what was refused took nothing */
    mail_in(&l, "r", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", 4);
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    runs(&l, "r", "[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", 4);
    refused(&l, "r", "16", 5);
    end_ledger(&l);
}

static void a_call_for_nobody_is_refused_before_an_approval_is_asked_for(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("mail: {class: write, approval: {expires: 1h, self_approval: true}, "
                         "limit: {per: /to, calls: 1, window: 1h}}"));
    begin(&l, "mail", "{\"n\":1}");
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    for (int n = 0; n < 2; n++) { /* asking takes no slot */
        mail_in(&l, "r", "\"ann\"", n);
        expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    }
    end_ledger(&l);
}

static void a_call_for_nobody_is_refused(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 1, window: 1h}"));
    static const char *const args[] = {"{\"n\":1}",          "{\"to\":null}", "{\"to\":[]}",
                                       "{\"to\":{\"a\":1}}", "{\"to\":[[]]}", "{\"To\":\"ann\"}"};
    for (size_t i = 0; i < COUNT(args); i++) {
        begin(&l, "mail", args[i]);
        expect(l.a->code == SEMEL_C_BAD_ARGUMENTS, "%s: %s", args[i], semel_code_name(l.a->code));
        if (i < 5) /* the last one has a name that is not known */
            expect(says(l.a->message, i < 3 ? "it must be given" : "give a text or a number"),
                   "%s: %.*s", args[i], SM_FMT(l.a->message));
    }
    begin(&l, "mail", "{}");
    expect_text(l.a->message, "the argument /to says whom this call is for, and there is a limit "
                              "for each: it must be given");
    end_ledger(&l);
}

static void a_call_for_nobody_is_refused_whichever_limit_it_is_that_has_nobody(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("[{per: /to, calls: 1, window: 1h}, {per: /n, calls: 1, window: "
                               "1h}]"));
    static const char *const args[] = {"{\"n\":1}", "{\"to\":\"ann\"}"};
    for (size_t i = 0; i < COUNT(args); i++) {
        begin(&l, "mail", args[i]);
        expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    }
    end_ledger(&l);
}

/* Of several calls the first one makes room. */
static void a_refusal_says_when_the_first_of_several_calls_is_over(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 2, window: 1h}"));
    for (int first = 0; first < 4; first++) { /* whichever slot they begin to look at */
        char to[16];
        snprintf(to, sizeof to, "%d", first);
        runs(&l, "r", to, first);
        int64_t began_ns = sm_clock_mono_ns();
        usleep(100000);
        runs(&l, "r", to, 10 + first);
        int64_t apart_ms = (sm_clock_mono_ns() - began_ns) / 1000000;
        refused(&l, "r", to, 20 + first);
        expect(l.a->retry_after_ms <= 3600000 - apart_ms + early_ms(), "after %lld ms, %lld apart",
               (long long)l.a->retry_after_ms, (long long)apart_ms);
    }
    end_ledger(&l);
}

static void values_of_different_types_are_different(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 1, window: 1h}"));
    runs(&l, "r", "1", 0);
    runs(&l, "r", "\"1\"", 1);
    refused(&l, "r", "1.0", 2);
    end_ledger(&l);
}

static void all_limits_must_allow_it(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("[{per: /to, calls: 2, window: 1h}, {per: /to, calls: 3, window: "
                               "7d}, {per: /n, calls: 1, window: 1d}]"));
    runs(&l, "r", "\"ann\"", 0);
    runs(&l, "r", "\"ann\"", 1);
    refused(&l, "r", "\"ann\"", 2);
    expect(says(l.a->message, "within 1h"), "%.*s", SM_FMT(l.a->message));
    refused(&l, "r/2", "\"bob\"", 0);
    expect(says(l.a->message, "1 call with the same /n was made within 24h"), "%.*s",
           SM_FMT(l.a->message));
    end_ledger(&l);
}

static void a_limit_and_a_budget_hold_together(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write, limit: {per: /to, calls: 2, window: 1h}, "
                                "budget: {per: run, calls: 3}}"));
    runs(&l, "r", "\"ann\"", 0);
    runs(&l, "r", "\"ann\"", 1);
    refused(&l, "r", "\"ann\"", 2);
    runs(&l, "r", "\"bob\"", 3);
    refused(&l, "r", "\"carol\"", 4);
    expect(says(l.a->message, "The budget of 3 calls a run"), "%.*s", SM_FMT(l.a->message));
    end_ledger(&l);
}

static void observe_mode_says_what_a_limit_would_refuse(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write, mode: observe, limit: {per: /to, calls: 1, "
                                "window: 1h}}"));
    runs(&l, "r", "\"ann\"", 0);
    assert_null(l.a->observed.p);
    mail_in(&l, "r", "\"ann\"", 1);
    expect_execute(&l);
    expect_text(l.a->observed, "BUDGET_EXCEEDED");
    commit(&l, "1");
    begin(&l, "mail", "{}");
    expect_execute(&l);
    expect_text(l.a->observed, "BAD_ARGUMENTS");
    mail_in(&l, "r", "[\"bob\",{}]", 2); /* does not count for bob either */
    expect_execute(&l);
    expect_text(l.a->observed, "BAD_ARGUMENTS");
    mail_in(&l, "r", "\"bob\"", 3);
    expect_execute(&l);
    assert_null(l.a->observed.p);
    end_ledger(&l);
}

/* The first of them is in the way, and nobody looks at the second. */
static void observe_mode_runs_what_is_for_several_who_had_enough(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write, mode: observe, limit: {per: /to, calls: 1, "
                                "window: 1h}}"));
    runs(&l, "r", "\"ann\"", 0);
    runs(&l, "r", "\"bob\"", 1);
    mail_in(&l, "r", "[\"ann\",\"bob\"]", 2);
    expect_execute(&l);
    expect_text(l.a->observed, "BUDGET_EXCEEDED");
    assert_true(l.a->claim.p != NULL);
    end_ledger(&l);
}

typedef struct crowd {
    semel *s;
    atomic_int next, ran, refused, other;
} crowd;

static void *call_often(void *context)
{
    crowd *c = context;
    semel_answer *a = semel_answer_new();
    for (int n; (n = atomic_fetch_add(&c->next, 1)) < 60;) {
        char args[64];
        snprintf(args, sizeof args, "{\"to\":\"ann\",\"n\":%d}", n);
        semel_call call = call_of("mail", args);
        semel_begin(c->s, &call, a);
        atomic_fetch_add(a->verdict == SEMEL_EXECUTE          ? &c->ran
                         : a->code == SEMEL_C_BUDGET_EXCEEDED ? &c->refused
                                                              : &c->other,
                         1);
    }
    semel_answer_free(a);
    return NULL;
}

static void callers_at_once_do_not_pass_the_limit(void **state)
{
    (void)state;
    ledger l = new_ledger(MAIL("{per: /to, calls: 25, window: 1h}"));
    crowd c = {.s = l.s};
    pthread_t threads[8];
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &c), 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    expect(c.ran == 25 && c.refused == 35 && c.other == 0, "%d ran, %d refused, %d other", c.ran,
           c.refused, c.other);
    end_ledger(&l);
}

/* ---- the secret ------------------------------------------------------------------------------*/

static void processes_of_one_ledger_count_together(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = MAIL("{per: /to, calls: 2, window: 1h}");
    for (int n = 0; n < 3; n++) {
        ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
        mail_in(&l, "r", "\"ann\"", n);
        expect_verdict(&l, n < 2 ? SEMEL_EXECUTE : SEMEL_REFUSED,
                       n < 2 ? SEMEL_C_NONE : SEMEL_C_BUDGET_EXCEEDED);
        end_ledger(&l);
    }
}

typedef struct seen {
    ledger *l;
    bool value;       /* an address is in the trail */
    char secret[128]; /* the document's handle */
} seen;

static bool look_at_event(void *context, const semel_event *e)
{
    seen *s = context;
    s->value |= memmem(e->body.p, e->body.n, "ann@example.com", 15) != NULL;
    if (sm_str_is(e->what, "keyed")) {
        char json[4096];
        size_t n;
        assert_int_equal(semel_event_json(e, json, sizeof json, &n), SEMEL_OK);
        json[n] = '\0';
        assert_int_equal(sscanf(strstr(json, "\"effect\":\"") + 10, "%127[^\"]", s->secret), 1);
    }
    return true;
}

static bool count_line(void *context, semel_str line)
{
    (void)line;
    ++*(int *)context;
    return true;
}

static void the_secret_is_told_to_nobody(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("mail: {class: write, redact: [/to], limit: {per: /to, calls: 1, "
                                "window: 1h}}"));
    seen s = {.l = &l};
    uint64_t after = 0;
    int lines = 0;
    runs(&l, "r", "\"ann@example.com\"", 0);
    assert_int_equal(semel_events(l.s, (sm_str){0}, &after, 10000, look_at_event, &s, NULL),
                     SEMEL_OK);
    assert_false(s.value);
    assert_true(s.secret[0] != '\0');
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(s.secret)};
    semel_show(l.s, &name, l.a, &json);
    assert_int_equal(l.a->code, SEMEL_C_NOT_FOUND);
    char key[SM_HASH_TEXT + 1];
    sm_digest d;
    sm_hash h;
    assert_int_equal(sm_digest_init(&d), SM_OK);
    assert_int_equal(sm_digest_bytes(&d, "semel-shared-1 /secret ", 23, &h), SM_OK);
    sm_digest_fini(&d);
    sm_hash_text(&h, key);
    name.text = sm_str_from(key);
    semel_show(l.s, &name, l.a, &json);
    assert_int_equal(l.a->code, SEMEL_C_NOT_FOUND);
    semel_forget(l.s, sm_str_from(s.secret), (sm_str){0}, SM_STR("gone"), l.a);
    assert_int_equal(l.a->code, SEMEL_C_NOT_FOUND);
    assert_int_equal(semel_export(l.s, (sm_str){0}, count_line, &lines, NULL), SEMEL_OK);
    assert_int_equal(lines, 1);
    refused(&l, "r", "\"ann@example.com\"", 1);
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_destination_is_acted_on_so_often_whatever_the_run),
        cmocka_unit_test(what_was_not_done_does_not_count),
        cmocka_unit_test(what_is_in_doubt_counts_until_it_is_resolved),
        cmocka_unit_test(the_window_slides),
        cmocka_unit_test(an_attempt_that_took_longer_than_the_window_frees_nothing),
        cmocka_unit_test(a_list_is_as_many_destinations),
        cmocka_unit_test(a_call_for_nobody_is_refused),
        cmocka_unit_test(a_call_for_nobody_is_refused_before_an_approval_is_asked_for),
        cmocka_unit_test(a_call_for_nobody_is_refused_whichever_limit_it_is_that_has_nobody),
        cmocka_unit_test(a_refusal_says_when_the_first_of_several_calls_is_over),
        cmocka_unit_test(values_of_different_types_are_different),
        cmocka_unit_test(all_limits_must_allow_it),
        cmocka_unit_test(a_limit_and_a_budget_hold_together),
        cmocka_unit_test(observe_mode_says_what_a_limit_would_refuse),
        cmocka_unit_test(observe_mode_runs_what_is_for_several_who_had_enough),
        cmocka_unit_test(callers_at_once_do_not_pass_the_limit),
        cmocka_unit_test(the_secret_is_told_to_nobody),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(processes_of_one_ledger_count_together),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
}
