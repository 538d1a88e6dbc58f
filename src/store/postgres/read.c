/*
 * Reading one thing or one effect's things: a record, events, notes, a counter.
 *
 * What is read is committed, and so durable. No connection is held while a sink runs: it may use
 * the store, and the pool may be small.
 */
#include "store/postgres/postgres.h"

#include <time.h>

enum { EVENTS_PAGE = 500, SETTLE_MS = 100, SETTLE_STEP_MS = 2 };

semel_err sm_pg_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                    int64_t *now, semel_fault *fault)
{
    uint64_t id = ref->id;
    bool newest = ref->key != NULL || ref->generation == 0;
    *now = 0;
    semel_err e = ref->key == NULL ? SEMEL_OK : sm_pg_id(st, ref->key, &id, fault);
    if (e != SEMEL_OK)
        return e;
    sm_pg_args args = {0};
    sm_pg_add_int(&args, (int64_t)id);
    if (!newest)
        sm_pg_add_int(&args, (int64_t)ref->generation);
    sm_pg_question q = {.which = newest ? SM_PGQ_NEWEST : SM_PGQ_GENERATION, .args = &args};
    PGresult *r = NULL;
    e = sm_pg_ask(st, &q, &r, fault);
    if (e == SEMEL_OK) {
        semel_record view;
        *now = sm_pg_int(r, 0, 0);
        sm_pg_record_view(r, 0, 1, &view);
        if (sm_pg_null(r, 0, 2))
            e = sm_fault_set(fault, SEMEL_E_NOT_FOUND, "there is no such record");
        else if (ref->key != NULL && memcmp(ref->key, &view.key, sizeof view.key) != 0)
            e = sm_pg_collision(st, fault);
        else
            e = sm_pg_record_copy(&view, room, cur, fault);
    }
    PQclear(r);
    return e;
}

semel_err sm_pg_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                        semel_fault *fault)
{
    (void)shard;
    *value = 0;
    sm_pg_args args = {0};
    sm_pg_add_bytes(&args, name);
    sm_pg_question q = {.which = SM_PGQ_COUNTER, .args = &args};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &q, &r, fault);
    if (e == SEMEL_OK && PQntuples(r) > 0)
        *value = sm_pg_int(r, 0, 0);
    PQclear(r);
    return e;
}

/* ---- events ----------------------------------------------------------------------------------*/

/* An event is given to a follower when no transaction runs that could still come with a smaller
 * seq. So what was committed a moment ago may be hidden for as long as somebody's transaction
 * takes, which is mostly no time at all. */
semel_err sm_pg_settle(semel_store *st, uint64_t *newest, semel_fault *fault)
{
    int64_t deadline_ns = sm_clock_deadline_ns(SETTLE_MS), last = -1;
    sm_pg_args none = {0};
    *newest = 0;
    for (;;) {
        sm_pg_question q = {.which = SM_PGQ_LAST_SEQ, .args = &none};
        PGresult *r = NULL;
        semel_err e = sm_pg_ask(st, &q, &r, fault);
        bool done = true;
        if (e == SEMEL_OK && PQntuples(r) == 1) {
            last = last < 0 ? sm_pg_int(r, 0, 0) : last;
            *newest = (uint64_t)last;
            done = last < sm_pg_int(r, 0, 1) || sm_clock_mono_ns() >= deadline_ns;
        }
        PQclear(r);
        if (e != SEMEL_OK || done)
            return e;
        struct timespec step = {.tv_nsec = SETTLE_STEP_MS * 1000000};
        nanosleep(&step, NULL);
    }
}

static void event_view(const PGresult *r, int row, semel_event *e)
{
    *e = (semel_event){.seq = (uint64_t)sm_pg_int(r, row, 0),
                       .id = (uint64_t)sm_pg_int(r, row, 1),
                       .generation = (uint64_t)sm_pg_int(r, row, 2),
                       .shard = (uint8_t)sm_pg_int(r, row, 3),
                       .index = (uint64_t)sm_pg_int(r, row, 4),
                       .at = sm_pg_int(r, row, 5),
                       .what = sm_pg_bytes(r, row, 6),
                       .actor = sm_pg_bytes(r, row, 7),
                       .body = sm_pg_bytes(r, row, 8)};
    sm_pg_hash(r, row, 9, &e->prev);
    sm_pg_hash(r, row, 10, &e->hash);
}

static semel_err read_events(semel_store *st, const semel_ref *of, uint64_t after, size_t n,
                             PGresult **out, semel_fault *fault)
{
    sm_pg_args args = {0};
    int64_t from = after > INT64_MAX ? INT64_MAX : (int64_t)after;
    if (of != NULL)
        sm_pg_add_int(&args, (int64_t)of->id);
    sm_pg_add_int(&args, from);
    if (of != NULL)
        sm_pg_add_int(&args, (int64_t)of->generation);
    sm_pg_add_int(&args, (int64_t)n);
    sm_pg_question q = {.which = of != NULL ? SM_PGQ_EVENTS_OF : SM_PGQ_EVENTS, .args = &args};
    return sm_pg_ask(st, &q, out, fault);
}

semel_err sm_pg_events(semel_store *st, const semel_ref *of, uint64_t *after, size_t limit,
                       semel_event_sink *sink, void *context, semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    bool go_on = true, settled = of != NULL;
    while (e == SEMEL_OK && go_on && limit > 0) {
        size_t page = limit < EVENTS_PAGE ? limit : EVENTS_PAGE;
        PGresult *r = NULL;
        e = read_events(st, of, *after, page, &r, fault);
        int n = e == SEMEL_OK ? PQntuples(r) : 0;
        for (int i = 0; i < n && go_on; i++) {
            semel_event event;
            event_view(r, i, &event);
            *after = event.seq;
            limit--;
            go_on = sink(context, &event);
        }
        PQclear(r);
        if (e != SEMEL_OK || (size_t)n == page)
            continue;
        if (settled)
            break;
        settled = true;
        uint64_t newest = 0;
        if (go_on)
            e = sm_pg_settle(st, &newest, fault);
        if (newest <= *after)
            break;
    }
    return e;
}

/* ---- notes -----------------------------------------------------------------------------------*/

enum { NOTES_MAX = 100000 };

semel_err sm_pg_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                      semel_note_sink *sink, void *context, semel_fault *fault)
{
    sm_pg_args args = {0};
    sm_pg_add_int(&args, (int64_t)id);
    sm_pg_add_int(&args, (int64_t)generation);
    sm_pg_add_int(&args, (int64_t)(limit < NOTES_MAX ? limit : NOTES_MAX));
    sm_pg_question q = {.which = SM_PGQ_NOTES, .args = &args};
    PGresult *r = NULL;
    semel_err e = sm_pg_ask(st, &q, &r, fault);
    bool go_on = true;
    for (int i = 0; e == SEMEL_OK && go_on && i < PQntuples(r); i++) {
        semel_note note = {.id = (uint64_t)sm_pg_int(r, i, 0),
                           .generation = (uint64_t)sm_pg_int(r, i, 1),
                           .first_at = sm_pg_int(r, i, 2),
                           .last_at = sm_pg_int(r, i, 3),
                           .count = (uint64_t)sm_pg_int(r, i, 4),
                           .what = sm_pg_bytes(r, i, 5),
                           .scope = sm_pg_bytes(r, i, 6),
                           .tool = sm_pg_bytes(r, i, 7)};
        go_on = sink(context, &note);
    }
    PQclear(r);
    return e;
}
