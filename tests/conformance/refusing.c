/* What refuses a write: the barrier of a group, counters with caps, an id that two keys share. A
 * refused write leaves no trace. */
#include "conformance.h"

static semel_hash group_of(int n)
{
    semel_hash h;
    memset(&h, n, sizeof h);
    return h;
}

/* A claim that asks for the barrier of a group; group 0 is none. */
static semel_write guarded(uint64_t n, int group)
{
    semel_write w = fresh(n);
    w.next.group = group_of(group);
    w.barred_by_group = true;
    return w;
}

static void expect_barred(ledger *l, const semel_write *w, const semel_record *by)
{
    uint64_t seq = last_seq(l);
    semel_record cur;
    bool inserted = true;
    expect_error(try_claim(l, w, &cur, &inserted), SEMEL_E_BARRED);
    assert_false(inserted);
    expect_record(&cur, by);
    expect_error(try_get(l, &(semel_ref){.key = &w->next.key}, &cur), SEMEL_E_NOT_FOUND);
    assert_int_equal(last_seq(l), seq);
}

/* ---- the barrier -----------------------------------------------------------------------------*/

static void one_in_doubt_bars_the_others_of_its_group(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 1);
    semel_record one = claim_new(l, &w);
    w = change(&one, SEMEL_S_IN_DOUBT);
    one = apply_to(l, &w);

    semel_write two = guarded(2, 1);
    expect_barred(l, &two, &one);
    w = guarded(3, 2); /* another group */
    claim_new(l, &w);
    w = guarded(4, 1); /* that does not ask */
    w.barred_by_group = false;
    claim_new(l, &w);

    w = change(&one, SEMEL_S_FAILED);
    apply_to(l, &w);
    claim_new(l, &two);
}

/* Gives memory a few times, and then no more. */
typedef struct narrow {
    semel_room room; /* first */
    desk *desk;
    size_t left;
} narrow;

static void *narrow_alloc(semel_room *room, size_t n)
{
    narrow *r = (narrow *)(void *)room;
    if (r->left == 0)
        return NULL;
    r->left--;
    return r->desk->room.alloc(&r->desk->room, n);
}

static void what_bars_is_told_whole_or_not_at_all(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 1);
    semel_record one = claim_new(l, &w), cur;
    w = change(&one, SEMEL_S_IN_DOUBT);
    one = apply_to(l, &w);
    semel_err e = SEMEL_E_NOMEM;
    w = guarded(2, 1);
    for (size_t n = 0; e == SEMEL_E_NOMEM && n < 10; n++) {
        narrow r = {.room = {narrow_alloc}, .desk = &l->desk, .left = n};
        int64_t now;
        bool inserted = true;
        e = l->ops->claim(l->st, &w, &r.room, &cur, &now, &inserted, NULL);
        assert_false(inserted);
        assert_true(n > 0 || e == SEMEL_E_NOMEM);
    }
    expect_error(e, SEMEL_E_BARRED);
    expect_record(&cur, &one);
}

static void a_lease_that_is_over_bars_like_a_doubt(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 1), two = guarded(2, 1);
    w.next.lease_end = clock_ms() + 60000;
    semel_record one = claim_new(l, &w);
    w = guarded(3, 1); /* a lease that lasts bars nobody */
    semel_record three = claim_new(l, &w);
    w = change(&three, SEMEL_S_SUCCEEDED);
    apply_to(l, &w);

    w = change(&one, SEMEL_S_RUNNING);
    w.next.lease_end = clock_ms() - 10;
    one = apply_to(l, &w);
    expect_barred(l, &two, &one);
    w = change(&one, SEMEL_S_RUNNING);
    w.next.lease_end = clock_ms() + 60000;
    apply_to(l, &w);
    claim_new(l, &two);
}

static void a_lease_that_runs_out_bars_without_a_write(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 1), two = guarded(2, 1);
    w.next.lease_end = w.now + 300;
    semel_record one = claim_new(l, &w);
    pause_ms(350);
    expect_barred(l, &two, &one);
}

