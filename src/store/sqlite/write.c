/*
 * What each kind of write decides and does inside the writer's transaction.
 *
 * Every decision is made by reads before the first write. So an answer such as STALE or BARRED
 * leaves nothing to undo, and only SQLite's own errors can end the transaction.
 */
#include "store/sqlite/sqlite.h"

/* What is known of the newest generation of a key. */
typedef struct head {
    bool found;
    int64_t n;
    uint64_t generation, version;
    uint8_t state;
    semel_hash hash; /* of its newest event */
} head;

/* Runs a statement for its effect. Parameters are bound by the caller, whose result code is `rc`.
 */
static int run_bound(sqlite3_stmt *stmt, int rc)
{
    if (rc == SQLITE_OK)
        return sm_sq_run(stmt);
    sqlite3_reset(stmt);
    return rc;
}

/* A statement with one number. */
static int run_one(sm_sq_conn *c, sm_sq_statement which, int64_t number)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    return stmt == NULL ? rc : run_bound(stmt, sqlite3_bind_int64(stmt, 1, number));
}

/* Finds the newest generation. Another key with the same id: the request is answered CORRUPT. */
static int find_head(semel_store *st, sm_sq_request *r, head *h)
{
    *h = (head){0};
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_HEAD, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, (int64_t)r->w->next.id);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        semel_hash key;
        sm_sq_hash(stmt, 1, &key);
        *h = (head){.found = true,
                    .n = sm_sq_int(stmt, 0),
                    .generation = (uint64_t)sm_sq_int(stmt, 2),
                    .version = (uint64_t)sm_sq_int(stmt, 3),
                    .state = sm_record_state(sm_sq_int(stmt, 4))};
        sm_sq_hash(stmt, 5, &h->hash);
        if (memcmp(&key, &r->w->next.key, sizeof key) != 0)
            r->err = sm_sq_collision(st, r->fault);
    }
    int reset = sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : reset;
}

/* Answers with the record `n` as it is. */
static int give_row(semel_store *st, sm_sq_request *r, int64_t n, semel_err answer)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_ROW, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, n);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        semel_record view;
        sm_sq_record_view(stmt, &view);
        r->err = sm_record_copy(&view, r->room, r->cur);
        if (r->err == SEMEL_OK)
            r->err = answer;
        else
            sm_sq_nomem(r->fault);
    }
    int reset = sqlite3_reset(stmt);
    if (rc == SQLITE_ROW)
        return SQLITE_OK;
    return reset != SQLITE_OK ? reset : SQLITE_CORRUPT;
}

/* Is another key of the group in doubt, or running with a lease that is over, or at all? */
static int check_barrier(semel_store *st, sm_sq_request *r)
{
    const semel_record *next = &r->w->next;
    if (!r->w->barred_by_group || sm_sq_hash_is_zero(&next->group))
        return SQLITE_OK;
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_BARRIER, &rc);
    if (stmt == NULL)
        return rc;
    sm_sq_bind_hash(stmt, 1, &next->group);
    sqlite3_bind_int64(stmt, 2, (int64_t)next->id);
    sqlite3_bind_int64(stmt, 3, r->w->alone ? INT64_MAX : r->now);
    rc = sqlite3_step(stmt);
    int64_t n = rc == SQLITE_ROW ? sm_sq_int(stmt, 0) : 0;
    int reset = sqlite3_reset(stmt);
    if (rc == SQLITE_ROW)
        return give_row(st, r, n, SEMEL_E_BARRED);
    return rc == SQLITE_DONE ? SQLITE_OK : reset;
}

static int counter_value(sm_sq_conn *c, semel_str name, int64_t *value)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_COUNTER_GET, &rc);
    if (stmt == NULL)
        return rc;
    sm_sq_bind_text(stmt, 1, name);
    rc = sqlite3_step(stmt);
    *value = rc == SQLITE_ROW ? sm_sq_int(stmt, 0) : 0;
    int reset = sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : reset;
}

/* What a counter would be after the first `n` changes of this write; a name may come twice. */
static int counter_after(sm_sq_conn *c, const semel_write *w, size_t n, int64_t *value,
                         bool *overflow)
{
    int rc = counter_value(c, w->counters[n - 1].name, value);
    *overflow = false;
    for (size_t i = 0; i < n && rc == SQLITE_OK; i++)
        if (sm_str_eq(w->counters[i].name, w->counters[n - 1].name))
            *overflow |= __builtin_add_overflow(*value, w->counters[i].delta, value);
    return rc;
}

