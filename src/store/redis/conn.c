/*
 * One connection to a Redis server.
 *
 * hiredis parses what the server says; connecting, sending and receiving are done here, because
 * every wait must end at the caller's deadline, and because a library must not raise SIGPIPE in the
 * program that it is part of. The one thing that is not bounded by the deadline is the resolver of
 * host names.
 *
 * A connection that failed in any way is closed and never used again: an answer that comes late
 * would be taken for that of another question.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "store/redis/redis.h"

#define CHUNK     65536u
#define ARRAY_MAX (1u << 20) /* parts of an answer; no question has more */

/* hiredis makes room for as many parts as an answer says that it has, before one has come. */
#if HIREDIS_MAJOR >= 1
typedef size_t array_count;
#else
typedef int array_count;
#endif
static void *make_array(const redisReadTask *task, array_count n)
{
    const sm_rd_conn *c = task->privdata;
    return n > (array_count)ARRAY_MAX ? NULL : c->own->createArray(task, n);
}

static bool make_reader(sm_rd_conn *c)
{
    c->reader = redisReaderCreate();
    if (c->reader == NULL)
        return false;
    c->own = c->reader->fn;
    c->make = *c->own;
    c->make.createArray = make_array;
    c->reader->fn = &c->make;
    c->reader->privdata = c;
    return true;
}

void sm_rd_conn_close(sm_rd_conn *c)
{
    if (c == NULL)
        return;
    if (c->fd >= 0)
        close(c->fd);
    if (c->reader != NULL)
        redisReaderFree(c->reader);
    free(c);
}

/* ---- sending and receiving -------------------------------------------------------------------*/

/* Waits until one of the two can be used. 0: the time is up. */
static int wait_for(int fd, short events, int stop_fd, int64_t until_ns)
{
    struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = stop_fd, .events = POLLIN}};
    for (;;) {
        int64_t left = until_ns - sm_clock_mono_ns();
        struct timespec t = {.tv_sec = left > 0 ? left / 1000000000 : 0,
                             .tv_nsec = left > 0 ? left % 1000000000 : 0};
        int n = ppoll(fds, stop_fd < 0 ? 1 : 2, &t, NULL);
        if (n >= 0 || errno != EINTR)
            return n;
    }
}

