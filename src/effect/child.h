/*
 * Running a command as an effect: its output is streamed live and recorded, signals are passed on,
 * and its end is learned exactly.
 *
 * The command stays in our process group, so that the terminal's signals and job control reach it
 * as they would without us. What was sent to us alone is passed on; what the terminal sent reached
 * the command already.
 *
 * Nothing that goes wrong on our side after the start disturbs the command: if nobody reads our
 * output any more, it is recorded all the same, and lack of memory only cuts the record.
 *
 * A process that the command left behind may hold its output open. What it writes within
 * SM_CHILD_GRACE_MS after the command's end is still recorded; then its pipe is closed. A command
 * that starts something to stay should redirect its output.
 *
 * Order: two pipes have no common order. What is read at different times is recorded in that order;
 * if both streams have bytes at once, standard output is taken first.
 */
#ifndef SM_EFFECT_CHILD_H
#define SM_EFFECT_CHILD_H

#include <signal.h>

#include "effect/transcript.h"

#define SM_CHILD_GRACE_MS 1000

/* As a shell says it. */
#define SM_STATUS_NOT_EXECUTABLE 126
#define SM_STATUS_NOT_FOUND      127
#define SM_STATUS_SIGNAL         128

/*
 * The signals that would end or concern us, held back from their default action and read one by
 * one. Hold them before other threads are started: a thread that does not hold them would be ended
 * by them. Those that were ignored when we started (nohup) stay ignored. One holder at a time.
 */
typedef struct sm_signals {
    int fd;
    sigset_t before; /* the mask to give back, and to start commands with */
} sm_signals;

sm_err sm_signals_hold(sm_signals *s, sm_fault *fault);

/* Gives the old mask back; what is pending then has its default action. */
void sm_signals_release(sm_signals *s);

/* Takes what has come so far: the number of a signal that asks us to end, or 0. */
int sm_signals_ending(sm_signals *s);

typedef struct sm_child {
    char *const *argv; /* the first is looked up in PATH */
    char *const *envp;
    sm_str input;          /* given to its standard input; absent: /dev/null */
    int live[SM_STREAMS];  /* where its output goes while it runs */
    sm_signals *signals;   /* held by the caller */
    sm_transcript *record; /* initialised by the caller */

    sm_ending end;
    sm_buf unsent[SM_STREAMS];  /* output that `live` has not taken yet */
    int live_error[SM_STREAMS]; /* the errno that ended streaming, or 0 */
} sm_child;

/* Runs it to its end. SM_OK if that is known, with `end` filled in: a command that could not be
 * started is an ending too. SEMEL_E_IO if it was started and nobody can say how it ended.
 *
 * Descriptors 0 to 2 must be open. It does not wait for a slow reader of our output once the
 * command has ended: what is left is in `unsent`, for sm_child_flush. */
sm_err sm_child_run(sm_child *c);

/* Writes what is left of the output; blocks as long as its readers do. */
void sm_child_flush(sm_child *c);

void sm_child_fini(sm_child *c); /* accepts a zeroed object */

#endif
