/* State that is set: a completed write to a resource ends the replay of earlier ones. */
#include "ledger.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

#include "ledger/service.h"
#include "store/stores.h"

#define SET   "set_status: {class: write, resource: [/id]}"
#define ONE   "{version: 1, tools: {" SET "}}"
#define OFTEN "{version: 1, tools: {set_status: {class: write, resource: [/id], loop: off}}}"
#define A     "{\"id\":1,\"status\":\"open\"}"
#define B     "{\"id\":1,\"status\":\"closed\"}"
#define ELSE  "{\"id\":2,\"status\":\"closed\"}"

static void expect_runs(ledger *l, const char *tool, const char *args, const char *value)
{
    begin(l, tool, args);
    expect_execute(l);
    commit(l, value);
    assert_int_equal(l->a->verdict, SEMEL_DONE);
}

static void expect_replays(ledger *l, const char *tool, const char *args, const char *value)
{
    begin(l, tool, args);
    expect_replay(l, value);
}

static void set_a_b_a_runs_three_times(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_replays(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", B, "2");
    expect_replays(&l, "set_status", B, "2");
    expect_runs(&l, "set_status", A, "3");
    assert_int_equal(l.a->generation, 2);
    expect_replays(&l, "set_status", A, "3");
    expect_runs(&l, "set_status", B, "4");
    end_ledger(&l);
}

static void another_resource_or_none_does_not_matter(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", ELSE, "2");
    expect_runs(&l, "set_status", "{\"status\":\"closed\"}", "3"); /* none of the fields */
    expect_runs(&l, "other", B, "4");
    expect_replays(&l, "set_status", A, "1");
    expect_replays(&l, "set_status", ELSE, "2");
    expect_replays(&l, "set_status", "{\"status\":\"closed\"}", "3");
    end_ledger(&l);
}

static void the_same_key_in_another_scope_is_another_write_of_the_tenant(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    static const char *const scopes[] = {"acme/run1", "acme/run2", "other/run1"};
    for (size_t i = 0; i < COUNT(scopes); i++) {
        semel_call c = call_of("set_status", i == 1 ? B : A);
        c.scope = sm_str_from(scopes[i]);
        take(&l, semel_begin(l.s, &c, l.a));
        expect_execute(&l);
        commit(&l, "1");
    }
    for (size_t i = 0; i < COUNT(scopes); i++) { /* other/run1 is the only one of its tenant */
        semel_call c = call_of("set_status", i == 1 ? B : A);
        c.scope = sm_str_from(scopes[i]);
        take(&l, semel_begin(l.s, &c, l.a));
        assert_int_equal(l.a->verdict, i == 0 ? SEMEL_EXECUTE : SEMEL_REPLAY);
    }
    end_ledger(&l);
}

static void tools_of_one_kind_share_resources(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {"
                          "write: {class: write, resource: {kind: file, fields: [/path]}},"
                          "remove: {class: write, resource: {kind: file, fields: [/name]}},"
                          "touch: {class: write, resource: [/path]}}}");
    expect_runs(&l, "write", "{\"path\":\"a\",\"text\":\"x\"}", "1");
    expect_runs(&l, "touch", "{\"path\":\"a\"}", "2"); /* of another kind: its own */
    expect_replays(&l, "write", "{\"path\":\"a\",\"text\":\"x\"}", "1");
    expect_runs(&l, "remove", "{\"name\":\"a\"}", "3");
    expect_runs(&l, "write", "{\"path\":\"a\",\"text\":\"x\"}", "4");
    expect_runs(&l, "remove", "{\"name\":\"a\"}", "5");
    expect_replays(&l, "touch", "{\"path\":\"a\"}", "2");
    end_ledger(&l);
}

static void what_was_not_applied_overwrites_nothing(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    begin(&l, "set_status", B);
    expect_execute(&l);
    expect_replays(&l, "set_status", A, "1"); /* it runs: nothing is known */
    begin(&l, "set_status", B);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no\"");
    expect_replays(&l, "set_status", A, "1");
    end_ledger(&l);
}