static int check_counters(semel_store *st, sm_sq_request *r)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < r->w->n_counters && rc == SQLITE_OK && r->err == SEMEL_OK; i++) {
        const semel_counter *c = &r->w->counters[i];
        int64_t value = 0;
        bool overflow;
        rc = counter_after(st->writer.conn, r->w, i + 1, &value, &overflow);
        if (rc == SQLITE_OK && c->delta >= 0 && (overflow || value > c->cap))
            r->err = sm_fault_set(r->fault, SEMEL_E_OVER_CAP, "the counter %.*s would pass its cap",
                                  (int)(c->name.n > 200 ? 200 : c->name.n), c->name.p);
    }
    return rc;
}

static int write_counters(sm_sq_conn *c, const semel_write *w)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < w->n_counters && rc == SQLITE_OK; i++) {
        int64_t value = 0;
        rc = counter_value(c, w->counters[i].name, &value);
        if (rc != SQLITE_OK)
            break;
        if (__builtin_add_overflow(value, w->counters[i].delta, &value))
            value = INT64_MIN; /* only a negative delta gets here */
        sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_COUNTER_SET, &rc);
        if (stmt == NULL)
            break;
        int64_t until = w->counters[i].until;
        sm_sq_bind_text(stmt, 1, w->counters[i].name);
        sqlite3_bind_int64(stmt, 2, value);
        rc = run_bound(stmt, until == 0 || until == INT64_MAX ? sqlite3_bind_null(stmt, 3)
                                                              : sqlite3_bind_int64(stmt, 3, until));
    }
    return rc;
}

static int write_payload(sm_sq_conn *c, sm_sq_statement which, int64_t n, semel_str bytes)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    if (stmt == NULL)
        return rc;
    sqlite3_bind_int64(stmt, 1, n);
    return run_bound(stmt, which == SM_SQL_ARGS_SET ? sm_sq_bind_text(stmt, 2, bytes)
                                                    : sm_sq_bind_blob(stmt, 2, bytes));
}

static int write_event(semel_store *st, const semel_event *e, int64_t n)
{
    int rc;
    sqlite3_stmt *s = sm_sq_stmt(st->writer.conn, SM_SQL_EVENT_ADD, &rc);
    if (s == NULL)
        return rc;
    st->writer.newest = (sm_sq_seen){.seq = ++st->writer.last_seq, .hash = e->hash};
    sqlite3_bind_int64(s, 1, (int64_t)st->writer.last_seq);
    sqlite3_bind_int64(s, 2, n);
    sqlite3_bind_int64(s, 3, (int64_t)e->id);
    sqlite3_bind_int64(s, 4, (int64_t)e->generation);
    sqlite3_bind_int64(s, 5, (int64_t)e->index);
    sqlite3_bind_int64(s, 6, e->at);
    sqlite3_bind_int64(s, 12, e->shard);
    rc = sm_sq_bind_text(s, 7, e->what);
    rc |= sm_sq_bind_text(s, 8, e->actor);
    rc |= sm_sq_bind_text(s, 9, e->body);
    rc |= sm_sq_bind_hash(s, 10, &e->prev);
    rc |= sm_sq_bind_hash(s, 11, &e->hash);
    return run_bound(s, rc);
}

static int write_effect(sm_sq_conn *c, sm_sq_statement which, int64_t n, uint64_t version,
                        const semel_record *r)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    return stmt == NULL ? rc : run_bound(stmt, sm_sq_record_bind(stmt, n, version, r));
}

/* A record that was not there, with its name, payloads, event and counters. */
static int add_record(semel_store *st, sm_sq_request *r)
{
    sm_sq_conn *c = st->writer.conn;
    const semel_record *next = &r->w->next;
    int64_t n = (int64_t)++st->writer.last_n;
    int rc = write_effect(c, SM_SQL_EFFECT_ADD, n, 1, next);
    if (rc == SQLITE_OK && next->args.p != NULL)
        rc = write_payload(c, SM_SQL_ARGS_SET, n, next->args);
    if (rc == SQLITE_OK && next->outcome.p != NULL)
        rc = write_payload(c, SM_SQL_OUTCOME_SET, n, next->outcome);
    if (rc == SQLITE_OK) {
        sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_NAME_ADD, &rc);
        if (stmt == NULL)
            return rc;
        sqlite3_bind_int64(stmt, 1, (int64_t)next->id);
        sqlite3_bind_int64(stmt, 2, (int64_t)next->generation);
        rc = run_bound(stmt, sqlite3_bind_int64(stmt, 3, n));
    }
    if (rc == SQLITE_OK)
        rc = write_event(st, &r->w->event, n);
    if (rc == SQLITE_OK)
        rc = write_counters(c, r->w);
    r->version = 1;
    r->wrote = rc == SQLITE_OK;
    return rc;
}

