/* The output as the kernel has it: writing without blocking, and what the client has taken. */
#include "mcp/session/outlet.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <linux/sockios.h>

#define BLOCK_BYTES 4096u /* a pipe that polls as writable takes so many at once */

void mcp_outlet_open(mcp_outlet *o, int fd)
{
    struct stat st;
    *o = (mcp_outlet){.fd = fd};
    if (fstat(fd, &st) != 0)
        return;
    if (S_ISSOCK(st.st_mode)) {
        int family = 0;
        socklen_t size = sizeof family;
        o->kind = MCP_OUT_SOCKET;
        if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) == 0 && family == AF_UNIX)
            o->unread = SIOCOUTQ; /* over TCP it would tell what the other machine's kernel has */
    }
    if (!S_ISFIFO(st.st_mode))
        return;
    o->unread = FIONREAD;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int own = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (own >= 0)
        *o = (mcp_outlet){.fd = own, .kind = MCP_OUT_OWN, .unread = FIONREAD};
}

ssize_t mcp_outlet_write(const mcp_outlet *o, const char *bytes, size_t n)
{
    if (o->kind == MCP_OUT_SOCKET)
        return send(o->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (o->kind == MCP_OUT_OWN)
        return write(o->fd, bytes, n);
    struct pollfd poll_fd = {.fd = o->fd, .events = POLLOUT};
    if (poll(&poll_fd, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(o->fd, bytes, n < BLOCK_BYTES ? n : BLOCK_BYTES);
}

bool mcp_outlet_untaken(const mcp_outlet *o, uint64_t *bytes)
{
    int unread = 0;
    if (o->unread == 0 || ioctl(o->fd, o->unread, &unread) != 0 || unread < 0 ||
        (o->kind == MCP_OUT_SOCKET && unread > 0))
        return false;
    *bytes = (uint64_t)unread;
    return true;
}

bool mcp_outlet_heard(const mcp_outlet *o)
{
    struct pollfd out = {.fd = o->fd};
    return poll(&out, 1, 0) <= 0 || !(out.revents & (POLLERR | POLLHUP));
}
