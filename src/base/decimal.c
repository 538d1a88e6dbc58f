/* Parsing keeps pointers into the text; comparing walks two texts side by side. */
#include "base/decimal.h"

#define EXP_CAP ((int64_t)1 << 60) /* an exponent beyond this is as good as infinite */

static bool is_digit(const char *p, const char *end)
{
    return p < end && *p >= '0' && *p <= '9';
}

/* Reads "[eE][+-]?digits" at *p, if it is there. */
static bool read_exponent(const char **p, const char *end, int64_t *exp)
{
    *exp = 0;
    if (*p == end || (**p != 'e' && **p != 'E'))
        return true;
    (*p)++;
    bool negative = *p < end && **p == '-';
    if (*p < end && (**p == '-' || **p == '+'))
        (*p)++;
    if (!is_digit(*p, end))
        return false;
    for (; is_digit(*p, end); (*p)++) {
        if (*exp < EXP_CAP / 10)
            *exp = *exp * 10 + (**p - '0');
        else
            *exp = EXP_CAP;
    }
    if (negative)
        *exp = -*exp;
    return true;
}

/* Digits seen so far, and the first and last of them that is not zero. */
typedef struct digit_run {
    const char *lead;
    size_t position;
    size_t lead_at;
    size_t last_at;
} digit_run;

static const char *scan_digits(digit_run *run, const char *p, const char *end)
{
    for (; is_digit(p, end); p++, run->position++) {
        if (*p == '0')
            continue;
        if (run->lead == NULL) {
            run->lead = p;
            run->lead_at = run->position;
        }
        run->last_at = run->position;
    }
    return p;
}

bool sm_decimal_parse(sm_str s, sm_decimal *out)
{
    *out = (sm_decimal){0};
    if (s.n == 0)
        return false;
    const char *p = s.p, *end = s.p + s.n;
    bool negative = p < end && *p == '-';
    if (negative)
        p++;
    if (!is_digit(p, end) || (*p == '0' && is_digit(p + 1, end)))
        return false;
    digit_run run = {0};
    p = scan_digits(&run, p, end);
    size_t whole = run.position;
    if (p < end && *p == '.') {
        p++;
        if (!is_digit(p, end))
            return false;
        p = scan_digits(&run, p, end);
    }
    int64_t exp;
    if (!read_exponent(&p, end, &exp) || p != end)
        return false;
    if (run.lead == NULL)
        return true; /* zero, whatever the exponent */
    out->digits = run.lead;
    out->count = run.last_at - run.lead_at + 1;
    out->exp = exp + (int64_t)whole - (int64_t)run.lead_at;
    out->negative = negative;
    return true;
}

static int compare_magnitude(const sm_decimal *a, const sm_decimal *b)
{
    if (a->count == 0 || b->count == 0)
        return (a->count != 0) - (b->count != 0);
    if (a->exp != b->exp)
        return a->exp < b->exp ? -1 : 1;
    const char *p = a->digits, *q = b->digits;
    size_t n = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < n; i++, p++, q++) {
        p += *p == '.';
        q += *q == '.';
        if (*p != *q)
            return *p < *q ? -1 : 1;
    }
    return (a->count > b->count) - (a->count < b->count);
}

int sm_decimal_compare(const sm_decimal *a, const sm_decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_magnitude(b, a) : compare_magnitude(a, b);
}

size_t sm_decimal_digits(const sm_decimal *d, char *out, size_t n)
{
    if (n > d->count)
        n = d->count;
    const char *p = d->digits;
    for (size_t i = 0; i < n; i++, p++) {
        p += *p == '.';
        out[i] = *p;
    }
    return n;
}

bool sm_decimal_scaled(const sm_decimal *d, unsigned places, int64_t *out)
{
    char digits[20];
    int64_t zeros = d->exp + (int64_t)places - (int64_t)d->count, value = 0;
    if (d->count == 0) {
        *out = 0;
        return true;
    }
    if (d->count > sizeof digits || zeros < 0 || zeros > 18)
        return false;
    sm_decimal_digits(d, digits, sizeof digits);
    for (int64_t i = 0; i < (int64_t)d->count + zeros; i++) {
        int digit = i < (int64_t)d->count ? digits[i] - '0' : 0;
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, d->negative ? -digit : digit, &value))
            return false;
    }
    *out = value;
    return true;
}

size_t sm_decimal_put(int64_t scaled, unsigned places, char text[SM_DECIMAL_TEXT])
{
    char reversed[SM_DECIMAL_TEXT];
    size_t n = 0, out = 0;
    bool fraction = false; /* zeros at its end are left out */
    uint64_t left = scaled < 0 ? -(uint64_t)scaled : (uint64_t)scaled;
    for (unsigned i = 0; i <= places || left > 0; i++, left /= 10) {
        if (i == places && fraction)
            reversed[n++] = '.';
        fraction |= left % 10 != 0;
        if (i >= places || fraction)
            reversed[n++] = (char)('0' + left % 10);
    }
    if (scaled < 0)
        text[out++] = '-';
    while (n > 0)
        text[out++] = reversed[--n];
    return out;
}
