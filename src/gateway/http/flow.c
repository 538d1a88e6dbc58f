/*
 * Answers that come piece by piece.
 *
 *     producer, any thread --push--> buffer (bounded) --fill--> connection's thread --> client
 *
 * When the buffer is empty the connection is suspended, and the next piece wakes it; when it is
 * full the producer is told so, and that there is room again once half of it is free. The buffer is
 * the only place where the two meet, under the request's lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>

#include "gateway/http/server.h"

#define BLOCK_BYTES 4096u

/* Whether the producer has more, or how it ended; it moves once, under the request's lock. */
typedef enum flow_end { FLOW_OPEN, FLOW_WHOLE, FLOW_BROKEN } flow_end;

struct gw_flow {
    sm_buf buffer;
    size_t read; /* of the buffer's bytes, those that have gone out */
    size_t bound;
    void (*on_room)(gw_request *r);
    bool wants_room;
    flow_end end;
};

void gw_flow_free(gw_flow *f)
{
    if (f != NULL)
        sm_buf_fini(&f->buffer);
    free(f);
}

/* Takes up to so many bytes out of the buffer. */
static size_t take(gw_flow *f, char *out, size_t room)
{
    size_t n = f->buffer.len - f->read;
    if (n > room)
        n = room;
    if (n > 0)
        memcpy(out, f->buffer.p + f->read, n);
    f->read += n;
    if (f->read == f->buffer.len)
        f->buffer.len = f->read = 0;
    return n;
}

/* Moves bytes to the client. On the connection's thread. */
static ssize_t fill(void *context, uint64_t position, char *out, size_t room)
{
    (void)position;
    gw_inner *q = context;
    gw_flow *f = q->flow;
    gw_conn *c = q->conn;
    ssize_t result = 0;

    pthread_mutex_lock(&c->lock);
    pthread_mutex_lock(&q->lock);
    c->held = NULL;
    size_t n = take(f, out, room), left = f->buffer.len - f->read;
    bool tell = f->wants_room && left <= f->bound / 2;
    if (tell)
        f->wants_room = false;
    gw_sends(c);
    if (gw_is_gone(&q->r)) {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        result = (ssize_t)n;
    } else if (f->end != FLOW_OPEN) {
        result = f->end == FLOW_WHOLE ? MHD_CONTENT_READER_END_OF_STREAM
                                      : MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (gw_suspend_locked(q)) {
        atomic_store_explicit(&c->deadline, 0, memory_order_relaxed); /* it waits for us */
    } else {
        result = MHD_CONTENT_READER_END_WITH_ERROR;
    }
    pthread_mutex_unlock(&q->lock);
    pthread_mutex_unlock(&c->lock);

    if (tell && f->on_room != NULL)
        f->on_room(&q->r);
    return result;
}

/* The size that the producer has promised by Content-Length; else unknown. */
static uint64_t promised_size(const gw_inner *q)
{
    for (const gw_set_header *h = q->set; h != NULL; h = h->next) {
        char *end;
        if (strcasecmp(h->name, "Content-Length") != 0 || h->value[0] < '0' || h->value[0] > '9')
            continue;
        errno = 0;
        uint64_t size = strtoull(h->value, &end, 10);
        if (errno == 0 && *end == '\0' && size < MHD_SIZE_UNKNOWN)
            return size;
    }
    return MHD_SIZE_UNKNOWN;
}

static struct MHD_Response *make_response(gw_inner *q, int status)
{
    uint64_t size = promised_size(q);
    struct MHD_Response *answer =
        MHD_create_response_from_callback(size, BLOCK_BYTES, fill, q, NULL);
    /* An answer that must have no body would be given the end of a chunked one. */
    if (answer != NULL && size == MHD_SIZE_UNKNOWN && (q->r.method == GW_HEAD || status == 304))
        MHD_set_response_options(answer, MHD_RF_HTTP_1_0_COMPATIBLE_STRICT, MHD_RO_END);
    return answer;
}

void gw_flow_start(gw_request *r, int status, size_t bound, void (*on_room)(gw_request *r))
{
    gw_inner *q = gw_inner_of(r);
    gw_hold(r);
    gw_flow *f = calloc(1, sizeof *f);
    struct MHD_Response *answer = NULL;
    if (f != NULL) {
        sm_buf_init(&f->buffer, SIZE_MAX / 2);
        f->bound = bound;
        f->on_room = on_room;
        answer = make_response(q, status);
    }
    if (answer != NULL)
        gw_dress(q, answer, NULL);
    gw_put_answer(q, status, answer);
    pthread_mutex_lock(&q->lock);
    q->flow = f;
    gw_wake(q);
    pthread_mutex_unlock(&q->lock);
}

/* Room for one more piece behind those that have not gone out yet. */
static bool append(gw_flow *f, sm_str piece)
{
    if (f->read > 0 && f->buffer.len + piece.n > f->buffer.cap) {
        f->buffer.len -= f->read;
        memmove(f->buffer.p, f->buffer.p + f->read, f->buffer.len);
        f->read = 0;
    }
    sm_buf_str(&f->buffer, piece);
    return f->buffer.err == SM_OK;
}

bool gw_flow_push(gw_request *r, sm_str piece)
{
    gw_inner *q = gw_inner_of(r);
    bool taken = true;
    pthread_mutex_lock(&q->lock);
    gw_flow *f = q->flow;
    if (f != NULL && f->end == FLOW_OPEN && !gw_is_gone(r)) {
        size_t waiting = f->buffer.len - f->read;
        if (waiting > 0 && waiting + piece.n > f->bound) {
            f->wants_room = true;
            taken = false;
        } else if (!append(f, piece)) {
            f->end = FLOW_BROKEN; /* the client sees that it is not whole */
        }
        gw_wake(q);
    }
    pthread_mutex_unlock(&q->lock);
    return taken;
}

/* Ends the connection. By HTTP/1.0 an answer without a length ends with its connection: there it is
 * reset, so that it does not look whole. */
static void cut(const gw_inner *q)
{
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (!q->old || q->conn->local || connect(q->conn->fd, &none, sizeof none) != 0)
        shutdown(q->conn->fd, SHUT_RDWR);
}

void gw_flow_end(gw_request *r, bool whole)
{
    gw_inner *q = gw_inner_of(r);
    pthread_mutex_lock(&q->lock);
    gw_flow *f = q->flow;
    if (f != NULL && f->end == FLOW_OPEN)
        f->end = whole ? FLOW_WHOLE : FLOW_BROKEN;
    /* A client that reads nothing would keep a broken answer open. Once `conn` is cleared the
     * socket may be another one's. */
    if (q->conn != NULL && f != NULL && !whole)
        cut(q);
    gw_wake(q);
    pthread_mutex_unlock(&q->lock);
    gw_inner_unref(q);
}

void gw_flow_dropped(gw_inner *q)
{
    pthread_mutex_lock(&q->lock);
    gw_flow *f = q->flow;
    bool tell = f != NULL && f->wants_room;
    if (tell)
        f->wants_room = false;
    pthread_mutex_unlock(&q->lock);
    if (tell && f->on_room != NULL)
        f->on_room(&q->r);
}

bool gw_flow_open(gw_inner *q)
{
    pthread_mutex_lock(&q->lock);
    bool open = q->flow != NULL && q->flow->end == FLOW_OPEN;
    pthread_mutex_unlock(&q->lock);
    return open;
}
