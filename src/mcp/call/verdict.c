/*
 * The answers that the proxy makes itself: refusals, and outcomes from the record.
 *
 * A refusal is a result with isError, not an error of the protocol: it is for the model, which sees
 * results. Its text says once what happened and what to do, and then has one line of JSON that a
 * program can branch on, since some clients drop `_meta`. No key is in it (I11).
 *
 * A replay is the recorded result byte for byte (I4). What is added is beside it, never inside:
 * `_meta` says that it is a replay; `resultType` is there if the client's era has it. Under
 * `on_repeat: run` one more text says that nothing ran now; beside `structuredContent` an embedded
 * resource follows it, because some clients then show their model all items.
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
    sm_buf_text(out, "}}");
    if (text.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&text);
}

void mcp_put_refusal(sm_buf *out, const semel_answer *a, bool modern)
{
    put_verdict(out, a, modern, false, (sm_str){0});
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

/* Adds the note that nothing ran now, as a text for the model. If all items are text, a client may
 * show the model structuredContent alone. So beside structuredContent a second item, which is not a
 * text, says the same for programs. */
static void put_note(sm_buf *out, const mcp_tool_call *call, bool structured)
{
    char stamp[SM_STAMP_TEXT];
    sm_buf text;
    sm_buf_init(&text, 4096);
    sm_stamp_text(call->settled_at, stamp);
    if (is_unrecorded(&call->a))
        sm_buf_text(&text, "Already done: this is its answer, which the ledger has yet to record.");
    else
        sm_buf_printf(&text, "Already done at %s: this is the answer recorded then.", stamp);
    sm_buf_text(&text, " The tool was NOT run again, because the same call had been made before.");
    if (!is_unrecorded(&call->a))
        put_advice(&text, call);
    put_text_item(out, sm_buf_view(&text));
    if (structured) {
        sm_buf_clear(&text);
        sm_buf_byte(&text, '{');
        sm_put_bool(&text, "semel/replayed", true);
        sm_put_text(&text, "semel/effect", call->a.effect);
        sm_put_text(&text, "done_at", sm_str_from(stamp));
        sm_buf_byte(&text, '}');
        sm_put_item(out);
        sm_buf_byte(out, '{');
        sm_put_text(out, "type", SM_STR("resource"));
        sm_put_open(out, "resource", '{');
        sm_put_open(out, "uri", '"');
        sm_buf_printf(out, "semel://effect/%.*s\"", SM_FMT(call->a.effect));
        sm_put_text(out, "mimeType", SM_STR("application/json"));
        sm_put_text(out, "text", sm_buf_view(&text));
        sm_buf_text(out, "}}");
    }
    sm_buf_fini(&text);
}

/* The content, then the note: a program that reads the first item finds the recorded one. */
static void put_content(sm_buf *out, const mcp_tool_call *call, sm_str content, bool structured)
{
    size_t cursor = 0;
    sm_str name, item;
    bool empty = !sm_raw_next(content, &cursor, &name, &item);
    if (empty)
        sm_buf_byte(out, '[');
    else
        sm_buf_bytes(out, content.p, content.n - 1);
    put_note(out, call, structured);
    sm_buf_byte(out, ']');
}

static void put_meta(sm_buf *out, const mcp_tool_call *call, sm_str meta)
{
    sm_buf one, two, handle;
    sm_buf_init(&one, MCP_LINE_MAX);
    sm_buf_init(&two, MCP_LINE_MAX);
    sm_buf_init(&handle, 256);
    sm_json_put_string(&handle, call->a.effect);
    sm_raw_put_with(&one, sm_raw_is_object(meta) ? meta : (sm_str){0}, "semel/effect",
                    sm_buf_view(&handle));
    if (is_unrecorded(&call->a))
        sm_raw_put_with(&two, sm_buf_view(&one), "semel/doubt", SM_STR("\"" SM_UNRECORDED "\""));
    else
        sm_buf_str(&two, sm_buf_view(&one));
    sm_raw_put_with(out, sm_buf_view(&two), "semel/replayed", SM_STR("true"));
    if (one.err != SM_OK || two.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&handle);
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

/* The call was done, and the record has no result that the client accepts. */
static void put_over(sm_buf *out, const mcp_tool_call *call)
{
    const semel_outcome *o = &call->a.outcome;
    semel_answer a = {.code = SEMEL_C_ALREADY_DONE,
                      .effect = call->a.effect,
                      .state = call->a.state,
                      .result = call->a.result};
    char stamp[SM_STAMP_TEXT];
    sm_buf text, items;
    sm_buf_init(&text, 4096);
    sm_buf_init(&items, 2 * MCP_LINE_MAX);
    put_items(&items, o);
    bool blank = true;
    for (size_t i = 0; i < items.len && blank; i++)
        blank = strchr(" \t\r\n", items.p[i]) != NULL;
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

    sm_str part, other;
    if (call->contract != NULL && call->contract->on_repeat == SM_REPEAT_RUN &&
        sm_raw_find(sm_buf_view(&whole), "content", &part) && part.p[0] == '[') {
        sm_buf content;
        sm_buf_init(&content, 2 * MCP_LINE_MAX);
        put_content(&content, call, part,
                    sm_raw_find(sm_buf_view(&whole), "structuredContent", &other));
        sm_raw_put_with(&next, sm_buf_view(&whole), "content", sm_buf_view(&content));
        sm_buf_fini(&content);
        sm_buf_clear(&whole);
        sm_buf_str(&whole, sm_buf_view(&next));
        sm_buf_clear(&next);
    }
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
