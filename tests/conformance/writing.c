/* Claims and compare-and-swap: what is written, what comes back, versions and generations. */
#include "conformance.h"

/* ---- claim -----------------------------------------------------------------------------------*/

static void a_new_key_is_inserted(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1);
    semel_record cur;
    int64_t now = 0, before = clock_ms();
    bool inserted = false;
    w.next.version = 99; /* the store's to say */
    expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, NULL), SEMEL_OK);
    assert_true(inserted);
    expect_written(&cur, &w, 1);
    if ((l->caps & SEMEL_STORE_CLOCK) == 0)
        expect(now >= before && now <= clock_ms(), "the store's now is %lld", (long long)now);
    semel_record got = get_key(l, 1);
    expect_record(&got, &cur);
}

static void a_known_key_is_given_and_nothing_is_written(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1), other = fresh(1);
    semel_counter counter = {SM_STR("spent"), 5, INT64_MAX, 0};
    semel_record first = claim_new(l, &w), cur;
    uint64_t seq = last_seq(l);
    bool inserted = true;
    other.next.args = SM_STR("{\"amount\":2}");
    other.next.fence = 77;
    other.counters = &counter;
    other.n_counters = 1;
    expect_error(try_claim(l, &other, &cur, &inserted), SEMEL_OK);
    assert_false(inserted);
    expect_record(&cur, &first);
    assert_int_equal(counter_of(l, "spent"), 0);
    assert_int_equal(last_seq(l), seq);
    assert_int_equal(events_of(l, first.id, 0), 1);
}

static void a_claim_gives_the_newest_generation(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1);
    semel_write w = repeat(&cur);
    semel_record second = apply_to(l, &w), found;
    bool inserted = true;
    w = fresh(1);
    expect_error(try_claim(l, &w, &found, &inserted), SEMEL_OK);
    assert_false(inserted);
    expect_record(&found, &second);
}

static void texts_that_come_out_belong_to_the_caller(void **state)
{
    ledger *l = *state;
    char args[] = "{\"amount\":1}", outcome[] = "ok";
    semel_write w = fresh(1);
    w.next.args = (semel_str){args, strlen(args)};
    semel_record cur = claim_new(l, &w);
    memset(args, 'x', sizeof args - 1);
    expect_text(cur.args, "{\"amount\":1}");

    w = change(&cur, SEMEL_S_SUCCEEDED);
    w.next.outcome = (semel_str){outcome, strlen(outcome)};
    semel_record done = apply_to(l, &w);
    memset(outcome, 'x', sizeof outcome - 1);
    expect_text(done.outcome, "ok");
    semel_record got = get_key(l, 1);
    expect_text(got.outcome, "ok");
    expect_text(got.args, "{\"amount\":1}");

    /* And what was given out stays when the record changes. */
    w = repeat(&got);
    w.next.args = SM_STR("[]");
    apply_to(l, &w);
    expect_text(got.outcome, "ok");
}

static void texts_come_back_byte_for_byte(void **state)
{
    ledger *l = *state;
    char all[256];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    semel_str bytes = {all, sizeof all}, empty = SM_STR(""), absent = {0};

    semel_write w = fresh(1);
    w.next.step = w.next.caller = w.next.outcome = absent;
    w.next.life = bytes;
    semel_record cur = claim_new(l, &w), got = get_key(l, 1);
    expect_written(&cur, &w, 1);
    expect_record(&got, &cur);

    w = fresh(2);
    w.next.step = w.next.caller = w.next.args = w.next.life = w.next.outcome = empty;
    cur = claim_new(l, &w);
    got = get_key(l, 2);
    expect_written(&cur, &w, 1);
    expect_record(&got, &cur);

    w = fresh(3);
    w.next.step = SM_STR("7");
    w.next.caller = SM_STR("order-\xc3\xa9");
    w.next.args = w.next.life = absent;
    w.next.outcome = bytes;
    cur = claim_new(l, &w);
    got = get_key(l, 3);
    expect_written(&cur, &w, 1);
    expect_record(&got, &cur);
}

static void a_mebibyte_comes_back(void **state)
{
    ledger *l = *state;
    size_t n = (size_t)1 << 20;
    char *big = malloc(n);
    uint64_t seed = 1;
    assert_non_null(big);
    for (size_t i = 0; i < n; i++)
        big[i] = (char)next_random(&seed);
    semel_write w = fresh(1);
    w.next.args = (semel_str){big, n};
    semel_record cur = claim_new(l, &w);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    w.next.outcome = (semel_str){big, n};
    w.same_args = true;
    cur = apply_to(l, &w);
    expect_written(&cur, &w, 2);
    semel_record got = get_key(l, 1);
    expect_record(&got, &cur);
    free(big);
}

