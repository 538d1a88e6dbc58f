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
