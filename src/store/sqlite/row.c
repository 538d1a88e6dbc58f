/*
 * Records to and from rows.
 *
 * A time that is absent (0) is NULL in the file, as is a text that is absent and a hash that is
 * zero. Unsigned numbers are stored as the signed ones with the same bits.
 */
#include "store/sqlite/sqlite.h"

#include <stdlib.h>

int64_t sm_sq_int(sqlite3_stmt *stmt, int column)
{
    return sqlite3_column_int64(stmt, column);
}

semel_str sm_sq_text(sqlite3_stmt *stmt, int column)
{
    if (sqlite3_column_type(stmt, column) == SQLITE_NULL)
        return (semel_str){0};
    const char *p = sqlite3_column_blob(stmt, column);
    size_t n = (size_t)sqlite3_column_bytes(stmt, column);
    return (semel_str){p == NULL ? "" : p, n};
}

void sm_sq_hash(sqlite3_stmt *stmt, int column, semel_hash *out)
{
    const void *p = sqlite3_column_blob(stmt, column);
    if (p != NULL && sqlite3_column_bytes(stmt, column) == (int)sizeof *out)
        memcpy(out, p, sizeof *out);
    else
        memset(out, 0, sizeof *out);
}

int sm_sq_bind_text(sqlite3_stmt *stmt, int parameter, semel_str s)
{
    return sqlite3_bind_text64(stmt, parameter, s.p, s.n, SQLITE_STATIC, SQLITE_UTF8);
}

int sm_sq_bind_blob(sqlite3_stmt *stmt, int parameter, semel_str s)
{
    return sqlite3_bind_blob64(stmt, parameter, s.p, s.n, SQLITE_STATIC);
}

bool sm_sq_hash_is_zero(const semel_hash *h)
{
    static const semel_hash zero;
    return memcmp(h, &zero, sizeof zero) == 0;
}

int sm_sq_bind_hash(sqlite3_stmt *stmt, int parameter, const semel_hash *h)
{
    if (sm_sq_hash_is_zero(h))
        return sqlite3_bind_null(stmt, parameter);
    return sqlite3_bind_blob(stmt, parameter, h->b, sizeof h->b, SQLITE_STATIC);
}

void sm_sq_record_view(sqlite3_stmt *stmt, semel_record *r)
{
    sm_sq_hash(stmt, 0, &r->key);
    r->id = (uint64_t)sm_sq_int(stmt, 1);
    r->generation = (uint64_t)sm_sq_int(stmt, 2);
    r->version = (uint64_t)sm_sq_int(stmt, 3);
    r->shard = (uint8_t)sm_sq_int(stmt, 4);
    r->state = sm_record_state(sm_sq_int(stmt, 5));
    r->tombstone = (uint8_t)sm_sq_int(stmt, 6);
    r->fence = (uint64_t)sm_sq_int(stmt, 7);
    sm_sq_hash(stmt, 8, &r->group);
    sm_sq_hash(stmt, 9, &r->fingerprint);
    sm_sq_hash(stmt, 10, &r->head);
    r->events = (uint64_t)sm_sq_int(stmt, 11);
    r->created_at = sm_sq_int(stmt, 12);
    r->updated_at = sm_sq_int(stmt, 13);
    r->lease_end = sm_sq_int(stmt, 14);
    r->due_at = sm_sq_int(stmt, 15);
    r->settled_at = sm_sq_int(stmt, 16);
    r->result_end = sm_sq_int(stmt, 17);
    r->window_end = sm_sq_int(stmt, 18);
    r->purge_at = sm_sq_int(stmt, 19);
    r->scope = sm_sq_text(stmt, 20);
    r->step = sm_sq_text(stmt, 21);
    r->tool = sm_sq_text(stmt, 22);
    r->caller = sm_sq_text(stmt, 23);
    r->args = sm_sq_text(stmt, 24);
    r->life = sm_sq_text(stmt, 25);
    r->outcome = sm_sq_text(stmt, 26);
}

int64_t sm_sq_sweep_at(int64_t result_end, int64_t window_end, int64_t purge_at, bool has_outcome,
                       bool has_args)
{
    int64_t at = SM_SQ_NEVER;
    if (has_outcome && result_end > 0 && result_end < at)
        at = result_end;
    if ((has_outcome || has_args) && window_end > 0 && window_end < at)
        at = window_end;
    if (purge_at > 0 && purge_at < at)
        at = purge_at;
    return at == SM_SQ_NEVER ? 0 : at;
}

