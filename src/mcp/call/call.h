/*
 * One call of a tool that goes through the ledger. serve/attempt.h has its way; here is what the
 * proxy does for it: know the server's tools first, make the arguments, ask the client's user, send
 * it in its turn, read what the server said, answer.
 *
 * Turns are done by workers, which post the call back; everything else is done on the loop. A call
 * whose client has cancelled it, or has gone, goes on if it executes, so that its outcome is
 * recorded for the retry; one that only waits is over.
 */
#ifndef SM_MCP_CALL_CALL_H
#define SM_MCP_CALL_CALL_H

#include "mcp/session/session.h"

/* Where a call is. The loop moves it, also while a worker has the call: NEW -> LISTING -> STARTED
 * -> LATE, of which LISTING and LATE may be left out, and from anywhere it may end. */
typedef enum mcp_phase {
    MCP_NEW,
    MCP_LISTING, /* waits for the server's tools */
    MCP_STARTED, /* at.stage tells */
    MCP_LATE,    /* the same, but it waits no longer for others */
} mcp_phase;

/* What the client's user says to an approval (approve.c moves it).
 *
 *     UNASKED ---- the call came back with an answer ----> BROUGHT_YES, BROUGHT_NO
 *        |                                                        |
 *        | the user was asked, now or before                      | the ledger awaits that very
 *        |                                                        | request, or the user was
 *        v                                                        v asked again
 *     APPROVED, DENIED, PUT_ASIDE: nobody is asked any more
 */
typedef enum mcp_consent {
    MCP_UNASKED,
    MCP_BROUGHT_YES, /* modern: about the approval request `said_about` */
    MCP_BROUGHT_NO,
    MCP_APPROVED,
    MCP_DENIED,
    MCP_PUT_ASIDE, /* the user said nothing */
} mcp_consent;

/* What the client knows of the effect. HAS_WAITED stays. */
typedef enum mcp_knows {
    MCP_KNOWS_NOTHING,
    MCP_WAS_TOLD,   /* by an earlier call of its session: make.c */
    MCP_HAS_WAITED, /* this call has been parked: call.c, remedy.c */
} mcp_knows;

/* How a call ended at the server (send.c). UNKNOWN may also follow from what the ledger says of the
 * others (call.c). */
typedef enum mcp_fate {
    MCP_UNENDED,
    MCP_ANSWERED,    /* `answer` */
    MCP_OVERFLOWED,  /* by a result of `overflow` bytes, too long to be read */
    MCP_TURNED_DOWN, /* by the HTTP status `turned_down`; `why`, and its body is `answer` */
    MCP_UNANSWERED,  /* nothing was done, or nothing is recorded; `why` */
    MCP_UNKNOWN,     /* it may or may not have taken effect; `why` */
} mcp_fate;

/* Why nothing is done about a doubt for now (remedy.c). */
typedef enum mcp_stays {
    MCP_STAYS_EARLY, /* it was found absent, which does not count yet */
    MCP_STAYS_LATER, /* nothing now, and `why` */
    MCP_STAYS_HELD,  /* nothing for this call, and `why` */
    MCP_STAYS_MEND,  /* the same for a reason that whoever runs the proxy has to mend */
} mcp_stays;

typedef struct mcp_repair {
    unsigned steps; /* that were taken */
    mcp_stays stays;
    sm_str why;          /* ends in NUL */
    int64_t settled_ns;  /* when "absent" counts */
    sm_str params;       /* of the request that probes */
    mcp_exchange *probe; /* that, if it is under way */
} mcp_repair;

struct mcp_tool_call {
    sm_attempt at; /* first; its client is `x` */
    mcp_post post;
    mcp_alarm timer; /* until when it waits */
    mcp_alarm beat;  /* waiting: when its client gets progress again */
    mcp_server *server;
    mcp_session *session;
    mcp_exchange *x;
    mcp_slot *slot;             /* its place in the order, until it is known what is sent */
    mcp_tool_call *next, *prev; /* all of a server */
    mcp_tool_call *next_unlisted;
    unsigned listings; /* how often it has waited for the list */
    mcp_phase phase;
    bool undecided; /* it counts among those that the session is asking for */
    mcp_listing *listing;

    sm_arena arena;            /* of what stays */
    sm_buf text;               /* the message as it came */
    sm_str params, args, meta; /* in it, as written; args and meta may be absent */
    sm_str tool;               /* decoded */
    bool legged;               /* it came back with answers: its client began to wait earlier */
    bool tasked;               /* it asks for a task */

    /* Asking the user (approve.c). */
    sm_buf question;   /* DOOR: the id of ours, as written */
    sm_str said_about; /* modern: the approval request that the client came back about */
    mcp_consent consent;

    mcp_knows knows;
    int64_t since_ns, deadline_ns; /* of waiting; the latter is 0 before it waits */
    double progress;               /* the last value that its client got */
    bool beaten;                   /* the proxy has sent progress of its own */

    /* What a turn came to. */
    const sm_contract *contract; /* held by at.ask.contracts */
    sm_arena said;               /* the texts of: */
    semel_answer a;
    int64_t settled_at; /* replay: when it was done, and until when it is replayed */
    int64_t window_end;

    /* How it ended at the server. */
    mcp_fate fate;
    sm_buf answer; /* the server's, as it came */
    sm_str why;    /* how it was lost; absent: it was not */
    int turned_down;
    uint64_t overflow;
    mcp_repair remedy;
};

/* A call of this message; NULL when out of memory. */
mcp_tool_call *mcp_call_new(mcp_session *s, const mcp_message *m);

