/* Reading records page by page, their notes behind each page, and adding them up. */
#include "ledger/report/tally.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"
#include "base/stamp.h"
#include "core/call.h"
#include "json/write.h"
#include "ledger/guard/shared.h"

#define BILLION   1000000000
#define BUCKETS   65536u /* a power of two */
#define PAGE      500u
#define NOTES_MAX 1000u  /* of one effect, the newest ones */
#define CALLS_MAX 10000u /* notes of calls without a record, the newest ones */

/* ---- sums ------------------------------------------------------------------------------------*/

static int64_t by(int64_t a, int64_t times)
{
    int64_t product;
    return __builtin_mul_overflow(a, times, &product) ? INT64_MAX : product;
}

void sm_sum_add(sm_sum *to, int64_t billionths, uint64_t times)
{
    int64_t n = times > BILLION ? BILLION : (int64_t)times; /* so the fraction does not overflow */
    int64_t part = to->billionths + billionths % BILLION * n;
    to->whole = sm_plus(to->whole, sm_plus(by(billionths / BILLION, n), part / BILLION));
    to->billionths = part % BILLION;
}

void sm_sum_join(sm_sum *to, const sm_sum *more)
{
    to->whole = sm_plus(to->whole, more->whole);
    sm_sum_add(to, more->billionths, 1);
}

int sm_sum_compare(const sm_sum *a, const sm_sum *b)
{
    if (a->whole != b->whole)
        return a->whole < b->whole ? -1 : 1;
    return (a->billionths > b->billionths) - (a->billionths < b->billionths);
}

void sm_sum_put(sm_buf *out, const char *name, const sm_sum *sum)
{
    char text[48];
    int n = snprintf(text, sizeof text, "%lld.%09lld", (long long)sum->whole,
                     (long long)sum->billionths);
    while (text[n - 1] == '0')
        n--;
    n -= text[n - 1] == '.';
    sm_put_text(out, name, (sm_str){text, (size_t)n});
}

/* ---- the table -------------------------------------------------------------------------------*/

void sm_tallies_fini(sm_tallies *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->all[i]);
    free(t->all);
    free(t->buckets);
    *t = (sm_tallies){0};
}

static size_t bucket_of(sm_str name)
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < name.n; i++)
        h = (h ^ (uint8_t)name.p[i]) * 1099511628211u;
    return (size_t)((h ^ h >> 32) % BUCKETS);
}

static bool make_room(sm_tallies *t)
{
    if (t->buckets == NULL)
        t->buckets = calloc(BUCKETS, sizeof(sm_tally *));
    if (t->buckets == NULL)
        return false;
    if (t->n < t->room)
        return true;
    size_t room = t->room == 0 ? 64 : t->room * 2;
    sm_tally **more = realloc(t->all, room * sizeof(sm_tally *));
    if (more == NULL)
        return false;
    t->all = more;
    t->room = room;
    return true;
}

sm_tally *sm_tallies_find(sm_tallies *t, sm_str name)
{
    if (!make_room(t))
        return NULL;
    sm_tally **at = &t->buckets[bucket_of(name)];
    while (*at != NULL && !sm_str_eq(sm_tally_name(*at), name))
        at = &(*at)->next;
    if (*at == NULL) {
        sm_tally *new = calloc(1, sizeof *new + name.n);
        if (new == NULL)
            return NULL;
        new->name_bytes = (uint32_t)name.n;
        memcpy(new->name, name.p, name.n);
        *at = t->all[t->n++] = new;
    }
    return *at;
}

/* ---- one effect ------------------------------------------------------------------------------*/

/* An effect of the page whose notes are read next. */
typedef struct counted {
    sm_tally *tally;
    uint64_t id, generation;
    int64_t cost; /* of one call like it */
} counted;

