/*
 * What the tests of the Postgres store share: a ledger of each test's own, a connection beside it,
 * and the proxy. The records and writes are those of the conformance suite.
 */
#ifndef SM_TESTS_POSTGRES_H
#define SM_TESTS_POSTGRES_H

#include "../conformance/conformance.h"

#include <libpq-fe.h>

#include "proxy.h"

int connecting_tests(void);
int failing_tests(void);
int keeping_up_tests(void);
int locking_tests(void);
int making_tests(void);
int resending_tests(void);

typedef struct place {
    ledger ledger;
    char schema[32];
    char database[40]; /* empty: the server's URL has it */
    PGconn *beside;    /* another client of the same database */
    proxy *proxy;      /* NULL: the ledger's URL leads straight to the server */
} place;

/* A ledger that is not there yet; one that is open; one that is open through a proxy, which has
 * time; and one that is in a hurry, for tests in which the server does not answer. */
int place_setup(void **state);
int place_open_setup(void **state);
int place_proxy_setup(void **state);
int place_hurried_setup(void **state);
int place_teardown(void **state);

#define on_place(test)   cmocka_unit_test_setup_teardown(test, place_setup, place_teardown)
#define on_open(test)    cmocka_unit_test_setup_teardown(test, place_open_setup, place_teardown)
#define on_proxy(test)   cmocka_unit_test_setup_teardown(test, place_proxy_setup, place_teardown)
#define in_a_hurry(test) cmocka_unit_test_setup_teardown(test, place_hurried_setup, place_teardown)

/* Sets the ledger's URL: the server's and the place's schema, with settings of the session such as
 * "-c synchronous_commit=off", and options of the store such as "&pool=1". */
void place_url(place *p, const char *session, const char *more);

/* The same with other hosts and ports, which may be lists. */
void place_url_at(place *p, const char *hosts, const char *ports, const char *session,
                  const char *more);

/* Opens what the URL names. */
semel_err place_open(place *p, const semel_store_env *env, semel_fault *fault);
void must_open(place *p);

/* Runs a statement beside the store, in which @ is the schema and a dot. `sql_text` gives the first
 * value of the first row, which is the caller's to free. */
void sql_run(place *p, const char *sql);
char *sql_text(place *p, const char *sql);
int64_t sql_number(place *p, const char *sql);

#endif
