/*
 * Whether the server still has what it acknowledged, and still promises what it did.
 *
 * A server that was restored from an older copy, or replaced by a replica that lagged behind,
 * answers as if nothing had happened, and effects that ran would run again. The number of an event
 * is its transaction's id, and ids only grow. So a server whose next id is one that this handle has
 * seen is behind. If it has caught up since, it lacks the last event that it acknowledged to this
 * handle, unless that was purged.
 *
 * Transactions do not commit in the order of their ids, and this handle does not receive its
 * answers in the order of the commits. But a write that is answered after the one that committed
 * last was under way beside it, on another connection. So the last N answers, for N connections,
 * include the write that committed last. The server must have the events of all of them.
 *
 * The settings that decide what a crash may lose can change while sessions are open.
 *
 * One question asks for both, on every new connection and once a second. A pooler keeps our
 * connection when it changes to another server. So behind a pooler every write has a guard: a
 * statement of the same transaction that fails if an event is missing. A durable handle that finds
 * a loss refuses everything but evidence from then on (I3, I8). A handle that is not durable does
 * not ask: it has promised nothing.
 */
#include "store/postgres/postgres.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define JUDGE_NS (1000 * 1000000ll)
#define TEXT_MAX (SM_PG_POOL_MAX * 80u + 2048u)

void sm_pg_seen(semel_store *st, const sm_seen *event)
{
    sm_pg_trust *t = &st->trust;
    pthread_mutex_lock(&t->lock);
    if (event->seq > t->newest.seq)
        t->newest = *event;
    t->last[t->seen++ % (size_t)st->settings.pool] = *event;
    pthread_mutex_unlock(&t->lock);
}

static sm_seen newest_of(sm_pg_trust *t)
{
    pthread_mutex_lock(&t->lock);
    sm_seen newest = t->newest;
    pthread_mutex_unlock(&t->lock);
    return newest;
}

/* A ledger is identified by its cluster and the oid of its table: an older copy has the same, a new
 * ledger has another. A role that may not ask writes no note. */
void sm_pg_trust_start(semel_store *st, sm_pg_conn *c, int64_t deadline_ns)
{
    sm_pg_trust *t = &st->trust;
    char text[512], ledger[256];
    semel_fault ignored;
    sm_err err;
    PGresult *r = NULL;
    sm_seen seen;
    if ((st->caps & SEMEL_STORE_DURABLE) == 0)
        return;
    snprintf(text, sizeof text,
             "SELECT system_identifier::text, pg_catalog.current_database(),"
             " '\"%s\".meta'::pg_catalog.regclass::pg_catalog.oid,"
             " (SELECT seq_offset FROM \"%s\".meta) FROM"
             " pg_catalog.pg_control_system()",
             st->settings.schema, st->settings.schema);
    if (sm_pg_run_text(st, c, text, deadline_ns, &r, &err, &ignored) == SM_PG_DONE &&
        PQntuples(r) == 1) {
        snprintf(ledger, sizeof ledger, "postgres %s %s %s %s", PQgetvalue(r, 0, 0),
                 PQgetvalue(r, 0, 1), PQgetvalue(r, 0, 2), PQgetvalue(r, 0, 3));
        sm_mark_init(&t->mark, ledger);
    }
    PQclear(r);
    if (sm_mark_read(&t->mark, &seen)) {
        sm_pg_seen(st, &seen);
        atomic_store(&t->noted, seen.seq);
    }
}

void sm_pg_trust_note(semel_store *st)
{
    sm_pg_trust *t = &st->trust;
    sm_seen newest = newest_of(t);
    if (newest.seq > atomic_exchange(&t->noted, newest.seq))
        sm_mark_write(&t->mark, &newest);
}

bool sm_pg_lost(semel_store *st, semel_fault *fault)
{
    if (!atomic_load(&st->trust.lost))
        return false;
    bool noted = st->trust.mark.path[0] != '\0';
    sm_fault_set(
        fault, SEMEL_E_CORRUPT,
        "%s has lost effects that it had acknowledged: it was restored from an older copy, "
        "or failed over to a replica that lacked them. Find out what ran, then %s%.200s%s"
        "open the ledger anew",
        st->where, noted ? "remove " : "", st->trust.mark.path, noted ? " and " : "");
    return true;
}

static bool is_due(sm_pg_trust *t, const sm_pg_conn *c)
{
    long long last = atomic_load(&t->judged_ns), now = sm_clock_mono_ns();
    if (!c->judged)
        return true;
    return now - last > JUDGE_NS && atomic_compare_exchange_strong(&t->judged_ns, &last, now);
}

/* Appends an expression: how many of the last events are missing. `m` is the row of meta. Its floor
 * counts only while a newer event is there, as after every purge: the ledger seals before it
 * purges, and seals stay. */
