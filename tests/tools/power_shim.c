/*
 * Loaded into a program (LD_PRELOAD), it records all that is done to the files of a ledger, and can
 * let a sync fail or the program die at a chosen point.
 *
 *     POWER_DIRECTORY  everything below it is recorded, but for PATH-shm, PATH-semel and the user's
 *                      notes in seen/, which need not survive
 *     POWER_LOG        where the records go; several processes append to it
 *     POWER_FAIL=N     this process's Nth sync fails with EIO. The bytes stay readable, as in Linux
 *     POWER_DIE=N      it is killed at its Nth sync, before that; or after its Nth write, with wN
 *
 * An operation and its record are one step among all threads and processes. Nothing is really
 * synced: what a sync is worth is for power_check to say.
 */
#undef _FILE_OFFSET_BITS /* open and open64 are two here, as in the C library */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "power.h"

#define REAL(name) ((__typeof__(&(name)))(uintptr_t)dlsym(RTLD_NEXT, #name))
#define SHIM       __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char root[PATH_MAX];
static size_t root_n;
static int log_fd = -1;
static long fail_at, die_at_sync, die_at_write, syncs, writes;

static void set_up(void)
{
    const char *directory = getenv("POWER_DIRECTORY"), *log = getenv("POWER_LOG");
    const char *fail = getenv("POWER_FAIL"), *die = getenv("POWER_DIE");
    if (directory == NULL || log == NULL || realpath(directory, root) == NULL)
        return;
    root_n = strlen(root);
    fail_at = fail != NULL ? atol(fail) : 0;
    die_at_sync = die != NULL && die[0] != 'w' ? atol(die) : 0;
    die_at_write = die != NULL && die[0] == 'w' ? atol(die + 1) : 0;
    log_fd = REAL(open64)(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0)
        abort();
}

/* Between processes too; a process that dies lets go. */
static void enter(void)
{
    pthread_mutex_lock(&lock);
    if (flock(log_fd, LOCK_EX) != 0)
        abort();
}

static void leave(void)
{
    int saved = errno;
    flock(log_fd, LOCK_UN);
    pthread_mutex_unlock(&lock);
    errno = saved;
}

static void die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* The part of a path below the recorded directory, or NULL if it does not matter. */
static const char *below(const char *path)
{
    if (root_n == 0 || strncmp(path, root, root_n) != 0)
        return NULL;
    if (path[root_n] == '\0')
        return "";
    if (path[root_n] != '/')
        return NULL;
    if (strstr(path + root_n, "/seen") != NULL)
        return NULL;
    size_t n = strlen(path);
    static const char *const tails[] = {"-shm", "-semel"};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++)
        if (n >= strlen(tails[i]) && strcmp(path + n - strlen(tails[i]), tails[i]) == 0)
            return NULL;
    return path + root_n + 1;
}

/* Likewise, of a path as a program gives it. */
static const char *below_name(const char *path, char full[PATH_MAX])
{
    pthread_once(&once, set_up);
    if (path[0] == '/') {
        snprintf(full, PATH_MAX, "%s", path);
    } else {
        char here[PATH_MAX / 2];
        if (getcwd(here, sizeof here) == NULL)
            return NULL;
        snprintf(full, PATH_MAX, "%s/%s", here, path);
    }
    return below(full);
}

static const char *below_fd(int fd, char full[PATH_MAX])
{
    pthread_once(&once, set_up);
    if (root_n == 0)
        return NULL;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, full, PATH_MAX - 1);
    if (n < 0)
        return NULL;
    full[n] = '\0';
    char *gone = strstr(full, " (deleted)");
    if (gone != NULL)
        *gone = '\0';
    return below(full);
}

static void record(power_kind kind, const char *name, uint64_t file, uint64_t at, const void *p,
                   size_t n)
{
    power_record r = {.kind = kind,
                      .name = (uint32_t)strlen(name),
                      .file = file,
                      .at = at,
                      .bytes = (uint32_t)n,
                      .process = getpid()};
    struct iovec parts[3] = {
        {&r, sizeof r}, {(void *)(uintptr_t)name, r.name}, {(void *)(uintptr_t)p, n}};
    if (REAL(writev)(log_fd, parts, 3) != (ssize_t)(sizeof r + r.name + n))
        abort();
}

static uint64_t file_of(int fd)
{
    struct stat about;
    return fstat(fd, &about) == 0 ? about.st_ino : 0;
}

/* For the programs under test. */
SHIM void power_mark(const char *line);
SHIM void power_mark(const char *line)
{
    pthread_once(&once, set_up);
    if (log_fd < 0)
        return;
    enter();
    record(POWER_MARK, "", 0, 0, line, strlen(line));
    leave();
}

/* ---- names -----------------------------------------------------------------------------------*/

static int open_recorded(const char *path, int flags, mode_t mode)
{
    char full[PATH_MAX];
    const char *name = (flags & O_CREAT) != 0 ? below_name(path, full) : NULL;
    if (name == NULL)
        return REAL(open64)(path, flags, mode);
    enter();
    bool is_new = access(path, F_OK) != 0;
    int fd = REAL(open64)(path, flags, mode);
    if (fd >= 0 && is_new)
        record(POWER_MAKE, name, file_of(fd), 0, NULL, 0);
    leave();
    return fd;
}

