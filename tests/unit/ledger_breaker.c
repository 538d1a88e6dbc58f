/* Tools that fail are not called for a while: opening, finding out, closing, in several processes.
 */
#include "ledger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "ledger/guard/board.h"
#include "ledger/guard/shared.h"
#include "ledger/service.h"
#include "store/stores.h"

#define TOOLS(text) "{version: 1, tools: {" text "}}"

/* It stays open for as long as a test takes; and is over at once. */
#define LONG  "cooldown: 1h"
#define SHORT "cooldown: 1ms"

static semel_err begin_n(ledger *l, const char *tool, int n)
{
    char args[32];
    snprintf(args, sizeof args, "{\"n\":%d}", n);
    return begin(l, tool, args);
}

/* As a gateway does that calls the tool's upstream itself. */
static void call_upstream(ledger *l, const char *tool, const char *args)
{
    sm_asking q = {.call = call_of(tool, args), .upstream = true, .lease_ms = 5000};
    take(l, sm_ask(l->s, &q, l->a));
    sm_contracts_free(q.contracts);
}

static void call_upstream_n(ledger *l, const char *tool, int n)
{
    char args[32];
    snprintf(args, sizeof args, "{\"n\":%d}", n);
    call_upstream(l, tool, args);
}

static semel_err begin_for(ledger *l, const char *scope, const char *tool, int n)
{
    char args[32];
    snprintf(args, sizeof args, "{\"n\":%d}", n);
    semel_call call = call_of(tool, args);
    call.scope = sm_str_from(scope);
    return take(l, semel_begin(l->s, &call, l->a));
}

static void commit_status(ledger *l, semel_kind kind, semel_applied applied, int status)
{
    semel_outcome o = {.size = sizeof o, .kind = kind, .applied = applied, .status = status};
    take(l, semel_commit(l->s, sm_str_from(l->claim), &o, l->a));
    assert_int_equal(l->a->verdict, SEMEL_DONE);
}

static void fails(ledger *l, const char *tool, int n)
{
    begin_n(l, tool, n);
    expect_execute(l);
    commit_status(l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 503);
}

static void works(ledger *l, const char *tool, int n)
{
    begin_n(l, tool, n);
    expect_execute(l);
    commit_status(l, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, 200);
}

static bool says(sm_str text, const char *part)
{
    return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

static bool add_what(void *context, const semel_event *e)
{
    static const char *const of_circuits[] = {"failing",     "recovered", "opened",
                                              "half_opened", "probing",   "closed"};
    for (size_t i = 0; i < COUNT(of_circuits); i++) {
        if (sm_str_is(e->what, of_circuits[i]))
            strcat(strcat(context, of_circuits[i]), " ");
    }
    return true;
}

/* What the trail says of circuits. */
static const char *circuit_events(ledger *l)
{
    static char text[8192];
    uint64_t after = 0;
    text[0] = '\0';
    assert_int_equal(semel_events(l->s, (sm_str){0}, &after, 10000, add_what, text, NULL),
                     SEMEL_OK);
    return text;
}

static bool count_event(void *context, const semel_event *e)
{
    *(unsigned *)context += e->id != 0;
    return true;
}

static unsigned events_of_all(ledger *l)
{
    unsigned n = 0;
    uint64_t after = 0;
    assert_int_equal(semel_events(l->s, (sm_str){0}, &after, 10000, count_event, &n, NULL),
                     SEMEL_OK);
    return n;
}

/* ---- opening ---------------------------------------------------------------------------------*/

static void a_tool_that_fails_is_not_called_until_its_cooldown_is_over(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("pay: {class: write, breaker: {failures: 3, " LONG "}}, "
                                "other: {class: write, breaker: {failures: 3, " LONG "}}"));
    works(&l, "pay", 0);
    for (int n = 1; n <= 3; n++)
        fails(&l, "pay", n);
    begin_n(&l, "pay", 4);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    expect_text(l.a->message,
                "pay is not called for now: its last 3 calls failed. Nothing has been done.");
    expect(says(l.a->corrective_action, "Make the same call again in 1h, and not before."), "%.*s",
           SM_FMT(l.a->corrective_action));
    assert_true(l.a->retriable);
    assert_in_range(l.a->retry_after_ms, 3000000, 3600000);
    assert_int_equal(semel_code_exit(l.a->code), 75);
    assert_true(l.a->effect.p == NULL); /* nothing was recorded of it */
    begin_n(&l, "pay", 3);              /* what failed before is not tried again either */
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    begin_n(&l, "pay", 0); /* what is done goes on answering */
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_NONE);
    works(&l, "other", 0);
    expect_text(sm_str_from(circuit_events(&l)), "failing failing opened ");
    end_ledger(&l);
}

