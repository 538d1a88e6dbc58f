/* The proxy: one thread, a few pairs of sockets, and a knife. */
#include "server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS 32u

typedef struct pair {
    int client, server;
    bool doomed; /* a question was passed on while armed: the answer is not */
} pair;

static int connect_to(const place *p)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)p->port)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, p->host, &a.sin_addr);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static void cut(pair *p)
{
    close(p->client);
    close(p->server);
    *p = (pair){-1, -1, false};
}

/* Passes on what one side has said. */
static void pass_on(proxy *x, pair *p, bool from_client)
{
    char bytes[65536];
    ssize_t n = recv(from_client ? p->client : p->server, bytes, sizeof bytes, 0);
    if (n > 0 && from_client && atomic_load(&x->armed) > 0) {
        atomic_fetch_sub(&x->armed, 1);
        p->doomed = true;
    }
    const trap *set = atomic_load(&x->trap);
    if (n > 0 && from_client && set != NULL &&
        memmem(bytes, (size_t)n, set->word, strlen(set->word))) {
        const trap t = *set; /* once sprung it is whoever set it who decides how long it lives */
        atomic_store(&x->trap, NULL);
        if (t.meddle != NULL)
            t.meddle(t.context);
        p->doomed = p->doomed || t.lose;
        if (t.answer != NULL) {
            size_t length = strlen(t.answer); /* copied: once sent, it may be gone */
            assert_true(length <= sizeof bytes);
            memcpy(bytes, t.answer, length);
            if (send(p->client, bytes, length, MSG_NOSIGNAL) < 0)
                cut(p);
            return;
        }
    }
    bool lost = n <= 0 || (!from_client && p->doomed);
    int to = from_client ? p->server : p->client;
    if (lost || send(to, bytes, (size_t)n, MSG_NOSIGNAL) != n)
        cut(p);
}

static void *proxy_main(void *context)
{
    proxy *x = context;
    pair pairs[PAIRS];
    for (size_t i = 0; i < PAIRS; i++)
        pairs[i] = (pair){-1, -1, false};
    while (!atomic_load(&x->stop)) {
        struct pollfd fds[2 * PAIRS + 1];
        for (size_t i = 0; i < PAIRS; i++) {
            fds[2 * i] = (struct pollfd){.fd = pairs[i].client, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = pairs[i].server, .events = POLLIN};
        }
        fds[2 * PAIRS] = (struct pollfd){.fd = x->listener, .events = POLLIN};
        if (poll(fds, 2 * PAIRS + 1, 20) <= 0)
            continue;
        for (size_t i = 0; i < PAIRS; i++) {
            if (fds[2 * i].revents != 0 && pairs[i].client >= 0)
                pass_on(x, &pairs[i], true);
            if (fds[2 * i + 1].revents != 0 && pairs[i].server >= 0)
                pass_on(x, &pairs[i], false);
        }
        for (size_t i = 0; fds[2 * PAIRS].revents != 0 && i < PAIRS; i++) {
            if (pairs[i].client >= 0)
                continue;
            pairs[i] = (pair){accept(x->listener, NULL, NULL), connect_to(&x->to), false};
            break;
        }
    }
    for (size_t i = 0; i < PAIRS; i++) {
        if (pairs[i].client >= 0)
            cut(&pairs[i]);
    }
    return NULL;
}

void proxy_start(proxy *x, const place *to)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    *x = (proxy){.to = *to, .listener = socket(AF_INET, SOCK_STREAM, 0)};
    assert_int_equal(bind(x->listener, (struct sockaddr *)&a, sizeof a), 0);
    assert_int_equal(listen(x->listener, 16), 0);
    assert_int_equal(getsockname(x->listener, (struct sockaddr *)&a, &n), 0);
    x->port = ntohs(a.sin_port);
    assert_int_equal(pthread_create(&x->thread, NULL, proxy_main, x), 0);
}

void proxy_stop(proxy *x)
{
    atomic_store(&x->stop, true);
    pthread_join(x->thread, NULL);
    close(x->listener);
}
