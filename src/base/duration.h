/* Durations as people write them: 200ms, 30s, 5m, 24h, 7d, forever. */
#ifndef SM_BASE_DURATION_H
#define SM_BASE_DURATION_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define SM_FOREVER         INT64_MAX
#define SM_DURATION_MAX_MS ((int64_t)36500 * 24 * 3600 * 1000) /* a hundred years */

/* `start` and so many milliseconds, or never. */
static inline int64_t sm_time_after(int64_t start, int64_t ms)
{
    return ms == SM_FOREVER || start > INT64_MAX - ms ? INT64_MAX : start + ms;
}

/* One whole number and one unit, or "forever". False for anything else and beyond the maximum. */
bool sm_duration_parse(sm_str text, int64_t *ms);

/* The shortest way to write it in whole units; room for any duration. */
#define SM_DURATION_TEXT 24u
void sm_duration_text(int64_t ms, char out[SM_DURATION_TEXT]);

#endif
