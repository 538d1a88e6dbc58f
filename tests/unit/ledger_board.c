/* The board of a ledger when much is on it; who may resume; and runs that are told of at the end.
 */
#include "ledger.h"

#include "ledger/guard/board.h"
#include "ledger/guard/runs.h"
#include "ledger/guard/shared.h"
#include "ledger/service.h"
#include "store/stores.h"

#define TOOLS(text) "{version: 1, tools: {" text "}}"

static semel_err begin_in(ledger *l, const char *scope, const char *tool)
{
    semel_call c = call_of(tool, "{}");
    c.scope = sm_str_from(scope);
    return take(l, semel_begin(l->s, &c, l->a));
}

static bool lists(ledger *l, const char *scope, const char *part)
{
    semel_str text;
    assert_int_equal(semel_stops(l->s, sm_str_from(scope), l->a, &text), SEMEL_OK);
    return memmem(text.p, text.n, part, strlen(part)) != NULL;
}

static void the_stop_button_works_after_more_runs_have_looped_than_have_room(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    semel_fault fault = {0};
    bool changed;
    int refused = 0;
    for (int n = 0; n < (int)SM_LOOP_HALTS_MAX + 20; n++) {
        char name[SM_SCOPE_MAX + 1];
        snprintf(name, sizeof name, "acme/%0490d", n);
        sm_halt h = {.kind = SM_HALT_LOOP, .name = sm_str_from(name), .match = {.count = 8}};
        sm_err e = sm_board_halt(l.s, &h, (sm_str){0}, &changed, &fault);
        refused += e == SEMEL_E_LIMIT;
        if (refused > 2) /* it goes on like this */
            break;
    }
    assert_true(refused > 2);
    char reason[SM_REASON_MAX + 1], scope[SM_SCOPE_MAX + 1];
    memset(reason, '"', sizeof reason);
    memset(scope, 's', sizeof scope);
    semel_err e = semel_stop(l.s, SEMEL_STOP_SCOPE, (sm_str){scope, SM_SCOPE_MAX}, SM_STR("carol"),
                             (sm_str){reason, SM_REASON_MAX}, &changed, &fault);
    expect(e == SEMEL_OK && changed, "%s", fault.text);
    e = semel_stop(l.s, SEMEL_STOP_ALL, (sm_str){0}, SM_STR("carol"), SM_STR("enough"), &changed,
                   &fault);
    expect(e == SEMEL_OK && changed, "%s", fault.text);
    begin_in(&l, "other", "t");
    expect_refused(&l, SEMEL_C_STOPPED);
    end_ledger(&l);
}

static void open_circuits_are_listed_for_those_who_see_everything(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("pay: {class: write, breaker: {failures: 1, cooldown: 1h}}"));
    assert_true(lists(&l, NULL, "\"items\":[]"));
    begin_in(&l, "acme", "pay");
    expect_execute(&l);
    semel_outcome o = {
        .size = sizeof o, .kind = SEMEL_FAILURE, .applied = SEMEL_APPLIED_NO, .status = 503};
    take(&l, semel_commit(l.s, sm_str_from(l.claim), &o, l.a));
    assert_true(lists(&l, NULL,
                      "{\"kind\":\"circuit\",\"tool\":\"pay\",\"tenant\":\"acme\",\"failures\":1,"
                      "\"half_open\":false,\"retry_after_ms\":3"));
    assert_true(lists(&l, "acme", "\"items\":[]"));
    bool changed;
    semel_resume(l.s, SEMEL_STOP_TOOL, SM_STR("pay"), (sm_str){0}, (sm_str){0}, &changed, NULL);
    assert_true(changed);
    assert_true(lists(&l, NULL, "\"items\":[]"));
    end_ledger(&l);
}

