/* The client's messages, and where they go: a pipe, a socket, or whatever else the output is. */
#ifndef SM_MCP_SESSION_OUTLET_H
#define SM_MCP_SESSION_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

typedef enum mcp_outlet_kind {
    MCP_OUT_ANY,    /* others may have it open, and may want it to block */
    MCP_OUT_SOCKET, /* it can be told with each message not to block */
    MCP_OUT_OWN,    /* a pipe, by a description of our own that does not block */
} mcp_outlet_kind;

typedef struct mcp_outlet {
    int fd;
    mcp_outlet_kind kind;
    unsigned long unread; /* the ioctl that says how much the client has not taken; or 0 */
    sm_buf waiting;
    size_t sent;              /* of `waiting` */
    uint64_t queued, written; /* bytes: given to us, and to the kernel */
} mcp_outlet;

void mcp_outlet_init(mcp_outlet *o);
void mcp_outlet_fini(mcp_outlet *o);

/* Makes the output not block, without changing that for others who have it open. */
void mcp_outlet_open(mcp_outlet *o, int fd);

/* Adds a message. False if there is no room for it, because the client does not read: it is lost.
 * If it `answers` requests, errors take its place, or the client would wait for ever. */
bool mcp_outlet_add(mcp_outlet *o, sm_str text, bool answers);

/* Writes what can be written now. False: nobody can be written to any more. */
bool mcp_outlet_write(mcp_outlet *o);

/* How much waits to be written; and forgets it. */
size_t mcp_outlet_waiting(const mcp_outlet *o);
void mcp_outlet_drop(mcp_outlet *o);

/* How much of what was written the client has not taken. False: that cannot be told, or not now. A
 * socket tells only whether it has taken everything. */
bool mcp_outlet_untaken(const mcp_outlet *o, uint64_t *bytes);

/* Whether somebody could read what we say. */
bool mcp_outlet_heard(const mcp_outlet *o);

#endif
