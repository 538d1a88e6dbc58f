/* Reading a small file whole. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

sm_err sm_file_read(const char *path, size_t limit, sm_buf *out, sm_fault *fault)
{
    sm_buf_init(out, limit + 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return sm_fault_set(fault, SEMEL_E_IO, "%s: %s", path, strerror(errno));
    ssize_t n = 1;
    while (n > 0 && out->len <= limit) {
        size_t want = limit + 1 - out->len;
        if (!sm_buf_reserve(out, want < 4096 ? want : 4096))
            break;
        size_t room = out->cap - out->len;
        n = read(fd, out->p + out->len, room);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            out->len += (size_t)n;
    }
    int saved = errno;
    close(fd);
    if (n < 0)
        return sm_fault_set(fault, SEMEL_E_IO, "%s: %s", path, strerror(saved));
    if (out->len > limit || out->err != SM_OK)
        return sm_fault_set(fault, SEMEL_E_LIMIT, "%s: larger than %zu bytes", path, limit);
    return SM_OK;
}
