/*
 * The counters.
 *
 * There are several copies of all of them, each on cache lines of its own, and a thread always uses
 * the same copy: counting is an addition that hardly ever has to fetch a line from elsewhere. They
 * are added up when somebody looks.
 */
#include "gateway/telemetry/metrics.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "gateway/telemetry/metrics_put.h"

/* ---- counting --------------------------------------------------------------------------------*/

sm_err gw_metrics_new(gw_metrics **out)
{
    size_t size = (sizeof **out + 63) & ~(size_t)63;
    gw_metrics *m = aligned_alloc(64, size);
    *out = m;
    if (m == NULL)
        return SEMEL_E_NOMEM;
    memset(m, 0, size);
    pthread_mutex_init(&m->tools_lock, NULL);
    pthread_mutex_init(&m->stats_lock, NULL);
    pthread_cond_init(&m->stats_known, NULL);
    return SM_OK;
}

void gw_metrics_free(gw_metrics *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < GW_METRIC_TOOLS; i++)
        free(m->tools[i].name);
    pthread_mutex_destroy(&m->tools_lock);
    pthread_mutex_destroy(&m->stats_lock);
    pthread_cond_destroy(&m->stats_known);
    free(m);
}

/* The copy that this thread counts in. */
static gw_counters *mine(gw_metrics *m)
{
    static atomic_uint threads;
    static _Thread_local unsigned number;
    if (number == 0)
        number = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % GW_COPIES;
    return &m->copies[number - 1];
}

static void add(gw_metric *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static void observe(gw_histogram *h, const int64_t *bounds_us, size_t count, int64_t us)
{
    size_t i = 0;
    while (i < count && us > bounds_us[i])
        i++;
    add(&h->in[i], 1);
    add(&h->sum_us, us > 0 ? (uint64_t)us : 0);
}

void gw_count_request(gw_metrics *m, const gw_route *route, int status, int64_t took_ns)
{
    size_t i = route == NULL ? GW_ROUTES_MAX : (size_t)(route - gw_routes);
    if (i > GW_ROUTES_MAX)
        i = GW_ROUTES_MAX;
    gw_counters *c = mine(m);
    add(&c->requests[i][status >= 100 && status < 600 ? status / 100 : 0], 1);
    observe(&c->took[i], gw_request_bounds_us, GW_REQUEST_BOUNDS, took_ns / 1000);
}

void gw_count_answer(gw_metrics *m, const semel_answer *a)
{
    gw_counters *c = mine(m);
    if (a->verdict == SEMEL_REFUSED)
        add(&c->refused[a->code], 1);
    else
        add(&c->verdicts[a->verdict], 1);
}

/* What an exchange came to. */
static gw_exchange_end end_of(const sm_http_result *r)
{
    if (!r->complete)
        return r->timed_out ? GW_X_TIMEOUT : r->sent ? GW_X_LOST : GW_X_NOT_SENT;
    return r->status >= 100 && r->status < 600 ? (gw_exchange_end)(GW_X_1XX + r->status / 100 - 1)
                                               : GW_X_LOST;
}

/* A tool's place; the last one is for all that have none of their own. Under the lock. */
static gw_tool_counters *tool_of(gw_metrics *m, sm_str name)
{
    for (size_t i = 0; name.p != NULL && i < GW_METRIC_TOOLS - 1; i++) {
        gw_tool_counters *t = &m->tools[i];
        if (t->name == NULL)
            t->name = strndup(name.p, name.n);
        if (t->name == NULL)
            break;
        if (sm_str_is(name, t->name))
            return t;
    }
    return &m->tools[GW_METRIC_TOOLS - 1];
}

void gw_count_exchange(gw_metrics *m, sm_str tool, const sm_http_result *result)
{
    gw_exchange_end end = end_of(result);
    pthread_mutex_lock(&m->tools_lock);
    tool_of(m, tool)->ends[end]++;
    pthread_mutex_unlock(&m->tools_lock);
    observe(&mine(m)->exchanges, gw_exchange_bounds_us, GW_EXCHANGE_BOUNDS, result->took_ms * 1000);
}

/* ---- the ledger's state ----------------------------------------------------------------------*/

#define STATS_NEW_NS ((int64_t)1000000000)
#define STATS_OLD_NS ((int64_t)5000000000)
#define STATS_WAIT_S 2

static int64_t stats_age_ns(const gw_metrics *m)
{
    return m->stats_ns == 0 ? INT64_MAX : sm_clock_mono_ns() - m->stats_ns;
}

/* Waits a while for whoever asks, if what is known is too old to be told. Under the lock. */
static void await_stats(gw_metrics *m)
{
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    at.tv_sec += STATS_WAIT_S;
    int timed_out = 0;
    while (m->stats_asking && stats_age_ns(m) >= STATS_OLD_NS && timed_out == 0)
        timed_out = pthread_cond_timedwait(&m->stats_known, &m->stats_lock, &at);
}

sm_err gw_ledger_stats(gateway *g, semel_stats *out, sm_fault *fault)
{
    gw_metrics *m = g->metrics;
    pthread_mutex_lock(&m->stats_lock);
    await_stats(m);
    if (m->stats_asking || stats_age_ns(m) < STATS_NEW_NS) {
        bool known = stats_age_ns(m) < STATS_OLD_NS;
        sm_err e = known ? m->stats_err : SEMEL_E_UNAVAILABLE;
        *out = m->stats;
        sm_fault_set(fault, e, "%s", known ? m->stats_why : "the ledger does not answer");
        pthread_mutex_unlock(&m->stats_lock);
        return e;
    }
    m->stats_asking = true;
    pthread_mutex_unlock(&m->stats_lock);
    *fault = (sm_fault){0};
    out->size = sizeof *out;
    sm_err e = semel_stats_get(g->ledger, false, out, fault);
    if (e == SM_OK)
        e = sm_try_write(g->ledger, fault);
    if (e == SM_OK)
        gw_ledger_works(g);
    else
        gw_ledger_fails(g, sm_str_from(fault->text));
    pthread_mutex_lock(&m->stats_lock);
    m->stats_asking = false;
    m->stats_ns = sm_clock_mono_ns();
    m->stats = *out;
    m->stats_err = e;
    snprintf(m->stats_why, sizeof m->stats_why, "%s", e == SM_OK ? "" : fault->text);
    pthread_cond_broadcast(&m->stats_known);
    pthread_mutex_unlock(&m->stats_lock);
    return e;
}
