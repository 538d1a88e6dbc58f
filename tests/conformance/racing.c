/* Many threads on one ledger. What a thread finds wrong it says; what all of them did together is
 * judged when they are done. */
#include "conformance.h"

#include <stdatomic.h>

#define THREADS 16u

/* ---- claims ----------------------------------------------------------------------------------*/

#define KEYS 40u
typedef struct claiming {
    atomic_uint inserted[KEYS];
    semel_hash fingerprint[THREADS][KEYS]; /* of the record that each thread was given */
} claiming;

static void claim_each(worker *w)
{
    claiming *race = w->context;
    for (size_t i = 0; i < KEYS; i++) {
        semel_write mine = fresh(i);
        semel_record cur;
        bool inserted;
        memset(&mine.next.fingerprint, (int)w->index + 1, sizeof mine.next.fingerprint);
        if (try_claim(&w->ledger, &mine, &cur, &inserted) != SEMEL_OK)
            w->wrong = "a claim failed";
        else if (cur.version != 1 || !sm_str_is(cur.args, "{\"amount\":1000}"))
            w->wrong = "a claim gave another record";
        if (inserted)
            atomic_fetch_add(&race->inserted[i], 1);
        race->fingerprint[w->index][i] = cur.fingerprint;
    }
}

static void of_many_claims_one_inserts_and_all_see_it(void **state)
{
    ledger *l = *state;
    claiming *race = calloc(1, sizeof *race);
    assert_non_null(race);
    run_workers(l, THREADS, claim_each, race);
    for (size_t i = 0; i < KEYS; i++) {
        assert_int_equal(race->inserted[i], 1);
        for (size_t t = 1; t < THREADS; t++)
            assert_memory_equal(&race->fingerprint[t][i], &race->fingerprint[0][i],
                                sizeof(semel_hash));
    }
    assert_int_equal(events_of(l, 0, 0), KEYS);
    free(race);
}

/* ---- compare and swap ------------------------------------------------------------------------*/

#define INCREMENTS 20u

static void increment(worker *w)
{
    ledger *l = &w->ledger;
    semel_hash key = key_of(1);
    for (size_t done = 0; done < INCREMENTS;) {
        semel_record cur, next;
        sm_arena_reset(&l->desk.arena);
        if (try_get(l, &(semel_ref){.key = &key}, &cur) != SEMEL_OK) {
            w->wrong = "the record is gone";
            return;
        }
        semel_write mine = change(&cur, SEMEL_S_RUNNING);
        mine.next.fence = cur.fence + 1;
        semel_err err = try_apply(l, &mine, &next);
        if (err == SEMEL_OK) {
            done++;
            if (next.version != cur.version + 1)
                w->wrong = "a version was left out";
        } else if (err != SEMEL_E_STALE || next.version <= cur.version) {
            w->wrong = "a write failed, and not because another one was faster";
            return;
        }
    }
}

static void no_update_is_lost(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1);
    claim_new(l, &w);
    run_workers(l, THREADS, increment, NULL);
    semel_record cur = get_key(l, 1);
    assert_int_equal(cur.version, 1 + THREADS * INCREMENTS);
    assert_int_equal(cur.fence, 1 + THREADS * INCREMENTS);
    assert_int_equal(cur.events, 1 + THREADS * INCREMENTS);

    seen *s = seen_new(); /* and the chain is whole */
    uint64_t after = 0;
    expect_error(l->ops->events(l->st, &(semel_ref){.id = cur.id, .generation = 1}, &after,
                                SEEN_MAX - 1, see_event, s, NULL),
                 SEMEL_OK);
    assert_int_equal(s->n, cur.events);
    for (size_t i = 0; i < s->n; i++) {
        assert_int_equal(s->events[i].index, i + 1);
        if (i > 0)
            assert_memory_equal(&s->events[i].prev, &s->events[i - 1].hash, sizeof(semel_hash));
    }
    seen_free(s);
}

static void begin_next(worker *w)
{
    atomic_uint *won = w->context;
    semel_hash key = key_of(1);
    semel_record cur, next;
    if (try_get(&w->ledger, &(semel_ref){.key = &key}, &cur) != SEMEL_OK)
        w->wrong = "the record is gone";
    if (!semel_state_settled(cur.state))
        return; /* somebody began before this thread looked */
    semel_write mine = repeat(&cur);
    semel_err err = try_apply(&w->ledger, &mine, &next);
    if (err == SEMEL_OK)
        atomic_fetch_add(won, 1);
    else if (err != SEMEL_E_STALE)
        w->wrong = "a write failed, and not because another one was faster";
}