static void only_failures_of_the_tool_count(void **state)
{
    (void)state;
    static const struct {
        semel_kind kind;
        semel_applied applied;
        int status;
        bool counts;
    } rows[] = {
        {SEMEL_FAILURE, SEMEL_APPLIED_DEFAULT, 0, false},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 422, false},
        {SEMEL_FAILURE, SEMEL_APPLIED_YES, 1, false},
        {SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, 0, true}, /* no answer: it is in doubt */
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 429, true},
        {SEMEL_FAILURE, SEMEL_APPLIED_NO, 502, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        /* Of an irreversible tool that says "I failed" nobody knows, and yet it has answered. */
        ledger l = new_ledger(TOOLS("t: {class: irreversible, barrier: false, breaker: {failures: "
                                    "2, " LONG "}}"));
        for (int n = 0; n < 2; n++) {
            begin_n(&l, "t", n);
            expect_execute(&l);
            commit_status(&l, rows[i].kind, rows[i].applied, rows[i].status);
        }
        begin_n(&l, "t", 2);
        expect((l.a->code == SEMEL_C_CIRCUIT_OPEN) == rows[i].counts, "row %zu: %s", i,
               semel_code_name(l.a->code));
        end_ledger(&l);
    }
}

static void what_we_refuse_never_counts(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " LONG "}, "
                                "input: {type: object, required: [n]}, "
                                "budget: {per: run, calls: 1}, loop: {warn: 2, block: 2}}"));
    works(&l, "t", 0);
    for (int i = 0; i < 5; i++) {
        begin(&l, "t", "{}");
        expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
        begin_n(&l, "t", 1);
        expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
        begin_n(&l, "t", 0);
        expect_refused(&l, SEMEL_C_LOOP_DETECTED);
    }
    expect_text(sm_str_from(circuit_events(&l)), "");
    end_ledger(&l);
}

static void failures_within_a_window_count_whatever_is_in_between(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("row: {class: write, breaker: {failures: 3, " LONG "}}, "
                         "window: {class: write, breaker: {failures: 3, window: 1h, " LONG "}}, "
                         "brief: {class: write, breaker: {failures: 3, window: 1ms, " LONG "}}"));
    static const char *const tools[] = {"row", "window", "brief"};
    for (size_t i = 0; i < COUNT(tools); i++) {
        for (int n = 0; n < 6; n += 2) {
            fails(&l, tools[i], n);
            outlive(1);
            if (n < 4)
                works(&l, tools[i], n + 1);
        }
        begin_n(&l, tools[i], 9);
        if (i != 1) {
            expect_execute(&l);
            continue;
        }
        expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
        expect_text(l.a->message, "window is not called for now: 3 calls failed within 1h. Nothing "
                                  "has been done.");
    }
    end_ledger(&l);
}

static void each_upstream_of_a_tool_has_a_circuit(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS(
        "pay: {class: write, breaker: {failures: 1, " LONG "}, "
        "upstream: {url: 'https://one.example/pay'}, "
        "variants: [{when: [{field: /to, equals: two}], upstream: {url: 'https://two.example/a/{n}'}}]}, "
        "refund: {class: write, breaker: {failures: 1, " LONG "}, "
        "upstream: {url: 'https://one.example/refund'}}"));
    call_upstream(&l, "pay", "{\"n\":1,\"to\":\"two\"}");
    commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 500);
    call_upstream(&l, "pay", "{\"n\":2,\"to\":\"two\"}");
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    assert_true(says(l.a->message, "pay at https://two.example is not called for now: its last 1 "
                                   "call failed."));
    call_upstream(&l, "pay", "{\"n\":3,\"to\":\"one\"}");
    expect_execute(&l);
    commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 500);
    call_upstream(&l, "pay", "{\"n\":4}");
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    call_upstream_n(&l, "refund", 1); /* another tool there */
    expect_execute(&l);
    end_ledger(&l);
}

