/*
 * MCP servers behind /mcp/NAME: Streamable HTTP towards clients, of both eras; towards the server a
 * child's standard streams, or HTTP.
 *
 *     mcp.c          the sites, and the thread on which everything of theirs happens
 *     mcp_talk.c     talks: one client's conversation with one server, or what stands alone
 *     mcp_door.c     requests of clients, and where they go
 *     mcp_channel.c  what they are answered with
 *
 * A server over HTTP is asked by plain passing on (pass.h) for everything but calls of tools and,
 * where some are hidden, their lists; so sessions, streams and statuses are the server's own.
 *
 * Threads: requests come on those of the HTTP server and are posted to the loop, which has
 * everything else alone. What clients do while their request is held (they hang up, their answer
 * went out) is posted too.
 */
#ifndef SM_GATEWAY_MCP_H
#define SM_GATEWAY_MCP_H

#include "gateway/gateway.h"
#include "mcp/mcp.h"

#define GW_TALKS_MAX   512u /* of one site */
#define GW_TALK_ID     40u  /* characters of a session's id that we make */
#define GW_TALK_ID_MAX 256u /* and of one that we accept */

typedef struct gw_talk gw_talk;

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
    uint64_t last_serial, last_ticket;
    mcp_timer sweep; /* of talks that nobody uses */
    bool stopping;
};

/* One request of a client. It belongs to the loop once it was posted. */
struct mcp_channel {
    mcp_post post;      /* that it came */
    mcp_post gone_post; /* that its client has hung up */
    gw_site *site;
    gw_request *r; /* NULL: answered */
    bool gone;     /* gone_post is on its way */
    bool done;     /* only that is waited for */
    bool flows;    /* the answer is a stream of events */
    bool stream;   /* it is a stream of its own (GET) */
    bool ends;     /* it ends a session (DELETE) */
    bool modern;
    bool opens; /* its answer tells the session's id */
    gw_talk *talk;
    mcp_channel *next, *prev; /* of its talk */
    sm_arena arena;
    sm_buf body;
    sm_str id;                    /* of the request in it, as written; absent: it is none */
    sm_str session_id;            /* as sent; absent: none */
    sm_str version, method, name; /* of the headers, likewise */
    const sm_http_field *headers; /* for a server over HTTP */
    sm_str type;                  /* Content-Type of its answer */
    size_t header_count;
};

/* One conversation. */
struct gw_talk {
    gw_talk *next, *prev; /* of its site */
    gw_site *site;
    uint64_t serial;
    char id[GW_TALK_ID_MAX + 1]; /* Mcp-Session-Id; empty: requests that stand alone */
    gw_who who;
    mcp_session *session;
    mcp_channel *channels; /* not answered yet, the newest first */
    mcp_channel *stream;   /* GET */
    int64_t used_ns;
    bool over;  /* its client has ended it */
    bool lost;  /* its server has ended for good */
    int futile; /* starts of the server in a row after which it said nothing */
};

/* ---- talks (mcp_talk.c) ----------------------------------------------------------------------*/

/* The talk that a request belongs to: found, or made if it may be. NULL: the channel has been
 * answered with what is wrong. */
gw_talk *gw_talk_for(mcp_channel *c, const mcp_message *m);

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
gw_talk *gw_talk_numbered(gw_mcp *all, uint64_t serial);
void gw_talk_join(gw_talk *t, mcp_channel *c);
void gw_talk_leave(mcp_channel *c);

/* ---- channels (mcp_channel.c) ----------------------------------------------------------------*/

extern const mcp_client_ops gw_mcp_client; /* but for its context, a gw_talk */

/* Answers a channel that needs no server. `code` is JSON-RPC's. */
void gw_channel_error(mcp_channel *c, int status, int code, const char *text);
void gw_channel_bare(mcp_channel *c, int status);

/* Takes the request away, to answer it. The channel is freed, or is when its last post comes. */
gw_request *gw_channel_take(mcp_channel *c);

/* Its answer is a stream from now on. */
void gw_channel_flow(mcp_channel *c);

/* Holds its request, and gives it to the loop. On a thread of the server's. */
void gw_channel_post(mcp_channel *c);

void gw_channel_free(mcp_channel *c); /* it has no request */

#endif
