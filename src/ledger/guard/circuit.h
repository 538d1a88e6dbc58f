/*
 * Circuits: tools that are not called for a while because they fail (core/breaker.h).
 *
 * A circuit belongs to a tool and, if its contract has an upstream, to that upstream's origin: a
 * tool whose variants lead to several has one for each. All tenants share it, so only calls that
 * Semel itself makes there move it. The circuit of a tool without an upstream is moved by what
 * agents say: it belongs to one tenant, and refuses no other's calls. Its state is a document of
 * the ledger (shared.h), so that the failures of all processes add up. What is not as good as new
 * is on the board (board.h), which every process has in memory: a call of a tool that works asks
 * nobody and writes nothing.
 *
 * The document counts. Whoever changes it makes the board say the same afterwards, and whoever
 * finds that it does not puts that right.
 */
#ifndef SM_LEDGER_GUARD_CIRCUIT_H
#define SM_LEDGER_GUARD_CIRCUIT_H

#include "ledger/call/begin.h"

/* An attempt is about to begin. *code refuses it: the answer has its words. It may have become a
 * probe (b->probes). */
sm_err sm_circuit_begin(sm_begun *b, semel_code *code);

/* It did not begin after all: its place as a probe is free again. */
void sm_circuit_unbegin(sm_begun *b);

/* An attempt of w->cur has ended, or its claim was given back. */
void sm_circuit_ended(semel *s, sm_work *w, const sm_handle *claim, sm_health health);

/* A person closes the circuits of a tool, or of all that match a pattern. */
sm_err sm_circuit_close(semel *s, sm_str pattern, sm_str actor, sm_str reason, bool *changed,
                        semel_fault *fault);

#endif
