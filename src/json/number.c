/*
 * From a literal to its canonical text, mostly without ever making a double.
 *
 * Two facts keep the common cases exact and fast:
 *
 *   - A decimal of at most 15 significant digits, in the range of normal doubles, is the shortest
 *     decimal that reads back as its nearest double: no two such decimals share a double. So its
 *     own digits are the ECMAScript digits.
 *   - An integer below 10^21 is written as its plain digits whichever of the three rules applies.
 *
 * Only longer fractions, larger integers and extreme exponents need strtod and the search for the
 * shortest digits. Nothing here depends on the locale: numbers are handed to strtod without a
 * decimal point, and digits are picked out of printf's result whatever its point looks like.
 */
#include "json/number.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/decimal.h"

/* No double's neighbourhood is decided by digits beyond these; what follows only matters as "more
 * than nothing". */
#define DIGITS_THAT_COUNT 800u

/* Digits d1...dk with value 0.d1...dk x 10^exp, as ECMAScript's k and n. */
typedef struct digits {
    char d[DIGITS_THAT_COUNT + 1];
    int count;
    int exp;
} digits;

static size_t put_zeros(char *out, int n)
{
    memset(out, '0', (size_t)n);
    return (size_t)n;
}

/* Number::toString(x, 10) from its digits: the one place that knows the ECMAScript layout. */
static size_t put_es6(const char *d, int k, int n, char *out)
{
    char *w = out;
    if (k <= n && n <= 21) {
        memcpy(w, d, (size_t)k);
        w += k;
        w += put_zeros(w, n - k);
    } else if (0 < n && n <= 21) {
        memcpy(w, d, (size_t)n);
        w += n;
        *w++ = '.';
        memcpy(w, d + n, (size_t)(k - n));
        w += k - n;
    } else if (-6 < n && n <= 0) {
        *w++ = '0';
        *w++ = '.';
        w += put_zeros(w, -n);
        memcpy(w, d, (size_t)k);
        w += k;
    } else {
        *w++ = *d;
        if (k > 1) {
            *w++ = '.';
            memcpy(w, d + 1, (size_t)(k - 1));
            w += k - 1;
        }
        w += sprintf(w, "e%c%d", n > 0 ? '+' : '-', n > 0 ? n - 1 : 1 - n);
    }
    return (size_t)(w - out);
}

/* The double nearest to 0.d1...dk x 10^exp. */
static double nearest_double(const char *d, size_t k, int64_t exp)
{
    char text[DIGITS_THAT_COUNT + 32];
    memcpy(text, d, k);
    snprintf(text + k, sizeof text - k, "e%" PRId64, exp - (int64_t)k);
    return strtod(text, NULL);
}

/* The decimal of `precision` digits nearest to `value`, ties to even. */
static void round_to(double value, int precision, digits *out)
{
    char text[64];
    snprintf(text, sizeof text, "%.*e", precision - 1, value);
    const char *p = text;
    out->count = 0;
    for (; *p != 'e'; p++) {
        if (*p >= '0' && *p <= '9')
            out->d[out->count++] = *p;
    }
    out->exp = (int)strtol(p + 1, NULL, 10) + 1;
    assert(out->count == precision);
}

static bool reads_back(const digits *d, double value)
{
    return nearest_double(d->d, (size_t)d->count, d->exp) == value;
}

/* The next decimal of the same precision above. */
static void step_up(digits *d)
{
    int i = d->count - 1;
    while (i >= 0 && d->d[i] == '9')
        d->d[i--] = '0';
    if (i >= 0) {
        d->d[i]++;
    } else {
        d->d[0] = '1';
        d->exp++;
    }
}

/* The shortest digits that read back as `value` (positive, finite), the nearest of them if there
 * are several. */
static void shortest(double value, digits *out)
{
    int exponent;
    /* Below a power of two the doubles lie twice as close as above it: there alone may the nearest
     * decimal be outside the interval that reads back while its upper neighbour is inside. */
    bool lopsided = frexp(value, &exponent) == 0.5;
    int precision = value < 2.2250738585072014e-308 ? 1 : 15;
    for (; precision < 17; precision++) {
        round_to(value, precision, out);
        if (reads_back(out, value))
            break;
        if (lopsided) {
            step_up(out);
            if (reads_back(out, value))
                break;
        }
    }
    if (precision == 17)
        round_to(value, 17, out);
    while (out->count > 1 && out->d[out->count - 1] == '0')
        out->count--;
}

size_t sm_number_es6(double value, char out[SM_NUMBER_MAX])
{
    assert(isfinite(value));
    size_t n = 0;
    if (value == 0) {
        out[0] = '0';
        return 1;
    }
    if (value < 0)
        out[n++] = '-';
    digits d;
    shortest(fabs(value), &d);
    return n + put_es6(d.d, d.count, d.exp, out + n);
}

static size_t put_integer(const sm_decimal *d, char *out)
{
    size_t n = sm_decimal_digits(d, out, d->count);
    return n + put_zeros(out + n, (int)d->exp - (int)n);
}

/* The general case, for a positive or negative `d` whose magnitude alone is written. */
static size_t put_by_double(const sm_decimal *d, char *out)
{
    char text[DIGITS_THAT_COUNT + 1];
    size_t n = sm_decimal_digits(d, text, DIGITS_THAT_COUNT);
    if (n < d->count)
        text[n++] = '1'; /* the last digit is not zero, so the rest is more than nothing */
    double value = nearest_double(text, n, d->exp);
    if (!isfinite(value))
        return 0;
    if (value == 0) {
        out[0] = '0';
        return 1;
    }
    digits s;
    shortest(value, &s);
    sm_decimal exact = {.digits = s.d, .count = (size_t)s.count, .exp = s.exp};
    sm_decimal magnitude = *d;
    magnitude.negative = false;
    if (sm_decimal_integer(d) && sm_decimal_compare(&exact, &magnitude) != 0)
        return put_integer(d, out);
    return put_es6(s.d, s.count, s.exp, out);
}

size_t sm_number_canonical(sm_str literal, char out[SM_NUMBER_MAX])
{
    sm_decimal d;
    bool number = sm_decimal_parse(literal, &d);
    assert(number);
    (void)number;
    if (d.count == 0) {
        out[0] = '0';
        return 1;
    }
    size_t n = 0;
    if (d.negative)
        out[n++] = '-';
    size_t m;
    if (sm_decimal_integer(&d) && d.exp <= 21) {
        m = put_integer(&d, out + n);
    } else if (d.count <= 15 && d.exp > -290 && d.exp < 290) {
        char text[15];
        sm_decimal_digits(&d, text, sizeof text);
        m = put_es6(text, (int)d.count, (int)d.exp, out + n);
    } else {
        m = put_by_double(&d, out + n);
        if (m == 1 && out[n] == '0') { /* too small for a double: zero has no sign */
            out[0] = '0';
            return 1;
        }
    }
    return m == 0 ? 0 : n + m;
}
