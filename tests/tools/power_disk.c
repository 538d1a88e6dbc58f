#include "power_disk.h"

#include <sys/stat.h>

#include "tool.h"

enum { FILES = 256, NAMES = 256, SECTOR = 512 };

/* How what was not synced is treated. */
typedef enum fate { DROP_ALL, KEEP_ALL, KEEP_SOME, TEAR_SOME, KEEP_FIRST, FATES } fate;

typedef struct pending {
    const power_record **records;
    size_t count, room;
} pending;

typedef struct file {
    uint64_t id;
    char *bytes;
    size_t size, room;
    pending todo;
} file;

typedef struct name {
    const char *text;
    size_t n;
    const power_record *is; /* what made it; NULL: it is not there */
    pending todo;
} name;

typedef struct disk {
    file files[FILES];
    name names[NAMES];
    size_t file_count, name_count;
    uint64_t random;
    fate fate;
    power_lie lie;
} disk;

/* ---- the recording ---------------------------------------------------------------------------*/

static const char *name_of(const power_record *r)
{
    return (const char *)(r + 1);
}

static const char *bytes_of(const power_record *r)
{
    return name_of(r) + r->name;
}

/* Records follow each other without padding: each is copied to where it may be read. */
void power_log_read(power_log *log, const char *path)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &about) != 0)
        die("%s cannot be read: %s", path, strerror(errno));
    size_t size = (size_t)about.st_size, room = 0;
    char *raw = malloc(size + 1);
    for (size_t at = 0; raw != NULL && at < size;) {
        ssize_t n = read(fd, raw + at, size - at);
        if (n <= 0)
            die("%s cannot be read", path);
        at += (size_t)n;
    }
    close(fd);
    *log = (power_log){.bytes = malloc(2 * size + 1)};
    if (raw == NULL || log->bytes == NULL)
        die("out of memory");
    char *to = log->bytes;
    for (size_t at = 0; at < size;) {
        power_record r;
        if (size - at < sizeof r)
            die("%s is cut short", path);
        memcpy(&r, raw + at, sizeof r);
        size_t n = sizeof r + r.name + r.bytes;
        if (size - at < n)
            die("%s is cut short", path);
        if (log->count == room) {
            room = room == 0 ? 1024 : 2 * room;
            log->records = realloc(log->records, room * sizeof *log->records);
            if (log->records == NULL)
                die("out of memory");
        }
        memcpy(to, raw + at, n);
        log->records[log->count++] = (const power_record *)(void *)to;
        to += (n + 7) / 8 * 8;
        at += n;
    }
    free(raw);
}

void power_log_free(power_log *log)
{
    free(log->bytes);
    free(log->records);
    *log = (power_log){0};
}

/* ---- the disk --------------------------------------------------------------------------------*/

static void pending_add(pending *p, const power_record *r)
{
    if (p->count == p->room) {
        p->room = p->room == 0 ? 64 : 2 * p->room;
        p->records = realloc(p->records, p->room * sizeof *p->records);
        if (p->records == NULL)
            die("out of memory");
    }
    p->records[p->count++] = r;
}

static file *file_of(disk *d, uint64_t id)
{
    for (size_t i = 0; i < d->file_count; i++)
        if (d->files[i].id == id)
            return &d->files[i];
    if (d->file_count == FILES)
        die("too many files");
    d->files[d->file_count].id = id;
    return &d->files[d->file_count++];
}

static name *entry_of(disk *d, const char *text, size_t n)
{
    for (size_t i = 0; i < d->name_count; i++)
        if (d->names[i].n == n && memcmp(d->names[i].text, text, n) == 0)
            return &d->names[i];
    return NULL;
}

static name *entry_make(disk *d, const power_record *r)
{
    name *e = entry_of(d, name_of(r), r->name);
    if (e != NULL)
        return e;
    if (d->name_count == NAMES)
        die("too many names");
    d->names[d->name_count] = (name){.text = name_of(r), .n = r->name};
    return &d->names[d->name_count++];
}

static bool flip(disk *d)
{
    return next_random(&d->random) % 2 == 0;
}

static void resize(file *f, size_t size)
{
    if (size > f->room) {
        f->room = size + (size >> 1);
        f->bytes = realloc(f->bytes, f->room);
        if (f->bytes == NULL)
            die("out of memory");
    }
    if (size > f->size)
        memset(f->bytes + f->size, 0, size - f->size);
    f->size = size;
}

/* Puts a write or a truncation on the disk; torn, only some of the sectors. */
static void apply(disk *d, file *f, const power_record *r, bool torn)
{
    if (r->kind == POWER_TRUNCATE) {
        resize(f, r->at);
        return;
    }
    uint64_t end = r->at + r->bytes;
    for (uint64_t at = r->at; at < end;) {
        uint64_t next = (at / SECTOR + 1) * SECTOR;
        next = next < end ? next : end;
        if (!torn || flip(d)) {
            if (f->size < next)
                resize(f, next);
            memcpy(f->bytes + at, bytes_of(r) + (at - r->at), next - at);
        }
        at = next;
    }
}

