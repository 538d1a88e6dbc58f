/*
 * The watch: one thread that looks after connections, so that no client can keep what is ours by
 * doing nothing, or next to nothing.
 *
 *   - A connection whose deadline has passed is cut off: a request that has not come whole in time,
 *     however it trickles; or an answer that is not read, unless some of it is, and fast enough.
 *   - The first line of the first request must come in that time too.
 *   - Between two requests a connection may rest for limits.idle_ms. That no request comes is seen
 *     by its serial; that bytes of one have come, from when on limits.request_ms run, by what the
 *     system has counted since. libmicrohttpd takes them off the socket before anybody sees them.
 *   - Of a suspended connection nobody else sees the hang-up. Of one that rests libmicrohttpd does
 *     not see it if it came together with the last bytes of the request.
 *   - A connection that is closed before all of its request was read is drained for a moment, since
 *     closing it at once would make the client's system throw away our answer.
 *
 * Each is looked at a few times a second. Only what is suspended or rests from one look to the next
 * is given to epoll: a busy connection costs nothing here.
 */
#include <errno.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gateway/http/server.h"

#define READING_RATE    16 /* bytes of an answer that a client reads in a millisecond at least */
#define LOOK_MS         250
#define LOOK_MIN_MS     20
#define EVENTS          64
#define LINGERS_MAX     256u
#define LINGER_MS       2000
#define LINGER_BYTES    ((size_t)4 << 20)
#define TOKENS_CHECK_MS 1000
#define BYTES_LOOKS     4 /* at a connection that rests, in the time that a request may take */

typedef struct lingering {
    gw_sentry_kind kind;
    int fd;
    int64_t until_ns;
    size_t left;
    struct lingering *next;
} lingering;

struct gw_sentry {
    gw_http_server *server;
    pthread_t thread;
    int epoll, wake;
    gw_sentry_kind wake_kind;
    atomic_bool ending;
    int64_t looked_ns, tokens_ns;
    lingering *lingers;    /* under the server's lock */
    unsigned linger_count; /* likewise */
};

/* ---- connections -----------------------------------------------------------------------------*/

gw_conn *gw_conn_new(gw_http_server *s, struct MHD_Connection *mhd, int fd)
{
    gw_coming *came = &s->came[fd];
    gw_conn *c = calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    *c = (gw_conn){.kind = GW_WATCH_CONNECTION, .server = s, .mhd = mhd, .fd = fd};
    c->mount = came->by->mount;
    c->local = came->by->local;
    c->tls = s->tls != NULL && !c->local;
    c->roomy = came->roomy;
    c->seen_ns = sm_clock_mono_ns();
    /* Nobody connects to say nothing; and a handshake is no reason to take longer. */
    c->deadline = came->until_ns;
    pthread_mutex_init(&c->lock, NULL);

    pthread_mutex_lock(&s->lock);
    c->next = s->conns;
    c->link = &s->conns;
    if (c->next != NULL)
        c->next->link = &c->next;
    s->conns = c;
    pthread_mutex_unlock(&s->lock);
    return c;
}

uint64_t gw_conn_received(const gw_conn *c)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    return !c->local && getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0
               ? info.tcpi_bytes_received
               : 0;
}

/* Keeps the socket open beyond the connection's end. The server's lock is held. */
static void start_linger(gw_sentry *w, const gw_conn *c)
{
    lingering *l = w->linger_count < LINGERS_MAX ? calloc(1, sizeof *l) : NULL;
    if (l == NULL)
        return;
    *l = (lingering){.kind = GW_WATCH_LINGER, .left = LINGER_BYTES, .next = w->lingers};
    l->fd = dup(c->fd);
    l->until_ns = sm_clock_deadline_ns(LINGER_MS);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = l};
    if (l->fd < 0 || epoll_ctl(w->epoll, EPOLL_CTL_ADD, l->fd, &e) != 0) {
        if (l->fd >= 0)
            close(l->fd);
        free(l);
        return;
    }
    w->lingers = l;
    w->linger_count++;
}

