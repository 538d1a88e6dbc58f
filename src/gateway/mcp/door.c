/*
 * Requests of MCP clients over HTTP: which of them are ours, what is asked of them, and whose they
 * are.
 *
 * On the server's threads it is decided where a request goes: to the loop, or past it, as it is, to
 * a server over HTTP. There whatever could be a call of a tool goes to the loop, also what only
 * some readers would take for one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/clock.h"
#include "base/header.h"
#include "gateway/mcp/mcp.h"
#include "gateway/mcp/modern.h"
#include "gateway/proxy/forward.h"
#include "gateway/proxy/pass.h"
#include "gateway/proxy/proxy.h"
#include "gateway/run/run.h"

#define ARENA_BYTES ((size_t)1 << 20)

/* ---- on the loop -----------------------------------------------------------------------------*/

/* What a client of a session may say that it speaks. */
static bool known_version(sm_str version)
{
    static const char *const known[] = {MCP_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05",
                                        "2024-10-07"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (sm_str_is(version, known[i]))
            return true;
    return version.p == NULL;
}

/* Whether a batch asks for anything. */
static bool asks(sm_str batch)
{
    size_t cursor = 0;
    sm_str name, item;
    mcp_message m;
    while (sm_raw_next(batch, &cursor, &name, &item))
        if (!mcp_read_client(item, &m) || m.kind == MCP_REQUEST)
            return true;
    return false;
}

/* Whether a message may go on. If not, it is answered. */
static bool check(mcp_channel *c, mcp_message *m)
{
    sm_buf out;
    bool understood = mcp_read_client(sm_buf_view(&c->body), m);
    c->id = m->kind == MCP_REQUEST || m->kind == MCP_INVALID ? m->id : (sm_str){0};
    if (!understood) {
        gw_channel_error(c, 400, m->code, m->flaw);
        return false;
    }
    sm_buf_init(&out, 4096 + MCP_ID_MAX + m->params.n);
    int status = gw_modern_check(c, m, &out);
    if (status != 0)
        gw_channel_answer(c, status, sm_buf_view(&out));
    sm_buf_fini(&out);
    if (status == 0 && c->site->argv != NULL && !gw_channel_modern(c) &&
        !known_version(c->version)) {
        status = 400;
        gw_channel_error(c, status, -32000, "Bad Request: Unsupported protocol version");
    }
    return status == 0;
}

/* A request that its client has cancelled gets no answer: what carries it is ended. */
static void end_canceled(gw_talk *t, const mcp_message *m)
{
    sm_str id;
    if (t->id[0] == '\0' || !sm_raw_find(m->params, "requestId", &id))
        return;
    for (mcp_channel *c = t->channels, *next; c != NULL; c = next) {
        next = c->next;
        char own[MCP_ID_MAX + 2], named[MCP_ID_MAX + 2];
        if (c->id.p == NULL || !sm_str_eq(mcp_id_key(c->id, own), mcp_id_key(id, named)))
            continue;
        mcp_session_gone(t->session, c, false);
        gw_channel_end(c);
    }
}

static void on_post(mcp_channel *c)
{
    mcp_message m;
    if (!check(c, &m))
        return;
    gw_talk *t = gw_talk_for(c, &m);
    if (t == NULL)
        return;
    if (t->lost) {
        gw_talk_end(t);
        gw_channel_error(c, 404, -32001, "Session not found");
        return;
    }
    if (t->paused && m.kind != MCP_RESULT && m.kind != MCP_ERROR) {
        gw_channel_error(c, 503, -32603, "The server takes no more for now; nothing was done.");
        return;
    }
    bool answered = m.kind == MCP_REQUEST || (m.kind == MCP_BATCH && asks(m.text));
    t->used_ns = sm_clock_mono_ns();
    if (c->kind == GW_CH_MODERN && strcmp(m.method, "subscriptions/listen") == 0)
        gw_channel_is(c, GW_CH_SUBSCRIPTION);
    if (answered)
        gw_talk_join(t, c);
    mcp_session_from_client(t->session, m.text, answered ? c : NULL, c->headers, c->header_count);
    if (m.kind == MCP_NOTIFICATION && strcmp(m.method, "notifications/cancelled") == 0)
        end_canceled(t, &m);
    if (!answered)
        gw_channel_bare(c, 202);
}

/* The session's own stream. */
static void on_get(mcp_channel *c)
{
    if (c->session_id.p == NULL) {
        gw_channel_error(c, 405, -32000, "Method not allowed.");
        return;
    }
    gw_talk *t = gw_talk_for(c, NULL);
    if (t == NULL)
        return;
    /* There is one. Whoever comes back for it may be here before we see that it has broken. */
    if (t->stream != NULL)
        gw_channel_error(t->stream, 409, -32000, "Conflict");
    gw_talk_join(t, c);
    t->stream = c;
    gw_channel_flow(c);
}

static void on_delete(mcp_channel *c)
{
    gw_talk *t = c->site->argv == NULL ? gw_leave(c) : gw_talk_for(c, NULL);
    if (t == NULL)
        return;
    gw_channel_bare(c, 200);
    /* A client that leaves wants no more answers, not even an error. */
    while (t->channels != NULL) {
        mcp_session_gone(t->session, t->channels, false);
        gw_channel_end(t->channels);
    }
    gw_talk_end(t);
}

static void on_channel(mcp_post *post)
{
    mcp_channel *c = SM_CONTAINER(post, mcp_channel, post);
    if (c->site->all->stopping)
        gw_channel_error(c, 503, -32603, "The gateway is being stopped; nothing was done.");
    else if (c->kind == GW_CH_STREAM)
        on_get(c);
    else if (c->kind == GW_CH_DELETE)
        on_delete(c);
    else
        on_post(c);
}

/* ---- on the server's threads -----------------------------------------------------------------*/

static sm_str keep_header(mcp_channel *c, gw_request *r, const char *name)
{
    sm_str value = gw_header(r, name);
    return value.p == NULL ? value : sm_arena_text(&c->arena, value);
}

static void out_of_memory(gw_request *r)
{
    gw_problem(r, 503, "OVERLOADED", "Try again later.", "The gateway is out of memory.");
}

/* Hands a request to the loop. */
static void post(gw_request *r, gw_site *site)
{
    mcp_channel *c = calloc(1, sizeof *c);
    sm_fault fault = {0};
    if (c == NULL) {
        out_of_memory(r);
        return;
    }
    sm_arena_init(&c->arena, ARENA_BYTES);
    sm_buf_init(&c->body, MCP_LINE_MAX);
    sm_buf_str(&c->body, sm_buf_view(&r->body));
    c->site = site;
    c->r = r;
    gw_channel_is(c, r->method == GW_GET      ? GW_CH_STREAM
                     : r->method == GW_DELETE ? GW_CH_DELETE
                                              : GW_CH_MESSAGE);
    c->session_id = keep_header(c, r, "Mcp-Session-Id");
    c->version = keep_header(c, r, "MCP-Protocol-Version");
    c->method = keep_header(c, r, "Mcp-Method");
    c->name = keep_header(c, r, "Mcp-Name");
    sm_upstream_call up = {0};
    sm_err e = c->body.err;
    if (e == SM_OK)
        e = site->argv != NULL
                ? gw_modern_params(c, r)
                : gw_proxy_request(r, &c->arena, &site->api, SM_STR(""), true, &up, NULL, &fault);
    if (e != SM_OK) {
        gw_channel_free(c);
        gw_proxy_refuse(r, e, &fault);
        return;
    }
    if (site->argv == NULL) {
        c->headers = up.request.headers;
        c->header_count = up.request.header_count;
    }
    c->post.take = on_channel;
    gw_channel_post(c);
}

/* Whether it is a call of a tool that the contract says only reads, whatever its arguments: that is
 * passed on as it is, with its stream. Not where headers name what is called as well: those are
 * held to the body first. */
static bool only_reads(const gw_request *r, const mcp_message *m, const sm_contracts *set)
{
    char name[SM_TOOL_MAX + 1];
    sm_str value;
    if (gw_header(r, "Mcp-Method").p != NULL || gw_header(r, "Mcp-Name").p != NULL ||
        !sm_raw_find(m->params, "name", &value) || !sm_raw_text(value, name, sizeof name))
        return false;
    const sm_declared_tool *entry = sm_contracts_tool(set, sm_str_from(name));
    return entry != NULL && sm_contract_only_reads(&entry->contract) &&
           sm_contracts_rival(set, sm_str_from(name)) == NULL;
}

/* Whether a message to a server over HTTP is more than passed on. What is no message is: others
 * may read it otherwise. */
static bool is_ours(const gw_request *r, const mcp_message *m, const sm_contracts *set)
{
    bool calls = strcmp(m->method, "tools/call") == 0;
    bool hides = set->unlisted == SM_UNLISTED_HIDE;
    switch (m->kind) {
    case MCP_REQUEST:
        return (calls && !only_reads(r, m, set)) || (hides && strcmp(m->method, "tools/list") == 0);
    case MCP_NOTIFICATION: return calls || strcmp(m->method, "notifications/cancelled") == 0;
    case MCP_RESULT:
    case MCP_ERROR: return mcp_is_question(m->id); /* of ours; else the server's */
    default: return true;
    }
}

/* Whether a header names another method than the body. */
static bool contradicts(const gw_request *r, const mcp_message *m)
{
    sm_str said = gw_header(r, "Mcp-Method");
    return said.p != NULL && !sm_str_is(said, m->method);
}

static bool concerns_us(const gw_request *r)
{
    mcp_message m;
    gw_own *own = r->method == GW_POST ? gw_own_get() : NULL;
    if (own == NULL)
        return r->method != GW_GET;
    const sm_contracts *set = sm_contracts_now(r->g->ledger, own->answer);
    mcp_read_client(sm_buf_view(&r->body), &m);
    if (contradicts(r, &m))
        return true;
    if (m.kind != MCP_BATCH)
        return is_ours(r, &m, set);
    size_t cursor = 0;
    sm_str name, item, batch = m.text;
    bool ours = false;
    while (!ours && sm_raw_next(batch, &cursor, &name, &item)) {
        mcp_read_client(item, &m);
        ours = is_ours(r, &m, set);
    }
    return ours;
}

/* Whether the answer is a stream for what may happen. */
static bool listens(const gw_request *r)
{
    mcp_message m;
    if (r->method != GW_POST)
        return r->method == GW_GET;
    mcp_read_client(sm_buf_view(&r->body), &m);
    return m.kind == MCP_REQUEST && strcmp(m.method, "subscriptions/listen") == 0;
}

static bool on_header(gw_request *r, sm_str name, sm_str value)
{
    bool session = sm_header_is(name, SM_STR("Mcp-Session-Id"));
    if (session)
        gw_owner_tell(r, value);
    return session;
}

/* A query could choose another account or session than the server's URL does. So it is not passed
 * on; the calls that the gateway makes itself have none either. */
static void pass(gw_request *r, const gw_site *site)
{
    sm_arena a;
    sm_upstream_call up;
    sm_fault fault = {0};
    r->query = (sm_str){0};
    sm_arena_init(&a, (size_t)64 << 20);
    sm_err e = gw_proxy_request(r, &a, &site->api, SM_STR(""), false, &up, NULL, &fault);
    up.request.write = r->method == GW_POST;
    r->on_header = on_header;
    if (e == SM_OK && listens(r))
        gw_pass_stream(r, &up.request);
    else if (e == SM_OK)
        gw_pass(r, &up.request);
    else
        gw_proxy_refuse(r, e, &fault);
    sm_arena_fini(&a);
}

static bool mentions(sm_str header, const char *type)
{
    return header.p != NULL && (memmem(header.p, header.n, type, strlen(type)) != NULL ||
                                memmem(header.p, header.n, "*/*", 3) != NULL);
}

/* Whether the client accepts the kinds of answer that it may get. If not, it gets an error. */
static bool acceptable(gw_request *r)
{
    sm_str accept = gw_header(r, "Accept");
    bool events = mentions(accept, "text/event-stream"),
         json = mentions(accept, "application/json");
    if ((r->method == GW_GET && !events) || (r->method == GW_POST && !(events && json))) {
        gw_problem(r, 406, "NOT_ALLOWED",
                   r->method == GW_GET ? "Send Accept: text/event-stream."
                                       : "Send Accept: application/json, text/event-stream.",
                   "The client does not accept what an MCP server answers with.");
        return false;
    }
    return true;
}

/* Whether a session that the client names is its own. An id that the protocol does not allow is
 * refused: it might be shortened to another one on its way. */
static bool may_use(gw_request *r)
{
    sm_str id = gw_header(r, "Mcp-Session-Id");
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] <= ' ' || id.p[i] > '~')
            return false;
    return id.p == NULL || gw_owner_is(r->g->mcp, r->rest, id, r->who.id);
}

