/* GET /v1/stream: who joins, and the threads that streams live by. */
#include "gateway/api/stream.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "gateway/api/api.h"
#include "ledger/service.h"

#define ROOM       ((size_t)256 << 10) /* bytes that may wait for one reader */
#define LOOK_MS    1000                /* between looks if nothing stirs */
#define TROUBLE_MS 200                 /* before the ledger is asked again after a failure */
#define RETRY_MS   2000                /* what readers are told to wait before coming back */

/* ---- joining ---------------------------------------------------------------------------------*/

/* A reader has room again, or has gone: whose it is, the feeder finds out. */
static void on_change(gw_request *r)
{
    gw_stream *s = r->g->stream;
    pthread_mutex_lock(&s->lock);
    s->stir = s->room = true;
    pthread_cond_signal(&s->stirred);
    pthread_mutex_unlock(&s->lock);
}

typedef struct stream_query {
    sm_str after;
} stream_query;

/* Where to start: what the reader saw last, or the query's, or the end (*now). */
static bool read_start(gw_request *r, uint64_t *after, bool *now)
{
    static const sm_object_member members[] = {
        {.name = "after", .kind = SM_M_TEXT, .offset = offsetof(stream_query, after)}};
    stream_query q = {0};
    gw_http_operation o;
    gw_operation(&o, r, NULL);
    if (!sm_op_parameters(&o.op, members, 1, &q))
        return false;
    sm_str last = gw_header(r, "Last-Event-ID");
    sm_str from = last.p != NULL && last.n > 0 ? last : q.after;
    *now = from.p == NULL || sm_str_is(from, "now");
    if (*now || sm_cursor_parse(from, after))
        return true;
    gw_problem(r, 400, "BAD_ARGUMENTS", "Use the last id that you have seen, or \"now\".",
               "%s is no event's id", last.p != NULL ? "Last-Event-ID" : "after");
    return false;
}

/* Takes a place among the streams, if there is one. */
static bool reserve(gw_request *r)
{
    gw_stream *s = r->g->stream;
    pthread_mutex_lock(&s->lock);
    bool stopping = s->stop || atomic_load(&r->g->draining);
    sm_str token = sm_str_from(r->who.id);
    sm_vacancy room = sm_shares_room(&s->open, token, (size_t)r->g->config->limits.streams);
    if (!stopping && room == SM_ROOM)
        sm_shares_take(&s->open, token);
    pthread_mutex_unlock(&s->lock);
    if (stopping)
        gw_problem(r, 503, "DRAINING", "Come back in a moment; Last-Event-ID tells where you were.",
                   "The gateway is about to end.");
    else if (room != SM_ROOM)
        gw_problem(r, 503, "OVERLOADED", "Close another stream, or try again later.", "%s",
                   room == SM_ROOM_ALL_TAKEN
                       ? "All streams that limits.streams allows are open."
                       : "This token has its share of streams open: a quarter of limits.streams.");
    return !stopping && room == SM_ROOM;
}

void gw_stream_leave(gw_stream *s, const char *token)
{
    pthread_mutex_lock(&s->lock);
    sm_shares_give(&s->open, sm_str_from(token));
    pthread_mutex_unlock(&s->lock);
}

static sm_err token_shard(const gw_who *who, uint8_t *shard)
{
    sm_digest d;
    sm_err e = sm_digest_init(&d);
    if (e == SM_OK)
        e = sm_scope_shard(&d, sm_str_from(who->scope), shard);
    sm_digest_fini(&d);
    return e;
}

/* Where a stream begins, which is not beyond the end of the ledger: that would be another ledger's
 * place, and what comes up to it would be missed. */
static bool find_start(gw_request *r, semel_answer *a, uint64_t *after)
{
    bool now;
    semel_stats stats = {.size = sizeof stats};
    sm_fault fault = {0};
    if (!read_start(r, after, &now))
        return false;
    sm_err e = semel_stats_get(r->g->ledger, false, &stats, &fault);
    if (e != SM_OK) {
        gw_reply_fault(r, a, e, &fault);
        return false;
    }
    if (now)
        *after = stats.store.last_seq;
    if (*after <= stats.store.last_seq)
        return true;
    gw_problem(r, 400, "BAD_ARGUMENTS", "Start over: after=0 is the beginning, after=now the end.",
               "Event %llu is beyond the newest one; it is from another ledger",
               (unsigned long long)*after);
    return false;
}

/* The answer's head and first lines. */
static void begin(gw_request *r, uint64_t after)
{
    char hello[64];
    int n = snprintf(hello, sizeof hello, "retry: %d\nid: %llu\n\n", RETRY_MS,
                     (unsigned long long)after);
    r->on_gone = on_change;
    gw_set(r, "Content-Type", SM_STR("text/event-stream"));
    gw_set(r, "X-Accel-Buffering", SM_STR("no")); /* or a proxy would keep events back */
    gw_flow_start(r, 200, ROOM, on_change);
    gw_flow_push(r, (sm_str){hello, (size_t)n});
}

/* Opens a stream. The end of the ledger is read before the answer begins: what happens after its
 * reader sees that it has begun is in it. */