void gw_conn_closed(gw_conn *c)
{
    gw_http_server *s = c->server;
    gw_sentry *w = s->sentry;
    pthread_mutex_lock(&s->lock);
    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
    if (c->in_epoll)
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->linger && !atomic_load(&s->stopping))
        start_linger(w, c);
    c->dead = true;
    c->next = s->dead;
    s->dead = c;
    pthread_mutex_unlock(&s->lock);
}

static void free_dead(gw_http_server *s)
{
    while (s->dead != NULL) {
        gw_conn *c = s->dead;
        s->dead = c->next;
        pthread_mutex_destroy(&c->lock);
        free(c);
    }
}

/* The request that the connection is suspended for, with a reference; or NULL. */
static gw_inner *held_by(gw_conn *c)
{
    pthread_mutex_lock(&c->lock);
    gw_inner *q = c->held;
    if (q != NULL)
        atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
    pthread_mutex_unlock(&c->lock);
    return q;
}

/* Up to `most` requests whose connections are suspended, each with a reference; of those that were
 * not given up, if so asked. */
static size_t collect_suspended(gw_http_server *s, bool but_given_up, gw_inner **out, size_t most)
{
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (gw_conn *c = s->conns; c != NULL && n < most; c = c->next) {
        gw_inner *q = held_by(c);
        if (q == NULL)
            continue;
        pthread_mutex_lock(&q->lock);
        bool wanted = gw_stage_of(q) == GW_SUSPENDED && !(but_given_up && gw_is_given_up(q));
        pthread_mutex_unlock(&q->lock);
        if (wanted)
            out[n++] = q;
        else
            gw_inner_unref(q);
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

void gw_server_give_up(gw_http_server *s)
{
    gw_inner *some[EVENTS];
    for (size_t n; (n = collect_suspended(s, true, some, EVENTS)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            gw_inner_give_up(some[i]);
            gw_inner_unref(some[i]);
        }
    }
}

void gw_conns_release(gw_http_server *s)
{
    /* Whoever suspends looks at this under the connection's lock, which is taken below: either it
     * sees that the server ends, or its connection is found suspended. */
    atomic_store(&s->stopping, true);
    gw_inner *some[EVENTS];
    for (size_t n; (n = collect_suspended(s, false, some, EVENTS)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            gw_inner_gone(some[i]);
            gw_inner_unref(some[i]);
        }
    }
}

/* ---- looking ---------------------------------------------------------------------------------*/

static void arm(gw_sentry *w, gw_conn *c)
{
    struct epoll_event e = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.ptr = c};
    c->armed = epoll_ctl(w->epoll, c->in_epoll ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, c->fd, &e) == 0;
    c->in_epoll = c->in_epoll || c->armed;
}

/* libmicrohttpd sees the end of the stream, and closes the connection. What a client has not read
 * of an answer goes with it, where the system would keep it and try for minutes. */
static void cut_off(gw_conn *c)
{
    static const struct linger at_once = {.l_onoff = 1};
    if (atomic_load_explicit(&c->sends, memory_order_relaxed))
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    shutdown(c->fd, SHUT_RDWR);
}

/* How much of what was sent has been taken, as a number that changes when more has. */
static uint64_t taken_bytes(const gw_conn *c)
{
    struct tcp_info info = {0};
    socklen_t n = sizeof info;
    int left = 0;
    if (!c->local && getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) == 0)
        return info.tcpi_bytes_acked;
    ioctl(c->fd, SIOCOUTQ, &left);
    return (uint64_t)left;
}

/* Whether a client whose time for an answer is over has read so much that it gets more time. When
 * the connection was last given something says little: a socket that is full takes more only once
 * much of it has been read. */
