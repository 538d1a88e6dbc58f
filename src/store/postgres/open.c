/*
 * Opening a ledger: what its server is, and what it must be set to.
 *
 * What a person has to mend is told as SEMEL_E_BAD_ARGUMENTS, for trying again does not help; a
 * server that is away, or that is a replica now, as SEMEL_E_UNAVAILABLE. What is in the database is
 * looked at by schema.c.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MIGRATION_FACTOR = 60, PAUSE_NS = 100000000 };

semel_err sm_pg_opening_run(sm_pg_opening *o, const char *sql, PGresult **out)
{
    PGresult *r = NULL;
    sm_err e = SM_OK;
    char *text = sm_pg_fill_in(&o->st->settings, sql);
    if (text == NULL)
        return sm_pg_nomem(o->fault);
    sm_pg_fate way = sm_pg_run_text(o->st, o->conn, text, o->deadline_ns, &r, &e, o->fault);
    free(text);
    o->lost = o->lost || way == SM_PG_LOST;
    if (out != NULL && way == SM_PG_DONE)
        *out = r;
    else
        PQclear(r);
    return way == SM_PG_DONE ? SEMEL_OK : e;
}

int64_t sm_pg_number(const PGresult *r, int column)
{
    return PQntuples(r) == 0 ? 0 : strtoll(PQgetvalue(r, 0, column), NULL, 10);
}

bool sm_pg_is(const PGresult *r, int column, const char *text)
{
    return strcmp(PQgetvalue(r, 0, column), text) == 0;
}

/* ---- the server ------------------------------------------------------------------------------*/

/* Behind a pooler the server's own settings hold; a session's are not ours to set. */
static semel_err check_pooled(sm_pg_opening *o, const PGresult *r)
{
    if (!o->st->settings.pooler)
        return SEMEL_OK;
    if (!sm_pg_is(r, 2, "on") && !sm_pg_is(r, 2, "remote_apply"))
        return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                            "%s acknowledges what it may still lose (synchronous_commit is %s), "
                            "and behind a pooler that cannot be set for a session: ALTER ROLE %s "
                            "SET synchronous_commit = on",
                            o->st->where, PQgetvalue(r, 0, 2), o->st->user);
    if (!sm_pg_is(r, 4, "read committed"))
        return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                            "%s isolates transactions as %s, and a ledger needs read committed: "
                            "ALTER ROLE %s SET default_transaction_isolation = 'read committed'",
                            o->st->where, PQgetvalue(r, 0, 4), o->st->user);
    return SEMEL_OK;
}

static void set_lossy(semel_store *st, const char *why)
{
    st->caps &= ~(unsigned)SEMEL_STORE_DURABLE;
    snprintf(st->durability, sizeof st->durability, "%s", why);
    if (!st->settings.accept_loss)
        st->caps |= SEMEL_STORE_LOSSY;
}

/* What the store can promise on a server with these settings. */
static void set_caps(semel_store *st, bool fsync, bool pages)
{
    st->caps = SEMEL_STORE_SHARED | SEMEL_STORE_CLOCK | SEMEL_STORE_DURABLE;
    if (!st->settings.pooler || st->settings.listen.options != NULL)
        st->caps |= SEMEL_STORE_NOTIFY;
    if (!fsync)
        set_lossy(st,
                  "fsync is off: a crash of the server's machine may lose or damage the ledger");
    else if (!pages)
        set_lossy(st, "full_page_writes is off: a crash of the server's machine may lose or damage "
                      "the ledger");
}

/* A table that is not logged is empty after any crash, whatever the settings are. */
static semel_err check_tables(sm_pg_opening *o)
{
    char text[512];
    PGresult *r = NULL;
    snprintf(text, sizeof text, "SELECT " SM_PG_UNLOGGED, o->st->settings.schema);
    semel_err e = sm_pg_opening_run(o, text, &r);
    if (e == SEMEL_OK && sm_pg_number(r, 0) != 0)
        set_lossy(o->st, "tables of the ledger are UNLOGGED: a crash of the server empties them");
    PQclear(r);
    return e;
}

