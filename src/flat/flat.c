/*
 * The functions of semel/flat.h.
 *
 * A handle is its options and, while it is used, an open ledger. A fork leaves the child a ledger
 * that only the parent may use. A handler counts forks, so a handle that was opened before the last
 * one knows that it is in a child, and opens its ledger anew.
 */
#include <stdlib.h>

#include "api/problem.h"
#include "base/limits.h"
#include "flat/inside.h"
#include "ledger/service.h"

struct semel_flat {
    sm_str options;
    _Atomic(fl_core *) core; /* NULL: closed, or not opened in this process yet */
    atomic_uint forks;       /* when it was opened */
    fl_core *lost;           /* a child's: what its parent has open */
};

/* ---- forks -----------------------------------------------------------------------------------*/

static atomic_uint forks;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

/* A fork does not wait for ledgers that are being opened: whoever opens them is not in the child,
 * and what is not open yet has no handle. */
static void in_child(void)
{
    static const pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
    atomic_fetch_add(&forks, 1);
    opening = fresh;
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* Opens the ledger again in a child. */
static fl_core *reopen(semel_flat *f, sm_fault *fault)
{
    fl_core *core = NULL;
    pthread_mutex_lock(&opening);
    if (atomic_load(&f->forks) == atomic_load(&forks)) {
        core = atomic_load(&f->core); /* somebody else was faster */
    } else {
        fl_core *inherited = atomic_load(&f->core);
        if (inherited != NULL && f->lost == NULL) {
            fl_core_forsake(inherited);
            f->lost = inherited;
        }
        sm_err e = f->lost != NULL && !f->lost->shared
                       ? sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                      "this ledger is in the memory of the process that opened it, "
                                      "and this is a child of that process")
                       : fl_core_open(f->options, f->lost, &core, fault);
        if (e == SM_OK) {
            atomic_store(&f->core, core);
            atomic_store(&f->forks, atomic_load(&forks));
            f->lost = NULL;
        }
    }
    pthread_mutex_unlock(&opening);
    return core;
}

/* The open ledger; NULL with a fault if it cannot be opened. */
static fl_core *core_of(semel_flat *f, sm_fault *fault)
{
    if (atomic_load_explicit(&f->forks, memory_order_acquire) ==
        atomic_load_explicit(&forks, memory_order_relaxed))
        return atomic_load_explicit(&f->core, memory_order_acquire);
    return reopen(f, fault);
}

/* ---- opening and closing ---------------------------------------------------------------------*/

static char *problem_text(const sm_fault *fault)
{
    sm_buf out;
    sm_buf_init(&out, SM_PROBLEM_BYTES);
    bool wrong = fault->code == SEMEL_E_BAD_ARGUMENTS || fault->code == SEMEL_E_INVALID;
    sm_problem_own(&out, wrong ? 400 : 503, wrong ? "BAD_ARGUMENTS" : "LEDGER_UNAVAILABLE",
                   sm_str_from(fault->text), (sm_str){0});
    sm_buf_byte(&out, '\0');
    if (out.err == SM_OK)
        return out.p;
    sm_buf_fini(&out);
    return NULL;
}

semel_flat *semel_flat_open(const char *options, size_t n, char **problem)
{
    sm_fault fault = {0};
    fl_core *core = NULL;
    semel_flat *f = calloc(1, sizeof *f);
    char *kept = malloc(n + 1);
    pthread_once(&once, watch);
    if (problem != NULL)
        *problem = NULL;
    if (f != NULL && kept != NULL) {
        if (n > 0)
            memcpy(kept, options, n);
        kept[n] = '\0';
        f->options = (sm_str){kept, n};
        atomic_store(&f->forks, atomic_load(&forks));
        if (fl_core_open(f->options, NULL, &core, &fault) == SM_OK)
            atomic_store(&f->core, core);
    } else {
        sm_fault_set(&fault, SEMEL_E_NOMEM, "out of memory");
    }
    if (core != NULL)
        return f;
    if (problem != NULL)
        *problem = problem_text(&fault);
    free(kept);
    free(f);
    return NULL;
}

void semel_flat_close(semel_flat *f)
{
    if (f == NULL)
        return;
    if (atomic_load(&f->forks) == atomic_load(&forks))
        fl_core_close(atomic_load(&f->core));
    else if (atomic_load(&f->core) != NULL && f->lost == NULL)
        fl_core_forsake(atomic_load(&f->core));
    free((char *)(uintptr_t)f->options.p);
    free(f);
}

/* ---- one at a time ---------------------------------------------------------------------------*/

