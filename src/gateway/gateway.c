/*
 * The gateway as a whole: its parts are started from the bottom up, and stopped from the top down.
 *
 *     metrics, tokens, ledger, HTTP client, workers, runs, streams, server
 *
 * Draining comes first: no new connections, no new work, and time for what is under way. Then the
 * server goes, so that nobody asks any more; then the HTTP client sends no more, and its last
 * exchanges become commits for the workers; then the workers, once they have done all that is left;
 * and the ledger last, for everything above writes to it. What has not ended by then is left as a
 * claim.
 */
#include "gateway/gateway.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/container.h"
#include "base/file.h"
#include "base/limits.h"
#include "core/report.h"
#include "gateway/http/server.h"
#include "gateway/inside/gateway.h"
#include "gateway/proxy/pass.h"
#include "gateway/run/run.h"
#include "gateway/telemetry/metrics.h"
#include "ledger/service.h"

#define WORKERS_MAX   64u
#define LOOK_AGAIN_MS 5
#define TELL_MS       1000 /* for those who are told that we end */
#define LAST_MS       5000 /* for commits of exchanges that the end of the client has ended */

typedef struct whole {
    gateway g;
    pthread_mutex_t due; /* held while the ledger tells of what is left over */
} whole;

/* ---- starting --------------------------------------------------------------------------------*/

static void on_due(void *context, const sm_handle *effect)
{
    whole *w = context;
    pthread_mutex_lock(&w->due);
    if (!atomic_load(&w->g.draining))
        gw_on_due(&w->g, effect);
    pthread_mutex_unlock(&w->due);
}

static sm_err open_ledger(gateway *g, sm_str contract_text, sm_fault *fault)
{
    const gw_config *c = g->config;
    sm_buf url;
    sm_buf_init(&url, (size_t)64 << 10);
    sm_err e = gw_config_ledger(c, &url, fault);
    if (e == SM_OK) {
        semel_options options = {.size = sizeof options,
                                 .url = c->ledger.p != NULL ? url.p : NULL,
                                 .contract_path = c->contract.p,
                                 .seal_key_path = c->seal_key.p};
        if (c->contract.p == NULL)
            options.contract = contract_text;
        e = semel_open(&options, &g->ledger, fault);
        fault->line = 0; /* a place in another file, which the text names */
    }
    /* It may hold a password. */
    if (url.p != NULL)
        explicit_bzero(url.p, url.cap);
    sm_buf_fini(&url);
    return e;
}

static sm_err start_all(whole *w, sm_str contract_text, sm_fault *fault)
{
    gateway *g = &w->g;
    const gw_config *c = g->config;
    sm_err e = gw_config_safe(c, fault);
    if (e == SM_OK)
        e = gw_metrics_new(&g->metrics);
    if (e == SM_OK)
        e = gw_tokens_open(c->tokens.p, &g->tokens, fault);
    if (e == SM_OK)
        e = open_ledger(g, contract_text, fault);
    if (e == SM_OK)
        e = sm_http_start(c->ca_file.p, &g->http, fault);
    if (e == SM_OK)
        e = sm_pool_new(WORKERS_MAX, &g->pool);
    if (e == SM_OK)
        e = sm_waits_new(g->ledger, &g->waits);
    if (e == SM_OK)
        e = gw_runs_start(g, &g->runs, fault);
    if (e == SM_OK)
        e = gw_stream_start(g, &g->stream, fault);
    if (e == SM_OK)
        e = gw_mcp_start(g, &g->mcp, fault);
    if (e != SM_OK)
        return e;
    sm_on_due(g->ledger, on_due, w);
    return gw_server_start(g, &g->server, fault);
}

sm_err gw_start(const gw_config *config, sm_str contract_text, gateway **out, sm_fault *fault)
{
    *out = NULL;
    *fault = (sm_fault){0};
    whole *w = calloc(1, sizeof *w);
    if (w == NULL || !gw_log_start()) {
        free(w);
        return sm_fault_set(fault, SEMEL_E_NOMEM, "out of memory, or of threads");
    }
    w->g.config = config;
    w->g.log = (gw_log){.rule = config->log, .fd = STDERR_FILENO};
    pthread_mutex_init(&w->due, NULL);
    sm_err e = start_all(w, contract_text, fault);
    if (e != SM_OK) {
        if (fault->text[0] == '\0')
            sm_fault_set(fault, e, "%s", semel_err_text(e));
        gw_stop(&w->g);
        return e;
    }
    *out = &w->g;
    return SM_OK;
}

