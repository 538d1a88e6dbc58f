/*
 * Reading many things: records by a filter, records that are due, events.
 *
 * Numbers of rows are collected first, and each row is then read and copied on its own, so that no
 * statement is open while a sink runs. A record may have changed in between: the filter is asked
 * again before the sink is. One call scans a bounded number of rows.
 */
#include "store/sqlite/sqlite.h"

#include <stdlib.h>

#include "core/glob.h"

enum { SCAN_MAX = 20000, CHUNK = 256 };

#define OPEN_STATES ((1u << SEMEL_S_SUCCEEDED) - 1)
#define BAR_STATES  (1u << SEMEL_S_RUNNING | 1u << SEMEL_S_IN_DOUBT)

/* ---- records ---------------------------------------------------------------------------------*/

/* Whether a scope is the prefix or lies below it: only whole segments count. */
static bool scope_within(semel_str scope, semel_str prefix)
{
    while (prefix.n > 0 && prefix.p[prefix.n - 1] == '/')
        prefix.n--;
    return prefix.n == 0 || (scope.n >= prefix.n && memcmp(scope.p, prefix.p, prefix.n) == 0 &&
                             (scope.n == prefix.n || scope.p[prefix.n] == '/'));
}

static bool matches(const semel_filter *f, const semel_record *r)
{
    if (f->states != 0 && (f->states & 1u << r->state) == 0)
        return false;
    if ((f->since != 0 && r->created_at < f->since) || (f->until != 0 && r->created_at >= f->until))
        return false;
    if (f->group != NULL && memcmp(f->group, &r->group, sizeof r->group) != 0)
        return false;
    if (f->scope.p != NULL && !scope_within(r->scope, f->scope))
        return false;
    if (f->tool.p == NULL)
        return true;
    return sm_glob_is(f->tool) ? sm_glob_matches(f->tool, r->tool) : sm_str_eq(f->tool, r->tool);
}

/* Reads one record and gives it to the sink, if it is still there and `filter` (may be NULL) still
 * wants it. *go_on becomes what the sink says. */
static semel_err give(semel_store *st, sm_sq_conn *c, int64_t n, const semel_filter *filter,
                      sm_sq_scratch *scratch, semel_record_sink *sink, void *context, bool *go_on,
                      semel_fault *fault)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_ROW, &rc);
    if (stmt == NULL)
        return sm_sq_fault(st, rc, fault);
    sqlite3_bind_int64(stmt, 1, n);
    semel_record r;
    semel_err e = SEMEL_OK;
    rc = sqlite3_step(stmt);
    bool wanted = false;
    if (rc == SQLITE_ROW) {
        semel_record view;
        sm_sq_record_view(stmt, &view);
        wanted = filter == NULL ? !semel_state_settled(view.state) : matches(filter, &view);
        if (wanted && sm_record_copy(&view, &scratch->room, &r) != SEMEL_OK)
            e = sm_sq_nomem(fault);
    } else if (rc != SQLITE_DONE) {
        e = sm_sq_fault(st, rc, fault);
    }
    sqlite3_reset(stmt);
    if (e == SEMEL_OK && wanted)
        *go_on = sink(context, &r, sm_clock_ms());
    return e;
}

/* What a scan has found. */
typedef struct found {
    int64_t n[CHUNK];
    size_t count;
    int64_t last; /* the last row looked at, 0: the scan came to the end */
    size_t scanned;
} found;

/* The scan that looks at the fewest rows. What runs or is in doubt in one group is asked for by
 * every call with a barrier, and must be found among any number of others that are open. */
static sqlite3_stmt *scan_statement(sm_sq_conn *c, const semel_filter *filter, int *rc)
{
    bool some = filter->states != 0;
    if (some && (filter->states & ~BAR_STATES) == 0 && filter->group != NULL &&
        !sm_sq_hash_is_zero(filter->group)) {
        sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_SCAN_BARS, rc);
        if (stmt != NULL) {
            sm_sq_bind_hash(stmt, 3, filter->group);
            sqlite3_bind_int64(stmt, 4, (filter->states & 1u << SEMEL_S_IN_DOUBT) != 0 ? 0 : 1);
            sqlite3_bind_int64(stmt, 5,
                               (filter->states & 1u << SEMEL_S_RUNNING) != 0 ? SM_SQ_NEVER : 0);
        }
        return stmt;
    }
    bool open = some && (filter->states & ~OPEN_STATES) == 0;
    return sm_sq_stmt(c, open ? SM_SQL_SCAN_OPEN : SM_SQL_SCAN, rc);
}