static bool reads_on(gw_conn *c, const gw_limits *limits)
{
    if (!atomic_load_explicit(&c->sends, memory_order_relaxed))
        return false;
    uint64_t before = c->read_bytes, now = 1 + taken_bytes(c);
    c->read_bytes = now;
    return before == 0 ||
           (c->local ? now != before : now - before >= (uint64_t)limits->request_ms * READING_RATE);
}

/* Whether a part of a request has come since the last one was over. It is looked for now and then
 * only: many rest, and each look asks the system. */
static void look_for_bytes(gw_conn *c, int64_t now, int64_t every_ns)
{
    if (c->local || c->stirred_ns != 0 || now - c->counted_ns < every_ns)
        return;
    c->counted_ns = now;
    if (gw_conn_received(c) != atomic_load_explicit(&c->received, memory_order_relaxed))
        c->stirred_ns = now;
}

static void look_at(gw_sentry *w, gw_conn *c, int64_t now)
{
    const gw_limits *limits = &w->server->g->config->limits;
    int64_t deadline = atomic_load_explicit(&c->deadline, memory_order_relaxed);
    if (deadline != 0 && now > deadline) {
        if (reads_on(c, limits))
            atomic_compare_exchange_strong(&c->deadline, &deadline,
                                           now + limits->request_ms * 1000000);
        else
            cut_off(c);
        return;
    }
    unsigned serial = atomic_load_explicit(&c->serial, memory_order_relaxed);
    if (serial != c->seen) {
        c->seen = serial;
        c->seen_ns = now;
        c->stirred_ns = 0;
        c->read_bytes = 0;
        c->counted_ns = now;
        c->left_ns = 0;
        c->armed = false;
        return;
    }
    if (serial % 2 == 0) {
        look_for_bytes(c, now, limits->request_ms * 1000000 / BYTES_LOOKS);
        /* Whoever left may have sent one more request, which is yet to be seen. */
        if ((c->left_ns != 0 && now - c->left_ns > (int64_t)LOOK_MS * 1000000) ||
            (c->stirred_ns != 0 ? now - c->stirred_ns > limits->request_ms * 1000000
                                : now - c->seen_ns > limits->idle_ms * 1000000))
            cut_off(c);
        else if (!c->armed && c->left_ns == 0)
            arm(w, c);
        return;
    }
    if (c->armed)
        return;
    pthread_mutex_lock(&c->lock);
    bool held = c->held != NULL;
    pthread_mutex_unlock(&c->lock);
    if (held)
        arm(w, c);
}

/* Whether all has been read that the client sends, or enough. */
static bool drained(lingering *l, int64_t now)
{
    static char nowhere[16384];
    ssize_t n = recv(l->fd, nowhere, sizeof nowhere, MSG_DONTWAIT);
    if (n > 0)
        l->left -= (size_t)n < l->left ? (size_t)n : l->left;
    return n == 0 || l->left == 0 || now > l->until_ns ||
           (n < 0 && errno != EAGAIN && errno != EINTR);
}

/* Ends those that are done; all of them if `all`. */
static void look_at_lingers(gw_sentry *w, int64_t now, bool all)
{
    for (lingering **link = &w->lingers; *link != NULL;) {
        lingering *l = *link;
        if (!drained(l, now) && !all) {
            link = &l->next;
            continue;
        }
        *link = l->next;
        w->linger_count--;
        epoll_ctl(w->epoll, EPOLL_CTL_DEL, l->fd, NULL); /* another copy of it may stay open */
        close(l->fd);
        free(l);
    }
}

/* A client has hung up. Its request is returned, with a reference, if there is one. */
static gw_inner *on_event(gw_conn *c, int64_t now)
{
    if (c->dead)
        return NULL;
    c->armed = false;
    unsigned serial = atomic_load_explicit(&c->serial, memory_order_relaxed);
    if (serial != c->seen)
        return NULL;
    if (serial % 2 != 0)
        return held_by(c);
    c->left_ns = now;
    return NULL;
}

