/*
 * An HTTP server that counts what it does, and misbehaves on purpose.
 *
 *     tool_upstream [--tls CERTIFICATE KEY] PORT_FILE LOG_FILE
 *
 * It listens on a free port of 127.0.0.1 and writes its number to PORT_FILE when it is ready. It
 * ends when its parent does, or when it is killed. Each request that does work appends one line to
 * LOG_FILE before it is answered, so that `wc -l` counts effects:
 *
 *     METHOD TARGET KEY BYTES BODY      (KEY: of the Idempotency-Key header, or -; BODY: one line)
 *
 * What a request gets is chosen by the first segment of its path; anything may follow it, so that
 * each contract or order can have a path of its own. "Works" means: a line in the log.
 *
 *     /ok                works; 200 with {"ok":true,"serial":N,"id":"..."}
 *     /slow/MS           works; answers after MS milliseconds
 *     /late/MS           works after MS milliseconds, and answers
 *     /hang              works; never answers
 *     /reset-before      a reset before the request is read; does nothing
 *     /reset-after       works; a reset instead of an answer
 *     /close-after       works; closes without an answer
 *     /ok-then-close     works; the first request of a connection is answered, the next one gets
 *                        its connection closed without an answer
 *     /status/NNN        that status. 2xx works, others do nothing; 429 works with 200 on the third
 *                        try. ?works_on=K: works with 200 on the K-th try of the same target and
 *                        key. ?retry_after=TEXT: sends that header
 *     /status/NNN-after-work   works, then that status
 *     /slow-body         works; the head at once, then a byte every 20 ms
 *     /half-body         works; promises 100 bytes, sends 10 and closes
 *     /huge/BYTES        works; a body of so many bytes
 *     /redirect          302 to /ok; does nothing
 *     /echo              works; the request as JSON: method, target, headers, body
 *     /once              works once for each key, as a payment API does: again with the same key,
 *                        the saved answer and Idempotent-Replayed; with another body, 422
 *     /once-hang         the same, but the first time it works and does not answer
 *     /once-close        the same, but the first time it works and closes
 *     /find?key=K        does nothing: {"found":true,"data":[{"id":"...","serial":N}]} if work was
 *                        done with that key, or with K in its path or body; else false and []
 *     /count             does nothing: {"count":N}, how often work was done
 *     /nothing           204; does nothing
 *
 * Anything else is 404. Connections are kept alive. No two answers have the same serial number.
 */
#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define HEAD_MAX (64u << 10)
#define BODY_MAX (16u << 20)

typedef struct connection {
    int fd;
    SSL *tls; /* NULL: plain */
    unsigned served;
    char *in; /* what was read and not used */
    size_t in_length;
} connection;

typedef struct request {
    char method[16];
    char target[4096];
    char key[512]; /* of the header, without quotes; "" if there is none */
    char *head;    /* all header lines */
    char *body;    /* with a NUL behind it */
    size_t body_length;
    bool close;
} request;

/* What was done, and what was answered: for /once and /find. */
typedef struct deed {
    struct deed *next;
    uint64_t serial;
    char *target, *key, *body;
} deed;

/* How often a target was tried. */
typedef struct trial {
    struct trial *next;
    char *name;
    unsigned tries;
} trial;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static deed *deeds;
static trial *trials;
static atomic_uint_least64_t serials;
static uint64_t count;
static int log_fd;
static SSL_CTX *tls_context;

static void die(const char *what)
{
    fprintf(stderr, "tool_upstream: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void *need(void *p)
{
    if (p == NULL)
        die("memory");
    return p;
}

/* ---- bytes -----------------------------------------------------------------------------------*/

static ssize_t receive(connection *c, void *p, size_t n)
{
    if (c->tls == NULL)
        return recv(c->fd, p, n, 0);
    return SSL_read(c->tls, p, (int)n);
}

static bool give(connection *c, const void *p, size_t n)
{
    const char *at = p;
    while (n > 0) {
        ssize_t w = c->tls == NULL ? send(c->fd, at, n, MSG_NOSIGNAL)
                                   : SSL_write(c->tls, at, n > 16384 ? 16384 : (int)n);
        if (w <= 0)
            return false;
        at += w;
        n -= (size_t)w;
    }
    return true;
}

/* The other side sees a reset, not an end. */
static void reset(connection *c)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static void pause_ms(long ms)
{
    poll(NULL, 0, (int)ms);
}

/* Until the other side has enough of it. */
static void wait_for_hang_up(connection *c)
{
    char byte;
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
    while (poll(&p, 1, -1) > 0 && !(p.revents & (POLLRDHUP | POLLHUP | POLLERR)))
        if (p.revents & POLLIN && recv(c->fd, &byte, 1, MSG_DONTWAIT) == 0)
            break;
}

/* ---- requests --------------------------------------------------------------------------------*/

/* The value of a header line, or NULL. */
static const char *header(const char *head, const char *name, char *out, size_t room)
{
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, n) != 0 || line[2 + n] != ':')
            continue;
        const char *value = line + 3 + n;
        value += strspn(value, " \t");
        snprintf(out, room, "%.*s", (int)strcspn(value, "\r"), value);
        return out;
    }
    return NULL;
}

