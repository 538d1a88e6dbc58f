/*
 * Answers that go past libmicrohttpd: to requests that it refuses itself, and where it has no
 * memory for an answer or takes none any more.
 *
 * libmicrohttpd answers what it cannot read with a page of HTML. If the fault is in the query, the
 * cookies or Content-Length, it goes on reading afterwards and writes a second head. It has no
 * option against either. But it queues this page with a public function of its own, through the
 * dynamic linker. This program has a function of the same name, so that the library calls ours:
 *
 *     the client gets a problem, written to its socket here
 *     nothing more can be sent to it: the sending side of the socket is shut down
 *     the page is queued as it was to be; sending it fails, and libmicrohttpd closes the connection
 *
 * Refusing to queue the page would be wrong: libmicrohttpd frees the head's memory then, and reads
 * on in it. Our own answers go to the library's function (gw_queue). Where the linker has bound the
 * library to its own function, its pages go out as they are.
 *
 * Two kinds of bytes get no answer: a first line without a space, and what ends before its head.
 */
#include <dlfcn.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <sys/socket.h>

#include "api/problem.h"
#include "gateway/http/problem.h"
#include "gateway/http/server.h"

#define ANSWER_MAX ((size_t)64 << 10)

/* ---- past libmicrohttpd ----------------------------------------------------------------------*/

/* Sends all or nothing that anybody could rely on: the connection ends either way. The client waits
 * for it and has read all answers before, so that there is room for it. */
static void send_last(const gw_conn *c, sm_str text)
{
    const union MHD_ConnectionInfo *tls =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (tls != NULL) {
        gnutls_session_t session = tls->tls_session;
        (void)!gnutls_record_send(session, text.p, text.n);
        gnutls_bye(session, GNUTLS_SHUT_WR);
    } else {
        (void)!send(c->fd, text.p, text.n, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    shutdown(c->fd, SHUT_WR);
}

void gw_problem_last(gw_conn *c, int status, const char *code, const char *advice,
                     const char *message)
{
    sm_buf text, whole;
    sm_buf_init(&text, ANSWER_MAX);
    sm_buf_init(&whole, ANSWER_MAX);
    sm_problem_put(&text, status, code, sm_problem_retriable(code), 0, sm_str_from(message),
                   sm_str_from(advice));
    /* Without a first line nobody knows whether it is for an API. */
    if (c->request == NULL || c->request->r.proxied)
        gw_problem_add_error(&text, code, sm_str_from(message), sm_str_from(advice));
    sm_buf_printf(&whole,
                  "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\n"
                  "Content-Length: %zu\r\nCache-Control: no-store\r\n"
                  "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n",
                  status, MHD_get_reason_phrase_for((unsigned)status), text.len);
    sm_buf_str(&whole, sm_buf_view(&text));
    if (whole.err == SM_OK)
        send_last(c, sm_buf_view(&whole));
    c->linger = true;
    if (c->request != NULL) {
        c->request->status = status;
        c->request->code = code;
    }
    sm_buf_fini(&whole);
    sm_buf_fini(&text);
}

/* A connection that has little memory takes less than a new one might. */
static void refuse_long(gw_conn *c, int status)
{
    gw_problem_last(c, status, "TOO_LARGE",
                    c->roomy ? "Send fewer or shorter headers, or a shorter path or query."
                             : "Send it again on a new connection. If that does not help, send "
                               "fewer or shorter headers, or a shorter path or query.",
                    c->roomy ? "the head of the request has more than 32 KiB, or too many parts"
                             : "the head of the request is too long for this connection");
}

void gw_refuse_head(gw_conn *c)
{
    refuse_long(c, 431);
}

/* ---- what it refuses -------------------------------------------------------------------------*/

/* What a request that cannot be read did wrong, by how far it came. */
static const char *misread(const gw_inner *q, bool whole)
{
    return q == NULL ? "the first line is not METHOD TARGET HTTP/1.1"
           : !whole  ? "a line of the head is not NAME: VALUE"
           : gw_stage_of(q) == GW_AT_HEAD
               ? "Content-Length is not a number of bytes"
               : "a chunk of the body, or what follows the last one, is malformed";
}

static void refuse(gw_conn *c, unsigned status)
{
    const union MHD_ConnectionInfo *head =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    bool whole = head != NULL && head->header_size > 0;
    switch (status) {
    case MHD_HTTP_CONTENT_TOO_LARGE:
        gw_problem_last(c, 413, "TOO_LARGE", "Send less, or raise limits.body.",
                        "the body, or a chunk of it, is longer than a number can say");
        break;
    case MHD_HTTP_URI_TOO_LONG:
    case MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE: refuse_long(c, (int)status); break;
    case MHD_HTTP_HTTP_VERSION_NOT_SUPPORTED:
        gw_problem_last(c, 505, "UNSUPPORTED", "Use HTTP/1.1.",
                        "this speaks HTTP/1.0 and HTTP/1.1");
        break;
    default:
        gw_problem_last(c, 400, "BAD_ARGUMENTS", "Send a request that means one thing only.",
                        misread(c->request, whole));
    }
}

typedef enum MHD_Result queue_fn(struct MHD_Connection *, unsigned, struct MHD_Response *);

static queue_fn *theirs;

static void find_theirs(void)
{
    *(void **)&theirs = dlsym(RTLD_NEXT, "MHD_queue_response");
}

enum MHD_Result gw_queue(struct MHD_Connection *c, unsigned status, struct MHD_Response *answer)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_theirs);
    return theirs != NULL ? theirs(c, status, answer) : MHD_NO;
}

/* libmicrohttpd calls this for its own pages. */
__attribute__((visibility("default"), used)) enum MHD_Result
MHD_queue_response(struct MHD_Connection *c, unsigned status, struct MHD_Response *page)
{
    gw_conn *conn = gw_conn_of(c);
    if (conn != NULL)
        refuse(conn, status);
    return gw_queue(c, status, page);
}
