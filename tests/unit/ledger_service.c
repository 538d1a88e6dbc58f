/* What a server needs of a ledger: asking without waiting, other contracts while it runs, and what
 * is left over of effects that Semel executes itself. */
#include "ledger.h"

#include <stdatomic.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "ledger/service.h"
#include "store/stores.h"

#define UPSTREAM                                                                                   \
    "upstream: {url: 'http://127.0.0.1:1/x', idempotency: {header: Idempotency-Key, window: "      \
    "24h}}"
#define KEYED KEYED_SETTLING("300ms")
#define KEYED_SETTLING(settle)                                                                      \
    "{version: 1, tools: {t: {class: write, on_in_doubt: [resend, probe, hold], " UPSTREAM          \
    ", probe: {tool: find, applied: {when: [{field: /id, exists: true}]}, absent: {when: [{field: " \
    "/id, exists: false}]}, settle: " settle "}}, find: {class: read, upstream: {url: "             \
    "'http://127.0.0.1:1/find', method: GET}}}}"

static sm_asking asking(const char *args)
{
    return (sm_asking){.call = call_of("t", args), .upstream = true, .lease_ms = 5000};
}

/* Approves as somebody who was authenticated. */
static void approve_as(semel *s, sm_str request, sm_str actor, semel_answer *a)
{
    sm_decide(s, &(semel_decision){.what = SEMEL_DECIDE_APPROVE, .name = request, .actor = actor},
              a);
}

static void ask(ledger *l, sm_asking *q)
{
    take(l, sm_ask(l->s, q, l->a));
    sm_contracts_free(q->contracts);
    q->contracts = NULL;
}

static sm_handle handle_of(const ledger *l)
{
    sm_handle h;
    assert_true(sm_handle_parse("ef_", sm_str_from(l->effect), &h));
    return h;
}

static void who_asks_again_gets_the_end_of_what_was_joined_and_never_runs_it(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    sm_asking first = asking("{}"), second = asking("{}");
    ask(&l, &first);
    expect_execute(&l);
    char claim[128];
    strcpy(claim, l.claim);
    ask(&l, &second);
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    assert_true(second.waits);
    assert_int_equal(second.id, first.id);
    commit_as(&l, claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no\"");
    ask(&l, &second); /* failures are retried, but not by whoever waited for this one */
    expect_replay(&l, "\"no\"");
    assert_false(second.waits);
    sm_asking third = asking("{}");
    ask(&l, &third);
    expect_execute(&l);
    end_ledger(&l);
}

static void who_waited_for_a_generation_that_was_forgotten_is_not_told_of_the_next(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    sm_asking first = asking("{}"), waiting = asking("{}"), second = asking("{}");
    ask(&l, &first);
    ask(&l, &waiting);
    assert_true(waiting.waits);
    commit(&l, "1");
    char effect[sizeof l.effect];
    strcpy(effect, l.effect);
    semel_forget(l.s, sm_str_from(effect), SM_STR("me"), SM_STR("again"), l.a);
    expect_verdict(&l, SEMEL_DONE, SEMEL_C_NONE);
    ask(&l, &second);
    expect_execute(&l);
    assert_int_equal(l.a->generation, 2);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no\"");
    ask(&l, &waiting); /* this failure is not the one that it waited for, so it is retried */
    expect_execute(&l);
    end_ledger(&l);
}

static void who_only_waits_does_not_run_again_what_is_in_doubt(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write_idempotent}}}");
    sm_asking first = asking("{}"), waiting = asking("{}"), other = asking("{}");
    waiting.patient = true;
    ask(&l, &first);
    expect_execute(&l);
    ask(&l, &waiting);
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    ask(&l, &waiting);
    expect_refused(&l, SEMEL_C_UPSTREAM_TIMEOUT);
    assert_true(waiting.waits);
    ask(&l, &other); /* others may */
    expect_execute(&l);
    commit(&l, "\"done\"");
    ask(&l, &waiting);
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

static sm_err refuse(sm_asking *q, const sm_contract *c, const sm_json *args, sm_fault *fault)
{
    assert_true(q->id != 0);
    assert_non_null(c);
    assert_int_equal(args->type, SM_JSON_OBJECT);
    return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "not like this");
}

static void a_call_that_cannot_be_prepared_leaves_nothing_behind(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    sm_asking q = asking("{}");
    q.prepare = refuse;
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_BAD_ARGUMENTS);
    assert_non_null(strstr(l.a->message.p, "not like this"));
    semel_stats stats = {.size = sizeof stats};
    assert_int_equal(semel_stats_get(l.s, false, &stats, NULL), SEMEL_OK);
    assert_int_equal(stats.store.records, 0);
    end_ledger(&l);
}

static void memory_answers_what_is_settled_and_nothing_else(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    sm_asking q = asking("{\"n\": 1}");
    assert_false(sm_ask_memory(l.s, &q, l.a));
    ask(&l, &q);
    expect_execute(&l);
    assert_false(sm_ask_memory(l.s, &q, l.a));
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    sm_asking again = asking("{\"n\": 1.0}");
    if (sm_ask_memory(l.s, &again, l.a)) /* a store that keeps no memory says nothing */
        expect_replay(&l, "\"done\"");
    sm_asking other = asking("{\"n\": 2}");
    assert_false(sm_ask_memory(l.s, &other, l.a));
    end_ledger(&l);
}

static sm_contracts *contracts_of(const char *text)
{
    sm_report report;
    sm_contracts *set = NULL;
    assert_int_equal(sm_report_init(&report, sm_str_from(text)), SM_OK);
    assert_int_equal(sm_contracts_read(SM_STR("c"), sm_str_from(text), &set, &report), SM_OK);
    sm_report_fini(&report);
    return set;
}

/* A reverse proxy's preset has contracts of its own. */
static void memory_is_asked_under_the_contracts_that_the_call_has(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    sm_asking q = asking("{}");
    ask(&l, &q);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    q = asking("{}");
    q.contracts = contracts_of("{version: 1, tools: {t: {class: write, on_hit: fail}}}");
    assert_false(sm_ask_memory(l.s, &q, l.a));
    sm_contracts_free(q.contracts);
    end_ledger(&l);
}

static void memory_is_not_asked_about_long_arguments(void **state)
{
    (void)state;
    static char args[SM_INLINE_BYTES_MAX + 3];
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, loop: off}}}");
    for (size_t n = SM_INLINE_BYTES_MAX; n <= SM_INLINE_BYTES_MAX + 1; n++) {
        memset(args, ' ', n);
        memcpy(args, n % 2 == 0 ? "{\"n\":0" : "{\"n\":1", 6);
        args[n - 1] = '}';
        args[n] = '\0';
        sm_asking q = asking(args);
        ask(&l, &q);
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
        q = asking(args);
        bool told = sm_ask_memory(l.s, &q, l.a);
        if (n > SM_INLINE_BYTES_MAX)
            assert_false(told);
        else if (in_memory()) /* other stores may have to look it up */
            assert_true(told);
    }
    end_ledger(&l);
}

