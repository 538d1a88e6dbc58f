/*
 * After the client has gone: how long its server may stay, and how it is ended.
 *
 *     a write is under way --answered, or lost--> server told, waits --ended--> over
 *             |                                       |
 *             `----- its lease is over ------> SIGTERM, SIGKILL, over
 */
#ifndef SM_MCP_SESSION_PARTING_H
#define SM_MCP_SESSION_PARTING_H

#include "mcp/mcp.h"

typedef struct mcp_parting {
    mcp_alarm timer;
    mcp_hub *hub;
    mcp_session *session;
    mcp_link *child;  /* NULL: the server is a distant one */
    bool begun;       /* the client has gone */
    int64_t since_ns; /* it went; or the last write that ended did */
    size_t writes;    /* that were under way then */
    int signals;      /* that the server was sent */
} mcp_parting;

void mcp_parting_init(mcp_parting *p, mcp_hub *hub, mcp_session *session, mcp_link *child);
void mcp_parting_fini(mcp_parting *p); /* accepts a zeroed one */

/* The client has gone: nobody hears an answer, and nobody else will end the server. Stops the loop
 * in the end. Nothing happens the second time. */
void mcp_parting_begin(mcp_parting *p);

/* Less is under way than before: what is left has all its time again. */
void mcp_parting_rest(mcp_parting *p);

#endif
