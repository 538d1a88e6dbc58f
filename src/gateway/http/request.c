/*
 * Requests: their memory, what they hold, and their replies.
 *
 * Objects go through free lists, one for a few threads each, so that a request costs no allocation
 * but those of its answer. A reply is made into libmicrohttpd's form by whoever makes it, and put
 * where the connection's thread finds it.
 *
 * The end of a request is the end of its last reference: then it is written to the log, if it is to
 * be, and counted.
 */
#include "gateway/http/request.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "gateway/http/server.h"
#include "gateway/telemetry/metrics.h"

#define FREE_MAX      64u /* requests on one free list */
#define BODY_KEPT_MAX ((size_t)64 << 10)
#define ARENA_MAX     ((size_t)1 << 20)

/* For the log: nobody was there any more, because the client had gone or because we had. */
#define GONE_STATUS     499
#define GIVEN_UP_STATUS 503

/* ---- its state -------------------------------------------------------------------------------*/

const char *gw_inner_flaw(const gw_inner *q)
{
    gw_request_stage stage = gw_stage_of(q);
    gw_presence client = atomic_load_explicit(&q->r.client, memory_order_relaxed);
    bool held = stage >= GW_ORPHANED, gone = client >= GW_UNHEARD;
    if (stage > GW_LEFT || client > GW_LOST)
        return "not a state";
    if ((stage >= GW_DELIVERED) != (q->conn == NULL))
        return "the connection is done with it and has it, or neither";
    if (!held && (client != GW_HERE || q->flow != NULL))
        return "nobody holds it who could be told anything, or send a flow";
    if (held && q->r.route == NULL)
        return "held by nobody's handler";
    if (client == GW_UNHEARD && stage != GW_ORPHANED)
        return "its client has gone and nobody was told";
    if (stage == GW_ORPHANED && !gone)
        return "the server has ended, and its client is there";
    if (stage == GW_SUSPENDED && (gone || q->conn->held != q))
        return "suspended for a client that has gone, or unknown to the watch";
    if (stage == GW_DELIVERED && q->status == 0)
        return "delivered without an answer";
    return NULL;
}

void gw_enter(gw_inner *q, gw_request_stage stage)
{
    atomic_store_explicit(&q->stage, stage, memory_order_relaxed);
    assert(gw_inner_flaw(q) == NULL);
}

/* Moves both. Whoever is woken by the stage finds what became of the client. */
static void move(gw_inner *q, gw_request_stage stage, gw_presence client)
{
    atomic_store(&q->r.client, client);
    gw_enter(q, stage);
}

/* ---- life ------------------------------------------------------------------------------------*/

static gw_pool_stripe *stripe_here(gw_http_server *s)
{
    static atomic_uint threads;
    static _Thread_local unsigned number;
    if (number == 0)
        number = 1 + atomic_fetch_add(&threads, 1);
    return &s->stripes[number % GW_STRIPES];
}

static gw_inner *inner_make(gw_http_server *s)
{
    gw_inner *q = calloc(1, sizeof *q);
    if (q == NULL)
        return NULL;
    q->server = s;
    q->r.g = s->g;
    sm_arena_init(&q->arena, ARENA_MAX);
    sm_buf_init(&q->r.body, (size_t)s->g->config->limits.body_bytes);
    pthread_mutex_init(&q->lock, NULL);
    return q;
}

static void inner_free(gw_inner *q)
{
    sm_buf_fini(&q->r.body);
    sm_arena_fini(&q->arena);
    pthread_mutex_destroy(&q->lock);
    free(q);
}

/* Makes it as new, but for memory that the next request can use. */
static void inner_clear(gw_inner *q)
{
    sm_arena_reset(&q->arena);
    sm_buf body = q->r.body;
    if (body.cap > BODY_KEPT_MAX)
        sm_buf_fini(&body);
    body.limit = (size_t)q->server->g->config->limits.body_bytes;
    sm_buf_clear(&body);
    q->r = (gw_request){.g = q->server->g, .body = body};
    memset(&q->conn, 0, offsetof(gw_inner, headers) - offsetof(gw_inner, conn));
}