/* To compare with them would take as long. */
static void memory_is_not_asked_if_long_arguments_were_recorded(void **state)
{
    (void)state;
    static char args[SM_INLINE_BYTES_MAX + 64];
    ledger l =
        new_ledger("{version: 1, tools: {t: {class: write, key: {fields: [/n]}, loop: off}}}");
    for (size_t n = 10; n <= SM_INLINE_BYTES_MAX; n += SM_INLINE_BYTES_MAX - 10) {
        int begun = snprintf(args, sizeof args, "{\"n\":%zu,\"x\":\"", n);
        memset(args + begun, 'x', n);
        strcpy(args + begun + n, "\"}");
        sm_asking q = asking(args);
        ask(&l, &q);
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
        snprintf(args, sizeof args, "{\"n\":%zu}", n);
        q = asking(args);
        bool told = sm_ask_memory(l.s, &q, l.a);
        if (n == SM_INLINE_BYTES_MAX)
            assert_false(told);
        else if (in_memory())
            assert_true(told);
    }
    end_ledger(&l);
}

static void a_claim_that_is_given_back_frees_the_key(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: irreversible, key: {fields: [/n]}}}}");
    sm_asking q = asking("{\"n\": 1}");
    ask(&l, &q);
    expect_execute(&l);
    assert_int_equal(sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a), SM_OK);
    sm_asking again = asking("{\"n\": 1}");
    ask(&l, &again);
    expect_execute(&l);
    end_ledger(&l);
}

static void an_approval_is_not_used_up_by_a_claim_that_is_given_back(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: irreversible, key: {fields: [/n]}, "
                          "approval: {expires: 1h}}}}");
    sm_asking q = asking("{\"n\": 1}");
    q.actor = SM_STR("bot");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    approve_as(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    ask(&l, &q);
    expect_execute(&l);
    assert_int_equal(sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a), SM_OK);
    sm_asking other = asking("{\"n\": 1, \"more\": true}");
    ask(&l, &other);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL); /* it was for other arguments (I7) */
    approve_as(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    ask(&l, &other);
    expect_execute(&l);
    assert_int_equal(sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a), SM_OK);
    sm_asking again = asking("{\"n\": 1, \"more\": true}");
    ask(&l, &again);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

static atomic_bool away;
static const semel_store_ops *under = &sm_store_memory; /* what a shaky store is made of */

static semel_err apply_or_not(semel_store *st, const semel_write *w, semel_room *room,
                              semel_record *cur, int64_t *now, semel_fault *fault)
{
    return atomic_load(&away) ? SEMEL_E_UNAVAILABLE : under->apply(st, w, room, cur, now, fault);
}

static semel_err get_or_not(semel_store *st, const semel_ref *ref, semel_room *room,
                            semel_record *cur, int64_t *now, semel_fault *fault)
{
    return atomic_load(&away) ? SEMEL_E_UNAVAILABLE : under->get(st, ref, room, cur, now, fault);
}

static semel_err no_peek(semel_store *st, const semel_hash *key, semel_room *room,
                         semel_record *cur, int64_t *now)
{
    (void)st, (void)key, (void)room, (void)cur, (void)now;
    return SEMEL_E_NOT_FOUND;
}

/* A ledger that can be away. If it is `one_shot`, nothing is recorded in the background. */
static ledger shaky_ledger_at(const char *url, semel_store_ops *ops, const char *contract,
                              bool one_shot)
{
    under = strcmp(url, "memory:") == 0 ? &sm_store_memory : &sm_store_sqlite;
    *ops = *under;
    ops->apply = apply_or_not;
    ops->get = get_or_not;
    ops->peek = no_peek;
    atomic_store(&away, false);
    ledger l = {.a = semel_answer_new()};
    semel_options o = {.size = sizeof o,
                       .url = url,
                       .store = ops,
                       .contract = sm_str_from(contract),
                       .one_shot = one_shot};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    return l;
}

static ledger shaky_ledger(semel_store_ops *ops, const char *contract, bool one_shot)
{
    return shaky_ledger_at("memory:", ops, contract, one_shot);
}

/* The same, and an attempt that runs. */
static ledger begin_on_shaky_store(semel_store_ops *ops)
{
    ledger l = shaky_ledger(ops, NULL, false);
    sm_asking q = asking("{\"n\": 1}");
    ask(&l, &q);
    expect_execute(&l);
    return l;
}

/* The background gives the claim back. */
static void expect_free_again(ledger *l)
{
    do {
        sm_asking again = asking("{\"n\": 1}");
        ask(l, &again);
    } while (l->a->code == SEMEL_C_RETRY_IN_FLIGHT && usleep(10000) == 0);
    expect_execute(l);
}

static void a_claim_that_cannot_be_given_back_now_is_given_back_later(void **state)
{
    (void)state;
    semel_store_ops ops;
    ledger l = begin_on_shaky_store(&ops);
    atomic_store(&away, true);
    assert_int_equal(sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a),
                     SEMEL_E_UNAVAILABLE);
    atomic_store(&away, false);
    expect_free_again(&l);
    end_ledger(&l);
}

static void an_attempt_that_did_nothing_is_given_back_once_the_ledger_is_there_again(void **state)
{
    (void)state;
    semel_store_ops ops;
    ledger l = begin_on_shaky_store(&ops);
    sm_running r = {0};
    sm_running_add(l.s, &r, l.a, SM_OUTCOME_MAX);
    atomic_store(&away, true);
    assert_int_equal(sm_record(l.s, &r, &(sm_recording){.outcome = NULL}, l.a),
                     SEMEL_E_UNAVAILABLE);
    atomic_store(&away, false);
    expect_free_again(&l);
    end_ledger(&l);
}

static void come_back(void *context, sm_str reason)
{
    (void)reason;
    *(bool *)context = true;
    atomic_store(&away, false);
}

static void recording_is_tried_again_while_there_is_time(void **state)
{
    (void)state;
    semel_store_ops ops;
    ledger l = begin_on_shaky_store(&ops);
    sm_running r = {0};
    bool failed = false;
    const semel_outcome done = {.size = sizeof done, .value = SM_STR("1"), .is_json = true};
    sm_running_add(l.s, &r, l.a, SM_OUTCOME_MAX);
    atomic_store(&away, true);
    sm_recording what = {
        .outcome = &done, .patience_ms = 60000, .on_failure = come_back, .context = &failed};
    assert_int_equal(sm_record(l.s, &r, &what, l.a), SM_OK);
    assert_true(failed);
    sm_asking again = asking("{\"n\": 1}");
    ask(&l, &again);
    assert_int_equal(l.a->verdict, SEMEL_REPLAY);
    assert_false(sm_str_is(l.a->result, SM_UNRECORDED));
    end_ledger(&l);
}

