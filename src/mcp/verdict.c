/*
 * What a client is told that its server did not say: refusals, and outcomes from the record.
 *
 * A refusal is a result with isError, not an error of the protocol: it is for the model, which sees
 * results. Its text says what happened and what to do, and repeats in one line of JSON what a
 * program can branch on, since some clients drop `_meta`. No key is in it (I11).
 *
 * A replay is the recorded result byte for byte (I4), with three exceptions that are beside it and
 * not inside: `_meta` says that it is one; `resultType` is there if the client's era wants it; and
 * where a repeat may be meant, one more text says that nothing ran now.
 */
#include "base/stamp.h"
#include "mcp/call.h"
#include "json/canon.h"

static void put_member(sm_buf *out, const char *name, sm_str value)
{
    if (value.p == NULL || value.n == 0)
        return;
    sm_buf_printf(out, ",\"%s\":", name);
    sm_json_put_string(out, value);
}

static void put_shape(sm_buf *out, const semel_answer *a)
{
    sm_buf_printf(out, "{\"code\":\"%s\",\"retriable\":%s", semel_code_name(a->code),
                  a->retriable ? "true" : "false");
    if (a->retry_after_ms > 0)
        sm_buf_printf(out, ",\"retry_after_ms\":%lld", (long long)a->retry_after_ms);
    put_member(out, "message", a->message);
    put_member(out, "corrective_action", a->corrective_action);
    put_member(out, "effect", a->effect);
    if (a->state != SEMEL_S_NONE)
        sm_buf_printf(out, ",\"state\":\"%s\"", semel_state_name(a->state));
    put_member(out, "request", a->request);
    put_member(out, "blocked_by", a->blocked_by);
    if (a->drift.p != NULL && a->drift.n > 0) {
        sm_buf_text(out, ",\"drift\":");
        sm_buf_str(out, a->drift);
    }
    sm_buf_byte(out, '}');
}

void mcp_put_refusal(sm_buf *out, const semel_answer *a, bool modern)
{
    sm_buf shape, text;
    sm_buf_init(&shape, MCP_LINE_MAX);
    sm_buf_init(&text, MCP_LINE_MAX);
    put_shape(&shape, a);
    bool stop = a->message.n > 0 && strchr(".!?", a->message.p[a->message.n - 1]) != NULL;
    sm_buf_printf(&text, "%.*s%s %.*s\n%.*s", SM_FMT(a->message), stop ? "" : ".",
                  SM_FMT(a->corrective_action), (int)shape.len, shape.p);
    sm_buf_text(out, modern ? "{\"resultType\":\"complete\",\"content\":" : "{\"content\":");
    sm_buf_text(out, "[{\"type\":\"text\",\"text\":");
    sm_json_put_string(out, sm_buf_view(&text));
    sm_buf_text(out, "}],\"isError\":true,\"_meta\":{\"semel/verdict\":");
    sm_buf_str(out, sm_buf_view(&shape));
    sm_buf_text(out, "}}");
    if (shape.err != SM_OK || text.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&text);
    sm_buf_fini(&shape);
}

/* ---- replays ---------------------------------------------------------------------------------*/

/* The texts that are beside a replay. */
static void put_note(sm_buf *out, const mcp_call *call)
{
    char stamp[SM_STAMP_TEXT];
    sm_buf text;
    sm_buf_init(&text, 4096);
    sm_stamp_text(call->settled_at, stamp);
    sm_buf_printf(&text,
                  "Already done at %s: this is the result recorded then, and nothing ran now. %s",
                  stamp,
                  call->session->o.forgets || call->session->o.far
                      ? "If it is to be done again on purpose, a person has to forget the record "
                        "first, or its window has to pass."
                      : "If it is to be done again on purpose, make the same call once more.");
    sm_buf_text(out, "{\"type\":\"text\",\"text\":");
    sm_json_put_string(out, sm_buf_view(&text));
    sm_buf_byte(out, '}');
    sm_buf_fini(&text);
}

/* The content with a note behind it. */
static void put_content(sm_buf *out, const mcp_call *call, sm_str content)
{
    size_t cursor = 0;
    sm_str name, item;
    bool empty = !mcp_next(content, &cursor, &name, &item);
    sm_buf_bytes(out, content.p, content.n - 1);
    if (!empty)
        sm_buf_byte(out, ',');
    put_note(out, call);
    sm_buf_byte(out, ']');
}

