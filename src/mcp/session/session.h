/*
 * The proxy's insides: what the files of mcp.h share. Everything is on the loop's thread but what
 * says otherwise.
 */
#ifndef SM_MCP_SESSION_SESSION_H
#define SM_MCP_SESSION_SESSION_H

#include <pthread.h>

#include "core/handle.h"
#include "mcp/mcp.h"

#define MCP_BUCKETS      1024u
#define MCP_CALLS_MAX    20000u /* calls at once, of all sessions */
#define MCP_ASKING_MAX   256u   /* of one session, on their way to the ledger */
#define MCP_ASKING_BYTES ((size_t)8 << 20)
#define MCP_QUEUE_BYTES  ((size_t)32 << 20) /* messages that wait for their turn */
#define MCP_TOLD         256u               /* answers that a session remembers */
#define MCP_OWN_ID_MAX   64u
#define MCP_ORDER_MS     250   /* so long a call that is being asked for keeps its place */
#define MCP_STARTING_MS  30000 /* for a server that is started again to take its greeting */
#define MCP_AWAY_MS      5000  /* so long what is asked waits for a server that is started again */
#define MCP_DEAF_MS      1000  /* the same for a client that is about to go */

/* JSON-RPC errors of our own, outside of what is reserved. */
#define MCP_E_AWAY (-31001) /* the server cannot be reached; nothing was done */
#define MCP_E_LOST (-31002) /* it went away before it had answered */

/* Why a server's answer does not count. */
#define MCP_UNREADABLE "the server's answer can be read in two ways, or not at all"

typedef struct mcp_exchange mcp_exchange;
typedef struct mcp_tool_call mcp_tool_call;
typedef struct mcp_listing mcp_listing;
typedef struct mcp_batch mcp_batch;

/* ---- requests --------------------------------------------------------------------------------*/

typedef enum mcp_what {
    MCP_W_OTHER,
    MCP_W_INITIALIZE,
    MCP_W_LIST,     /* tools/list */
    MCP_W_DISCOVER, /* server/discover */
    MCP_W_CALL,     /* tools/call that goes through the ledger */
    MCP_W_OWN,      /* a request of ours to the server */
} mcp_what;

/* One request that is not answered yet: a client's, or one of ours. */
struct mcp_exchange {
    mcp_way way; /* first */
    mcp_session *session;
    mcp_channel *channel;
    mcp_exchange *next, **at; /* in the session's table */
    mcp_what what;
    sm_str id;      /* the client's, as written */
    sm_str sent_id; /* the server's name for it, as written: the same unless the link is shared */
    sm_str token;   /* progress token, as written; absent: none */
    sm_http_field *headers; /* that came with it, in one piece; the way's */
    int64_t asked_ms;       /* the client sent it no earlier (stdio) */
    uint64_t greeting;      /* the session's, when it came */
    bool modern;            /* it is of the era without sessions */
    bool under_way;         /* the link has it */
    bool canceled;          /* nobody wants an answer */
    uint64_t changes;       /* LIST: of the list, when it was asked for */
    bool listens;           /* it has no end by itself: subscriptions/listen */
    bool first_page;        /* LIST: it asks for the list from its beginning */
    mcp_tool_call *call;
    mcp_batch *batch;
    struct mcp_read_call *read; /* OTHER: it calls a tool that only reads; NULL: it does not */

    /* What the answer is about, for mcp_told_of; 0: no effect. */
    uint64_t effect;
    char handle[SM_HANDLE_TEXT];
    bool done; /* it tells that the effect was done, and how */

    /* Ours: the answer, or NULL if there will be none. */
    void (*answered)(mcp_exchange *x, const mcp_message *m);
    void *context;
};

/* ---- order -----------------------------------------------------------------------------------*/

/* A message in the order in which the client sent it. One that asks the ledger first keeps its
 * place until it is known what becomes of it. */
typedef struct mcp_slot {
    struct mcp_slot *next;
    mcp_exchange *x; /* NULL: no request */
    int64_t since_ns;
    bool decided;
    sm_buf text; /* empty once decided: nothing is sent */
} mcp_slot;

/* ---- sessions --------------------------------------------------------------------------------*/

/* The server, as a session sees it; from_server.c moves it.
 *
 *     THERE ---- it goes ----> DOWN ---- for long ----> AWAY
 *       |                        |                       |
 *       | it has forgotten       `---- it comes back ----'
 *       | the session (HTTP)                 |
 *       |                                    v
 *       `-------------------------------> STARTING ---- for long ----> STARTING_LATE
 *                                            |                            |
 *       THERE, or LAPSED <---- it was greeted, or not (HTTP) -------------'
 *
 * From STARTING it may go again: to DOWN, or AWAY if it was late. What goes for good is AWAY at
 * once. From LAPSED the client's next message leads to STARTING, or to THERE if it is a greeting.
 */
