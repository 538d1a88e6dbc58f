/*
 * Listening: sockets by address or by path, and the thread that accepts.
 *
 * We accept ourselves and hand connections over to libmicrohttpd, which spreads them evenly over
 * its threads. So there is one set of threads however many addresses there are, whoever comes when
 * there are too many gets told, and listening can end while connections go on.
 *
 * A Unix socket that is left over from a process that died is replaced, one that somebody answers
 * on is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/thread.h"
#include "gateway/server.h"

#define BACKLOG       1024
#define PAUSE_MS      100 /* when the system lets us accept no more */
#define LISTENERS_MAX 32u
#define UNIX_MODE     0660

struct gw_listener {
    int fd;
    bool local;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* of a Unix socket that is ours */
    dev_t device;
    ino_t inode;
    sm_str address; /* for people: http://127.0.0.1:8787 */
};

/* ---- binding ---------------------------------------------------------------------------------*/

static sm_err complain(const gw_listen *l, const char *what, sm_fault *fault)
{
    const char *advice = errno == EADDRINUSE ? "; another program listens there"
                         : errno == EACCES   ? "; this user may not"
                                             : "";
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "cannot %s %.*s: %s%s", what, SM_FMT(l->text),
                        strerror(errno), advice);
}

static bool somebody_answers(const struct sockaddr_un *at)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return true;
    int result = connect(fd, (const struct sockaddr *)at, sizeof *at);
    bool refused = result != 0 && errno == ECONNREFUSED;
    close(fd);
    return !refused;
}

static bool is_socket(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

static sm_err bind_unix(gw_listener *out, const gw_listen *l, sm_fault *fault)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (l->path.n == 0 || l->path.n >= sizeof at.sun_path)
        return sm_fault_set(fault, SEMEL_E_LIMIT,
                            "the path of a Unix socket has 1 to %zu bytes: %.*s",
                            sizeof at.sun_path - 1, SM_FMT(l->text));
    memcpy(at.sun_path, l->path.p, l->path.n);
    out->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (out->fd < 0)
        return complain(l, "make a socket for", fault);
    int bound = bind(out->fd, (struct sockaddr *)&at, sizeof at);
    if (bound != 0 && errno == EADDRINUSE && is_socket(at.sun_path) && !somebody_answers(&at) &&
        unlink(at.sun_path) == 0)
        bound = bind(out->fd, (struct sockaddr *)&at, sizeof at);
    struct stat st;
    /* Nobody can connect before listen(), so nobody sees it with other rights. */
    if (bound != 0 || chmod(at.sun_path, UNIX_MODE) != 0 || lstat(at.sun_path, &st) != 0)
        return complain(l, "listen on", fault);
    memcpy(out->path, at.sun_path, sizeof out->path);
    out->device = st.st_dev;
    out->inode = st.st_ino;
    out->local = true;
    return SM_OK;
}

