/*
 * Messages, read and written.
 *
 * Reading one: its members are found, the text is checked to its end, and what it is follows
 * from which of six members it has. What the text holds beyond them is nobody's business here.
 */
#include "mcp/message.h"

#include <stdio.h>
#include <stdlib.h>

#include "json/scan.h"
#include "json/write.h"
#include "mcp/wire/names.h"

#define EXACT_DIGITS 15u /* of a number that every double holds exactly */

/* The members that decide what a message is. */
enum { JSONRPC, ID, METHOD, PARAMS, RESULT, ERROR, MEMBERS };

static const char *const names[MEMBERS] = {"jsonrpc", "id", "method", "params", "result", "error"};

typedef struct members {
    sm_str of[MEMBERS]; /* as written; absent: it is not there */
    int unclear;        /* a member that is there twice, or in another spelling; else MEMBERS */
    sm_likeness like;   /* which of both */
    bool id_unclear;
    bool deep; /* a value is nested too deeply */
} members;

void mcp_put_flaw(char flaw[MCP_FLAW_MAX], const char *name, sm_likeness other)
{
    if (other == SM_EXACT)
        snprintf(flaw, MCP_FLAW_MAX, "\"%s\" is there twice", name);
    else
        snprintf(flaw, MCP_FLAW_MAX,
                 "a name is not \"%s\", but some servers take it for that; write it exactly, and "
                 "once",
                 name);
}

static bool refuse(mcp_message *m, const char *flaw)
{
    m->kind = MCP_INVALID;
    m->code = MCP_E_MESSAGE;
    snprintf(m->flaw, sizeof m->flaw, "%s", flaw);
    return false;
}

static bool refuse_depth(mcp_message *m)
{
    m->kind = MCP_INVALID;
    m->code = MCP_E_MESSAGE;
    snprintf(m->flaw, sizeof m->flaw, "the message is nested too deeply: at most %u levels",
             SM_SCAN_DEPTH_MAX);
    return false;
}

static bool refuse_text(mcp_message *m, const sm_scan *s)
{
    m->kind = MCP_INVALID;
    m->code = MCP_E_JUNK;
    snprintf(m->flaw, sizeof m->flaw, "not JSON: %s (byte %zu)", s->why,
             (size_t)(s->at - m->text.p) + 1);
    return false;
}

static void note_member(members *found, sm_str name, sm_str value)
{
    for (int i = 0; i < MEMBERS; i++) {
        sm_likeness like = sm_raw_name_like(name, names[i]);
        if (like == SM_UNLIKE)
            continue;
        if (like == SM_ALIKE || found->of[i].p != NULL) {
            found->unclear = i;
            found->like = like;
            found->id_unclear = found->id_unclear || i == ID;
        }
        if (like == SM_EXACT)
            found->of[i] = value;
        return;
    }
}

/* Finds the members of the object that begins at `p`. Returns its end, or NULL. */
static const char *read_members(sm_scan *s, const char *p, members *found)
{
    p = sm_scan_blanks(p + 1, s->end);
    if (p < s->end && *p == '}')
        return p + 1;
    for (;; p = sm_scan_blanks(p + 1, s->end)) {
        sm_str name;
        const char *value = sm_scan_name(s, p, &name);
        if (value == NULL)
            return NULL;
        p = sm_scan_value(s, value, 1);
        if (p == NULL && s->deep) {
            s->deep = false;
            found->deep = true;
            p = sm_scan_over(s, value);
        }
        if (p == NULL)
            return NULL;
        note_member(found, name, (sm_str){value, (size_t)(p - value)});
        p = sm_scan_blanks(p, s->end);
        if (p < s->end && *p == '}')
            return p + 1;
        if (p == s->end || *p != ',')
            return sm_scan_fail(s, p, "expected ',' or '}'");
    }
}

/* What is wrong with the members, beyond the id; NULL: nothing. */
static const char *flaw_of(const members *found)
{
    const sm_str *of = found->of;
    if (!sm_raw_is(of[JSONRPC], "2.0"))
        return "\"jsonrpc\" must be \"2.0\"";
    if (of[METHOD].p != NULL) {
        if (!sm_raw_is_string(of[METHOD]))
            return "\"method\" must be a string";
        if (of[RESULT].p != NULL || of[ERROR].p != NULL)
            return "a message with a method is a request, and one with a result or error an answer";
        if (of[PARAMS].p != NULL && of[PARAMS].p[0] != '{' && of[PARAMS].p[0] != '[')
            return "\"params\" must be an object or an array";
        return NULL;
    }
    if (of[RESULT].p != NULL && of[ERROR].p != NULL)
        return "an answer has a result or an error, not both";
    if (of[RESULT].p == NULL && of[ERROR].p == NULL)
        return "a message has a method, a result or an error";
    if (of[ERROR].p != NULL && of[ERROR].p[0] != '{')
        return "\"error\" must be an object";
    if (of[RESULT].p != NULL && of[ID].p == NULL)
        return "a result needs the \"id\" of its request";
    return NULL;
}

