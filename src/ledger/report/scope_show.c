/*
 * One run: what it did, whether it repeats itself, what its budgets have left, what stops it, and
 * its newest effects.
 *
 * A budget's counter holds what is spent and what is reserved. The effects of the tenant that run
 * or are in doubt tell how much of it is reserved.
 */
#include <stdlib.h>

#include "base/decimal.h"
#include "core/call.h"
#include "json/write.h"
#include "ledger/report/report.h"

#define NEWEST_DEFAULT 20u
#define BUDGETS_MAX    64u    /* that are shown */
#define OPEN_MAX       10000u /* effects that may hold a reservation, which are looked at */
#define PAGE           500u

/* ---- budgets ---------------------------------------------------------------------------------*/

typedef struct budget {
    const sm_budget_rule *rule;
    sm_str of;
    sm_account account;
    int64_t used[SM_MEASURES], reserved[SM_MEASURES];
} budget;

typedef struct budgets {
    semel *s;
    sm_work *w;
    sm_str scope, within;
    uint8_t shard;
    int64_t now;
    budget v[BUDGETS_MAX];
    size_t n;
    uint64_t looked_at;
    bool complete;
} budgets;

static bool has_measure(const sm_account *a, int m)
{
    return (a->measures >> m & 1) != 0;
}

/* One budget of a contract, unless it is known already. Those that were never used are left out,
 * but for what all tools share. */
static sm_err add_budget(budgets *b, const sm_budget_rule *rule)
{
    budget new = {.rule = rule, .of = rule->of};
    sm_work *w = b->w;
    int64_t until;
    bool used = rule->of.n == 0;
    if (!sm_scope_within(sm_budget_holder(rule->per, b->scope), b->within))
        return SM_OK;
    if (b->n == BUDGETS_MAX) {
        b->complete = false;
        return SM_OK;
    }
    sm_err e =
        sm_account_of(&w->keyer.digest, &w->scratch, rule, b->scope, b->now, &new.account, &until);
    for (size_t i = 0; e == SM_OK && i < b->n; i++) {
        if (memcmp(b->v[i].account.id, new.account.id, sizeof new.account.id) == 0)
            return SM_OK;
    }
    for (int m = 0; e == SM_OK && m < SM_MEASURES; m++) {
        char name[SM_ACCOUNT_NAME];
        if (!has_measure(&new.account, m))
            continue;
        e = b->s->ops->counter(b->s->store, b->shard,
                               sm_account_name(&new.account, (sm_measure)m, name), &new.used[m],
                               &w->fault);
        used |= new.used[m] != 0;
    }
    if (e == SM_OK && used)
        b->v[b->n++] = new;
    return e;
}

static sm_err add_budgets(budgets *b, const sm_contract *c)
{
    sm_err e = SM_OK;
    for (uint32_t i = 0; e == SM_OK && i < c->budget.n; i++)
        e = add_budget(b, &c->budget.v[i]);
    for (uint32_t i = 0; e == SM_OK && i < c->variant_count; i++)
        e = add_budgets(b, &c->variants[i].contract);
    return e;
}

static bool take_reserved(void *context, const semel_record *r, int64_t now)
{
    budgets *b = context;
    sm_memo *memo = &b->w->memo;
    (void)now;
    b->looked_at++;
    if (sm_memo_unpack(r, memo) != SM_OK || !memo->charged.held)
        return true; /* verifying reports the former */
    const sm_charged *c = &memo->charged;
    for (uint8_t i = 0; i < c->accounts; i++) {
        for (size_t k = 0; k < b->n; k++) {
            budget *of = &b->v[k];
            if (memcmp(of->account.id, c->account[i].id, sizeof c->account[i].id) != 0)
                continue;
            for (int m = 0; m < SM_MEASURES; m++) {
                if (has_measure(&c->account[i], m))
                    of->reserved[m] = sm_plus(of->reserved[m], c->charge.of[m]);
            }
        }
    }
    return true;
}

static sm_err read_reserved(budgets *b)
{
    semel_filter filter = {.states = 1u << SEMEL_S_RUNNING | 1u << SEMEL_S_IN_DOUBT,
                           .scope = sm_scope_leading(b->scope, 1)};
    uint64_t cursor = 0;
    sm_err e = SM_OK;
    do
        e = b->n == 0 ? SM_OK
                      : b->s->ops->query(b->s->store, &filter, &cursor, PAGE, take_reserved, b,
                                         &b->w->fault);
    while (e == SM_OK && cursor != 0 && b->looked_at < OPEN_MAX);
    b->complete &= cursor == 0;
    return e;
}

