/* Writes whose answer was lost and which were sent again: what the first try did is never told
 * wrongly, whatever happened since. */
#include "postgres.h"

#define MARK_BYTES "order-lost"

static void mark(semel_write *w)
{
    w->next.args = SM_STR("{\"order\":\"" MARK_BYTES "\"}");
}

/* As if somebody else had changed each record at once after it was written. */
static void overtake_writes(place *p)
{
    sql_run(p, "CREATE FUNCTION @ahead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
               " NEW.version = NEW.version + 1; RETURN NEW; END $$;"
               " CREATE TRIGGER ahead BEFORE INSERT OR UPDATE OF version ON @effect"
               " FOR EACH ROW EXECUTE FUNCTION @ahead()");
}

static void expect_unsure(semel_err e, const semel_fault *fault, const char *word)
{
    expect_error(e, SEMEL_E_UNAVAILABLE);
    expect(strstr(fault->text, word) != NULL, "it says: %s", fault->text);
}

static semel_err claim_cut(place *p, semel_write *w, bool passed_on, bool *inserted,
                           semel_fault *fault)
{
    ledger *l = &p->ledger;
    semel_record cur;
    int64_t now;
    int cuts = proxy_cuts(p->proxy);
    mark(w);
    proxy_cut(p->proxy, MARK_BYTES, passed_on);
    semel_err e = l->ops->claim(l->st, w, &l->desk.room, &cur, &now, inserted, fault);
    assert_int_equal(proxy_cuts(p->proxy), cuts + 1);
    return e;
}

static semel_err apply_cut(place *p, semel_write *w, bool passed_on, semel_fault *fault)
{
    ledger *l = &p->ledger;
    semel_record cur;
    int64_t now;
    int cuts = proxy_cuts(p->proxy);
    mark(w);
    proxy_cut(p->proxy, MARK_BYTES, passed_on);
    semel_err e = l->ops->apply(l->st, w, &l->desk.room, &cur, &now, fault);
    assert_int_equal(proxy_cuts(p->proxy), cuts + 1);
    return e;
}

static void a_claim_that_was_overtaken_is_nobodys(void **state)
{
    place *p = *state;
    semel_write w = fresh(1);
    semel_fault fault = {0};
    bool inserted = true;
    overtake_writes(p);
    expect_unsure(claim_cut(p, &w, true, &inserted, &fault), &fault, "has changed since");
    assert_false(inserted);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @event"), 1);
}

static void an_attempt_that_was_overtaken_is_not_started(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    semel_record one = settled(&p->ledger, 1);
    semel_write w = fresh(2);
    semel_record two = claim_new(&p->ledger, &w);
    overtake_writes(p);
    w = repeat(&one);
    expect_unsure(apply_cut(p, &w, true, &fault), &fault, "has changed since");
    w = change(&two, SEMEL_S_RUNNING);
    expect_unsure(apply_cut(p, &w, true, &fault), &fault, "has changed since");
}

static void an_end_that_was_overtaken_was_recorded(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    semel_write w = fresh(1);
    semel_record one = claim_new(&p->ledger, &w);
    overtake_writes(p);
    w = change(&one, SEMEL_S_SUCCEEDED);
    expect_error(apply_cut(p, &w, true, &fault), SEMEL_OK);
}

static void an_attempt_that_was_not_overtaken_is_started(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    semel_record one = settled(&p->ledger, 1);
    semel_write w = repeat(&one);
    expect_error(apply_cut(p, &w, true, &fault), SEMEL_OK);
    semel_record got = get_key(&p->ledger, 1);
    assert_int_equal(got.generation, 2);
}

/* Such an error may come after the commit. */
static void an_error_that_ends_the_session_tells_nothing(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    semel_write w = fresh(1);
    bool inserted = false;
    proxy_goodbye(p->proxy, true);
    expect_error(claim_cut(p, &w, true, &inserted, &fault), SEMEL_OK);
    assert_true(inserted);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @event"), 1);
}

/* ---- refusals --------------------------------------------------------------------------------*/

static semel_write barred(uint64_t n)
{
    semel_write w = fresh(n);
    memset(&w.next.group, 5, sizeof w.next.group);
    w.barred_by_group = true;
    return w;
}

static void a_barrier_found_when_sent_again_is_not_final(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    bool inserted;
    semel_record one = settled(&p->ledger, 1);
    semel_write w = barred(2);
    semel_record two = claim_new(&p->ledger, &w);
    w = change(&two, SEMEL_S_IN_DOUBT);
    apply_to(&p->ledger, &w);
    w = barred(3);
    expect_unsure(claim_cut(p, &w, false, &inserted, &fault), &fault, "may or may not");
    assert_false(inserted);
    w = repeat(&one);
    memset(&w.next.group, 5, sizeof w.next.group);
    w.barred_by_group = true;
    expect_unsure(apply_cut(p, &w, false, &fault), &fault, "may or may not");
}

