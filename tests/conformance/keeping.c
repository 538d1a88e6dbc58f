/* Housekeeping: what purge takes and what it leaves, and what health says. */
#include "conformance.h"

/* Purges until nothing is left to do; returns how much went. */
static uint64_t purge_all(ledger *l, uint64_t events_to, int64_t notes_before)
{
    uint64_t done = 0;
    bool left = true;
    for (size_t i = 0; left; i++) {
        expect(i < 1000, "purge finds no end");
        expect_error(l->ops->purge(l->st, 100, events_to, notes_before, &done, &left, NULL),
                     SEMEL_OK);
    }
    return done;
}

/* A new key, settled, with times relative to now (0: never). */
static semel_record ended(ledger *l, uint64_t n, int64_t result_ms, int64_t window_ms,
                          int64_t purge_ms)
{
    semel_write w = fresh(n);
    semel_record cur = claim_new(l, &w);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    set_windows(&w.next, result_ms, window_ms, purge_ms);
    return apply_to(l, &w);
}

static bool is_there(ledger *l, uint64_t n)
{
    semel_hash key = key_of(n);
    semel_record cur;
    semel_err err = try_get(l, &(semel_ref){.key = &key}, &cur);
    expect(err == SEMEL_OK || err == SEMEL_E_NOT_FOUND, "got %s", semel_err_name(err));
    return err == SEMEL_OK;
}

/* ---- records ---------------------------------------------------------------------------------*/

static void there_is_nothing_to_purge_in_a_new_ledger(void **state)
{
    ledger *l = *state;
    uint64_t done = 5;
    bool left = true;
    expect_error(l->ops->purge(l->st, 100, UINT64_MAX / 2, clock_ms(), &done, &left, NULL),
                 SEMEL_OK);
    assert_false(left);
    assert_int_equal(done, 5);
}

static void outcomes_go_first_then_arguments_then_records(void **state)
{
    ledger *l = *state;
    ended(l, 1, -3000, 60000, 120000);
    ended(l, 2, -3000, -2000, 120000);
    semel_record third = ended(l, 3, -3000, -2000, -1000);
    for (uint64_t n = 1; n <= 3; n++)
        peek_truly(l, n);
    assert_true(purge_all(l, 0, 0) >= 3);

    semel_record one = get_key(l, 1), two = get_key(l, 2);
    assert_null(one.outcome.p);
    expect_text(one.args, "{\"amount\":1000}");
    assert_null(two.outcome.p);
    assert_null(two.args.p);
    expect_text(two.life, "a life");
    expect_text(two.scope, "tests/conformance");
    expect_text(two.tool, "shop.charge");
    assert_int_equal(two.state, SEMEL_S_SUCCEEDED);
    assert_int_equal(two.events, 2);
    assert_false(is_there(l, 3));
    semel_record cur;
    expect_error(try_get(l, &(semel_ref){.id = third.id, .generation = 1}, &cur),
                 SEMEL_E_NOT_FOUND);
    for (uint64_t n = 1; n <= 3; n++)
        peek_truly(l, n);
    assert_int_equal(purge_all(l, 0, 0), 0);
    assert_int_equal(events_of(l, third.id, 0), 2); /* history stays */
}

static void a_key_that_was_purged_is_new_again(void **state)
{
    ledger *l = *state;
    ended(l, 1, -3000, -2000, -1000);
    purge_all(l, seal_before_purge(l), 0);
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w), got = get_key(l, 1);
    expect_written(&cur, &w, 1);
    expect_record(&got, &cur);
}

static void nothing_goes_early(void **state)
{
    ledger *l = *state;
    semel_record before[5];
    before[0] = ended(l, 1, 60000, 70000, 80000);
    before[1] = ended(l, 2, 0, 0, 0); /* never */
    semel_write w = fresh(3);
    semel_record cur = claim_new(l, &w);
    w = change(&cur, SEMEL_S_DENIED);
    w.next.result_end = w.next.window_end = w.next.purge_at = 0; /* absent */
    before[2] = apply_to(l, &w);
    w = fresh(4);
    before[3] = claim_new(l, &w);
    cur = ended(l, 5, 0, 0, 0);
    w = change(&cur, SEMEL_S_NONE);
    before[4] = apply_to(l, &w);
    assert_int_equal(purge_all(l, 0, 0), 0);
    for (size_t i = 0; i < COUNT(before); i++) {
        semel_record got = get_key(l, i + 1);
        expect_record(&got, &before[i]);
    }
}

