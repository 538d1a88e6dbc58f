/* Whether a tool sounds as if it only reads, for people to confirm. It permits nothing. */
#ifndef SM_MCP_READS_H
#define SM_MCP_READS_H

#include <stdbool.h>

#include "base/str.h"

/* Judges by the words of its name, else by the start of its description. Either may be empty. */
bool mcp_sounds_like_read(sm_str name, sm_str description);

#endif
