/* Sizes as people write them: 1000000 (bytes), 64KiB, 1MiB, 2GiB. */
#ifndef SM_BASE_SIZE_H
#define SM_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define SM_SIZE_MAX_BYTES ((int64_t)1 << 50)

/* One whole number and at most one unit. False for anything else and beyond the maximum. Powers of
 * ten (kB, MB) are not known: people mean different things by them. */
bool sm_size_parse(sm_str text, int64_t *bytes);

/* The shortest way to write it in whole units; room for any size. */
#define SM_SIZE_TEXT 24u
void sm_size_text(int64_t bytes, char out[SM_SIZE_TEXT]);

#endif