/* Collects up to `limit` numbers of rows below `below` that match, looking at no more than
 * `budget`. If the numbers do not fall, the file is damaged, and reading page by page would never
 * end. */
static semel_err scan(semel_store *st, sm_sq_conn *c, const semel_filter *filter, int64_t below,
                      size_t limit, size_t budget, found *f, semel_fault *fault)
{
    *f = (found){0};
    int rc;
    sqlite3_stmt *stmt = scan_statement(c, filter, &rc);
    if (stmt == NULL)
        return sm_sq_fault(st, rc, fault);
    sqlite3_bind_int64(stmt, 1, below);
    sqlite3_bind_int64(stmt, 2, (int64_t)budget);
    while (f->count < limit && f->count < CHUNK && (rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        f->last = sm_sq_int(stmt, 0);
        if (f->last >= below) {
            rc = SQLITE_CORRUPT;
            break;
        }
        below = f->last;
        f->scanned++;
        semel_record r = {.state = sm_record_state(sm_sq_int(stmt, 1)),
                          .created_at = sm_sq_int(stmt, 2),
                          .scope = sm_sq_text(stmt, 4),
                          .tool = sm_sq_text(stmt, 5)};
        sm_sq_hash(stmt, 3, &r.group);
        if (matches(filter, &r))
            f->n[f->count++] = f->last;
    }
    if (rc == SQLITE_DONE && f->scanned < budget)
        f->last = 0;
    sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE || rc == SQLITE_OK ? SEMEL_OK
                                                                    : sm_sq_fault(st, rc, fault);
}

semel_err sm_sq_query(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                      semel_record_sink *sink, void *context, semel_fault *fault)
{
    sm_sq_reading r;
    semel_err e = sm_sq_reading_start(st, &r, fault);
    if (e != SEMEL_OK)
        return e;
    int64_t below = *cursor == 0 || *cursor > INT64_MAX ? INT64_MAX : (int64_t)*cursor;
    size_t budget = SCAN_MAX;
    bool go_on = true;
    while (e == SEMEL_OK && go_on && limit > 0 && budget > 0 && below > 0) {
        found f;
        e = scan(st, r.c, filter, below, limit, budget, &f, fault);
        below = f.last;
        for (size_t i = 0; i < f.count && e == SEMEL_OK && go_on; i++) {
            e = give(st, r.c, f.n[i], filter, &r.scratch, sink, context, &go_on, fault);
            if (!go_on)
                below = f.n[i];
        }
        budget -= f.scanned;
        limit -= f.count;
    }
    if (e == SEMEL_OK)
        *cursor = (uint64_t)below;
    sm_sq_reading_end(st, &r);
    return e;
}

semel_err sm_sq_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                    semel_fault *fault)
{
    sm_sq_reading r;
    semel_err e = sm_sq_reading_start(st, &r, fault);
    if (e != SEMEL_OK)
        return e;
    if (limit > SCAN_MAX)
        limit = SCAN_MAX;
    size_t count = 0;
    int64_t *n = malloc((limit + 1) * sizeof *n);
    int rc = SQLITE_NOMEM;
    sqlite3_stmt *stmt = n == NULL ? NULL : sm_sq_stmt(r.c, SM_SQL_DUE, &rc);
    if (stmt != NULL) {
        sqlite3_bind_int64(stmt, 1, sm_clock_ms());
        sqlite3_bind_int64(stmt, 2, (int64_t)limit);
        while (count < limit && (rc = sqlite3_step(stmt)) == SQLITE_ROW)
            n[count++] = sm_sq_int(stmt, 0);
        sqlite3_reset(stmt);
    }
    if (rc != SQLITE_OK && rc != SQLITE_ROW && rc != SQLITE_DONE)
        e = sm_sq_fault(st, rc, fault);
    bool go_on = true;
    for (size_t i = 0; i < count && e == SEMEL_OK && go_on; i++)
        e = give(st, r.c, n[i], NULL, &r.scratch, sink, context, &go_on, fault);
    free(n);
    sm_sq_reading_end(st, &r);
    return e;
}

