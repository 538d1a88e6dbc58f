/* Times for people; base/stamp.h reads theirs. A time is milliseconds since 1970, UTC. */
#ifndef SM_CLI_WHEN_H
#define SM_CLI_WHEN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* "2026-03-01 12:00:03 UTC", or "never". Room for any time. */
#define CLI_WHEN_TEXT 40u
void cli_when_text(int64_t ms, char out[CLI_WHEN_TEXT]);

/* How long ago or ahead: "3m ago", "in 5m", "now", "never". */
void cli_age_text(int64_t ms, int64_t now, char out[CLI_WHEN_TEXT]);

#endif