static void what_one_tenant_says_closes_no_tool_for_another(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("pay: {class: write, breaker: {failures: 2, " LONG "}}"));
    for (int n = 0; n < 2; n++) {
        begin_for(&l, "evil/a/r", "pay", n);
        expect_execute(&l);
        commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, 500);
    }
    begin_for(&l, "evil/b/r", "pay", 3); /* the tenant's other agents */
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    begin_for(&l, "acme/b/r", "pay", 3);
    expect_execute(&l);
    commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 500);
    begin_for(&l, "acme/b/r", "pay", 4); /* it has one failure of its own */
    expect_execute(&l);
    commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 500);
    begin_for(&l, "acme/b/r", "pay", 5);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    bool changed;
    assert_int_equal(semel_resume(l.s, SEMEL_STOP_TOOL, SM_STR("pay"), SM_STR("carol"), (sm_str){0},
                                  &changed, NULL),
                     SEMEL_OK);
    assert_true(changed);
    begin_for(&l, "acme/b/r", "pay", 5); /* a person closes all of them */
    expect_execute(&l);
    begin_for(&l, "evil/b/r", "pay", 5);
    expect_execute(&l);
    end_ledger(&l);
}

static void of_an_upstream_only_the_calls_count_that_semel_makes(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("pay: {class: write, upstream: {url: 'https://bank.example/pay'}, "
                                "breaker: {failures: 2, cooldown: 1s}}"));
    for (int n = 0; n < 5; n++)
        fails(&l, "pay", n);
    for (int n = 5; n < 7; n++) {
        call_upstream_n(&l, "pay", n);
        expect_execute(&l);
        commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 503);
    }
    call_upstream_n(&l, "pay", 7);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    begin_for(&l, "other/a/r", "pay", 7); /* it is open for all tenants, however they call it */
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    outlive(1000);
    begin_n(&l, "pay", 8); /* takes no place, whatever becomes of it */
    expect_execute(&l);
    call_upstream_n(&l, "pay", 9);
    expect_execute(&l);
    call_upstream_n(&l, "pay", 10);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    end_ledger(&l);
}

static void what_is_under_way_ends_and_is_recorded(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " LONG "}}"));
    char claim[128];
    begin_n(&l, "t", 1);
    strcpy(claim, l.claim);
    fails(&l, "t", 2);
    begin_n(&l, "t", 3);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    begin_n(&l, "t", 3); /* it began before, and says nothing about now */
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    end_ledger(&l);
}

static void asking_for_approval_goes_on_and_the_approval_stays(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " LONG "}, "
                                "approval: {when: [{field: /n, over: 5}], self_approval: true}}"));
    fails(&l, "t", 1);
    begin_n(&l, "t", 6);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), (sm_str){0}, l.a);
    assert_int_equal(l.a->verdict, SEMEL_DONE);
    begin_n(&l, "t", 6);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    bool changed;
    semel_resume(l.s, SEMEL_STOP_TOOL, SM_STR("t"), (sm_str){0}, (sm_str){0}, &changed, NULL);
    begin_n(&l, "t", 6);
    expect_execute(&l);
    end_ledger(&l);
}

static void observe_mode_counts_and_refuses_nothing(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("t: {class: write, mode: observe, breaker: {failures: 1, " LONG "}}"));
    fails(&l, "t", 1);
    begin_n(&l, "t", 2);
    expect_execute(&l);
    expect_text(l.a->observed, "CIRCUIT_OPEN");
    expect_text(sm_str_from(circuit_events(&l)), "opened ");
    end_ledger(&l);
}

static void without_a_breaker_nothing_is_counted(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    for (int n = 0; n < 20; n++)
        fails(&l, "t", n);
    expect_text(sm_str_from(circuit_events(&l)), "");
    end_ledger(&l);
}

/* ---- what a healthy call costs ---------------------------------------------------------------*/

static atomic_uint calls_of_store;
static semel_store_ops counted;

static semel_err count_claim(semel_store *st, const semel_write *w, semel_room *room,
                             semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    atomic_fetch_add(&calls_of_store, 1);
    return sm_store_memory.claim(st, w, room, cur, now, inserted, fault);
}

static semel_err count_apply(semel_store *st, const semel_write *w, semel_room *room,
                             semel_record *cur, int64_t *now, semel_fault *fault)
{
    atomic_fetch_add(&calls_of_store, 1);
    return sm_store_memory.apply(st, w, room, cur, now, fault);
}

static semel_err count_get(semel_store *st, const semel_ref *ref, semel_room *room,
                           semel_record *cur, int64_t *now, semel_fault *fault)
{
    atomic_fetch_add(&calls_of_store, 1);
    return sm_store_memory.get(st, ref, room, cur, now, fault);
}