/* The attempt ends, and from then on the ledger is away. */
static void end_unrecorded(ledger *l, sm_running *r)
{
    const semel_outcome done = {.size = sizeof done, .value = SM_STR("\"done\"")};
    atomic_store(&away, true);
    assert_int_equal(sm_record(l->s, r, &(sm_recording){.outcome = &done}, l->a),
                     SEMEL_E_UNAVAILABLE);
}

static void expect_unrecorded(ledger *l, const char *args)
{
    sm_asking again = asking(args);
    ask(l, &again);
    expect_replay(l, "\"done\"");
    expect_text(l->a->result, SM_UNRECORDED);
}

/* An attempt of this handle. */
static void run_here(ledger *l, sm_asking *q, sm_running *r)
{
    ask(l, q);
    expect_execute(l);
    sm_running_add(l->s, r, l->a, SM_OUTCOME_MAX);
}

/* An attempt that may run again when its lease is over, on a store that can be away. */
static ledger run_on_shaky_store(semel_store_ops *ops, sm_running *r)
{
    ledger l = shaky_ledger(ops, "{version: 1, tools: {t: {class: write_idempotent}}}", true);
    sm_asking q = asking("{}");
    q.lease_ms = 1000;
    run_here(&l, &q, r);
    return l;
}

static void what_has_ended_does_not_run_again_before_its_end_is_recorded(void **state)
{
    (void)state;
    semel_store_ops ops;
    sm_running r = {0};
    ledger l = run_on_shaky_store(&ops, &r);
    end_unrecorded(&l, &r);
    outlive_lease();
    atomic_store(&away, false); /* so that a doubt could be recorded, and the attempt rerun */
    expect_unrecorded(&l, "{}");
    end_ledger(&l);
}

/* When the lease is over, the ledger calls it in doubt: held, or until somebody has looked. */
static void who_ran_answers_for_what_the_ledger_calls_in_doubt(void **state)
{
    (void)state;
    static const char *const tools[] = {"held", "probed"};
    semel_store_ops ops;
    sm_running r[COUNT(tools)] = {0};
    ledger l = shaky_ledger(&ops,
                            "{version: 1, tools: {held: {class: write}, probed: {class: write, "
                            "on_in_doubt: [probe, hold], " UPSTREAM
                            ", probe: {tool: find, applied: {when: [{field: /id, exists: true}]}, "
                            "absent: {when: [{field: /id, exists: false}]}}}, find: {class: read, "
                            "upstream: {url: 'http://127.0.0.1:1/find', method: GET}}}}",
                            true);
    sm_asking q[COUNT(tools)];
    for (size_t i = 0; i < COUNT(tools); i++) {
        q[i] = asking("{}");
        q[i].call.tool = sm_str_from(tools[i]);
        q[i].lease_ms = 1000;
        run_here(&l, &q[i], &r[i]);
    }
    for (size_t i = 0; i < COUNT(tools); i++)
        end_unrecorded(&l, &r[i]);
    outlive_lease();
    atomic_store(&away, false);
    for (size_t i = 0; i < COUNT(tools); i++) {
        sm_asking again = asking("{}");
        again.call.tool = sm_str_from(tools[i]);
        ask(&l, &again);
        assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
        expect_replay(&l, "\"done\"");
        expect_text(l.a->result, SM_UNRECORDED);
        assert_false(again.waits); /* there is nothing to wait for */
    }
    end_ledger(&l);
}

/* Somebody else was given a claim when the lease of this handle's attempt was over. */
static void the_end_that_is_not_recorded_does_not_answer_for_a_newer_attempt(void **state)
{
    (void)state;
    semel_store_ops ops;
    sm_running r = {0};
    ledger l = shaky_ledger(&ops, "{version: 1, tools: {t: {class: write_idempotent}}}", true);
    sm_asking first = asking("{}"), newer = asking("{}"), again = asking("{}");
    first.lease_ms = 1000;
    newer.lease_ms = 600000;
    ask(&l, &first);
    expect_execute(&l);
    semel_answer *ours = l.a;
    l.a = semel_answer_new();
    outlive_lease();
    ask(&l, &newer);
    expect_execute(&l);
    sm_running_add(l.s, &r, ours, SM_OUTCOME_MAX);
    end_unrecorded(&l, &r);
    atomic_store(&away, false);
    ask(&l, &again);
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    assert_true(again.waits);
    semel_answer_free(ours);
    end_ledger(&l);
}

/* Observe mode never refuses (docs/ledger.md). */
static void what_is_observed_runs_though_an_end_of_it_is_not_recorded(void **state)
{
    (void)state;
    semel_store_ops ops;
    sm_running r = {0};
    ledger l = shaky_ledger(
        &ops, "{version: 1, tools: {t: {class: write_idempotent, mode: observe}}}", true);
    sm_asking q = asking("{}"), again = asking("{}");
    q.lease_ms = 1000;
    run_here(&l, &q, &r);
    end_unrecorded(&l, &r);
    outlive_lease();
    atomic_store(&away, false);
    ask(&l, &again);
    expect_execute(&l);
    expect_text(l.a->observed, "RETRY_IN_FLIGHT");
    end_ledger(&l);
}

static void a_partial_end_that_is_not_recorded_is_told_as_one(void **state)
{
    (void)state;
    semel_store_ops ops;
    sm_running r = {0};
    ledger l = run_on_shaky_store(&ops, &r);
    const semel_outcome some = {
        .size = sizeof some, .kind = SEMEL_PARTIAL, .value = SM_STR("\"half\"")};
    atomic_store(&away, true);
    assert_int_equal(sm_record(l.s, &r, &(sm_recording){.outcome = &some}, l.a),
                     SEMEL_E_UNAVAILABLE);
    sm_asking again = asking("{}");
    ask(&l, &again);
    expect_verdict(&l, SEMEL_REPLAY, SEMEL_C_PARTIAL_SUCCESS);
    expect_text(l.a->outcome.value, "\"half\"");
    assert_true(l.a->message.n > 0);
    atomic_store(&away, false);
    end_ledger(&l);
}