/* ---- events ----------------------------------------------------------------------------------*/

/* The next event after *after, of the effect `n` or of all if n < 0. *found: there was one. */
static semel_err next_event(semel_store *st, sm_sq_conn *c, int64_t n, uint64_t after,
                            sm_sq_scratch *scratch, semel_event *e, bool *is, semel_fault *fault)
{
    int rc;
    *is = false;
    sqlite3_stmt *stmt = sm_sq_stmt(c, n < 0 ? SM_SQL_EVENT_NEXT : SM_SQL_EVENT_OF, &rc);
    if (stmt == NULL)
        return sm_sq_fault(st, rc, fault);
    sqlite3_bind_int64(stmt, 1, after > INT64_MAX ? INT64_MAX : (int64_t)after);
    if (n >= 0)
        sqlite3_bind_int64(stmt, 2, n);
    semel_err err = SEMEL_OK;
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && (uint64_t)sm_sq_int(stmt, 0) <= after)
        rc = SQLITE_CORRUPT; /* the rows are not in order: one would come again and again */
    if (rc == SQLITE_ROW) {
        semel_record view = {.step = sm_sq_text(stmt, 5),
                             .caller = sm_sq_text(stmt, 6),
                             .args = sm_sq_text(stmt, 7)};
        if (sm_record_copy(&view, &scratch->room, &view) != SEMEL_OK)
            err = sm_sq_nomem(fault);
        *e = (semel_event){.seq = (uint64_t)sm_sq_int(stmt, 0),
                           .id = (uint64_t)sm_sq_int(stmt, 1),
                           .generation = (uint64_t)sm_sq_int(stmt, 2),
                           .index = (uint64_t)sm_sq_int(stmt, 3),
                           .shard = (uint8_t)sm_sq_int(stmt, 10),
                           .at = sm_sq_int(stmt, 4),
                           .what = view.step,
                           .actor = view.caller,
                           .body = view.args};
        sm_sq_hash(stmt, 8, &e->prev);
        sm_sq_hash(stmt, 9, &e->hash);
        *is = err == SEMEL_OK;
    } else if (rc != SQLITE_DONE) {
        err = sm_sq_fault(st, rc, fault);
    }
    sqlite3_reset(stmt);
    return err;
}

/* The next number of a row that has or had this id; 0: no more. Numbers grow with generations. */
static semel_err next_name(semel_store *st, sm_sq_conn *c, const semel_ref *of, int64_t *n,
                           semel_fault *fault)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_NAMES, &rc);
    if (stmt == NULL)
        return sm_sq_fault(st, rc, fault);
    sqlite3_bind_int64(stmt, 1, (int64_t)of->id);
    sqlite3_bind_int64(stmt, 2, (int64_t)of->generation);
    sqlite3_bind_int64(stmt, 3, *n);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW && sm_sq_int(stmt, 0) <= *n)
        rc = SQLITE_CORRUPT;
    *n = rc == SQLITE_ROW ? sm_sq_int(stmt, 0) : 0;
    sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SEMEL_OK : sm_sq_fault(st, rc, fault);
}

semel_err sm_sq_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault)
{
    sm_sq_reading r;
    semel_err e = sm_sq_reading_start(st, &r, fault);
    if (e != SEMEL_OK)
        return e;
    int64_t n = of == NULL ? -1 : 0;
    if (of != NULL)
        e = next_name(st, r.c, of, &n, fault);
    while (e == SEMEL_OK && n != 0 && limit > 0) {
        semel_event event;
        bool is = false;
        e = next_event(st, r.c, n, *after, &r.scratch, &event, &is, fault);
        if (e == SEMEL_OK && is) {
            *after = event.seq;
            limit--;
            if (!sink(context, &event))
                break;
        } else if (e == SEMEL_OK && n < 0) {
            break;
        } else if (e == SEMEL_OK) {
            e = next_name(st, r.c, of, &n, fault);
        }
    }
    sm_sq_reading_end(st, &r);
    return e;
}