/* Decides what the message is. */
static bool judge(mcp_message *m, const members *found)
{
    sm_str id = found->of[ID];
    bool answer = found->of[METHOD].p == NULL;
    bool null = id.n == 4 && id.p[0] == 'n';
    bool id_good = id.p == NULL || mcp_is_id(id) || (null && answer);
    if (id_good && !found->id_unclear)
        m->id = id;
    /* Some servers leave out an empty "result". */
    m->answer = answer && (found->of[RESULT].p != NULL || found->of[ERROR].p != NULL ||
                           (m->id.p != NULL && found->of[PARAMS].p == NULL));
    if (found->deep)
        return refuse_depth(m);
    if (found->unclear < MEMBERS) {
        char flaw[MCP_FLAW_MAX];
        mcp_put_flaw(flaw, names[found->unclear], found->like);
        return refuse(m, flaw);
    }
    const char *flaw = flaw_of(found);
    if (flaw != NULL)
        return refuse(m, flaw);
    if (!id_good)
        return refuse(m, id.n > MCP_ID_MAX
                             ? "the \"id\" is too long"
                             : "the \"id\" must be a string or a whole number, written in digits");
    m->answer = false;
    m->params = found->of[PARAMS];
    m->result = found->of[RESULT];
    m->error = found->of[ERROR];
    if (answer) {
        m->kind = m->result.p != NULL ? MCP_RESULT : MCP_ERROR;
    } else {
        m->kind = id.p != NULL ? MCP_REQUEST : MCP_NOTIFICATION;
        sm_raw_text_cut(found->of[METHOD], m->method, sizeof m->method);
    }
    return true;
}

bool mcp_read(sm_str text, mcp_message *out)
{
    *out = (mcp_message){0};
    if (text.p == NULL)
        text = SM_STR("");
    const char *begin = text.p, *end = text.p + text.n;
    begin = sm_scan_blanks(begin, end);
    while (end > begin && sm_scan_blanks(end - 1, end) == end)
        end--;
    out->text = (sm_str){begin, (size_t)(end - begin)};

    sm_scan s = {.end = end};
    members found = {.unclear = MEMBERS};
    bool object = begin < end && *begin == '{';
    const char *p = object ? read_members(&s, begin, &found) : sm_scan_value(&s, begin, 0);
    if (p != NULL && p != end)
        p = sm_scan_fail(&s, p, "more text after the end of the value");
    if (p == NULL)
        return s.deep ? refuse_depth(out) : refuse_text(out, &s);
    if (object)
        return judge(out, &found);
    if (*begin != '[')
        return refuse(out, "a message is an object");
    size_t cursor = 0;
    sm_str name, item;
    if (!sm_raw_next(out->text, &cursor, &name, &item))
        return refuse(out, "a batch must not be empty");
    out->kind = MCP_BATCH;
    return true;
}

bool mcp_read_client(sm_str text, mcp_message *out)
{
    bool good = mcp_read(text, out);
    if ((out->kind == MCP_REQUEST || out->kind == MCP_NOTIFICATION) &&
        !mcp_names_asked(out, out->flaw)) {
        out->kind = MCP_INVALID;
        out->code = MCP_E_PARAMS;
        out->params = (sm_str){0};
        good = false;
    }
    return good;
}

/* ---- ids -------------------------------------------------------------------------------------*/

bool mcp_is_id(sm_str value)
{
    bool string = value.n > 0 && value.p[0] == '"';
    if (value.n == 0 || value.n > MCP_ID_MAX ||
        (!string && value.p[0] != '-' && !sm_is_digit(value.p[0])))
        return false;
    sm_scan s = {.end = value.p + value.n};
    if (sm_scan_value(&s, value.p, 0) != s.end)
        return false;
    for (size_t i = value.p[0] == '-'; !string && i < value.n; i++)
        if (!sm_is_digit(value.p[i]))
            return false;
    return true;
}

/* A number that a double cannot hold exactly counts as its nearest double. */
static sm_str number_key(sm_str id, char *room)
{
    if (sm_str_is(id, "-0"))
        return SM_STR("0");
    if (id.n <= EXACT_DIGITS || id.n > MCP_ID_MAX)
        return id;
    memcpy(room, id.p, id.n);
    room[id.n] = '\0';
    return (sm_str){room, (size_t)snprintf(room, MCP_ID_MAX, "%.17g", strtod(room, NULL))};
}

sm_str mcp_id_key(sm_str id, char room[MCP_ID_MAX + 2])
{
    if (id.n > 0 && !sm_raw_is_string(id))
        return number_key(id, room);
    if (id.n < 2 || id.p[id.n - 1] != '"' || id.n > MCP_ID_MAX || memchr(id.p, '\\', id.n) == NULL)
        return id;
    room[0] = '"';
    sm_raw_text_cut(id, room + 1, MCP_ID_MAX);
    size_t n = strlen(room);
    room[n] = '"';
    return (sm_str){room, n + 1};
}

/* ---- writing ---------------------------------------------------------------------------------*/

static void put_start(sm_buf *out)
{
    sm_buf_byte(out, '{');
    sm_put_text(out, names[JSONRPC], SM_STR("2.0"));
}

void mcp_put_request(sm_buf *out, sm_str id, const char *method)
{
    put_start(out);
    sm_put_raw(out, names[ID], id);
    sm_put_text(out, names[METHOD], sm_str_from(method));
}

void mcp_put_answer(sm_buf *out, sm_str id)
{
    put_start(out);
    sm_put_raw(out, names[ID], id.n == 0 ? SM_STR("null") : id);
}

void mcp_put_error(sm_buf *out, sm_str id, int code, sm_str message)
{
    mcp_put_answer(out, id);
    sm_put_open(out, names[ERROR], '{');
    sm_put_signed(out, "code", code);
    sm_put_text(out, "message", message.p == NULL ? SM_STR("") : message); /* it has to be there */
    sm_buf_text(out, "}}");
}
