/*
 * A link to a server: its messages in both directions, over a child's standard streams (child.c) or
 * over Streamable HTTP (remote.c). Everything here happens on the loop's thread.
 *
 * A link does not know what messages mean. It knows one thing that nobody else can know: whether
 * anything of a request may have left, when no answer to it will come.
 */
#ifndef SM_MCP_LINK_H
#define SM_MCP_LINK_H

#include <signal.h>
#include <stdint.h>

#include "mcp/loop.h"
#include "mcp/message.h"
#include "mcp/tools.h"
#include "upstream/http.h"

typedef struct mcp_link mcp_link;
typedef struct mcp_text_line mcp_text_line; /* wire/lines.h */

/* One request on its way, embedded in what its owner knows of it. It stays where it is from `send`
 * until its answer has been given to `message`, or `lost` was told, or `forget` was called. */
typedef struct mcp_way {
    /* The owner's, before `send`. HTTP: headers to send beside the link's own, borrowed; these win,
     * but for Authorization, where the link's own does. */
    const sm_http_field *headers;
    size_t header_count;
    bool write; /* it may change the world: never sent twice, whatever breaks */

    /* The link's. */
    void *own;
    uint64_t from; /* child: where it begins in all that was written */
    struct mcp_way *next, *prev;
} mcp_way;

/* Why a request will get no answer. */
typedef struct mcp_loss {
    bool sent;         /* at least one byte of it may have left */
    const char *why;   /* for people: "the server ended with status 3" */
    int status;        /* HTTP: what it answered instead of a message; 0: nothing */
    sm_str body;       /* HTTP: its body, bounded; borrowed */
    bool session_gone; /* HTTP: 404 with a session: it has to be initialized again */
} mcp_loss;

/* What the owner of a link is told. */
typedef struct mcp_link_events {
    /* One message, as written; borrowed. `way`: the request on whose stream it came, which for its
     * answer is the last time (way->own is NULL then); NULL: the link cannot tell (a child; a
     * stream of its own). It is one line: HTTP may break it between its parts, which comes as
     * blanks. What a server says that is no message comes too. */
    void (*message)(void *context, mcp_way *way, sm_str text);

    /* Plain HTTP only, NULL otherwise: the head of the answer, whatever its status, before anything
     * else of it is told. Borrowed. */
    void (*head)(void *context, mcp_way *way, int status, const sm_http_field *headers, size_t n);

    void (*lost)(void *context, mcp_way *way, const mcp_loss *loss);

    /* A message of the server's was too long to be read: as much as is known of it. */
    void (*too_long)(void *context, const mcp_text_line *line);

    /* The server can be talked to again: it is another child, which knows nothing of what was. */
    void (*up)(void *context);

    /* The server is away; `lost` has been told for all requests. It is started again by and by
     * (`up`), unless `for_good`. */
    void (*down)(void *context, const char *why, bool for_good);

    /* There is room again after mcp_link_full. */
    void (*room)(void *context);
    void *context;
} mcp_link_events;

typedef struct mcp_link_ops {
    bool (*send)(mcp_link *l, sm_str text, mcp_way *way);
    void (*forget)(mcp_link *l, mcp_way *way);
    bool (*full)(const mcp_link *l);
    void (*hold)(mcp_link *l, bool held);
    void (*close)(mcp_link *l);
} mcp_link_ops;

struct mcp_link {
    const mcp_link_ops *ops;
    mcp_link_events events;
    mcp_loop *loop;
    bool exchanges; /* each request is an exchange of its own, and ending that cancels it (HTTP) */
};

/* Sends one message, no batch, which is copied if need be; `way` NULL: it is no request. False: the
 * server is away or out of memory; nothing was sent, and nothing is told of it. Never calls back.
 */
static inline bool mcp_link_send(mcp_link *l, sm_str text, mcp_way *way)
{
    return l->ops->send(l, text, way);
}

/* Nobody wants the answer any more: it is dropped when it comes. HTTP: the exchange is given up. */
static inline void mcp_link_forget(mcp_link *l, mcp_way *way)
{
    l->ops->forget(l, way);
}

/* So much waits to be taken by the server that its client should be made to wait. */
static inline bool mcp_link_full(const mcp_link *l)
{
    return l->ops->full(l);
}

