/*
 * A run: one call of a tool that the gateway executes over HTTP. serve/attempt.h has its way; here
 * is what the gateway does for it: make the request, send it, judge what came back, answer.
 *
 *     execute ---> send ---> judge ---> done
 *                   ^          |
 *                   '- pause --'  only what surely was not applied, or a resend
 *
 * Turns are done by workers, which go on with the run there and then; sending is done by the HTTP
 * client's thread. A run that is parked or under way costs no thread.
 */
#ifndef SM_GATEWAY_RUN_RUN_H
#define SM_GATEWAY_RUN_RUN_H

#include "gateway/inside/gateway.h"
#include "serve/attempt.h"
#include "upstream/upstream.h"

typedef struct gw_run gw_run;

/* What a front end decides about a run. */
typedef struct gw_run_ops {
    /* Makes the request run->up before the ledger is asked; everything in the run's arena. `c` and
     * `args` (the full arguments) are borrowed. On failure the call is refused, with the fault's
     * words; see also gw_run_refuse. Called once; NULL: the request is made already. */
    sm_err (*prepare)(gw_run *run, const sm_contract *c, const sm_json *args, sm_fault *fault);

    /* Answers the request. If the call ran just now and the ledger did not keep its result, the
     * answer's outcome has it all the same. */
    void (*answer)(gw_run *run, gw_request *r, const semel_answer *a);

    /* Whoever asks executes it: "execute" is an answer like others. */
    bool hands_over;

    /* The client speaks the upstream's API: whoever's call runs gets all headers of the answer, and
     * replays have those that can be recorded (returned.h). */
    bool relays;
} gw_run_ops;

/*
 * Whether a doubt may be settled by the client's own repeat, being sent again.
 *
 *     CARRIES ---> CARRIED
 *
 * The front end says so before the run starts; a worker moves it, when the repeat's turn has come.
 */
typedef enum gw_repeat {
    GW_REPEATS_NOT,
    GW_CARRIES, /* it is the very request that was sent, and the upstream takes a key */
    GW_CARRIED, /* it was sent again, or could not be */
} gw_repeat;

/* A probe that is under way (remedy.c). */
typedef struct gw_probing {
    sm_upstream_call up;
    sm_contracts *contracts; /* in which its rules are; held meanwhile */
    const sm_probe *rules;
    int64_t tries;
    bool no_idea; /* it failed for a reason that passes */
    sm_found_kind found;
    semel_outcome outcome;
    int64_t least_ms; /* until it may be asked again */
} gw_probing;

#define GW_UNDO_PAGE 50u

/* What a run undoes (api/undo.c): an effect in doubt, or the next one of a scope. */
typedef struct gw_undo {
    sm_handle effect;
    sm_str scope;        /* a series: of these effects; absent: there is none */
    sm_handle *page;     /* those that were read: at most GW_UNDO_PAGE */
    size_t n, at;        /* so many, and which is next */
    uint64_t cursor;     /* of the next page */
    bool last;           /* there is none */
    uint64_t undone;     /* so many were */
    sm_str evidence;     /* of a doubt */
    uint64_t if_version; /* likewise */
    int64_t deadline_ns;
} gw_undo;

struct gw_run {
    sm_attempt at;
    gateway *g;
    const gw_run_ops *ops;
    sm_arena arena;
    sm_upstream_call up; /* request.trickle: a success is passed on as it comes (relay.c) */
    int64_t deadline_ns; /* how long the client wants to wait */
    int64_t approval_ns; /* and how long for an approval, if that is shorter; 0: as long */
    gw_repeat repeat;

