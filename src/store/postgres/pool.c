/*
 * Connections that are kept, and asking one question until it is answered.
 *
 * The pool is bounded. Who finds no free connection stands in line, and a connection that is given
 * back goes to the first in line, so nobody is passed over. A connection on which something went
 * wrong is closed, and all idle ones with it: what broke one has most likely broken the others.
 * Only a caller in a hurry, who did not wait for an answer for long, proves nothing about them.
 *
 * A question whose answer was lost is asked again, within its deadline and as the gate allows, so
 * that a server that restarts is not noticed. For a write that is safe, since it is a
 * compare-and-swap: if the first try took effect, the second finds another version. Telling that
 * apart from somebody else's write is up to the caller, who learns that it was sent twice.
 */
#include "store/postgres/postgres.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_AFTER_NS (50 * 1000000ll) /* an idle connection is trusted so long */
#define PAUSE_NS      2000000ll        /* after a deadlock, about */

/* Somebody in line. */
struct sm_pg_turn {
    pthread_cond_t called;
    bool given; /* a connection, or leave to open one */
    sm_pg_conn *conn;
    sm_pg_turn *next;
};

void sm_pg_pool_init(sm_pg_pool *p)
{
    *p = (sm_pg_pool){.last = NULL};
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
}

static void close_all(sm_pg_conn *c)
{
    for (sm_pg_conn *next; c != NULL; c = next) {
        next = c->next;
        sm_pg_disconnect(c);
    }
}

void sm_pg_pool_fini(sm_pg_pool *p)
{
    close_all(p->idle);
    pthread_mutex_destroy(&p->lock);
}

/* ---- taking and giving back ------------------------------------------------------------------*/

/* Gives to the first in line a connection, or leave to open one. False: nobody waits. */
static bool call_next(sm_pg_pool *p, sm_pg_conn *c)
{
    sm_pg_turn *t = p->first;
    if (t == NULL)
        return false;
    p->first = t->next;
    if (p->first == NULL)
        p->last = &p->first;
    t->given = true;
    t->conn = c;
    pthread_cond_signal(&t->called);
    return true;
}

static void leave_line(sm_pg_pool *p, sm_pg_turn *t)
{
    sm_pg_turn **at = &p->first;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    if (p->last == &t->next)
        p->last = at;
}

/* Stands in line with the lock held. False: the time is up. */
static bool stand_in_line(sm_pg_pool *p, int64_t deadline_ns, sm_pg_conn **out)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    pthread_condattr_t monotonic;
    sm_pg_turn t = {0};
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t.called, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *p->last = &t;
    p->last = &t.next;
    int rc = 0;
    while (!t.given && rc == 0)
        rc = pthread_cond_timedwait(&t.called, &p->lock, &until);
    if (!t.given)
        leave_line(p, &t);
    pthread_cond_destroy(&t.called);
    *out = t.conn;
    return t.given;
}

/* A connection, or leave to open one (NULL). False: the time is up. */
static bool admit(semel_store *st, int64_t deadline_ns, sm_pg_conn **out)
{
    sm_pg_pool *p = &st->pool;
    bool in = true;
    pthread_mutex_lock(&p->lock);
    *out = p->idle;
    if (*out != NULL)
        p->idle = (*out)->next;
    else if (p->open < st->settings.pool)
        p->open++;
    else
        in = stand_in_line(p, deadline_ns, out);
    pthread_mutex_unlock(&p->lock);
    return in;
}

static void give_up_place(sm_pg_pool *p)
{
    pthread_mutex_lock(&p->lock);
    if (!call_next(p, NULL))
        p->open--;
    pthread_mutex_unlock(&p->lock);
}

semel_err sm_pg_take(semel_store *st, int64_t deadline_ns, sm_pg_conn **out, semel_fault *fault)
{
    *out = NULL;
    if (!admit(st, deadline_ns, out))
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "all %lld connections to %s are busy: it is slow, or there are too few "
                            "(pool=N in the ledger's URL)",
                            (long long)st->settings.pool, st->where);
    sm_pg_conn *c = *out;
    if (c != NULL && sm_clock_mono_ns() - c->idle_since_ns > LOOK_AFTER_NS && !sm_pg_alive(c)) {
        sm_pg_disconnect(c);
        c = NULL;
    }
    if (c == NULL)
        c = sm_pg_connect(st, &st->settings.main, deadline_ns, fault);
    if (c == NULL)
        give_up_place(&st->pool);
    *out = c;
    return c != NULL ? SEMEL_OK : SEMEL_E_UNAVAILABLE;
}

void sm_pg_put(semel_store *st, sm_pg_conn *c)
{
    sm_pg_pool *p = &st->pool;
    c->idle_since_ns = sm_clock_mono_ns();
    pthread_mutex_lock(&p->lock);
    if (!call_next(p, c)) {
        c->next = p->idle;
        p->idle = c;
    }
    pthread_mutex_unlock(&p->lock);
}

/* Closes one connection and nothing else. */
static void discard(semel_store *st, sm_pg_conn *c)
{
    sm_pg_disconnect(c);
    give_up_place(&st->pool);
}

