/*
 * Lists of records: by a filter, and what is due.
 *
 * A page looks at a bounded number of rows, of both tables in the order of `born`, and takes a
 * bounded number of bytes. The filter is applied by the server. What is open, and what bars a
 * group, is found by its partial index.
 */
#include "store/postgres/postgres.h"

#include "base/buf.h"
#include "core/glob.h"

enum { LOOK_MAX = 20000, LOOK_FIRST = 500, PAGE_MAX = 500, DUE_MAX = 1000 };

#define PAGE_BYTES  ((int64_t)4 << 20)
#define OPEN_STATES ((1u << SEMEL_S_SUCCEEDED) - 1)
#define BAR_STATES  (1u << SEMEL_S_RUNNING | 1u << SEMEL_S_IN_DOUBT)

/* ---- the filter ------------------------------------------------------------------------------*/

typedef struct query {
    sm_pg_args args;
    sm_buf slashed, like; /* the scope and a slash; the tool's pattern in the server's words */
    sm_pg_statement which;
} query;

/* * and ? become % and _, which else stand for themselves. */
static void put_like(sm_buf *b, semel_str pattern)
{
    for (size_t i = 0; i < pattern.n; i++) {
        char c = pattern.p[i];
        if (c == '%' || c == '_' || c == '\\')
            sm_buf_byte(b, '\\');
        sm_buf_byte(b, c == '*' ? '%' : c == '?' ? '_' : c);
    }
}

/* The scan that looks at the fewest rows. What runs or is in doubt in one group is asked for by
 * every call with a barrier. */
static sm_pg_statement choose(const semel_filter *f)
{
    static const semel_hash none;
    bool grouped = f->group != NULL && memcmp(f->group, &none, sizeof none) != 0;
    if (f->states != 0 && (f->states & ~BAR_STATES) == 0 && grouped)
        return SM_PGQ_QUERY_BARS;
    return f->states != 0 && (f->states & ~OPEN_STATES) == 0 ? SM_PGQ_QUERY_OPEN : SM_PGQ_QUERY;
}

static sm_err query_init(query *q, const semel_filter *f)
{
    semel_str scope = f->scope, none = {0};
    sm_buf_init(&q->slashed, 4096);
    sm_buf_init(&q->like, 4096);
    while (scope.n > 0 && scope.p[scope.n - 1] == '/')
        scope.n--;
    if (scope.n == 0)
        scope = none; /* every scope lies below the empty one */
    sm_buf_str(&q->slashed, scope);
    sm_buf_byte(&q->slashed, '/');
    bool pattern = f->tool.p != NULL && sm_glob_is(f->tool);
    put_like(&q->like, pattern ? f->tool : none);
    q->which = choose(f);
    sm_pg_args *a = &q->args;
    for (int i = 0; i < 3; i++)
        sm_pg_add_int(a, 0); /* each page sets these: born, how many to look at and to give */
    sm_pg_add_int(a, f->states);
    sm_pg_add_int(a, f->since);
    sm_pg_add_int(a, f->until);
    sm_pg_add_bytes(
        a, f->group == NULL ? none : (semel_str){(const char *)f->group->b, sizeof f->group->b});
    sm_pg_add_bytes(a, scope);
    sm_pg_add_bytes(a, sm_buf_view(&q->slashed));
    sm_pg_add_bytes(a, pattern ? none : f->tool);
    sm_pg_add_bytes(a, !pattern ? none : q->like.len == 0 ? SM_STR("") : sm_buf_view(&q->like));
    sm_pg_add_int(a, PAGE_BYTES);
    return q->slashed.err != SM_OK ? q->slashed.err : q->like.err;
}

static void query_fini(query *q)
{
    sm_buf_fini(&q->slashed);
    sm_buf_fini(&q->like);
}

static void set_int(sm_pg_args *a, int at, int64_t value)
{
    int n = a->n;
    a->n = at;
    sm_pg_add_int(a, value);
    a->n = n;
}

