/* Batches: the answers to several requests that came as one message. */
#include <stdlib.h>

#include "mcp/session/session.h"

/* Bytes of answers; and of errors in place of those that find no room. A message has at most
 * MCP_LINE_MAX bytes, and so 450,000 requests: each of them can have an error. */
#define ANSWERS_MAX (8 * MCP_LINE_MAX)
#define EXCUSES_MAX (4 * MCP_LINE_MAX)

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
    sm_buf_init(&b->out, ANSWERS_MAX + EXCUSES_MAX);
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
    if (s->life != MCP_OPEN || b->gone)
        ; /* there is nobody to hear it */
    else if (b->out.len > 1)
        s->client.deliver(s->client.context, b->channel, sm_buf_view(&b->out), true);
    else if (b->channel != NULL) /* nothing is to be said, which over HTTP has to be said */
        s->client.fail(s->client.context, b->channel, &(mcp_loss){.status = 202, .body = {"", 0}});
    sm_buf_fini(&b->out);
    free(b);
}

static void put_excuse(sm_buf *out, sm_str answer)
{
    sm_str id = {0};
    sm_raw_find(answer, "id", &id);
    mcp_put_error(out, id, -32603,
                  SM_STR("No room for this answer. What was done is recorded: ask again for it "
                         "alone."));
}

void mcp_put_excuses(sm_buf *out, sm_str answers)
{
    size_t cursor = 0;
    sm_str name, answer;
    char before = '[';
    if (answers.n == 0 || answers.p[0] != '[') {
        put_excuse(out, answers);
        return;
    }
    while (sm_raw_next(answers, &cursor, &name, &answer)) {
        sm_buf_byte(out, before);
        put_excuse(out, answer);
        before = ',';
    }
    sm_buf_byte(out, ']');
}

void mcp_batch_answer(mcp_batch *b, mcp_session *s, sm_str text)
{
    b->expected--;
    if (text.p != NULL) {
        sm_buf_byte(&b->out, b->out.len == 0 ? '[' : ',');
        if (text.n < ANSWERS_MAX && b->out.len < ANSWERS_MAX - text.n)
            sm_buf_str(&b->out, text);
        else
            put_excuse(&b->out, text);
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
