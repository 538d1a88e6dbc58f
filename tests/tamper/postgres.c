/* The tables of a schema: copies of them are kept in another one, and put back. */
#include <libpq-fe.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tamper.h"

#define TABLES_MAX   16u
#define VACUUM_EVERY 32u

static PGconn *db;
static char tables[TABLES_MAX][64];
static size_t n_tables, restored;
static char undo[2][256]; /* what else the last changes need to be put back */

static PGresult *run(const char *sql, bool *good)
{
    PGresult *r = PQexec(db, sql);
    ExecStatusType status = PQresultStatus(r);
    *good = status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
    return r;
}

static void must_run(const char *sql)
{
    bool good;
    PGresult *r = run(sql, &good);
    must(good, "%s: %s", sql, PQerrorMessage(db));
    PQclear(r);
}

static void read_table(const char *name, sql_table *t)
{
    char sql[1024];
    bool good;
    *t = (sql_table){.n_columns = 0};
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(sql, sizeof sql,
             "SELECT a.attname, format_type(a.atttypid, NULL), coalesce(a.attnum = ANY(i.indkey),"
             " false) FROM pg_attribute AS a LEFT JOIN pg_index AS i ON i.indrelid = a.attrelid AND"
             " i.indisprimary WHERE a.attrelid = 'semel.%s'::regclass AND a.attnum > 0 AND NOT"
             " a.attisdropped ORDER BY a.attnum",
             name);
    PGresult *r = run(sql, &good);
    must(good, "%s", PQerrorMessage(db));
    for (int i = 0; i < PQntuples(r); i++) {
        sql_column *c = &t->columns[t->n_columns++];
        snprintf(c->name, sizeof c->name, "%s", PQgetvalue(r, i, 0));
        c->number = strstr(PQgetvalue(r, i, 1), "int") != NULL;
        c->flag = strcmp(PQgetvalue(r, i, 1), "boolean") == 0;
        c->key = PQgetvalue(r, i, 2)[0] == 't';
    }
    PQclear(r);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM semel.%s", name);
    r = run(sql, &good);
    must(good, "%s", PQerrorMessage(db));
    t->rows = (size_t)atoi(PQgetvalue(r, 0, 0));
    PQclear(r);
}

/* Further changes. If restoring the rows does not undo one, the statement after its bar does. */
static void add_others(surface *out)
{
    static const char *const more[] = {
        "DELETE FROM semel.effect",
        "DELETE FROM semel.effect_old",
        "DELETE FROM semel.event WHERE id = 0",
        "DELETE FROM semel.meta",
        "INSERT INTO semel.effect_old SELECT id, generation, version, born, fence, events,"
        " created_at, updated_at, lease_end, due_at, settled_at, result_end, window_end, purge_at,"
        " sweep_at, shard, state, tombstone, key, grp, fingerprint, head, scope, step, tool,"
        " caller, life, args, outcome FROM semel.effect",
        "UPDATE semel.effect SET bars_from = NULL",
        "UPDATE semel.effect SET sweep_at = 1",
        "UPDATE semel.effect SET updated_at = 32503680000000",
        "INSERT INTO semel.counter VALUES ('evil', 1, 2)",
        "UPDATE semel.counter SET value = value - 1",
        "UPDATE semel.counter SET value = value + 1, cap = cap + 1",
        "DELETE FROM semel.counter",
        "CREATE FUNCTION semel.evil() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        " CREATE TRIGGER evil BEFORE INSERT ON semel.event FOR EACH ROW EXECUTE FUNCTION"
        " semel.evil()|DROP FUNCTION semel.evil CASCADE",
        "CREATE RULE evil AS ON UPDATE TO semel.effect DO INSTEAD NOTHING|DROP RULE evil ON"
        " semel.effect",
        "ALTER TABLE semel.effect ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY|ALTER TABLE"
        " semel.effect DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE semel.effect ALTER state SET DEFAULT 5|ALTER TABLE semel.effect ALTER state"
        " DROP DEFAULT",
        "ALTER TABLE semel.effect DROP CONSTRAINT effect_pkey|ALTER TABLE semel.effect ADD PRIMARY"
        " KEY (id)",
    };
    static const char *const floors[] = {
        "UPDATE semel.meta SET seq_floor = seq_floor + 1000000",
        "UPDATE semel.meta SET seq_floor = (SELECT max(seq) FROM semel.event)",
        "UPDATE semel.meta SET seq_floor = (SELECT max(seq) - 1 FROM semel.event)",
        ("UPDATE semel.meta SET seal_seq = (SELECT max(seq) FROM semel.event WHERE id = 0 AND"
         " seq < seal_seq)"),
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        surface_add(out, print_new("%s", more[i]), NULL);
    out->of = OF_META;
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++)
        surface_add(out, print_new("%s", floors[i]), NULL);
    out->of = 0;
}

