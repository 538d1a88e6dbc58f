/*
 * Every statement that the SQLite store runs after a ledger is open, in one list.
 *
 * A connection prepares a statement when it first needs it and keeps it. Parameters are numbered,
 * so that the insert and the update of an effect are bound by one function.
 *
 * "state < 5" is what "not settled" looks like to a partial index: a query must use these very
 * words for SQLite to see that the index covers it. schema.c asserts that 5 is right.
 */
#ifndef SM_STORE_SQLITE_SQL_H
#define SM_STORE_SQLITE_SQL_H

#define SM_SQ_TEXT_OF(x) #x
#define SM_SQ_TEXT(x)    SM_SQ_TEXT_OF(x)

/* The columns of a record, in the order in which row.c reads them. */
#define SM_SQ_RECORD                                                                               \
    "SELECT e.key, e.id, e.generation, e.version, e.shard, e.state, e.tombstone, e.fence, e.grp,"  \
    " e.fingerprint, e.head, e.events, e.created_at, e.updated_at, e.lease_end, e.due_at,"         \
    " e.settled_at, e.result_end, e.window_end, e.purge_at, e.scope, e.step, e.tool, e.caller,"    \
    " (SELECT bytes FROM args WHERE n = e.n), e.life,"                                             \
    " (SELECT bytes FROM outcome WHERE n = e.n) "

/* Of an effect's parameters, 2 (id), 3 (generation) and 19 (key) never change and are in the insert
 * only. */