static unsigned cost_of_calls(const char *contract)
{
    counted = sm_store_memory;
    counted.claim = count_claim;
    counted.apply = count_apply;
    counted.get = count_get;
    semel_options o = {.size = sizeof o,
                       .url = "memory:",
                       .store = &counted,
                       .contract = sm_str_from(contract),
                       .one_shot = true};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    unsigned least = 1000000;
    for (int n = 0; n < 50; n++) { /* the board is read again when it is old */
        unsigned before = atomic_load(&calls_of_store);
        works(&l, "t", n);
        unsigned took = atomic_load(&calls_of_store) - before;
        least = took < least ? took : least;
    }
    end_ledger(&l);
    return least;
}

static void a_call_that_works_costs_nothing_more(void **state)
{
    (void)state;
    unsigned without = cost_of_calls(TOOLS("t: {class: write}"));
    unsigned with = cost_of_calls(TOOLS("t: {class: write, breaker: {failures: 3}}"));
    expect(with == without, "%u, not %u", with, without);
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 3}}"));
    works(&l, "t", 0);
    assert_int_equal(events_of_all(&l), 2);
    fails(&l, "t", 1);
    works(&l, "t", 2); /* the first after a failure */
    expect_text(sm_str_from(circuit_events(&l)), "failing recovered ");
    unsigned before = events_of_all(&l);
    works(&l, "t", 3);
    assert_int_equal(events_of_all(&l), before + 2);
    end_ledger(&l);
}

/* ---- finding out -----------------------------------------------------------------------------*/

static void a_probe_that_works_closes_it_and_one_that_fails_opens_it_again(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 2, " SHORT "}}"));
    fails(&l, "t", 1);
    fails(&l, "t", 2);
    outlive(1);
    fails(&l, "t", 3); /* the probe */
    outlive(1);
    begin_n(&l, "t", 4);
    expect_execute(&l);
    char claim[128];
    strcpy(claim, l.claim);
    begin_n(&l, "t", 5);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    expect_text(l.a->message, "t failed, and another call finds out whether it works again. "
                              "Nothing has been done.");
    assert_int_equal(l.a->retry_after_ms, 1000);
    commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    works(&l, "t", 5);
    works(&l, "t", 6);
    expect_text(sm_str_from(circuit_events(&l)),
                "failing opened half_opened opened half_opened closed ");
    end_ledger(&l);
}

static void a_probe_that_was_not_made_lets_the_next_one_try(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " SHORT "}}, "
                                "u: {class: write, breaker: {failures: 1, " SHORT "}, "
                                "budget: {per: run, calls: 1}}"));
    fails(&l, "t", 1);
    outlive(1);
    begin_n(&l, "t", 2);
    expect_execute(&l);
    sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a); /* as if it had never been */
    works(&l, "t", 3);
    fails(&l, "u", 1); /* its budget is not used up by what was not done */
    outlive(1);
    works(&l, "u", 2);
    begin_n(&l, "u", 3);
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    end_ledger(&l);
}

static void a_probe_that_may_not_begin_gives_its_place_back(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " SHORT "}, "
                                "budget: {per: agent, calls: 1}}"));
    semel_call call = call_of("t", "{\"n\":1}");
    call.scope = SM_STR("acme/a/1");
    take(&l, semel_begin(l.s, &call, l.a));
    expect_execute(&l);
    char held[128];
    strcpy(held, l.claim);
    call.scope = SM_STR("acme/b/1");
    take(&l, semel_begin(l.s, &call, l.a));
    expect_execute(&l);
    commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 500);
    outlive(1);
    call.scope = SM_STR("acme/a/2"); /* the budget of a is reserved */
    take(&l, semel_begin(l.s, &call, l.a));
    expect_refused(&l, SEMEL_C_BUDGET_EXCEEDED);
    call.scope = SM_STR("acme/b/2");
    take(&l, semel_begin(l.s, &call, l.a));
    expect_execute(&l);
    end_ledger(&l);
}

static void put_document(ledger *l, const char *kind, const char *of, sm_str json)
{
    const sm_shared doc = {
        .kind = kind, .of = sm_str_from(of), .keep_ms = of == NULL ? 0 : (int64_t)24 * 3600 * 1000};
    semel_answer *a = semel_answer_new();
    sm_work *w = sm_work_start(a);
    sm_str text;
    assert_int_equal(sm_shared_read(l->s, w, &doc, &text), SM_OK);
    sm_body_start(w);
    assert_int_equal(sm_shared_write(l->s, w, &doc, json, SM_N_POSTED, (sm_str){0}), SM_OK);
    semel_answer_free(a);
}

