/* The SQLite file: its bytes are remembered, and written anew for each change. */
#include <glob.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tamper.h"

/* The bytes of a file as it was. */
typedef struct kept {
    char *p;
    size_t n;
} kept;

static char path[4096], note[4200];
static kept whole, noted; /* the ledger; the file beside it with the note of the newest event */

/* flip(value, part): one bit of a text or blob changed, in that eighth of it. */
static void flip(sqlite3_context *context, int argc, sqlite3_value **argv)
{
    (void)argc;
    int n = sqlite3_value_bytes(argv[0]), type = sqlite3_value_type(argv[0]);
    const void *bytes = sqlite3_value_blob(argv[0]);
    unsigned char *copy = malloc((size_t)n + 1);
    must(copy != NULL, "out of memory");
    if (type == SQLITE_NULL || n == 0) {
        sqlite3_result_text(context, "x", 1, SQLITE_STATIC);
        free(copy);
        return;
    }
    memcpy(copy, bytes, (size_t)n);
    copy[(long long)(n - 1) * sqlite3_value_int(argv[1]) / 7] ^= 1;
    if (type == SQLITE_BLOB)
        sqlite3_result_blob(context, copy, n, SQLITE_TRANSIENT);
    else
        sqlite3_result_text(context, (char *)copy, n, SQLITE_TRANSIENT);
    free(copy);
}

static sqlite3 *connect(void)
{
    sqlite3 *db = NULL;
    must(sqlite3_open(path, &db) == SQLITE_OK, "%s cannot be opened", path);
    sqlite3_create_function(db, "flip", 2, SQLITE_UTF8, NULL, flip, NULL, NULL);
    sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL);
    return db;
}

static void read_table(sqlite3 *db, const char *name, sql_table *t)
{
    char sql[256];
    sqlite3_stmt *stmt = NULL;
    *t = (sql_table){.n_columns = 0};
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(sql, sizeof sql, "SELECT name, type, pk FROM pragma_table_info('%s')", name);
    must(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK, "%s", sql);
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        sql_column *c = &t->columns[t->n_columns++];
        snprintf(c->name, sizeof c->name, "%s", (const char *)sqlite3_column_text(stmt, 0));
        c->number = strcmp((const char *)sqlite3_column_text(stmt, 1), "INTEGER") == 0;
        c->key = sqlite3_column_int(stmt, 2) > 0;
    }
    sqlite3_finalize(stmt);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM %s", name);
    must(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) == SQLITE_OK, "%s", sql);
    must(sqlite3_step(stmt) == SQLITE_ROW, "%s", sql);
    t->rows = (size_t)sqlite3_column_int(stmt, 0);
    sqlite3_finalize(stmt);
}

static void add_others(surface *out)
{
    static const char *const more[] = {
        "CREATE TRIGGER evil AFTER INSERT ON event BEGIN UPDATE effect SET state = 5; END",
        "CREATE TRIGGER evil AFTER UPDATE ON effect BEGIN DELETE FROM name; END",
        "CREATE VIEW evil AS SELECT * FROM effect",
        "ALTER TABLE effect ADD COLUMN evil INTEGER",
        "ALTER TABLE outcome RENAME TO results",
        "CREATE UNIQUE INDEX evil ON effect(tool, n)",
        "DROP INDEX effect_bars",
        "DROP INDEX event_effect",
        "DROP VIEW effects",
        "DROP TABLE counter",
        "PRAGMA user_version = 1",
        "PRAGMA user_version = 2",
        "PRAGMA user_version = 4",
        "PRAGMA application_id = 1",
        "INSERT INTO counter VALUES('evil', 7, NULL)",
        "UPDATE counter SET value = value + 1",
        "UPDATE counter SET value = value - 1",
        "DELETE FROM counter",
        "INSERT INTO meta VALUES('evil', 7)",
        "DELETE FROM note",
        "DELETE FROM name",
        "DELETE FROM args",
        "DELETE FROM outcome",
        "DELETE FROM effect",
        "DELETE FROM event WHERE n = 0",
        "DELETE FROM effect WHERE n = (SELECT max(n) FROM effect)",
        "UPDATE effect SET bars_from = NULL",
        "UPDATE effect SET bars_from = NULL, state = state + 0.5 WHERE bars_from IS NOT NULL",
        "CREATE TABLE sqliteevil AS SELECT * FROM effect",
        "CREATE TEMP TABLE aside AS SELECT * FROM effect WHERE window_end > settled_at; UPDATE aside"
        " SET n = n + 1000, generation = generation + 1, window_end = settled_at, head = NULL,"
        " result_end = settled_at, events = 0; INSERT INTO effect SELECT * FROM aside; INSERT INTO"
        " name SELECT id, generation, n FROM aside",
        "UPDATE effect SET grp = NULL, bars_from = NULL WHERE bars_from IS NOT NULL",
        "UPDATE effect SET grp = CAST(grp AS TEXT)",
        "UPDATE effect SET sweep_at = 1",
        "UPDATE effect SET sweep_at = NULL",
        "UPDATE effect SET due_at = NULL",
        "UPDATE effect SET key = CAST(key AS TEXT)",
        "UPDATE outcome SET bytes = CAST(bytes AS TEXT)",
        "UPDATE args SET bytes = CAST(bytes AS BLOB)",
        "UPDATE effect SET updated_at = 32503680000000",
        "UPDATE event SET n = -n",
        "UPDATE event SET seq = seq + 1000000",
    };
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        surface_add(out, print_new("%s", more[i]), NULL);
}

