/* What undoes what a run did. */
#include "api/undo.h"

#include <inttypes.h>

#include "api/operation.h"
#include "json/write.h"
#include "ledger/service.h"

#define PAGE      50u
#define LIMIT_MAX 1000

/* Pages that are read for one part at most: effects of scopes below are passed over. */
#define ROUNDS_MAX 100

/* The cursor behind so many effects. */
static sm_err pass_over(semel *s, sm_str scope, uint64_t *cursor, size_t count, sm_fault *fault)
{
    sm_err e = SM_OK;
    for (size_t n, passed = 0; e == SM_OK && passed < count; passed += n) {
        sm_handle one;
        e = sm_scope_effects(s, scope, cursor, &one, 1, &n, fault);
        if (*cursor == 0)
            break; /* others were purged meanwhile */
    }
    return e;
}

/* Puts one item; one that was purged meanwhile is left out. */
static sm_err put_item(semel *s, const sm_handle *effect, semel_answer *a, sm_buf *out,
                       sm_undo_part *p, sm_fault *fault)
{
    sm_undo u;
    sm_err e = sm_undo_of(s, effect, a, &u);
    if (e != SM_OK)
        return e == SEMEL_E_NOT_FOUND ? SM_OK : sm_fault_set(fault, e, "%.*s", SM_FMT(a->message));
    p->todo += u.status == SM_UNDO_TODO;
    sm_put_item(out);
    sm_undo_put_json(&u, out);
    return out->err;
}

static bool is_gone(const sm_operation *op)
{
    return op->door->is_gone != NULL && op->door->is_gone(op);
}

sm_err sm_undo_part_put(sm_operation *op, semel_answer *a, sm_str scope, sm_undo_part *p,
                        sm_buf *out, sm_fault *fault)
{
    semel *s = op->ledger;
    sm_handle page[PAGE];
    size_t left = p->limit, n, rounds = 0;
    do {
        uint64_t from = p->cursor;
        sm_err e =
            sm_scope_effects(s, scope, &p->cursor, page, left < PAGE ? left : PAGE, &n, fault);
        for (size_t i = 0; e == SM_OK && i < n; i++) {
            if (out->len > SM_PAGE_BYTES || is_gone(op)) {
                p->cursor = from;
                return pass_over(s, scope, &p->cursor, i, fault);
            }
            e = put_item(s, &page[i], a, out, p, fault);
        }
        if (e != SM_OK)
            return e;
        left -= n;
    } while (p->cursor != 0 && left > 0 && ++rounds < ROUNDS_MAX);
    return SM_OK;
}

void sm_undo_part_end(const sm_undo_part *p, bool complete, sm_buf *out)
{
    sm_buf_byte(out, ']');
    sm_put_number(out, "todo", p->todo);
    sm_put_bool(out, "complete", complete);
}

typedef struct plan_query {
    sm_str cursor;
    int64_t limit;
} plan_query;

void sm_api_undo_plan(sm_operation *op, semel_answer *a)
{
    static const sm_object_member members[] = {
        {.name = "limit",
         .offset = offsetof(plan_query, limit),
         .kind = SM_M_COUNT,
         .min = 1,
         .max = LIMIT_MAX},
        {.name = "cursor", .offset = offsetof(plan_query, cursor), .kind = SM_M_TEXT}};
    plan_query q = {.limit = SM_UNDO_ITEMS};
    sm_fault fault = {0};
    sm_buf out;
    if (!sm_op_parameters(op, members, 2, &q) || !sm_op_may_use(op, op->name))
        return;
    sm_undo_part p = {.limit = (size_t)q.limit};
    if (q.cursor.p != NULL && !sm_cursor_parse(q.cursor, &p.cursor)) {
        sm_fault_set(&fault, SEMEL_E_BAD_ARGUMENTS, SM_BAD_CURSOR);
        sm_op_refuse(op, &fault);
        return;
    }
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_buf_byte(&out, '{');
    sm_put_text(&out, "scope", op->name);
    sm_put_open(&out, "items", '[');
    bool whole = p.cursor == 0;
    sm_err e = sm_undo_part_put(op, a, op->name, &p, &out, &fault);
    sm_undo_part_end(&p, whole && p.cursor == 0, &out);
    if (p.cursor != 0)
        sm_buf_printf(&out, ",\"cursor\":\"%" PRIu64 "\"", p.cursor);
    sm_buf_byte(&out, '}');
    if (e == SM_OK)
        sm_op_json(op, a, &out);
    else
        sm_op_fault(op, a, e, &fault);
    sm_buf_fini(&out);
}