typedef enum mcp_reach {
    MCP_THERE,
    MCP_LAPSED,        /* there, but it knows of no session, and has to be greeted first */
    MCP_DOWN,          /* it has gone: what is asked waits for it */
    MCP_AWAY,          /* and has not come back for a while: nothing waits for it any more */
    MCP_STARTING,      /* another server is being told of the handshake: everything waits */
    MCP_STARTING_LATE, /* and has not answered for a while: nothing waits for it any more */
} mcp_reach;

/* Its life: each comes after the one before, by mcp_session_end and mcp_session_free. */
typedef enum mcp_life {
    MCP_OPEN,
    MCP_ENDED, /* the client has gone: nothing is answered any more */
    MCP_FREED, /* it is being freed: nobody is told anything of it */
} mcp_life;

/* An answer about an effect that the client was given. */
typedef struct mcp_told {
    uint64_t effect;  /* the ledger's number of the key; 0: nothing is here */
    uint64_t ticket;  /* it went out under; 0: nothing will show whether it was taken */
    int64_t asked_ms; /* its request was sent no earlier */
    int64_t taken_ms; /* the client had taken it by then; 0: not known to be taken */
    bool done;        /* it reported a success */
    char handle[SM_HANDLE_TEXT];
    char id[MCP_OWN_ID_MAX]; /* of the request, as written; cut */
} mcp_told;

struct mcp_session {
    mcp_server *server;
    mcp_session *next, *prev; /* of the server */
    mcp_session_options o;
    mcp_client_ops client;
    sm_str actor, scope; /* owned */
    mcp_link *link;
    mcp_exchange *table[MCP_BUCKETS];
    size_t requests;
    size_t listening; /* of these, those that have no end by themselves */
    size_t writes;    /* calls under way */
    size_t asking;    /* of these, those of which it is not known what becomes of them */
    size_t asking_bytes;
    uint64_t last_own; /* number of our newest request */
    uint64_t beats;    /* how often the client got progress while a call waited */
    char own_name[24]; /* what ids of ours begin with, quote included */
    uint64_t last_question;
    char question_name[48]; /* the same of questions to the client, which the server never sees */

    /* The handshake, as the client made it. */
    sm_buf initialize; /* its params, as written */
    char version[32];  /* that was agreed on; empty: none yet */
    bool elicits;      /* the client can ask its user (legacy) */
    sm_buf level;      /* params of the last logging/setLevel */

    mcp_reach reach;
    mcp_life life;
    bool deaf; /* the client has said its last word, before it went or after */

    struct asking *listing_now; /* listing.c: the tools are being asked for */
    mcp_tool_call *unlisted;    /* calls that wait for that */
    mcp_slot *first, **last;    /* waiting for their turn */
    mcp_alarm order_timer;      /* the first has waited long enough */
    size_t waiting_bytes;
    int64_t asked_ms; /* the client's next messages were sent no earlier (stdio) */
    bool paused;      /* the client was told to wait */
    unsigned junk;    /* lines of the server that were no messages */
    mcp_alarm away_timer;

    /* What the client was told. Workers look at it. */
    pthread_mutex_t told_lock;
    mcp_told told[MCP_TOLD];
    unsigned told_at;
    uint64_t greeting; /* how often a client has begun; older requests no longer count */
    uint64_t taken;    /* the last ticket up to which the client has taken everything */
};

struct mcp_server {
    mcp_hub *hub;
    mcp_server_options o;
    char *name, *scope, *pins;
    mcp_session *sessions;
    mcp_listing *listing; /* newest; NULL: none yet */
    bool stale;           /* the server says that it has changed */
    uint64_t changes;     /* how often it did */
    mcp_tool_call *calls; /* all of them */
};

/* What the server's tools are, counted. */
struct mcp_listing {
    unsigned holders;
    mcp_tools *tools;
    int64_t until_ns; /* it is asked again then; INT64_MAX: only if the server says so */
};

/* What goes with a message of the client. */
typedef struct mcp_hop {
    const sm_http_field *headers;
    size_t header_count;
    mcp_batch *batch;
} mcp_hop;