static sm_err read_budgets(budgets *b)
{
    const sm_contracts *set = sm_contracts_of(b->s, b->w);
    sm_err e = sm_scope_shard(&b->w->keyer.digest, b->scope, &b->shard);
    if (e == SM_OK)
        e = add_budgets(b, &set->unlisted_contract);
    for (uint32_t i = 0; e == SM_OK && i < set->tool_count; i++)
        e = add_budgets(b, &set->tools[i].contract);
    return e == SM_OK ? read_reserved(b) : e;
}

static void put_amount(sm_buf *out, const char *name, int m, int64_t value)
{
    char text[SM_DECIMAL_TEXT];
    if (m == SM_COST)
        sm_put_text(out, name, (sm_str){text, sm_decimal_put(value, SM_MONEY_PLACES, text)});
    else
        sm_put_signed(out, name, value);
}

static void put_budgets(sm_buf *out, const budgets *b)
{
    static const char *const measures[] = {"calls", "cost", "tokens"};
    sm_put_open(out, "budgets", '[');
    for (size_t i = 0; i < b->n; i++) {
        const budget *of = &b->v[i];
        sm_put_item(out);
        sm_buf_byte(out, '{');
        if (of->of.n > 0)
            sm_put_text(out, "of", of->of);
        sm_put_text(out, "per", sm_str_from(sm_per_name(of->rule->per)));
        for (int m = 0; m < SM_MEASURES; m++) {
            if (!has_measure(&of->account, m))
                continue;
            int64_t reserved = of->reserved[m] < of->used[m] ? of->reserved[m] : of->used[m];
            sm_put_open(out, measures[m], '{');
            put_amount(out, "cap", m, sm_budget_cap(of->rule, (sm_measure)m));
            put_amount(out, "spent", m, of->used[m] - reserved);
            put_amount(out, "reserved", m, reserved);
            sm_buf_byte(out, '}');
        }
        sm_buf_byte(out, '}');
    }
    sm_buf_byte(out, ']');
    if (!b->complete)
        sm_put_bool(out, "budgets_complete", false);
}

/* ---- the newest effects ----------------------------------------------------------------------*/

typedef struct showing {
    semel *s;
    const semel_scope_query *q;
    sm_buf items;
    size_t n, limit;
} showing;

static void take_effect(void *context, sm_work *w, sm_tally *t)
{
    showing *sh = context;
    sm_run_effect(sh->s, w, t);
    if (sh->n++ >= sh->limit)
        return;
    sm_buf *out = &sh->items;
    const sm_charged *c = &w->memo.charged;
    char handle[SM_HANDLE_TEXT];
    sm_handle h = {.shard = w->cur.shard, .id = w->cur.id, .generation = w->cur.generation};
    sm_put_item(out);
    sm_buf_byte(out, '{');
    sm_put_text(out, "effect", (sm_str){handle, sm_handle_effect(&h, handle)});
    sm_put_text(out, "tool", w->cur.tool);
    sm_put_text(out, "step", w->cur.step);
    sm_put_text(out, "state", sm_str_from(semel_state_name(w->memo.effect.state)));
    sm_put_number(out, "attempts", w->memo.effect.attempt);
    if (c->held || c->sunk.of[SM_COST] > 0)
        put_amount(out, "cost", SM_COST, sm_plus(c->charge.of[SM_COST], c->sunk.of[SM_COST]));
    sm_put_stamp(out, "created_at", w->cur.created_at);
    sm_buf_byte(out, '}');
}

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    const semel_scope_query *q = ((showing *)context)->q;
    return q->progress == NULL || q->progress(q->context, done, total);
}

/* ---- the run ---------------------------------------------------------------------------------*/

/* What applies to a run. A tool's stop applies to its calls of that tool. */
static bool applies(const sm_halt *h, sm_str scope)
{
    return h->kind == SM_HALT_TOOL || sm_halt_covers(h, scope);
}

static const sm_halt *tripped(const sm_board *b, sm_str scope)
{
    return sm_board_find(b, SM_HALT_LOOP, scope);
}

