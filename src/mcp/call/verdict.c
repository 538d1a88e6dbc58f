/*
 * The answers that the proxy makes itself: refusals, and outcomes from the record.
 *
 * A refusal is a result with isError, not an error of the protocol: it is for the model, which sees
 * results. Its text says once what happened and what to do, and then has one line of JSON that a
 * program can branch on, since some clients drop `_meta`. No key is in it (I11).
 *
 * A replay is the recorded result byte for byte (I4). What is added is beside it, never inside:
 * `_meta` says that it is a replay; `resultType` is there if the client's era has it. Under
 * `on_repeat: run` one more text says that nothing ran now, and if the run repeats itself, one more
 * warns of that, also after a call that has just run. Beside `structuredContent` an embedded
 * resource follows them, because some clients then show their model all items.
 *
 * The record may have no result that the client accepts: its bytes were not kept, a person resolved
 * the call without one, or the tool's outputSchema wants more than was recorded. Then the client
 * gets a result with isError that says that the call was done. Clients raise on anything else.
 */
#include "base/duration.h"
#include "base/stamp.h"
#include "json/write.h"
#include "mcp/call/call.h"

static void put_member(sm_buf *out, const char *name, sm_str value)
{
    if (value.n > 0)
        sm_put_text(out, name, value);
}

/* The refusal as an object, with or without its sentences. */
static void put_shape(sm_buf *out, const semel_answer *a, bool sentences)
{
    sm_buf_byte(out, '{');
    sm_put_text(out, "code", sm_str_from(semel_code_name(a->code)));
    sm_put_bool(out, "retriable", a->retriable);
    if (a->retry_after_ms > 0)
        sm_put_signed(out, "retry_after_ms", a->retry_after_ms);
    if (sentences) {
        put_member(out, "message", a->message);
        put_member(out, "corrective_action", a->corrective_action);
    }
    put_member(out, "effect", a->effect);
    if (a->state != SEMEL_S_NONE)
        sm_put_text(out, "state", sm_str_from(semel_state_name(a->state)));
    put_member(out, "request", a->request);
    put_member(out, "blocked_by", a->blocked_by);
    sm_put_raw(out, "drift", a->drift);
    sm_answer_put_guard(a, out);
    sm_buf_byte(out, '}');
}

/* Whether the ledger has yet to record what a replay tells: the proxy ran it itself. */
static bool is_unrecorded(const semel_answer *a)
{
    return sm_str_is(a->result, SM_UNRECORDED);
}

/* An item of content: a text. */
static void put_text_item(sm_buf *out, sm_str text)
{
    sm_put_item(out);
    sm_buf_byte(out, '{');
    sm_put_text(out, "type", SM_STR("text"));
    sm_put_text(out, "text", text.p == NULL ? SM_STR("") : text); /* it has to be there */
    sm_buf_byte(out, '}');
}

/* A result with isError: the sentences and the object, then `more` items of content. `done`: it
 * stands for a recorded result, and is marked as a replay. */
static void put_verdict(sm_buf *out, const semel_answer *a, bool modern, bool done, sm_str more)
{
    sm_buf text;
    sm_buf_init(&text, 2 * MCP_LINE_MAX);
    bool stop = a->message.n > 0 && strchr(".!?", a->message.p[a->message.n - 1]) != NULL;
    sm_buf_printf(&text, "%.*s%s %.*s\n", SM_FMT(a->message), stop ? "" : ".",
                  SM_FMT(a->corrective_action));
    put_shape(&text, a, false);
    sm_buf_byte(out, '{');
    if (modern)
        sm_put_text(out, "resultType", SM_STR("complete"));
    sm_put_open(out, "content", '[');
    put_text_item(out, sm_buf_view(&text));
    if (more.n > 0) {
        sm_put_item(out);
        sm_buf_str(out, more);
    }
    if (a->warning.n > 0)
        put_text_item(out, a->warning);
    sm_buf_byte(out, ']');
    sm_put_bool(out, "isError", true);
    sm_put_open(out, "_meta", '{');
    sm_put_name(out, "semel/verdict");
    put_shape(out, a, true);
    if (done) {
        put_member(out, "semel/effect", a->effect);
        sm_put_bool(out, "semel/replayed", true);
        if (is_unrecorded(a))
            sm_put_text(out, "semel/doubt", SM_STR(SM_UNRECORDED));
    }
    put_member(out, "semel/warning", a->warning);
    sm_buf_text(out, "}}");
    if (text.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&text);
}