/* These change its state, and assert that it is sound. */
void mcp_call_enter(mcp_tool_call *call, mcp_phase phase);
void mcp_call_set_consent(mcp_tool_call *call, mcp_consent consent);
void mcp_call_set_knows(mcp_tool_call *call, mcp_knows knows);
void mcp_call_set_fate(mcp_tool_call *call, mcp_fate fate);

/* Its attempt has begun. */
static inline bool mcp_call_started(const mcp_tool_call *call)
{
    return call->phase >= MCP_STARTED;
}

/* The client's key or step says which action it is. */
static inline bool mcp_call_named(const mcp_tool_call *call)
{
    return call->at.ask.call.key.n > 0 || call->at.ask.call.step.n > 0;
}

/* It does not count among those that are being asked for any more. */
void mcp_call_counted(mcp_tool_call *call);

/* It is known what becomes of it: its place in the order is free, and more may be asked for. */
void mcp_call_decided(mcp_tool_call *call);

/* Its tools are known: the ledger is asked. */
void mcp_call_begin(mcp_tool_call *call);

/* Copies what the ledger said. */
void mcp_call_keep(mcp_tool_call *call, const semel_answer *a);

/* Nothing is recorded of it. */
static inline bool mcp_call_unrecorded(const mcp_tool_call *call)
{
    return call->at.hold == SM_HOLDS_NO_CLAIM || call->at.ended == SM_ENDED_UNRECORDED;
}

static inline mcp_tool_call *mcp_call_of(sm_attempt *at)
{
    return SM_CONTAINER(at, mcp_tool_call, at);
}

/* On a worker, or on the loop: makes the arguments that the ledger is asked with, if they are not
 * made yet (make.c). */
sm_err mcp_call_args(mcp_tool_call *call, semel_answer *a, sm_fault *fault);

/* Whether a tool that the contract does not list only reads, by what the server says of it and as
 * far as that is believed. */
bool mcp_call_hinted(const mcp_tool_call *call, const sm_contracts *set, sm_str tool);

/* On a worker, from inside of the ledger: the call has its contract (make.c). */
sm_err mcp_call_prepare(sm_attempt *at, const sm_contract *c, const sm_json *args, sm_fault *fault);

/* It waits for something from now on, until its time is over. */
void mcp_call_time(mcp_tool_call *call);

/* Sends it in its turn, or gives it back (send.c). */
void mcp_call_execute(sm_attempt *at, semel_answer *a);

/* It waits no longer for somebody else: what is known now is told. */
void mcp_call_hurry(mcp_tool_call *call);

/* ---- reads -----------------------------------------------------------------------------------*/

/* A call that is passed on without the ledger, because its tool only reads. */
typedef struct mcp_read_call {
    sm_passed passed; /* its texts are in `text` */
    char text[];
} mcp_read_call;

/* The server has answered one: the client gets that, with a warning if the run repeats itself
 * (answer.c). */
void mcp_read_answered(mcp_exchange *x, const mcp_message *m);

/* ---- progress (progress.c) -------------------------------------------------------------------*/

/* Whether the client of a request gave a valid progress token. */
bool mcp_progress_wanted(const mcp_exchange *x);

/* Start and stop the progress that a client gets while its call waits. */
void mcp_progress_start(mcp_tool_call *call);
void mcp_progress_end(mcp_tool_call *call);

/* ---- answers ---------------------------------------------------------------------------------*/

/* Answers with the server's own answer as it came, and ends it (answer.c). */
void mcp_call_pass(mcp_tool_call *call);

/* Answers that the server's result was too long to be read, and ends it. */
void mcp_call_overflow(mcp_tool_call *call);

/* Answers with what the ledger said, and ends it. */
void mcp_call_refuse(mcp_tool_call *call);
void mcp_call_replay(mcp_tool_call *call);

/* The same as mcp_call_refuse, but the call goes on without its client. */
void mcp_call_refuse_early(mcp_tool_call *call);

/* The same in words of ours. */
void mcp_call_refuse_with(mcp_tool_call *call, semel_code code, const char *advice,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- what is in doubt (remedy.c) -------------------------------------------------------------*/

/* For the machine. */
bool mcp_remedy_looks(sm_attempt *at, const semel_answer *a);
sm_next mcp_remedy_step(sm_attempt *at, const sm_remedy *what, semel_answer *a);
void mcp_remedy_probe(sm_attempt *at);
sm_next mcp_remedy_found(sm_attempt *at, sm_found_kind *kind, semel_outcome *outcome, bool *write,
                         semel_answer *a);
void mcp_remedy_stays(sm_attempt *at, semel_answer *a);

/* PROBING: its time is over. */
void mcp_remedy_late(mcp_tool_call *call);

/* ---- asking the user (approve.c) -------------------------------------------------------------*/

/* Whether the client's own user may be asked to approve, and can be. If so it is: the call is
 * at the DOOR (legacy), or was answered with what is to be asked (modern). */
bool mcp_approve_here(sm_attempt *at, semel_answer *a);

/* A modern client that comes back with what its user said about our question: notes that, and
 * takes what carried it out of the call. */
void mcp_approve_read(mcp_tool_call *call);

/* ---- words (verdict.c) -----------------------------------------------------------------------*/

/* Appends a result for the era: a refusal that a model can act on; a recorded outcome. The second
 * is false if the record is an error and not a result: then *error is it. */
void mcp_put_refusal(sm_buf *out, const semel_answer *a, bool modern);
bool mcp_put_replay(sm_buf *out, const mcp_tool_call *call, sm_str *error);

/* Appends an answer of the server with a warning beside its result: a text behind its items, and
 * _meta. An error stays as it is. */
void mcp_put_warned(sm_buf *out, const mcp_message *m, sm_str warning, sm_str effect);

/* Whether the record has a result that the client accepts. If not, the replay says that the call
 * was done. */
bool mcp_has_result(const mcp_tool_call *call);

#endif