/* Decides about everything in a file that was not synced. */
static void settle_file(disk *d, file *f)
{
    size_t first = f->todo.count > 0 ? next_random(&d->random) % f->todo.count : 0;
    for (size_t i = 0; i < f->todo.count; i++) {
        bool keep = d->fate == KEEP_ALL || (d->fate == KEEP_FIRST && i <= first) ||
                    ((d->fate == KEEP_SOME || d->fate == TEAR_SOME) && flip(d));
        bool torn = (d->fate == TEAR_SOME && flip(d)) || (d->fate == KEEP_FIRST && i == first);
        if (keep)
            apply(d, f, f->todo.records[i], torn);
    }
    f->todo.count = 0;
}

static void name_is(name *e, const power_record *r)
{
    e->is = r->kind == POWER_UNLINK ? NULL : r;
}

static void settle_name(disk *d, name *e)
{
    size_t kept = d->fate == DROP_ALL   ? 0
                  : d->fate == KEEP_ALL ? e->todo.count
                                        : next_random(&d->random) % (e->todo.count + 1);
    for (size_t i = 0; i < kept; i++)
        name_is(e, e->todo.records[i]);
    e->todo.count = 0;
}

static bool is_in(const name *e, const power_record *directory)
{
    size_t n = directory->name;
    size_t skip = n == 0 ? 0 : n + 1;
    return e->n > skip && memcmp(e->text, name_of(directory), n) == 0 &&
           (n == 0 || e->text[n] == '/') && memchr(e->text + skip, '/', e->n - skip) == NULL;
}

static bool is_directory(disk *d, const power_record *r)
{
    name *e = entry_of(d, name_of(r), r->name);
    const power_record *is = e == NULL           ? NULL
                             : e->todo.count > 0 ? e->todo.records[e->todo.count - 1]
                                                 : e->is;
    return r->name == 0 || (is != NULL && is->kind == POWER_DIRECTORY);
}

static void sync_names(disk *d, const power_record *r)
{
    for (size_t i = 0; i < d->name_count; i++) {
        name *e = &d->names[i];
        if (!is_in(e, r) || e->todo.count == 0)
            continue;
        name_is(e, e->todo.records[e->todo.count - 1]);
        e->todo.count = 0;
    }
}

static void sync_file(disk *d, const power_record *r)
{
    file *f = file_of(d, r->file);
    if (r->kind == POWER_SYNC_FAILED) {
        settle_file(d, f);
        return;
    }
    if (d->lie == POWER_LIE_SYNC)
        return;
    size_t left = 0;
    for (size_t i = 0; i < f->todo.count; i++) {
        if (d->lie == POWER_LIE_ORDER && flip(d))
            f->todo.records[left++] = f->todo.records[i];
        else
            apply(d, f, f->todo.records[i], false);
    }
    f->todo.count = left;
}

static void step(disk *d, const power_record *r)
{
    switch ((power_kind)r->kind) {
    case POWER_MAKE:
    case POWER_DIRECTORY:
    case POWER_UNLINK: pending_add(&entry_make(d, r)->todo, r); break;
    case POWER_WRITE:
    case POWER_TRUNCATE: pending_add(&file_of(d, r->file)->todo, r); break;
    case POWER_SYNC:
    case POWER_SYNC_FAILED:
        if (!is_directory(d, r))
            sync_file(d, r);
        else if (r->kind == POWER_SYNC && d->lie != POWER_LIE_NAMES)
            sync_names(d, r);
        break;
    case POWER_MARK: break;
    }
}

/* ---- the files -------------------------------------------------------------------------------*/

/* Writes one file; if its directory is lost, so is it. Directories were made before what is in
 * them. */
static void write_out(disk *d, const name *e, const char *to)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%.*s", to, (int)e->n, e->text);
    if (e->is->kind == POWER_DIRECTORY) {
        mkdir(path, 0700);
        return;
    }
    file *f = file_of(d, e->is->file);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == ENOENT)
        return;
    for (size_t at = 0; at < f->size;) {
        ssize_t n = fd < 0 ? -1 : write(fd, f->bytes + at, f->size - at);
        if (n <= 0)
            die("%s cannot be written: %s", path, strerror(errno));
        at += (size_t)n;
    }
    close(fd);
}

void power_disk_make(const power_log *log, size_t count, uint64_t seed, power_lie lie,
                     const char *to)
{
    disk *d = calloc(1, sizeof *d);
    if (d == NULL)
        die("out of memory");
    d->random = seed;
    d->lie = lie;
    d->fate = (fate)(next_random(&d->random) % FATES);
    for (size_t i = 0; i < count; i++)
        step(d, log->records[i]);
    for (size_t i = 0; i < d->file_count; i++)
        settle_file(d, &d->files[i]);
    for (size_t i = 0; i < d->name_count; i++)
        settle_name(d, &d->names[i]);
    for (size_t i = 0; i < d->name_count; i++)
        if (d->names[i].is != NULL)
            write_out(d, &d->names[i], to);
    for (size_t i = 0; i < d->file_count; i++) {
        free(d->files[i].bytes);
        free(d->files[i].todo.records);
    }
    for (size_t i = 0; i < d->name_count; i++)
        free(d->names[i].todo.records);
    free(d);
}
