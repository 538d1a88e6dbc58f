/*
 * The insides of the HTTP client, shared by its files:
 *
 *     http.c          the thread: what others ask of it, sockets, time, the end of an exchange
 *     request.c  a request that is checked and copied
 *     easy.c     an exchange as libcurl carries it out, and what its callbacks note
 *     socket.c   the sockets of connections, and whether one is clean
 *
 * An exchange is owned by the client from sm_http_send on, and freed when `done` has returned.
 *
 *     asked for ---> waits for its time ---> has a carrier ---> ended ---> done, freed
 *
 * Other threads touch only what `lock` protects: the list of those that something is asked of.
 */
#ifndef SM_UPSTREAM_CLIENT_ENGINE_H
#define SM_UPSTREAM_CLIENT_ENGINE_H

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/buf.h"
#include "base/timer.h"
#include "upstream/http.h"

/* Bounds (I12). */
#define SM_HTTP_HEAD_MAX   ((size_t)64 << 10) /* bytes of an answer's headers */
#define SM_HTTP_CONNECT_MS 10000
#define SM_HTTP_IDLE_S     60  /* a connection that nobody used for so long is ended */
#define SM_HTTP_CARRIERS   256 /* kept for the next exchange, at most */

/* Connections that libcurl keeps. It counts those in use, too: with fewer than there are exchanges
 * under way it would keep none, and connect anew each time. */
#define SM_HTTP_CONNECTIONS 4096

/* For a write an idle connection is good for a much shorter time: a request that meets a server's
 * own idle limit is in doubt, and the shortest limits in use are two seconds. libcurl counts whole
 * seconds and takes what is not older than this. */
#define SM_HTTP_IDLE_WRITE_S 1

/* What libcurl needs for one exchange; used again for the next one. */
typedef struct carrier {
    struct carrier *next;
    CURL *easy;
    sm_buf head;   /* names and values, each with a NUL behind it */
    sm_buf marks;  /* of head_mark: where they are */
    sm_buf fields; /* of sm_http_field: the same for others, once the head is whole */
    sm_buf body;
    char detail[CURL_ERROR_SIZE];
} carrier;

typedef struct head_mark {
    size_t name, name_length, value, value_length;
} head_mark;

/* A socket of a connection; the ports are 0 until they are looked at. */
typedef struct sm_http_socket {
    int fd, self_port, peer_port;
} sm_http_socket;

/* What others ask of an exchange. */
enum { ASK_START = 1, ASK_RESUME = 2, ASK_CANCEL = 4 };

struct sm_http_exchange {
    sm_http *http;
    sm_http_callbacks callbacks;

    /* Under the client's lock. */
    sm_http_exchange *asked_next;
    unsigned asked;

    /* The thread's own from here on. */
    sm_http_exchange *next, *previous; /* of all */
    sm_http_exchange *todo_next;
    unsigned todo;
    sm_timer timer;
    int64_t began_ns, heard_ns, pause_ms;
    carrier *carrier;  /* NULL: it has not begun */
    unsigned requests; /* begun on a connection; any: bytes may have left */
    int status;
    bool head_whole, cut, paused, timed_out;
    bool stale;         /* the connection was not clean: nothing was sent on it */
    bool fresh;         /* so it gets one of its own */
    const char *failed; /* why we ended it ourselves */

    /* The request; texts are behind this structure. */
    const char *method, *url;
    struct curl_slist *headers;
    sm_str body;
    int64_t timeout_ms;
    size_t body_max;
    bool write, trickle;
};

struct sm_http {
    pthread_t thread;
    int epoll, wake;
    char *ca_file;

    pthread_mutex_t lock;
    sm_http_exchange *asked, **asked_end;
    bool stopping, woken;

    atomic_size_t under_way;

    /* The thread's own. */
    CURLM *multi;
    CURLSH *share;
    int64_t quiet_ns; /* since when there has been nothing to do */
    bool used;        /* there may be idle connections */
    sm_timers timers; /* of exchanges */
    sm_http_exchange *all;
    carrier *spare;
    size_t spares;
    sm_http_socket *sockets;
    size_t socket_count, socket_room;
};

/* request.c: a copy, with all that can be wrong with a request checked. */
sm_err sm_http_copy(const sm_http_request *request, sm_http_exchange **out);

/* easy.c */
carrier *sm_http_carrier_new(sm_http *h); /* NULL: out of memory */
void sm_http_carrier_free(carrier *c);    /* accepts NULL */
void sm_http_carrier_clear(carrier *c);

/* Readies the carrier for the exchange. False: out of memory. */
bool sm_http_load(sm_http_exchange *x);

/* socket.c: for libcurl; and whether the connection with these ports has bytes in it that
 * belong to no answer, or has ended. */
curl_socket_t sm_http_socket_open(void *context, curlsocktype purpose,
                                  struct curl_sockaddr *address);
int sm_http_socket_close(void *context, curl_socket_t fd);
bool sm_http_socket_stale(sm_http *h, int self_port, int peer_port);

/* The same of bytes that the TLS library holds of the connection that the exchange has. True also
 * if that cannot be known. */
bool sm_http_tls_stale(const sm_http_exchange *x);

/* What is known at the end. `code` is libcurl's word; the texts live in the carrier. */
void sm_http_conclude(sm_http_exchange *x, CURLcode code, sm_http_result *out);

#endif
