/*
 * One call of a tool that goes through the ledger.
 *
 *     list? --> ask --> replay, refused ------------------------------> answer
 *                | \                                                      ^
 *                |  `--> wait: parked, asked again when that changes -----+
 *                v                                                        |
 *              execute --> the server --> record -------------------------'
 *
 * What is in doubt, and can be settled by the contract, takes a turn through remedy.c.
 *
 * Asking and recording are done by workers, everything else on the loop. A call is in one place at
 * a time, and whoever has it there may use it alone. A call whose client has cancelled it, or has
 * gone, goes on if it executes, so that its outcome is recorded for the retry; one that only waits
 * is over.
 */
#ifndef SM_MCP_CALL_H
#define SM_MCP_CALL_H

#include "mcp/session.h"

typedef enum mcp_stage {
    MCP_LISTING,   /* waits for the server's tools */
    MCP_ASKING,    /* a worker asks the ledger */
    MCP_PARKED,    /* somebody else is at it, or an approval is awaited */
    MCP_ELICITING, /* the client's user is asked */
    MCP_DECIDING,  /* a worker writes down what the user said */
    MCP_EXECUTING, /* the server has it */
    MCP_RECORDING, /* a worker records how it went */
    MCP_REMEDYING, /* in doubt: a worker looks what can be done about that */
    MCP_PROBING,   /* the server is asked what became of it, or will be when it is back */
    MCP_FINDING,   /* a worker judges what it said */
} mcp_stage;

/* What is done about a doubt (remedy.c). */
typedef enum mcp_remedy_next {
    MCP_NEXT_ASK,   /* the ledger is asked anew: something has changed */
    MCP_NEXT_SEND,  /* it is claimed, and sent again */
    MCP_NEXT_PROBE, /* the server is asked */
    MCP_NEXT_LATER, /* nothing now, and `why` */
    MCP_NEXT_HOLD,  /* nothing for this call, and `why` */
    MCP_NEXT_MEND,  /* the same for a reason that whoever runs the proxy has to mend */
} mcp_remedy_next;

typedef struct mcp_remedy {
    unsigned steps; /* that were taken */
    bool leads;     /* it looks after the effect: equal calls wait for it */
    bool resends;   /* the attempt repeats one that is in doubt */
    bool early;     /* it was found absent, which does not count yet */
    mcp_remedy_next next;
    sm_str why;          /* ends in NUL */
    sm_handle effect;    /* with the fence of the attempt that is in doubt */
    int64_t settled_ns;  /* when "absent" counts */
    sm_str params;       /* of the request that probes */
    mcp_exchange *probe; /* that, if it is under way */
} mcp_remedy;

struct mcp_call {
    sm_job job;
    mcp_post post;
    sm_waiter waiter;
    mcp_timer timer; /* parked: until when it waits */
    mcp_timer beat;  /* waiting: when its client gets progress again */
    mcp_server *server;
    mcp_session *session;
    mcp_exchange *x;
    mcp_slot *slot;        /* its place in the order, until it is known what is sent */
    mcp_call *next, *prev; /* all of a server */
    mcp_call *next_unlisted;
    unsigned listings; /* how often it has waited for the list */
    mcp_stage stage;
    bool undecided; /* it counts among those that the session is asking for */
    mcp_listing *listing;

    sm_arena arena;            /* of what stays */
    sm_buf text;               /* the message as it came */
    sm_str params, args, meta; /* in it, as written; args and meta may be absent */
    sm_str tool;               /* decoded */
    bool legged;               /* it came back with answers: its client began to wait earlier */
    bool tasked;               /* it asks for a task */
    bool named;                /* the client's key or step says which action it is */
    sm_buf question;           /* ELICITING: the id of ours, as written */
    sm_str said_about;         /* modern: the approval request that the client came back about */
    bool said_yes;             /* with that */
    bool decided;              /* the user has been asked */

    sm_asking ask;
    bool made;           /* the ledger's call is made */
    bool waited;         /* it has been parked */
    bool over;           /* it waits no longer */
    bool repeat_pending; /* the client knew that an approval is awaited */
    int64_t since_ns, deadline_ns;
    double progress; /* the last value that its client got */
    bool beaten;     /* the proxy has sent progress of its own */

    /* What the worker learned. */
    const sm_contract *contract; /* held by ask.contracts */
    sm_arena said;               /* the texts of: */
    semel_answer a;
    int64_t settled_at; /* replay: when it was done, and until when it is replayed */
    int64_t window_end;
    bool approved;     /* DECIDING: what the user said */
    bool back;         /* RECORDING: nothing was done, the claim is given back */
    int turned_down;   /* RECORDING: the HTTP status by which the server turned it down; or 0 */
    bool unknown;      /* RECORDING: the server was lost before it answered */
    uint64_t overflow; /* RECORDING: bytes of a result that was too long to be read; or 0 */

