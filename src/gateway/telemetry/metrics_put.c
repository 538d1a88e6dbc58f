/*
 * GET /metrics: everything that is counted, in the text format of Prometheus (0.0.4).
 *
 * A family is its help, its type and its samples, in one piece. Bounds are in microseconds, for
 * clients in seconds.
 */
#include "gateway/telemetry/metrics_put.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/utf8.h"
#include "gateway/api/api.h"
#include "gateway/run/run.h"

#define TEXT_MAX ((size_t)4 << 20)

const int64_t gw_request_bounds_us[GW_REQUEST_BOUNDS] = {
    100, 250, 500, 1000, 2500, 5000, 10000, 50000, 100000, 500000, 1000000, 5000000, 30000000};
const int64_t gw_exchange_bounds_us[GW_EXCHANGE_BOUNDS] = {
    1000, 5000, 10000, 25000, 50000, 100000, 250000, 1000000, 5000000, 15000000, 60000000};

/* ---- the format ------------------------------------------------------------------------------*/

static void family(sm_buf *out, const char *name, const char *type, const char *help)
{
    sm_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void sample(sm_buf *out, const char *name, uint64_t value)
{
    sm_buf_printf(out, "%s %llu\n", name, (unsigned long long)value);
}

static void gauge(sm_buf *out, const char *name, const char *help, uint64_t value)
{
    family(out, name, "gauge", help);
    sample(out, name, value);
}

static void counter(sm_buf *out, const char *name, const char *help, uint64_t value)
{
    family(out, name, "counter", help);
    sample(out, name, value);
}

/* A label's value: backslash, quote and line feed are escaped; other control characters, which no
 * name of a tool has, are left out. */
static void put_label(sm_buf *out, sm_str value)
{
    for (size_t i = 0; i < value.n; i++) {
        char c = value.p[i];
        if (c == '\\' || c == '"')
            sm_buf_byte(out, '\\');
        if ((unsigned char)c >= 0x20)
            sm_buf_byte(out, c);
    }
}

static void put_seconds(sm_buf *out, uint64_t us)
{
    sm_buf_printf(out, "%llu.%06llu", (unsigned long long)(us / 1000000),
                  (unsigned long long)(us % 1000000));
}

/* One histogram's samples. `label` is empty or one label with a comma behind it. */
static void put_histogram(sm_buf *out, const char *name, const char *label, const uint64_t *in,
                          uint64_t sum_us, const int64_t *bounds_us, size_t count)
{
    uint64_t below = 0;
    int bare = (int)strlen(label) - (*label != '\0');
    const char *open = *label != '\0' ? "{" : "", *close = *label != '\0' ? "}" : "";
    for (size_t i = 0; i < count; i++) {
        below += in[i];
        sm_buf_printf(out, "%s_bucket{%sle=\"%g\"} %llu\n", name, label, (double)bounds_us[i] / 1e6,
                      (unsigned long long)below);
    }
    below += in[count];
    sm_buf_printf(out, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, label, (unsigned long long)below);
    sm_buf_printf(out, "%s_sum%s%.*s%s ", name, open, bare, label, close);
    put_seconds(out, sum_us);
    sm_buf_printf(out, "\n%s_count%s%.*s%s %llu\n", name, open, bare, label, close,
                  (unsigned long long)below);
}

/* ---- counters --------------------------------------------------------------------------------*/

/* The sum of a counter over all copies; `of` is it in the first. */
static uint64_t total(const gw_metrics *m, const gw_metric *of)
{
    uint64_t sum = 0;
    size_t offset = (size_t)((const char *)of - (const char *)&m->copies[0]);
    for (size_t i = 0; i < GW_COPIES; i++) {
        const void *at = (const char *)&m->copies[i] + offset;
        sum += atomic_load_explicit((const gw_metric *)at, memory_order_relaxed);
    }
    return sum;
}

static void put_sums(sm_buf *out, const gw_metrics *m, const char *name, const char *label,
                     const gw_histogram *h, const int64_t *bounds_us, size_t count)
{
    uint64_t in[GW_BOUNDS_MAX + 1], all = 0;
    for (size_t i = 0; i <= count; i++)
        all += in[i] = total(m, &h->in[i]);
    if (all > 0)
        put_histogram(out, name, label, in, total(m, &h->sum_us), bounds_us, count);
}

static const char *route_name(size_t i)
{
    return i < gw_route_count ? gw_routes[i].path : "none";
}

static const char *route_method(size_t i)
{
    bool any = i >= gw_route_count || (gw_routes[i].flags & GW_ANY_METHOD) != 0;
    return any ? "any" : sm_methods[gw_routes[i].method].name;
}

static void put_requests(sm_buf *out, const gw_metrics *m)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    const gw_counters *c = &m->copies[0];
    family(out, "semel_http_requests_total", "counter", "Requests answered.");
    for (size_t i = 0; i <= GW_ROUTES_MAX; i++) {
        for (size_t k = 0; k < 6; k++) {
            uint64_t n = total(m, &c->requests[i][k]);
            if (n > 0)
                sm_buf_printf(out,
                              "semel_http_requests_total{route=\"%s\",method=\"%s\",status=\"%s\"}"
                              " %llu\n",
                              route_name(i), route_method(i), classes[k], (unsigned long long)n);
        }
    }
    family(out, "semel_http_request_duration_seconds", "histogram",
           "From a request's first byte to its answer.");
    for (size_t i = 0; i <= GW_ROUTES_MAX; i++) {
        char label[128];
        snprintf(label, sizeof label, "route=\"%s\",", route_name(i));
        put_sums(out, m, "semel_http_request_duration_seconds", label, &c->took[i],
                 gw_request_bounds_us, GW_REQUEST_BOUNDS);
    }
}