sm_str gw_address(const gateway *g, uint32_t i)
{
    return gw_listen_address(g->server, i);
}

const gw_log *gw_log_of(const gateway *g)
{
    return &g->log;
}

gw_tokens *gw_tokens_of(gateway *g)
{
    return g->tokens;
}

/* ---- reading again ---------------------------------------------------------------------------*/

/* What cannot be called is warned about: everything else can. */
static void look_for_variables(gateway *g, sm_report *report)
{
    semel_answer *a = semel_answer_new();
    if (a != NULL)
        gw_contract_variables(sm_contracts_now(g->ledger, a), SM_WARNING, report);
    semel_answer_free(a);
}

static sm_err reload_contracts(gateway *g, sm_fault *fault)
{
    sm_str name = g->config->contract;
    sm_report report = {0};
    sm_buf text;
    sm_err e = sm_file_read(name.p, SM_CONTRACT_BYTES_MAX, &text, fault);
    if (e == SM_OK)
        e = sm_report_init(&report, sm_buf_view(&text));
    if (e == SM_OK)
        e = sm_contracts_replace(g->ledger, name, sm_buf_view(&text), &report, fault);
    if (e == SM_OK)
        look_for_variables(g, &report);
    gw_say_findings(&g->log, "contract", name, &report);
    if (e != SM_OK && fault->text[0] == '\0')
        sm_fault_set(fault, e, "%s: %s; the earlier contracts hold", name.p, semel_err_text(e));
    sm_report_fini(&report);
    sm_buf_fini(&text);
    return e;
}

sm_err gw_reload(gateway *g, const char **stays, sm_fault *fault)
{
    *fault = (sm_fault){0};
    *stays = "contracts and tokens";
    sm_err e = gw_tokens_refresh(g->tokens, fault);
    if (e == SM_OK && g->config->contract.p != NULL) {
        *stays = "contracts";
        e = reload_contracts(g, fault);
    }
    return e;
}

/* ---- stopping --------------------------------------------------------------------------------*/

/* Waits until all requests are over or the time is up; true if they are. */
static bool await_requests(gateway *g, int64_t deadline_ns)
{
    while (gw_server_busy(g->server) > 0) {
        if (sm_clock_mono_ns() >= deadline_ns)
            return false;
        usleep(LOOK_AGAIN_MS * 1000);
    }
    return true;
}

/* The time is up. Whoever waits is told; what becomes of the effects is told by the line of each,
 * when its exchange is cut short. */
static void give_up(gateway *g)
{
    char effects[24], requests[24];
    snprintf(effects, sizeof effects, "%zu", gw_runs_in_flight(g->runs));
    snprintf(requests, sizeof requests, "%zu", gw_server_busy(g->server));
    gw_log_field fields[] = {{"effects", sm_str_from(effects), true},
                             {"requests", sm_str_from(requests), true}};
    gw_say_fields(&g->log, GW_WARN, "not all has ended within the time to drain", fields,
                  sizeof fields / sizeof fields[0]);
    gw_server_give_up(g->server);
    await_requests(g, sm_clock_deadline_ns(TELL_MS));
}

static void drain(gateway *g)
{
    int64_t deadline = sm_clock_deadline_ns(g->config->drain_ms);
    gw_server_quiesce(g->server);
    gw_stream_quiesce(g->stream);
    gw_pass_quiesce(g);
    bool ended = gw_runs_drain(g->runs, deadline);
    gw_mcp_quiesce(g->mcp, deadline);
    if (!await_requests(g, deadline) || !ended)
        give_up(g);
}

void gw_stop(gateway *g)
{
    if (g == NULL)
        return;
    whole *w = SM_CONTAINER(g, whole, g);
    atomic_store(&g->draining, true);

    /* Whoever was being told of something left over has been; nobody is from now on. */
    pthread_mutex_lock(&w->due);
    pthread_mutex_unlock(&w->due);
    if (g->server != NULL)
        drain(g);
    gw_server_stop(g->server);
    sm_http_stop(g->http);
    if (g->runs != NULL)
        gw_runs_drain(g->runs, sm_clock_deadline_ns(LAST_MS));
    sm_pool_free(g->pool);
    gw_mcp_stop(g->mcp);
    sm_http_free(g->http);
    gw_stream_stop(g->stream);
    gw_runs_stop(g->runs);
    sm_waits_free(g->waits);
    semel_close(g->ledger);
    gw_tokens_close(g->tokens);
    gw_metrics_free(g->metrics);
    pthread_mutex_destroy(&w->due);
    free(w);
    gw_log_stop();
}
