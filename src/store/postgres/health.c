/*
 * What state the ledger is in, and the checks that it can make of itself.
 *
 * What is told of events and seals is what a follower can read: see sm_pg_settle.
 */
#include "store/postgres/postgres.h"

#include <stdio.h>
#include <stdlib.h>

enum { COUNT_MAX = 100000, THOROUGH_FACTOR = 60 };

/* Checks of ours, each of which counts what must not be. */
static const struct {
    const char *sql, *what;
} checks[] = {
    {"SELECT count(*) FROM @effect WHERE length(key) <> 32 OR state NOT BETWEEN 0 AND 10"
     " OR id <> coalesce(nullif(('x' || encode(substring(sha256('semel-effect-1'::bytea || key)"
     " FOR 8), 'hex'))::bit(64)::bigint, 0), 1)",
     "records make no sense"},
    {"SELECT count(*) FROM @effect AS e WHERE e.head IS DISTINCT FROM (SELECT hash FROM @event AS v"
     " WHERE v.id = e.id AND v.generation = e.generation ORDER BY seq DESC LIMIT 1)"
     " AND EXISTS (SELECT FROM @event AS v WHERE v.id = e.id AND v.generation = e.generation)",
     "records do not fit their newest event"},
    {"SELECT count(*) FROM @effect_old AS o WHERE NOT EXISTS (SELECT FROM @effect AS e"
     " WHERE e.id = o.id AND e.generation > o.generation AND e.key = o.key)",
     "older generations have no newer one"},
    {"SELECT count(*) FROM @meta WHERE seal_seq <> coalesce((SELECT max(seq) FROM @event"
     " WHERE id = 0), 0)",
     "newest seals are not the newest"},
    {"SELECT count(*) FROM @event WHERE idx <= 0 OR length(hash) <> 32", "events make no sense"},
    {"SELECT count(*) FROM @effect WHERE bars_from IS DISTINCT FROM CASE WHEN grp IS NULL THEN NULL"
     " WHEN state = 4 THEN 0 WHEN state = 3 THEN coalesce(lease_end, 9223372036854775807) END",
     "records do not bar their group as they should"},
    {"SELECT count(*) FROM (SELECT id, generation, born FROM @effect UNION ALL SELECT id,"
     " generation, born FROM @effect_old) AS e WHERE e.born <= 0 OR (EXISTS (SELECT FROM @event AS v"
     " WHERE v.id = e.id AND v.generation = e.generation AND v.idx = 1) AND NOT EXISTS (SELECT FROM"
     " @event AS v WHERE v.id = e.id AND v.generation = e.generation AND v.idx = 1"
     " AND v.seq = e.born))",
     "records do not have the number of their first event"},
    {"SELECT count(*) - count(DISTINCT born) FROM (SELECT born FROM @effect UNION ALL"
     " SELECT born FROM @effect_old) AS e",
     "records have the number of another one"},
    /* No other code may run when a row is written or read. */
    {"SELECT count(*) FROM pg_class AS c WHERE c.relkind IN ('r', 'p') AND c.relnamespace = (SELECT"
     " relnamespace FROM pg_class WHERE oid = '@meta'::regclass) AND (c.relrowsecurity OR EXISTS"
     " (SELECT FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal) OR EXISTS"
     " (SELECT FROM pg_rewrite AS w WHERE w.ev_class = c.oid) OR NOT EXISTS (SELECT FROM pg_index"
     " AS i WHERE i.indrelid = c.oid AND i.indisprimary))",
     "tables have triggers, rules, policies, or no key"},
};

