/*
 * Arrivals: from accepting a connection to handing it to libmicrohttpd.
 *
 * libmicrohttpd gives each connection one piece of memory for its heads, which it fills with zeros
 * after every request, and keeps. Large heads need a large piece. A large piece for everybody would
 * cost each request microseconds, and each connection that rests 56 KiB. So there are two sets of
 * threads: one with little memory for a connection, one with much.
 *
 * Which one a connection gets is decided by its first bytes, which are looked at and left where
 * they are: little if there is a whole head of at most GW_SMALL_HEAD bytes in few parts, else much.
 * A connection that says nothing waits here. At most GW_ROOMY_MAX connections have much at a time.
 *
 * Later heads on the same connection may be larger. If one is large for little memory, its answer
 * ends the connection, so that the next one is looked at anew (head.c, gw_dress). A head that does
 * not fit at all is refused.
 *
 * Bytes through TLS cannot be looked at, so these connections have much while there is much. All
 * have much if the configuration bounds the connections of an address: libmicrohttpd counts them,
 * in each set for itself.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gateway/http/server.h"

#define PAUSE_MS 100 /* when the system lets us accept no more */
#define EVENTS   64
#define MS       ((int64_t)1000000)

/* A connection that has said nothing yet. */
typedef struct arrival {
    struct arrival *next, *prev; /* in the order of their coming */
    const gw_listener *by;
    int fd;
    int64_t until_ns;
    socklen_t size;
    struct sockaddr_storage from;
} arrival;

typedef struct porch {
    gw_http_server *server;
    int epoll;
    arrival all; /* a ring */
} porch;

/* ---- handing over ----------------------------------------------------------------------------*/

static void hand_over(gw_http_server *s, const arrival *a, bool roomy)
{
    bool tls = s->tls != NULL && !a->by->local;
    struct MHD_Daemon *little = tls ? s->tls : s->plain, *much = tls ? s->roomy_tls : s->roomy;
    atomic_fetch_add_explicit(&s->roomy_count, roomy, memory_order_relaxed);
    gw_coming *came = &s->came[a->fd];
    came->by = a->by;
    came->roomy = roomy;
    came->until_ns = a->until_ns;
    /* It closes the socket itself if it does not take it. */
    if (MHD_add_connection(roomy ? much : little, a->fd, (const struct sockaddr *)&a->from,
                           a->size) == MHD_YES)
        return;
    atomic_fetch_sub_explicit(&s->conn_count, 1, memory_order_relaxed);
    atomic_fetch_sub_explicit(&s->roomy_count, roomy, memory_order_relaxed);
}

static bool has_room(const gw_http_server *s)
{
    return atomic_load_explicit(&s->roomy_count, memory_order_relaxed) < GW_ROOMY_MAX;
}

/* Whether little memory is enough for a head: it is small, and so is what libmicrohttpd keeps of
 * its lines, parameters and cookies. These are counted by what stands between them, if anything too
 * often, and the cookies, which are copied, as if all of it were cookies. */
static bool is_small(const char *text, size_t n)
{
    const char *end = memmem(text, n, "\r\n\r\n", 4);
    if (end == NULL)
        return false;
    size_t records = 3; /* the first ones have nothing before them */
    for (const char *at = text; at < end; at++)
        records += *at == '\n' || *at == '&' || *at == ';' || *at == ',';
    return (size_t)(end - text) + records * GW_RECORD_BYTES <=
           GW_CONNECTION_BYTES / 2 - GW_SPARE_BYTES;
}

/* Whether a connection needs much memory, by the first bytes of its first head. False as well if
 * there are none yet: *silent. */
static bool needs_room(const gw_http_server *s, int fd, bool *silent)
{
    char text[GW_SMALL_HEAD];
    ssize_t n = recv(fd, text, sizeof text, MSG_PEEK | MSG_DONTWAIT);
    *silent = n < 0 && (errno == EAGAIN || errno == EINTR);
    return n > 0 && !is_small(text, (size_t)n) && has_room(s);
}

/* ---- waiting for the first byte --------------------------------------------------------------*/

static void forget(porch *p, arrival *a)
{
    epoll_ctl(p->epoll, EPOLL_CTL_DEL, a->fd, NULL);
    a->prev->next = a->next;
    a->next->prev = a->prev;
}

static bool await(porch *p, const arrival *seen)
{
    arrival *a = malloc(sizeof *a);
    if (a == NULL)
        return false;
    *a = *seen;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = a};
    if (epoll_ctl(p->epoll, EPOLL_CTL_ADD, a->fd, &e) != 0) {
        free(a);
        return false;
    }
    a->next = &p->all;
    a->prev = p->all.prev;
    a->prev->next = p->all.prev = a;
    return true;
}

static void on_bytes(porch *p, arrival *a)
{
    bool silent;
    bool roomy = needs_room(p->server, a->fd, &silent);
    if (silent)
        return;
    forget(p, a);
    hand_over(p->server, a, roomy);
    free(a);
}