/* ---- replays ---------------------------------------------------------------------------------*/

/* How the model of this session can get a fresh answer. */
static void put_advice(sm_buf *out, const mcp_tool_call *call)
{
    const sm_contract *c = call->contract;
    char text[SM_STAMP_TEXT + SM_DURATION_TEXT] = "";
    if (!mcp_call_named(call) && mcp_told_proves(call->x, c)) {
        sm_duration_text(c->repeat_after_ms, text);
        sm_buf_printf(
            out,
            " If you need a fresh answer, or mean to do it again, make the same call once "
            "more, %s from now or later: then it runs.",
            text);
        return;
    }
    if (!mcp_call_named(call) && call->session->asked_ms != 0 && call->x->done &&
        c->delivered_within_ms > 0) {
        sm_buf_text(out, " If you need a fresh answer, or mean to do it again, make the same call "
                         "once more: its answer says when it runs.");
        return;
    }
    if (call->window_end == INT64_MAX) {
        sm_buf_text(out, " An equal call gets this same answer until a person forgets the record.");
    } else {
        sm_stamp_text(call->window_end, text);
        sm_buf_printf(out,
                      " An equal call gets this same answer until %s. If you need a fresh answer, "
                      "make the same call after that time.",
                      text);
    }
    if (c->origin[SM_F_ON_REPEAT].layer == SM_FROM_UNLISTED)
        sm_buf_text(out, " If this tool only reads, ask the user to list it in Semel's contract "
                         "with class: read; then every call gets a fresh answer.");
    else if (call->window_end != INT64_MAX)
        sm_buf_text(out, " A person can forget the record before that.");
}

/* The note that nothing ran now. */
static void put_note(sm_buf *out, const mcp_tool_call *call)
{
    char stamp[SM_STAMP_TEXT];
    sm_stamp_text(call->settled_at, stamp);
    if (is_unrecorded(&call->a))
        sm_buf_text(out, "Already done: this is its answer, which the ledger has yet to record.");
    else
        sm_buf_printf(out, "Already done at %s: this is the answer recorded then.", stamp);
    sm_buf_text(out, " The tool was NOT run again, because the same call had been made before.");
    if (!is_unrecorded(&call->a))
        put_advice(out, call);
}

/* The same for programs. */
static void put_note_object(sm_buf *out, const mcp_tool_call *call)
{
    char stamp[SM_STAMP_TEXT];
    sm_stamp_text(call->settled_at, stamp);
    sm_buf_byte(out, '{');
    sm_put_bool(out, "semel/replayed", true);
    sm_put_text(out, "semel/effect", call->a.effect);
    sm_put_text(out, "done_at", sm_str_from(stamp));
    put_member(out, "semel/warning", call->a.warning);
    sm_buf_byte(out, '}');
}

static void put_resource_item(sm_buf *out, sm_str effect, sm_str text)
{
    sm_put_item(out);
    sm_buf_byte(out, '{');
    sm_put_text(out, "type", SM_STR("resource"));
    sm_put_open(out, "resource", '{');
    sm_put_open(out, "uri", '"');
    if (effect.n > 0)
        sm_buf_printf(out, "semel://effect/%.*s\"", SM_FMT(effect));
    else
        sm_buf_text(out, "semel://warning\"");
    sm_put_text(out, "mimeType", SM_STR("application/json"));
    sm_put_text(out, "text", text);
    sm_buf_text(out, "}}");
}

