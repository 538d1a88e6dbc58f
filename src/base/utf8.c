/* Validation, encoding and ordering of UTF-8 text. */
#include "base/utf8.h"

static bool continues(unsigned char byte)
{
    return (byte & 0xC0) == 0x80;
}

size_t sm_utf8_step(const unsigned char *p, size_t n)
{
    if (n == 0)
        return 0;
    unsigned char lead = p[0];
    if (lead < 0x80)
        return 1;
    if (lead < 0xC2 || lead > 0xF4 || n < 2)
        return 0;
    if (lead < 0xE0)
        return continues(p[1]) ? 2 : 0;
    /* The second byte's range excludes overlong forms, surrogates and too large values. */
    unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (p[1] < low || p[1] > high || n < 3 || !continues(p[2]))
        return 0;
    if (lead < 0xF0)
        return 3;
    return n >= 4 && continues(p[3]) ? 4 : 0;
}

bool sm_utf8_valid(sm_str s)
{
    const unsigned char *p = (const unsigned char *)s.p;
    for (size_t i = 0; i < s.n;) {
        size_t step = sm_utf8_step(p + i, s.n - i);
        if (step == 0)
            return false;
        i += step;
    }
    return true;
}

size_t sm_utf8_put(char *out, uint32_t cp)
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        out[0] = (char)(0xC0 | cp >> 6);
        out[1] = (char)(0x80 | (cp & 0x3F));
        return 2;
    }
    if (cp < 0x10000) {
        out[0] = (char)(0xE0 | cp >> 12);
        out[1] = (char)(0x80 | (cp >> 6 & 0x3F));
        out[2] = (char)(0x80 | (cp & 0x3F));
        return 3;
    }
    out[0] = (char)(0xF0 | cp >> 18);
    out[1] = (char)(0x80 | (cp >> 12 & 0x3F));
    out[2] = (char)(0x80 | (cp >> 6 & 0x3F));
    out[3] = (char)(0x80 | (cp & 0x3F));
    return 4;
}

sm_str sm_utf8_cut(sm_str s, size_t most)
{
    if (s.n <= most)
        return s;
    while (most > 0 && continues((unsigned char)s.p[most]))
        most--;
    return (sm_str){s.p, most};
}

size_t sm_utf8_count(sm_str s)
{
    size_t count = 0;
    for (size_t i = 0; i < s.n; i++)
        count += !continues((unsigned char)s.p[i]);
    return count;
}

int sm_utf16_compare(sm_str a, sm_str b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    for (size_t i = 0; i < n; i++) {
        unsigned char x = (unsigned char)a.p[i], y = (unsigned char)b.p[i];
        if (x != y)
            return (int)sm_utf16_rank(x) - (int)sm_utf16_rank(y);
    }
    return a.n == b.n ? 0 : a.n < b.n ? -1 : 1;
}

void sm_text_position(sm_str text, size_t at, uint32_t *line, uint32_t *column)
{
    uint32_t l = 1, c = 1;
    for (size_t i = 0; i < at && i < text.n; i++) {
        if (text.p[i] == '\n') {
            l++;
            c = 1;
        } else if (!continues((unsigned char)text.p[i])) {
            c++;
        }
    }
    *line = l;
    *column = c;
}