void sm_pg_drop(semel_store *st, sm_pg_conn *c)
{
    sm_pg_pool *p = &st->pool;
    sm_pg_disconnect(c);
    pthread_mutex_lock(&p->lock);
    sm_pg_conn *idle = p->idle;
    p->idle = NULL;
    for (sm_pg_conn *i = idle; i != NULL; i = i->next)
        p->open--;
    if (!call_next(p, NULL))
        p->open--;
    pthread_mutex_unlock(&p->lock);
    close_all(idle);
}

/* ---- asking ----------------------------------------------------------------------------------*/

static void nap(int64_t deadline_ns, unsigned tries)
{
    int64_t most = PAUSE_NS << (tries < 6 ? tries : 6), now = sm_clock_mono_ns();
    int64_t ns = most / 2 + now % (most / 2);
    ns = deadline_ns - now < ns ? deadline_ns - now : ns;
    struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    if (ns > 0)
        nanosleep(&t, NULL);
}

/* The server has done it and warned of something, such as that no replica has it yet. Whether the
 * write is safe is to be found out, as if the answer were lost. */
static sm_pg_fate mistrust(const semel_store *st, PGresult **out, sm_err *err, semel_fault *fault)
{
    PQclear(*out);
    *out = NULL;
    *err = sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                        "%s has warned of something during this write; look at the server's log",
                        st->where);
    return SM_PG_LOST;
}

/* The guard may have made the server undo the transaction: the server behind the connection is
 * asked before the write is tried again. */
static sm_pg_fate run_guarded(semel_store *st, sm_pg_conn *c, const sm_pg_question *q,
                              int64_t deadline_ns, PGresult **out, bool *sent, sm_err *err,
                              semel_fault *fault)
{
    sm_buf guard = {0};
    sm_pg_fate way = SM_PG_FAILED;
    if (q->writes && !q->evidence)
        sm_pg_trust_guard(st, &guard);
    if (guard.err == SM_OK)
        way = sm_pg_run(st, c, q->which, q->args, &q->lock, guard.p, deadline_ns, out, sent, err,
                        fault);
    else
        *err = sm_pg_nomem(fault);
    if (way == SM_PG_AGAIN)
        c->judged = false;
    sm_buf_fini(&guard);
    return way;
}

/* One try. *err and the fault are about this one; but that a later try had no time left says less
 * than why those before it have failed, and their fault stays. */
static sm_pg_fate ask_once(semel_store *st, sm_pg_question *q, unsigned tries, int64_t deadline_ns,
                           PGresult **out, bool *sent, sm_err *err, semel_fault *fault)
{
    sm_pg_conn *c = NULL;
    const semel_fault before = *fault;
    *err = sm_gate_enter(&st->gate, deadline_ns, fault);
    if (*err != SM_OK)
        return SM_PG_FAILED;
    int64_t began = sm_clock_mono_ns();
    *err = sm_pg_take(st, deadline_ns, &c, fault);
    sm_pg_fate way = SM_PG_LOST;
    if (c != NULL)
        way = q->evidence ? SM_PG_DONE : sm_pg_trust_conn(st, c, deadline_ns, err, fault);
    if (way == SM_PG_DONE)
        way = run_guarded(st, c, q, deadline_ns, out, sent, err, fault);
    int64_t end = sm_clock_mono_ns();
    bool hurried = end >= deadline_ns && end - began < st->settings.timeout_ms * 1000000 / 2;
    bool warned = way == SM_PG_DONE && q->writes && c->warned;
    if (c != NULL && way != SM_PG_LOST)
        sm_pg_put(st, c);
    else if (c != NULL && hurried)
        discard(st, c);
    else if (c != NULL)
        sm_pg_drop(st, c);
    if (way == SM_PG_LOST && hurried && tries > 0)
        *fault = before;
    /* A caller in a hurry says nothing about the server, unless it was sent to try it. */
    if (way != SM_PG_LOST)
        sm_gate_good(&st->gate);
    else if (!hurried || atomic_load(&st->gate.failures) > 0)
        sm_gate_bad(&st->gate, fault);
    return warned ? mistrust(st, out, err, fault) : way;
}

semel_err sm_pg_ask(semel_store *st, sm_pg_question *q, PGresult **out, semel_fault *fault)
{
    semel_fault own = {0};
    semel_fault *why = fault != NULL ? fault : &own;
    int64_t deadline_ns =
        q->deadline_ns != 0 ? q->deadline_ns : sm_clock_deadline_ns(st->settings.timeout_ms);
    sm_err err = SM_OK;
    sm_pg_fate way;
    *out = NULL;
    if (!q->evidence && sm_pg_lost(st, why))
        return SEMEL_E_UNAVAILABLE;
    for (unsigned tries = 0;; tries++) {
        bool sent = false;
        way = ask_once(st, q, tries, deadline_ns, out, &sent, &err, why);
        if (way == SM_PG_LOST && sent)
            q->resent = true;
        if (way == SM_PG_DONE || way == SM_PG_FAILED || sm_clock_mono_ns() >= deadline_ns)
            break;
        if (way == SM_PG_AGAIN)
            nap(deadline_ns, tries);
    }
    if (way == SM_PG_DONE)
        return SEMEL_OK;
    if (q->writes && q->resent && err == SEMEL_E_UNAVAILABLE) {
        semel_fault last = *why;
        sm_fault_set(why, err, "%.400s. The write may or may not have been recorded: ask again",
                     last.text);
    }
    return err;
}