/* What is added to a result: texts for the model; absent ones are left out. `object` says the same
 * for programs. */
typedef struct extra {
    sm_str note, warning, object, effect;
} extra;

/* Appends the result with more items: a program that reads the first one finds the recorded one. If
 * all items are text, a client may show the model structuredContent alone. So beside that the last
 * item is not a text. */
static void put_with(sm_buf *out, sm_str result, const extra *more)
{
    sm_str content, item, name;
    size_t cursor = 0;
    if (!sm_raw_find(result, "content", &content) || content.p[0] != '[') {
        sm_buf_str(out, result);
        return;
    }
    sm_buf items;
    sm_buf_init(&items, 2 * MCP_LINE_MAX);
    if (sm_raw_next(content, &cursor, &name, &item))
        sm_buf_bytes(&items, content.p, content.n - 1);
    else
        sm_buf_byte(&items, '[');
    if (more->note.n > 0)
        put_text_item(&items, more->note);
    if (more->warning.n > 0)
        put_text_item(&items, more->warning);
    if (sm_raw_find(result, "structuredContent", &item))
        put_resource_item(&items, more->effect, more->object);
    sm_buf_byte(&items, ']');
    sm_raw_put_with(out, result, "content", sm_buf_view(&items));
    if (items.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&items);
}

/* A member of _meta, if there is a text for it. */
static void put_meta_text(sm_buf *out, sm_str meta, const char *name, sm_str text)
{
    sm_buf value;
    sm_buf_init(&value, 8192);
    if (text.n > 0)
        sm_json_put_string(&value, text);
    if (text.n > 0)
        sm_raw_put_with(out, sm_raw_is_object(meta) ? meta : (sm_str){0}, name,
                        sm_buf_view(&value));
    else
        sm_buf_str(out, meta);
    if (value.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&value);
}

void mcp_put_warned(sm_buf *out, const mcp_message *m, sm_str warning, sm_str effect)
{
    if (m->kind != MCP_RESULT || !sm_raw_is_object(m->result)) {
        sm_buf_str(out, m->text);
        return;
    }
    sm_buf object, with, meta, result;
    sm_str part = {0};
    sm_buf_init(&result, 2 * MCP_LINE_MAX);
    sm_buf_init(&object, 8192);
    sm_buf_init(&with, 2 * MCP_LINE_MAX);
    sm_buf_init(&meta, MCP_LINE_MAX);
    sm_buf_byte(&object, '{');
    put_member(&object, "semel/warning", warning);
    sm_buf_byte(&object, '}');
    put_with(&with, m->result,
             &(extra){.warning = warning, .object = sm_buf_view(&object), .effect = effect});
    if (!sm_raw_find(m->result, "_meta", &part))
        part = (sm_str){0};
    put_meta_text(&meta, part, "semel/warning", warning);
    sm_raw_put_with(&result, sm_buf_view(&with), "_meta", sm_buf_view(&meta));
    sm_raw_put_edited(out, m->text, &(sm_raw_edit){.at = m->result, .with = sm_buf_view(&result)},
                      1);
    if (object.err != SM_OK || with.err != SM_OK || meta.err != SM_OK || result.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&result);
    sm_buf_fini(&meta);
    sm_buf_fini(&with);
    sm_buf_fini(&object);
}

static void put_meta(sm_buf *out, const mcp_tool_call *call, sm_str meta)
{
    sm_buf one, two, three;
    sm_buf_init(&one, MCP_LINE_MAX);
    sm_buf_init(&two, MCP_LINE_MAX);
    sm_buf_init(&three, MCP_LINE_MAX);
    put_meta_text(&one, sm_raw_is_object(meta) ? meta : SM_STR("{}"), "semel/effect",
                  call->a.effect);
    put_meta_text(&two, sm_buf_view(&one), "semel/doubt",
                  is_unrecorded(&call->a) ? SM_STR(SM_UNRECORDED) : (sm_str){0});
    put_meta_text(&three, sm_buf_view(&two), "semel/warning", call->a.warning);
    sm_raw_put_with(out, sm_buf_view(&three), "semel/replayed", SM_STR("true"));
    if (one.err != SM_OK || two.err != SM_OK || three.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&three);
    sm_buf_fini(&two);
    sm_buf_fini(&one);
}

