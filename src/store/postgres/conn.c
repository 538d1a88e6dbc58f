/*
 * One connection: connecting, sending and waiting, all of it against a deadline.
 *
 * libpq is used without blocking, and every wait is a poll with a limit, so a server that is
 * stopped costs its caller no more than the deadline. One thing does block, for libpq has no other
 * way: looking up the name of a host. Whoever needs that bounded too gives `hostaddr`.
 *
 * An answer counts when the server is ready for the next question, not before: the server commits
 * between sending the last row and saying that it is ready.
 */
#include "store/postgres/postgres.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BINARY = 1 };

/* A warning during a write may mean that no replica has it. Words that come unasked and end the
 * session are told as a notice too. */
static void take_notice(void *context, const PGresult *r)
{
    sm_pg_conn *c = context;
    const char *severity = PQresultErrorField(r, PG_DIAG_SEVERITY_NONLOCALIZED);
    c->warned = c->warned || (severity != NULL && strcmp(severity, "WARNING") == 0);
    c->ended = c->ended || sm_pg_is_end(r);
}

/* Waits until the socket is ready; false when the time is up. */
static bool wait_ready(const PGconn *pg, short events, int64_t deadline_ns)
{
    struct pollfd on = {.fd = PQsocket(pg), .events = events};
    if (on.fd < 0)
        return true; /* libpq has closed it, and will say so */
    for (;;) {
        int64_t left = deadline_ns - sm_clock_mono_ns();
        if (left <= 0)
            return false;
        struct timespec limit = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
        int n = ppoll(&on, 1, &limit, NULL);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
    }
}

/* ---- connecting ------------------------------------------------------------------------------*/

/* What the server's defaults may have otherwise, or come to have while a session is open. Compiling
 * a statement takes far longer than running any of ours. */
static const char session[] =
    "SELECT pg_catalog.set_config('default_transaction_isolation', 'read committed', false),"
    " pg_catalog.set_config('jit', 'off', false),"
    " pg_catalog.set_config('synchronous_commit', CASE"
    " WHEN pg_catalog.current_setting('synchronous_commit') OPERATOR(pg_catalog.=) 'remote_apply'"
    " THEN 'remote_apply' ELSE 'on' END, false),"
    " pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'),"
    " pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false),"
    " pg_catalog.set_config('client_min_messages', 'warning', false)";

/* The first columns of it behind a pooler, where nothing can be set. */
static const char session_pooled[] =
    "SELECT NULL, NULL, current_setting('synchronous_commit'), current_setting('fsync'),"
    " current_setting('full_page_writes')";

/* Ends statements whose client is gone. Not every server can do that. */
static const char session_check[] = "SET client_connection_check_interval = 2000";

/* A ledger that was opened as durable stays so, or is not there: effects may have begun that rely
 * on it. The server may have been set otherwise since, or be another one. */
bool sm_pg_check_durable(const semel_store *st, const PGresult *r, int first, semel_fault *fault)
{
    static const char *const names[] = {"synchronous_commit", "fsync", "full_page_writes"};
    if ((st->caps & SEMEL_STORE_DURABLE) == 0)
        return true;
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        const char *value = PQgetvalue(r, 0, first + i);
        if (strcmp(value, "on") == 0 || (i == 0 && strcmp(value, "remote_apply") == 0))
            continue;
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                     "%s may lose what it acknowledges: %s is %s now, and was not when this ledger "
                     "was opened. Mend the server, or open the ledger again to go on as it is",
                     st->where, names[i], value);
        return false;
    }
    return true;
}

