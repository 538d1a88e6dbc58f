/*
 * The board of a ledger (core/board.h), as this handle knows it.
 *
 * While writes begin, a thread reads it four times a second. Whoever is about to begin a write and
 * finds that it was not read for half a second reads it first. So no write begins later than a
 * second after a stop was acknowledged, in whatever process.
 */
#ifndef SM_LEDGER_GUARD_BOARD_H
#define SM_LEDGER_GUARD_BOARD_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/board.h"
#include "ledger/work/work.h"

typedef struct sm_noticeboard {
    pthread_mutex_t lock; /* of what follows; nothing else is locked under it */
    pthread_cond_t wake;  /* CLOCK_MONOTONIC */
    pthread_t reader;
    bool started, resting, stop; /* about the reader; it rests while no write begins */
    int64_t asked_ns;            /* when somebody asked last */
    sm_arena arena;              /* where `now` is */
    sm_board now;
    uint64_t version;             /* of its record; 0: there is none */
    sm_hash head;                 /* the same: a store that lost it may count anew */
    atomic_int_least64_t read_ns; /* when it was last read; 0: never */
    atomic_uint_fast64_t epoch;   /* grows with every change */
} sm_noticeboard;

void sm_noticeboard_init(sm_noticeboard *b);
void sm_noticeboard_stop(sm_noticeboard *b); /* ends its thread */
void sm_noticeboard_fini(sm_noticeboard *b);

/* Reads it, if it was not read for so long. */
sm_err sm_board_refresh(semel *s, int64_t age_ms, semel_fault *fault);

/* What keeps a write from beginning. The texts are copied into the arena. *stopped is false if
 * nothing does. Reads the board first if it was not read for half a second. */
sm_err sm_board_ask(semel *s, sm_arena *a, sm_str scope, sm_str tool, sm_halt *out, bool *stopped,
                    semel_fault *fault);

/* Whether a run is stopped because it repeats itself, as far as is known. `out` may be NULL; it has
 * no texts. */
bool sm_board_loop(semel *s, sm_str scope, sm_halt *out);

/* All halts that are on it now, copied into the arena. Reads it first. */
sm_err sm_board_copy(semel *s, sm_arena *a, sm_board *out, semel_fault *fault);

/* Puts a halt on the board, or takes it off. *changed is false if it was there, or was not. One
 * that yields to fewer people takes the place of the one that is there. SEMEL_E_BARRED: it does not
 * yield to somebody who is `bound`. */
sm_err sm_board_halt(semel *s, const sm_halt *h, sm_str actor, bool *changed, semel_fault *fault);
sm_err sm_board_release(semel *s, sm_halt_kind kind, sm_str name, sm_str bound, sm_str actor,
                        sm_str reason, bool *changed, semel_fault *fault);

/* How a circuit is, as far as is known; without its texts. False if it is not on the board. Reads
 * the board first if it was not read for half a second. */
bool sm_board_find_circuit(semel *s, const sm_circuit_name *of, sm_circuit *out);

/* Whether the board says this of a circuit, as far as is known. */
bool sm_board_agrees(semel *s, const sm_circuit *c);

/* Makes the board say how a circuit is. `truth` tells, after the board was read: so whoever posts
 * last posts what is so. */
typedef sm_err sm_truth_fn(void *context, sm_circuit *out);
sm_err sm_board_post(semel *s, sm_truth_fn *truth, void *context, semel_fault *fault);

/* All circuits that are open or half open, as of now. */
sm_err sm_board_circuits(semel *s, sm_arena *a, const sm_circuit **out, uint32_t *n,
                         semel_fault *fault);

#endif
