/*
 * Charges: what an effect costs, kept in the counters of its budgets.
 *
 * The write that lets an attempt begin reserves what the contract declares, and is refused if a cap
 * would be passed. The write that ends the attempt settles the reservation to what was really
 * spent, or releases it if nothing was done. While nobody knows what happened, it stays. An effect
 * is charged once, however many attempts it takes: replays cost nothing, and neither does a resend.
 *
 * An attempt that failed may have cost something all the same, if whoever ran it says so. That is
 * sunk: it stays in the counters, and the next attempt's charge comes on top.
 *
 * A call is warned when `soft` of a cap is spent or reserved, once. No store says what a counter is
 * after a write, so the line is tried as the cap: below it, nothing more is asked. The write that
 * would cross it is refused, and tried again with a mark, a counter that one write can set. Others
 * find the mark set, and remember that, so that they take the real cap at once.
 */
#include "ledger/call/charge.h"

#include <stdio.h>

#include "base/decimal.h"
#include "base/duration.h"
#include "ledger/call/limit.h"

/* ---- what a write does -----------------------------------------------------------------------*/

static bool may_have_run(semel_state state)
{
    return state == SEMEL_S_RUNNING || state == SEMEL_S_IN_DOUBT;
}

static bool has_price(const sm_contract *c)
{
    return c->budget.n > 0 || c->limit.n > 0 || c->cost.billionths > 0 || c->tokens > 0;
}

sm_charging sm_charging_of(const sm_work *w, const sm_change *change)
{
    const sm_effect *now = &w->memo.effect, *next = &w->step.next;
    sm_charging c = {.before = w->memo.charged, .uncapped = change->undoes};
    bool next_generation = w->cur.version != 0 && next->generation != now->generation;
    if (next_generation)
        c.before = (sm_charged){0}; /* that of the one before it stays */
    bool ends = may_have_run(now->state) && !next_generation && !may_have_run(next->state);
    bool starts = change->identity != NULL && sm_step_noted(&w->step, SM_N_STARTED);
    if (change->import != NULL)
        c.does = change->returns ? SM_CHARGE_RETURN : SM_CHARGE_MOVED;
    else if (ends && (c.before.held || change->spent != NULL))
        c.does = sm_effect_applied(next) || next->abandoned ? SM_CHARGE_SETTLE : SM_CHARGE_RELEASE;
    else if (starts && !c.before.held && has_price(change->identity->contract))
        c.does = SM_CHARGE_RESERVE;
    if (c.does == SM_CHARGE_RESERVE)
        sm_slots_guess(&c, change);
    return c;
}

static void put_amount(sm_work *w, const char *name, int64_t billionths)
{
    char text[SM_DECIMAL_TEXT];
    sm_body_text(w, name, (sm_str){text, sm_decimal_put(billionths, SM_MONEY_PLACES, text)});
}

/* What the event says. */
static void put_charge(sm_work *w, const sm_charge *c)
{
    if (c->of[SM_COST] != 0)
        put_amount(w, "cost", c->of[SM_COST]);
    if (c->of[SM_TOKENS] != 0)
        sm_body_number(w, "tokens", (uint64_t)c->of[SM_TOKENS]);
}

/* Where a write changes counters. */
typedef struct writing {
    semel *s;
    sm_work *w;
    const sm_charging *c;
    uint8_t shard;
    sm_counters *out;
} writing;

/* As much of a change as its counter has room for. */
static sm_err fit(const writing *e, sm_str counter, int64_t *delta)
{
    int64_t value;
    if (!e->c->full || *delta < 0)
        return SM_OK;
    sm_err err = e->s->ops->counter(e->s->store, e->shard, counter, &value, &e->w->fault);
    if (err == SM_OK && value > INT64_MAX - *delta)
        *delta = INT64_MAX - value;
    return err;
}

/* What the accounts' counters change by, from what is charged to what will be. `until` 1: they stay
 * as long as they would anyway. */
