/* What effects are charged to budgets (charge.c). */
#ifndef SM_LEDGER_CALL_CHARGE_H
#define SM_LEDGER_CALL_CHARGE_H

#include "ledger/work/ledger.h"

/* What a write does about the charge. */
typedef struct sm_charging {
    enum {
        SM_CHARGE_NOTHING,
        SM_CHARGE_RESERVE, /* an attempt begins: what is declared, within the caps */
        SM_CHARGE_RETURN,  /* a record that was lost comes back, whatever the caps say */
        SM_CHARGE_SETTLE,  /* what it really was */
        SM_CHARGE_RELEASE, /* nothing was done */
        SM_CHARGE_MOVED,   /* it was charged in another ledger */
    } does;
    sm_charged before;
} sm_charging;

/* By the step in w->step over w->memo; before either is changed. */
sm_charging sm_charging_of(const sm_work *w, const sm_change *change);

/* Sets w->memo, the event's body and the write's counters. */
sm_err sm_charging_take(sm_work *w, const sm_charging *c, const sm_change *change, sm_str scope,
                        sm_counters *out);

/* After SEMEL_E_OVER_CAP: which cap it was. *found is false if none would be passed now: others
 * have released something, or another counter was in the way. */
sm_err sm_charging_over(semel *s, sm_work *w, const sm_change *change, sm_str scope, uint8_t shard,
                        bool *found);

/* What a tool says that it cost: false if it is not an amount. Absent is 0. */
bool sm_cost_read(sm_str text, int64_t *billionths);

/* What an outcome says that its attempt has spent, the rest as it was declared; false if it says
 * nothing. */
bool sm_charge_told(const semel_outcome *o, const sm_charged *declared, sm_charge *out);

/* The words for the cap that was in the way. */
void sm_charge_words(sm_work *w, const sm_over *over, semel_answer *a);

#endif
