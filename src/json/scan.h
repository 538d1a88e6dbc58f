/*
 * JSON text, checked from one end to the other without being taken apart: the grammar of RFC 8259,
 * UTF-8, a bounded depth. One pass, no recursion, no memory.
 *
 * What the grammar leaves to the reader stays as it is: names that are there twice, escapes of half
 * a surrogate pair, numbers that no double can hold.
 */
#ifndef SM_JSON_SCAN_H
#define SM_JSON_SCAN_H

#include <endian.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/str.h"

#define SM_SCAN_DEPTH_MAX 1024u /* of nested values */

/* A text, and what was wrong with it when a function below has returned NULL. */
typedef struct sm_scan {
    const char *end; /* the caller's: nothing is read from there on */
    const char *at;
    const char *why; /* the rest of a sentence: "expected a value" */
    bool deep;       /* it may be JSON, but it is nested too deeply */
} sm_scan;

/* The end of the value that begins at `p`, which is inside `outside` other values. */
const char *sm_scan_value(sm_scan *s, const char *p, unsigned outside);

/* The end of an object or array that is nested too deeply, by its brackets alone. */
const char *sm_scan_over(sm_scan *s, const char *p);

/* A member's name and the colon behind it; `p` is where it must begin. `name` is as written,
 * without its quotes. Returns where the member's value must begin. */
const char *sm_scan_name(sm_scan *s, const char *p, sm_str *name);

/* NULL, for a byte that is not what it must be there; `p` may be the end. */
const char *sm_scan_fail(sm_scan *s, const char *p, const char *why);

static inline const char *sm_scan_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\n' || *p == '\r' || *p == '\t'))
        p++;
    return p;
}

/* The first byte from `p` on that does not stand for itself in a string: a quote, a backslash, a
 * control character, or one that is not ASCII. */
static inline const char *sm_scan_plain(const char *p, const char *end)
{
    const uint64_t ones = 0x0101010101010101u;
    for (; end - p >= 8; p += 8) {
        uint64_t x;
        memcpy(&x, p, sizeof x);
        x = le64toh(x);
        /* The high bit of a byte says stop. A borrow can set it falsely, but only above a byte
         * where it is set truly, and the lowest one is what counts. */
        uint64_t quote = x ^ ones * '"', backslash = x ^ ones * '\\';
        uint64_t stop = ((quote - ones) | (backslash - ones) | (x - ones * 0x20) | x) & ones * 0x80;
        if (stop != 0)
            return p + (__builtin_ctzll(stop) >> 3);
    }
    while (p < end && *p != '"' && *p != '\\' && (unsigned char)*p >= 0x20 &&
           (unsigned char)*p < 0x80)
        p++;
    return p;
}

#endif