static void whoever_is_bound_resumes_what_those_stopped_who_are_bound_as_well(void **state)
{
    (void)state;
    static const struct {
        const char *stopper, *resumer;
        bool may;
    } rows[] = {
        {NULL, NULL, true},        {"acme", NULL, true},       {NULL, "acme", false},
        {"acme", "acme", true},    {"acme/bot", "acme", true}, {"acme", "acme/bot", false},
        {"acme/bot", "ac", false},
    };
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_fault fault = {0};
        bool changed;
        sm_str name = SM_STR("acme/bot/1");
        sm_err e = sm_stop(l.s, SEMEL_STOP_SCOPE, name, SM_STR("a"), sm_str_from(rows[i].stopper),
                           SM_STR("why"), &changed, &fault);
        expect(e == SM_OK && changed, "row %zu: %s", i, fault.text);
        e = sm_resume(l.s, SEMEL_STOP_SCOPE, name, SM_STR("b"), sm_str_from(rows[i].resumer),
                      (sm_str){0}, &changed, &fault);
        expect(e == (rows[i].may ? SM_OK : SEMEL_E_BARRED) && changed == rows[i].may, "row %zu", i);
        if (!rows[i].may)
            semel_resume(l.s, SEMEL_STOP_SCOPE, name, (sm_str){0}, (sm_str){0}, &changed, &fault);
    }
    end_ledger(&l);
}

static void a_stop_of_somebody_who_is_not_bound_takes_the_place_of_a_bound_ones(void **state)
{
    (void)state;
    ledger l = new_ledger(TOOLS("t: {class: write}"));
    bool changed;
    sm_str name = SM_STR("acme/bot"), bound = SM_STR("acme");
    sm_stop(l.s, SEMEL_STOP_SCOPE, name, SM_STR("ann"), bound, SM_STR("hers"), &changed, NULL);
    assert_true(changed);
    semel_stop(l.s, SEMEL_STOP_SCOPE, name, SM_STR("root"), SM_STR("ours"), &changed, NULL);
    assert_true(changed);
    assert_true(lists(&l, NULL, "ours") && !lists(&l, NULL, "hers"));
    sm_stop(l.s, SEMEL_STOP_SCOPE, name, SM_STR("ann"), bound, SM_STR("hers"), &changed, NULL);
    assert_false(changed);
    semel_fault fault;
    assert_int_equal(
        sm_resume(l.s, SEMEL_STOP_SCOPE, name, SM_STR("ann"), bound, (sm_str){0}, &changed, &fault),
        SEMEL_E_BARRED);
    end_ledger(&l);
}

/* ---- stores that fail, and that are asked ----------------------------------------------------*/

static bool is_down, has_lost;
static unsigned asked_for_documents;
static semel_store *asked, *restored; /* who was asked last; who answers instead of all */
static semel *stops_meanwhile;        /* while the next read is under way */
static int reads_left;                /* then they fail; -1: they do not */

static void stop_scope(semel *s, const char *scope)
{
    bool changed;
    semel_fault fault = {0};
    semel_err e = semel_stop(s, SEMEL_STOP_SCOPE, sm_str_from(scope), SM_STR("carol"),
                             SM_STR("enough"), &changed, &fault);
    expect(e == SEMEL_OK && changed, "%s", fault.text);
}

static semel_err get_if_up(semel_store *st, const semel_ref *ref, semel_room *room,
                           semel_record *cur, int64_t *now, semel_fault *fault)
{
    if (has_lost && ref->key != NULL)
        return SEMEL_E_NOT_FOUND;
    if (is_down || reads_left == 0)
        return SEMEL_E_UNAVAILABLE;
    reads_left -= reads_left > 0;
    asked = st;
    semel_err e = sm_store_memory.get(restored != NULL ? restored : st, ref, room, cur, now, fault);
    semel *s = stops_meanwhile;
    stops_meanwhile = NULL;
    if (s != NULL)
        stop_scope(s, "acme");
    return e;
}