static void every_way_in_which_a_write_is_known_to_be_applied_counts(void **state)
{
    (void)state;
    for (int way = 0; way < 5; way++) {
        ledger l = new_ledger(ONE);
        expect_runs(&l, "set_status", A, "1");
        begin(&l, "set_status", B);
        expect_execute(&l);
        char claim[128];
        strcpy(claim, l.claim);
        if (way == 0)
            commit_as(&l, claim, SEMEL_PARTIAL, SEMEL_APPLIED_DEFAULT, "2");
        else if (way == 1)
            commit_as(&l, claim, SEMEL_FAILURE, SEMEL_APPLIED_YES, "2");
        else
            commit_as(&l, claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "2");
        begin(&l, "set_status", B);
        if (way == 2)
            semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_APPLIED, NULL, SM_STR("seen"),
                          (sm_str){0}, l.a);
        else if (way == 3)
            commit_as(&l, claim, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "2"); /* late */
        else if (way == 4)
            semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_ABANDON, NULL, SM_STR("?"),
                          (sm_str){0}, l.a);
        begin(&l, "set_status", A);
        expect(l.a->verdict == SEMEL_EXECUTE, "way %d: verdict %d", way, (int)l.a->verdict);
        end_ledger(&l);
    }
}

static void expect_doubts(ledger *l, const char *args)
{
    begin(l, "set_status", args);
    expect_execute(l);
    commit_as(l, l->claim, SEMEL_FAILURE, SEMEL_APPLIED_UNKNOWN, "\"?\"");
}

/* Nobody knows whether B holds, so A is set again. The doubt about B stays. */
static void a_write_in_doubt_ends_the_replay_of_others(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_doubts(&l, B);
    expect_runs(&l, "set_status", A, "2");
    assert_int_equal(l.a->generation, 2);
    expect_replays(&l, "set_status", A, "2");
    begin(&l, "set_status", B);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    /* B was applied after all: before A was set again, or after that. */
    semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_APPLIED, NULL, SM_STR("seen"),
                  (sm_str){0}, l.a);
    expect_runs(&l, "set_status", B, "3");
    expect_runs(&l, "set_status", A, "4");
    end_ledger(&l);
}

static void a_doubt_that_others_did_not_overwrite_answers_once_it_is_resolved(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_doubts(&l, B);
    begin(&l, "set_status", B);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    semel_outcome o = {.size = sizeof o, .value = SM_STR("2")};
    semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_APPLIED, &o, SM_STR("seen"),
                  (sm_str){0}, l.a);
    expect_replays(&l, "set_status", B, "2");
    expect_runs(&l, "set_status", A, "3");
    end_ledger(&l);
}

static void every_attempt_in_doubt_ends_the_replay_of_others(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {set_status: {class: write, resource: [/id], "
                          "on_in_doubt: [rerun]}}}");
    expect_runs(&l, "set_status", A, "1");
    expect_doubts(&l, B);
    expect_runs(&l, "set_status", A, "2");
    expect_doubts(&l, B); /* run again */
    expect_runs(&l, "set_status", A, "3");
    expect_replays(&l, "set_status", A, "3");
    begin(&l, "set_status", B);
    commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "\"no\"");
    expect_replays(&l, "set_status", A, "3"); /* this attempt did nothing */
    end_ledger(&l);
}

