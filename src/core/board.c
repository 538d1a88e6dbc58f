/* The board as JSON, and what it stops. */
#include "core/board.h"

#include <stdlib.h>

#include "core/glob.h"
#include "json/json.h"
#include "json/write.h"

const char *sm_halt_name(sm_halt_kind kind)
{
    static const char *const names[] = {"all", "scope", "tool", "loop"};
    return names[kind];
}

/* ---- reading ---------------------------------------------------------------------------------*/

static sm_str text_of(const sm_json *object, const char *name)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    return v != NULL && v->type == SM_JSON_STRING ? sm_json_text(v) : (sm_str){0};
}

static int64_t number_of(const sm_json *object, const char *name)
{
    const sm_json *v = sm_json_find(object, sm_str_from(name));
    return v != NULL && v->type == SM_JSON_NUMBER ? strtoll(v->text, NULL, 10) : 0;
}

static bool read_halt(const sm_json *v, sm_halt *h)
{
    sm_str kind = text_of(v, "kind"), detector = text_of(v, "detector");
    h->name = text_of(v, "name");
    h->reason = text_of(v, "reason");
    h->by = text_of(v, "by");
    h->at = number_of(v, "at");
    h->match.period = (uint32_t)number_of(v, "period");
    h->match.count = (uint32_t)number_of(v, "count");
    for (int d = SM_LOOP_REPEAT; d <= SM_LOOP_NO_PROGRESS; d++) {
        if (sm_str_is(detector, sm_loop_name((sm_loop_detector)d)))
            h->match.detector = (sm_loop_detector)d;
    }
    for (int k = SM_HALT_ALL; k <= SM_HALT_LOOP; k++) {
        if (sm_str_is(kind, sm_halt_name((sm_halt_kind)k))) {
            h->kind = (sm_halt_kind)k;
            return k == SM_HALT_ALL || h->name.n > 0;
        }
    }
    return false;
}

bool sm_board_read(sm_arena *a, sm_str text, sm_board *out)
{
    const sm_json *root, *list;
    *out = (sm_board){0};
    if (text.p == NULL)
        return true;
    if (sm_json_read(a, text, &sm_json_args_limits, &root, NULL) != SM_OK ||
        (list = sm_json_find(root, SM_STR("halts"))) == NULL || list->type != SM_JSON_ARRAY ||
        list->len > SM_HALTS_MAX)
        return false;
    out->halts = sm_arena_zalloc(a, list->len + 1, sizeof *out->halts);
    if (out->halts == NULL)
        return false;
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        if (!read_halt(item, &out->halts[out->n++]))
            return false;
    }
    return true;
}

/* ---- writing ---------------------------------------------------------------------------------*/

void sm_halt_put(const sm_halt *h, sm_buf *out)
{
    sm_buf_byte(out, '{');
    sm_put_text(out, "kind", sm_str_from(sm_halt_name(h->kind)));
    sm_put_text(out, "name", h->name);
    sm_put_text(out, "reason", h->reason);
    sm_put_text(out, "by", h->by);
    sm_put_signed(out, "at", h->at);
    if (h->kind == SM_HALT_LOOP) {
        sm_put_text(out, "detector", sm_str_from(sm_loop_name(h->match.detector)));
        sm_put_number(out, "period", h->match.period);
        sm_put_number(out, "count", h->match.count);
    }
    sm_buf_byte(out, '}');
}

void sm_board_put(const sm_board *b, sm_buf *out)
{
    sm_buf_byte(out, '{');
    sm_put_open(out, "halts", '[');
    for (uint32_t i = 0; i < b->n; i++) {
        sm_put_item(out);
        sm_halt_put(&b->halts[i], out);
    }
    sm_buf_text(out, "]}");
}

/* ---- changing and asking ---------------------------------------------------------------------*/

sm_halt *sm_board_find(const sm_board *b, sm_halt_kind kind, sm_str name)
{
    for (uint32_t i = 0; i < b->n; i++) {
        sm_halt *h = &b->halts[i];
        if (h->kind == kind && (kind == SM_HALT_ALL || sm_str_eq(h->name, name)))
            return h;
    }
    return NULL;
}

bool sm_board_add(sm_arena *a, sm_board *b, const sm_halt *h)
{
    if (b->n >= SM_HALTS_MAX)
        return false;
    sm_halt *more = sm_arena_alloc(a, (b->n + 1) * sizeof *more);
    if (more == NULL)
        return false;
    if (b->n > 0)
        memcpy(more, b->halts, b->n * sizeof *more);
    more[b->n++] = *h;
    b->halts = more;
    return true;
}

void sm_board_remove(sm_board *b, sm_halt *h)
{
    size_t behind = (size_t)(b->halts + b->n - (h + 1));
    memmove(h, h + 1, behind * sizeof *h);
    b->n--;
}

/* Whether a scope is this one, or below it. */
static bool is_within(sm_str scope, sm_str above)
{
    return scope.n >= above.n && memcmp(scope.p, above.p, above.n) == 0 &&
           (scope.n == above.n || scope.p[above.n] == '/');
}

const sm_halt *sm_board_stops(const sm_board *b, sm_str scope, sm_str tool)
{
    const sm_halt *loop = NULL; /* what a person says comes first */
    for (uint32_t i = 0; i < b->n; i++) {
        const sm_halt *h = &b->halts[i];
        bool stops = h->kind == SM_HALT_ALL ||
                     (h->kind == SM_HALT_SCOPE && is_within(scope, h->name)) ||
                     (h->kind == SM_HALT_TOOL && sm_glob_matches(h->name, tool));
        if (stops)
            return h;
        if (h->kind == SM_HALT_LOOP && sm_str_eq(h->name, scope))
            loop = h;
    }
    return loop;
}