static void one_begins_the_next_generation(void **state)
{
    ledger *l = *state;
    settled(l, 1);
    for (uint64_t round = 1; round <= 10; round++) {
        atomic_uint won = 0;
        run_workers(l, THREADS, begin_next, &won);
        assert_int_equal(won, 1);
        semel_record cur = get_key(l, 1);
        assert_int_equal(cur.generation, round + 1);
        semel_write w = change(&cur, SEMEL_S_SUCCEEDED);
        apply_to(l, &w);
    }
}

/* ---- counters --------------------------------------------------------------------------------*/

static void spend(worker *w)
{
    atomic_uint *spent = w->context;
    ledger *l = &w->ledger;
    for (uint64_t i = 0; i < 10; i++) {
        int64_t value;
        if (l->ops->counter(l->st, shard_of(SCOPE), SM_STR("money"), &value, NULL) != SEMEL_OK ||
            value > 100)
            w->wrong = "the counter is over its cap";
        semel_counter counters[] = {{SM_STR("calls"), 1, INT64_MAX, 0},
                                    {SM_STR("money"), 3, 100, 0}};
        semel_write mine = fresh(1 + w->index * 100 + i);
        semel_record cur;
        bool inserted;
        mine.counters = counters;
        mine.n_counters = 2;
        semel_err err = try_claim(l, &mine, &cur, &inserted);
        if (err == SEMEL_OK)
            atomic_fetch_add(spent, 1);
        else if (err != SEMEL_E_OVER_CAP)
            w->wrong = "a claim failed, and not for the cap";
    }
}

/* Spent never exceeds the cap, and what was refused cost nothing (I14). */
static void no_counter_passes_its_cap(void **state)
{
    ledger *l = *state;
    atomic_uint spent = 0;
    run_workers(l, THREADS, spend, &spent);
    assert_int_equal(spent, 33);
    assert_int_equal(counter_of(l, "money"), 99);
    assert_int_equal(counter_of(l, "calls"), 33);
    assert_int_equal(events_of(l, 0, 0), 33);
}

/* ---- the barrier -----------------------------------------------------------------------------*/

static void doubt_and_settle(worker *w)
{
    atomic_int *in_doubt = w->context;
    ledger *l = &w->ledger;
    semel_record cur, other;
    bool inserted;
    semel_write mine = fresh(w->index + 1);
    memset(&mine.next.group, 9, sizeof mine.next.group);
    mine.next.state = SEMEL_S_READY;
    if (try_claim(l, &mine, &cur, &inserted) != SEMEL_OK)
        w->wrong = "a claim failed";
    for (size_t done = 0; done < 5 && w->wrong == NULL;) {
        mine = change(&cur, SEMEL_S_IN_DOUBT);
        mine.barred_by_group = true;
        semel_err err = try_apply(l, &mine, &other);
        if (err == SEMEL_E_BARRED) {
            if (other.state != SEMEL_S_IN_DOUBT || other.id == cur.id)
                w->wrong = "what bars is not in doubt";
            pause_ms(1);
            continue;
        }
        if (err != SEMEL_OK || atomic_fetch_add(in_doubt, 1) != 0)
            w->wrong = "two of one group are in doubt";
        pause_ms(1); /* time for another one to slip through */
        atomic_fetch_sub(in_doubt, 1);
        cur = other;
        mine = change(&cur, SEMEL_S_READY);
        if (try_apply(l, &mine, &cur) != SEMEL_OK)
            w->wrong = "a write failed";
        done++;
    }
}

static void the_barrier_lets_one_through(void **state)
{
    atomic_int in_doubt = 0;
    run_workers(*state, 8, doubt_and_settle, &in_doubt);
}

/* ---- events ----------------------------------------------------------------------------------*/

#define WRITERS 7u
#define EFFECTS 15u

typedef struct following {
    worker *self;
    uint64_t seq, seen;
    bool behind; /* an event whose write is not to be seen */
} following;

/* An event is visible only if its record's write is (I9). */
static bool follow_event(void *context, const semel_event *e)
{
    following *f = context;
    semel_record r;
    if (e->seq <= f->seq)
        f->self->wrong = "a seq does not grow";
    f->seq = e->seq;
    f->seen++;
    semel_err err = try_get(&f->self->ledger, &(semel_ref){.id = e->id, .generation = 1}, &r);
    if (err != SEMEL_OK || r.events < e->index)
        f->behind = true;
    return true;
}