static void put_meta(sm_buf *out, const mcp_call *call, sm_str meta)
{
    sm_buf one, handle;
    sm_buf_init(&one, MCP_LINE_MAX);
    sm_buf_init(&handle, 256);
    sm_json_put_string(&handle, call->a.effect);
    mcp_put_with(&one, mcp_is_object(meta) ? meta : (sm_str){0}, "semel/effect",
                 sm_buf_view(&handle));
    mcp_put_with(out, sm_buf_view(&one), "semel/replayed", SM_STR("true"));
    if (one.err != SM_OK)
        out->err = one.err;
    sm_buf_fini(&handle);
    sm_buf_fini(&one);
}

/* What was recorded by others than this proxy, or not at all, as a result. */
static void put_foreign(sm_buf *out, const mcp_call *call)
{
    const semel_outcome *o = &call->a.outcome;
    sm_str value = o->kept ? o->value : (sm_str){0};
    sm_buf_text(out, "{\"content\":[{\"type\":\"text\",\"text\":");
    sm_json_put_string(out, value.p != NULL && value.n > 0
                                ? value
                                : SM_STR("This was done; there is no record of its result."));
    sm_buf_text(out, "}]");
    if (o->is_json && mcp_is_object(value) && o->kind == SEMEL_SUCCESS) {
        sm_buf_text(out, ",\"structuredContent\":");
        sm_buf_str(out, value);
    }
    sm_buf_text(out, o->kind == SEMEL_FAILURE ? ",\"isError\":true}" : "}");
}

/* Whether a value is the result of a tool's call. */
static bool is_result(sm_str value)
{
    sm_str part;
    return mcp_is_object(value) &&
           ((mcp_find(value, "content", &part) && part.n > 0 && part.p[0] == '[') ||
            mcp_find(value, "resultType", &part) ||
            (mcp_find(value, "task", &part) && mcp_is_object(part)));
}

bool mcp_put_replay(sm_buf *out, const mcp_call *call, sm_str *error)
{
    const semel_outcome *o = &call->a.outcome;
    sm_str value = o->kept && o->value.p != NULL ? o->value : SM_STR("");
    if (o->status != 0 && mcp_is_object(value)) {
        *error = value;
        return false;
    }
    sm_buf whole, next;
    sm_buf_init(&whole, 2 * MCP_LINE_MAX);
    sm_buf_init(&next, 2 * MCP_LINE_MAX);
    if (o->is_json && is_result(value))
        sm_buf_str(&whole, value);
    else
        put_foreign(&whole, call);

    sm_str part;
    if (call->contract != NULL && call->contract->on_repeat == SM_REPEAT_RUN &&
        mcp_find(sm_buf_view(&whole), "content", &part) && part.p[0] == '[') {
        sm_buf content;
        sm_buf_init(&content, 2 * MCP_LINE_MAX);
        put_content(&content, call, part);
        mcp_put_with(&next, sm_buf_view(&whole), "content", sm_buf_view(&content));
        sm_buf_fini(&content);
        sm_buf_clear(&whole);
        sm_buf_str(&whole, sm_buf_view(&next));
        sm_buf_clear(&next);
    }
    bool typed = mcp_find(sm_buf_view(&whole), "resultType", &part);
    if (typed != call->x->modern) {
        mcp_put_with(&next, sm_buf_view(&whole), "resultType",
                     call->x->modern ? SM_STR("\"complete\"") : (sm_str){0});
        sm_buf_clear(&whole);
        sm_buf_str(&whole, sm_buf_view(&next));
        sm_buf_clear(&next);
    }
    sm_buf meta;
    sm_buf_init(&meta, MCP_LINE_MAX);
    put_meta(&meta, call, mcp_find(sm_buf_view(&whole), "_meta", &part) ? part : (sm_str){0});
    mcp_put_with(out, sm_buf_view(&whole), "_meta", sm_buf_view(&meta));
    if (whole.err != SM_OK || next.err != SM_OK || meta.err != SM_OK)
        out->err = SEMEL_E_NOMEM;
    sm_buf_fini(&meta);
    sm_buf_fini(&next);
    sm_buf_fini(&whole);
    return true;
}