/* ---- pages -----------------------------------------------------------------------------------*/

/* What became of a page. */
typedef struct page {
    int64_t looked, last; /* rows looked at, and the oldest of them */
    int64_t matched;      /* of these the filter wants */
    int64_t below;        /* where to go on; 0: there is no more */
    size_t given;
    bool go_on;
} page;

static semel_err give_page(semel_store *st, query *q, int64_t below, size_t limit, int64_t look,
                           semel_record_sink *sink, void *context, page *p, semel_fault *fault)
{
    enum { BORN = 3, FIRST = 4, NOW = FIRST + SM_PG_RECORD_COLUMNS };
    set_int(&q->args, 0, below);
    set_int(&q->args, 1, look);
    set_int(&q->args, 2, (int64_t)limit);
    sm_pg_question question = {.which = q->which, .args = &q->args};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &question, &r, fault);
    *p = (page){.go_on = true};
    if (e != SEMEL_OK)
        return e;
    p->looked = sm_pg_int(r, 0, 0);
    p->last = sm_pg_int(r, 0, 1);
    p->matched = sm_pg_int(r, 0, 2);
    for (int i = 0; i < PQntuples(r) && p->go_on && !sm_pg_null(r, i, BORN); i++) {
        semel_record view;
        sm_pg_record_view(r, i, FIRST, &view);
        p->below = sm_pg_int(r, i, BORN);
        p->given++;
        p->go_on = sink(context, &view, sm_pg_int(r, i, NOW));
    }
    /* All that matched was given, and there was room for more: the scan came to its own end. */
    if (p->go_on && (int64_t)p->given == p->matched && p->given < limit)
        p->below = p->looked < look ? 0 : p->last;
    PQclear(r);
    return e;
}

/* Looks at few rows as long as many of them match, and at more and more when few do. */
semel_err sm_pg_query(semel_store *st, const semel_filter *filter, uint64_t *cursor, size_t limit,
                      semel_record_sink *sink, void *context, semel_fault *fault)
{
    query q = {0};
    int64_t below = *cursor == 0 || *cursor > INT64_MAX ? INT64_MAX : (int64_t)*cursor;
    int64_t budget = LOOK_MAX, look = LOOK_FIRST;
    sm_err err = query_init(&q, filter);
    semel_err e = err == SM_OK ? err : sm_fault_set(fault, err, "the filter is too long");
    page p = {.go_on = true};
    while (e == SEMEL_OK && p.go_on && limit > 0 && budget > 0 && below > 0) {
        look = look < budget ? look : budget;
        e = give_page(st, &q, below, limit < PAGE_MAX ? limit : PAGE_MAX, look, sink, context, &p,
                      fault);
        if (e != SEMEL_OK)
            break;
        below = p.below;
        limit -= p.given;
        budget -= p.looked;
        look = p.matched < p.looked / 2 ? look * 4 : look;
    }
    if (e == SEMEL_OK)
        *cursor = (uint64_t)below;
    query_fini(&q);
    return e;
}

/* What does not fit is due the next time too. */
semel_err sm_pg_due(semel_store *st, size_t limit, semel_record_sink *sink, void *context,
                    semel_fault *fault)
{
    sm_pg_args args = {0};
    sm_pg_add_int(&args, (int64_t)(limit < DUE_MAX ? limit : DUE_MAX));
    sm_pg_add_int(&args, PAGE_BYTES);
    sm_pg_question q = {.which = SM_PGQ_DUE, .args = &args};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &q, &r, fault);
    bool go_on = true;
    for (int i = 0; e == SEMEL_OK && go_on && i < PQntuples(r); i++) {
        semel_record view;
        sm_pg_record_view(r, i, 1, &view);
        go_on = sink(context, &view, sm_pg_int(r, i, 0));
    }
    PQclear(r);
    return e;
}