/* Nobody connects to say nothing. */
static void cut_off(porch *p, int64_t now)
{
    while (p->all.next != &p->all && p->all.next->until_ns <= now) {
        arrival *a = p->all.next;
        forget(p, a);
        close(a->fd);
        free(a);
        atomic_fetch_sub_explicit(&p->server->conn_count, 1, memory_order_relaxed);
    }
}

static int next_ms(const porch *p)
{
    if (p->all.next == &p->all)
        return -1;
    int64_t left = p->all.next->until_ns - sm_clock_mono_ns();
    return left <= 0 ? 0 : (int)((left + MS - 1) / MS);
}

/* ---- accepting -------------------------------------------------------------------------------*/

/* Whoever comes when there are too many is told so in plain words, if that takes no handshake. */
static void turn_away(gw_http_server *s, int fd, bool local)
{
    static const char body[] =
        "{\"type\":\"urn:semel:problem:OVERLOADED\",\"title\":\"Overloaded\",\"status\":503,"
        "\"code\":\"OVERLOADED\",\"retriable\":true,\"retry_after_ms\":1000,"
        "\"message\":\"there are too many connections\"}";
    char text[512];
    int n =
        snprintf(text, sizeof text,
                 "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
                 "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
                 sizeof body - 1, body);
    if (local || s->tls == NULL)
        (void)!send(fd, text, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
    close(fd);
}

static void accept_one(porch *p, const gw_listener *l)
{
    gw_http_server *s = p->server;
    const gw_limits *limits = &s->g->config->limits;
    arrival a = {.by = l, .size = sizeof a.from};
    a.fd = accept4(l->fd, (struct sockaddr *)&a.from, &a.size, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (a.fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            usleep(PAUSE_MS * 1000);
        return;
    }
    if ((size_t)a.fd >= s->file_count) {
        close(a.fd);
        return;
    }
    unsigned before = atomic_fetch_add_explicit(&s->conn_count, 1, memory_order_relaxed);
    if (before >= (unsigned)limits->connections) {
        atomic_fetch_sub_explicit(&s->conn_count, 1, memory_order_relaxed);
        turn_away(s, a.fd, l->local);
        return;
    }
    bool silent = false, tls = s->tls != NULL && !l->local;
    bool roomy = limits->connections_per_address > 0 ? true
                 : tls                               ? has_room(s)
                                                     : needs_room(s, a.fd, &silent);
    a.until_ns = sm_clock_deadline_ns(limits->request_ms);
    if (!silent || !await(p, &a))
        hand_over(s, &a, roomy);
}

/* Until we end. Whoever has said nothing by then is libmicrohttpd's, as everybody else is. */
static void accept_all(porch *p)
{
    gw_http_server *s = p->server;
    for (;;) {
        struct epoll_event events[EVENTS];
        int n = epoll_wait(p->epoll, events, EVENTS, next_ms(p));
        for (int i = 0; i < n; i++) {
            void *at = events[i].data.ptr;
            if (at == s)
                return;
            if ((gw_listener *)at >= s->listeners &&
                (gw_listener *)at < s->listeners + s->listener_count)
                accept_one(p, at);
            else
                on_bytes(p, at);
        }
        cut_off(p, sm_clock_mono_ns());
    }
}

static void *accept_thread(void *context)
{
    gw_http_server *s = context;
    porch p = {.server = s, .epoll = s->porch};
    p.all.next = p.all.prev = &p.all;
    accept_all(&p);
    while (p.all.next != &p.all) {
        arrival *a = p.all.next;
        forget(&p, a);
        hand_over(s, a, false);
        free(a);
    }
    return NULL;
}

static bool watch(gw_http_server *s, int fd, void *what)
{
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(s->porch, EPOLL_CTL_ADD, fd, &e) == 0;
}

sm_err gw_arrive_start(gw_http_server *s, sm_fault *fault)
{
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->porch = epoll_create1(EPOLL_CLOEXEC);
    bool right = s->wake >= 0 && s->porch >= 0 && watch(s, s->wake, s);
    for (uint32_t i = 0; right && i < s->listener_count; i++)
        right = watch(s, s->listeners[i].fd, &s->listeners[i]);
    s->accepts = right && sm_thread_start(&s->accepting, accept_thread, s, "semel-accept");
    if (s->accepts)
        return SM_OK;
    sm_fault_set(fault, SEMEL_E_IO, "cannot start a thread: %s", strerror(errno));
    if (s->wake >= 0)
        close(s->wake);
    if (s->porch >= 0)
        close(s->porch);
    return SEMEL_E_IO;
}

void gw_arrive_stop(gw_http_server *s)
{
    if (!s->accepts)
        return;
    uint64_t one = 1;
    (void)!write(s->wake, &one, sizeof one);
    pthread_join(s->accepting, NULL);
    close(s->wake);
    close(s->porch);
    s->accepts = false;
}
