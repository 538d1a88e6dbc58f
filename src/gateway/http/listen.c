/*
 * Listening: sockets by address or by path, and the names that Host may have there.
 *
 * We accept ourselves (arrive.c) and hand connections over to libmicrohttpd, which spreads them
 * evenly over its threads. So the threads do not depend on how many addresses there are, whoever
 * comes when there are too many gets told, and listening can end while connections go on.
 *
 * A Unix socket that is left over from a process that died is replaced, one that somebody answers
 * on is not.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "gateway/http/server.h"

#define BACKLOG   1024
#define UNIX_MODE 0660
#define FILES_MAX ((size_t)1 << 20) /* that the system lets a process have */

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

static void add_name(gw_mount *m, sm_str name)
{
    if (name.p != NULL && m->name_count < GW_NAMES_MAX)
        m->names[m->name_count++] = name;
}

/* A name with the port and without: clients leave out the one that is the scheme's. */
static void add_names(gw_http_server *s, gw_mount *m, sm_str host, unsigned port)
{
    add_name(m, host);
    add_name(m, sm_arena_printf(&s->texts, "%.*s:%u", SM_FMT(host), port));
}

/* What the socket is really bound to: its address for people, and names that Host may have. */
static sm_err learn_address(gw_http_server *s, gw_listener *l, const gw_listen *asked,
                            sm_fault *fault)
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
    l->mount->any_address = l->mount->any_address || every;
    if (!every)
        add_names(s, l->mount, text, number);
    if (every || asked->loopback)
        add_names(s, l->mount, SM_STR("localhost"), number);
    return SM_OK;
}

/* ---- opening ---------------------------------------------------------------------------------*/

static sm_err open_one(gw_http_server *s, gw_listener *l, const gw_listen *asked, sm_fault *fault)
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

/* How many files this process may have open. */
static size_t files_max(void)
{
    struct rlimit limit;
    bool known = getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < FILES_MAX;
    return known ? (size_t)limit.rlim_cur : FILES_MAX;
}

/* The mount of an API, or that of the gateway; it knows the configured names from the start. */
static gw_mount *mount_for(gw_http_server *s, const gw_upstream_api *api)
{
    const gw_config *config = s->g->config;
    gw_mount *m = &s->mounts[api == NULL ? 0 : 1 + (api - config->proxies.v)];
    m->api = api;
    for (uint32_t i = 0; i < config->hosts.n && m->name_count < config->hosts.n; i++)
        add_name(m, config->hosts.v[i]);
    return m;
}

sm_err gw_listen_open(gw_http_server *s, sm_fault *fault)
{
    const gw_config *config = s->g->config;
    const gw_upstream_api *api;
    const gw_listen *at;
    s->file_count = files_max();
    s->came = calloc(s->file_count, sizeof *s->came);
    s->listeners = calloc(GW_ADDRESSES_MAX, sizeof *s->listeners);
    s->mounts = calloc(1 + (size_t)config->proxies.n, sizeof *s->mounts);
    if (s->listeners == NULL || s->mounts == NULL || s->came == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    for (uint32_t i = 0; (at = gw_config_address(config, i, &api)) != NULL; i++) {
        gw_listener *l = &s->listeners[s->listener_count++];
        l->fd = -1;
        l->mount = mount_for(s, api);
        sm_err e = open_one(s, l, at, fault);
        if (e != SM_OK)
            return e;
    }
    return SM_OK;
}

sm_str gw_listen_address(const gw_http_server *s, uint32_t i)
{
    return i < s->listener_count ? s->listeners[i].address : (sm_str){0};
}

void gw_listen_quit(gw_http_server *s)
{
    gw_arrive_stop(s);
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