/* Nobody turns away, or makes wait, who is answered with an end that is not recorded. */
static void who_is_answered_with_an_end_that_is_not_recorded_has_not_to_wait(void **state)
{
    (void)state;
    semel_store_ops ops;
    sm_running r = {0};
    ledger l = run_on_shaky_store(&ops, &r);
    end_unrecorded(&l, &r);
    atomic_store(&away, false);
    sm_asking again = asking("{}"); /* to the ledger it still runs */
    ask(&l, &again);
    expect_replay(&l, "\"done\"");
    assert_false(again.waits);
    outlive_lease(); /* now it could be begun again, but there is no room for it */
    sm_asking full = asking("{}");
    full.full = true;
    ask(&l, &full);
    expect_replay(&l, "\"done\"");
    assert_false(full.turned_away);
    end_ledger(&l);
}

static void an_end_that_is_owed_is_recorded_when_the_ledger_is_closed(void **state)
{
    (void)state;
    char url[512];
    semel_store_ops ops;
    sm_running r = {0};
    snprintf(url, sizeof url, "%s", fresh_url());
    ledger l = shaky_ledger_at(url, &ops, NULL, true);
    sm_asking q = asking("{}");
    run_here(&l, &q, &r);
    end_unrecorded(&l, &r);
    atomic_store(&away, false);
    end_ledger(&l);
    l = (ledger){.s = open_ledger(url, NULL, true), .a = semel_answer_new()};
    begin(&l, "t", "{}");
    expect_replay(&l, "\"done\"");
    end_ledger(&l);
}

/* The first attempt was slow, and a second one ran: what an equal call is told is about that one.
 */
static void the_newest_attempt_decides_what_is_said_without_the_ledger(void **state)
{
    (void)state;
    for (int ended = 0; ended < 2; ended++) {
        semel_store_ops ops;
        sm_running r[2] = {0};
        ledger l = run_on_shaky_store(&ops, &r[0]);
        outlive_lease();
        sm_asking again = asking("{}");
        ask(&l, &again);
        expect_execute(&l);
        sm_running_add(l.s, &r[1], l.a, SM_OUTCOME_MAX);
        end_unrecorded(&l, &r[ended]);
        if (ended == 1) {
            expect_unrecorded(&l, "{}");
        } else {
            sm_asking third = asking("{}");
            ask(&l, &third);
            expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
        }
        atomic_store(&away, false);
        sm_running_remove(l.s, &r[1 - ended]);
        end_ledger(&l);
    }
}

/* The store is back when the lease is over, and somebody asks before recording is tried again. */
static void ask_between_two_tries(void *context, sm_str reason)
{
    ledger *l = context;
    (void)reason;
    outlive_lease();
    atomic_store(&away, false);
    semel_answer *recording = l->a;
    l->a = semel_answer_new();
    sm_asking again = asking("{}");
    ask(l, &again);
    expect_refused(l, SEMEL_C_RETRY_IN_FLIGHT);
    semel_answer_free(l->a);
    l->a = recording;
}

static void what_has_ended_does_not_run_again_while_its_end_is_being_recorded(void **state)
{
    (void)state;
    semel_store_ops ops;
    sm_running r = {0};
    ledger l = run_on_shaky_store(&ops, &r);
    const semel_outcome done = {.size = sizeof done, .value = SM_STR("\"done\"")};
    atomic_store(&away, true);
    sm_recording what = {
        .outcome = &done, .patience_ms = 60000, .on_failure = ask_between_two_tries, .context = &l};
    assert_int_equal(sm_record(l.s, &r, &what, l.a), SM_OK);
    assert_int_equal(l.a->verdict, SEMEL_DONE);
    expect_text(l.a->result, "committed");
    end_ledger(&l);
}

static void the_end_that_is_not_recorded_answers_nobody_who_would_not_have_joined(void **state)
{
    (void)state;
    semel_store_ops ops;
    ledger l = shaky_ledger(
        &ops, "{version: 1, tools: {t: {class: write, key: {fields: [/n]}, on_drift: conflict}}}",
        true);
    sm_asking q = asking("{\"n\": 1}");
    ask(&l, &q);
    expect_execute(&l);
    sm_running r = {0};
    sm_running_add(l.s, &r, l.a, SM_OUTCOME_MAX);
    atomic_store(&away, true);
    for (int ended = 0; ended < 2; ended++) {
        sm_asking other = asking("{\"n\": 1, \"more\": true}");
        ask(&l, &other);
        expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE); /* as the ledger said (I6) */
        if (ended == 0)
            end_unrecorded(&l, &r);
    }
    expect_unrecorded(&l, "{\"n\": 1}");
    atomic_store(&away, false);
    end_ledger(&l);
}

/* Its approval is used up, and when that would have expired is of no interest any more. */
static void who_waits_for_a_doubt_does_not_look_again_because_of_its_approval(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, approval: {expires: 1s}, "
                          "on_in_doubt: [probe, hold], " UPSTREAM
                          ", probe: {tool: find, applied: {when: [{field: /id, exists: true}]}, "
                          "absent: {when: [{field: /id, exists: false}]}}}, find: {class: read, "
                          "upstream: {url: 'http://127.0.0.1:1/find', method: GET}}}}");
    sm_asking q = asking("{\"n\": 1}");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    ask(&l, &q);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    usleep(1100000); /* longer than the approval would have lasted */
    sm_asking waiting = asking("{\"n\": 1}");
    ask(&l, &waiting);
    expect_refused(&l, SEMEL_C_UPSTREAM_TIMEOUT);
    assert_true(waiting.waits);
    assert_true(waiting.look_ms > 1000);
    end_ledger(&l);
}

static void who_asks_again_asks_for_the_same_effect(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, key: unique}}}");
    sm_asking q = asking("{}");
    ask(&l, &q);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

/* ---- contracts -------------------------------------------------------------------------------*/

static sm_err replace(ledger *l, const char *text, uint32_t *warnings)
{
    sm_report report;
    sm_report_init(&report, sm_str_from(text));
    sm_err e = sm_contracts_replace(l->s, SM_STR("new.yaml"), sm_str_from(text), &report, NULL);
    *warnings = report.warnings;
    sm_report_fini(&report);
    return e;
}

static void contracts_are_replaced_whole_or_not_at_all(void **state)
{
    (void)state;
    uint32_t warnings;
    ledger l = new_ledger("{version: 1, unlisted: hide, tools: {t: {class: write}}}");
    assert_int_equal(replace(&l, "{version: 1, tools: {u: {class: wrong}}}", &warnings),
                     SEMEL_E_INVALID);
    begin(&l, "u", "{}");
    expect_refused(&l, SEMEL_C_UNKNOWN_TOOL);
    begin(&l, "t", "{}");
    expect_execute(&l);
    assert_int_equal(
        replace(&l, "{version: 1, unlisted: hide, tools: {u: {class: write}}}", &warnings), SM_OK);
    begin(&l, "u", "{}");
    expect_execute(&l);
    begin(&l, "t", "{}");
    expect_refused(&l, SEMEL_C_UNKNOWN_TOOL);
    end_ledger(&l);
}

