/* What the files of `semel mcp` share. */
#ifndef SM_CLI_MCP_MCP_H
#define SM_CLI_MCP_MCP_H

#include "cli/ledger.h"
#include "effect/child.h"
#include "mcp/link.h"

#define CLI_MCP_HEADERS 16

typedef struct cli_mcp_options {
    cli_ledger_options ledger;
    const char *scope, *name, *upstream;
    const char *header[CLI_MCP_HEADERS];
    int headers;
    bool suggest;
    bool undoes;
    char **argv; /* the server's command; NULL: --upstream */
} cli_mcp_options;

/* The server behind --upstream: its HTTP client, and its headers with their variables put in. */
typedef struct cli_mcp_remote {
    mcp_remote_options options;
    sm_http_field fields[CLI_MCP_HEADERS];
    sm_buf texts[CLI_MCP_HEADERS];
} cli_mcp_remote;

sm_err cli_mcp_remote_make(const cli_mcp_options *o, cli_mcp_remote *out, sm_fault *fault);
void cli_mcp_remote_free(cli_mcp_remote *r); /* accepts a zeroed object */

/* Starts the server, asks it for its tools, within a minute, and ends it. Returns an exit code,
 * with a reason if it is not CLI_OK. Free the tools either way (list.c). */
int cli_mcp_list(const cli_mcp_options *o, sm_signals *signals, mcp_tools **out, sm_fault *fault);

/* For the doctor: starts the server and lists on stderr the class of each tool under that contract
 * (may be NULL). CLI_DIFFERENT if the server does not answer (tools.c). */
int cli_mcp_tools(char **argv, const char *contract);

/* --suggest: returns the exit code (suggest.c). */
int cli_mcp_suggest(const cli_mcp_options *o, sm_signals *signals);

#endif
