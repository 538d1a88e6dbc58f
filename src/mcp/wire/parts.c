/*
 * Parts of messages: members and elements found, strings decoded, objects changed. All of it works
 * on text that mcp_read has seen; what has not been seen is never read beyond its end either, it
 * just has no parts.
 */
#include "mcp/wire/parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fold.h"
#include "base/utf8.h"
#include "mcp/wire/scan.h"
#include "json/canon.h"

#define EXACT_DIGITS 15u /* of a number that every double holds exactly */

/* ---- strings ---------------------------------------------------------------------------------*/

static int32_t hex4(const char *p)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int c = p[i] <= '9' ? p[i] - '0' : (p[i] | 0x20) - 'a' + 10;
        v = v << 4 | (c & 15);
    }
    return v;
}

/* The code unit of the \u escape at `p`; -1 if there is none. */
static int32_t escaped_unit(const char *p, const char *end)
{
    return end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2) : -1;
}

/* Decodes the character at *p, which is not the end, and moves it on. Returns how many bytes it is;
 * 0 for half a surrogate pair. */
static size_t decode(const char **p, const char *end, char out[4])
{
    static const char escapes[] = "\"\"\\\\//b\bf\fn\nr\rt\t";
    const char *at = *p;
    out[0] = *at;
    *p = at + 1;
    if ((unsigned char)*at >= 0x80) {
        size_t step = sm_utf8_step((const unsigned char *)at, (size_t)(end - at));
        memcpy(out, at, step);
        *p = at + (step == 0 ? 1 : step);
        return step;
    }
    if (*at != '\\' || end - at < 2)
        return 1;
    int32_t unit = escaped_unit(at, end);
    if (unit < 0) {
        *p = at + 2;
        for (const char *e = escapes; *e != '\0'; e += 2) {
            if (*e == at[1])
                out[0] = e[1];
        }
        return 1;
    }
    *p = at + 6;
    if (unit < 0xD800 || unit > 0xDFFF)
        return sm_utf8_put(out, (uint32_t)unit);
    int32_t low = unit < 0xDC00 ? escaped_unit(*p, end) : -1;
    if (low < 0xDC00 || low > 0xDFFF)
        return 0;
    *p += 6;
    return sm_utf8_put(out, (uint32_t)(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)));
}

bool mcp_name_is(sm_str name, const char *text)
{
    /* A character takes at most six bytes for each of its own. */
    size_t n = strlen(text);
    if (name.n < n || name.n > 6 * n)
        return false;
    if (memchr(name.p, '\\', name.n) == NULL)
        return name.n == n && memcmp(name.p, text, n) == 0;
    const char *end = name.p + name.n;
    for (const char *p = name.p; p < end;) {
        char c[4];
        size_t step = decode(&p, end, c);
        if (step == 0 || strncmp(text, c, step) != 0 || c[0] == '\0')
            return false;
        text += step;
    }
    return *text == '\0';
}

/* `joints`: underscores and dashes count. */
static mcp_likeness compare(sm_str name, const char *text, bool joints)
{
    if (mcp_name_is(name, text))
        return MCP_SAME;
    sm_str rest = sm_str_from(text);
    const char *end = name.p + name.n;
    uint32_t wanted = sm_fold_next(&rest, joints);
    if (wanted == 0)
        return MCP_UNLIKE; /* nothing of it counts */
    for (const char *p = name.p; p < end;) {
        char c[4];
        sm_str one = {c, decode(&p, end, c)};
        uint32_t counts = sm_fold_next(&one, joints);
        if (counts == 0)
            continue;
        if (counts != wanted)
            return MCP_UNLIKE;
        wanted = sm_fold_next(&rest, joints);
    }
    return wanted == 0 ? MCP_ALIKE : MCP_UNLIKE;
}

mcp_likeness mcp_name_like(sm_str name, const char *text)
{
    return compare(name, text, false);
}

mcp_likeness mcp_word_like(sm_str name, const char *text)
{
    return compare(name, text, true);
}

void mcp_put_flaw(char flaw[MCP_FLAW_MAX], const char *name, mcp_likeness other)
{
    if (other == MCP_SAME)
        snprintf(flaw, MCP_FLAW_MAX, "\"%s\" is there twice", name);
    else
        snprintf(flaw, MCP_FLAW_MAX,
                 "a name is not \"%s\", but some servers take it for that; write it exactly, and "
                 "once",
                 name);
}

