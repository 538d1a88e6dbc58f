/*
 * A server over Streamable HTTP for the tests of the link: each test says in C what becomes of a
 * request, and afterwards looks at what was asked.
 */
#ifndef SM_TESTS_MCP_PEER_H
#define SM_TESTS_MCP_PEER_H

#include "servers.h"

#include <stdatomic.h>

#define PEER_REQUESTS 4096

typedef struct peer_request {
    char method[8];
    char *head; /* with a line feed before each name */
    char *body;
    unsigned serial; /* in the test, from 0 */
} peer_request;

/* Answers one request on its connection. False: the connection is closed. */
typedef bool peer_script(int fd, const peer_request *r);

typedef struct peer {
    int listener, port;
    pthread_t thread;
    char url[64];
    peer_script *_Atomic script;
    pthread_mutex_t lock;
    peer_request requests[PEER_REQUESTS]; /* of all tests: connections outlive one */
    atomic_uint first, count, connections;
} peer;

static peer server;

/* ---- saying ----------------------------------------------------------------------------------*/

static inline bool say_bytes(int fd, const char *p, size_t n)
{
    while (n > 0) {
        ssize_t w = send(fd, p, n, MSG_NOSIGNAL);
        if (w <= 0)
            return false;
        p += w;
        n -= (size_t)w;
    }
    return true;
}

static inline bool say(int fd, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline bool say(int fd, const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    bool said = n >= 0 && say_bytes(fd, text, (size_t)n);
    free(text);
    return said;
}

/* A whole answer; `more` are further headers, each with its line's end. */
static inline bool reply(int fd, int status, const char *type, const char *more, const char *body)
{
    return say(fd, "HTTP/1.1 %d X\r\n%s%s%s%sContent-Length: %zu\r\n\r\n%s", status,
               type == NULL ? "" : "Content-Type: ", type == NULL ? "" : type,
               type == NULL ? "" : "\r\n", more, strlen(body), body);
}

static inline bool reply_json(int fd, const char *body)
{
    return reply(fd, 200, "application/json", "", body);
}

/* A stream that ends, whole, when its connection does. */
static inline bool open_stream(int fd, const char *more)
{
    return say(fd, "HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\n%s\r\n", more);
}

/* One that is cut if the connection ends first. */
static inline bool open_chunks(int fd)
{
    return say(fd, "HTTP/1.1 200 X\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                   "Transfer-Encoding: chunked\r\n\r\n");
}

static inline bool say_chunk(int fd, const char *text)
{
    return say(fd, "%zx\r\n%s\r\n", strlen(text), text);
}

/* Until the client closes. */
static inline void wait_for_end(int fd)
{
    char c;
    while (recv(fd, &c, 1, 0) > 0)
        ;
}

/* ---- hearing ---------------------------------------------------------------------------------*/

/* A header's value, or NULL; in memory that is used again. */
static inline const char *header(const peer_request *r, const char *name)
{
    static __thread char value[4][9000];
    static __thread unsigned next;
    char *out = value[next++ % 4], wanted[64];
    snprintf(wanted, sizeof wanted, "\n%s:", name);
    const char *at = strcasestr(r->head, wanted);
    if (at == NULL)
        return NULL;
    at += strlen(wanted);
    at += strspn(at, " ");
    snprintf(out, sizeof value[0], "%.*s", (int)strcspn(at, "\r\n"), at);
    return out;
}

static inline bool body_has(const peer_request *r, const char *text)
{
    return strstr(r->body, text) != NULL;
}

/* The head of a request, and what came behind it; its length, or 0 at the connection's end. */
static inline size_t hear_head(int fd, char *in, size_t room, size_t *n)
{
    *n = 0;
    while (*n + 1 < room) {
        ssize_t r = recv(fd, in + *n, room - *n - 1, 0);
        if (r <= 0)
            return 0;
        *n += (size_t)r;
        in[*n] = '\0';
        const char *blank = memmem(in, *n, "\r\n\r\n", 4);
        if (blank != NULL)
            return (size_t)(blank - in) + 4;
    }
    return 0;
}

/* Reads a request, which can be looked at by the test from then on; NULL at the connection's end.
 */
static inline peer_request *hear(peer *p, int fd)
{
    char in[65536];
    size_t n, head = hear_head(fd, in, sizeof in, &n);
    if (head == 0)
        return NULL;
    peer_request r = {.head = strndup(in, head)};
    snprintf(r.method, sizeof r.method, "%.*s", (int)strcspn(in, " "), in);
    const char *length = header(&r, "Content-Length");
    size_t want = length == NULL ? 0 : strtoul(length, NULL, 10);
    size_t have = n - head < want ? n - head : want;
    r.body = calloc(1, want + 1);
    memcpy(r.body, in + head, have);
    while (have < want) {
        ssize_t got = recv(fd, r.body + have, want - have, 0);
        if (got <= 0)
            break;
        have += (size_t)got;
    }
    pthread_mutex_lock(&p->lock);
    unsigned at = p->count;
    assert_true(at < PEER_REQUESTS);
    r.serial = at - p->first;
    p->requests[at] = r;
    p->count++;
    pthread_mutex_unlock(&p->lock);
    return &p->requests[at];
}

typedef struct peer_connection {
    peer *peer;
    int fd;
} peer_connection;

static inline void *peer_serve(void *context)
{
    peer_connection c = *(peer_connection *)context;
    free(context);
    peer_request *r;
    c.peer->connections++;
    while ((r = hear(c.peer, c.fd)) != NULL && c.peer->script(c.fd, r))
        ;
    close(c.fd);
    c.peer->connections--;
    return NULL;
}

static inline void *peer_work(void *context)
{
    peer *p = context;
    for (;;) {
        int fd = accept(p->listener, NULL, NULL);
        if (fd < 0)
            return NULL;
        pthread_t thread;
        peer_connection *c = malloc(sizeof *c);
        *c = (peer_connection){p, fd};
        pthread_create(&thread, NULL, peer_serve, c);
        pthread_detach(thread);
    }
}

static inline void peer_start(peer *p)
{
    memset(p, 0, sizeof *p);
    pthread_mutex_init(&p->lock, NULL);
    p->listener = listen_here(&p->port, 64);
    snprintf(p->url, sizeof p->url, "http://127.0.0.1:%d/mcp?secret=yes", p->port);
    assert_int_equal(pthread_create(&p->thread, NULL, peer_work, p), 0);
}

/* A new test begins. */
static inline void peer_forget(peer *p)
{
    p->first = p->count;
}

/* What this test has asked. */
static inline unsigned asked_count(void)
{
    return server.count - server.first;
}

static inline const peer_request *asked(unsigned i)
{
    assert_true(i < asked_count());
    return &server.requests[server.first + i];
}

static inline void peer_stop(peer *p)
{
    shutdown(p->listener, SHUT_RDWR);
    pthread_join(p->thread, NULL);
    close(p->listener);
    for (int i = 0; i < 500 && p->connections > 0; i++)
        usleep(10000);
    for (unsigned i = 0; i < p->count; i++) {
        free(p->requests[i].head);
        free(p->requests[i].body);
    }
}

#endif