/* Answers into client->answer, on this thread as far as that does not wait for others. */
static void exchange(semel_flat *f, fl_client *client, sm_str request)
{
    sm_fault fault = {0};
    fl_own *own = fl_own_get();
    fl_core *core = core_of(f, &fault);
    sem_init(&client->there, 0, 0);
    if (core == NULL) {
        fl_deliver_problem(NULL, client, 503, "LEDGER_UNAVAILABLE", NULL, fault.text);
    } else if (own == NULL) {
        fl_deliver_problem(&core->port, client, 503, "OVERLOADED", NULL,
                           "There is no memory for the request.");
    } else {
        fl_operate(core, client, request, own);
    }
    while (sem_wait(&client->there) != 0) /* only a signal ends it early */
        continue;
    sem_destroy(&client->there);
}

char *semel_flat_exchange(semel_flat *f, const char *request, size_t n, size_t *answer_n)
{
    fl_client client = {0};
    sm_buf_init(&client.answer, FL_ANSWER_MAX);
    exchange(f, &client, (sm_str){request, n});
    if (answer_n != NULL)
        *answer_n = client.answer.len;
    return client.answer.p;
}

/* The thread's own memory is lent to the client. A long answer's is not kept. */
static void lend(fl_own *own, fl_client *client)
{
    if (own->text.cap > SM_KEPT_BYTES) {
        sm_buf_fini(&own->text);
        sm_buf_init(&own->text, FL_ANSWER_MAX);
    }
    sm_buf_clear(&own->text);
    client->answer = own->text;
}

static const char *given_back(fl_own *own, const fl_client *client, size_t *answer_n)
{
    own->text = client->answer;
    if (answer_n != NULL)
        *answer_n = own->text.len;
    return own->text.p;
}

const char *semel_flat_ask(semel_flat *f, const char *request, size_t n, size_t *answer_n)
{
    fl_client client = {0};
    fl_own *own = fl_own_get();
    if (own == NULL)
        return NULL;
    lend(own, &client);
    exchange(f, &client, (sm_str){request, n});
    return given_back(own, &client, answer_n);
}

const char *semel_flat_recall(semel_flat *f, const char *request, size_t n, size_t *answer_n)
{
    sm_fault fault = {0};
    fl_client client = {0};
    fl_own *own = fl_own_get();
    fl_core *core = core_of(f, &fault);
    if (own == NULL || core == NULL)
        return NULL;
    lend(own, &client);
    sem_init(&client.there, 0, 0);
    bool known = fl_operate_known(core, &client, (sm_str){request, n}, own);
    sem_destroy(&client.there);
    const char *answer = given_back(own, &client, answer_n);
    return known ? answer : NULL;
}

/* ---- many at once ----------------------------------------------------------------------------*/

/* A request on its way to a worker. */
typedef struct submitted {
    sm_job job;
    fl_core *core;
    fl_client *client;
    size_t n;
    char text[];
} submitted;

static void work(sm_job *job, semel_answer *a)
{
    submitted *s = SM_CONTAINER(job, submitted, job);
    fl_own *own = fl_own_get();
    (void)a;
    if (atomic_load(&s->core->ending)) {
        fl_deliver_closed(&s->core->port, s->client);
    } else if (own != NULL) {
        fl_operate(s->core, s->client, (sm_str){s->text, s->n}, own);
    } else {
        fl_deliver_problem(&s->core->port, s->client, 503, "OVERLOADED", NULL,
                           "There is no memory for the request.");
    }
    free(s);
}

bool semel_flat_submit(semel_flat *f, uint64_t tag, const char *request, size_t n)
{
    sm_fault fault = {0};
    fl_own *own = fl_own_get();
    fl_core *core = core_of(f, &fault);
    fl_client *client = calloc(1, sizeof *client);
    submitted *s = malloc(sizeof *s + n);
    if (core == NULL || own == NULL || client == NULL || s == NULL) {
        free(client);
        free(s);
        return false;
    }
    *client = (fl_client){.tag = tag, .queued = true};
    sm_buf_init(&client->answer, FL_ANSWER_MAX);
    *s = (submitted){.job.run = work, .core = core, .client = client, .n = n};
    memcpy(s->text, request, n);
    fl_port_enter(&core->port, client);
    if (fl_operate_known(core, client, (sm_str){request, n}, own))
        free(s);
    else
        sm_pool_add(core->pool, &s->job);
    return true;
}

int semel_flat_fd(semel_flat *f)
{
    sm_fault fault = {0};
    const fl_core *core = core_of(f, &fault);
    return core == NULL ? -1 : core->port.fd;
}

char *semel_flat_take(semel_flat *f, uint64_t *tag, size_t *n)
{
    sm_fault fault = {0};
    fl_core *core = core_of(f, &fault);
    return core == NULL ? NULL : fl_port_take(&core->port, tag, n);
}

bool semel_flat_cancel(semel_flat *f, uint64_t tag)
{
    sm_fault fault = {0};
    fl_core *core = core_of(f, &fault);
    return core != NULL && fl_cancel(core, tag);
}

void semel_flat_free(char *answer)
{
    free(answer);
}
