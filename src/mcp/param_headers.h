/*
 * What the headers of a modern request repeat of its body, so that those between can route it: its
 * method, what it is about (Mcp-Name), and the arguments that the tool's schema marks with
 * x-mcp-header (Mcp-Param-*). Whoever sends writes them from the body; whoever receives compares.
 *
 * Values that no header can hold travel as =?base64?...?=, and so do those that look like it.
 */
#ifndef SM_MCP_PARAM_HEADERS_H
#define SM_MCP_PARAM_HEADERS_H

#include "mcp/tools.h"
#include "upstream/http.h"

#define MCP_PARAM_PREFIX  "Mcp-Param-"
#define MCP_PARAM_MAX     64u   /* bytes of a name behind that */
#define MCP_REPEATED_MAX  8192u /* bytes of a value that is repeated */
#define MCP_REPEATED_ARGS 128u  /* arguments of one call that are repeated */

/* Which member of the params Mcp-Name repeats for a method; NULL: none. */
const char *mcp_name_member(const char *method);

/* Appends a value as a header holds it. */
void mcp_header_put(sm_buf *out, sm_str value);

/* Appends what a header's value stands for. False, and nothing is appended, if that cannot be told:
 * it says that it is Base64 and is not, or not of UTF-8. */
bool mcp_header_take(sm_buf *out, sm_str value);

/* Told each argument that is marked and given, at any depth of objects: the name of its header as
 * marked, and the text that the header repeats. Arguments that no header repeats (null, those with
 * parts, numbers that some readers would round, texts beyond the bound) are not told. */
typedef void mcp_param_fn(void *context, sm_str header, sm_str text, bool number);
void mcp_params_each(const sm_json *schema, sm_str arguments, mcp_param_fn *each, void *context);

/* Whether the headers of a call repeat its arguments, as the tool's schema demands. If not, *header
 * is the name behind Mcp-Param-, borrowed from the schema. A header for what is not given is not
 * looked at, nor is a tool whose marks break the protocol's own rules: nobody could heed them.
 * `tool` may be NULL, `arguments` absent. */
bool mcp_params_fit(const mcp_tool *tool, sm_str arguments, const sm_http_field *headers,
                    size_t header_count, sm_str *header);

#endif
