/*
 * What a session's client was told about effects, and whether that has reached it: the evidence by
 * which an equal call is a deliberate repeat and not a retry.
 *
 * An answer counts once it was delivered and as long as its request was not cancelled, not even
 * afterwards: a client that gave up may not have seen it. What is forgotten for want of room is
 * taken for a retry, which is the safe side.
 */
#include "base/clock.h"
#include "mcp/session.h"

static void copy_id(char out[MCP_OWN_ID_MAX], sm_str written)
{
    char room[MCP_ID_MAX + 2];
    sm_str id = mcp_id_key(written, room);
    size_t n = id.n < MCP_OWN_ID_MAX ? id.n : MCP_OWN_ID_MAX - 1;
    memcpy(out, id.p, n);
    out[n] = '\0';
}

void mcp_told_add(mcp_session *s, const mcp_exchange *x, uint64_t ticket)
{
    if (x->effect == 0 || x->handle[0] == '\0')
        return;
    pthread_mutex_lock(&s->told_lock);
    mcp_told *t = NULL;
    for (unsigned i = 0; i < MCP_TOLD && t == NULL; i++)
        if (s->told[i].effect == x->effect)
            t = &s->told[i];
    if (t == NULL)
        t = &s->told[s->told_at++ % MCP_TOLD];
    *t = (mcp_told){.effect = x->effect, .at_ns = sm_clock_mono_ns(), .done = x->done};
    t->ticket = ticket > s->delivered ? ticket : 0;
    memcpy(t->handle, x->handle, sizeof t->handle);
    copy_id(t->id, x->id);
    pthread_mutex_unlock(&s->told_lock);
}

void mcp_session_delivered(mcp_session *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->told_lock);
    s->delivered = ticket;
    for (unsigned i = 0; i < MCP_TOLD; i++) {
        mcp_told *t = &s->told[i];
        if (t->ticket != 0 && t->ticket <= ticket) {
            t->ticket = 0;
            t->at_ns = sm_clock_mono_ns();
        }
    }
    pthread_mutex_unlock(&s->told_lock);
}

void mcp_session_arrived(mcp_session *s, uint64_t ticket)
{
    pthread_mutex_lock(&s->told_lock);
    for (unsigned i = 0; i < MCP_TOLD; i++)
        if (s->told[i].ticket == ticket && ticket != 0)
            s->told[i].ticket = 0;
    pthread_mutex_unlock(&s->told_lock);
}

void mcp_told_canceled(mcp_session *s, sm_str id)
{
    char text[MCP_OWN_ID_MAX];
    copy_id(text, id);
    pthread_mutex_lock(&s->told_lock);
    for (unsigned i = 0; i < MCP_TOLD; i++)
        if (s->told[i].effect != 0 && strcmp(s->told[i].id, text) == 0)
            s->told[i].effect = 0;
    pthread_mutex_unlock(&s->told_lock);
}

bool mcp_told_about(mcp_session *s, uint64_t effect)
{
    bool found = false;
    pthread_mutex_lock(&s->told_lock);
    for (unsigned i = 0; i < MCP_TOLD && !found; i++)
        found = s->told[i].effect == effect;
    pthread_mutex_unlock(&s->told_lock);
    return found;
}

bool mcp_told_of(mcp_session *s, uint64_t effect, int64_t least_ms, char handle[SM_HANDLE_TEXT])
{
    bool found = false;
    int64_t before = sm_clock_mono_ns() - least_ms * 1000000;
    pthread_mutex_lock(&s->told_lock);
    for (unsigned i = 0; i < MCP_TOLD && !found; i++) {
        const mcp_told *t = &s->told[i];
        found = t->effect == effect && t->done && t->ticket == 0 && t->at_ns <= before;
        if (found)
            memcpy(handle, t->handle, sizeof t->handle);
    }
    pthread_mutex_unlock(&s->told_lock);
    return found;
}
