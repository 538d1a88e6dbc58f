/*
 * The file's own check: SQLite's structures are whole, the tables are those that this code makes,
 * and everything derived from records agrees with them. The audit trail binds the records
 * themselves; this checks what leads to them.
 */
#include "store/sqlite/sqlite.h"

/* Each counts flaws. */
static const struct {
    const char *sql, *what;
} checks[] = {
    {"SELECT count(*) FROM effect AS e WHERE NOT EXISTS (SELECT 1 FROM name AS k"
     " WHERE k.id = e.id AND k.generation = e.generation AND k.n = e.n)",
     "records cannot be found by their keys"},
    {"SELECT count(*) FROM name AS k LEFT JOIN effect AS e ON e.n = k.n WHERE CASE WHEN e.n IS NULL"
     " THEN NOT EXISTS (SELECT 1 FROM event AS v WHERE v.n = k.n AND v.id = k.id AND"
     " v.generation = k.generation) ELSE e.id IS NOT k.id OR e.generation IS NOT k.generation END",
     "keys lead to nothing, or to others' records"},
    {"SELECT count(*) FROM event AS v WHERE CASE v.n WHEN 0 THEN v.id IS NOT 0 ELSE NOT EXISTS"
     " (SELECT 1 FROM name AS k WHERE k.id = v.id AND k.generation = v.generation AND k.n = v.n)"
     " END",
     "events cannot be found by their effects"},
    {"SELECT count(*) FROM effect WHERE length(key) <> 32 OR state NOT BETWEEN 0 AND 10",
     "records make no sense"},
    {"SELECT count(*) FROM effect WHERE bars_from IS NOT CASE WHEN grp IS NULL THEN NULL"
     " WHEN state = 4 THEN 0 WHEN state = 3 THEN ifnull(lease_end, 9223372036854775807) END",
     "records do not bar their group as they should"},
    {"SELECT count(*) FROM effect AS e WHERE e.head IS NOT (SELECT hash FROM event"
     " WHERE n = e.n ORDER BY seq DESC LIMIT 1) AND EXISTS (SELECT 1 FROM event WHERE n = e.n)",
     "records do not fit their newest event"},
    {"SELECT (SELECT count(*) FROM args WHERE n NOT IN (SELECT n FROM effect))"
     " + (SELECT count(*) FROM outcome WHERE n NOT IN (SELECT n FROM effect))",
     "arguments or outcomes belong to no record"},
    /* No number is given twice, and the numbers are far from their limit. */
    {"SELECT count(*) FROM (SELECT (SELECT value FROM meta WHERE name = 'n_floor') AS n,"
     " (SELECT value FROM meta WHERE name = 'seq_floor') AS s) WHERE (SELECT count(*) FROM meta)"
     " <> 2 OR n IS NULL OR s IS NULL OR n NOT BETWEEN 0 AND 1 << 62 OR s NOT BETWEEN 0 AND 1 << 62"
     " OR (SELECT max(n) FROM effect) > 1 << 62 OR (SELECT max(seq) FROM event) > 1 << 62"
     " OR max(n, (SELECT ifnull(max(n), 0) FROM effect)) < (SELECT max(n) FROM name)",
     "numbers of the ledger are wrong"},
};

/* SQLite takes a value of any type in any column. A state of 4.5 is read as 4, so the record fits
 * its event; but a query for 4 does not find it. This makes a statement that counts the rows in
 * which a value has another type than its column. */
static const char types[] =
    "SELECT 'SELECT ' || group_concat('(SELECT count(*) FROM ' || name || ' WHERE ' || wrong || ')',"
    " ' + ') FROM (SELECT t.name, group_concat('typeof(' || c.name || ') NOT IN (''null'', '''"
    " || lower(c.type) || ''')', ' OR ') AS wrong FROM sqlite_schema AS t,"
    " pragma_table_info(t.name) AS c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'"
    " GROUP BY t.name)";

static semel_err check_file(semel_store *st, sqlite3 *db, semel_fault *fault)
{
    sqlite3_stmt *stmt = NULL;
    semel_err e = SEMEL_OK;
    int rc = sqlite3_prepare_v2(db, "PRAGMA integrity_check(1)", -1, &stmt, NULL);
    if (rc == SQLITE_OK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(stmt, 0);
        if (text == NULL || strcmp(text, "ok") != 0)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "%.200s is damaged: %.200s. Restore it from an export", st->path,
                             text == NULL ? "it cannot be checked" : text);
    } else {
        e = sm_sq_fault(st, rc, fault);
    }
    sqlite3_finalize(stmt);
    return e;
}

static semel_err count_wrong(semel_store *st, sqlite3 *db, const char *sql, const char *what,
                             semel_fault *fault)
{
    sqlite3_stmt *stmt = NULL;
    semel_err e = SEMEL_OK;
    int rc = sqlite3_prepare_v2(db, sql, -1, &stmt, NULL);
    if (rc != SQLITE_OK || (rc = sqlite3_step(stmt)) != SQLITE_ROW)
        e = sm_sq_fault(st, rc, fault);
    else if (sm_sq_int(stmt, 0) != 0)
        e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                         "%.300s is damaged: %lld %s. Restore it from an export", st->path,
                         (long long)sm_sq_int(stmt, 0), what);
    sqlite3_finalize(stmt);
    return e;
}

static semel_err check_types(semel_store *st, sqlite3 *db, semel_fault *fault)
{
    sqlite3_stmt *stmt = NULL;
    semel_err e = SEMEL_OK;
    int rc = sqlite3_prepare_v2(db, types, -1, &stmt, NULL);
    if (rc != SQLITE_OK || (rc = sqlite3_step(stmt)) != SQLITE_ROW)
        e = sm_sq_fault(st, rc, fault);
    else
        e = count_wrong(st, db, (const char *)sqlite3_column_text(stmt, 0),
                        "rows hold values of another type than their columns", fault);
    sqlite3_finalize(stmt);
    return e;
}

semel_err sm_sq_check(semel_store *st, sqlite3 *db, semel_fault *fault)
{
    bool ours = false;
    semel_err e = check_file(st, db, fault);
    if (e == SEMEL_OK) {
        int rc = sm_sq_schema_is_ours(db, &ours);
        if (rc != SQLITE_OK)
            e = sm_sq_fault(st, rc, fault);
        else if (!ours)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "%.300s is damaged: its tables, indexes, views or triggers are not "
                             "those that semel makes. Restore it from an export",
                             st->path);
    }
    if (e == SEMEL_OK)
        e = check_types(st, db, fault);
    for (size_t i = 0; i < sizeof checks / sizeof *checks && e == SEMEL_OK; i++)
        e = count_wrong(st, db, checks[i].sql, checks[i].what, fault);
    return e;
}
