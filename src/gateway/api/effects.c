/*
 * GET /v1/effects, /v1/effects/{id} and /v1/effects/{id}/events: reading the ledger.
 *
 * Whatever a query asks for, it gets only what is in the token's scope.
 */
#include <stddef.h>

#include "base/limits.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "gateway/api/api.h"
#include "json/write.h"
#include "ledger/service.h"

#define LIMIT_DEFAULT  50
#define LIMIT_MAX      1000
#define EVENTS_DEFAULT 100

/* A store may look long and find nothing; so often it is asked to go on before a page is sent
 * empty. */
#define ROUNDS_MAX 20

#define COUNT(t) (sizeof(t) / sizeof(t)[0])

/* ---- the list --------------------------------------------------------------------------------*/

typedef struct list_query {
    sm_str state, tool, scope, since, until, cursor;
    int64_t limit;
} list_query;

#define MEMBER(type, n) .name = #n, .offset = offsetof(type, n)
static const gw_member list_members[] = {
    {MEMBER(list_query, state), .kind = GW_M_TEXT},
    {MEMBER(list_query, tool), .kind = GW_M_TEXT},
    {MEMBER(list_query, scope), .kind = GW_M_TEXT},
    {MEMBER(list_query, since), .kind = GW_M_TEXT},
    {MEMBER(list_query, until), .kind = GW_M_TEXT},
    {MEMBER(list_query, limit), .kind = GW_M_COUNT, .min = 1, .max = LIMIT_MAX},
    {MEMBER(list_query, cursor), .kind = GW_M_TEXT},
};

static sm_err read_states(sm_str list, uint32_t *states, sm_fault *fault)
{
    while (list.n > 0) {
        const char *comma = memchr(list.p, ',', list.n);
        sm_str word = {list.p, comma == NULL ? list.n : (size_t)(comma - list.p)};
        sm_nearest nearest = {0};
        uint32_t bit = 0;
        for (int s = SEMEL_S_NONE + 1; s < SEMEL_S_COUNT; s++) {
            sm_str name = sm_str_from(semel_state_name((semel_state)s));
            sm_nearest_try(&nearest, word, name);
            bit |= sm_str_eq(word, name) ? 1u << s : 0;
        }
        sm_str near = sm_nearest_get(&nearest, word);
        if (bit == 0 && near.p != NULL)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "state: \"%.*s\" is no state; did you mean %.*s?",
                                SM_FMT(sm_utf8_cut(word, 60)), SM_FMT(near));
        if (bit == 0)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "state: \"%.*s\" is no state; there are pending_approval, ready, "
                                "running, in_doubt, succeeded, failed, partial, denied, expired "
                                "and canceled, and several are separated by commas",
                                SM_FMT(sm_utf8_cut(word, 60)));
        *states |= bit;
        size_t used = word.n + (comma != NULL);
        list = (sm_str){list.p + used, list.n - used};
    }
    return SM_OK;
}

static sm_err read_list(const list_query *l, semel_query *q, sm_fault *fault)
{
    *q = (semel_query){.size = sizeof *q, .limit = (size_t)l->limit};
    q->filter.tool = l->tool;
    sm_err e = read_states(l->state, &q->filter.states, fault);
    if (e == SM_OK)
        e = gw_read_time("since", l->since, &q->filter.since, fault);
    if (e == SM_OK)
        e = gw_read_time("until", l->until, &q->filter.until, fault);
    if (e == SM_OK && (l->tool.n > SM_TOOL_MAX || l->scope.n > SM_SCOPE_MAX))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "a tool or scope is not that long");
    if (e == SM_OK && l->cursor.p != NULL && !gw_cursor_parse(l->cursor, &q->cursor))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                         "cursor: this is none; take it from the page before");
    return e;
}

static bool put_item(void *context, const semel_answer *item, const semel_record *record)
{
    gw_page *p = context;
    gw_page_item(p);
    sm_answer_put_json(item, &p->out);
    p->out.len -= p->out.err == SM_OK; /* the closing brace: there is more */
    gw_put_text(&p->out, "scope", record->scope);
    gw_put_text(&p->out, "step", record->step);
    gw_put_text(&p->out, "tool", record->tool);
    sm_put_stamp(&p->out, "created_at", record->created_at);
    sm_put_stamp(&p->out, "updated_at", record->updated_at);
    sm_buf_byte(&p->out, '}');
    return !gw_page_full(p);
}

