/*
 * What is in the file.
 *
 * Rows of `effect` are appended in the order in which effects came to be, so that random keys do
 * not dirty a page each. The only structure in random order is `name`, which is as compact as it
 * can be. Payloads have tables of their own: a change of state must not rewrite a large argument.
 * What finds open effects and due ones are partial indexes over what is open, which stays little.
 *
 * `name` may outlive its effect: while there are events of it, they can be found. seq_floor and
 * n_floor are the newest numbers that purge has freed, so that none is ever used twice.
 *
 * The tables are for this code. The views are for people with the sqlite3 program.
 */
#include "store/sqlite.h"

#include <stdio.h>

#include "base/buf.h"

_Static_assert(SEMEL_S_SUCCEEDED == 5 && SEMEL_S_IN_DOUBT == 4 && SEMEL_S_RUNNING == 3,
               "the partial indexes name states by number");

static const char tables[] =
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('n_floor', 0), ('seq_floor', 0);"
    "CREATE TABLE effect(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " version INTEGER NOT NULL, shard INTEGER NOT NULL, state INTEGER NOT NULL,"
    " tombstone INTEGER NOT NULL, fence INTEGER NOT NULL, events INTEGER NOT NULL,"
    " created_at INTEGER, updated_at INTEGER, lease_end INTEGER, due_at INTEGER,"
    " settled_at INTEGER, result_end INTEGER, window_end INTEGER, purge_at INTEGER,"
    " sweep_at INTEGER, key BLOB NOT NULL, grp BLOB, fingerprint BLOB, head BLOB, scope TEXT,"
    " step TEXT, tool TEXT, caller TEXT, life BLOB);"
    "CREATE TABLE name(id INTEGER, generation INTEGER, n INTEGER,"
    " PRIMARY KEY(id, generation, n)) WITHOUT ROWID;"
    "CREATE TABLE args(n INTEGER PRIMARY KEY, bytes TEXT NOT NULL);"
    "CREATE TABLE outcome(n INTEGER PRIMARY KEY, bytes BLOB NOT NULL);"
    "CREATE INDEX effect_due ON effect(due_at) WHERE state < 5 AND due_at IS NOT NULL;"
    "CREATE INDEX effect_group ON effect(grp, state, lease_end)"
    " WHERE state < 5 AND grp IS NOT NULL;"
    "CREATE INDEX effect_open ON effect(state) WHERE state < 5;"
    "CREATE INDEX effect_sweep ON effect(sweep_at) WHERE sweep_at IS NOT NULL;"
    "CREATE TABLE event(seq INTEGER PRIMARY KEY, n INTEGER NOT NULL, id INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, what TEXT,"
    " actor TEXT, body TEXT, prev BLOB, hash BLOB, shard INTEGER NOT NULL);"
    "CREATE INDEX event_effect ON event(n);"
    "CREATE TABLE counter(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE TABLE note(seq INTEGER PRIMARY KEY, id INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, count INTEGER NOT NULL, what TEXT,"
    " scope TEXT, tool TEXT);"
    "CREATE INDEX note_effect ON note(id);"
    "CREATE INDEX note_age ON note(last_at);";

/* A time for people. */
#define ISO(column)                                                                                \
    "CASE " column " WHEN 9223372036854775807 THEN 'never' ELSE "                                  \
    "strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', " column " / 1000.0, 'unixepoch') END AS "

static const char views[] =
    "CREATE VIEW effects AS SELECT n, printf('%%016x', id) AS id, generation,"
    " CASE state %s END AS state, tool, scope, step, caller AS caller_key,"
    " (SELECT bytes FROM args WHERE n = effect.n) AS args,"
    " (SELECT CAST(bytes AS TEXT) FROM outcome WHERE n = effect.n) AS outcome,"
    " fence, version, events," ISO("created_at") "created," ISO("updated_at") "updated," ISO("lease_end") "lease_end," ISO("due_at") "due," ISO("settled_at") "settled," ISO("result_end") "result_end," ISO(
        "window_end") "window_end," ISO("purge_at") "purge," /* when the record may go */
                                                    " CAST(life AS TEXT) AS life, lower(hex(key)) AS key FROM effect;"
                                                    "CREATE VIEW approvals AS SELECT n, id, generation, tool, scope, step, args, created, due"
                                                    " FROM effects WHERE state = 'pending_approval';"
                                                    "CREATE VIEW in_doubt AS SELECT n, id, generation, tool, scope, step, args, updated, due"
                                                    " FROM effects WHERE state = 'in_doubt';"
                                                    "CREATE VIEW history AS SELECT v.seq, " ISO(
                                                        "v.at") "at,"
                                                                " CASE v.n WHEN 0 THEN 'seal' ELSE printf('%%016x', v.id) END AS id, v.generation, v.number,"
                                                                " v.what, v.actor, v.body, e.tool, e.scope, lower(hex(v.hash)) AS hash"
                                                                " FROM event AS v LEFT JOIN effect AS e ON e.n = v.n;"
                                                                "CREATE VIEW notes AS SELECT seq, printf('%%016x', id) AS id, generation, what, count, " ISO(
                                                                    "first_at") "first," ISO("last_at") "last, tool, scope FROM note;";