/* The record's list of doubts is full by then. */
static void the_seventeenth_attempt_in_doubt_ends_the_replay_of_others_too(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {set_status: {class: write, resource: [/id], "
                          "on_in_doubt: [rerun]}}}");
    for (unsigned i = 0; i < SM_DOUBTS_MAX; i++)
        expect_doubts(&l, B);
    expect_runs(&l, "set_status", A, "1");
    expect_replays(&l, "set_status", A, "1");
    expect_doubts(&l, B);
    expect_runs(&l, "set_status", A, "2");
    end_ledger(&l);
}

/* The barrier of a doubt comes first. */
static void a_barrier_holds_the_repeat_of_what_a_doubt_may_have_overwritten(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {set_status: {class: irreversible, resource: [/id], "
                          "barrier: true}}}");
    expect_runs(&l, "set_status", A, "1");
    expect_doubts(&l, B);
    begin(&l, "set_status", A);
    expect_refused(&l, SEMEL_C_IN_DOUBT);
    end_ledger(&l);
}

static void what_ended_badly_runs_again_once_it_is_overwritten(void **state)
{
    (void)state;
    static const semel_kind kinds[] = {SEMEL_PARTIAL, SEMEL_FAILURE};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        ledger l = new_ledger(ONE);
        begin(&l, "set_status", A);
        commit_as(&l, l.claim, kinds[i], SEMEL_APPLIED_YES, "1");
        begin(&l, "set_status", A);
        assert_int_equal(l.a->verdict, SEMEL_REPLAY);
        expect_runs(&l, "set_status", B, "2");
        begin(&l, "set_status", A);
        expect_execute(&l);
        end_ledger(&l);
    }
}

/* Nobody knows which of two writes that overlap came last: neither answers repeats. */
static void of_writes_that_overlap_none_is_the_last(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    char a[128];
    begin(&l, "set_status", A);
    strcpy(a, l.claim);
    begin(&l, "set_status", B);
    commit(&l, "2");
    commit_as(&l, a, SEMEL_SUCCESS, SEMEL_APPLIED_DEFAULT, "1");
    expect_runs(&l, "set_status", A, "3");
    expect_replays(&l, "set_status", A, "3");
    expect_runs(&l, "set_status", B, "4");
    expect_replays(&l, "set_status", B, "4");
    end_ledger(&l);
}

static void a_callers_key_or_step_is_always_a_retry(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    for (int i = 0; i < 2; i++) {
        semel_call c = call_of("set_status", A);
        *(i == 0 ? &c.key : &c.step) = SM_STR("mine");
        take(&l, semel_begin(l.s, &c, l.a));
        expect_execute(&l);
        commit(&l, "1");
        expect_runs(&l, "set_status", i == 0 ? B : "{\"id\":1,\"status\":\"x\"}", "2");
        take(&l, semel_begin(l.s, &c, l.a));
        expect_replay(&l, "1");
    }
    /* And it counts: the one without a key is overwritten by the one with. */
    expect_runs(&l, "set_status", "{\"id\":1,\"status\":\"last\"}", "3");
    semel_call c = call_of("set_status", A);
    c.key = SM_STR("other");
    take(&l, semel_begin(l.s, &c, l.a));
    commit(&l, "4");
    begin(&l, "set_status", "{\"id\":1,\"status\":\"last\"}");
    expect_execute(&l);
    end_ledger(&l);
}

static void an_overwritten_call_is_approved_again(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {set_status: {class: write, resource: [/id],"
                          " approval: {expires: 1h}}}}");
    static const char *const order[] = {A, B, A};
    for (size_t i = 0; i < COUNT(order); i++) {
        begin(&l, "set_status", order[i]);
        expect_refused(&l, SEMEL_C_AWAITING_APPROVAL);
        semel_approve(l.s, sm_str_from(l.request), SM_STR("carol"), l.a);
        expect_runs(&l, "set_status", order[i], "1");
        expect_replays(&l, "set_status", order[i], "1");
    }
    end_ledger(&l);
}

static void the_history_says_why_it_ran_again(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", B, "2");
    semel_str json;
    begin(&l, "set_status", B);
    char last[128];
    strcpy(last, l.effect);
    begin(&l, "set_status", A);
    assert_int_equal(
        semel_show(l.s, &(semel_name){.size = sizeof(semel_name), .text = sm_str_from(last)}, l.a,
                   &json),
        SEMEL_OK);
    expect(memmem(json.p, json.n, "\"resource\":", 11) != NULL, "%.*s", SM_FMT(json));
    expect(memmem(json.p, json.n, "\"overwritten\":true", 18) == NULL, "%.*s", SM_FMT(json));
    commit(&l, "3");
    assert_int_equal(
        semel_show(l.s, &(semel_name){.size = sizeof(semel_name), .text = sm_str_from(last)}, l.a,
                   &json),
        SEMEL_OK);
    expect(memmem(json.p, json.n, "\"overwritten\":true", 18) != NULL, "%.*s", SM_FMT(json));
    begin(&l, "set_status", A);
    assert_int_equal(
        semel_show(l.s, &(semel_name){.size = sizeof(semel_name), .text = sm_str_from(l.effect)},
                   l.a, &json),
        SEMEL_OK);
    expect(memmem(json.p, json.n, "\"overwritten,started\"", 21) != NULL, "%.*s", SM_FMT(json));
    end_ledger(&l);
}

static void an_event_says_how_long_the_count_of_writes_lasts(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {" SET ", for_ever: {class: write, resource: [/id], "
                          "window: forever}}}");
    expect_runs(&l, "set_status", A, "1");
    assert_int_equal(events_saying(&l, "\"until\":"), 1);
    expect_runs(&l, "for_ever", A, "1");
    assert_int_equal(events_saying(&l, "\"written\":"), 1);
    assert_int_equal(events_saying(&l, "\"until\":"), 0);
    end_ledger(&l);
}

/* What the store below does wrong. */
static bool uncounted; /* it does not count */
static bool unread;    /* it does not show events */
static bool races;     /* the next write loses a race, and then it does not count once */

static semel_err counter_or_not(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                                semel_fault *fault)
{
    return uncounted ? SEMEL_E_UNAVAILABLE : sm_store_memory.counter(st, shard, name, value, fault);
}

static ledger start_on(const semel_store_ops *ops)
{
    ledger l = {.a = semel_answer_new()};
    uncounted = unread = races = false;
    semel_options o = {.size = sizeof o,
                       .url = "memory:",
                       .store = ops,
                       .contract = SM_STR(ONE),
                       .one_shot = true};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    return l;
}

static void nothing_begins_or_ends_while_writes_cannot_be_counted(void **state)
{
    (void)state;
    semel_store_ops ops = sm_store_memory;
    ops.counter = counter_or_not;
    ledger l = start_on(&ops);
    uncounted = true;
    assert_int_equal(begin(&l, "set_status", A), SEMEL_E_UNAVAILABLE);
    expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
    uncounted = false;
    begin(&l, "set_status", A);
    expect_execute(&l);
    uncounted = true;
    assert_int_equal(commit(&l, "1"), SEMEL_E_UNAVAILABLE);
    uncounted = false;
    assert_int_equal(commit(&l, "1"), SEMEL_OK);
    expect_replays(&l, "set_status", A, "1");
    uncounted = true;
    assert_int_equal(begin(&l, "set_status", A), SEMEL_E_UNAVAILABLE);
    expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
    uncounted = false;
    expect_runs(&l, "set_status", B, "2");
    expect_runs(&l, "set_status", A, "3");
    end_ledger(&l);
}

static semel_err events_or_not(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                               semel_event_sink *sink, void *context, semel_fault *fault)
{
    return unread ? SEMEL_E_UNAVAILABLE
                  : sm_store_memory.events(st, of, after, limit, sink, context, fault);
}

static void what_cannot_be_read_is_not_left_out_of_what_is_shown(void **state)
{
    (void)state;
    semel_store_ops ops = sm_store_memory;
    ops.events = events_or_not;
    ledger l = start_on(&ops);
    expect_runs(&l, "set_status", A, "1");
    unread = true;
    semel_str json;
    semel_name name = {.size = sizeof name, .text = sm_str_from(l.effect)};
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_E_UNAVAILABLE);
    unread = false;
    assert_int_equal(semel_show(l.s, &name, l.a, &json), SEMEL_OK);
    end_ledger(&l);
}

static semel_err lose_race(semel_store *st, const semel_write *w, semel_room *room,
                           semel_record *cur, int64_t *now, semel_fault *fault)
{
    if (!races)
        return sm_store_memory.apply(st, w, room, cur, now, fault);
    races = false;
    uncounted = true;
    return SEMEL_E_STALE;
}

static semel_err count_again(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                             semel_fault *fault)
{
    semel_err e = counter_or_not(st, shard, name, value, fault);
    uncounted = false;
    return e;
}

static void what_was_decided_before_a_lost_race_is_not_done_after_it(void **state)
{
    (void)state;
    semel_store_ops ops = sm_store_memory;
    ops.counter = count_again;
    ops.apply = lose_race;
    ledger l = start_on(&ops);
    expect_runs(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", B, "2");
    races = true;
    assert_int_equal(begin(&l, "set_status", A), SEMEL_E_UNAVAILABLE);
    expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
    expect_runs(&l, "set_status", A, "3");
    end_ledger(&l);
}

static void a_contract_that_names_the_resource_later_still_compares(void **state)
{
    (void)state;
    ledger l = new_ledger(NULL);
    expect_runs(&l, "set_status", A, "1"); /* its record knows of no resource */
    sm_report report;
    sm_str text = SM_STR(ONE);
    sm_report_init(&report, text);
    assert_int_equal(sm_contracts_replace(l.s, SM_STR("test"), text, &report, NULL), SM_OK);
    sm_report_fini(&report);
    expect_replays(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", B, "2");
    expect_runs(&l, "set_status", A, "3");
    end_ledger(&l);
}

/* The key does not say on what the call acts. */
static void a_repeat_with_other_arguments_is_about_what_the_recorded_call_acted_on(void **state)
{
    (void)state;
    ledger l = new_ledger("{version: 1, tools: {set_status: {class: write, key: {fields: "
                          "[/status]}, resource: [/id]}}}");
    expect_runs(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", ELSE, "2");
    expect_replays(&l, "set_status", "{\"id\":2,\"status\":\"open\"}", "1");
    end_ledger(&l);
}

/* ---- from memory -----------------------------------------------------------------------------*/

static void a_replay_from_memory_is_compared_too(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_replays(&l, "set_status", A, "1"); /* now it is in the store's memory, if it has one */
    expect_runs(&l, "set_status", B, "2");
    sm_asking q = {.call = call_of("set_status", A)};
    assert_false(sm_ask_memory(l.s, &q, l.a));
    begin(&l, "set_status", A);
    expect_execute(&l);
    end_ledger(&l);
}

static void whoever_has_run_it_learns_how_it_ended(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", A, "1");
    expect_runs(&l, "set_status", B, "2");
    sm_asking q = {.call = call_of("set_status", A), .ran = true};
    assert_int_equal(sm_ask(l.s, &q, l.a), SEMEL_OK);
    expect_replay(&l, "1");
    sm_contracts_free(q.contracts);
    end_ledger(&l);
}

/* ---- moving ----------------------------------------------------------------------------------*/

typedef struct lines {
    char *text[8];
    size_t n;
} lines;

static bool keep_line(void *context, semel_str line)
{
    lines *all = context;
    all->text[all->n++] = strndup(line.p, line.n);
    return true;
}

static void an_import_knows_which_write_was_the_last(void **state)
{
    (void)state;
    for (int backwards = 0; backwards < 2; backwards++) {
        ledger l = new_ledger(ONE);
        expect_runs(&l, "set_status", A, "1");
        expect_runs(&l, "set_status", B, "2");
        lines all = {0};
        assert_int_equal(semel_export(l.s, (sm_str){0}, keep_line, &all, NULL), SEMEL_OK);
        assert_int_equal(all.n, 2);
        ledger m = new_ledger(ONE);
        for (size_t i = 0; i < all.n; i++) {
            semel_imported count = {.size = sizeof count};
            char *line = all.text[backwards ? all.n - 1 - i : i];
            assert_int_equal(semel_import_line(m.s, sm_str_from(line), &count, NULL), SEMEL_OK);
            assert_int_equal(count.added, 1);
        }
        expect_replays(&m, "set_status", B, "2");
        expect_runs(&m, "set_status", A, "3");
        expect_runs(&m, "set_status", B, "4");
        for (size_t i = 0; i < all.n; i++)
            free(all.text[i]);
        end_ledger(&m);
        end_ledger(&l);
    }
}

static void an_imported_doubt_ends_the_replay_of_what_it_may_have_overwritten(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        bool backwards = way & 1, again = way & 2; /* A was set again after the doubt */
        ledger l = new_ledger(ONE);
        expect_runs(&l, "set_status", A, "1");
        expect_doubts(&l, B);
        if (again)
            expect_runs(&l, "set_status", A, "2");
        lines all = {0};
        assert_int_equal(semel_export(l.s, (sm_str){0}, keep_line, &all, NULL), SEMEL_OK);
        ledger m = new_ledger(ONE);
        for (size_t i = 0; i < all.n; i++) {
            semel_imported count = {.size = sizeof count};
            char *line = all.text[backwards ? all.n - 1 - i : i];
            assert_int_equal(semel_import_line(m.s, sm_str_from(line), &count, NULL), SEMEL_OK);
        }
        begin(&m, "set_status", B);
        expect_refused(&m, SEMEL_C_IN_DOUBT);
        if (again)
            expect_replays(&m, "set_status", A, "2");
        else
            expect_runs(&m, "set_status", A, "3");
        for (size_t i = 0; i < all.n; i++)
            free(all.text[i]);
        end_ledger(&m);
        end_ledger(&l);
    }
}

static void an_imported_doubt_that_was_applied_is_the_last_write(void **state)
{
    (void)state;
    ledger l = new_ledger(ONE);
    expect_runs(&l, "set_status", B, "0"); /* so that the counts of the two ledgers differ */
    begin(&l, "set_status", A);
    lines all = {0};
    assert_int_equal(semel_export(l.s, (sm_str){0}, keep_line, &all, NULL), SEMEL_OK);
    ledger m = new_ledger(ONE);
    semel_imported count = {.size = sizeof count}; /* the newest comes first */
    assert_int_equal(semel_import_line(m.s, sm_str_from(all.text[0]), &count, NULL), SEMEL_OK);
    free(all.text[0]);
    free(all.text[1]);
    begin(&m, "set_status", A);
    expect_refused(&m, SEMEL_C_IN_DOUBT);
    semel_outcome o = {.size = sizeof o, .value = SM_STR("1")};
    semel_resolve(m.s, sm_str_from(m.effect), SEMEL_RESOLVE_APPLIED, &o, SM_STR("seen"),
                  (sm_str){0}, m.a);
    expect_replays(&m, "set_status", A, "1");
    end_ledger(&m);
    end_ledger(&l);
}

/* ---- several at once -------------------------------------------------------------------------*/

enum { THREADS = 8, ROUNDS = 20 };

typedef struct writer {
    semel *s;
    int number;
    atomic_int *runs;
} writer;

static void *write_often(void *context)
{
    writer *w = context;
    semel_answer *a = semel_answer_new();
    for (int i = 0; i < ROUNDS; i++) {
        char args[64];
        snprintf(args, sizeof args, "{\"id\":1,\"status\":\"%d\"}", (w->number + i) % 3);
        semel_call c = call_of("set_status", args);
        c.wait_ms = 10000;
        expect(semel_begin(w->s, &c, a) == SEMEL_OK, "begin");
        if (a->verdict != SEMEL_EXECUTE)
            continue;
        atomic_fetch_add(w->runs, 1);
        char claim[128];
        keep_text(claim, a->claim);
        semel_outcome o = {.size = sizeof o, .value = SM_STR("1")};
        expect(semel_commit(w->s, sm_str_from(claim), &o, a) == SEMEL_OK &&
                   a->verdict == SEMEL_DONE,
               "commit");
    }
    semel_answer_free(a);
    return NULL;
}

static bool count_writes(void *context, const semel_event *e)
{
    int *writes = context;
    *writes += memmem(e->body.p, e->body.n, "\"written\":", 10) != NULL;
    return true;
}

static void writers_at_once_are_all_counted_and_the_last_answers(void **state)
{
    (void)state;
    ledger l = new_ledger(OFTEN);
    atomic_int runs = 0;
    pthread_t threads[THREADS];
    writer writers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        writers[i] = (writer){l.s, i, &runs};
        assert_int_equal(pthread_create(&threads[i], NULL, write_often, &writers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int writes = 0;
    uint64_t after = 0;
    for (uint64_t before = 1; before != after;) {
        before = after;
        assert_int_equal(semel_events(l.s, (sm_str){0}, &after, 1000, count_writes, &writes, NULL),
                         SEMEL_OK);
    }
    assert_int_equal(writes, runs);
    expect_runs(&l, "set_status", "{\"id\":1,\"status\":\"end\"}", "9");
    expect_replays(&l, "set_status", "{\"id\":1,\"status\":\"end\"}", "9");
    semel_verified checked = {.size = sizeof checked};
    assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &checked, NULL), SEMEL_OK);
    assert_int_equal(checked.flaws, 0);
    end_ledger(&l);
}

/* ---- ledgers that outlive a process ----------------------------------------------------------*/

static void another_process_overwrites_what_this_one_remembers(void **state)
{
    (void)state;
    char url[512];
    snprintf(url, sizeof url, "%s", fresh_url());
    ledger l = {.s = open_ledger(url, OFTEN, true), .a = semel_answer_new()};
    expect_runs(&l, "set_status", A, "1");
    expect_replays(&l, "set_status", A, "1");
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        execl("/proc/self/exe", "unit_ledger_resource", "--write", url, (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_runs(&l, "set_status", A, "3");
    end_ledger(&l);
}

static uint64_t events_in(semel *s)
{
    semel_stats stats = {.size = sizeof stats};
    assert_int_equal(semel_stats_get(s, false, &stats, NULL), SEMEL_OK);
    return stats.store.last_seq;
}

/* Whatever moment a writer is killed at, records and counters agree. */
static void a_killed_writer_leaves_the_counters_right(void **state)
{
    (void)state;
    char url[512];
    snprintf(url, sizeof url, "%s", fresh_url());
    ledger l = {.s = open_ledger(url, OFTEN, true), .a = semel_answer_new()};
    for (int i = 0; i < 5; i++) {
        uint64_t before = events_in(l.s);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            execl("/proc/self/exe", "unit_ledger_resource", "--loop", url, (char *)NULL);
            _exit(127);
        }
        while (events_in(l.s) < before + 20 + (uint64_t)i * 7)
            usleep(1000);
        int status;
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        semel_verified checked = {.size = sizeof checked};
        assert_int_equal(semel_verify(l.s, NULL, NULL, NULL, &checked, NULL), SEMEL_OK);
        assert_int_equal(checked.flaws, 0);
    }
    expect_runs(&l, "set_status", "{\"id\":1,\"status\":\"end\"}", "9");
    expect_replays(&l, "set_status", "{\"id\":1,\"status\":\"end\"}", "9");
    end_ledger(&l);
}

static _Noreturn void write_forever(const char *url)
{
    ledger l = {.s = open_ledger(url, OFTEN, true), .a = semel_answer_new()};
    for (int i = 0;; i++) {
        char args[64];
        snprintf(args, sizeof args, "{\"id\":1,\"status\":\"%d\"}", i % 3);
        begin(&l, "set_status", args);
        if (l.a->verdict == SEMEL_EXECUTE)
            commit(&l, "1");
        else /* what the one before was killed in is in doubt */
            semel_resolve(l.s, sm_str_from(l.effect), SEMEL_RESOLVE_APPLIED, NULL, SM_STR("seen"),
                          (sm_str){0}, l.a);
    }
}

static int write_b(const char *url)
{
    ledger l = {.s = open_ledger(url, OFTEN, true), .a = semel_answer_new()};
    expect_runs(&l, "set_status", B, "2");
    end_ledger(&l);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--write") == 0)
        return write_b(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--loop") == 0)
        write_forever(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_a_b_a_runs_three_times),
        cmocka_unit_test(another_resource_or_none_does_not_matter),
        cmocka_unit_test(the_same_key_in_another_scope_is_another_write_of_the_tenant),
        cmocka_unit_test(tools_of_one_kind_share_resources),
        cmocka_unit_test(what_was_not_applied_overwrites_nothing),
        cmocka_unit_test(every_way_in_which_a_write_is_known_to_be_applied_counts),
        cmocka_unit_test(a_write_in_doubt_ends_the_replay_of_others),
        cmocka_unit_test(a_doubt_that_others_did_not_overwrite_answers_once_it_is_resolved),
        cmocka_unit_test(every_attempt_in_doubt_ends_the_replay_of_others),
        cmocka_unit_test(the_seventeenth_attempt_in_doubt_ends_the_replay_of_others_too),
        cmocka_unit_test(a_barrier_holds_the_repeat_of_what_a_doubt_may_have_overwritten),
        cmocka_unit_test(what_ended_badly_runs_again_once_it_is_overwritten),
        cmocka_unit_test(of_writes_that_overlap_none_is_the_last),
        cmocka_unit_test(a_callers_key_or_step_is_always_a_retry),
        cmocka_unit_test(an_overwritten_call_is_approved_again),
        cmocka_unit_test(the_history_says_why_it_ran_again),
        cmocka_unit_test(an_event_says_how_long_the_count_of_writes_lasts),
        cmocka_unit_test(nothing_begins_or_ends_while_writes_cannot_be_counted),
        cmocka_unit_test(what_was_decided_before_a_lost_race_is_not_done_after_it),
        cmocka_unit_test(what_cannot_be_read_is_not_left_out_of_what_is_shown),
        cmocka_unit_test(a_contract_that_names_the_resource_later_still_compares),
        cmocka_unit_test(a_repeat_with_other_arguments_is_about_what_the_recorded_call_acted_on),
        cmocka_unit_test(a_replay_from_memory_is_compared_too),
        cmocka_unit_test(whoever_has_run_it_learns_how_it_ended),
        cmocka_unit_test(an_import_knows_which_write_was_the_last),
        cmocka_unit_test(an_imported_doubt_ends_the_replay_of_what_it_may_have_overwritten),
        cmocka_unit_test(an_imported_doubt_that_was_applied_is_the_last_write),
        cmocka_unit_test(writers_at_once_are_all_counted_and_the_last_answers),
    };
    const struct CMUnitTest lasting[] = {
        cmocka_unit_test(another_process_overwrites_what_this_one_remembers),
        cmocka_unit_test(a_killed_writer_leaves_the_counters_right),
    };
    return run_on_stores(tests, COUNT(tests), lasting, COUNT(lasting), NULL, 0);
}