static semel_err check_all(semel_store *st, semel_fault *fault)
{
    int64_t deadline_ns = sm_clock_deadline_ns(st->settings.timeout_ms * THOROUGH_FACTOR);
    sm_pg_conn *c = NULL;
    semel_err e = sm_pg_take(st, deadline_ns, &c, fault);
    if (e != SEMEL_OK)
        return e;
    sm_pg_fate way = SM_PG_DONE;
    for (size_t i = 0; i < sizeof checks / sizeof *checks && e == SEMEL_OK; i++) {
        PGresult *r = NULL;
        char *sql = sm_pg_fill_in(&st->settings, checks[i].sql);
        if (sql == NULL) {
            e = sm_pg_nomem(fault);
            break;
        }
        way = sm_pg_run_text(st, c, sql, deadline_ns, &r, &e, fault);
        free(sql);
        long long n = way == SM_PG_DONE ? strtoll(PQgetvalue(r, 0, 0), NULL, 10) : 0;
        PQclear(r);
        if (n != 0)
            e = sm_fault_set(fault, SEMEL_E_CORRUPT,
                             "the ledger in %s is damaged: %lld %s. Restore it from a backup",
                             st->where, n, checks[i].what);
    }
    if (way == SM_PG_LOST)
        sm_pg_drop(st, c);
    else
        sm_pg_put(st, c);
    return e;
}

static void take_totals(const PGresult *r, semel_health *out)
{
    int64_t counted = sm_pg_int(r, 0, 2), guessed = sm_pg_int(r, 0, 3);
    semel_str version = sm_pg_bytes(r, 0, 5);
    out->last_seq = (uint64_t)sm_pg_int(r, 0, 0);
    out->oldest_event_at = sm_pg_int(r, 0, 1);
    out->records = (uint64_t)(counted > COUNT_MAX && guessed > counted ? guessed : counted);
    out->bytes = (uint64_t)sm_pg_int(r, 0, 4);
    const char *end = memchr(version.p, ' ', version.n); /* a packager's additions follow */
    snprintf(out->server, sizeof out->server, "PostgreSQL %.*s",
             (int)(end == NULL ? version.n : (size_t)(end - version.p)), version.p);
    out->schema = (uint64_t)sm_pg_int(r, 0, 6);
    out->purged_to = (uint64_t)sm_pg_int(r, 0, 7);
}

static void take_states(const PGresult *r, semel_health *out)
{
    for (int i = 0; i < PQntuples(r); i++) {
        int64_t state = sm_pg_int(r, i, 0);
        if (state >= 0 && state < SEMEL_S_COUNT)
            out->in_state[state] = (uint64_t)sm_pg_int(r, i, 1);
    }
}

static void take_seal(const PGresult *r, semel_health *out)
{
    if (PQntuples(r) == 0)
        return;
    out->seal_seq = (uint64_t)sm_pg_int(r, 0, 0);
    out->seal_index = (uint64_t)sm_pg_int(r, 0, 1);
    out->seal_at = sm_pg_int(r, 0, 2);
    sm_pg_hash(r, 0, 3, &out->seal_hash);
}

semel_err sm_pg_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    static const struct {
        sm_pg_statement which;
        void (*take)(const PGresult *r, semel_health *out);
    } parts[] = {{SM_PGQ_STATES, take_states},
                 {SM_PGQ_SEAL_LAST, take_seal},
                 {SM_PGQ_HEALTH, take_totals}}; /* last: no seal is newer than the newest event */
    *out = (semel_health){0};
    snprintf(out->where, sizeof out->where, "%s as %s", st->where, st->user);
    snprintf(out->durability, sizeof out->durability, "%s", st->durability);
    uint64_t newest;
    semel_err e = sm_pg_settle(st, &newest, fault);
    for (size_t i = 0; i < sizeof parts / sizeof *parts && e == SEMEL_OK; i++) {
        sm_pg_args args = {0};
        if (parts[i].which == SM_PGQ_HEALTH) {
            sm_pg_add_int(&args, COUNT_MAX + 1);
            sm_pg_add_text(&args, st->settings.schema);
        }
        sm_pg_question q = {.which = parts[i].which, .args = &args};
        PGresult *r = NULL;
        e = sm_pg_ask(st, &q, &r, fault);
        if (e == SEMEL_OK)
            parts[i].take(r, out);
        PQclear(r);
    }
    return e == SEMEL_OK && thorough ? check_all(st, fault) : e;
}

semel_err sm_pg_try_write(semel_store *st, semel_fault *fault)
{
    sm_pg_args none = {0};
    sm_pg_question q = {.which = SM_PGQ_TOUCH, .args = &none, .writes = true};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &q, &r, fault);
    PQclear(r);
    return e;
}