/* Changes of meta to what an attacker would choose, and the change that they would hide. */
static void add_cuts(surface *out)
{
    static const char *const floors[] = {
        "UPDATE meta SET value = 1000000",
        "UPDATE meta SET value = value + 1000000 WHERE name = 'seq_floor'",
        "UPDATE meta SET value = (SELECT max(seq) FROM event) WHERE name = 'seq_floor'",
        "UPDATE meta SET value = (SELECT max(seq) - 1 FROM event) WHERE name = 'seq_floor'",
        ("UPDATE meta SET value = value + 1000000 WHERE name = 'seq_floor'; UPDATE event SET seq = "
         "seq + 1000001 WHERE seq = (SELECT max(seq) FROM event)"),
        "DELETE FROM meta",
    };
    static const char *const cuts[] = {
        /* The newest effect never was. */
        "CREATE TEMP TABLE cut AS SELECT max(n) AS n FROM effect; DELETE FROM event WHERE seq >="
        " (SELECT min(e.seq) FROM event AS e, cut WHERE e.n = cut.n); DELETE FROM args WHERE n ="
        " (SELECT n FROM cut); DELETE FROM outcome WHERE n = (SELECT n FROM cut); DELETE FROM name"
        " WHERE n = (SELECT n FROM cut); DELETE FROM effect WHERE n = (SELECT n FROM cut)",
        "DELETE FROM event; DELETE FROM args; DELETE FROM outcome; DELETE FROM name; DELETE FROM"
        " effect; DELETE FROM counter",
    };
    out->of = OF_META;
    for (size_t i = 0; i < sizeof floors / sizeof *floors; i++)
        surface_add(out, print_new("%s", floors[i]), NULL);
    out->of = OF_PAIRS;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        surface_add(out, print_new("%s", cuts[i]), NULL);
    out->of = 0;
}

static kept read_all(const char *name)
{
    kept k = {NULL, 0};
    FILE *f = fopen(name, "rb");
    must(f != NULL, "%s is not there", name);
    fseek(f, 0, SEEK_END);
    k.n = (size_t)ftell(f);
    rewind(f);
    k.p = malloc(k.n + 1);
    must(k.p != NULL && fread(k.p, 1, k.n, f) == k.n, "%s cannot be read", name);
    fclose(f);
    return k;
}

static void write_all(const char *name, const kept *k)
{
    FILE *f = fopen(name, "wb");
    must(f != NULL && fwrite(k->p, 1, k->n, f) == k->n && fclose(f) == 0, "%s cannot be written",
         name);
}

static void start(surface *out, const char *url)
{
    snprintf(path, sizeof path, "%s", strchr(url, ':') + 1);
    sqlite3 *whole_db = connect(); /* all of it into the one file */
    must(sqlite3_exec(whole_db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL) == SQLITE_OK,
         "%s cannot be checkpointed", path);
    sqlite3_close(whole_db);
    whole = read_all(path);
    snprintf(note, sizeof note, "%s-semel", path);
    noted = read_all(note);
    sqlite3 *db = connect();
    sqlite3_stmt *stmt = NULL;
    must(sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type = 'table'", -1, &stmt,
                            NULL) == SQLITE_OK,
         "no tables");
    while (sqlite3_step(stmt) == SQLITE_ROW) {
        sql_table t;
        read_table(db, (const char *)sqlite3_column_text(stmt, 0), &t);
        sql_list(out, &t, "", "flip(%1$s, %2$u)");
    }
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    add_others(out);
    add_cuts(out);
}

static bool change(surface *s, const tampering *one)
{
    (void)s;
    sqlite3 *db = connect();
    bool good = sqlite3_exec(db, one->what, NULL, NULL, NULL) == SQLITE_OK;
    must(sqlite3_close(db) == SQLITE_OK, "the file is still open");
    return good;
}

/* Of the user's own notes (store/shared/mark.h) none stays: they are ahead of a file that is put
 * back. */
static void drop_marks(void)
{
    glob_t found;
    char *pattern = print_new("%s/semel/seen/*", getenv("XDG_STATE_HOME"));
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++)
            unlink(found.gl_pathv[i]);
        globfree(&found);
    }
    free(pattern);
}

static void restore(bool with_note)
{
    static const char *const beside[] = {"-wal", "-shm", "-semel", "-journal"};
    char name[4200];
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        snprintf(name, sizeof name, "%s%s", path, beside[i]);
        unlink(name);
    }
    write_all(path, &whole);
    if (with_note) {
        write_all(note, &noted);
        must(chmod(note, 0600) == 0, "%s is not ours", note);
    }
    drop_marks();
}

const store_kind tamper_sqlite = {"sqlite", true, start, change, restore};