static semel_err check_server(sm_pg_opening *o)
{
    semel_store *st = o->st;
    if (PQserverVersion(o->conn->pg) < SM_PG_SERVER_MIN)
        return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS, "%s is older than PostgreSQL %d",
                            st->where, SM_PG_SERVER_MIN / 10000);
    PGresult *r = NULL;
    semel_err e =
        sm_pg_opening_run(o,
                          "SELECT current_setting('fsync'), current_setting('full_page_writes'),"
                          " current_setting('synchronous_commit'), pg_is_in_recovery(),"
                          " current_setting('transaction_isolation'), pg_backend_pid()",
                          &r);
    if (e != SEMEL_OK)
        return e;
    /* A pooler makes numbers of its own up. */
    if (!st->settings.pooler && sm_pg_number(r, 5) != PQbackendPID(o->conn->pg))
        e = sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                         "there is a pooler in front of %s: add pooler=transaction to the ledger's "
                         "URL, or name the server itself",
                         st->where);
    else if (sm_pg_is(r, 3, "t"))
        e = sm_fault_set(o->fault, SEMEL_E_UNAVAILABLE,
                         "%s is a replica: name the primary server in the ledger's URL", st->where);
    else
        e = check_pooled(o, r);
    set_caps(st, sm_pg_is(r, 0, "on"), sm_pg_is(r, 1, "on"));
    PQclear(r);
    return e;
}

/* ---- all of it -------------------------------------------------------------------------------*/

static void name_place(semel_store *st, const PGconn *pg)
{
    const char *host = PQhost(pg), *port = PQport(pg), *db = PQdb(pg), *user = PQuser(pg);
    snprintf(st->where, sizeof st->where, "schema %s of database %.60s at %.80s:%.8s",
             st->settings.schema, db == NULL ? "?" : db, host == NULL ? "?" : host,
             port == NULL ? "?" : port);
    snprintf(st->user, sizeof st->user, "%.60s", user == NULL ? "?" : user);
}

static semel_err open_once(sm_pg_opening *o, int64_t connected_ns)
{
    semel_store *st = o->st;
    st->caps = 0; /* nothing is promised yet */
    semel_err e = sm_pg_take(st, connected_ns, &o->conn, o->fault);
    o->lost = e != SEMEL_OK;
    if (o->lost)
        return e;
    name_place(st, o->conn->pg);
    e = check_server(o);
    if (e == SEMEL_OK)
        e = sm_pg_schema_open(o);
    if (e == SEMEL_OK)
        e = check_tables(o);
    if (e == SEMEL_OK)
        e = sm_pg_listen_try(o);
    if (e == SEMEL_OK)
        sm_pg_trust_start(st, o->conn, o->deadline_ns);
    if (o->lost || e != SEMEL_OK)
        sm_pg_drop(st, o->conn);
    else
        sm_pg_put(st, o->conn);
    return e;
}

/* A server that starts or stops is waited for, as it would be if the ledger were open already. Once
 * it does so no more, there is one more try, for it may have come up just after the last one.
 * False: it is something else, or the time is up. */
static bool wait_for_server(const sm_pg_opening *o, int64_t until_ns, bool *waits)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    if (!o->lost || sm_clock_mono_ns() + PAUSE_NS >= until_ns)
        return false;
    bool waited = *waits;
    *waits = sm_pg_is_passing(o->fault) || sm_pg_rejects(&o->st->settings.main);
    if (*waits)
        nanosleep(&pause, NULL);
    return *waits || waited;
}

semel_err sm_pg_open(semel_store *st, const semel_store_env *env, semel_fault *fault)
{
    semel_fault own = {0};
    int64_t limit_ms = st->settings.timeout_ms, until_ns = sm_clock_deadline_ns(limit_ms);
    sm_pg_opening o = {.st = st,
                       .env = env,
                       .deadline_ns =
                           sm_clock_deadline_ns(limit_ms * (env->migrate ? MIGRATION_FACTOR : 1)),
                       .fault = fault != NULL ? fault : &own};
    bool waits = false;
    semel_fault said = {0};
    semel_err e = open_once(&o, until_ns);
    while (e == SEMEL_E_UNAVAILABLE && wait_for_server(&o, until_ns, &waits)) {
        said = *o.fault;
        e = open_once(&o, until_ns);
    }
    /* The time was up in the middle of a try: what the server said before tells more. */
    if (e == SEMEL_E_UNAVAILABLE && o.lost && said.text[0] != '\0' &&
        sm_clock_mono_ns() >= until_ns)
        *o.fault = said;
    return e;
}
