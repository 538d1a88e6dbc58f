/* Finding the server, and what is told when a ledger cannot be opened there. */
#include "server.h"

static int setup(void **state)
{
    return there_is_a_server ? ledger_setup(state) : 0;
}

static int teardown(void **state)
{
    return there_is_a_server ? ledger_teardown(state) : 0;
}

#define on_server(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* The server behind another host, which is asked first. */
static place behind(int port)
{
    place p = {.port = the_server.port};
    snprintf(p.host, sizeof p.host, "127.0.0.1:%d,%.100s", port, the_server.host);
    return p;
}

/* ---- several hosts ---------------------------------------------------------------------------*/

static void a_host_that_is_dead_does_not_matter_if_another_is_named(void **state)
{
    needs_server();
    ledger *l = *state;
    place p = behind(1);
    semel_fault fault = {0};
    ledger_close(l);
    url_with(l->url, &p, "timeout=2000");
    semel_err e = ledger_open(l, true, &fault);
    expect(e == SEMEL_OK, "%s", fault.text);
    settled(l, 1);
}

static void another_host_takes_over(void **state)
{
    needs_server();
    ledger *l = *state;
    proxy x;
    proxy_start(&x, &the_server);
    place p = behind(x.port);
    ledger_close(l);
    url_with(l->url, &p, "timeout=5000");
    expect_error(ledger_open(l, true, NULL), SEMEL_OK);
    settled(l, 1);
    proxy_stop(&x);
    settled(l, 2);
    settled(l, 3);
}

/* ---- sentences -------------------------------------------------------------------------------*/

typedef struct attempt {
    const char *rest; /* of the URL */
    semel_err code;   /* a mistake, or something that may pass */
    const char *says;
} attempt;

static void expect_told(const ledger *l, const attempt *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ledger other = {.ops = l->ops};
        semel_fault fault = {0};
        snprintf(other.url, sizeof other.url, "redis://%s:%d%s", the_server.host, the_server.port,
                 list[i].rest);
        expect_error(ledger_open(&other, true, &fault), SEMEL_E_UNAVAILABLE);
        expect(strstr(fault.text, list[i].says) != NULL, "%s: %s", other.url, fault.text);
        expect(fault.code == list[i].code, "%s: %s", other.url, semel_err_name(fault.code));
    }
}

static void what_cannot_be_opened_is_told(void **state)
{
    needs_server();
    char at[160];
    snprintf(at, sizeof at, "in redis://%s:%d/0; if", the_server.host, the_server.port);
    const attempt list[] = {
        {"?prefix=nothing:", SEMEL_E_UNAVAILABLE, at},
        {"?prefix=nothing:", SEMEL_E_UNAVAILABLE, "semel store migrate"},
        {"?prefix=nothing:&accept_data_loss=no", SEMEL_E_UNAVAILABLE, "semel store migrate"},
        {"?cluster=yes", SEMEL_E_BAD_ARGUMENTS, "take cluster=yes out"},
        {"/9999", SEMEL_E_BAD_ARGUMENTS, "has no database 9999"},
        {"?nonsense=1", SEMEL_E_BAD_ARGUMENTS, "not known"},
        {"/x", SEMEL_E_BAD_ARGUMENTS, "database"},
    };
    expect_told(*state, list, COUNT(list));
}

static void what_is_wrong_with_a_url_of_a_cluster_is_told(void **state)
{
    needs_server();
    const attempt list[] = {
        {"?cluster=no", SEMEL_E_BAD_ARGUMENTS, "take cluster=no out"},
        {"/1", SEMEL_E_BAD_ARGUMENTS, "take /1 out"},
        {"/1?cluster=yes", SEMEL_E_BAD_ARGUMENTS, "no other database than 0"},
        {"?prefix=nothing:", SEMEL_E_UNAVAILABLE, "semel store migrate"},
    };
    expect_told(*state, list, COUNT(list));
}

static void a_cluster_that_does_not_tell_its_slots_is_not_opened(void **state)
{
    needs_server();
    const ledger *l = *state;
    ledger other = {.ops = l->ops};
    proxy x;
    semel_fault fault = {0};
    trap t = {.word = "SLOTS", .lose = true};
    proxy_start(&x, &the_server);
    place p = {.port = x.port};
    snprintf(p.host, sizeof p.host, "127.0.0.1");
    url_with(other.url, &p, "");
    atomic_store(&x.trap, &t);
    semel_err e = ledger_open(&other, true, &fault);
    assert_null(atomic_load(&x.trap));
    expect(e == SEMEL_E_UNAVAILABLE, "%s", semel_err_name(e));
    expect(strstr(fault.text, "closed the connection") != NULL, "%s", fault.text);
    expect_error(ledger_open(&other, true, NULL), SEMEL_OK);
    ledger_close(&other);
    proxy_stop(&x);
}

/* ---- not now ---------------------------------------------------------------------------------*/

/* One keeps the server busy, one ends that after a while, and one opens the ledger meanwhile. */
static void open_meanwhile(worker *w)
{
    redisContext *c = call_server(&the_server);
    if (w->index == 0) {
        freeReplyObject(redisCommand(c, "EVAL %s 0", "while true do end"));
    } else if (w->index == 1) {
        pause_ms(600);
        freeReplyObject(redisCommand(c, "SCRIPT KILL"));
    } else {
        ledger other = {.ops = w->ledger.ops};
        semel_fault fault = {0};
        memcpy(other.url, w->ledger.url, sizeof other.url);
        pause_ms(200);
        int64_t began = monotonic_ns();
        if (ledger_open(&other, true, &fault) != SEMEL_OK)
            w->wrong = "it did not wait for a server that is busy";
        else if (monotonic_ns() - began < 200000000)
            w->wrong = "the server was not busy at all";
        ledger_close(&other);
    }
    redisFree(c);
}

static void opening_waits_for_a_server_that_is_busy(void **state)
{
    needs_server();
    ledger *l = *state;
    redisContext *c = call_server(&the_server);
    tell_server(c, "CONFIG SET lua-time-limit 50");
    run_workers(l, 3, open_meanwhile, NULL);
    tell_server(c, "CONFIG SET lua-time-limit 5000");
    redisFree(c);
}

int finding_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_server(a_host_that_is_dead_does_not_matter_if_another_is_named),
        on_server(another_host_takes_over),
        on_server(what_cannot_be_opened_is_told),
        on_server(opening_waits_for_a_server_that_is_busy),
    };
    return cmocka_run_group_tests_name("finding", tests, NULL, NULL);
}

int cluster_finding_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_server(a_host_that_is_dead_does_not_matter_if_another_is_named),
        on_server(what_is_wrong_with_a_url_of_a_cluster_is_told),
        on_server(a_cluster_that_does_not_tell_its_slots_is_not_opened),
    };
    return cmocka_run_group_tests_name("finding a cluster", tests, NULL, NULL);
}