static semel_err peek_if_up(semel_store *st, const semel_hash *key, semel_room *room,
                            semel_record *cur, int64_t *now)
{
    return is_down ? SEMEL_E_NOT_FOUND : sm_store_memory.peek(st, key, room, cur, now);
}

static semel_err query_effects(semel_store *st, const semel_filter *filter, uint64_t *cursor,
                               size_t limit, semel_record_sink *sink, void *context,
                               semel_fault *fault)
{
    asked_for_documents += filter->scope.n > 0 && filter->scope.p[0] == '/';
    return sm_store_memory.query(st, filter, cursor, limit, sink, context, fault);
}

static ledger ledger_of_own_store(const char *contract)
{
    static semel_store_ops own;
    own = sm_store_memory;
    own.get = get_if_up;
    own.peek = peek_if_up;
    own.query = query_effects;
    is_down = has_lost = false;
    asked = restored = NULL;
    reads_left = -1;
    semel_options o = {.size = sizeof o,
                       .url = "memory:",
                       .store = &own,
                       .contract = sm_str_from(contract),
                       .one_shot = true};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    return l;
}

static void repeat(ledger *l, const char *scope, int times)
{
    begin_in(l, scope, "t");
    expect_execute(l);
    commit(l, "1");
    for (int n = 1; n < times; n++)
        begin_in(l, scope, "t");
}

static void closing_ends_although_the_store_fails_and_runs_repeat_themselves(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
    for (int n = 0; n < 64; n++) { /* more than there are stripes */
        char scope[16];
        snprintf(scope, sizeof scope, "run-%d", n);
        repeat(&l, scope, 2);
    }
    is_down = true;
    alarm(60); /* else it goes on for ever */
    end_ledger(&l);
    alarm(0);
}

/* It counts its versions anew then. */
static void a_board_that_the_store_has_lost_is_not_believed(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
    bool changed;
    semel_stop(l.s, SEMEL_STOP_SCOPE, SM_STR("acme"), (sm_str){0}, SM_STR("why"), &changed, NULL);
    begin_in(&l, "acme", "t");
    expect_refused(&l, SEMEL_C_STOPPED);
    has_lost = true;
    assert_int_equal(sm_board_refresh(l.s, 0, NULL), SM_OK);
    begin_in(&l, "acme", "t");
    expect_execute(&l);
    end_ledger(&l);
}

/* The ledger was restored from a copy: what was stopped there holds, however often it changed. */
static void a_board_that_was_restored_is_the_one_that_holds(void **state)
{
    (void)state;
    for (int changes = 1; changes <= 2; changes++) {
        ledger l = ledger_of_own_store(TOOLS("t: {class: write}")),
               copy = ledger_of_own_store(TOOLS("t: {class: write}"));
        if (changes == 2)
            stop_scope(l.s, "zeta");
        stop_scope(l.s, "acme");
        stop_scope(copy.s, "other");
        semel_store *from = asked;
        begin_in(&l, "acme", "t");
        expect_refused(&l, SEMEL_C_STOPPED);
        restored = from;
        assert_int_equal(sm_board_refresh(l.s, 0, NULL), SM_OK);
        restored = NULL;
        begin_in(&l, "acme", "t");
        expect_execute(&l);
        begin_in(&l, "other", "t");
        expect_refused(&l, SEMEL_C_STOPPED);
        end_ledger(&copy);
        end_ledger(&l);
    }
}

/* Its answer is older than what this process has written since. */
static void a_read_that_was_long_under_way_takes_no_stop_off_the_board(void **state)
{
    (void)state;
    for (int before = 0; before < 2; before++) {
        ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
        if (before > 0)
            stop_scope(l.s, "other");
        stops_meanwhile = l.s;
        assert_int_equal(sm_board_refresh(l.s, 0, NULL), SM_OK);
        assert_null(stops_meanwhile);
        begin_in(&l, "acme", "t");
        expect_refused(&l, SEMEL_C_STOPPED);
        end_ledger(&l);
    }
}

