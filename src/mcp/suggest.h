/* A contract to start from, made of what a server says of its tools. */
#ifndef SM_MCP_SUGGEST_H
#define SM_MCP_SUGGEST_H

#include "mcp/tools.h"

/* Appends a commented contract in YAML with one entry for each tool, which semel contract check
 * accepts. Nothing in it is inferred that would permit running something again: where the server's
 * hints suggest so, a comment says it. `command_line` is what follows the options of semel mcp,
 * such as "-- npx server", for people; NULL: it is not told. Whatever names and descriptions
 * contain, the text is safe to print on a terminal. SEMEL_E_LIMIT: there are too many tools for one
 * file. */
sm_err mcp_suggest_put(const mcp_tools *t, sm_str server_name, const char *command_line,
                       sm_buf *out);

#endif
