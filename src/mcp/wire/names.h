/*
 * The names that decide something, and what a client may write beside them.
 *
 * Members say what a message is, which tool it calls, with what and for whom. We read them by their
 * names, and the server reads them again. Both must find the same. So in every object that decides
 * something a deciding name occurs at most once, and no other name may look like it to a lenient
 * reader (base/fold.h). Each such object has one table; names that are in no table are free.
 */
#ifndef SM_MCP_WIRE_NAMES_H
#define SM_MCP_WIRE_NAMES_H

#include "mcp/message.h"

typedef struct mcp_names mcp_names;

/* The client's answer to a question about an approval. */
extern const mcp_names mcp_names_reply;

/* A result of tools/call, and an error. */
extern const mcp_names mcp_names_result, mcp_names_error;

/* Whether all readers read an object alike, and the objects in it that have a table. If not, `flaw`
 * is a sentence. A value that is not an object passes. */
bool mcp_names_plain(sm_str value, const mcp_names *names, char flaw[MCP_FLAW_MAX]);

/* The same for the params of a client's request or notification. Its method must not look like a
 * deciding one either. */
bool mcp_names_asked(const mcp_message *m, char flaw[MCP_FLAW_MAX]);

#endif
