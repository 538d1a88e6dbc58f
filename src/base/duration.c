/* One table of units serves reading and writing. */
#include "base/duration.h"

#include <inttypes.h>
#include <stdio.h>

static const struct unit {
    const char *name;
    int64_t ms;
} units[] = {
    {"d", 24 * 3600 * 1000}, {"h", 3600 * 1000}, {"m", 60 * 1000}, {"s", 1000}, {"ms", 1},
};
#define UNITS (sizeof units / sizeof units[0])

bool sm_duration_parse(sm_str text, int64_t *ms)
{
    if (sm_str_is(text, "forever")) {
        *ms = SM_FOREVER;
        return true;
    }
    size_t i = 0;
    int64_t n = 0;
    for (; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        n = n * 10 + (text.p[i] - '0');
        if (n > SM_DURATION_MAX_MS)
            return false;
    }
    if (i == 0)
        return false;
    sm_str name = {text.p + i, text.n - i};
    for (size_t u = 0; u < UNITS; u++) {
        if (!sm_str_is(name, units[u].name))
            continue;
        if (n > SM_DURATION_MAX_MS / units[u].ms)
            return false;
        *ms = n * units[u].ms;
        return true;
    }
    return false;
}

void sm_duration_text(int64_t ms, char out[SM_DURATION_TEXT])
{
    if (ms == SM_FOREVER) {
        snprintf(out, SM_DURATION_TEXT, "forever");
        return;
    }
    size_t u = 0;
    /* 24h and 7d read better than 1d and 168h: days only from two of them on. */
    while (u + 1 < UNITS &&
           (ms == 0 ? u < 3 : ms % units[u].ms != 0 || (u == 0 && ms < 2 * units[0].ms)))
        u++;
    snprintf(out, SM_DURATION_TEXT, "%" PRId64 "%s", ms / units[u].ms, units[u].name);
}
