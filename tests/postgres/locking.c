/* Writes, waiters and purge beside transactions that are still open: who waits for whom, and what
 * is left alone. */
#include "postgres.h"

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
        on_proxy(who_may_be_barred_waits_for_a_doubt_that_comes),
        on_proxy(who_may_be_barred_does_not_wait_for_others),
        on_proxy(a_doubt_waits_for_who_may_be_barred_by_it),
        on_proxy(a_lease_that_is_over_waits_as_a_doubt_does),
        on_proxy(an_end_waits_for_nobody),
        on_open(who_waits_while_somebody_writes_looks_again),
        on_open(purge_leaves_events_that_nobody_could_follow_yet),
    };
    return cmocka_run_group_tests_name("locking", tests, NULL, NULL);
}
