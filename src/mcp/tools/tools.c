/*
 * The tools that a server lists.
 *
 * What comes in has been seen by mcp_read, so it is JSON; what it says is believed as little as
 * possible. Hints count only where they are plainly true or false. A tool that says something of
 * weight twice, such as its annotations, has said nothing; one whose name could not be called is
 * not added.
 *
 * Memory is bounded as a whole (I12): where it ends, tools are kept without their schemas and
 * descriptions.
 */
#include "mcp/tools.h"

#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "core/call.h"
#include "json/canon.h"

#define DESCRIPTION_BYTES_MAX (64u << 10)
#define CURSOR_BYTES_MAX      (64u << 10)

struct mcp_tools {
    sm_arena arena; /* tools and their names; their number bounds it */
    sm_arena texts; /* schemas and descriptions, as long as there is room */
    sm_digest digest;
    sm_buf scratch, cursor;
    mcp_tool **v;      /* in the server's order; then those that are gone */
    mcp_tool **sorted; /* all of them by name */
    size_t n, gone, room;
    size_t left_out;
};

mcp_tools *mcp_tools_new(void)
{
    mcp_tools *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    sm_arena_init(&t->arena, SM_ARENA_MAX);
    sm_arena_init(&t->texts, SM_ARENA_MAX);
    sm_buf_init(&t->scratch, SM_ARENA_MAX);
    sm_buf_init(&t->cursor, CURSOR_BYTES_MAX);
    if (sm_digest_init(&t->digest) != SM_OK) {
        mcp_tools_free(t);
        return NULL;
    }
    return t;
}

void mcp_tools_free(mcp_tools *t)
{
    if (t == NULL)
        return;
    sm_digest_fini(&t->digest);
    sm_buf_fini(&t->cursor);
    sm_buf_fini(&t->scratch);
    sm_arena_fini(&t->texts);
    sm_arena_fini(&t->arena);
    free(t->sorted);
    free(t->v);
    free(t);
}

size_t mcp_tools_count(const mcp_tools *t)
{
    return t->n;
}

size_t mcp_tools_left_out(const mcp_tools *t)
{
    return t->left_out;
}

const mcp_tool *mcp_tools_at(const mcp_tools *t, size_t i)
{
    return t->v[i];
}

size_t mcp_tools_gone(const mcp_tools *t)
{
    return t->gone;
}

const mcp_tool *mcp_tools_gone_at(const mcp_tools *t, size_t i)
{
    return t->v[t->n + i];
}

mcp_hints *mcp_tools_hints(mcp_tools *t, size_t i)
{
    return &t->v[i]->hints;
}

/* ---- finding ---------------------------------------------------------------------------------*/