static void a_cap_found_when_sent_again_is_not_final(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    bool inserted;
    semel_counter c = {.name = SM_STR("calls"), .delta = 2, .cap = 1};
    semel_write w = fresh(1);
    w.counters = &c;
    w.n_counters = 1;
    expect_unsure(claim_cut(p, &w, false, &inserted, &fault), &fault, "may or may not");
}

static void a_time_that_is_over_when_sent_again_is_not_final(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    bool inserted;
    semel_record one = settled(&p->ledger, 1);
    semel_write w = fresh(2);
    w.now -= 3600000;
    expect_unsure(claim_cut(p, &w, false, &inserted, &fault), &fault, "may or may not");
    w = change(&one, SEMEL_S_FAILED);
    w.now -= 3600000;
    expect_unsure(apply_cut(p, &w, false, &fault), &fault, "may or may not");
    /* Another version is: no try can take effect any more. */
    w = change(&one, SEMEL_S_FAILED);
    w.expect_version++;
    expect_error(apply_cut(p, &w, false, &fault), SEMEL_E_STALE);
}

/* ---- warnings and time -----------------------------------------------------------------------*/

/* As when the wait for a replica is cancelled: it is written here, and that may be all. */
static void a_write_with_a_warning_is_made_sure(void **state)
{
    place *p = *state;
    sql_run(p, "CREATE FUNCTION @warn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
               " RAISE WARNING 'made to warn'; RETURN NEW; END $$;"
               " CREATE TRIGGER warning BEFORE INSERT ON @event"
               " FOR EACH ROW EXECUTE FUNCTION @warn()");
    static const char who_wrote_meta[] = "SELECT xmin::text::bigint FROM @meta";
    int64_t before = sql_number(p, who_wrote_meta);
    semel_write w = fresh(1);
    semel_record cur = claim_new(&p->ledger, &w);
    int64_t after = sql_number(p, who_wrote_meta);
    assert_true(after != before); /* a write after it was committed, too */
    w = change(&cur, SEMEL_S_SUCCEEDED);
    cur = apply_to(&p->ledger, &w);
    assert_int_equal(cur.version, 2);
    assert_true(sql_number(p, who_wrote_meta) != after);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @event"), 2);
}

static void a_write_without_a_warning_is_sure(void **state)
{
    place *p = *state;
    static const char who_wrote_meta[] = "SELECT xmin::text::bigint FROM @meta";
    int64_t before = sql_number(p, who_wrote_meta);
    settled(&p->ledger, 1);
    assert_int_equal(sql_number(p, who_wrote_meta), before);
}

/* Whatever a write waits for, it is not recorded when its times are long over. */
static void a_write_that_waited_too_long_is_undone(void **state)
{
    place *p = *state;
    semel_record one = settled(&p->ledger, 1), cur;
    bool inserted;
    sql_run(p, "CREATE FUNCTION @slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
               " PERFORM pg_sleep(1.5); RETURN NEW; END $$;"
               " CREATE TRIGGER slow BEFORE INSERT OR UPDATE ON @effect"
               " FOR EACH ROW EXECUTE FUNCTION @slow()");
    semel_write w = fresh(2);
    w.now -= SEMEL_CLOCK_SLACK_MS - 1000;
    expect_error(try_claim(&p->ledger, &w, &cur, &inserted), SEMEL_E_STALE);
    w = change(&one, SEMEL_S_FAILED);
    w.now = clock_ms() - SEMEL_CLOCK_SLACK_MS + 1000;
    expect_error(try_apply(&p->ledger, &w, &cur), SEMEL_E_STALE);
    assert_int_equal(cur.version, one.version);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect WHERE version = 2"), 1);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @event"), 2);
}

int resending_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_proxy(a_claim_that_was_overtaken_is_nobodys),
        on_proxy(an_attempt_that_was_overtaken_is_not_started),
        on_proxy(an_end_that_was_overtaken_was_recorded),
        on_proxy(an_attempt_that_was_not_overtaken_is_started),
        on_proxy(an_error_that_ends_the_session_tells_nothing),
        on_proxy(a_barrier_found_when_sent_again_is_not_final),
        on_proxy(a_cap_found_when_sent_again_is_not_final),
        on_proxy(a_time_that_is_over_when_sent_again_is_not_final),
        on_open(a_write_with_a_warning_is_made_sure),
        on_open(a_write_without_a_warning_is_sure),
        on_open(a_write_that_waited_too_long_is_undone),
    };
    return cmocka_run_group_tests_name("resending", tests, NULL, NULL);
}