static void of_two_stops_at_once_both_hold(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
    stop_scope(l.s, "zeta");
    stops_meanwhile = l.s; /* acme, after it was read for the other one */
    stop_scope(l.s, "other");
    static const char *const scopes[] = {"zeta", "acme", "other"};
    for (size_t i = 0; i < COUNT(scopes); i++) {
        begin_in(&l, scopes[i], "t");
        expect_refused(&l, SEMEL_C_STOPPED);
    }
    end_ledger(&l);
}

static void nothing_begins_while_nobody_can_tell_what_is_stopped(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
    reads_left = 1; /* that of the effect */
    assert_int_equal(begin_in(&l, "acme", "t"), SEMEL_E_UNAVAILABLE);
    assert_true(l.a->claim.p == NULL);
    reads_left = -1;
    begin_in(&l, "acme", "t");
    expect_execute(&l);
    end_ledger(&l);
}

/* What the ledger says is stopped, whatever this handle has read of it. */
static void put_board(ledger *l, const char *json)
{
    static const sm_shared board = {.kind = "/board"};
    semel_answer *a = semel_answer_new();
    sm_work *w = sm_work_start(a);
    sm_str text;
    assert_int_equal(sm_shared_read(l->s, w, &board, &text), SM_OK);
    sm_body_start(w);
    assert_int_equal(sm_shared_write(l->s, w, &board, sm_str_from(json), SM_N_STOPPED, SM_STR("x")),
                     SM_OK);
    semel_answer_free(a);
}

static void a_run_that_looped_long_ago_is_off_the_board_when_it_is_next_written(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
    put_board(&l, "{\"halts\":[{\"kind\":\"loop\",\"name\":\"old\",\"count\":8,\"at\":1}]}");
    begin_in(&l, "old", "t");
    expect_refused(&l, SEMEL_C_LOOP_DETECTED);
    stop_scope(l.s, "other");
    begin_in(&l, "old", "t");
    expect_execute(&l);
    end_ledger(&l);
}

static void what_a_person_has_stopped_is_told_before_a_loop(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
    put_board(&l, "{\"halts\":[{\"kind\":\"loop\",\"name\":\"acme\",\"count\":8,\"at\":1},"
                  "{\"kind\":\"scope\",\"name\":\"acme\",\"by\":\"carol\",\"at\":1}]}");
    begin_in(&l, "acme", "t");
    expect_refused(&l, SEMEL_C_STOPPED);
    end_ledger(&l);
}

static void nothing_begins_while_the_board_cannot_be_read(void **state)
{
    (void)state;
    static const char *const damaged[] = {"[]", "{}", "{\"halts\":[{\"kind\":\"nothing\"}]}",
                                          "{\"halts\":[],\"circuits\":[{}]}"};
    for (size_t i = 0; i < COUNT(damaged); i++) {
        ledger l = ledger_of_own_store(TOOLS("t: {class: write}"));
        put_board(&l, damaged[i]);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(begin_in(&l, "acme", "t"), SEMEL_E_CORRUPT);
            assert_true(l.a->claim.p == NULL);
        }
        bool changed;
        assert_int_equal(semel_stop(l.s, SEMEL_STOP_ALL, (sm_str){0}, (sm_str){0}, SM_STR("why"),
                                    &changed, NULL),
                         SEMEL_E_CORRUPT);
        end_ledger(&l);
    }
}

/* ---- what is told at the end -----------------------------------------------------------------*/

enum { RUNS = 600 };

static unsigned told;             /* how often somebody was told of a run */
static unsigned calls_told[RUNS]; /* of how many calls of each, the last time */

