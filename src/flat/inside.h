/*
 * The flat door's insides.
 *
 *   flat.c      the functions of semel/flat.h; forks
 *   core.c      an open ledger with what serves it: workers, waits, the clock
 *   port.c      who gets an answer: a thread that waits for it, or the queue
 *   call.c      begin, and the claims that are held until their commit
 *   operate.c   everything else: the operations of the JSON language (api/api.h)
 *   declare.c   contracts that are added while the ledger is open
 *   keep.c      checkpoints, and other long work
 *   loops.c     loop detectors without a ledger
 *
 * A request is answered on the caller's thread as far as that goes without waiting for others. A
 * submitted one is answered by a worker, unless memory has its answer.
 *
 * Locks: the port's and the claims' are for a moment each, and nothing is called with them held.
 * The serve's lock (serve/serve.h) guards which attempt a client waits for.
 */
#ifndef SM_FLAT_INSIDE_H
#define SM_FLAT_INSIDE_H

#include <semaphore.h>

#include "api/api.h"
#include "api/body.h"
#include "base/arena.h"
#include "base/buf.h"
#include "base/container.h"
#include "semel/flat.h"
#include "serve/attempt.h"

typedef struct fl_core fl_core;
typedef struct fl_client fl_client;
typedef struct fl_call fl_call;

#define FL_ANSWER_MAX ((size_t)256 << 20) /* bytes; checkpoints are the longest */

/* ---- answers (port.c) ------------------------------------------------------------------------*/

/* Who gets one answer. A client that waits lives on its thread's stack; a queued one is freed when
 * its answer is taken. */
struct fl_client {
    uint64_t tag;
    bool queued;
    fl_call *call;          /* the attempt that it waits for; under the serve's lock */
    sm_buf answer;          /* ends with NUL, which is not counted */
    sem_t there;            /* not queued: the answer is */
    fl_client *next, *prev; /* among those that wait for an answer, or in the queue */
};

typedef struct fl_port {
    pthread_mutex_t lock;
    fl_client *open;          /* queued ones without an answer */
    fl_client *first, **last; /* answers that nobody has taken yet */
    int fd;                   /* an eventfd: it is set while there are any */
} fl_port;

sm_err fl_port_init(fl_port *p, sm_fault *fault);
void fl_port_fini(fl_port *p); /* frees what nobody took */

void fl_port_enter(fl_port *p, fl_client *c); /* a queued client */

/* The attempt that the client with this tag waits for, and the client; NULL if there is none. The
 * caller holds the serve's lock, so the attempt keeps its client. */
fl_call *fl_port_find(fl_port *p, uint64_t tag, fl_client **client);

/* The next answer. */
char *fl_port_take(fl_port *p, uint64_t *tag, size_t *n);

/* An answer is written into c->answer, which is empty before, and then delivered: from here on the
 * client belongs to whoever gets it. What could not be written becomes a problem. */
void fl_deliver(fl_port *p, fl_client *c);

/* The same of a text, of the ledger's answer or refusal, and of a problem that is not its. */
void fl_deliver_text(fl_port *p, fl_client *c, sm_str json);
void fl_deliver_answer(fl_port *p, fl_client *c, const semel_answer *a);
void fl_deliver_problem(fl_port *p, fl_client *c, int status, const char *code, const char *advice,
                        const char *message);

/* That the ledger is being closed, and nothing was done. */
void fl_deliver_closed(fl_port *p, fl_client *c);

/* ---- an open ledger (core.c) -----------------------------------------------------------------*/

#define FL_CLAIM_BUCKETS 1024u

typedef struct fl_claims {
    pthread_mutex_t lock;
    fl_call *bucket[FL_CLAIM_BUCKETS];
    bool ended; /* none is held any more */
} fl_claims;

#define FL_LOOP_BUCKETS 256u
typedef struct fl_loop fl_loop;

typedef struct fl_loops {
    pthread_mutex_t lock;
    fl_loop *bucket[FL_LOOP_BUCKETS];
    uint64_t last; /* number that was given */
    size_t count;
} fl_loops;

