/* Waiting: woken by a write, and never longer than the deadline.
 *
 * A machine that is busy with something else delays wake-ups, so promises about time are judged by
 * several rounds, and by more the busier it is. Wake-ups: most are prompt, since one that comes by
 * chance may be early as well. Deadlines: one is kept, since a store that oversleeps does so each
 * time. */
#include "conformance.h"

#include <pthread.h>

#define PROMISE_NS (50 * 1000000ll)
#define GIVE_UP_NS (10 * 1000000000ll)

static semel_err wait_for(ledger *l, const semel_hash *key, uint64_t generation, uint64_t version,
                          int64_t ms)
{
    return l->ops->wait(l->st, of_key(&(semel_ref){.key = key, .generation = generation}), version,
                        monotonic_ns() + ms * 1000000, NULL);
}

/* Waits until the store says that the time is up. A store may wake for no reason, also when the
 * time has just passed, so it is asked until it says so. */
static semel_err wait_out(ledger *l, const semel_hash *key, uint64_t generation, uint64_t version,
                          int64_t deadline_ns)
{
    semel_err err;
    do {
        err = l->ops->wait(l->st, of_key(&(semel_ref){.key = key, .generation = generation}),
                           version, deadline_ns, NULL);
    } while (err == SEMEL_OK && monotonic_ns() < deadline_ns + GIVE_UP_NS);
    return err;
}

/* ---- without anybody else --------------------------------------------------------------------*/

static void what_has_changed_already_is_not_waited_for(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1);
    semel_hash unknown = key_of(2);
    int64_t began = monotonic_ns();
    expect_error(wait_for(l, &cur.key, 1, 1, 10000), SEMEL_OK);
    expect_error(wait_for(l, &cur.key, 1, 3, 10000), SEMEL_OK);
    expect_error(wait_for(l, &cur.key, 2, 2, 10000), SEMEL_OK);
    expect_error(wait_for(l, &unknown, 1, 1, 10000), SEMEL_OK); /* it is gone */
    expect_error(wait_for(l, NULL, 0, 0, 10000), SEMEL_OK);
    expect_error(wait_for(l, &cur.key, 1, 1, -1), SEMEL_OK);
    assert_true(monotonic_ns() - began < 5000000000);
}

/* How late a wait ends: for a record or for events, with a deadline ahead or one that is over. */
static int64_t oversleep(ledger *l, const semel_record *cur, unsigned kind)
{
    bool events = kind & 1, over = kind & 2;
    uint64_t version = events ? last_seq(l) : cur->version;
    int64_t began = monotonic_ns(), deadline = over ? began - 1 : began + 20 * 1000000;
    expect_error(wait_out(l, events ? NULL : &cur->key, 1, version, deadline), SEMEL_E_TIMEOUT);
    int64_t late = monotonic_ns() - deadline;
    assert_true(late >= 0);
    return late;
}

static void the_deadline_holds(void **state)
{
    ledger *l = *state;
    semel_record cur = settled(l, 1);
    for (unsigned kind = 0; kind < 4; kind++) {
        int64_t late = oversleep(l, &cur, kind);
        for (size_t i = 0; late >= PROMISE_NS && i < ROUNDS_MOST; i++)
            late = oversleep(l, &cur, kind);
        expect(late < PROMISE_NS, "kind %u: %.1f ms late", kind, (double)late / 1e6);
    }
    expect_error(wait_out(l, &cur.key, 1, cur.version, 0), SEMEL_E_TIMEOUT);
}

/* ---- woken by others -------------------------------------------------------------------------*/

typedef struct sleeper {
    ledger *ledger;
    const semel_hash *key; /* NULL: events */
    uint64_t generation, version;
    semel_err err;
    int64_t woke_ns;
    pthread_t thread;
} sleeper;

static void *sleep_until(void *p)
{
    sleeper *s = p;
    int64_t deadline = monotonic_ns() + 10000000000;
    s->err = s->ledger->ops->wait(s->ledger->st,
                                  of_key(&(semel_ref){.key = s->key, .generation = s->generation}),
                                  s->version, deadline, NULL);
    s->woke_ns = monotonic_ns();
    return NULL;
}

