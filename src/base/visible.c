/* One pass over the text; most of it is copied as it is. */
#include "base/visible.h"

#include "base/utf8.h"

/* Characters that reorder the text around them: what is read would not be what is there. */
static unsigned bidi_control(const unsigned char *p, size_t step)
{
    unsigned c = step == 3   ? (p[0] & 0x0Fu) << 12 | (p[1] & 0x3Fu) << 6 | (p[2] & 0x3Fu)
                 : step == 2 ? (p[0] & 0x1Fu) << 6 | (p[1] & 0x3Fu)
                             : 0;
    bool is = c == 0x061C || c == 0x200E || c == 0x200F || (c >= 0x202A && c <= 0x202E) ||
              (c >= 0x2066 && c <= 0x2069);
    return is ? c : 0;
}

void sm_visible_put(sm_buf *out, sm_str text)
{
    for (size_t i = 0; i < text.n;) {
        const unsigned char *p = (const unsigned char *)text.p + i;
        size_t step = sm_utf8_step(p, text.n - i), n = step == 0 ? 1 : step;
        bool c1 = step == 2 && p[0] == 0xC2 && p[1] < 0xA0;
        unsigned bidi = bidi_control(p, step);
        if (bidi != 0)
            sm_buf_printf(out, "\\u%04X", bidi);
        for (size_t j = 0; bidi == 0 && j < n; j++) {
            if (step == 0 || *p < 0x20 || *p == 0x7F || c1)
                sm_buf_printf(out, "\\x%02X", p[j]);
            else
                sm_buf_byte(out, (char)p[j]);
        }
        i += n;
    }
}