static bool set_session(const semel_store *st, sm_pg_conn *c, bool main, int64_t deadline_ns,
                        semel_fault *fault)
{
    PGresult *r = NULL;
    sm_err e;
    semel_fault ignored;
    bool pooled = main && st->settings.pooler;
    if (pooled && (st->caps & SEMEL_STORE_DURABLE) == 0)
        return true; /* there is nothing to keep */
    const char *sql = pooled ? session_pooled : session;
    bool good = sm_pg_run_text(st, c, sql, deadline_ns, &r, &e, fault) == SM_PG_DONE &&
                (!main || sm_pg_check_durable(st, r, 2, fault));
    PQclear(r);
    if (good && !pooled && PQserverVersion(c->pg) >= 140000) {
        sm_pg_run_text(st, c, session_check, deadline_ns, &r, &e, &ignored);
        PQclear(r);
    }
    return good;
}

/* Drives libpq until it is connected. */
static bool establish(const semel_store *st, sm_pg_conn *c, const char *where, int64_t deadline_ns,
                      semel_fault *fault)
{
    PostgresPollingStatusType next = PGRES_POLLING_WRITING;
    if (c->pg != NULL)
        PQsetNoticeReceiver(c->pg, take_notice, c);
    while (c->pg != NULL && PQstatus(c->pg) != CONNECTION_BAD && next != PGRES_POLLING_OK &&
           next != PGRES_POLLING_FAILED) {
        short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
        if (!wait_ready(c->pg, events, deadline_ns)) {
            sm_pg_fault_late(st, where, fault);
            return false;
        }
        next = PQconnectPoll(c->pg);
    }
    if (next == PGRES_POLLING_OK && PQsetnonblocking(c->pg, 1) == 0)
        return true;
    sm_pg_fault_conn(where, c->pg, fault);
    return false;
}

/* libpq keeps the SQLSTATE of a connection that failed to itself, except here. */
bool sm_pg_rejects(const sm_pg_target *target)
{
    const char *keys[SM_PG_OPTIONS_MAX + 2], *values[SM_PG_OPTIONS_MAX + 2];
    size_t n = 0;
    for (; target->keys[n] != NULL; n++) {
        keys[n] = target->keys[n];
        values[n] = target->values[n];
    }
    keys[n] = "connect_timeout"; /* the last one counts */
    values[n] = "2";
    keys[n + 1] = values[n + 1] = NULL;
    return PQpingParams(keys, values, 0) == PQPING_REJECT;
}

static sm_pg_conn *connect_host(const semel_store *st, const sm_pg_target *target, size_t at,
                                int64_t deadline_ns, semel_fault *fault)
{
    sm_pg_host host;
    sm_pg_conn *c = calloc(1, sizeof *c);
    if (c == NULL) {
        sm_pg_nomem(fault);
        return NULL;
    }
    bool main = target == &st->settings.main;
    const char *where = main ? st->where : "what listen= in the ledger's URL names";
    sm_pg_host_init(&host, target, at);
    c->pg = PQconnectStartParams(target->keys, host.values, 0);
    if (establish(st, c, where, deadline_ns, fault) && set_session(st, c, main, deadline_ns, fault))
        return c;
    sm_pg_disconnect(c);
    return NULL;
}

sm_pg_conn *sm_pg_connect(const semel_store *st, sm_pg_target *target, int64_t deadline_ns,
                          semel_fault *fault)
{
    size_t hosts = sm_pg_hosts(target), first = atomic_load(&target->host);
    sm_pg_conn *c = NULL;
    for (size_t i = 0; c == NULL && i < hosts; i++) {
        int64_t now_ns = sm_clock_mono_ns();
        int64_t share_ns = (deadline_ns - now_ns) / (int64_t)(hosts - i);
        size_t at = (first + i) % hosts;
        c = connect_host(st, target, at, now_ns + share_ns, fault);
        if (c != NULL && hosts > 1)
            atomic_store(&target->host, at);
    }
    return c;
}

void sm_pg_disconnect(sm_pg_conn *c)
{
    if (c == NULL)
        return;
    PQfinish(c->pg);
    free(c);
}

