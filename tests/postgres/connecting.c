/* Connections: to which host, with which settings, and how it is noticed that one is over. */
#include "postgres.h"

#define SECOND 1000000000ll

/* ---- several hosts ---------------------------------------------------------------------------*/

/* The proxy, the server itself, and a port at which nobody listens. */
static void three_hosts(place *p, const char *more)
{
    char hosts[300], ports[64];
    snprintf(hosts, sizeof hosts, "127.0.0.1,%.120s,127.0.0.1", PQhost(p->beside));
    snprintf(ports, sizeof ports, "%d,%.16s,1", proxy_port(p->proxy), PQport(p->beside));
    place_url_at(p, hosts, ports, "", more);
}

static void a_host_that_is_silent_is_passed_over(void **state)
{
    place *p = *state;
    ledger_close(&p->ledger);
    proxy_hold(p->proxy, true);
    three_hosts(p, "&timeout=1500");
    int64_t began = monotonic_ns();
    must_open(p);
    settled(&p->ledger, 1);
    expect(monotonic_ns() - began < 3 * SECOND / 2, "it took %.1f s",
           (double)(monotonic_ns() - began) / 1e9);
    /* The one that worked comes first from now on. */
    for (uint64_t n = 2; n <= 4; n++) {
        sql_run(p, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                   " WHERE application_name || '.' = '@'");
        began = monotonic_ns();
        settled(&p->ledger, n);
        expect(monotonic_ns() - began < SECOND / 3, "it took %.1f s",
               (double)(monotonic_ns() - began) / 1e9);
    }
    proxy_hold(p->proxy, false);
}

static void a_host_that_goes_away_is_passed_over(void **state)
{
    place *p = *state;
    ledger_close(&p->ledger);
    three_hosts(p, "&timeout=3000");
    must_open(p);
    settled(&p->ledger, 1);
    proxy_refuse(p->proxy, true);
    settled(&p->ledger, 2);
    proxy_refuse(p->proxy, false);
}

static void lists_that_do_not_fit_are_refused(void **state)
{
    place *p = *state;
    semel_store_env env = {.size = sizeof env};
    semel_fault fault = {0};
    place_url_at(p, "127.0.0.1,127.0.0.1,127.0.0.1", "1,2", "", "&timeout=1000");
    expect_error(place_open(p, &env, &fault), SEMEL_E_UNAVAILABLE);
    expect(strstr(fault.text, "port") != NULL, "it says: %s", fault.text);
}

int connecting_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_proxy(a_host_that_is_silent_is_passed_over),
        on_proxy(a_host_that_goes_away_is_passed_over),
        on_place(lists_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests_name("connecting", tests, NULL, NULL);
}
