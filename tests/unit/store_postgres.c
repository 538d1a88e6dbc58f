/*
 * What of the Postgres store needs no server: its URL, and how binary values are read and written.
 * The rest is in tests/postgres and in the conformance suite.
 */
#include "unit.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "store/postgres/postgres.h"
#include "store/stores.h"

static sm_err settings_of(const char *url, sm_pg_settings *s, sm_fault *fault)
{
    return sm_pg_settings_init(s, sm_str_from(url), fault);
}

static const char *value_of(const sm_pg_target *t, const char *key)
{
    for (size_t i = 0; t->keys[i] != NULL; i++) {
        if (strcmp(t->keys[i], key) == 0)
            return t->values[i];
    }
    return NULL;
}

/* ---- the URL ---------------------------------------------------------------------------------*/

static void a_plain_url_has_defaults(void **state)
{
    (void)state;
    sm_pg_settings s;
    assert_int_equal(settings_of("postgres://me@db.example:5433/things", &s, NULL), SM_OK);
    assert_string_equal(s.schema, "semel");
    assert_string_equal(s.channel, "semel_semel");
    assert_int_equal(s.pool, 16);
    assert_int_equal(s.timeout_ms, 10000);
    assert_false(s.pooler || s.accept_loss);
    assert_null(s.listen.options);
    assert_string_equal(value_of(&s.main, "host"), "db.example");
    assert_string_equal(value_of(&s.main, "port"), "5433");
    assert_string_equal(value_of(&s.main, "dbname"), "things");
    assert_string_equal(value_of(&s.main, "user"), "me");
    assert_string_equal(value_of(&s.main, "application_name"), "semel");
    assert_string_equal(value_of(&s.main, "target_session_attrs"), "read-write");
    assert_string_equal(value_of(&s.main, "tcp_user_timeout"), "10000");
    sm_pg_settings_fini(&s);
}

static void our_options_are_taken_and_the_rest_is_passed_on(void **state)
{
    (void)state;
    sm_pg_settings s;
    assert_int_equal(settings_of("postgresql://h1,h2:7/d?sslmode=require&schema=led_1&pool=3"
                                 "&application_name=mine&timeout=250&pooler=transaction"
                                 "&accept_data_loss=yes&target_session_attrs=primary"
                                 "&listen=postgres%3A%2F%2Fdirect%3A6%2Fd",
                                 &s, NULL),
                     SM_OK);
    assert_string_equal(s.schema, "led_1");
    assert_int_equal(s.pool, 3);
    assert_int_equal(s.timeout_ms, 250);
    assert_true(s.pooler && s.accept_loss);
    assert_string_equal(value_of(&s.main, "host"), "h1,h2");
    assert_string_equal(value_of(&s.main, "sslmode"), "require");
    assert_string_equal(value_of(&s.main, "application_name"), "mine");
    assert_string_equal(value_of(&s.main, "target_session_attrs"), "primary");
    assert_string_equal(value_of(&s.main, "tcp_user_timeout"), "250");
    assert_string_equal(value_of(&s.listen, "host"), "direct");
    assert_string_equal(value_of(&s.listen, "port"), "6");
    sm_pg_settings_fini(&s);
}

static void keywords_and_values_are_passed_on(void **state)
{
    (void)state;
    sm_pg_settings s;
    assert_int_equal(
        settings_of("postgres:host=/run/postgresql dbname='a b' password=x?y?schema=z", &s, NULL),
        SM_OK);
    assert_string_equal(value_of(&s.main, "host"), "/run/postgresql");
    assert_string_equal(value_of(&s.main, "dbname"), "a b");
    sm_pg_settings_fini(&s);
}

static void a_loss_is_accepted_or_not(void **state)
{
    (void)state;
    for (int yes = 0; yes < 2; yes++) {
        sm_pg_settings s;
        assert_int_equal(settings_of(yes ? "postgres://h/d?accept_data_loss=yes"
                                         : "postgres://h/d?accept_data_loss=no",
                                     &s, NULL),
                         SM_OK);
        assert_int_equal(s.accept_loss, yes);
        sm_pg_settings_fini(&s);
    }
}

static void a_password_may_have_any_characters_if_they_are_escaped(void **state)
{
    (void)state;
    sm_pg_settings s;
    assert_int_equal(settings_of("postgres://me:a%40b%2Fc%3Fd%23@h/d", &s, NULL), SM_OK);
    assert_string_equal(value_of(&s.main, "password"), "a@b/c?d#");
    assert_string_equal(value_of(&s.main, "host"), "h");
    sm_pg_settings_fini(&s);
}

