/* Whole files, and where the user's own are. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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

bool sm_file_write(int fd, sm_str bytes)
{
    while (bytes.n > 0) {
        ssize_t n = write(fd, bytes.p, bytes.n);
        if (n < 0 && errno != EINTR)
            return false;
        bytes.p += n < 0 ? 0 : n;
        bytes.n -= n < 0 ? 0 : (size_t)n;
    }
    return true;
}

bool sm_state_path(const char *name, char out[SM_PATH_MAX])
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int n = -1;
    if (state != NULL && state[0] == '/')
        n = snprintf(out, SM_PATH_MAX, "%s/semel/%s", state, name);
    else if (home != NULL && home[0] == '/')
        n = snprintf(out, SM_PATH_MAX, "%s/.local/state/semel/%s", home, name);
    return n > 0 && n < (int)SM_PATH_MAX;
}