/* What is unresolved never expires (I17), whatever its times say. */
static void what_is_live_never_goes(void **state)
{
    ledger *l = *state;
    static const semel_state live[] = {SEMEL_S_PENDING, SEMEL_S_READY, SEMEL_S_RUNNING,
                                       SEMEL_S_IN_DOUBT};
    semel_record before[COUNT(live)];
    for (size_t i = 0; i < COUNT(live); i++) {
        semel_write w = fresh(i + 1);
        w.next.state = (uint8_t)live[i];
        w.next.lease_end = w.next.due_at = w.now - 5000;
        w.next.outcome = SM_STR("half");
        set_windows(&w.next, -3000, -2000, -1000);
        before[i] = claim_new(l, &w);
    }
    assert_int_equal(purge_all(l, 0, 0), 0);
    for (size_t i = 0; i < COUNT(live); i++) {
        semel_record got = get_key(l, i + 1);
        expect_record(&got, &before[i]);
    }
}

static void every_settled_state_and_none_go(void **state)
{
    ledger *l = *state;
    uint64_t n = 0;
    for (int s = 0; s < SEMEL_S_COUNT; s++) {
        if (s != SEMEL_S_NONE && !semel_state_settled((semel_state)s))
            continue;
        semel_record cur = settled(l, ++n);
        semel_write w = change(&cur, (semel_state)s);
        set_windows(&w.next, -3000, -2000, -1000);
        apply_to(l, &w);
    }
    assert_true(purge_all(l, 0, 0) >= n);
    for (uint64_t i = 1; i <= n; i++)
        assert_false(is_there(l, i));
}

static void a_tombstone_stays_until_its_own_end(void **state)
{
    ledger *l = *state;
    for (uint64_t n = 1; n <= 2; n++) {
        semel_write w = fresh(n);
        semel_record cur = claim_new(l, &w);
        w = change(&cur, SEMEL_S_SUCCEEDED);
        set_windows(&w.next, -3000, -2000, n == 1 ? 60000 : -1000);
        w.next.tombstone = 1;
        apply_to(l, &w);
    }
    purge_all(l, 0, 0);
    semel_record one = get_key(l, 1);
    assert_int_equal(one.tombstone, 1);
    assert_null(one.args.p);
    assert_null(one.outcome.p);
    assert_false(is_there(l, 2));
}

static void each_generation_goes_by_its_own_times(void **state)
{
    ledger *l = *state;
    semel_record one = ended(l, 1, -3000, -2000, -1000), got;
    semel_write w = repeat(&one);
    semel_record two = apply_to(l, &w);
    purge_all(l, 0, 0);
    got = get_key(l, 1);
    expect_record(&got, &two);
    expect_error(try_get(l, &(semel_ref){.id = one.id, .generation = 1}, &got), SEMEL_E_NOT_FOUND);
    w = change(&two, SEMEL_S_SUCCEEDED);
    two = apply_to(l, &w);
    assert_int_equal(two.version, 2);
}

static void a_record_that_lost_its_payloads_can_be_written(void **state)
{
    ledger *l = *state;
    ended(l, 1, -3000, -2000, 60000);
    purge_all(l, 0, 0);
    semel_record cur = get_key(l, 1);
    semel_write w = change(&cur, SEMEL_S_NONE);
    w.next.outcome = cur.outcome;
    w.same_args = w.same_outcome = true;
    cur = apply_to(l, &w);
    assert_null(cur.args.p);
    assert_null(cur.outcome.p);
    w = repeat(&cur);
    w.next.args = SM_STR("{}");
    apply_to(l, &w);
    semel_record got = get_key(l, 1);
    expect_text(got.args, "{}");
}