/* The server's messages are left where they are, or given again. A few may come all the same. */
static inline void mcp_link_hold(mcp_link *l, bool held)
{
    l->ops->hold(l, held);
}

/* Ends the link and frees it; nothing is told any more. Requests are forgotten. A child is given a
 * moment to end, in the background of the loop, and is then ended. Accepts NULL. */
static inline void mcp_link_close(mcp_link *l)
{
    if (l != NULL)
        l->ops->close(l);
}

/* ---- a child (child.c) -----------------------------------------------------------------------*/

typedef struct mcp_child_options {
    char *const *argv;     /* the first is looked up in PATH; borrowed for the link's life */
    char *const *envp;     /* NULL: ours */
    const char *directory; /* NULL: ours */
    const sigset_t *mask;  /* signals that are blocked in it; NULL: none */

    /* What the owner is told about the process itself, beside the link's events. It ended (`status`
     * as wait(2) gives it) after having said something, or without (`served`). True: it is to be
     * started again, after a pause that grows with each end in a row. */
    bool (*ended)(void *context, int status, bool served);
} mcp_child_options;

/* Starts it, in a process group of its own. It inherits our standard error. The kernel ends it with
 * the calling thread at the latest. */
sm_err mcp_child_open(mcp_loop *loop, const mcp_child_options *o, const mcp_link_events *events,
                      mcp_link **out, sm_fault *fault);

/* Sends a signal to the process, or to its whole group, if it runs. Asks the group to end by a
 * signal, and kills the rest of it when the process has ended. Closes its standard input once all
 * pending bytes are written. */
void mcp_child_signal(mcp_link *l, int signal, bool group);
void mcp_child_ask(mcp_link *l, int signal);
void mcp_child_hang_up(mcp_link *l);
bool mcp_child_runs(const mcp_link *l); /* not between its end and its next start */

/* ---- Streamable HTTP (remote.c) --------------------------------------------------------------*/

typedef struct mcp_remote_options {
    sm_http *http;                /* not the link's */
    sm_str url;                   /* copied */
    const sm_http_field *headers; /* of every request, such as Authorization; copied; no secret of
                                     theirs is ever in a message for people */
    size_t header_count;
    int64_t silence_ms; /* how long nothing may come on a stream; 0: 5 min */

    /* Plain: requests stand alone, their headers come with them (mcp_way), nothing is kept of
     * sessions: for a client that speaks HTTP itself. Streams that break are resumed here too.
     * Otherwise the link is what a client of Streamable HTTP is, of either era: it sends
     * MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name and Mcp-Param-* as the messages
     * demand, listens on a stream of its own where there is one, resumes streams that break, and
     * ends the session when it is closed. */
    bool plain;

    /* What is known of a tool, for Mcp-Param-*; NULL: nothing. Not for `plain`. */
    const mcp_tool *(*tool)(void *context, sm_str name);
    void *tool_context;
} mcp_remote_options;

/* `up` and `down` are not told: a server over HTTP is asked each time.
 *
 * A request ends with the response that has its id, whatever the status of the HTTP answer, or with
 * `lost`. Plain: with `lost`, status and body whenever the status is no success, so that both can
 * be passed on as they are; and a way may go with any message: what is no request ends with `lost`
 * and the status too, such as 202.
 *
 * Requests are sent one after another and answered in any order. What follows initialize waits for
 * its answer, and what follows a notification waits until that was taken; answers to the server
 * wait for nobody.
 *
 * Closing ends the session by a DELETE that nobody waits for: whoever ends the program gives it a
 * moment (sm_http_under_way). The HTTP client is stopped before the loop is freed. */
sm_err mcp_remote_open(mcp_loop *loop, const mcp_remote_options *o, const mcp_link_events *events,
                       mcp_link **out, sm_fault *fault);

/* The headers for a request of ours that stands beside a client's, made of the client's own:
 * without what these repeat of their request, and with what ours has to repeat of itself. None if
 * the client has sent none. Copied into the arena. `tool`: the one that is called, NULL if nothing
 * is known of it. False when out of memory or over a bound (link/headers.c). */
bool mcp_headers_beside(sm_arena *a, const mcp_way *way, const char *method, sm_str params,
                        const mcp_tool *tool, const sm_http_field **out, size_t *n);

#endif