static void note_told(const semel_write *w)
{
    unsigned run, calls;
    char step[32], body[600];
    if (!sm_str_is(w->next.scope, "/loop"))
        return;
    snprintf(step, sizeof step, "%.*s", SM_FMT(w->next.step));
    snprintf(body, sizeof body, "%.*s", SM_FMT(w->event.body));
    const char *at = strstr(body, "\"calls\":");
    if (at == NULL)
        return; /* a person has reopened it */
    assert_int_equal(sscanf(at, "\"calls\":%u", &calls), 1);
    assert_int_equal(sscanf(step, "run-%u", &run), 1);
    assert_in_range(run, 0, RUNS - 1);
    told++;
    calls_told[run] = calls;
}

static void (*meanwhile)(semel *s); /* once, when somebody has told of a run */
static semel *meanwhile_in;
static bool is_overtaken; /* the next one who changes what is told of a run */

static void go_on_meanwhile(const semel_write *w)
{
    void (*f)(semel * s) = meanwhile;
    if (!sm_str_is(w->next.scope, "/loop") || f == NULL)
        return;
    meanwhile = NULL;
    f(meanwhile_in);
}

static semel_err note_claim(semel_store *st, const semel_write *w, semel_room *room,
                            semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    semel_err e = sm_store_memory.claim(st, w, room, cur, now, inserted, fault);
    if (e == SEMEL_OK && *inserted) {
        note_told(w);
        go_on_meanwhile(w);
    }
    return e;
}

static semel_err note_apply(semel_store *st, const semel_write *w, semel_room *room,
                            semel_record *cur, int64_t *now, semel_fault *fault)
{
    if (is_overtaken && sm_str_is(w->next.scope, "/loop")) {
        is_overtaken = false;
        return SEMEL_E_STALE;
    }
    semel_err e = sm_store_memory.apply(st, w, room, cur, now, fault);
    if (e == SEMEL_OK)
        note_told(w);
    return e;
}

static ledger ledger_that_notes(const char *contract)
{
    static semel_store_ops own;
    own = sm_store_memory;
    own.get = get_if_up;
    own.claim = note_claim;
    own.apply = note_apply;
    is_down = has_lost = is_overtaken = false;
    restored = NULL;
    reads_left = -1;
    meanwhile = NULL;
    semel_options o = {
        .size = sizeof o, .url = "memory:", .store = &own, .contract = sm_str_from(contract)};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    told = 0;
    memset(calls_told, 0, sizeof calls_told);
    return l;
}

static void at_its_end_a_process_tells_of_the_newest_runs_that_were_not_warned(void **state)
{
    (void)state;
    ledger l = ledger_that_notes(TOOLS("t: {class: write}"));
    for (int n = 0; n < RUNS; n++) {
        char scope[16];
        snprintf(scope, sizeof scope, "run-%d", n);
        repeat(&l, scope, n % 2 + 1); /* every other one repeats nothing */
    }
    assert_int_equal(told, 0);
    end_ledger(&l);
    expect(told > 64 && told <= 256, "told of %u", told);
    for (int n = 0; n < RUNS; n += 2)
        assert_int_equal(calls_told[n], 0);
    assert_int_equal(calls_told[RUNS - 1], 2);
}

/* What a run did since its warning is lost otherwise. */
static void at_its_end_a_process_tells_of_all_runs_that_were_warned(void **state)
{
    (void)state;
    ledger l = ledger_that_notes(TOOLS("t: {class: write, loop: {warn: 2, block: off}}"));
    for (int n = 0; n < RUNS; n++) {
        char scope[16];
        snprintf(scope, sizeof scope, "run-%d", n);
        repeat(&l, scope, 3);
    }
    end_ledger(&l);
    for (int n = 0; n < RUNS; n++)
        expect(calls_told[n] == 3, "told of %u calls of run %d", calls_told[n], n);
}

static void repeat_slowly(semel *s)
{
    ledger l = {.s = s, .a = semel_answer_new()};
    usleep(150000); /* else it would not be told of again in any case */
    begin_in(&l, "run-0", "t");
    expect_replay(&l, "1");
    semel_answer_free(l.a);
}

