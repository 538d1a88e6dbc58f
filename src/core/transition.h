/*
 * The life of an effect: one pure function of (effect, event, now).
 *
 *             begin                     claim                 commit
 *   (none) ----------> running <------------------ ready <----------- pending_approval
 *      \                 |  |  \                      ^   approve        |   |   |
 *       \ needs approval |  |   \ lease lost          |                deny expire cancel
 *        `---------------+--+----+--> in_doubt -------+ not applied       |   |   |
 *                        |  |           | applied                       denied expired canceled
 *               succeeded failed partial  (settled, answered from the record)
 *
 * `transition.c` has the table of what each event does in each state. Time is applied first: a lost
 * lease, an expired request and a window that is over take effect before the event does, in the
 * same write.
 *
 * Nothing here reads a clock, makes an id or stores anything (I13). The caller writes the new
 * effect with its notes if `changed`, by compare-and-swap, and starts over if somebody else was
 * faster.
 */
#ifndef SM_CORE_TRANSITION_H
#define SM_CORE_TRANSITION_H

#include "core/effect.h"
#include "core/identity.h"

typedef enum sm_found_kind { SM_FOUND_APPLIED, SM_FOUND_ABSENT, SM_FOUND_UNKNOWN } sm_found_kind;

/*  X(code, text) */
#define SM_EVENTS(X)                                                                               \
    X(BEGIN, "begin")       /* somebody wants the action done */                                   \
    X(LOOK, "look")         /* somebody looks: only time is applied */                             \
    X(RENEW, "renew")       /* an attempt is still at it */                                        \
    X(COMMIT, "commit")     /* an attempt ended */                                                 \
    X(WITHDRAW, "withdraw") /* an attempt never began: nobody was told to run it */                \
    X(STRAY, "stray")       /* an attempt ended whose record the ledger has lost */                \
    X(STEP, "step")         /* Semel takes the next step of on_in_doubt */                         \
    X(PROBED, "probed")     /* what a probe found */                                               \
    X(APPROVE, "approve")                                                                          \
    X(DENY, "deny")                                                                                \
    X(CANCEL, "cancel")                                                                            \
    X(RESOLVE, "resolve") /* a person says what happened */                                        \
    X(FORGET, "forget")

typedef enum sm_event_kind {
#define X(code, text) SM_EV_##code,
    SM_EVENTS(X)
#undef X
        SM_EV_COUNT
} sm_event_kind;

typedef struct sm_life_event {
    sm_event_kind kind;
    /* begin; needs_approval and digest also for resolve and probed */
    sm_drift drift;      /* these arguments against the recorded ones */
    bool needs_approval; /* these arguments do, by the contract */
    sm_hash digest;      /* of key, tool, full arguments and contract (I7) */
    bool deliberate;     /* the front end has evidence that a repeat is meant */
    bool overwritten;    /* another effect has written what this one acts on, or may have */
    bool barred;         /* another effect of this tool and scope is in doubt */
    bool gone;           /* any event: whoever runs the attempt is known to be no more */
    int64_t lease_ms;    /* begin, renew, step */
    /* renew, commit, withdraw; a stray attempt has no fence here */
    uint64_t fence;
    semel_kind outcome;
    semel_applied applied;
    uint64_t request; /* approve, deny */
    /* begin where approval is needed, approve, deny */
    sm_hash actor;
    bool proven; /* the actor has been authenticated */
    /* resolve, probed */
    semel_resolution resolution;
    sm_found_kind found;
} sm_life_event;

/* What to tell whoever caused the event. */
typedef enum sm_reaction {
    SM_EXECUTE, /* run it, under the effect's new fence */
    SM_REPLAY,  /* the record answers */
    SM_WAIT,    /* wait for a change; `code` is what to say when the wait is over */
    SM_REFUSED, /* no, and `code` says why */
    SM_DONE,    /* the event took effect */
    SM_EVIDENCE /* a late commit: kept, decides nothing */
} sm_reaction;

/* Entries for the effect's history, in the order in which they happened. */
#define SM_NOTES(X)                                                                                \
    X(STARTED, "started")                                                                          \
    X(RENEWED, "renewed")                                                                          \
    X(DOUBTED, "doubted")                                                                          \
    X(REQUESTED, "requested")                                                                      \
    X(ASKED, "asked") /* somebody else wants it too */                                             \
    X(SUPERSEDED, "superseded")                                                                    \
    X(NOTICE, "notice") /* somebody is about to be told of a request */                            \
    X(TOLD, "told")                                                                                \
    X(APPROVED, "approved")                                                                        \
    X(DENIED, "denied")                                                                            \
    X(EXPIRED, "expired")                                                                          \
    X(CANCELED, "canceled")                                                                        \
    X(SETTLED, "settled")                                                                          \
    X(LATE, "late")                                                                                \
    X(CLEARED, "cleared")                                                                          \
    X(DOUBLE_EFFECT, "double_effect")                                                              \
    X(RESOLVED, "resolved")                                                                        \
    X(IMPORTED, "imported")                                                                        \
    X(PUT_BACK, "put_back") /* the ledger had lost the attempt's record */                         \
    X(WITHDRAWN, "withdrawn")                                                                      \
    X(FORGOTTEN, "forgotten")                                                                      \
    X(KEPT, "kept") /* nothing changed; the events before it are about to be removed */            \
    X(WINDOW_OVER, "window_over")                                                                  \
    X(OVERWRITTEN,                                                                                 \
      "overwritten") /* others wrote what it acts on, or may have: it answers no more */           \
    /* of what guards share (ledger/guard/shared.h) */                                             \
    X(STOPPED, "stopped")                                                                          \
    X(RESUMED, "resumed")                                                                          \
    X(LOOPED, "looped")     /* a run repeats itself */                                             \
    X(TRIPPED, "tripped")   /* and is stopped */                                                   \
    X(REOPENED, "reopened") /* and goes on */                                                      \
    X(KEYED, "keyed")       /* the ledger's secret was made */                                     \
    X(FAILING, "failing")   /* a circuit counts a failure */                                       \
    X(RECOVERED, "recovered")                                                                      \
    X(OPENED, "opened")                                                                            \
    X(HALF_OPENED, "half_opened")                                                                  \
    X(PROBING, "probing") /* a place for a probe was taken, or is free again */                    \
    X(CLOSED, "closed")                                                                            \
    X(POSTED, "posted") /* the board says how a circuit is */

typedef enum sm_history {
#define X(code, text) SM_N_##code,
    SM_NOTES(X)
#undef X
} sm_history;

#define SM_NOTES_MAX 6u

typedef struct sm_move {
    bool changed;
    sm_reaction answer;
    semel_code code;
    sm_history notes[SM_NOTES_MAX];
    uint32_t note_count;
    semel_code observed; /* observe mode: what would have been said instead of execute */
    bool unclaimed;      /* observe mode: execute beside the record, without a claim */
    sm_effect next;
} sm_move;

static inline bool sm_step_noted(const sm_move *step, sm_history n)
{
    for (uint32_t i = 0; i < step->note_count; i++) {
        if (step->notes[i] == n)
            return true;
    }
    return false;
}

/* `e` with state none is an effect that does not exist. `c` is the tool's effective contract. */
void sm_transition(const sm_effect *e, const sm_life_event *ev, const sm_contract *c, int64_t now,
                   sm_move *out);

/* The step of on_in_doubt that an effect in doubt is at. */
sm_doubt sm_effect_doubt_step(const sm_effect *e, const sm_contract *c, int64_t now);

#endif