/* The circuit of t is half open, and this attempt is its probe. */
static void put_probe(ledger *l, const sm_handle *attempt, int64_t until, int64_t last)
{
    sm_breaker b = {.state = SM_CIRCUIT_HALF_OPEN, .since = 1, .probing = 1};
    b.probes[0] = (sm_circuit_probe){*attempt, 7, until, last};
    sm_buf json;
    sm_buf_init(&json, 4096);
    sm_breaker_put(&b, &json);
    put_document(l, "/breaker/tenant", "test/t", sm_buf_view(&json));
    sm_buf_fini(&json);
    put_document(
        l, "/board", NULL,
        SM_STR("{\"halts\":[],\"circuits\":[{\"tool\":\"t\",\"upstream\":\"\",\"tenant\":"
               "\"test\",\"state\":\"half_open\",\"since\":1,\"until\":0,\"failures\":1}]}"));
    assert_int_equal(sm_board_refresh(l->s, 0, NULL), SM_OK);
}

/* When the time is over that it was given at first, its attempt's record tells whether it runs. */
static void a_probe_that_runs_keeps_its_place_and_no_other_does(void **state)
{
    (void)state;
    enum { RUNS, RUNS_AND_IS_DUE, IS_LATE, RAN_BEFORE, LEASE_OVER, ENDED, NEVER_WAS, CASES };
    for (int i = 0; i < CASES; i++) {
        ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " LONG "}}, "
                                    "u: {class: write}, v: {class: write, " SHORT_LEASE "}"));
        sm_handle h;
        begin_n(&l, i == LEASE_OVER ? "v" : "u", 1);
        expect_execute(&l);
        assert_true(sm_handle_parse("cl_", sm_str_from(l.claim), &h));
        if (i == LEASE_OVER)
            outlive_lease();
        if (i == ENDED)
            commit(&l, "1");
        h.fence -= i == RAN_BEFORE;
        h.id += i == NEVER_WAS;
        int64_t now = sm_now(l.s), hour = 3600000;
        put_probe(&l, &h, i == RUNS ? now + hour : now - hour, i == IS_LATE ? now - 1 : now + hour);
        begin_n(&l, "t", 1);
        bool keeps = i == RUNS || i == RUNS_AND_IS_DUE;
        expect(l.a->verdict == (keeps ? SEMEL_REFUSED : SEMEL_EXECUTE) &&
                   l.a->code == (keeps ? SEMEL_C_CIRCUIT_OPEN : SEMEL_C_NONE),
               "case %d: verdict %d, %s", i, (int)l.a->verdict, semel_code_name(l.a->code));
        end_ledger(&l);
    }
}

/* The clock was set back: no circuit is open for longer than its cooldown. */
static void a_board_that_is_ahead_of_the_clock_keeps_nothing_from_running(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 1, " LONG "}}"));
    char json[256];
    snprintf(json, sizeof json,
             "{\"halts\":[],\"circuits\":[{\"tool\":\"t\",\"upstream\":\"\",\"tenant\":\"test\","
             "\"state\":\"open\",\"since\":1,\"until\":%lld,\"failures\":1}]}",
             (long long)sm_now(l.s) + 2 * 3600000);
    put_document(&l, "/board", NULL, sm_str_from(json));
    works(&l, "t", 1);
    end_ledger(&l);
}

static void a_probe_that_dies_does_not_keep_it_half_open(void **state)
{
    (void)state;
    ledger l =
        new_ledger(TOOLS("t: {class: write, " SHORT_LEASE ", breaker: {failures: 1, " SHORT "}}"));
    fails(&l, "t", 1);
    outlive(1);
    int64_t began_ns = sm_clock_mono_ns();
    begin_n(&l, "t", 2);
    expect_execute(&l); /* and nothing is heard of it again */
    do {
        begin_n(&l, "t", 3);
        if (l.a->verdict == SEMEL_REFUSED) {
            expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
            usleep(50000);
        }
    } while (l.a->verdict == SEMEL_REFUSED && sm_clock_mono_ns() - began_ns < 60000000000);
    expect_execute(&l);
    int64_t took_ms = (sm_clock_mono_ns() - began_ns) / 1000000;
    expect(took_ms > 4000, "after %lld ms", (long long)took_ms);
    commit(&l, "1");
    works(&l, "t", 4);
    end_ledger(&l);
}