/* Reads until the bytes that are there satisfy `enough`, which says how many to take; 0: more. */
static size_t read_until(connection *c, size_t most, size_t (*enough)(const connection *c, size_t),
                         size_t want)
{
    for (;;) {
        size_t take = enough(c, want);
        if (take > 0)
            return take;
        if (c->in_length >= most)
            return 0;
        ssize_t n = receive(c, c->in + c->in_length, most - c->in_length);
        if (n <= 0)
            return 0;
        c->in_length += (size_t)n;
        c->in[c->in_length] = '\0';
    }
}

static size_t head_there(const connection *c, size_t want)
{
    (void)want;
    const char *end = memmem(c->in, c->in_length, "\r\n\r\n", 4);
    return end == NULL ? 0 : (size_t)(end - c->in) + 4;
}

static size_t body_there(const connection *c, size_t want)
{
    return c->in_length >= want ? want : 0;
}

static void take(connection *c, size_t n)
{
    memmove(c->in, c->in + n, c->in_length - n);
    c->in_length -= n;
    c->in[c->in_length] = '\0';
}

/* For /reset-before: looks without reading, where that can be done. */
static bool wants_reset(connection *c)
{
    char start[64];
    ssize_t n = c->tls != NULL || c->in_length > 0 ? 0 : recv(c->fd, start, sizeof start, MSG_PEEK);
    return n > 0 && memmem(start, (size_t)n, " /reset-before", 14) != NULL;
}

