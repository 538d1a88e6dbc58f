/* What the server sees of us, and what we see of others: transaction ids, notifications, followers,
 * views, purge, plans. */
#include "postgres.h"

#include <pthread.h>

#include "core/handle.h"

#define SECOND 1000000000ll

/* ---- transaction ids -------------------------------------------------------------------------*/

static int64_t next_xid(place *p)
{
    return sql_number(p, "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint");
}

static void a_replay_writes_nothing_and_uses_no_transaction_id(void **state)
{
    place *p = *state;
    settled(&p->ledger, 1);
    int64_t before = next_xid(p);
    for (int i = 0; i < 300; i++) {
        semel_write w = fresh(1);
        semel_record cur;
        bool inserted;
        expect_error(try_claim(&p->ledger, &w, &cur, &inserted), SEMEL_OK);
        assert_false(inserted);
    }
    /* Others may use the same server. */
    expect(next_xid(p) - before < 100, "%lld were used", (long long)(next_xid(p) - before));
}

/* ---- notifications ---------------------------------------------------------------------------*/

static int notifications(place *p)
{
    int n = 0;
    sql_run(p, "SELECT 1");
    PQconsumeInput(p->beside);
    for (PGnotify *note; (note = PQnotifies(p->beside)) != NULL; n++)
        PQfreemem(note);
    return n;
}

static void only_what_somebody_waited_for_is_notified(void **state)
{
    place *p = *state;
    char text[64];
    snprintf(text, sizeof text, "LISTEN semel_%s", p->schema);
    sql_run(p, text);
    semel_record one = settled(&p->ledger, 1);
    fill(&p->ledger, 2, 20);
    assert_int_equal(notifications(p), 0);
    semel_ref of = {.key = &one.key, .generation = 1};
    int64_t noted = 0, give_up_ns = monotonic_ns() + 60 * SECOND;
    while (noted == 0 &&
           monotonic_ns() < give_up_ns) { /* a busy server may take longer to note it */
        semel_err e =
            p->ledger.ops->wait(p->ledger.st, &of, one.version, monotonic_ns() + SECOND / 20, NULL);
        expect(e == SEMEL_E_TIMEOUT || e == SEMEL_OK, "got %s", semel_err_name(e));
        noted = sql_number(p, "SELECT count(*) FROM @effect WHERE waited");
    }
    assert_int_equal(noted, 1);
    semel_write w = change(&one, SEMEL_S_FAILED);
    one = apply_to(&p->ledger, &w);
    assert_int_equal(notifications(p), 1);
    w = repeat(&one);
    apply_to(&p->ledger, &w);
    assert_int_equal(notifications(p), 1);
}

typedef struct waiter {
    place *p;
    semel_record record;
    semel_err err;
    int64_t woke_ns;
} waiter;

static void *wait_long(void *context)
{
    waiter *w = context;
    int64_t deadline = monotonic_ns() + 20 * SECOND;
    semel_ref of = {.key = &w->record.key, .generation = w->record.generation};
    semel_record cur;
    desk d;
    desk_init(&d);
    do {
        int64_t now;
        w->err = w->p->ledger.ops->wait(w->p->ledger.st, &of, w->record.version, deadline, NULL);
        w->p->ledger.ops->get(w->p->ledger.st, &of, &d.room, &cur, &now, NULL);
    } while (w->err == SEMEL_OK && cur.version == w->record.version);
    w->woke_ns = monotonic_ns();
    desk_fini(&d);
    return NULL;
}

/* Opens a second handle, waits with it, and writes with the first; returns how long it took. */
static int64_t wake_by_another(place *p, place *other, uint64_t n)
{
    waiter w = {.p = other, .record = settled(&p->ledger, n)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_long, &w), 0);
    pause_ms(60);
    semel_write change_it = change(&w.record, SEMEL_S_FAILED);
    apply_to(&p->ledger, &change_it);
    int64_t wrote_ns = monotonic_ns();
    pthread_join(thread, NULL);
    expect_error(w.err, SEMEL_OK);
    return w.woke_ns - wrote_ns;
}

