/*
 * What an HTTP server of the era without sessions demands of a message before anybody looks at it,
 * and which status its answers have.
 *
 * Towards a child the gateway is that server. A call to a server over HTTP is held to the same
 * before the ledger is asked: otherwise an answer could be repeated to what the server would have
 * turned down, or something could run under headers that say something else.
 */
#ifndef SM_GATEWAY_MCP_MODERN_H
#define SM_GATEWAY_MCP_MODERN_H

#include "gateway/mcp/mcp.h"

/* Tells the era of a message (c->kind), and whether it may go on: 0. Else the HTTP status that it
 * is answered with, and `out` is the error. The arguments that headers repeat are not compared
 * here: that needs the tool's schema (mcp/param_headers.h). */
int gw_modern_check(mcp_channel *c, const mcp_message *m, sm_buf *out);

/* Keeps the headers that repeat arguments: a child does not get them, but they are compared. On the
 * server's thread. */
sm_err gw_modern_params(mcp_channel *c, const gw_request *r);

/* The status that goes with the answer of a child to a modern request. */
int gw_modern_status(sm_str answer);

#endif
