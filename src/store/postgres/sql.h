/*
 * Every statement that the Postgres store runs after a ledger is open, in one list.
 *
 * In a statement @ stands for the ledger's schema and a dot, and # for its notification channel as
 * a quoted literal; they are filled in when a ledger is opened. A connection prepares a statement
 * when it first needs it; behind a pooler statements are unnamed.
 *
 * Each write is one statement, and so one transaction with one id, from which the seq of its event
 * follows. What a write needs is bound to the same numbers in all of them (row.c):
 *
 *   $1 id  $2 generation  $3 shard  $4 state  $5 tombstone  $6 fence  $7 events  $8 created_at
 *   $9 updated_at  $10 lease_end  $11 due_at  $12 settled_at  $13 result_end  $14 window_end
 *   $15 purge_at  $16 sweep_at  $17 bars_from  $18 key  $19 grp  $20 fingerprint  $21 head
 *   $22 scope  $23 step  $24 tool  $25 caller  $26 life  $27 args  $28 outcome
 *   the event: $29 idx  $30 at  $31 what  $32 actor  $33 body  $34 prev  $35 hash
 *   $36 now  $37 expected generation  $38 expected version  $39 same args  $40 same outcome
 *   $41 a time: who bars its group before then, or before now, refuses the write
 *   with counters: $42 names  $43 deltas  $44 caps  $45 untils
 *
 * Rows of a list are asked for with = ANY(ARRAY(...)), never by a join: the planner takes a list
 * from a sub-select with an unknown limit for a large one, and would read the whole table.
 */
#ifndef SM_STORE_POSTGRES_SQL_H
#define SM_STORE_POSTGRES_SQL_H

/* One line of a statement is one line here. */
/* clang-format off */

/* The columns of a record, in the order in which row.c reads them. */
#define SM_PG_RECORD(e)                                                                            \
    e ".key, " e ".id, " e ".generation, " e ".version, " e ".shard, " e ".state, "                \
    e ".tombstone, " e ".fence, " e ".events, " e ".created_at, " e ".updated_at, "                \
    e ".lease_end, " e ".due_at, " e ".settled_at, " e ".result_end, " e ".window_end, "           \
    e ".purge_at, " e ".grp, " e ".fingerprint, " e ".head, " e ".scope, " e ".step, "             \
    e ".tool, " e ".caller, " e ".life, " e ".args, " e ".outcome"

#define SM_PG_NOW     "floor(date_part('epoch', clock_timestamp()) * 1000)::bigint"
#define SM_PG_NOW_CTE "t AS MATERIALIZED (SELECT " SM_PG_NOW " AS now)"

/* The seq of this transaction's event. Asking for it gives the transaction its id, so it must not
 * be evaluated where nothing is written. And the smallest seq that an event may still come with. */
#define SM_PG_SEQ "pg_current_xact_id()::text::bigint + (SELECT seq_offset FROM @meta)"
#define SM_PG_CUT                                                                                  \
    "(pg_snapshot_xmin(pg_current_snapshot())::text::bigint + (SELECT seq_offset FROM @meta))"

/* Whether the write's idea of the time is right: SEMEL_CLOCK_SLACK_MS. And the same once more, after
 * whatever the write had to wait for: 0, or an error that undoes the whole statement. */
#define SM_PG_ON_TIME "(SELECT abs(t.now - $36) <= 30000 FROM t)"
#define SM_PG_STILL_ON_TIME                                                                        \
    "0 / CASE WHEN abs(" SM_PG_NOW " - $36) <= 30000 THEN 1 ELSE 0 END"

#define SM_PG_NO_BARRIER ""
#define SM_PG_BARRIER                                                                              \
    " AND NOT EXISTS (SELECT FROM @effect AS b WHERE b.grp = $19 AND b.id <> $1"                   \
    " AND b.bars_from <= greatest((SELECT now FROM t), $41))"

