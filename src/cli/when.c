/* Reading and writing times. The calendar is the C library's, always in UTC. */
#include "cli/when.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

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

bool cli_when_parse(sm_str text, int64_t *ms)
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

void cli_when_text(int64_t ms, char out[CLI_WHEN_TEXT])
{
    time_t t = (time_t)(ms / 1000 - (ms % 1000 < 0));
    struct tm tm;
    if (ms == INT64_MAX)
        snprintf(out, CLI_WHEN_TEXT, "never");
    else if (gmtime_r(&t, &tm) == NULL ||
             strftime(out, CLI_WHEN_TEXT, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
        snprintf(out, CLI_WHEN_TEXT, "%" PRId64 " ms", ms);
}

void cli_span_text(int64_t ms, char out[CLI_WHEN_TEXT])
{
    static const struct {
        int64_t ms;
        const char *name;
    } units[] = {{24 * 3600000LL, "d"}, {3600000, "h"}, {60000, "m"}, {1000, "s"}};
    size_t u = 0;
    while (u < 3 && ms < units[u].ms)
        u++;
    snprintf(out, CLI_WHEN_TEXT, "%" PRId64 "%s", ms / units[u].ms, units[u].name);
}

void cli_age_text(int64_t ms, int64_t now, char out[CLI_WHEN_TEXT])
{
    char span[CLI_WHEN_TEXT];
    if (ms == INT64_MAX) {
        snprintf(out, CLI_WHEN_TEXT, "never");
        return;
    }
    int64_t past = now - ms;
    if (past > -1000 && past < 1000) {
        snprintf(out, CLI_WHEN_TEXT, "now");
        return;
    }
    /* A lease of 5m that began a moment ago ends in 5m. */
    cli_span_text(past < 0 ? 500 - past : past, span);
    snprintf(out, CLI_WHEN_TEXT, past < 0 ? "in %.30s" : "%.30s ago", span);
}