static void numbers_come_back_whole(void **state)
{
    ledger *l = *state;
    for (uint64_t n = 1; n < 40; n++) { /* about half of the ids have their highest bit set */
        semel_write w = fresh(n);
        char scope[24];
        snprintf(scope, sizeof scope, "tenant-%u/x", (unsigned)n);
        w.next.scope = sm_str_from(scope);
        w.next.shard = w.event.shard = shard_of(scope);
        w.next.state = (uint8_t)(n % SEMEL_S_COUNT);
        w.next.tombstone = n & 1;
        w.next.fence = n == 5 ? UINT64_MAX : (n << 50) + n;
        memset(&w.next.group, (int)n, sizeof w.next.group);
        w.next.lease_end = n & 1 ? 0 : INT64_MAX;
        w.next.due_at = n & 2 ? 0 : INT64_MAX;
        w.next.settled_at = n & 4 ? 0 : w.now;
        w.next.result_end = n & 8 ? 0 : INT64_MAX;
        w.next.window_end = n & 16 ? 0 : INT64_MAX;
        w.next.purge_at = INT64_MAX;
        semel_record cur = claim_new(l, &w), got = get_key(l, n);
        expect_written(&cur, &w, 1);
        expect_record(&got, &cur);
    }
}

/* ---- apply -----------------------------------------------------------------------------------*/

static void a_write_replaces_the_record_and_its_version_grows_by_one(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w);
    static const semel_state walk[] = {SEMEL_S_IN_DOUBT, SEMEL_S_READY, SEMEL_S_RUNNING,
                                       SEMEL_S_FAILED,   SEMEL_S_NONE,  SEMEL_S_PENDING};
    for (size_t i = 0; i < COUNT(walk); i++) {
        w = change(&cur, walk[i]);
        w.next.fence = 100 + i;
        w.next.life = SM_STR("another life");
        cur = apply_to(l, &w);
        expect_written(&cur, &w, i + 2);
        semel_record got = get_key(l, 1);
        expect_record(&got, &cur);
    }
    assert_int_equal(events_of(l, cur.id, 1), COUNT(walk) + 1);
}

static void apply_tells_the_time(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1), next;
    semel_write w = change(&cur, SEMEL_S_FAILED);
    int64_t now = 0, got_now = 0, before = clock_ms();
    semel_hash key = key_of(1);
    expect_error(l->ops->apply(l->st, &w, &l->desk.room, &next, &now, NULL), SEMEL_OK);
    expect_error(
        l->ops->get(l->st, &(semel_ref){.key = &key}, &l->desk.room, &next, &got_now, NULL),
        SEMEL_OK);
    assert_true(got_now >= now);
    if ((l->caps & SEMEL_STORE_CLOCK) == 0)
        assert_true(now >= before && got_now <= clock_ms());
}

static void another_version_is_stale_and_nothing_is_written(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1), now;
    semel_counter counter = {SM_STR("spent"), 5, INT64_MAX, 0};
    uint64_t seq = last_seq(l);
    static const uint64_t expected[] = {0, 1, 3, UINT64_MAX};
    for (size_t i = 0; i < COUNT(expected); i++) {
        semel_write w = change(&cur, SEMEL_S_FAILED);
        w.expect_version = expected[i];
        w.counters = &counter;
        w.n_counters = 1;
        expect_error(try_apply(l, &w, &now), SEMEL_E_STALE);
        expect_record(&now, &cur);
    }
    semel_record got = get_key(l, 1);
    expect_record(&got, &cur);
    assert_int_equal(last_seq(l), seq);
    assert_int_equal(counter_of(l, "spent"), 0);
}

static void another_history_of_the_same_version_is_stale(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1);
    semel_record cur, now;
    bool inserted;
    expect_error(try_claim(l, &w, &cur, &inserted), SEMEL_OK);
    uint64_t seq = last_seq(l);
    semel_record lost = cur; /* as it was before the store lost it, and others made it anew */
    lost.head = key_of(77);
    w = change(&lost, SEMEL_S_SUCCEEDED);
    expect_error(try_apply(l, &w, &now), SEMEL_E_STALE);
    expect_record(&now, &cur);
    assert_int_equal(last_seq(l), seq);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    expect_error(try_apply(l, &w, &now), SEMEL_OK);
}

static void a_write_to_no_record_is_not_found(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1);
    semel_record cur = w.next;
    cur.version = 1;
    w = change(&cur, SEMEL_S_SUCCEEDED);
    expect_error(try_apply(l, &w, &cur), SEMEL_E_NOT_FOUND);
    w = repeat(&w.next);
    expect_error(try_apply(l, &w, &cur), SEMEL_E_NOT_FOUND);
    assert_int_equal(last_seq(l), 0);
}