/* With counters. One that would pass its cap is looked for first, so that such a refusal is not an
 * error in the server's log. What others write meanwhile makes it violate a constraint, which
 * undoes the whole statement. */
#define SM_PG_PLAIN_CHECK       ""
#define SM_PG_PLAIN_ROOM        ""
#define SM_PG_PLAIN_OVER        "false"
#define SM_PG_PLAIN_WRITE(from) ""

#define SM_PG_DELTAS                                                                               \
    "unnest($42::bytea[], $43::bigint[], $44::bigint[], $45::bigint[])"                            \
    " AS d(name, delta, cap, until)"
#define SM_PG_COUNTED_CHECK                                                                        \
    ", caps AS MATERIALIZED (SELECT EXISTS (SELECT FROM " SM_PG_DELTAS                             \
    " LEFT JOIN @counter AS c ON c.name = d.name"                                                  \
    " WHERE d.cap < 9223372036854775807 AND coalesce(c.value, 0) + d.delta > d.cap) AS over)"
#define SM_PG_COUNTED_ROOM " AND NOT (SELECT caps.over FROM caps)"
#define SM_PG_COUNTED_OVER "(SELECT caps.over FROM caps)"
#define SM_PG_COUNTED_WRITE(from)                                                                  \
    ", cnt AS (INSERT INTO @counter AS c(name, value, cap, until)"                                 \
    " SELECT d.name, d.delta, d.cap, d.until FROM " from ", " SM_PG_DELTAS " ORDER BY d.name"      \
    " ON CONFLICT (name) DO UPDATE SET cap = excluded.cap,"                                        \
    " until = greatest(c.until, excluded.until), value ="                                          \
    " CASE WHEN excluded.value < 0 AND c.value < -9223372036854775808 - excluded.value"            \
    " THEN -9223372036854775808 ELSE c.value + excluded.value END)"

#define SM_PG_EVENT(seq, from)                                                                     \
    ", ev AS (INSERT INTO @event(seq, id, generation, shard, idx, at, what, actor, body, prev,"    \
    " hash) SELECT " seq ", $1, $2, $3, $29, $30 + " SM_PG_STILL_ON_TIME                             \
    ", $31, $32, $33, $34, $35 FROM " from " RETURNING seq)"

/* Rings for whoever waits in another process, if anybody ever waited for this key. */
#define SM_PG_NOTIFY "CASE WHEN waited THEN pg_notify(#, encode($18, 'hex')) IS NULL END"

/* Insert or get. One row: now, how many were inserted, whether a counter is in the way, the record
 * that was there or NULLs. */
#define SM_PG_CLAIM(barrier, kind)                                                                 \
    "WITH " SM_PG_NOW_CTE ", got AS MATERIALIZED (SELECT " SM_PG_RECORD("e")                       \
    " FROM @effect AS e WHERE e.id = $1)" SM_PG_##kind##_CHECK                                     \
    ", ins AS (INSERT INTO @effect(id, generation, version, shard, state, tombstone, fence,"       \
    " events, created_at, updated_at, lease_end, due_at, settled_at, result_end, window_end,"      \
    " purge_at, sweep_at, bars_from, key, grp, fingerprint, head, scope, step, tool, caller,"      \
    " life, args, outcome, born)"                                                                  \
    " SELECT $1, $2, 1, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,"  \
    " $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, " SM_PG_SEQ                                \
    " WHERE NOT EXISTS (SELECT FROM got) AND " SM_PG_ON_TIME barrier SM_PG_##kind##_ROOM           \
    " ON CONFLICT (id) DO NOTHING RETURNING born)"                                                 \
    SM_PG_EVENT("born", "ins") SM_PG_##kind##_WRITE("ins")                                         \
    " SELECT t.now, (SELECT count(*) FROM ins), " SM_PG_##kind##_OVER                              \
    ", g.*, (SELECT max(seq) FROM ev) FROM t LEFT JOIN got AS g ON true"

#define SM_PG_EXPECTED                                                                             \
    " WHERE e.id = $1 AND e.generation = $37 AND e.version = $38 AND e.key = $18"                  \
    " AND " SM_PG_ON_TIME