/* With effects from the `n`th on. */
static void expect_woken_within(place *p, place *other, uint64_t n, int64_t promise_ns)
{
    punctual r = {0};
    while (want_more(&r, wake_by_another(p, other, n++), promise_ns))
        ;
}

static void another_handle_is_woken_by_a_notification(void **state)
{
    place *p = *state, other = *p;
    must_open(&other);
    expect_woken_within(p, &other, 1, SECOND / 50);
    p->ledger.ops->close(other.ledger.st);
}

static void without_a_listener_waiters_poll(void **state)
{
    place *p = *state, other = *p;
    place_url(&other, "", "&pooler=transaction");
    must_open(&other);
    assert_int_equal(other.ledger.caps & SEMEL_STORE_NOTIFY, 0);
    expect_woken_within(p, &other, 1, SECOND / 2);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect WHERE waited"), 0);
    p->ledger.ops->close(other.ledger.st);
}

static void a_listener_that_was_cut_off_comes_back(void **state)
{
    place *p = *state, other = *p;
    must_open(&other);
    wake_by_another(p, &other, 1);
    sql_run(p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
               " WHERE application_name || '.' = '@' AND query ILIKE 'LISTEN%'");
    expect_woken_within(p, &other, 2, SECOND / 2);
    p->ledger.ops->close(other.ledger.st);
}

/* ---- followers -------------------------------------------------------------------------------*/

static void an_event_waits_for_those_that_may_come_before_it(void **state)
{
    place *p = *state;
    settled(&p->ledger, 1);
    uint64_t before = last_seq(&p->ledger);
    sql_run(p, "BEGIN");
    sql_run(p, "SELECT pg_current_xact_id()");
    semel_record two = settled(&p->ledger, 2);
    assert_int_equal(events_of(&p->ledger, 0, 0), 2);      /* hidden from who follows all */
    assert_int_equal(events_of(&p->ledger, two.id, 0), 2); /* not from who asks for this one */
    assert_int_equal(last_seq(&p->ledger), before);        /* and nobody is told of it */
    expect_error(
        p->ledger.ops->wait(p->ledger.st, NULL, before, monotonic_ns() + SECOND / 10, NULL),
        SEMEL_E_TIMEOUT);
    semel_event seal = {.index = 1, .at = 1, .what = SM_STR("sealed"), .body = SM_STR("{}")};
    memset(&seal.hash, 3, sizeof seal.hash);
    expect_error(p->ledger.ops->seal(p->ledger.st, &seal, 0, NULL), SEMEL_OK);
    expect_error(p->ledger.ops->seal(p->ledger.st, &seal, 0, NULL), SEMEL_E_STALE);
    sql_run(p, "COMMIT");
    assert_int_equal(events_of(&p->ledger, 0, 0), 5);
    assert_true(last_seq(&p->ledger) > before);
}

/* ---- views, purge, plans ---------------------------------------------------------------------*/

static void people_can_read_the_views(void **state)
{
    place *p = *state;
    semel_record one = settled(&p->ledger, 1);
    semel_write w = repeat(&one);
    w.next.scope = (semel_str){"a\0\xff", 3};
    semel_record two = apply_to(&p->ledger, &w);
    w = change(&two, SEMEL_S_IN_DOUBT);
    w.next.outcome = (semel_str){"\0\xff\\", 3};
    apply_to(&p->ledger, &w);
    semel_note note = {.id = one.id, .first_at = 1, .last_at = 2, .count = 3, .what = SM_STR("x")};
    expect_error(p->ledger.ops->journal(p->ledger.st, &note, 1, NULL), SEMEL_OK);
    assert_int_equal(sql_number(p, "SELECT count(effects) FROM @effects"), 2);
    assert_int_equal(sql_number(p, "SELECT count(in_doubt) FROM @in_doubt"), 1);
    assert_int_equal(sql_number(p, "SELECT count(approvals) FROM @approvals"), 0);
    assert_int_equal(sql_number(p, "SELECT count(history) FROM @history"), 4);
    assert_int_equal(sql_number(p, "SELECT count(notes) FROM @notes"), 1);
    char handle[SM_HANDLE_TEXT];
    sm_handle h = {.shard = two.shard, .id = two.id, .generation = 2};
    sm_handle_effect(&h, handle);
    char *shown = sql_text(p, "SELECT effect FROM @in_doubt");
    assert_string_equal(shown, handle);
    free(shown);
    shown = sql_text(p, "SELECT args FROM @effects ORDER BY born LIMIT 1");
    assert_string_equal(shown, "{\"amount\":1000}");
    free(shown);
}

