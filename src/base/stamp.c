/* Civil time, in UTC only. */
#include "base/stamp.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define YEAR_9999_END 253402300799999

void sm_stamp_text(int64_t ms, char out[SM_STAMP_TEXT])
{
    if (ms < 0 || ms > YEAR_9999_END) {
        strcpy(out, "never");
        return;
    }
    time_t seconds = (time_t)(ms / 1000);
    struct tm t;
    gmtime_r(&seconds, &t);
    size_t n = strftime(out, SM_STAMP_TEXT, "%Y-%m-%dT%H:%M:%S", &t);
    snprintf(out + n, SM_STAMP_TEXT - n, ".%03dZ", (int)(ms % 1000));
}

/* ---- reading ----------------------------------------------------------------------------------*/

/* Reads exactly `digits` digits and what must follow them ('\0': nothing). */
static bool take(sm_str *s, size_t digits, char then, int *out)
{
    if (s->n < digits + (then != '\0'))
        return false;
    *out = 0;
    for (size_t i = 0; i < digits; i++) {
        if (s->p[i] < '0' || s->p[i] > '9')
            return false;
        *out = *out * 10 + (s->p[i] - '0');
    }
    if (then != '\0' && s->p[digits] != then)
        return false;
    size_t n = digits + (then != '\0');
    *s = (sm_str){s->p + n, s->n - n};
    return true;
}

/* ".5", ".123456": milliseconds, the rest is cut off. */
static bool take_fraction(sm_str *s, int *ms)
{
    int scale = 100;
    size_t i = 1;
    for (; i < s->n && s->p[i] >= '0' && s->p[i] <= '9'; i++) {
        *ms += (s->p[i] - '0') * scale;
        scale /= 10;
    }
    *s = (sm_str){s->p + i, s->n - i};
    return i > 1;
}

/* "Z", "+02:00": minutes to take away. */
static bool take_zone(sm_str s, int *minutes)
{
    if (s.n == 1 && (*s.p == 'Z' || *s.p == 'z'))
        return true;
    if (s.n != 6 || (*s.p != '+' && *s.p != '-'))
        return false;
    int sign = *s.p == '-' ? -1 : 1, hour, minute;
    s = (sm_str){s.p + 1, s.n - 1};
    if (!take(&s, 2, ':', &hour) || !take(&s, 2, '\0', &minute) || hour > 23 || minute > 59)
        return false;
    *minutes = sign * (hour * 60 + minute);
    return true;
}

bool sm_stamp_parse(sm_str text, int64_t *ms)
{
    struct tm tm = {0};
    int year, month, fraction = 0, zone = 0;
    sm_str s = text;
    if (!take(&s, 4, '-', &year) || !take(&s, 2, '-', &month) || !take(&s, 2, '\0', &tm.tm_mday))
        return false;
    tm.tm_year = year - 1900;
    tm.tm_mon = month - 1;
    int day = tm.tm_mday;
    if (s.n > 0) {
        if (*s.p != 'T' && *s.p != 't' && *s.p != ' ')
            return false;
        s = (sm_str){s.p + 1, s.n - 1};
        if (!take(&s, 2, ':', &tm.tm_hour) || !take(&s, 2, ':', &tm.tm_min) ||
            !take(&s, 2, '\0', &tm.tm_sec) || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60)
            return false;
        if (s.n > 0 && *s.p == '.' && !take_fraction(&s, &fraction))
            return false;
        if (!take_zone(s, &zone))
            return false;
    }
    int leap = tm.tm_sec == 60;
    time_t t = timegm(&tm);
    /* The library moves a 31st of February into March; here it is a mistake. */
    if (month < 1 || month > 12 || day < 1 || (tm.tm_mday != day && !leap))
        return false;
    *ms = ((int64_t)t - zone * 60) * 1000 + fraction;
    return true;
}
