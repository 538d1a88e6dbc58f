/*
 * Answers on their way to whoever asked.
 *
 * The queue's descriptor is an eventfd: writing to it when the first answer comes, and reading it
 * when the last one is taken, both under the lock, keeps it readable exactly while there are any.
 */
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/problem.h"
#include "base/limits.h"
#include "flat/inside.h"
#include "ledger/service.h"

sm_err fl_port_init(fl_port *p, sm_fault *fault)
{
    *p = (fl_port){.last = &p->first};
    pthread_mutex_init(&p->lock, NULL);
    p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return p->fd >= 0 ? SM_OK
                      : sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                     "there are no file descriptors left for a ledger");
}

void fl_port_fini(fl_port *p)
{
    for (fl_client *c = p->first, *next; c != NULL; c = next) {
        next = c->next;
        sm_buf_fini(&c->answer);
        free(c);
    }
    if (p->fd >= 0)
        close(p->fd);
    pthread_mutex_destroy(&p->lock);
}

void fl_port_enter(fl_port *p, fl_client *c)
{
    pthread_mutex_lock(&p->lock);
    c->prev = NULL;
    c->next = p->open;
    if (p->open != NULL)
        p->open->prev = c;
    p->open = c;
    pthread_mutex_unlock(&p->lock);
}

/* With the lock. */
static void leave(fl_port *p, fl_client *c)
{
    *(c->prev != NULL ? &c->prev->next : &p->open) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
}

fl_call *fl_port_find(fl_port *p, uint64_t tag, fl_client **client)
{
    pthread_mutex_lock(&p->lock);
    fl_client *c = p->open;
    while (c != NULL && c->tag != tag)
        c = c->next;
    fl_call *call = c == NULL ? NULL : c->call;
    *client = c;
    pthread_mutex_unlock(&p->lock);
    return call;
}

static void signal_fd(const fl_port *p)
{
    uint64_t one = 1;
    ssize_t ignored = write(p->fd, &one, sizeof one);
    (void)ignored; /* it can only be full of ones */
}

static void clear_fd(const fl_port *p)
{
    uint64_t count;
    ssize_t ignored = read(p->fd, &count, sizeof count);
    (void)ignored;
}

char *fl_port_take(fl_port *p, uint64_t *tag, size_t *n)
{
    pthread_mutex_lock(&p->lock);
    fl_client *c = p->first;
    if (c != NULL && (p->first = c->next) == NULL) {
        p->last = &p->first;
        clear_fd(p);
    }
    pthread_mutex_unlock(&p->lock);
    if (c == NULL)
        return NULL;
    char *answer = c->answer.p;
    *tag = c->tag;
    if (n != NULL)
        *n = c->answer.len;
    free(c);
    return answer;
}

/* What is told when there is no memory for an answer. */
static const char nothing[] =
    "{\"type\":\"urn:semel:problem:LEDGER_UNAVAILABLE\",\"title\":\"Ledger unavailable\","
    "\"status\":503,\"detail\":\"There is no memory for the answer.\","
    "\"code\":\"LEDGER_UNAVAILABLE\",\"retriable\":true,"
    "\"message\":\"There is no memory for the answer.\"}";

/* If there is none even for that, the answer is NULL. */
static void finish(sm_buf *out)
{
    sm_buf_byte(out, '\0');
    if (out->err != SM_OK) {
        sm_buf_clear(out);
        sm_buf_bytes(out, nothing, sizeof nothing);
    }
    if (out->err == SM_OK)
        out->len--;
    else
        sm_buf_fini(out);
}

void fl_deliver(fl_port *p, fl_client *c)
{
    finish(&c->answer);
    if (!c->queued) {
        sem_post(&c->there);
        return;
    }
    pthread_mutex_lock(&p->lock);
    leave(p, c);
    c->next = NULL;
    if (p->first == NULL)
        signal_fd(p);
    *p->last = c;
    p->last = &c->next;
    pthread_mutex_unlock(&p->lock);
}

void fl_deliver_text(fl_port *p, fl_client *c, sm_str json)
{
    sm_buf_str(&c->answer, json);
    fl_deliver(p, c);
}

void fl_deliver_answer(fl_port *p, fl_client *c, const semel_answer *a)
{
    if (a->verdict == SEMEL_REFUSED)
        sm_problem_of_answer(&c->answer, sm_problem_status(a->code), a);
    else
        sm_answer_put_json(a, &c->answer);
    fl_deliver(p, c);
}

void fl_deliver_problem(fl_port *p, fl_client *c, int status, const char *code, const char *advice,
                        const char *message)
{
    sm_problem_own(&c->answer, status, code, sm_str_from(message), sm_str_from(advice));
    fl_deliver(p, c);
}

void fl_deliver_closed(fl_port *p, fl_client *c)
{
    fl_deliver_problem(p, c, 503, "LEDGER_UNAVAILABLE", "Open the ledger again.",
                       "The ledger is being closed. Nothing has been done.");
}
