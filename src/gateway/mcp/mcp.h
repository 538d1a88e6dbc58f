/*
 * MCP servers behind /mcp/NAME: Streamable HTTP towards clients, of both eras; towards the server a
 * child's standard streams, or HTTP.
 *
 *     mcp.c          the sites, and the thread that does all their work
 *     talk.c     talks: a client's conversation with a server, or requests without a session
 *     door.c     requests of clients, and where they go
 *     channel.c  their answers
 *     modern.c   the checks of the era without sessions
 *     leave.c    clients that end a session with a server over HTTP
 *     owner.c    which token a session of a server over HTTP belongs to
 *
 * For a server over HTTP everything is passed through (pass.h) but calls of tools and, if some are
 * hidden, their lists. So sessions, streams and statuses are the server's own.
 *
 * Threads: the HTTP server's threads post requests to the loop, and later also that a client hung
 * up or that an answer went out. Everything else belongs to the loop alone.
 */
#ifndef SM_GATEWAY_MCP_MCP_H
#define SM_GATEWAY_MCP_MCP_H

#include "gateway/inside/gateway.h"
#include "mcp/mcp.h"

#define GW_TALKS_MAX   512u /* of one site */
#define GW_TALKS_EACH  64u  /* of these, of one token */
#define GW_TALK_ID     40u  /* characters of a session's id that we make */
#define GW_PROOF_MAX   45u  /* before one that a server over HTTP makes (owner.c) */
#define GW_TALK_ID_MAX (256u + GW_PROOF_MAX) /* and of one that we accept */

typedef struct gw_talk gw_talk;
typedef struct gw_leaving gw_leaving; /* a DELETE for a server over HTTP */

/* One configured server. */
typedef struct gw_site {
    gw_mcp *all;
    const gw_mcp_server *config;
    mcp_server *server;
    gw_upstream_api api; /* of a server over HTTP */
    sm_arena arena;
    char **argv, **envp;             /* of a child */
    char flaw[SEMEL_FAULT_TEXT_MAX]; /* why it cannot be used; empty: it can */
    gw_talk *talks;
    size_t talk_count;
} gw_site;

struct gw_mcp {
    gateway *g;
    mcp_hub hub;
    pthread_t thread;
    bool running;
    gw_site *sites;
    uint32_t site_count;
    mcp_alarm sweep; /* of talks that nobody uses */
    bool stopping;
};

/*
 * What a request of a client is.
 *
 *     MESSAGE --+--> OPENING
 *               '--> MODERN ----> SUBSCRIPTION
 *
 * STREAM and DELETE are known by the method, on the server's thread. A message is read on the loop,
 * which moves it on.
 */
typedef enum gw_channel_kind {
    GW_CH_MESSAGE,      /* in a session, or not read yet */
    GW_CH_OPENING,      /* it begins a session of ours: its answer tells the session's id */
    GW_CH_MODERN,       /* of the era without sessions */
    GW_CH_SUBSCRIPTION, /* the same: it hears what it is for, and nothing else */
    GW_CH_STREAM,       /* GET: a session's own stream */
    GW_CH_DELETE,       /* it ends a session */
} gw_channel_kind;

/*
 * How far its answer is.
 *
 *     WAITS ---> FLOWS ---> ANSWERED ---> freed: at once, or once gone_post has come
 *       '-----------------------^
 *
 * The loop alone moves it. That its client has hung up is another matter: a thread of the server's
 * may say so at any time (`gone`).
 */
typedef enum gw_channel_state {
    GW_CH_WAITS,
    GW_CH_FLOWS,    /* a stream of events has begun */
    GW_CH_ANSWERED, /* it has no request any more */
} gw_channel_state;

/* One request of a client. It belongs to the loop once it was posted. */
struct mcp_channel {
    mcp_post post;      /* that it came */
    mcp_post gone_post; /* that its client has hung up */
    gw_site *site;
    gw_request *r; /* NULL: answered */
    gw_channel_kind kind;
    gw_channel_state state;
    bool gone; /* gone_post is on its way; under the lock of channels */
    gw_talk *talk;
    mcp_channel *next, *prev; /* of its talk */
    sm_arena arena;
    sm_buf body;
    sm_str id;                    /* of the request, in the body, as written; absent: none */
    sm_str session_id;            /* as sent; absent: none */
    sm_str version, method, name; /* of the headers, likewise */
    const sm_http_field *headers; /* for a server over HTTP; for a child, Mcp-Param-* alone */
    sm_str type;                  /* Content-Type of its answer */
    size_t header_count;
    gw_leaving *leaving; /* waits for its status */
};

