/*
 * The HTTP server: libmicrohttpd's threads, and what they call.
 *
 *     a connection begins          on_connection: it gets an object, which the watch sees
 *     the first line has come      on_line: a request is made
 *     the head has come            on_access: it is admitted, or refused
 *     pieces of the body           on_access: gathered, or swallowed if it was refused
 *     all has come                 on_access: the handler runs
 *     it was held, and is resumed  on_access: its answer is sent
 *     the answer is out, or not    on_completed: the connection lets go of the request
 *
 * None of it blocks. A refusal is sent at once if there is much to come that nobody wants, which
 * costs the connection; a small body is swallowed first, so that the connection goes on.
 */
#include "gateway/http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"

#define STACK_BYTES   ((size_t)512 << 10)
#define THREADS_MAX   4
#define SWALLOWED_MAX ((int64_t)64 << 10) /* of a body that is refused */
#define FILES_SPARE   512u                /* beside connections: ledger, upstreams, logs */

/* For libmicrohttpd. We count connections ourselves: a thread of version 0.9.75 that meets the
 * limit with a connection that was handed to it never lets go of a lock. */
#define UNREACHED ((intptr_t)1 << 30)

#define PEM_MAX ((size_t)1 << 20)

/* ---- what libmicrohttpd calls ----------------------------------------------------------------*/

gw_conn *gw_conn_of(struct MHD_Connection *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* Adds the bytes of a request to those that the connection has had. Where they cannot be told from
 * the request, the system is asked. */
static void account(gw_conn *conn, const gw_inner *q)
{
    uint64_t body = q->length > 0 ? (uint64_t)q->length : 0;
    uint64_t had = atomic_load_explicit(&conn->received, memory_order_relaxed);
    atomic_store_explicit(&conn->received,
                          conn->tls || q->chunked ? gw_conn_received(conn)
                                                  : had + q->head_bytes + body,
                          memory_order_relaxed);
}

/* The connection is done with its request. */
static void end_request(gw_conn *conn, bool delivered)
{
    gw_inner *q = conn->request;
    conn->request = NULL;
    atomic_store_explicit(&conn->sends, false, memory_order_relaxed);
    atomic_store_explicit(&conn->deadline, 0, memory_order_relaxed);
    account(conn, q);
    atomic_fetch_add_explicit(&conn->serial, 1, memory_order_relaxed);
    if (gw_is_held(q)) {
        /* A client that hung up ends a suspended request without resuming it. */
        pthread_mutex_lock(&conn->lock);
        conn->held = NULL;
        pthread_mutex_unlock(&conn->lock);
        gw_inner_left(q, delivered); /* as far as we can tell */
        if (gw_flow_open(q))
            gw_inner_gone(q);
    }
    gw_inner_unref(q);
}

static void on_connection(void *context, struct MHD_Connection *c, void **own,
                          enum MHD_ConnectionNotificationCode what)
{
    gw_http_server *s = context;
    int fd = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    gw_coming *came = &s->came[fd];
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        gw_conn *gone = *own;
        /* A request that it has refused twice is not always completed. */
        if (gone != NULL && gone->request != NULL)
            end_request(gone, false);
        if (gone != NULL)
            gw_conn_closed(gone);
        *own = NULL;
        atomic_fetch_sub_explicit(&s->conn_count, 1, memory_order_relaxed);
        atomic_fetch_sub_explicit(&s->roomy_count, came->roomy, memory_order_relaxed);
        return;
    }
    *own = gw_conn_new(s, c, fd);
}

static void *on_line(void *context, const char *uri, struct MHD_Connection *c)
{
    gw_http_server *s = context;
    gw_conn *conn = gw_conn_of(c);
    gw_inner *q = conn != NULL ? gw_inner_new(s, conn, uri) : NULL;
    if (q == NULL)
        return NULL;
    atomic_store_explicit(&conn->sends, false, memory_order_relaxed);
    atomic_store_explicit(&conn->deadline,
                          q->r.began_ns + s->g->config->limits.request_ms * 1000000,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&conn->serial, 1, memory_order_relaxed);
    conn->request = q;
    return q;
}