/* What both kinds of apply replace. */
#define SM_PG_SET                                                                                  \
    " shard = $3, state = $4, tombstone = $5, fence = $6, events = $7, created_at = $8,"           \
    " updated_at = $9, lease_end = $10, due_at = $11, settled_at = $12, result_end = $13,"         \
    " window_end = $14, purge_at = $15, sweep_at = $16, bars_from = $17, grp = $19,"               \
    " fingerprint = $20, head = $21, scope = $22, step = $23, tool = $24, caller = $25,"           \
    " life = $26"

/* What an apply answers: now, how many were written, whether a counter is in the way. */
#define SM_PG_APPLIED(kind)                                                                        \
    " SELECT t.now, (SELECT count(*) FROM upd), " SM_PG_##kind##_OVER                              \
    ", (SELECT " SM_PG_NOTIFY " FROM upd), (SELECT max(seq) FROM ev) FROM t"

/* Compare and swap. */
#define SM_PG_APPLY(barrier, kind)                                                                 \
    "WITH " SM_PG_NOW_CTE SM_PG_##kind##_CHECK                                                     \
    ", upd AS (UPDATE @effect AS e SET version = e.version + 1," SM_PG_SET                         \
    ", args = CASE WHEN $39 = 1 THEN e.args ELSE $27 END,"                                         \
    " outcome = CASE WHEN $40 = 1 THEN e.outcome ELSE $28 END"                                     \
    SM_PG_EXPECTED " AND e.head = $34" barrier SM_PG_##kind##_ROOM " RETURNING e.waited)"          \
    SM_PG_EVENT(SM_PG_SEQ, "upd") SM_PG_##kind##_WRITE("upd") SM_PG_APPLIED(kind)

/* The same, for a write that begins a generation: the one before it moves aside. */
#define SM_PG_BEGIN_NEXT(barrier, kind)                                                            \
    "WITH " SM_PG_NOW_CTE SM_PG_##kind##_CHECK                                                     \
    ", was AS MATERIALIZED (SELECT e.* FROM @effect AS e"                                          \
    SM_PG_EXPECTED barrier SM_PG_##kind##_ROOM " FOR UPDATE)"                                      \
    ", kept AS (INSERT INTO @effect_old(" SM_PG_OLD("") ") SELECT " SM_PG_OLD("was.") " FROM was)" \
    ", upd AS (UPDATE @effect AS e SET generation = $2, version = 1, born = " SM_PG_SEQ            \
    "," SM_PG_SET ", args = $27, outcome = $28"                                                    \
    " WHERE e.id = $1 AND EXISTS (SELECT FROM was) RETURNING e.waited, e.born)"                    \
    SM_PG_EVENT("born", "upd") SM_PG_##kind##_WRITE("upd") SM_PG_APPLIED(kind)

/* The columns of effect_old. */
#define SM_PG_OLD(e)                                                                               \
    e "id, " e "generation, " e "version, " e "born, " e "shard, " e "state, " e "tombstone, "     \
    e "fence, " e "events, " e "created_at, " e "updated_at, " e "lease_end, " e "due_at, "        \
    e "settled_at, " e "result_end, " e "window_end, " e "purge_at, " e "sweep_at, " e "key, "     \
    e "grp, " e "fingerprint, " e "head, " e "scope, " e "step, " e "tool, " e "caller, "          \
    e "life, " e "args, " e "outcome"

/* A page of records, the newest first. The two conditions bound what is looked at in each table;
 * the rest of the filter is applied to that:
 *   $1 before this born  $2 how many to look at  $3 how many to give  $4 states  $5 since  $6 until
 *   $7 group  $8 scope  $9 scope and a slash  $10 tool  $11 tool's pattern  $12 bytes to give
 * Rows: how many were looked at, the oldest of them, how many matched, then born, the record and
 * now; one row at least. What would pass the bytes is left for the next page. */
