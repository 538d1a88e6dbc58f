/*
 * The workspace behind an answer: everything that one call needs, kept from one call to the next.
 *
 * `call` holds the caller's documents and what the answer says; `held` the records read from the
 * store, of which a waiting call reads many. Neither outlives the next call.
 */
#ifndef SM_LEDGER_WORK_WORK_H
#define SM_LEDGER_WORK_WORK_H

#include "core/record.h"

typedef struct sm_work {
    semel_room room; /* what stores allocate from: `held` */
    sm_arena call;
    sm_arena held;
    sm_keyer keyer;
    sm_buf life;                  /* of the record being written */
    sm_buf outcome;               /* likewise */
    sm_buf args;                  /* likewise */
    sm_buf body;                  /* of the event being written */
    sm_buf what;                  /* likewise */
    sm_buf scratch;               /* for hashing */
    sm_buf json;                  /* the answer as JSON */
    semel_record cur;             /* the record that the call is about */
    int64_t now;                  /* the store's, when it was read */
    struct sm_recalled *recalled; /* the copy that `cur` was recalled from, or NULL */
    sm_memo memo;                 /* its memo */
    sm_move step;
    semel_fault fault;
    sm_str budget_warning;   /* the part of the answer's warning that is about budgets */
    sm_contracts *contracts; /* those in use when they were last asked for; held */
} sm_work;

static inline sm_work *sm_work_of(semel_answer *a)
{
    return a->work;
}

/* Starts a call: forgets what the answer said. */
sm_work *sm_work_start(semel_answer *a);

/* A copy of a text that lives as long as the answer. Absent stays absent; p is NULL if there is no
 * memory. */
sm_str sm_work_copy(sm_work *w, sm_str s);

/* Forgets records read before, `cur` among them. */
static inline void sm_work_drop(sm_work *w)
{
    sm_arena_reset(&w->held);
}

#endif