static void a_key_is_known_as_long_as_an_older_generation_is(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    semel_record cur = settled(l, 1), got; /* never purged */
    semel_write w = repeat(&cur);
    cur = apply_to(l, &w);
    w = change(&cur, SEMEL_S_SUCCEEDED);
    set_windows(&w.next, -3000, -2000, -1000);
    apply_to(l, &w);
    uint64_t done = 0;
    bool left = true;
    for (int i = 0; left && i < 10; i++)
        expect_error(l->ops->purge(l->st, 100, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_false(left);
    got = get_key(l, 1);
    assert_int_equal(got.generation, 2);
    sql_run(p, "UPDATE @effect_old SET purge_at = 1, sweep_at = 1");
    left = true;
    for (int i = 0; left && i < 10; i++)
        expect_error(l->ops->purge(l->st, 100, 0, 0, &done, &left, NULL), SEMEL_OK);
    semel_hash key = key_of(1);
    expect_error(try_get(l, &(semel_ref){.key = &key}, &got), SEMEL_E_NOT_FOUND);
}

/* Each damage is repaired, and no event is ever missing: the handle would notice that it is. */
static void damage_is_found(void **state)
{
    place *p = *state;
    static const char anew[] = "DELETE FROM @effect; INSERT INTO @effect SELECT * FROM sound";
    static const struct {
        const char *damage, *repair;
    } rows[] = {
        {"UPDATE @effect SET key = '\\x00'", anew},
        {"UPDATE @effect SET head = decode(repeat('00', 32), 'hex')", anew},
        {"UPDATE @meta SET seal_seq = 5", "UPDATE @meta SET seal_seq = 0"},
        {"UPDATE @event SET idx = -idx", "UPDATE @event SET idx = -idx"},
    };
    settled(&p->ledger, 1);
    sql_run(p, "CREATE TEMP TABLE sound AS SELECT * FROM @effect");
    for (size_t i = 0; i < COUNT(rows); i++) {
        semel_health h;
        semel_fault fault = {0};
        expect_error(p->ledger.ops->health(p->ledger.st, true, &h, NULL), SEMEL_OK);
        sql_run(p, rows[i].damage);
        expect_error(p->ledger.ops->health(p->ledger.st, true, &h, &fault), SEMEL_E_CORRUPT);
        assert_true(strstr(fault.text, "damaged") != NULL);
        sql_run(p, rows[i].repair);
    }
    sql_run(p, "DROP TABLE sound");
}

/* The next handle knows what the last one has seen. */
static void a_server_that_went_back_between_two_handles_is_noticed(void **state)
{
    place *p = *state;
    ledger *l = &p->ledger;
    if ((l->caps & SEMEL_STORE_DURABLE) == 0)
        skip();
    semel_write w = fresh(1);
    claim_new(l, &w);
    ledger_close(l);
    must_open(p);
    get_key(l, 1); /* it is there */
    ledger_close(l);
    sql_run(p, "DELETE FROM @effect; DELETE FROM @event");
    must_open(p);
    semel_record cur;
    semel_fault fault = {0};
    bool inserted;
    int64_t now;
    expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault),
                 SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "has lost effects") != NULL && strstr(fault.text, "remove /") != NULL,
           "it says: %s", fault.text);
}

static void health_names_the_place_and_no_secret(void **state)
{
    place *p = *state;
    semel_health h;
    expect_error(p->ledger.ops->health(p->ledger.st, false, &h, NULL), SEMEL_OK);
    assert_true(strstr(h.where, p->schema) != NULL);
    assert_int_equal(strncmp(h.server, "PostgreSQL 1", 12), 0);
    assert_true(h.durability[0] == '\0' || (p->ledger.caps & SEMEL_STORE_DURABLE) == 0);
}

/* ---- behind a pooler -------------------------------------------------------------------------*/

