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
 */
#include "ledger/call/charge.h"

#include "base/decimal.h"
#include "base/duration.h"

/* ---- what a write does -----------------------------------------------------------------------*/

static bool may_have_run(semel_state state)
{
    return state == SEMEL_S_RUNNING || state == SEMEL_S_IN_DOUBT;
}

static bool has_price(const sm_contract *c)
{
    return c->budget.n > 0 || c->cost.billionths > 0 || c->tokens > 0;
}

sm_charging sm_charging_of(const sm_work *w, const sm_change *change)
{
    const sm_effect *now = &w->memo.effect, *next = &w->step.next;
    sm_charging c = {.before = w->memo.charged};
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

/* What the accounts' counters change by, from what is charged to what will be. `until` 1: they stay
 * as long as they would anyway. */
static void add_changes(const sm_charged *to, const sm_charge *from, sm_counters *out)
{
    for (uint8_t i = 0; i < to->accounts; i++) {
        for (int m = 0; m < SM_MEASURES; m++) {
            int64_t delta = to->charge.of[m] - from->of[m];
            if ((to->account[i].measures >> m & 1) != 0 && delta != 0) {
                sm_str name = sm_account_name(&to->account[i], (sm_measure)m, out->name[out->n]);
                out->v[out->n++] = (semel_counter){name, delta, INT64_MAX, 1};
            }
        }
    }
}

/* A counter that has reached its cap lets nothing begin, whatever that may cost. */
static int64_t cap_for(const sm_budget_rule *rule, sm_measure m, int64_t reserve)
{
    int64_t cap = sm_budget_cap(rule, m);
    return reserve == 0 ? cap - 1 : cap;
}

static sm_err reserve(sm_work *w, const sm_contract *c, sm_str scope, sm_counters *out)
{
    sm_charged *to = &w->memo.charged;
    to->accounts = (uint8_t)c->budget.n;
    to->charge = sm_charge_declared(c);
    to->held = true;
    for (uint32_t i = 0; i < c->budget.n; i++) {
        const sm_budget_rule *rule = &c->budget.v[i];
        int64_t until;
        sm_err e = sm_account_of(&w->keyer.digest, &w->scratch, &c->budget, rule, scope, w->now,
                                 &to->account[i], &until);
        if (e != SM_OK)
            return e;
        for (int m = 0; m < SM_MEASURES; m++) {
            if ((to->account[i].measures >> m & 1) == 0)
                continue;
            int64_t amount = to->charge.of[m];
            sm_str name = sm_account_name(&to->account[i], (sm_measure)m, out->name[out->n]);
            bool observed = c->mode == SM_MODE_OBSERVE;
            out->v[out->n++] = (semel_counter){
                name, amount, observed ? INT64_MAX : cap_for(rule, (sm_measure)m, amount), until};
        }
    }
    put_charge(w, &to->charge);
    return SM_OK;
}

/* What an attempt spent although nothing was done stays with the effect. */
static void sink(sm_charged *c, const sm_charge *spent)
{
    for (int m = 0; m < SM_MEASURES; m++) {
        if (__builtin_add_overflow(c->sunk.of[m], spent->of[m], &c->sunk.of[m]))
            c->sunk.of[m] = INT64_MAX;
    }
}

static void settle(sm_work *w, const sm_charging *c, const sm_charge *spent, sm_counters *out)
{
    sm_charged *to = &w->memo.charged;
    if (spent != NULL)
        to->charge = *spent;
    to->charge.of[SM_CALLS] = 1;
    to->held = true;
    add_changes(to, &c->before.charge, out);
    put_charge(w, &to->charge);
}

static void release(sm_work *w, const sm_charging *c, const sm_charge *spent, sm_counters *out)
{
    static const sm_charge nothing;
    sm_charged *to = &w->memo.charged;
    to->charge = spent != NULL ? *spent : nothing;
    to->charge.of[SM_CALLS] = 0;
    add_changes(to, &c->before.charge, out);
    put_charge(w, &to->charge);
    sink(to, &to->charge);
    to->charge = nothing;
    to->held = false;
    to->accounts = 0;
}

sm_err sm_charging_take(sm_work *w, const sm_charging *c, const sm_change *change, sm_str scope,
                        sm_counters *out)
{
    static const sm_charge nothing;
    sm_charged *to = &w->memo.charged;
    sm_err e = SM_OK;
    if (change->import == NULL)
        *to = c->before;
    switch (c->does) {
    case SM_CHARGE_NOTHING: break;
    case SM_CHARGE_RESERVE: e = reserve(w, change->identity->contract, scope, out); break;
    case SM_CHARGE_RETURN: add_changes(to, &nothing, out); break;
    case SM_CHARGE_SETTLE: settle(w, c, change->spent, out); break;
    case SM_CHARGE_RELEASE: release(w, c, change->spent, out); break;
    case SM_CHARGE_MOVED: to->accounts = 0; break;
    }
    w->memo.terms.charged = to->held || to->sunk.of[SM_COST] > 0 || to->sunk.of[SM_TOKENS] > 0;
    return e;
}

bool sm_cost_read(sm_str text, int64_t *billionths)
{
    sm_decimal d;
    *billionths = 0;
    return text.p == NULL || (sm_decimal_parse(text, &d) && !d.negative &&
                              sm_decimal_scaled(&d, SM_MONEY_PLACES, billionths));
}

bool sm_charge_told(const semel_outcome *o, const sm_charged *declared, sm_charge *out)
{
    int64_t cost;
    *out = declared->charge;
    if (o->cost.p != NULL && sm_cost_read(o->cost, &cost))
        out->of[SM_COST] = cost;
    if (o->tokens > 0)
        out->of[SM_TOKENS] = (int64_t)o->tokens;
    return o->cost.p != NULL || o->tokens > 0;
}

/* ---- refusing --------------------------------------------------------------------------------*/

sm_err sm_charging_over(semel *s, sm_work *w, const sm_change *change, sm_str scope, uint8_t shard,
                        bool *found)
{
    const sm_contract *c = change->identity->contract;
    sm_charge declared = sm_charge_declared(c);
    *found = false;
    for (uint32_t i = 0; i < c->budget.n; i++) {
        const sm_budget_rule *rule = &c->budget.v[i];
        sm_account account;
        int64_t until, value;
        sm_err e = sm_account_of(&w->keyer.digest, &w->scratch, &c->budget, rule, scope, w->now,
                                 &account, &until);
        for (int m = 0; m < SM_MEASURES && e == SM_OK; m++) {
            char text[SM_ACCOUNT_NAME];
            int64_t cap = cap_for(rule, (sm_measure)m, declared.of[m]);
            if ((account.measures >> m & 1) == 0)
                continue;
            e = s->ops->counter(s->store, shard, sm_account_name(&account, (sm_measure)m, text),
                                &value, &w->fault);
            if (e == SM_OK && value > cap - declared.of[m]) {
                *found = true;
                *change->over = (sm_over){.rule = rule,
                                          .of = c->budget.of,
                                          .measure = (sm_measure)m,
                                          .value = value,
                                          .wanted = declared.of[m]};
                return SM_OK;
            }
        }
        if (e != SM_OK)
            return e;
    }
    return SM_OK;
}

static sm_str amount_text(sm_work *w, sm_measure m, int64_t value)
{
    char text[SM_DECIMAL_TEXT];
    size_t n = sm_decimal_put(value, m == SM_COST ? SM_MONEY_PLACES : 0, text);
    return sm_work_copy(w, (sm_str){text, n});
}

void sm_charge_words(sm_work *w, const sm_over *over, semel_answer *a)
{
    static const char *const what[] = {" calls", "", " tokens"};
    static const char *const per[] = {"a run", "an agent", "a tenant", "an hour", "a day"};
    sm_measure m = over->measure;
    sm_str cap = amount_text(w, m, sm_budget_cap(over->rule, m));
    sm_str value = amount_text(w, m, over->value), wanted = amount_text(w, m, over->wanted);
    sm_str of = over->of.n == 0 ? SM_STR("all calls") : over->of;
    a->message = sm_arena_printf(
        &w->call,
        "The budget of %.*s%s %s for %.*s does not allow this call: %.*s%s are spent or reserved%s"
        "%.*s%s. Nothing has been done.",
        SM_FMT(cap), what[m], per[over->rule->per], SM_FMT(of), SM_FMT(value), what[m],
        m == SM_CALLS ? "" : ", and it may take ", m == SM_CALLS ? 0 : (int)wanted.n, wanted.p,
        m == SM_CALLS ? "" : what[m]);
    if (over->rule->per == SM_PER_HOUR || over->rule->per == SM_PER_DAY)
        a->corrective_action = sm_arena_printf(
            &w->call,
            "Do not make this call again before the next %s (UTC). Tell the user what "
            "is left to do.",
            sm_per_name(over->rule->per));
}
