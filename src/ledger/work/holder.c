/* Processes as /proc shows them. */
#include "ledger/work/holder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static ssize_t read_text(const char *path, char *out, size_t room)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, room - 1);
    int saved = errno;
    close(fd);
    errno = saved;
    if (n >= 0)
        out[n] = '\0';
    return n;
}

/* When a process began, in ticks since the boot; 0 if there is none, or only its zombie. A process
 * whose first thread has ended looks like a zombie, but has more threads. */
static uint64_t start_of(uint64_t pid, bool *unknown)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", (unsigned long long)pid);
    *unknown = false;
    if (read_text(path, text, sizeof text) < 0) {
        *unknown = errno != ENOENT && errno != ESRCH;
        return 0;
    }
    char *at = strrchr(text, ')'); /* a command's name may hold anything */
    if (at == NULL || at[1] != ' ') {
        *unknown = true;
        return 0;
    }
    at += 2;
    bool over = *at == 'Z' || *at == 'X';
    for (int field = 3; field < 22 && at != NULL; field++) {
        if (field == 20 && over && strtoull(at, NULL, 10) <= 1)
            return 0;
        at = strchr(at, ' ');
        at = at == NULL ? NULL : at + 1;
    }
    *unknown = at == NULL;
    return at == NULL ? 0 : strtoull(at, NULL, 10);
}

void sm_holder_self(sm_holder *out)
{
    *out = (sm_holder){0};
    char boot[64];
    struct stat space;
    bool unknown;
    ssize_t n = read_text("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    uint64_t start = start_of((uint64_t)getpid(), &unknown);
    /* A /proc of another pid namespace tells of other processes. */
    char self[32] = "";
    ssize_t named = readlink("/proc/self", self, sizeof self - 1);
    if (n < 36 || stat("/proc/self/ns/pid", &space) != 0 || start == 0 || named <= 0 ||
        strtoull(self, NULL, 10) != (uint64_t)getpid())
        return;
    uint64_t hash = 14695981039346656037u;
    for (ssize_t i = 0; i < n; i++)
        hash = (hash ^ (uint8_t)boot[i]) * 1099511628211u;
    *out = (sm_holder){hash, (uint64_t)space.st_ino, (uint64_t)getpid(), start};
}

bool sm_holder_near(const sm_holder *h, const sm_holder *self)
{
    return h->pid != 0 && h->boot == self->boot && h->space == self->space && self->pid != 0;
}

bool sm_holder_gone(const sm_holder *h, const sm_holder *self)
{
    if (!sm_holder_near(h, self) || (h->pid == self->pid && h->start == self->start))
        return false;
    bool unknown;
    uint64_t start = start_of(h->pid, &unknown);
    if (unknown || start == h->start)
        return false;
    /* A /proc that hides other users' processes shows nothing of one that is there. */
    char path[64];
    snprintf(path, sizeof path, "/proc/%llu", (unsigned long long)h->pid);
    return start != 0 || access(path, F_OK) == 0 || (kill((pid_t)h->pid, 0) != 0 && errno == ESRCH);
}
