/* What goes wrong between the store and the server, and on the server: time is bounded, nothing is
 * guessed, and it works again when the server does. */
#include "postgres.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"

#define SECOND 1000000000ll

/* What the proxy knows a message by. */
#define MARK_BYTES "order-lost"
#define BOUND_NS   (6 * SECOND) /* the timeout, and time for a busy machine */

static semel_write marked(uint64_t n)
{
    semel_write w = fresh(n);
    w.next.args = SM_STR("{\"order\":\"" MARK_BYTES "\"}");
    return w;
}

static int64_t events_of_all(place *p)
{
    return sql_number(p, "SELECT count(*) FROM @event");
}

/* ---- lost connections ------------------------------------------------------------------------*/

static void a_claim_whose_answer_was_lost_is_known_to_be_ours(void **state)
{
    place *p = *state;
    for (int passed_on = 0; passed_on < 2; passed_on++) {
        semel_write w = marked(1 + (uint64_t)passed_on);
        semel_record cur;
        bool inserted = false;
        int cuts = proxy_cuts(p->proxy);
        proxy_cut(p->proxy, MARK_BYTES, passed_on == 1);
        expect_error(try_claim(&p->ledger, &w, &cur, &inserted), SEMEL_OK);
        assert_int_equal(proxy_cuts(p->proxy), cuts + 1);
        assert_true(inserted);
        expect_written(&cur, &w, 1);
        assert_int_equal(events_of_all(p), passed_on + 1);
    }
}

static void a_claim_whose_answer_was_lost_finds_somebody_elses(void **state)
{
    place *p = *state;
    semel_write w = fresh(1), mine = marked(1);
    claim_new(&p->ledger, &w);
    mine.event.hash.b[0] ^= 1;
    semel_record cur;
    bool inserted = true;
    proxy_cut(p->proxy, MARK_BYTES, true);
    expect_error(try_claim(&p->ledger, &mine, &cur, &inserted), SEMEL_OK);
    assert_false(inserted);
    expect_text(cur.args, "{\"amount\":1000}");
    assert_int_equal(events_of_all(p), 1);
}

static void an_apply_whose_answer_was_lost_is_known_to_be_ours(void **state)
{
    place *p = *state;
    semel_write w = fresh(1);
    semel_record cur = claim_new(&p->ledger, &w);
    for (int i = 0; i < 4; i++) {
        bool next = i >= 2;
        w = next ? repeat(&cur) : change(&cur, SEMEL_S_SUCCEEDED);
        w.next.args = SM_STR("{\"order\":\"" MARK_BYTES "\"}");
        proxy_cut(p->proxy, MARK_BYTES, i % 2 == 1);
        uint64_t version = next ? 1 : cur.version + 1;
        expect_error(try_apply(&p->ledger, &w, &cur), SEMEL_OK);
        expect_written(&cur, &w, version);
        assert_int_equal(events_of_all(p), i + 2);
    }
    assert_int_equal(proxy_cuts(p->proxy), 4);
}

static void an_apply_whose_answer_was_lost_may_have_lost_the_race(void **state)
{
    place *p = *state;
    semel_write w = fresh(1);
    semel_record cur = claim_new(&p->ledger, &w), now;
    semel_write mine = change(&cur, SEMEL_S_SUCCEEDED);
    mine.next.args = SM_STR("{\"order\":\"" MARK_BYTES "\"}");
    mine.event.hash.b[0] ^= 1;
    w = change(&cur, SEMEL_S_FAILED);
    apply_to(&p->ledger, &w);
    proxy_cut(p->proxy, MARK_BYTES, true);
    expect_error(try_apply(&p->ledger, &mine, &now), SEMEL_E_STALE);
    assert_int_equal(now.state, SEMEL_S_FAILED);
    assert_int_equal(events_of_all(p), 2);
}

static void a_seal_whose_answer_was_lost_is_known_to_be_ours(void **state)
{
    place *p = *state;
    semel_event seal = {.index = 1,
                        .at = 5,
                        .what = SM_STR("sealed"),
                        .body = SM_STR("{\"x\":\"" MARK_BYTES "\"}")};
    memset(&seal.hash, 7, sizeof seal.hash);
    proxy_cut(p->proxy, MARK_BYTES, true);
    expect_error(p->ledger.ops->seal(p->ledger.st, &seal, 0, NULL), SEMEL_OK);
    assert_int_equal(proxy_cuts(p->proxy), 1);
    assert_int_equal(events_of_all(p), 1);
}