static void put_answers(sm_buf *out, const gw_metrics *m)
{
    const gw_counters *c = &m->copies[0];
    family(out, "semel_answers_total", "counter",
           "What those who asked for a call were told; code says why it was refused.");
    sm_buf_printf(out, "semel_answers_total{verdict=\"execute\",code=\"\"} %llu\n",
                  (unsigned long long)total(m, &c->verdicts[SEMEL_EXECUTE]));
    sm_buf_printf(out, "semel_answers_total{verdict=\"replay\",code=\"\"} %llu\n",
                  (unsigned long long)total(m, &c->verdicts[SEMEL_REPLAY]));
    for (int i = 0; i < SEMEL_C_COUNT; i++) {
        uint64_t n = total(m, &c->refused[i]);
        if (n > 0)
            sm_buf_printf(out, "semel_answers_total{verdict=\"refused\",code=\"%s\"} %llu\n",
                          semel_code_name((semel_code)i), (unsigned long long)n);
    }
}

static void put_exchanges(sm_buf *out, gw_metrics *m)
{
    static const char *const ends[GW_X_COUNT] = {"not_sent", "lost", "timeout", "1xx",
                                                 "2xx",      "3xx",  "4xx",     "5xx"};
    family(out, "semel_upstream_exchanges_total", "counter",
           "Requests to upstreams by how they ended; lost is sent without a whole answer.");
    pthread_mutex_lock(&m->tools_lock);
    for (size_t i = 0; i < GW_METRIC_TOOLS; i++) {
        const gw_tool_counters *t = &m->tools[i];
        for (size_t k = 0; k < GW_X_COUNT; k++) {
            if (t->ends[k] == 0)
                continue;
            sm_buf_text(out, "semel_upstream_exchanges_total{tool=\"");
            put_label(out, t->name == NULL ? SM_STR("other") : sm_str_from(t->name));
            sm_buf_printf(out, "\",result=\"%s\"} %llu\n", ends[k], (unsigned long long)t->ends[k]);
        }
    }
    pthread_mutex_unlock(&m->tools_lock);
    family(out, "semel_upstream_exchange_duration_seconds", "histogram",
           "How long requests to upstreams took.");
    put_sums(out, m, "semel_upstream_exchange_duration_seconds", "", &m->copies[0].exchanges,
             gw_exchange_bounds_us, GW_EXCHANGE_BOUNDS);
}

/* ---- the gateway, the ledger, the process ----------------------------------------------------*/

static void put_gateway(sm_buf *out, gateway *g)
{
    family(out, "semel_build_info", "gauge", "The version that runs.");
    sm_buf_printf(out, "semel_build_info{version=\"%s\"} 1\n", semel_version());
    gauge(out, "semel_runs_in_flight", "Calls that are being executed.",
          gw_runs_in_flight(g->runs));
    gauge(out, "semel_requests_parked", "Requests that wait for somebody else's attempt.",
          sm_waits_parked(g->waits));
    gauge(out, "semel_upstream_exchanges_in_flight", "Requests to upstreams under way.",
          sm_http_under_way(g->http));
    gauge(out, "semel_worker_queue", "Jobs that no worker has taken yet.",
          sm_pool_waiting(g->pool));
    gauge(out, "semel_http_connections", "Open connections of clients.",
          gw_server_connections(g->server));
    gauge(out, "semel_event_streams", "Open streams of events.", gw_stream_count(g->stream));
    gauge(out, "semel_draining", "1 while the gateway ends.", atomic_load(&g->draining));
}

