/*
 * The sockets of the client's connections, and whether one is clean.
 *
 * A connection that is used again may have bytes in it that belong to no answer: some servers send
 * a body where none may be (204, HEAD), or more than they announced. The next answer would begin
 * with those bytes, and could be another user's. libcurl looks for such bytes about once a second,
 * so it is done here, before each request. libcurl tells the ports of a connection then, and not
 * its socket; so the sockets are opened here and found by their ports.
 *
 * Through TLS such bytes may have left the socket already: a record is decrypted as a whole, and
 * what the answer does not need of it stays in the TLS library. So that is asked, too. If it cannot
 * be asked, a connection through TLS is never used twice.
 */
#include <errno.h>
#include <gnutls/gnutls.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "upstream/client/engine.h"

static bool add(sm_http *h, int fd)
{
    if (h->socket_count == h->socket_room) {
        size_t room = h->socket_room == 0 ? 64 : 2 * h->socket_room;
        sm_http_socket *bigger = realloc(h->sockets, room * sizeof *bigger);
        if (bigger == NULL)
            return false;
        h->sockets = bigger;
        h->socket_room = room;
    }
    h->sockets[h->socket_count++] = (sm_http_socket){.fd = fd};
    return true;
}

curl_socket_t sm_http_socket_open(void *context, curlsocktype purpose,
                                  struct curl_sockaddr *address)
{
    sm_http *h = context;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd >= 0 && !add(h, fd)) {
        close(fd);
        fd = -1;
    }
    return fd < 0 ? CURL_SOCKET_BAD : fd;
}

int sm_http_socket_close(void *context, curl_socket_t fd)
{
    sm_http *h = context;
    size_t i = 0;
    while (i < h->socket_count && h->sockets[i].fd != fd)
        i++;
    if (i < h->socket_count)
        h->sockets[i] = h->sockets[--h->socket_count];
    return close(fd);
}

static int port_of(const struct sockaddr_storage *a)
{
    return a->ss_family == AF_INET    ? ntohs(((const struct sockaddr_in *)a)->sin_port)
           : a->ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)a)->sin6_port)
                                      : 0;
}

/* Notes the ports of a connected socket. They stay. */
static void find_ports(sm_http_socket *s)
{
    struct sockaddr_storage self = {0}, peer = {0};
    socklen_t self_bytes = sizeof self, peer_bytes = sizeof peer;
    if (s->self_port == 0 && getsockname(s->fd, (struct sockaddr *)&self, &self_bytes) == 0 &&
        getpeername(s->fd, (struct sockaddr *)&peer, &peer_bytes) == 0) {
        s->self_port = port_of(&self);
        s->peer_port = port_of(&peer);
    }
}

/* Whether a resting connection has something to read, its end included. */
static bool has_something(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

bool sm_http_tls_stale(const sm_http_exchange *x)
{
    const struct curl_tlssessioninfo *tls = NULL;
    if (strncasecmp(x->url, "https:", 6) != 0)
        return false;
    if (curl_easy_getinfo(x->carrier->easy, CURLINFO_TLS_SSL_PTR, &tls) != CURLE_OK ||
        tls == NULL || tls->internals == NULL)
        return true;
    switch ((int)tls->backend) {
    case CURLSSLBACKEND_OPENSSL: return SSL_has_pending(tls->internals) != 0;
    case CURLSSLBACKEND_GNUTLS: return gnutls_record_check_pending(tls->internals) != 0;
    default: return true;
    }
}

bool sm_http_socket_stale(sm_http *h, int self_port, int peer_port)
{
    bool stale = false;
    for (size_t i = 0; i < h->socket_count && !stale; i++) {
        sm_http_socket *s = &h->sockets[i];
        find_ports(s);
        /* Of two with the same ports, to different hosts, both have to be clean. */
        stale = s->self_port == self_port && s->peer_port == peer_port && has_something(s->fd);
    }
    return stale;
}
