/*
 * An exchange that passes through. It belongs to two: the HTTP client, until it is done, and the
 * request, whose client may hang up. One lock, over all that pass, keeps them apart; nothing but
 * the HTTP client's own functions is called with it held, which never call back from there.
 */
#include "gateway/proxy/pass.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/header.h"
#include "gateway/run/returned.h"

/* What the client gets; it moves once, when the head comes, on the HTTP client's thread. */
typedef enum passing_answer {
    NO_ANSWER, /* a problem, if it stays so */
    FLOWS,
    BARE, /* it has no body by its nature */
} passing_answer;

typedef struct passing {
    struct passing *next, *prev; /* of those without an end */
    bool endless;
    gw_request *r;
    sm_http_exchange *x; /* NULL: not yet, or over */
    passing_answer answer;
    uint64_t bytes; /* BARE: it says of how many it would be */
    int status;
    bool gone; /* the client hung up before the exchange was known */
} passing;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static passing *streams; /* all that are without an end */

/* Under the lock. */
static void list(passing *p)
{
    p->next = streams;
    if (p->next != NULL)
        p->next->prev = p;
    streams = p;
}

static void unlist(passing *p)
{
    if (!p->endless)
        return;
    *(p->prev != NULL ? &p->prev->next : &streams) = p->next;
    if (p->next != NULL)
        p->next->prev = p->prev;
}

static void on_gone(gw_request *r)
{
    pthread_mutex_lock(&lock);
    passing *p = r->own;
    if (p != NULL && p->x != NULL)
        sm_http_cancel(p->x);
    else if (p != NULL)
        p->gone = true;
    pthread_mutex_unlock(&lock);
}

static void on_room(gw_request *r)
{
    pthread_mutex_lock(&lock);
    passing *p = r->own;
    if (p != NULL && p->x != NULL)
        sm_http_resume(p->x);
    pthread_mutex_unlock(&lock);
}

static bool on_head(void *context, const sm_http_result *head)
{
    passing *p = context;
    p->bytes = GW_BYTES_UNKNOWN;
    for (size_t i = 0; i < head->header_count; i++) {
        const sm_http_field *h = &head->headers[i];
        if (sm_header_is(h->name, SM_STR("Content-Length")))
            p->bytes = strtoull(h->value.p, NULL, 10);
    }
    gw_returned_set(p->r, head);
    p->status = head->status;
    bool bare = p->r->method == GW_HEAD || head->status == 204 || head->status == 304;
    p->answer = bare ? BARE : FLOWS;
    if (!bare)
        gw_flow_start(p->r, head->status, GW_FLOW_BYTES, on_room);
    return true;
}

static bool on_data(void *context, sm_str piece)
{
    passing *p = context;
    return p->answer == BARE || gw_flow_push(p->r, piece);
}

static void on_done(void *context, const sm_http_result *res)
{
    passing *p = context;
    gw_request *r = p->r;
    pthread_mutex_lock(&lock);
    r->own = NULL;
    p->x = NULL;
    unlist(p);
    pthread_mutex_unlock(&lock);
    if (p->answer == FLOWS)
        gw_flow_end(r, res->complete);
    else if (p->answer == BARE)
        gw_reply_bare(r, p->status, p->bytes);
    else
        gw_problem(r, res->timed_out ? 504 : 502,
                   res->timed_out ? "UPSTREAM_TIMEOUT" : "UPSTREAM_FAILED", "Try again later.",
                   "The upstream gave no answer: %s.", res->error);
    free(p);
}

static void start(gw_request *r, const sm_http_request *request, bool endless)
{
    passing *p = calloc(1, sizeof *p);
    if (p == NULL) {
        gw_problem(r, 503, "OVERLOADED", "Try again later.", "The gateway is out of memory.");
        return;
    }
    p->r = r;
    p->endless = endless;
    r->own = p;
    r->on_gone = on_gone;
    gw_hold(r);
    sm_http_callbacks callbacks = {.done = on_done, .head = on_head, .data = on_data, .context = p};
    /* It may be over before it is known here: so it is sent under the lock, and `done` waits. */
    pthread_mutex_lock(&lock);
    sm_err e = sm_http_send(r->g->http, request, 0, &callbacks, &p->x);
    if (e == SM_OK && (p->gone || (endless && atomic_load(&r->g->draining))))
        sm_http_cancel(p->x);
    if (e == SM_OK && endless)
        list(p);
    if (e != SM_OK)
        r->own = NULL;
    pthread_mutex_unlock(&lock);
    if (e != SM_OK) {
        gw_problem(r, 503, "OVERLOADED", "Try again later.", "The request could not be sent.");
        free(p);
    }
}

void gw_pass(gw_request *r, const sm_http_request *request)
{
    start(r, request, false);
}

void gw_pass_stream(gw_request *r, const sm_http_request *request)
{
    start(r, request, true);
}

void gw_pass_quiesce(const gateway *g)
{
    pthread_mutex_lock(&lock);
    for (passing *p = streams; p != NULL; p = p->next)
        if (p->r->g == g && p->x != NULL)
            sm_http_cancel(p->x);
    pthread_mutex_unlock(&lock);
}
