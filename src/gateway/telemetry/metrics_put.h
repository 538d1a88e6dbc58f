/* The counters' insides: what metrics.c counts and metrics_put.c writes. */
#ifndef SM_GATEWAY_TELEMETRY_METRICS_PUT_H
#define SM_GATEWAY_TELEMETRY_METRICS_PUT_H

#include <pthread.h>
#include <stdatomic.h>

#include "gateway/telemetry/metrics.h"

#define GW_COPIES          8u
#define GW_METRIC_TOOLS    129u /* the last one is all others */
#define GW_REQUEST_BOUNDS  13u
#define GW_EXCHANGE_BOUNDS 11u
#define GW_BOUNDS_MAX      13u

extern const int64_t gw_request_bounds_us[GW_REQUEST_BOUNDS];
extern const int64_t gw_exchange_bounds_us[GW_EXCHANGE_BOUNDS];

typedef atomic_uint_fast64_t gw_metric;

typedef struct gw_histogram {
    gw_metric in[GW_BOUNDS_MAX + 1]; /* up to each bound, and beyond the last */
    gw_metric sum_us;
} gw_histogram;

/* One copy of the counters. */
typedef struct gw_counters {
    _Alignas(64) gw_metric requests[GW_ROUTES_MAX + 1][6]; /* by route and hundreds of the status */
    gw_histogram took[GW_ROUTES_MAX + 1];
    gw_metric verdicts[4];
    gw_metric refused[SEMEL_C_COUNT];
    gw_histogram exchanges;
} gw_counters;

/* How an exchange with an upstream ended. */
typedef enum gw_exchange_end {
    GW_X_NOT_SENT, /* not a byte of it left */
    GW_X_LOST,     /* sent, and no whole answer came */
    GW_X_TIMEOUT,
    GW_X_1XX,
    GW_X_2XX,
    GW_X_3XX,
    GW_X_4XX,
    GW_X_5XX,
    GW_X_COUNT
} gw_exchange_end;

typedef struct gw_tool_counters {
    char *name; /* NULL: nobody's yet */
    uint64_t ends[GW_X_COUNT];
} gw_tool_counters;

struct gw_metrics {
    gw_counters copies[GW_COPIES];

    pthread_mutex_t tools_lock;
    gw_tool_counters tools[GW_METRIC_TOOLS];

    pthread_mutex_t stats_lock;
    pthread_cond_t stats_known;
    semel_stats stats;
    sm_err stats_err;
    char stats_why[SEMEL_FAULT_TEXT_MAX];
    int64_t stats_ns; /* when it was asked; 0: never */
    bool stats_asking;
};

#endif