/* Neither is it told twice of the same calls, nor is what came meanwhile left out. */
static void a_call_that_comes_while_the_ledger_is_told_of_its_run_is_told_of_once(void **state)
{
    (void)state;
    ledger l = ledger_that_notes(TOOLS("t: {class: write, loop: {warn: 2, block: 20}}"));
    sm_loop seen;
    repeat(&l, "run-0", 1);
    meanwhile_in = l.s;
    meanwhile = repeat_slowly;
    begin_in(&l, "run-0", "t");
    expect_replay(&l, "1");
    assert_null(meanwhile);
    assert_int_equal(sm_runs_look(l.s, SM_STR("run-0"), &seen, NULL), SM_OK);
    assert_int_equal(seen.calls, 3);
    assert_int_equal(sm_loop_now(&seen, 4).count, 3);
    end_ledger(&l);
    assert_int_equal(calls_told[0], 3);
}

static void reopen(semel *s)
{
    bool changed;
    assert_int_equal(
        semel_scope_reset(s, SM_STR("run-0"), SM_STR("carol"), SM_STR("why"), &changed, NULL),
        SEMEL_OK);
    assert_true(changed);
}

static void a_run_that_is_reopened_while_the_ledger_is_told_of_it_begins_anew(void **state)
{
    (void)state;
    ledger l = ledger_that_notes(TOOLS("t: {class: write, loop: {warn: 2, block: 3}}"));
    repeat(&l, "run-0", 1);
    meanwhile_in = l.s;
    meanwhile = reopen;
    for (int i = 1; i <= 2; i++) { /* the first of them is the first again */
        begin_in(&l, "run-0", "t");
        expect_replay(&l, "1");
        assert_int_equal(l.a->warning.p != NULL, i == 2);
    }
    begin_in(&l, "run-0", "t");
    expect_refused(&l, SEMEL_C_LOOP_DETECTED);
    end_ledger(&l);
}

static void a_run_is_told_of_although_others_are_faster_or_the_ledger_was_away(void **state)
{
    (void)state;
    for (int away = 0; away < 2; away++) {
        ledger l = ledger_that_notes(TOOLS("t: {class: write, loop: {warn: 2, block: 3}}"));
        repeat(&l, "run-0", 1);
        reads_left = away ? 0 : -1;
        begin_in(&l, "run-0", "t");
        expect_replay(&l, "1");
        assert_int_equal(told, !away);
        reads_left = -1;
        is_overtaken = !away;
        begin_in(&l, "run-0", "t");
        expect_refused(&l, SEMEL_C_LOOP_DETECTED);
        assert_false(is_overtaken);
        assert_int_equal(calls_told[0], 2);
        end_ledger(&l);
    }
}

/* Of a distant store the record comes with the insertion only, so a guard is asked twice. */
static void a_call_that_is_looked_at_twice_counts_once(void **state)
{
    (void)state;
    semel_store_ops own = sm_store_memory;
    own.peek = NULL;
    semel_options o = {.size = sizeof o,
                       .url = "memory:",
                       .store = &own,
                       .one_shot = true,
                       .contract = SM_STR(TOOLS("t: {class: write}"))};
    ledger l = {.a = semel_answer_new()};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    semel_call call = call_of("t", "{}");
    call.key = SM_STR("k"); /* what is called does not tell by itself that it is new */
    for (int i = 1; i <= 4; i++) {
        take(&l, semel_begin(l.s, &call, l.a));
        expect_execute(&l);
        commit_as(&l, l.claim, SEMEL_FAILURE, SEMEL_APPLIED_NO, "1");
    }
    for (uint32_t count = 5; count <= 8; count++) {
        take(&l, semel_begin(l.s, &call, l.a));
        expect_refused(&l, SEMEL_C_LOOP_DETECTED);
        assert_int_equal(l.a->count, count);
    }
    end_ledger(&l);
}