/* One connection for each process: a child makes its own. */
static char where[512];
static void reconnect(void)
{
    db = PQconnectdb(where);
    must(PQstatus(db) == CONNECTION_OK, "%s", PQerrorMessage(db));
    must_run("SET synchronous_commit = off; SET client_min_messages = warning");
}

static void start(surface *out, const char *url)
{
    snprintf(where, sizeof where, "%.*s", (int)strcspn(url, "?"), url);
    reconnect();
    must_run("CREATE SCHEMA untouched");
    bool good;
    PGresult *r = run("SELECT relname FROM pg_class WHERE relnamespace = 'semel'::regnamespace AND"
                      " relkind IN ('r', 'p') ORDER BY relname",
                      &good);
    must(good && PQntuples(r) > 0, "%s", PQerrorMessage(db));
    for (int i = 0; i < PQntuples(r) && n_tables < TABLES_MAX; i++) {
        char *name = tables[n_tables++], sql[256];
        sql_table t;
        snprintf(name, sizeof tables[0], "%s", PQgetvalue(r, i, 0));
        snprintf(sql, sizeof sql, "CREATE TABLE untouched.%s AS SELECT * FROM semel.%s", name,
                 name);
        must_run(sql);
        read_table(name, &t);
        sql_list(out, &t, "semel.",
                 "CASE WHEN length(%1$s) > 0 THEN set_byte(%1$s, (length(%1$s) - 1) * %2$u / 7,"
                 " get_byte(%1$s, (length(%1$s) - 1) * %2$u / 7) # 1) ELSE 'x' END");
    }
    PQclear(r);
    add_others(out);
    PQfinish(db);
    db = NULL;
}

static void restore(bool noted)
{
    (void)noted; /* a server that may lose data has no notes */
    if (db == NULL)
        reconnect();
    for (size_t i = 0; i < 2; i++) {
        if (undo[i][0] != '\0')
            must_run(undo[i]);
        undo[i][0] = '\0';
    }
    must_run("BEGIN");
    for (size_t i = 0; i < n_tables; i++) {
        char *sql = print_new("DELETE FROM semel.%s; INSERT INTO semel.%s OVERRIDING SYSTEM VALUE"
                              " SELECT * FROM untouched.%s",
                              tables[i], tables[i], tables[i]);
        must_run(sql);
        free(sql);
    }
    must_run("COMMIT");
    /* Rows that were put back lie behind those that are gone, which every look would pass. */
    bool vacuum = restored++ % VACUUM_EVERY == 0;
    for (size_t i = 0; i < n_tables && vacuum; i++) {
        char *sql = print_new("VACUUM semel.%s", tables[i]);
        must_run(sql);
        free(sql);
    }
}

static bool change(surface *s, const tampering *one)
{
    (void)s;
    bool good;
    const char *bar = strchr(one->what, '|');
    size_t n = bar == NULL ? strlen(one->what) : (size_t)(bar - one->what);
    if (bar != NULL && bar[1] == '|') /* the operator of texts */
        bar = NULL, n = strlen(one->what);
    char *sql = print_new("%.*s", (int)n, one->what);
    PGresult *r = run(sql, &good);
    PQclear(r);
    free(sql);
    if (good && bar != NULL)
        snprintf(undo[undo[0][0] != '\0'], sizeof undo[0], "%s", bar + 1);
    return good;
}

const store_kind tamper_postgres = {"postgres", false, start, change, restore};
