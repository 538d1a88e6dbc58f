/* Batches: the answers to several requests that came as one message. */
#include <stdlib.h>

#include "mcp/session.h"

struct mcp_batch {
    mcp_channel *channel;
    size_t expected;
    bool done; /* all of its messages have been looked at */
    bool gone; /* nobody waits for it any more */
    sm_buf out;
};

mcp_batch *mcp_batch_new(mcp_channel *channel)
{
    mcp_batch *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->channel = channel;
    sm_buf_init(&b->out, 8 * MCP_LINE_MAX);
    return b;
}

void mcp_batch_expect(mcp_batch *b)
{
    b->expected++;
}

/* All answers are there: they go back, and the batch with them. */
static void finish(mcp_batch *b, mcp_session *s)
{
    if (!b->done || b->expected > 0)
        return;
    sm_buf_byte(&b->out, ']');
    if (b->out.err != SM_OK) {
        sm_buf_clear(&b->out);
        mcp_put_error(&b->out, (sm_str){0}, -32603,
                      SM_STR("The answers are too large for a batch."));
    }
    if (s->ending || b->gone)
        ; /* there is nobody to hear it */
    else if (b->out.len > 1)
        s->client.deliver(s->client.context, b->channel, sm_buf_view(&b->out), true);
    else if (b->channel != NULL) /* nothing is to be said, which over HTTP has to be said */
        s->client.fail(s->client.context, b->channel, &(mcp_loss){.status = 202, .body = {"", 0}});
    sm_buf_fini(&b->out);
    free(b);
}

void mcp_batch_answer(mcp_batch *b, mcp_session *s, sm_str text)
{
    b->expected--;
    if (text.p != NULL) {
        sm_buf_byte(&b->out, b->out.len == 0 ? '[' : ',');
        sm_buf_str(&b->out, text);
    }
    finish(b, s);
}

void mcp_batch_gone(mcp_batch *b)
{
    b->gone = true;
    b->channel = NULL;
}

void mcp_batch_done(mcp_batch *b, mcp_session *s)
{
    b->done = true;
    finish(b, s);
}
