/*
 * A client leaves its session with a server over HTTP (DELETE).
 *
 * A server that ends a session also ends the calls in it, and a write would be in doubt. So while a
 * write is running, the client gets its answer at once, and the server gets the DELETE when the
 * call has ended, or after its lease (talk.c). If no write is running, the server gets it
 * now, and the client gets the server's status.
 */
#include "gateway/mcp/mcp.h"

#include <stdlib.h>

#include "mcp/fetch.h"

#define LEAVE_MS 4000 /* less than the loop goes on for, when the gateway is being stopped */

struct gw_leaving {
    mcp_loop *loop;
    mcp_channel *c; /* whose client waits for the status; NULL: nobody does */
    int status;
    sm_arena arena; /* of the request */
    sm_http_request request;
};

static void on_head(void *context, int status, const sm_http_field *headers, size_t n)
{
    (void)headers, (void)n;
    ((gw_leaving *)context)->status = status;
}

static void on_data(void *context, sm_str piece)
{
    (void)context, (void)piece;
}

static void leaving_free(gw_leaving *l)
{
    sm_arena_fini(&l->arena);
    free(l);
}

static void on_done(void *context, const sm_http_result *res)
{
    gw_leaving *l = context;
    (void)res;
    mcp_loop_keep(l->loop, -1);
    if (l->c != NULL) {
        l->c->leaving = NULL;
        gw_channel_bare(l->c, l->status != 0 ? l->status : 502);
    }
    leaving_free(l);
}

/* Sends the DELETE. The loop goes on until the server has answered: the client may wait for that.
 */
static void send(gw_site *site, gw_leaving *l)
{
    l->loop = site->all->hub.loop;
    mcp_loop_keep(l->loop, 1);
    mcp_fetch_events events = {on_head, on_data, on_done, l};
    mcp_fetch *x;
    sm_http_result none = {0};
    if (mcp_fetch_start(l->loop, site->all->g->http, &l->request, 0, &events, &x) != SM_OK)
        on_done(l, &none);
}

/* The request, kept for later. */
static gw_leaving *leaving_new(const mcp_channel *c)
{
    gw_leaving *l = calloc(1, sizeof *l);
    if (l == NULL)
        return NULL;
    sm_arena_init(&l->arena, (size_t)1 << 20);
    sm_http_field *headers = sm_arena_zalloc(&l->arena, c->header_count, sizeof *headers);
    for (size_t i = 0; headers != NULL && i < c->header_count; i++)
        headers[i] = (sm_http_field){sm_arena_text(&l->arena, c->headers[i].name),
                                     sm_arena_text(&l->arena, c->headers[i].value)};
    sm_str url = sm_arena_text(&l->arena, c->site->config->url);
    if (headers == NULL || url.p == NULL) {
        leaving_free(l);
        return NULL;
    }
    l->request = (sm_http_request){.method = "DELETE",
                                   .url = url,
                                   .headers = headers,
                                   .header_count = c->header_count,
                                   .timeout_ms = LEAVE_MS};
    return l;
}

gw_talk *gw_leave(mcp_channel *c)
{
    gw_talk *t = gw_talk_writing(c);
    if (t != NULL && t->over) {
        gw_channel_error(c, 404, -32001, "Session not found");
        return NULL;
    }
    gw_leaving *l = leaving_new(c);
    if (l == NULL) {
        gw_channel_error(c, 503, -32603, "The gateway is out of memory.");
        return NULL;
    }
    if (t != NULL) {
        t->leaving = l;
        return t;
    }
    l->c = c;
    c->leaving = l;
    send(c->site, l);
    return NULL;
}

void gw_leave_now(gw_talk *t)
{
    gw_leaving *l = t->leaving;
    t->leaving = NULL;
    if (l != NULL && !t->site->all->stopping)
        send(t->site, l);
    else if (l != NULL)
        leaving_free(l);
}

void gw_leave_alone(mcp_channel *c)
{
    if (c->leaving != NULL)
        c->leaving->c = NULL;
    c->leaving = NULL;
}