/* Makes a result of a value that another front end recorded. */
static void put_foreign(sm_buf *out, const mcp_tool_call *call)
{
    const semel_outcome *o = &call->a.outcome;
    sm_buf_byte(out, '{');
    sm_put_open(out, "content", '[');
    put_text_item(out, o->value);
    sm_buf_byte(out, ']');
    if (o->is_json && sm_raw_is_object(o->value) && o->kind == SEMEL_SUCCESS)
        sm_put_raw(out, "structuredContent", o->value);
    if (o->kind == SEMEL_FAILURE)
        sm_put_bool(out, "isError", true);
    sm_buf_byte(out, '}');
}

/* Whether a value is the result of tools/call. The ledger does not mark one as JSON if it has more
 * nodes than the ledger reads. */
static bool is_result(const semel_outcome *o)
{
    sm_str part;
    return (o->is_json || sm_raw_is_json(o->value)) && sm_raw_is_object(o->value) &&
           ((sm_raw_find(o->value, "content", &part) && part.n > 0 && part.p[0] == '[') ||
            sm_raw_find(o->value, "resultType", &part) ||
            (sm_raw_find(o->value, "task", &part) && sm_raw_is_object(part)));
}

/* Whether the client accepts the recorded result: a success of a tool with an outputSchema must
 * have structuredContent, and only the tool itself can make that. */
bool mcp_has_result(const mcp_tool_call *call)
{
    const semel_outcome *o = &call->a.outcome;
    sm_str part;
    if (!o->kept || o->value.p == NULL || o->value.n == 0)
        return false;
    const mcp_tool *tool =
        call->listing == NULL ? NULL : mcp_tools_find(call->listing->tools, call->tool);
    if (tool == NULL || !tool->has_output || o->kind == SEMEL_FAILURE)
        return true;
    return is_result(o) && (sm_raw_find(o->value, "structuredContent", &part) ||
                            !sm_raw_find(o->value, "content", &part));
}

/* The items of a result's content, as written, or the value as one. */
static void put_items(sm_buf *out, const semel_outcome *o)
{
    sm_str content = {0};
    if (!o->kept || o->value.p == NULL || o->value.n == 0)
        return;
    if (is_result(o) && sm_raw_find(o->value, "content", &content)) {
        sm_buf_bytes(out, content.p + 1, content.n - 2);
        return;
    }
    put_text_item(out, o->value);
}

/* Whether a list of items has none. */
static bool is_blank(const sm_buf *items)
{
    for (size_t i = 0; i < items->len; i++)
        if (strchr(" \t\r\n", items->p[i]) == NULL)
            return false;
    return true;
}

/* A call that is blocked because it is repeated gets the recorded result all the same. */
void mcp_put_refusal(sm_buf *out, const semel_answer *a, bool modern)
{
    sm_buf items;
    sm_buf_init(&items, 2 * MCP_LINE_MAX);
    if (a->code == SEMEL_C_LOOP_DETECTED && a->has_outcome)
        put_items(&items, &a->outcome);
    put_verdict(out, a, modern, false, is_blank(&items) ? (sm_str){0} : sm_buf_view(&items));
    if (items.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&items);
}