static sm_err add_changes(const writing *end, const sm_charge *from)
{
    const sm_charged *to = &end->w->memo.charged;
    sm_counters *out = end->out;
    for (uint8_t i = 0; i < to->accounts; i++) {
        for (int m = 0; m < SM_MEASURES; m++) {
            int64_t delta = to->charge.of[m] - from->of[m];
            if ((to->account[i].measures >> m & 1) == 0)
                continue;
            sm_str name = sm_account_name(&to->account[i], (sm_measure)m, out->name[out->n]);
            sm_err e = fit(end, name, &delta);
            if (e != SM_OK)
                return e;
            if (delta != 0)
                out->v[out->n++] = (semel_counter){name, delta, INT64_MAX, 1};
        }
    }
    return SM_OK;
}

/* ---- lines -----------------------------------------------------------------------------------*/

/* Observe mode warns of none. */
static int64_t line_of(const sm_contract *c, const sm_budget_rule *rule, sm_measure m)
{
    return c->mode == SM_MODE_OBSERVE ? INT64_MAX : sm_budget_line(rule, m);
}

/* Where this handle remembers that somebody was warned of a line. */
static uint64_t line_number(const sm_account *a, sm_measure m, int64_t line)
{
    uint64_t number;
    memcpy(&number, a->id, sizeof number);
    number ^= ((uint64_t)line << 2 | (uint64_t)m) * 0x9E3779B97F4A7C15u;
    return number == 0 ? 1 : number;
}

static bool line_known(semel *s, const sm_account *a, sm_measure m, int64_t line)
{
    uint64_t number = line_number(a, m, line);
    return atomic_load_explicit(&s->warned[number % SM_WARNED], memory_order_relaxed) == number;
}

static void line_learn(semel *s, const sm_account *a, sm_measure m, int64_t line)
{
    uint64_t number = line_number(a, m, line);
    atomic_store_explicit(&s->warned[number % SM_WARNED], number, memory_order_relaxed);
}

/* ---- reserving -------------------------------------------------------------------------------*/

/* A counter that has reached its cap lets nothing begin, whatever that may cost. */
static int64_t cap_for(const sm_budget_rule *rule, sm_measure m, int64_t reserve)
{
    int64_t cap = sm_budget_cap(rule, m);
    return reserve == 0 ? cap - 1 : cap;
}

/* What a write reserves of one budget. */
typedef struct reserving {
    const writing *to;
    const sm_contract *contract;
    const sm_budget_rule *rule;
    const sm_account *account;
    const sm_line *lines; /* of its measures */
    int64_t until;
} reserving;

static sm_err reserve_one(const reserving *r, sm_measure m)
{
    sm_counters *out = r->to->out;
    bool uncapped = r->to->c->uncapped;
    int64_t amount = r->to->w->memo.charged.charge.of[m], line = line_of(r->contract, r->rule, m);
    int64_t cap = uncapped ? INT64_MAX : cap_for(r->rule, m, amount);
    bool warns = !uncapped && line != INT64_MAX;
    if (warns && r->lines[m].is == SM_LINE_BELOW && line - 1 < cap &&
        !line_known(r->to->s, r->account, m, line))
        cap = line - 1;
    sm_str name = sm_account_name(r->account, m, out->name[out->n]);
    sm_err e = uncapped ? fit(r->to, name, &amount) : SM_OK;
    if (e != SM_OK)
        return e;
    out->v[out->n++] = (semel_counter){name, amount, cap, r->until};
    if (r->lines[m].is == SM_LINE_CROSSED) {
        name = sm_account_mark(r->account, m, out->name[out->n]);
        out->v[out->n++] = (semel_counter){name, line - r->lines[m].mark, line, r->until};
    }
    return SM_OK;
}

static void put_crossed(sm_work *w, const sm_contract *c, const sm_charging *charging)
{
    char text[512] = "";
    size_t n = 0;
    for (uint32_t i = 0; i < c->budget.n; i++) {
        for (int m = 0; m < SM_MEASURES; m++) {
            if (charging->line[i][m].is == SM_LINE_CROSSED)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s%s per %s", n == 0 ? "" : ", ",
                                      sm_measure_name((sm_measure)m),
                                      sm_per_name(c->budget.v[i].per));
        }
    }
    if (n > 0)
        sm_body_text(w, "nearly_spent", (sm_str){text, n});
}