/* One receive into the reader. False: the connection is gone. */
static bool take_in(sm_rd_conn *c, size_t *total)
{
    char chunk[CHUNK];
    ssize_t n = recv(c->fd, chunk, sizeof chunk, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
    *total += (size_t)n;
    return n > 0 && *total <= SM_RD_BATCH_MAX &&
           redisReaderFeed(c->reader, chunk, (size_t)n) == REDIS_OK;
}

/* What the reader has whole. False: that is not the protocol. */
static bool take_replies(sm_rd_conn *c, redisReply **replies, size_t n, size_t *got)
{
    while (*got < n) {
        void *reply = NULL;
        if (redisReaderGetReply(c->reader, &reply) != REDIS_OK)
            return false;
        if (reply == NULL)
            break;
        replies[(*got)++] = reply;
    }
    return true;
}

sm_rd_talk sm_rd_exchange(sm_rd_conn *c, sm_str out, redisReply **replies, size_t n, size_t *got,
                          int64_t deadline_ns, const char **why)
{
    size_t sent = 0, total = 0;
    *got = 0;
    *why = "it closed the connection";
    while (sent < out.n || *got < n) {
        if (sent < out.n) {
            ssize_t k = send(c->fd, out.p + sent, out.n - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (k < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
                return SM_RD_LOST;
            sent += k > 0 ? (size_t)k : 0;
        }
        /* Answers are read while questions are still to be sent: else both sides could wait. */
        short events = sent < out.n ? POLLIN | POLLOUT : POLLIN;
        int ready = wait_for(c->fd, events, -1, deadline_ns);
        if (ready <= 0) {
            *why = "it did not answer in time";
            return SM_RD_LOST;
        }
        if (!take_in(c, &total))
            return SM_RD_LOST;
        if (!take_replies(c, replies, n, got)) {
            *why = "it does not speak the protocol of Redis";
            return SM_RD_LOST;
        }
    }
    /* What is left over would be taken for the answer to the next question; which of these belongs
     * to which question is not certain either. Who asked for no answer reads them elsewhere. */
    if (n > 0 && c->reader->pos < c->reader->len) {
        while (*got > 0)
            freeReplyObject(replies[--*got]);
        *why = "it said more than it was asked";
        return SM_RD_LOST;
    }
    return SM_RD_FINE;
}

sm_rd_talk sm_rd_hear(sm_rd_conn *c, int stop_fd, int64_t until_ns, redisReply **reply)
{
    size_t got = 0, total = 0;
    *reply = NULL;
    if (!take_replies(c, reply, 1, &got))
        return SM_RD_LOST;
    if (got > 0 || wait_for(c->fd, POLLIN, stop_fd, until_ns) <= 0)
        return SM_RD_FINE;
    if (!take_in(c, &total) || !take_replies(c, reply, 1, &got))
        return SM_RD_LOST;
    return SM_RD_FINE;
}

/* ---- connecting ------------------------------------------------------------------------------*/

/* A connected socket, or -1 with errno. */
static int connect_to(const struct sockaddr *address, socklen_t n, int64_t deadline_ns)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int error = connect(fd, address, n) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
        socklen_t size = sizeof error;
        if (wait_for(fd, POLLOUT, -1, deadline_ns) <= 0)
            error = ETIMEDOUT;
        else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
            error = errno;
    }
    if (error == 0) {
        int on = 1;
        if (address->sa_family != AF_UNIX) {
            setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
            setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
        }
        return fd;
    }
    close(fd);
    errno = error;
    return -1;
}

static int connect_socket(const char *path, int64_t deadline_ns)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(address.sun_path, path, strlen(path) + 1);
    return connect_to((struct sockaddr *)&address, sizeof address, deadline_ns);
}

static int connect_host(const char *host, int port, int64_t deadline_ns, const char **why)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0) {
        *why = rc == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(rc);
        return -1;
    }
    int fd = -1;
    for (const struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next)
        fd = connect_to(a->ai_addr, a->ai_addrlen, deadline_ns);
    *why = fd < 0 ? strerrordesc_np(errno) : NULL;
    freeaddrinfo(list);
    return fd;
}

/* ---- greeting --------------------------------------------------------------------------------*/

/* What it is. Not everybody may ask for the first, and not every proxy knows it. */
#define ROLE_QUESTION "*1\r\n$4\r\nROLE\r\n"
#define INFO_QUESTION "*2\r\n$4\r\nINFO\r\n$11\r\nreplication\r\n"
#define ROLE_NS       (1000 * 1000000ll) /* so long a server is taken to be what it was */

static void put_command(sm_buf *b, const sm_str *argv, unsigned argc)
{
    sm_buf_printf(b, "*%u\r\n", argc);
    for (unsigned i = 0; i < argc; i++) {
        sm_buf_printf(b, "$%zu\r\n", argv[i].n);
        sm_buf_str(b, argv[i]);
        sm_buf_text(b, "\r\n");
    }
}

/* Whether an answer to ROLE or INFO is that of a master; *known: it says what it is. */
static bool is_master(const redisReply *role, const redisReply *info, bool *known)
{
    sm_str word = sm_rd_text(sm_rd_element(role, 0)), text = sm_rd_text(info);
    *known = true;
    if (word.p != NULL)
        return sm_str_is(word, "master");
    *known = text.p != NULL && strstr(text.p, "role:") != NULL;
    return *known && strstr(text.p, "role:master") != NULL;
}

/* Answers to the greeting; those of the user and the database may be absent. */
typedef struct greeting {
    const redisReply *auth, *select, *role, *replication;
    redisReply *const *settings;
} greeting;

