/*
 * Links that several clients share: a child that serves all clients without sessions of one token.
 *
 * Ids, progress tokens and the names of subscriptions are each client's own, and may be equal. On
 * such a link a request has an id that is unique there, and its progress token is the same text; so
 * whatever the server says of it can be told apart, and goes back with what the client wrote. On
 * all other links messages stay as they are.
 */
#include "mcp/session/session.h"

#define SUBSCRIPTION "io.modelcontextprotocol/subscriptionId"

static bool find_in_meta(sm_str value, const char *name, sm_str *out)
{
    sm_str meta;
    return value.p != NULL && sm_raw_find(value, "_meta", &meta) && sm_raw_find(meta, name, out);
}

/* With both edits made, of which the second may be none. */
static void put_two(sm_buf *out, sm_str text, sm_raw_edit id, sm_raw_edit other)
{
    bool first = other.at.p != NULL && (id.at.p == NULL || other.at.p < id.at.p);
    sm_raw_edit edits[2] = {first ? other : id, first ? id : other};
    size_t n = (size_t)(id.at.p != NULL) + (size_t)(other.at.p != NULL);
    sm_raw_put_edited(out, text, edits, n);
}

void mcp_put_sent(sm_buf *out, const mcp_message *m, const mcp_exchange *x)
{
    sm_str token = {0};
    sm_raw_edit id = {.at = m->id, .with = x->sent_id};
    if (!x->session->o.shared || x->token.p == NULL ||
        !find_in_meta(m->params, "progressToken", &token))
        token = (sm_str){0};
    put_two(out, m->text, id, (sm_raw_edit){.at = token, .with = x->sent_id});
}

void mcp_put_back(sm_buf *out, const mcp_message *m, const mcp_exchange *x)
{
    sm_str part = {0};
    sm_raw_edit id = {.at = m->id, .with = x->id}, other = {0};
    bool progress = strcmp(m->method, "notifications/progress") == 0;
    if (progress && x->token.p != NULL && sm_raw_find(m->params, "progressToken", &part))
        other = (sm_raw_edit){.at = part, .with = x->token};
    else if (find_in_meta(m->kind == MCP_RESULT ? m->result : m->params, SUBSCRIPTION, &part) &&
             sm_str_eq(part, x->sent_id))
        other = (sm_raw_edit){.at = part, .with = x->id};
    put_two(out, m->text, id, other);
}

/* By its token, where that is the client's own. */
static mcp_exchange *find_token(mcp_session *s, sm_str token)
{
    for (size_t i = 0; i < MCP_BUCKETS; i++)
        for (mcp_exchange *x = s->table[i]; x != NULL; x = x->next)
            if (x->token.p != NULL && sm_str_eq(x->token, token))
                return x;
    return NULL;
}

mcp_exchange *mcp_about(mcp_session *s, const mcp_message *m, bool *named)
{
    sm_str name;
    *named = strcmp(m->method, "notifications/progress") == 0 &&
             sm_raw_find(m->params, "progressToken", &name);
    if (*named && !s->o.shared)
        return find_token(s, name);
    *named = *named || (s->o.shared && find_in_meta(m->params, SUBSCRIPTION, &name));
    return *named ? mcp_exchange_find(s, name) : NULL;
}
