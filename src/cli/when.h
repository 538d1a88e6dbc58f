/* Times for people and from people. A time is milliseconds since 1970, UTC. */
#ifndef SM_CLI_WHEN_H
#define SM_CLI_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

int64_t cli_now_ms(void);

/* An RFC 3339 time, or a date alone, which is its midnight in UTC. False for anything else. */
bool cli_when_parse(sm_str text, int64_t *ms);

/* "2026-03-01 12:00:03 UTC", and as RFC 3339 with milliseconds. Room for any time; "never" and
 * "null" for INT64_MAX. */
#define CLI_WHEN_TEXT 40u
void cli_when_text(int64_t ms, char out[CLI_WHEN_TEXT]);
void cli_when_rfc3339(int64_t ms, char out[CLI_WHEN_TEXT]);

/* A duration in its largest unit only, such as "3m"; "0s" below a second. */
void cli_span_text(int64_t ms, char out[CLI_WHEN_TEXT]);

/* How long ago or ahead: "3m ago", "in 5m", "now", "never". */
void cli_age_text(int64_t ms, int64_t now, char out[CLI_WHEN_TEXT]);

#endif