#define SM_PG_QUERY(of_new, of_old)                                                                \
    "WITH w AS MATERIALIZED (SELECT * FROM ((" SM_PG_LOOK("effect", "false") of_new                \
    " ORDER BY born DESC LIMIT $2) UNION ALL (" SM_PG_LOOK("effect_old", "true") of_old            \
    " ORDER BY born DESC LIMIT $2)) AS u ORDER BY born DESC LIMIT $2),"                            \
    " m AS MATERIALIZED (SELECT born, old, id, generation, sum(bytes) OVER (ORDER BY born DESC)"   \
    " - bytes AS before FROM w WHERE ($4 = 0 OR ($4 >> state) & 1 = 1)"                            \
    " AND ($5 = 0 OR created_at >= $5) AND ($6 = 0 OR created_at < $6)"                            \
    " AND ($7::bytea IS NULL OR grp = $7)"                                                         \
    " AND ($8::bytea IS NULL OR scope = $8 OR substring(scope FOR length($9)) = $9)"               \
    " AND ($10::bytea IS NULL OR tool = $10) AND ($11::bytea IS NULL OR tool LIKE $11)"            \
    " ORDER BY born DESC LIMIT $3),"                                                               \
    " g AS MATERIALIZED (SELECT * FROM m WHERE before < $12),"                                     \
    " r AS (SELECT e.born, " SM_PG_RECORD("e") " FROM @effect AS e"                                \
    " WHERE e.id = ANY(ARRAY(SELECT id FROM g WHERE NOT old))"                                     \
    " UNION ALL SELECT e.born, " SM_PG_RECORD("e") " FROM @effect_old AS e"                        \
    " WHERE e.id = ANY(ARRAY(SELECT id FROM g WHERE old))"                                         \
    " AND e.born = ANY(ARRAY(SELECT born FROM g WHERE old)))"                                      \
    " SELECT (SELECT count(*) FROM w), (SELECT min(born) FROM w), (SELECT count(*) FROM m),"       \
    " r.*, " SM_PG_NOW " FROM (SELECT) AS one LEFT JOIN r ON true ORDER BY r.born DESC"

/* How much a record takes, about. */
#define SM_PG_BYTES                                                                                \
    "coalesce(octet_length(args), 0) + coalesce(octet_length(outcome), 0) + 1"

#define SM_PG_LOOK(table, old)                                                                     \
    "SELECT born, " old " AS old, id, generation, state, created_at, grp, scope, tool,"            \
    " " SM_PG_BYTES " AS bytes FROM @" table

#define SM_PG_EVENT_COLUMNS                                                                        \
    "SELECT seq, id, generation, shard, idx, at, what, actor, body, prev, hash FROM @event"

/* Housekeeping of records: picks $1 of them, drops what is over, and says which they were. What is
 * in question is locked; what somebody else has locked is left for another time. */
#define SM_PG_SWEEP(table, condition, waited)                                                      \
    "WITH " SM_PG_NOW_CTE ", p AS MATERIALIZED (SELECT e.id, e.born, e.key, " waited " AS waited," \
    " coalesce(e.purge_at <= t.now, false) AS over FROM @" table " AS e, t"                        \
    " WHERE e.sweep_at <= (SELECT now FROM t) " condition                                          \
    " ORDER BY e.sweep_at LIMIT $1 FOR UPDATE OF e SKIP LOCKED),"                                  \
    " d AS (DELETE FROM @" table " AS e WHERE e.id = ANY(ARRAY(SELECT id FROM p WHERE over))"      \
    " AND e.born = ANY(ARRAY(SELECT born FROM p WHERE over))),"                                    \
    " u AS (UPDATE @" table " AS e SET"                                                            \
    " outcome = CASE WHEN e.result_end <= (SELECT now FROM t) OR e.window_end <="                  \
    " (SELECT now FROM t) THEN NULL ELSE e.outcome END,"                                           \
    " args = CASE WHEN e.window_end <= (SELECT now FROM t) THEN NULL ELSE e.args END,"             \
    " sweep_at = nullif(least(CASE WHEN e.outcome IS NOT NULL AND e.result_end >"                  \
    " (SELECT now FROM t) THEN e.result_end END, CASE WHEN e.args IS NOT NULL AND e.window_end >"  \
    " (SELECT now FROM t) THEN e.window_end END, e.purge_at), 9223372036854775807)"                \
    " WHERE e.id = ANY(ARRAY(SELECT id FROM p WHERE NOT over))"                                    \
    " AND e.born = ANY(ARRAY(SELECT born FROM p WHERE NOT over)))"                                 \
    " SELECT key, CASE WHEN waited THEN pg_notify(#, encode(key, 'hex')) IS NULL END FROM p"

