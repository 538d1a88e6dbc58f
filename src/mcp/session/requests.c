/*
 * Requests that are not answered yet: a client's, and ours; and what they are answered with.
 *
 * To be able to say the truth when the server goes away, every request is known until it has its
 * answer; that is all that is kept of it.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "json/write.h"
#include "mcp/session/session.h"

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
    char room[MCP_ID_MAX + 2], other[MCP_ID_MAX + 2];
    sm_str key = mcp_id_key(sent_id, room);
    mcp_exchange *x = s->table[bucket_of(key)];
    while (x != NULL && !sm_str_eq(mcp_id_key(x->sent_id, other), key))
        x = x->next;
    return x;
}

static void table_add(mcp_session *s, mcp_exchange *x)
{
    char room[MCP_ID_MAX + 2];
    mcp_exchange **at = &s->table[bucket_of(mcp_id_key(x->sent_id, room))];
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
    x->session->listening -= x->listens;
}

static size_t own_id(const char *name, uint64_t *last, char out[MCP_OWN_ID_MAX])
{
    return (size_t)snprintf(out, MCP_OWN_ID_MAX, "%s%llu\"", name, (unsigned long long)++*last);
}

size_t mcp_question_id(mcp_session *s, char out[MCP_OWN_ID_MAX])
{
    return own_id(s->question_name, &s->last_question, out);
}

mcp_exchange *mcp_exchange_new(mcp_session *s, mcp_what what, sm_str id, mcp_channel *channel)
{
    char own[MCP_OWN_ID_MAX];
    sm_str sent = id;
    if (s->o.shared || what == MCP_W_OWN) {
        sent.n = own_id(s->own_name, &s->last_own, own);
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
    x->asked_ms = s->asked_ms;
    x->greeting = s->greeting;
    table_add(s, x);
    return x;
}

bool mcp_exchange_headers(mcp_exchange *x, const sm_http_field *headers, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        size += sizeof *headers + headers[i].name.n + headers[i].value.n;
    if (size == 0)
        return true;
    x->headers = malloc(size);
    if (x->headers == NULL)
        return false;
    char *at = (char *)(x->headers + n);
    for (size_t i = 0; i < n; i++) {
        sm_str name = headers[i].name, value = headers[i].value;
        x->headers[i] = (sm_http_field){{at, name.n}, {at + name.n, value.n}};
        memcpy(at, name.p, name.n);
        if (value.n > 0)
            memcpy(at + name.n, value.p, value.n);
        at += name.n + value.n;
    }
    x->way.headers = x->headers;
    x->way.header_count = n;
    return true;
}

void mcp_put_own_meta(sm_buf *out, sm_str meta)
{
    static const char prefix[] = "io.modelcontextprotocol/";
    size_t cursor = 0, n = 0;
    sm_str name, value;
    while (meta.p != NULL && sm_raw_next(meta, &cursor, &name, &value)) {
        if (name.n < sizeof prefix - 1 || memcmp(name.p, prefix, sizeof prefix - 1) != 0)
            continue;
        sm_buf_text(out, n++ == 0 ? "{\"" : ",\"");
        sm_buf_str(out, name);
        sm_buf_text(out, "\":");
        sm_buf_str(out, value);
    }
    if (n > 0)
        sm_buf_byte(out, '}');
}

void mcp_exchange_free(mcp_exchange *x)
{
    if (x == NULL)
        return;
    if (x->under_way)
        mcp_link_forget(x->session->link, &x->way);
    else
        mcp_slots_forget(x->session, x);
    if (x->batch != NULL)
        mcp_batch_answer(x->batch, x->session, (sm_str){0});
    mcp_session *s = x->session;
    table_remove(x);
    free((char *)(uintptr_t)x->token.p);
    free(x->headers);
    free(x->read);
    free(x);
    if (s->requests == 0)
        mcp_session_rest(s);
}

/* ---- answers ---------------------------------------------------------------------------------*/

static void deliver(mcp_exchange *x, sm_str text)
{
    mcp_session *s = x->session;
    mcp_batch *batch = x->batch;
    bool wanted = !x->canceled && s->life == MCP_OPEN;
    x->batch = NULL;
    if (batch != NULL) {
        mcp_batch_answer(batch, s, wanted ? text : (sm_str){0});
    } else if (wanted) {
        uint64_t ticket = s->client.deliver(s->client.context, x->channel, text, true);
        if (x->call != NULL)
            mcp_told_add(s, x, ticket);
    }
}

void mcp_reply(mcp_exchange *x, sm_str text)
{
    deliver(x, text);
    mcp_exchange_free(x);
}

static void put_result(sm_buf *out, const mcp_exchange *x, sm_str result)
{
    sm_buf_init(out, 4 * MCP_LINE_MAX);
    mcp_put_answer(out, x->id);
    sm_put_raw(out, "result", result);
    sm_buf_byte(out, '}');
}

void mcp_answer_result(mcp_exchange *x, sm_str result)
{
    sm_buf out;
    put_result(&out, x, result);
    if (out.err == SM_OK)
        deliver(x, sm_buf_view(&out));
    sm_buf_fini(&out);
    x->channel = NULL;
    x->canceled = true;
}

void mcp_reply_result(mcp_exchange *x, sm_str result)
{
    sm_buf out;
    put_result(&out, x, result);
    if (out.err == SM_OK)
        mcp_reply(x, sm_buf_view(&out));
    else
        mcp_reply_error(x, -32603, "out of memory");
    sm_buf_fini(&out);
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
    mcp_put_error(&out, x->id, code, sm_str_from(text));
    mcp_reply(x, sm_buf_view(&out));
    sm_buf_fini(&out);
}

void mcp_complain(mcp_session *s, mcp_channel *channel, mcp_batch *batch, sm_str id, int code,
                  const char *text)
{
    sm_buf out;
    sm_buf_init(&out, MCP_LINE_MAX);
    mcp_put_error(&out, id, code, sm_str_from(text));
    if (batch != NULL)
        mcp_batch_answer(batch, s, sm_buf_view(&out));
    else
        s->client.deliver(s->client.context, channel, sm_buf_view(&out), true);
    sm_buf_fini(&out);
}

void mcp_tell_client(mcp_session *s, mcp_channel *channel, sm_str text)
{
    if (s->life == MCP_OPEN)
        s->client.deliver(s->client.context, channel, text, false);
}
