/*
 * The two statements of an effect's begin and commit in Postgres, as a script for pgbench: the same
 * text that the store prepares, with values of the same sizes in place of its parameters. What is
 * left out is everything around them: keys, canonical JSON, hashes, the library.
 */
#include "store_statements.h"

#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "store/postgres/sql.h"

#define NOW   "(" SM_PG_NOW ")"
#define HASH  "sha256('x')" /* folded when the statement is planned */
#define BYTES "decode(repeat('ab', %d), 'hex')"

/* What stands for $1 to $40; `end` is that of a commit where it differs from a begin. */
static const struct {
    const char *begin, *end;
    int bytes; /* in place of %d */
} values[] = {
    {":id", NULL, 0},                 /* 1 id */
    {"1", NULL, 0},                   /* generation */
    {"90", NULL, 0},                  /* shard */
    {"3", "5", 0},                    /* state */
    {"0", NULL, 0},                   /* tombstone */
    {"1", NULL, 0},                   /* fence */
    {"1", "2", 0},                    /* events */
    {NOW, NULL, 0},                   /* created_at */
    {NOW, NULL, 0},                   /* updated_at */
    {NOW " + 300000", "NULL", 0},     /* 10 lease_end */
    {NOW " + 300000", "NULL", 0},     /* due_at */
    {"NULL", NOW, 0},                 /* settled_at */
    {"NULL", NOW " + 600000", 0},     /* result_end */
    {"NULL", NOW " + 600000", 0},     /* window_end */
    {"NULL", NOW " + 7776000000", 0}, /* purge_at */
    {"NULL", NOW " + 600000", 0},     /* sweep_at */
    {"NULL", NULL, 0},                /* bars_from */
    {HASH, NULL, 0},                  /* key */
    {"NULL", NULL, 0},                /* grp */
    {HASH, NULL, 0},                  /* 20 fingerprint */
    {HASH, NULL, 0},                  /* head */
    {BYTES, NULL, 9},                 /* scope */
    {"NULL", NULL, 0},                /* step */
    {BYTES, NULL, 13},                /* tool */
    {"NULL", NULL, 0},                /* caller */
    {BYTES, NULL, 120},               /* life */
    {BYTES, "NULL", 170},             /* args */
    {"NULL", BYTES, 90},              /* outcome */
    {"1", "2", 0},                    /* idx */
    {NOW, NULL, 0},                   /* 30 at */
    {BYTES, NULL, 7},                 /* what */
    {BYTES, NULL, 5},                 /* actor */
    {BYTES, NULL, 260},               /* body */
    {"NULL", HASH, 0},                /* prev */
    {HASH, NULL, 0},                  /* hash */
    {NOW, NULL, 0},                   /* 36 now */
    {"1", NULL, 0},                   /* expected generation */
    {"1", NULL, 0},                   /* expected version */
    {"1", NULL, 0},                   /* same args */
    {"0", NULL, 0},                   /* 40 same outcome */
};
#define VALUES (sizeof values / sizeof values[0])

static void put_value(FILE *to, size_t n, bool end)
{
    bench_must(n >= 1 && n <= VALUES, "a statement has a parameter that is not known here");
    const char *text = end && values[n - 1].end != NULL ? values[n - 1].end : values[n - 1].begin;
    const char *type = n >= 18 && (n <= 28 || n >= 31) && n <= 35 ? "::bytea" : "::bigint";
    const char *bytes = strstr(text, "%d");
    if (bytes != NULL)
        fprintf(to, "(%.*s%d%s)%s", (int)(bytes - text), text, values[n - 1].bytes, bytes + 2,
                type);
    else
        fprintf(to, "(%s)%s", text, type);
}

static void put_statement(FILE *to, const char *sql, const char *schema, bool end)
{
    for (; *sql != '\0'; sql++) {
        if (*sql == '@')
            fprintf(to, "%s.", schema);
        else if (*sql == '#')
            fputs("'bench'", to);
        else if (*sql == '$')
            put_value(to, strtoul(sql + 1, (char **)&sql, 10), end), sql--;
        else
            fputc(*sql, to);
    }
    fputs(";\n", to);
}

void bench_statements(FILE *to, const char *schema)
{
    static const char *const sql[] = {
#define X(name, text) text,
        SM_PG_STATEMENTS(X)
#undef X
    };
    fputs("\\set id random(1, 9223372036854775806)\n", to);
    put_statement(to, sql[SM_PGQ_CLAIM], schema, false);
    put_statement(to, sql[SM_PGQ_APPLY], schema, true);
}
