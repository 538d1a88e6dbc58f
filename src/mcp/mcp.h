/*
 * The MCP proxy: it stands between an MCP client and a server; neither has to know of it.
 *
 *     client  <->  session  <->  link  <->  server
 *                     |
 *                   calls  <->  workers  <->  ledger
 *
 * Everything that is not a call of a tool that writes is passed on as it came. Such a call goes
 * through the ledger: reserved before it is passed on, recorded before it is answered, answered
 * from the record when it is asked for again.
 *
 * Threads: sessions, links and calls live on one loop (loop.h) and have no locks, but for
 * what workers (told.c) and the HTTP client's thread (link/fetch.c) look at; workers (serve/pool.h)
 * block on the ledger and post what it said back to the loop.
 *
 *     session.c      life; from_client.c, from_server.c: what comes from both sides
 *     server.c       a server that sessions talk to
 *     requests.c     what is not answered yet; order.c: who is next; shared.c: clients that share
 *                    a link
 *     call.c         one call of a tool: asking, waiting, recording; call/make.c: what is asked,
 *                    call/send.c: executing, call/answer.c and verdict.c: answers,
 *                    remedy.c: settling a doubt
 *     progress.c     what clients hear while a call waits or runs
 *     told.c         which answers the client has taken, to tell a repeat from a retry
 *     parting.c      the end of a server whose client has gone
 *     listing.c      what tools the server has; approve.c: asking the client's own user
 */
#ifndef SM_MCP_MCP_H
#define SM_MCP_MCP_H

#include <stdatomic.h>

#include "base/shares.h"
#include "mcp/link.h"
#include "mcp/tools.h"
#include "serve/attempt.h"

typedef enum mcp_level { MCP_INFO, MCP_WARN, MCP_ERROR_LEVEL } mcp_level;

/* What all sessions of a process share. Filled in by the program; outlives everything below. */
typedef struct mcp_hub {
    mcp_loop *loop;
    semel *ledger;
    sm_pool *pool;
    sm_waits *waits;
    semel_answer *answer; /* the loop's own, for what does not block */
    void (*say)(void *context, mcp_level level, const char *text); /* for people; from the loop */
    void *say_context;
    bool gateway;              /* people decide through a gateway, not with the `semel` program */
    const char *ledger_option; /* " --ledger URL" for a command in a message; else "" */
    size_t waiting_max;        /* how many may wait at once, with all others that use `waits` */
    atomic_bool told_trouble;  /* that the ledger cannot be used */
    sm_shares calls;           /* calls that have not ended, by client */
    sm_serve serve;            /* their attempts; made by mcp_hub_start */
    atomic_bool stopping;      /* nobody tries for long to record anything */
    bool settling;             /* the loop is stopped when no call is elsewhere */
} mcp_hub;

/* Makes the rest of it. sm_serve_fini(&hub->serve) ends that. */
void mcp_hub_start(mcp_hub *hub);

