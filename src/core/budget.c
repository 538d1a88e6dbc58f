/* Accounts, and the names of their counters. */
#include "core/budget.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/decimal.h"
#include "base/duration.h"
#include "base/limits.h"
#include "core/call.h"

#define HOUR_MS ((int64_t)3600000)
#define DAY_MS  (24 * HOUR_MS)

/* A budget that no hour or day ends is forgotten so long after its last call. */
#define IDLE_MS (90 * DAY_MS)

/* Calls of an hour or a day may be settled so long after it. */
#define LATE_MS DAY_MS

const char *sm_measure_name(sm_measure m)
{
    static const char *const names[] = {"calls", "cost", "tokens"};
    return names[m];
}

static sm_str name_of(const sm_account *a, sm_measure m, const char *end,
                      char text[SM_ACCOUNT_NAME])
{
    int n = snprintf(text, SM_ACCOUNT_NAME, "budget:");
    for (size_t i = 0; i < sizeof a->id; i++)
        n += snprintf(text + n, SM_ACCOUNT_NAME - (size_t)n, "%02x", a->id[i]);
    n += snprintf(text + n, SM_ACCOUNT_NAME - (size_t)n, ":%s%s", sm_measure_name(m), end);
    return (sm_str){text, (size_t)n};
}

sm_str sm_account_name(const sm_account *a, sm_measure m, char text[SM_ACCOUNT_NAME])
{
    return name_of(a, m, "", text);
}

sm_str sm_account_mark(const sm_account *a, sm_measure m, char text[SM_ACCOUNT_NAME])
{
    return name_of(a, m, ":soft", text);
}

sm_charge sm_charge_declared(const sm_contract *c)
{
    return (sm_charge){{[SM_CALLS] = 1, [SM_COST] = c->cost.billionths, [SM_TOKENS] = c->tokens}};
}

int64_t sm_budget_cap(const sm_budget_rule *rule, sm_measure m)
{
    if (m == SM_COST)
        return rule->cost.text.p == NULL ? INT64_MAX : rule->cost.billionths;
    int64_t cap = m == SM_CALLS ? rule->calls : rule->tokens;
    return cap < 0 ? INT64_MAX : cap;
}

int64_t sm_budget_line(const sm_budget_rule *rule, sm_measure m)
{
    int64_t cap = sm_budget_cap(rule, m);
    if (rule->soft == 0 || cap == INT64_MAX || cap == 0)
        return INT64_MAX;
    return cap / 100 * rule->soft + (cap % 100 * rule->soft + 99) / 100;
}

bool sm_cost_read(sm_str text, int64_t *billionths)
{
    sm_decimal d;
    *billionths = 0;
    return text.p == NULL || (sm_decimal_parse(text, &d) && !d.negative &&
                              sm_decimal_scaled(&d, SM_MONEY_PLACES, billionths));
}

/* A whole number that is not negative. */
static bool tokens_read(const sm_json *v, uint64_t *out)
{
    sm_decimal d;
    int64_t n;
    if (v->type != SM_JSON_NUMBER || !sm_decimal_parse(sm_json_text(v), &d) || d.negative ||
        !sm_decimal_scaled(&d, 0, &n) || n > SM_TOKENS_MAX)
        return false;
    *out = n == 0 ? SEMEL_TOKENS_NONE : (uint64_t)n;
    return true;
}

void sm_spent_take(const sm_json *cost, const sm_json *tokens, semel_outcome *out)
{
    if (cost != NULL && cost->type != SM_JSON_NULL)
        out->cost = cost->type == SM_JSON_STRING || cost->type == SM_JSON_NUMBER
                        ? sm_json_text(cost)
                        : SM_STR("?");
    if (tokens != NULL && tokens->type != SM_JSON_NULL && !tokens_read(tokens, &out->tokens))
        out->tokens = UINT64_MAX - 1; /* more than anything takes */
}

sm_str sm_budget_holder(int per, sm_str scope)
{
    return per == SM_PER_RUN ? scope : sm_scope_leading(scope, per == SM_PER_AGENT ? 2 : 1);
}

static int64_t span_of(const sm_budget_rule *rule)
{
    return rule->per == SM_PER_HOUR ? HOUR_MS : rule->per == SM_PER_DAY ? DAY_MS : 0;
}

int64_t sm_budget_ends(const sm_budget_rule *rule, int64_t now)
{
    int64_t span = span_of(rule);
    return span == 0 ? INT64_MAX : (now / span + 1) * span;
}

sm_err sm_account_of(sm_digest *d, sm_buf *scratch, const sm_budget_rule *rule, sm_str scope,
                     int64_t now, sm_account *out, int64_t *until)
{
    sm_str holder = sm_budget_holder(rule->per, scope);
    int64_t span = span_of(rule), number = span == 0 ? 0 : now / span;
    sm_buf_clear(scratch);
    sm_buf_printf(scratch, "semel-budget-1 %d %lld %zu:", rule->per, (long long)number, rule->of.n);
    sm_buf_str(scratch, rule->of);
    sm_buf_str(scratch, holder);
    sm_hash hash;
    sm_err e =
        scratch->err != SM_OK ? scratch->err : sm_digest_bytes(d, scratch->p, scratch->len, &hash);
    if (e != SM_OK)
        return e;
    *out = (sm_account){0};
    memcpy(out->id, hash.b, sizeof out->id);
    for (int m = 0; m < SM_MEASURES; m++) {
        if (sm_budget_cap(rule, (sm_measure)m) != INT64_MAX)
            out->measures |= (uint8_t)(1u << m);
    }
    *until = span == 0 ? sm_time_after(now, IDLE_MS) : sm_budget_ends(rule, now) + LATE_MS;
    return SM_OK;
}