/* The call was done, and the record has no result that the client accepts. */
static void put_over(sm_buf *out, const mcp_tool_call *call)
{
    const semel_outcome *o = &call->a.outcome;
    semel_answer a = {.code = SEMEL_C_ALREADY_DONE,
                      .effect = call->a.effect,
                      .state = call->a.state,
                      .result = call->a.result,
                      .warning = call->a.warning};
    char stamp[SM_STAMP_TEXT];
    sm_buf text, items;
    sm_buf_init(&text, 4096);
    sm_buf_init(&items, 2 * MCP_LINE_MAX);
    put_items(&items, o);
    bool blank = is_blank(&items);
    sm_stamp_text(call->settled_at, stamp);
    sm_buf_printf(&text, "This was %s already, at %s, and nothing ran now. ",
                  o->kind == SEMEL_FAILURE   ? "tried, and failed,"
                  : o->kind == SEMEL_PARTIAL ? "done in part"
                                             : "done",
                  stamp);
    if (!blank)
        sm_buf_text(&text, "The recorded result is below.");
    else if (o->bytes > 0 && !o->kept)
        sm_buf_printf(&text, "Its result of %llu bytes was not kept.",
                      (unsigned long long)o->bytes);
    else
        sm_buf_text(&text, "Its result was not recorded.");
    a.message = sm_buf_view(&text);
    a.corrective_action =
        call->a.corrective_action.n > 0
            ? call->a.corrective_action
            : SM_STR("Do not call this tool again to get the result: go on without it, or read it "
                     "from where the call took effect.");
    put_verdict(out, &a, call->x->modern, true, blank ? (sm_str){0} : sm_buf_view(&items));
    if (items.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&items);
    sm_buf_fini(&text);
}

bool mcp_put_replay(sm_buf *out, const mcp_tool_call *call, sm_str *error)
{
    const semel_outcome *o = &call->a.outcome;
    sm_str value = o->kept && o->value.p != NULL ? o->value : SM_STR("");
    if (o->status != 0 && sm_raw_is_object(value)) {
        *error = value;
        return false;
    }
    if (!mcp_has_result(call)) {
        put_over(out, call);
        return true;
    }
    sm_buf whole, next;
    sm_buf_init(&whole, 2 * MCP_LINE_MAX);
    sm_buf_init(&next, 2 * MCP_LINE_MAX);
    if (is_result(o))
        sm_buf_str(&whole, value);
    else
        put_foreign(&whole, call);

    sm_str part;
    sm_buf note, object;
    sm_buf_init(&note, 4096);
    sm_buf_init(&object, 8192);
    if (call->contract != NULL && call->contract->on_repeat == SM_REPEAT_RUN)
        put_note(&note, call);
    if (note.len > 0 || call->a.warning.n > 0) {
        put_note_object(&object, call);
        put_with(&next, sm_buf_view(&whole),
                 &(extra){.note = sm_buf_view(&note),
                          .warning = call->a.warning,
                          .object = sm_buf_view(&object),
                          .effect = call->a.effect});
        sm_buf_clear(&whole);
        sm_buf_str(&whole, sm_buf_view(&next));
        sm_buf_clear(&next);
    }
    sm_buf_fini(&object);
    sm_buf_fini(&note);
    bool typed = sm_raw_find(sm_buf_view(&whole), "resultType", &part);
    if (typed != call->x->modern) {
        sm_raw_put_with(&next, sm_buf_view(&whole), "resultType",
                        call->x->modern ? SM_STR("\"complete\"") : (sm_str){0});
        sm_buf_clear(&whole);
        sm_buf_str(&whole, sm_buf_view(&next));
        sm_buf_clear(&next);
    }
    sm_buf meta;
    sm_buf_init(&meta, MCP_LINE_MAX);
    put_meta(&meta, call, sm_raw_find(sm_buf_view(&whole), "_meta", &part) ? part : (sm_str){0});
    sm_raw_put_with(out, sm_buf_view(&whole), "_meta", sm_buf_view(&meta));
    if (whole.err != SM_OK || next.err != SM_OK || meta.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&meta);
    sm_buf_fini(&next);
    sm_buf_fini(&whole);
    return true;
}
