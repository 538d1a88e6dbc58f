/* Starting a server's process. */
#ifndef SM_MCP_LINK_SPAWN_H
#define SM_MCP_LINK_SPAWN_H

#include <sys/types.h>

#include "mcp/link.h"

/* Starts a process with these as its standard input and output. Its process group has the number of
 * the process. Returns 0 or an errno. The calling thread must outlive the process: the kernel ends
 * the process with that thread. */
int mcp_spawn(const mcp_child_options *o, int in, int out, pid_t *pid);

/* Call this when a process that was asked to end has ended and is reaped. The rest of its group
 * gets a moment more, in the background of the loop, and is then killed. */
void mcp_spawn_finish(mcp_loop *loop, pid_t group);

#endif
