/* Base64 by the book: three bytes are four characters. */
#include "base/base64.h"

#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void sm_base64_put(sm_buf *out, sm_str bytes)
{
    if (bytes.n == 0 || !sm_buf_reserve(out, sm_base64_size(bytes.n)))
        return;
    const unsigned char *p = (const unsigned char *)bytes.p;
    char *w = out->p + out->len;
    for (size_t i = 0; i < bytes.n; i += 3) {
        size_t have = bytes.n - i < 3 ? bytes.n - i : 3;
        uint32_t bits = (uint32_t)p[i] << 16;
        if (have > 1)
            bits |= (uint32_t)p[i + 1] << 8;
        if (have > 2)
            bits |= p[i + 2];
        w[0] = alphabet[bits >> 18];
        w[1] = alphabet[bits >> 12 & 63];
        w[2] = have > 1 ? alphabet[bits >> 6 & 63] : '=';
        w[3] = have > 2 ? alphabet[bits & 63] : '=';
        w += 4;
    }
    out->len += sm_base64_size(bytes.n);
}

/* The six bits of a character, or -1. */
static int sextet(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

bool sm_base64_take(sm_buf *out, sm_str text)
{
    if (text.n % 4 != 0)
        return false;
    size_t pad = 0, start = out->len;
    while (pad < 2 && pad < text.n && text.p[text.n - 1 - pad] == '=')
        pad++;
    size_t size = text.n / 4 * 3 - pad;
    if (!sm_buf_reserve(out, size))
        return true;
    uint32_t bits = 0;
    for (size_t i = 0; i < text.n - pad; i++) {
        int six = sextet(text.p[i]);
        if (six < 0) {
            out->len = start;
            return false;
        }
        bits = (bits << 6 | (uint32_t)six) & 0xFFFFFF;
        if (i % 4 > 0)
            out->p[out->len++] = (char)(bits >> (6 - 2 * (i % 4)));
    }
    /* The bits of a last character that stand for nothing must be zero: one text for each value. */
    uint32_t unused = pad == 2 ? bits & 15 : pad == 1 ? bits & 3 : 0;
    if (unused != 0)
        out->len = start;
    return unused == 0;
}
