/*
 * Replies: from a status, headers and a body to libmicrohttpd's form.
 *
 * On the server's own thread a reply waits in the request until the handler returns. From elsewhere
 * it wakes the connection, whose thread then takes it; if the client is gone, it goes nowhere.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <strings.h>

#include "api/problem.h"
#include "base/header.h"
#include "base/limits.h"
#include "gateway/http/problem.h"
#include "gateway/http/server.h"
#include "ledger/service.h"

#define WARNING_MAX 512u /* bytes of the header */
#define OWN_BYTES   768u /* of an answer's head: what the server and we say */

/* A name or value that HTTP does not allow is left out: upstreams and contracts may have one. */
void gw_set(gw_request *r, const char *name, sm_str value)
{
    gw_inner *q = gw_inner_of(r);
    if (value.n == 0 || !sm_header_name(sm_str_from(name)) || !sm_header_value(value))
        return;
    gw_set_header *h = sm_arena_alloc(&q->arena, sizeof *h);
    sm_str name_text = sm_arena_text(&q->arena, sm_str_from(name));
    sm_str value_text = sm_arena_text(&q->arena, value);
    if (h == NULL || name_text.p == NULL || value_text.p == NULL)
        return;
    *h = (gw_set_header){.name = name_text.p, .value = value_text.p};
    if (q->set == NULL)
        q->set = h;
    else
        q->last_set->next = h;
    q->last_set = h;
    /* For the log. */
    if (strcasecmp(name, "Idempotent-Replayed") == 0)
        q->replayed = true;
    else if (strcasecmp(name, "Semel-Effect") == 0)
        r->effect = value_text;
}

/* What libmicrohttpd says itself. */
static bool is_framing(const char *name)
{
    return strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Transfer-Encoding") == 0;
}

/* What a page of a listed origin needs to be allowed to see the answer. */
static void admit_page(const gw_inner *q, struct MHD_Response *answer)
{
    MHD_add_response_header(answer, "Access-Control-Allow-Origin", q->origin.p);
    MHD_add_response_header(answer, "Access-Control-Expose-Headers",
                            "Semel-Effect, Semel-Doubt, Semel-Warning, Idempotent-Replayed, "
                            "Retry-After, Mcp-Session-Id");
    MHD_add_response_header(answer, "Vary", "Origin");
}

/* Headers that are not said twice: the server says them, or we do. */
static bool is_said(const gw_inner *q, const char *name, const char *content_type)
{
    return is_framing(name) || (content_type != NULL && strcasecmp(name, "Content-Type") == 0) ||
           (q->listed && (strcasecmp(name, "Access-Control-Allow-Origin") == 0 ||
                          strcasecmp(name, "Access-Control-Expose-Headers") == 0));
}

static size_t header_bytes(const gw_set_header *h)
{
    return strlen(h->name) + strlen(h->value) + 4;
}

/* An upstream's headers may be more than there is memory for beside the request's. Those that are
 * longest are left out first: an answer without them is better than none. */
static void fit_headers(gw_inner *q)
{
    size_t most = q->room > GW_ANSWER_BYTES ? q->room - OWN_BYTES : GW_ANSWER_BYTES - OWN_BYTES;
    most = most < SM_ANSWER_HEADERS_MAX ? most : SM_ANSWER_HEADERS_MAX;
    size_t sum = 0;
    for (const gw_set_header *h = q->set; h != NULL; h = h->next)
        sum += header_bytes(h);
    while (sum > most) {
        gw_set_header **longest = &q->set;
        for (gw_set_header **at = &q->set; *at != NULL; at = &(*at)->next)
            if (header_bytes(*at) > header_bytes(*longest))
                longest = at;
        sum -= header_bytes(*longest);
        *longest = (*longest)->next;
    }
}

