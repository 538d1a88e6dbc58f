/*
 * The proxy as a program between a client and a server: our standard input and output are the
 * client, a child or an HTTP server is the server.
 *
 * To the client we are the server: what the child prints to standard error is printed as it is, how
 * it ends is how we end, and what is sent to us is sent on. Nothing but the protocol is ever
 * written to standard output.
 *
 * The end of the input is not the end of the work: the server hears of it once nothing that writes
 * is under way, and what it still says is passed on.
 */
#ifndef SM_MCP_STDIO_H
#define SM_MCP_STDIO_H

#include "effect/child.h"
#include "mcp/mcp.h"

typedef struct mcp_stdio_options {
    mcp_hub *hub; /* with everything but what is said, which is ours to say */
    mcp_server_options server;
    sm_signals *signals; /* held */

    char *const *argv; /* the server's command; NULL: */
    const mcp_remote_options *remote;
} mcp_stdio_options;

/* Runs until the server has ended, or for good cannot be reached; *status is as wait(2) gives it.
 * On failure nothing was started. */
sm_err mcp_stdio_run(const mcp_stdio_options *o, int *status, sm_fault *fault);

#endif
