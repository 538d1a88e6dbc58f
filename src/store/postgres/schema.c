/*
 * What is in the database: tables, their versions, and whether this role may use them.
 *
 * `effect` has the newest generation of each key, so that a key is one row and its claim one
 * insert; older generations move to `effect_old`. `born` is the seq of a record's first event and
 * orders lists. `waited` says that somebody in another process has waited for this key: only then
 * is a change told by NOTIFY, which is expensive. bars_from is when a record begins to bar others
 * of its group, sweep_at when purge has next something to do for it.
 *
 * There are few indexes, and those of what is open are partial, so that they stay small. Whatever
 * is not a number is bytea: texts come from outside and may have any bytes. meta is one row.
 * seq_floor is the newest seq that purge has removed, seal_seq that of the newest seal.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"

_Static_assert(SEMEL_S_SUCCEEDED == 5 && SEMEL_S_IN_DOUBT == 4 && SEMEL_S_PENDING == 1,
               "indexes, queries and views name states by number");
_Static_assert(SEMEL_CLOCK_SLACK_MS == 30000, "statements have it as a number");

#define LOCK_KEY         0x53454D454C01 /* while a ledger is made */
#define PARTITIONS_MAX   1024u
#define SCHEMA_BYTES_MAX ((size_t)4 << 20)

/* ---- making it -------------------------------------------------------------------------------*/

#define RECORD_COLUMNS                                                                             \
    " id bigint NOT NULL, generation bigint NOT NULL, version bigint NOT NULL,"                    \
    " born bigint NOT NULL, fence bigint NOT NULL, events bigint NOT NULL, created_at bigint,"     \
    " updated_at bigint, lease_end bigint, due_at bigint, settled_at bigint, result_end bigint,"   \
    " window_end bigint, purge_at bigint, sweep_at bigint, shard smallint NOT NULL,"               \
    " state smallint NOT NULL, tombstone smallint NOT NULL, key bytea NOT NULL, grp bytea,"        \
    " fingerprint bytea, head bytea, scope bytea, step bytea, tool bytea, caller bytea,"           \
    " life bytea, args bytea, outcome bytea"

/* A table that may be split by id. Rows of `effect` are replaced, mostly once: room on the page
 * keeps the new version beside the old one, and vacuum comes before there is much to do. */
static const struct {
    const char *name, *columns, *key, *storage, *indexes;
} tables[] = {
    {"effect", RECORD_COLUMNS ", bars_from bigint, waited boolean NOT NULL DEFAULT false", "id",
     "fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 1",
     "CREATE INDEX effect_born ON @effect(born);"
     "CREATE INDEX effect_open ON @effect(due_at) WHERE state < 5;"
     "CREATE INDEX effect_bars ON @effect(grp, bars_from) WHERE bars_from IS NOT NULL;"
     "CREATE INDEX effect_sweep ON @effect(sweep_at) WHERE sweep_at IS NOT NULL;"},
    {"effect_old", RECORD_COLUMNS, "id, generation", "autovacuum_vacuum_scale_factor = 0.05",
     "CREATE INDEX effect_old_born ON @effect_old(born);"
     "CREATE INDEX effect_old_open ON @effect_old(born) WHERE state < 5;"
     "CREATE INDEX effect_old_sweep ON @effect_old(sweep_at) WHERE sweep_at IS NOT NULL;"},
    {"event",
     " seq bigint NOT NULL, id bigint NOT NULL, generation bigint NOT NULL, idx bigint NOT NULL,"
     " at bigint NOT NULL, shard smallint NOT NULL, what bytea, actor bytea, body bytea,"
     " prev bytea, hash bytea",
     "id, seq", "autovacuum_vacuum_scale_factor = 0.05", "CREATE INDEX event_seq ON @event(seq);"},
};

/* A counter that stays for ever has an end all the same, which no time reaches. */
#define UNTIL_COLUMN "until bigint NOT NULL DEFAULT 9223372036854775807"
#define UNTIL_INDEX                                                                                \
    "CREATE INDEX counter_over ON @counter(until) WHERE until < 9223372036854775807;"

