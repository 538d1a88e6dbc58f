/*
 * The board: what every process of a ledger must know before it lets a write begin. Pure.
 *
 * It is one small document of the ledger, which all processes read: what people have stopped, which
 * runs were stopped because they loop, and which tools' circuits are open.
 */
#ifndef SM_CORE_BOARD_H
#define SM_CORE_BOARD_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"
#include "core/breaker.h"
#include "core/loop.h"

/* As JSON. Runs that loop take at most half of it and circuits a quarter. */
#define SM_BOARD_MAX SM_OUTCOME_MAX

/* Stops of all kinds together, and runs that loop among them. What a person stops always has room:
 * the runs that were stopped first make it. For another run that loops, only one makes room that
 * was stopped a day ago; if there is none, the new one is blocked, and not stopped. */
#define SM_HALTS_MAX      4096u
#define SM_LOOP_HALTS_MAX 1024u
#define SM_LOOP_FIRM_MS   ((int64_t)24 * 3600 * 1000)

/* A run that nobody has reopened by then is off the board when that is next written. */
#define SM_LOOP_KEPT_MS ((int64_t)30 * 24 * 3600 * 1000)

typedef enum sm_halt_kind {
    SM_HALT_ALL,   /* every write */
    SM_HALT_SCOPE, /* those of a scope, and of the scopes below it */
    SM_HALT_TOOL,  /* those of a tool, or of the tools that match a pattern */
    SM_HALT_LOOP,  /* those of one run, which loops */
} sm_halt_kind;

typedef struct sm_halt {
    sm_halt_kind kind;
    sm_str name;         /* scope, tool or run; absent for all */
    sm_str reason, by;   /* of a person's; absent for a loop */
    sm_str bound;        /* the scope that whoever stopped it was bound to; absent: none */
    int64_t at;          /* since when */
    sm_loop_match match; /* of a loop */
} sm_halt;

/* Circuits on the board. The closed one that failed longest ago makes room. */
#define SM_CIRCUITS_MAX 1024u

/* A closed one is off the board when that is next written so long after a failure. The time of the
 * failure is put right when it is wrong by SM_CIRCUIT_LATE_MS: so it stays while failures count
 * (core/breaker.h). */
#define SM_CIRCUIT_LATE_MS ((int64_t)12 * 3600 * 1000)
#define SM_CIRCUIT_KEPT_MS (SM_BREAKER_ROW_MS + SM_CIRCUIT_LATE_MS)

/* Which circuit. A tool with upstreams has one for each of them, which all tenants share: only
 * calls that Semel itself makes move it. Of other tools we know what those say who call them: so
 * each tenant has its own. */
typedef struct sm_circuit_name {
    sm_str tool;
    sm_str upstream; /* its origin; or absent: */
    sm_str tenant;
} sm_circuit_name;

/* A circuit that is not as good as new: it is open or half open; or closed, and failures count
 * until a call ends well. */
typedef struct sm_circuit {
    sm_circuit_name of;
    sm_circuit_state state;
    int64_t since; /* of the state; closed: of a failure */
    int64_t until; /* open: when it may be tried */
    uint32_t failures;
} sm_circuit;

typedef struct sm_board {
    sm_halt *halts;
    uint32_t n;
    sm_circuit *circuits;
    uint32_t n_circuits;
} sm_board;

/* "all", "scope", "tool", "loop". */
const char *sm_halt_name(sm_halt_kind kind);

/* Reads one. An absent text is an empty board. Texts point into `text`, or are made in the arena.
 * False if it is not one. */
bool sm_board_read(sm_arena *a, sm_str text, sm_board *out);

/* As JSON. */
void sm_board_put(const sm_board *b, sm_buf *out);

/* The members of a halt that people see as well: all but the time. */
void sm_halt_put(const sm_halt *h, sm_buf *out);

/* Takes off what is over. */
void sm_board_tidy(sm_board *b, int64_t now);

/* The halt of this kind and name; NULL if there is none. */
sm_halt *sm_board_find(const sm_board *b, sm_halt_kind kind, sm_str name);

/* With one more, for which others may make room, and with one less. */
bool sm_board_add(sm_arena *a, sm_board *b, const sm_halt *h); /* false: full, or no memory */
void sm_board_remove(sm_board *b, sm_halt *h);

/* A circuit; NULL if it is not there. */
sm_circuit *sm_board_circuit(const sm_board *b, const sm_circuit_name *of);

/* Whether the board says this of a circuit. */
bool sm_board_says(const sm_board *b, const sm_circuit *c);

/* Makes it say so; a circuit that is closed without a failure is not there. False: full, or no
 * memory. */
bool sm_board_set_circuit(sm_arena *a, sm_board *b, const sm_circuit *c);

/* Whether somebody who is bound to this scope (absent: to none) may take off what a person stopped:
 * not what somebody stopped who is not bound to it. */
bool sm_halt_yields(const sm_halt *h, sm_str bound);

/* How many runs that loop are on it. */
uint32_t sm_board_loops(const sm_board *b);

/* Whether a halt keeps every write of a scope from beginning. */
bool sm_halt_covers(const sm_halt *h, sm_str scope);

/* What keeps a write of this tool from beginning in this scope; NULL: nothing. Without a scope:
 * only stops of the tool are looked at. */
const sm_halt *sm_board_stops(const sm_board *b, sm_str scope, sm_str tool);

#endif
