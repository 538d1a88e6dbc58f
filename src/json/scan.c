/*
 * The grammar of JSON, over text that is not copied and has no sentinel behind it: every step looks
 * where the end is. Most bytes of a long message are inside strings, where eight are looked at at
 * once.
 */
#include "json/scan.h"

#include "base/utf8.h"

const char *sm_scan_fail(sm_scan *s, const char *p, const char *why)
{
    s->at = p;
    s->why = why;
    return NULL;
}

static bool digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

static const char *skip_digits(const char *p, const char *end)
{
    while (digit(p, end))
        p++;
    return p;
}

static bool hex(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
}

/* `p` is at the backslash. */
static const char *skip_escape(sm_scan *s, const char *p)
{
    if (s->end - p < 2)
        return sm_scan_fail(s, s->end, "the text ends inside a string");
    switch (p[1]) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't': return p + 2;
    case 'u': break;
    default: return sm_scan_fail(s, p, "unknown escape");
    }
    if (s->end - p < 6 || !hex(p[2]) || !hex(p[3]) || !hex(p[4]) || !hex(p[5]))
        return sm_scan_fail(s, p, "\\u needs four hexadecimal digits");
    return p + 6;
}

/* `p` is at the opening quote. */
static inline const char *skip_string(sm_scan *s, const char *p)
{
    const char *end = s->end;
    for (p++;;) {
        p = sm_scan_plain(p, end);
        if (p == end)
            return sm_scan_fail(s, p, "the text ends inside a string");
        unsigned char c = (unsigned char)*p;
        if (c == '"')
            return p + 1;
        if (c == '\\') {
            if ((p = skip_escape(s, p)) == NULL)
                return NULL;
            continue;
        }
        if (c < 0x20)
            return sm_scan_fail(s, p, "a control character inside a string");
        /* Where one character is wide, the next one often is. */
        do {
            size_t step = sm_utf8_step((const unsigned char *)p, (size_t)(end - p));
            if (step == 0)
                return sm_scan_fail(s, p, "not valid UTF-8");
            p += step;
        } while (p < end && (unsigned char)*p >= 0x80);
    }
}

/* `p` is at a minus sign or a digit. */
static const char *skip_number(sm_scan *s, const char *p)
{
    const char *end = s->end;
    p += *p == '-';
    if (!digit(p, end))
        return sm_scan_fail(s, p, "expected a digit");
    if (*p == '0' && digit(p + 1, end))
        return sm_scan_fail(s, p, "a number with leading zeros");
    p = skip_digits(p, end);
    if (p < end && *p == '.') {
        if (!digit(++p, end))
            return sm_scan_fail(s, p, "expected a digit after the decimal point");
        p = skip_digits(p, end);
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        if (!digit(p, end))
            return sm_scan_fail(s, p, "expected a digit in the exponent");
        p = skip_digits(p, end);
    }
    return p;
}

static const char *skip_word(sm_scan *s, const char *p)
{
    static const sm_str words[] = {{"true", 4}, {"false", 5}, {"null", 4}};
    size_t left = (size_t)(s->end - p);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (left >= words[i].n && memcmp(p, words[i].p, words[i].n) == 0)
            return p + words[i].n;
    }
    return sm_scan_fail(s, p, "expected a value");
}

static inline const char *skip_scalar(sm_scan *s, const char *p)
{
    if (*p == '"')
        return skip_string(s, p);
    if (*p == '-' || digit(p, s->end))
        return skip_number(s, p);
    return skip_word(s, p);
}

static inline const char *skip_name(sm_scan *s, const char *p)
{
    if (p == s->end || *p != '"')
        return sm_scan_fail(s, p, "expected a name in double quotes");
    if ((p = skip_string(s, p)) == NULL)
        return NULL;
    p = sm_scan_blanks(p, s->end);
    if (p == s->end || *p != ':')
        return sm_scan_fail(s, p, "expected ':' after the name");
    return sm_scan_blanks(p + 1, s->end);
}

const char *sm_scan_name(sm_scan *s, const char *p, sm_str *name)
{
    *name = (sm_str){0};
    const char *value = skip_name(s, p);
    if (value == NULL)
        return NULL;
    /* Back over the colon and blanks, none of which can be the closing quote. */
    const char *quote = value - 1;
    while (*quote != '"')
        quote--;
    *name = (sm_str){p + 1, (size_t)(quote - p - 1)};
    return value;
}

/* Each turn of the outer loop stands before a value, each turn of the inner one behind a value. */
const char *sm_scan_value(sm_scan *s, const char *p, unsigned outside)
{
    const char *end = s->end;
    if (p < end && *p != '{' && *p != '[')
        return skip_scalar(s, p);
    uint64_t objects[SM_SCAN_DEPTH_MAX / 64] = {0}; /* of the open containers: it is an object */
    unsigned depth = 0;
    bool object = false; /* the innermost one */
    for (;;) {
        if (p == end)
            return sm_scan_fail(s, p, "the text ends where a value was expected");
        if (*p == '{' || *p == '[') {
            if (depth + outside >= SM_SCAN_DEPTH_MAX) {
                s->deep = true;
                return sm_scan_fail(s, p, "nested too deeply");
            }
            object = *p == '{';
            uint64_t bit = (uint64_t)1 << depth % 64;
            objects[depth / 64] = (objects[depth / 64] & ~bit) | (object ? bit : 0);
            depth++;
            p = sm_scan_blanks(p + 1, end);
            if (p == end || *p != (object ? '}' : ']')) {
                if (object && (p = skip_name(s, p)) == NULL)
                    return NULL;
                continue;
            }
        } else if ((p = skip_scalar(s, p)) == NULL) {
            return NULL;
        }
        for (;; p++) {
            p = sm_scan_blanks(p, end);
            if (p == end)
                return sm_scan_fail(s, p, "the text ends inside an object or array");
            if (*p == ',')
                break;
            if (*p != (object ? '}' : ']'))
                return sm_scan_fail(s, p, object ? "expected ',' or '}'" : "expected ',' or ']'");
            if (--depth == 0)
                return p + 1;
            object = objects[(depth - 1) / 64] >> (depth - 1) % 64 & 1;
        }
        p = sm_scan_blanks(p + 1, end);
        if (object && (p = skip_name(s, p)) == NULL)
            return NULL;
    }
}

const char *sm_scan_over(sm_scan *s, const char *p)
{
    size_t depth = 0;
    while (p < s->end) {
        if (*p == '"') {
            if ((p = skip_string(s, p)) == NULL)
                return NULL;
            continue;
        }
        if (*p == '{' || *p == '[')
            depth++;
        else if ((*p == '}' || *p == ']') && --depth == 0)
            return p + 1;
        p++;
    }
    return sm_scan_fail(s, p, "the text ends inside an object or array");
}