static const char single_tables[] =
    "CREATE TABLE @meta(one boolean PRIMARY KEY DEFAULT true CHECK (one), schema bigint NOT NULL,"
    " seq_offset bigint NOT NULL, seq_floor bigint NOT NULL, seal_seq bigint NOT NULL)"
    " WITH (fillfactor = 10);"
    "CREATE TABLE @counter(name bytea PRIMARY KEY, value bigint NOT NULL, cap bigint NOT NULL,"
    " " UNTIL_COLUMN ", CONSTRAINT counter_cap CHECK (value <= cap))"
    " WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);" UNTIL_INDEX
    "CREATE TABLE @note(n bigint GENERATED ALWAYS AS IDENTITY, id bigint NOT NULL,"
    " generation bigint NOT NULL, first_at bigint NOT NULL, last_at bigint NOT NULL,"
    " count bigint NOT NULL, what bytea, scope bytea, tool bytea, PRIMARY KEY (id, n))"
    " WITH (autovacuum_vacuum_scale_factor = 0.05);"
    "CREATE INDEX note_age ON @note(last_at);";

static void put_tables(sm_buf *b, uint32_t partitions)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        sm_buf_printf(b, "CREATE TABLE @%s(%s, PRIMARY KEY (%s))", tables[i].name,
                      tables[i].columns, tables[i].key);
        if (partitions == 0)
            sm_buf_printf(b, " WITH (%s);", tables[i].storage);
        else
            sm_buf_text(b, " PARTITION BY HASH (id);");
        for (uint32_t p = 0; p < partitions; p++)
            sm_buf_printf(b,
                          "CREATE TABLE @%s_%u PARTITION OF @%s FOR VALUES WITH (MODULUS %u,"
                          " REMAINDER %u) WITH (%s);",
                          tables[i].name, p, tables[i].name, partitions, p, tables[i].storage);
        sm_buf_text(b, tables[i].indexes);
    }
    sm_buf_text(b, single_tables);
}

/* Fills the schema's and the channel's names into a text. */
char *sm_pg_fill_in(const sm_pg_settings *s, const char *sql)
{
    sm_buf b;
    sm_buf_init(&b, SCHEMA_BYTES_MAX);
    for (const char *p = sql; *p != '\0'; p++) {
        if (*p == '@')
            sm_buf_printf(&b, "\"%s\".", s->schema);
        else if (*p == '#')
            sm_buf_printf(&b, "'%s'", s->channel);
        else
            sm_buf_byte(&b, *p);
    }
    sm_buf_byte(&b, '\0');
    if (b.err == SM_OK)
        return b.p;
    sm_buf_fini(&b);
    return NULL;
}

/* ---- versions --------------------------------------------------------------------------------*/

/* Whoever cannot write finds out before an effect runs, not when it is to be recorded. The sequence
 * of note's numbers belongs to its column and needs no right of its own. */
static semel_err check_rights(sm_pg_opening *o)
{
    const char *schema = o->st->settings.schema;
    char sql[1024];
    snprintf(sql, sizeof sql,
             "SELECT string_agg(what, '; ' ORDER BY place), current_user FROM ("
             "SELECT '' AS place, 'USAGE on the schema' AS what FROM pg_namespace"
             " WHERE nspname = '%s' AND NOT has_schema_privilege(oid, 'USAGE') UNION ALL"
             " SELECT c.relname, string_agg(p.name, ', ' ORDER BY p.n) || ' on ' || c.relname"
             " FROM pg_class AS c"
             " JOIN pg_namespace AS n ON n.oid = c.relnamespace,"
             " unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) WITH ORDINALITY AS p(name, n)"
             " WHERE n.nspname = '%s' AND c.relkind IN ('r', 'p') AND c.relname IN"
             " ('meta', 'effect', 'effect_old', 'event', 'counter', 'note')"
             " AND NOT has_table_privilege(c.oid, p.name) GROUP BY c.relname) AS missing",
             schema, schema);
    PGresult *r = NULL;
    semel_err e = sm_pg_opening_run(o, sql, &r);
    if (e == SEMEL_OK && !PQgetisnull(r, 0, 0))
        e = sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                         "the role %.63s lacks rights in %.150s: %.120s. GRANT it USAGE on the "
                         "schema, and SELECT, INSERT, UPDATE and DELETE on all tables in it",
                         PQgetvalue(r, 0, 1), o->st->where, PQgetvalue(r, 0, 0));
    PQclear(r);
    return e;
}

/* Whether there is a table of that name. Not by to_regclass, which needs rights and may remember
 * what was before we had the lock. */
