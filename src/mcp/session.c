/*
 * A session: what comes from the client and from the server, and where it goes.
 *
 * Whatever is not a call of a tool that writes is passed on as it came. To be able to say the truth
 * when the server goes away, every request that is not answered yet is known; that is all that is
 * kept of it.
 *
 * Order: the server gets messages in the order in which the client sent them. A call that has to
 * ask the ledger first keeps its place (a slot), and what comes after it waits for its turn; the
 * ledger is asked for all of them at once. A call that is answered otherwise, or has to wait for
 * somebody else, gives its place up.
 */
#include "mcp/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/visible.h"
#include "json/canon.h"

#define JUNK_TOLD 10u

/* ---- for people ------------------------------------------------------------------------------*/

void mcp_say(mcp_hub *hub, mcp_level level, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hub->say(hub->say_context, level, text);
}

/* ---- requests under way ----------------------------------------------------------------------*/

static size_t bucket_of(sm_str id)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < id.n; i++)
        h = (h ^ (unsigned char)id.p[i]) * 0x100000001B3u;
    return (size_t)((h ^ (h >> 32)) % MCP_BUCKETS);
}

mcp_exchange *mcp_exchange_find(mcp_session *s, sm_str sent_id)
{
    mcp_exchange *x = s->table[bucket_of(sent_id)];
    while (x != NULL && !sm_str_eq(x->sent_id, sent_id))
        x = x->next;
    return x;
}

static void table_add(mcp_session *s, mcp_exchange *x)
{
    mcp_exchange **at = &s->table[bucket_of(x->sent_id)];
    x->next = *at;
    if (x->next != NULL)
        x->next->at = &x->next;
    x->at = at;
    *at = x;
    s->requests++;
}

static void table_remove(mcp_exchange *x)
{
    if (x->at == NULL)
        return;
    *x->at = x->next;
    if (x->next != NULL)
        x->next->at = x->at;
    x->at = NULL;
    x->session->requests--;
}

size_t mcp_own_id(mcp_session *s, char out[MCP_OWN_ID_MAX])
{
    return (size_t)snprintf(out, MCP_OWN_ID_MAX, "%s%llu\"", s->own_name,
                            (unsigned long long)++s->last_own);
}

mcp_exchange *mcp_exchange_new(mcp_session *s, mcp_what what, sm_str id, mcp_channel *channel)
{
    char own[MCP_OWN_ID_MAX];
    sm_str sent = id;
    if (s->o.shared || what == MCP_W_OWN) {
        sent.n = mcp_own_id(s, own);
        sent.p = own;
    }
    mcp_exchange *x = calloc(1, sizeof *x + id.n + sent.n);
    if (x == NULL)
        return NULL;
    char *texts = (char *)(x + 1);
    if (id.n > 0)
        memcpy(texts, id.p, id.n);
    memcpy(texts + id.n, sent.p, sent.n);
    x->id = (sm_str){texts, id.n};
    x->sent_id = (sm_str){texts + id.n, sent.n};
    x->session = s;
    x->what = what;
    x->channel = channel;
    table_add(s, x);
    return x;
}

void mcp_exchange_free(mcp_exchange *x)
{
    if (x == NULL)
        return;
    if (x->under_way)
        mcp_link_forget(x->session->link, &x->way);
    if (x->batch != NULL)
        mcp_batch_answer(x->batch, x->session, (sm_str){0});
    mcp_session *s = x->session;
    table_remove(x);
    free((char *)(uintptr_t)x->token.p);
    free(x);
    if (s->requests == 0)
        mcp_session_rest(s);
}

/* ---- answers ---------------------------------------------------------------------------------*/

static uint64_t deliver(mcp_exchange *x, sm_str text)
{
    mcp_session *s = x->session;
    mcp_batch *batch = x->batch;
    bool wanted = !x->canceled && !s->ending;
    x->batch = NULL;
    if (batch != NULL)
        mcp_batch_answer(batch, s, wanted ? text : (sm_str){0});
    else if (wanted)
        return s->client.deliver(s->client.context, x->channel, text, true);
    return 0;
}

void mcp_reply(mcp_exchange *x, sm_str text)
{
    mcp_session *s = x->session;
    uint64_t ticket = deliver(x, text);
    if (x->call != NULL && ticket != 0)
        mcp_told_add(s, x, ticket);
    mcp_exchange_free(x);
}