static void send_to_sleep(sleeper *s)
{
    assert_int_equal(pthread_create(&s->thread, NULL, sleep_until, s), 0);
}

/* Nanoseconds from the write's end to the wake-up. */
static int64_t join_sleeper(sleeper *s, int64_t wrote_ns)
{
    pthread_join(s->thread, NULL);
    expect_error(s->err, SEMEL_OK);
    return s->woke_ns - wrote_ns;
}

static void a_write_wakes_who_waits_for_the_key(void **state)
{
    ledger *l = *state;
    int64_t took;
    punctual r = {0};
    size_t i = 0;
    semel_record cur = settled(l, 1);
    do {
        semel_write w = i++ == 4 ? repeat(&cur) : change(&cur, SEMEL_S_SUCCEEDED);
        sleeper s = {.ledger = l, .key = &w.next.key, cur.generation, cur.version};
        send_to_sleep(&s);
        pause_ms(20);
        cur = apply_to(l, &w);
        took = join_sleeper(&s, monotonic_ns());
    } while (want_more(&r, took, PROMISE_NS));
}

static void every_waiter_is_woken(void **state)
{
    ledger *l = *state;
    enum { N = 24 };
    sleeper s[N];
    semel_record one = settled(l, 1), two = settled(l, 2);
    for (size_t i = 0; i < N; i++) {
        s[i] = (sleeper){l, i & 1 ? &one.key : &two.key, 1, 2, SEMEL_OK, 0, 0};
        send_to_sleep(&s[i]);
    }
    pause_ms(30);
    semel_write w = change(&one, SEMEL_S_FAILED);
    apply_to(l, &w);
    w = change(&two, SEMEL_S_FAILED);
    apply_to(l, &w);
    int64_t wrote = monotonic_ns();
    for (size_t i = 0; i < N; i++)
        assert_true(join_sleeper(&s[i], wrote) < 5000000000);
}

static void a_key_that_goes_wakes_who_waits_for_it(void **state)
{
    ledger *l = *state;
    semel_write w = fresh(1);
    semel_record cur = claim_new(l, &w);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    set_windows(&w.next, -30, -20, -10);
    cur = apply_to(l, &w);
    sleeper s = {.ledger = l, .key = &cur.key, cur.generation, cur.version};
    send_to_sleep(&s);
    pause_ms(20);
    uint64_t done = 0;
    bool left;
    expect_error(l->ops->purge(l->st, 10, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_true(join_sleeper(&s, monotonic_ns()) < 5000000000);
}

static void an_event_wakes_who_waits_for_events(void **state)
{
    ledger *l = *state;
    int64_t took;
    punctual r = {0};
    size_t i = 0;
    do {
        semel_health health;
        expect_error(l->ops->health(l->st, false, &health, NULL), SEMEL_OK);
        sleeper s = {.ledger = l, .version = health.last_seq};
        send_to_sleep(&s);
        pause_ms(20);
        semel_write w = fresh(++i);
        semel_event seal = {
            .index = 1, .at = w.now, .what = SM_STR("sealed"), .body = SM_STR("{}")};
        if (i == 4)
            expect_error(l->ops->seal(l->st, &seal, health.seal_seq, NULL), SEMEL_OK);
        else
            claim_new(l, &w);
        took = join_sleeper(&s, monotonic_ns());
    } while (want_more(&r, took, PROMISE_NS));
}

int waiting_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_ledger(what_has_changed_already_is_not_waited_for),
        on_ledger(the_deadline_holds),
        on_ledger(a_write_wakes_who_waits_for_the_key),
        on_ledger(every_waiter_is_woken),
        on_ledger(a_key_that_goes_wakes_who_waits_for_it),
        on_ledger(an_event_wakes_who_waits_for_events),
    };
    return cmocka_run_group_tests_name("waiting", tests, NULL, NULL);
}