typedef struct scanning {
    semel *s;
    semel_answer *a;
    sm_scan *scan;
    sm_tallies *out;
    counted page[PAGE];
    size_t n;
    const counted *of; /* whose notes are read; NULL: of calls without a record */
    int64_t oldest_at; /* of the effects that were looked at */
    uint64_t notes;
    bool stopped; /* whoever asked does not want to know more */
    sm_err err;
} scanning;

static bool counts(const sm_scan *scan, sm_str scope)
{
    return scan->exactly ? sm_str_eq(scope, scan->scope) : sm_scope_within(scope, scan->scope);
}

static sm_tally *tally_for(scanning *n, sm_str scope, sm_str tool, int64_t at)
{
    char day[SM_STAMP_TEXT];
    sm_str name = scope;
    switch (n->scan->by) {
    case SEMEL_SPEND_SCOPE: break;
    case SEMEL_SPEND_AGENT: name = sm_scope_leading(scope, 2); break;
    case SEMEL_SPEND_TOOL: name = tool; break;
    case SEMEL_SPEND_DAY:
        sm_stamp_text(at, day);
        name = (sm_str){day, strlen("2026-03-01")};
        break;
    }
    sm_tally *t = sm_tallies_find(n->out, name);
    if (t == NULL)
        n->err = SEMEL_E_NOMEM;
    return t;
}

static void be_last(sm_tally *t, int64_t at)
{
    if (at > t->last_at)
        t->last_at = at;
}

/* What w->cur and w->memo say. */
static void add_effect(sm_tally *t, const sm_work *w)
{
    const sm_effect *e = &w->memo.effect;
    const sm_charged *c = &w->memo.charged;
    bool open = e->state == SEMEL_S_RUNNING || e->state == SEMEL_S_IN_DOUBT;
    t->effects++;
    t->executed += e->attempt;
    t->in_doubt += e->state == SEMEL_S_IN_DOUBT;
    t->pending += e->state == SEMEL_S_PENDING;
    if (c->held)
        sm_sum_add(open ? &t->reserved : &t->spent, c->charge.of[SM_COST], 1);
    if (c->held && !open)
        t->tokens += (uint64_t)c->charge.of[SM_TOKENS];
    sm_sum_add(&t->spent, c->sunk.of[SM_COST], 1);
    t->tokens += (uint64_t)c->sunk.of[SM_TOKENS];
    be_last(t, w->cur.created_at);
    be_last(t, e->settled_at);
}

/* What a call like this one costs: as it was, or if that is not known, as its contract says now. */
static int64_t cost_of(semel *s, sm_work *w)
{
    if (w->memo.charged.held)
        return w->memo.charged.charge.of[SM_COST];
    const sm_contract *c = sm_contracts_find(sm_contracts_of(s, w), w->cur.tool);
    return c == NULL ? 0 : c->cost.billionths;
}

static bool take_record(void *context, const semel_record *r, int64_t now)
{
    scanning *n = context;
    sm_scan *scan = n->scan;
    sm_work *w = sm_work_of(n->a);
    n->oldest_at = r->created_at;
    if (sm_is_shared(r))
        return true;
    scan->looked_at++;
    if (!counts(scan, r->scope))
        return true;
    sm_work_drop(w);
    w->cur = *r;
    w->now = now;
    n->err = sm_load_cur(w);
    sm_tally *t = n->err == SM_OK ? tally_for(n, r->scope, r->tool, r->created_at) : NULL;
    if (t == NULL)
        return false;
    sm_look_now(n->s, w);
    add_effect(t, w);
    if (scan->effect != NULL)
        scan->effect(scan->context, w, t);
    n->page[n->n++] =
        (counted){.tally = t, .id = r->id, .generation = r->generation, .cost = cost_of(n->s, w)};
    return true;
}

/* ---- notes -----------------------------------------------------------------------------------*/

/* The code of a refusal's note. */
static bool refusal_of(sm_str what, sm_str *code)
{
    static const char word[] = "refused ";
    size_t n = sizeof word - 1;
    if (what.n < n || memcmp(what.p, word, n) != 0)
        return false;
    *code = (sm_str){what.p + n, what.n - n};
    return true;
}