static void only_running_and_in_doubt_bar(void **state)
{
    ledger *l = *state;
    static const semel_state states[] = {SEMEL_S_NONE,      SEMEL_S_PENDING, SEMEL_S_READY,
                                         SEMEL_S_SUCCEEDED, SEMEL_S_FAILED,  SEMEL_S_PARTIAL,
                                         SEMEL_S_DENIED,    SEMEL_S_EXPIRED, SEMEL_S_CANCELED};
    for (size_t i = 0; i < COUNT(states); i++) {
        semel_write w = guarded(10 + i, 1);
        w.next.state = (uint8_t)states[i];
        w.next.lease_end = 0;
        claim_new(l, &w);
    }
    semel_write w = guarded(1, 1);
    claim_new(l, &w);
}

static void no_group_no_barrier(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 0);
    w.next.state = SEMEL_S_IN_DOUBT;
    claim_new(l, &w);
    w = guarded(2, 0);
    claim_new(l, &w);
}

static void no_key_bars_itself(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 1);
    semel_record cur = claim_new(l, &w);
    w = change(&cur, SEMEL_S_IN_DOUBT);
    cur = apply_to(l, &w);
    w = guarded(1, 1);
    bool inserted = true;
    semel_record found;
    expect_error(try_claim(l, &w, &found, &inserted), SEMEL_OK);
    assert_false(inserted);
    w = change(&cur, SEMEL_S_RUNNING);
    w.barred_by_group = true;
    w.next.lease_end = clock_ms() + 60000;
    apply_to(l, &w);
}

static void a_barrier_refuses_changes_and_new_generations_too(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), cur;
    semel_write w = guarded(2, 1);
    semel_record two = claim_new(l, &w);
    w = change(&two, SEMEL_S_IN_DOUBT);
    two = apply_to(l, &w);

    w = change(&one, SEMEL_S_RUNNING);
    w.next.group = group_of(1);
    w.next.lease_end = clock_ms() + 60000;
    w.barred_by_group = true;
    uint64_t seq = last_seq(l);
    expect_error(try_apply(l, &w, &cur), SEMEL_E_BARRED);
    expect_record(&cur, &two);
    w = repeat(&one);
    w.next.group = group_of(1);
    w.barred_by_group = true;
    expect_error(try_apply(l, &w, &cur), SEMEL_E_BARRED);
    expect_record(&cur, &two);
    assert_int_equal(last_seq(l), seq);
    semel_record got = get_key(l, 1);
    expect_record(&got, &one);
    w.expect_version++;
    expect_error(try_apply(l, &w, &cur), SEMEL_E_STALE);
}

static void who_wants_to_be_alone_is_barred_by_who_runs(void **state)
{
    ledger *l = *state;
    semel_write w = guarded(1, 1), other = guarded(2, 1), elsewhere = guarded(3, 2);
    semel_record one = claim_new(l, &w), cur;
    bool inserted;
    other.alone = elsewhere.alone = true;
    expect_error(try_claim(l, &other, &cur, &inserted), SEMEL_E_BARRED);
    expect_record(&cur, &one);
    claim_new(l, &elsewhere);
    other.alone = false; /* what runs does not bar who does not mind */
    claim_new(l, &other);
    w = change(&one, SEMEL_S_SUCCEEDED);
    apply_to(l, &w);
    semel_write third = guarded(4, 1);
    third.alone = true;
    expect_error(try_claim(l, &third, &cur, &inserted), SEMEL_E_BARRED);
}

/* ---- time ------------------------------------------------------------------------------------*/