static void a_probe_that_takes_long_keeps_its_place_for_a_cooldown(void **state)
{
    (void)state;
    ledger l = new_ledger(
        TOOLS("t: {class: write, " SHORT_LEASE ", breaker: {failures: 1, cooldown: 6s}}"));
    fails(&l, "t", 1);
    outlive(6000);
    int64_t began_ns = sm_clock_mono_ns(), took_ns = 0;
    begin_n(&l, "t", 2);
    expect_execute(&l);
    char claim[128];
    strcpy(claim, l.claim);
    do { /* renewing does not keep others out for ever */
        semel_renew(l.s, sm_str_from(claim), 600000, l.a);
        assert_int_equal(l.a->verdict, SEMEL_DONE);
        usleep(50000);
        begin_n(&l, "t", 3);
        took_ns = sm_clock_mono_ns() - began_ns;
    } while (l.a->verdict == SEMEL_REFUSED && took_ns < 60000000000);
    expect_execute(&l);
    expect(took_ns > 5500000000, "after %lld ms",
           (long long)(took_ns / 1000000)); /* 5 s at first */
    commit(&l, "1");
    works(&l, "t", 4);
    end_ledger(&l);
}

typedef struct crowd {
    semel *s[2];
    atomic_int next, running, most, ran, refused, other;
} crowd;

static void *call_once_each(void *context)
{
    crowd *c = context;
    semel_answer *a = semel_answer_new();
    for (int n; (n = atomic_fetch_add(&c->next, 1)) < 160;) {
        char args[32], claim[128];
        snprintf(args, sizeof args, "{\"n\":%d}", n + 100);
        semel_call call = call_of("t", args);
        semel *s = c->s[n % 2];
        semel_begin(s, &call, a);
        if (a->verdict != SEMEL_EXECUTE) {
            atomic_fetch_add(a->code == SEMEL_C_CIRCUIT_OPEN ? &c->refused : &c->other, 1);
            continue;
        }
        keep_text(claim, a->claim);
        int now = atomic_fetch_add(&c->running, 1) + 1, most = atomic_load(&c->most);
        while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now)) {
        }
        atomic_fetch_add(&c->ran, 1);
        usleep(3000);
        atomic_fetch_sub(&c->running, 1);
        /* Not made after all: it stays half open, and the next may try. */
        sm_give_back(s, sm_str_from(claim), (sm_str){0}, a);
    }
    semel_answer_free(a);
    return NULL;
}

static void no_more_probes_run_at_a_time_than_the_rule_has(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 1, " SHORT ", probes: 3}}");
    ledger l = {.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    crowd c = {.s = {l.s, in_memory() ? l.s : open_ledger(url, contract, false)}};
    fails(&l, "t", 1);
    outlive(1000); /* both know */
    pthread_t threads[16];
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, call_once_each, &c), 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    expect(c.most <= 3 && c.ran >= 3 && c.other == 0, "%d at a time; %d ran, %d refused, %d other",
           c.most, c.ran, c.refused, c.other);
    works(&l, "t", 2);
    begin_n(&l, "t", 3);
    expect_execute(&l);
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    if (c.s[1] != l.s)
        semel_close(c.s[1]);
    end_ledger(&l);
}

/* ---- several processes -----------------------------------------------------------------------*/

static void failures_of_two_handles_add_up_and_both_refuse(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 4, " LONG "}}");
    ledger l[2];
    for (int i = 0; i < 2; i++)
        l[i] = (ledger){.s = open_ledger(url, contract, false), .a = semel_answer_new()};
    for (int n = 0; n < 4; n++)
        fails(&l[n % 2], "t", n);
    begin_n(&l[1], "t", 4); /* whoever opened it knows at once */
    expect_refused(&l[1], SEMEL_C_CIRCUIT_OPEN);
    int64_t opened_ns = sm_clock_mono_ns(), asked_ns = opened_ns, late_ns = 0;
    for (int n = 5; asked_ns < opened_ns + 1500000000; n++) {
        asked_ns = sm_clock_mono_ns();
        begin_n(&l[0], "t", n);
        if (l[0].a->verdict == SEMEL_EXECUTE)
            late_ns = asked_ns - opened_ns;
    }
    expect(late_ns < 1000000000, "a call ran that came %.2f s later", (double)late_ns / 1e9);
    expect_refused(&l[0], SEMEL_C_CIRCUIT_OPEN);
    end_ledger(&l[0]);
    end_ledger(&l[1]);
}

static void a_call_that_works_elsewhere_starts_the_count_anew(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 3, " LONG "}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    ledger m = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    fails(&l, "t", 1);
    fails(&l, "t", 2);
    outlive(600); /* by then every process knows */
    works(&m, "t", 3);
    fails(&l, "t", 4);
    begin_n(&l, "t", 5);
    expect_execute(&l);
    end_ledger(&m);
    end_ledger(&l);
}