/* One conversation. */
struct gw_talk {
    gw_talk *next, *prev; /* of its site */
    gw_site *site;
    char id[GW_TALK_ID_MAX + 1]; /* Mcp-Session-Id; empty: requests that stand alone */
    gw_who who;
    mcp_session *session;
    mcp_channel *channels; /* not answered yet, the newest first */
    mcp_channel *stream;   /* GET */
    bool paused;           /* its server takes no more for now */
    int64_t used_ns;
    bool over;           /* its client has ended it */
    int64_t over_ns;     /* since when */
    bool lost;           /* its server has ended for good */
    gw_leaving *leaving; /* for its server, when no write is running any more */
    int futile;          /* starts of the server in a row after which it said nothing */
};

/* ---- talks (talk.c) ----------------------------------------------------------------------*/

/* The talk that a request belongs to: found, or made if it may be. NULL: the channel has been
 * answered with what is wrong. */
gw_talk *gw_talk_for(mcp_channel *c, const mcp_message *m);

/* The talk of a request's session in which a write is running, also if the talk is over; or NULL.
 */
gw_talk *gw_talk_writing(const mcp_channel *c);

/* Ends one: nothing is answered any more. It is freed once nothing that writes is under way. */
void gw_talk_end(gw_talk *t);

/* Ends talks, and frees those that have come to their end. */
typedef enum gw_sweep {
    GW_UNUSED,  /* those that nobody has used for long */
    GW_RESTING, /* those without anything under way that writes; nobody waits in the others */
    GW_ALL,
} gw_sweep;
void gw_talk_sweep(gw_mcp *all, gw_sweep which);
void gw_talk_drop(gw_mcp *all); /* frees all; no call is elsewhere */
void gw_talk_join(gw_talk *t, mcp_channel *c);
void gw_talk_leave(mcp_channel *c);

/* ---- whose sessions are whose, of servers over HTTP (owner.c) -----------------------------*/

/* From any thread. Whether an id is of a session that this token has begun. Of such an id: what the
 * server calls the session, and whether its client can ask its user. */
bool gw_owner_is(gw_mcp *all, sm_str site, sm_str id, const char *token);
sm_str gw_owner_session(sm_str id);
bool gw_owner_elicits(sm_str id);

/* The answer to a request names a session of the server's: sets its id for the client. */
void gw_owner_tell(gw_request *r, sm_str session);

/* ---- leaving (leave.c) -------------------------------------------------------------------*/

/* Returns a talk that has to end first: then the caller answers the channel, and gw_leave_now sends
 * the DELETE to the server. NULL: the channel is answered, or will be. */
gw_talk *gw_leave(mcp_channel *c);
void gw_leave_now(gw_talk *t);       /* nothing in it writes any more */
void gw_leave_alone(mcp_channel *c); /* its client has hung up */

/* ---- channels (channel.c) ----------------------------------------------------------------*/

extern const mcp_client_ops gw_mcp_client; /* but for its context, a gw_talk */

/* What is wrong with its state, or NULL: asserted at every step. */
const char *gw_channel_flaw(const mcp_channel *c);

/* More is known of what it is. */
void gw_channel_is(mcp_channel *c, gw_channel_kind kind);

static inline bool gw_channel_modern(const mcp_channel *c)
{
    return c->kind == GW_CH_MODERN || c->kind == GW_CH_SUBSCRIPTION;
}

/* Answers a channel that needs no server. `code` is JSON-RPC's. */
void gw_channel_error(mcp_channel *c, int status, int code, const char *text);
void gw_channel_bare(mcp_channel *c, int status);
void gw_channel_end(mcp_channel *c); /* ends a stream without an answer */
void gw_channel_answer(mcp_channel *c, int status, sm_str text); /* with this message */

/* Its answer is a stream from now on. */
void gw_channel_flow(mcp_channel *c);

/* Holds its request, and gives it to the loop. On a thread of the server's. */
void gw_channel_post(mcp_channel *c);

void gw_channel_free(mcp_channel *c); /* it has no request */

#endif