/* A key's newest generation stays while older ones do: whether a key is known is asked of the
 * newest only. Not by NOT EXISTS, for which the planner would read all of effect_old. */
#define SM_PG_NONE_OLDER                                                                           \
    "AND (e.purge_at > t.now OR e.purge_at IS NULL"                                                \
    " OR (SELECT o.id FROM @effect_old AS o WHERE o.id = e.id LIMIT 1) IS NULL)"

/* The partitions are tables too. */
#define SM_PG_TABLES                                                                               \
    " FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"                         \
    " WHERE n.nspname = $2::text AND c.relkind = 'r'"

#define SM_PG_STATEMENTS(X)                                                                        \
    X(CLAIM, SM_PG_CLAIM(SM_PG_NO_BARRIER, PLAIN))                                                 \
    X(CLAIM_BARRED, SM_PG_CLAIM(SM_PG_BARRIER, PLAIN))                                             \
    X(CLAIM_COUNTED, SM_PG_CLAIM(SM_PG_NO_BARRIER, COUNTED))                                       \
    X(CLAIM_BARRED_COUNTED, SM_PG_CLAIM(SM_PG_BARRIER, COUNTED))                                   \
    X(APPLY, SM_PG_APPLY(SM_PG_NO_BARRIER, PLAIN))                                                 \
    X(APPLY_BARRED, SM_PG_APPLY(SM_PG_BARRIER, PLAIN))                                             \
    X(APPLY_COUNTED, SM_PG_APPLY(SM_PG_NO_BARRIER, COUNTED))                                       \
    X(APPLY_BARRED_COUNTED, SM_PG_APPLY(SM_PG_BARRIER, COUNTED))                                   \
    X(NEXT, SM_PG_BEGIN_NEXT(SM_PG_NO_BARRIER, PLAIN))                                             \
    X(NEXT_BARRED, SM_PG_BEGIN_NEXT(SM_PG_BARRIER, PLAIN))                                         \
    X(NEXT_COUNTED, SM_PG_BEGIN_NEXT(SM_PG_NO_BARRIER, COUNTED))                                   \
    X(NEXT_BARRED_COUNTED, SM_PG_BEGIN_NEXT(SM_PG_BARRIER, COUNTED))                               \
    X(LOCK, "SELECT pg_advisory_xact_lock($1)")                                                    \
    X(LOCK_SHARED, "SELECT pg_advisory_xact_lock_shared($1)")                                      \
    X(BARRING,                                                                                     \
      "WITH " SM_PG_NOW_CTE " SELECT t.now, " SM_PG_RECORD("e") " FROM t, @effect AS e"            \
      " WHERE e.grp = $1 AND e.bars_from <= greatest((SELECT now FROM t), $3) AND e.id <> $2"                    \
      " ORDER BY e.bars_from LIMIT 1")                                                             \
    X(HAS_EVENT,                                                                                   \
      "SELECT count(*) FROM @event WHERE id = $1 AND generation = $2 AND idx = $3 AND hash = $4")  \
    X(TOUCH, "UPDATE @meta SET schema = schema")                                                   \
    X(NEWEST,                                                                                      \
      "SELECT " SM_PG_NOW ", " SM_PG_RECORD("e")                                                   \
      " FROM (SELECT) AS one LEFT JOIN @effect AS e ON e.id = $1")                                 \
    X(GENERATION,                                                                                  \
      "SELECT " SM_PG_NOW ", r.* FROM (SELECT) AS one LEFT JOIN (SELECT " SM_PG_RECORD("e")        \
      " FROM @effect AS e WHERE e.id = $1 AND e.generation = $2 UNION ALL SELECT "                 \
      SM_PG_RECORD("e") " FROM @effect_old AS e WHERE e.id = $1 AND e.generation = $2) AS r"       \
      " ON true")                                                                                  \
    X(QUERY, SM_PG_QUERY(" WHERE born < $1", " WHERE born < $1"))                                  \
    X(QUERY_OPEN, SM_PG_QUERY(" WHERE state < 5 AND born < $1", " WHERE state < 5 AND born < $1")) \
    X(QUERY_BARS,                                                                                  \
      SM_PG_QUERY(" WHERE grp = $7 AND bars_from IS NOT NULL AND born < $1", " WHERE false"))      \
    X(DUE,                                                                                         \
      "WITH " SM_PG_NOW_CTE ", p AS MATERIALIZED (SELECT id, sum(" SM_PG_BYTES ")"                 \
      " OVER (ORDER BY due_at ROWS UNBOUNDED PRECEDING) - (" SM_PG_BYTES ") AS before"             \
      " FROM @effect WHERE state < 5 AND due_at <= (SELECT now FROM t) ORDER BY due_at LIMIT $1)"  \
      " SELECT t.now, " SM_PG_RECORD("e") " FROM t, @effect AS e"                                  \
      " WHERE e.id = ANY(ARRAY(SELECT id FROM p WHERE before < $2)) ORDER BY e.due_at")            \
    X(EVENTS, SM_PG_EVENT_COLUMNS " WHERE seq > $1 AND seq < " SM_PG_CUT " ORDER BY seq LIMIT $2") \
    X(EVENTS_OF,                                                                                   \
      SM_PG_EVENT_COLUMNS " WHERE id = $1 AND seq > $2 AND ($3 = 0 OR generation = $3)"            \
      " ORDER BY seq LIMIT $4")                                                                    \
    X(LAST_SEQ,                                                                                    \
      "SELECT greatest((SELECT max(seq) FROM @event), seq_floor), " SM_PG_CUT " FROM @meta")       \
    X(NEWS, "SELECT EXISTS (SELECT FROM @event WHERE seq > $1 AND seq < " SM_PG_CUT ")")           \
    X(MARK,                                                                                        \
      "WITH u AS (UPDATE @effect SET waited = true WHERE id = $1 AND key = $2"                     \
      " AND generation = $3 AND version = $4 AND NOT waited RETURNING id)"                         \
      " SELECT generation, version, waited OR EXISTS (SELECT FROM u) FROM @effect"                 \
      " WHERE id = $1 AND key = $2")                                                               \
    X(HEAD, "SELECT generation, version FROM @effect WHERE id = $1 AND key = $2")                  \
    X(JOURNAL,                                                                                     \
      "INSERT INTO @note(id, generation, first_at, last_at, count, what, scope, tool)"             \
      " SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[],"              \
      " $5::bigint[], $6::bytea[], $7::bytea[], $8::bytea[])")                                     \
    X(NOTES,                                                                                       \
      "SELECT * FROM (SELECT id, generation, first_at, last_at, count, what, scope, tool, n"       \
      " FROM @note WHERE id = $1 AND ($2 = 0 OR generation = $2) ORDER BY n DESC LIMIT $3)"        \
      " AS newest ORDER BY n")                                                                     \
    X(SEAL,                                                                                        \
      "WITH m AS (UPDATE @meta SET seal_seq = pg_current_xact_id()::text::bigint + seq_offset"     \
      " WHERE seal_seq = $1 RETURNING seal_seq),"                                                  \
      " ev AS (INSERT INTO @event(seq, id, generation, shard, idx, at, what, actor, body, prev,"   \
      " hash) SELECT seal_seq, 0, 0, 0, $2, $3, $4, $5, $6, $7, $8 FROM m)"                        \
      " SELECT count(*) FROM m")                                                                   \
    X(SWEEP, SM_PG_SWEEP("effect", SM_PG_NONE_OLDER, "e.waited"))                                  \
    X(SWEEP_OLD, SM_PG_SWEEP("effect_old", "", "false"))                                           \
    X(SWEEP_EVENTS,                                                                                \
      "WITH m AS MATERIALIZED (SELECT seq_floor FROM @meta AS f WHERE EXISTS (SELECT FROM @event"  \
      " WHERE seq > f.seq_floor AND seq <= $1 AND id <> 0) FOR UPDATE),"                           \
      " p AS MATERIALIZED (SELECT seq FROM @event WHERE seq > (SELECT seq_floor FROM m)"           \
      " AND seq <= $1 AND seq < " SM_PG_CUT " AND id <> 0 ORDER BY seq LIMIT $2),"                 \
      " d AS (DELETE FROM @event WHERE seq = ANY(ARRAY(SELECT seq FROM p))),"                      \
      " u AS (UPDATE @meta SET seq_floor = (SELECT max(seq) FROM p)"                               \
      " WHERE EXISTS (SELECT FROM p)) SELECT count(*) FROM p")                                     \
    X(SWEEP_NOTES,                                                                                 \
      "WITH d AS (DELETE FROM @note WHERE ctid = ANY(ARRAY(SELECT ctid FROM @note"                 \
      " WHERE last_at < $1 ORDER BY last_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING 1)"        \
      " SELECT count(*) FROM d")                                                                   \
    X(SWEEP_COUNTERS,                                                                              \
      "WITH d AS (DELETE FROM @counter WHERE name = ANY(ARRAY(SELECT name FROM @counter"           \
      " WHERE until <= " SM_PG_NOW " AND until < 9223372036854775807 ORDER BY until LIMIT $1"      \
      " FOR UPDATE SKIP LOCKED)) RETURNING 1) SELECT count(*) FROM d")                             \
    X(COUNTER, "SELECT value FROM @counter WHERE name = $1")                                       \
    X(STATES,                                                                                      \
      "SELECT state, count(*) FROM (SELECT state FROM @effect WHERE state < 5 UNION ALL"           \
      " SELECT state FROM @effect_old WHERE state < 5) AS o GROUP BY state")                       \
    X(HEALTH,                                                                                      \
      "SELECT greatest((SELECT max(seq) FROM @event WHERE seq < " SM_PG_CUT "), seq_floor),"       \
      " coalesce((SELECT at FROM @event WHERE seq > seq_floor AND id <> 0 ORDER BY seq LIMIT 1),"  \
      " 0), (SELECT count(*) FROM (SELECT FROM @effect LIMIT $1) AS a)"                            \
      " + (SELECT count(*) FROM (SELECT FROM @effect_old LIMIT $1) AS b),"                         \
      " (SELECT sum(greatest(c.reltuples, 0))::bigint" SM_PG_TABLES                                \
      " AND c.relname ~ '^effect(_old)?(_[0-9]+)?$'),"                                             \
      " (SELECT sum(pg_total_relation_size(c.oid))::bigint" SM_PG_TABLES "),"                      \
      " current_setting('server_version'), schema, seq_floor FROM @meta")                                     \
    X(SEAL_LAST,                                                                                   \
      "SELECT seq, idx, at, hash FROM @event WHERE id = 0 AND seq < " SM_PG_CUT                    \
      " ORDER BY seq DESC LIMIT 1")

/* clang-format on */

typedef enum sm_pg_statement {
#define X(name, sql) SM_PGQ_##name,
    SM_PG_STATEMENTS(X)
#undef X
        SM_PGQ_COUNT
} sm_pg_statement;

#endif