static void a_process_that_ends_another_ones_probe_closes_it(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 1, " SHORT "}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    fails(&l, "t", 1);
    outlive(1);
    semel_call call = call_of("t", "{\"n\":2}");
    call.flags = SEMEL_CALL_DETACHED;
    take(&l, semel_begin(l.s, &call, l.a));
    expect_execute(&l);
    ledger m = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    strcpy(m.claim, l.claim);
    commit(&m, "1");
    expect_text(sm_str_from(circuit_events(&m)), "opened half_opened closed ");
    end_ledger(&m);
    end_ledger(&l);
}

static void a_place_that_another_process_gives_back_is_free_at_once(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 1, " SHORT "}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    ledger m = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    fails(&l, "t", 1);
    outlive(1);
    for (int n = 2; n < 6; n++) {
        char args[32];
        snprintf(args, sizeof args, "{\"n\":%d}", n);
        semel_call call = call_of("t", args);
        call.flags = SEMEL_CALL_DETACHED;
        take(&l, semel_begin(l.s, &call, l.a));
        expect_execute(&l);
        begin_n(&m, "t", 9);
        expect_refused(&m, SEMEL_C_CIRCUIT_OPEN);
        assert_int_equal(sm_give_back(m.s, sm_str_from(l.claim), (sm_str){0}, m.a), SM_OK);
    }
    works(&l, "t", 9);
    end_ledger(&m);
    end_ledger(&l);
}

static void who_ends_an_attempt_needs_no_contract(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 2, " SHORT "}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    for (int n = 0; n < 3; n++) {
        semel_call call = call_of("t", n == 0 ? "{}" : n == 1 ? "{\"n\":1}" : "{\"n\":2}");
        call.flags = SEMEL_CALL_DETACHED;
        outlive(600); /* the board was read long ago */
        take(&l, semel_begin(l.s, &call, l.a));
        expect_execute(&l);
        ledger m = {.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
        strcpy(m.claim, l.claim);
        if (n < 2)
            commit_status(&m, SEMEL_FAILURE, SEMEL_APPLIED_NO, 503);
        else
            commit_status(&m, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, 200);
        end_ledger(&m);
    }
    expect_text(sm_str_from(circuit_events(&l)), "failing opened half_opened closed ");
    end_ledger(&l);
}

static void the_longest_names_have_circuits(void **state)
{
    (void)state;
    char tool[257], contract[1024];
    memset(tool, 't', 256);
    tool[256] = '\0';
    snprintf(contract, sizeof contract,
             "{version: 1, tools: {%s: {class: write, upstream: {url: 'https://%.200s/'}, breaker: "
             "{failures: 2, " SHORT "}}}}",
             tool, tool);
    ledger l = new_ledger(contract);
    for (int n = 1; n <= 3; n++) {
        outlive(1);
        call_upstream_n(&l, tool, n);
        expect_execute(&l);
        bool failed = n < 3;
        commit_status(&l, failed ? SEMEL_FAILURE : SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT,
                      failed ? 503 : 200);
    }
    expect_text(sm_str_from(circuit_events(&l)), "failing opened half_opened closed ");
    end_ledger(&l);
}

