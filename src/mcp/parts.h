/* Names and strings as they are written, compared and decoded. What message.c needs of parts.c
 * beyond message.h. */
#ifndef SM_MCP_PARTS_H
#define SM_MCP_PARTS_H

#include "mcp/message.h"

/* Whether a name as it is written, without its quotes, decodes to this. */
bool mcp_name_is(sm_str name, const char *text);

/* A string, decoded and NUL-terminated; what does not fit is cut. What has no place in a C string,
 * NUL and half a surrogate pair, becomes U+FFFD: it must not look like a shorter or another text.
 */
void mcp_text_cut(sm_str value, char *out, size_t room);

#endif