/* A server's error, with the server's name. */
static sm_rd_talk refused(const redisReply *r, const char *name, semel_fault *fault)
{
    semel_fault why = {0};
    sm_rd_explain((sm_str){r->str, r->len}, &why);
    sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%s (%s)", why.text, name);
    return SM_RD_REFUSED;
}

static bool is_error(const redisReply *r)
{
    return r != NULL && r->type == REDIS_REPLY_ERROR;
}

/* Whether a server says "not now" to anything; it says so to everything, or to some only. */
static const char *busy_with(const greeting *g)
{
    const redisReply *replies[] = {g->auth, g->select, g->role};
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        if (is_error(replies[i]) && strncmp(replies[i]->str, "LOADING", 7) == 0)
            return "it is loading its data";
        if (is_error(replies[i]) && strncmp(replies[i]->str, "BUSY", 4) == 0)
            return "a script runs on it";
    }
    return NULL;
}

/* Whether it may be written to. Reads for decisions never use a replica; in a cluster the servers
 * themselves send such questions on. */
static sm_rd_talk judge_greeting(semel_store *st, const greeting *g, sm_rd_conn *c,
                                 const char *name, semel_fault *fault)
{
    bool known = false;
    const char *busy = busy_with(g);
    if (busy != NULL) {
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the Redis server at %s is busy: %s", name, busy);
        return SM_RD_BUSY;
    }
    if (is_error(g->auth))
        return refused(g->auth, name, fault);
    if (is_error(g->select) && strstr(g->select->str, "cluster") != NULL) {
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                     "the Redis server at %s belongs to a cluster, which has no other database "
                     "than 0; take /%d out of the ledger's URL",
                     name, st->config.db);
        return SM_RD_REFUSED;
    }
    if (is_error(g->select) && strncmp(g->select->str, "ERR", 3) == 0) {
        sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the Redis server at %s has no database %d",
                     name, st->config.db);
        return SM_RD_REFUSED;
    }
    if (is_error(g->select))
        return refused(g->select, name, fault);
    bool master = is_master(g->role, g->replication, &known);
    c->replica = known && !master;
    if (st->cluster && c->replica)
        return SM_RD_FINE;
    if (master || st->cluster)
        return sm_rd_settings_judge(st, g->settings, name, fault);
    if (!known)
        return refused(g->role, name, fault);
    sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                 "the Redis server at %s is a replica; the ledger needs the master", name);
    return SM_RD_LOST; /* it may become one */
}

/* The user, the database, whether it is a master and what it promises: in one round trip. */
static sm_rd_talk greet(semel_store *st, sm_rd_node *node, sm_rd_conn *c, const char *name,
                        int64_t deadline_ns, semel_fault *fault)
{
    const sm_rd_config *config = &st->config;
    char db[16];
    snprintf(db, sizeof db, "%d", config->db);
    sm_buf out;
    sm_buf_init(&out, 3 * 4096 + 2048);
    bool named = config->user.n > 0, auth = named || config->password.p != NULL;
    bool selects = config->db != 0;
    size_t role = (size_t)auth + selects, n = role + 2 + SM_RD_SETTINGS, got = 0;
    redisReply *replies[4 + SM_RD_SETTINGS] = {0};
    const char *why = NULL;
    sm_rd_talk talk = SM_RD_REFUSED;
    if (auth) {
        sm_str argv[3] = {SM_STR("AUTH"), named ? config->user : config->password,
                          config->password};
        put_command(&out, argv, named ? 3 : 2);
    }
    if (selects)
        put_command(&out, (sm_str[]){SM_STR("SELECT"), sm_str_from(db)}, 2);
    sm_buf_text(&out, ROLE_QUESTION INFO_QUESTION);
    sm_rd_settings_put(&out);
    if (out.err != SM_OK) {
        sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        goto cleanup;
    }
    talk = sm_rd_exchange(c, sm_buf_view(&out), replies, n, &got, deadline_ns, &why);
    if (talk != SM_RD_FINE) {
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the Redis server at %s cannot be used: %s", name,
                     why);
        goto cleanup;
    }
    greeting g = {.auth = auth ? replies[0] : NULL,
                  .select = selects ? replies[role - 1] : NULL,
                  .role = replies[role],
                  .replication = replies[role + 1],
                  .settings = replies + role + 2};
    c->master_ns = sm_clock_mono_ns();
    atomic_store(&node->modern, sm_rd_settings_major(g.settings) >= 7);
    talk = judge_greeting(st, &g, c, name, fault);