void gw_dress(gw_inner *q, struct MHD_Response *answer, const char *content_type)
{
    fit_headers(q);
    if (content_type != NULL)
        MHD_add_response_header(answer, "Content-Type", content_type);
    MHD_add_response_header(answer, "Cache-Control", "no-store");
    MHD_add_response_header(answer, "X-Content-Type-Options", "nosniff");
    if (q->listed)
        admit_page(q, answer);
    for (gw_set_header *h = q->set; h != NULL; h = h->next)
        if (!is_said(q, h->name, content_type))
            MHD_add_response_header(answer, h->name, h->value);
    if (q->outgrown || atomic_load_explicit(&q->r.g->draining, memory_order_relaxed))
        MHD_add_response_header(answer, "Connection", "close");
}

void gw_put_answer(gw_inner *q, int status, struct MHD_Response *answer)
{
    assert(q->answer == NULL && q->status == 0);
    /* The answer that the handle stands in is somebody else's, and may be gone at the end. */
    if (q->r.effect.p != NULL)
        q->r.effect = sm_arena_text(&q->arena, q->r.effect);
    q->status = status >= 200 && status <= 999 ? status : 500;
    q->answer = answer;
}

static void reply_with(gw_inner *q, int status, const char *content_type,
                       struct MHD_Response *answer)
{
    if (answer != NULL)
        gw_dress(q, answer, content_type);
    gw_put_answer(q, status, answer);
    if (!gw_is_held(q))
        return;
    pthread_mutex_lock(&q->lock);
    gw_wake(q);
    pthread_mutex_unlock(&q->lock);
    gw_inner_unref(q);
}

void gw_reply(gw_request *r, int status, const char *content_type, sm_str body)
{
    struct MHD_Response *answer =
        MHD_create_response_from_buffer(body.n, (void *)body.p, MHD_RESPMEM_MUST_COPY);
    reply_with(gw_inner_of(r), status, content_type, answer);
}

static ssize_t no_body(void *context, uint64_t at, char *out, size_t room)
{
    (void)context;
    (void)at;
    (void)out;
    (void)room;
    return MHD_CONTENT_READER_END_WITH_ERROR;
}

void gw_reply_bare(gw_request *r, int status, uint64_t bytes)
{
    bool head = r->method == GW_HEAD;
    struct MHD_Response *answer =
        head ? MHD_create_response_from_callback(bytes, 1024, no_body, NULL, NULL)
             : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (head && answer != NULL && bytes == GW_BYTES_UNKNOWN) /* as in flow.c */
        MHD_set_response_options(answer, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    reply_with(gw_inner_of(r), status, NULL, answer);
}

void gw_reply_json(gw_request *r, int status, sm_str json)
{
    gw_reply(r, status, "application/json", json);
}

/* The type of a problem. Some SDKs of APIs read no JSON but application/json: a client of an API
 * that says what it accepts, and does not accept problems, gets it under this name. */
static const char *problem_type(const gw_request *r)
{
    static const char *const wanted[] = {"application/problem+json", "application/*", "*/*"};
    sm_str accept = gw_header(r, "Accept");
    bool may = !r->proxied || accept.n == 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0] && !may; i++)
        may = memmem(accept.p, accept.n, wanted[i], strlen(wanted[i])) != NULL;
    return may ? wanted[0] : "application/json";
}

static void reply_problem(gw_request *r, int status, int64_t retry_after_ms, sm_buf *text)
{
    if (retry_after_ms > 0) {
        char seconds[24];
        snprintf(seconds, sizeof seconds, "%lld", (long long)((retry_after_ms + 999) / 1000));
        gw_set(r, "Retry-After", sm_str_from(seconds));
    }
    gw_reply(r, text->err == SM_OK ? status : 500, problem_type(r), sm_buf_view(text));
    sm_buf_fini(text);
}

/* Where the ledger is, and what exactly it says, is for those who run it. */
static bool may_know(const gw_request *r)
{
    return (r->who.role & (GW_OPERATOR | GW_ADMIN)) != 0;
}

