/*
 * Records to parameters and from rows, all in the server's binary form.
 *
 * A time that is absent (0) is NULL, as is a text that is absent and a hash that is zero. Unsigned
 * numbers are stored as the signed ones with the same bits.
 */
#include "store/postgres/postgres.h"

#include <assert.h>
#include <endian.h>

#include "base/buf.h"

/* The server's numbers for its types; they never change. */
enum {
    TYPE_BYTEA = 17,
    TYPE_INT8 = 20,
    TYPE_TEXT = 25,
    TYPE_BYTEA_ARRAY = 1001,
    TYPE_INT8_ARRAY = 1016
};

/* ---- parameters ------------------------------------------------------------------------------*/

static void add(sm_pg_args *a, Oid type, const char *p, size_t n)
{
    assert(a->n < SM_PG_PARAMS_MAX && n <= INT32_MAX);
    a->types[a->n] = type;
    a->values[a->n] = p;
    a->lengths[a->n++] = (int)n;
}

void sm_pg_add_int(sm_pg_args *a, int64_t value)
{
    uint64_t *number = &a->numbers[a->n];
    *number = htobe64((uint64_t)value);
    add(a, TYPE_INT8, (const char *)number, sizeof *number);
}

static void add_time(sm_pg_args *a, int64_t at)
{
    if (at != 0)
        sm_pg_add_int(a, at);
    else
        add(a, TYPE_INT8, NULL, 0);
}

void sm_pg_add_bytes(sm_pg_args *a, semel_str s)
{
    add(a, TYPE_BYTEA, s.p, s.p == NULL ? 0 : s.n);
}

static bool is_zero(const semel_hash *h)
{
    static const semel_hash zero;
    return memcmp(h, &zero, sizeof zero) == 0;
}

void sm_pg_add_hash(sm_pg_args *a, const semel_hash *h)
{
    bool zero = is_zero(h);
    add(a, TYPE_BYTEA, zero ? NULL : (const char *)h->b, zero ? 0 : sizeof h->b);
}

void sm_pg_add_text(sm_pg_args *a, const char *text)
{
    add(a, TYPE_TEXT, text, strlen(text));
}

void sm_pg_add_array(sm_pg_args *a, bool bytes, semel_str encoded)
{
    add(a, bytes ? TYPE_BYTEA_ARRAY : TYPE_INT8_ARRAY, encoded.p, encoded.n);
}

static void put32(sm_buf *b, uint32_t v)
{
    v = htobe32(v);
    sm_buf_bytes(b, &v, sizeof v);
}

void sm_pg_array_start(sm_buf *b, bool bytes, size_t n)
{
    put32(b, n == 0 ? 0 : 1); /* dimensions */
    put32(b, 1);              /* there may be NULLs */
    put32(b, bytes ? TYPE_BYTEA : TYPE_INT8);
    if (n > 0) {
        put32(b, (uint32_t)n);
        put32(b, 1); /* the first index */
    }
}

void sm_pg_array_int(sm_buf *b, int64_t value)
{
    uint64_t v = htobe64((uint64_t)value);
    put32(b, sizeof v);
    sm_buf_bytes(b, &v, sizeof v);
}

void sm_pg_array_bytes(sm_buf *b, semel_str s)
{
    put32(b, s.p == NULL ? UINT32_MAX : (uint32_t)s.n);
    sm_buf_bytes(b, s.p, s.p == NULL ? 0 : s.n);
}

/* When purge has next something to do for a record, or 0. */
static int64_t sweep_at(const semel_record *r)
{
    if (!semel_state_settled(r->state) && r->state != SEMEL_S_NONE)
        return 0;
    bool outcome = r->outcome.p != NULL, args = r->args.p != NULL;
    int64_t at = SM_PG_NEVER;
    if (outcome && r->result_end > 0 && r->result_end < at)
        at = r->result_end;
    if ((outcome || args) && r->window_end > 0 && r->window_end < at)
        at = r->window_end;
    if (r->purge_at > 0 && r->purge_at < at)
        at = r->purge_at;
    return at == SM_PG_NEVER ? 0 : at;
}

/* From when on a record bars others of its group: at once if it is in doubt, at the end of its
 * lease if it runs; else never, which is NULL. */
static void add_bar(sm_pg_args *a, const semel_record *r)
{
    bool grouped = !is_zero(&r->group);
    if (grouped && r->state == SEMEL_S_IN_DOUBT)
        sm_pg_add_int(a, 0);
    else if (grouped && r->state == SEMEL_S_RUNNING)
        sm_pg_add_int(a, r->lease_end > 0 ? r->lease_end : SM_PG_NEVER);
    else
        add_time(a, 0);
}

int64_t sm_pg_bars_until(const semel_write *w)
{
    return w->alone ? SM_PG_NEVER : 0; /* the end of any lease is before that */
}

