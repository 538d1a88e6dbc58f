/* Times as text: RFC 3339, UTC, with milliseconds. */
#ifndef SM_BASE_STAMP_H
#define SM_BASE_STAMP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

#define SM_STAMP_TEXT 32u

/* Writes "2026-11-15T12:00:03.000Z", or "never", and a NUL. */
void sm_stamp_text(int64_t ms, char out[SM_STAMP_TEXT]);

/* Reads an RFC 3339 time with any offset, or a date alone, which is its midnight in UTC. False for
 * anything else. */
bool sm_stamp_parse(sm_str text, int64_t *ms);

#endif