static int make_v1(sqlite3 *db)
{
    sm_buf states, script;
    sm_buf_init(&states, 4096);
    sm_buf_init(&script, 65536);
    for (int s = 0; s < SEMEL_S_COUNT; s++)
        sm_buf_printf(&states, " WHEN %d THEN '%s'", s, semel_state_name((semel_state)s));
    sm_buf_byte(&states, '\0');
    int rc = SQLITE_NOMEM;
    if (states.err == SM_OK)
        sm_buf_printf(&script, views, states.p);
    sm_buf_byte(&script, '\0');
    if (states.err == SM_OK && script.err == SM_OK)
        rc = sqlite3_exec(db, tables, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, script.p, NULL, NULL, NULL);
    sm_buf_fini(&states);
    sm_buf_fini(&script);
    return rc;
}

/* The step that leads from version i to i + 1. */
static int (*const steps[SM_SQ_SCHEMA])(sqlite3 *db) = {make_v1};

/* The one number that a statement gives. */
static int number(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *stmt = NULL;
    *out = 0;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW)
            *out = sqlite3_column_int64(stmt, 0);
        rc = rc == SQLITE_ROW ? SQLITE_OK : rc == SQLITE_DONE ? SQLITE_EMPTY : rc;
    }
    sqlite3_finalize(stmt);
    return rc;
}

semel_err sm_sq_schema_check(semel_store *st, sqlite3 *db, int *version, semel_fault *fault)
{
    int64_t application = 0, user = 0, objects = 0;
    int rc = number(db, "PRAGMA application_id", &application);
    if (rc == SQLITE_OK)
        rc = number(db, "PRAGMA user_version", &user);
    if (rc == SQLITE_OK)
        rc = number(db, "SELECT count(*) FROM sqlite_schema", &objects);
    if (rc == SQLITE_NOTADB)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s is not a ledger, and not an SQLite file at all: name another "
                            "file",
                            st->path);
    if (rc != SQLITE_OK)
        return sm_sq_fault(st, rc, fault);
    *version = 0;
    if (application == 0 && user == 0 && objects == 0)
        return SEMEL_OK; /* empty: one can be made here */
    if (application != SM_SQ_APPLICATION_ID || user <= 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s is an SQLite file of another program, not a ledger: name "
                            "another file",
                            st->path);
    if (user > SM_SQ_SCHEMA)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s was made by a newer version of semel (schema %lld; this one "
                            "knows %d): upgrade semel",
                            st->path, (long long)user, SM_SQ_SCHEMA);
    *version = (int)user;
    return SEMEL_OK;
}

/* Runs the steps that are missing, each in the transaction that also counts it. */
static int migrate(sqlite3 *db, int version)
{
    int rc = SQLITE_OK;
    for (; rc == SQLITE_OK && version < SM_SQ_SCHEMA; version++) {
        char stamp[96];
        snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d; PRAGMA user_version = %d",
                 SM_SQ_APPLICATION_ID, version + 1);
        rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            rc = steps[version](db);
        if (rc == SQLITE_OK)
            rc = sqlite3_exec(db, stamp, NULL, NULL, NULL);
        if (rc == SQLITE_OK)
            rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
        if (rc != SQLITE_OK && sqlite3_get_autocommit(db) == 0)
            sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    }
    return rc;
}

bool sm_sq_schema_logs(sqlite3 *db)
{
    sqlite3_stmt *stmt = NULL;
    bool logs = false;
    if (sqlite3_prepare_v2(db, "PRAGMA journal_mode", -1, &stmt, NULL) == SQLITE_OK &&
        sqlite3_step(stmt) == SQLITE_ROW)
        logs = strcmp((const char *)sqlite3_column_text(stmt, 0), "wal") == 0;
    sqlite3_finalize(stmt);
    return logs;
}

semel_err sm_sq_schema_make(semel_store *st, sqlite3 *db, semel_fault *fault)
{
    int version = 0;
    semel_err e = sm_sq_schema_check(st, db, &version, fault);
    if (e != SEMEL_OK)
        return e;
    int rc = SQLITE_OK;
    if (version == 0)
        rc = sqlite3_exec(db, "PRAGMA page_size = 4096", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
    if (rc == SQLITE_OK && !sm_sq_schema_logs(db))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s lies on a file system without shared memory, which a ledger "
                            "needs: use a local disk",
                            st->path);
    if (rc == SQLITE_OK)
        rc = migrate(db, version);
    return rc == SQLITE_OK ? SEMEL_OK : sm_sq_fault(st, rc, fault);
}