static semel_err find_meta(sm_pg_opening *o, bool *there)
{
    PGresult *r = NULL;
    char sql[256];
    snprintf(sql, sizeof sql,
             "SELECT count(*) FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
             " WHERE n.nspname = '%s' AND c.relname = 'meta'",
             o->st->settings.schema);
    semel_err e = sm_pg_opening_run(o, sql, &r);
    *there = e == SEMEL_OK && sm_pg_number(r, 0) > 0;
    PQclear(r);
    return e;
}

/* *version is 0 if there is no ledger. */
static semel_err read_version(sm_pg_opening *o, int64_t *version)
{
    PGresult *r = NULL;
    bool there = false;
    *version = 0;
    semel_err e = find_meta(o, &there);
    if (e == SEMEL_OK && there)
        e = check_rights(o);
    if (e != SEMEL_OK || !there)
        return e;
    e = sm_pg_opening_run(o, "SELECT schema FROM @meta", &r);
    if (e == SEMEL_OK)
        *version = sm_pg_number(r, 0);
    PQclear(r);
    if (e == SEMEL_OK && *version <= 0)
        e = sm_fault_set(o->fault, SEMEL_E_CORRUPT, "the ledger's row in meta is gone");
    if (e == SEMEL_OK && *version > SM_PG_SCHEMA)
        e = sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                         "the ledger in %s was made by a newer version of semel (schema %lld; this "
                         "one knows %d): upgrade semel",
                         o->st->where, (long long)*version, SM_PG_SCHEMA);
    if (e == SEMEL_OK && *version < SM_PG_SCHEMA && *version >= SM_PG_SCHEMA_OLDEST &&
        !o->env->migrate)
        e = sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                         "the ledger in %s was made by an older version of semel (schema %lld; "
                         "this one knows %d): run `semel store migrate` once",
                         o->st->where, (long long)*version, SM_PG_SCHEMA);
    if (e == SEMEL_OK && *version < SM_PG_SCHEMA_OLDEST)
        e = sm_fault_set(
            o->fault, SEMEL_E_BAD_ARGUMENTS,
            "the ledger in %s was made by an older version of semel (schema %lld; this "
            "one knows %d), whose audit trail covers less: start a new ledger in another schema "
            "(schema=NAME in the ledger's URL)",
            o->st->where, (long long)*version, SM_PG_SCHEMA);
    return e;
}

static semel_err make_tables(sm_pg_opening *o)
{
    uint32_t partitions = o->env->migrate ? o->env->partitions : 0;
    if (partitions > PARTITIONS_MAX)
        return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS, "there can be %u partitions at most",
                            PARTITIONS_MAX);
    sm_buf b;
    sm_buf_init(&b, SCHEMA_BYTES_MAX);
    sm_buf_printf(&b, "CREATE SCHEMA IF NOT EXISTS \"%s\";", o->st->settings.schema);
    put_tables(&b, partitions);
    sm_pg_views_put(&b);
    sm_buf_printf(&b, "INSERT INTO @meta VALUES (true, %d, 0, 0, 0)", SM_PG_SCHEMA);
    sm_buf_byte(&b, '\0');
    semel_err e = b.err == SM_OK ? sm_pg_opening_run(o, b.p, NULL) : sm_pg_nomem(o->fault);
    sm_buf_fini(&b);
    return e;
}

/* From version 2. */
static semel_err upgrade_tables(sm_pg_opening *o)
{
    char sql[512];
    snprintf(sql, sizeof sql,
             "ALTER TABLE @counter ADD COLUMN " UNTIL_COLUMN ";" UNTIL_INDEX
             "UPDATE @meta SET schema = %d",
             SM_PG_SCHEMA);
    return sm_pg_opening_run(o, sql, NULL);
}

/* A ledger that was restored on a server whose transactions have smaller numbers: new events must
 * come after the old ones. */
#define TOP      "greatest((SELECT max(seq) FROM @event), seq_floor, seal_seq)"
#define NEXT_XID "pg_snapshot_xmax(pg_current_snapshot())::text::bigint"

static semel_err check_offset(sm_pg_opening *o)
{
    PGresult *r = NULL;
    semel_err e =
        sm_pg_opening_run(o, "SELECT " TOP " >= " NEXT_XID " + seq_offset FROM @meta", &r);
    bool behind = e == SEMEL_OK && PQntuples(r) == 1 && sm_pg_is(r, 0, "t");
    PQclear(r);
    if (!behind)
        return e;
    return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                        "the ledger in %s was brought here from another server, whose events have "
                        "higher numbers than new ones would get: run `semel store migrate` once",
                        o->st->where);
}

