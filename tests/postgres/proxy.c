/* The proxy: a thread that accepts, and a thread for each connection. */
#include "proxy.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TICK_MS 5

struct proxy {
    char host[256], port[32];
    int listener, number;
    pthread_t thread;
    atomic_bool stop, held, refused, goodbye;
    atomic_int cuts, tunnels, rejects;
    pthread_mutex_t lock; /* of the next two */
    char bytes[64];
    bool passed_on;
};

typedef struct tunnel {
    proxy *p;
    int client, server;
    bool last; /* its answer is not passed on */
} tunnel;

static int connect_to(const proxy *p)
{
    int fd = -1;
    if (p->host[0] == '/') {
        struct sockaddr_un at = {.sun_family = AF_UNIX};
        snprintf(at.sun_path, sizeof at.sun_path, "%.80s/.s.PGSQL.%.5s", p->host, p->port);
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
            return fd;
        close(fd);
        return -1;
    }
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    if (getaddrinfo(p->host, p->port, &hints, &found) != 0)
        return -1;
    for (struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static bool write_all(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
        if (done <= 0)
            return false;
        p += done;
        n -= (size_t)done;
    }
    return true;
}

/* An error that ends the session. */
static bool say_fatal(int client, const char *sqlstate, const char *words)
{
    char message[200] = {'E'};
    int n = snprintf(message + 5, sizeof message - 5, "SFATAL%cVFATAL%cC%.5s%cM%.100s%c", 0, 0,
                     sqlstate, 0, words, 0);
    message[4] = (char)(4 + n + 1); /* the length, which a NUL at the end is part of */
    return write_all(client, message, 5 + (size_t)n + 1);
}

/* Whether a message is the one to cut at; at most one is. */
static bool is_marked(proxy *p, const char *bytes, size_t n, bool *passed_on)
{
    pthread_mutex_lock(&p->lock);
    bool is = p->bytes[0] != '\0' && memmem(bytes, n, p->bytes, strlen(p->bytes)) != NULL;
    *passed_on = p->passed_on;
    if (is) {
        p->bytes[0] = '\0';
        atomic_fetch_add(&p->cuts, 1);
    }
    pthread_mutex_unlock(&p->lock);
    return is;
}

/* Passes on what has come; false when the connection is over. */
static bool pass(tunnel *l, bool from_client)
{
    char buffer[65536];
    ssize_t n = recv(from_client ? l->client : l->server, buffer, sizeof buffer, 0);
    if (n <= 0)
        return false;
    if (!from_client && l->last && atomic_load(&l->p->goodbye))
        say_fatal(l->client, "XX000", "made to fail");
    if (!from_client)
        return !l->last && write_all(l->client, buffer, (size_t)n);
    bool passed_on = true;
    if (is_marked(l->p, buffer, (size_t)n, &passed_on)) {
        if (!passed_on)
            return false;
        l->last = true;
    }
    return write_all(l->server, buffer, (size_t)n);
}

static void *tunnel_main(void *context)
{
    tunnel *l = context;
    proxy *p = l->p;
    bool on = true;
    while (on && !atomic_load(&p->stop) && !atomic_load(&p->refused)) {
        struct pollfd fds[2] = {{.fd = l->client, .events = POLLIN},
                                {.fd = l->server, .events = POLLIN}};
        if (atomic_load(&p->held)) {
            usleep(TICK_MS * 1000);
            continue;
        }
        if (poll(fds, 2, TICK_MS) <= 0)
            continue;
        if (fds[0].revents != 0)
            on = pass(l, true);
        if (on && fds[1].revents != 0)
            on = pass(l, false);
    }
    close(l->client);
    close(l->server);
    free(l);
    atomic_fetch_sub(&p->tunnels, 1);
    return NULL;
}

/* Reads what the client begins with, and says why it cannot be. */
static void reject(int client)
{
    char hello[4096];
    if (recv(client, hello, sizeof hello, 0) > 0 &&
        say_fatal(client, "57P03", "le serveur s'apprete"))
        shutdown(client, SHUT_WR);
    close(client);
}

static void start_tunnel(proxy *p, int client)
{
    if (atomic_load(&p->rejects) > 0) {
        atomic_fetch_sub(&p->rejects, 1);
        reject(client);
        return;
    }
    int one = 1, server = atomic_load(&p->refused) ? -1 : connect_to(p);
    tunnel *l = server < 0 ? NULL : calloc(1, sizeof *l);
    pthread_t thread;
    if (l == NULL) {
        close(client);
        return;
    }
    setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *l = (tunnel){.p = p, .client = client, .server = server};
    atomic_fetch_add(&p->tunnels, 1);
    if (pthread_create(&thread, NULL, tunnel_main, l) == 0)
        pthread_detach(thread);
}

static void *accept_main(void *context)
{
    proxy *p = context;
    while (!atomic_load(&p->stop)) {
        struct pollfd on = {.fd = p->listener, .events = POLLIN};
        if (poll(&on, 1, TICK_MS) > 0) {
            int client = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
            if (client >= 0)
                start_tunnel(p, client);
        }
    }
    return NULL;
}

proxy *proxy_new(const char *host, const char *port)
{
    proxy *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    snprintf(p->host, sizeof p->host, "%s", host);
    snprintf(p->port, sizeof p->port, "%s", port);
    pthread_mutex_init(&p->lock, NULL);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    p->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p->listener < 0 || bind(p->listener, (struct sockaddr *)&at, sizeof at) != 0 ||
        listen(p->listener, 64) != 0 ||
        getsockname(p->listener, (struct sockaddr *)&at, &size) != 0 ||
        pthread_create(&p->thread, NULL, accept_main, p) != 0) {
        free(p);
        return NULL;
    }
    p->number = ntohs(at.sin_port);
    return p;
}

void proxy_free(proxy *p)
{
    atomic_store(&p->stop, true);
    pthread_join(p->thread, NULL);
    while (atomic_load(&p->tunnels) > 0)
        usleep(TICK_MS * 1000);
    close(p->listener);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int proxy_port(const proxy *p)
{
    return p->number;
}

void proxy_hold(proxy *p, bool held)
{
    atomic_store(&p->held, held);
}

void proxy_refuse(proxy *p, bool refused)
{
    atomic_store(&p->refused, refused);
    while (refused && atomic_load(&p->tunnels) > 0)
        usleep(TICK_MS * 1000);
}

void proxy_reject(proxy *p, int n)
{
    atomic_store(&p->rejects, n);
}

void proxy_cut(proxy *p, const char *bytes, bool passed_on)
{
    pthread_mutex_lock(&p->lock);
    snprintf(p->bytes, sizeof p->bytes, "%s", bytes);
    p->passed_on = passed_on;
    pthread_mutex_unlock(&p->lock);
}

void proxy_goodbye(proxy *p, bool goodbye)
{
    atomic_store(&p->goodbye, goodbye);
}

int proxy_cuts(const proxy *p)
{
    return atomic_load(&p->cuts);
}