static void what_is_reckoned_with_another_time_is_refused(void **state)
{
    ledger *l = *state;
    needs_caps(l, SEMEL_STORE_CLOCK);
    static const int64_t off_ms[] = {-3600000, 3600000};
    uint64_t seq = last_seq(l);
    for (size_t i = 0; i < COUNT(off_ms); i++) {
        semel_write w = fresh(1);
        semel_record cur = {.version = 7};
        int64_t now = 0;
        bool inserted = true;
        w.now += off_ms[i];
        expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, NULL),
                     SEMEL_E_STALE);
        assert_int_equal(cur.version, 0);
        assert_true(now > clock_ms() - 5000 && now < clock_ms() + 5000);
    }
    assert_int_equal(last_seq(l), seq);
    semel_record one = settled(l, 1), cur;
    for (size_t i = 0; i < COUNT(off_ms); i++) {
        semel_write w = change(&one, SEMEL_S_FAILED);
        w.now += off_ms[i];
        expect_error(try_apply(l, &w, &cur), SEMEL_E_STALE);
        expect_record(&cur, &one);
    }
    semel_write w = change(&one, SEMEL_S_FAILED);
    w.now -= SEMEL_CLOCK_SLACK_MS / 2; /* a slow network is no other clock */
    apply_to(l, &w);
    w = fresh(1); /* and what is there already is given in any case */
    w.now -= 3600000;
    bool inserted = true;
    expect_error(try_claim(l, &w, &cur, &inserted), SEMEL_OK);
    assert_false(inserted);
}

static void whoever_finds_nothing_is_told_the_time(void **state)
{
    ledger *l = *state;
    semel_record cur;
    int64_t now = 0;
    expect_error(l->ops->get(l->st, &(semel_ref){.id = 12345}, &l->desk.room, &cur, &now, NULL),
                 SEMEL_E_NOT_FOUND);
    assert_true(now > clock_ms() - 5000 && now < clock_ms() + 5000);
}

/* ---- counters --------------------------------------------------------------------------------*/

static semel_err claim_counting(ledger *l, uint64_t n, const semel_counter *counters, size_t count)
{
    semel_write w = fresh(n);
    semel_record cur;
    bool inserted;
    w.counters = counters;
    w.n_counters = count;
    return try_claim(l, &w, &cur, &inserted);
}

static void counters_are_written_with_the_record(void **state)
{
    ledger *l = *state;
    assert_int_equal(counter_of(l, "calls"), 0);
    semel_counter first[] = {{SM_STR("calls"), 1, INT64_MAX, 0},
                             {SM_STR("cost/\xc3\xa9"), 250, 1000, 0}};
    expect_error(claim_counting(l, 1, first, 2), SEMEL_OK);
    assert_int_equal(counter_of(l, "calls"), 1);
    assert_int_equal(counter_of(l, "cost/\xc3\xa9"), 250);
    semel_record cur = get_key(l, 1);
    semel_write w = change(&cur, SEMEL_S_SUCCEEDED);
    semel_counter second[] = {{SM_STR("cost/\xc3\xa9"), -50, 1000, 0}};
    w.counters = second;
    w.n_counters = 1;
    apply_to(l, &w);
    assert_int_equal(counter_of(l, "calls"), 1);
    assert_int_equal(counter_of(l, "cost/\xc3\xa9"), 200);
    assert_int_equal(counter_of(l, "cost"), 0);
}

static void a_counter_reaches_its_cap_and_does_not_pass_it(void **state)
{
    ledger *l = *state;
    semel_counter c = {SM_STR("spent"), 7, 10, 0};
    expect_error(claim_counting(l, 1, &c, 1), SEMEL_OK);
    c.delta = 4;
    expect_error(claim_counting(l, 2, &c, 1), SEMEL_E_OVER_CAP);
    c.delta = 3;
    expect_error(claim_counting(l, 2, &c, 1), SEMEL_OK);
    c.delta = 1;
    expect_error(claim_counting(l, 3, &c, 1), SEMEL_E_OVER_CAP);
    assert_int_equal(counter_of(l, "spent"), 10);
    c.cap = INT64_MAX;
    c.delta = INT64_MAX - 10;
    expect_error(claim_counting(l, 3, &c, 1), SEMEL_OK);
    assert_int_equal(counter_of(l, "spent"), INT64_MAX);
}

