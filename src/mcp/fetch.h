/*
 * One HTTP exchange as the loop sees it: its head, its body piece by piece, and its end, all told
 * on the loop's thread.
 *
 *     HTTP thread  --- head, bytes, end --->  [ between the threads ]  --- mailbox --->  loop
 *
 * What is between the threads is bounded: when the loop is behind, the exchange is paused, and with
 * it whoever sends. An exchange that nobody wants any more is dropped; it frees itself when it has
 * come back from the HTTP thread. So the HTTP client has to be stopped before the loop is freed.
 */
#ifndef SM_MCP_FETCH_H
#define SM_MCP_FETCH_H

#include "mcp/loop.h"
#include "upstream/http.h"

#define MCP_BETWEEN_MAX ((size_t)128 << 10) /* bytes between the threads, for each exchange */

typedef struct mcp_fetch mcp_fetch;

/* Borrowed until the function that is told returns. Each of them may drop the exchange. */
typedef struct mcp_fetch_events {
    void (*head)(void *context, int status, const sm_http_field *headers, size_t n);
    void (*data)(void *context, sm_str piece);

    /* The last that is told; the exchange is gone then. `r` has sent, complete, timed_out, status
     * and error. */
    void (*done)(void *context, const sm_http_result *r);
    void *context;
} mcp_fetch_events;

/* Starts one after a pause. `r` is copied, and its body comes by and by (trickle). Nothing is told
 * before this returns. On failure nothing was sent and nothing will be told: as sm_http_send. */
sm_err mcp_fetch_start(mcp_loop *loop, sm_http *http, const sm_http_request *r, int64_t pause_ms,
                       const mcp_fetch_events *events, mcp_fetch **out);

/* Nothing is told for now, or again: what comes stays between the threads. Accepts NULL. */
void mcp_fetch_hold(mcp_fetch *x, bool held);

/* Nothing more is told. `give_up`: it is ended where it is; else it goes on without anybody.
 * Accepts NULL. */
void mcp_fetch_drop(mcp_fetch *x, bool give_up);

#endif
