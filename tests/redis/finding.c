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
#define needs_server()                                                                             \
    do {                                                                                           \
        if (!there_is_a_server)                                                                    \
            skip();                                                                                \
    } while (0)

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

int finding_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_server(a_host_that_is_dead_does_not_matter_if_another_is_named),
        on_server(another_host_takes_over),
    };
    return cmocka_run_group_tests_name("finding", tests, NULL, NULL);
}

int cluster_finding_tests(void)
{
    const struct CMUnitTest tests[] = {
        on_server(a_host_that_is_dead_does_not_matter_if_another_is_named),
    };
    return cmocka_run_group_tests_name("finding a cluster", tests, NULL, NULL);
}