static void join(gw_request *r, semel_answer *a)
{
    gw_stream *s = r->g->stream;
    uint64_t after = 0;
    uint8_t shard = 0;
    if (!find_start(r, a, &after) || !reserve(r))
        return;
    gw_stream_one *t = calloc(1, sizeof *t);
    if (t == NULL || (r->who.scope[0] != '\0' && token_shard(&r->who, &shard) != SM_OK)) {
        free(t);
        gw_stream_leave(s, r->who.id);
        gw_problem(r, 503, "OVERLOADED", "Try again later.", "There is no memory for a stream.");
        return;
    }
    *t = (gw_stream_one){.request = r,
                         .after = after,
                         .told = after,
                         .whole = r->who.scope[0] == '\0',
                         .shard = shard,
                         .pushed_ns = sm_clock_mono_ns()};
    memcpy(t->token, r->who.id, sizeof t->token);
    begin(r, after);
    pthread_mutex_lock(&s->lock);
    bool late = s->stop;
    if (!late) {
        t->next = s->joined;
        s->joined = t;
        s->stir = true;
        pthread_cond_signal(&s->stirred);
    }
    pthread_mutex_unlock(&s->lock);
    if (late) {
        gw_stream_leave(s, t->token);
        gw_flow_end(r, true);
        free(t);
    }
}

void gw_on_stream(gw_request *r)
{
    if (r->method == GW_HEAD)
        gw_reply(r, 200, "text/event-stream", SM_STR(""));
    else
        gw_work(r, join);
}

/* ---- threads ---------------------------------------------------------------------------------*/

/* Takes over who has joined. Under the lock. */
static void take_joined(gw_stream *s)
{
    while (s->joined != NULL) {
        gw_stream_one *t = s->joined;
        s->joined = t->next;
        t->next = s->streams;
        s->streams = t;
    }
}

static struct timespec until(int64_t ms)
{
    int64_t ns = sm_clock_deadline_ns(ms);
    return (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
}

/* Lets the watcher wait for what comes after those that have all there is. Under the lock. */
static void start_watching(gw_stream *s)
{
    s->watch = false;
    for (const gw_stream_one *t = s->streams; t != NULL; t = t->next) {
        if (t->full_ns != 0)
            continue;
        s->head = t->after;
        s->watch = true;
    }
    if (s->watch)
        pthread_cond_signal(&s->caught);
}

/* Sleeps until there may be something to do. Under the lock. */
static void rest(gw_stream *s, sm_err e)
{
    struct timespec at = until(e == SM_OK ? LOOK_MS : TROUBLE_MS);
    int timed_out = 0;
    if (e == SM_OK)
        start_watching(s);
    while ((!s->stir || e != SM_OK) && !s->stop && timed_out == 0)
        timed_out = s->streams == NULL && s->joined == NULL
                        ? pthread_cond_wait(&s->stirred, &s->lock)
                        : pthread_cond_timedwait(&s->stirred, &s->lock, &at);
    s->watch = false;
}

static void *feeder(void *context)
{
    gw_stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        bool room = s->room, more = false;
        take_joined(s);
        s->stir = s->room = false;
        pthread_mutex_unlock(&s->lock);
        sm_err e = gw_stream_feed(s, room, &more);
        gw_stream_tend(s, atomic_load(&s->g->draining));
        pthread_mutex_lock(&s->lock);
        if (!more || e != SM_OK)
            rest(s, e);
    }
    take_joined(s);
    pthread_mutex_unlock(&s->lock);
    gw_stream_tend(s, true);
    return NULL;
}

/* Looks out for what is new while the feeder rests; then it is the feeder's turn, until it rests
 * again. */
static void *watcher(void *context)
{
    gw_stream *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (!s->watch) {
            pthread_cond_wait(&s->caught, &s->lock);
            continue;
        }
        uint64_t head = s->head;
        pthread_mutex_unlock(&s->lock);
        int64_t deadline_ns = sm_clock_deadline_ns(LOOK_MS);
        bool news = sm_wait_events(s->g->ledger, head, deadline_ns);
        bool trouble = !news && sm_clock_mono_ns() < deadline_ns;
        struct timespec pause = until(TROUBLE_MS);
        pthread_mutex_lock(&s->lock);
        if (trouble && !s->stop)
            pthread_cond_timedwait(&s->caught, &s->lock, &pause);
        if (news && s->watch && s->head == head) {
            s->watch = false;
            s->stir = true;
            pthread_cond_signal(&s->stirred);
        }
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- life ------------------------------------------------------------------------------------*/

sm_err gw_stream_start(gateway *g, gw_stream **out, sm_fault *fault)
{
    *out = NULL;
    gw_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory");
    s->g = g;
    sm_buf_init(&s->texts, 2 * SM_PAGE_BYTES);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->stirred, &monotonic);
    pthread_cond_init(&s->caught, &monotonic);
    pthread_condattr_destroy(&monotonic);
    s->answer = semel_answer_new();
    s->feeding = s->answer != NULL && sm_thread_start(&s->feeder, feeder, s, "semel-stream");
    s->watching = s->feeding && sm_thread_start(&s->watcher, watcher, s, "semel-news");
    if (!s->watching) {
        gw_stream_stop(s);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "no memory, or no thread, for streams");
    }
    *out = s;
    return SM_OK;
}

void gw_stream_quiesce(gw_stream *s)
{
    if (s == NULL)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->stirred);
    pthread_cond_broadcast(&s->caught);
    pthread_mutex_unlock(&s->lock);
    if (s->feeding)
        pthread_join(s->feeder, NULL);
    if (s->watching)
        pthread_join(s->watcher, NULL);
    s->feeding = s->watching = false;
}

void gw_stream_stop(gw_stream *s)
{
    if (s == NULL)
        return;
    gw_stream_quiesce(s);
    for (size_t i = 0; i < GW_STREAM_SCOPES; i++)
        free(s->scopes[i].text);
    sm_buf_fini(&s->texts);
    sm_shares_fini(&s->open);
    semel_answer_free(s->answer);
    pthread_cond_destroy(&s->stirred);
    pthread_cond_destroy(&s->caught);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

size_t gw_stream_count(gw_stream *s)
{
    pthread_mutex_lock(&s->lock);
    size_t n = s->open.taken;
    pthread_mutex_unlock(&s->lock);
    return n;
}