static sm_err reserve(const writing *wr, const sm_change *change, sm_str scope)
{
    const sm_contract *c = change->identity->contract;
    sm_work *w = wr->w;
    sm_charged *to = &w->memo.charged;
    to->accounts = (uint8_t)c->budget.n;
    to->charge = sm_charge_declared(c);
    to->held = true;
    for (uint32_t i = 0; i < c->budget.n; i++) {
        reserving r = {.to = wr,
                       .contract = c,
                       .rule = &c->budget.v[i],
                       .account = &to->account[i],
                       .lines = wr->c->line[i]};
        sm_err e = sm_account_of(&w->keyer.digest, &w->scratch, r.rule, scope, w->now,
                                 &to->account[i], &r.until);
        if (e != SM_OK)
            return e;
        for (int m = 0; m < SM_MEASURES && e == SM_OK; m++) {
            if ((to->account[i].measures >> m & 1) != 0)
                e = reserve_one(&r, (sm_measure)m);
        }
        if (e != SM_OK)
            return e;
    }
    sm_slots_take(w, wr->c, wr->c->uncapped ? NULL : change->to, wr->out);
    put_charge(w, &to->charge);
    put_crossed(w, c, wr->c);
    return SM_OK;
}

/* ---- settling --------------------------------------------------------------------------------*/

/* What an attempt spent although nothing was done stays with the effect. */
static void sink(sm_charged *c, const sm_charge *spent)
{
    for (int m = 0; m < SM_MEASURES; m++)
        c->sunk.of[m] = sm_plus(c->sunk.of[m], spent->of[m]);
}

static sm_err settle(const writing *end, const sm_charge *spent)
{
    sm_charged *to = &end->w->memo.charged;
    if (spent != NULL)
        to->charge = *spent;
    to->charge.of[SM_CALLS] = 1;
    to->held = true;
    put_charge(end->w, &to->charge);
    return add_changes(end, &end->c->before.charge);
}

static sm_err release(const writing *end, const sm_charge *spent)
{
    static const sm_charge nothing;
    sm_charged *to = &end->w->memo.charged;
    to->charge = spent != NULL ? *spent : nothing;
    to->charge.of[SM_CALLS] = 0;
    put_charge(end->w, &to->charge);
    sm_err e = add_changes(end, &end->c->before.charge);
    sink(to, &to->charge);
    to->charge = nothing;
    to->held = false;
    to->accounts = 0;
    sm_slots_free(end->w, end->c, end->out);
    return e;
}

/* A record that was lost comes back. The write that reserved was lost with it. */
static sm_err bring_back(const writing *end, const sm_change *change)
{
    static const sm_charge nothing;
    sm_charged *to = &end->w->memo.charged;
    const sm_effect *e = &end->w->memo.effect;
    if (!to->held)
        return SM_OK;
    if (!may_have_run(e->state) && !sm_effect_applied(e) && !e->abandoned) {
        *to = (sm_charged){.sunk = to->sunk};
        return SM_OK;
    }
    if (change->spent != NULL)
        to->charge = *change->spent;
    to->charge.of[SM_CALLS] = 1;
    sm_err err = add_changes(end, &nothing);
    return err != SM_OK ? err : sm_slots_return(end->s, end->w, change, end->shard, end->out);
}

sm_err sm_charging_take(semel *s, sm_work *w, const sm_charging *c, const sm_change *change,
                        const semel_record *r, sm_counters *out)
{
    sm_charged *to = &w->memo.charged;
    const writing wr = {s, w, c, r->shard, out};
    sm_err e = SM_OK;
    if (change->import == NULL)
        *to = c->before;
    switch (c->does) {
    case SM_CHARGE_NOTHING: break;
    case SM_CHARGE_RESERVE: e = reserve(&wr, change, r->scope); break;
    case SM_CHARGE_RETURN: e = bring_back(&wr, change); break;
    case SM_CHARGE_SETTLE: e = settle(&wr, change->spent); break;
    case SM_CHARGE_RELEASE: e = release(&wr, change->spent); break;
    case SM_CHARGE_MOVED: to->accounts = to->slots = 0; break;
    }
    w->memo.terms.charged = to->held || to->sunk.of[SM_COST] > 0 || to->sunk.of[SM_TOKENS] > 0;
    w->memo.terms.limited = to->slots > 0;
    return e;
}