#define SM_SQ_STATEMENTS(X)                                                                           \
    X(TRY, "PRAGMA application_id = " SM_SQ_TEXT(SM_SQ_APPLICATION_ID))                               \
    X(BEGIN, "BEGIN IMMEDIATE")                                                                       \
    X(COMMIT, "COMMIT")                                                                               \
    X(ROLLBACK, "ROLLBACK")                                                                           \
    X(TOPS, "SELECT max((SELECT ifnull(max(n), 0) FROM effect),"                                      \
            " (SELECT value FROM meta WHERE name = 'n_floor')),"                                      \
            " (SELECT value FROM meta WHERE name = 'seq_floor')")                                     \
    X(EVENT_LAST, "SELECT seq, hash FROM event ORDER BY seq DESC LIMIT 1")                            \
    X(EVENT_HASH, "SELECT seq, hash FROM event WHERE seq = ?1")                                       \
    X(HEAD, "SELECT e.n, e.key, e.generation, e.version, e.state, e.head"                             \
            " FROM name AS k CROSS JOIN effect AS e ON e.n = k.n"                                     \
            " WHERE k.id = ?1 ORDER BY k.generation DESC, k.n DESC LIMIT 1")                          \
    X(ROW, SM_SQ_RECORD "FROM effect AS e WHERE e.n = ?1")                                            \
    X(NEWEST, SM_SQ_RECORD "FROM name AS k CROSS JOIN effect AS e ON e.n = k.n"                       \
                           " WHERE k.id = ?1 ORDER BY k.generation DESC, k.n DESC LIMIT 1")           \
    X(GENERATION, SM_SQ_RECORD "FROM name AS k CROSS JOIN effect AS e ON e.n = k.n"                   \
                               " WHERE k.id = ?1 AND k.generation = ?2 ORDER BY k.n DESC LIMIT 1")    \
    X(BARRIER, "SELECT n FROM effect WHERE grp = ?1 AND bars_from <= ?3 AND id <> ?2"                 \
               " ORDER BY bars_from LIMIT 1")                                                         \
    X(EFFECT_ADD,                                                                                     \
      "INSERT INTO effect(n, id, generation, version, shard, state, tombstone, fence,"                \
      " events, created_at, updated_at, lease_end, due_at, settled_at, result_end,"                   \
      " window_end, purge_at, sweep_at, key, grp, fingerprint, head, scope, step,"                    \
      " tool, caller, life, bars_from) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12,"     \
      " ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28)")             \
    X(EFFECT_SET,                                                                                     \
      "UPDATE effect SET version = ?4, shard = ?5, state = ?6, tombstone = ?7,"                       \
      " fence = ?8, events = ?9, created_at = ?10, updated_at = ?11, lease_end = ?12,"                \
      " due_at = ?13, settled_at = ?14, result_end = ?15, window_end = ?16,"                          \
      " purge_at = ?17, sweep_at = ?18, grp = ?20, fingerprint = ?21, head = ?22,"                    \
      " scope = ?23, step = ?24, tool = ?25, caller = ?26, life = ?27, bars_from = ?28 WHERE n = ?1") \
    X(EFFECT_DROP, "DELETE FROM effect WHERE n = ?1")                                                 \
    X(SWEEP_SET, "UPDATE effect SET sweep_at = ?2 WHERE n = ?1")                                      \
    X(NAME_ADD, "INSERT INTO name(id, generation, n) VALUES(?1, ?2, ?3)")                             \
    X(NAME_DROP, "DELETE FROM name WHERE id = ?1 AND generation = ?2 AND n = ?3")                     \
    X(ARGS_SET, "INSERT OR REPLACE INTO args(n, bytes) VALUES(?1, ?2)")                               \
    X(ARGS_DROP, "DELETE FROM args WHERE n = ?1")                                                     \
    X(OUTCOME_SET, "INSERT OR REPLACE INTO outcome(n, bytes) VALUES(?1, ?2)")                         \
    X(OUTCOME_DROP, "DELETE FROM outcome WHERE n = ?1")                                               \
    X(EVENT_ADD, "INSERT INTO event(seq, n, id, generation, number, at, what, actor, body, prev,"     \
                 " hash, shard) VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")           \
    X(EVENT_DROP, "DELETE FROM event WHERE seq = ?1")                                                 \
    X(COUNTER_GET, "SELECT value FROM counter WHERE name = ?1")                                       \
    X(COUNTER_SET, "INSERT INTO counter(name, value, until) VALUES(?1, ?2, ?3) ON CONFLICT(name)"     \
                   " DO UPDATE SET value = excluded.value, until = max(until, excluded.until)")       \
    X(COUNTERS_DROP, "DELETE FROM counter WHERE name IN (SELECT name FROM counter"                    \
                     " INDEXED BY counter_over WHERE until <= ?1 ORDER BY until LIMIT ?2)")           \
    X(COUNTERS_OVER, "SELECT 1 FROM counter INDEXED BY counter_over WHERE until <= ?1 LIMIT 1")       \
    X(META_SET, "UPDATE meta SET value = ?2 WHERE name = ?1")                                         \
    X(NOTE_ADD, "INSERT INTO note(id, generation, first_at, last_at, count, what, scope, tool)"       \
                " VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)")                                            \
    X(NOTES_DROP, "DELETE FROM note WHERE seq IN (SELECT seq FROM note INDEXED BY note_age"           \
                  " WHERE last_at < ?1 ORDER BY last_at LIMIT ?2)")                                   \
    X(NOTES_OLD, "SELECT 1 FROM note WHERE last_at < ?1 LIMIT 1")                                     \
    X(SEAL_LAST, "SELECT seq, number, at, hash FROM event WHERE n = 0 ORDER BY seq DESC LIMIT 1")     \
    X(SWEEP,                                                                                          \
      "SELECT n, id, generation, key, result_end, window_end, purge_at,"                              \
      " ifnull((SELECT length(bytes) FROM outcome AS o WHERE o.n = effect.n), 0)"                     \
      " + iif(window_end <= ?1 OR purge_at <= ?1,"                                                    \
      " ifnull((SELECT length(CAST(bytes AS BLOB)) FROM args AS a WHERE a.n = effect.n), 0),"         \
      " 0) FROM effect WHERE sweep_at <= ?1 ORDER BY sweep_at LIMIT ?2")                              \
    X(OLD_EVENTS, "SELECT seq, n, id, generation FROM event"                                          \
                  " WHERE seq > (SELECT value FROM meta WHERE name = 'seq_floor')"                    \
                  " AND seq <= ?1 AND n > 0 ORDER BY seq LIMIT ?2")                                   \
    X(HAS_EFFECT, "SELECT 1 FROM effect WHERE n = ?1")                                                \
    X(HAS_EVENTS, "SELECT 1 FROM event WHERE n = ?1 LIMIT 1")                                         \
    X(SCAN, "SELECT n, state, created_at, grp, scope, tool FROM effect"                               \
            " WHERE n < ?1 ORDER BY n DESC LIMIT ?2")                                                 \
    X(SCAN_OPEN,                                                                                      \
      "SELECT n, state, created_at, grp, scope, tool FROM effect INDEXED BY effect_open"              \
      " WHERE state < 5 AND n < ?1 ORDER BY n DESC LIMIT ?2")                                         \
    X(SCAN_BARS,                                                                                      \
      "SELECT n, state, created_at, grp, scope, tool FROM effect INDEXED BY effect_bars"              \
      " WHERE grp = ?3 AND bars_from BETWEEN ?4 AND ?5 AND n < ?1 ORDER BY n DESC LIMIT ?2")          \
    X(DUE, "SELECT n FROM effect INDEXED BY effect_due"                                               \
           " WHERE state < 5 AND due_at <= ?1 ORDER BY due_at LIMIT ?2")                              \
    X(EVENT_NEXT, "SELECT seq, id, generation, number, at, what, actor, body, prev, hash, shard"      \
                  " FROM event WHERE seq > ?1 ORDER BY seq LIMIT 1")                                  \
    X(EVENT_OF, "SELECT seq, id, generation, number, at, what, actor, body, prev, hash, shard"        \
                " FROM event WHERE n = ?2 AND seq > ?1 ORDER BY seq LIMIT 1")                         \
    X(NAMES, "SELECT n FROM name WHERE id = ?1 AND (?2 = 0 OR generation = ?2) AND n > ?3"            \
             " ORDER BY n LIMIT 1")                                                                   \
    X(NOTES, "SELECT seq, id, generation, first_at, last_at, count, what, scope, tool FROM note"      \
             " WHERE id = ?1 AND (?2 = 0 OR generation = ?2) ORDER BY seq DESC LIMIT 1 OFFSET ?3")    \
    X(NOTE_NEXT, "SELECT seq, id, generation, first_at, last_at, count, what, scope, tool"            \
                 " FROM note WHERE id = ?1 AND (?2 = 0 OR generation = ?2) AND seq >= ?3"             \
                 " ORDER BY seq LIMIT 1")                                                             \
    X(LAST_SEQ, "SELECT max(ifnull((SELECT max(seq) FROM event), 0), value), value FROM meta"         \
                " WHERE name = 'seq_floor'")                                                          \
    X(STATES, "SELECT state, count(*) FROM effect WHERE state < 5 GROUP BY state")                    \
    X(SPAN, "SELECT (SELECT min(n) FROM effect), (SELECT max(n) FROM effect)")                        \
    X(COUNT, "SELECT count(*) FROM effect")                                                           \
    X(OLDEST, "SELECT at FROM event"                                                                  \
              " WHERE seq > (SELECT value FROM meta WHERE name = 'seq_floor') AND n > 0"              \
              " ORDER BY seq LIMIT 1")                                                                \
    X(DATA_VERSION, "PRAGMA data_version")

typedef enum sm_sq_statement {
#define X(name, sql) SM_SQL_##name,
    SM_SQ_STATEMENTS(X)
#undef X
        SM_SQL_COUNT_ALL
} sm_sq_statement;

#endif
