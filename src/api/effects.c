/*
 * Reading the ledger: effects, one of them, its events.
 *
 * Whatever is asked for, only what is in the scope that who asks is bound to is given.
 */
#include <stddef.h>

#include "api/operation.h"
#include "base/limits.h"
#include "base/suggest.h"
#include "base/utf8.h"
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
static const sm_object_member list_members[] = {
    {MEMBER(list_query, state), .kind = SM_M_TEXT},
    {MEMBER(list_query, tool), .kind = SM_M_TEXT},
    {MEMBER(list_query, scope), .kind = SM_M_TEXT},
    {MEMBER(list_query, since), .kind = SM_M_TEXT},
    {MEMBER(list_query, until), .kind = SM_M_TEXT},
    {MEMBER(list_query, limit), .kind = SM_M_COUNT, .min = 1, .max = LIMIT_MAX},
    {MEMBER(list_query, cursor), .kind = SM_M_TEXT},
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
                                SM_FMT(sm_utf8_cut(word, SM_QUOTED_MAX)), SM_FMT(near));
        if (bit == 0)
            return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                                "state: \"%.*s\" is no state; there are pending_approval, ready, "
                                "running, in_doubt, succeeded, failed, partial, denied, expired "
                                "and canceled, and several are separated by commas",
                                SM_FMT(sm_utf8_cut(word, SM_QUOTED_MAX)));
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
        e = sm_time_parse("since", l->since, &q->filter.since, fault);
    if (e == SM_OK)
        e = sm_time_parse("until", l->until, &q->filter.until, fault);
    if (e == SM_OK && (l->tool.n > SM_TOOL_MAX || l->scope.n > SM_SCOPE_MAX))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "a tool or scope is not that long");
    if (e == SM_OK && l->cursor.p != NULL && !sm_cursor_parse(l->cursor, &q->cursor))
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, SM_BAD_CURSOR);
    return e;
}

static bool put_item(void *context, const semel_answer *item, const semel_record *record)
{
    sm_page *p = context;
    sm_page_item(p);
    sm_answer_put_json(item, &p->out);
    p->out.len -= p->out.err == SM_OK; /* the closing brace: there is more */
    sm_put_utf8(&p->out, "scope", record->scope);
    sm_put_utf8(&p->out, "step", record->step);
    sm_put_utf8(&p->out, "tool", record->tool);
    sm_put_stamp(&p->out, "created_at", record->created_at);
    sm_put_stamp(&p->out, "updated_at", record->updated_at);
    sm_buf_byte(&p->out, '}');
    return !sm_page_full(p);
}

void sm_api_effects(sm_operation *op, semel_answer *a)
{
    list_query l = {.limit = LIMIT_DEFAULT};
    semel_query q;
    sm_fault fault = {0};
    if (!sm_op_parameters(op, list_members, COUNT(list_members), &l))
        return;
    sm_err e = read_list(&l, &q, &fault);
    if (e != SM_OK) {
        sm_op_refuse(op, &fault);
        return;
    }
    if (!sm_op_choose_scope(op, l.scope, &q.filter.scope))
        return;
    sm_page p;
    sm_page_start(&p);
    for (int i = 0; e == SM_OK && i < ROUNDS_MAX && p.items == 0 && (i == 0 || q.cursor != 0); i++)
        e = semel_list(op->ledger, &q, put_item, &p, &fault);
    sm_page_reply(op, a, &p, q.cursor, e, &fault);
}

/* ---- one effect ------------------------------------------------------------------------------*/

void sm_api_effect(sm_operation *op, semel_answer *a)
{
    sm_handle h;
    if (!sm_op_parameters(op, NULL, 0, NULL) || !sm_op_effect(op, a, &h))
        return;
    char effect[SM_HANDLE_TEXT];
    semel_name name = {.size = sizeof name, .text = {effect, sm_handle_effect(&h, effect)}};
    sm_str json;
    semel_err e = semel_show(op->ledger, &name, a, &json);
    sm_op_report(op, a, e, json);
}

typedef struct events_query {
    sm_str after;
    int64_t limit;
} events_query;

static const sm_object_member events_members[] = {
    {MEMBER(events_query, after), .kind = SM_M_LABEL},
    {MEMBER(events_query, limit), .kind = SM_M_COUNT, .min = 1, .max = LIMIT_MAX},
};

/* What is told of an effect's events. The last one tells where to go on. */
typedef struct events_page {
    sm_page page;
    uint64_t last;
} events_page;

static bool put_event(void *context, const semel_event *e)
{
    events_page *p = context;
    sm_page_item(&p->page);
    sm_event_put_json(e, &p->page.out);
    p->last = e->seq;
    return !sm_page_full(&p->page);
}

void sm_api_events(sm_operation *op, semel_answer *a)
{
    events_query q = {.limit = EVENTS_DEFAULT};
    uint64_t after = 0;
    sm_handle h;
    if (!sm_op_parameters(op, events_members, COUNT(events_members), &q))
        return;
    if (q.after.p != NULL && !sm_cursor_parse(q.after, &after)) {
        sm_op_problem(op, 400, "BAD_ARGUMENTS", "Correct the query.",
                      "after: this is no event's seq; take it from the page before");
        return;
    }
    char effect[SM_HANDLE_TEXT];
    sm_str name = {0}; /* all effects, for those who may see all */
    if (op->name.p != NULL || op->bound.n > 0) {
        if (!sm_op_effect(op, a, &h))
            return;
        name = (sm_str){effect, sm_handle_effect(&h, effect)};
    }
    sm_fault fault = {0};
    events_page p = {0};
    sm_page_start(&p.page);
    sm_err e = semel_events(op->ledger, name, &after, (size_t)q.limit, put_event, &p, &fault);
    bool more = p.page.items == (size_t)q.limit || sm_page_full(&p.page);
    sm_page_reply(op, a, &p.page, more ? p.last : 0, e, &fault);
}