static void a_new_identity_is_warned_of(void **state)
{
    (void)state;
    uint32_t warnings;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    assert_int_equal(replace(&l, "{version: 1, tools: {t: {class: write, window: 1h}}}", &warnings),
                     SM_OK);
    assert_int_equal(warnings, 0);
    assert_int_equal(
        replace(&l, "{version: 1, tools: {t: {class: write, key: {fields: [/id]}}}}", &warnings),
        SM_OK);
    assert_int_equal(warnings, 1);
    end_ledger(&l);
}

static semel_err open_lossy(semel_str url, const semel_store_env *env, semel_store **out,
                            uint32_t *caps, semel_fault *fault)
{
    semel_err e = sm_store_memory.open(url, env, out, caps, fault);
    *caps |= SEMEL_STORE_LOSSY;
    return e;
}

/* The contracts of a call may be others than those that were checked at opening. */
static void nothing_irreversible_begins_on_a_lossy_ledger_whoever_brings_the_contract(void **state)
{
    (void)state;
    semel_store_ops ops = sm_store_memory;
    ops.open = open_lossy;
    ledger l = {.a = semel_answer_new()};
    semel_options o = {.size = sizeof o, .url = "memory:", .store = &ops, .one_shot = true};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    sm_asking q = asking("{}");
    q.contracts = contracts_of("{version: 1, tools: {t: {class: irreversible}}}");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
    assert_non_null(strstr(l.a->message.p, "cannot hold irreversible effects"));
    sm_asking write = asking("{}");
    ask(&l, &write);
    expect_execute(&l);
    end_ledger(&l);
}

/* ---- people ----------------------------------------------------------------------------------*/

static void whoever_asked_cannot_approve_where_both_are_known(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, approval: {via: gateway}}}}");
    sm_asking q = asking("{}");
    q.actor = SM_STR("bot");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    expect_refused(&l, SEMEL_C_FORBIDDEN); /* not by the local way */
    approve_as(l.s, sm_str_from(l.request), SM_STR("bot"), l.a);
    expect_refused(&l, SEMEL_C_FORBIDDEN);
    approve_as(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    end_ledger(&l);
}

/* Others have asked for other arguments since. */
static void who_waits_does_not_replace_the_request_of_others(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, key: {fields: [/n]}, approval: "
                          "{expires: 1h}}}}");
    sm_asking waiting = asking("{\"n\": 1, \"for\": 10}"),
              other = asking("{\"n\": 1, \"for\": 20}");
    ask(&l, &waiting);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    assert_true(waiting.waits);
    ask(&l, &other);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    char request[sizeof l.request];
    strcpy(request, l.request);
    ask(&l, &waiting);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    assert_string_equal(l.request, request);
    assert_false(waiting.waits);
    approve_as(l.s, sm_str_from(request), SM_STR("carol"), l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    ask(&l, &waiting); /* nor what was approved */
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    ask(&l, &other);
    expect_execute(&l);
    end_ledger(&l);
}

static void who_asks_quietly_asks_nobody_for_an_approval(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, approval: {expires: 1h}}}}");
    sm_asking quiet = asking("{}");
    quiet.quiet = true;
    ask(&l, &quiet);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    semel_stats stats = {.size = sizeof stats};
    assert_int_equal(semel_stats_get(l.s, false, &stats, NULL), SEMEL_OK);
    assert_int_equal(stats.store.records, 0);
    sm_asking q = asking("{}");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    ask(&l, &quiet); /* it may wait for what others have asked for */
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    end_ledger(&l);
}

static void who_may_not_begin_anything_gets_what_is_recorded(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write}}}");
    sm_asking q = asking("{}"), full = asking("{}"), quiet = asking("{}");
    full.full = quiet.quiet = true;
    ask(&l, &full);
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    assert_true(full.turned_away);
    ask(&l, &q);
    expect_execute(&l);
    commit(&l, "1");
    ask(&l, &full);
    expect_replay(&l, "1");
    ask(&l, &quiet);
    expect_replay(&l, "1");
    end_ledger(&l);
}

static void everybody_who_asked_is_kept_from_approving(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {t: {class: write, approval: {quorum: 1}}}}");
    sm_asking first = asking("{}"), second = asking("{}");
    first.actor = SM_STR("bot");
    second.actor = SM_STR("dora");
    ask(&l, &first);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    char request[sizeof l.request];
    snprintf(request, sizeof request, "%s", l.request);
    ask(&l, &second);
    expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
    assert_string_equal(l.request, request); /* the same one */
    approve_as(l.s, sm_str_from(request), SM_STR("dora"), l.a);
    expect_refused(&l, SEMEL_C_FORBIDDEN);
    approve_as(l.s, sm_str_from(request), SM_STR("carol"), l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    sm_asking approver = asking("{}");
    approver.actor = SM_STR("carol");
    ask(&l, &approver);
    expect_refused(&l, SEMEL_C_FORBIDDEN);
    ask(&l, &second);
    expect_execute(&l);
    end_ledger(&l);
}

static void self_approval_is_for_those_whom_the_contract_lets(void **state)
{
    (void)state;
    ledger l =
        new_ledger("{version: 1, tools: {t: {class: write, approval: {self_approval: true}}}}");
    sm_asking q = asking("{}");
    q.actor = SM_STR("bot");
    ask(&l, &q);
    approve_as(l.s, sm_str_from(l.request), SM_STR("bot"), l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    end_ledger(&l);
}

/* ---- what is left over -----------------------------------------------------------------------*/

static void doubt_of(ledger *l, const char *args)
{
    sm_asking q = asking(args);
    ask(l, &q);
    expect_execute(l);
    commit_as(l, l->claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    assert_int_equal(l->a->state, SEMEL_S_IN_DOUBT);
}

static void doubt(ledger *l)
{
    doubt_of(l, "{\"order\": 7}");
}

static void a_resend_has_the_same_key_and_settles_the_doubt(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    sm_asking q = asking("{\"order\": 7}");
    ask(&l, &q);
    char key[64];
    snprintf(key, sizeof key, "%.*s", SM_FMT(l.a->idempotency_key));
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    sm_handle h = handle_of(&l);
    sm_remedy what;
    assert_int_equal(sm_remedy_of(l.s, &h, l.a, &what), SM_OK);
    assert_int_equal(what.step, SM_DOUBT_RESEND);
    assert_true(sm_str_is(what.call.args, "{\"order\":7}"));
    assert_int_equal(sm_resend(l.s, &h, 5000, l.a), SM_OK);
    expect_verdict(&l, SEMEL_EXECUTE, SEMEL_C_NONE);
    assert_true(sm_str_is(l.a->idempotency_key, key)); /* I15 */
    keep_text(l.claim, l.a->claim);
    sm_resend(l.s, &h, 5000, l.a); /* only one of two */
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_RETRY_IN_FLIGHT);
    commit_as(&l, l.claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "\"done\"");
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    end_ledger(&l);
}

static void a_resend_that_was_given_back_is_tried_again(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    doubt(&l);
    sm_handle h = handle_of(&l);
    sm_remedy what;
    for (int i = 0; i < 3; i++) {
        sm_resend(l.s, &h, 5000, l.a);
        expect_verdict(&l, SEMEL_EXECUTE, SEMEL_C_NONE);
        keep_text(l.claim, l.a->claim);
        assert_int_equal(sm_give_back(l.s, sm_str_from(l.claim), (sm_str){0}, l.a), SM_OK);
        sm_remedy_of(l.s, &h, l.a, &what);
        assert_int_equal(what.state, SEMEL_S_IN_DOUBT);
        assert_int_equal(what.step, SM_DOUBT_RESEND);
    }
    /* One that the upstream turned down for good is not. */
    sm_resend(l.s, &h, 5000, l.a);
    keep_text(l.claim, l.a->claim);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"400\"");
    sm_remedy_of(l.s, &h, l.a, &what);
    assert_int_equal(what.state, SEMEL_S_IN_DOUBT); /* I16 */
    assert_int_equal(what.step, SM_DOUBT_PROBE);
    end_ledger(&l);
}