    /* From here on it is run.c's and those that serve it. */
    gw_trace trace; /* the request's, which may be gone before it is sent; or one of its own */
    struct {
        int status; /* 0: the ledger's answer is the answer */
        const char *code, *advice;
        char text[SEMEL_FAULT_TEXT_MAX];
    } refusal;
    bool read;             /* of class read: it may be sent again */
    bool replays_failures; /* the contract's `failures` */
    bool prepared;
    int64_t until_ns;  /* a resend: when the downstream forgets its key */
    const char *doubt; /* for the log: what went wrong with recording its outcome, or NULL */
    int64_t tries;
    sm_upstream_ruling ruling; /* of the last exchange */
    sm_buf body, headers;      /* its texts, for at.outcome */
    sm_buf given;              /* all its headers (gw_returned_keep) */
    bool cut, late;            /* it was too large; it did not end in time */
    bool unsent;               /* the gateway could not send it */
    sm_str gives;              /* the answer has these instead of the outcome's; absent: no */
    struct {
        bool began;          /* a success has begun: its bytes are in `body` */
        uint64_t bytes;      /* so many have come */
        gw_request *r;       /* whoever gets it; NULL: nobody */
        sm_http_exchange *x; /* NULL: over; under the lock of all attempts */
    } relay;
    char why[256]; /* for people: how the last exchange went wrong; empty: it did not */
    gw_probing probing;
    gw_undo undo; /* the front end's */
};

/* A run with an arena of its own; NULL when out of memory. `r` may be NULL. The front end fills in
 * ops, at.ask.call, at.ask.actor and the deadline. */
gw_run *gw_run_new(gateway *g, gw_request *r);
void gw_run_free(gw_run *run); /* one that was not started */

/* What is wrong with its state, or NULL: asserted where that changes. The attempt has its own. */
const char *gw_run_flaw(const gw_run *run);

/* Starts it, and holds its request; the run is its own from here on. */
void gw_run_start(gw_run *run);

/* From `prepare`: the call is refused by the gateway itself, in these words. Returns the error to
 * return. */
sm_err gw_run_refuse(gw_run *run, int status, const char *code, const char *advice,
                     const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Takes the request away to answer it; NULL if somebody else has. */
gw_request *gw_run_take(gw_run *run);

/* Replies with the outcome's own status and bytes, its kept headers, Semel-Effect and, if it did
 * not run just now, Idempotent-Replayed. Without an outcome it replies with a problem. If the call
 * ran and the ledger could not record it, or had lost it meanwhile, Semel-Doubt says which. */
void gw_reply_outcome(gw_request *r, const semel_answer *a);

/* What every such reply has: which effect it is about. It is counted, too. */
void gw_reply_about(gw_request *r, const semel_answer *a);

/* What a thread of the server works with, on the path where nothing blocks. */
typedef struct gw_own {
    semel_answer *answer;
    sm_arena arena;
} gw_own;
gw_own *gw_own_get(void); /* NULL when out of memory */

/* Copies the texts of a call into the run. False when out of memory. */
bool gw_run_call(gw_run *run, const semel_call *call);

/* ---- all of them -----------------------------------------------------------------------------*/

sm_err gw_runs_start(gateway *g, gw_runs **out, sm_fault *fault);

/* Waits until nothing is under way or the time is up; true if nothing is. Those who are parked get
 * their answer at once. */
bool gw_runs_drain(gw_runs *runs, int64_t deadline_ns);
void gw_runs_stop(gw_runs *runs); /* accepts NULL */

size_t gw_runs_in_flight(gw_runs *runs); /* how many are being executed */

/* ---- passed on as it comes (relay.c) ---------------------------------------------------------*/

bool gw_relay_head(void *context, const sm_http_result *head);
bool gw_relay_data(void *context, sm_str piece);

/* The exchange is over: what is not whole is cut. */
void gw_relay_over(gw_run *run, bool whole);

/* The end of what was passed on; false: nobody gets it. */
bool gw_relay_end(gw_run *run, const semel_answer *a);

/* ---- left over (remedy.c) --------------------------------------------------------------------*/

void gw_on_due(void *context, const sm_handle *effect);

/* What is left over of an effect is looked at again later: the later the more attempts it has had,
 * and not before `least_ms`. */
void gw_remedy_later(gateway *g, const sm_handle *effect, uint64_t attempt, int64_t least_ms,
                     semel_answer *a);

/* What the log says if a ledger had lost the record of an attempt. */
#define GW_SAID_PUT_BACK "the ledger had lost the record of a call that ran; it was put back"

#endif
