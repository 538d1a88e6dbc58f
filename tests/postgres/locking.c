/* Writes, waiters and purge beside transactions that are still open: who waits for whom, and what
 * is left alone. */
#include "postgres.h"

#include <pthread.h>
#include <unistd.h>

#define SECOND 1000000000ll

/* ---- the lock of a group ---------------------------------------------------------------------*/

static semel_write grouped(uint64_t n)
{
    semel_write w = fresh(n);
    memset(&w.next.group, 5, sizeof w.next.group);
    w.barred_by_group = true;
    return w;
}

/* Somebody else's transaction has the lock of that group, as `kind` says. */
static void lock_beside(place *p, const char *kind)
{
    char text[128];
    snprintf(text, sizeof text, "BEGIN; SELECT pg_advisory_xact_lock%s(x'%s'::bigint)", kind,
             "0505050505050505");
    sql_run(p, text);
}

static void who_may_be_barred_waits_for_a_doubt_that_comes(void **state)
{
    place *p = *state;
    semel_record cur;
    bool inserted;
    lock_beside(p, "");
    semel_write w = grouped(1);
    expect_error(try_claim(&p->ledger, &w, &cur, &inserted), SEMEL_E_UNAVAILABLE);
    sql_run(p, "ROLLBACK");
}

static void who_may_be_barred_does_not_wait_for_others(void **state)
{
    place *p = *state;
    lock_beside(p, "_shared");
    semel_write w = grouped(1);
    claim_new(&p->ledger, &w);
    sql_run(p, "ROLLBACK");
}

static void a_doubt_waits_for_who_may_be_barred_by_it(void **state)
{
    place *p = *state;
    semel_write w = grouped(1);
    semel_record one = claim_new(&p->ledger, &w), cur;
    lock_beside(p, "_shared");
    w = change(&one, SEMEL_S_IN_DOUBT);
    expect_error(try_apply(&p->ledger, &w, &cur), SEMEL_E_UNAVAILABLE);
    sql_run(p, "ROLLBACK");
}

static void a_lease_that_is_over_waits_as_a_doubt_does(void **state)
{
    place *p = *state;
    semel_write w = grouped(1);
    semel_record cur;
    bool inserted;
    lock_beside(p, "_shared");
    w.next.lease_end = w.now - 1000;
    expect_error(try_claim(&p->ledger, &w, &cur, &inserted), SEMEL_E_UNAVAILABLE);
    sql_run(p, "ROLLBACK");
}

static void an_end_waits_for_nobody(void **state)
{
    place *p = *state;
    semel_write w = grouped(1);
    semel_record one = claim_new(&p->ledger, &w);
    lock_beside(p, "");
    w = change(&one, SEMEL_S_SUCCEEDED);
    apply_to(&p->ledger, &w);
    sql_run(p, "ROLLBACK");
}

/* ---- what is lost ----------------------------------------------------------------------------*/

typedef struct claiming {
    place *p;
    semel_write w;
    semel_err err;
    bool inserted;
} claiming;

static void *claim_counted(void *context)
{
    claiming *c = context;
    const ledger *l = &c->p->ledger;
    semel_record cur;
    int64_t now;
    desk d;
    desk_init(&d);
    c->err = l->ops->claim(l->st, &c->w, &d.room, &cur, &now, &c->inserted, NULL);
    desk_fini(&d);
    return NULL;
}

/* A transaction that began first may commit last. A standby that has all but the last commit then
 * has the event with the largest number: that it is there proves nothing about the others. */
