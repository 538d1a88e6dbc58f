/* Civil time and back, in UTC only. */
#include "base/stamp.h"

#include <stdio.h>
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

bool sm_stamp_parse(sm_str text, int64_t *ms)
{
    char copy[40];
    if (text.n >= sizeof copy || memchr(text.p, '\0', text.n) != NULL)
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    struct tm t = {0};
    int milli = 0;
    const char *rest = strptime(copy, "%Y-%m-%d", &t);
    if (rest == NULL)
        return false;
    if (*rest == 'T' || *rest == ' ') {
        rest = strptime(rest + 1, "%H:%M:%S", &t);
        if (rest == NULL)
            return false;
        int used = 0;
        if (*rest == '.' && (sscanf(rest, ".%3d%n", &milli, &used) != 1 || used != 4 || milli < 0))
            return false;
        rest += used;
        if (*rest == 'Z')
            rest++;
    }
    if (*rest != '\0')
        return false;
    *ms = (int64_t)timegm(&t) * 1000 + milli;
    return *ms >= 0;
}