void mcp_reply_result(mcp_exchange *x, sm_str result)
{
    sm_buf out;
    sm_buf_init(&out, 4 * MCP_LINE_MAX);
    sm_buf_text(&out, "{\"jsonrpc\":\"2.0\",\"id\":");
    sm_buf_str(&out, x->id);
    sm_buf_text(&out, ",\"result\":");
    sm_buf_str(&out, result);
    sm_buf_byte(&out, '}');
    if (out.err == SM_OK)
        mcp_reply(x, sm_buf_view(&out));
    else
        mcp_reply_error(x, -32603, "out of memory");
    sm_buf_fini(&out);
}

static void put_error(sm_buf *out, sm_str id, int code, sm_str message)
{
    sm_buf_text(out, "{\"jsonrpc\":\"2.0\",\"id\":");
    sm_buf_str(out, id.p == NULL ? SM_STR("null") : id);
    sm_buf_printf(out, ",\"error\":{\"code\":%d,\"message\":", code);
    sm_json_put_string(out, message);
    sm_buf_text(out, "}}");
}

void mcp_reply_error(mcp_exchange *x, int code, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    sm_buf out;
    sm_buf_init(&out, MCP_LINE_MAX);
    put_error(&out, x->id, code, sm_str_from(text));
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
}

/* An error about a message that is no request under way. */
static void complain(mcp_session *s, mcp_channel *channel, sm_str id, int code, const char *text)
{
    sm_buf out;
    sm_buf_init(&out, MCP_LINE_MAX);
    put_error(&out, id, code, sm_str_from(text));
    s->client.deliver(s->client.context, channel, sm_buf_view(&out), true);
    sm_buf_fini(&out);
}

void mcp_tell_client(mcp_session *s, mcp_channel *channel, sm_str text)
{
    if (!s->ending)
        s->client.deliver(s->client.context, channel, text, false);
}

/* ---- order -----------------------------------------------------------------------------------*/

void mcp_session_regulate(mcp_session *s)
{
    bool paused = s->waiting_bytes > MCP_QUEUE_BYTES ||
                  (s->link != NULL && mcp_link_full(s->link)) || s->asking > MCP_ASKING_MAX;
    if (paused == s->paused || s->ending)
        return;
    s->paused = paused;
    s->client.pause(s->client.context, paused);
}

/* Gives a message to the server; if that is away, a request is answered with that. */
static void give(mcp_session *s, sm_str text, mcp_exchange *x)
{
    bool sent = s->link != NULL && mcp_link_send(s->link, text, x == NULL ? NULL : &x->way);
    if (x == NULL)
        return;
    x->under_way = sent;
    if (sent)
        return;
    mcp_loss loss = {.why = "the server is not running"};
    if (x->what == MCP_W_CALL)
        mcp_call_lost(x->call, &loss);
    else if (x->what != MCP_W_OWN)
        mcp_reply_error(x, MCP_E_AWAY, "The server is not running; nothing was done.");
}

bool mcp_session_ready(const mcp_session *s)
{
    return !s->starting && (!s->down || s->away);
}

static void slot_free(mcp_session *s, mcp_slot *slot)
{
    s->waiting_bytes -= slot->text.len;
    sm_buf_fini(&slot->text);
    free(slot);
}

static void flush(mcp_session *s)
{
    while (s->first != NULL && s->first->decided && mcp_session_ready(s)) {
        mcp_slot *slot = s->first;
        s->first = slot->next;
        if (s->first == NULL)
            s->last = &s->first;
        sm_str text = sm_buf_view(&slot->text);
        if (text.n > 0)
            give(s, text, slot->x);
        slot_free(s, slot);
    }
    mcp_session_regulate(s);
}

static mcp_slot *slot_add(mcp_session *s, mcp_exchange *x)
{
    mcp_slot *slot = calloc(1, sizeof *slot);
    if (slot == NULL)
        return NULL;
    sm_buf_init(&slot->text, 2 * MCP_LINE_MAX);
    slot->x = x;
    *s->last = slot;
    s->last = &slot->next;
    return slot;
}

mcp_slot *mcp_slot_new(mcp_session *s, mcp_exchange *x)
{
    return s->o.alone ? NULL : slot_add(s, x);
}

void mcp_slot_decide(mcp_session *s, mcp_slot *slot, sm_str text)
{
    sm_buf_str(&slot->text, text);
    s->waiting_bytes += slot->text.len;
    slot->decided = true;
    flush(s);
}

