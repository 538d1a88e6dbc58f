/* What comes from the client, and where it goes. */
#include <stdio.h>
#include <stdlib.h>

#include "json/scan.h"
#include "mcp/call/call.h"

/* The era of a request: the modern one says its version in each. */
static bool is_modern(sm_str params)
{
    sm_str meta, version;
    return sm_raw_find(params, "_meta", &meta) &&
           sm_raw_find(meta, "io.modelcontextprotocol/protocolVersion", &version);
}

void mcp_exchange_describe(mcp_exchange *x, sm_str params)
{
    sm_str meta, token;
    x->modern = is_modern(params);
    if (!sm_raw_find(params, "_meta", &meta) || !sm_raw_find(meta, "progressToken", &token) ||
        token.n > MCP_ID_MAX)
        return;
    char *copy = malloc(token.n);
    if (copy == NULL)
        return;
    memcpy(copy, token.p, token.n);
    x->token = (sm_str){copy, token.n};
}

/* A message with its id replaced by the one that the server knows. */
static void forward_request(mcp_session *s, const mcp_message *m, mcp_exchange *x)
{
    if (!s->o.shared) {
        mcp_forward(s, m->text, x);
        return;
    }
    sm_buf out;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    mcp_put_sent(&out, m, x);
    mcp_forward(s, sm_buf_view(&out), x);
    sm_buf_fini(&out);
}

/* Passes a request on as it came. */
static void pass_request(mcp_session *s, const mcp_message *m, mcp_what what, mcp_channel *channel,
                         const mcp_hop *hop)
{
    mcp_exchange *x = mcp_exchange_new(s, what, m->id, channel);
    if (x == NULL || !mcp_exchange_headers(x, hop->headers, hop->header_count)) {
        mcp_exchange_free(x);
        mcp_complain(s, channel, hop->batch, m->id, -32603,
                     "The proxy is out of memory; nothing was done.");
        return;
    }
    sm_str cursor;
    mcp_exchange_describe(x, m->params);
    x->changes = s->server->changes;
    x->listens = strcmp(m->method, "subscriptions/listen") == 0;
    s->listening += x->listens;
    x->first_page = what == MCP_W_LIST && !sm_raw_find(m->params, "cursor", &cursor);
    x->batch = hop->batch;
    forward_request(s, m, x);
}

bool mcp_can_elicit(sm_str params)
{
    sm_str part;
    return sm_raw_find(params, "capabilities", &part) && sm_raw_find(part, "elicitation", &part);
}

static void note_initialize(mcp_session *s, sm_str params)
{
    sm_buf_clear(&s->initialize);
    sm_buf_str(&s->initialize, params);
    s->elicits = mcp_can_elicit(params);
    mcp_told_forget(s);
}

static void on_request(mcp_session *s, const mcp_message *m, mcp_channel *channel,
                       const mcp_hop *hop)
{
    if (!s->o.anyone && mcp_exchange_find(s, m->id) != NULL) {
        mcp_complain(s, channel, hop->batch, m->id, -32600,
                     "A request with this id is under way already.");
        return;
    }
    if (strcmp(m->method, "tools/call") == 0) {
        mcp_call_start(s, m, channel, hop);
        return;
    }
    mcp_what what = MCP_W_OTHER;
    if (strcmp(m->method, "initialize") == 0) {
        note_initialize(s, m->params);
        what = MCP_W_INITIALIZE;
    } else if (strcmp(m->method, "tools/list") == 0) {
        what = MCP_W_LIST;
    } else if (strcmp(m->method, "server/discover") == 0) {
        what = MCP_W_DISCOVER;
    } else if (strcmp(m->method, "logging/setLevel") == 0) {
        sm_buf_clear(&s->level);
        sm_buf_str(&s->level, m->params);
    }
    pass_request(s, m, what, channel, hop);
}

/* A cancel of what writes is not passed on: the server would throw its answer away, while the
 * effect may have taken place. */
static bool absorb_cancel(mcp_session *s, const mcp_message *m)
{
    sm_str id;
    if (!sm_raw_find(m->params, "requestId", &id))
        return false;
    if (!mcp_is_id(id))
        return true; /* 1.0 matches no request here, but some servers read it as the id of a write
                      */
    mcp_exchange *x = mcp_exchange_find(s, id);
    /* Nobody can tell whose request that is: another client's must have its answer. */
    if (s->o.anyone)
        return s->o.shared || (x != NULL && x->what == MCP_W_CALL);
    if (x == NULL) {
        mcp_told_canceled(s, id);
        return false;
    }
    if (x->what == MCP_W_CALL) {
        mcp_call_canceled(x->call);
        return true;
    }
    /* Over HTTP, ending the exchange is how the later era says it. The server need not answer any
     * more, and what it answers all the same is for the client to make of what it can. */
    bool said = x->modern && s->link != NULL && s->link->exchanges;
    mcp_exchange_free(x);
    return said;
}

/* What is no request, with the headers that it came with where the link takes some. True if it was
 * sent, or there are none. */
