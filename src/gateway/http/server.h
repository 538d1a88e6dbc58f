/*
 * The insides of the HTTP server: what its files share.
 *
 *     listen.c    sockets to listen on
 *     arrive.c    the thread that accepts
 *     server.c    libmicrohttpd: its threads, and what they call
 *     head.c      a request's head: that it means one thing only, and what it says
 *     admit.c     whether a request may come in: host, origin, route, token
 *     request.c   a request's memory, headers and reply
 *     refused.c   answers to what libmicrohttpd refuses itself
 *     flow.c      answers that come piece by piece
 *     watch.c     the thread that watches connections: time limits and hang-ups
 *
 * A connection is used by one thread of libmicrohttpd only. While it is suspended that thread does
 * not look at it, so that somebody has to: libmicrohttpd does not see a hang-up then. It is
 * suspended by its own thread, before the request is handed to anybody else, and resumed exactly
 * once, by whoever moves it from SUSPENDED to AWAKE under the request's lock: the reply, a hang-up
 * or the end of the server. Nothing but resuming is done to it from other threads; its own thread
 * then finds the reply in the request.
 *
 * Locks, in the order in which they are taken: the server's, a connection's, a request's.
 */
#ifndef SM_GATEWAY_HTTP_SERVER_H
#define SM_GATEWAY_HTTP_SERVER_H

#include <microhttpd.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/arena.h"
#include "base/container.h"
#include "gateway/inside/gateway.h"

#define GW_HEADERS_MAX 64u /* of a request */
/* Bytes that libmicrohttpd has for a connection's heads: little or much (arrive.c), what must be
 * left of them for the head of an answer, and up to which head little is enough. */
#define GW_CONNECTION_BYTES ((size_t)8 << 10)
#define GW_ROOMY_BYTES      ((size_t)64 << 10)
#define GW_ANSWER_BYTES     ((size_t)2 << 10)
#define GW_SMALL_HEAD       2048u
#define GW_RECORD_BYTES     64u   /* kept for each header, parameter of the query and cookie */
#define GW_SPARE_BYTES      1024u /* for the head of an answer that has only headers of ours */
#define GW_ROOMY_MAX        1024u /* connections that have much */
#define GW_NAMES_MAX        64u   /* that Host may have */

typedef struct gw_conn gw_conn;
typedef struct gw_inner gw_inner;
typedef struct gw_flow gw_flow;
typedef struct gw_sentry gw_sentry;
typedef struct gw_listener gw_listener;

/* What is served at some addresses, and the names that Host may have there. */
typedef struct gw_mount {
    const gw_upstream_api *api; /* this API alone, at /; NULL: all of the gateway */
    sm_str names[GW_NAMES_MAX];
    unsigned name_count;
    bool any_address; /* it listens on all addresses: any literal one is its own */
} gw_mount;

/* A socket that listens. */
struct gw_listener {
    int fd;
    bool local;
    gw_mount *mount;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of a Unix socket that is ours */
    dev_t device;
    ino_t inode;
    sm_str address; /* for people: http://127.0.0.1:8787 */
};

/* How a connection has come. The thread that accepts says it, for the one that serves it. */
typedef struct gw_coming {
    const gw_listener *_Atomic by;
    atomic_bool roomy;
    _Atomic int64_t until_ns; /* when its first line must be there */
} gw_coming;

/* Who an event of the watch is about; the first member of what it points at. */
typedef enum gw_sentry_kind { GW_WATCH_CONNECTION, GW_WATCH_LINGER, GW_WATCH_WAKE } gw_sentry_kind;

/* One connection. It is freed by the watch, which may still have an event about it. */
struct gw_conn {
    gw_sentry_kind kind;
    gw_http_server *server;
    struct MHD_Connection *mhd;
    const gw_mount *mount; /* what the client has come to */
    int fd;
    bool local; /* by a Unix socket */
    bool tls;
    bool roomy;  /* much memory for heads */
    bool linger; /* what the client still sends is to be read, else it misses the answer */
    _Atomic int64_t deadline;  /* when the watch cuts it off; 0: not now */
    atomic_bool sends;         /* the deadline is for reading an answer */
    atomic_uint serial;        /* odd while there is a request, even between two */
    _Atomic uint64_t received; /* bytes of all requests that are over */

    gw_inner *request; /* the present one; its own thread's */

    pthread_mutex_t lock;
    gw_inner *held; /* the request that it is suspended for; under the lock */

    /* The watch's, under the server's lock. */
    gw_conn *next, **link;
    bool dead;           /* closed; waits for being freed */
    bool in_epoll;       /* known to the watch's epoll */
    bool armed;          /* waits for an event there */
    unsigned seen;       /* the serial at the latest look, */
    int64_t seen_ns;     /* which it has had since */
    uint64_t read_bytes; /* of an answer, when it was last looked at; 0: not yet */
    int64_t counted_ns;  /* when its bytes were last looked at */
    int64_t stirred_ns;  /* between requests: since when there is a byte of the next; 0: none is */
    int64_t left_ns;     /* between requests: since when the client is known to have left; 0: no */
};