static void a_list_of_runs_reads_the_loop_state_of_its_page_only(void **state)
{
    (void)state;
    ledger l = ledger_of_own_store(TOOLS("t: {class: write}, other: {class: write}"));
    for (int n = 0; n < 5; n++) {
        char scope[16];
        snprintf(scope, sizeof scope, "others/%d", n);
        repeat(&l, scope, 6);
    }
    repeat(&l, "acme/1", 6);
    repeat(&l, "acme/3", 1);
    semel_str text;
    semel_scope_query q = {.size = sizeof q, .scope = SM_STR("acme")};
    asked_for_documents = 0;
    assert_int_equal(semel_scope_list(l.s, &q, l.a, &text), SEMEL_OK);
    assert_int_equal(asked_for_documents, 0);
    /* How much the ledger knows of a run depends on time. */
    static const char warned[] = "\"scope\":\"acme/1\",\"state\":\"warned\"",
                      looping[] = "\"scope\":\"acme/1\",\"state\":\"looping\"",
                      fine[] = "\"scope\":\"acme/3\",\"state\":\"ok\"";
    expect(memmem(text.p, text.n, warned, sizeof warned - 1) != NULL ||
               memmem(text.p, text.n, looping, sizeof looping - 1) != NULL,
           "%.*s", SM_FMT(text));
    expect(memmem(text.p, text.n, fine, sizeof fine - 1) != NULL, "%.*s", SM_FMT(text));
    end_ledger(&l);
}

/* A store that cannot be read any more when it has acknowledged a claim, which took long. */
static semel_err last_claim(semel_store *st, const semel_write *w, semel_room *room,
                            semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    semel_err e = sm_store_memory.claim(st, w, room, cur, now, inserted, fault);
    if (cur->scope.p[0] != '/') {
        reads_left = 0;
        usleep(600000); /* longer than the board is believed without looking */
    }
    return e;
}

static void what_nobody_can_tell_to_be_stopped_does_not_run_after_its_claim(void **state)
{
    (void)state;
    semel_store_ops own = sm_store_memory;
    own.claim = last_claim;
    own.get = get_if_up;
    semel_options o = {.size = sizeof o,
                       .url = "memory:",
                       .store = &own,
                       .one_shot = true,
                       .contract =
                           SM_STR(TOOLS("t: {class: write}, o: {class: write, mode: observe}"))};
    for (int observes = 0; observes < 2; observes++) {
        ledger l = {.a = semel_answer_new()};
        is_down = has_lost = false;
        reads_left = -1;
        assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
        begin_in(&l, "acme", observes ? "o" : "t");
        reads_left = -1;
        if (observes)
            expect_execute(&l);
        else
            expect_refused(&l, SEMEL_C_LEDGER_UNAVAILABLE);
        assert_int_equal(l.a->claim.p != NULL, observes);
        end_ledger(&l);
    }
}

/* A store whose claim takes so long that the button is pressed meanwhile. */
static semel *stopper;
static semel_stop_kind stops;
static const char *stopped;

static semel_err slow_claim(semel_store *st, const semel_write *w, semel_room *room,
                            semel_record *cur, int64_t *now, bool *inserted, semel_fault *fault)
{
    semel_err e = sm_store_sqlite.claim(st, w, room, cur, now, inserted, fault);
    if (e == SEMEL_OK && stopper != NULL && cur->tool.n == 1) {
        semel *s = stopper;
        bool changed;
        stopper = NULL;
        semel_stop(s, stops, sm_str_from(stopped), SM_STR("carol"), SM_STR("enough"), &changed,
                   NULL);
        assert_true(changed);
        usleep(600000); /* longer than the board is believed without looking */
    }
    return e;
}