#define OPEN(name)                                                                                 \
    SHIM int name(const char *path, int flags, ...)                                                \
    {                                                                                              \
        va_list args;                                                                              \
        va_start(args, flags);                                                                     \
        mode_t mode = (flags & O_CREAT) != 0 ? va_arg(args, mode_t) : 0;                           \
        va_end(args);                                                                              \
        return open_recorded(path, flags, mode);                                                   \
    }

OPEN(open)
OPEN(open64)

SHIM int mknod(const char *path, mode_t mode, dev_t device)
{
    char full[PATH_MAX];
    const char *name = below_name(path, full);
    if (name == NULL)
        return REAL(mknod)(path, mode, device);
    enter();
    struct stat about;
    int rc = REAL(mknod)(path, mode, device);
    if (rc == 0 && stat(path, &about) == 0)
        record(POWER_MAKE, name, about.st_ino, 0, NULL, 0);
    leave();
    return rc;
}

SHIM int mkdir(const char *path, mode_t mode)
{
    char full[PATH_MAX];
    const char *name = below_name(path, full);
    if (name == NULL)
        return REAL(mkdir)(path, mode);
    enter();
    int rc = REAL(mkdir)(path, mode);
    if (rc == 0)
        record(POWER_DIRECTORY, name, 0, 0, NULL, 0);
    leave();
    return rc;
}

SHIM int unlink(const char *path)
{
    char full[PATH_MAX];
    const char *name = below_name(path, full);
    if (name == NULL)
        return REAL(unlink)(path);
    enter();
    int rc = REAL(unlink)(path);
    if (rc == 0)
        record(POWER_UNLINK, name, 0, 0, NULL, 0);
    leave();
    return rc;
}

/* Not done to a ledger today. If that changes, records are needed. */
SHIM int rename(const char *from, const char *to)
{
    char full[PATH_MAX];
    if (below_name(from, full) != NULL || below_name(to, full) != NULL)
        abort();
    return REAL(rename)(from, to);
}

SHIM int link(const char *from, const char *to)
{
    char full[PATH_MAX];
    if (below_name(to, full) != NULL)
        abort();
    return REAL(link)(from, to);
}

/* ---- bytes -----------------------------------------------------------------------------------*/

static ssize_t wrote(int fd, const char *name, const void *p, ssize_t n, off_t at)
{
    if (n > 0)
        record(POWER_WRITE, name, file_of(fd), (uint64_t)at, p, (size_t)n);
    if (n > 0 && ++writes == die_at_write)
        die();
    return n;
}

static ssize_t pwrite_recorded(int fd, const void *p, size_t n, off_t at)
{
    char full[PATH_MAX];
    const char *name = below_fd(fd, full);
    if (name == NULL)
        return REAL(pwrite64)(fd, p, n, at);
    enter();
    ssize_t done = wrote(fd, name, p, REAL(pwrite64)(fd, p, n, at), at);
    leave();
    return done;
}

SHIM ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return pwrite_recorded(fd, p, n, at);
}

SHIM ssize_t pwrite64(int fd, const void *p, size_t n, off_t at)
{
    return pwrite_recorded(fd, p, n, at);
}

SHIM ssize_t write(int fd, const void *p, size_t n)
{
    char full[PATH_MAX];
    const char *name = below_fd(fd, full);
    if (name == NULL)
        return REAL(write)(fd, p, n);
    enter();
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t done = wrote(fd, name, p, REAL(write)(fd, p, n), at);
    leave();
    return done;
}

/* Likewise: not done to what must survive. */
#define NOT_DONE(name, ...)                                                                        \
    char full[PATH_MAX];                                                                           \
    if (below_fd(fd, full) != NULL)                                                                \
        abort();                                                                                   \
    return REAL(name)(fd, __VA_ARGS__)

SHIM ssize_t writev(int fd, const struct iovec *parts, int count)
{
    NOT_DONE(writev, parts, count);
}

SHIM ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    NOT_DONE(pwritev, parts, count, at);
}

SHIM int posix_fallocate(int fd, off_t at, off_t n)
{
    NOT_DONE(posix_fallocate, at, n);
}

SHIM int fallocate(int fd, int mode, off_t at, off_t n)
{
    NOT_DONE(fallocate, mode, at, n);
}

static int truncate_recorded(int fd, off_t size)
{
    char full[PATH_MAX];
    const char *name = below_fd(fd, full);
    if (name == NULL)
        return REAL(ftruncate64)(fd, size);
    enter();
    int rc = REAL(ftruncate64)(fd, size);
    if (rc == 0)
        record(POWER_TRUNCATE, name, file_of(fd), (uint64_t)size, NULL, 0);
    leave();
    return rc;
}

SHIM int ftruncate(int fd, off_t size)
{
    return truncate_recorded(fd, size);
}

SHIM int ftruncate64(int fd, off_t size)
{
    return truncate_recorded(fd, size);
}

static int sync_recorded(int fd)
{
    char full[PATH_MAX];
    const char *name = below_fd(fd, full);
    if (name == NULL)
        return 0;
    enter();
    if (++syncs == die_at_sync)
        die();
    bool failed = syncs == fail_at;
    record(failed ? POWER_SYNC_FAILED : POWER_SYNC, name, file_of(fd), 0, NULL, 0);
    leave();
    if (failed)
        errno = EIO;
    return failed ? -1 : 0;
}

SHIM int fsync(int fd)
{
    return sync_recorded(fd);
}

SHIM int fdatasync(int fd)
{
    return sync_recorded(fd);
}