static void put_ledger(sm_buf *out, gateway *g)
{
    semel_stats s;
    sm_fault fault;
    bool up = gw_ledger_stats(g, &s, &fault) == SM_OK;
    gauge(out, "semel_ledger_up", "1 if the ledger takes writes.", up);
    if (!up)
        return;
    const semel_health *h = &s.store;
    gauge(out, "semel_ledger_records", "Effects on record, about.", h->records);
    family(out, "semel_ledger_effects", "gauge", "Effects that are not settled, by state.");
    for (int i = SEMEL_S_PENDING; i < SEMEL_S_SUCCEEDED; i++)
        sm_buf_printf(out, "semel_ledger_effects{state=\"%s\"} %llu\n",
                      semel_state_name((semel_state)i), (unsigned long long)h->in_state[i]);
    gauge(out, "semel_ledger_size_bytes", "What the ledger takes.", h->bytes);
    gauge(out, "semel_ledger_last_event", "Number of the newest event.", h->last_seq);
    gauge(out, "semel_ledger_unsealed_events", "Events after the newest seal.",
          h->last_seq > h->seal_seq ? h->last_seq - h->seal_seq : 0);
    if (h->seal_at > 0) {
        family(out, "semel_ledger_sealed_timestamp_seconds", "gauge",
               "When the newest seal was made.");
        sm_buf_printf(out, "semel_ledger_sealed_timestamp_seconds %lld.%03lld\n",
                      (long long)(h->seal_at / 1000), (long long)(h->seal_at % 1000));
    }
    counter(out, "semel_ledger_begins_total", "Calls that this process asked the ledger about.",
            s.begins);
    counter(out, "semel_ledger_executes_total", "Of these, that were to run.", s.executes);
    counter(out, "semel_ledger_replays_total", "Of these, that had an answer already.", s.replays);
    counter(out, "semel_ledger_refused_total", "Of these, that were refused.", s.refused);
    counter(out, "semel_ledger_commits_total", "Outcomes recorded.", s.commits);
}

static uint64_t open_files(void)
{
    uint64_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (d == NULL)
        return 0;
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n > 3 ? n - 3 : 0; /* the two dots, and the directory itself */
}

static void put_process(sm_buf *out)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        if (fscanf(f, "%llu %llu", &size, &resident) != 2)
            resident = 0;
        fclose(f);
    }
    struct rusage used = {0};
    struct rlimit files = {0};
    getrusage(RUSAGE_SELF, &used);
    getrlimit(RLIMIT_NOFILE, &files);
    gauge(out, "process_resident_memory_bytes", "Resident memory.",
          resident * (uint64_t)sysconf(_SC_PAGESIZE));
    gauge(out, "process_open_fds", "Open file descriptors.", open_files());
    gauge(out, "process_max_fds", "The most that may be open.", files.rlim_cur);
    family(out, "process_cpu_seconds_total", "counter", "Time of processors that was used.");
    sm_buf_text(out, "process_cpu_seconds_total ");
    put_seconds(out, ((uint64_t)used.ru_utime.tv_sec + (uint64_t)used.ru_stime.tv_sec) * 1000000 +
                         (uint64_t)used.ru_utime.tv_usec + (uint64_t)used.ru_stime.tv_usec);
    sm_buf_byte(out, '\n');
}

static void metrics(gw_request *r, semel_answer *a)
{
    gateway *g = r->g;
    sm_buf out;
    sm_buf_init(&out, TEXT_MAX);
    put_gateway(&out, g);
    put_requests(&out, g->metrics);
    put_answers(&out, g->metrics);
    put_exchanges(&out, g->metrics);
    put_ledger(&out, g);
    put_process(&out);
    if (out.err == SM_OK)
        gw_reply(r, 200, "text/plain; version=0.0.4; charset=utf-8", sm_buf_view(&out));
    else
        gw_reply_fault(r, a, out.err, &(sm_fault){0});
    sm_buf_fini(&out);
}

void gw_on_metrics(gw_request *r)
{
    gw_work(r, metrics);
}