static int compare(sm_str a, sm_str b)
{
    int order = memcmp(a.p, b.p, a.n < b.n ? a.n : b.n);
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

/* Where a name is among the sorted ones, or belongs. */
static size_t place(const mcp_tools *t, sm_str name, bool *there)
{
    size_t from = 0, to = t->n + t->gone;
    *there = false;
    while (from < to && !*there) {
        size_t middle = from + (to - from) / 2;
        int order = compare(name, t->sorted[middle]->name);
        if (order == 0) {
            from = middle;
            *there = true;
        } else if (order < 0) {
            to = middle;
        } else {
            from = middle + 1;
        }
    }
    return from;
}

const mcp_tool *mcp_tools_known(const mcp_tools *t, sm_str name)
{
    bool there = false;
    size_t at = name.n == 0 ? 0 : place(t, name, &there);
    return there ? t->sorted[at] : NULL;
}

const mcp_tool *mcp_tools_find(const mcp_tools *t, sm_str name)
{
    const mcp_tool *tool = mcp_tools_known(t, name);
    return tool == NULL || tool->gone ? NULL : tool;
}

bool mcp_tool_hinted(const mcp_tool *tool, const sm_contracts *set)
{
    return tool->hints.read_only && set->trust_annotations && set->unlisted != SM_UNLISTED_HIDE;
}

static bool make_room(mcp_tools *t)
{
    if (t->n + t->gone < t->room)
        return true;
    size_t room = t->room == 0 ? 32 : t->room * 2;
    mcp_tool **v = realloc(t->v, room * sizeof(mcp_tool *));
    if (v != NULL)
        t->v = v;
    mcp_tool **sorted = realloc(t->sorted, room * sizeof(mcp_tool *));
    if (sorted != NULL)
        t->sorted = sorted;
    if (v == NULL || sorted == NULL)
        return false;
    t->room = room;
    return true;
}

/* ---- pinned defaults -------------------------------------------------------------------------*/

void mcp_tools_doubt(mcp_tools *t, size_t i)
{
    t->v[i]->fill = t->v[i]->latest;
    t->v[i]->unsure = t->v[i]->fill != NULL;
}

/* Without memory for it, nobody knows. */
static void pin_defaults(mcp_tools *t, mcp_tool *tool, sm_str text)
{
    const sm_json *root = NULL;
    tool->unsure = false;
    tool->pinned = text.p == NULL ? text : sm_arena_text(&t->texts, text);
    sm_buf_clear(&t->scratch);
    sm_defaults_put(&t->scratch, tool->latest);
    tool->fill = tool->latest;
    tool->drifted =
        text.p == NULL ? tool->latest != NULL : !sm_str_eq(text, sm_buf_view(&t->scratch));
    if (tool->pinned.p != NULL && !tool->drifted)
        return;
    tool->fill = NULL;
    if (tool->pinned.p != NULL &&
        sm_json_read(&t->texts, text, &sm_json_default_limits, &root, NULL) == SM_OK)
        tool->fill = sm_defaults_of(&t->texts, root);
    tool->unsure = text.p != NULL && tool->fill == NULL && !sm_str_is(text, "{}");
}

void mcp_tools_pin(mcp_tools *t, size_t i, sm_str text)
{
    pin_defaults(t, t->v[i], text);
}

void mcp_tools_pin_gone(mcp_tools *t, sm_str name, sm_str text)
{
    bool there = false;
    size_t at = place(t, name, &there);
    mcp_tool *tool = there ? NULL : sm_arena_zalloc(&t->arena, 1, sizeof *tool);
    if (tool == NULL || !make_room(t))
        return;
    tool->gone = true;
    tool->name = sm_arena_text(&t->arena, name);
    if (tool->name.p == NULL)
        return;
    pin_defaults(t, tool, text);
    memmove(t->sorted + at + 1, t->sorted + at, (t->n + t->gone - at) * sizeof(mcp_tool *));
    t->sorted[at] = tool;
    t->v[t->n + t->gone++] = tool;
}

/* ---- reading one -----------------------------------------------------------------------------*/

/* A hint, or its default unless it is plainly said. */
static bool hint(sm_str annotations, const char *name, bool otherwise)
{
    sm_str value;
    if (annotations.p == NULL || !sm_raw_find_plain(annotations, name, &value))
        return otherwise;
    if (sm_raw_is_true(value))
        return true;
    return sm_str_is(value, "false") ? false : otherwise;
}

static mcp_hints read_hints(sm_str tool)
{
    sm_str annotations = {0};
    if (!sm_raw_find_plain(tool, "annotations", &annotations) || !sm_raw_is_object(annotations))
        annotations = (sm_str){0};
    return (mcp_hints){
        .read_only = hint(annotations, "readOnlyHint", false),
        .destructive = hint(annotations, "destructiveHint", true),
        .idempotent = hint(annotations, "idempotentHint", false),
        .open_world = hint(annotations, "openWorldHint", true),
    };
}

/* Text without escapes, in the arena. Absent if it is no string or too long. */
static sm_str read_description(mcp_tools *t, sm_str tool)
{
    sm_str value;
    if (!sm_raw_find_plain(tool, "description", &value) || !sm_raw_is_string(value) ||
        value.n > DESCRIPTION_BYTES_MAX)
        return (sm_str){0};
    char *text = sm_arena_alloc(&t->texts, value.n); /* decoded it is shorter, if only by quotes */
    if (text == NULL || !sm_raw_text(value, text, value.n))
        return (sm_str){0};
    return sm_str_from(text);
}

/* A schema that has no canonical form, such as one with a number beyond all doubles, cannot be
 * compared: it counts as one that cannot be read. */
static sm_err read_schema(mcp_tools *t, sm_str text, mcp_tool *tool)
{
    const sm_json *root = NULL;
    sm_buf_clear(&t->scratch);
    sm_err e = sm_json_read(&t->texts, text, &sm_json_default_limits, &root, NULL);
    if (e == SM_OK)
        e = sm_json_canon(root, &t->scratch, text, NULL);
    if (e == SM_OK && root->type == SM_JSON_OBJECT) {
        tool->schema = root;
        tool->fill = tool->latest = sm_defaults_of(&t->texts, root);
    }
    sm_str hashed = e == SM_OK ? sm_buf_view(&t->scratch) : text;
    return sm_digest_bytes(&t->digest, hashed.p, hashed.n, &tool->schema_digest);
}

/* The name in `room`, absent unless it can be called. */
static sm_str read_name(sm_str tool, char room[SM_TOOL_MAX + 1])
{
    sm_str value;
    if (!sm_raw_find_plain(tool, "name", &value) || !sm_raw_text(value, room, SM_TOOL_MAX + 1))
        return (sm_str){0};
    const sm_parsed_call call = {.scope = SM_STR("any"), .tool = sm_str_from(room)};
    return sm_call_check(&call, NULL) == SM_OK ? call.tool : (sm_str){0};
}

static sm_err add_tool(mcp_tools *t, sm_str item)
{
    char room[SM_TOOL_MAX + 1];
    bool there = false;
    assert(t->gone == 0);
    sm_str name = read_name(item, room);
    size_t at = name.p == NULL ? 0 : place(t, name, &there);
    if (there)
        return SM_OK;
    if (name.p == NULL || t->n == MCP_TOOLS_MAX) {
        t->left_out++;
        return SM_OK;
    }
    mcp_tool *tool = sm_arena_zalloc(&t->arena, 1, sizeof *tool);
    if (!make_room(t) || tool == NULL)
        return SEMEL_E_NOMEM;
    tool->name = sm_arena_text(&t->arena, name);
    if (tool->name.p == NULL)
        return SEMEL_E_NOMEM;
    tool->hints = tool->said = read_hints(item);
    tool->description = read_description(t, item);
    sm_str schema = {0};
    tool->has_output = sm_raw_find(item, "outputSchema", &schema) && sm_raw_is_object(schema);
    if (!sm_raw_find_plain(item, "inputSchema", &schema))
        schema = SM_STR("");
    sm_err e = read_schema(t, schema, tool);
    if (e != SM_OK)
        return e;
    memmove(t->sorted + at + 1, t->sorted + at, (t->n - at) * sizeof(mcp_tool *));
    t->sorted[at] = tool;
    t->v[t->n++] = tool;
    return SM_OK;
}

/* ---- a page ----------------------------------------------------------------------------------*/

/* The list in a result, unless there is none or two of them. */
static bool find_list(sm_str result, sm_str *list)
{
    return sm_raw_find_plain(result, "tools", list) && list->n > 0 && list->p[0] == '[';
}

/* An empty cursor is what some servers write instead of none. */
static sm_str next_cursor(mcp_tools *t, sm_str result)
{
    sm_str value;
    if (!sm_raw_find_plain(result, "nextCursor", &value) || !sm_raw_is_string(value) ||
        value.n <= 2 || value.n > CURSOR_BYTES_MAX)
        return (sm_str){0};
    sm_buf_clear(&t->cursor);
    sm_buf_str(&t->cursor, value);
    return t->cursor.err == SM_OK ? sm_buf_view(&t->cursor) : (sm_str){0};
}

sm_err mcp_tools_add(mcp_tools *t, sm_str result, sm_str *cursor, sm_fault *fault)
{
    *cursor = (sm_str){0};
    sm_str list, name, item;
    if (!find_list(result, &list))
        return sm_fault_set(fault, SEMEL_E_INVALID,
                            "the server's answer to tools/list has no list of tools");
    sm_err e = SM_OK;
    for (size_t at = 0; e == SM_OK && sm_raw_next(list, &at, &name, &item);)
        e = add_tool(t, item);
    if (e != SM_OK)
        return sm_fault_set(fault, e, "the server's tools cannot be kept: %s", semel_err_text(e));
    *cursor = next_cursor(t, result);
    return SM_OK;
}

/* ---- filtering -------------------------------------------------------------------------------*/

sm_err mcp_tools_filter(sm_str result, mcp_shown_fn *shown, void *context, sm_buf *out)
{
    sm_str list, name, item;
    if (!find_list(result, &list))
        return SEMEL_E_INVALID;
    const char *written = result.p; /* all before this is in `out`, or left out */
    const char *end = list.p + 1;   /* of the element before */
    bool any = false;
    for (size_t at = 0; sm_raw_next(list, &at, &name, &item); end = item.p + item.n) {
        char room[SM_TOOL_MAX + 1];
        sm_str called = read_name(item, room);
        bool stays = called.p != NULL && shown(context, called);
        /* The first that stays has in front of it what the first of all had; any other one, what
         * separates it from the element before. */
        if (stays && any)
            sm_buf_bytes(out, end, (size_t)(item.p - end));
        else if (!any && end == list.p + 1)
            sm_buf_bytes(out, written, (size_t)(item.p - written));
        if (stays)
            sm_buf_str(out, item);
        any |= stays;
        written = item.p + item.n;
    }
    sm_buf_bytes(out, written, (size_t)(result.p + result.n - written));
    return out->err;
}

/* ---- arguments -------------------------------------------------------------------------------*/

bool mcp_tool_loose(const mcp_tool *tool, sm_arena *a, sm_str args, const sm_json_limits *limits)
{
    const sm_json *root;
    if (tool == NULL || !tool->drifted)
        return false;
    return sm_json_read(a, args.p == NULL ? SM_STR("{}") : args, limits, &root, NULL) != SM_OK ||
           sm_defaults_missing(tool->fill, a, root) || sm_defaults_missing(tool->latest, a, root);
}

sm_err mcp_tool_fill(const mcp_tool *tool, sm_arena *a, sm_str args, const sm_json_limits *limits,
                     sm_str *out, sm_fault *fault)
{
    *out = args.p == NULL ? SM_STR("{}") : args;
    if (!sm_raw_is_object(*out))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "arguments must be an object");
    if (tool == NULL || (tool->fill == NULL && !tool->unsure))
        return SM_OK;
    const sm_json *root;
    sm_err e = sm_json_read(a, *out, limits, &root, fault);
    if (e != SM_OK)
        return e;
    sm_str filled = *out;
    size_t added;
    e = sm_defaults_fill(tool->fill, a, root, limits->bytes, &filled, &added);
    if (e == SM_OK && tool->unsure && (added > 0 || tool->fill == NULL))
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the call leaves out arguments that have a default, and the pinned "
                            "defaults of the tool cannot be read or written now. Give all "
                            "arguments, or let whoever runs the proxy read its messages");
    if (e == SEMEL_E_LIMIT)
        return sm_fault_set(fault, e,
                            "the arguments are larger than %zu bytes with the tool's defaults "
                            "filled in",
                            limits->bytes);
    if (e != SM_OK)
        return sm_fault_set(fault, e, "%s", semel_err_text(e));
    *out = filled;
    return SM_OK;
}