/* Binds a number, or NULL for an absent one. */
static int bind_time(sqlite3_stmt *stmt, int parameter, int64_t at)
{
    return at == 0 ? sqlite3_bind_null(stmt, parameter) : sqlite3_bind_int64(stmt, parameter, at);
}

/* From when on an effect bars others of its group. All that run or are in doubt have such a time,
 * and only those in doubt have 0: that is how a query by group finds them. */
static int bind_bar(sqlite3_stmt *stmt, int parameter, const semel_record *r)
{
    if (sm_sq_hash_is_zero(&r->group))
        return sqlite3_bind_null(stmt, parameter);
    if (r->state == SEMEL_S_IN_DOUBT)
        return sqlite3_bind_int64(stmt, parameter, 0);
    if (r->state == SEMEL_S_RUNNING)
        return sqlite3_bind_int64(stmt, parameter, r->lease_end > 0 ? r->lease_end : SM_SQ_NEVER);
    return sqlite3_bind_null(stmt, parameter);
}

int sm_sq_record_bind(sqlite3_stmt *s, int64_t n, uint64_t version, const semel_record *r)
{
    bool over = semel_state_settled(r->state) || r->state == SEMEL_S_NONE;
    int64_t sweep_at = over ? sm_sq_sweep_at(r->result_end, r->window_end, r->purge_at,
                                             r->outcome.p != NULL, r->args.p != NULL)
                            : 0;
    int rc = sqlite3_bind_int64(s, 1, n);
    rc |= sqlite3_bind_int64(s, 2, (int64_t)r->id);
    rc |= sqlite3_bind_int64(s, 3, (int64_t)r->generation);
    rc |= sqlite3_bind_int64(s, 4, (int64_t)version);
    rc |= sqlite3_bind_int(s, 5, r->shard);
    rc |= sqlite3_bind_int(s, 6, r->state);
    rc |= sqlite3_bind_int(s, 7, r->tombstone);
    rc |= sqlite3_bind_int64(s, 8, (int64_t)r->fence);
    rc |= sqlite3_bind_int64(s, 9, (int64_t)r->events);
    rc |= bind_time(s, 10, r->created_at);
    rc |= bind_time(s, 11, r->updated_at);
    rc |= bind_time(s, 12, r->lease_end);
    rc |= bind_time(s, 13, r->due_at);
    rc |= bind_time(s, 14, r->settled_at);
    rc |= bind_time(s, 15, r->result_end);
    rc |= bind_time(s, 16, r->window_end);
    rc |= bind_time(s, 17, r->purge_at);
    rc |= bind_time(s, 18, sweep_at);
    rc |= sqlite3_bind_blob(s, 19, r->key.b, sizeof r->key.b, SQLITE_STATIC);
    rc |= sm_sq_bind_hash(s, 20, &r->group);
    rc |= sm_sq_bind_hash(s, 21, &r->fingerprint);
    rc |= sm_sq_bind_hash(s, 22, &r->head);
    rc |= sm_sq_bind_text(s, 23, r->scope);
    rc |= sm_sq_bind_text(s, 24, r->step);
    rc |= sm_sq_bind_text(s, 25, r->tool);
    rc |= sm_sq_bind_text(s, 26, r->caller);
    rc |= sm_sq_bind_blob(s, 27, r->life);
    rc |= bind_bar(s, 28, r);
    return rc == SQLITE_OK ? SQLITE_OK : SQLITE_NOMEM; /* what else could fail is a mistake */
}

static void *scratch_alloc(semel_room *room, size_t n)
{
    sm_sq_scratch *s = (sm_sq_scratch *)room;
    if (n > s->n) {
        free(s->p);
        s->n = 0;
        s->p = malloc(n);
        if (s->p != NULL)
            s->n = n;
    }
    return s->p;
}

semel_err sm_sq_reading_start(semel_store *st, sm_sq_reading *r, semel_fault *fault)
{
    *r = (sm_sq_reading){.scratch = {.room = {scratch_alloc}}};
    return sm_sq_reader(st, &r->c, fault);
}

void sm_sq_reading_end(semel_store *st, sm_sq_reading *r)
{
    free(r->scratch.p);
    sm_sq_reader_return(st, r->c);
}