bool sm_charge_told(const semel_outcome *o, const sm_charged *declared, sm_charge *out)
{
    int64_t cost;
    *out = declared->charge;
    if (o->cost.p != NULL && sm_cost_read(o->cost, &cost))
        out->of[SM_COST] = cost;
    if (o->tokens > 0)
        out->of[SM_TOKENS] = o->tokens == SEMEL_TOKENS_NONE ? 0 : (int64_t)o->tokens;
    return o->cost.p != NULL || o->tokens > 0;
}

/* ---- refusing --------------------------------------------------------------------------------*/

/* What is counted of this measure of a budget, and whether its line is crossed. */
static sm_err look_at(semel *s, sm_work *w, int64_t at, const sm_account *account, sm_measure m,
                      int64_t amount, uint8_t shard, sm_line *line, int64_t *value)
{
    char text[SM_ACCOUNT_NAME];
    sm_err e =
        s->ops->counter(s->store, shard, sm_account_name(account, m, text), value, &w->fault);
    if (e != SM_OK || at == INT64_MAX || *value < at - amount)
        return e;
    *line = (sm_line){.value = sm_plus(*value, amount)};
    e = s->ops->counter(s->store, shard, sm_account_mark(account, m, text), &line->mark, &w->fault);
    line->is = line->mark < at ? SM_LINE_CROSSED : SM_LINE_PAST;
    if (e == SM_OK && line->is == SM_LINE_PAST)
        line_learn(s, account, m, at);
    return e;
}

static sm_err budgets_over(semel *s, sm_work *w, sm_charging *c, const sm_change *change,
                           const semel_record *r, bool *found)
{
    const sm_contract *contract = change->identity->contract;
    sm_charge declared = sm_charge_declared(contract);
    for (uint32_t i = 0; i < contract->budget.n; i++) {
        const sm_budget_rule *rule = &contract->budget.v[i];
        sm_account account;
        int64_t until, value;
        sm_err e =
            sm_account_of(&w->keyer.digest, &w->scratch, rule, r->scope, w->now, &account, &until);
        for (int m = 0; m < SM_MEASURES && e == SM_OK; m++) {
            int64_t amount = declared.of[m];
            if ((account.measures >> m & 1) == 0)
                continue;
            c->line[i][m] = (sm_line){0};
            e = look_at(s, w, line_of(contract, rule, (sm_measure)m), &account, (sm_measure)m,
                        amount, r->shard, &c->line[i][m], &value);
            if (e == SM_OK && value > cap_for(rule, (sm_measure)m, amount) - amount) {
                *found = true;
                *change->over = (sm_over){.rule = rule,
                                          .of = rule->of,
                                          .measure = (sm_measure)m,
                                          .value = value,
                                          .wanted = amount,
                                          .free_at = sm_budget_ends(rule, w->now)};
                return SM_OK;
            }
        }
        if (e != SM_OK)
            return e;
    }
    return SM_OK;
}

sm_err sm_charging_over(semel *s, sm_work *w, sm_charging *c, const sm_change *change,
                        const semel_record *r, bool *found)
{
    *found = false;
    c->full = true; /* nothing else is in the way of what no cap holds */
    if (c->does == SM_CHARGE_RELEASE)
        return sm_slots_lost(s, w, c, r->shard);
    if (c->does != SM_CHARGE_RESERVE || c->uncapped)
        return SM_OK;
    sm_err e = budgets_over(s, w, c, change, r, found);
    if (e == SM_OK && !*found)
        e = sm_slots_over(s, w, c, change, r->shard, found);
    if (*found && change->identity->contract->mode == SM_MODE_OBSERVE) {
        *found = false;
        c->uncapped = true;
        w->step.observed = SEMEL_C_BUDGET_EXCEEDED;
    }
    return e;
}