static gw_inner *inner_take(gw_http_server *s)
{
    gw_pool_stripe *stripe = stripe_here(s);
    pthread_mutex_lock(&stripe->lock);
    gw_inner *q = stripe->free;
    if (q != NULL) {
        stripe->free = q->next;
        stripe->count--;
    }
    pthread_mutex_unlock(&stripe->lock);
    return q != NULL ? q : inner_make(s);
}

static void inner_give(gw_inner *q)
{
    gw_pool_stripe *stripe = stripe_here(q->server);
    inner_clear(q);
    pthread_mutex_lock(&stripe->lock);
    bool keep = stripe->count < FREE_MAX;
    if (keep) {
        q->next = stripe->free;
        stripe->free = q;
        stripe->count++;
    }
    pthread_mutex_unlock(&stripe->lock);
    if (!keep)
        inner_free(q);
}

void gw_stripes_fini(gw_http_server *s)
{
    for (unsigned i = 0; i < GW_STRIPES; i++) {
        for (gw_inner *q = s->stripes[i].free, *next; q != NULL; q = next) {
            next = q->next;
            inner_free(q);
        }
        pthread_mutex_destroy(&s->stripes[i].lock);
    }
}

/* The target of a request: a path with a query, or a whole URI. */
static void take_target(gw_inner *q, sm_str target)
{
    sm_str path = target;
    for (int i = 0; i < 2; i++) {
        sm_str scheme = i == 0 ? SM_STR("http://") : SM_STR("https://");
        if (target.n <= scheme.n || strncasecmp(target.p, scheme.p, scheme.n) != 0)
            continue;
        const char *host = target.p + scheme.n, *end = host + strcspn(host, "/?");
        q->authority = (sm_str){host, (size_t)(end - host)};
        path = (sm_str){end, target.n - scheme.n - q->authority.n};
    }
    const char *mark = memchr(path.p, '?', path.n);
    q->r.path = mark == NULL ? path : (sm_str){path.p, (size_t)(mark - path.p)};
    if (mark != NULL)
        q->r.query = (sm_str){mark + 1, path.n - q->r.path.n - 1};
    if (q->authority.p != NULL && q->r.path.n == 0)
        q->r.path = SM_STR("/");
}

gw_inner *gw_inner_new(gw_http_server *s, gw_conn *conn, const char *uri)
{
    gw_inner *q = inner_take(s);
    if (q == NULL)
        return NULL;
    q->conn = conn;
    q->r.mounted = conn->mount->api;
    q->r.secure = conn->tls;
    atomic_store_explicit(&q->refs, 1, memory_order_relaxed);
    q->r.began_ns = sm_clock_mono_ns();

    sm_str whole = sm_arena_text(&q->arena, sm_str_from(uri == NULL ? "" : uri));
    if (whole.p == NULL) {
        inner_give(q);
        return NULL;
    }
    q->target_bytes = whole.n;
    take_target(q, whole);
    q->r.proxied = q->r.mounted != NULL || gw_route_proxied(q->r.path);
    return q;
}

/* Those that ran something or failed, unless the configuration says otherwise. */
static bool to_be_logged(const gw_inner *q)
{
    int rule = q->server->g->log.rule.requests;
    if (rule == GW_LOG_NONE || q->status == 0)
        return false;
    bool wrote = q->r.method != GW_GET && q->r.method != GW_HEAD && !q->replayed;
    return rule == GW_LOG_ALL || q->status >= 400 || wrote;
}

