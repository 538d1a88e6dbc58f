/* Where the client's messages go: a pipe, a socket, or whatever else the output is. */
#ifndef SM_MCP_SESSION_OUTLET_H
#define SM_MCP_SESSION_OUTLET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum mcp_outlet_kind {
    MCP_OUT_ANY,    /* others may have it open, and may want it to block */
    MCP_OUT_SOCKET, /* it can be told with each message not to block */
    MCP_OUT_OWN,    /* a pipe, by a description of our own that does not block */
} mcp_outlet_kind;

typedef struct mcp_outlet {
    int fd;
    mcp_outlet_kind kind;
    unsigned long unread; /* the ioctl that says how much the client has not taken; or 0 */
} mcp_outlet;

/* Makes the output not block, without changing that for others who have it open. */
void mcp_outlet_open(mcp_outlet *o, int fd);

/* As write(2) to what does not block. */
ssize_t mcp_outlet_write(const mcp_outlet *o, const char *bytes, size_t n);

/* How much of what was written the client has not taken. False: that cannot be told, or not now. A
 * socket tells only whether it has taken everything. */
bool mcp_outlet_untaken(const mcp_outlet *o, uint64_t *bytes);

/* Whether somebody could read what we say. */
bool mcp_outlet_heard(const mcp_outlet *o);

#endif
