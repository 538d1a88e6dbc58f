/*
 * The operations of the JSON language: what a ledger is asked for with a JSON object or with
 * parameters, and answers with JSON. docs/http-api.md describes the members.
 *
 * Whoever speaks the language is a door: the gateway does over HTTP, others without. A door makes
 * an operation of what came and calls one of the functions below. Each blocks on the ledger, and
 * has called exactly one of the door's three replies when it returns; or `compensate`, which sees
 * to the reply itself. What a reply gets is borrowed until the reply returns.
 *
 * Calls (/v1/call, /v1/begin) wait without a thread and are each door's own (serve/attempt.h);
 * body.h reads them.
 */
#ifndef SM_API_API_H
#define SM_API_API_H

#include "base/arena.h"
#include "core/handle.h"
#include "semel/semel.h"
#include "serve/waits.h"

typedef struct sm_operation sm_operation;

/* Told each parameter in turn; an absent name or value: out of memory. False stops. */
typedef bool sm_parameter_fn(void *context, sm_str name, sm_str value);

typedef struct sm_door {
    /* Replies with an answer of the ledger, which may be a refusal (verdict SEMEL_REFUSED). */
    void (*answer)(sm_operation *op, const semel_answer *a);

    /* Replies with a list or a report: a JSON object. */
    void (*json)(sm_operation *op, sm_str json);

    /* Replies with a problem that is not the ledger's; problem.h writes it. */
    void (*problem)(sm_operation *op, int status, const char *code, const char *advice,
                    const char *message);

    /* Before the body is read: whether it may be. False: the door has replied. NULL: it may. */
    bool (*reads)(sm_operation *op);

    /* Gives the parameters, as the texts of a query. NULL: they are members of the body, where a
     * number is a JSON number. */
    void (*parameters)(sm_operation *op, sm_parameter_fn *each, void *context);

    /* Ends a claim that the door itself holds: with what came of it, or without an outcome because
     * nothing was done. True: the door replies, now or later. NULL: it holds none. */
    bool (*ends)(sm_operation *op, sm_str claim, const semel_outcome *outcome);

    /* Whether nobody waits for the reply any more, so that less of it will do. NULL: never. */
    bool (*is_gone)(const sm_operation *op);

    /* Resolves an effect in doubt by executing what undoes it, and replies, there and then or
     * later. The texts live as long as the operation. NULL: nothing is executed here. */
    void (*compensate)(sm_operation *op, semel_answer *a, const sm_handle *effect, sm_str evidence,
                       uint64_t if_version);
} sm_door;

/* One request in the JSON language, whatever door it came by. */
struct sm_operation {
    const sm_door *door;
    semel *ledger;
    sm_waits *waits; /* rung after whatever is done to an effect */
    sm_arena *arena; /* the door's: memory until the function has returned */
    sm_str actor;    /* who asks; absent: whoever opened the ledger */
    bool known;      /* who asks was authenticated */
    sm_str bound;    /* the scope that who asks is bound to; absent: to none */
    sm_str name;     /* what it is about: an effect, a request of one (effect, events and people's
                        decisions), or a run (scope, reset, undo_plan); otherwise not looked at */
    sm_str body;     /* a JSON object, or empty */
    const char *const *taken; /* members of it that the door itself has read, ended by NULL: passed
                                 over here; NULL: none */
};

/* `a` is to work with, and what it says is nobody's afterwards. */
typedef void sm_api_fn(sm_operation *op, semel_answer *a);

/* The answer to a claim that was given back. */
#define SM_RELEASED "{\"verdict\":\"done\",\"result\":\"released\"}"

/* ---- claims ----------------------------------------------------------------------------------*/

sm_api_fn sm_api_commit;  /* {claim, kind, applied?, value?, ...} */
sm_api_fn sm_api_renew;   /* {claim, lease_ms?} */
sm_api_fn sm_api_release; /* {claim}: nothing was done under it */

/* ---- what people decide ----------------------------------------------------------------------*/

sm_api_fn sm_api_approve; /* {request, if_version?}, of an effect */
sm_api_fn sm_api_deny;    /* {request, reason, if_version?} */
sm_api_fn sm_api_cancel;  /* {reason?, if_version?} */
sm_api_fn sm_api_resolve; /* {result, evidence, outcome?, if_version?} */
sm_api_fn sm_api_forget;  /* {reason?, if_version?} */

/* ---- the stop button -------------------------------------------------------------------------*/

sm_api_fn sm_api_stop;   /* {scope | tool | all, reason} */
sm_api_fn sm_api_resume; /* {scope | tool | all, reason?} */
sm_api_fn sm_api_reset;  /* {reason}, of a run */

/* ---- reading: by parameters ------------------------------------------------------------------*/

sm_api_fn sm_api_effects; /* state, tool, scope, since, until, limit, cursor */
sm_api_fn sm_api_effect;
sm_api_fn sm_api_events;    /* after, limit; of an effect, or of all if none is named */
sm_api_fn sm_api_approvals; /* limit, cursor */
sm_api_fn sm_api_tools;
sm_api_fn sm_api_scopes; /* scope, since, limit, cursor */
sm_api_fn sm_api_scope;  /* since, limit, of a run */
sm_api_fn sm_api_spend;  /* by, scope, since, limit */
sm_api_fn sm_api_stops;
sm_api_fn sm_api_undo_plan; /* limit, cursor, of a run */

#endif