static semel_err set_offset(sm_pg_opening *o)
{
    return sm_pg_opening_run(o,
                             "UPDATE @meta SET seq_offset = " TOP " - " NEXT_XID " + 1"
                             " WHERE " TOP " >= " NEXT_XID " + seq_offset",
                             NULL);
}

/* Tables are split when they are made, or never. */
static semel_err check_partitions(sm_pg_opening *o)
{
    if (o->env->partitions == 0)
        return SEMEL_OK;
    PGresult *r = NULL;
    char name[128], sql[256], wanted[16];
    snprintf(name, sizeof name, "\"%s\".effect", o->st->settings.schema);
    snprintf(sql, sizeof sql, "SELECT count(*) FROM pg_inherits WHERE inhparent = '%s'::regclass",
             name);
    snprintf(wanted, sizeof wanted, "%u", o->env->partitions);
    semel_err e = sm_pg_opening_run(o, sql, &r);
    if (e == SEMEL_OK && !sm_pg_is(r, 0, wanted))
        e = sm_fault_set(
            o->fault, SEMEL_E_BAD_ARGUMENTS,
            "the ledger in %s is there already, with %s partitions; for another number "
            "make a new one in another schema, and move to it with `semel export` and "
            "`semel import`",
            o->st->where, PQgetvalue(r, 0, 0));
    PQclear(r);
    return e;
}

/* Makes the ledger or upgrades it, in one transaction; of many processes one does. */
static semel_err migrate(sm_pg_opening *o)
{
    char begin[96];
    snprintf(begin, sizeof begin, "BEGIN; SELECT pg_advisory_xact_lock(%lld)", (long long)LOCK_KEY);
    int64_t version = 0;
    semel_err e = sm_pg_opening_run(o, begin, NULL);
    if (e == SEMEL_OK)
        e = read_version(o, &version);
    bool absent = e == SEMEL_OK && version == 0;
    if (absent)
        e = make_tables(o);
    else if (e == SEMEL_OK && o->env->migrate)
        e = check_partitions(o);
    if (e == SEMEL_OK && !absent && version < SM_PG_SCHEMA)
        e = upgrade_tables(o);
    if (e == SEMEL_OK && !absent && o->env->migrate)
        e = set_offset(o);
    if (e == SEMEL_OK)
        return sm_pg_opening_run(o, "COMMIT", NULL);
    semel_fault why = *o->fault;
    if (!o->lost)
        sm_pg_opening_run(o, "ROLLBACK", NULL);
    *o->fault = why;
    if (absent && strstr(why.text, "(42501)") != NULL)
        return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                            "there is no ledger in %s, and the role %s may not make one: run "
                            "`semel store migrate` with a role that may",
                            o->st->where, o->st->user);
    return e;
}

static semel_err open_ledger(sm_pg_opening *o)
{
    int64_t version = 0;
    semel_err e = read_version(o, &version);
    if (e == SEMEL_OK && version == 0 && o->env->must_exist && !o->env->migrate)
        return sm_fault_set(o->fault, SEMEL_E_UNAVAILABLE,
                            "there is no ledger in %s; `semel store migrate` makes one",
                            o->st->where);
    if (e == SEMEL_OK && (version == 0 || o->env->migrate))
        e = migrate(o);
    return e == SEMEL_OK ? check_offset(o) : e;
}

/* A server that does not find what it should, or finds what should not be there: the schema is
 * something else's, or a part of the ledger is gone. A migration mends neither. */
semel_err sm_pg_schema_open(sm_pg_opening *o)
{
    semel_err e = open_ledger(o);
    const char *text = o->fault->text, *state = e == SEMEL_OK ? NULL : strstr(text, " (42");
    if (state == NULL)
        return e;
    if (strncmp(state, " (42501)", 8) == 0) { /* a right that is not looked at above */
        o->fault->code = SEMEL_E_BAD_ARGUMENTS;
        return SEMEL_E_BAD_ARGUMENTS;
    }
    semel_fault why = *o->fault;
    return sm_fault_set(o->fault, SEMEL_E_BAD_ARGUMENTS,
                        "%.*s: that is no ledger, or not a whole one; name another schema "
                        "(schema=NAME in the ledger's URL), or restore this one from a backup",
                        (int)(state - text) + 8, why.text);
}
