/*
 * Runs, each in one line: what calls of one scope did, and whether it is let go on.
 *
 * The loop state of a run is a document of the ledger as soon as the run is to be warned. That of
 * each run on the page is read; the effect that a run called last tells which tool's ladder counts.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/given.h"
#include "core/call.h"
#include "json/write.h"
#include "ledger/guard/shared.h"
#include "ledger/report/report.h"

#define DAY_MS        ((int64_t)24 * 3600 * 1000)
#define LIMIT_DEFAULT 50u
#define LIMIT_MAX     1000u
#define NEWEST        100u /* effects of a run among which the one is that it called last */

/* ---- questions -------------------------------------------------------------------------------*/

sm_err sm_report_scope(sm_work *w, sm_str scope)
{
    return scope.p == NULL
               ? SM_OK
               : sm_call_check(&(sm_parsed_call){.scope = scope, .tool = SM_STR("any")}, &w->fault);
}

sm_err sm_scope_query_read(sm_work *w, const semel_scope_query *given, semel_scope_query *out)
{
    sm_err e = sm_given_read(out, sizeof *out, given, SM_FIRST_SIZE(semel_scope_query, context),
                             "the query", &w->fault);
    if (e == SM_OK)
        e = sm_report_scope(w, out->scope);
    if (e == SM_OK && out->effects_max == 0)
        out->effects_max = SM_SCAN_EFFECTS_MAX;
    if (e == SM_OK && out->limit > LIMIT_MAX)
        out->limit = LIMIT_MAX;
    return e;
}

sm_err sm_report_end(sm_work *w, semel_answer *a, sm_err e, sm_str *json)
{
    if (e == SM_OK)
        e = w->json.err;
    *json = e == SM_OK ? sm_buf_view(&w->json) : (sm_str){0};
    if (e != SM_OK)
        return sm_answer_error(w, a, e);
    a->verdict = SEMEL_DONE;
    return SM_OK;
}

/* ---- loops -----------------------------------------------------------------------------------*/

static sm_loop_level level_by(semel *s, sm_work *w, sm_str tool, const sm_loop_match *m)
{
    const sm_contract *c = sm_contracts_find(sm_contracts_of(s, w), tool);
    sm_loop_level level =
        c == NULL || !c->loop.on ? SM_LOOP_FINE : sm_loop_level_of(&c->loop, m->count);
    return level > SM_LOOP_BLOCK ? SM_LOOP_BLOCK : level; /* the board says what is tripped */
}

void sm_run_loops(semel *s, sm_work *w, sm_tally *t, const sm_loop *l)
{
    const sm_loop_entry *last = sm_loop_last(l);
    t->match = sm_loop_now(l, l->periods);
    t->last_call = last == NULL ? 0 : last->call;
    t->level = level_by(s, w, SM_STR(""), &t->match); /* as for a tool that nobody lists */
}

void sm_run_effect(semel *s, sm_work *w, sm_tally *t)
{
    if (t->last_call != 0 && (sm_loop_number(&w->cur.key) == t->last_call ||
                              sm_loop_number(&w->cur.fingerprint) == t->last_call)) {
        t->level = level_by(s, w, w->cur.tool, &t->match);
        t->last_call = 0; /* the newest effect tells */
    }
}

typedef struct reading {
    semel *s;
    sm_work *w;
    sm_tally *of;
} reading;

static bool take_newest(void *context, const semel_record *r, int64_t now)
{
    reading *q = context;
    (void)now;
    if (sm_str_eq(r->scope, sm_tally_name(q->of))) {
        q->w->cur = *r;
        sm_run_effect(q->s, q->w, q->of);
    }
    return q->of->last_call != 0;
}

/* Whether a run repeats itself. */
static sm_err read_loop(semel *s, sm_work *w, sm_tally *t)
{
    sm_loop loop;
    sm_err e = sm_runs_known(s, sm_tally_name(t), &loop, &w->fault);
    if (e != SM_OK)
        return e;
    sm_run_loops(s, w, t, &loop);
    if (t->match.count < 2)
        return SM_OK;
    reading q = {s, w, t};
    uint64_t cursor = 0;
    return s->ops->query(s->store, &(semel_filter){.scope = sm_tally_name(t)}, &cursor, NEWEST,
                         take_newest, &q, &w->fault);
}

/* Runs that were stopped because they loop are listed whatever else they did. */
static sm_err add_stopped(sm_tallies *out, const sm_board *board, sm_str scope, int64_t since)
{
    for (uint32_t i = 0; i < board->n; i++) {
        const sm_halt *h = &board->halts[i];
        if (h->kind != SM_HALT_LOOP || h->at < since || !sm_scope_within(h->name, scope))
            continue;
        sm_tally *t = sm_tallies_find(out, h->name);
        if (t == NULL)
            return SEMEL_E_NOMEM;
        t->last_at = h->at;
    }
    return SM_OK;
}

/* ---- the list --------------------------------------------------------------------------------*/

static const char *state_of(const sm_tally *t, const sm_board *board)
{
    for (uint32_t i = 0; i < board->n; i++) {
        if (sm_halt_covers(&board->halts[i], sm_tally_name(t)))
            return "stopped";
    }
    return t->level == SM_LOOP_FINE ? "ok" : t->level == SM_LOOP_WARN ? "warned" : "looping";
}

