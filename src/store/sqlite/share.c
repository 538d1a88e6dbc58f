/*
 * The file beside the ledger, PATH-semel, through which processes take turns and wake each other.
 *
 *     byte 0           queue: held while waiting for `write`
 *     byte 1           write: held while writing
 *     byte 2           alive: shared by all who have the ledger open
 *     byte 4095        written to wake those who watch the file
 *     the first page   sm_sq_page, mapped
 *
 * Writers take `queue`, then `write`, then let go of `queue`: whoever has just written stands
 * behind those who wait already, where SQLite's own busy handler would starve them. The locks
 * belong to the open file, not to the process, so two handles in one process take turns as well,
 * and a process that dies lets go.
 *
 * A child made by fork shares the open file, and through it the locks: if its parent died while it
 * wrote, the child, which knows nothing of it, would keep the ledger locked for as long as it
 * lives. So the child lets go of the file and of its mappings at once (fork.c).
 *
 * Nothing here is needed to keep the ledger whole: SQLite's locks do that. If the file is deleted,
 * it is made anew, and lacks the note of the newest event until the next commit (seen.c).
 */
#include "store/sqlite/sqlite.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/trust.h"

enum { PAGE = 4096, QUEUE = 0, WRITE = 1, ALIVE = 2, WAKE = PAGE - 1 };

static const char magic[8] = "semel\0\0\1";
static const char suffix[] = "-semel";

static int lock_byte(int fd, off_t at, short type, bool wait)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = at, .l_len = 1};
    int rc;
    do
        rc = fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
    while (rc != 0 && errno == EINTR);
    return rc;
}

/* Maps the page and, if nobody else has the file open, makes it good as new. Epochs start with the
 * time, so that those of a file made anew are past those of the one before it. */
static semel_err page_open(int fd, const char *path, sm_sq_page **out, semel_fault *fault)
{
    bool alone = lock_byte(fd, ALIVE, F_WRLCK, false) == 0;
    if (!alone && lock_byte(fd, ALIVE, F_RDLCK, true) != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be locked: %s", path,
                            strerror(errno));
    /* The page must be there before it is touched: a store into mapped memory for which the disk
     * has no room is a signal, not an error. A page that somebody left as a hole counts as none. */
    struct stat about;
    int rc = fstat(fd, &about) != 0 ? errno : posix_fallocate(fd, 0, PAGE);
    if (rc != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be written: %s", path,
                            strerror(rc));
    sm_sq_page *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be mapped: %s", path,
                            strerror(errno));
    bool blank = about.st_size < PAGE || page->magic[0] == '\0';
    if (!blank && memcmp(page->magic, magic, sizeof magic) != 0) {
        munmap(page, PAGE);
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s is not what belongs beside a ledger: move it away", path);
    }
    if (blank && alone) {
        atomic_store(&page->epoch, (uint64_t)sm_clock_ms() << 20);
        memcpy(page->magic, magic, sizeof magic);
    }
    if (alone) {
        atomic_store(&page->waiters, 0); /* those of processes that died waiting */
        lock_byte(fd, ALIVE, F_RDLCK, true);
    }
    *out = page;
    return SEMEL_OK;
}

static semel_err file_open(sm_sq_share *s, int *fd_out, sm_sq_page **page, struct stat *about,
                           semel_fault *fault)
{
    struct stat ledger;
    char of[PATH_MAX];
    snprintf(of, sizeof of, "%.*s", (int)(strlen(s->path) - sizeof suffix + 1), s->path);
    int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = open(s->path, flags | O_EXCL, 0600);
    if (fd >= 0 && stat(of, &ledger) == 0) { /* owner and mode of the ledger, as SQLite does */
        sm_give_away(fd, of);
        fchmod(fd, ledger.st_mode & 0660);
    } else if (fd < 0 && errno == EEXIST) {
        fd = open(s->path, flags, 0600);
    }
    if (fd < 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                            "%.300s cannot be made or written: %s. A ledger needs files beside "
                            "it, so its directory must not be read-only",
                            s->path, strerror(errno));
    semel_err e = SEMEL_OK;
    if (fstat(fd, about) != 0 || stat(of, &ledger) != 0)
        e = sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be read", s->path);
    if (e == SEMEL_OK)
        e = sm_trust_beside(s->path, about, &ledger, SEMEL_E_BAD_ARGUMENTS, fault);
    if (e == SEMEL_OK)
        e = page_open(fd, s->path, page, fault);
    if (e != SEMEL_OK)
        close(fd);
    else
        *fd_out = fd;
    return e;
}

/* ---- forks -----------------------------------------------------------------------------------*/

static pthread_mutex_t shares_lock = PTHREAD_MUTEX_INITIALIZER;
static sm_sq_share *shares; /* all that are open in this process; guarded, as are their files */

void sm_sq_share_fork_begins(void)
{
    pthread_mutex_lock(&shares_lock);
}