static void log_request(const gw_inner *q, int64_t took_ns)
{
    const gw_request *r = &q->r;
    char status[16], took[32];
    snprintf(status, sizeof status, "%d", q->status);
    snprintf(took, sizeof took, "%.3f", (double)took_ns / 1e6);
    gw_log_field fields[] = {
        {"method", sm_str_from(r->method_text), false},
        {"path", r->path, false},
        {"status", sm_str_from(status), true},
        {"code", q->code != NULL ? sm_str_from(q->code) : (sm_str){0}, false},
        {"ms", sm_str_from(took), true},
        {"actor", r->who.role != 0 ? sm_str_from(r->who.actor) : (sm_str){0}, false},
        {"effect", r->effect, false},
        {"trace", r->trace.id[0] != '\0' ? sm_str_from(r->trace.id) : (sm_str){0}, false},
    };
    bool bad = q->status >= 500 || (q->code != NULL && strcmp(q->code, "IN_DOUBT") == 0);
    gw_say_fields(&r->g->log, bad ? GW_WARN : GW_INFO, "request", fields,
                  sizeof fields / sizeof fields[0]);
}

void gw_inner_unref(gw_inner *q)
{
    if (atomic_fetch_sub_explicit(&q->refs, 1, memory_order_acq_rel) > 1)
        return;
    gw_http_server *s = q->server;
    bool held = gw_is_held(q);
    if (gw_is_gone(&q->r) && gw_stage_of(q) != GW_DELIVERED) {
        q->status = gw_is_given_up(q) ? GIVEN_UP_STATUS : GONE_STATUS;
        q->code = gw_is_given_up(q) ? "DRAINING" : NULL;
    }
    int64_t took_ns = sm_clock_mono_ns() - q->r.began_ns;
    gw_count_request(s->g->metrics, q->r.route, q->status, took_ns);
    if (to_be_logged(q))
        log_request(q, took_ns);
    gw_flow_free(q->flow);
    if (q->answer != NULL)
        MHD_destroy_response(q->answer);
    q->answer = NULL;
    inner_give(q);
    if (held)
        gw_server_let_go(s);
}

/* ---- what came -------------------------------------------------------------------------------*/

static bool named(sm_str name, const char *wanted, size_t n)
{
    return name.n == n && strncasecmp(name.p, wanted, n) == 0;
}

sm_str gw_header(const gw_request *r, const char *name)
{
    const gw_inner *q = gw_inner_of(r);
    size_t n = strlen(name);
    for (unsigned i = 0; i < q->header_count; i++)
        if (named(q->headers[i].name, name, n))
            return q->headers[i].value;
    return (sm_str){0};
}

void gw_headers_each(const gw_request *r, gw_pair_fn *each, void *context)
{
    const gw_inner *q = gw_inner_of(r);
    for (unsigned i = 0; i < q->header_count; i++)
        if (!each(context, q->headers[i].name, q->headers[i].value))
            return;
}

sm_str gw_decode(sm_arena *a, sm_str text, bool plus)
{
    if (memchr(text.p, '%', text.n) == NULL && (!plus || memchr(text.p, '+', text.n) == NULL))
        return text;
    char *out = sm_arena_alloc(a, text.n + 1);
    if (out == NULL)
        return (sm_str){0};
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++) {
        int high = text.p[i] == '%' && i + 2 < text.n ? sm_hex_digit(text.p[i + 1]) : -1;
        int low = high >= 0 ? sm_hex_digit(text.p[i + 2]) : -1;
        if (low >= 0) {
            out[n++] = (char)(high * 16 + low);
            i += 2;
        } else {
            out[n++] = plus && text.p[i] == '+' ? ' ' : text.p[i];
        }
    }
    out[n] = '\0';
    return (sm_str){out, n};
}

void gw_query_each(const gw_request *r, gw_pair_fn *each, void *context)
{
    sm_arena *a = &gw_inner_of(r)->arena;
    if (r->query.p == NULL)
        return;
    const char *at = r->query.p, *end = at + r->query.n;
    while (at < end) {
        const char *stop = memchr(at, '&', (size_t)(end - at));
        if (stop == NULL)
            stop = end;
        const char *equals = memchr(at, '=', (size_t)(stop - at));
        const char *name_end = equals == NULL ? stop : equals;
        const char *value = equals == NULL ? stop : equals + 1;
        if (stop > at) {
            sm_str name_text = gw_decode(a, (sm_str){at, (size_t)(name_end - at)}, true);
            sm_str value_text = gw_decode(a, (sm_str){value, (size_t)(stop - value)}, true);
            if (!each(context, name_text, value_text))
                return;
        }
        at = stop + 1;
    }
}

