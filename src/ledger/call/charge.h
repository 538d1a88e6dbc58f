/* What effects are charged to budgets (charge.c). */
#ifndef SM_LEDGER_CALL_CHARGE_H
#define SM_LEDGER_CALL_CHARGE_H

#include "ledger/work/ledger.h"

/* The line of a budget from which on it is nearly used up (sm_budget_line). The write that crosses
 * it sets a mark, a counter of its own, and the caller is warned. */
typedef struct sm_line {
    enum {
        SM_LINE_BELOW,   /* it is not reached: the line is the cap */
        SM_LINE_CROSSED, /* by this write, which sets the mark */
        SM_LINE_PAST,    /* somebody was warned already */
    } is;
    int64_t mark, value; /* crossed: what the mark holds, and what the budget's counter will */
} sm_line;

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
    bool full; /* without a cap: a counter would overflow, so as much is added as it has room for */
    bool uncapped; /* reserve: whatever the caps say. An undo; or observe mode found them in the way
                    */
    sm_charged before;
    /* What is known of the counters; the write is refused if it is not so. */
    sm_line line[SM_BUDGETS_MAX][SM_MEASURES];
    struct {
        uint8_t number; /* of a slot that is free: */
        int64_t value;  /* what its counter holds */
        bool lost;      /* release: others have it by now */
    } slot[SM_DESTINATIONS_MAX];
} sm_charging;

/* By the step in w->step over w->memo; before either is changed. */
sm_charging sm_charging_of(const sm_work *w, const sm_change *change);

/* Sets w->memo, the event's body and the write's counters. */
sm_err sm_charging_take(semel *s, sm_work *w, const sm_charging *c, const sm_change *change,
                        const semel_record *r, sm_counters *out);

/* After SEMEL_E_OVER_CAP: looks what was in the way, so that the write can be tried again. *found:
 * a budget or a limit does not allow it, and change->over says which. */
sm_err sm_charging_over(semel *s, sm_work *w, sm_charging *c, const sm_change *change,
                        const semel_record *r, bool *found);

/* It was written: which lines were crossed. */
void sm_charging_done(semel *s, const sm_work *w, const sm_charging *c, const sm_change *change);

/* What an outcome says that its attempt has spent, the rest as it was declared; false if it says
 * nothing. */
bool sm_charge_told(const semel_outcome *o, const sm_charged *declared, sm_charge *out);

/* The words for the budget or limit that was in the way. */
void sm_charge_words(sm_work *w, const sm_over *over, semel_answer *a);

/* Warns of budgets that are nearly used up. */
void sm_charge_warn(sm_work *w, const sm_crossed *crossed, semel_answer *a);

#endif