void mcp_forward(mcp_session *s, sm_str text, mcp_exchange *x)
{
    if (s->first == NULL && mcp_session_ready(s)) {
        give(s, text, x);
        mcp_session_regulate(s);
        return;
    }
    mcp_slot *slot = slot_add(s, x);
    if (slot == NULL || !sm_buf_reserve(&slot->text, text.n)) {
        if (slot != NULL)
            mcp_slot_decide(s, slot, (sm_str){0});
        if (x != NULL && x->what != MCP_W_CALL)
            mcp_reply_error(x, -32603, "The proxy is out of memory; nothing was done.");
        return;
    }
    mcp_slot_decide(s, slot, text);
}

mcp_exchange *mcp_request(mcp_session *s, const char *method, sm_str params,
                          const sm_http_field *headers, size_t header_count,
                          void (*answered)(mcp_exchange *x, const mcp_message *m), void *context)
{
    mcp_exchange *x = mcp_exchange_new(s, MCP_W_OWN, (sm_str){0}, NULL);
    if (x == NULL)
        return NULL;
    x->answered = answered;
    x->context = context;
    x->way.headers = headers;
    x->way.header_count = header_count;
    sm_buf out;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    sm_buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,\"method\":\"%s\"", SM_FMT(x->sent_id),
                  method);
    if (params.p != NULL) {
        sm_buf_text(&out, ",\"params\":");
        sm_buf_str(&out, params);
    }
    sm_buf_byte(&out, '}');
    x->under_way =
        out.err == SM_OK && s->link != NULL && mcp_link_send(s->link, sm_buf_view(&out), &x->way);
    sm_buf_fini(&out);
    if (x->under_way)
        return x;
    mcp_exchange_free(x);
    return NULL;
}

/* ---- from the client -------------------------------------------------------------------------*/

/* The era of a request: the modern one says its version in each. */
static bool is_modern(sm_str params)
{
    sm_str meta, version;
    return mcp_find(params, "_meta", &meta) &&
           mcp_find(meta, "io.modelcontextprotocol/protocolVersion", &version);
}