static size_t look(gw_sentry *w, const struct epoll_event *events, int n, int64_t every_ns,
                   gw_inner **gone)
{
    gw_http_server *s = w->server;
    size_t gone_count = 0;
    bool drains = false;
    int64_t now = sm_clock_mono_ns();
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++) {
        const gw_sentry_kind *kind = events[i].data.ptr;
        drains = drains || *kind == GW_WATCH_LINGER;
        if (*kind != GW_WATCH_CONNECTION)
            continue;
        gw_inner *q = on_event(events[i].data.ptr, now);
        if (q != NULL)
            gone[gone_count++] = q;
    }
    bool look_now = now - w->looked_ns >= every_ns;
    if (drains || look_now)
        look_at_lingers(w, now, false);
    if (look_now) {
        w->looked_ns = now;
        for (gw_conn *c = s->conns; c != NULL; c = c->next)
            look_at(w, c, now);
    }
    /* The events at hand are done with, and there are no later ones about these. */
    free_dead(s);
    pthread_mutex_unlock(&s->lock);
    return gone_count;
}

/* The file of tokens is looked at here since it is this thread that wakes now and then anyway. */
static void refresh_tokens(gw_sentry *w)
{
    gateway *g = w->server->g;
    int64_t now = sm_clock_mono_ns();
    if (now - w->tokens_ns < (int64_t)TOKENS_CHECK_MS * 1000000)
        return;
    w->tokens_ns = now;
    sm_fault fault = {0};
    if (gw_tokens_changed(g->tokens) && gw_tokens_refresh(g->tokens, &fault) != SM_OK)
        gw_say(&g->log, GW_ERROR, "the file of tokens cannot be read; the earlier tokens hold",
               "reason", fault.text, NULL);
}

static void *watch(void *context)
{
    gw_sentry *w = context;
    int64_t look_ms = w->server->g->config->limits.request_ms / 4;
    look_ms = look_ms > LOOK_MS ? LOOK_MS : look_ms < LOOK_MIN_MS ? LOOK_MIN_MS : look_ms;
    struct epoll_event events[EVENTS];
    gw_inner *gone[EVENTS];
    while (!atomic_load(&w->ending)) {
        bool busy = atomic_load_explicit(&w->server->conn_count, memory_order_relaxed) > 0;
        int n = epoll_wait(w->epoll, events, EVENTS, (int)(busy ? look_ms : TOKENS_CHECK_MS));
        size_t gone_count = look(w, events, n, look_ms * 1000000, gone);
        for (size_t i = 0; i < gone_count; i++) {
            gw_inner_gone(gone[i]);
            gw_inner_unref(gone[i]);
        }
        refresh_tokens(w);
    }
    return NULL;
}

/* ---- beginning and end -----------------------------------------------------------------------*/

sm_err gw_sentry_start(gw_http_server *s, sm_fault *fault)
{
    gw_sentry *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    w->server = s;
    w->wake_kind = GW_WATCH_WAKE;
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &w->wake_kind};
    if (w->epoll >= 0 && w->wake >= 0 && epoll_ctl(w->epoll, EPOLL_CTL_ADD, w->wake, &e) == 0 &&
        sm_thread_start(&w->thread, watch, w, "semel-watch")) {
        s->sentry = w;
        return SM_OK;
    }
    sm_err err =
        sm_fault_set(fault, SEMEL_E_IO, "connections cannot be watched: %s", strerror(errno));
    if (w->epoll >= 0)
        close(w->epoll);
    if (w->wake >= 0)
        close(w->wake);
    free(w);
    return err;
}

void gw_sentry_stop(gw_http_server *s)
{
    gw_sentry *w = s->sentry;
    if (w == NULL)
        return;
    atomic_store(&w->ending, true);
    uint64_t one = 1;
    (void)!write(w->wake, &one, sizeof one);
    pthread_join(w->thread, NULL);
    look_at_lingers(w, 0, true);
    free_dead(s);
    close(w->epoll);
    close(w->wake);
    free(w);
    s->sentry = NULL;
}
