/*
 * One thread on which everything of the MCP proxy happens but waiting for the ledger: descriptors,
 * timers, and a mailbox for whoever works elsewhere. What belongs to the loop is used on its thread
 * alone and needs no lock.
 */
#ifndef SM_MCP_LOOP_H
#define SM_MCP_LOOP_H

#include "base/error.h"
#include "base/timer.h"

typedef struct mcp_loop mcp_loop;

sm_err mcp_loop_new(mcp_loop **out, sm_fault *fault);
void mcp_loop_free(mcp_loop *l); /* accepts NULL; what is in the mailbox is given out first */

/* Runs until mcp_loop_stop, on whatever thread this is; may be run again. Whoever is called may
 * watch, unwatch, time and untime anything. */
void mcp_loop_run(mcp_loop *l);
void mcp_loop_stop(mcp_loop *l); /* from any thread, or a signal's handler */

/* Counts what still needs the loop to run, such as a child that has to end. */
void mcp_loop_keep(mcp_loop *l, int change);
size_t mcp_loop_kept(const mcp_loop *l);

/* Runs until nothing of that is left, or for so long. */
void mcp_loop_settle(mcp_loop *l, int64_t most_ms);

/* ---- the mailbox -----------------------------------------------------------------------------*/

/* Lives in whatever it is about. May be posted again once it has been given out. */
typedef struct mcp_post {
    struct mcp_post *next;
    void (*take)(struct mcp_post *post); /* on the loop's thread */
} mcp_post;

/* From any thread; never blocks. In the order of posting. */
void mcp_loop_post(mcp_loop *l, mcp_post *post);

/* Takes a post out of the mailbox, if it is there, before what it is about is gone. Not from inside
 * of a `take`. */
void mcp_loop_unpost(mcp_loop *l, mcp_post *post);

/* ---- descriptors -----------------------------------------------------------------------------*/

enum { MCP_READABLE = 1, MCP_WRITABLE = 2 };

typedef struct mcp_descriptor {
    int fd;
    unsigned wants; /* as it was set */
    /* `ready` has also what cannot be refused: an end or an error counts as both. */
    void (*ready)(struct mcp_descriptor *w, unsigned ready);
    bool added;
    bool always; /* a regular file, which epoll does not take: it is ready whenever it is wanted */
    struct mcp_descriptor *next_always;
} mcp_descriptor;

/* Watches w->fd for these, or for something else than before; 0: for nothing. False: it cannot be
 * watched. */
bool mcp_loop_watch(mcp_loop *l, mcp_descriptor *w, unsigned wants);
void mcp_loop_unwatch(mcp_loop *l, mcp_descriptor *w); /* before the descriptor is closed */

/* ---- timers ----------------------------------------------------------------------------------*/

typedef struct mcp_alarm {
    sm_timer timer;
    void (*due)(struct mcp_alarm *t);
    struct mcp_alarm *next_unset; /* there was no memory to set it; that is tried again */
} mcp_alarm;

/* Sets it, or sets it anew, by sm_clock_mono_ns. It may be late, never lost. */
void mcp_loop_time(mcp_loop *l, mcp_alarm *t, int64_t due_ns);
void mcp_loop_untime(mcp_loop *l, mcp_alarm *t); /* accepts one that is not set */

#endif