static void a_process_that_starts_later_refuses_too(void **state)
{
    (void)state;
    char url[512];
    strcpy(url, fresh_url());
    const char *contract = TOOLS("t: {class: write, breaker: {failures: 1, " LONG "}}");
    ledger l = {.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    fails(&l, "t", 1);
    end_ledger(&l);
    l = (ledger){.s = open_ledger(url, contract, true), .a = semel_answer_new()};
    begin_n(&l, "t", 2);
    expect_refused(&l, SEMEL_C_CIRCUIT_OPEN);
    end_ledger(&l);
}

/* ---- people ----------------------------------------------------------------------------------*/

typedef struct listed {
    unsigned n;
    char text[400];
    int64_t retry_after_ms, since;
} listed;

static bool take_circuit(void *context, const semel_circuit *c)
{
    listed *x = context;
    x->n++;
    snprintf(x->text, sizeof x->text, "%.*s %.*s %s %u", SM_FMT(c->tool), SM_FMT(c->upstream),
             c->half_open ? "half open" : "open", c->failures);
    x->retry_after_ms = c->retry_after_ms;
    x->since = c->since;
    return true;
}

static listed list_circuits(ledger *l)
{
    listed x = {0};
    assert_int_equal(semel_circuits(l->s, take_circuit, &x, NULL), SEMEL_OK);
    return x;
}

static void people_see_what_is_open_and_close_it(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS(
        "pay: {class: write, upstream: {url: 'https://bank.example/pay'}, breaker: {failures: 2, " LONG
        "}}"));
    bool changed;
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(list_circuits(&l).n, 0);
        call_upstream_n(&l, "pay", n);
        expect_execute(&l);
        commit_status(&l, SEMEL_FAILURE, SEMEL_APPLIED_NO, 503);
    }
    listed x = list_circuits(&l);
    assert_int_equal(x.n, 1);
    expect_text(sm_str_from(x.text), "pay https://bank.example open 2");
    assert_in_range(x.retry_after_ms, 3000000, 3600000);
    assert_true(x.since > 0);
    semel_resume(l.s, SEMEL_STOP_TOOL, SM_STR("other*"), SM_STR("carol"), (sm_str){0}, &changed,
                 NULL);
    assert_false(changed);
    assert_int_equal(semel_resume(l.s, SEMEL_STOP_TOOL, SM_STR("p*"), SM_STR("carol"),
                                  SM_STR("mended"), &changed, NULL),
                     SEMEL_OK);
    assert_true(changed);
    assert_int_equal(list_circuits(&l).n, 0);
    works(&l, "pay", 3);
    expect_text(sm_str_from(circuit_events(&l)), "failing opened closed ");
    end_ledger(&l);
}

static bool count_item(void *context, const semel_answer *a, const semel_record *r)
{
    (void)a;
    (void)r;
    ++*(unsigned *)context;
    return true;
}

static void a_circuit_is_no_effect_and_the_trail_is_sound(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write, breaker: {failures: 2, " SHORT "}}"));
    fails(&l, "t", 1);
    fails(&l, "t", 2);
    outlive(1);
    works(&l, "t", 3);
    semel_query q = {.size = sizeof q};
    unsigned n = 0;
    assert_int_equal(semel_list(l.s, &q, count_item, &n, NULL), SEMEL_OK);
    assert_int_equal(n, 3);
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    assert_int_equal(v.effects, 3);
    end_ledger(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tool_that_fails_is_not_called_until_its_cooldown_is_over),
        cmocka_unit_test(only_failures_of_the_tool_count),
        cmocka_unit_test(what_we_refuse_never_counts),
        cmocka_unit_test(failures_within_a_window_count_whatever_is_in_between),
        cmocka_unit_test(each_upstream_of_a_tool_has_a_circuit),
        cmocka_unit_test(what_one_tenant_says_closes_no_tool_for_another),
        cmocka_unit_test(of_an_upstream_only_the_calls_count_that_semel_makes),
        cmocka_unit_test(what_is_under_way_ends_and_is_recorded),
        cmocka_unit_test(asking_for_approval_goes_on_and_the_approval_stays),
        cmocka_unit_test(observe_mode_counts_and_refuses_nothing),
        cmocka_unit_test(without_a_breaker_nothing_is_counted),
        cmocka_unit_test(a_call_that_works_costs_nothing_more),
        cmocka_unit_test(a_probe_that_works_closes_it_and_one_that_fails_opens_it_again),
        cmocka_unit_test(a_probe_that_was_not_made_lets_the_next_one_try),
        cmocka_unit_test(a_probe_that_may_not_begin_gives_its_place_back),
        cmocka_unit_test(a_probe_that_runs_keeps_its_place_and_no_other_does),
        cmocka_unit_test(a_board_that_is_ahead_of_the_clock_keeps_nothing_from_running),
        cmocka_unit_test(a_probe_that_dies_does_not_keep_it_half_open),
        cmocka_unit_test(a_probe_that_takes_long_keeps_its_place_for_a_cooldown),
        cmocka_unit_test(no_more_probes_run_at_a_time_than_the_rule_has),
        cmocka_unit_test(the_longest_names_have_circuits),
        cmocka_unit_test(people_see_what_is_open_and_close_it),
        cmocka_unit_test(a_circuit_is_no_effect_and_the_trail_is_sound),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(failures_of_two_handles_add_up_and_both_refuse),
        cmocka_unit_test(a_call_that_works_elsewhere_starts_the_count_anew),
        cmocka_unit_test(a_process_that_ends_another_ones_probe_closes_it),
        cmocka_unit_test(a_place_that_another_process_gives_back_is_free_at_once),
        cmocka_unit_test(who_ends_an_attempt_needs_no_contract),
        cmocka_unit_test(a_process_that_starts_later_refuses_too),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
}
