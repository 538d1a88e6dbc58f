/*
 * What is in the file.
 *
 * Rows of `effect` are appended in the order in which effects came to be, so that random keys do
 * not dirty a page each. The only structure in random order is `name`, which is as compact as it
 * can be. Payloads have tables of their own: a change of state must not rewrite a large argument.
 * What finds open effects and due ones are partial indexes over what is open, which stays little.
 * bars_from is when an effect begins to bar others of its group: at the end of its lease, or at
 * once if it is in doubt.
 *
 * `name` may outlive its effect: while there are events of it, they can be found. seq_floor and
 * n_floor are the newest numbers that purge has freed, so that none is ever used twice. A counter
 * without `until` stays for ever.
 *
 * The tables are for this code. The views are for people with the sqlite3 program.
 */
#include "store/sqlite/sqlite.h"

#include <stdio.h>

#include "base/buf.h"
#include "store/shared/views.h"

_Static_assert(SEMEL_S_SUCCEEDED == 5 && SEMEL_S_IN_DOUBT == 4 && SEMEL_S_PENDING == 1,
               "indexes, queries and views name states by number");

#define SCHEMA_BYTES_MAX ((size_t)1 << 20)

#define COUNTER_TABLE                                                                              \
    "CREATE TABLE counter(name TEXT PRIMARY KEY, value INTEGER NOT NULL, until INTEGER)"           \
    " WITHOUT ROWID;"                                                                              \
    "CREATE INDEX counter_over ON counter(until) WHERE until IS NOT NULL;"

static const char tables[] =
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;"
    "INSERT INTO meta VALUES('n_floor', 0), ('seq_floor', 0);"
    "CREATE TABLE effect(n INTEGER PRIMARY KEY, id INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " version INTEGER NOT NULL, shard INTEGER NOT NULL, state INTEGER NOT NULL,"
    " tombstone INTEGER NOT NULL, fence INTEGER NOT NULL, events INTEGER NOT NULL,"
    " created_at INTEGER, updated_at INTEGER, lease_end INTEGER, due_at INTEGER,"
    " settled_at INTEGER, result_end INTEGER, window_end INTEGER, purge_at INTEGER,"
    " sweep_at INTEGER, key BLOB NOT NULL, grp BLOB, fingerprint BLOB, head BLOB, scope TEXT,"
    " step TEXT, tool TEXT, caller TEXT, life BLOB, bars_from INTEGER);"
    "CREATE TABLE name(id INTEGER, generation INTEGER, n INTEGER,"
    " PRIMARY KEY(id, generation, n)) WITHOUT ROWID;"
    "CREATE TABLE args(n INTEGER PRIMARY KEY, bytes TEXT NOT NULL);"
    "CREATE TABLE outcome(n INTEGER PRIMARY KEY, bytes BLOB NOT NULL);"
    "CREATE INDEX effect_due ON effect(due_at) WHERE state < 5 AND due_at IS NOT NULL;"
    "CREATE INDEX effect_bars ON effect(grp, bars_from) WHERE bars_from IS NOT NULL;"
    "CREATE INDEX effect_open ON effect(state) WHERE state < 5;"
    "CREATE INDEX effect_sweep ON effect(sweep_at) WHERE sweep_at IS NOT NULL;"
    "CREATE TABLE event(seq INTEGER PRIMARY KEY, n INTEGER NOT NULL, id INTEGER NOT NULL,"
    " generation INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL, what TEXT,"
    " actor TEXT, body TEXT, prev BLOB, hash BLOB, shard INTEGER NOT NULL);"
    "CREATE INDEX event_effect ON event(n);" COUNTER_TABLE
    "CREATE TABLE note(seq INTEGER PRIMARY KEY, id INTEGER NOT NULL, generation INTEGER NOT NULL,"
    " first_at INTEGER NOT NULL, last_at INTEGER NOT NULL, count INTEGER NOT NULL, what TEXT,"
    " scope TEXT, tool TEXT);"
    "CREATE INDEX note_effect ON note(id);"
    "CREATE INDEX note_age ON note(last_at);";

/* ---- views -----------------------------------------------------------------------------------*/

