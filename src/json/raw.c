/* Parts of JSON text: members and elements found, strings decoded, objects changed. */
#include "json/raw.h"

#include <assert.h>

#include "base/fold.h"
#include "base/utf8.h"
#include "json/canon.h"
#include "json/scan.h"

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

static bool name_is(sm_str name, const char *text)
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
static sm_likeness compare(sm_str name, const char *text, bool joints)
{
    if (name_is(name, text))
        return SM_EXACT;
    sm_str rest = sm_str_from(text);
    const char *end = name.p + name.n;
    uint32_t wanted = sm_fold_next(&rest, joints);
    if (wanted == 0)
        return SM_UNLIKE; /* nothing of it counts */
    for (const char *p = name.p; p < end;) {
        char c[4];
        sm_str one = {c, decode(&p, end, c)};
        uint32_t counts = sm_fold_next(&one, joints);
        if (counts == 0)
            continue;
        if (counts != wanted)
            return SM_UNLIKE;
        wanted = sm_fold_next(&rest, joints);
    }
    return wanted == 0 ? SM_ALIKE : SM_UNLIKE;
}

sm_likeness sm_raw_name_like(sm_str name, const char *text)
{
    return compare(name, text, false);
}

sm_likeness sm_raw_word_like(sm_str name, const char *text)
{
    return compare(name, text, true);
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

bool sm_raw_is(sm_str value, const char *text)
{
    return quoted(value) && name_is(inside(value), text);
}

bool sm_raw_text(sm_str value, char *out, size_t room)
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

void sm_raw_text_cut(sm_str value, char *out, size_t room)
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

bool sm_raw_next(sm_str value, size_t *cursor, sm_str *name, sm_str *item)
{
    *name = *item = (sm_str){0};
    if (value.n < 2 || (value.p[0] != '{' && value.p[0] != '[') || *cursor >= value.n)
        return false;
    bool object = value.p[0] == '{';
    sm_scan s = {.end = value.p + value.n};
    const char *p = sm_scan_blanks(value.p + (*cursor == 0 ? 1 : *cursor), s.end);
    if (*cursor != 0) {
        if (p == s.end || *p != ',')
            return false;
        p = sm_scan_blanks(p + 1, s.end);
    } else if (p < s.end && *p == (object ? '}' : ']')) {
        return false;
    }
    if (object && (p = sm_scan_name(&s, p, name)) == NULL)
        return false;
    const char *end = sm_scan_value(&s, p, 0);
    if (end == NULL)
        return false;
    *item = (sm_str){p, (size_t)(end - p)};
    *cursor = (size_t)(end - value.p);
    return true;
}

bool sm_raw_find(sm_str object, const char *name, sm_str *out)
{
    size_t cursor = 0;
    sm_str each;
    while (sm_raw_is_object(object) && sm_raw_next(object, &cursor, &each, out)) {
        if (name_is(each, name))
            return true;
    }
    *out = (sm_str){0};
    return false;
}

bool sm_raw_find_plain(sm_str object, const char *name, sm_str *out)
{
    size_t cursor = 0, alike = 0;
    sm_str each, item;
    *out = (sm_str){0};
    while (sm_raw_is_object(object) && sm_raw_next(object, &cursor, &each, &item)) {
        sm_likeness like = sm_raw_name_like(each, name);
        alike += like != SM_UNLIKE;
        if (like == SM_EXACT)
            *out = item;
    }
    return alike == 1 && out->p != NULL;
}

/* ---- changing --------------------------------------------------------------------------------*/

static void put_between(sm_buf *out, const char *from, const char *to)
{
    sm_buf_bytes(out, from, (size_t)(to - from));
}

void sm_raw_put_edited(sm_buf *out, sm_str text, const sm_raw_edit *edits, size_t n)
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
    if (sm_raw_next(object, &cursor, &each, &item))
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
    while (sm_raw_next(object, &cursor, &each, &item)) {
        const char *begin = each.p - 1, *end = item.p + item.n;
        sm_likeness like = sm_raw_word_like(each, name);
        if (like == SM_ALIKE || (like == SM_EXACT && value.p == NULL)) {
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
        if (like == SM_UNLIKE)
            continue;
        put_between(out, done, item.p);
        sm_buf_str(out, value);
        done = end;
        value = (sm_str){0};
    }
    put_between(out, done, object.p + object.n);
}

void sm_raw_put_with(sm_buf *out, sm_str object, const char *name, sm_str value)
{
    sm_str item;
    if (!sm_raw_is_object(object))
        object = SM_STR("{}");
    if (value.p == NULL || sm_raw_find(object, name, &item)) {
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

void sm_raw_put_line(sm_buf *out, sm_str text)
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

bool sm_raw_is_json(sm_str text)
{
    sm_scan s = {.end = text.p + text.n};
    const char *end = text.n == 0 ? NULL : sm_scan_value(&s, text.p, 0);
    return end == s.end;
}