static void put_loop(sm_buf *out, const sm_tally *t, const sm_halt *halt)
{
    const sm_loop_match *m = halt != NULL ? &halt->match : &t->match;
    sm_put_open(out, "loop", '{');
    if (m->count > 1) {
        sm_put_text(out, "detector", sm_str_from(sm_loop_name(m->detector)));
        sm_put_number(out, "period", m->period);
    }
    sm_put_number(out, "count", m->count);
    sm_put_bool(out, "tripped", halt != NULL);
    sm_buf_byte(out, '}');
}

/* Whether anything is known of it: a stop above it says nothing. */
static bool is_known(const sm_tally *t, const sm_board *board)
{
    sm_str scope = sm_tally_name(t);
    return t->effects > 0 || t->refusals > 0 || t->match.count > 0 ||
           tripped(board, scope) != NULL || sm_board_find(board, SM_HALT_SCOPE, scope) != NULL;
}

static void put_run(sm_work *w, const sm_tally *t, const sm_board *board, const budgets *b,
                    const showing *sh, const sm_scan *scan)
{
    sm_buf *out = &w->json;
    sm_str scope = sm_tally_name(t);
    sm_buf_byte(out, '{');
    sm_run_put(out, t, board);
    put_loop(out, t, tripped(board, scope));
    put_budgets(out, b);
    sm_halts_put(out, "stops", board, applies, scope);
    sm_put_open(out, "items", '[');
    sm_buf_str(out, sm_buf_view(&sh->items));
    sm_buf_byte(out, ']');
    sm_scan_put(out, scan);
    sm_buf_byte(out, '}');
    if (sh->items.err != SM_OK)
        out->err = sh->items.err;
}

/* The workspace is used for the scan; so what the board says is in memory of its own. */
static sm_err show(semel *s, semel_answer *a, const semel_scope_query *q, showing *sh, budgets *b,
                   sm_tallies *all)
{
    sm_work *w = sm_work_of(a);
    sm_board board = {0};
    sm_loop loop;
    sm_tally *t = sm_tallies_find(all, q->scope);
    sm_err e = t == NULL ? SEMEL_E_NOMEM : sm_runs_look(s, q->scope, &loop, &w->fault);
    if (e == SM_OK)
        e = sm_board_copy(s, &w->call, &board, &w->fault);
    if (e != SM_OK)
        return e;
    sm_run_loops(s, w, t, &loop);
    sm_scan scan = {.by = SEMEL_SPEND_SCOPE,
                    .scope = q->scope,
                    .exactly = true,
                    .since = q->since,
                    .effects_max = q->effects_max,
                    .effect = take_effect,
                    .progress = show_progress,
                    .context = sh};
    e = sm_tallies_make(s, a, &scan, all);
    if (e == SM_OK && !is_known(t, &board))
        return SEMEL_E_NOT_FOUND;
    *b = (budgets){
        .s = s, .w = w, .scope = q->scope, .within = q->within, .now = sm_now(s), .complete = true};
    if (e == SM_OK)
        e = read_budgets(b);
    sm_buf_clear(&w->json);
    if (e == SM_OK)
        put_run(w, t, &board, b, sh, &scan);
    return e;
}

semel_err semel_scope_show(semel *s, const semel_scope_query *query, semel_answer *a,
                           semel_str *json)
{
    sm_work *w = sm_work_start(a);
    semel_scope_query q = {0};
    sm_tallies all = {0};
    budgets *b = NULL;
    showing sh = {.s = s, .q = &q};
    sm_buf_init(&sh.items, SM_ARENA_MAX);
    sm_err e = sm_scope_query_read(w, query, &q);
    if (e == SM_OK && q.scope.p == NULL)
        e = sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the scope is missing");
    if (e == SM_OK) {
        sh.limit = q.limit == 0 ? NEWEST_DEFAULT : q.limit;
        b = malloc(sizeof *b);
        e = b == NULL ? SEMEL_E_NOMEM : show(s, a, &q, &sh, b, &all);
    }
    if (e == SEMEL_E_NOT_FOUND) {
        a->message = SM_STR("Nothing is known of this run.");
        a->corrective_action = SM_STR("Check the scope and the ledger, or list the runs.");
    }
    free(b);
    sm_tallies_fini(&all);
    sm_buf_fini(&sh.items);
    return sm_report_end(w, a, e, json);
}
