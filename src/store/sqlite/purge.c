/*
 * Housekeeping: what the windows of settled effects allow to go, in one short transaction.
 *
 * Within its limit a call looks at records first, then at events, then at notes, then at
 * counters. A record's name stays while there are events of it.
 */
#include "store/sqlite/sqlite.h"

/* Rows alone do not bound how long a transaction takes, and all who write wait for it. */
enum { PAYLOAD_MAX = 1 << 20 };

/* A row of SM_SQL_SWEEP. */
typedef struct swept {
    int64_t n, id, generation, result_end, window_end, purge_at;
    semel_hash key;
} swept;

/* A row of SM_SQL_OLD_EVENTS. */
typedef struct old_event {
    int64_t seq, n, id, generation;
} old_event;

/* Binds up to three numbers and runs the statement for its effect. */
static int run(sm_sq_conn *c, sm_sq_statement which, int64_t a, int64_t b, int64_t d)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    if (stmt == NULL)
        return rc;
    const int64_t values[] = {a, b, d};
    for (int i = 0; i < sqlite3_bind_parameter_count(stmt); i++)
        sqlite3_bind_int64(stmt, i + 1, values[i]);
    return sm_sq_run(stmt);
}

/* Whether a query about one number has a row. */
static int has_row(sm_sq_conn *c, sm_sq_statement which, int64_t number, bool *has)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, number);
    rc = sqlite3_step(stmt);
    *has = rc == SQLITE_ROW;
    int reset = sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : reset;
}

static int set_floor(sm_sq_conn *c, const char *name, uint64_t value)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_META_SET, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_text(stmt, 1, name, -1, SQLITE_STATIC);
    sqlite3_bind_int64(stmt, 2, (int64_t)value);
    return sm_sq_run(stmt);
}

/* Removes a record; its number is not given out again even if it was the newest. */
static int remove_record(semel_store *st, const swept *s)
{
    sm_sq_conn *c = st->writer.conn;
    bool events = false;
    int rc = run(c, SM_SQL_ARGS_DROP, s->n, 0, 0);
    if (rc == SQLITE_OK)
        rc = run(c, SM_SQL_OUTCOME_DROP, s->n, 0, 0);
    if (rc == SQLITE_OK)
        rc = run(c, SM_SQL_EFFECT_DROP, s->n, 0, 0);
    if (rc == SQLITE_OK)
        rc = has_row(c, SM_SQL_HAS_EVENTS, s->n, &events);
    if (rc == SQLITE_OK && !events)
        rc = run(c, SM_SQL_NAME_DROP, s->id, s->generation, s->n);
    if (rc == SQLITE_OK && (uint64_t)s->n == st->writer.last_n)
        rc = set_floor(c, "n_floor", st->writer.last_n);
    return rc;
}

static bool over(int64_t at, int64_t now)
{
    return at > 0 && at <= now;
}

static int sweep_record(semel_store *st, const swept *s, int64_t now)
{
    sm_sq_conn *c = st->writer.conn;
    if (over(s->purge_at, now))
        return remove_record(st, s);
    bool args_stay = !over(s->window_end, now);
    bool outcome_stays = args_stay && !over(s->result_end, now);
    int rc = SQLITE_OK;
    if (!outcome_stays)
        rc = run(c, SM_SQL_OUTCOME_DROP, s->n, 0, 0);
    if (rc == SQLITE_OK && !args_stay)
        rc = run(c, SM_SQL_ARGS_DROP, s->n, 0, 0);
    if (rc != SQLITE_OK)
        return rc;
    int64_t next = sm_sq_sweep_at(outcome_stays ? s->result_end : 0, args_stay ? s->window_end : 0,
                                  s->purge_at, outcome_stays, args_stay);
    if (next != 0)
        return run(c, SM_SQL_SWEEP_SET, s->n, next, 0);
    sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_SWEEP_SET, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, s->n);
    sqlite3_bind_null(stmt, 2);
    return sm_sq_run(stmt);
}

/* Ends the reading of rows, of which the last step gave `rc`; a row: there are more. */
static int end_rows(sqlite3_stmt *stmt, int rc, sm_sq_request *r)
{
    if (rc == SQLITE_ROW)
        r->left = true;
    int reset = sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : reset;
}

