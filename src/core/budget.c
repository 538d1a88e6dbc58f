/* Accounts, and the names of their counters. */
#include "core/budget.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/duration.h"

#define HOUR_MS ((int64_t)3600000)
#define DAY_MS  (24 * HOUR_MS)

/* A budget that no hour or day ends is forgotten so long after its last call. */
#define IDLE_MS (90 * DAY_MS)

/* Calls of an hour or a day may be settled so long after it. */
#define LATE_MS DAY_MS

sm_str sm_account_name(const sm_account *a, sm_measure m, char text[SM_ACCOUNT_NAME])
{
    static const char *const names[] = {"calls", "cost", "tokens"};
    int n = snprintf(text, SM_ACCOUNT_NAME, "budget:");
    for (size_t i = 0; i < sizeof a->id; i++)
        n += snprintf(text + n, SM_ACCOUNT_NAME - (size_t)n, "%02x", a->id[i]);
    n += snprintf(text + n, SM_ACCOUNT_NAME - (size_t)n, ":%s", names[m]);
    return (sm_str){text, (size_t)n};
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

/* The first `parts` parts of a scope. */
static sm_str leading(sm_str scope, unsigned parts)
{
    for (size_t i = 0; i < scope.n; i++) {
        if (scope.p[i] == '/' && --parts == 0)
            return (sm_str){scope.p, i};
    }
    return scope;
}

/* Whom a budget is for. */
static sm_str holder_of(int per, sm_str scope)
{
    return per == SM_PER_RUN ? scope : leading(scope, per == SM_PER_AGENT ? 2 : 1);
}

sm_err sm_account_of(sm_digest *d, sm_buf *scratch, const sm_budgets *all,
                     const sm_budget_rule *rule, sm_str scope, int64_t now, sm_account *out,
                     int64_t *until)
{
    sm_str holder = holder_of(rule->per, scope);
    int64_t span = rule->per == SM_PER_HOUR ? HOUR_MS : rule->per == SM_PER_DAY ? DAY_MS : 0;
    int64_t number = span == 0 ? 0 : now / span;
    sm_buf_clear(scratch);
    sm_buf_printf(scratch, "semel-budget-1 %d %lld %zu:", rule->per, (long long)number, all->of.n);
    sm_buf_str(scratch, all->of);
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
    *until = span == 0 ? sm_time_after(now, IDLE_MS) : (number + 1) * span + LATE_MS;
    return SM_OK;
}