void sm_pg_add_write(sm_pg_args *a, const semel_write *w, bool replaces)
{
    const semel_record *r = &w->next;
    const semel_event *e = &w->event;
    const int64_t numbers[] = {(int64_t)r->id, (int64_t)r->generation, r->shard,          r->state,
                               r->tombstone,   (int64_t)r->fence,      (int64_t)r->events};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sm_pg_add_int(a, numbers[i]);
    const int64_t times[] = {r->created_at, r->updated_at, r->lease_end, r->due_at,  r->settled_at,
                             r->result_end, r->window_end, r->purge_at,  sweep_at(r)};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        add_time(a, times[i]);
    add_bar(a, r);
    sm_pg_add_bytes(a, (semel_str){(const char *)r->key.b, sizeof r->key.b});
    sm_pg_add_hash(a, &r->group);
    sm_pg_add_hash(a, &r->fingerprint);
    sm_pg_add_hash(a, &r->head);
    const semel_str texts[] = {r->scope, r->step, r->tool, r->caller, r->life};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        sm_pg_add_bytes(a, texts[i]);
    bool same_args = replaces && w->same_args, same_outcome = replaces && w->same_outcome;
    sm_pg_add_bytes(a, same_args ? (semel_str){0} : r->args);
    sm_pg_add_bytes(a, same_outcome ? (semel_str){0} : r->outcome);
    sm_pg_add_int(a, (int64_t)e->index);
    sm_pg_add_int(a, e->at);
    sm_pg_add_bytes(a, e->what);
    sm_pg_add_bytes(a, e->actor);
    sm_pg_add_bytes(a, e->body);
    sm_pg_add_hash(a, &e->prev);
    sm_pg_add_hash(a, &e->hash);
    sm_pg_add_int(a, w->now);
    sm_pg_add_int(a, (int64_t)w->expect_generation);
    sm_pg_add_int(a, (int64_t)w->expect_version);
    sm_pg_add_int(a, same_args);
    sm_pg_add_int(a, same_outcome);
    sm_pg_add_int(a, sm_pg_bars_until(w));
    assert(a->n == 41);
}

/* ---- rows ------------------------------------------------------------------------------------*/

bool sm_pg_null(const PGresult *r, int row, int column)
{
    return PQgetisnull(r, row, column) != 0;
}

int64_t sm_pg_int(const PGresult *r, int row, int column)
{
    const char *p = PQgetvalue(r, row, column);
    uint64_t v8;
    uint32_t v4;
    uint16_t v2;
    switch (PQgetlength(r, row, column)) {
    case 8: memcpy(&v8, p, sizeof v8); return (int64_t)be64toh(v8);
    case 4: memcpy(&v4, p, sizeof v4); return (int32_t)be32toh(v4);
    case 2: memcpy(&v2, p, sizeof v2); return (int16_t)be16toh(v2);
    case 1: return p[0];
    default: return 0; /* NULL */
    }
}

bool sm_pg_bool(const PGresult *r, int row, int column)
{
    return sm_pg_int(r, row, column) != 0;
}

semel_str sm_pg_bytes(const PGresult *r, int row, int column)
{
    if (sm_pg_null(r, row, column))
        return (semel_str){0};
    return (semel_str){PQgetvalue(r, row, column), (size_t)PQgetlength(r, row, column)};
}

void sm_pg_hash(const PGresult *r, int row, int column, semel_hash *out)
{
    semel_str s = sm_pg_bytes(r, row, column);
    if (s.p != NULL && s.n == sizeof *out)
        memcpy(out, s.p, sizeof *out);
    else
        memset(out, 0, sizeof *out);
}

void sm_pg_record_view(const PGresult *r, int row, int column, semel_record *out)
{
    int c = column;
    sm_pg_hash(r, row, c++, &out->key);
    out->id = (uint64_t)sm_pg_int(r, row, c++);
    out->generation = (uint64_t)sm_pg_int(r, row, c++);
    out->version = (uint64_t)sm_pg_int(r, row, c++);
    out->shard = (uint8_t)sm_pg_int(r, row, c++);
    out->state = sm_record_state(sm_pg_int(r, row, c++));
    out->tombstone = (uint8_t)sm_pg_int(r, row, c++);
    out->fence = (uint64_t)sm_pg_int(r, row, c++);
    out->events = (uint64_t)sm_pg_int(r, row, c++);
    int64_t *const times[] = {&out->created_at, &out->updated_at, &out->lease_end,  &out->due_at,
                              &out->settled_at, &out->result_end, &out->window_end, &out->purge_at};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = sm_pg_int(r, row, c++);
    sm_pg_hash(r, row, c++, &out->group);
    sm_pg_hash(r, row, c++, &out->fingerprint);
    sm_pg_hash(r, row, c++, &out->head);
    semel_str *const texts[] = {&out->scope, &out->step, &out->tool,   &out->caller,
                                &out->life,  &out->args, &out->outcome};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        *texts[i] = sm_pg_bytes(r, row, c++);
    assert(c == column + SM_PG_RECORD_COLUMNS);
}

semel_err sm_pg_record_copy(const semel_record *from, semel_room *room, semel_record *to,
                            semel_fault *fault)
{
    return sm_record_copy(from, room, to) == SEMEL_OK ? SEMEL_OK : sm_pg_nomem(fault);
}