static void a_write_over_a_cap_writes_nothing(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), cur;
    uint64_t seq = last_seq(l);
    semel_counter c[] = {
        {SM_STR("fits"), 1, 10, 0}, {SM_STR("full"), 11, 10, 0}, {SM_STR("too"), 1, 10, 0}};
    expect_error(claim_counting(l, 2, c, 3), SEMEL_E_OVER_CAP);
    semel_hash key = key_of(2);
    expect_error(try_get(l, &(semel_ref){.key = &key}, &cur), SEMEL_E_NOT_FOUND);
    semel_write w = change(&one, SEMEL_S_FAILED);
    w.counters = c;
    w.n_counters = 3;
    expect_error(try_apply(l, &w, &cur), SEMEL_E_OVER_CAP);
    semel_record got = get_key(l, 1);
    expect_record(&got, &one);
    assert_int_equal(counter_of(l, "fits"), 0);
    assert_int_equal(counter_of(l, "full"), 0);
    assert_int_equal(counter_of(l, "too"), 0);
    assert_int_equal(last_seq(l), seq);
}

static void taking_from_a_counter_is_never_refused(void **state)
{
    ledger *l = *state;
    semel_counter c = {SM_STR("spent"), 100, 100, 0};
    expect_error(claim_counting(l, 1, &c, 1), SEMEL_OK);
    c = (semel_counter){SM_STR("spent"), -1, 5, 0}; /* the cap was lowered meanwhile */
    expect_error(claim_counting(l, 2, &c, 1), SEMEL_OK);
    assert_int_equal(counter_of(l, "spent"), 99);
    c = (semel_counter){SM_STR("spent"), -200, 0, 0};
    expect_error(claim_counting(l, 3, &c, 1), SEMEL_OK);
    assert_int_equal(counter_of(l, "spent"), -101);
}

static void a_counter_named_twice_counts_twice(void **state)
{
    ledger *l = *state;
    semel_counter c[] = {{SM_STR("spent"), 6, 10, 0}, {SM_STR("spent"), 5, 10, 0}};
    expect_error(claim_counting(l, 1, c, 2), SEMEL_E_OVER_CAP);
    assert_int_equal(counter_of(l, "spent"), 0);
    c[1].delta = 4;
    expect_error(claim_counting(l, 1, c, 2), SEMEL_OK);
    assert_int_equal(counter_of(l, "spent"), 10);
}

/* ---- ids -------------------------------------------------------------------------------------*/

static void an_id_that_two_keys_share_is_damage_and_not_one_record(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), cur;
    semel_write w = fresh(2);
    w.next.id = w.event.id = one.id;
    uint64_t seq = last_seq(l);
    int64_t now;
    bool inserted = true;
    semel_fault fault = {0};
    expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault),
                 SEMEL_E_CORRUPT);
    assert_false(inserted);
    expect(fault.code == SEMEL_E_CORRUPT && fault.text[0] != '\0', "it says nothing");
    expect_error(try_get(l, &(semel_ref){.key = &w.next.key}, &cur), SEMEL_E_NOT_FOUND);
    expect_error(try_get(l, &(semel_ref){.id = one.id}, &cur), SEMEL_OK);
    expect_record(&cur, &one);
    assert_int_equal(last_seq(l), seq);
    w = fresh(2); /* with its own id it is welcome */
    claim_new(l, &w);
}

int refusing_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(one_in_doubt_bars_the_others_of_its_group),
        on_ledger(what_bars_is_told_whole_or_not_at_all),
        on_ledger(a_lease_that_is_over_bars_like_a_doubt),
        on_ledger(a_lease_that_runs_out_bars_without_a_write),
        on_ledger(only_running_and_in_doubt_bar),
        on_ledger(no_group_no_barrier),
        on_ledger(no_key_bars_itself),
        on_ledger(a_barrier_refuses_changes_and_new_generations_too),
        on_ledger(who_wants_to_be_alone_is_barred_by_who_runs),
        on_ledger(what_is_reckoned_with_another_time_is_refused),
        on_ledger(whoever_finds_nothing_is_told_the_time),
        on_ledger(counters_are_written_with_the_record),
        on_ledger(a_counter_reaches_its_cap_and_does_not_pass_it),
        on_ledger(a_write_over_a_cap_writes_nothing),
        on_ledger(taking_from_a_counter_is_never_refused),
        on_ledger(a_counter_named_twice_counts_twice),
        on_ledger(an_id_that_two_keys_share_is_damage_and_not_one_record),
    };
    return cmocka_run_group_tests_name("refusing", tests, NULL, NULL);
}