static bool sent_with_headers(mcp_session *s, const mcp_message *m, const mcp_hop *hop)
{
    if (hop->header_count == 0)
        return false;
    mcp_exchange *x = mcp_exchange_new(s, MCP_W_OWN, (sm_str){0}, NULL);
    if (x == NULL)
        return true;
    x->answered = mcp_ignore;
    x->way.headers = hop->headers;
    x->way.header_count = hop->header_count;
    x->under_way = mcp_link_send(s->link, m->text, &x->way);
    if (!x->under_way)
        mcp_exchange_free(x);
    return true;
}

static void on_notification(mcp_session *s, const mcp_message *m, const mcp_hop *hop)
{
    if (strcmp(m->method, "tools/call") == 0) {
        /* Without an id nobody could be told what became of it, or that it may not run. */
        mcp_say(s->server->hub, MCP_WARN, "a tools/call without an id was dropped");
    } else if (strcmp(m->method, "notifications/cancelled") != 0 || !absorb_cancel(s, m)) {
        if (!sent_with_headers(s, m, hop))
            mcp_forward(s, m->text, NULL);
    }
}

/* The answer to a question of the server's, or of ours. The server may need it to go on with what
 * others wait for, so it waits for nobody. */
static void on_client_answer(mcp_session *s, const mcp_message *m, const mcp_hop *hop)
{
    size_t n = strlen(s->question_name);
    if (m->id.n > n && memcmp(m->id.p, s->question_name, n) == 0)
        mcp_approve_answered(s, m);
    else if (!sent_with_headers(s, m, hop))
        mcp_forward_now(s, m->text);
}

static void on_message(mcp_session *s, const mcp_message *m, mcp_channel *channel,
                       const mcp_hop *hop)
{
    switch (m->kind) {
    case MCP_REQUEST: on_request(s, m, channel, hop); break;
    case MCP_NOTIFICATION: on_notification(s, m, hop); break;
    case MCP_RESULT:
    case MCP_ERROR: on_client_answer(s, m, hop); break;
    case MCP_BATCH:
    case MCP_INVALID: mcp_complain(s, channel, hop->batch, m->id, m->code, m->flaw); break;
    }
}

/* Batches exist in one revision only. Their messages go one by one; what answers them goes back
 * together. */
static void on_batch(mcp_session *s, sm_str text, mcp_channel *channel, mcp_hop *hop)
{
    size_t cursor = 0, count = 0;
    sm_str name, item;
    if (s->version[0] != '\0' && strcmp(s->version, "2025-03-26") != 0) {
        mcp_complain(s, channel, NULL, (sm_str){0}, -32600,
                     "This revision of the protocol has no batches: send the messages one by one.");
        return;
    }
    mcp_batch *batch = mcp_batch_new(channel);
    if (batch == NULL) {
        mcp_complain(s, channel, NULL, (sm_str){0}, -32603,
                     "The proxy is out of memory; nothing was done.");
        return;
    }
    hop->batch = batch;
    while (sm_raw_next(text, &cursor, &name, &item)) {
        mcp_message m;
        count++;
        mcp_read_client(item, &m);
        if (m.kind == MCP_REQUEST)
            mcp_batch_expect(batch);
        if (m.kind == MCP_BATCH || m.kind == MCP_INVALID) {
            sm_buf out;
            sm_buf_init(&out, MCP_LINE_MAX);
            mcp_batch_expect(batch);
            mcp_put_error(&out, m.id, m.kind == MCP_BATCH ? MCP_E_MESSAGE : m.code,
                          sm_str_from(m.kind == MCP_BATCH ? "A batch inside a batch." : m.flaw));
            mcp_batch_answer(batch, s, sm_buf_view(&out));
            sm_buf_fini(&out);
        } else {
            on_message(s, &m, channel, hop);
        }
    }
    if (count == 0)
        mcp_complain(s, channel, NULL, (sm_str){0}, -32600, "An empty batch.");
    mcp_batch_done(batch, s);
}

void mcp_session_from_client(mcp_session *s, sm_str text, mcp_channel *channel,
                             const sm_http_field *headers, size_t header_count)
{
    mcp_message m;
    mcp_hop hop = {.headers = headers, .header_count = header_count};
    if (s->life != MCP_OPEN)
        return;
    mcp_read_client(text, &m);
    if (s->reach == MCP_LAPSED && strcmp(m.method, "initialize") == 0)
        mcp_session_greeted(s);
    else if (s->reach == MCP_LAPSED)
        mcp_session_begin_again(s);
    if (m.kind == MCP_BATCH)
        on_batch(s, m.text, channel, &hop);
    else
        on_message(s, &m, channel, &hop);
}

void mcp_session_too_long(mcp_session *s, sm_str id, bool request, uint64_t length)
{
    char text[160];
    snprintf(text, sizeof text,
             "A message of %llu bytes: at most %zu are read. Nothing was done with it.",
             (unsigned long long)length, MCP_LINE_MAX);
    if (request || id.p == NULL)
        mcp_complain(s, NULL, NULL, id, -32600, text);
    mcp_say(s->server->hub, MCP_WARN, "%s", text);
}