cleanup:
    for (size_t i = 0; i < got; i++)
        freeReplyObject(replies[i]);
    if (out.p != NULL)
        explicit_bzero(out.p, out.cap);
    sm_buf_fini(&out);
    return talk;
}

void sm_rd_node_name(const sm_rd_node *node, char out[SM_RD_NODE_NAME])
{
    snprintf(out, SM_RD_NODE_NAME, node->port == 0 ? "%s" : "%s:%d", node->host, node->port);
}

bool sm_rd_conn_is_master(const semel_store *st, sm_rd_conn *c, int64_t deadline_ns)
{
    int64_t now = sm_clock_mono_ns();
    if (st->cluster || now - c->master_ns < ROLE_NS)
        return true;
    redisReply *replies[2] = {0};
    size_t got = 0;
    const char *why = NULL;
    bool known = false, master = false;
    if (sm_rd_exchange(c, SM_STR(ROLE_QUESTION INFO_QUESTION), replies, 2, &got, deadline_ns,
                       &why) == SM_RD_FINE)
        master = is_master(replies[0], replies[1], &known) || !known;
    for (size_t i = 0; i < got; i++)
        freeReplyObject(replies[i]);
    c->master_ns = now;
    return master;
}

sm_rd_talk sm_rd_conn_check(semel_store *st, const sm_rd_node *node, sm_rd_conn *c,
                            int64_t deadline_ns, semel_fault *fault)
{
    redisReply *replies[SM_RD_SETTINGS] = {0};
    size_t got = 0;
    const char *why = NULL;
    char name[SM_RD_NODE_NAME];
    sm_rd_talk talk = SM_RD_LOST;
    sm_buf out;
    sm_rd_node_name(node, name);
    sm_buf_init(&out, 4096);
    sm_rd_settings_put(&out);
    if (out.err == SM_OK)
        talk =
            sm_rd_exchange(c, sm_buf_view(&out), replies, SM_RD_SETTINGS, &got, deadline_ns, &why);
    if (talk == SM_RD_FINE)
        talk = sm_rd_settings_judge(st, replies, name, fault);
    for (size_t i = 0; i < got; i++)
        freeReplyObject(replies[i]);
    sm_buf_fini(&out);
    return talk;
}

sm_rd_talk sm_rd_conn_open(semel_store *st, sm_rd_node *node, int64_t deadline_ns, sm_rd_conn **out,
                           semel_fault *fault)
{
    const char *why = NULL;
    char name[SM_RD_NODE_NAME];
    sm_rd_node_name(node, name);
    *out = NULL;
    sm_rd_conn *c = calloc(1, sizeof *c);
    if (c == NULL || !make_reader(c)) {
        free(c);
        sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
        return SM_RD_REFUSED;
    }
    c->fd = node->port == 0 ? connect_socket(node->host, deadline_ns)
                            : connect_host(node->host, node->port, deadline_ns, &why);
    if (c->fd < 0) {
        sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the Redis server at %s cannot be reached: %s",
                     name, why != NULL ? why : strerrordesc_np(errno));
        sm_rd_conn_close(c);
        return SM_RD_LOST;
    }
    atomic_fetch_add(&st->greetings, 1);
    sm_rd_talk talk = greet(st, node, c, name, deadline_ns, fault);
    if (talk == SM_RD_FINE)
        *out = c;
    else
        sm_rd_conn_close(c);
    return talk;
}