static void connections_that_were_ended_are_not_noticed(void **state)
{
    place *p = *state;
    for (uint64_t n = 1; n <= 5; n++) {
        sql_run(p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE application_name || '.' = '@'");
        settled(&p->ledger, n);
    }
    assert_int_equal(events_of_all(p), 10);
}

/* ---- servers that do not answer --------------------------------------------------------------*/

static void a_server_that_stands_still_costs_no_more_than_the_timeout(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    semel_record one = settled(l, 1), cur;
    semel_write w = fresh(2);
    semel_fault fault = {0};
    int64_t now;
    bool inserted;
    proxy_hold(p->proxy, true);
    for (int i = 0; i < 4; i++) {
        int64_t began = monotonic_ns();
        expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault),
                     SEMEL_E_UNAVAILABLE);
        expect(monotonic_ns() - began < BOUND_NS, "it took %.1f s",
               (double)(monotonic_ns() - began) / 1e9);
        assert_false(inserted);
        assert_true(fault.text[0] != '\0');
    }
    /* And a waiter is back in time. */
    int64_t began = monotonic_ns();
    semel_err e = l->ops->wait(l->st, &(semel_ref){.key = &one.key, .generation = 1}, one.version,
                               began + SECOND / 5, NULL);
    expect(e == SEMEL_E_TIMEOUT || e == SEMEL_E_UNAVAILABLE, "got %s", semel_err_name(e));
    expect(monotonic_ns() - began < SECOND / 2, "it took %.1f s",
           (double)(monotonic_ns() - began) / 1e9);
    proxy_hold(p->proxy, false);
    int64_t deadline = monotonic_ns() + 10 * SECOND;
    do {
        e = try_claim(l, &w, &cur, &inserted);
    } while (e == SEMEL_E_UNAVAILABLE && monotonic_ns() < deadline);
    expect_error(e, SEMEL_OK);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect"), 2);
}

static void a_server_that_is_away_for_a_moment_is_not_noticed(void **state)
{
    place *p = *state;
    settled(&p->ledger, 1);
    proxy_refuse(p->proxy, true);
    semel_write w = fresh(2);
    semel_record cur;
    bool inserted;
    semel_fault fault = {0};
    int64_t now, began = monotonic_ns();
    expect_error(
        p->ledger.ops->claim(p->ledger.st, &w, &p->ledger.desk.room, &cur, &now, &inserted, &fault),
        SEMEL_E_UNAVAILABLE);
    assert_true(monotonic_ns() - began < BOUND_NS);
    proxy_refuse(p->proxy, false);
    int64_t deadline = monotonic_ns() + 10 * SECOND;
    semel_err e;
    do {
        e = try_claim(&p->ledger, &w, &cur, &inserted);
    } while (e == SEMEL_E_UNAVAILABLE && monotonic_ns() < deadline);
    expect_error(e, SEMEL_OK);
    assert_true(inserted);
}

typedef struct crowd {
    place *p;
    int64_t longest_ns;
    pthread_mutex_t lock;
} crowd;

