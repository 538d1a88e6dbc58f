/*
 * The moves that events are made of: each changes an effect in one way and notes it. Internal to
 * the transition; transition.c says which event makes which moves.
 */
#ifndef SM_CORE_LIFE_H
#define SM_CORE_LIFE_H

#include "core/transition.h"

/* The step being made. */
typedef struct sm_making {
    const sm_life_event *ev;
    const sm_contract *c;
    int64_t now;
    sm_move *out;
    sm_effect *e; /* out->next */
} sm_making;

/* History and answer of the step being made. */
void sm_life_note(sm_making *m, sm_history n);
void sm_life_answer(sm_making *m, sm_reaction a, semel_code code);

bool sm_life_same_hash(const sm_hash *a, const sm_hash *b);

/* An approval request, or an unused approval, is gone. */
void sm_life_clear_request(sm_effect *e);

/* Nobody has asked for the call that begins now. */
void sm_life_clear_askers(sm_effect *e);

/* No attempt is in doubt any more. */
void sm_life_clear_doubts(sm_effect *e);

/* Ends the effect's life in a settled state; its windows start at `at` (I17). */
void sm_life_settle(sm_making *m, semel_state state, int64_t at);

/* Whether an attempt is in doubt, and taking that doubt away. */
bool sm_life_doubts_fence(const sm_effect *e, uint64_t fence);
void sm_life_remove_doubt(sm_making *m, uint64_t fence);

/* A running attempt ended without a word, or without knowing. */
void sm_life_enter_doubt(sm_making *m, int64_t at);

/* The current attempt surely did nothing; what is known of the others decides. */
void sm_life_end_not_applied(sm_making *m);

/* A new attempt under a new fence, using up an approval; the answer is execute. */
void sm_life_start_attempt(sm_making *m, bool resending);

/* Whether an actor is among those who asked, or among those who approved. */
bool sm_life_asked(const sm_effect *e, const sm_hash *actor);
bool sm_life_approved(const sm_effect *e, const sm_hash *actor);

/* Remembers who begins. */
void sm_life_remember_asker(sm_making *m);

/* A new request for approval; the answer is to wait. */
void sm_life_ask(sm_making *m);

/* The fresh path: barrier, approval, attempt. */
void sm_life_start(sm_making *m);

/* The state that an outcome settles an effect in. */
semel_state sm_life_outcome_state(const sm_life_event *ev);

/* The event STRAY, by the table in transition.c. */
void sm_life_stray(sm_making *m);

#endif
