/*
 * The insides of a link over Streamable HTTP, shared by its files:
 *
 *     remote.c          the link: what is sent, in what order, and the end
 *     flight.c   one message on its way: the answer, and what it means
 *     stream.c   streams: events, coming back to one that broke, listening
 *     headers.c  what a message demands of its headers
 *
 * The life of a flight:
 *
 *     waits for its turn ---> under way ---> answered ---> over, freed when nobody is in it
 *                              |     ^
 *                 its stream broke   | GET with the last event's id (legacy)
 *                              +-----+
 *
 * The owner of the link may send, forget and close in whatever it is told. So a flight that is over
 * is only marked, and after each call of the owner's functions `over` is looked at; what is marked
 * is freed when the last of our functions is left (mcp_remote_leave). Closing marks all of them.
 */
#ifndef SM_MCP_LINK_REMOTE_H
#define SM_MCP_LINK_REMOTE_H

#include "base/arena.h"
#include "mcp/fetch.h"
#include "mcp/link.h"
#include "mcp/wire/sse.h"

/* Bounds (I12). */
#define MCP_SESSION_ID_MAX   1024u
#define MCP_VERSION_MAX      64u
#define MCP_FLIGHTS_MAX      4096u               /* waiting and under way */
#define MCP_HELD_MAX         ((size_t)256 << 20) /* bytes of all their messages and answers */
#define MCP_WAITING_MAX      ((size_t)4 << 20)   /* bytes that wait for their turn: full */
#define MCP_FAILURE_BODY_MAX ((size_t)64 << 10)  /* of an answer that is no message */

#define MCP_SILENCE_MS      300000
#define MCP_LISTEN_MS       3600000 /* silence on a stream that is there for what may happen */
#define MCP_NOTICE_MS       30000   /* for the answer to a notification, which others wait for */
#define MCP_AFTER_ANSWER_MS 5000 /* for a stream to end by itself, so that it can be used again */
#define MCP_DELETE_MS       2000

typedef struct mcp_remote mcp_remote;
typedef struct mcp_flight mcp_flight;

typedef enum mcp_flight_kind {
    MCP_FLIGHT_REQUEST,
    MCP_FLIGHT_NOTICE,
    MCP_FLIGHT_REPLY,  /* to a request of the server */
    MCP_FLIGHT_LISTEN, /* no message: a stream for what the server says of its own accord */
} mcp_flight_kind;

/* What becomes of an answer's body. */
typedef enum mcp_body {
    MCP_BODY_NONE,   /* there is no head yet */
    MCP_BODY_STREAM, /* events */
    MCP_BODY_WHOLE,  /* one message, or an array of them */
    MCP_BODY_REST,   /* for people, or for whoever passes it on */
} mcp_body;

struct mcp_flight {
    mcp_remote *remote;
    mcp_flight *next, *prev; /* of the link's list that it is in */
    mcp_way *way;            /* NULL: none, forgotten, or told the end */
    mcp_fetch *fetch;        /* NULL: it waits, or is over */
    mcp_alarm timer;         /* after the answer */

    mcp_flight_kind kind;
    bool initialize, initialized; /* it is the one of that name */
    bool modern;                  /* it stands alone: no session, nothing to come back to */
    bool in_session;              /* it was sent with a session's id */
    uint64_t session_number;      /* which */
    bool barrier;                 /* what follows waits for it */
    bool waiting;
    bool over;
    int64_t silence_ms;

    char *text; /* while it waits */
    size_t text_length;
    char *id; /* of a request, as written */
    size_t id_length;

    /* The answer. */
    int status;
    mcp_body body;
    sm_buf gathered;
    mcp_sse *sse;
    size_t held; /* its part of what the link holds */

    /* Coming back. */
    bool resumed;             /* the exchange is such a GET */
    char *last_id;            /* of the last event; NULL: there is nothing to come back to */
    sm_http_field *came_with; /* the way's headers, which may be gone by then */
    size_t came_with_count;
    int64_t retry_ms;  /* as the server wishes; -1: it has not said */
    int64_t heard_ns;  /* when something came */
    unsigned failures; /* in a row */
};

typedef struct mcp_flights {
    mcp_flight *first, *last;
    size_t count;
} mcp_flights;

struct mcp_remote {
    mcp_link link;
    sm_http *http;
    char *url;
    char *shown; /* without what may be secret, for people */
    sm_http_field *headers;
    size_t header_count;
    int64_t silence_ms;
    bool plain;
    const mcp_tool *(*tool)(void *context, sm_str name);
    void *tool_context;

    char session[MCP_SESSION_ID_MAX + 1]; /* empty: there is none */
    char version[MCP_VERSION_MAX + 1];    /* as initialized; empty: it is not */
    char modern[MCP_VERSION_MAX + 1];     /* of the last request that stood alone */
    bool session_gone;
    uint64_t session_number; /* of the one that there is */

    mcp_flights waiting, under_way;
    mcp_flight *dead; /* over, and not freed yet */
    mcp_flight *listener;
    size_t barriers, held, waiting_bytes;
    bool was_full;

    unsigned inside; /* how many of our functions are being gone through */
    bool closed;

    sm_arena arena; /* for the headers of one request */
    sm_buf line;    /* a message that came in several lines */
};

/* Every way in from outside but `send` goes through these. Leaving sends what may be sent now. */
void mcp_remote_enter(mcp_remote *r);
void mcp_remote_leave(mcp_remote *r);

void mcp_remote_add(mcp_flights *list, mcp_flight *f); /* at its end */

/* ---- headers.c ------------------------------------------------------------------------*/

/* The headers of a message (NULL: of a GET or DELETE) in the link's arena. Sets what it finds out
 * about the flight: modern, in_session. False when out of memory or over a bound. */
bool mcp_remote_headers(mcp_flight *f, const mcp_message *m, const sm_http_field **out, size_t *n);

/* A header of an answer; absent: it has none. */
sm_str mcp_header_find(const sm_http_field *headers, size_t n, const char *name);

/* ---- flight.c -------------------------------------------------------------------------*/

mcp_flight *mcp_flight_new(mcp_remote *r, mcp_flight_kind kind); /* NULL when out of memory */
void mcp_flight_free(mcp_flight *f);

/* Sends its message; then it is under way. On failure nothing was sent. */
sm_err mcp_flight_send(mcp_flight *f, const mcp_message *m);

/* Starts its next exchange, which is a GET of the stream, after a pause. */
sm_err mcp_flight_get(mcp_flight *f, int64_t pause_ms);

/* It is over: given up if it is under way. Tells nobody. */
void mcp_flight_end(mcp_flight *f);

/* The same, and whoever waits for it is told. */
void mcp_flight_lose(mcp_flight *f, const mcp_loss *loss);

/* The same for one that was sent, with a reason in the manner of printf. */
void mcp_flight_break(mcp_flight *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The server says that it does not know the session, which is still the newest. */
bool mcp_flight_orphaned(const mcp_flight *f);

/* Gives out a message, or an array of them, that came in its answer. */
void mcp_flight_give(mcp_flight *f, sm_str text);

/* ---- stream.c -------------------------------------------------------------------------*/

/* Its answer is a stream: its head says so. */
void mcp_stream_begin(mcp_flight *f);
void mcp_stream_add(mcp_flight *f, sm_str piece);

/* The head of a GET. */
void mcp_stream_head(mcp_flight *f, bool events);

/* The stream has ended, or a GET of it has failed, and there is no answer. `why` is for people. */
void mcp_stream_end(mcp_flight *f, const char *why);

/* Listens to what the server says of its own accord. */
void mcp_stream_listen(mcp_remote *r);

#endif
