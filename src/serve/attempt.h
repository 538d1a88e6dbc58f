/*
 * An attempt: one call on its way through the ledger, whatever door it came in by.
 *
 *     start
 *       |        replay, refused
 *       v  .-----------------------------------------------------------> answer, end
 *     ASKING <----- PARKED   others are at it: asked again when that changes
 *       |  ^ `----> DOOR     the front end asks its own client first
 *       |  |
 *       |  `------- LOOKING, PROBING, FINDING   it is in doubt, and that may be settled
 *       v              |
 *     EXECUTING <------'     under a claim, whose lease is kept
 *       |
 *       v
 *     RECORDING -----------> answer, end; or what the ledger says, as above, but never EXECUTING
 *
 * ASKING, RECORDING, LOOKING and FINDING are turns: they block on the ledger, and a worker does
 * them. After each turn the front end gets the attempt (`turned`), and calls sm_attempt_go_on there
 * and then or on a thread of its own.
 *
 * An attempt is in one place at a time, and whoever has it there may use it alone. An attempt
 * without its client goes on if it executes, so that the outcome is recorded for the retry; one
 * that only waits is over. Whoever has executed a call never does so again, whatever the ledger
 * says (I2).
 */
#ifndef SM_SERVE_ATTEMPT_H
#define SM_SERVE_ATTEMPT_H

#include "serve/serve.h"

typedef enum sm_stage {
    SM_AT_REST, /* not started */
    SM_AT_ASKING,
    SM_AT_PARKED,
    SM_AT_DOOR,
    SM_AT_LOOKING,
    SM_AT_PROBING,
    SM_AT_FINDING,
    SM_AT_EXECUTING,
    SM_AT_RECORDING,
    SM_AT_END,
} sm_stage;

/* A warning that is carried from the begin of an attempt to its end; the rest is cut off. */
#define SM_WARNING_MAX 600u

/* What an attempt has of its effect. */
typedef enum sm_hold {
    SM_HOLDS_NOTHING,
    SM_HOLDS_CLAIM,    /* its end is to be recorded, or the claim given back */
    SM_HOLDS_NO_CLAIM, /* it may execute, and nothing is recorded of that */
    SM_HAS_RUN,        /* it never executes again */
} sm_hold;

/* How executing ended, once that is recorded. */
typedef enum sm_ended {
    SM_NOT_ENDED,
    SM_ENDED_SETTLED, /* the ledger has the outcome */
    SM_ENDED_BACK,    /* nothing was done: the claim is given back, now or when that is possible */
    SM_ENDED_UNRECORDED, /* there was no claim */
    SM_ENDED_PUT_BACK,   /* the ledger had lost the attempt, and has it again */
    SM_ENDED_OWED,       /* the ledger does not have it: it could not be told yet, or refuses */
    SM_ENDED_OPEN,       /* in doubt, or decided by others meanwhile */
} sm_ended;

/* What is done about a doubt. */
typedef enum sm_next {
    SM_NEXT_ASK,   /* the ledger is asked anew: something has changed */
    SM_NEXT_SEND,  /* it is claimed and sent again */
    SM_NEXT_PROBE, /* the executor is asked */
    SM_NEXT_STOP,  /* nothing: `stays` */
} sm_next;

/* What a front end does for an attempt. Those that may be NULL say so. `execute`, `answer`, `probe`
 * and `stays` are called where sm_attempt_go_on is. */
typedef struct sm_attempt_ops {
    /* A worker's turn is over: sm_attempt_go_on is to be called with this answer, or later with a
     * copy of it. */
    void (*turned)(sm_attempt *at, semel_answer *a);

    /* What was waited for has changed: sm_attempt_ask is to be called, here or later. On the thread
     * of whoever wakes it, without a lock. NULL: it is at once. */
    void (*woken)(sm_attempt *at);

    /* From inside of the ledger: the call has its contract and full arguments. As in sm_asking. May
     * be NULL. */
    sm_err (*prepare)(sm_attempt *at, const sm_contract *c, const sm_json *args, sm_fault *fault);

    /* On a worker, before the ledger is asked: makes the call, if it is not made yet. False: it
     * cannot be made, and `a` is the refusal. May be NULL. */
    bool (*make)(sm_attempt *at, semel_answer *a);

    /* Before the ledger is asked: whether nothing may begin now. May be NULL. */
    bool (*full)(sm_attempt *at);

    /* Before a refusal is acted on: whether the front end goes another way first. It has the
     * attempt then. May be NULL. */
    bool (*detour)(sm_attempt *at, semel_answer *a);

    /* Until when its client waits for what a refusal says is missing; 0: not at all. May
     * be NULL if nothing that is asked ever waits (sm_asking.waits). */
    int64_t (*until)(sm_attempt *at, const semel_answer *a);

    /* Executes it, and calls sm_attempt_done in the end. NULL: whoever asked does, and "execute" is
     * an answer like others. */
    void (*execute)(sm_attempt *at, semel_answer *a);

    /* On a worker, after the end was recorded: at->ended says how. True: what the ledger says now
     * is what the client is told. May be NULL: then it is so if the end is open. */
    bool (*recorded)(sm_attempt *at, semel_answer *a);

    /* Answers the client, if there still is one (sm_attempt_take_client), and ends the attempt. */
    void (*answer)(sm_attempt *at, semel_answer *a);

    /* Whether the client has not left before the attempt knew of it; under the lock. May be NULL.
     */
    bool (*here)(const void *client);

    /* The attempt has lost its client; under the lock. May be NULL. */
    void (*parted)(void *client);

    /* The client has waited long enough for an attempt that executes, and was taken from it.
     * `handle` names the effect; it is empty if nothing is recorded of the call. May be NULL: then
     * it goes on waiting. On the clock's thread, without the lock. */
    void (*late)(void *client, const char *handle);

    /* The attempt is over: it is released. */
    void (*end)(sm_attempt *at);

    /* Doubts. Whether this attempt may look after one now; the others may be NULL if there is no
     * `looks`. */
    bool (*looks)(sm_attempt *at, const semel_answer *a);

    /* On a worker: what the contract's next step comes to. */
    sm_next (*step)(sm_attempt *at, const sm_remedy *what, semel_answer *a);

    /* Asks the executor, and calls sm_attempt_probed in the end. */
    void (*probe)(sm_attempt *at);

    /* On a worker: what the executor said, and what comes next, ASK or STOP. *write: it is written
     * down before that. */
    sm_next (*found)(sm_attempt *at, sm_found_kind *kind, semel_outcome *outcome, bool *write,
                     semel_answer *a);

    /* Nothing more is done about the doubt for now. The front end answers and ends the attempt, or
     * parks it. */
    void (*stays)(sm_attempt *at, semel_answer *a);
} sm_attempt_ops;