static void what_is_the_same_stays_as_stored(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1);
    semel_write w = change(&cur, SEMEL_S_PARTIAL);
    w.next.outcome = cur.outcome;
    w.same_args = w.same_outcome = true;
    cur = apply_to(l, &w);
    expect_written(&cur, &w, 3);
    semel_record got = get_key(l, 1);
    expect_record(&got, &cur);
    expect_text(got.args, "{\"amount\":1000}");
    expect_text(got.outcome, "{\"id\":\"ch_1\"}");
}

static void what_is_not_the_same_is_replaced(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1);
    semel_write w = change(&cur, SEMEL_S_PARTIAL);
    w.next.args = SM_STR("{}");
    w.next.outcome = (semel_str){0};
    cur = apply_to(l, &w);
    semel_record got = get_key(l, 1);
    expect_record(&got, &cur);
    expect_text(got.args, "{}");
    assert_null(got.outcome.p);
}

/* ---- generations -----------------------------------------------------------------------------*/

static void a_new_generation_leaves_the_old_one_as_it_is(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), cur = one, got;
    for (uint64_t generation = 2; generation <= 4; generation++) {
        semel_write w = repeat(&cur);
        cur = apply_to(l, &w);
        expect_written(&cur, &w, 1);
        assert_int_equal(cur.generation, generation);
        w = change(&cur, SEMEL_S_SUCCEEDED);
        cur = apply_to(l, &w);
        assert_int_equal(cur.version, 2);
    }
    got = get_key(l, 1);
    expect_record(&got, &cur);
    expect_error(try_get(l, &(semel_ref){.id = cur.id}, &got), SEMEL_OK);
    expect_record(&got, &cur);
    expect_error(try_get(l, &(semel_ref){.id = cur.id, .generation = 4}, &got), SEMEL_OK);
    expect_record(&got, &cur);
    expect_error(try_get(l, &(semel_ref){.id = cur.id, .generation = 1}, &got), SEMEL_OK);
    expect_record(&got, &one);
    expect_error(try_get(l, &(semel_ref){.id = cur.id, .generation = 5}, &got), SEMEL_E_NOT_FOUND);

    seen *s = seen_new();
    uint64_t cursor = 0;
    expect_error(l->ops->query(l->st, &(semel_filter){0}, &cursor, 10, see_record, s, NULL),
                 SEMEL_OK);
    assert_int_equal(s->n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(s->records[i].generation, 4 - i);
    expect_record(&s->records[3], &one);
    seen_free(s);
}

/* Two read a settled generation. One begins the next, which comes to the same version number: the
 * other's "begin the next" must not overwrite it, or it would run twice (I1). */
static void a_generation_that_began_meanwhile_is_not_overwritten(void **state)
{
    ledger *l = *state;
    semel_record one = settled(l, 1), now;
    semel_write first = repeat(&one), second = repeat(&one);
    semel_record two = apply_to(l, &first);
    expect_error(try_apply(l, &second, &now), SEMEL_E_STALE);
    semel_write w = change(&two, SEMEL_S_SUCCEEDED);
    two = apply_to(l, &w);
    assert_int_equal(two.version, one.version);
    expect_error(try_apply(l, &second, &now), SEMEL_E_STALE);
    expect_record(&now, &two);
    w = change(&one, SEMEL_S_NONE); /* nor is a write to the old one one to the new */
    expect_error(try_apply(l, &w, &now), SEMEL_E_STALE);
    semel_record got = get_key(l, 1);
    expect_record(&got, &two);
}

int writing_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(a_new_key_is_inserted),
        on_ledger(a_known_key_is_given_and_nothing_is_written),
        on_ledger(a_claim_gives_the_newest_generation),
        on_ledger(texts_that_come_out_belong_to_the_caller),
        on_ledger(texts_come_back_byte_for_byte),
        on_ledger(a_mebibyte_comes_back),
        on_ledger(numbers_come_back_whole),
        on_ledger(a_write_replaces_the_record_and_its_version_grows_by_one),
        on_ledger(apply_tells_the_time),
        on_ledger(another_version_is_stale_and_nothing_is_written),
        on_ledger(another_history_of_the_same_version_is_stale),
        on_ledger(a_write_to_no_record_is_not_found),
        on_ledger(what_is_the_same_stays_as_stored),
        on_ledger(what_is_not_the_same_is_replaced),
        on_ledger(a_new_generation_leaves_the_old_one_as_it_is),
        on_ledger(a_generation_that_began_meanwhile_is_not_overwritten),
    };
    return cmocka_run_group_tests_name("writing", tests, NULL, NULL);
}