static void a_bad_url_is_refused_without_being_repeated(void **state)
{
    (void)state;
    static const char *const urls[] = {
        "postgres://me:SECRET@h:SECRET/d",
        "postgres://me:x@SECRET@h/d",
        "postgres://me:x/SECRET@h/d",
        "postgres://me:1/SECRET@h/d",
        "postgres://me:SECRET%@h/d",
        "postgres://[SECRET/d",
        "postgres:SECRET",
        "postgres:host=h SECRET=x",
        "postgres://h/d?SECRET=1",
        "postgres://h/d?schema=SECRET",
        "postgres://h/d?schema=",
        "postgres://h/d?schema=1a",
        "postgres://h/d?schema=pg_a",
        "postgres://h/d?schema=a%22b",
        "postgres://h/d?schema=aaaaaaaaaabbbbbbbbbbccccccccccddddddddddeeeeeeeee",
        "postgres://h/d?schema=a&schema=b",
        "postgres://h/d?pool=0",
        "postgres://h/d?pool=201",
        "postgres://h/d?pool=SECRET",
        "postgres://h/d?timeout=99",
        "postgres://h/d?pooler=SECRET",
        "postgres://h/d?accept_data_loss=SECRET",
        "postgres://h/d?target_session_attrs=any",
        "postgres://h/d?target_session_attrs=standby",
        "postgres://h/d?target_session_attrs=prefer-standby",
        "postgres://h/d?listen=SECRET",
        "postgres://h/d?listen=postgres%3A%2F%2Fme%3Ax%40SECRET%40h",
    };
    for (size_t i = 0; i < COUNT(urls); i++) {
        sm_pg_settings s;
        sm_fault fault = {0};
        sm_err e = settings_of(urls[i], &s, &fault);
        expect(e == SEMEL_E_BAD_ARGUMENTS, "%s: %s", urls[i], semel_err_name(e));
        expect(fault.text[0] != '\0' && strstr(fault.text, "SECRET") == NULL, "%s: %s", urls[i],
               fault.text);
        semel_store *st = (semel_store *)(void *)&s;
        uint32_t caps;
        e = sm_store_postgres.open(sm_str_from(urls[i]), &(semel_store_env){0}, &st, &caps, NULL);
        assert_int_equal(e, SEMEL_E_UNAVAILABLE);
        assert_null(st);
        e = sm_store_postgres.open(sm_str_from(urls[i]), &(semel_store_env){0}, &st, &caps, &fault);
        assert_int_equal(e, SEMEL_E_UNAVAILABLE);
        assert_int_equal(fault.code, SEMEL_E_BAD_ARGUMENTS); /* trying again does not help */
    }
}

static void an_option_that_nobody_knows_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *url, *words;
    } rows[] = {
        {"postgres://me:SECRET@h/d?bogus=SECRET", "has an option that there is not: bogus. There"},
        {"postgres://me:SECRET@h/d?shema=SECRET", "shema (did you mean schema?)"},
        {"postgres://h/d?Schema=SECRET", "Schema (did you mean schema?)"},
        {"postgres://h/d?sslmod=SECRET&aa=1&pool=2", "sslmod (did you mean sslmode?), aa."},
        {"postgres:host=h schema=SECRET", "schema. The ledger's own options"},
        {"postgres:host=h password='SECRET' shema=SECRET", "shema (did you mean schema?). The"},
        {"postgres:host=h password=SECRET schema=SECRET", "a question mark"},
        {"postgres://h/d?listen=SECRET", "listen= in the ledger's URL cannot be read"},
        {"postgres://h/d?listen=postgres%3A%2F%2Fh%2Fd%3Fschema%3DSECRET",
         "listen= in the ledger's URL has what is no option of libpq: schema"},
        {"postgres://h/d?listen=postgres%3A%2F%2Fh%2Fd%3Ftarget_session_attrs=any", "listen= in"},
        /* What may be a part of a password is not named. */
        {"postgres://me:x/y?secret=z@h/d", "the ledger's URL cannot be read"},
        {"postgres://h/d?password=a&secret=b", "the ledger's URL cannot be read"},
        {"postgres:host=h password=a secret=b", "the ledger's URL cannot be read"},
        {"postgres://h/d?secret", "the ledger's URL cannot be read"},
        {"postgres://h/d?secret%21=1", "the ledger's URL cannot be read"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_pg_settings s;
        sm_fault fault = {0};
        expect(settings_of(rows[i].url, &s, &fault) == SEMEL_E_BAD_ARGUMENTS, "%s", rows[i].url);
        expect(strstr(fault.text, rows[i].words) != NULL, "%s: %s", rows[i].url, fault.text);
        expect(strcasestr(fault.text, "secret") == NULL, "%s: %s", rows[i].url, fault.text);
    }
}

