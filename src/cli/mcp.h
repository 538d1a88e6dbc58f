/* What the files of `semel mcp` share. */
#ifndef SM_CLI_MCP_H
#define SM_CLI_MCP_H

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

/* --suggest: returns the exit code (mcp_suggest.c). */
int cli_mcp_suggest(const cli_mcp_options *o, sm_signals *signals);

#endif
