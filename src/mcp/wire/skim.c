/*
 * Skimming: brackets are counted, strings are told from what is between them, and of the outermost
 * object and of its result the names are read. One state per byte, so that a piece may end
 * anywhere.
 */
#include "mcp/wire/skim.h"

#include "json/scan.h"

/* Where in the outermost object, or in its result, the next byte is. */
enum {
    BEFORE, /* the object */
    NAME,   /* before or in a member's name */
    COLON,  /* behind a name */
    VALUE,  /* in or before a value that nobody asked for */
    ID,     /* in or before the id */
    FLAG,   /* before the value of isError */
    TYPE,   /* before the value of resultType, or its first byte */
    BEHIND, /* the object */
};

static bool blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* One byte more than is good for an id tells that it is too long. */
static void keep_id(mcp_skim *s, char c)
{
    if (s->id_n < sizeof s->id)
        s->id[s->id_n++] = c;
}

static void begin_value(mcp_skim *s)
{
    sm_str name = {s->name, s->name_n};
    s->place = VALUE;
    if (sm_str_is(name, "method"))
        s->method = true;
    if (sm_str_is(name, "error"))
        s->error = true;
    s->in_result = sm_str_is(name, "result");
    s->results += s->in_result && s->results < 2;
    if (!sm_str_is(name, "id"))
        return;
    s->place = ID;
    s->id_twice = s->id_twice || s->id_n > 0;
    s->id_n = 0;
}

/* Whether a string that passes is a name that matters. */
static bool in_name(const mcp_skim *s)
{
    return (s->depth == 1 && s->place == NAME) ||
           (s->depth == 2 && s->in_result && s->inner == NAME);
}

static bool in_type(const mcp_skim *s)
{
    return s->depth == 2 && s->in_result && s->inner == TYPE;
}

/* A byte of a string; the quote that ends it, too. */
static void in_string(mcp_skim *s, char c)
{
    bool ends = c == '"' && !s->escaped;
    s->escaped = c == '\\' && !s->escaped;
    s->quoted = !ends;
    if (s->depth == 1 && s->place == ID)
        keep_id(s, c);
    if (in_type(s)) {
        s->asks = c == 'i' || c == '\\';
        s->inner = VALUE;
    }
    if (!in_name(s))
        return;
    s->odd_name = s->odd_name || c == '\\';
    if (ends)
        *(s->depth == 1 ? &s->place : &s->inner) = COLON;
    else if (s->name_n < sizeof s->name)
        s->name[s->name_n++] = c;
}

/* A byte of the result, outside of strings. */
static void in_result(mcp_skim *s, char c)
{
    if (c == ',') {
        s->inner = NAME;
        s->name_n = 0;
    } else if (s->inner == COLON && c == ':') {
        sm_str name = {s->name, s->name_n};
        bool flag = sm_str_is(name, "isError"), type = sm_str_is(name, "resultType");
        s->inner = flag ? FLAG : type ? TYPE : VALUE;
        s->flags += flag && s->flags < 2;
        s->types += type && s->types < 2;
    } else if (s->inner == FLAG && !blank(c)) {
        s->failed = c == 't';
        s->inner = VALUE;
    }
}

/* A byte of the outermost object, outside of strings. */
static void in_object(mcp_skim *s, char c)
{
    if (s->place == COLON && c == ':') {
        begin_value(s);
    } else if (c == ',') {
        s->place = NAME;
        s->name_n = 0;
    } else if (s->place == ID && (s->id_n > 0 || !blank(c))) {
        keep_id(s, c);
    }
}

static void outside_strings(mcp_skim *s, char c)
{
    if (s->depth == 0 && !blank(c)) {
        s->lost = s->lost || s->place != BEFORE || c != '{';
        s->place = NAME;
        s->depth = 1;
        return;
    }
    switch (c) {
    case '"':
        s->quoted = true;
        if (s->depth == 1 && s->place == ID)
            keep_id(s, c);
        break;
    case '{':
    case '[':
        if (s->depth == 1)
            in_object(s, c);
        if (s->depth == 1 && s->in_result) {
            s->inner = c == '{' ? NAME : VALUE;
            s->name_n = 0;
            s->odd_name = s->odd_name || c != '{';
        }
        s->depth++;
        break;
    case '}':
    case ']':
        if (s->depth > 0 && --s->depth == 0)
            s->place = BEHIND;
        break;
    default:
        if (s->depth == 1)
            in_object(s, c);
        else if (s->depth == 2 && s->in_result)
            in_result(s, c);
    }
}

void mcp_skim_add(mcp_skim *s, sm_str piece)
{
    if (piece.n == 0)
        return;
    const char *p = piece.p, *end = p + piece.n;
    while (p < end && !s->lost) {
        if (!s->quoted) {
            outside_strings(s, *p++);
            continue;
        }
        /* Most bytes are in strings that nobody asked for. */
        if (!s->escaped && !in_name(s) && !in_type(s) && (s->depth != 1 || s->place == VALUE))
            p = sm_scan_plain(p, end);
        if (p < end)
            in_string(s, *p++);
    }
}

sm_str mcp_skim_id(const mcp_skim *s)
{
    sm_str id = {s->id, s->id_n};
    while (id.n > 0 && blank(id.p[id.n - 1]))
        id.n--;
    if (s->lost || s->id_twice || s->place != BEHIND || !mcp_is_id(id))
        return (sm_str){0};
    return id;
}

bool mcp_skim_result(const mcp_skim *s)
{
    return !s->lost && s->place == BEHIND && s->results == 1 && s->flags < 2 && s->types < 2 &&
           s->inner != BEFORE && !s->asks && !s->odd_name && !s->method && !s->error;
}
