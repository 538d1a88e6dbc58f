/*
 * Whether the file still has what was acknowledged.
 *
 * A file that was restored from an older copy, or whose log was removed, answers as if nothing had
 * happened, and effects that ran would run again. So the newest event is noted after every commit:
 * in the handle, and in the page that all processes map, which stays behind in PATH-semel for those
 * who open the ledger next. Every transaction that may write first looks whether these events are
 * still there, with their hashes: others may have used their numbers again. An event that was
 * purged is not missed. But the number up to which events are purged is not part of the chain. It
 * counts only while a newer event is there, as after every purge: the ledger seals before it
 * purges, and seals stay. Whether a seal covers the number is for semel_verify to say.
 *
 * A handle that misses one refuses everything but evidence from then on (I3, I8). So does every
 * other handle, old or new, until somebody removes PATH-semel. Nothing is noted meanwhile.
 *
 * Who restores a whole directory or a whole disk also restores PATH-semel. So the newest event is
 * noted a second time, once a second and when the handle is closed, in the user's state directory
 * (store/shared/mark.h). That note belongs to the path: ledgers have no names. Who makes a new
 * ledger at the path removes it.
 *
 * A note never runs ahead of the file: an event is noted after its sync. After a crash or a loss of
 * power a note may be older than the file, or torn, which the sum of the one in PATH-semel tells; a
 * torn one counts as none.
 *
 * A file that somebody overwrites while it is open, as `cp` does, becomes a mixture: SQLite goes on
 * with its log and with the pages that it remembers. But the counter of changes in the file's
 * header only grows. It is read when the file was written to, by a checkpoint or by somebody else.
 * If it went back, all handles are lost, by a note of an event that never is.
 *
 * This finds neither a file that was made anew, nor one that was overwritten while it is open by a
 * copy that is a page or less behind.
 */
#include "store/sqlite/sqlite.h"

#include <stdio.h>
#include <unistd.h>

enum { COUNTER_AT = 24 }; /* in the file's header, four bytes, the highest first */

#define MARK_NS INT64_C(1000000000)

static uint64_t sum_of(const sm_sq_seen *s)
{
    uint64_t sum = s->seq ^ UINT64_C(0x53454D454C534545), part;
    for (size_t i = 0; i < sizeof s->hash.b; i += sizeof part) {
        memcpy(&part, s->hash.b + i, sizeof part);
        sum = (sum << 7 | sum >> 57) ^ part;
    }
    return sum;
}

static sm_sq_seen noted(semel_store *st)
{
    const sm_sq_page *page = atomic_load(&st->share.page);
    sm_sq_seen s = page->newest;
    return page->newest_sum == sum_of(&s) ? s : (sm_sq_seen){0};
}

static void put_note(semel_store *st, const sm_sq_seen *s)
{
    sm_sq_page *page = atomic_load(&st->share.page);
    page->newest = *s;
    page->newest_sum = sum_of(s);
}

static bool same(const sm_sq_seen *a, const sm_sq_seen *b)
{
    return a->seq == b->seq && memcmp(&a->hash, &b->hash, sizeof a->hash) == 0;
}

/* Reads the event that a statement finds; none has the number 0. */
static int read_event(sm_sq_conn *c, sm_sq_statement which, uint64_t seq, sm_sq_seen *out)
{
    int rc;
    *out = (sm_sq_seen){0};
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    if (stmt == NULL)
        return rc;
    if (which == SM_SQL_EVENT_HASH)
        sqlite3_bind_int64(stmt, 1, (int64_t)seq);
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        out->seq = (uint64_t)sm_sq_int(stmt, 0);
        sm_sq_hash(stmt, 1, &out->hash);
    }
    int reset = sqlite3_reset(stmt);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : reset;
}

/* A purge leaves a newer event than it removes. */
static bool is_purged(const sm_sq_writer *w, uint64_t seq)
{
    return seq <= w->floor && w->floor < w->newest.seq;
}

/* Misses an event that is neither there nor purged. */
static int look_for(semel_store *st, const sm_sq_seen *seen)
{
    sm_sq_writer *w = &st->writer;
    sm_sq_seen there = w->newest;
    int rc = SQLITE_OK;
    if (seen->seq == 0 || is_purged(w, seen->seq) || same(seen, &w->newest))
        return SQLITE_OK;
    if (seen->seq < w->newest.seq)
        rc = read_event(w->conn, SM_SQL_EVENT_HASH, seen->seq, &there);
    if (rc == SQLITE_OK && !same(seen, &there))
        atomic_store(&st->lost, true);
    return rc;
}

/* An event as the user's note has it. */
static sm_seen mark_of(const sm_sq_seen *s)
{
    sm_seen m = {.seq = (int64_t)s->seq};
    memcpy(&m.hash, s->hash.b, sizeof m.hash);
    return m;
}

/* Likewise for the event in the user's note. */
static int look_for_mark(semel_store *st, const sm_seen *noted)
{
    sm_sq_writer *w = &st->writer;
    sm_sq_seen there;
    if (noted->seq <= 0 || is_purged(w, (uint64_t)noted->seq))
        return SQLITE_OK;
    int rc = read_event(w->conn, SM_SQL_EVENT_HASH, (uint64_t)noted->seq, &there);
    sm_seen found = mark_of(&there);
    if (rc == SQLITE_OK && (found.seq != noted->seq || found.hash != noted->hash))
        atomic_store(&st->lost, true);
    w->marked = (uint64_t)noted->seq;
    return rc;
}