void sm_run_put(sm_buf *out, const sm_tally *t, const sm_board *board)
{
    sm_put_text(out, "scope", sm_tally_name(t));
    sm_put_text(out, "state", sm_str_from(state_of(t, board)));
    sm_put_stamp(out, "last_at", t->last_at);
    sm_put_number(out, "effects", t->effects);
    sm_put_number(out, "executed", t->executed);
    sm_put_number(out, "replays", t->replays);
    sm_put_number(out, "refusals", t->refusals);
    sm_put_number(out, "in_doubt", t->in_doubt);
    sm_put_number(out, "pending", t->pending);
    sm_sum_put(out, "spent", &t->spent);
    sm_sum_put(out, "reserved", &t->reserved);
}

/* Where a page ends: behind this run. */
typedef struct place {
    int64_t last_at;
    sm_str name;
} place;

/* Negative if `a` comes before it. */
static int compare_to(const sm_tally *a, const place *b)
{
    if (a->last_at != b->last_at)
        return a->last_at > b->last_at ? -1 : 1;
    size_t n = a->name_bytes < b->name.n ? a->name_bytes : b->name.n;
    int c = memcmp(a->name, b->name.p, n);
    return c != 0 ? c : (a->name_bytes > b->name.n) - (a->name_bytes < b->name.n);
}

static int by_age(const void *a, const void *b)
{
    const sm_tally *y = *(const sm_tally *const *)b;
    return compare_to(*(const sm_tally *const *)a, &(place){y->last_at, sm_tally_name(y)});
}

/* A cursor is a time and a scope. */
static sm_err read_cursor(sm_work *w, sm_str text, place *out)
{
    *out = (place){.last_at = INT64_MAX, .name = SM_STR("")};
    if (text.p == NULL)
        return SM_OK;
    const char *colon = memchr(text.p, ':', text.n);
    int64_t at = 0;
    bool right = colon != NULL && colon - text.p > 0 && colon - text.p <= 15;
    for (const char *p = text.p; right && p < colon; p++) {
        right = *p >= '0' && *p <= '9';
        at = at * 10 + (*p - '0');
    }
    if (!right)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "this is not a cursor; take it from the page before");
    *out = (place){at, {colon + 1, (size_t)(text.p + text.n - colon - 1)}};
    return SM_OK;
}

/* The runs of a page: from *first on, before *end. */
static sm_err read_page(semel *s, sm_work *w, sm_tallies *t, const place *behind, size_t limit,
                        size_t *first, size_t *end)
{
    sm_err e = SM_OK;
    *first = 0;
    if (t->n > 0)
        qsort(t->all, t->n, sizeof *t->all, by_age);
    while (*first < t->n && compare_to(t->all[*first], behind) <= 0)
        ++*first;
    for (*end = *first; e == SM_OK && *end < t->n && *end - *first < limit; ++*end)
        e = read_loop(s, w, t->all[*end]);
    return e;
}

static void put_page(sm_work *w, const sm_scan *scan, const sm_tallies *t, size_t first, size_t end,
                     const sm_board *board)
{
    sm_buf *out = &w->json;
    sm_buf_clear(out);
    sm_buf_byte(out, '{');
    sm_put_open(out, "items", '[');
    for (size_t i = first; i < end; i++) {
        sm_put_item(out);
        sm_buf_byte(out, '{');
        sm_run_put(out, t->all[i], board);
        sm_buf_byte(out, '}');
    }
    sm_buf_byte(out, ']');
    if (end < t->n && end > first) {
        const sm_tally *last = t->all[end - 1];
        sm_put_text(out, "cursor",
                    sm_arena_printf(&w->call, "%" PRId64 ":%.*s", last->last_at,
                                    SM_FMT(sm_tally_name(last))));
    }
    sm_scan_put(out, scan);
    sm_buf_byte(out, '}');
}

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    const semel_scope_query *q = context;
    return q->progress == NULL || q->progress(q->context, done, total);
}

semel_err semel_scope_list(semel *s, const semel_scope_query *query, semel_answer *a,
                           semel_str *json)
{
    sm_work *w = sm_work_start(a);
    semel_scope_query q = {0};
    place behind = {0};
    sm_board board = {0};
    sm_tallies t = {0};
    sm_err e = sm_scope_query_read(w, query, &q);
    if (e == SM_OK)
        e = read_cursor(w, q.cursor, &behind);
    if (e == SM_OK)
        e = sm_board_copy(s, &w->call, &board, &w->fault);
    sm_scan scan = {.by = SEMEL_SPEND_SCOPE,
                    .scope = q.scope,
                    .since = q.since != 0 ? q.since : sm_now(s) - DAY_MS,
                    .effects_max = q.effects_max,
                    .progress = show_progress,
                    .context = &q};
    if (e == SM_OK)
        e = add_stopped(&t, &board, q.scope, scan.since);
    if (e == SM_OK)
        e = sm_tallies_make(s, a, &scan, &t);
    size_t first, end;
    if (e == SM_OK)
        e = read_page(s, w, &t, &behind, q.limit == 0 ? LIMIT_DEFAULT : q.limit, &first, &end);
    if (e == SM_OK)
        put_page(w, &scan, &t, first, end, &board);
    sm_tallies_fini(&t);
    return sm_report_end(w, a, e, json);
}