/*
 * The way of a request.
 *
 *     AT_HEAD ---> AT_BODY ---> AT_HANDLER ---> answered there and then, and freed
 *        |                       ^  |
 *        '-----> SWALLOWS -------'  | gw_hold
 *            refused                |
 *                                   +---> SUSPENDED <---> AWAKE ---> DELIVERED
 *                                   |                       |
 *                                   '---> ORPHANED ---------+------> LEFT
 *
 * The connection's thread moves it: up to AT_HANDLER while nobody else has the request, then under
 * the request's lock. Only from SUSPENDED to AWAKE anybody may, under the lock: with an answer, or
 * because the client has gone. A flow that has nothing to send is suspended again. Whoever has the
 * request may ask without the lock whether it is held, since that stays so.
 */
typedef enum gw_request_stage {
    GW_AT_HEAD,
    GW_AT_BODY,
    GW_SWALLOWS,   /* a body that nobody wants */
    GW_AT_HANDLER, /* all has come */

    /* Held: somebody else replies. */
    GW_ORPHANED,  /* while the server ends: its connection was not suspended */
    GW_SUSPENDED, /* its connection is */
    GW_AWAKE,     /* its connection's thread goes on with it */

    /* The connection is done with it. */
    GW_DELIVERED, /* the answer went out, whatever its producer does now */
    GW_LEFT,      /* it did not, or not all of it */
} gw_request_stage;

typedef struct gw_pair {
    sm_str name, value;
} gw_pair;

/* A header of the answer; both texts end with a NUL. */
typedef struct gw_set_header {
    struct gw_set_header *next;
    const char *name, *value;
} gw_set_header;

/* A request with what only the server knows about it. What is between `conn` and `headers` is
 * cleared for the next request; what is before stays. */
struct gw_inner {
    gw_request r; /* a gw_request of ours is one of these */
    gw_http_server *server;
    gw_inner *next; /* on a free list */
    sm_arena arena;
    pthread_mutex_t lock;

    gw_conn *conn; /* cleared under the lock when the connection is done with the request */
    _Atomic gw_request_stage stage;
    sm_str host, origin, authorization, token, traceparent, tracestate; /* some of the headers */
    int64_t length; /* of the body; -1: none was told */
    bool chunked, expects;
    bool old;            /* it came by HTTP/1.0 */
    bool outgrown;       /* its head needs a connection with more memory: this one ends */
    bool listed;         /* from a page whose origin the configuration lists */
    sm_str authority;    /* of a target that is a whole URI */
    size_t target_bytes; /* of the request's target as it came */
    size_t head_bytes;   /* as it came */
    size_t room;         /* in bytes, for the head of the answer */
    const char *flaw;    /* what is wrong with the head; NULL: nothing */

    gw_set_header *set, *last_set; /* of the answer */
    struct MHD_Response *answer;
    int status;
    bool replayed;    /* the answer says so: nothing ran */
    const char *code; /* of a problem that is the answer; NULL: it is none */

    sm_job job;
    gw_job_fn *work;

    atomic_uint refs;
    gw_flow *flow;

    unsigned header_count;
    gw_pair headers[GW_HEADERS_MAX];
};

typedef struct gw_pool_stripe {
    pthread_mutex_t lock;
    gw_inner *free;
    unsigned count;
} __attribute__((aligned(64))) gw_pool_stripe;

#define GW_STRIPES 8u

struct gw_http_server {
    gateway *g;
    struct MHD_Daemon *plain, *roomy, *tls, *roomy_tls; /* NULL: none of that kind */
    char *certificate, *key;                            /* PEM; kept as long as the daemon */
    atomic_bool starting;                               /* what libmicrohttpd says goes to `said` */
    char said[256];
    gw_listener *listeners;
    uint32_t listener_count;
    gw_mount *mounts; /* the gateway first, then each proxy with an address of its own */
    gw_coming *came;  /* for each file: how it has come */
    size_t file_count;
    pthread_t accepting;
    int wake;  /* an eventfd: ends the accepting thread */
    int porch; /* its epoll */
    bool accepts;

    sm_arena texts;

    gw_sentry *sentry;
    pthread_mutex_t lock;
    gw_conn *conns;
    gw_conn *dead;
    atomic_uint conn_count;  /* accepted, and not closed */
    atomic_uint roomy_count; /* of them, with much memory */
    atomic_bool stopping;    /* no connection is suspended any more */
    gw_pool_stripe stripes[GW_STRIPES];

    /* Held requests outlive the connections, and need the server for their end. */
    atomic_uint held;
    pthread_mutex_t end_lock;
    bool ended; /* stopped: the last of them frees it */
};

static inline gw_inner *gw_inner_of(const gw_request *r)
{
    return SM_CONTAINER(r, gw_inner, r);
}

static inline gw_request_stage gw_stage_of(const gw_inner *q)
{
    return atomic_load_explicit(&q->stage, memory_order_relaxed);
}

/* Whether we end, and whoever holds it was told so. */
static inline bool gw_is_given_up(const gw_inner *q)
{
    gw_presence client = atomic_load(&q->r.client);
    return client == GW_GIVEN_UP || client == GW_LOST;
}

