/*
 * What waits for a person, the newest request first.
 *
 * A record knows that a request is open, for what and until when; who asked, and when, is in its
 * history. So effects that wait are listed first and then looked at one by one.
 */
#include <stddef.h>

#include "api/operation.h"
#include "json/write.h"
#include "ledger/service.h"

#define LIMIT_DEFAULT 50
#define LIMIT_MAX     200
#define ROUNDS_MAX    20
#define EVENTS_PAGE   200u

typedef struct query {
    sm_str cursor;
    int64_t limit;
} query;

#define MEMBER(n) .name = #n, .offset = offsetof(query, n)
static const sm_object_member members[] = {
    {MEMBER(limit), .kind = SM_M_COUNT, .min = 1, .max = LIMIT_MAX},
    {MEMBER(cursor), .kind = SM_M_TEXT},
};

typedef struct waiting {
    sm_handle v[LIMIT_MAX];
    size_t n;
} waiting;

static bool collect(void *context, const semel_answer *item, const semel_record *record)
{
    waiting *w = context;
    if (item->state == SEMEL_S_PENDING && w->n < LIMIT_MAX)
        w->v[w->n++] =
            (sm_handle){.shard = record->shard, .id = record->id, .generation = record->generation};
    return w->n < LIMIT_MAX;
}

/* The newest request of an effect, as its history tells it. */
typedef struct asked {
    int64_t at;
    char actor[SM_ACTOR_MAX + 1];
} asked;

static bool find_asked(void *context, const semel_event *e)
{
    asked *q = context;
    static const char word[] = "requested";
    if (e->what.p == NULL || memmem(e->what.p, e->what.n, word, sizeof word - 1) == NULL)
        return true;
    q->at = e->at;
    size_t n = e->actor.n < sizeof q->actor ? e->actor.n : 0;
    memcpy(q->actor, n > 0 ? e->actor.p : "", n);
    q->actor[n] = '\0';
    return true;
}

static sm_err read_asked(semel *s, sm_str effect, asked *out, sm_fault *fault)
{
    *out = (asked){0};
    for (uint64_t after = 0, before = 1; after != before;) {
        before = after;
        sm_err e = semel_events(s, effect, &after, EVENTS_PAGE, find_asked, out, fault);
        if (e != SM_OK)
            return e;
    }
    return SM_OK;
}

static void put_request(sm_page *p, const semel_answer *a, const asked *q)
{
    sm_pending what;
    sm_pending_of(a, &what);
    sm_buf *out = &p->out;
    sm_page_item(p);
    sm_buf_byte(out, '{');
    sm_put_utf8(out, "request", a->request);
    sm_put_utf8(out, "effect", a->effect);
    sm_put_number(out, "version", a->version);
    sm_put_utf8(out, "scope", what.scope);
    sm_put_utf8(out, "step", what.step);
    sm_put_utf8(out, "tool", what.tool);
    sm_put_raw(out, "args", what.args);
    sm_put_stamp(out, "requested_at", q->at != 0 ? q->at : what.created_at);
    if (what.expires_at != INT64_MAX)
        sm_put_stamp(out, "expires_at", what.expires_at);
    if (q->actor[0] != '\0')
        sm_put_utf8(out, "requested_by", sm_str_from(q->actor));
    sm_put_number(out, "approvals", what.approvals);
    sm_put_number(out, "quorum", what.quorum);
    sm_buf_byte(out, '}');
}

/* Adds one, unless it was decided meanwhile. */
static sm_err add(sm_operation *op, semel_answer *a, const sm_handle *h, sm_page *p,
                  sm_fault *fault)
{
    char effect[SM_HANDLE_TEXT];
    asked q;
    semel_name name = {.size = sizeof name, .text = {effect, sm_handle_effect(h, effect)}};
    sm_err e = read_asked(op->ledger, name.text, &q, fault);
    if (e == SM_OK)
        e = semel_get(op->ledger, &name, a);
    if (e == SEMEL_E_NOT_FOUND)
        return SM_OK;
    if (e == SM_OK && a->state == SEMEL_S_PENDING)
        put_request(p, a, &q);
    return e;
}

void sm_api_approvals(sm_operation *op, semel_answer *a)
{
    query l = {.limit = LIMIT_DEFAULT};
    sm_fault fault = {0};
    if (!sm_op_parameters(op, members, sizeof members / sizeof members[0], &l))
        return;
    semel_query q = {.size = sizeof q, .limit = (size_t)l.limit};
    q.filter.states = 1u << SEMEL_S_PENDING;
    q.filter.scope = op->bound;
    if (l.cursor.p != NULL && !sm_cursor_parse(l.cursor, &q.cursor)) {
        sm_op_problem(op, 400, "BAD_ARGUMENTS", "Correct the query.", SM_BAD_CURSOR);
        return;
    }
    waiting w = {.n = 0};
    sm_page p;
    sm_page_start(&p);
    sm_err e = SM_OK;
    for (int i = 0; e == SM_OK && i < ROUNDS_MAX && w.n == 0 && (i == 0 || q.cursor != 0); i++)
        e = semel_list(op->ledger, &q, collect, &w, &fault);
    for (size_t i = 0; e == SM_OK && i < w.n; i++)
        e = add(op, a, &w.v[i], &p, &fault);
    sm_page_reply(op, a, &p, q.cursor, e, &fault);
}
