/*
 * Keeping house: the journal of notes, and purge.
 *
 * Purge works in short transactions of a few hundred rows, and passes over rows that somebody has
 * locked: whoever writes does not wait for it, and it does not wait for who writes. What it removes
 * is found by an index, never by reading a table.
 */
#include "store/postgres/postgres.h"

#include "base/buf.h"

enum { NOTES_AT_ONCE = 500 };

#define NOTES_BYTES_MAX ((size_t)8 << 20)

/* ---- journal ---------------------------------------------------------------------------------*/

static semel_err journal_some(semel_store *st, const semel_note *notes, size_t n,
                              semel_fault *fault)
{
    enum { ARRAYS = 8, NUMBERS = 5 };
    sm_buf arrays[ARRAYS];
    for (size_t k = 0; k < ARRAYS; k++) {
        sm_buf_init(&arrays[k], NOTES_BYTES_MAX);
        sm_pg_array_start(&arrays[k], k >= NUMBERS, n);
    }
    for (size_t i = 0; i < n; i++) {
        const semel_note *note = &notes[i];
        const int64_t numbers[NUMBERS] = {(int64_t)note->id, (int64_t)note->generation,
                                          note->first_at, note->last_at, (int64_t)note->count};
        const semel_str texts[ARRAYS - NUMBERS] = {note->what, note->scope, note->tool};
        for (size_t k = 0; k < ARRAYS; k++) {
            if (k < NUMBERS)
                sm_pg_array_int(&arrays[k], numbers[k]);
            else
                sm_pg_array_bytes(&arrays[k], texts[k - NUMBERS]);
        }
    }
    sm_pg_args args = {0};
    sm_err bad = SM_OK;
    for (size_t k = 0; k < ARRAYS; k++) {
        sm_pg_add_array(&args, k >= NUMBERS, sm_buf_view(&arrays[k]));
        bad = arrays[k].err != SM_OK ? arrays[k].err : bad;
    }
    sm_pg_question q = {.which = SM_PGQ_JOURNAL, .args = &args}; /* may be lost: nothing to doubt */
    PGresult *r = NULL;
    semel_err e = bad == SM_OK ? sm_pg_ask(st, &q, &r, fault)
                               : sm_fault_set(fault, bad, "%s", semel_err_text(bad));
    PQclear(r);
    for (size_t k = 0; k < ARRAYS; k++)
        sm_buf_fini(&arrays[k]);
    return e;
}

semel_err sm_pg_journal(semel_store *st, const semel_note *notes, size_t n, semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    while (e == SEMEL_OK && n > 0) {
        size_t some = n < NOTES_AT_ONCE ? n : NOTES_AT_ONCE;
        e = journal_some(st, notes, some, fault);
        notes += some;
        n -= some;
    }
    return e;
}

/* ---- purge -----------------------------------------------------------------------------------*/

typedef struct sweeping {
    semel_store *st;
    size_t budget;
    uint64_t done;
    bool left;
    semel_fault *fault;
} sweeping;

/* What a step took; all that it was allowed means that there may be more. */
static void account(sweeping *s, uint64_t n)
{
    s->left = s->left || n >= s->budget;
    s->budget -= n < s->budget ? n : s->budget;
    s->done += n;
}

static semel_err sweep_records(sweeping *s, sm_pg_statement which)
{
    if (s->budget == 0)
        return SEMEL_OK;
    sm_pg_args args = {0};
    sm_pg_add_int(&args, (int64_t)s->budget);
    sm_pg_question q = {.which = which, .args = &args};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(s->st, &q, &r, s->fault);
    for (int i = 0; e == SEMEL_OK && i < PQntuples(r); i++) {
        semel_hash key;
        sm_pg_hash(r, i, 0, &key);
        sm_bell_ring(&s->st->waits.bell, &key);
    }
    if (e == SEMEL_OK)
        account(s, (uint64_t)PQntuples(r));
    PQclear(r);
    return e;
}

/* Events, notes and counters: each statement takes what `args` has, then a count, and says how many
 * went. */
static semel_err sweep_rest(sweeping *s, sm_pg_statement which, sm_pg_args *args)
{
    if (s->budget == 0)
        return SEMEL_OK;
    sm_pg_add_int(args, (int64_t)s->budget);
    sm_pg_question q = {.which = which, .args = args};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(s->st, &q, &r, s->fault);
    if (e == SEMEL_OK)
        account(s, (uint64_t)sm_pg_int(r, 0, 0));
    PQclear(r);
    return e;
}

/* Those up to a bound; 0: none. */
static semel_err sweep_up_to(sweeping *s, sm_pg_statement which, int64_t bound)
{
    sm_pg_args args = {0};
    sm_pg_add_int(&args, bound);
    return bound <= 0 ? SEMEL_OK : sweep_rest(s, which, &args);
}

semel_err sm_pg_purge(semel_store *st, size_t limit, uint64_t events_to, int64_t notes_before,
                      uint64_t *done, bool *left, semel_fault *fault)
{
    sweeping s = {
        .st = st, .budget = limit < SM_PG_PURGE_MAX ? limit : SM_PG_PURGE_MAX, .fault = fault};
    int64_t seq = events_to > INT64_MAX ? INT64_MAX : (int64_t)events_to;
    semel_err e = sweep_records(&s, SM_PGQ_SWEEP_OLD); /* an older one goes before the newest */
    if (e == SEMEL_OK)
        e = sweep_records(&s, SM_PGQ_SWEEP);
    if (e == SEMEL_OK)
        e = sweep_up_to(&s, SM_PGQ_SWEEP_EVENTS, seq);
    if (e == SEMEL_OK)
        e = sweep_up_to(&s, SM_PGQ_SWEEP_NOTES, notes_before);
    if (e == SEMEL_OK)
        e = sweep_rest(&s, SM_PGQ_SWEEP_COUNTERS, &(sm_pg_args){0});
    if (e == SEMEL_OK)
        *left = s.left;
    *done += s.done;
    return e;
}
