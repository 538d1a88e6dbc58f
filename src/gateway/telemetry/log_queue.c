/*
 * The way of a line from whoever says it to whoever reads the log.
 *
 *     any thread --put--> queue (bounded) --> one thread --write(2)--> stderr
 *
 * Nobody but that thread waits for the reader, who may be slow or have stopped reading. When the
 * queue is full, lines are dropped and counted until it has been written empty; then one line tells
 * how many are missing, at the place where they would have been.
 *
 * One queue for the process, for there is one stderr; it lives from the first start to the last
 * stop. Otherwise, before and after, a line is written at once if it can be without waiting long.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/thread.h"
#include "gateway/log.h"

#define QUEUE_BYTES ((size_t)1 << 20)
#define FLUSH_MS    1000 /* at the end, for a reader that is slow */

typedef struct queued {
    struct queued *next;
    gw_log log;
    sm_buf line;
} queued;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER;
static pthread_cond_t emptied = PTHREAD_COND_INITIALIZER;
static unsigned users;
static bool ending;
static pthread_t thread;
static queued *first, *last;
static queued *writing; /* off the queue, and not written yet */
static size_t bytes;    /* in the queue, and of what is being written */
static uint64_t dropped;

/* ---- writing ---------------------------------------------------------------------------------*/

static void write_line(int fd, const sm_buf *line)
{
    while (line->len > 0 && write(fd, line->p, line->len) < 0 && errno == EINTR) {
    }
}

/* Without the thread: a reader that does not read costs a moment, and then the line. */
static void write_here(int fd, const sm_buf *line)
{
    struct pollfd room = {.fd = fd, .events = POLLOUT};
    if (poll(&room, 1, FLUSH_MS) > 0)
        write_line(fd, line);
}

static void queued_free(queued *q)
{
    if (q != NULL)
        sm_buf_fini(&q->line);
    free(q);
}

/* Says how many are missing. The lock is held, and let go of for a moment. */
static void tell_dropped(const gw_log *log)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)dropped);
    dropped = 0;
    pthread_mutex_unlock(&lock);
    gw_log_field count = {"lines", sm_str_from(text), true};
    gw_say_fields(log, GW_WARN, "the log was not read; lines are missing", &count, 1);
    pthread_mutex_lock(&lock);
}

/* Takes lines off the queue. The thread can be canceled where it waits for the reader, and nowhere
 * else. */
static void *write_all(void *context)
{
    (void)context;
    int state;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    pthread_mutex_lock(&lock);
    while (!ending || first != NULL) {
        if (first == NULL) {
            pthread_cond_wait(&filled, &lock);
            continue;
        }
        writing = first;
        first = first->next;
        pthread_mutex_unlock(&lock);
        pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
        write_line(writing->log.fd, &writing->line);
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
        pthread_mutex_lock(&lock);
        bytes -= writing->line.len;
        if (first == NULL && dropped > 0)
            tell_dropped(&writing->log);
        queued_free(writing);
        writing = NULL;
        if (first == NULL)
            pthread_cond_broadcast(&emptied);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* ---- putting ---------------------------------------------------------------------------------*/

void gw_log_put(const gw_log *log, sm_buf *line)
{
    queued *q = malloc(sizeof *q);
    pthread_mutex_lock(&lock);
    bool here = users == 0;
    bool room = q != NULL && dropped == 0 && bytes + line->len <= QUEUE_BYTES;
    if (!here && room) {
        *q = (queued){.log = *log, .line = *line};
        bytes += line->len;
        if (first == NULL)
            first = q;
        else
            last->next = q;
        last = q;
        *line = (sm_buf){0};
        q = NULL;
        pthread_cond_signal(&filled);
    } else if (!here) {
        dropped++;
    }
    pthread_mutex_unlock(&lock);
    if (here)
        write_here(log->fd, line);
    sm_buf_fini(line);
    free(q);
}

/* ---- life ------------------------------------------------------------------------------------*/

bool gw_log_start(void)
{
    pthread_mutex_lock(&lock);
    bool runs = users > 0;
    if (!runs) {
        ending = false;
        runs = sm_thread_start(&thread, write_all, NULL, "semel-log");
    }
    users += runs;
    pthread_mutex_unlock(&lock);
    return runs;
}

/* Waits until all is written, up to a bound. The lock is held; true if all is. */
static bool await_empty(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FLUSH_MS / 1000;
    int timed_out = 0;
    while ((first != NULL || writing != NULL) && timed_out == 0)
        timed_out = pthread_cond_timedwait(&emptied, &lock, &until);
    return first == NULL && writing == NULL;
}

void gw_log_flush(void)
{
    pthread_mutex_lock(&lock);
    if (users > 0)
        await_empty();
    pthread_mutex_unlock(&lock);
}

void gw_log_stop(void)
{
    pthread_mutex_lock(&lock);
    bool empty = users == 0 || await_empty();
    bool last_user = users == 1;
    users -= users > 0;
    ending = users == 0;
    pthread_cond_signal(&filled);
    pthread_mutex_unlock(&lock);
    if (!last_user)
        return;
    if (!empty)
        pthread_cancel(thread);
    pthread_join(thread, NULL);
    while (first != NULL) {
        queued *q = first;
        first = q->next;
        queued_free(q);
    }
    queued_free(writing);
    writing = NULL;
    bytes = 0;
    dropped = 0;
}