void sm_sq_share_fork_ends(void)
{
    pthread_mutex_unlock(&shares_lock);
}

/* Puts private memory with the same words in the place of a mapping, which would keep the file. */
static void page_detach(sm_sq_page *page)
{
    sm_sq_page *copy = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return;
    memcpy((void *)copy, (const void *)page, PAGE);
    mremap(copy, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page);
}

void sm_sq_share_forked(void)
{
    for (sm_sq_share *s = shares; s != NULL; s = s->next) {
        page_detach(atomic_load(&s->page));
        for (unsigned i = 0; i < s->old_count; i++)
            page_detach(s->old[i]);
        close(s->fd);
        s->fd = -1;
    }
    shares = NULL;
    pthread_mutex_unlock(&shares_lock);
}

static void share_list(sm_sq_share *s)
{
    pthread_mutex_lock(&shares_lock);
    s->next = shares;
    shares = s;
    pthread_mutex_unlock(&shares_lock);
}

static void share_unlist(sm_sq_share *s)
{
    pthread_mutex_lock(&shares_lock);
    sm_sq_share **at = &shares;
    while (*at != NULL && *at != s)
        at = &(*at)->next;
    if (*at != NULL)
        *at = s->next;
    pthread_mutex_unlock(&shares_lock);
}

/* ---- the file --------------------------------------------------------------------------------*/

semel_err sm_sq_share_open(sm_sq_share *s, const char *ledger, semel_fault *fault)
{
    s->fd = -1;
    if (snprintf(s->path, sizeof s->path, "%s%s", ledger, suffix) >= (int)sizeof s->path)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "the ledger's path is too long");
    sm_sq_page *page = NULL;
    struct stat about;
    semel_err e = file_open(s, &s->fd, &page, &about, fault);
    if (e != SEMEL_OK)
        return e;
    s->dev = about.st_dev;
    s->ino = about.st_ino;
    atomic_store(&s->page, page);
    share_list(s);
    return SEMEL_OK;
}

void sm_sq_share_close(sm_sq_share *s)
{
    sm_sq_page *page = atomic_load(&s->page);
    if (page == NULL)
        return;
    share_unlist(s);
    munmap(page, PAGE);
    for (unsigned i = 0; i < s->old_count; i++)
        munmap(s->old[i], PAGE);
    if (s->fd >= 0)
        close(s->fd);
    atomic_store(&s->page, NULL);
}

semel_err sm_sq_share_lock(sm_sq_share *s, semel_fault *fault)
{
    int rc = lock_byte(s->fd, QUEUE, F_WRLCK, true);
    if (rc == 0) {
        rc = lock_byte(s->fd, WRITE, F_WRLCK, true);
        lock_byte(s->fd, QUEUE, F_UNLCK, false);
    }
    if (rc != 0)
        return sm_fault_set(fault, SEMEL_E_UNAVAILABLE, "%.300s cannot be locked: %s", s->path,
                            strerror(errno));
    return SEMEL_OK;
}

semel_err sm_sq_share_lock_soon(sm_sq_share *s, semel_fault *fault)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int64_t end_ns = sm_clock_mono_ns() + SM_SQ_PATIENCE_MS * INT64_C(1000000);
    while (lock_byte(s->fd, WRITE, F_WRLCK, false) != 0) {
        if ((errno != EAGAIN && errno != EACCES) || sm_clock_mono_ns() >= end_ns)
            return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                "%.300s is locked by another process: %s. Try again", s->path,
                                strerror(errno));
        nanosleep(&nap, NULL);
    }
    return SEMEL_OK;
}

void sm_sq_share_unlock(sm_sq_share *s)
{
    lock_byte(s->fd, WRITE, F_UNLCK, false);
}

bool sm_sq_share_renew(sm_sq_share *s)
{
    struct stat about;
    if (stat(s->path, &about) == 0 && about.st_ino == s->ino && about.st_dev == s->dev)
        return false;
    int fd = -1;
    sm_sq_page *page = NULL;
    if (s->old_count == sizeof s->old / sizeof *s->old ||
        file_open(s, &fd, &page, &about, NULL) != SEMEL_OK)
        return false; /* the old one still serves this handle */
    pthread_mutex_lock(&shares_lock);
    s->old[s->old_count++] = atomic_exchange(&s->page, page);
    lock_byte(s->fd, WRITE, F_UNLCK, false); /* the mapping would keep it locked */
    close(s->fd);
    s->fd = fd;
    pthread_mutex_unlock(&shares_lock);
    s->dev = about.st_dev;
    s->ino = about.st_ino;
    return true;
}

void sm_sq_share_pulse(sm_sq_share *s)
{
    if (atomic_load(&atomic_load(&s->page)->waiters) == 0)
        return;
    /* A change to mapped memory wakes nobody; a write does. What is written does not matter. */
    ssize_t ignored = pwrite(s->fd, "", 1, WAKE);
    (void)ignored;
}