int sm_sq_seen_file(semel_store *st)
{
    sm_sq_writer *w = &st->writer;
    struct stat about;
    sqlite3_file *file = NULL;
    unsigned char b[4] = {0};
    bool first = w->file_at.tv_sec == 0 && w->file_at.tv_nsec == 0;
    if (stat(st->path, &about) != 0 ||
        (about.st_ctim.tv_sec == w->file_at.tv_sec && about.st_ctim.tv_nsec == w->file_at.tv_nsec))
        return SQLITE_OK;
    int rc = sqlite3_file_control(w->conn->db, NULL, SQLITE_FCNTL_FILE_POINTER, (void *)&file);
    if (rc == SQLITE_OK)
        rc = file->pMethods->xRead(file, b, sizeof b, COUNTER_AT);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return rc;
    uint32_t counter = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    if (!first && (int32_t)(counter - w->file_counter) < 0) { /* it may wrap around */
        put_note(st, &(sm_sq_seen){.seq = INT64_MAX});
        atomic_store(&st->lost, true); /* SQLite may find damage before it can look */
        return SQLITE_OK;
    }
    w->file_counter = counter;
    w->file_at = about.st_ctim;
    return SQLITE_OK;
}

int sm_sq_seen_look(semel_store *st)
{
    sm_sq_writer *w = &st->writer;
    sm_sq_seen in_page = noted(st);
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(w->conn, SM_SQL_TOPS, &rc);
    if (stmt == NULL)
        return rc;
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        w->last_n = (uint64_t)sm_sq_int(stmt, 0);
        w->floor = (uint64_t)sm_sq_int(stmt, 1);
    }
    int reset = sqlite3_reset(stmt);
    if (rc != SQLITE_ROW)
        return reset != SQLITE_OK ? reset : SQLITE_CORRUPT;
    rc = read_event(w->conn, SM_SQL_EVENT_LAST, 0, &w->newest);
    w->last_seq = w->newest.seq > w->floor ? w->newest.seq : w->floor;
    if (rc == SQLITE_OK)
        rc = look_for(st, &in_page);
    if (rc == SQLITE_OK && !same(&w->seen, &in_page))
        rc = look_for(st, &w->seen);
    return rc;
}

void sm_sq_seen_note(semel_store *st)
{
    sm_sq_writer *w = &st->writer;
    if (atomic_load(&st->lost))
        return;
    w->seen = w->newest;
    put_note(st, &w->newest);
}

void sm_sq_seen_mark(semel_store *st, bool end)
{
    sm_sq_writer *w = &st->writer;
    if (w->seen.seq <= w->marked || atomic_load(&st->lost))
        return;
    int64_t now = sm_clock_mono_ns();
    struct stat about;
    if (!end && now - w->marked_ns < MARK_NS)
        return;
    /* Another ledger may be at this path by now. */
    if (stat(st->path, &about) != 0 || about.st_dev != st->dev || about.st_ino != st->ino)
        return;
    sm_seen newest = mark_of(&w->seen);
    sm_mark_write(&st->mark, &newest);
    w->marked = w->seen.seq;
    w->marked_ns = now;
}

void sm_sq_seen_start(semel_store *st)
{
    char ledger[sizeof st->path + 8];
    snprintf(ledger, sizeof ledger, "sqlite %s", st->path);
    sm_mark_init(&st->mark, ledger);
    st->writer.marked_ns = sm_clock_mono_ns();
}

semel_err sm_sq_seen_open(semel_store *st, semel_fault *fault)
{
    sqlite3 *db = st->writer.conn->db;
    sm_seen noted;
    semel_err e = sm_sq_placed(st, fault);
    if (e != SEMEL_OK)
        return e;
    /* Before the snapshot begins: a later note may name an event that the snapshot lacks. */
    bool marked = sm_mark_read(&st->mark, &noted);
    int rc = sm_sq_seen_file(st);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sm_sq_seen_look(st);
    if (rc == SQLITE_OK && marked)
        rc = look_for_mark(st, &noted);
    if (sqlite3_get_autocommit(db) == 0)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);   /* nothing was changed */
    if (rc != SQLITE_OK && (rc & 0xFF) != SQLITE_CORRUPT) /* a damaged file is opened, to look */
        return sm_sq_fault(st, rc, fault);
    return sm_sq_sound(st, fault);
}

void sm_sq_seen_forget(semel_store *st)
{
    put_note(st, &(sm_sq_seen){0});
    sm_mark_forget(&st->mark);
}

bool sm_sq_lost(semel_store *st, semel_fault *fault)
{
    if (!atomic_load_explicit(&st->lost, memory_order_relaxed))
        return false;
    bool marked = st->mark.path[0] != '\0' && access(st->mark.path, F_OK) == 0;
    sm_fault_set(fault, SEMEL_E_CORRUPT,
                 "%.80s has lost effects that it had acknowledged: it was restored from an older "
                 "copy, or its log was removed. Find out what ran, then remove %.120s%s%.140s and "
                 "open the ledger anew",
                 st->path, st->share.path, marked ? " and " : "", marked ? st->mark.path : "");
    return true;
}