static sm_err bind_tcp(gw_listener *out, const gw_listen *l, sm_fault *fault)
{
    char host[256], port[8];
    sm_str h = l->host;
    if (h.n > 2 && h.p[0] == '[' && h.p[h.n - 1] == ']')
        h = (sm_str){h.p + 1, h.n - 2};
    snprintf(host, sizeof host, "%.*s", SM_FMT(h));
    snprintf(port, sizeof port, "%u", l->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int e = getaddrinfo(host, port, &hints, &found);
    if (e != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "cannot listen on %.*s: %s",
                            SM_FMT(l->text), gai_strerror(e));
    int on = 1;
    out->fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool bound = out->fd >= 0 &&
                 setsockopt(out->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                 setsockopt(out->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
                 (found->ai_family != AF_INET6 ||
                  setsockopt(out->fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
                 bind(out->fd, found->ai_addr, found->ai_addrlen) == 0;
    int error = errno;
    freeaddrinfo(found);
    errno = error;
    return bound ? SM_OK : complain(l, "listen on", fault);
}

/* ---- names -----------------------------------------------------------------------------------*/

static void add_name(gw_server *s, sm_str name)
{
    if (name.p != NULL && s->name_count < GW_NAMES_MAX)
        s->names[s->name_count++] = name;
}

/* A name with the port and without: clients leave out the one that is the scheme's. */
static void add_names(gw_server *s, sm_str host, unsigned port)
{
    add_name(s, host);
    add_name(s, sm_arena_printf(&s->texts, "%.*s:%u", SM_FMT(host), port));
}

/* What the socket is really bound to: its address for people, and names that Host may have. */
static sm_err learn_address(gw_server *s, gw_listener *l, const gw_listen *asked, sm_fault *fault)
{
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    char host[INET6_ADDRSTRLEN + 1], port[8];
    if (getsockname(l->fd, (struct sockaddr *)&at, &n) != 0 ||
        getnameinfo((struct sockaddr *)&at, n, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return complain(asked, "find out the address of", fault);
    bool six = at.ss_family == AF_INET6;
    sm_str text = sm_arena_printf(&s->texts, six ? "[%s]" : "%s", host);
    unsigned number = (unsigned)strtoul(port, NULL, 10);
    l->address = sm_arena_printf(&s->texts, "%s://%.*s:%u", s->g->config->tls.on ? "https" : "http",
                                 SM_FMT(text), number);
    if (l->address.p == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    bool every = strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0;
    s->any_address = s->any_address || every;
    if (!every)
        add_names(s, text, number);
    if (every || asked->loopback)
        add_names(s, SM_STR("localhost"), number);
    return SM_OK;
}

/* ---- opening ---------------------------------------------------------------------------------*/

static sm_err open_one(gw_server *s, gw_listener *l, const gw_listen *asked, sm_fault *fault)
{
    sm_err e = asked->path.p != NULL ? bind_unix(l, asked, fault) : bind_tcp(l, asked, fault);
    if (e != SM_OK)
        return e;
    if (listen(l->fd, BACKLOG) != 0)
        return complain(asked, "listen on", fault);
    if (!l->local)
        return learn_address(s, l, asked, fault);
    l->address = sm_arena_printf(&s->texts, "unix:%s", l->path);
    return l->address.p != NULL ? SM_OK : sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
}

sm_err gw_listen_open(gw_server *s, sm_fault *fault)
{
    const gw_config *config = s->g->config;
    if (config->listen.n == 0 || config->listen.n > LISTENERS_MAX)
        return sm_fault_set(fault, SEMEL_E_INVALID, "there must be 1 to %u addresses to listen on",
                            LISTENERS_MAX);
    s->listeners = calloc(config->listen.n, sizeof *s->listeners);
    if (s->listeners == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    for (uint32_t i = 0; i < config->hosts.n; i++)
        add_name(s, config->hosts.v[i]);
    for (uint32_t i = 0; i < config->listen.n; i++) {
        gw_listener *l = &s->listeners[s->listener_count++];
        l->fd = -1;
        sm_err e = open_one(s, l, &config->listen.v[i], fault);
        if (e != SM_OK)
            return e;
    }
    return SM_OK;
}

sm_str gw_listen_address(const gw_server *s, uint32_t i)
{
    return i < s->listener_count ? s->listeners[i].address : (sm_str){0};
}

/* ---- accepting -------------------------------------------------------------------------------*/

/* Whoever comes when there are too many is told so in plain words, if that takes no handshake. */
static void turn_away(gw_server *s, int fd, bool local)
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

static void accept_one(gw_server *s, const gw_listener *l)
{
    struct sockaddr_storage from;
    socklen_t n = sizeof from;
    int fd = accept4(l->fd, (struct sockaddr *)&from, &n, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            usleep(PAUSE_MS * 1000);
        return;
    }
    unsigned before = atomic_fetch_add_explicit(&s->conn_count, 1, memory_order_relaxed);
    if (before >= (unsigned)s->g->config->limits.connections) {
        atomic_fetch_sub_explicit(&s->conn_count, 1, memory_order_relaxed);
        turn_away(s, fd, l->local);
        return;
    }
    /* It closes the socket itself if it does not take it. */
    if (MHD_add_connection(l->local || s->tls == NULL ? s->plain : s->tls, fd,
                           (struct sockaddr *)&from, n) != MHD_YES)
        atomic_fetch_sub_explicit(&s->conn_count, 1, memory_order_relaxed);
}

static void *accept_all(void *context)
{
    gw_server *s = context;
    struct pollfd fds[LISTENERS_MAX + 1];
    for (uint32_t i = 0; i < s->listener_count; i++)
        fds[i] = (struct pollfd){.fd = s->listeners[i].fd, .events = POLLIN};
    fds[s->listener_count] = (struct pollfd){.fd = s->wake, .events = POLLIN};
    for (;;) {
        if (poll(fds, s->listener_count + 1, -1) < 0)
            continue;
        if (fds[s->listener_count].revents != 0)
            return NULL;
        for (uint32_t i = 0; i < s->listener_count; i++)
            if (fds[i].revents != 0)
                accept_one(s, &s->listeners[i]);
    }
}

sm_err gw_listen_accept(gw_server *s, sm_fault *fault)
{
    s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    s->accepts = s->wake >= 0 && sm_thread_start(&s->accepting, accept_all, s, "semel-accept");
    return s->accepts
               ? SM_OK
               : sm_fault_set(fault, SEMEL_E_IO, "cannot start a thread: %s", strerror(errno));
}

void gw_listen_quit(gw_server *s)
{
    if (s->accepts) {
        uint64_t one = 1;
        (void)!write(s->wake, &one, sizeof one);
        pthread_join(s->accepting, NULL);
        close(s->wake);
        s->accepts = false;
    }
    for (uint32_t i = 0; i < s->listener_count; i++) {
        gw_listener *l = &s->listeners[i];
        struct stat st;
        /* Another gateway may have taken the path over. */
        if (l->path[0] != '\0' && lstat(l->path, &st) == 0 && st.st_dev == l->device &&
            st.st_ino == l->inode)
            unlink(l->path);
        l->path[0] = '\0';
        if (l->fd >= 0)
            close(l->fd);
        l->fd = -1;
    }
}