static void on_completed(void *context, struct MHD_Connection *c, void **own,
                         enum MHD_RequestTerminationCode how)
{
    (void)context;
    if (*own != NULL)
        end_request(gw_conn_of(c), how == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    *own = NULL;
}

static void take_method(gw_inner *q, const char *text)
{
    for (int i = 0; i < GW_OTHER; i++) {
        if (strcmp(text, sm_methods[i].name) == 0) {
            q->r.method = (gw_method)i;
            q->r.method_text = sm_methods[i].name;
            return;
        }
    }
    q->r.method = GW_OTHER;
    q->r.method_text = sm_arena_text(&q->arena, sm_str_from(text)).p;
    if (q->r.method_text == NULL)
        q->r.method_text = "";
}

/* Sends the answer that is in the request. Without one the connection ends. */
static enum MHD_Result deliver(gw_inner *q)
{
    if (q->answer == NULL)
        return MHD_NO;
    gw_conn *c = q->conn;
    gw_sends(c);
    return gw_queue(c->mhd, (unsigned)q->status, q->answer);
}

/* The head has come. */
static enum MHD_Result begin(gw_inner *q, const gw_line *line)
{
    take_method(q, line->method);
    gw_head_read(q, line);
    if (atomic_load_explicit(&q->server->stopping, memory_order_relaxed))
        return MHD_NO;
    if (q->room < GW_ANSWER_BYTES || q->head_bytes > SM_REQUEST_HEAD_MAX) {
        gw_refuse_head(q->conn);
        return MHD_NO;
    }
    if (gw_admit(q)) {
        gw_enter(q, GW_AT_BODY);
        if (q->length > 0)
            sm_buf_reserve(&q->r.body, (size_t)q->length);
        return MHD_YES;
    }
    gw_enter(q, GW_SWALLOWS);
    /* Where a request with a flaw in its head ends, nobody can tell. */
    bool none = q->length <= 0 && !q->chunked;
    bool little = q->length > 0 && q->length <= SWALLOWED_MAX && !q->expects;
    if (q->flaw == NULL && (none || little))
        return MHD_YES; /* the answer goes out when all has come */
    q->conn->linger = true;
    return deliver(q);
}

/* A piece of the body has come. */
static enum MHD_Result gather(gw_inner *q, const char *data, size_t n)
{
    if (gw_stage_of(q) != GW_AT_BODY)
        return MHD_YES;
    sm_buf_bytes(&q->r.body, data, n);
    if (q->r.body.err == SM_OK)
        return MHD_YES;
    char message[80];
    snprintf(message, sizeof message, "a request's body may have %lld bytes",
             (long long)q->r.g->config->limits.body_bytes);
    gw_problem_last(q->conn, 413, "TOO_LARGE", "Send less, or raise limits.body.", message);
    return MHD_NO;
}

/* All has come. */
static enum MHD_Result handle(gw_inner *q)
{
    bool refused = gw_stage_of(q) == GW_SWALLOWS;
    gw_enter(q, GW_AT_HANDLER);
    atomic_store_explicit(&q->conn->deadline, 0, memory_order_relaxed);
    if (refused)
        return deliver(q);
    q->r.route->handle(&q->r);
    if (!gw_is_held(q))
        return deliver(q);
    if (gw_stage_of(q) != GW_ORPHANED)
        return MHD_YES; /* we are called again once it is resumed */
    gw_inner_gone(q);
    return MHD_NO;
}

/* A request that was held has its answer, or nobody any more to give it to. */
static enum MHD_Result resume(gw_inner *q)
{
    pthread_mutex_lock(&q->conn->lock);
    q->conn->held = NULL;
    pthread_mutex_unlock(&q->conn->lock);
    return gw_is_gone(&q->r) ? MHD_NO : deliver(q);
}

static enum MHD_Result on_access(void *context, struct MHD_Connection *c, const char *url,
                                 const char *method, const char *version, const char *data,
                                 size_t *n, void **own)
{
    (void)context;
    (void)c;
    gw_inner *q = *own;
    if (q == NULL)
        return MHD_NO;
    if (gw_stage_of(q) == GW_AT_HEAD)
        return begin(q, &(gw_line){method, url, version});
    if (*n > 0) {
        size_t taken = *n;
        *n = 0;
        return gather(q, data, taken);
    }
    return gw_stage_of(q) >= GW_AT_HANDLER ? resume(q) : handle(q);
}

/* Paths and queries are taken apart by us: libmicrohttpd leaves them as they came. */
static size_t not_unescaped(void *context, struct MHD_Connection *c, char *text)
{
    (void)context;
    (void)c;
    return strlen(text);
}

static void on_panic(void *context, const char *file, unsigned line, const char *reason)
{
    const gateway *g = context;
    char place[256];
    snprintf(place, sizeof place, "%s:%u", file, line);
    gw_say(&g->log, GW_ERROR, "the HTTP server cannot go on", "reason",
           reason != NULL ? reason : "unknown", "at", place, NULL);
    gw_log_flush();
    abort();
}

/* ---- starting --------------------------------------------------------------------------------*/

/* libmicrohttpd says only in its log why it does not start. */
__attribute__((format(printf, 2, 0))) static void on_log(void *context, const char *format,
                                                         va_list args)
{
    gw_http_server *s = context;
    if (!s->starting)
        return;
    vsnprintf(s->said, sizeof s->said, format, args);
    s->said[strcspn(s->said, "\n")] = '\0';
}

static sm_err read_pem(sm_str path, const char *what, char **out, sm_fault *fault)
{
    sm_err err = SM_OK;
    char name[4096];
    int fd = -1;
    struct stat st;
    snprintf(name, sizeof name, "%.*s", SM_FMT(path));
    fd = open(name, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        err = sm_fault_set(fault, SEMEL_E_IO, "the TLS %s %s cannot be read: %s", what, name,
                           strerror(errno));
        goto cleanup;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0 || (size_t)st.st_size > PEM_MAX) {
        err = sm_fault_set(fault, SEMEL_E_INVALID, "the TLS %s %s is not a PEM file", what, name);
        goto cleanup;
    }
    *out = calloc(1, (size_t)st.st_size + 1);
    if (*out == NULL || read(fd, *out, (size_t)st.st_size) != st.st_size)
        err = sm_fault_set(fault, SEMEL_E_IO, "the TLS %s %s cannot be read", what, name);
cleanup:
    if (fd >= 0)
        close(fd);
    return err;
}

/* One for every two processors: the ledger and whoever calls us want some too, and two threads that
 * fight for one are slower than one of them alone. */
static unsigned thread_count(const gw_config *config)
{
    if (config->threads > 0)
        return (unsigned)config->threads;
    long half = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    return half < 1 ? 1 : half > THREADS_MAX ? THREADS_MAX : (unsigned)half;
}

static struct MHD_Daemon *start_daemon(gw_http_server *s, size_t bytes, bool tls)
{
    static char protocols[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";
    const gw_config *config = s->g->config;
    unsigned threads = thread_count(config);
    struct MHD_OptionItem options[] = {
        {MHD_OPTION_THREAD_STACK_SIZE, (intptr_t)STACK_BYTES, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, (intptr_t)bytes, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, UNREACHED, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, (intptr_t)config->limits.connections_per_address,
         NULL},
        /* From here on what a daemon of one thread, or without TLS, does not have. */
        {threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END, threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    struct MHD_OptionItem tls_options[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, s->certificate},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, s->key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, protocols},
        {MHD_OPTION_END, 0, NULL},
    };
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG |
                     MHD_USE_NO_LISTEN_SOCKET | (tls ? MHD_USE_TLS : 0);

    /* Its threads take no signals, like all of ours. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    struct MHD_Daemon *daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_access, s, MHD_OPTION_EXTERNAL_LOGGER, on_log, s,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, s, MHD_OPTION_NOTIFY_COMPLETED, on_completed,
        s, MHD_OPTION_URI_LOG_CALLBACK, on_line, s, MHD_OPTION_UNESCAPE_CALLBACK, not_unescaped, s,
        MHD_OPTION_ARRAY, options, MHD_OPTION_ARRAY, tls ? tls_options : &tls_options[3],
        MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return daemon;
}

static sm_err start_daemons(gw_http_server *s, sm_fault *fault)
{
    const gw_config *config = s->g->config;
    const gw_upstream_api *api;
    const gw_listen *at;
    bool local = false, remote = false;
    for (uint32_t i = 0; (at = gw_config_address(config, i, &api)) != NULL; i++) {
        local = local || at->path.p != NULL;
        remote = remote || at->path.p == NULL;
    }
    sm_err e = SM_OK;
    if (config->tls.on && remote) {
        e = read_pem(config->tls.certificate, "certificate", &s->certificate, fault);
        if (e == SM_OK)
            e = read_pem(config->tls.key, "key", &s->key, fault);
        if (e != SM_OK)
            return e;
    }
    s->starting = true;
    if (s->certificate != NULL && ((s->tls = start_daemon(s, GW_CONNECTION_BYTES, true)) == NULL ||
                                   (s->roomy_tls = start_daemon(s, GW_ROOMY_BYTES, true)) == NULL))
        e = SEMEL_E_INVALID;
    if (e == SM_OK && (local || s->certificate == NULL) &&
        ((s->plain = start_daemon(s, GW_CONNECTION_BYTES, false)) == NULL ||
         (s->roomy = start_daemon(s, GW_ROOMY_BYTES, false)) == NULL))
        e = SEMEL_E_IO;
    s->starting = false;
    return e == SM_OK ? SM_OK
                      : sm_fault_set(fault, e, "the HTTP server does not start: %s", s->said);
}

/* Each connection is an open file. */
static void make_room(gw_http_server *s)
{
    rlim_t wanted = (rlim_t)s->g->config->limits.connections + FILES_SPARE;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return;
    limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur >= wanted)
        return;
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit.rlim_cur);
    gw_say(&s->g->log, GW_WARN, "fewer files may be open than limits.connections asks for", "files",
           text, NULL);
}

sm_err gw_server_start(gateway *g, gw_http_server **out, sm_fault *fault)
{
    *out = NULL;
    gw_http_server *s = aligned_alloc(64, sizeof *s);
    if (s == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    memset(s, 0, sizeof *s);
    s->g = g;
    sm_arena_init(&s->texts, (size_t)1 << 20);
    pthread_mutex_init(&s->lock, NULL);
    pthread_mutex_init(&s->end_lock, NULL);
    for (unsigned i = 0; i < GW_STRIPES; i++)
        pthread_mutex_init(&s->stripes[i].lock, NULL);
    MHD_set_panic_func(on_panic, g);
    make_room(s);

    *out = s; /* requests may want it before we return */
    sm_err e = gw_listen_open(s, fault);
    if (e == SM_OK)
        e = gw_sentry_start(s, fault);
    if (e == SM_OK)
        e = start_daemons(s, fault);
    if (e == SM_OK)
        e = gw_arrive_start(s, fault);
    if (e != SM_OK) {
        *out = NULL;
        gw_server_stop(s);
    }
    return e;
}

/* ---- stopping --------------------------------------------------------------------------------*/

static void server_free(gw_http_server *s)
{
    gw_stripes_fini(s);
    sm_arena_fini(&s->texts);
    pthread_mutex_destroy(&s->lock);
    pthread_mutex_destroy(&s->end_lock);
    free(s->listeners);
    free(s->mounts);
    free(s->came);
    free(s);
}

void gw_server_let_go(gw_http_server *s)
{
    pthread_mutex_lock(&s->end_lock);
    bool last = atomic_fetch_sub(&s->held, 1) == 1 && s->ended;
    pthread_mutex_unlock(&s->end_lock);
    if (last)
        server_free(s);
}

size_t gw_server_connections(gw_http_server *s)
{
    return atomic_load(&s->conn_count);
}

size_t gw_server_busy(gw_http_server *s)
{
    size_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (const gw_conn *c = s->conns; c != NULL; c = c->next)
        n += atomic_load_explicit(&c->serial, memory_order_relaxed) % 2;
    pthread_mutex_unlock(&s->lock);
    size_t held = atomic_load(&s->held);
    return n > held ? n : held; /* of some that are held the client is gone */
}

void gw_server_quiesce(gw_http_server *s)
{
    gw_listen_quit(s);
}

static void wipe(char *secret)
{
    if (secret != NULL)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

void gw_server_stop(gw_http_server *s)
{
    if (s == NULL)
        return;
    gw_listen_quit(s);
    gw_conns_release(s);
    struct MHD_Daemon *const daemons[] = {s->plain, s->roomy, s->tls, s->roomy_tls};
    for (size_t i = 0; i < sizeof daemons / sizeof daemons[0]; i++)
        if (daemons[i] != NULL)
            MHD_stop_daemon(daemons[i]);
    gw_sentry_stop(s);
    free(s->certificate);
    wipe(s->key);
    s->certificate = s->key = NULL;

    pthread_mutex_lock(&s->end_lock);
    s->ended = true;
    bool last = atomic_load(&s->held) == 0;
    pthread_mutex_unlock(&s->end_lock);
    if (last)
        server_free(s);
}