static void follow_all(worker *w)
{
    ledger *l = &w->ledger;
    following f = {.self = w};
    uint64_t after = 0;
    int64_t deadline = monotonic_ns() + 60000000000;
    while (f.seen < WRITERS * EFFECTS * 2 && monotonic_ns() < deadline) {
        sm_arena_reset(&l->desk.arena);
        if (l->ops->wait(l->st, NULL, after, deadline, NULL) != SEMEL_OK ||
            l->ops->events(l->st, NULL, &after, 10, follow_event, &f, NULL) != SEMEL_OK)
            w->wrong = "events cannot be read";
    }
    if (f.seen != WRITERS * EFFECTS * 2)
        w->wrong = "an event was passed over";
    if (f.behind)
        w->wrong = "an event came before its write";
}

static bool last_index(void *context, const semel_event *e)
{
    *(uint64_t *)context = e->index;
    return true;
}

/* And a write is visible only if its event is. */
static void write_and_look(worker *w)
{
    ledger *l = &w->ledger;
    if (w->index == 0) {
        follow_all(w);
        return;
    }
    for (size_t i = 0; i < EFFECTS; i++) {
        semel_write mine = fresh(1 + w->index * 100 + i);
        semel_record cur, got;
        bool inserted;
        if (try_claim(l, &mine, &cur, &inserted) != SEMEL_OK)
            w->wrong = "a claim failed";
        mine = change(&cur, SEMEL_S_SUCCEEDED);
        if (try_apply(l, &mine, &cur) != SEMEL_OK)
            w->wrong = "a write failed";
        /* A neighbour's record, which is perhaps being written. */
        semel_hash key = key_of(1 + (w->index % WRITERS + 1) * 100 + i);
        uint64_t after = 0, index = 0;
        if (try_get(l, &(semel_ref){.key = &key}, &got) == SEMEL_OK) {
            if (l->ops->events(l->st, &(semel_ref){.id = got.id, .generation = 1}, &after, 100,
                               last_index, &index, NULL) != SEMEL_OK ||
                index < got.events)
                w->wrong = "a write came before its event";
        }
    }
}

static void a_follower_misses_no_event(void **state)
{
    run_workers(*state, WRITERS + 1, write_and_look, NULL);
}

/* ---- purge -----------------------------------------------------------------------------------*/

static void purge_or_write(worker *w)
{
    ledger *l = &w->ledger;
    if (w->index == 0) {
        atomic_uint *writing = w->context;
        while (atomic_load(writing) > 0) {
            uint64_t done = 0;
            bool left;
            uint64_t to = seal_before_purge(l);
            if (l->ops->purge(l->st, 3, to, clock_ms(), &done, &left, NULL) != SEMEL_OK)
                w->wrong = "purge failed";
        }
        return;
    }
    for (size_t i = 0; i < 10 && w->wrong == NULL; i++) {
        semel_write mine = fresh(w->index);
        semel_record cur, got;
        bool inserted;
        semel_err err = try_claim(l, &mine, &cur, &inserted);
        if (err != SEMEL_OK || !inserted) {
            pause_ms(1);
            continue; /* the last round's record is still there */
        }
        if (try_get(l, &(semel_ref){.key = &mine.next.key}, &got) != SEMEL_OK)
            w->wrong = "a live record was purged";
        mine = change(&cur, SEMEL_S_SUCCEEDED);
        set_windows(&mine.next, -3000, -2000, -1000);
        if (try_apply(l, &mine, &cur) != SEMEL_OK)
            w->wrong = "a live record cannot be written";
    }
    atomic_fetch_sub((atomic_uint *)w->context, 1);
}

static void purge_takes_nothing_from_under_a_writer(void **state)
{
    atomic_uint writing = 7;
    run_workers(*state, 8, purge_or_write, &writing);
}

int racing_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(of_many_claims_one_inserts_and_all_see_it),
        on_ledger(no_update_is_lost),
        on_ledger(one_begins_the_next_generation),
        on_ledger(no_counter_passes_its_cap),
        on_ledger(the_barrier_lets_one_through),
        on_ledger(a_follower_misses_no_event),
        on_ledger(purge_takes_nothing_from_under_a_writer),
    };
    return cmocka_run_group_tests_name("racing", tests, NULL, NULL);
}
