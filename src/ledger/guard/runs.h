/*
 * Runs that loop: what each run of this process did last (core/loop.h), and what to do about it.
 *
 * A run is a scope. Its calls are entries: replays when they are answered, others when their end is
 * recorded. Whoever waits for somebody else's attempt adds nothing, and neither does what we
 * refuse, except for a call that is blocked: it goes on with the pattern that it was blocked for.
 *
 * The table is bounded: the run that was not heard of for longest makes room. As soon as a run is
 * to be warned, what it did is shared through the ledger (shared.h), so that other processes go on
 * counting, and so does this one after a restart. A process reads it at the first repeat of a run,
 * and tells of those that repeated something when it closes. So a process that is killed takes with
 * it what was not warned of yet. Calls that repeat nothing never cost anything more.
 *
 *     count     up to here        the ladder of a contract
 *     warn      answered          the answer carries a warning
 *     block     not begun         LOOP_DETECTED, with the recorded outcome if there is one
 *     trip      the run is over   every write of it is refused until a person reopens it (board.h)
 */
#ifndef SM_LEDGER_GUARD_RUNS_H
#define SM_LEDGER_GUARD_RUNS_H

#include <pthread.h>

#include "base/arena.h"
#include "core/contract.h"
#include "core/loop.h"
#include "semel/semel.h"

#define SM_RUNS_STRIPES 16u

typedef struct sm_run_seen sm_run_seen;

typedef struct sm_runs {
    struct sm_runs_stripe {
        pthread_mutex_t lock;  /* nothing else is locked under it but the board */
        sm_run_seen **buckets; /* made at the first use */
        sm_run_seen *newest, *oldest;
        uint32_t n;
    } __attribute__((aligned(64))) stripes[SM_RUNS_STRIPES];
} sm_runs;

void sm_runs_init(sm_runs *r);
void sm_runs_fini(sm_runs *r);

typedef struct sm_loop_call {
    sm_str scope;
    uint64_t call;
    const sm_loop_rule *rule;
    int64_t now;   /* by the store's clock */
    bool passes;   /* it has no record: only what this process knows counts */
    bool observes; /* whatever is found, it runs */
    bool looks;    /* before: nothing is added yet, it will be asked again */
    bool memory;   /* a replay that must not wait: SM_LOOP_LOAD, with nothing added, if more than a
                      warning is to be told */
    bool repeats;  /* after: it may have been made before */
} sm_loop_call;

typedef enum sm_loop_level {
    SM_LOOP_FINE,
    SM_LOOP_WARN,
    SM_LOOP_BLOCK,
    SM_LOOP_TRIP,
    SM_LOOP_TRIPPED, /* the run is over already */
    SM_LOOP_LOAD,    /* the ledger may know more of this run: sm_runs_share, and look again */
    SM_LOOP_SHARE,   /* and should be told what is known here */
} sm_loop_level;

typedef struct sm_loop_finding {
    sm_loop_level level;
    sm_loop_match match;
} sm_loop_finding;

/* About a call that is to run: whether it may. It adds nothing, unless the call is blocked. */
sm_loop_finding sm_runs_before(semel *s, const sm_loop_call *c, uint64_t unused);

/* About a call with a result (0: nobody will tell it): adds it. A replay is asked about as a call
 * that is to run, in the same look: if it is blocked, it is added all the same. */
sm_loop_finding sm_runs_replay(semel *s, const sm_loop_call *c, uint64_t result);
sm_loop_finding sm_runs_after(semel *s, const sm_loop_call *c, uint64_t result, bool progress);

/* The board says that the run was stopped: it begins anew when that is over. Whoever reopens it may
 * be another process, and before the next call of the run comes. */
void sm_runs_tripped(semel *s, sm_str scope);

/* A process that makes one call and ends learns what the ledger knows of the run, before it adds to
 * it. */
void sm_runs_load(semel *s, const sm_loop_call *c);

/* Learns what the ledger knows of the run; and tells it what this process does, if `tell`. */
void sm_runs_share(semel *s, sm_str scope, bool tell);

/* Tells the ledger what runs did that repeated something, when the handle closes. */
void sm_runs_tell_all(semel *s);

/* What a call or its result is called in a loop's state, by a hash of it. */
static inline uint64_t sm_loop_number(const sm_hash *h)
{
    uint64_t v;
    memcpy(&v, h->b, sizeof v);
    return v == 0 ? 1 : v;
}

/* How a loop's state is shared: the text of a document "/loop". False if it says nothing, because
 * another version wrote it, or it is damaged. */
#define SM_LOOP_DOCUMENT "/loop"
bool sm_runs_read(sm_arena *a, sm_str text, sm_loop *out);

/* What the ledger knows of a run; whoever asks is told the same. */
sm_err sm_runs_known(semel *s, sm_str scope, sm_loop *out, semel_fault *fault);

/* What is known of a run here, or by the ledger if that knows more. It changes nothing. */
sm_err sm_runs_look(semel *s, sm_str scope, sm_loop *out, semel_fault *fault);

/* The step of the ladder that so many copies reach. */
sm_loop_level sm_loop_level_of(const sm_loop_rule *rule, uint32_t count);

/* The run begins anew: a person has reopened it. *changed: the ledger knew what it did. */
sm_err sm_runs_reset(semel *s, sm_str scope, sm_str actor, sm_str reason, bool *changed,
                     semel_fault *fault);

#endif
