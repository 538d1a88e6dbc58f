/* Making, opening and upgrading a ledger; servers and roles that will not do. */
#include "postgres.h"

#include <pthread.h>

static semel_store_env env_of(bool migrate, uint32_t partitions)
{
    return (semel_store_env){
        .size = sizeof(semel_store_env), .migrate = migrate, .partitions = partitions};
}

/* Opening is refused with a sentence that has these words. The code tells whether trying again may
 * help. */
static void expect_told(place *p, bool migrate, semel_err code, const char *words)
{
    semel_fault fault = {0};
    semel_store_env env = env_of(migrate, 0);
    expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
    assert_null(p->ledger.st);
    expect(strstr(fault.text, words) != NULL, "it says: %s", fault.text);
    expect(fault.code == code, "%s: %s", semel_err_name(fault.code), fault.text);
}

static void expect_refused(place *p, const char *words)
{
    expect_told(p, false, SEMEL_E_BAD_ARGUMENTS, words);
}

static void a_migration_makes_partitions(void **state)
{
    place *p = *state;
    semel_store_env env = env_of(true, 4);
    semel_fault fault = {0};
    semel_err e = place_open(p, &env, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    assert_int_equal(sql_number(p, "SELECT count(*) FROM pg_inherits"
                                   " WHERE inhparent IN ('@effect'::regclass, '@event'::regclass)"),
                     8);
    fill(&p->ledger, 1, 40);
    semel_record cur = get_key(&p->ledger, 7);
    semel_write w = repeat(&cur);
    apply_to(&p->ledger, &w);
    semel_health h;
    expect_error(p->ledger.ops->health(p->ledger.st, true, &h, &fault), SEMEL_OK);
    assert_int_equal(h.records, 41);
    assert_int_equal(h.in_state[SEMEL_S_RUNNING], 1);
    assert_int_equal(events_of(&p->ledger, 0, 0), 81);
    seen *s = seen_new();
    uint64_t cursor = 0;
    expect_error(
        p->ledger.ops->query(p->ledger.st, &(semel_filter){0}, &cursor, 100, see_record, s, NULL),
        SEMEL_OK);
    assert_int_equal(s->n, 41);
    seen_free(s);
    ledger_close(&p->ledger);
    must_open(p); /* and it is opened like any other */
    get_key(&p->ledger, 7);
}

static void a_migration_of_what_is_there_changes_nothing(void **state)
{
    place *p = *state;
    must_open(p);
    semel_record one = settled(&p->ledger, 1);
    ledger_close(&p->ledger);
    semel_store_env env = env_of(true, 8); /* its tables are not split afterwards */
    semel_fault fault = {0};
    expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
    assert_non_null(strstr(fault.text, "with 0 partitions"));
    env = env_of(true, 0);
    expect_error(place_open(p, &env, NULL), SEMEL_OK);
    semel_record got = get_key(&p->ledger, 1);
    expect_record(&got, &one);
}

static void a_ledger_from_another_server_goes_on_after_a_migration(void **state)
{
    place *p = *state;
    must_open(p);
    semel_record one = settled(&p->ledger, 1);
    uint64_t before = last_seq(&p->ledger);
    ledger_close(&p->ledger);
    sql_run(p, "UPDATE @event SET seq = seq + 1000000000000");
    expect_refused(p, "semel store migrate");
    semel_store_env env = env_of(true, 0);
    expect_error(place_open(p, &env, NULL), SEMEL_OK);
    assert_int_equal(last_seq(&p->ledger), before + 1000000000000);
    semel_write w = change(&one, SEMEL_S_FAILED);
    apply_to(&p->ledger, &w);
    assert_true(last_seq(&p->ledger) > before + 1000000000000);
    assert_int_equal(events_of(&p->ledger, 0, 0), 3);
    ledger_close(&p->ledger);
    must_open(p);
}

static void a_newer_ledger_is_left_alone(void **state)
{
    place *p = *state;
    must_open(p);
    ledger_close(&p->ledger);
    sql_run(p, "UPDATE @meta SET schema = 99");
    expect_refused(p, "newer");
    sql_run(p, "DROP VIEW @history; DROP TABLE @event");
    sql_run(p, "UPDATE @meta SET schema = 3");
    expect_refused(p, "not a whole one");
    expect_told(p, true, SEMEL_E_BAD_ARGUMENTS, "not a whole one");
}

/* Tables as the version before made them: counters had no end. */
static void an_older_ledger_is_upgraded_by_a_migration(void **state)
{
    place *p = *state;
    must_open(p);
    semel_counter counter = {SM_STR("spent"), 5, INT64_MAX, 0};
    semel_write w = fresh(1);
    w.counters = &counter;
    w.n_counters = 1;
    semel_record one = claim_new(&p->ledger, &w);
    ledger_close(&p->ledger);
    sql_run(p, "ALTER TABLE @counter DROP COLUMN until");
    sql_run(p, "UPDATE @meta SET schema = 2");
    expect_refused(p, "run `semel store migrate` once");
    semel_store_env env = env_of(true, 0);
    expect_error(place_open(p, &env, NULL), SEMEL_OK);
    semel_record got = get_key(&p->ledger, 1);
    expect_record(&got, &one);
    uint64_t done = 0;
    bool left;
    expect_error(p->ledger.ops->purge(p->ledger.st, 100, 0, 0, &done, &left, NULL), SEMEL_OK);
    assert_int_equal(counter_of(&p->ledger, "spent"), 5); /* it has no end */
    ledger_close(&p->ledger);
    must_open(p);
    sql_run(p, "UPDATE @meta SET schema = 1");
    ledger_close(&p->ledger);
    expect_told(p, true, SEMEL_E_BAD_ARGUMENTS, "start a new ledger");
}

static void a_schema_of_something_else_is_left_alone(void **state)
{
    place *p = *state;
    static const char *const others[] = {"CREATE TABLE @effect(x integer)",
                                         "CREATE TABLE @meta(x integer)"};
    char text[96];
    for (size_t i = 0; i < COUNT(others); i++) {
        snprintf(text, sizeof text, "CREATE SCHEMA %s", p->schema);
        sql_run(p, text);
        sql_run(p, others[i]);
        expect_refused(p, "name another schema");
        expect_told(p, true, SEMEL_E_BAD_ARGUMENTS, "name another schema");
        assert_int_equal(sql_number(p, "SELECT count(*) FROM pg_class"
                                       " WHERE relnamespace = left('@', -1)::regnamespace"),
                         1);
        snprintf(text, sizeof text, "DROP SCHEMA %s CASCADE", p->schema);
        sql_run(p, text);
    }
}

static void a_role_that_may_make_nothing_is_told_who_can(void **state)
{
    place *p = *state;
    char role[64], session[96], text[512];
    snprintf(role, sizeof role, "%s_poor", p->schema);
    snprintf(session, sizeof session, "-c role=%s", role);
    snprintf(text, sizeof text, "CREATE ROLE %s", role);
    sql_run(p, text);
    place_url(p, session, "");
    expect_refused(p, "semel store migrate");
    place_url(p, "", "");
    must_open(p);
    ledger_close(&p->ledger);
    snprintf(text, sizeof text,
             "GRANT USAGE ON SCHEMA %s TO %s;"
             " GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA %s TO %s",
             p->schema, role, p->schema, role);
    sql_run(p, text);
    place_url(p, session, "");
    must_open(p);
    settled(&p->ledger, 1);
    semel_note note = {.id = 1, .generation = 1, .count = 1, .what = SM_STR("replayed")};
    expect_error(p->ledger.ops->journal(p->ledger.st, &note, 1, NULL), SEMEL_OK);
    ledger_close(&p->ledger);
    static const struct {
        const char *revoke, *words;
    } rows[] = {{"INSERT, DELETE ON @event", "INSERT, DELETE on event."},
                {"UPDATE ON @effect", "UPDATE on effect; INSERT, DELETE on event."},
                {"ALL ON @meta", "SELECT, INSERT, UPDATE, DELETE on meta"},
                {"USAGE ON SCHEMA", "USAGE on the schema; "}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        bool whole = strstr(rows[i].revoke, "SCHEMA") != NULL;
        snprintf(text, sizeof text, "REVOKE %s %s FROM %s", rows[i].revoke, whole ? p->schema : "",
                 role);
        sql_run(p, text);
        expect_refused(p, rows[i].words);
    }
    snprintf(text, sizeof text, "DROP OWNED BY %s; DROP ROLE %s", role, role);
    sql_run(p, text);
}

static void a_session_that_cannot_write_is_refused(void **state)
{
    place *p = *state;
    place_url(p, "-c default_transaction_read_only=on", "");
    expect_told(p, false, SEMEL_E_UNAVAILABLE, "default_transaction_read_only is on");
}

static void a_pooled_session_without_sync_is_refused_and_a_direct_one_set(void **state)
{
    place *p = *state;
    place_url(p, "-c synchronous_commit=off", "&pooler=transaction");
    expect_refused(p, "synchronous_commit");
    place_url(p, "-c default_transaction_isolation=serializable", "&pooler=transaction");
    expect_refused(p, "read committed");
    place_url(p, "-c synchronous_commit=off -c default_transaction_isolation=serializable", "");
    must_open(p);
    assert_true((p->ledger.caps & SEMEL_STORE_DURABLE) != 0);
    fill(&p->ledger, 1, 50);
}

/* A URL with `listen` in it: libpq's keywords and values, with %XX for what is special there. */
static void listen_at(place *p, const char *host, const char *port, const char *database)
{
    char more[512];
    snprintf(more, sizeof more,
             "&pooler=transaction&timeout=3000&listen=host=%s%%20port=%s%%20dbname=%s%%20user=%s"
             "%%20password=%s",
             host, port, database, PQuser(p->beside), PQpass(p->beside));
    place_url(p, "", more);
}

static void who_listens_elsewhere_is_told(void **state)
{
    place *p = *state;
    const char *host = PQhost(p->beside), *port = PQport(p->beside), *db = PQdb(p->beside);
    listen_at(p, host, port, db);
    must_open(p);
    assert_true((p->ledger.caps & SEMEL_STORE_NOTIFY) != 0);
    ledger_close(&p->ledger);
    listen_at(p, "127.0.0.1", "1", db);
    expect_refused(p, "what listen= in the ledger's URL names cannot be reached");
    listen_at(p, host, port, "nosuch");
    expect_refused(p, "what listen= in the ledger's URL names cannot be reached");
    listen_at(p, host, port, strcmp(db, "postgres") == 0 ? "template1" : "postgres");
    expect_refused(p, "listen= in the ledger's URL leads to another database");
    const char *pooler = getenv("SEMEL_POOLER_URL");
    char more[512];
    if (pooler == NULL)
        return;
    snprintf(more, sizeof more, "&pooler=transaction&listen=%.*s", (int)strcspn(pooler, "?"),
             pooler);
    place_url(p, "", more);
    expect_refused(p, "leads to a pooler");
}

/* What a view in a database of that encoding shows of these arguments. */
static void expect_shown(place *p, const char *encoding, const char *args, const char *shown)
{
    char text[256];
    semel_write w = fresh(1);
    w.next.args = w.next.caller = sm_str_from(args);
    snprintf(p->database, sizeof p->database, "%.20s_db", p->schema);
    snprintf(text, sizeof text, "CREATE DATABASE %s ENCODING %s LOCALE 'C' TEMPLATE template0",
             p->database, encoding);
    sql_run(p, text);
    place_url(p, "", "");
    must_open(p);
    claim_new(&p->ledger, &w);
    ledger_close(&p->ledger);
    snprintf(text, sizeof text, "host=%s port=%s user=%s password=%s dbname=%s", PQhost(p->beside),
             PQport(p->beside), PQuser(p->beside), PQpass(p->beside), p->database);
    place there = {.beside = PQconnectdb(text)};
    assert_int_equal(PQsetClientEncoding(there.beside, "UTF8"), 0);
    memcpy(there.schema, p->schema, sizeof there.schema);
    char *got = sql_text(&there, "SELECT args FROM @effects WHERE caller_key = args");
    assert_string_equal(got, shown);
    free(got);
    assert_int_equal(sql_number(&there, "SELECT count(body) FROM @history"), 1);
    PQfinish(there.beside);
    snprintf(text, sizeof text, "DROP DATABASE %s WITH (FORCE)", p->database);
    sql_run(p, text);
}

static void views_show_what_the_database_cannot_hold(void **state)
{
    place *p = *state;
    expect_shown(p, "LATIN1", "{\"a\":\"b\\n\"}", "{\"a\":\"b\\n\"}");
    expect_shown(p, "LATIN1", "caf\303\251", "caf\303\251");
    expect_shown(p, "LATIN1", "5 \342\202\254", "5 \\342\\202\\254");
    expect_shown(p, "LATIN2", "\342\202\254", "\\342\\202\\254");
    expect_shown(p, "UTF8", "5 \342\202\254", "5 \342\202\254");
}

static void *open_in_thread(void *context)
{
    place *p = context;
    semel_store_env env = env_of(false, 0);
    semel_fault fault;
    if (place_open(p, &env, &fault) != SEMEL_OK)
        fprintf(stderr, "%s\n", fault.text);
    return NULL;
}

static void many_who_open_make_one_ledger(void **state)
{
    place *p = *state;
    enum { N = 8 };
    static place copies[N];
    pthread_t threads[N];
    for (int i = 0; i < N; i++) {
        copies[i] = *p;
        assert_int_equal(pthread_create(&threads[i], NULL, open_in_thread, &copies[i]), 0);
    }
    for (int i = 0; i < N; i++) {
        pthread_join(threads[i], NULL);
        assert_non_null(copies[i].ledger.st);
        p->ledger.ops->close(copies[i].ledger.st);
    }
}

static void a_password_is_not_repeated(void **state)
{
    place *p = *state;
    static const char *const urls[] = {
        "postgres://user:SECRET@127.0.0.1:1/db",
        "postgres://user:SECRET@127.0.0.1:SECRET/db",
        "postgres://user:SECRET@[::1/db?SECRET",
        "postgres://user:a@SECRET@127.0.0.1:1/db",
        "postgres://user:a/SECRET@127.0.0.1:1/db",
        "postgres://user:1/SECRET@127.0.0.1:1/db",
        "postgres://user:a?SECRET@127.0.0.1:1/db",
        "postgres:host=127.0.0.1 port=1 password=SECRET SECRET",
        "postgres://u:SECRET@127.0.0.1:1/db?listen=postgres%3A%2F%2Fx%3ASECRET%40%5By",
        "postgres://u:SECRET@127.0.0.1:1/db?schema=SECRET",
        "postgres://u:SECRET@127.0.0.1:1/db?pool=SECRET",
    };
    for (size_t i = 0; i < COUNT(urls); i++) {
        semel_fault fault = {0};
        semel_store_env env = env_of(false, 0);
        snprintf(p->ledger.url, sizeof p->ledger.url, "%s", urls[i]);
        expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
        expect(fault.text[0] != '\0' && strstr(fault.text, "SECRET") == NULL, "%s: %s", urls[i],
               fault.text);
    }
}

int making_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_place(a_migration_makes_partitions),
        on_place(a_migration_of_what_is_there_changes_nothing),
        on_place(a_ledger_from_another_server_goes_on_after_a_migration),
        on_place(a_newer_ledger_is_left_alone),
        on_place(an_older_ledger_is_upgraded_by_a_migration),
        on_place(a_schema_of_something_else_is_left_alone),
        on_place(a_role_that_may_make_nothing_is_told_who_can),
        on_place(a_session_that_cannot_write_is_refused),
        on_place(a_pooled_session_without_sync_is_refused_and_a_direct_one_set),
        on_place(who_listens_elsewhere_is_told),
        on_place(views_show_what_the_database_cannot_hold),
        on_place(many_who_open_make_one_ledger),
        on_place(a_password_is_not_repeated),
    };
    return cmocka_run_group_tests_name("making", tests, NULL, NULL);
}