/* What is between a string's quotes. */
static sm_str inside(sm_str value)
{
    return (sm_str){value.p + 1, value.n - 2};
}

static bool quoted(sm_str value)
{
    return value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"';
}

bool mcp_is(sm_str value, const char *text)
{
    return quoted(value) && mcp_name_is(inside(value), text);
}

bool mcp_text(sm_str value, char *out, size_t room)
{
    assert(room > 0);
    out[0] = '\0';
    if (!quoted(value))
        return false;
    size_t n = 0;
    const char *end = value.p + value.n - 1;
    for (const char *p = value.p + 1; p < end;) {
        char c[4];
        size_t step = decode(&p, end, c);
        if (step == 0 || c[0] == '\0' || step > room - 1 - n) {
            out[0] = '\0';
            return false;
        }
        memcpy(out + n, c, step);
        n += step;
    }
    out[n] = '\0';
    return true;
}

void mcp_text_cut(sm_str value, char *out, size_t room)
{
    assert(quoted(value) && room > 0);
    size_t n = 0;
    const char *end = value.p + value.n - 1;
    for (const char *p = value.p + 1; p < end && n < room - 1;) {
        char c[4];
        size_t step = decode(&p, end, c);
        if (step == 0 || c[0] == '\0')
            step = sm_utf8_put(c, 0xFFFD);
        if (step > room - 1 - n)
            break;
        memcpy(out + n, c, step);
        n += step;
    }
    out[n] = '\0';
}

/* ---- members and elements --------------------------------------------------------------------*/

bool mcp_next(sm_str value, size_t *cursor, sm_str *name, sm_str *item)
{
    *name = *item = (sm_str){0};
    if (value.n < 2 || (value.p[0] != '{' && value.p[0] != '[') || *cursor >= value.n)
        return false;
    bool object = value.p[0] == '{';
    mcp_scan s = {.end = value.p + value.n};
    const char *p = mcp_scan_blanks(value.p + (*cursor == 0 ? 1 : *cursor), s.end);
    if (*cursor != 0) {
        if (p == s.end || *p != ',')
            return false;
        p = mcp_scan_blanks(p + 1, s.end);
    } else if (p < s.end && *p == (object ? '}' : ']')) {
        return false;
    }
    if (object && (p = mcp_scan_name(&s, p, name)) == NULL)
        return false;
    const char *end = mcp_scan_value(&s, p, 0);
    if (end == NULL)
        return false;
    *item = (sm_str){p, (size_t)(end - p)};
    *cursor = (size_t)(end - value.p);
    return true;
}

bool mcp_find(sm_str object, const char *name, sm_str *out)
{
    size_t cursor = 0;
    sm_str each;
    while (mcp_is_object(object) && mcp_next(object, &cursor, &each, out)) {
        if (mcp_name_is(each, name))
            return true;
    }
    *out = (sm_str){0};
    return false;
}

bool mcp_find_plain(sm_str object, const char *name, sm_str *out)
{
    size_t cursor = 0, alike = 0;
    sm_str each, item;
    *out = (sm_str){0};
    while (mcp_is_object(object) && mcp_next(object, &cursor, &each, &item)) {
        mcp_likeness like = mcp_name_like(each, name);
        alike += like != MCP_UNLIKE;
        if (like == MCP_SAME)
            *out = item;
    }
    return alike == 1 && out->p != NULL;
}

/* ---- changing --------------------------------------------------------------------------------*/

static void put_between(sm_buf *out, const char *from, const char *to)
{
    sm_buf_bytes(out, from, (size_t)(to - from));
}

void mcp_put_edited(sm_buf *out, sm_str text, const mcp_edit *edits, size_t n)
{
    if (text.p == NULL)
        return;
    const char *done = text.p;
    for (size_t i = 0; i < n; i++) {
        assert(edits[i].at.p >= done && edits[i].at.p + edits[i].at.n <= text.p + text.n);
        put_between(out, done, edits[i].at.p);
        sm_buf_str(out, edits[i].with);
        done = edits[i].at.p + edits[i].at.n;
    }
    put_between(out, done, text.p + text.n);
}

