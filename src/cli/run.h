/*
 * What the two halves of semel run share: run.c asks the ledger and runs the command, run_end.c
 * tells how it ended.
 */
#ifndef SM_CLI_RUN_H
#define SM_CLI_RUN_H

#include "base/arena.h"
#include "effect/child.h"
#include "semel/semel.h"

typedef struct cli_run_options {
    const char *key, *scope, *ledger, *contract, *window, *seal_key;
    int64_t wait_ms;
    bool retry_failed, approve, input, quiet;
    char **argv;
} cli_run_options;

/* What the command works with; released together. */
typedef struct cli_run_work {
    const cli_run_options *o;
    sm_arena arena;
    sm_buf contract, args, input, value;
    sm_signals signals;
    sm_transcript record;
    sm_child child;
    bool mute;       /* we were started without a standard output */
    bool lost;       /* it was started, and nobody knows how it ended */
    int interrupted; /* the signal that kept it from being started, or made us stop waiting */
    char effect[64]; /* the handle of what was run here */
    char asked[64];  /* the approval request that has been announced */
    semel *s;
    semel_answer *answer, *other;
} cli_run_work;

/* Forgets the record of a command that was never started, so that its key can be used. */
void cli_run_forget(cli_run_work *w, semel_str effect);

/* Prints what is to be printed about the answer; `e` is what the ledger returned with it. Returns
 * the exit code. */
int cli_run_conclude(cli_run_work *w, semel_err e);

#endif
