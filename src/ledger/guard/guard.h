/*
 * Guards: what keeps a call from running or from being answered, although its effect would allow
 * it.
 *
 * They come last in the order of steps. What people have stopped (board.h) and a run that repeats
 * itself (runs.h) are looked at before an attempt begins; a repeating run also before a replay is
 * answered. Budgets are part of the write that begins the attempt (call/charge.h). A tool that
 * fails (circuit.h) is looked at last, because its place as a probe is taken then.
 */
#ifndef SM_LEDGER_GUARD_GUARD_H
#define SM_LEDGER_GUARD_GUARD_H

#include "ledger/call/begin.h"

/* An attempt, or a request for its approval, is about to begin. *code refuses it: the answer has
 * its words. If the record was not read yet (sm_begun.unread), that comes first: then it is asked
 * again. */
sm_err sm_guard_start(sm_begun *b, semel_code *code);

/* Whether what w->cur is about was stopped by now. *code: how to refuse it; the answer has its
 * words. */
sm_err sm_guard_stopped(semel *s, sm_work *w, semel_answer *a, semel_code *code);

/* What sm_guard_start allowed did not begin. */
void sm_guard_unstart(sm_begun *b);

/* A settled effect is about to answer; the answer is about it already. False: only the ledger can
 * tell, and this call is answered from memory. */
bool sm_guard_replay(sm_begun *b, semel_code *code);

/* A call is about to run without a record. */
sm_err sm_guard_pass(sm_begun *b, semel_code *code);

/* The number of a call that is passed on without asking, for sm_pass_ended; 0: it does not count.
 */
uint64_t sm_guard_passing(sm_begun *b);

/* An attempt has ended, as w->cur now says: the answer gets a warning if its run repeats itself.
 * `health` is what that says of the tool. */
void sm_guard_ended(semel *s, sm_work *w, const sm_handle *claim, sm_health health,
                    semel_answer *a);

/* A claim was given back: nothing was done under it. */
void sm_guard_given_back(semel *s, sm_work *w, const sm_handle *claim, sm_health health);

#endif
