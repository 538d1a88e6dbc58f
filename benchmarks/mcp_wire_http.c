/*
 * MCP over Streamable HTTP: one connection for each request in flight, kept for the next one.
 *
 * It names the session that the server opened. An answer is complete with the length that its head
 * tells, or with the last chunk; chunks are not put together, for nobody looks for anything in
 * answers that is long enough to be cut.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "calls.h"
#include "mcp_wire.h"

#define BYTES    ((size_t)16 << 10)
#define TEXT_MAX 256

typedef struct line {
    int fd; /* -1: not open yet */
    size_t held;
    char in[BYTES];
} line;

typedef struct http {
    bench_wire wire; /* first */
    int epoll;
    uint16_t port;
    char path[TEXT_MAX], token[TEXT_MAX], session[TEXT_MAX];
    size_t free_count;
    line *free[BENCH_IN_FLIGHT];
    line lines[BENCH_IN_FLIGHT];
} http;

static void dial(http *h, line *l)
{
    const int on = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = l};
    to.sin_port = htons(h->port);
    l->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bench_must(l->fd >= 0 && connect(l->fd, (struct sockaddr *)&to, sizeof to) == 0 &&
                   setsockopt(l->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0 &&
                   epoll_ctl(h->epoll, EPOLL_CTL_ADD, l->fd, &event) == 0,
               "cannot connect to the MCP server");
}

static void ask(http *h, const char *method, const char *text, size_t n)
{
    char out[BYTES];
    bench_must(h->free_count > 0, "too many requests are in flight");
    line *l = h->free[--h->free_count];
    if (l->fd < 0)
        dial(h, l);
    int size = snprintf(
        out, sizeof out,
        "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\n%s%s%s%s%s%s"
        "Content-Length: %zu\r\n\r\n%.*s",
        method, h->path, h->token[0] != '\0' ? "Authorization: Bearer " : "", h->token,
        h->token[0] != '\0' ? "\r\n" : "",
        h->session[0] != '\0' ? "MCP-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: " : "",
        h->session, h->session[0] != '\0' ? "\r\n" : "", n, (int)n, text);
    bench_must(size > 0 && (size_t)size < sizeof out && write(l->fd, out, (size_t)size) == size,
               "a request cannot be sent");
}

static void send_message(bench_wire *w, const char *text, size_t n)
{
    ask((http *)(void *)w, "POST", text, n);
}

/* A header's value, in the head of an answer; NULL: it has none. */
static const char *header(const char *head, const char *name)
{
    const char *p = strcasestr(head, name);
    return p == NULL ? NULL : p + strlen(name) + strspn(p + strlen(name), " ");
}

/* Where the body of a whole answer begins; NULL: more of it has to come. */
static const char *whole(http *h, line *l)
{
    l->in[l->held] = '\0';
    char *end = strstr(l->in, "\r\n\r\n");
    if (end == NULL)
        return NULL;
    char *body = end + 4;
    size_t n = l->held - (size_t)(body - l->in);
    *end = '\0'; /* the head alone is searched */
    const char *length = header(l->in, "\r\nContent-Length:");
    const char *session = h->session[0] == '\0' ? header(l->in, "\r\nMcp-Session-Id:") : NULL;
    bool chunked = header(l->in, "\r\nTransfer-Encoding:") != NULL;
    bool good = strncmp(l->in, "HTTP/1.1 20", 11) == 0;
    if (session != NULL)
        snprintf(h->session, sizeof h->session, "%.*s", (int)strcspn(session, "\r"), session);
    *end = '\r';
    bench_must(good, l->in);
    bench_must(chunked || length != NULL, "an answer over HTTP has no end");
    if (chunked ? n >= 5 && memcmp(body + n - 5, "0\r\n\r\n", 5) == 0
                : n >= strtoul(length, NULL, 10))
        return body;
    return NULL;
}

static void take(bench_wire *w, bench_answer_fn *fn, void *context)
{
    http *h = (http *)(void *)w;
    struct epoll_event events[BENCH_IN_FLIGHT];
    int count = epoll_wait(h->epoll, events, BENCH_IN_FLIGHT, -1);
    bench_must(count > 0 || errno == EINTR, "cannot wait for answers");
    for (int i = 0; i < count; i++) {
        line *l = events[i].data.ptr;
        ssize_t n = read(l->fd, l->in + l->held, sizeof l->in - 1 - l->held);
        bench_must(n > 0, "the MCP server has hung up, or says more than it was asked for");
        l->held += (size_t)n;
        const char *body = whole(h, l);
        if (body == NULL)
            continue;
        l->held = 0;
        h->free[h->free_count++] = l; /* its answer stays where it is until more is read */
        fn(context, body);
    }
}

static void ignore(void *context, const char *text)
{
    (void)context, (void)text;
}

static void notify(bench_wire *w, const char *text, size_t n)
{
    http *h = (http *)(void *)w;
    size_t before = h->free_count;
    ask(h, "POST", text, n);
    while (h->free_count < before)
        take(w, ignore, NULL);
}

/* Ends the session: the server may have a process for it. */
static void hang_up(bench_wire *w)
{
    http *h = (http *)(void *)w;
    if (h->session[0] != '\0') {
        ask(h, "DELETE", "", 0);
        while (h->free_count < BENCH_IN_FLIGHT)
            take(w, ignore, NULL);
    }
    for (size_t i = 0; i < BENCH_IN_FLIGHT; i++)
        if (h->lines[i].fd >= 0)
            close(h->lines[i].fd);
    close(h->epoll);
    free(h);
}

bench_wire *bench_wire_dial(const char *url)
{
    http *h = calloc(1, sizeof *h);
    bench_must(h != NULL, "out of memory");
    h->wire = (bench_wire){.send = send_message, .notify = notify, .take = take, .close = hang_up};
    bench_must(sscanf(url, "http://127.0.0.1:%hu%255s", &h->port, h->path) == 2,
               "the URL is not http://127.0.0.1:PORT/PATH");
    const char *token = getenv("SEMEL_BENCH_TOKEN");
    snprintf(h->token, sizeof h->token, "%s", token == NULL ? "" : token);
    h->epoll = epoll_create1(EPOLL_CLOEXEC);
    bench_must(h->epoll >= 0, "cannot make an epoll");
    for (size_t i = BENCH_IN_FLIGHT; i-- > 0;) { /* the first is used first */
        h->lines[i].fd = -1;
        h->free[h->free_count++] = &h->lines[i];
    }
    return &h->wire;
}