static void a_resend_waits_while_writes_are_stopped(void **state)
{
    (void)state;
    static const struct {
        semel_stop_kind kind;
        const char *name;
    } rows[] = {{SEMEL_STOP_ALL, NULL}, {SEMEL_STOP_SCOPE, NULL}, {SEMEL_STOP_TOOL, "t"}};
    ledger l = new_ledger(KEYED);
    doubt(&l);
    sm_handle h = handle_of(&l);
    sm_remedy what;
    bool changed;
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_str name = rows[i].name == NULL ? (sm_str){0} : sm_str_from(rows[i].name);
        if (rows[i].kind == SEMEL_STOP_SCOPE)
            name = call_of("t", "{}").scope;
        assert_int_equal(
            semel_stop(l.s, rows[i].kind, name, SM_STR("carol"), SM_STR("wait"), &changed, NULL),
            SEMEL_OK);
        sm_resend(l.s, &h, 5000, l.a);
        expect_refused(&l, SEMEL_C_STOPPED);
        sm_remedy_of(l.s, &h, l.a, &what);
        assert_int_equal(what.step, SM_DOUBT_RESEND); /* it is still to be done */
        assert_int_equal(
            semel_resume(l.s, rows[i].kind, name, SM_STR("carol"), (sm_str){0}, &changed, NULL),
            SEMEL_OK);
    }
    sm_resend(l.s, &h, 5000, l.a);
    expect_verdict(&l, SEMEL_EXECUTE, SEMEL_C_NONE);
    end_ledger(&l);
}

static void a_resend_is_of_the_attempt_that_was_looked_at(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    doubt(&l);
    sm_handle h = handle_of(&l);
    sm_remedy what;
    sm_remedy_of(l.s, &h, l.a, &what);
    h.fence = what.fence + 1;
    sm_resend(l.s, &h, 5000, l.a);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    h.fence = what.fence;
    sm_resend(l.s, &h, 5000, l.a);
    expect_verdict(&l, SEMEL_EXECUTE, SEMEL_C_NONE);
    end_ledger(&l);
}

static void to_probe(ledger *l, sm_handle *h)
{
    doubt(l);
    *h = handle_of(l);
    sm_resend(l->s, h, 5000, l->a);
    keep_text(l->claim, l->a->claim);
    commit_as(l, l->claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
    sm_remedy what;
    assert_int_equal(sm_remedy_of(l->s, h, l->a, &what), SM_OK);
    h->fence = what.fence;
}

static void only_a_doubt_that_can_be_resent_is_resent(void **state)
{
    (void)state;
    semel_outcome none = {.size = sizeof none};
    ledger l = new_ledger(KEYED);
    sm_handle h;
    to_probe(&l, &h);
    for (int held = 0; held < 2; held++) {
        sm_remedy what;
        assert_int_equal(sm_remedy_of(l.s, &h, l.a, &what), SM_OK);
        assert_int_equal(what.step, held ? SM_DOUBT_HOLD : SM_DOUBT_PROBE);
        sm_resend(l.s, &h, 5000, l.a);
        expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
        assert_null(l.a->claim.p);
        if (held == 0)
            assert_int_equal(sm_probed(l.s, &h, SM_FOUND_UNKNOWN, &none, l.a), SM_OK);
    }
    end_ledger(&l);
}

/* The downstream has forgotten the key, and would do it again. */
static void nothing_is_resent_when_the_downstreams_window_is_over(void **state)
{
    (void)state;
    ledger l =
        new_ledger("{version: 1, tools: {t: {class: write, lease: 1ms, on_in_doubt: [resend, "
                   "hold], upstream: {url: 'http://127.0.0.1:1/x', idempotency: {header: "
                   "Idempotency-Key, window: 2ms}}}}}");
    doubt(&l); /* under a longer lease */
    sm_handle h = handle_of(&l);
    outlive(2);
    sm_resend(l.s, &h, 5000, l.a);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    assert_null(l.a->claim.p);
    sm_asking q = asking("{\"order\": 7}");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

/* The downstream has remembered the key since the first sending. */
static void the_time_left_for_resending_counts_from_the_first_sending(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    sm_asking q = asking("{\"order\": 7}");
    ask(&l, &q);
    expect_execute(&l);
    usleep(50000); /* it takes some time, and then nobody knows */
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    sm_handle h = handle_of(&l);
    sm_remedy what;
    assert_int_equal(sm_remedy_of(l.s, &h, l.a, &what), SM_OK);
    int64_t left_ms = what.window_left_ms + what.doubt_age_ms; /* when the doubt arose */
    expect(left_ms < 86400000, "%lld ms were left", (long long)left_ms);
    end_ledger(&l);
}

static void what_nobody_looks_after_can_be_asked_about_too(void **state)
{
    (void)state;
    int64_t since = sm_clock_mono_ns();
    ledger l = new_ledger(KEYED);
    sm_asking q = asking("{\"order\": 7}");
    q.upstream = false;
    q.shape = 0xFEDCBA9876543210u;
    ask(&l, &q);
    expect_execute(&l);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    sm_handle h = handle_of(&l);
    sm_remedy what;
    assert_int_equal(sm_remedy_of(l.s, &h, l.a, &what), SM_OK);
    assert_false(what.upstream);
    assert_int_equal(what.step, SM_DOUBT_RESEND);
    assert_true(what.shape == q.shape);
    /* What is known of a server's clock may be wrong by as long as an answer takes. */
    int64_t took_ms = (sm_clock_mono_ns() - since) / 1000000 + 1;
    expect(what.settle_left_ms >= 300 - took_ms && what.settle_left_ms <= 300 + took_ms,
           "%lld ms are left", (long long)what.settle_left_ms);
    end_ledger(&l);
}

static void a_probe_that_finds_it_settles_it_with_what_it_found(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    sm_handle h;
    to_probe(&l, &h);
    semel_outcome found = {.size = sizeof found, .value = SM_STR("{\"id\":1}"), .status = 200};
    assert_int_equal(sm_probed(l.s, &h, SM_FOUND_APPLIED, &found, l.a), SM_OK);
    assert_int_equal(l.a->state, SEMEL_S_SUCCEEDED);
    sm_asking q = asking("{\"order\": 7}");
    ask(&l, &q);
    expect_replay(&l, "{\"id\":1}");
    semel_verified v = {.size = sizeof v};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &v, NULL), SEMEL_OK);
    assert_int_equal(v.flaws, 0);
    end_ledger(&l);
}

