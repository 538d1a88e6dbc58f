/* Limits (core/limit.h) in the writes that begin and end attempts (limit.c). */
#ifndef SM_LEDGER_CALL_LIMIT_H
#define SM_LEDGER_CALL_LIMIT_H

#include "ledger/call/charge.h"

/* Whom a call is for, as far as its contract has limits. */
sm_err sm_limits_find(semel *s, sm_work *w, const sm_identity *id, sm_str scope,
                      sm_destinations *out);

/* Where free slots are thought to be, before anybody looked. A destination is mostly new, so that
 * nothing has to be read; where it is not, the slots that effects begin at are spread. */
void sm_slots_guess(sm_charging *c, const sm_change *change);

/* An attempt begins: takes the slots. */
void sm_slots_take(sm_work *w, const sm_charging *c, const sm_destinations *to, sm_counters *out);

/* Nothing was done: frees those that are not free anyway by now. */
void sm_slots_free(sm_work *w, const sm_charging *c, sm_counters *out);

/* A record that was lost comes back: takes those of its slots that nobody else has. */
sm_err sm_slots_return(semel *s, sm_work *w, const sm_change *change, uint8_t shard,
                       sm_counters *out);

/* After SEMEL_E_OVER_CAP: finds slots that are free. *found: a destination has none, and
 * change->over says so. */
sm_err sm_slots_over(semel *s, sm_work *w, sm_charging *c, const sm_change *change, uint8_t shard,
                     bool *found);

/* After SEMEL_E_OVER_CAP: finds slots that others have by now, which are not freed. */
sm_err sm_slots_lost(semel *s, sm_work *w, sm_charging *c, uint8_t shard);

/* When the call may be made again, for people and in the answer: "2026-03-01T12:41:07.310Z (in
 * 42m)". */
sm_str sm_over_until(sm_work *w, const sm_over *over, semel_answer *a);

/* The words for the limit that was in the way. */
void sm_limit_words(sm_work *w, const sm_over *over, semel_answer *a);

#endif