/* A time for people, such as 2026-03-01T09:00:00.000Z. */
static void put_time(sm_buf *b, const char *column, const char *name)
{
    sm_buf_printf(b,
                  ", CASE %s WHEN %lld THEN 'never' ELSE"
                  " strftime('%%Y-%%m-%%dT%%H:%%M:%%fZ', %s / 1000.0, 'unixepoch') END AS %s",
                  column, (long long)SM_SQ_NEVER, column, name);
}

/* The handle ef_..., as core/handle.h describes it. */
static void put_handle(sm_buf *b, const char *shard, const char *table)
{
    sm_buf_printf(b, "'ef_' || printf('%%02x', %s)", shard);
    for (int shift = 60; shift >= 0; shift -= 5)
        sm_buf_printf(b,
                      " || substr('0123456789abcdefghjkmnpqrstvwxyz', (%s.id >> %d & %d) + 1, 1)",
                      table, shift, shift == 60 ? 15 : 31);
    sm_buf_printf(b,
                  " || CASE %s.generation WHEN 1 THEN '' ELSE '.' || %s.generation END AS effect",
                  table, table);
}

static void put_effects(sm_buf *b)
{
    sm_buf_text(b, "CREATE VIEW effects AS SELECT n, ");
    put_handle(b, "shard", "effect");
    sm_view_state(b);
    sm_buf_text(b, ", tool, scope, step, caller AS caller_key,"
                   " (SELECT bytes FROM args WHERE n = effect.n) AS args,"
                   " (SELECT CAST(bytes AS TEXT) FROM outcome WHERE n = effect.n) AS outcome,"
                   " fence, version, events");
    for (size_t i = 0; i < SM_VIEW_TIMES; i++)
        put_time(b, sm_view_times[i].column, sm_view_times[i].name);
    sm_buf_text(b,
                ", CAST(life AS TEXT) AS life, lower(hex(key)) AS key FROM effect;"
                "CREATE VIEW approvals AS SELECT n, effect, tool, scope, step, args, created, due"
                " FROM effects WHERE n IN (SELECT n FROM effect WHERE state < 5 AND state = 1);"
                "CREATE VIEW in_doubt AS SELECT n, effect, tool, scope, step, args, updated, due"
                " FROM effects WHERE n IN (SELECT n FROM effect WHERE state < 5 AND state = 4);");
}

static void put_history(sm_buf *b)
{
    sm_buf_text(b, "CREATE VIEW history AS SELECT event.seq");
    put_time(b, "event.at", "at");
    sm_buf_text(b, ", CASE event.n WHEN 0 THEN NULL ELSE h.effect END AS effect, event.number,"
                   " event.what, event.actor, event.body, e.tool, e.scope,"
                   " lower(hex(event.hash)) AS hash FROM event JOIN (SELECT seq, ");
    put_handle(b, "shard", "event");
    sm_buf_text(b,
                " FROM event) AS h ON h.seq = event.seq LEFT JOIN effect AS e ON e.n = event.n;");
    sm_buf_text(b, "CREATE VIEW notes AS SELECT note.seq, CASE note.id WHEN 0 THEN NULL ELSE"
                   " (SELECT effect FROM effects WHERE n = (SELECT max(n) FROM name"
                   " WHERE id = note.id AND generation = note.generation)) END AS effect,"
                   " what, count");
    put_time(b, "first_at", "first");
    put_time(b, "last_at", "last");
    sm_buf_text(b, ", tool, scope FROM note;");
}

/* ---- versions --------------------------------------------------------------------------------*/

static int make_tables(sqlite3 *db)
{
    sm_buf views;
    sm_buf_init(&views, 65536);
    put_effects(&views);
    put_history(&views);
    sm_buf_byte(&views, '\0');
    int rc = views.err == SM_OK ? sqlite3_exec(db, tables, NULL, NULL, NULL) : SQLITE_NOMEM;
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, views.p, NULL, NULL, NULL);
    sm_buf_fini(&views);
    return rc;
}

/* The schema in one text, without SQLite's own parts: indexes without SQL, and the tables of
 * ANALYZE. The prefix of a name does not tell, because anybody can choose a name like sqlite-x. */