bool sm_pg_alive(sm_pg_conn *c)
{
    enum { MESSAGES_MAX = 100 };
    struct pollfd on = {.fd = PQsocket(c->pg), .events = POLLIN};
    for (int i = 0; i < MESSAGES_MAX; i++) {
        if (poll(&on, 1, 0) == 0)
            return true;
        /* Something came unasked: a parameter has changed, or it is the end. The end may come in
         * two parts, words and then a closed socket. */
        if (PQconsumeInput(c->pg) == 0 || PQisBusy(c->pg) != 0 ||
            PQstatus(c->pg) != CONNECTION_OK || c->ended)
            return false;
    }
    return false;
}

/* ---- sending and receiving -------------------------------------------------------------------*/

/* Sends what is buffered, and takes in what comes meanwhile: the server may stop reading until we
 * do. False: it broke, or *late. */
static bool flush(PGconn *pg, int64_t deadline_ns, bool *late)
{
    int rc;
    while ((rc = PQflush(pg)) == 1) {
        *late = !wait_ready(pg, POLLIN | POLLOUT, deadline_ns);
        if (*late || PQconsumeInput(pg) == 0)
            return false;
    }
    return rc == 0;
}

/* The next result, or NULL at the end of an answer. False: the time is up. */
static bool next_result(PGconn *pg, int64_t deadline_ns, PGresult **out)
{
    *out = NULL;
    while (PQisBusy(pg)) {
        if (!wait_ready(pg, POLLIN, deadline_ns))
            return false;
        if (PQconsumeInput(pg) == 0)
            break; /* the next call says that it broke */
    }
    *out = PQgetResult(pg);
    return true;
}

static bool is_error(const PGresult *r)
{
    ExecStatusType status = PQresultStatus(r);
    return status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK &&
           status != PGRES_PIPELINE_SYNC && status != PGRES_PIPELINE_ABORTED;
}

/* Receives an answer to its end, of which the last rows stay; the first error wins. In a pipeline
 * every statement's results end with a NULL, and the answer with the mark of the sync. */
static sm_pg_fate receive(const semel_store *st, sm_pg_conn *c, bool pipeline, int64_t deadline_ns,
                          PGresult **out, sm_err *err, semel_fault *fault)
{
    PGresult *kept = NULL, *error = NULL, *r;
    bool end = false, late = false;
    while (!end && !late) {
        late = !next_result(c->pg, deadline_ns, &r);
        bool rows = r != NULL && PQresultStatus(r) == PGRES_TUPLES_OK;
        bool sync = r != NULL && PQresultStatus(r) == PGRES_PIPELINE_SYNC;
        bool broken = PQstatus(c->pg) != CONNECTION_OK;
        if (r != NULL && is_error(r) && error == NULL) {
            error = r;
        } else if (rows || (r != NULL && kept == NULL && !sync)) {
            PQclear(kept);
            kept = r;
        } else {
            PQclear(r);
        }
        end = pipeline && !broken ? sync : r == NULL;
    }
    sm_pg_fate way = SM_PG_DONE;
    if (late) {
        way = SM_PG_LOST;
        *err = SEMEL_E_UNAVAILABLE;
        sm_pg_fault_late(st, st->where, fault);
    } else if (error != NULL) {
        way = sm_pg_judge(st, error, PQstatus(c->pg) == CONNECTION_OK, err, fault);
    } else if (kept == NULL || PQstatus(c->pg) != CONNECTION_OK) {
        way = SM_PG_LOST;
        *err = SEMEL_E_UNAVAILABLE;
        sm_pg_fault_conn(st->where, c->pg, fault);
    }
    PQclear(error);
    if (way != SM_PG_DONE) {
        PQclear(kept);
        kept = NULL;
    }
    *out = kept;
    return way;
}

static sm_pg_fate lost(const semel_store *st, sm_pg_conn *c, bool late, sm_err *err,
                       semel_fault *fault)
{
    *err = SEMEL_E_UNAVAILABLE;
    if (late)
        sm_pg_fault_late(st, st->where, fault);
    else
        sm_pg_fault_conn(st->where, c->pg, fault);
    return SM_PG_LOST;
}