static void put_missing(semel_store *st, sm_buf *b)
{
    sm_pg_trust *t = &st->trust;
    sm_buf_text(b, "(SELECT pg_catalog.count(*) FROM (VALUES (0::bigint, 0::bigint, '')");
    pthread_mutex_lock(&t->lock);
    for (size_t i = 0; i < t->seen && i < (size_t)st->settings.pool; i++)
        sm_buf_printf(b, ", (%" PRId64 ", %" PRId64 ", '%016" PRIx64 "')", t->last[i].seq,
                      t->last[i].id, t->last[i].hash);
    pthread_mutex_unlock(&t->lock);
    sm_buf_printf(
        b,
        ") AS s(seq, id, hash) WHERE s.seq > CASE WHEN EXISTS (SELECT FROM \"%s\".event AS"
        " e WHERE e.seq > m.seq_floor) THEN m.seq_floor ELSE 0 END AND NOT EXISTS (SELECT"
        " FROM \"%s\".event AS e WHERE e.id = s.id AND e.seq = s.seq AND"
        " pg_catalog.encode(pg_catalog.substring(e.hash, 1, 8), 'hex') = s.hash))",
        st->settings.schema, st->settings.schema);
}

/* The server divides by zero, which undoes the transaction. */
void sm_pg_trust_guard(semel_store *st, sm_buf *out)
{
    if ((st->caps & SEMEL_STORE_DURABLE) == 0 || !st->opened || !st->settings.pooler)
        return;
    sm_buf_init(out, TEXT_MAX);
    sm_buf_text(out, "SELECT 1 / CASE WHEN ");
    put_missing(st, out);
    sm_buf_printf(out, " = 0 THEN 1 ELSE 0 END FROM \"%s\".meta AS m", st->settings.schema);
    sm_buf_byte(out, '\0');
}

/* The question: three settings, the next transaction id, how many events are missing, and how many
 * tables a crash would empty. */
static sm_pg_fate ask(semel_store *st, sm_pg_conn *c, int64_t deadline_ns, PGresult **r,
                      sm_err *err, semel_fault *fault)
{
    sm_buf text;
    sm_pg_fate way = SM_PG_FAILED;
    sm_buf_init(&text, TEXT_MAX);
    sm_buf_text(&text,
                "SELECT pg_catalog.current_setting('synchronous_commit'),"
                " pg_catalog.current_setting('fsync'),"
                " pg_catalog.current_setting('full_page_writes'),"
                " pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint"
                " + m.seq_offset, ");
    put_missing(st, &text);
    sm_buf_printf(&text, ", " SM_PG_UNLOGGED " FROM \"%s\".meta AS m", st->settings.schema,
                  st->settings.schema);
    sm_buf_byte(&text, '\0');
    if (text.err == SM_OK)
        way = sm_pg_run_text(st, c, text.p, deadline_ns, r, err, fault);
    else
        *err = sm_pg_nomem(fault);
    sm_buf_fini(&text);
    if (way == SM_PG_DONE && PQntuples(*r) != 1) {
        PQclear(*r);
        *r = NULL;
        *err = sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%s is not a ledger any more", st->where);
        way = SM_PG_FAILED;
    }
    return way;
}

static bool is_logged(const semel_store *st, const PGresult *r, int column, semel_fault *fault)
{
    if (sm_pg_number(r, column) == 0)
        return true;
    sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                 "%s may lose what it acknowledges: tables of it are UNLOGGED now, and a crash of "
                 "the server empties them. Mend that with ALTER TABLE ... SET LOGGED",
                 st->where);
    return false;
}

sm_pg_fate sm_pg_trust_conn(semel_store *st, sm_pg_conn *c, int64_t deadline_ns, sm_err *err,
                            semel_fault *fault)
{
    sm_pg_trust *t = &st->trust;
    if ((st->caps & SEMEL_STORE_DURABLE) == 0 || !st->opened || !is_due(t, c))
        return SM_PG_DONE;
    sm_seen seen = newest_of(t);
    long long before = atomic_load(&t->next);
    PGresult *r = NULL;
    sm_pg_fate way = ask(st, c, deadline_ns, &r, err, fault);
    if (way == SM_PG_DONE) {
        long long next = strtoll(PQgetvalue(r, 0, 3), NULL, 10);
        if (next < before || next <= seen.seq || sm_pg_number(r, 4) != 0) {
            atomic_store(&t->lost, true);
            sm_pg_trust_note(st);
            sm_pg_lost(st, fault);
            way = SM_PG_FAILED;
        } else if (!sm_pg_check_durable(st, r, 0, fault) || !is_logged(st, r, 5, fault)) {
            way = SM_PG_FAILED;
        } else {
            while (before < next && !atomic_compare_exchange_weak(&t->next, &before, next))
                continue;
        }
    }
    PQclear(r);
    c->judged = way == SM_PG_DONE;
    atomic_store(&t->judged_ns,
                 c->judged ? sm_clock_mono_ns() : 0); /* 0: the next one asks again */
    if (c->judged)
        sm_pg_trust_note(st);
    if (way == SM_PG_FAILED)
        *err = SEMEL_E_UNAVAILABLE;
    return way;
}
