/*
 * Which answers a session's client has taken: the evidence that an equal call is a deliberate
 * repeat, not a retry.
 *
 * A repeat runs only if the program that asks must have had the answer. It is not enough that its
 * process has read the bytes: clients that have given up read a late answer and throw it away, and
 * not all of them send a cancel. So an answer counts only if
 *
 *     it says that the effect was done, and its request was not cancelled, not even afterwards;
 *     its request was whole, not a later leg of a call that its client began earlier;
 *     the client's process took it out of the pipe, at most `delivered_within` after it asked,
 *     which is well before any client gives up;
 *     and the same session asks again no sooner than `repeat_after` later.
 *
 * The clock goes on while the machine sleeps, as a client elsewhere may. Only stdio knows these
 * times: over HTTP nothing proves delivery, and no answer ever counts. If the table is full, the
 * oldest answer is forgotten, and a repeat of it counts as a retry: that is safe.
 */
#include "base/clock.h"
#include "core/contract.h"
#include "mcp/session/session.h"

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
    if (x->effect == 0 || x->handle[0] == '\0' || x->greeting != s->greeting)
        return;
    pthread_mutex_lock(&s->told_lock);
    mcp_told *t = NULL;
    for (unsigned i = 0; i < MCP_TOLD && t == NULL; i++)
        if (s->told[i].effect == x->effect)
            t = &s->told[i];
    if (t == NULL)
        t = &s->told[s->told_at++ % MCP_TOLD];
    *t =
        (mcp_told){.effect = x->effect, .ticket = ticket, .asked_ms = x->asked_ms, .done = x->done};
    memcpy(t->handle, x->handle, sizeof t->handle);
    copy_id(t->id, x->id);
    pthread_mutex_unlock(&s->told_lock);
}

void mcp_session_taken(mcp_session *s, uint64_t ticket, int64_t now_ms)
{
    pthread_mutex_lock(&s->told_lock);
    for (unsigned i = 0; i < MCP_TOLD && ticket > s->taken; i++) {
        mcp_told *t = &s->told[i];
        if (t->taken_ms == 0 && t->ticket != 0 && t->ticket <= ticket)
            t->taken_ms = now_ms;
    }
    s->taken = ticket;
    pthread_mutex_unlock(&s->told_lock);
}

void mcp_told_forget(mcp_session *s)
{
    pthread_mutex_lock(&s->told_lock);
    memset(s->told, 0, sizeof s->told);
    s->greeting++;
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

/* Whether the client took the answer in time, and the repeat came late enough after it. */
static bool proves(const mcp_told *t, int64_t repeat_ms, const sm_contract *c)
{
    return t->done && t->taken_ms != 0 && repeat_ms >= t->taken_ms &&
           t->taken_ms - t->asked_ms < c->delivered_within_ms &&
           repeat_ms - t->taken_ms >= c->repeat_after_ms;
}

bool mcp_told_proves(const mcp_exchange *x, const sm_contract *c)
{
    return x->asked_ms != 0 && x->done && x->batch == NULL && c->on_repeat == SM_REPEAT_RUN &&
           sm_clock_boot_ms() - x->asked_ms < c->delivered_within_ms;
}

bool mcp_told_of(mcp_session *s, const mcp_exchange *x, uint64_t effect, const sm_contract *c,
                 char handle[SM_HANDLE_TEXT])
{
    bool found = false;
    pthread_mutex_lock(&s->told_lock);
    for (unsigned i = 0; i < MCP_TOLD && !found; i++) {
        const mcp_told *t = &s->told[i];
        found = t->effect == effect && proves(t, x->asked_ms, c);
        if (found)
            memcpy(handle, t->handle, sizeof t->handle);
    }
    pthread_mutex_unlock(&s->told_lock);
    return found;
}