void mcp_exchange_describe(mcp_exchange *x, sm_str params)
{
    sm_str meta, token;
    x->modern = is_modern(params);
    if (!mcp_find(params, "_meta", &meta) || !mcp_find(meta, "progressToken", &token) ||
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
    mcp_put_edited(&out, m->text, &(mcp_edit){.at = m->id, .with = x->sent_id}, 1);
    mcp_forward(s, sm_buf_view(&out), x);
    sm_buf_fini(&out);
}

void mcp_pass_request(mcp_session *s, const mcp_message *m, mcp_what what, mcp_channel *channel,
                      const mcp_hop *hop)
{
    mcp_exchange *x = mcp_exchange_new(s, what, m->id, channel);
    if (x == NULL) {
        complain(s, channel, m->id, -32603, "The proxy is out of memory; nothing was done.");
        return;
    }
    sm_str cursor;
    mcp_exchange_describe(x, m->params);
    x->first_page = what == MCP_W_LIST && !mcp_find(m->params, "cursor", &cursor);
    x->batch = hop->batch;
    x->way.headers = hop->headers;
    x->way.header_count = hop->header_count;
    forward_request(s, m, x);
}

static void note_initialize(mcp_session *s, sm_str params)
{
    sm_str part;
    sm_buf_clear(&s->initialize);
    sm_buf_str(&s->initialize, params);
    s->elicits = mcp_find(params, "capabilities", &part) && mcp_find(part, "elicitation", &part);
}

static void on_request(mcp_session *s, const mcp_message *m, mcp_channel *channel,
                       const mcp_hop *hop)
{
    if (strcmp(m->method, "tools/call") == 0) {
        if (mcp_exchange_find(s, m->id) != NULL && !s->o.shared)
            complain(s, channel, m->id, -32600, "A request with this id is under way already.");
        else
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
    mcp_pass_request(s, m, what, channel, hop);
}

/* A cancel of what writes is not passed on: the server would throw its answer away, while the
 * effect may have taken place. */
static bool absorb_cancel(mcp_session *s, const mcp_message *m)
{
    sm_str id;
    if (!mcp_find(m->params, "requestId", &id))
        return false;
    mcp_exchange *x = mcp_exchange_find(s, id);
    if (x == NULL) {
        mcp_told_canceled(s, id);
        return s->o.shared;
    }
    if (x->what == MCP_W_CALL) {
        mcp_call_canceled(x->call);
        return true;
    }
    if (x->modern && s->link != NULL && s->link->exchanges) {
        mcp_exchange_free(x); /* ending the exchange is how that is said over HTTP */
        return true;
    }
    return s->o.shared;
}

static void on_notification(mcp_session *s, const mcp_message *m)
{
    if (strcmp(m->method, "notifications/cancelled") != 0 || !absorb_cancel(s, m))
        mcp_forward(s, m->text, NULL);
}

/* The answer to a question of the server's, or of ours. */
static void on_client_answer(mcp_session *s, const mcp_message *m)
{
    size_t n = strlen(s->own_name);
    if (m->id.n > n && memcmp(m->id.p, s->own_name, n) == 0)
        mcp_approve_answered(s, m);
    else
        mcp_forward(s, m->text, NULL);
}

static void on_message(mcp_session *s, const mcp_message *m, mcp_channel *channel,
                       const mcp_hop *hop)
{
    switch (m->kind) {
    case MCP_REQUEST: on_request(s, m, channel, hop); break;
    case MCP_NOTIFICATION: on_notification(s, m); break;
    case MCP_RESULT:
    case MCP_ERROR: on_client_answer(s, m); break;
    case MCP_BATCH:
    case MCP_INVALID: complain(s, channel, m->id, m->junk ? -32700 : -32600, m->flaw); break;
    }
}

/* Batches exist in one revision only. Their messages go one by one; what answers them goes back
 * together. */
static void on_batch(mcp_session *s, sm_str text, mcp_channel *channel, mcp_hop *hop)
{
    size_t cursor = 0, count = 0;
    sm_str name, item;
    if (s->version[0] != '\0' && strcmp(s->version, "2025-03-26") != 0) {
        complain(s, channel, (sm_str){0}, -32600,
                 "This revision of the protocol has no batches: send the messages one by one.");
        return;
    }
    mcp_batch *batch = mcp_batch_new(channel);
    if (batch == NULL) {
        complain(s, channel, (sm_str){0}, -32603, "The proxy is out of memory; nothing was done.");
        return;
    }
    hop->batch = batch;
    while (mcp_next(text, &cursor, &name, &item)) {
        mcp_message m;
        count++;
        mcp_read(item, &m);
        if (m.kind == MCP_REQUEST)
            mcp_batch_expect(batch);
        if (m.kind == MCP_BATCH || m.kind == MCP_INVALID) {
            sm_buf out;
            sm_buf_init(&out, MCP_LINE_MAX);
            mcp_batch_expect(batch);
            put_error(&out, m.id, -32600,
                      sm_str_from(m.kind == MCP_BATCH ? "A batch inside a batch." : m.flaw));
            mcp_batch_answer(batch, s, sm_buf_view(&out));
            sm_buf_fini(&out);
        } else {
            on_message(s, &m, channel, hop);
        }
    }
    if (count == 0)
        complain(s, channel, (sm_str){0}, -32600, "An empty batch.");
    mcp_batch_done(batch, s);
}

void mcp_session_from_client(mcp_session *s, sm_str text, mcp_channel *channel,
                             const sm_http_field *headers, size_t header_count)
{
    mcp_message m;
    mcp_hop hop = {.headers = headers, .header_count = header_count};
    if (s->ending)
        return;
    mcp_read(text, &m);
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
        complain(s, NULL, id, -32600, text);
    mcp_say(s->server->hub, MCP_WARN, "%s", text);
}

/* ---- from the server -------------------------------------------------------------------------*/

static void note_agreed(mcp_session *s, const mcp_message *m)
{
    sm_str version;
    if (m->kind != MCP_RESULT || !mcp_find(m->result, "protocolVersion", &version) ||
        !mcp_text(version, s->version, sizeof s->version))
        s->version[0] = '\0';
}

/* The answer with the id that the client gave. */
void mcp_pass_answer(mcp_exchange *x, const mcp_message *m)
{
    if (!x->session->o.shared) {
        mcp_reply(x, m->text);
        return;
    }
    sm_buf out;
    sm_buf_init(&out, 2 * MCP_LINE_MAX);
    mcp_put_edited(&out, m->text, &(mcp_edit){.at = m->id, .with = x->id}, 1);
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
}

static void on_answer(mcp_session *s, mcp_exchange *x, const mcp_message *m)
{
    size_t n = strlen(s->own_name);
    if (x == NULL) {
        bool ours = m->id.n > n && memcmp(m->id.p, s->own_name, n) == 0;
        if (!ours) /* late, or to nobody: the client knows what to make of it */
            mcp_tell_client(s, NULL, m->text);
        return;
    }
    if (x->under_way)
        mcp_link_forget(s->link, &x->way);
    x->under_way = false;
    switch (x->what) {
    case MCP_W_OWN:
        x->answered(x, m);
        mcp_exchange_free(x);
        break;
    case MCP_W_CALL:
        if (x->call->stage == MCP_EXECUTING) /* else it is its second answer */
            mcp_call_answered(x->call, m);
        break;
    case MCP_W_LIST: mcp_listing_pass(x, m); break;
    case MCP_W_INITIALIZE:
        note_agreed(s, m);
        mcp_pass_answer(x, m);
        break;
    case MCP_W_DISCOVER:
    case MCP_W_OTHER: mcp_pass_answer(x, m); break;
    }
}

/* The request that a progress notification is about. */
static mcp_exchange *progressing(mcp_session *s, sm_str token)
{
    for (size_t i = 0; i < MCP_BUCKETS; i++)
        for (mcp_exchange *x = s->table[i]; x != NULL; x = x->next)
            if (x->token.p != NULL && sm_str_eq(x->token, token))
                return x;
    return NULL;
}

static void on_server_notification(mcp_session *s, mcp_exchange *x, const mcp_message *m)
{
    sm_str token;
    if (strcmp(m->method, "notifications/progress") == 0 &&
        mcp_find(m->params, "progressToken", &token)) {
        mcp_exchange *of = progressing(s, token);
        x = of != NULL ? of : x;
        if (x != NULL && x->what == MCP_W_CALL) {
            mcp_call_progress(x->call, m);
            return;
        }
    } else if (strcmp(m->method, "notifications/tools/list_changed") == 0) {
        mcp_listing_changed(s);
    }
    if (x == NULL || !x->canceled)
        mcp_tell_client(s, x == NULL ? NULL : x->channel, m->text);
}

static void on_junk(mcp_session *s, const mcp_message *m, sm_str text)
{
    if (s->junk++ >= JUNK_TOLD)
        return;
    sm_buf shown;
    sm_buf_init(&shown, 1024);
    sm_visible_put(&shown, (sm_str){text.p, text.n < 160 ? text.n : 160});
    mcp_say(s->server->hub, MCP_WARN, "the server printed what is no message (%s); dropped: %.*s%s",
            m->flaw, (int)shown.len, shown.p, s->junk == JUNK_TOLD ? "; no more is told" : "");
    sm_buf_fini(&shown);
}

static void on_link_message(void *context, mcp_way *way, sm_str text)
{
    mcp_session *s = context;
    mcp_exchange *x = (mcp_exchange *)(void *)way;
    mcp_message m;
    size_t cursor = 0;
    sm_str name, item;
    mcp_read(text, &m);
    switch (m.kind) {
    case MCP_RESULT:
    case MCP_ERROR:
        /* Over HTTP the link knows whose answer it is, however the server writes the id. */
        on_answer(s, x != NULL && x->way.own == NULL ? x : mcp_exchange_find(s, m.id), &m);
        break;
    case MCP_REQUEST: mcp_tell_client(s, x == NULL ? NULL : x->channel, m.text); break;
    case MCP_NOTIFICATION: on_server_notification(s, x, &m); break;
    case MCP_BATCH:
        while (mcp_next(m.text, &cursor, &name, &item))
            on_link_message(context, way, item);
        break;
    case MCP_INVALID: on_junk(s, &m, text); break;
    }
}

static void lose(mcp_session *s, mcp_exchange *x, const mcp_loss *loss)
{
    x->under_way = false;
    switch (x->what) {
    case MCP_W_OWN:
        x->answered(x, NULL);
        mcp_exchange_free(x);
        break;
    case MCP_W_CALL: mcp_call_lost(x->call, loss); break;
    default:
        if (x->what == MCP_W_DISCOVER && loss->status >= 400 && loss->status < 500) {
            /* A server of the older era. Whoever asks knows that by this code. */
            mcp_reply_error(x, -32601, "Method not found");
        } else if (x->channel != NULL && loss->status != 0 && !x->canceled) {
            s->client.fail(s->client.context, x->channel, loss);
            mcp_exchange_free(x);
        } else {
            mcp_reply_error(x, loss->sent ? MCP_E_LOST : MCP_E_AWAY, "%s.", loss->why);
        }
        break;
    }
}

static void begin_again(mcp_session *s);

static void on_lost(void *context, mcp_way *way, const mcp_loss *loss)
{
    mcp_session *s = context;
    bool again = loss->session_gone && !s->starting && s->o.renews;
    lose(s, (mcp_exchange *)(void *)way, loss);
    if (again)
        begin_again(s);
}

static void on_link_too_long(void *context, sm_str id, uint64_t length)
{
    mcp_session *s = context;
    char why[96];
    snprintf(why, sizeof why, "the server's answer has %llu bytes, and at most %zu are read",
             (unsigned long long)length, MCP_LINE_MAX);
    mcp_say(s->server->hub, MCP_WARN, "%s", why);
    mcp_exchange *x = id.p == NULL ? NULL : mcp_exchange_find(s, id);
    if (x == NULL)
        return;
    if (x->under_way)
        mcp_link_forget(s->link, &x->way);
    lose(s, x, &(mcp_loss){.sent = true, .why = why});
}

/* ---- a server that goes and comes back -------------------------------------------------------*/

static void on_room(void *context)
{
    mcp_session_regulate(context);
}

static void on_away(mcp_timer *t)
{
    mcp_session *s = (mcp_session *)(void *)((char *)t - offsetof(mcp_session, away_timer));
    s->away = true;
    mcp_listing_go_on(s);
    flush(s); /* whatever waits is answered with that */
}

static void on_down(void *context, const char *why, bool for_good)
{
    mcp_session *s = context;
    s->down = true;
    s->starting = false;
    if (!for_good)
        mcp_say(s->server->hub, MCP_WARN, "%s; it is started again", why);
    if (for_good) {
        s->away = true;
        mcp_listing_go_on(s);
        flush(s);
        s->client.over(s->client.context);
    } else {
        mcp_loop_time(s->server->hub->loop, &s->away_timer, sm_clock_deadline_ns(MCP_AWAY_MS));
    }
}

static void started(mcp_session *s)
{
    s->starting = false;
    mcp_listing_go_on(s);
    flush(s);
}

/* The new server is told what the old one was: the client does not know that it has gone. */
static void on_initialized(mcp_exchange *x, const mcp_message *m)
{
    mcp_session *s = x->session;
    if (m == NULL)
        return; /* gone again */
    if (m->kind != MCP_RESULT)
        mcp_say(s->server->hub, MCP_WARN,
                "the server that was started again turns initialize down");
    mcp_link_send(s->link, SM_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"),
                  NULL);
    if (s->level.len > 0)
        mcp_request(s, "logging/setLevel", sm_buf_view(&s->level), NULL, 0, mcp_ignore, NULL);
    started(s);
}

void mcp_ignore(mcp_exchange *x, const mcp_message *m)
{
    (void)x;
    (void)m;
}

static void begin_again(mcp_session *s)
{
    s->server->stale = true;
    s->starting = s->initialize.len > 0 && mcp_request(s, "initialize", sm_buf_view(&s->initialize),
                                                       NULL, 0, on_initialized, NULL) != NULL;
    if (!s->starting)
        started(s);
}

static void on_up(void *context)
{
    mcp_session *s = context;
    s->down = s->away = false;
    mcp_loop_untime(s->server->hub->loop, &s->away_timer);
    begin_again(s);
}

/* ---- life ------------------------------------------------------------------------------------*/

static sm_str own_text(sm_str text)
{
    char *copy = text.p == NULL ? NULL : malloc(text.n + 1);
    if (copy == NULL)
        return (sm_str){0};
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    return (sm_str){copy, text.n};
}

sm_err mcp_session_new(mcp_server *server, const mcp_session_options *o, mcp_session **out)
{
    mcp_session *s = *out = calloc(1, sizeof *s);
    if (s == NULL)
        return SEMEL_E_NOMEM;
    uint32_t random = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    snprintf(s->own_name, sizeof s->own_name, "\"semel-%08x-", got > 0 ? random : 0);
    s->server = server;
    s->o = *o;
    s->client = *o->client;
    s->actor = own_text(o->actor);
    s->scope = own_text(o->scope);
    s->last = &s->first;
    s->away_timer.due = on_away;
    pthread_mutex_init(&s->told_lock, NULL);
    sm_buf_init(&s->initialize, MCP_LINE_MAX);
    sm_buf_init(&s->level, MCP_LINE_MAX);
    s->next = server->sessions;
    if (s->next != NULL)
        s->next->prev = s;
    server->sessions = s;
    return SM_OK;
}

mcp_link_events mcp_session_events(mcp_session *s)
{
    return (mcp_link_events){.message = on_link_message,
                             .lost = on_lost,
                             .too_long = on_link_too_long,
                             .up = on_up,
                             .down = on_down,
                             .room = on_room,
                             .context = s};
}

void mcp_session_attach(mcp_session *s, mcp_link *link)
{
    s->link = link;
}

size_t mcp_session_writes(const mcp_session *s)
{
    return s->writes;
}

void mcp_session_rest(mcp_session *s)
{
    if (!s->freed)
        s->client.rest(s->client.context);
}

bool mcp_session_busy(const mcp_session *s, bool requests)
{
    return s->writes > 0 || s->first != NULL || (requests && s->requests > 0);
}

void *mcp_session_context(const mcp_session *s)
{
    return s->client.context;
}

void mcp_session_hold(mcp_session *s, bool held)
{
    mcp_link_hold(s->link, held);
}

/* Nobody wants the answer any more, and the server is told. */
static void drop(mcp_session *s, mcp_exchange *x)
{
    if (x->under_way && s->o.shared) {
        sm_buf out;
        sm_buf_init(&out, 4096);
        sm_buf_printf(&out,
                      "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{"
                      "\"requestId\":%.*s}}",
                      SM_FMT(x->sent_id));
        mcp_link_send(s->link, sm_buf_view(&out), NULL);
        sm_buf_fini(&out);
    }
    mcp_exchange_free(x);
}

void mcp_session_gone(mcp_session *s, mcp_channel *channel, bool cancels)
{
    for (size_t i = 0; i < MCP_BUCKETS; i++) {
        for (mcp_exchange *x = s->table[i], *next; x != NULL; x = next) {
            next = x->next;
            if (x->channel != channel || x->canceled)
                continue;
            x->channel = NULL;
            if (x->what == MCP_W_CALL)
                mcp_call_canceled(x->call);
            else if (cancels)
                drop(s, x);
            else
                x->canceled = true;
        }
    }
}

/* Cancels the session's calls, or only those that wait. */
static void cancel_calls(mcp_session *s, bool all)
{
    mcp_call *next;
    for (mcp_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s &&
            (all || call->stage == MCP_PARKED || call->stage == MCP_ELICITING))
            mcp_call_canceled(call);
    }
}

void mcp_session_end(mcp_session *s)
{
    s->ending = true;
    cancel_calls(s, true);
}

void mcp_session_wind_up(mcp_session *s)
{
    cancel_calls(s, false);
}

void mcp_session_free(mcp_session *s)
{
    if (s == NULL)
        return;
    s->freed = true;
    mcp_listing_leave(s);
    mcp_call *next;
    for (mcp_call *call = s->server->calls; call != NULL; call = next) {
        next = call->next;
        if (call->session == s)
            mcp_call_abandon(call);
    }
    for (size_t i = 0; i < MCP_BUCKETS; i++)
        while (s->table[i] != NULL)
            mcp_exchange_free(s->table[i]);
    while (s->first != NULL) {
        mcp_slot *slot = s->first;
        s->first = slot->next;
        slot_free(s, slot);
    }
    mcp_loop_untime(s->server->hub->loop, &s->away_timer);
    mcp_link_close(s->link);
    *(s->prev != NULL ? &s->prev->next : &s->server->sessions) = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    sm_buf_fini(&s->level);
    sm_buf_fini(&s->initialize);
    pthread_mutex_destroy(&s->told_lock);
    free((char *)(uintptr_t)s->actor.p);
    free((char *)(uintptr_t)s->scope.p);
    free(s);
}

const mcp_tool *mcp_session_tool(void *context, sm_str name)
{
    const mcp_server *server = ((mcp_session *)context)->server;
    return server->listing == NULL ? NULL : mcp_tools_find(server->listing->tools, name);
}
