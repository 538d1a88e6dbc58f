/* UTF-8 as RFC 3629 defines it, and the order that RFC 8785 sorts names by. */
#ifndef SM_BASE_UTF8_H
#define SM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* Length (1 to 4) of the well-formed sequence at `p`, or 0. Reads at most `n` bytes and never past
 * a byte that cannot continue the sequence, so a NUL-terminated text needs no exact `n`. Overlong
 * forms, surrogates and anything above U+10FFFF are not well formed. */
size_t sm_utf8_step(const unsigned char *p, size_t n);

bool sm_utf8_valid(sm_str s);

/* Writes a code point (not a surrogate, at most U+10FFFF) and returns its length. */
size_t sm_utf8_put(char *out, uint32_t cp);

/* The longest prefix of at most `most` bytes that does not end inside a character. */
sm_str sm_utf8_cut(sm_str s, size_t most);

/* Number of code points in a valid text. */
size_t sm_utf8_count(sm_str s);

/* A byte's rank for comparing two valid texts by their UTF-16 code units without converting them:
 * bytewise order, except that the lead bytes of astral characters (F0..F4, surrogates in UTF-16)
 * come before those of U+E000..U+FFFF (EE, EF). Two texts first differ either in a lead byte, which
 * the rank orders, or in a continuation byte after equal leads, which plain order is right for. */
static inline unsigned char sm_utf16_rank(unsigned char byte)
{
    if (byte < 0xEE)
        return byte;
    return byte < 0xF0 ? (unsigned char)(byte + 5) : (unsigned char)(byte - 2);
}

/* Negative, zero or positive, as strcmp. Both valid UTF-8. */
int sm_utf16_compare(sm_str a, sm_str b);

/* Line and column, both from 1, of a byte offset; columns count characters, and a line ends at a
 * line feed. */
void sm_text_position(sm_str text, size_t at, uint32_t *line, uint32_t *column);

#endif