/* Whether somebody else replies. */
static inline bool gw_is_held(const gw_inner *q)
{
    return gw_stage_of(q) >= GW_ORPHANED;
}

/* ---- listen.c --------------------------------------------------------------------------------*/

sm_err gw_listen_open(gw_http_server *s, sm_fault *fault); /* binds all, accepts nothing yet */
void gw_listen_quit(gw_http_server *s);                    /* stops accepting, and closes */
sm_str gw_listen_address(const gw_http_server *s, uint32_t i);

/* ---- arrive.c --------------------------------------------------------------------------------*/

sm_err gw_arrive_start(gw_http_server *s, sm_fault *fault); /* starts accepting */
void gw_arrive_stop(gw_http_server *s);                     /* ends that, if it was started */

/* ---- head.c ----------------------------------------------------------------------------------*/

/* The first line of a request, where libmicrohttpd has read it. */
typedef struct gw_line {
    const char *method, *target, *version;
} gw_line;

/* Reads the head: fills in the headers and what some of them say, `room` and `flaw`. */
void gw_head_read(gw_inner *q, const gw_line *line);

/* ---- admit.c ---------------------------------------------------------------------------------*/

/* Whether the request, of which the head has been read, may come in. If not, a problem is its
 * answer. */
bool gw_admit(gw_inner *q);

/* Whether Host may be this. */
bool gw_host_allowed(const gw_mount *m, sm_str host);

/* ---- request.c -------------------------------------------------------------------------------*/

/* One with a reference, for a request whose first line has come; NULL when out of memory. */
gw_inner *gw_inner_new(gw_http_server *s, gw_conn *conn, const char *uri);
void gw_inner_unref(gw_inner *q);

/* What is wrong with its state, or NULL: asserted at every step. Under its lock once it is held. */
const char *gw_inner_flaw(const gw_inner *q);

/* Moves it on; under its lock once it is held. */
void gw_enter(gw_inner *q, gw_request_stage stage);

/* It is over for its connection, which has sent the answer or has not; what nobody holds is freed
 * next. On the connection's thread. */
void gw_inner_left(gw_inner *q, bool delivered);

/* The client has hung up, or is given up: tells whoever holds the request, once. */
void gw_inner_gone(gw_inner *q);

/* The same because we end: whoever holds it answers it, and any problem that it is answered with is
 * that we end. */
void gw_inner_give_up(gw_inner *q);

/* Suspends the connection, on its own thread; false if the server ends. The connection's lock and
 * the request's are held. */
bool gw_suspend_locked(gw_inner *q);

/* Resumes it, if it is suspended. The request's lock is held. */
void gw_wake(gw_inner *q);

/* Bytes of an answer have been given to the connection: the client must read some of them in time.
 */
void gw_sends(gw_conn *c);

/* A text without its percent-encoding; absent when out of memory. What is no encoding stays. */
sm_str gw_decode(sm_arena *a, sm_str text, bool plus);

void gw_stripes_fini(gw_http_server *s);

/* ---- reply.c ---------------------------------------------------------------------------------*/

/* Puts on an answer what every answer has, and what gw_set said. */
void gw_dress(gw_inner *q, struct MHD_Response *answer, const char *content_type);

/* Puts an answer, which is taken, where the connection's thread finds it. NULL: there was no memory
 * for it, and the connection is cut. */
void gw_put_answer(gw_inner *q, int status, struct MHD_Response *answer);

/* ---- refused.c -------------------------------------------------------------------------------*/

/* Writes a problem to the socket itself, where libmicrohttpd would take no answer or has no memory
 * for one. Nothing more can be sent: the connection must be closed then. On its own thread. */
void gw_problem_last(gw_conn *c, int status, const char *code, const char *advice,
                     const char *message);

/* Gives libmicrohttpd an answer of ours. */
enum MHD_Result gw_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *answer);

/* The same for a head that is too long. */
void gw_refuse_head(gw_conn *c);

/* ---- flow.c ----------------------------------------------------------------------------------*/

void gw_flow_dropped(gw_inner *q); /* the client is gone: whoever waits for room has it */
bool gw_flow_open(gw_inner *q);    /* there is one, and it has not been ended */
void gw_flow_free(gw_flow *f);     /* accepts NULL */

/* ---- server.c --------------------------------------------------------------------------------*/

/* The connection that libmicrohttpd means; NULL: it is not one of ours. */
gw_conn *gw_conn_of(struct MHD_Connection *c);

/* A held request has ended. */
void gw_server_let_go(gw_http_server *s);

/* ---- watch.c ---------------------------------------------------------------------------------*/

sm_err gw_sentry_start(gw_http_server *s, sm_fault *fault);
void gw_sentry_stop(gw_http_server *s);

gw_conn *gw_conn_new(gw_http_server *s, struct MHD_Connection *mhd, int fd);
uint64_t gw_conn_received(const gw_conn *c); /* bytes in all; 0 where that is not counted */
void gw_conn_closed(gw_conn *c); /* its socket is closed on return of whoever calls this */

/* Hangs up all suspended connections, and lets none be suspended from now on. */
void gw_conns_release(gw_http_server *s);

#endif
