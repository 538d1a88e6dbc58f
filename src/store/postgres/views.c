/*
 * Views for people with psql: effects, approvals, in_doubt, history, notes.
 *
 * Texts that the ledger has checked are shown as text, where the database can hold them. What a
 * tool returned may be any bytes and is shown with escapes. A time that is never is infinity.
 */
#include "store/postgres/postgres.h"

#include "base/buf.h"
#include "store/shared/views.h"

static void put_time(sm_buf *b, const char *column, const char *name)
{
    sm_buf_printf(b, ", CASE %s WHEN %lld THEN 'infinity' ELSE to_timestamp(%s / 1000.0) END AS %s",
                  column, (long long)SM_PG_NEVER, column, name);
}

/* A text of ours, or what it is with escapes: it may hold a NUL, which the server's texts cannot,
 * or a character that the database's encoding lacks, which the server would refuse to convert. That
 * a text has no such character is only known of some encodings, so in the others it is shown as
 * text if it is ASCII. */
static void put_text(sm_buf *b, const char *column, const char *name)
{
    sm_buf_printf(b,
                  ", CASE WHEN position(decode('00', 'hex') IN %s) = 0"
                  " AND (getdatabaseencoding() IN ('UTF8', 'SQL_ASCII')"
                  " OR encode(%s, 'hex') ~ '^([0-7].)*$' OR getdatabaseencoding() = 'LATIN1'"
                  " AND encode(%s, 'hex') ~ '^([0-7].|c[23]..)*$')"
                  " THEN convert_from(%s, 'UTF8') ELSE encode(%s, 'escape') END AS %s",
                  column, column, column, column, column, name);
}

/* The handle ef_..., as core/handle.h describes it. */
static void put_handle(sm_buf *b)
{
    sm_buf_text(b, "'ef_' || lpad(to_hex(shard::integer), 2, '0')");
    for (int shift = 60; shift >= 0; shift -= 5)
        sm_buf_printf(
            b, " || substr('0123456789abcdefghjkmnpqrstvwxyz', ((id >> %d) & %d)::integer + 1, 1)",
            shift, shift == 60 ? 15 : 31);
    sm_buf_text(b, " || CASE generation WHEN 1 THEN '' ELSE '.' || generation END AS effect");
}

static void put_effects(sm_buf *b, const char *table)
{
    sm_buf_text(b, "SELECT born, ");
    put_handle(b);
    sm_view_state(b);
    put_text(b, "tool", "tool");
    put_text(b, "scope", "scope");
    put_text(b, "step", "step");
    put_text(b, "caller", "caller_key");
    put_text(b, "args", "args");
    sm_buf_text(b, ", encode(outcome, 'escape') AS outcome, fence, version, events");
    for (size_t i = 0; i < SM_VIEW_TIMES; i++)
        put_time(b, sm_view_times[i].column, sm_view_times[i].name);
    sm_buf_printf(b, ", encode(life, 'escape') AS life, encode(key, 'hex') AS key FROM @%s", table);
}

void sm_pg_views_put(sm_buf *b)
{
    sm_buf_text(b, "CREATE VIEW @effects AS ");
    put_effects(b, "effect");
    sm_buf_text(b, " UNION ALL ");
    put_effects(b, "effect_old");
    static const char *const open[][3] = {{"approvals", "1", "created"},
                                          {"in_doubt", "4", "updated"}};
    for (size_t i = 0; i < 2; i++) {
        sm_buf_printf(b,
                      "; CREATE VIEW @%s AS SELECT born, effect, tool, scope, step, args, %s, due"
                      " FROM (",
                      open[i][0], open[i][2]);
        put_effects(b, "effect");
        sm_buf_printf(b, " WHERE state < 5 AND state = %s) AS e", open[i][1]);
    }
    sm_buf_text(b, "; CREATE VIEW @history AS SELECT seq");
    put_time(b, "at", "at");
    sm_buf_text(b, ", CASE id WHEN 0 THEN NULL ELSE ");
    sm_buf_text(b, "(SELECT h.effect FROM (SELECT ");
    put_handle(b);
    sm_buf_text(b, ") AS h) END AS effect, idx AS number");
    put_text(b, "what", "what");
    put_text(b, "actor", "actor");
    put_text(b, "body", "body");
    sm_buf_text(b, ", encode(hash, 'hex') AS hash FROM @event;"
                   "CREATE VIEW @notes AS SELECT n, id, generation");
    put_text(b, "what", "what");
    sm_buf_text(b, ", count");
    put_time(b, "first_at", "first");
    put_time(b, "last_at", "last");
    put_text(b, "tool", "tool");
    put_text(b, "scope", "scope");
    sm_buf_text(b, " FROM @note;");
}