struct sm_attempt {
    sm_serve *serve;
    const sm_attempt_ops *ops;
    sm_asking ask;      /* the front end fills in the call, the actor and what it must not cause */
    size_t outcome_max; /* bytes of an outcome */

    /* Set by whoever executes, before sm_attempt_done. */
    bool nothing_done;     /* the claim is given back */
    semel_outcome outcome; /* otherwise: what it came to */
    sm_health health;      /* what that says of the tool */

    /* For the front end to read. */
    sm_ended ended;
    uint64_t number;             /* of the attempt */
    bool resends;                /* it repeats one that is in doubt */
    char handle[SM_HANDLE_TEXT]; /* of the effect, once it was claimed */
    sm_handle effect; /* that it looks after, with the fence of the attempt that is in doubt */

    /* The machine's own. */
    sm_job job;
    sm_waiter waiter;
    sm_timer timer;
    _Atomic sm_stage stage;
    sm_hold hold;
    void *client; /* who wants the answer; NULL: nobody. Under the lock */
    sm_running lease;
    sm_next next;
    void (*before)(sm_attempt *at, semel_answer *a);
    char warning[SM_WARNING_MAX]; /* of what was claimed: for the answer at its end */
    bool told_by_ledger;          /* RECORDING: the ledger was asked what to tell */
    sm_attempt *next_leading;
    bool leads; /* it is among those that look after an effect; under the lock */
    bool tends; /* it began with looking after an effect, and has no call of its own yet */
};

static inline sm_stage sm_attempt_stage(const sm_attempt *at)
{
    return atomic_load(&((sm_attempt *)(uintptr_t)at)->stage);
}

/* What is wrong with its state, or NULL: asserted at every step. */
const char *sm_attempt_flaw(const sm_attempt *at);

/* Starts a zeroed attempt with its serve, ops, ask, outcome_max and client (may be NULL): it asks
 * the ledger, or looks after at->effect. */
void sm_attempt_start(sm_attempt *at);
void sm_attempt_start_looking(sm_attempt *at);

/* After a turn, with the answer that it came to. */
void sm_attempt_go_on(sm_attempt *at, semel_answer *a);

/* The front end takes the attempt, from `detour`, to ask its own client something. Then it asks the
 * ledger anew, as it does after `woken`; `before` (may be NULL) is done first on the worker. */
void sm_attempt_take(sm_attempt *at);
void sm_attempt_ask(sm_attempt *at, void (*before)(sm_attempt *at, semel_answer *a));

/* From EXECUTING, on any thread: it has ended, as at->nothing_done and at->outcome say. */
void sm_attempt_done(sm_attempt *at);

/* From PROBING: the executor has answered. */
void sm_attempt_probed(sm_attempt *at);

/* Parks it, from `stays`: it asks again when the effect changes, or at->ask.look_ms have passed, or
 * then. False: it may not wait. */
bool sm_attempt_park(sm_attempt *at, int64_t until_ns);

/* How long its client waits, also while it executes. */
void sm_attempt_time(sm_attempt *at, int64_t until_ns);

/* It waits no longer for others: the ledger is asked once more. False: it did not wait. */
bool sm_attempt_hurry(sm_attempt *at);

/* Takes the client away to answer it; NULL if it is gone already. */
void *sm_attempt_take_client(sm_attempt *at);

/* The client leaves; the caller holds the lock. True: the attempt was parked, and the caller ends
 * it with sm_attempt_end, without the lock. */
bool sm_attempt_lose_client(sm_attempt *at);

/* "Execute" was an answer, and nobody got it: the claim is given back. On a worker. */
void sm_attempt_give_back(sm_attempt *at, semel_answer *a);

/* Ends an attempt that nobody works on. A claim that it still has stays in the ledger: it will be
 * in doubt. */
void sm_attempt_end(sm_attempt *at);

#endif