static bool read_request(connection *c, request *r)
{
    memset(r, 0, sizeof *r);
    size_t n = read_until(c, HEAD_MAX, head_there, 0);
    if (n == 0 || sscanf(c->in, "%15s %4095s", r->method, r->target) != 2)
        return false;
    r->head = need(strndup(c->in, n - 2));
    take(c, n);
    char text[512];
    if (header(r->head, "Idempotency-Key", text, sizeof text) != NULL) {
        size_t length = strlen(text);
        bool quoted = length > 1 && text[0] == '"' && text[length - 1] == '"';
        snprintf(r->key, sizeof r->key, "%.*s", (int)(quoted ? length - 2 : length), text + quoted);
    }
    r->close = header(r->head, "Connection", text, sizeof text) && strcasecmp(text, "close") == 0;
    size_t length =
        header(r->head, "Content-Length", text, sizeof text) ? strtoul(text, NULL, 10) : 0;
    if (header(r->head, "Expect", text, sizeof text) != NULL)
        give(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    if (length > BODY_MAX || (length > 0 && read_until(c, BODY_MAX, body_there, length) == 0))
        return false;
    r->body = need(strndup("", 0));
    r->body = need(realloc(r->body, length + 1));
    memcpy(r->body, c->in, length);
    r->body[length] = '\0';
    r->body_length = length;
    take(c, length);
    return true;
}

static void request_fini(request *r)
{
    free(r->head);
    free(r->body);
}

/* The value of a query parameter, or NULL. */
static const char *query(const request *r, const char *name, char *out, size_t room)
{
    size_t n = strlen(name);
    const char *at = strchr(r->target, '?');
    while (at != NULL) {
        if (strncmp(at + 1, name, n) == 0 && at[1 + n] == '=') {
            snprintf(out, room, "%.*s", (int)strcspn(at + 2 + n, "&"), at + 2 + n);
            for (char *p = out; *p != '\0'; p++)
                *p = *p == '+' ? ' ' : *p;
            return out;
        }
        at = strchr(at + 1, '&');
    }
    return NULL;
}

/* ---- work ------------------------------------------------------------------------------------*/

/* One line, whatever the request holds. */
static int write_line(const request *r, char *line, size_t room)
{
    int n = snprintf(line, room - 1, "%s %s %s %zu %.1000s", r->method, r->target,
                     r->key[0] == '\0' ? "-" : r->key, r->body_length, r->body);
    n = n > (int)room - 2 ? (int)room - 2 : n;
    for (int i = 0; i < n; i++)
        line[i] = iscntrl((unsigned char)line[i]) ? '.' : line[i];
    line[n] = '\n';
    return n + 1;
}

/* A line in the log, before anything is answered. With `once` the work of that key that was done
 * before, if any, stands for it: *again says so. */
static const deed *work(const request *r, bool once, bool *again)
{
    char line[8192];
    int n = write_line(r, line, sizeof line);
    pthread_mutex_lock(&lock);
    deed *d = once && r->key[0] != '\0' ? deeds : NULL;
    while (d != NULL && strcmp(d->key, r->key) != 0)
        d = d->next;
    *again = d != NULL;
    if (d == NULL) {
        d = need(calloc(1, sizeof *d));
        d->target = need(strdup(r->target));
        d->key = need(strdup(r->key));
        d->body = need(strdup(r->body));
        d->serial = atomic_fetch_add(&serials, 1) + 1;
        d->next = deeds;
        deeds = d;
        count++;
        if (write(log_fd, line, (size_t)n) != n)
            die("log");
    }
    pthread_mutex_unlock(&lock);
    return d;
}

static uint64_t do_work(const request *r)
{
    bool again;
    return work(r, false, &again)->serial;
}

static const deed *find_deed(const char *key)
{
    pthread_mutex_lock(&lock);
    const deed *d = deeds;
    while (d != NULL && strcmp(d->key, key) != 0 && strstr(d->body, key) == NULL &&
           strstr(d->target, key) == NULL)
        d = d->next;
    pthread_mutex_unlock(&lock);
    return d;
}

static unsigned count_try(const request *r)
{
    char name[sizeof r->target + sizeof r->key + 1];
    snprintf(name, sizeof name, "%s %s", r->target, r->key);
    pthread_mutex_lock(&lock);
    trial *t = trials;
    while (t != NULL && strcmp(t->name, name) != 0)
        t = t->next;
    if (t == NULL) {
        t = need(calloc(1, sizeof *t));
        t->name = need(strdup(name));
        t->next = trials;
        trials = t;
    }
    unsigned tries = ++t->tries;
    pthread_mutex_unlock(&lock);
    return tries;
}

/* ---- answers ---------------------------------------------------------------------------------*/

static bool answer(connection *c, const request *r, int status, const char *headers,
                   const char *body, size_t length)
{
    char head[1024];
    bool none = status == 204 || status == 304 || strcmp(r->method, "HEAD") == 0;
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 %d %s\r\n%s%sX-Request-Id: r-%" PRIu64 "\r\nContent-Length: %zu\r\n"
                     "\r\n",
                     status, status < 400 ? "Fine" : "Not fine",
                     none ? "" : "Content-Type: application/json\r\n", headers,
                     atomic_load(&serials), length);
    if (status == 204 || status == 304)
        length = 0;
    /* One segment for a small answer. */
    char small[4096];
    if (!none && (size_t)n + length <= sizeof small) {
        memcpy(small, head, (size_t)n);
        memcpy(small + n, body, length);
        return give(c, small, (size_t)n + length);
    }
    return give(c, head, (size_t)n) && (none || give(c, body, length));
}

static bool answer_serial(connection *c, const request *r, int status, const char *headers,
                          uint64_t serial)
{
    char body[256];
    int n = snprintf(body, sizeof body,
                     "{\"ok\":%s,\"serial\":%" PRIu64 ",\"id\":\"w-%d-%" PRIu64 "\"}",
                     status < 400 ? "true" : "false", serial, (int)getpid(), serial);
    return answer(c, r, status, headers, body, (size_t)n);
}

static bool answer_error(connection *c, const request *r, int status, const char *headers)
{
    return answer_serial(c, r, status, headers, atomic_fetch_add(&serials, 1) + 1);
}

static bool on_status(connection *c, const request *r, const char *rest)
{
    char text[128], headers[192] = "";
    int status = atoi(rest);
    unsigned works_on = status == 429 ? 3 : 0;
    if (query(r, "works_on", text, sizeof text) != NULL)
        works_on = (unsigned)atoi(text);
    if (query(r, "retry_after", text, sizeof text) != NULL)
        snprintf(headers, sizeof headers, "Retry-After: %s\r\n", text);
    if (works_on > 0 && count_try(r) >= works_on)
        return answer_serial(c, r, 200, "", do_work(r));
    if (strncmp(rest + strspn(rest, "0123456789"), "-after-work", 11) == 0 || status / 100 == 2)
        return answer_serial(c, r, status, headers, do_work(r));
    return answer_error(c, r, status, headers);
}