/* Whether the label of a body says how we and the server read it. If not, the client gets an
 * error. */
static bool labelled(gw_request *r)
{
    sm_str coding = gw_header(r, "Content-Encoding");
    if (r->method != GW_POST && r->body.len > 0)
        gw_problem(r, 400, "BAD_ARGUMENTS", "Send messages with POST.",
                   "A %s has no body in this protocol.", r->method_text);
    else if (r->method == GW_POST && !sm_type_is(gw_header(r, "Content-Type"), "application/json"))
        gw_problem(r, 415, "NOT_ALLOWED", "Send Content-Type: application/json.",
                   "A message is JSON in UTF-8, and this body is labelled as something else.");
    else if (coding.p != NULL && !sm_header_is(coding, SM_STR("identity")))
        gw_problem(r, 415, "NOT_ALLOWED", "Send no Content-Encoding.",
                   "A message is sent as it is, and this body is labelled as encoded.");
    else
        return true;
    return false;
}

void gw_on_mcp(gw_request *r)
{
    gw_mcp *all = r->g->mcp;
    gw_site *site = NULL;
    for (uint32_t i = 0; all != NULL && i < all->site_count; i++)
        if (sm_str_eq(all->sites[i].config->name, r->rest))
            site = &all->sites[i];
    if (site == NULL) {
        gw_problem(r, 404, "NO_ROUTE", "Use one of the names under `mcp` in the configuration.",
                   "No MCP server is configured under that name.");
    } else if (site->flaw[0] != '\0') {
        gw_problem(r, 500, "MISCONFIGURED",
                   "Tell whoever runs the gateway; trying again does not help.", "%s", site->flaw);
    } else if (r->method != GW_POST && r->method != GW_GET && r->method != GW_DELETE) {
        gw_set(r, "Allow", SM_STR("POST, GET, DELETE"));
        gw_problem(r, 405, "NOT_ALLOWED", "Use POST, GET or DELETE.", "%s is not for MCP.",
                   r->method_text);
    } else if (site->argv == NULL && !may_use(r)) {
        gw_problem(r, 404, "NOT_FOUND", "Start a session of your own.",
                   "There is no such session.");
    } else if ((site->argv != NULL && !acceptable(r)) || !labelled(r)) {
        /* answered */
    } else if (site->argv != NULL || concerns_us(r)) {
        post(r, site);
    } else {
        pass(r, site);
    }
}