void gw_set_warning(gw_request *r, const semel_answer *a)
{
    char text[WARNING_MAX];
    size_t n = a->warning.n < sizeof text ? a->warning.n : sizeof text;
    for (size_t i = 0; i < n; i++)
        text[i] = a->warning.p[i] >= 0x20 && a->warning.p[i] < 0x7F ? a->warning.p[i] : '?';
    gw_set(r, "Semel-Warning", (sm_str){text, n});
}

/* Clients that send again by themselves what got a 429 ask these headers first. Sent again, it is
 * one repeat more. */
static void keep_from_retrying(gw_request *r)
{
    gw_set(r, "X-Should-Retry", SM_STR("false"));
    gw_set(r, "Stripe-Should-Retry", SM_STR("false"));
}

void gw_reply_refusal(gw_request *r, const semel_answer *a)
{
    semel_answer told = *a;
    if (a->code == SEMEL_C_LEDGER_UNAVAILABLE) {
        sm_str fault = sm_answer_fault(a);
        bool raw =
            fault.n > 0 && a->message.n >= fault.n && memcmp(a->message.p, fault.p, fault.n) == 0;
        gw_ledger_fails(r->g, fault.n > 0 ? fault : a->message);
        if (raw && !may_know(r))
            sm_answer_reword(&told);
    }
    int status = sm_problem_status(a->code);
    if (r->proxied)
        status = gw_proxied_status(status);
    if (r->proxied && status == 429 && !told.retriable)
        keep_from_retrying(r);
    sm_buf text;
    sm_buf_init(&text, sm_problem_bytes(a));
    sm_problem_of_answer(&text, status, &told);
    if (r->proxied)
        gw_problem_add_error(&text, semel_code_name(a->code), told.message, told.corrective_action);
    r->effect = a->effect;
    gw_inner_of(r)->code = semel_code_name(a->code);
    reply_problem(r, status, a->retry_after_ms, &text);
}

void gw_reply_answer(gw_request *r, const semel_answer *a)
{
    if (a->verdict == SEMEL_REFUSED) {
        gw_reply_refusal(r, a);
        return;
    }
    semel_str json;
    r->effect = a->effect;
    gw_set_warning(r, a);
    if (a->verdict == SEMEL_EXECUTE || a->verdict == SEMEL_DONE)
        gw_ledger_works(r->g);
    if (semel_answer_json(a, &json) == SEMEL_OK)
        gw_reply_json(r, 200, json);
    else
        gw_problem(r, 500, "LEDGER_UNAVAILABLE", NULL, "the answer does not fit into memory");
}

/* A problem of our own, as text, for a request whose answer it is. */
static int64_t put_problem(gw_inner *q, sm_buf *out, int status, const char *code,
                           const char *advice, const char *message)
{
    sm_buf_init(out, SM_PROBLEM_BYTES);
    int64_t retry_after_ms =
        sm_problem_own(out, status, code, sm_str_from(message), sm_str_from(advice));
    if (q->r.proxied)
        gw_problem_add_error(out, code, sm_str_from(message), sm_str_from(advice));
    q->code = code;
    return retry_after_ms;
}

void gw_out_of_memory(gw_request *r)
{
    gw_problem(r, 503, "OVERLOADED", "Try again later.", "The gateway is out of memory.");
}

void gw_problem(gw_request *r, int status, const char *code, const char *advice, const char *format,
                ...)
{
    gw_inner *q = gw_inner_of(r);
    char message[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);

    if (gw_is_given_up(q)) {
        status = 503;
        code = "DRAINING";
        advice = "Ask again with the same call; another gateway, or this one after its start, "
                 "answers, and nothing runs twice.";
        snprintf(message, sizeof message,
                 "the gateway stops before this has ended; something may have been done");
    }
    sm_buf text;
    int64_t retry_after_ms = put_problem(q, &text, status, code, advice, message);
    reply_problem(r, status, retry_after_ms, &text);
}