static sm_pg_fate prepare(const semel_store *st, sm_pg_conn *c, sm_pg_statement which,
                          const sm_pg_args *args, int64_t deadline_ns, sm_err *err,
                          semel_fault *fault)
{
    if (c->prepared[which] || st->settings.pooler)
        return SM_PG_DONE;
    PGresult *r = NULL;
    bool late = false;
    if (PQsendPrepare(c->pg, st->names[which], st->sql[which], args->n, args->types) == 0 ||
        !flush(c->pg, deadline_ns, &late))
        return lost(st, c, late, err, fault);
    sm_pg_fate way = receive(st, c, false, deadline_ns, &r, err, fault);
    PQclear(r);
    c->prepared[which] = way == SM_PG_DONE;
    return way;
}

static int send_one(const semel_store *st, sm_pg_conn *c, sm_pg_statement which,
                    const sm_pg_args *a)
{
    static const int binary[SM_PG_PARAMS_MAX] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                                 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    if (st->settings.pooler)
        return PQsendQueryParams(c->pg, st->sql[which], a->n, a->types, a->values, a->lengths,
                                 binary, BINARY);
    return PQsendQueryPrepared(c->pg, st->names[which], a->n, a->values, a->lengths, binary,
                               BINARY);
}

static sm_pg_statement locking_by(const sm_pg_lock *lock)
{
    return lock->shared ? SM_PGQ_LOCK_SHARED : SM_PGQ_LOCK;
}

/* Several statements before one sync are one transaction, and one round trip. */
static bool send_all(const semel_store *st, sm_pg_conn *c, sm_pg_statement which,
                     const sm_pg_args *args, const sm_pg_lock *lock, const sm_pg_args *key,
                     const char *guard)
{
    return PQenterPipelineMode(c->pg) == 1 &&
           (guard == NULL ||
            PQsendQueryParams(c->pg, guard, 0, NULL, NULL, NULL, NULL, BINARY) == 1) &&
           (!lock->wanted || send_one(st, c, locking_by(lock), key) == 1) &&
           send_one(st, c, which, args) == 1 && PQpipelineSync(c->pg) == 1;
}

sm_pg_fate sm_pg_run(const semel_store *st, sm_pg_conn *c, sm_pg_statement which,
                     const sm_pg_args *args, const sm_pg_lock *lock, const char *guard,
                     int64_t deadline_ns, PGresult **out, bool *sent, sm_err *err,
                     semel_fault *fault)
{
    *out = NULL;
    bool late = false, several = lock->wanted || guard != NULL;
    sm_pg_args key = {0};
    sm_pg_fate way = prepare(st, c, which, args, deadline_ns, err, fault);
    if (lock->wanted)
        sm_pg_add_int(&key, lock->key);
    if (way == SM_PG_DONE && lock->wanted)
        way = prepare(st, c, locking_by(lock), &key, deadline_ns, err, fault);
    if (way != SM_PG_DONE)
        return way;
    *sent = true;
    c->warned = false;
    bool good = several ? send_all(st, c, which, args, lock, &key, guard)
                        : send_one(st, c, which, args) == 1;
    if (!good || !flush(c->pg, deadline_ns, &late))
        return lost(st, c, late, err, fault);
    way = receive(st, c, several, deadline_ns, out, err, fault);
    if (several && way != SM_PG_LOST && PQexitPipelineMode(c->pg) == 0) {
        PQclear(*out);
        *out = NULL;
        way = lost(st, c, false, err, fault);
    }
    return way;
}

sm_pg_fate sm_pg_run_text(const semel_store *st, sm_pg_conn *c, const char *sql,
                          int64_t deadline_ns, PGresult **out, sm_err *err, semel_fault *fault)
{
    bool late = false;
    *out = NULL;
    if (PQsendQuery(c->pg, sql) == 0 || !flush(c->pg, deadline_ns, &late))
        return lost(st, c, late, err, fault);
    return receive(st, c, false, deadline_ns, out, err, fault);
}