static void list_effects(gw_request *r, semel_answer *a)
{
    list_query l = {.limit = LIMIT_DEFAULT};
    semel_query q;
    sm_fault fault = {0};
    if (!gw_query_read(r, list_members, COUNT(list_members), &l))
        return;
    sm_err e = read_list(&l, &q, &fault);
    if (e != SM_OK) {
        gw_body_refuse(r, &fault);
        return;
    }
    if (!gw_choose_scope(r, l.scope, &q.filter.scope))
        return;
    gw_page p;
    gw_page_start(&p);
    for (int i = 0; e == SM_OK && i < ROUNDS_MAX && p.items == 0 && (i == 0 || q.cursor != 0); i++)
        e = semel_list(r->g->ledger, &q, put_item, &p, &fault);
    if (e == SM_OK) {
        gw_page_reply(r, a, &p, q.cursor);
    } else {
        gw_reply_fault(r, a, e, &fault);
        sm_buf_fini(&p.out);
    }
}

void gw_on_effects(gw_request *r)
{
    gw_work(r, list_effects);
}

/* ---- one effect ------------------------------------------------------------------------------*/

static void show_effect(gw_request *r, semel_answer *a)
{
    sm_handle h;
    if (!gw_query_read(r, NULL, 0, NULL) || !gw_effect_named(r, a, &h))
        return;
    char effect[SM_HANDLE_TEXT];
    semel_name name = {.size = sizeof name, .text = {effect, sm_handle_effect(&h, effect)}};
    sm_str json;
    if (semel_show(r->g->ledger, &name, a, &json) == SM_OK)
        gw_reply_json(r, 200, json);
    else
        gw_reply_refusal(r, a);
}

void gw_on_effect(gw_request *r)
{
    gw_work(r, show_effect);
}

typedef struct events_query {
    sm_str after;
    int64_t limit;
} events_query;

static const gw_member events_members[] = {
    {MEMBER(events_query, after), .kind = GW_M_TEXT},
    {MEMBER(events_query, limit), .kind = GW_M_COUNT, .min = 1, .max = LIMIT_MAX},
};

/* What is told of an effect's events. The last one tells where to go on. */
typedef struct events_page {
    gw_page page;
    uint64_t last;
} events_page;

static bool put_event(void *context, const semel_event *e)
{
    events_page *p = context;
    gw_page_item(&p->page);
    sm_event_put_json(e, &p->page.out);
    p->last = e->seq;
    return !gw_page_full(&p->page);
}

static void show_events(gw_request *r, semel_answer *a)
{
    events_query q = {.limit = EVENTS_DEFAULT};
    uint64_t after = 0;
    sm_handle h;
    if (!gw_query_read(r, events_members, COUNT(events_members), &q))
        return;
    if (q.after.p != NULL && !gw_cursor_parse(q.after, &after)) {
        gw_problem(r, 400, "BAD_ARGUMENTS", "Correct the query.",
                   "after: this is no event's seq; take it from the page before");
        return;
    }
    if (!gw_effect_named(r, a, &h))
        return;
    char effect[SM_HANDLE_TEXT];
    sm_str name = {effect, sm_handle_effect(&h, effect)};
    sm_fault fault = {0};
    events_page p = {0};
    gw_page_start(&p.page);
    sm_err e = semel_events(r->g->ledger, name, &after, (size_t)q.limit, put_event, &p, &fault);
    if (e == SM_OK) {
        bool more = p.page.items == (size_t)q.limit || gw_page_full(&p.page);
        gw_page_reply(r, a, &p.page, more ? p.last : 0);
    } else {
        gw_reply_fault(r, a, e, &fault);
        sm_buf_fini(&p.page.out);
    }
}

void gw_on_events(gw_request *r)
{
    gw_work(r, show_events);
}
