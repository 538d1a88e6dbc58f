/* Names and strings as they are written, compared and decoded. What message.c needs of parts.c
 * beyond message.h. */
#ifndef SM_MCP_WIRE_PARTS_H
#define SM_MCP_WIRE_PARTS_H

#include "mcp/message.h"

/* Whether a name as it is written, without its quotes, decodes to this. */
bool mcp_name_is(sm_str name, const char *text);

/* The same, and whether a lenient reader would take it for that (base/fold.h). */
typedef enum mcp_likeness { MCP_UNLIKE, MCP_SAME, MCP_ALIKE } mcp_likeness;
mcp_likeness mcp_name_like(sm_str name, const char *text);

/* The same for names that users choose, where underscores and dashes count. */
mcp_likeness mcp_word_like(sm_str name, const char *text);

/* The sentence about a name that is there twice, or beside one that looks like it. */
void mcp_put_flaw(char flaw[MCP_FLAW_MAX], const char *name, mcp_likeness other);

/* A string, decoded and NUL-terminated; what does not fit is cut. What has no place in a C string,
 * NUL and half a surrogate pair, becomes U+FFFD: it must not look like a shorter or another text.
 */
void mcp_text_cut(sm_str value, char *out, size_t room);

#endif
