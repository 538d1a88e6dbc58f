/*
 * Order: the server gets messages in the order in which the client sent them. A call that has to
 * ask the ledger first keeps its place (a slot), and what comes after it waits for its turn; the
 * ledger is asked for all of them at once. A call that is answered otherwise, or has to wait for
 * somebody else, gives its place up.
 */
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "json/write.h"
#include "mcp/call/call.h"

void mcp_session_regulate(mcp_session *s)
{
    bool paused = s->waiting_bytes > MCP_QUEUE_BYTES ||
                  (s->link != NULL && mcp_link_full(s->link)) || s->asking > MCP_ASKING_MAX ||
                  s->asking_bytes > MCP_ASKING_BYTES;
    if (paused == s->paused || s->life != MCP_OPEN)
        return;
    s->paused = paused;
    s->client.pause(s->client.context, paused);
}

/* Nothing was sent of a request, or of a message that nobody waits for (NULL). */
static void lose(mcp_exchange *x, const mcp_loss *loss, int code, const char *text)
{
    if (x != NULL && x->what == MCP_W_CALL)
        mcp_call_lost(x->call, loss);
    else if (x != NULL && x->what != MCP_W_OWN)
        mcp_reply_error(x, code, "%s", text);
}

static void lose_for_memory(mcp_exchange *x)
{
    lose(x, &(mcp_loss){.why = "the proxy is out of memory"}, -32603,
         "The proxy is out of memory; nothing was done.");
}

/* Gives a message to the server; if that is away, a request is answered with that. */
static void give(mcp_session *s, sm_str text, mcp_exchange *x)
{
    bool there = s->link != NULL && mcp_session_there(s);
    bool sent = there && mcp_link_send(s->link, text, x == NULL ? NULL : &x->way);
    if (x == NULL)
        return;
    x->under_way = sent;
    if (!sent)
        lose(x, &(mcp_loss){.why = "the server is not running"}, MCP_E_AWAY,
             "The server is not running; nothing was done.");
}

static void slot_free(mcp_session *s, mcp_slot *slot)
{
    s->waiting_bytes -= slot->text.len;
    sm_buf_fini(&slot->text);
    free(slot);
}

void mcp_session_flush(mcp_session *s)
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
    if (s->first != NULL && !s->first->decided && mcp_session_ready(s))
        mcp_loop_time(s->server->hub->loop, &s->order_timer,
                      s->first->since_ns + (int64_t)MCP_ORDER_MS * 1000000);
    mcp_session_regulate(s);
}

/* A ledger that is slow, or away, must not hold up what does not need it. */
void mcp_order_late(mcp_alarm *t)
{
    mcp_session *s = SM_CONTAINER(t, mcp_session, order_timer);
    int64_t before = sm_clock_mono_ns() - (int64_t)MCP_ORDER_MS * 1000000;
    for (mcp_slot *slot = s->first; slot != NULL; slot = slot->next) {
        if (slot->decided || slot->since_ns > before)
            continue;
        slot->x->call->slot = NULL; /* it is sent when it is known, in its turn of then */
        slot->decided = true;
    }
    mcp_session_flush(s);
}

void mcp_slots_free(mcp_session *s)
{
    while (s->first != NULL) {
        mcp_slot *slot = s->first;
        s->first = slot->next;
        slot_free(s, slot);
    }
}

void mcp_slots_forget(mcp_session *s, const mcp_exchange *x)
{
    for (mcp_slot *slot = s->first; slot != NULL; slot = slot->next) {
        if (slot->x != x)
            continue;
        s->waiting_bytes -= slot->text.len;
        sm_buf_clear(&slot->text);
        slot->x = NULL;
    }
}

static mcp_slot *slot_add(mcp_session *s, mcp_exchange *x)
{
    mcp_slot *slot = calloc(1, sizeof *slot);
    if (slot == NULL)
        return NULL;
    sm_buf_init(&slot->text, 2 * MCP_LINE_MAX);
    slot->x = x;
    slot->since_ns = sm_clock_mono_ns();
    *s->last = slot;
    s->last = &slot->next;
    return slot;
}

mcp_slot *mcp_slot_new(mcp_session *s, mcp_exchange *x)
{
    mcp_slot *slot = s->o.alone ? NULL : slot_add(s, x);
    if (slot != NULL && s->first == slot)
        mcp_session_flush(s); /* the clock runs */
    return slot;
}

void mcp_slot_decide(mcp_session *s, mcp_slot *slot, sm_str text)
{
    mcp_exchange *x = slot->x;
    sm_buf_str(&slot->text, text);
    if (slot->text.err != SM_OK) {
        sm_buf_clear(&slot->text);
        slot->x = NULL;
    }
    bool lost = slot->x != x;
    s->waiting_bytes += slot->text.len;
    slot->decided = true;
    mcp_session_flush(s);
    if (lost)
        lose_for_memory(x);
}

void mcp_forward(mcp_session *s, sm_str text, mcp_exchange *x)
{
    if (s->first == NULL && mcp_session_ready(s)) {
        give(s, text, x);
        mcp_session_regulate(s);
        return;
    }
    mcp_slot *slot = slot_add(s, x);
    if (slot != NULL)
        mcp_slot_decide(s, slot, text);
    else
        lose_for_memory(x);
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
    mcp_put_request(&out, x->sent_id, method);
    sm_put_raw(&out, "params", params);
    sm_buf_byte(&out, '}');
    /* One that is being started again has to be greeted before it is asked anything. */
    bool there = s->link != NULL && !mcp_session_starting(s);
    x->under_way = out.err == SM_OK && there && mcp_link_send(s->link, sm_buf_view(&out), &x->way);
    sm_buf_fini(&out);
    if (x->under_way)
        return x;
    mcp_exchange_free(x);
    return NULL;
}

void mcp_forward_now(mcp_session *s, sm_str text)
{
    if (mcp_session_ready(s))
        give(s, text, NULL);
    else
        mcp_forward(s, text, NULL);
}
