/* Writing times. The calendar is the C library's, always in UTC. */
#include "cli/when.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

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

/* A duration in its largest unit only, such as "3m"; "0s" below a second. */
static void put_span(int64_t ms, char out[CLI_WHEN_TEXT])
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
    put_span(past < 0 ? 500 - past : past, span);
    snprintf(out, CLI_WHEN_TEXT, past < 0 ? "in %.30s" : "%.30s ago", span);
}