static void an_event_that_was_committed_last_is_missed_whatever_its_number(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    semel_counter counter = {SM_STR("calls"), 1, INT64_MAX, 0};
    claiming slow = {.p = p, .w = fresh(1)};
    pthread_t thread;
    semel_record cur;
    bool inserted;
    if ((l->caps & SEMEL_STORE_DURABLE) == 0)
        skip();
    slow.w.counters = &counter;
    slow.w.n_counters = 1;
    sql_run(p, "BEGIN; INSERT INTO @counter(name, value, cap) VALUES('calls', 1, 100)");
    assert_int_equal(pthread_create(&thread, NULL, claim_counted, &slow), 0);
    while (sql_number(p, "SELECT count(*) FROM pg_locks WHERE locktype = 'transactionid'"
                         " AND NOT granted") == 0)
        usleep(5000);
    semel_write w = fresh(2);
    claim_new(l, &w);
    sql_run(p, "COMMIT");
    pthread_join(thread, NULL);
    expect_error(slow.err, SEMEL_OK);
    assert_true(slow.inserted);
    char text[160];
    snprintf(text, sizeof text,
             "SELECT max(seq) - min(seq) FROM @event WHERE seq >="
             " (SELECT seq FROM @event WHERE id = %lld)",
             (long long)slow.w.next.id);
    assert_true(sql_number(p, text) > 0);
    snprintf(text, sizeof text,
             "DELETE FROM @effect WHERE id = %lld; DELETE FROM @event"
             " WHERE id = %lld",
             (long long)slow.w.next.id, (long long)slow.w.next.id);
    sql_run(p, text);
    sql_run(p, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
               " WHERE application_name || '.' = '@'");
    w = fresh(1);
    expect_error(try_claim(l, &w, &cur, &inserted), SEMEL_E_UNAVAILABLE);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect"), 1);
}

/* ---- waiters and purge -----------------------------------------------------------------------*/

/* The mark of a waiter comes too late for a write that is under way, which then does not notify. */
static void who_waits_while_somebody_writes_looks_again(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    semel_record two = settled(l, 2), one = settled(l, 1);
    semel_ref of_two = {.key = &two.key, .generation = 1};
    semel_ref of_one = {.key = &one.key, .generation = 1};
    /* Somebody listens from here on, so nobody looks often. */
    l->ops->wait(l->st, &of_two, two.version, monotonic_ns() + SECOND / 5, NULL);
    sql_run(p, "BEGIN; UPDATE @effect SET version = version + 1");
    assert_int_equal(PQsendQuery(p->beside, "SELECT pg_sleep(0.3); COMMIT"), 1);
    int64_t began = monotonic_ns();
    expect_error(l->ops->wait(l->st, &of_one, one.version, began + 5 * SECOND, NULL), SEMEL_OK);
    int64_t took = monotonic_ns() - began;
    for (PGresult *r; (r = PQgetResult(p->beside)) != NULL;)
        PQclear(r);
    expect(took >= SECOND / 4 && took < 3 * SECOND / 4, "it took %.1f s", (double)took / 1e9);
}

static void purge_leaves_events_that_nobody_could_follow_yet(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    settled(l, 1);
    sql_run(p, "BEGIN");
    sql_run(p, "SELECT pg_current_xact_id()");
    semel_record two = settled(l, 2);
    uint64_t done = 0;
    bool left = true;
    for (int i = 0; left && i < 10; i++)
        expect_error(l->ops->purge(l->st, 100, INT64_MAX, 0, &done, &left, NULL), SEMEL_OK);
    assert_int_equal(events_of(l, two.id, 0), 2);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @event"), 2);
    sql_run(p, "COMMIT");
    left = true;
    for (int i = 0; left && i < 10; i++)
        expect_error(l->ops->purge(l->st, 100, INT64_MAX, 0, &done, &left, NULL), SEMEL_OK);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @event"), 0);
}

int locking_tests(void)
{
    const struct CMUnitTest tests[] = {
        in_a_hurry(who_may_be_barred_waits_for_a_doubt_that_comes),
        in_a_hurry(who_may_be_barred_does_not_wait_for_others),
        in_a_hurry(a_doubt_waits_for_who_may_be_barred_by_it),
        in_a_hurry(a_lease_that_is_over_waits_as_a_doubt_does),
        in_a_hurry(an_end_waits_for_nobody),
        on_open(who_waits_while_somebody_writes_looks_again),
        on_open(an_event_that_was_committed_last_is_missed_whatever_its_number),
        on_open(purge_leaves_events_that_nobody_could_follow_yet),
    };
    return cmocka_run_group_tests_name("locking", tests, NULL, NULL);
}