static void *ask_once(void *context)
{
    crowd *c = context;
    semel_ref ref = {.id = 12345};
    semel_record cur;
    desk d;
    desk_init(&d);
    int64_t now, began = monotonic_ns();
    c->p->ledger.ops->get(c->p->ledger.st, &ref, &d.room, &cur, &now, NULL);
    int64_t took = monotonic_ns() - began;
    desk_fini(&d);
    pthread_mutex_lock(&c->lock);
    c->longest_ns = took > c->longest_ns ? took : c->longest_ns;
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void a_crowd_before_a_server_that_stands_still_waits_no_longer(void **state)
{
    place *p = *state;
    crowd c = {.p = p, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[24];
    proxy_hold(p->proxy, true);
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_once, &c), 0);
    for (size_t i = 0; i < COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    expect(c.longest_ns < BOUND_NS, "one took %.1f s", (double)c.longest_ns / 1e9);
    proxy_hold(p->proxy, false);
}

static void closing_does_not_wait_for_a_server(void **state)
{
    place *p = *state;
    semel_record one = settled(&p->ledger, 1);
    p->ledger.ops->wait(p->ledger.st, &(semel_ref){.key = &one.key, .generation = 1}, one.version,
                        monotonic_ns() + SECOND / 20, NULL); /* starts who listens */
    proxy_hold(p->proxy, true);
    int64_t began = monotonic_ns();
    ledger_close(&p->ledger);
    assert_true(monotonic_ns() - began < BOUND_NS);
    proxy_hold(p->proxy, false);
}

static void a_server_that_starts_is_waited_for(void **state)
{
    place *p = *state;
    semel_store_env env = {.size = sizeof env};
    semel_fault fault = {0};
    ledger_close(&p->ledger);
    proxy_reject(p->proxy, 5);
    must_open(p);
    ledger_close(&p->ledger);
    proxy_reject(p->proxy, 1000000);
    int64_t began = monotonic_ns();
    expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
    int64_t took = monotonic_ns() - began;
    expect(took > SECOND / 2 && took < BOUND_NS, "it took %.1f s", (double)took / 1e9);
    expect(strstr(fault.text, "le serveur") != NULL, "it says: %s", fault.text);
    assert_int_equal(fault.code, SEMEL_E_UNAVAILABLE);
    proxy_reject(p->proxy, 0);
    /* Who is not there at all is not waited for. */
    proxy_refuse(p->proxy, true);
    began = monotonic_ns();
    expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
    expect(monotonic_ns() - began < SECOND / 2, "it was waited for");
    proxy_refuse(p->proxy, false);
    must_open(p);
}

/* ---- servers that change ---------------------------------------------------------------------*/

/* Sets full_page_writes for the whole server, and waits until new connections have it. */
static void write_pages(place *p, bool on)
{
    sql_run(p,
            on ? "ALTER SYSTEM RESET full_page_writes" : "ALTER SYSTEM SET full_page_writes = off");
    sql_run(p, "SELECT pg_reload_conf()");
    bool is = !on;
    for (int tries = 0; tries < 1000 && is != on; tries++) {
        usleep(5000);
        is = sql_number(p, "SELECT count(*) WHERE current_setting('full_page_writes') = 'on'") == 1;
    }
    assert_int_equal(is, on);
}

static int place_durable_teardown(void **state)
{
    write_pages(*state, true);
    return place_teardown(state);
}

static void end_connections(place *p)
{
    sql_run(p, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
               " WHERE application_name || '.' = '@'");
}

/* Claims until one is refused, which happens within a second or two, for this reason. */
static void expect_refusal(ledger *l, const char *reason)
{
    semel_fault fault = {0};
    semel_err e = SEMEL_OK;
    int64_t began = sm_clock_mono_ns(), now;
    for (uint64_t n = 100; e == SEMEL_OK && sm_clock_mono_ns() - began < 20 * SECOND; n++) {
        semel_write w = fresh(n);
        semel_record cur;
        bool inserted;
        e = l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault);
        usleep(10000);
    }
    int64_t took = sm_clock_mono_ns() - began;
    expect_error(e, SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, reason) != NULL, "it says: %s", fault.text);
    expect(took < 15 * SECOND, "after %lld ms", (long long)(took / 1000000));
}

/* Sessions that are open notice it, and go on when the setting is right again. */
static void notice_settings(place *p)
{
    ledger *l = &p->ledger;
    write_pages(p, false);
    expect_refusal(l, "full_page_writes is off now");
    write_pages(p, true);
    settled(l, 3000);
}

/* The URL's options, once straight and once as behind a pooler. */
static void keep_durable(place *p, const char *more)
{
    ledger *l = &p->ledger;
    semel_write w = fresh(1);
    semel_record cur;
    semel_fault fault = {0};
    int64_t now;
    bool inserted;
    place_url(p, "", more);
    must_open(p);
    assert_true((l->caps & SEMEL_STORE_DURABLE) != 0);
    settled(l, 2);
    notice_settings(p);
    int64_t effects = sql_number(p, "SELECT count(*) FROM @effect");
    write_pages(p, false);
    end_connections(p);
    expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault),
                 SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "full_page_writes is off now") != NULL, "it says: %s", fault.text);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect"), effects);
    ledger_close(l);
    must_open(p); /* as what it is now */
    assert_true((l->caps & SEMEL_STORE_LOSSY) != 0);
    end_connections(p);
    settled(l, 3);
    ledger_close(l);
    write_pages(p, true);
}

/* A crash empties a table that is not logged. So the ledger is not durable, whether the table was
 * so when the ledger was opened or became so later. */
static void a_ledger_with_an_unlogged_table_is_not_durable(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    place_url(p, "", "&timeout=30000");
    must_open(p);
    assert_true((l->caps & SEMEL_STORE_DURABLE) != 0);
    settled(l, 2);
    sql_run(p, "ALTER TABLE @effect SET UNLOGGED");
    expect_refusal(l, "UNLOGGED now");
    ledger_close(l);
    must_open(p);
    assert_true((l->caps & SEMEL_STORE_DURABLE) == 0 && (l->caps & SEMEL_STORE_LOSSY) != 0);
    ledger_close(l);
    sql_run(p, "ALTER TABLE @effect SET LOGGED");
    must_open(p);
    assert_true((l->caps & SEMEL_STORE_DURABLE) != 0);
    ledger_close(l);
}