void sm_charging_done(semel *s, const sm_work *w, const sm_charging *c, const sm_change *change)
{
    const sm_charged *charged = &w->memo.charged;
    if (c->does != SM_CHARGE_RESERVE || change->crossed == NULL)
        return;
    const sm_budgets *budgets = &change->identity->contract->budget;
    for (uint32_t i = 0; i < budgets->n; i++) {
        for (int m = 0; m < SM_MEASURES; m++) {
            const sm_line *line = &c->line[i][m];
            sm_crossed *out = change->crossed;
            if (line->is != SM_LINE_CROSSED)
                continue;
            line_learn(s, &charged->account[i], (sm_measure)m,
                       sm_budget_line(&budgets->v[i], (sm_measure)m));
            out->v[out->n].rule = &budgets->v[i];
            out->v[out->n].measure = (sm_measure)m;
            out->v[out->n++].value = line->value;
        }
    }
}

/* ---- words -----------------------------------------------------------------------------------*/

static sm_str amount_text(sm_work *w, sm_measure m, int64_t value)
{
    char text[SM_DECIMAL_TEXT];
    size_t n = sm_decimal_put(value, m == SM_COST ? SM_MONEY_PLACES : 0, text);
    return sm_work_copy(w, (sm_str){text, n});
}

static const char *const units[] = {" calls", "", " tokens"};

static const char *per_text(const sm_budget_rule *rule)
{
    static const char *const per[] = {"a run", "an agent", "a tenant", "an hour", "a day"};
    return per[rule->per];
}

static sm_str owner_text(sm_str of)
{
    return of.n == 0 ? SM_STR("all calls") : of;
}

void sm_charge_words(sm_work *w, const sm_over *over, semel_answer *a)
{
    if (over->rule == NULL) {
        sm_limit_words(w, over, a);
        return;
    }
    sm_measure m = over->measure;
    sm_str cap = amount_text(w, m, sm_budget_cap(over->rule, m));
    sm_str value = amount_text(w, m, over->value), wanted = amount_text(w, m, over->wanted);
    sm_str of = owner_text(over->of);
    a->message = sm_arena_printf(
        &w->call,
        "The budget of %.*s%s %s for %.*s does not allow this call: %.*s%s are spent or reserved%s"
        "%.*s%s. Nothing has been done.",
        SM_FMT(cap), units[m], per_text(over->rule), SM_FMT(of), SM_FMT(value), units[m],
        m == SM_CALLS ? "" : ", and it may take ", m == SM_CALLS ? 0 : (int)wanted.n, wanted.p,
        m == SM_CALLS ? "" : units[m]);
    if (over->free_at == INT64_MAX)
        return;
    sm_str when = sm_over_until(w, over, a);
    a->corrective_action = sm_arena_printf(
        &w->call, "Do not make this call again before %.*s. Tell the user what is left to do.",
        SM_FMT(when));
}

void sm_charge_warn(sm_work *w, const sm_crossed *crossed, semel_answer *a)
{
    for (uint32_t i = 0; i < crossed->n; i++) {
        sm_measure m = crossed->v[i].measure;
        sm_str owner = owner_text(crossed->v[i].rule->of);
        sm_str cap = amount_text(w, m, sm_budget_cap(crossed->v[i].rule, m));
        sm_str value = amount_text(w, m, crossed->v[i].value);
        sm_str words = sm_arena_printf(
            &w->call,
            "Of the budget of %.*s%s %s for %.*s, %.*s%s are spent or reserved. Do what matters most "
            "first.",
            SM_FMT(cap), units[m], per_text(crossed->v[i].rule), SM_FMT(owner), SM_FMT(value),
            units[m]);
        w->budget_warning = sm_arena_join(&w->call, w->budget_warning, words);
    }
    if (crossed->n > 0)
        a->warning = sm_arena_join(&w->call, a->warning, w->budget_warning);
}