typedef struct wanted {
    const char *name;
    sm_str value;
} wanted;

static bool is_wanted(void *context, sm_str name, sm_str value)
{
    wanted *w = context;
    if (!sm_str_is(name, w->name))
        return true;
    w->value = value;
    return false;
}

sm_str gw_query(const gw_request *r, const char *name)
{
    wanted w = {.name = name};
    gw_query_each(r, is_wanted, &w);
    return w.value;
}

/* ---- holding ---------------------------------------------------------------------------------*/

void gw_hold(gw_request *r)
{
    gw_inner *q = gw_inner_of(r);
    if (gw_is_held(q))
        return;
    atomic_fetch_add_explicit(&q->refs, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&q->server->held, 1, memory_order_relaxed);
    pthread_mutex_lock(&q->conn->lock);
    pthread_mutex_lock(&q->lock);
    if (!gw_suspend_locked(q))
        move(q, GW_ORPHANED, GW_UNHEARD);
    pthread_mutex_unlock(&q->lock);
    pthread_mutex_unlock(&q->conn->lock);
}

bool gw_suspend_locked(gw_inner *q)
{
    if (atomic_load(&q->server->stopping))
        return false;
    q->conn->held = q;
    gw_enter(q, GW_SUSPENDED);
    MHD_suspend_connection(q->conn->mhd);
    return true;
}

void gw_wake(gw_inner *q)
{
    if (gw_stage_of(q) != GW_SUSPENDED)
        return;
    gw_enter(q, GW_AWAKE);
    MHD_resume_connection(q->conn->mhd);
}

void gw_inner_left(gw_inner *q, bool delivered)
{
    pthread_mutex_lock(&q->lock);
    q->conn = NULL;
    gw_enter(q, delivered ? GW_DELIVERED : GW_LEFT);
    pthread_mutex_unlock(&q->lock);
}

/* Whether on_gone is yet to be called. */
static bool to_be_told(const gw_inner *q)
{
    gw_presence client = atomic_load(&q->r.client);
    return client == GW_HERE || client == GW_UNHEARD;
}

void gw_inner_gone(gw_inner *q)
{
    pthread_mutex_lock(&q->lock);
    bool tell = to_be_told(q), suspended = gw_stage_of(q) == GW_SUSPENDED;
    /* Its thread must not find it awake and its client there. */
    move(q, suspended ? GW_AWAKE : gw_stage_of(q), gw_is_given_up(q) ? GW_LOST : GW_GONE);
    if (suspended)
        MHD_resume_connection(q->conn->mhd);
    pthread_mutex_unlock(&q->lock);
    if (!tell)
        return;
    if (q->r.on_gone != NULL)
        q->r.on_gone(&q->r);
    gw_flow_dropped(q);
}

void gw_inner_give_up(gw_inner *q)
{
    pthread_mutex_lock(&q->lock);
    bool tell = to_be_told(q);
    move(q, gw_stage_of(q), gw_is_gone(&q->r) ? GW_LOST : GW_GIVEN_UP);
    pthread_mutex_unlock(&q->lock);
    if (tell && q->r.on_gone != NULL)
        q->r.on_gone(&q->r);
}

static void work_run(sm_job *job, semel_answer *a)
{
    gw_inner *q = SM_CONTAINER(job, gw_inner, job);
    q->work(&q->r, a);
}

void gw_work(gw_request *r, gw_job_fn *work)
{
    gw_inner *q = gw_inner_of(r);
    gw_hold(r);
    q->work = work;
    q->job.run = work_run;
    q->job.reads = (q->r.route->flags & GW_READS) != 0;
    sm_pool_add(r->g->pool, &q->job);
}

void gw_sends(gw_conn *c)
{
    atomic_store_explicit(&c->sends, true, memory_order_relaxed);
    atomic_store_explicit(&c->deadline,
                          sm_clock_deadline_ns(c->server->g->config->limits.request_ms),
                          memory_order_relaxed);
}
