/* A counter behind a libmicrohttpd of its own, with one thread. */
#include "gateway/demo.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "json/canon.h"
#include "json/json.h"

#define BODY_MAX 65536u

struct gw_demo {
    struct MHD_Daemon *daemon;
    uint64_t charges; /* its only thread counts */
};

/* What a charge was for, as it was sent; null if that cannot be told. */
static void put_order(sm_buf *out, sm_str body)
{
    sm_arena arena;
    const sm_json *root;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_err e = sm_json_read(&arena, body, &sm_json_default_limits, &root, NULL);
    const sm_json *order = e == SM_OK ? sm_json_find(root, SM_STR("order_id")) : NULL;
    if (order == NULL || sm_json_canon(order, out, (sm_str){0}, NULL) != SM_OK)
        sm_buf_text(out, "null");
    sm_arena_fini(&arena);
}

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const sm_buf *body)
{
    struct MHD_Response *r =
        MHD_create_response_from_buffer(body->len, body->p, MHD_RESPMEM_MUST_COPY);
    if (r == NULL)
        return MHD_NO;
    MHD_add_response_header(r, "Content-Type", "application/json");
    enum MHD_Result done = MHD_queue_response(connection, status, r);
    MHD_destroy_response(r);
    return done;
}

static enum MHD_Result answer(gw_demo *d, struct MHD_Connection *connection, const char *url,
                              const char *method, const sm_buf *body)
{
    bool post = strcmp(method, "POST") == 0;
    bool known = strcmp(url, "/charge") == 0 && (post || strcmp(method, "GET") == 0);
    sm_buf out;
    sm_buf_init(&out, 2 * BODY_MAX);
    if (!known) {
        sm_buf_text(&out, "{\"error\":\"there is only /charge\"}\n");
    } else if (post) {
        d->charges++;
        sm_buf_printf(&out,
                      "{\"charge\":\"ch_%llu\",\"order_id\":", (unsigned long long)d->charges);
        put_order(&out, sm_buf_view(body));
        sm_buf_printf(&out, ",\"charges_so_far\":%llu}\n", (unsigned long long)d->charges);
    } else {
        sm_buf_printf(&out, "{\"charges_so_far\":%llu}\n", (unsigned long long)d->charges);
    }
    enum MHD_Result done = out.err == SM_OK ? reply(connection, known ? 200 : 404, &out) : MHD_NO;
    sm_buf_fini(&out);
    return done;
}

/* Called once for the head of a request, for each piece of its body, and at its end. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *http_version, const char *piece,
                                  size_t *piece_bytes, void **own)
{
    (void)http_version;
    sm_buf *body = *own;
    if (body == NULL) {
        body = *own = calloc(1, sizeof *body);
        if (body != NULL)
            sm_buf_init(body, BODY_MAX);
        return body != NULL ? MHD_YES : MHD_NO;
    }
    if (*piece_bytes == 0)
        return answer(context, connection, url, method, body);
    sm_buf_bytes(body, piece, *piece_bytes);
    *piece_bytes = 0;
    return body->err == SM_OK ? MHD_YES : MHD_NO;
}

static void on_end(void *context, struct MHD_Connection *connection, void **own,
                   enum MHD_RequestTerminationCode why)
{
    (void)context, (void)connection, (void)why;
    if (*own != NULL)
        sm_buf_fini(*own);
    free(*own);
    *own = NULL;
}

sm_err gw_demo_start(gw_demo **out, uint16_t *port, sm_fault *fault)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    gw_demo *d = *out = calloc(1, sizeof *d);
    if (d != NULL)
        d->daemon =
            MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL, 0, NULL, NULL,
                             on_request, d, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&here,
                             MHD_OPTION_NOTIFY_COMPLETED, on_end, NULL, MHD_OPTION_CONNECTION_LIMIT,
                             64u, MHD_OPTION_CONNECTION_TIMEOUT, 60u, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        d == NULL || d->daemon == NULL ? NULL
                                       : MHD_get_daemon_info(d->daemon, MHD_DAEMON_INFO_BIND_PORT);
    if (info != NULL) {
        *port = info->port;
        return SM_OK;
    }
    gw_demo_stop(d);
    *out = NULL;
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                        "no port of 127.0.0.1 could be had for the demonstration's upstream");
}

void gw_demo_stop(gw_demo *d)
{
    if (d == NULL)
        return;
    if (d->daemon != NULL)
        MHD_stop_daemon(d->daemon);
    free(d);
}

void gw_demo_contract(uint16_t port, char *out, size_t room)
{
    snprintf(out, room,
             "version: 1\n"
             "tools:\n"
             "  demo.charge:\n"
             "    class: irreversible\n"
             "    description: Charges a card that does not exist.\n"
             "    key: { fields: [/order_id], match: [/amount] }\n"
             "    input: { type: object, required: [order_id, amount] }\n"
             "    upstream: { url: 'http://127.0.0.1:%u/charge' }\n"
             "    loop: off\n", /* its lines may be pasted again and again */
             port);
}