static void absent_does_not_count_at_once(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED_SETTLING("1h"));
    sm_handle h;
    semel_outcome none = {.size = sizeof none};
    to_probe(&l, &h);
    assert_int_equal(sm_probed(l.s, &h, SM_FOUND_ABSENT, &none, l.a), SM_OK);
    assert_int_equal(l.a->state, SEMEL_S_IN_DOUBT);
    assert_int_equal(l.a->code, SEMEL_C_UPSTREAM_TIMEOUT);
    end_ledger(&l);
}

static void absent_counts_after_a_while_and_then_it_may_run(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    sm_handle h;
    sm_remedy what;
    semel_outcome none = {.size = sizeof none};
    to_probe(&l, &h);
    int64_t end = sm_clock_deadline_ns(20000);
    do {
        assert_int_equal(sm_probed(l.s, &h, SM_FOUND_ABSENT, &none, l.a), SM_OK);
        expect(sm_clock_mono_ns() < end, "absent never counts");
    } while (l.a->state == SEMEL_S_IN_DOUBT && usleep(10000) == 0);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    sm_remedy_of(l.s, &h, l.a, &what);
    assert_int_equal(what.state, SEMEL_S_READY);
    sm_asking q = asking("{\"order\": 7}");
    ask(&l, &q);
    expect_execute(&l);
    end_ledger(&l);
}

static void what_a_probe_found_before_a_later_attempt_says_nothing(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    sm_handle h;
    semel_outcome none = {.size = sizeof none};
    to_probe(&l, &h);
    h.fence--;
    sm_probed(l.s, &h, SM_FOUND_APPLIED, &none, l.a);
    expect_refused(&l, SEMEL_C_ILLEGAL_STATE);
    end_ledger(&l);
}

static void a_probe_that_does_not_know_leaves_it_to_a_person(void **state)
{
    (void)state;
    ledger l = new_ledger(KEYED);
    sm_handle h;
    semel_outcome none = {.size = sizeof none};
    to_probe(&l, &h);
    assert_int_equal(sm_probed(l.s, &h, SM_FOUND_UNKNOWN, &none, l.a), SM_OK);
    sm_asking q = asking("{\"order\": 7}");
    ask(&l, &q);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

/* The effects that somebody was told of. */
typedef struct told {
    atomic_int count;
    _Atomic uint64_t id;    /* the last one */
    _Atomic uint64_t other; /* is not counted */
} told;

static void tell(void *context, const sm_handle *effect)
{
    told *t = context;
    atomic_store(&t->id, effect->id);
    if (effect->id != atomic_load(&t->other))
        atomic_fetch_add(&t->count, 1);
}

static int told_within(told *t, int ms)
{
    for (; ms > 0 && atomic_load(&t->count) == 0; ms -= 20)
        usleep(20000);
    return atomic_load(&t->count);
}

static ledger kept_ledger(const char *contract, told *t)
{
    ledger l = {.s = open_ledger(fresh_url(), contract, false), .a = semel_answer_new()};
    sm_on_due(l.s, tell, t);
    return l;
}

static void doubts_that_can_be_settled_are_told_of_until_they_are_put_off(void **state)
{
    (void)state;
    told t = {0};
    ledger l = kept_ledger(KEYED, &t);
    doubt(&l);
    sm_handle h = handle_of(&l);
    assert_true(told_within(&t, 20000) > 0);
    assert_int_equal(atomic_load(&t.id), h.id);
    assert_int_equal(sm_put_off(l.s, &h, 600000, l.a), SM_OK);
    doubt_of(&l, "{\"order\": 8}"); /* whoever is told of it has looked after that */
    uint64_t other = handle_of(&l).id;
    for (int64_t end = sm_clock_deadline_ns(20000); atomic_load(&t.id) != other; usleep(1000))
        expect(sm_clock_mono_ns() < end, "nobody is told of the other one");
    atomic_store(&t.other, other);
    atomic_store(&t.count, 0);
    assert_int_equal(told_within(&t, 2200), 0);
    end_ledger(&l);
}

static void held_doubts_and_those_of_others_are_not_told_of(void **state)
{
    (void)state;
    told t = {0};
    ledger l = kept_ledger("{version: 1, tools: {t: {class: write, " UPSTREAM "}}}", &t);
    doubt(&l);                        /* hold */
    begin(&l, "t", "{\"order\": 8}"); /* not executed by us */
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    assert_int_equal(told_within(&t, 2200), 0);
    end_ledger(&l);
}

static void what_was_approved_is_told_of_and_what_was_resolved_is_not(void **state)
{
    (void)state;
    told t = {0};
    ledger l = kept_ledger(
        "{version: 1, tools: {t: {class: write, approval: {when: [{field: /n, over: 1}]}, " UPSTREAM
        "}}}",
        &t);
    sm_asking q = asking("{\"n\": 1}");
    ask(&l, &q);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "1");
    semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_NOT_APPLIED, NULL, SM_STR("looked"),
                  (sm_str){0}, l.a);
    assert_int_equal(l.a->state, SEMEL_S_READY);
    assert_int_equal(told_within(&t, 2200), 0);
    sm_asking asks = asking("{\"n\": 2}");
    ask(&l, &asks);
    approve_as(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
    sm_handle h = handle_of(&l);
    assert_true(told_within(&t, 20000) > 0);
    assert_int_equal(atomic_load(&t.id), h.id);
    end_ledger(&l);
}

static bool keep_line(void *context, semel_str line)
{
    return sm_buf_str(context, line), true;
}