static void a_server_that_is_not_there_is_told_in_time_without_secrets(void **state)
{
    (void)state;
    static const char url[] = "postgres://me:SECRET@127.0.0.1:1/d?timeout=500";
    semel_store *st;
    semel_fault fault = {0};
    uint32_t caps;
    int64_t began = sm_clock_mono_ns();
    assert_int_equal(
        sm_store_postgres.open(sm_str_from(url), &(semel_store_env){0}, &st, &caps, &fault),
        SEMEL_E_UNAVAILABLE);
    assert_true(sm_clock_mono_ns() - began < 5000000000);
    expect(strstr(fault.text, "cannot be reached") != NULL && strstr(fault.text, "SECRET") == NULL,
           "%s", fault.text);
}

static void a_server_that_is_silent_is_not_asked_for_ever_why(void **state)
{
    (void)state;
    char url[100];
    sm_pg_settings s;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 8) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &n), 0);
    snprintf(url, sizeof url, "postgres://me@127.0.0.1:%d/d", ntohs(at.sin_port));
    assert_int_equal(settings_of(url, &s, NULL), SM_OK);
    alarm(60); /* ends one that waits on */
    bool rejects = sm_pg_rejects(&s.main);
    alarm(0);
    assert_false(rejects);
    sm_pg_settings_fini(&s);
    close(fd);
}

/* ---- statements and values -------------------------------------------------------------------*/

static void names_are_filled_in(void **state)
{
    (void)state;
    sm_pg_settings s;
    assert_int_equal(settings_of("postgres://h/d?schema=user", &s, NULL), SM_OK);
    char *sql = sm_pg_fill_in(&s, "SELECT # FROM @effect, @event");
    assert_string_equal(sql, "SELECT 'semel_user' FROM \"user\".effect, \"user\".event");
    free(sql);
    sm_pg_settings_fini(&s);
}

static void arrays_are_written_as_the_server_reads_them(void **state)
{
    (void)state;
    static const uint8_t numbers[] = {0,  0, 0,   1,   0,   0,   0,   1,   0,   0,  0,
                                      20, 0, 0,   0,   1,   0,   0,   0,   1,   0,  0,
                                      0,  8, 255, 255, 255, 255, 255, 255, 255, 254};
    static const uint8_t bytes[] = {0, 0, 0, 1, 0, 0, 0, 1, 0, 0,   0,   17,  0,   0,  0,
                                    2, 0, 0, 0, 1, 0, 0, 0, 1, 'x', 255, 255, 255, 255};
    sm_buf b;
    sm_buf_init(&b, 4096);
    sm_pg_array_start(&b, false, 1);
    sm_pg_array_int(&b, -2);
    assert_int_equal(b.len, sizeof numbers);
    assert_memory_equal(b.p, numbers, sizeof numbers);
    sm_buf_clear(&b);
    sm_pg_array_start(&b, true, 2);
    sm_pg_array_bytes(&b, SM_STR("x"));
    sm_pg_array_bytes(&b, (sm_str){0});
    assert_int_equal(b.len, sizeof bytes);
    assert_memory_equal(b.p, bytes, sizeof bytes);
    sm_buf_fini(&b);
}

static void a_write_has_all_of_its_parameters(void **state)
{
    (void)state;
    semel_write w = {.next = {.generation = 1, .state = SEMEL_S_RUNNING, .args = SM_STR("{}")},
                     .same_args = true};
    for (int replaces = 0; replaces < 2; replaces++) {
        sm_pg_args a = {0};
        sm_pg_add_write(&a, &w, replaces == 1);
        assert_int_equal(a.n, 41);
        assert_int_equal(a.values[26] == NULL, replaces); /* what stays is not sent */
        assert_null(a.values[16]);                        /* without a group it bars nobody */
        assert_null(a.values[18]);
    }
    memset(&w.next.group, 1, sizeof w.next.group);
    w.next.state = SEMEL_S_IN_DOUBT;
    sm_pg_args a = {0};
    sm_pg_add_write(&a, &w, false);
    assert_int_equal(a.numbers[16], 0);
    assert_non_null(a.values[16]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_url_has_defaults),
        cmocka_unit_test(our_options_are_taken_and_the_rest_is_passed_on),
        cmocka_unit_test(keywords_and_values_are_passed_on),
        cmocka_unit_test(a_loss_is_accepted_or_not),
        cmocka_unit_test(a_password_may_have_any_characters_if_they_are_escaped),
        cmocka_unit_test(a_bad_url_is_refused_without_being_repeated),
        cmocka_unit_test(an_option_that_nobody_knows_is_named),
        cmocka_unit_test(a_server_that_is_not_there_is_told_in_time_without_secrets),
        cmocka_unit_test(a_server_that_is_silent_is_not_asked_for_ever_why),
        cmocka_unit_test(names_are_filled_in),
        cmocka_unit_test(arrays_are_written_as_the_server_reads_them),
        cmocka_unit_test(a_write_has_all_of_its_parameters),
    };
    return cmocka_run_group_tests_name("store_postgres", tests, NULL, NULL);
}