/* For people. */
void mcp_say(mcp_hub *hub, mcp_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* One server, however many sessions talk to it. */
typedef struct mcp_server mcp_server;

typedef struct mcp_server_options {
    sm_str name;       /* durable: it tells servers apart in the ledger */
    sm_str scope;      /* of all calls, also if a client names another; absent: the client's, or
                          the one that it is bound to, or the name alone */
    const char *pins;  /* a file; NULL: nothing is pinned */
    bool approve_here; /* whoever asks may be asked for approval, where the contract allows it: the
                          ledger is a local one, or the client has authenticated as its requester */
    bool undoes;       /* a person asks: calls whose key names an effect undo that
                          (sm_asking.undoes) */
} mcp_server_options;

sm_err mcp_server_new(mcp_hub *hub, const mcp_server_options *o, mcp_server **out);

/* Its sessions must be over. Accepts NULL. */
void mcp_server_free(mcp_server *s);

/* The name that a command has without being given one: its basename, a hyphen, and 8 hexadecimal
 * digits of SHA-256 over its arguments and the working directory. */
#define MCP_NAME_MAX 128u
bool mcp_name_of(char *const *argv, const char *directory, char out[MCP_NAME_MAX]);

/* ---- sessions --------------------------------------------------------------------------------*/

typedef struct mcp_session mcp_session;

/* What carries a client's request over HTTP, and its answer back: the front end's. On stdio there
 * is none. */
typedef struct mcp_channel mcp_channel;

typedef struct mcp_client_ops {
    /* One message for the client, as written, without a line feed; copied if need be. `channel`:
     * of the request that it belongs to, or NULL. `last`: it is the answer, the last message on
     * that channel. Returns a ticket for mcp_session_taken; tickets grow. 0: the message is lost,
     * or nothing will show whether the client takes it. */
    uint64_t (*deliver)(void *context, mcp_channel *channel, sm_str text, bool last);

    /* HTTP only, may be NULL: the head of the server's answer, before anything of it is delivered.
     */
    void (*head)(void *context, mcp_channel *channel, const sm_http_field *headers, size_t n);

    /* A request will get no answer that is a message: HTTP only, with what was answered. */
    void (*fail)(void *context, mcp_channel *channel, const mcp_loss *loss);

    /* The session wants no more messages for now, or wants them again. */
    void (*pause)(void *context, bool paused);

    /* Less is under way than before: mcp_session_busy, mcp_session_writes. The session is not to
     * be freed from inside of this or any other callback. */
    void (*rest)(void *context);

    /* The server has ended and does not come back. */
    void (*over)(void *context);
    void *context;
} mcp_client_ops;

typedef struct mcp_session_options {
    const mcp_client_ops *client;
    sm_str actor; /* who asks, for the audit trail; absent: the ledger's */
    sm_str scope; /* prefix that the client is bound to; absent: none */
    bool alone;   /* its requests stand alone: there is no order among them */
    bool renews;  /* a session that the server has forgotten is begun again behind its back */
    bool anyone;  /* requests of several clients, of which some may have the same id */
    bool shared;  /* with that, one link for all: ids are replaced by ones that are unique there */
} mcp_session_options;

sm_err mcp_session_new(mcp_server *server, const mcp_session_options *o, mcp_session **out);

/* The link's events, to open a link with; then the link itself, which is the session's from then
 * on. */
mcp_link_events mcp_session_events(mcp_session *s);
void mcp_session_attach(mcp_session *s, mcp_link *link);

/* Where initialize passes by the session: whether its params say that the client can ask its user,
 * and to tell a session so. Whether an id is of a question that some session of ours has asked. */
bool mcp_can_elicit(sm_str params);
void mcp_session_elicits(mcp_session *s, bool elicits);
bool mcp_is_question(sm_str id);

/* What is known of a tool, for mcp_remote_options; the context is the session. */
const mcp_tool *mcp_session_tool(void *context, sm_str name);

/* One message of the client. HTTP: `headers` go with it to the server, or are compared with it;
 * copied. */
void mcp_session_from_client(mcp_session *s, sm_str text, mcp_channel *channel,
                             const sm_http_field *headers, size_t header_count);

/* A line that was too long to be read; as mcp_text_line tells. */
void mcp_session_too_long(mcp_session *s, sm_str id, bool request, uint64_t length);

/* Whoever sent a request over this channel has gone, which in the modern era is a cancel: nothing
 * is delivered to it any more. What writes goes on and is recorded. */
void mcp_session_gone(mcp_session *s, mcp_channel *channel, bool cancels);

/* Evidence, which only stdio has. First: the client sent its next messages no earlier than this
 * time. Second: at this time its process had taken everything up to this ticket. */
void mcp_session_asked(mcp_session *s, int64_t since_ms);
void mcp_session_taken(mcp_session *s, uint64_t ticket, int64_t now_ms);

/* The client has gone: nothing is answered any more. What writes goes on and is recorded. */
void mcp_session_end(mcp_session *s);

/* The client says nothing more, but may still listen: what waits for a word of it waits no more. */
void mcp_session_deaf(mcp_session *s);

/* The server does not come back, or all is to end soon: whoever only waits is told so now. */
void mcp_session_wind_up(mcp_session *s);

/* Whether a worker has one of its calls, or it is parked: then it cannot be freed. */
bool mcp_session_elsewhere(const mcp_session *s);
size_t mcp_session_writes(const mcp_session *s); /* how many calls are not over */
bool mcp_session_paused(const mcp_session *s);   /* what mcp_client_ops.pause was last told */

/* Whether something is still to be given to the server, or written down; or with `requests`, to be
 * answered by it. */
bool mcp_session_busy(const mcp_session *s, bool requests);

/* How long a write that the server has may go on without its client: the longest lease of those, or
 * 0. */
int64_t mcp_session_patience_ms(const mcp_session *s);

void *mcp_session_context(const mcp_session *s); /* the client's */

/* Before the end of the program: waits until no call is elsewhere. On the loop's thread, which does
 * not run. Sessions have ended. */
void mcp_hub_settle(mcp_hub *hub);

/* Frees it and closes its link. No call may be elsewhere; those that the server has are left as
 * claims, which are in doubt. Accepts NULL. */
void mcp_session_free(mcp_session *s);

#endif
