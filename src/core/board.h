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
#include "core/loop.h"

/* Stops of all kinds together. A run that loops beyond this is blocked, and not stopped. */
#define SM_HALTS_MAX 4096u

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
    int64_t at;          /* since when */
    sm_loop_match match; /* of a loop */
} sm_halt;

typedef struct sm_board {
    sm_halt *halts;
    uint32_t n;
} sm_board;

/* "all", "scope", "tool", "loop". */
const char *sm_halt_name(sm_halt_kind kind);

/* Reads one. An absent text is an empty board. Texts point into `text`, or are made in the arena.
 * False if it is not one. */
bool sm_board_read(sm_arena *a, sm_str text, sm_board *out);

/* As JSON. */
void sm_board_put(const sm_board *b, sm_buf *out);
void sm_halt_put(const sm_halt *h, sm_buf *out);

/* The halt of this kind and name; NULL if there is none. */
sm_halt *sm_board_find(const sm_board *b, sm_halt_kind kind, sm_str name);

/* With one more, and with one less. */
bool sm_board_add(sm_arena *a, sm_board *b, const sm_halt *h); /* false: full, or no memory */
void sm_board_remove(sm_board *b, sm_halt *h);

/* What keeps a write of this tool from beginning in this scope; NULL: nothing. */
const sm_halt *sm_board_stops(const sm_board *b, sm_str scope, sm_str tool);

#endif