    char handle[SM_HANDLE_TEXT];
    sm_running lease;
    bool ran;        /* the server has had it, in this attempt */
    bool unrecorded; /* nothing is recorded of it */
    sm_buf answer;   /* the server's, as it came */
    semel_outcome outcome;
    sm_str why; /* how it was lost */
    sm_err recorded;
    bool put_back; /* the ledger had lost its record */
    mcp_remedy remedy;
};

/* A call of this message; NULL when out of memory. */
mcp_call *mcp_call_new(mcp_session *s, const mcp_message *m);

/* Adds the job; the loop gets the call back when it is done. */
void mcp_call_work(mcp_call *call, mcp_stage stage);

/* It does not count among those that are being asked for any more. */
void mcp_call_counted(mcp_call *call);

/* It is known what becomes of it: its place in the order is free, and more may be asked for. */
void mcp_call_decided(mcp_call *call);

/* Ends a call whose exchange was answered, or is not to be. */
void mcp_call_end(mcp_call *call);

/* Copies what the ledger said. */
void mcp_call_keep(mcp_call *call, const semel_answer *a);

/* On a worker, or on the loop: makes the arguments that the ledger is asked with (call_make.c). */
sm_err mcp_call_args(mcp_call *call, semel_answer *a, sm_fault *fault);

/* Whether a tool that the contract does not list only reads, by what the server says of it and as
 * far as that is believed. */
bool mcp_call_hinted(const mcp_call *call, const sm_contracts *set, sm_str tool);

/* On a worker: asks the ledger. */
void mcp_call_ask(mcp_call *call, semel_answer *a);

/* It waits for something from now on, until its time is over. */
void mcp_call_time(mcp_call *call);

/* True if the call is parked from now on, or asks again. */
bool mcp_call_park(mcp_call *call);

/* It is ours to execute: sends it in its turn, or gives it back (call_send.c). */
void mcp_call_execute(mcp_call *call);

/* It is written down how it went: answers, and ends it. */
void mcp_call_recorded(mcp_call *call);

/* It waits no longer for somebody else: what is known now is told. */
void mcp_call_hurry(mcp_call *call);

/* ---- progress (progress.c) -------------------------------------------------------------------*/

/* Whether the client of a request gave a valid progress token. */
bool mcp_progress_wanted(const mcp_exchange *x);

/* Start and stop the progress that a client gets while its call waits. */
void mcp_progress_start(mcp_call *call);
void mcp_progress_end(mcp_call *call);

/* ---- answers ---------------------------------------------------------------------------------*/

/* Answers with the server's own answer as it came, and ends it (call_answer.c). */
void mcp_call_pass(mcp_call *call);

/* Answers that the server's result was too long to be read, and ends it. */
void mcp_call_overflow(mcp_call *call);

/* Answers with what the ledger said, and ends it. */
void mcp_call_refuse(mcp_call *call);
void mcp_call_replay(mcp_call *call);

/* The same as mcp_call_refuse, but the call goes on without its client. */
void mcp_call_refuse_early(mcp_call *call);

/* The same in words of ours. */
void mcp_call_refuse_with(mcp_call *call, semel_code code, const char *advice, const char *format,
                          ...) __attribute__((format(printf, 4, 5)));

/* ---- what is in doubt (remedy.c) -------------------------------------------------------------*/

/* The ledger said that it is in doubt: takes the next step, if there is one that can be taken here.
 * The worker looks; then it goes on. */
bool mcp_remedy_take(mcp_call *call);
void mcp_remedy_look(mcp_call *call, semel_answer *a);
void mcp_remedy_looked(mcp_call *call);

/* The worker judges the probe's answer, writes that down and asks anew. False: `a` is what the
 * ledger says now; true: it is waited for, or answered. */
void mcp_remedy_find(mcp_call *call, semel_answer *a);
bool mcp_remedy_found(mcp_call *call);

/* PROBING: its time is over. */
void mcp_remedy_late(mcp_call *call);

/* It looks after the effect no longer. */
void mcp_remedy_end(mcp_call *call);

/* ---- asking the user (approve.c) -------------------------------------------------------------*/

/* Whether the client's own user may be asked to approve, and can be. If so it is: the call is
 * ELICITING (legacy), or was answered with what is to be asked (modern). */
bool mcp_approve_here(mcp_call *call);

/* A modern client that comes back with what its user said about our question: notes that, and
 * takes what carried it out of the call. */
void mcp_approve_read(mcp_call *call);

/* ---- words (verdict.c) -----------------------------------------------------------------------*/

/* Appends a result for the era: a refusal that a model can act on; a recorded outcome. The second
 * is false if the record is an error and not a result: then *error is it. */
void mcp_put_refusal(sm_buf *out, const semel_answer *a, bool modern);
bool mcp_put_replay(sm_buf *out, const mcp_call *call, sm_str *error);

/* Whether the record has a result that the client accepts. If not, the replay says that the call
 * was done. */
bool mcp_has_result(const mcp_call *call);

#endif