/* Whether a call that was refused with this code is an equal one that was made before. */
static bool is_repeat(sm_str code)
{
    return sm_str_is(code, semel_code_name(SEMEL_C_LOOP_DETECTED)) ||
           sm_str_is(code, semel_code_name(SEMEL_C_ALREADY_DONE)) ||
           sm_str_is(code, semel_code_name(SEMEL_C_RESULT_EXPIRED));
}

static bool take_note(void *context, const semel_note *note)
{
    scanning *n = context;
    sm_str code = {0};
    bool replay = sm_str_is(note->what, "replayed"), refusal = refusal_of(note->what, &code);
    const counted *of = n->of;
    n->notes++;
    if (!(of != NULL && replay) && !refusal)
        return true;
    if (of == NULL && (note->last_at < n->scan->since || !counts(n->scan, note->scope)))
        return true;
    sm_tally *t = of != NULL && n->scan->by != SEMEL_SPEND_DAY
                      ? of->tally
                      : tally_for(n, note->scope, note->tool, note->last_at);
    if (t == NULL)
        return false;
    be_last(t, note->last_at);
    *(replay ? &t->replays : &t->refusals) += note->count;
    if (of != NULL && (replay || is_repeat(code))) {
        t->duplicates += note->count;
        sm_sum_add(&t->prevented, of->cost, note->count);
    }
    return true;
}

static sm_err read_notes(scanning *n, const counted *of, semel_fault *fault)
{
    n->of = of;
    n->notes = 0;
    sm_err e =
        n->s->ops->notes(n->s->store, of == NULL ? 0 : of->id, of == NULL ? 0 : of->generation,
                         of == NULL ? CALLS_MAX : NOTES_MAX, take_note, n, fault);
    if (of == NULL && n->notes >= CALLS_MAX)
        n->scan->complete = false;
    return e == SM_OK ? n->err : e;
}

/* ---- all of them -----------------------------------------------------------------------------*/

static sm_err read_page(scanning *n, uint64_t *cursor, semel_fault *fault)
{
    const sm_scan *scan = n->scan;
    semel_filter filter = {.scope = scan->scope, .since = scan->since};
    n->n = 0;
    sm_err e = n->s->ops->query(n->s->store, &filter, cursor, PAGE, take_record, n, fault);
    for (size_t i = 0; e == SM_OK && n->err == SM_OK && i < n->n; i++)
        e = read_notes(n, &n->page[i], fault);
    if (scan->progress != NULL)
        n->stopped = !scan->progress(scan->context, scan->looked_at, 0);
    return e == SM_OK ? n->err : e;
}

sm_err sm_tallies_make(semel *s, semel_answer *a, sm_scan *scan, sm_tallies *out)
{
    sm_work *w = sm_work_of(a);
    scanning *n = calloc(1, sizeof *n);
    if (n == NULL)
        return SEMEL_E_NOMEM;
    *n = (scanning){.s = s, .a = a, .scan = scan, .out = out};
    scan->complete = true;
    sm_journal_flush(&s->journal, s->ops, s->store); /* those of this process are not late */
    uint64_t cursor = 0;
    sm_err e;
    do
        e = read_page(n, &cursor, &w->fault);
    while (e == SM_OK && cursor != 0 && !n->stopped && scan->looked_at < scan->effects_max);
    if (e == SM_OK && cursor != 0) {
        scan->complete = false;
        scan->since = n->oldest_at;
    }
    if (e == SM_OK)
        e = read_notes(n, NULL, &w->fault);
    free(n);
    return e;
}

void sm_scan_put(sm_buf *out, const sm_scan *scan)
{
    sm_put_stamp(out, "since", scan->since);
    sm_put_number(out, "looked_at", scan->looked_at);
    sm_put_bool(out, "complete", scan->complete);
}
