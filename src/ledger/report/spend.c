/* What was spent, by tool, scope, agent or day; and what was not, because nothing runs twice. */
#include <stdlib.h>

#include "base/given.h"
#include "json/write.h"
#include "ledger/report/report.h"

#define DAY_MS        ((int64_t)24 * 3600 * 1000)
#define LIMIT_DEFAULT 100u
#define LIMIT_MAX     1000u

static const char *const names[] = {"tool", "scope", "agent", "day"};

static void add_to(sm_tally *sum, const sm_tally *t)
{
    sum->effects += t->effects;
    sum->executed += t->executed;
    sum->tokens += t->tokens;
    sum->refusals += t->refusals;
    sum->duplicates += t->duplicates;
    sm_sum_join(&sum->spent, &t->spent);
    sm_sum_join(&sum->reserved, &t->reserved);
    sm_sum_join(&sum->prevented, &t->prevented);
}

static void put_tally(sm_buf *out, const sm_tally *t)
{
    sm_put_number(out, "effects", t->effects);
    sm_put_number(out, "executed", t->executed);
    sm_sum_put(out, "spent", &t->spent);
    sm_sum_put(out, "reserved", &t->reserved);
    sm_put_number(out, "tokens", t->tokens);
    sm_put_number(out, "refusals", t->refusals);
    sm_put_number(out, "duplicates", t->duplicates);
    sm_sum_put(out, "saved", &t->prevented);
    sm_buf_byte(out, '}');
}

static int by_name(const void *a, const void *b)
{
    const sm_tally *x = *(const sm_tally *const *)a, *y = *(const sm_tally *const *)b;
    size_t n = x->name_bytes < y->name_bytes ? x->name_bytes : y->name_bytes;
    int c = memcmp(x->name, y->name, n);
    return c != 0 ? c : (x->name_bytes > y->name_bytes) - (x->name_bytes < y->name_bytes);
}

/* The newest day first. */
static int by_day(const void *a, const void *b)
{
    return by_name(b, a);
}

/* Those that spent most first; then those that executed most. */
static int by_spent(const void *a, const void *b)
{
    const sm_tally *x = *(const sm_tally *const *)a, *y = *(const sm_tally *const *)b;
    int c = sm_sum_compare(&y->spent, &x->spent);
    if (c == 0)
        c = sm_sum_compare(&y->reserved, &x->reserved);
    if (c == 0)
        c = (y->executed > x->executed) - (y->executed < x->executed);
    return c != 0 ? c : by_name(a, b);
}

static void put_spend(sm_buf *out, const semel_spend_query *q, const sm_scan *scan,
                      const sm_tallies *t)
{
    sm_tally sum = {0};
    size_t limit = q->limit == 0 ? LIMIT_DEFAULT : q->limit > LIMIT_MAX ? LIMIT_MAX : q->limit;
    sm_buf_byte(out, '{');
    sm_put_text(out, "by", sm_str_from(names[q->by]));
    sm_put_open(out, "items", '[');
    for (size_t i = 0; i < t->n; i++) {
        add_to(&sum, t->all[i]);
        if (i >= limit)
            continue;
        sm_put_item(out);
        sm_buf_byte(out, '{');
        sm_put_text(out, "name", sm_tally_name(t->all[i]));
        put_tally(out, t->all[i]);
    }
    sm_buf_byte(out, ']');
    sm_put_open(out, "total", '{');
    put_tally(out, &sum);
    if (t->n > limit)
        sm_put_number(out, "left_out", t->n - limit);
    sm_scan_put(out, scan);
    sm_buf_byte(out, '}');
}

static sm_err read_query(sm_work *w, const semel_spend_query *given, semel_spend_query *out)
{
    sm_err e = sm_given_read(out, sizeof *out, given, SM_FIRST_SIZE(semel_spend_query, context),
                             "the query", &w->fault);
    if (e == SM_OK)
        e = sm_report_scope(w, out->scope);
    if (e == SM_OK && (unsigned)out->by > SEMEL_SPEND_DAY)
        e = sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "by is not a valid semel_spend_by");
    return e;
}

semel_err semel_spend(semel *s, const semel_spend_query *query, semel_answer *a, semel_str *json)
{
    sm_work *w = sm_work_start(a);
    semel_spend_query q;
    sm_tallies t = {0};
    sm_err e = read_query(w, query, &q);
    sm_scan scan = {0};
    if (e == SM_OK) {
        scan = (sm_scan){.by = q.by,
                         .scope = q.scope,
                         .since = q.since != 0 ? q.since : sm_now(s) - DAY_MS,
                         .effects_max = q.effects_max == 0 ? SM_SCAN_EFFECTS_MAX : q.effects_max,
                         .progress = q.progress,
                         .context = q.context};
        e = sm_tallies_make(s, a, &scan, &t);
    }
    sm_buf_clear(&w->json);
    if (e == SM_OK) {
        if (t.n > 0)
            qsort(t.all, t.n, sizeof *t.all, q.by == SEMEL_SPEND_DAY ? by_day : by_spent);
        put_spend(&w->json, &q, &scan, &t);
    }
    sm_tallies_fini(&t);
    return sm_report_end(w, a, e, json);
}