static void a_server_that_is_durable_no_longer_is_refused(void **state)
{
    place *p = *state;
    char drop[96];
    keep_durable(p, "&timeout=30000");
    snprintf(drop, sizeof drop, "DROP SCHEMA %s CASCADE", p->schema);
    sql_run(p, drop);
    keep_durable(p, "&timeout=30000&pooler=transaction");
}

/* ---- errors of the server --------------------------------------------------------------------*/

/* Makes the next `n` inserts of an event fail with a SQLSTATE. */
static void fail_next(place *p, int n, const char *sqlstate)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "CREATE SEQUENCE IF NOT EXISTS @failures; SELECT setval('@failures', 1, false);"
        " CREATE OR REPLACE FUNCTION @fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF nextval('@failures') <= %d THEN"
        " RAISE EXCEPTION 'made to fail' USING ERRCODE = '%s'; END IF; RETURN NEW; END $$;"
        " DROP TRIGGER IF EXISTS failing ON @event;"
        " CREATE TRIGGER failing BEFORE INSERT ON @event FOR EACH ROW EXECUTE FUNCTION @fail()",
        n, sqlstate);
    sql_run(p, text);
}

static void what_the_server_undid_is_tried_again(void **state)
{
    place *p = *state;
    static const char *const states[] = {"40001", "40P01", "57P01", "25006", "53300"};
    for (size_t i = 0; i < COUNT(states); i++) {
        fail_next(p, 2, states[i]);
        semel_write w = fresh(i + 1);
        semel_record cur = claim_new(&p->ledger, &w);
        expect_written(&cur, &w, 1);
        fail_next(p, 2, states[i]);
        w = change(&cur, SEMEL_S_SUCCEEDED);
        cur = apply_to(&p->ledger, &w);
        assert_int_equal(cur.version, 2);
        assert_int_equal(events_of_all(p), 2 * (i + 1));
    }
}

static void a_full_server_is_told_at_once_and_nothing_is_written(void **state)
{
    place *p = *state;
    static const struct {
        const char *state, *word;
        semel_err err;
    } rows[] = {{"53100", "disk", SEMEL_E_UNAVAILABLE}, {"53200", "memory", SEMEL_E_UNAVAILABLE},
                {"58030", "disk", SEMEL_E_UNAVAILABLE}, {"XX001", "damaged", SEMEL_E_CORRUPT},
                {"23505", "damaged", SEMEL_E_CORRUPT},  {"42501", "grant", SEMEL_E_UNAVAILABLE}};
    ledger *l = &p->ledger;
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_fault fault = {0};
        semel_write w = fresh(1);
        semel_record cur;
        int64_t now, began = monotonic_ns();
        bool inserted;
        fail_next(p, 1, rows[i].state);
        expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault),
                     rows[i].err);
        expect(strstr(fault.text, rows[i].word) != NULL, "%s: %s", rows[i].state, fault.text);
        assert_true(monotonic_ns() - began < SECOND / 2);
        assert_int_equal(events_of_all(p), 0);
        assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect"), 0);
    }
}

int failing_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_proxy(a_claim_whose_answer_was_lost_is_known_to_be_ours),
        on_proxy(a_claim_whose_answer_was_lost_finds_somebody_elses),
        on_proxy(an_apply_whose_answer_was_lost_is_known_to_be_ours),
        on_proxy(an_apply_whose_answer_was_lost_may_have_lost_the_race),
        on_proxy(a_seal_whose_answer_was_lost_is_known_to_be_ours),
        on_open(connections_that_were_ended_are_not_noticed),
        in_a_hurry(a_server_that_stands_still_costs_no_more_than_the_timeout),
        in_a_hurry(a_server_that_is_away_for_a_moment_is_not_noticed),
        in_a_hurry(a_server_that_starts_is_waited_for),
        in_a_hurry(a_crowd_before_a_server_that_stands_still_waits_no_longer),
        in_a_hurry(closing_does_not_wait_for_a_server),
        cmocka_unit_test_setup_teardown(a_ledger_with_an_unlogged_table_is_not_durable, place_setup,
                                        place_teardown),
        cmocka_unit_test_setup_teardown(a_server_that_is_durable_no_longer_is_refused, place_setup,
                                        place_durable_teardown),
        on_open(what_the_server_undid_is_tried_again),
        on_open(a_full_server_is_told_at_once_and_nothing_is_written),
    };
    return cmocka_run_group_tests_name("failing", tests, NULL, NULL);
}
