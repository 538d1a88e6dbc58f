/*
 * The HTTP thread fills, the loop takes; one lock for each exchange stands between them. The HTTP
 * client's own lock is taken inside it (resuming, giving up), never the other way round: the client
 * calls back without it.
 *
 * The lock also keeps the end of an exchange waiting while the loop asks something of it, as the
 * client demands.
 */
#include "mcp/fetch.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/buf.h"

struct mcp_fetch {
    mcp_post post;
    mcp_loop *loop;
    mcp_fetch_events events;

    pthread_mutex_t lock;
    /* Under the lock. */
    sm_http_exchange *http; /* NULL: it has ended, there is nobody to ask any more */
    sm_buf bytes;           /* of the body, for the loop */
    sm_http_field *fields;  /* of the head, in one piece with their texts; NULL: none, or taken */
    size_t field_count;
    int status;
    bool head_new, posted, paused, ended, starved;
    sm_http_result result;
    char error[256];

    /* The loop's own. */
    sm_buf taken;
    bool dropped;
    bool held, kept; /* nothing is told; there was something to tell */
};

static void release(mcp_fetch *x)
{
    pthread_mutex_destroy(&x->lock);
    sm_buf_fini(&x->bytes);
    sm_buf_fini(&x->taken);
    free(x->fields);
    free(x);
}

/* ---- the HTTP thread -------------------------------------------------------------------------*/

/* There is something for the loop. */
static void tell(mcp_fetch *x)
{
    if (x->posted)
        return;
    x->posted = true;
    mcp_loop_post(x->loop, &x->post);
}

/* Ends an exchange whose bytes cannot be kept. */
static void starve(mcp_fetch *x)
{
    x->starved = true;
    if (x->http != NULL)
        sm_http_cancel(x->http);
}

/* All fields and their texts in one piece of memory; NULL when out of memory. */
static sm_http_field *copy_fields(const sm_http_field *from, size_t n)
{
    size_t size = n * sizeof *from + 1;
    for (size_t i = 0; i < n; i++)
        size += from[i].name.n + from[i].value.n;
    sm_http_field *to = malloc(size);
    if (to == NULL)
        return NULL;
    char *at = (char *)(to + n);
    for (size_t i = 0; i < n; i++) {
        to[i] = (sm_http_field){{at, from[i].name.n}, {at + from[i].name.n, from[i].value.n}};
        memcpy(at, from[i].name.p, from[i].name.n);
        memcpy(at + from[i].name.n, from[i].value.p, from[i].value.n);
        at += from[i].name.n + from[i].value.n;
    }
    return to;
}

static bool on_head(void *context, const sm_http_result *head)
{
    mcp_fetch *x = context;
    pthread_mutex_lock(&x->lock);
    x->fields = copy_fields(head->headers, head->header_count);
    x->field_count = head->header_count;
    x->status = head->status;
    if (x->fields == NULL) {
        starve(x);
    } else {
        x->head_new = true;
        tell(x);
    }
    pthread_mutex_unlock(&x->lock);
    return true;
}

static bool on_data(void *context, sm_str piece)
{
    mcp_fetch *x = context;
    pthread_mutex_lock(&x->lock);
    bool taken = x->starved || x->bytes.len == 0 || x->bytes.len + piece.n <= MCP_BETWEEN_MAX;
    if (!taken) {
        x->paused = true;
    } else if (!x->starved) {
        sm_buf_str(&x->bytes, piece);
        if (x->bytes.err != SM_OK)
            starve(x);
        tell(x);
    }
    pthread_mutex_unlock(&x->lock);
    return taken;
}

static void on_done(void *context, const sm_http_result *r)
{
    mcp_fetch *x = context;
    pthread_mutex_lock(&x->lock);
    x->http = NULL;
    x->ended = true;
    x->result = (sm_http_result){
        .sent = r->sent,
        .complete = r->complete && !x->starved,
        .timed_out = r->timed_out,
        .status = r->status,
        .took_ms = r->took_ms,
    };
    if (!x->result.complete) {
        const char *why = x->starved ? "out of memory" : r->error;
        size_t n = why == NULL ? 0 : strnlen(why, sizeof x->error - 1);
        memcpy(x->error, why == NULL ? "" : why, n);
        x->result.error = x->error;
    }
    tell(x);
    pthread_mutex_unlock(&x->lock);
}

/* ---- the loop --------------------------------------------------------------------------------*/

/* Whoever was made to wait may go on: what there was is taken. */
static void go_on(mcp_fetch *x)
{
    pthread_mutex_lock(&x->lock);
    if (x->paused && x->http != NULL)
        sm_http_resume(x->http);
    x->paused = false;
    pthread_mutex_unlock(&x->lock);
}

static void take(mcp_post *post)
{
    mcp_fetch *x = SM_CONTAINER(post, mcp_fetch, post);
    x->kept = x->held && !x->dropped;
    if (x->kept)
        return;
    pthread_mutex_lock(&x->lock);
    sm_buf bytes = x->bytes;
    x->bytes = x->taken; /* an empty one */
    x->taken = bytes;
    sm_http_field *fields = x->fields;
    bool head = x->head_new, ended = x->ended;
    x->fields = NULL;
    x->head_new = x->posted = false;
    pthread_mutex_unlock(&x->lock);

    if (head && !x->dropped)
        x->events.head(x->events.context, x->status, fields, x->field_count);
    free(fields);
    if (x->taken.len > 0 && !x->dropped)
        x->events.data(x->events.context, sm_buf_view(&x->taken));
    sm_buf_clear(&x->taken);
    if (!ended) {
        go_on(x);
        return;
    }
    if (!x->dropped)
        x->events.done(x->events.context, &x->result);
    release(x);
}

sm_err mcp_fetch_start(mcp_loop *loop, sm_http *http, const sm_http_request *r, int64_t pause_ms,
                       const mcp_fetch_events *events, mcp_fetch **out)
{
    *out = NULL;
    mcp_fetch *x = calloc(1, sizeof *x);
    if (x == NULL)
        return SEMEL_E_NOMEM;
    x->post.take = take;
    x->loop = loop;
    x->events = *events;
    pthread_mutex_init(&x->lock, NULL);
    /* A piece is taken whole even if it is larger than the bound: it could not be cut. */
    sm_buf_init(&x->bytes, SIZE_MAX / 2);
    sm_buf_init(&x->taken, SIZE_MAX / 2);
    sm_http_request request = *r;
    request.trickle = true;
    sm_http_callbacks callbacks = {.done = on_done, .head = on_head, .data = on_data, .context = x};
    pthread_mutex_lock(&x->lock); /* what comes back waits until we know whom to ask */
    sm_err e = sm_http_send(http, &request, pause_ms, &callbacks, &x->http);
    pthread_mutex_unlock(&x->lock);
    if (e != SM_OK) {
        release(x);
        return e;
    }
    *out = x;
    return SM_OK;
}

/* Lets what was kept be taken after all. */
static void let_go(mcp_fetch *x)
{
    bool kept = x->kept;
    x->kept = false;
    if (kept)
        mcp_loop_post(x->loop, &x->post);
}

void mcp_fetch_hold(mcp_fetch *x, bool held)
{
    if (x == NULL)
        return;
    x->held = held;
    if (!held)
        let_go(x);
}

void mcp_fetch_drop(mcp_fetch *x, bool give_up)
{
    if (x == NULL)
        return;
    x->dropped = true;
    let_go(x);
    pthread_mutex_lock(&x->lock);
    if (give_up && x->http != NULL)
        sm_http_cancel(x->http);
    pthread_mutex_unlock(&x->lock);
}
