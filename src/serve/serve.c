/* The clock of all attempts, and their end; and the ledger that they really work with. */
#include "serve/serve.h"

#include "base/clock.h"
#include "base/thread.h"
#include "serve/attempt.h"

/* ---- the real ledger -------------------------------------------------------------------------*/

static sm_err do_ask(sm_serve *s, sm_asking *q, semel_answer *a)
{
    return sm_ask(s->ledger, q, a);
}

static void do_claim(sm_serve *s, sm_running *r, const semel_answer *execute, size_t most)
{
    sm_running_add(s->ledger, r, execute, most);
}

static sm_err do_record(sm_serve *s, sm_running *r, const sm_recording *what, semel_answer *a)
{
    return sm_record(s->ledger, r, what, a);
}

static void do_passed(sm_serve *s, const sm_passed *p, const semel_outcome *o, semel_answer *a)
{
    sm_pass_ended(s->ledger, p, o, a);
}

static void do_let_go(sm_serve *s, sm_running *r)
{
    sm_running_remove(s->ledger, r);
}

static sm_err do_give_back(sm_serve *s, sm_str claim, semel_answer *a)
{
    return sm_give_back(s->ledger, claim, (sm_str){0}, a);
}

static sm_err do_look(sm_serve *s, const sm_handle *effect, semel_answer *a, sm_remedy *out)
{
    return sm_remedy_of(s->ledger, effect, a, out);
}

static sm_err do_resend(sm_serve *s, const sm_handle *effect, int64_t lease_ms, semel_answer *a)
{
    return sm_resend(s->ledger, effect, lease_ms, a);
}

static sm_err do_probed(sm_serve *s, const sm_handle *effect, sm_found_kind found,
                        const semel_outcome *outcome, semel_answer *a)
{
    return sm_probed(s->ledger, effect, found, outcome, a);
}

static uint64_t do_heard(sm_serve *s, uint64_t id)
{
    return sm_waits_heard(s->waits, id);
}

static void do_ring(sm_serve *s, uint64_t id)
{
    sm_waits_ring(s->waits, id);
}

static sm_parked do_park(sm_serve *s, sm_waiter *w)
{
    return sm_waits_park(s->waits, w, s->waiting_max);
}

static bool do_leave(sm_serve *s, sm_waiter *w)
{
    return sm_waits_leave(s->waits, w);
}

static void do_add(sm_serve *s, sm_job *job)
{
    sm_pool_add(s->pool, job);
}

static int64_t do_now_ns(const sm_serve *s)
{
    (void)s;
    return sm_clock_mono_ns();
}

const sm_serve_deps sm_serve_real = {
    .ask = do_ask,
    .claim = do_claim,
    .record = do_record,
    .passed = do_passed,
    .let_go = do_let_go,
    .give_back = do_give_back,
    .look = do_look,
    .resend = do_resend,
    .probed = do_probed,
    .heard = do_heard,
    .ring = do_ring,
    .park = do_park,
    .leave = do_leave,
    .add = do_add,
    .now_ns = do_now_ns,
};

/* ---- the clock -------------------------------------------------------------------------------*/

static void *keep_time(void *context)
{
    sm_serve *s = context;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        const sm_timer *first = sm_timer_first(&s->timers);
        if (first == NULL) {
            pthread_cond_wait(&s->tick, &s->lock);
            continue;
        }
        int64_t at = first->due_ns;
        if (at <= s->deps->now_ns(s)) {
            sm_attempt_expire(SM_CONTAINER(first, sm_attempt, timer));
            continue;
        }
        struct timespec until = {.tv_sec = (time_t)(at / 1000000000),
                                 .tv_nsec = (long)(at % 1000000000)};
        pthread_cond_timedwait(&s->tick, &s->lock, &until);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

bool sm_serve_time(sm_serve *s, sm_timer *timer, int64_t until_ns)
{
    if (!s->clocked || (timer->at != 0 && timer->due_ns == until_ns))
        return true;
    if (!sm_timer_set(&s->timers, timer, until_ns))
        return false;
    if (timer->at == 1)
        pthread_cond_signal(&s->tick);
    return true;
}

/* ---- all of them -----------------------------------------------------------------------------*/

void sm_serve_init(sm_serve *s)
{
    pthread_condattr_t attr;
    pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&s->tick, &attr);
    pthread_cond_init(&s->quiet, &attr);
    pthread_condattr_destroy(&attr);
    s->started = true;
}

sm_err sm_serve_clock(sm_serve *s, sm_fault *fault)
{
    s->clocked = sm_thread_start(&s->clock, keep_time, s, "semel-clock");
    return s->clocked ? SM_OK : sm_fault_set(fault, SEMEL_E_NOMEM, "no thread can be started");
}

void sm_serve_fini(sm_serve *s)
{
    if (!s->started)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->tick);
    pthread_mutex_unlock(&s->lock);
    if (s->clocked)
        pthread_join(s->clock, NULL);
    pthread_cond_destroy(&s->quiet);
    pthread_cond_destroy(&s->tick);
    pthread_mutex_destroy(&s->lock);
    sm_timers_fini(&s->timers);
    s->started = false;
}

bool sm_serve_drain(sm_serve *s, int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    pthread_mutex_lock(&s->lock);
    s->draining = true;
    pthread_mutex_unlock(&s->lock);
    sm_waits_wake_all(s->waits);
    pthread_mutex_lock(&s->lock);
    while (s->alive > 0 && sm_clock_mono_ns() < deadline_ns)
        pthread_cond_timedwait(&s->quiet, &s->lock, &until);
    bool none = s->alive == 0;
    pthread_mutex_unlock(&s->lock);
    return none;
}

void sm_serve_exit(sm_serve *s)
{
    pthread_mutex_lock(&s->lock);
    if (--s->alive == 0)
        pthread_cond_broadcast(&s->quiet);
    pthread_mutex_unlock(&s->lock);
}
