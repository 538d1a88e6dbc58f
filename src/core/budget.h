/*
 * Budgets: what a call is charged, and what it is charged to. Pure.
 *
 * A call is charged one call, a cost and a number of tokens. Until it has ended that is what its
 * contract declares; then what it really was. An account is one budget of one run, agent or tenant,
 * or of a tenant's hour or day: it has a counter for each of the three that has a cap. All counters
 * of a call are changed in the write that changes its record, so that no cap is ever passed by what
 * is reserved (I14).
 *
 * A scope is read as tenant/agent/run: its first part is the tenant, the first two are the agent.
 */
#ifndef SM_CORE_BUDGET_H
#define SM_CORE_BUDGET_H

#include "base/digest.h"
#include "base/limits.h"
#include "core/contract.h"
#include "semel/semel.h"

typedef enum sm_measure { SM_CALLS, SM_COST, SM_TOKENS, SM_MEASURES } sm_measure;

/* How much of each; the cost in billionths. */
typedef struct sm_charge {
    int64_t of[SM_MEASURES];
} sm_charge;

/* A budget that a call was charged to. */
typedef struct sm_account {
    uint8_t id[16];
    uint8_t measures; /* bits 1 << sm_measure: of these there are counters */
} sm_account;

/* The name of an account's counter. */
#define SM_ACCOUNT_NAME 64u
sm_str sm_account_name(const sm_account *a, sm_measure m, char text[SM_ACCOUNT_NAME]);

/* The name of the counter that holds the highest line of an account (sm_budget_line) that somebody
 * was warned of. */
sm_str sm_account_mark(const sm_account *a, sm_measure m, char text[SM_ACCOUNT_NAME]);

/* What a call of this contract is charged before it runs. */
sm_charge sm_charge_declared(const sm_contract *c);

/* Whom a budget of a scope is for: the scope of a tenant, an agent or a run. */
sm_str sm_budget_holder(int per, sm_str scope);

/* When the hour or day of a budget is over, by UTC; INT64_MAX: it has no such end. */
int64_t sm_budget_ends(const sm_budget_rule *rule, int64_t now);

/* The account of a budget, and until when its counters matter. */
sm_err sm_account_of(sm_digest *d, sm_buf *scratch, const sm_budget_rule *rule, sm_str scope,
                     int64_t now, sm_account *out, int64_t *until);

/* The cap of a measure, or INT64_MAX. */
int64_t sm_budget_cap(const sm_budget_rule *rule, sm_measure m);

/* From here on a call is warned: so much of the cap is spent or reserved then. INT64_MAX: never. */
int64_t sm_budget_line(const sm_budget_rule *rule, sm_measure m);

/* What somebody says that a call has cost: false if it is not an amount. Absent is 0. */
bool sm_cost_read(sm_str text, int64_t *billionths);

/* Takes what a tool's answer says of its cost, values of a document that the outcome needs; both
 * may be NULL. What cannot be read is marked, and recorded as such. */
void sm_spent_take(const sm_json *cost, const sm_json *tokens, semel_outcome *out);

const char *sm_measure_name(sm_measure m); /* "calls", "cost", "tokens" */

#endif
