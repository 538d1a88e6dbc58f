/*
 * Skimming: brackets are counted, strings are told from what is between them, and of the outermost
 * object the names are read. One state per byte, so that a piece may end anywhere.
 */
#include "mcp/skim.h"

#include "mcp/scan.h"

/* Where in the outermost object the next byte is. */
enum {
    BEFORE, /* the object */
    NAME,   /* before or in a member's name */
    COLON,  /* behind a name */
    VALUE,  /* in or before a value that nobody asked for */
    ID,     /* in or before the id */
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
    if (!sm_str_is(name, "id"))
        return;
    s->place = ID;
    s->id_twice = s->id_twice || s->id_n > 0;
    s->id_n = 0;
}

/* A byte of a string; the quote that ends it, too. */
static void in_string(mcp_skim *s, char c)
{
    bool ends = c == '"' && !s->escaped;
    s->escaped = c == '\\' && !s->escaped;
    s->quoted = !ends;
    if (s->depth != 1)
        return;
    if (s->place == ID)
        keep_id(s, c);
    if (s->place != NAME)
        return;
    if (ends)
        s->place = COLON;
    else if (s->name_n < sizeof s->name)
        s->name[s->name_n++] = c;
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
        if (!s->escaped && (s->depth != 1 || s->place == VALUE))
            p = mcp_scan_plain(p, end);
        if (p < end)
            in_string(s, *p++);
    }
}

sm_str mcp_skim_id(const mcp_skim *s)
{
    sm_str id = {s->id, s->id_n};
    while (id.n > 0 && blank(id.p[id.n - 1]))
        id.n--;
    if (s->lost || s->id_twice || s->place != BEHIND || !mcp_scan_id(id))
        return (sm_str){0};
    return id;
}