/* Makes a request known under its sent_id. `id` and `token` are copied. NULL when out of memory. */
mcp_exchange *mcp_exchange_new(mcp_session *s, mcp_what what, sm_str id, mcp_channel *channel);
void mcp_exchange_free(mcp_exchange *x);
mcp_exchange *mcp_exchange_find(mcp_session *s, sm_str sent_id);

/* Keeps a copy of the headers that came with it: the link may come back to them when the channel is
 * gone. False when out of memory. */
bool mcp_exchange_headers(mcp_exchange *x, const sm_http_field *headers, size_t n);

/* Notes era and progress token. */
void mcp_exchange_describe(mcp_exchange *x, sm_str params);

/* Gives the client the server's answer to a request that was passed on. */
void mcp_pass_answer(mcp_exchange *x, const mcp_message *m);

/* Answers a request and frees it: with a whole message, a result as written, or an error. */
void mcp_reply(mcp_exchange *x, sm_str text);
void mcp_reply_result(mcp_exchange *x, sm_str result);
void mcp_reply_error(mcp_exchange *x, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Answers a request with a result and keeps the request, as a cancelled one. */
void mcp_answer_result(mcp_exchange *x, sm_str result);

/* Sends an error about a message that started no request. */
void mcp_complain(mcp_session *s, mcp_channel *channel, mcp_batch *batch, sm_str id, int code,
                  const char *text);

/* A request of ours, which goes before everything that waits. `params` as written; headers as in
 * mcp_way. `answered` is called once, perhaps with NULL, and the exchange freed then; or it is
 * freed before, and nothing is called. NULL: it was not sent. */
mcp_exchange *mcp_request(mcp_session *s, const char *method, sm_str params,
                          const sm_http_field *headers, size_t header_count,
                          void (*answered)(mcp_exchange *x, const mcp_message *m), void *context);

/* Appends what a modern request says of its client, for the `_meta` of one of ours: an object, or
 * nothing for a request of the other era. `meta` as written; it may be absent. */
void mcp_put_own_meta(sm_buf *out, sm_str meta);

/* A new id for a question to the client, as written; returns its length. No server can guess it. */
size_t mcp_question_id(mcp_session *s, char out[MCP_OWN_ID_MAX]);

/* For answers that nobody needs. */
void mcp_ignore(mcp_exchange *x, const mcp_message *m);

/* Sends what is a client's own message in its turn. */
void mcp_forward(mcp_session *s, sm_str text, mcp_exchange *x);

/* Keeps the place of a call; then says what is sent there: nothing if `text` is absent. True if it
 * was, or will be when its turn comes. */
mcp_slot *mcp_slot_new(mcp_session *s, mcp_exchange *x);
void mcp_slot_decide(mcp_session *s, mcp_slot *slot, sm_str text);

void mcp_slots_free(mcp_session *s);

/* A request that waits for its turn is not sent any more. */
void mcp_slots_forget(mcp_session *s, const mcp_exchange *x);

/* Gives the server a message at once, before everything that waits. */
void mcp_forward_now(mcp_session *s, sm_str text);

/* Gives the server what has its turn now. */
void mcp_session_flush(mcp_session *s);

/* A call has kept its place for long enough. */
void mcp_order_late(mcp_alarm *t);

/* So long what is asked waits for the server; less if the client has said its last word. */
void mcp_session_await(mcp_session *s, int64_t ms);

/* The server has been away for long: what waits for it is answered with that. */
void mcp_session_late(mcp_alarm *t);

/* Greets the server anew, behind the client's back. */
void mcp_session_begin_again(mcp_session *s);

/* The client greets a server that has forgotten the session by itself. */
void mcp_session_greeted(mcp_session *s);

/* A message for the client that answers nothing. */
void mcp_tell_client(mcp_session *s, mcp_channel *channel, sm_str text);

/* What is wrong with its state, or NULL: asserted whenever `reach` or `life` changes. */
const char *mcp_session_flaw(const mcp_session *s);

/* Whether the server can be given something now. */
static inline bool mcp_session_there(const mcp_session *s)
{
    return s->reach == MCP_THERE || s->reach == MCP_LAPSED;
}

/* Whether it is being greeted behind the client's back. */
static inline bool mcp_session_starting(const mcp_session *s)
{
    return s->reach == MCP_STARTING || s->reach == MCP_STARTING_LATE;
}

/* Whether the server can be given something now, or it is known that it cannot. */
static inline bool mcp_session_ready(const mcp_session *s)
{
    return s->reach != MCP_DOWN && s->reach != MCP_STARTING;
}

/* Lets the client wait, or go on. */
void mcp_session_regulate(mcp_session *s);

/* Less is under way in a session: the client is told. */
void mcp_session_rest(mcp_session *s);

/* ---- links that clients share (shared.c) -----------------------------------------------------*/

/* Appends a request as the server gets it, and what the server says of it as its client gets it:
 * each with its own id, progress token and name of a subscription. */
void mcp_put_sent(sm_buf *out, const mcp_message *m, const mcp_exchange *x);
void mcp_put_back(sm_buf *out, const mcp_message *m, const mcp_exchange *x);

/* The request that a notification is about; NULL: it does not say (*named), or there is none. */
mcp_exchange *mcp_about(mcp_session *s, const mcp_message *m, bool *named);

/* ---- what the client was told ----------------------------------------------------------------*/

void mcp_told_add(mcp_session *s, const mcp_exchange *x, uint64_t ticket);
void mcp_told_canceled(mcp_session *s, sm_str id);
void mcp_told_forget(mcp_session *s); /* another client speaks */

/* From any thread: whether the client got an answer about this effect; and whether `x` is a
 * deliberate repeat of it under this contract, and of which handle. */
bool mcp_told_about(mcp_session *s, uint64_t effect);
bool mcp_told_of(mcp_session *s, const mcp_exchange *x, uint64_t effect, const sm_contract *c,
                 char handle[SM_HANDLE_TEXT]);

/* Whether an answer to `x` that leaves now would make a later equal call a deliberate repeat, as
 * far as is known now. */
bool mcp_told_proves(const mcp_exchange *x, const sm_contract *c);

/* ---- tools (listing.c) -----------------------------------------------------------------------*/

/* Takes a call that has to know the tools first; it is continued with mcp_call_listed. */
void mcp_listing_need(mcp_session *s, mcp_tool_call *call, sm_str meta);
bool mcp_listing_fresh(const mcp_server *s);

mcp_listing *mcp_listing_hold(mcp_listing *l); /* accepts NULL */
void mcp_listing_drop(mcp_listing *l);         /* accepts NULL */

/* The answer to a client's tools/list, on its way: looked at, and what is hidden taken out. */
void mcp_listing_pass(mcp_exchange *x, const mcp_message *m);
void mcp_listing_changed(mcp_session *s);

/* A call waits for it no more. */
void mcp_listing_forget(mcp_tool_call *call);

/* A server has come back, or does not. */
void mcp_listing_go_on(mcp_session *s);

/* A session ends, through which tools may be being asked for. */
void mcp_listing_leave(mcp_session *s);

/* ---- calls (call/make.c, send.c, call.c; progress.c) -----------------------------------------*/

/* A tools/call. Passes it on at once if it only reads. */
void mcp_call_start(mcp_session *s, const mcp_message *m, mcp_channel *channel, const mcp_hop *hop);

/* The tools are known; or not, and why. */
void mcp_call_listed(mcp_tool_call *call, const char *why_not);

/* What became of it at the server. */
void mcp_call_answered(mcp_tool_call *call, const mcp_message *m);
void mcp_call_lost(mcp_tool_call *call, const mcp_loss *loss);
void mcp_call_overflowed(mcp_tool_call *call,
                         const mcp_text_line *line); /* a result too long to be read */

/* Ends a call that no worker has, whether or not it was started: its exchange was answered, or is
 * not to be. What the server has of it stays a claim. */
void mcp_call_end(mcp_tool_call *call);

/* Nobody wants its answer any more. */
void mcp_call_canceled(mcp_tool_call *call);

/* Progress of a call under way: for everybody who waits for the same. */
void mcp_call_progress(mcp_tool_call *call, const mcp_message *m);

/* A server has come back, or does not: calls may wait to ask it something (remedy.c). */
void mcp_remedy_go_on(mcp_session *s);

/* The client's answer to a question of ours (approve.c). */
void mcp_approve_answered(mcp_session *s, const mcp_message *m);

/* ---- batches (batch.c) -----------------------------------------------------------------------*/

/* What answers a batch goes back together: as many answers as are expected, once all of its
 * messages have been looked at. */
mcp_batch *mcp_batch_new(mcp_channel *channel); /* NULL when out of memory */
void mcp_batch_expect(mcp_batch *b);
void mcp_batch_answer(mcp_batch *b, mcp_session *s, sm_str text); /* absent: there will be none */
void mcp_batch_done(mcp_batch *b, mcp_session *s);

/* Appends errors in place of an answer, or of the answers of a batch, that there is no room for. */
void mcp_put_excuses(sm_buf *out, sm_str answers);
void mcp_batch_gone(mcp_batch *b); /* its channel is no more */

#endif