struct fl_core {
    semel *ledger;
    sm_pool *pool;
    sm_waits *waits;
    sm_serve serve;
    atomic_bool ending;
    fl_port port;
    fl_claims claims;
    fl_loops loops;
    pthread_mutex_t declaring; /* declare.c: guards the rest */
    sm_buf base;               /* the contracts that it was opened with, as JSON; empty: none */
    _Atomic(char *) declared; /* the tools that were declared since, as an object; NULL: none. Never
                                 changed but for another one, so that a child finds it whole */
    bool shared;              /* others can open the same ledger */
};

/* `before`: in a child, the parent's: the same ledger is opened, with what was declared; or NULL.
 */
sm_err fl_core_open(sm_str options, const fl_core *before, fl_core **out, sm_fault *fault);
void fl_core_close(fl_core *c);

/* In a forked child: lets go of what the parent has open. */
void fl_core_forsake(fl_core *c);

/* What a thread works with; NULL when out of memory. Its arena is empty. */
typedef struct fl_own {
    semel_answer *answer;
    sm_arena arena;
    sm_buf text;  /* the newest answer that was given in memory of this thread */
    sm_job *here; /* a turn that is taken on this thread, and not by a worker */
} fl_own;
fl_own *fl_own_get(void);

/* ---- calls (call.c) --------------------------------------------------------------------------*/

/* Answers a begin from memory, if that can tell. Does no I/O. */
bool fl_begin_known(fl_core *c, fl_client *client, const semel_call *call, semel_answer *a);

/* Begins; the texts of the call are copied. `detached`: its claim is not held here. */
void fl_begin(fl_core *c, fl_client *client, const semel_call *call, bool detached);

/* Ends a claim that is held here, with what came of it, or without an outcome because nothing was
 * done. False: it is not held. */
bool fl_end_held(fl_core *c, fl_client *client, sm_str claim, const semel_outcome *o);

/* Whoever submitted a begin with this tag wants no answer any more, and gets a problem. False: it
 * waits for nothing that it could leave. */
bool fl_cancel(fl_core *c, uint64_t tag);

/* The claims that are still held end: nobody commits them here. What begins from now on is given
 * back. */
void fl_claims_end(fl_core *c);

/* ---- requests (operate.c) --------------------------------------------------------------------*/

/* Answers a request, at once or later. */
void fl_operate(fl_core *c, fl_client *client, sm_str text, fl_own *own);

/* Answers it if that needs no I/O: a begin that memory can answer. */
bool fl_operate_known(fl_core *c, fl_client *client, sm_str text, fl_own *own);

/* A request in the language, and who gets its answer. */
typedef struct fl_operation {
    sm_operation op;
    fl_core *core;
    fl_client *client;
    sm_object object; /* all of it */
} fl_operation;

static inline fl_operation *fl_operation_of(sm_operation *op)
{
    return SM_CONTAINER(op, fl_operation, op);
}

/* ---- contracts that are declared (declare.c) -------------------------------------------------*/

/* Remembers the contracts that a ledger is about to be opened with. */
sm_err fl_declare_start(fl_core *c, const semel_options *o, sm_fault *fault);
void fl_declare_stop(fl_core *c);

/* Declares an object of tools. */
sm_err fl_declare_again(fl_core *c, sm_arena *a, const char *tools, sm_fault *fault);

/* {tools: {NAME: CONTRACT, ...}, unless_listed?}: adds them. One that is there already must be the
 * same, or is left alone. */
sm_api_fn fl_on_declare;

/* ---- loop detectors (loops.c) ----------------------------------------------------------------*/

void fl_loops_fini(fl_loops *l);

sm_api_fn fl_on_loop_new; /* {repeats?, max_cycle?} */
sm_api_fn fl_on_loop_add; /* {loop, tool, args?, result?} */
sm_api_fn fl_on_loop_free;

/* ---- long work (keep.c) ----------------------------------------------------------------------*/

sm_api_fn fl_on_export; /* {scope?} */
sm_api_fn fl_on_import; /* {lines} */
sm_api_fn fl_on_key;    /* {scope, tool, args, step?, key?} */
sm_api_fn fl_on_stats;
sm_api_fn fl_on_verify;
sm_api_fn fl_on_purge;
sm_api_fn fl_on_seal;

#endif