/* Rows are read first and changed afterwards: a scan must not see what it changes. */
static int sweep(semel_store *st, sm_sq_request *r, size_t *budget)
{
    swept rows[SM_SQ_PURGE_MAX];
    size_t n = 0;
    int64_t bytes = 0;
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_SWEEP, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, r->now);
    sqlite3_bind_int64(stmt, 2, (int64_t)*budget + 1);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && n < *budget && bytes < PAYLOAD_MAX) {
        swept *s = &rows[n++];
        s->n = sm_sq_int(stmt, 0);
        s->id = sm_sq_int(stmt, 1);
        s->generation = sm_sq_int(stmt, 2);
        sm_sq_hash(stmt, 3, &s->key);
        s->result_end = sm_sq_int(stmt, 4);
        s->window_end = sm_sq_int(stmt, 5);
        s->purge_at = sm_sq_int(stmt, 6);
        bytes += sm_sq_int(stmt, 7);
    }
    rc = end_rows(stmt, rc, r);
    if (rc != SQLITE_OK)
        return rc;
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++) {
        rc = sweep_record(st, &rows[i], r->now);
        r->keys[r->n_keys++] = rows[i].key;
    }
    *budget -= n;
    r->done += n;
    return rc;
}

/* Removes one event, and the name of its effect if that was the last trace of it. */
static int remove_event(sm_sq_conn *c, const old_event *e)
{
    bool effect = true, events = true;
    int rc = run(c, SM_SQL_EVENT_DROP, e->seq, 0, 0);
    if (rc == SQLITE_OK)
        rc = has_row(c, SM_SQL_HAS_EFFECT, e->n, &effect);
    if (rc == SQLITE_OK && !effect)
        rc = has_row(c, SM_SQL_HAS_EVENTS, e->n, &events);
    if (rc == SQLITE_OK && !effect && !events)
        rc = run(c, SM_SQL_NAME_DROP, e->id, e->generation, e->n);
    return rc;
}

static int sweep_events(semel_store *st, sm_sq_request *r, size_t *budget)
{
    old_event rows[SM_SQ_PURGE_MAX];
    size_t n = 0;
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_OLD_EVENTS, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, (int64_t)r->events_to);
    sqlite3_bind_int64(stmt, 2, (int64_t)*budget + 1);
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW && n < *budget)
        rows[n++] = (old_event){sm_sq_int(stmt, 0), sm_sq_int(stmt, 1), sm_sq_int(stmt, 2),
                                sm_sq_int(stmt, 3)};
    rc = end_rows(stmt, rc, r);
    if (rc != SQLITE_OK)
        return rc;
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++)
        rc = remove_event(st->writer.conn, &rows[i]);
    if (rc == SQLITE_OK && n > 0)
        rc = set_floor(st->writer.conn, "seq_floor", (uint64_t)rows[n - 1].seq);
    *budget -= n;
    r->done += n;
    return rc;
}

/* Notes and counters: one statement removes at most so many of those before `bound`, another one
 * finds whether there are more. */
static int sweep_rest(semel_store *st, sm_sq_request *r, sm_sq_statement drop, sm_sq_statement find,
                      int64_t bound, size_t *budget)
{
    sm_sq_conn *c = st->writer.conn;
    int rc = SQLITE_OK;
    if (*budget > 0) {
        rc = run(c, drop, bound, (int64_t)*budget, 0);
        size_t n = rc == SQLITE_OK ? (size_t)sqlite3_changes64(c->db) : 0;
        r->done += n;
        *budget -= n;
    }
    bool more = false;
    if (rc == SQLITE_OK)
        rc = has_row(c, find, bound, &more);
    r->left = r->left || more;
    return rc;
}

int sm_sq_execute_purge(semel_store *st, sm_sq_request *r)
{
    r->err = SEMEL_OK;
    r->n_keys = 0;
    r->done = 0;
    r->left = false;
    r->now = sm_clock_ms();
    size_t budget = r->limit;
    int rc = sweep(st, r, &budget);
    if (rc == SQLITE_OK)
        rc = sweep_events(st, r, &budget);
    if (rc == SQLITE_OK)
        rc = sweep_rest(st, r, SM_SQL_NOTES_DROP, SM_SQL_NOTES_OLD, r->notes_before, &budget);
    if (rc == SQLITE_OK)
        rc = sweep_rest(st, r, SM_SQL_COUNTERS_DROP, SM_SQL_COUNTERS_OVER, r->now, &budget);
    return rc;
}