/* Puts the member in front of the others. */
static void put_in_front(sm_buf *out, sm_str object, const char *name, sm_str value)
{
    size_t cursor = 0;
    sm_str each, item;
    sm_buf_byte(out, '{');
    sm_json_put_string(out, sm_str_from(name));
    sm_buf_byte(out, ':');
    sm_buf_str(out, value);
    if (mcp_next(object, &cursor, &each, &item))
        sm_buf_byte(out, ',');
    sm_buf_bytes(out, object.p + 1, object.n - 1);
}

/* Gives the first member of that name its value, and removes the others and those that some readers
 * take for it. If the value is absent, all of them are removed. A removed member takes the comma
 * before it along, the first member the comma after it. */
static void put_replaced(sm_buf *out, sm_str object, const char *name, sm_str value)
{
    const char *done = object.p; /* up to where the object has been appended, or left out */
    const char *kept = NULL;     /* the end of the last member that stays; NULL: none does yet */
    bool gap = false;            /* what stood first was left out */
    size_t cursor = 0;
    sm_str each, item;
    while (mcp_next(object, &cursor, &each, &item)) {
        const char *begin = each.p - 1, *end = item.p + item.n;
        mcp_likeness like = mcp_word_like(each, name);
        if (like == MCP_ALIKE || (like == MCP_SAME && value.p == NULL)) {
            const char *upto = kept != NULL ? kept : begin;
            if (upto > done && !gap)
                put_between(out, done, upto);
            gap = kept == NULL;
            done = end;
            continue;
        }
        if (gap)
            done = begin;
        gap = false;
        kept = end;
        if (like == MCP_UNLIKE)
            continue;
        put_between(out, done, item.p);
        sm_buf_str(out, value);
        done = end;
        value = (sm_str){0};
    }
    put_between(out, done, object.p + object.n);
}

void mcp_put_with(sm_buf *out, sm_str object, const char *name, sm_str value)
{
    sm_str item;
    if (!mcp_is_object(object))
        object = SM_STR("{}");
    if (value.p == NULL || mcp_find(object, name, &item)) {
        put_replaced(out, object, name, value);
        return;
    }
    sm_buf rest;
    sm_buf_init(&rest, out->limit);
    put_replaced(&rest, object, name, (sm_str){0});
    if (rest.err == SM_OK)
        put_in_front(out, sm_buf_view(&rest), name, value);
    else
        out->err = rest.err;
    sm_buf_fini(&rest);
}

/* The first byte at or after `p` at which some reader may end a line. */
static const char *find_break(const char *p, const char *end)
{
    for (; p < end; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '\n' || c == '\r' || c == 0xC2 || c == 0xE2)
            break;
    }
    return p;
}

void mcp_put_line(sm_buf *out, sm_str text)
{
    const char *p = text.p, *end = p + text.n;
    sm_buf_reserve(out, text.n + 1);
    while (p < end) {
        const char *stop = find_break(p, end);
        size_t left = (size_t)(end - stop);
        put_between(out, p, stop);
        p = stop + 1;
        if (left == 0)
            return;
        if (*stop == '\n' || *stop == '\r') {
            sm_buf_byte(out, ' ');
        } else if (left >= 2 && memcmp(stop, "\xC2\x85", 2) == 0) {
            sm_buf_text(out, "\\u0085");
            p = stop + 2;
        } else if (left >= 3 && memcmp(stop, "\xE2\x80", 2) == 0 && (stop[2] & ~1) == (char)0xA8) {
            sm_buf_text(out, stop[2] & 1 ? "\\u2029" : "\\u2028");
            p = stop + 3;
        } else {
            sm_buf_byte(out, *stop);
        }
    }
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
    if (id.n > 0 && !mcp_is_string(id))
        return number_key(id, room);
    if (!quoted(id) || id.n > MCP_ID_MAX || memchr(id.p, '\\', id.n) == NULL)
        return id;
    room[0] = '"';
    mcp_text_cut(id, room + 1, MCP_ID_MAX);
    size_t n = strlen(room);
    room[n] = '"';
    return (sm_str){room, n + 1};
}