static int put_schema(sqlite3 *db, sm_buf *out)
{
    sqlite3_stmt *stmt = NULL;
    int rc =
        sqlite3_prepare_v2(db,
                           "SELECT type || ' ' || name || ' ' || tbl_name || ' ' || sql FROM"
                           " sqlite_schema WHERE sql IS NOT NULL AND NOT (type = 'table' AND name"
                           " IN ('sqlite_stat1', 'sqlite_stat4')) ORDER BY type, name",
                           -1, &stmt, NULL);
    while (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        sm_buf_str(out, sm_sq_text(stmt, 0));
        sm_buf_byte(out, '\n');
        rc = out->err == SM_OK ? SQLITE_OK : SQLITE_NOMEM;
    }
    sqlite3_finalize(stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

int sm_sq_schema_is_ours(sqlite3 *db, bool *ours)
{
    sqlite3 *fresh = NULL;
    sm_buf is, should;
    sm_buf_init(&is, SCHEMA_BYTES_MAX);
    sm_buf_init(&should, SCHEMA_BYTES_MAX);
    int rc = sqlite3_open(":memory:", &fresh);
    if (rc == SQLITE_OK)
        rc = make_tables(fresh);
    if (rc == SQLITE_OK)
        rc = put_schema(fresh, &should);
    sqlite3_close(fresh);
    if (rc == SQLITE_OK)
        rc = put_schema(db, &is);
    *ours = rc == SQLITE_OK && sm_str_eq(sm_buf_view(&is), sm_buf_view(&should));
    sm_buf_fini(&is);
    sm_buf_fini(&should);
    return rc;
}

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

/* What the file says of itself, read at one moment: another process may be making a ledger of it.
 */
static int read_marks(sqlite3 *db, int64_t *application, int64_t *user, int64_t *objects)
{
    *application = *user = *objects = 0;
    int rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = number(db, "PRAGMA application_id", application);
    if (rc == SQLITE_OK)
        rc = number(db, "PRAGMA user_version", user);
    if (rc == SQLITE_OK)
        rc = number(db, "SELECT count(*) FROM sqlite_schema", objects);
    if (sqlite3_get_autocommit(db) == 0)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL); /* nothing was written */
    return rc;
}

semel_err sm_sq_schema_check(semel_store *st, sqlite3 *db, int *version, semel_fault *fault)
{
    int64_t application, user, objects;
    int rc = read_marks(db, &application, &user, &objects);
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
    if (user < SM_SQ_SCHEMA_OLDEST)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s was made by an older version of semel (schema %lld; this one "
                            "knows %d), whose audit trail covers less: start a new ledger, and "
                            "keep this file for the version that made it",
                            st->path, (long long)user, SM_SQ_SCHEMA);
    *version = (int)user;
    return SEMEL_OK;
}

/* From version 2. The schema's text is then the same as that of a new file. */
static const char upgrade[] =
    "CREATE TABLE before AS SELECT name, value FROM counter;"
    "DROP TABLE counter;" COUNTER_TABLE "INSERT INTO counter SELECT name, value, NULL FROM before;"
    "DROP TABLE before;";

/* Makes the tables, or upgrades them, in the transaction that also sets the version. */
static int make(sqlite3 *db, int version)
{
    char stamp[96];
    snprintf(stamp, sizeof stamp, "PRAGMA application_id = %d; PRAGMA user_version = %d",
             SM_SQ_APPLICATION_ID, SM_SQ_SCHEMA);
    int rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = version == 0 ? make_tables(db) : sqlite3_exec(db, upgrade, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, stamp, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    if (rc != SQLITE_OK && sqlite3_get_autocommit(db) == 0)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
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
    if (rc == SQLITE_OK && version == 0)
        sm_sq_seen_forget(st);
    if (rc == SQLITE_OK && version < SM_SQ_SCHEMA)
        rc = make(db, version);
    rc = sm_sq_unwritten(db, true, sm_sq_unwritten(db, false, rc));
    return rc == SQLITE_OK ? SEMEL_OK : sm_sq_fault(st, rc, fault);
}
