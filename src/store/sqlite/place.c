/*
 * Whether the files of a ledger are still those that were opened, and fit each other.
 *
 * Somebody may move, remove, replace or truncate PATH, PATH-wal or PATH-shm while they are in use.
 * SQLite does not notice: it goes on in a file that no other process finds, or behind a hole that
 * ends the log for whoever recovers it. So the names and the log are compared with what was opened,
 * before each transaction and after its commit, before anything is acknowledged.
 *
 *     PATH, PATH-wal, PATH-shm   lead to the same files. While a process has them open, SQLite
 *                                neither removes them nor makes them anew
 *     PATH-wal                   holds all frames that the index counts, under the same salts: the
 *                                salts change whenever the log starts over, and are zero in a hole
 *
 * The start of the index is there twice. SQLite writes the second copy first and reads it last, and
 * so do we: if both are the same, nobody has written in between.
 *
 * This does not find frames that were overwritten or cut out in the middle of the log.
 */
#include "store/sqlite/sqlite.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { LOG = 0, INDEX = 1 };

enum {
    LOOKS = 8,
    LOG_HEAD = 32, /* bytes */
    LOG_SALTS_AT = 16,
    FRAME_HEAD = 24
};

/* See sqlite.org/walformat.html. */
typedef struct index_head {
    uint32_t version, unused, change;
    uint8_t ready, big_endian;
    uint16_t page; /* bytes of one; 1 stands for 65536 */
    uint32_t frames;
    uint32_t pages;
    uint32_t frame_sum[2];
    uint32_t salts[2]; /* as they are in the log */
    uint32_t sum[2];
} index_head;
static_assert(sizeof(index_head) == 48, "as in PATH-shm");

static index_head read_head(const semel_store *st, size_t copy)
{
    enum { WORDS = sizeof(index_head) / sizeof(uint32_t) };
    union {
        index_head head;
        uint32_t words[WORDS];
    } u;
    _Atomic uint32_t *from = sm_sq_settle_index(st) + copy * WORDS;
    for (size_t i = 0; i < WORDS; i++)
        u.words[i] = atomic_load_explicit(&from[i], memory_order_acquire);
    return u.head;
}

static bool holds(int log, const index_head *head)
{
    struct stat about;
    uint32_t salts[2];
    int64_t frame = FRAME_HEAD + (head->page == 1 ? 65536 : head->page);
    return head->frames == 0 ||
           (fstat(log, &about) == 0 && about.st_size >= LOG_HEAD + head->frames * frame &&
            pread(log, salts, sizeof salts, LOG_SALTS_AT) == sizeof salts &&
            memcmp(salts, head->salts, sizeof salts) == 0);
}

/* Whether the log that was opened holds what the index counts. The index must be mapped. */
static bool log_fits(const semel_store *st)
{
    for (int i = 0; i < LOOKS; i++) {
        index_head first = read_head(st, 0);
        if (holds(st->log, &first))
            return true;
        index_head second = read_head(st, 1);
        if (memcmp(&first, &second, sizeof first) == 0)
            return false;
    }
    return true; /* others write, or died writing: then SQLite rebuilds the index */
}

static const char *const suffixes[SM_SQ_BESIDE] = {"-wal", "-shm"};

static const char *name_of(const semel_store *st, size_t which, char out[PATH_MAX + 8])
{
    snprintf(out, PATH_MAX + 8, "%s%s", st->path, suffixes[which]);
    return out;
}

static bool find_beside(const semel_store *st, size_t which, ino_t *out)
{
    char name[PATH_MAX + 8];
    struct stat about;
    bool there = stat(name_of(st, which, name), &about) == 0 && about.st_dev == st->dev;
    *out = there ? about.st_ino : 0;
    return there;
}

static bool is_beside(const semel_store *st, size_t which)
{
    ino_t now;
    return find_beside(st, which, &now) && now == st->beside[which];
}

semel_err sm_sq_placed(semel_store *st, semel_fault *fault)
{
    char name[PATH_MAX + 8];
    struct stat about;
    for (size_t i = 0; i < SM_SQ_BESIDE; i++) {
        if (!find_beside(st, i, &st->beside[i]) && stat(name_of(st, i, name), &about) == 0)
            return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                                "%.300s is not on the file system of the ledger, so others may not "
                                "find it: mount the ledger's directory, not only its file",
                                name);
    }
    /* Closing it drops no lock: SQLite has none on the log. */
    st->log = open(name_of(st, LOG, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (st->log < 0 || fstat(st->log, &about) != 0 || about.st_ino != st->beside[LOG])
        st->beside[LOG] = 0;
    return sm_sq_in_place(st, fault);
}

semel_err sm_sq_in_place(semel_store *st, semel_fault *fault)
{
    struct stat about;
    const char *which = "";
    bool there = stat(st->path, &about) == 0 && about.st_dev == st->dev && about.st_ino == st->ino;
    for (size_t i = 0; there && i < SM_SQ_BESIDE; i++) {
        which = suffixes[i];
        there = is_beside(st, i);
    }
    if (there && !log_fits(st)) {
        which = suffixes[LOG];
        there = false;
    }
    if (there)
        return SEMEL_OK;
    return sm_fault_set(fault, SEMEL_E_UNAVAILABLE,
                        "%.300s%s was moved, deleted, replaced or truncated while it was open: put "
                        "it back, or close this ledger everywhere and open it again",
                        st->path, which);
}

bool sm_sq_log_is_ours(const semel_store *st)
{
    return st->log >= 0 && is_beside(st, INDEX) && log_fits(st);
}
