/*
 * What only the Postgres store does, on a real server: connections that break, servers that stop,
 * transaction ids, notifications, migrations.
 *
 *     SEMEL_STORE_URL=postgres://... store_postgres
 *
 * The URL names a database in which schemas may be made; a schema in it is ignored. Without one
 * everything is skipped. SEMEL_POOLER_URL may name the same database through a pooler that pools
 * transactions. What every store does is in the conformance suite.
 */
#include "postgres.h"

#include <time.h>
#include <unistd.h>

#include "store/stores.h"

static PQconninfoOption *server;
static unsigned made;

int ledger_name(void **state)
{
    (void)state;
    return -1; /* the conformance suite's ledgers are not used here */
}

/* ---- where -----------------------------------------------------------------------------------*/

static const char *option(const char *name)
{
    for (PQconninfoOption *o = server; o->keyword != NULL; o++) {
        if (strcmp(o->keyword, name) == 0 && o->val != NULL)
            return o->val;
    }
    return "";
}

/* The server's URL without what is ours: libpq would not know it. */
static bool read_url(const char *url)
{
    char text[1024];
    const char *mark = strchr(url, '?');
    snprintf(text, sizeof text, "%.*s", mark == NULL ? 1000 : (int)(mark - url), url);
    const char *bare = strncmp(text, "postgres:", 9) == 0 && text[9] != '/' ? text + 9 : text;
    server = PQconninfoParse(bare, NULL);
    return server != NULL;
}

void place_url_at(place *p, const char *hosts, const char *ports, const char *session,
                  const char *more)
{
    snprintf(p->ledger.url, sizeof p->ledger.url,
             "postgres:host='%.200s' port=%s application_name=%s dbname='%.40s' user='%.40s'"
             " password='%.40s' options='%s'%s?schema=%s%s",
             hosts, ports, p->schema, p->database[0] != '\0' ? p->database : option("dbname"),
             option("user"), option("password"), session,
             p->proxy != NULL ? " sslmode=disable gssencmode=disable" : "", p->schema, more);
}

void place_url(place *p, const char *session, const char *more)
{
    char port[16];
    snprintf(port, sizeof port, "%s", option("port")[0] == '\0' ? "5432" : option("port"));
    if (p->proxy != NULL)
        snprintf(port, sizeof port, "%d", proxy_port(p->proxy));
    place_url_at(p, p->proxy != NULL ? "127.0.0.1" : option("host"), port, session, more);
}

static PGconn *connect_beside(void)
{
    const char *keys[64], *values[64];
    size_t n = 0;
    for (PQconninfoOption *o = server; o->keyword != NULL; o++) {
        if (o->val != NULL && n < 60) {
            keys[n] = o->keyword;
            values[n++] = o->val;
        }
    }
    keys[n] = values[n] = NULL;
    return PQconnectdbParams(keys, values, 0);
}

/* ---- beside the store ------------------------------------------------------------------------*/

static PGresult *sql(place *p, const char *text)
{
    char filled[4096];
    size_t n = 0;
    for (const char *c = text; *c != '\0' && n < sizeof filled - 64; c++) {
        if (*c == '@')
            n += (size_t)snprintf(filled + n, sizeof filled - n, "%s.", p->schema);
        else
            filled[n++] = *c;
    }
    filled[n] = '\0';
    PGresult *r = PQexec(p->beside, filled);
    expect(PQresultStatus(r) == PGRES_COMMAND_OK || PQresultStatus(r) == PGRES_TUPLES_OK, "%s: %s",
           filled, PQresultErrorMessage(r));
    return r;
}

void sql_run(place *p, const char *text)
{
    PQclear(sql(p, text));
}

char *sql_text(place *p, const char *text)
{
    PGresult *r = sql(p, text);
    char *copy = PQntuples(r) == 0 ? NULL : strdup(PQgetvalue(r, 0, 0));
    PQclear(r);
    return copy;
}

int64_t sql_number(place *p, const char *text)
{
    char *value = sql_text(p, text);
    int64_t n = value == NULL ? -1 : strtoll(value, NULL, 10);
    free(value);
    return n;
}

/* ---- ledgers ---------------------------------------------------------------------------------*/

semel_err place_open(place *p, const semel_store_env *env, semel_fault *fault)
{
    ledger *l = &p->ledger;
    return l->ops->open(sm_str_from(l->url), env, &l->st, &l->caps, fault);
}

void must_open(place *p)
{
    semel_fault fault = {0};
    semel_err e = place_open(p, &(semel_store_env){.size = sizeof(semel_store_env)}, &fault);
    expect(e == SEMEL_OK, "%s: %s", semel_err_name(e), fault.text);
}

int place_setup(void **state)
{
    place *p = calloc(1, sizeof *p);
    if (p == NULL)
        return -1;
    *state = p;
    p->ledger.ops = &sm_store_postgres;
    desk_init(&p->ledger.desk);
    snprintf(p->schema, sizeof p->schema, "test_%u_%u", (unsigned)getpid(), ++made);
    p->beside = connect_beside();
    PQclear(PQexec(p->beside, "SET client_min_messages = error"));
    place_url(p, "", "");
    return PQstatus(p->beside) == CONNECTION_OK ? 0 : -1;
}

int place_open_setup(void **state)
{
    if (place_setup(state) != 0)
        return -1;
    must_open(*state);
    return 0;
}

static int proxy_setup(void **state, const char *options)
{
    if (place_setup(state) != 0)
        return -1;
    place *p = *state;
    const char *host = PQhost(p->beside), *port = PQport(p->beside);
    /* Making a ledger takes longest, on a busy machine longer than a short timeout. */
    must_open(p);
    p->ledger.ops->close(p->ledger.st);
    p->proxy = proxy_new(host, port);
    if (p->proxy == NULL)
        return -1;
    place_url(p, "", options);
    must_open(p);
    return 0;
}

int place_proxy_setup(void **state)
{
    return proxy_setup(state, "&timeout=60000&pool=4");
}

int place_hurried_setup(void **state)
{
    return proxy_setup(state, "&timeout=2000&pool=4");
}

int place_teardown(void **state)
{
    place *p = *state;
    p->ledger.ops->close(p->ledger.st);
    if (p->proxy != NULL)
        proxy_free(p->proxy);
    char drop[96];
    snprintf(drop, sizeof drop, "DROP SCHEMA IF EXISTS %s CASCADE", p->schema);
    PQclear(PQexec(p->beside, drop));
    PQfinish(p->beside);
    desk_fini(&p->ledger.desk);
    free(p);
    return 0;
}

static void nothing(void **state)
{
    (void)state;
    skip();
}

int main(void)
{
    const char *url = getenv("SEMEL_STORE_URL");
    if (url == NULL) {
        const struct CMUnitTest none[] = {cmocka_unit_test(nothing)};
        return cmocka_run_group_tests_name("SEMEL_STORE_URL is not set", none, NULL, NULL);
    }
    if (!read_url(url)) {
        fputs("SEMEL_STORE_URL is not the URL of a PostgreSQL database\n", stderr);
        return 64;
    }
    int failed = making_tests() + connecting_tests() + failing_tests() + resending_tests() +
                 locking_tests() + keeping_up_tests();
    PQconninfoFree(server);
    return failed;
}
