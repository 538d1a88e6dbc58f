/*
 * A circuit breaker: calls to a tool whose upstream fails are refused for a while, then a few find
 * out whether it works again. Pure.
 *
 *              so many failures
 *     closed --------------------> open <-----------.
 *       ^                           |               |
 *       |        the cooldown is over, and a call   | a probe fails
 *       |        is let through: a probe            |
 *       |                           v               |
 *       `----- a probe ends well  half open --------'
 *
 * Failures count in a row, or within a window if the rule has one. In a row means that none of
 * them was followed by a call that ended well, and none came later than a day after the one before;
 * a call that was turned down says nothing about that.
 *
 * Half open, at most `probes` calls run at a time. Each has a place, which ends with the probe; one
 * whose process died is given up by whoever finds that it no longer runs.
 */
#ifndef SM_CORE_BREAKER_H
#define SM_CORE_BREAKER_H

#include "base/arena.h"
#include "base/buf.h"
#include "core/contract.h"
#include "core/handle.h"
#include "semel/semel.h"

/* A failure that comes later than this after the one before begins a new row. */
#define SM_BREAKER_ROW_MS ((int64_t)24 * 3600 * 1000)

/* What the end of an attempt says about the tool. */
typedef enum sm_health {
    SM_HEALTH_BY_OUTCOME, /* what the outcome says; without one as: */
    SM_HEALTH_UNTRIED,    /* nothing, for it was not called */
    SM_HEALTH_WELL,
    SM_HEALTH_ANSWERED, /* it answers, and turned this call down: wrong arguments and the like */
    SM_HEALTH_FAILED,   /* it was not reached, did not answer, or answered that it cannot */
} sm_health;

/* What an outcome says, as it was given. A failure is the tool's if its status is 408, 425, 429 or
 * 500 to 599, or if whoever made the call says that nobody knows whether it was applied. */
sm_health sm_health_of(const semel_outcome *o);

typedef enum sm_circuit_state {
    SM_CIRCUIT_CLOSED,
    SM_CIRCUIT_OPEN,
    SM_CIRCUIT_HALF_OPEN,
} sm_circuit_state;

/* "closed", "open", "half_open"; and back: false if it is none. */
const char *sm_circuit_state_name(sm_circuit_state state);
bool sm_circuit_state_read(sm_str name, sm_circuit_state *out);

/* A call that finds out. */
typedef struct sm_circuit_probe {
    sm_handle attempt; /* without its secret */
    uint64_t turn;     /* whose place it is: two may want to begin the same attempt */
    int64_t until;     /* from then on it may be given up */
    int64_t last;      /* and then it is, although it runs: nobody keeps a place for ever */
} sm_circuit_probe;

typedef struct sm_breaker {
    sm_circuit_state state;
    int64_t since;                       /* of the state, if it is not closed */
    uint32_t failures;                   /* closed: how many count; else those that opened it */
    int64_t at[SM_BREAKER_FAILURES_MAX]; /* when each was, the oldest first */
    uint32_t probing;                    /* how many of `probes` */
    sm_circuit_probe probes[SM_BREAKER_PROBES_MAX];
} sm_breaker;

/* What became of a circuit. */
typedef enum sm_circuit_change {
    SM_CIRCUIT_SAME,
    SM_CIRCUIT_FAILING,   /* one more failure counts */
    SM_CIRCUIT_RECOVERED, /* none counts any more */
    SM_CIRCUIT_OPENED,
    SM_CIRCUIT_HALVED,  /* half open, by the first probe */
    SM_CIRCUIT_PROBING, /* a place for a probe was taken or is free again */
    SM_CIRCUIT_SHUT,    /* closed */
} sm_circuit_change;

/* Until when an open circuit refuses every call; not later than a cooldown from now, whatever the
 * clock did since. */
int64_t sm_breaker_until(const sm_breaker *b, const sm_breaker_rule *r, int64_t now);

/* A call is to run, until then at the latest if nothing is heard of it. True if it may; what
 * changed then says whether it is a probe. */
bool sm_breaker_begin(sm_breaker *b, const sm_breaker_rule *r, const sm_circuit_probe *call,
                      int64_t now, sm_circuit_change *change);

/* An attempt has ended. */
sm_circuit_change sm_breaker_end(sm_breaker *b, const sm_breaker_rule *r, const sm_handle *attempt,
                                 sm_health health, int64_t now);

/* The call did not begin after all. */
sm_circuit_change sm_breaker_leave(sm_breaker *b, uint64_t turn);

/* Gives up a probe, by its index. */
void sm_breaker_give_up(sm_breaker *b, uint32_t probe);

/* A person closes it. */
sm_circuit_change sm_breaker_close(sm_breaker *b);

/* As JSON; and back: an absent text is a closed circuit. False if it is not one. */
void sm_breaker_put(const sm_breaker *b, sm_buf *out);
bool sm_breaker_read(sm_arena *a, sm_str text, sm_breaker *out);

/* The origin of a contract's upstream, "https://api.example:8443"; absent if it has none. */
sm_str sm_contract_origin(const sm_contract *c);

#endif
