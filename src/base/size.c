/* One table of units serves reading and writing. */
#include "base/size.h"

#include <inttypes.h>
#include <stdio.h>

static const struct unit {
    const char *name;
    int64_t bytes;
} units[] = {{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}};
#define UNITS (sizeof units / sizeof units[0])

bool sm_size_parse(sm_str text, int64_t *bytes)
{
    size_t i = 0;
    int64_t n = 0;
    for (; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        n = n * 10 + (text.p[i] - '0');
        if (n > SM_SIZE_MAX_BYTES)
            return false;
    }
    sm_str name = {text.p + i, text.n - i};
    for (size_t u = 0; i > 0 && u < UNITS; u++) {
        if (!sm_str_is(name, units[u].name))
            continue;
        *bytes = n * units[u].bytes;
        return n <= SM_SIZE_MAX_BYTES / units[u].bytes;
    }
    return false;
}

void sm_size_text(int64_t bytes, char out[SM_SIZE_TEXT])
{
    size_t u = 0;
    while (u + 1 < UNITS && (bytes == 0 || bytes % units[u].bytes != 0))
        u++;
    snprintf(out, SM_SIZE_TEXT, "%" PRId64 "%s", bytes / units[u].bytes, units[u].name);
}