static void pooler_url(place *p, const char *more)
{
    const char *pooler = getenv("SEMEL_POOLER_URL");
    if (pooler == NULL)
        skip();
    const char *mark = strchr(pooler, '?');
    snprintf(p->ledger.url, sizeof p->ledger.url, "%.*s?schema=%s%s",
             mark == NULL ? 300 : (int)(mark - pooler), pooler, p->schema, more);
}

static void a_pooler_that_the_url_does_not_mention_is_refused(void **state)
{
    place *p = *state;
    semel_fault fault = {0};
    semel_store_env env = {.size = sizeof env};
    pooler_url(p, "");
    expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "pooler=transaction") != NULL, "it says: %s", fault.text);
}

static void everything_works_behind_a_pooler(void **state)
{
    place *p = *state;
    pooler_url(p, "&pooler=transaction");
    must_open(p);
    fill(&p->ledger, 1, 100);
    semel_write w = fresh(200);
    memset(&w.next.group, 5, sizeof w.next.group);
    w.barred_by_group = true;
    semel_record cur = claim_new(&p->ledger, &w);
    w = change(&cur, SEMEL_S_IN_DOUBT);
    apply_to(&p->ledger, &w);
    semel_health h;
    expect_error(p->ledger.ops->health(p->ledger.st, true, &h, NULL), SEMEL_OK);
    assert_int_equal(h.records, 101);
    place straight = *p;
    place_url(&straight, "", "");
    must_open(&straight);
    expect(wake_by_another(&straight, p, 300) < 2 * SECOND, "it was not woken");
    p->ledger.ops->close(straight.ledger.st);
}

/* A handle behind a pooler asks with each write whether its last events are there. `loss` removes
 * them. */
static void expect_noticed_behind_a_pooler(place *p, const char *loss)
{
    ledger *l = &p->ledger;
    semel_record cur;
    semel_fault fault = {0};
    bool inserted;
    int64_t now;
    pooler_url(p, "&pooler=transaction");
    must_open(p);
    if ((l->caps & SEMEL_STORE_DURABLE) == 0)
        skip();
    semel_write w = fresh(1);
    claim_new(l, &w);
    sql_run(p, loss);
    w = fresh(1);
    expect_error(l->ops->claim(l->st, &w, &l->desk.room, &cur, &now, &inserted, &fault),
                 SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "has lost effects") != NULL, "it says: %s", fault.text);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM @effect"), 0);
}

/* A pooler keeps our connection over a failover: what is behind it is looked at with each write. */
static void a_server_that_was_replaced_behind_a_pooler_is_noticed_by_the_first_write(void **state)
{
    expect_noticed_behind_a_pooler(*state, "DELETE FROM @effect; DELETE FROM @event");
}

/* What counts as purged is a number that no event holds. A purge leaves a newer event. */
static void events_that_are_called_purged_without_a_newer_one_are_missed(void **state)
{
    expect_noticed_behind_a_pooler(*state, "DELETE FROM @effect; DELETE FROM @event; UPDATE @meta"
                                           " SET seq_floor = seq_floor + 1000000000");
}

int keeping_up_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_open(a_replay_writes_nothing_and_uses_no_transaction_id),
        on_open(only_what_somebody_waited_for_is_notified),
        on_open(another_handle_is_woken_by_a_notification),
        on_open(without_a_listener_waiters_poll),
        on_open(a_listener_that_was_cut_off_comes_back),
        on_open(an_event_waits_for_those_that_may_come_before_it),
        on_open(people_can_read_the_views),
        on_open(a_key_is_known_as_long_as_an_older_generation_is),
        on_open(damage_is_found),
        on_open(a_server_that_went_back_between_two_handles_is_noticed),
        on_open(health_names_the_place_and_no_secret),
        on_place(a_pooler_that_the_url_does_not_mention_is_refused),
        on_place(everything_works_behind_a_pooler),
        on_place(a_server_that_was_replaced_behind_a_pooler_is_noticed_by_the_first_write),
        on_place(events_that_are_called_purged_without_a_newer_one_are_missed),
    };
    return cmocka_run_group_tests_name("keeping up", tests, NULL, NULL);
}