/* A form of JSON strings that is enough here: bytes above 7F pass. */
static size_t put_json(char *out, const char *s, size_t n)
{
    char *w = out;
    *w++ = '"';
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '"' || s[i] == '\\')
            *w++ = '\\', *w++ = s[i];
        else if ((unsigned char)s[i] < 0x20)
            w += sprintf(w, "\\u%04x", s[i]);
        else
            *w++ = s[i];
    }
    *w++ = '"';
    return (size_t)(w - out);
}

static bool on_echo(connection *c, const request *r)
{
    uint64_t serial = do_work(r);
    char *out = need(malloc(6 * (strlen(r->head) + strlen(r->target) + r->body_length) + 1024));
    char *w = out;
    w += sprintf(w, "{\"serial\":%" PRIu64 ",\"method\":\"%s\",\"target\":", serial, r->method);
    w += put_json(w, r->target, strlen(r->target));
    w += sprintf(w, ",\"headers\":{");
    const char *line = strstr(r->head, "\r\n"), *between = "";
    for (; line != NULL && line[2] != '\0'; line = strstr(line + 2, "\r\n")) {
        size_t name = strcspn(line + 2, ":"), value = name + 1;
        value += strspn(line + 2 + value, " \t");
        w += sprintf(w, "%s", between);
        w += put_json(w, line + 2, name);
        *w++ = ':';
        w += put_json(w, line + 2 + value, strcspn(line + 2 + value, "\r"));
        between = ",";
    }
    w += sprintf(w, "},\"body\":");
    w += put_json(w, r->body, r->body_length);
    *w++ = '}';
    bool fine = answer(c, r, 200, "", out, (size_t)(w - out));
    free(out);
    return fine;
}

static bool on_find(connection *c, const request *r)
{
    char key[512], body[256];
    const deed *d = query(r, "key", key, sizeof key) != NULL ? find_deed(key) : NULL;
    int n = d == NULL ? snprintf(body, sizeof body, "{\"found\":false,\"data\":[]}")
                      : snprintf(body, sizeof body,
                                 "{\"found\":true,\"data\":[{\"id\":\"w-%d-%" PRIu64
                                 "\",\"serial\":%" PRIu64 "}]}",
                                 (int)getpid(), d->serial, d->serial);
    return answer(c, r, 200, "", body, (size_t)n);
}

static bool on_count(connection *c, const request *r)
{
    char body[64];
    pthread_mutex_lock(&lock);
    int n = snprintf(body, sizeof body, "{\"count\":%" PRIu64 "}", count);
    pthread_mutex_unlock(&lock);
    return answer(c, r, 200, "", body, (size_t)n);
}

static bool on_huge(connection *c, const request *r, const char *rest)
{
    size_t n = strtoul(rest, NULL, 10);
    char *body = need(malloc(n + 1));
    memset(body, 'x', n);
    do_work(r);
    bool fine = answer(c, r, 200, "", body, n);
    free(body);
    return fine;
}

/* A body that comes a byte at a time, or not to its end. */
static bool on_dribble(connection *c, const request *r, unsigned promised, unsigned sent, long ms)
{
    char head[128];
    do_work(r);
    int n = snprintf(head, sizeof head,
                     "HTTP/1.1 200 Fine\r\nContent-Type: text/plain\r\nContent-Length: %u\r\n\r\n",
                     promised);
    if (!give(c, head, (size_t)n))
        return false;
    for (unsigned i = 0; i < sent; i++) {
        if (ms > 0)
            pause_ms(ms);
        if (!give(c, "x", 1))
            return false;
    }
    return promised == sent;
}

/* As a payment API: a key belongs to one body, and is worked on once. */
static bool on_once(connection *c, const request *r, bool hang, bool shut)
{
    bool again;
    const deed *d = work(r, true, &again);
    if (again && (strcmp(d->body, r->body) != 0 || strcmp(d->target, r->target) != 0))
        return answer_error(c, r, 422, "");
    if (again)
        return answer_serial(c, r, 200, "Idempotent-Replayed: true\r\n", d->serial);
    if (hang)
        wait_for_hang_up(c);
    return !hang && !shut && answer_serial(c, r, 200, "", d->serial);
}