static void purge_works_in_bounded_batches(void **state)
{
    ledger *l = *state;
    enum { N = 25 };
    for (uint64_t n = 1; n <= N; n++)
        ended(l, n, -3000, -2000, -1000);
    size_t there = N, calls = 0;
    uint64_t done = 0;
    bool left = true;
    while (left) {
        expect(++calls < 100, "purge finds no end");
        expect_error(l->ops->purge(l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
        size_t now = 0;
        for (uint64_t n = 1; n <= N; n++)
            now += is_there(l, n);
        expect(there - now <= 10, "%zu records went at once", there - now);
        expect(left || now == 0, "%zu records are left, and purge says none", now);
        there = now;
    }
    assert_true(calls >= 3);
    assert_true(done >= N);
}

/* ---- events and notes ------------------------------------------------------------------------*/

static void events_go_up_to_a_seq_and_seals_stay(void **state)
{
    ledger *l = *state;
    semel_event seal = {
        .index = 1, .at = clock_ms(), .what = SM_STR("sealed"), .body = SM_STR("{}")};
    semel_record one = settled(l, 1);
    expect_error(l->ops->seal(l->st, &seal, 0, NULL), SEMEL_OK);
    settled(l, 2);
    seen *s = seen_new();
    uint64_t after = 0;
    expect_error(l->ops->events(l->st, NULL, &after, 100, see_event, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 5);
    uint64_t seal_seq = s->events[2].seq, third = s->events[3].seq, last = s->events[4].seq;

    assert_int_equal(purge_all(l, third, 0), 3);
    seen_clear(s);
    after = 0;
    expect_error(l->ops->events(l->st, NULL, &after, 100, see_event, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 2);
    assert_int_equal(s->events[0].seq, seal_seq);
    assert_int_equal(s->events[1].seq, last);
    assert_int_equal(events_of(l, one.id, 0), 0);
    semel_record got = get_key(l, 1); /* records go by their own times */
    expect_record(&got, &one);

    assert_int_equal(seal_before_purge(l), last);
    purge_all(l, last, 0);
    after = last = last_seq(l); /* of the seal */
    semel_write w = change(&one, SEMEL_S_FAILED);
    apply_to(l, &w);
    /* No seq is given twice: who read up to the last one sees what came then. */
    seen_clear(s);
    expect_error(l->ops->events(l->st, NULL, &after, 100, see_event, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 1);
    assert_int_equal(events_of(l, one.id, 0), 1);
    expect_error(l->ops->seal(l->st, &seal, seal_seq, NULL), SEMEL_E_STALE);
    expect_error(l->ops->seal(l->st, &seal, last, NULL), SEMEL_OK);
    seen_free(s);
}

static void events_go_in_bounded_batches(void **state)
{
    ledger *l = *state;
    for (uint64_t n = 1; n <= 15; n++)
        settled(l, n);
    uint64_t done = 0, to = seal_before_purge(l);
    size_t there = 31, calls = 0;
    bool left = true;
    while (left) {
        expect(++calls < 100, "purge finds no end");
        expect_error(l->ops->purge(l->st, 10, to, 0, &done, &left, NULL), SEMEL_OK);
        size_t now = events_of(l, 0, 0);
        assert_true(there - now <= 10);
        there = now;
    }
    assert_int_equal(there, 1); /* the seal */
    assert_int_equal(done, 30);
}

static void notes_go_when_they_are_old(void **state)
{
    ledger *l = *state;
    int64_t t = clock_ms() - 100000;
    static const int64_t ends[] = {500, 100, 300, 200, 299};
    for (size_t i = 0; i < COUNT(ends); i++) {
        semel_note note = {.id = 1 + i % 2,
                           .first_at = t,
                           .last_at = t + ends[i],
                           .count = i,
                           .what = SM_STR("replayed"),
                           .scope = SM_STR("s"),
                           .tool = SM_STR("t")};
        expect_error(l->ops->journal(l->st, &note, 1, NULL), SEMEL_OK);
    }
    assert_int_equal(purge_all(l, 0, t + 300), 3);
    seen *s = seen_new();
    expect_error(l->ops->notes(l->st, 1, 0, 10, see_note, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 2);
    assert_int_equal(s->notes[0].count, 0);
    assert_int_equal(s->notes[1].count, 2);
    seen_clear(s);
    expect_error(l->ops->notes(l->st, 2, 0, 10, see_note, s, NULL), SEMEL_OK);
    assert_int_equal(s->n, 0);
    assert_int_equal(purge_all(l, 0, t + 1000), 2);
    seen_free(s);
}

static void write_counters(ledger *l, uint64_t n, const semel_counter *counters, size_t count)
{
    semel_write w = fresh(n);
    w.counters = counters;
    w.n_counters = count;
    claim_new(l, &w);
}

static void a_counter_goes_when_its_latest_end_is_over(void **state)
{
    ledger *l = *state;
    int64_t over = clock_ms() - 5000, later = clock_ms() + 600000;
    semel_counter first[] = {
        {SM_STR("over"), 3, INT64_MAX, over},       {SM_STR("later"), 3, INT64_MAX, later},
        {SM_STR("never"), 3, INT64_MAX, INT64_MAX}, {SM_STR("ever"), 3, INT64_MAX, 0},
        {SM_STR("kept"), 3, INT64_MAX, later},      {SM_STR("twice"), 3, INT64_MAX, over},
        {SM_STR("twice"), 3, INT64_MAX, later}};
    write_counters(l, 1, first, COUNT(first));
    semel_counter second[] = {{SM_STR("later"), 1, INT64_MAX, over},
                              {SM_STR("never"), 1, INT64_MAX, over},
                              {SM_STR("ever"), 1, INT64_MAX, over},
                              {SM_STR("kept"), 1, INT64_MAX, 0},
                              {SM_STR("kept"), 1, INT64_MAX, over}};
    write_counters(l, 2, second, COUNT(second));
    purge_all(l, 0, 0);
    assert_int_equal(counter_of(l, "over"), 0);
    assert_int_equal(counter_of(l, "later"), 4);
    assert_int_equal(counter_of(l, "never"), 4);
    assert_int_equal(counter_of(l, "ever"), 4);
    assert_int_equal(counter_of(l, "kept"), 5);
    assert_int_equal(counter_of(l, "twice"), 6);
    semel_counter again = {SM_STR("over"), 1, 1, later}; /* it begins anew */
    write_counters(l, 3, &again, 1);
    purge_all(l, 0, 0);
    assert_int_equal(counter_of(l, "over"), 1);
    semel_health h;
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
}

static void counters_go_in_bounded_batches(void **state)
{
    ledger *l = *state;
    int64_t over = clock_ms() - 5000;
    for (uint64_t n = 1; n <= 25; n++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", (int)n);
        semel_counter c = {sm_str_from(name), 1, INT64_MAX, over};
        write_counters(l, n, &c, 1);
    }
    uint64_t done = 0;
    bool left = true;
    for (int rounds = 0; left; rounds++) {
        uint64_t before = done;
        assert_true(rounds < 30);
        expect_error(l->ops->purge(l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
        assert_true(done - before <= 10);
    }
    for (int n = 1; n <= 25; n++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", n);
        assert_int_equal(counter_of(l, name), 0);
    }
}

/* ---- health ----------------------------------------------------------------------------------*/

static void health_tells_what_is_there(void **state)
{
    ledger *l = *state;
    semel_health h;
    memset(&h, 0xFF, sizeof h);
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    assert_int_equal(h.records, 0);
    assert_int_equal(h.last_seq, 0);
    assert_int_equal(h.seal_seq, 0);
    assert_int_equal(h.seal_index, 0);
    assert_int_equal(h.oldest_event_at, 0);
    assert_true(h.where[0] != '\0' && memchr(h.where, '\0', sizeof h.where) != NULL);
    for (size_t i = 0; i < SEMEL_S_COUNT; i++)
        assert_int_equal(h.in_state[i], 0);

    static const semel_state states[] = {SEMEL_S_PENDING, SEMEL_S_READY,    SEMEL_S_READY,
                                         SEMEL_S_RUNNING, SEMEL_S_IN_DOUBT, SEMEL_S_SUCCEEDED};
    int64_t at = clock_ms() - 5000;
    for (size_t i = 0; i < COUNT(states); i++) {
        semel_write w = fresh(i + 1);
        w.next.state = (uint8_t)states[i];
        w.event.at = at + (int64_t)i;
        claim_new(l, &w);
    }
    semel_record one = get_key(l, 1);
    semel_write w = change(&one, SEMEL_S_RUNNING);
    apply_to(l, &w);
    expect_error(l->ops->health(l->st, true, &h, NULL), SEMEL_OK);
    assert_int_equal(h.records, COUNT(states));
    assert_int_equal(h.in_state[SEMEL_S_PENDING], 0);
    assert_int_equal(h.in_state[SEMEL_S_READY], 2);
    assert_int_equal(h.in_state[SEMEL_S_RUNNING], 2);
    assert_int_equal(h.in_state[SEMEL_S_IN_DOUBT], 1);
    assert_int_equal(h.in_state[SEMEL_S_SUCCEEDED], 0); /* settled ones are not counted */
    assert_int_equal(h.oldest_event_at, at);
    assert_true(h.bytes > 0);

    uint64_t after = 0;
    seen *s = seen_new();
    expect_error(l->ops->events(l->st, NULL, &after, 100, see_event, s, NULL), SEMEL_OK);
    assert_int_equal(h.last_seq, after);
    purge_all(l, s->events[0].seq, 0);
    expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
    assert_int_equal(h.oldest_event_at, at + 1);
    assert_true(h.purged_to == 0 || h.purged_to == s->events[0].seq);
    assert_int_equal(seal_before_purge(l), after);
    uint64_t last = last_seq(l);
    purge_all(l, after, 0);
    expect_error(l->ops->health(l->st, false, &h, NULL), SEMEL_OK);
    assert_int_equal(h.oldest_event_at, 0);
    assert_int_equal(h.last_seq, last); /* it never falls */
    assert_true(h.purged_to == 0 || h.purged_to == after);
    seen_free(s);
}

static void a_try_to_write_changes_nothing(void **state)
{
    ledger *l = *state;
    if (l->ops->try_write == NULL)
        skip();
    semel_write w = fresh(1);
    claim_new(l, &w);
    uint64_t seq = last_seq(l);
    for (int i = 0; i < 3; i++)
        expect_error(l->ops->try_write(l->st, NULL), SEMEL_OK);
    assert_int_equal(last_seq(l), seq);
    semel_record one = get_key(l, 1);
    assert_int_equal(one.version, 1);
}

int keeping_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(there_is_nothing_to_purge_in_a_new_ledger),
        on_ledger(outcomes_go_first_then_arguments_then_records),
        on_ledger(a_key_that_was_purged_is_new_again),
        on_ledger(nothing_goes_early),
        on_ledger(what_is_live_never_goes),
        on_ledger(every_settled_state_and_none_go),
        on_ledger(a_tombstone_stays_until_its_own_end),
        on_ledger(each_generation_goes_by_its_own_times),
        on_ledger(a_record_that_lost_its_payloads_can_be_written),
        on_ledger(purge_works_in_bounded_batches),
        on_ledger(events_go_up_to_a_seq_and_seals_stay),
        on_ledger(events_go_in_bounded_batches),
        on_ledger(notes_go_when_they_are_old),
        on_ledger(a_counter_goes_when_its_latest_end_is_over),
        on_ledger(counters_go_in_bounded_batches),
        on_ledger(health_tells_what_is_there),
        on_ledger(a_try_to_write_changes_nothing),
    };
    return cmocka_run_group_tests_name("keeping", tests, NULL, NULL);
}
