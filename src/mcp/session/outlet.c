/* What waits for the client; and the output as the kernel has it: writing without blocking, and
 * what the client has taken. */
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

#include "json/raw.h"
#include "mcp/session/session.h"

#define BLOCK_BYTES   4096u             /* a pipe that polls as writable takes so many at once */
#define KEPT_BYTES    ((size_t)4 << 20) /* memory that stays when nothing waits */
#define OUT_MAX       ((size_t)256 << 20)
#define EXCUSES_BYTES ((size_t)4 << 20) /* of these, for errors in place of answers */

/* ---- what waits ------------------------------------------------------------------------------*/

void mcp_outlet_init(mcp_outlet *o)
{
    *o = (mcp_outlet){.fd = -1};
    sm_buf_init(&o->waiting, OUT_MAX);
}

void mcp_outlet_fini(mcp_outlet *o)
{
    sm_buf_fini(&o->waiting);
}

size_t mcp_outlet_waiting(const mcp_outlet *o)
{
    return o->waiting.len - o->sent;
}

void mcp_outlet_drop(mcp_outlet *o)
{
    sm_buf_clear(&o->waiting);
    o->sent = 0;
    if (o->waiting.cap <= KEPT_BYTES)
        return;
    sm_buf_fini(&o->waiting);
    sm_buf_init(&o->waiting, OUT_MAX);
}

/* Appends a line, unless more bytes than that would wait; then it appends nothing. */
static bool put_line(mcp_outlet *o, sm_str text, size_t most)
{
    size_t before = o->waiting.len;
    if (text.n < most && mcp_outlet_waiting(o) < most - text.n) {
        sm_raw_put_line(&o->waiting, text);
        sm_buf_byte(&o->waiting, '\n');
        if (o->waiting.err == SM_OK) {
            o->queued += o->waiting.len - before;
            return true;
        }
    }
    o->waiting.err = SM_OK;
    o->waiting.len = before;
    return false;
}

static void put_excuses(mcp_outlet *o, sm_str answers)
{
    sm_buf out;
    sm_buf_init(&out, EXCUSES_BYTES);
    mcp_put_excuses(&out, answers);
    if (out.err != SM_OK) { /* a batch of very many: one error without an id */
        sm_buf_fini(&out);
        sm_buf_init(&out, EXCUSES_BYTES);
        mcp_put_excuses(&out, SM_STR("{}"));
    }
    put_line(o, sm_buf_view(&out), OUT_MAX);
    sm_buf_fini(&out);
}

bool mcp_outlet_add(mcp_outlet *o, sm_str text, bool answers)
{
    if (o->sent > KEPT_BYTES) {
        memmove(o->waiting.p, o->waiting.p + o->sent, mcp_outlet_waiting(o));
        o->waiting.len -= o->sent;
        o->sent = 0;
    }
    if (put_line(o, text, OUT_MAX - EXCUSES_BYTES))
        return true;
    if (answers)
        put_excuses(o, text);
    return false;
}

/* ---- the output ------------------------------------------------------------------------------*/

void mcp_outlet_open(mcp_outlet *o, int fd)
{
    struct stat st;
    o->fd = fd;
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
    if (own < 0)
        return;
    o->fd = own;
    o->kind = MCP_OUT_OWN;
}

/* As write(2) to what does not block. */
static ssize_t write_some(const mcp_outlet *o, const char *bytes, size_t n)
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

bool mcp_outlet_write(mcp_outlet *o)
{
    while (mcp_outlet_waiting(o) > 0) {
        ssize_t n = write_some(o, o->waiting.p + o->sent, mcp_outlet_waiting(o));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        o->sent += (size_t)n;
        o->written += (uint64_t)n;
    }
    mcp_outlet_drop(o);
    return true;
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