/* Answers one request. False: the connection is over. */
static bool respond(connection *c, const request *r)
{
    char name[64];
    const char *path = r->target + (r->target[0] == '/');
    size_t n = strcspn(path, "/?");
    snprintf(name, sizeof name, "%.*s", (int)n, path);
    const char *rest = path + n + (path[n] == '/');
#define IS(text) (strcmp(name, text) == 0)
    if (IS("ok"))
        return answer_serial(c, r, 200, "", do_work(r));
    if (IS("ok-then-close")) {
        uint64_t serial = do_work(r);
        return c->served == 0 && answer_serial(c, r, 200, "", serial);
    }
    if (IS("slow")) {
        uint64_t serial = do_work(r);
        pause_ms(atol(rest));
        return answer_serial(c, r, 200, "", serial);
    }
    if (IS("late")) {
        pause_ms(atol(rest));
        return answer_serial(c, r, 200, "", do_work(r));
    }
    if (IS("hang") || IS("close-after") || IS("reset-after")) {
        do_work(r);
        if (IS("hang"))
            wait_for_hang_up(c);
        if (IS("reset-after"))
            reset(c);
        return false;
    }
    if (IS("reset-before")) {
        reset(c);
        return false;
    }
    if (IS("status"))
        return on_status(c, r, rest);
    if (IS("slow-body"))
        return on_dribble(c, r, 40, 40, 20);
    if (IS("half-body"))
        return on_dribble(c, r, 100, 10, 0);
    if (IS("huge"))
        return on_huge(c, r, rest);
    if (IS("redirect"))
        return answer_error(c, r, 302, "Location: /ok\r\n");
    if (IS("echo"))
        return on_echo(c, r);
    if (IS("once") || IS("once-hang") || IS("once-close"))
        return on_once(c, r, IS("once-hang"), IS("once-close"));
    if (IS("find"))
        return on_find(c, r);
    if (IS("count"))
        return on_count(c, r);
    if (IS("nothing"))
        return answer(c, r, 204, "", "", 0);
#undef IS
    return answer_error(c, r, 404, "");
}

static void *serve(void *context)
{
    connection c = {.fd = (int)(intptr_t)context};
    int on = 1;
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c.in = need(malloc(HEAD_MAX + BODY_MAX + 1));
    bool open = true;
    if (tls_context != NULL) {
        c.tls = need(SSL_new(tls_context));
        SSL_set_fd(c.tls, c.fd);
        open = SSL_accept(c.tls) == 1;
    }
    while (open) {
        request r;
        if (wants_reset(&c)) {
            reset(&c);
            break;
        }
        open = read_request(&c, &r) && respond(&c, &r) && !r.close;
        c.served++;
        request_fini(&r);
    }
    SSL_free(c.tls);
    close(c.fd);
    free(c.in);
    return NULL;
}

static void start_serving(int fd)
{
    pthread_t thread;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256u << 10);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &small, serve, (void *)(intptr_t)fd) != 0)
        close(fd);
    pthread_attr_destroy(&small);
}

/* The file appears whole. */
static void tell_port(const char *file, int port)
{
    char fresh[4096];
    snprintf(fresh, sizeof fresh, "%s.new", file);
    FILE *f = fopen(fresh, "w");
    if (f == NULL || fprintf(f, "%d\n", port) < 0 || fclose(f) != 0 || rename(fresh, file) != 0)
        die(file);
}

static void *watch_parent(void *context)
{
    pid_t parent = (pid_t)(intptr_t)context;
    while (getppid() == parent)
        pause_ms(500);
    _exit(0);
}

static int listen_somewhere(const char *port_file)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) != 0 || listen(fd, 4096) != 0 ||
        getsockname(fd, (struct sockaddr *)&a, &n) != 0)
        die("listen");
    tell_port(port_file, ntohs(a.sin_port));
    return fd;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc == 6 && strcmp(argv[1], "--tls") == 0) {
        tls_context = need(SSL_CTX_new(TLS_server_method()));
        if (SSL_CTX_use_certificate_chain_file(tls_context, argv[2]) != 1 ||
            SSL_CTX_use_PrivateKey_file(tls_context, argv[3], SSL_FILETYPE_PEM) != 1)
            die("certificate or key");
        argv += 3;
        argc -= 3;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: tool_upstream [--tls CERTIFICATE KEY] PORT_FILE LOG_FILE\n");
        return 64;
    }
    log_fd = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0)
        die(argv[2]);
    pthread_t watcher;
    if (pthread_create(&watcher, NULL, watch_parent, (void *)(intptr_t)getppid()) != 0)
        die("thread");
    int listener = listen_somewhere(argv[1]);
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            start_serving(fd);
        else if (errno == EMFILE)
            pause_ms(10);
    }
}
