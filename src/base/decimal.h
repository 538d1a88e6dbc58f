/*
 * An exact decimal number, read from its text and never turned into a double.
 *
 * The value is  0.d1d2d3... x 10^exp,  d1 and the last digit not zero. `digits` points at d1 inside
 * the text that was parsed, which must outlive the decimal; a '.' between the digits is stepped
 * over. Zero has no digits, and is never negative.
 */
#ifndef SM_BASE_DECIMAL_H
#define SM_BASE_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

typedef struct sm_decimal {
    const char *digits;
    size_t count;
    int64_t exp;
    bool negative;
} sm_decimal;

/* Reads the grammar of a JSON number. False if `s` is anything else. */
bool sm_decimal_parse(sm_str s, sm_decimal *out);

/* Negative, zero or positive. Exact at any length. */
int sm_decimal_compare(const sm_decimal *a, const sm_decimal *b);

static inline bool sm_decimal_integer(const sm_decimal *d)
{
    return d->exp >= (int64_t)d->count;
}

/* The number times 10^places, if that is a whole number that fits. */
bool sm_decimal_scaled(const sm_decimal *d, unsigned places, int64_t *out);

/* Such a number as text again: the shortest, "0.05" or "12". `text` has room for it. */
#define SM_DECIMAL_TEXT 32u
size_t sm_decimal_put(int64_t scaled, unsigned places, char text[SM_DECIMAL_TEXT]);

/* The sum of two such numbers that are not negative; INT64_MAX if it does not fit. */
static inline int64_t sm_plus(int64_t a, int64_t b)
{
    int64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

/* Copies at most `n` digits, without the point, and returns how many. */
size_t sm_decimal_digits(const sm_decimal *d, char *out, size_t n);

#endif