/* Calls through MCP have arguments and results of up to 16 MiB. */
static void the_largest_call_can_be_moved_to_another_ledger(void **state)
{
    (void)state;
    static const char contract[] = "{version: 1, tools: {t: {class: write}}}";
    size_t n = SM_LARGE_OUTCOME_MAX;
    char *args = malloc(n + 1), *value = malloc(n + 1);
    assert_true(args != NULL && value != NULL);
    memset(args, 'a', n);
    memset(value, '9', n);
    memcpy(args, "{\"a\":\"", 6);
    memcpy(args + n - 2, "\"}", 3);
    value[n] = '\0';
    ledger l = new_ledger(contract), m = new_ledger(contract);
    sm_asking q = asking(args);
    q.large = true;
    q.lease_ms = 300000; /* sixteen megabytes may be long under way */
    ask(&l, &q);
    expect_execute(&l);
    semel_outcome o = {.size = sizeof o, .value = {value, n}};
    assert_int_equal(
        sm_commit_as(l.s, sm_str_from(l.claim), &o, SM_LARGE_OUTCOME_MAX, (sm_str){0}, l.a), SM_OK);
    sm_buf line;
    sm_buf_init(&line, SM_LINE_MAX);
    semel_fault fault = {0};
    semel_imported count = {.size = sizeof count};
    expect(semel_export(l.s, (sm_str){0}, keep_line, &line, &fault) == SM_OK, "%s", fault.text);
    assert_int_equal(line.err, SM_OK);
    expect(semel_import_line(m.s, sm_buf_view(&line), &count, &fault) == SM_OK, "%s", fault.text);
    assert_int_equal(count.added, 1);
    q = asking(args);
    q.large = true;
    ask(&m, &q);
    expect(m.a->verdict == SEMEL_REPLAY && m.a->outcome.kept && m.a->outcome.value.n == n &&
               memcmp(m.a->outcome.value.p, value, n) == 0,
           "%zu bytes of the outcome are there", m.a->outcome.value.n);
    sm_buf_fini(&line);
    end_ledger(&m);
    end_ledger(&l);
    free(args);
    free(value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_asks_again_gets_the_end_of_what_was_joined_and_never_runs_it),
        cmocka_unit_test(who_waited_for_a_generation_that_was_forgotten_is_not_told_of_the_next),
        cmocka_unit_test(who_only_waits_does_not_run_again_what_is_in_doubt),
        cmocka_unit_test(a_call_that_cannot_be_prepared_leaves_nothing_behind),
        cmocka_unit_test(memory_answers_what_is_settled_and_nothing_else),
        cmocka_unit_test(memory_is_asked_under_the_contracts_that_the_call_has),
        cmocka_unit_test(memory_is_not_asked_about_long_arguments),
        cmocka_unit_test(memory_is_not_asked_if_long_arguments_were_recorded),
        cmocka_unit_test(a_claim_that_is_given_back_frees_the_key),
        cmocka_unit_test(an_approval_is_not_used_up_by_a_claim_that_is_given_back),
        cmocka_unit_test(a_claim_that_cannot_be_given_back_now_is_given_back_later),
        cmocka_unit_test(an_attempt_that_did_nothing_is_given_back_once_the_ledger_is_there_again),
        cmocka_unit_test(the_newest_attempt_decides_what_is_said_without_the_ledger),
        cmocka_unit_test(recording_is_tried_again_while_there_is_time),
        cmocka_unit_test(what_has_ended_does_not_run_again_before_its_end_is_recorded),
        cmocka_unit_test(who_ran_answers_for_what_the_ledger_calls_in_doubt),
        cmocka_unit_test(the_end_that_is_not_recorded_does_not_answer_for_a_newer_attempt),
        cmocka_unit_test(what_is_observed_runs_though_an_end_of_it_is_not_recorded),
        cmocka_unit_test(a_partial_end_that_is_not_recorded_is_told_as_one),
        cmocka_unit_test(who_is_answered_with_an_end_that_is_not_recorded_has_not_to_wait),
        cmocka_unit_test(what_has_ended_does_not_run_again_while_its_end_is_being_recorded),
        cmocka_unit_test(the_end_that_is_not_recorded_answers_nobody_who_would_not_have_joined),
        cmocka_unit_test(who_waits_for_a_doubt_does_not_look_again_because_of_its_approval),
        cmocka_unit_test(who_asks_again_asks_for_the_same_effect),
        cmocka_unit_test(contracts_are_replaced_whole_or_not_at_all),
        cmocka_unit_test(a_new_identity_is_warned_of),
        cmocka_unit_test(nothing_irreversible_begins_on_a_lossy_ledger_whoever_brings_the_contract),
        cmocka_unit_test(whoever_asked_cannot_approve_where_both_are_known),
        cmocka_unit_test(who_waits_does_not_replace_the_request_of_others),
        cmocka_unit_test(who_asks_quietly_asks_nobody_for_an_approval),
        cmocka_unit_test(who_may_not_begin_anything_gets_what_is_recorded),
        cmocka_unit_test(everybody_who_asked_is_kept_from_approving),
        cmocka_unit_test(self_approval_is_for_those_whom_the_contract_lets),
        cmocka_unit_test(a_resend_has_the_same_key_and_settles_the_doubt),
        cmocka_unit_test(a_resend_that_was_given_back_is_tried_again),
        cmocka_unit_test(a_resend_waits_while_writes_are_stopped),
        cmocka_unit_test(a_resend_is_of_the_attempt_that_was_looked_at),
        cmocka_unit_test(only_a_doubt_that_can_be_resent_is_resent),
        cmocka_unit_test(nothing_is_resent_when_the_downstreams_window_is_over),
        cmocka_unit_test(the_time_left_for_resending_counts_from_the_first_sending),
        cmocka_unit_test(what_nobody_looks_after_can_be_asked_about_too),
        cmocka_unit_test(a_probe_that_finds_it_settles_it_with_what_it_found),
        cmocka_unit_test(absent_does_not_count_at_once),
        cmocka_unit_test(absent_counts_after_a_while_and_then_it_may_run),
        cmocka_unit_test(what_a_probe_found_before_a_later_attempt_says_nothing),
        cmocka_unit_test(a_probe_that_does_not_know_leaves_it_to_a_person),
        cmocka_unit_test(doubts_that_can_be_settled_are_told_of_until_they_are_put_off),
        cmocka_unit_test(held_doubts_and_those_of_others_are_not_told_of),
        cmocka_unit_test(what_was_approved_is_told_of_and_what_was_resolved_is_not),
        cmocka_unit_test(the_largest_call_can_be_moved_to_another_ledger),
    };
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(an_end_that_is_owed_is_recorded_when_the_ledger_is_closed),
    };
    return run_on_stores(tests, COUNT(tests), NULL, 0, filed, COUNT(filed));
}
