/* What MCP clients have to be told so that they start a server through the proxy. */
#ifndef SM_CLI_MCP_CLIENTS_H
#define SM_CLI_MCP_CLIENTS_H

#include "cli/cli.h"

#define CLI_MCP_ENV_MAX 3u

/* One server, as a client knows it. Everything is borrowed. */
typedef struct cli_mcp_entry {
    const char *name;
    const char **words; /* the whole command, the program first */
    size_t n;
    struct {
        const char *name, *value;
    } env[CLI_MCP_ENV_MAX];
    size_t env_count;
} cli_mcp_entry;

bool cli_mcp_client_known(const char *name);

/* Prints what is to be written for each client and where; or for `only` one of them, when stdout
 * is exactly what goes into its file. Returns the exit code. */
int cli_mcp_clients_print(const cli_mcp_entry *e, const char *only);

#endif