static void acknowledged_after(semel_stop_kind kind, const char *name)
{
    char url[512];
    strcpy(url, fresh_url());
    semel_store_ops slow = sm_store_sqlite;
    slow.claim = slow_claim;
    semel_options o = {.size = sizeof o, .url = url, .store = &slow};
    ledger l = {.a = semel_answer_new()}, m = {.s = open_ledger(url, NULL, true)};
    assert_int_equal(semel_open(&o, &l.s, NULL), SEMEL_OK);
    stopper = m.s;
    stops = kind;
    stopped = name;
    begin_in(&l, "acme/1", "t");
    expect_refused(&l, SEMEL_C_STOPPED);
    assert_true(l.a->claim.p == NULL);
    bool changed;
    semel_resume(m.s, kind, sm_str_from(name), (sm_str){0}, (sm_str){0}, &changed, NULL);
    assert_true(changed);
    for (int tries = 0;
         tries < 3000 && begin_in(&l, "acme/1", "t") == SEMEL_OK && l.a->verdict != SEMEL_EXECUTE;
         tries++) {
        sm_board_refresh(l.s, 0, NULL);
        usleep(10000); /* until the claim is taken back: nothing was done */
    }
    expect_execute(&l);
    semel_close(m.s);
    end_ledger(&l);
}

static void a_write_that_was_acknowledged_after_the_stop_does_not_run(void **state)
{
    (void)state;
    acknowledged_after(SEMEL_STOP_SCOPE, "acme");
    acknowledged_after(SEMEL_STOP_TOOL, "t");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stop_button_works_after_more_runs_have_looped_than_have_room),
        cmocka_unit_test(open_circuits_are_listed_for_those_who_see_everything),
        cmocka_unit_test(whoever_is_bound_resumes_what_those_stopped_who_are_bound_as_well),
        cmocka_unit_test(a_stop_of_somebody_who_is_not_bound_takes_the_place_of_a_bound_ones),
    };
    const struct CMUnitTest filed[] = {
        cmocka_unit_test(a_write_that_was_acknowledged_after_the_stop_does_not_run),
    };
    const struct CMUnitTest once[] = {
        cmocka_unit_test(closing_ends_although_the_store_fails_and_runs_repeat_themselves),
        cmocka_unit_test(a_board_that_the_store_has_lost_is_not_believed),
        cmocka_unit_test(a_board_that_was_restored_is_the_one_that_holds),
        cmocka_unit_test(a_read_that_was_long_under_way_takes_no_stop_off_the_board),
        cmocka_unit_test(nothing_begins_while_nobody_can_tell_what_is_stopped),
        cmocka_unit_test(a_run_that_looped_long_ago_is_off_the_board_when_it_is_next_written),
        cmocka_unit_test(of_two_stops_at_once_both_hold),
        cmocka_unit_test(what_a_person_has_stopped_is_told_before_a_loop),
        cmocka_unit_test(nothing_begins_while_the_board_cannot_be_read),
        cmocka_unit_test(what_nobody_can_tell_to_be_stopped_does_not_run_after_its_claim),
        cmocka_unit_test(at_its_end_a_process_tells_of_the_newest_runs_that_were_not_warned),
        cmocka_unit_test(at_its_end_a_process_tells_of_all_runs_that_were_warned),
        cmocka_unit_test(a_call_that_comes_while_the_ledger_is_told_of_its_run_is_told_of_once),
        cmocka_unit_test(a_run_that_is_reopened_while_the_ledger_is_told_of_it_begins_anew),
        cmocka_unit_test(a_run_is_told_of_although_others_are_faster_or_the_ledger_was_away),
        cmocka_unit_test(a_call_that_is_looked_at_twice_counts_once),
        cmocka_unit_test(a_list_of_runs_reads_the_loop_state_of_its_page_only),
    };
    int failed = run_on_stores(tests, COUNT(tests), NULL, 0, filed, COUNT(filed));
    return failed + cmocka_run_group_tests(once, NULL, NULL);
}
