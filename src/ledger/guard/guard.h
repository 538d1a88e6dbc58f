/*
 * Guards: what keeps a call from running or from being answered, although its effect would allow
 * it.
 *
 * They come last in the order of steps. What people have stopped (board.h) and a run that repeats
 * itself (runs.h) are looked at before an attempt begins; a repeating run also before a replay is
 * answered. Budgets are part of the write that begins the attempt (call/charge.h).
 */
#ifndef SM_LEDGER_GUARD_GUARD_H
#define SM_LEDGER_GUARD_GUARD_H

#include "ledger/call/begin.h"

/* An attempt, or a request for its approval, is about to begin. *code refuses it: the answer has
 * its words. */
sm_err sm_guard_start(sm_begun *b, semel_code *code);

/* A settled effect is about to answer; the answer is about it already. False: only the ledger can
 * tell, and this call is answered from memory. */
bool sm_guard_replay(sm_begun *b, semel_code *code);

/* A call is about to run without a record. */
sm_err sm_guard_pass(sm_begun *b, semel_code *code);

/* An attempt has ended, as w->cur now says: the answer gets a warning if its run repeats itself. */
void sm_guard_ended(semel *s, sm_work *w, semel_answer *a);

#endif
