/*
 * The HTTP client: many exchanges at once on one thread, and for each the knowledge of what was on
 * the wire when it ended.
 *
 * What an exchange proves depends on whether any byte of the request may have left this machine.
 * libcurl silently sends a request again when a reused connection dies before the first byte of the
 * answer; for writes that is prevented, so that one exchange is at most one request.
 *
 * Names and passwords in URLs, environment proxies, cookies, .netrc and redirects are not used.
 * Certificates are verified. Only http and https.
 *
 * Threads: everything may be called from any thread. Callbacks are made on the client's own thread
 * and must not block; they may start exchanges.
 */
#ifndef SM_UPSTREAM_HTTP_H
#define SM_UPSTREAM_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/header.h"
#include "base/str.h"

typedef struct sm_http sm_http;
typedef struct sm_http_exchange sm_http_exchange;

typedef struct sm_http_request {
    const char *method;
    sm_str url; /* absolute and percent-encoded; sent as it is */
    const sm_http_field *headers;
    size_t header_count;
    sm_str body;        /* absent: none */
    int64_t timeout_ms; /* for all of it; connecting gets at most 10 s of it */
    bool write;         /* may change the world: sent at most once */
    size_t body_max;    /* bytes of the answer's body that are kept */
    bool trickle;       /* see sm_http_data_fn: the body is passed on and not kept; the time is for
                           the head, and afterwards for silence */
} sm_http_request;

typedef struct sm_http_result {
    bool sent;     /* at least one byte of the request may have left */
    bool complete; /* a whole answer came, or one whose body is larger than was to be kept */
    bool timed_out;
    int status; /* 0: not even a status line came */
    const sm_http_field *headers;
    size_t header_count;
    sm_str body;
    bool cut;          /* the body was larger than body_max: here is how it begins */
    const char *error; /* incomplete: why, for people; holds no secret */
    int64_t took_ms;
} sm_http_result;

/* The end of an exchange; called exactly once for each, also at the end of the client. What the
 * result points at is borrowed until the function returns. */
typedef void sm_http_done_fn(void *context, const sm_http_result *r);

/* For `trickle`: the head of the answer, and then its body piece by piece. The result has status
 * and headers. `head` returning false: the body is kept, as without `trickle`, and the time is for
 * all of it. `data` returning false pauses the exchange, and that piece is given again after
 * sm_http_resume. */
typedef bool sm_http_head_fn(void *context, const sm_http_result *head);
typedef bool sm_http_data_fn(void *context, sm_str piece);

typedef struct sm_http_callbacks {
    sm_http_done_fn *done;
    sm_http_head_fn *head; /* trickle only */
    sm_http_data_fn *data; /* trickle only */
    void *context;
} sm_http_callbacks;

/* `ca_file`: certificates to trust instead of the system's; NULL: the system's. */
sm_err sm_http_start(const char *ca_file, sm_http **out, sm_fault *fault);

/* Ends all exchanges (done is called for each) and the thread. From then on it refuses to send.
 * Whoever may still try to has ended before it is freed. Both accept NULL. */
void sm_http_stop(sm_http *h);
void sm_http_free(sm_http *h); /* after sm_http_stop */

/* Starts an exchange after a pause. The request is copied. On failure nothing was sent, and `done`
 * is not called: SEMEL_E_INVALID for a URL or header that is not to be sent (see base/url.h and
 * base/header.h; also headers about framing, which the client writes itself), SEMEL_E_UNAVAILABLE
 * once it is stopping. *out, if not NULL, names the exchange until `done` returns. */
sm_err sm_http_send(sm_http *h, const sm_http_request *request, int64_t pause_ms,
                    const sm_http_callbacks *callbacks, sm_http_exchange **out);

/* Go on after a pause; give up. Only between send and the return of `done`: whoever calls them from
 * another thread keeps `done` waiting meanwhile, with a lock of its own. */
void sm_http_resume(sm_http_exchange *x);
void sm_http_cancel(sm_http_exchange *x);

/* How many exchanges are under way. */
size_t sm_http_under_way(sm_http *h);

#endif
