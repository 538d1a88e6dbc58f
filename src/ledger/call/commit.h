/*
 * How an attempt's end is written down: what commit.c and putback.c share.
 */
#ifndef SM_LEDGER_CALL_COMMIT_H
#define SM_LEDGER_CALL_COMMIT_H

#include "ledger/work/ledger.h"

/* An attempt's end on its way into the ledger. */
typedef struct sm_ending {
    const sm_handle *claim;
    semel_outcome outcome; /* settled, see sm_outcome_settle */
    sm_str value;          /* all of it, also if it is too large to be kept */
    sm_str actor;
    bool evidence;       /* see semel_write */
    const char *ignored; /* what it says of its cost and cannot be read: "cost"; NULL: nothing */
} sm_ending;

/* Whether an outcome was applied: as it says, else by the class of its tool. */
semel_applied sm_applied_by(const sm_memo *m, const semel_outcome *o);

/* Whether the record holds this outcome after w->step. */
bool sm_takes_outcome(const sm_work *w, const semel_outcome *o);

/* Starts the event's body with the facts about the attempt's end. `kept`: the record holds the
 * outcome. */
sm_err sm_ending_body(sm_work *w, const sm_ending *end, const semel_outcome *o, bool kept);

/* Writes the end of an attempt whose record the ledger has lost. w->cur is the record that is there
 * now; its version is 0 if there is none. SEMEL_E_STALE: look again. SEMEL_E_UNAVAILABLE: it cannot
 * be written, or not while another attempt runs. */
sm_err sm_put_back(semel *s, sm_work *w, const sm_recalled *seen, const sm_ending *end);

/* The same for an attempt that still runs. If it is of this handle, its lease is renewed. *back:
 * the record was put back; if not, it need not be. */
sm_err sm_put_back_running(semel *s, sm_work *w, const sm_recalled *seen, bool ours, bool *back);

#endif