static int set_record(semel_store *st, sm_sq_request *r, const head *h)
{
    sm_sq_conn *c = st->writer.conn;
    const semel_record *next = &r->w->next;
    r->version = h->version + 1;
    int rc = write_effect(c, SM_SQL_EFFECT_SET, h->n, r->version, next);
    if (rc == SQLITE_OK && !r->w->same_args)
        rc = next->args.p != NULL ? write_payload(c, SM_SQL_ARGS_SET, h->n, next->args)
                                  : run_one(c, SM_SQL_ARGS_DROP, h->n);
    if (rc == SQLITE_OK && !r->w->same_outcome)
        rc = next->outcome.p != NULL ? write_payload(c, SM_SQL_OUTCOME_SET, h->n, next->outcome)
                                     : run_one(c, SM_SQL_OUTCOME_DROP, h->n);
    if (rc == SQLITE_OK)
        rc = write_event(st, &r->w->event, h->n);
    if (rc == SQLITE_OK)
        rc = write_counters(c, r->w);
    r->wrote = rc == SQLITE_OK;
    return rc;
}

/* Barrier and counters; r->err says whether the write may go on. */
static int check(semel_store *st, sm_sq_request *r)
{
    int rc = check_barrier(st, r);
    if (rc == SQLITE_OK && r->err == SEMEL_OK)
        rc = check_counters(st, r);
    return rc;
}

static int claim(semel_store *st, sm_sq_request *r)
{
    head h;
    int rc = find_head(st, r, &h);
    if (rc != SQLITE_OK || r->err != SEMEL_OK)
        return rc;
    if (h.found)
        return give_row(st, r, h.n, SEMEL_OK);
    rc = check(st, r);
    if (rc != SQLITE_OK || r->err != SEMEL_OK)
        return rc;
    return add_record(st, r);
}

static int apply(semel_store *st, sm_sq_request *r)
{
    head h;
    int rc = find_head(st, r, &h);
    if (rc != SQLITE_OK || r->err != SEMEL_OK)
        return rc;
    if (!h.found) {
        r->err = sm_fault_set(r->fault, SEMEL_E_NOT_FOUND, "there is no record of this key");
        return SQLITE_OK;
    }
    if (h.generation != r->w->expect_generation || h.version != r->w->expect_version ||
        !sm_write_follows(r->w, &h.hash))
        return give_row(st, r, h.n, SEMEL_E_STALE);
    bool begins = r->w->next.generation != h.generation;
    rc = check(st, r);
    if (rc != SQLITE_OK || r->err != SEMEL_OK)
        return rc;
    r->unsettled = semel_state_settled(h.state);
    return begins ? add_record(st, r) : set_record(st, r, &h);
}

static int journal(semel_store *st, sm_sq_request *r)
{
    int rc = SQLITE_OK;
    for (size_t i = 0; i < r->n && rc == SQLITE_OK; i++) {
        const semel_note *note = &r->notes[i];
        sqlite3_stmt *s = sm_sq_stmt(st->writer.conn, SM_SQL_NOTE_ADD, &rc);
        if (s == NULL)
            return rc;
        sqlite3_bind_int64(s, 1, (int64_t)note->id);
        sqlite3_bind_int64(s, 2, (int64_t)note->generation);
        sqlite3_bind_int64(s, 3, note->first_at);
        sqlite3_bind_int64(s, 4, note->last_at);
        sqlite3_bind_int64(s, 5, (int64_t)note->count);
        rc = sm_sq_bind_text(s, 6, note->what);
        rc |= sm_sq_bind_text(s, 7, note->scope);
        rc |= sm_sq_bind_text(s, 8, note->tool);
        rc = run_bound(s, rc);
    }
    return rc;
}

static int seal(semel_store *st, sm_sq_request *r)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_SEAL_LAST, &rc);
    if (stmt == NULL)
        return rc;
    rc = sqlite3_step(stmt);
    uint64_t last = rc == SQLITE_ROW ? (uint64_t)sm_sq_int(stmt, 0) : 0;
    int reset = sqlite3_reset(stmt);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        return reset;
    if (last != r->expect) {
        r->err = sm_fault_set(r->fault, SEMEL_E_STALE, "somebody else has sealed meanwhile");
        return SQLITE_OK;
    }
    rc = write_event(st, r->seal, 0);
    r->wrote = rc == SQLITE_OK;
    return rc;
}

/* Writes a page without changing it: SQLite still writes and syncs it. */
static int try_page(semel_store *st)
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(st->writer.conn, SM_SQL_TRY, &rc);
    return stmt == NULL ? rc : sm_sq_run(stmt);
}

int sm_sq_execute(semel_store *st, sm_sq_request *r)
{
    r->err = SEMEL_OK;
    r->wrote = r->unsettled = false;
    r->now = sm_clock_ms();
    switch (r->kind) {
    case SM_SQ_CLAIM: return claim(st, r);
    case SM_SQ_APPLY: return apply(st, r);
    case SM_SQ_JOURNAL: return journal(st, r);
    case SM_SQ_SEAL: return seal(st, r);
    case SM_SQ_TRY: return try_page(st);
    case SM_SQ_PURGE: break;
    }
    return SQLITE_MISUSE;
}
