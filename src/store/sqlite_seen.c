/*
 * Whether the file still has what was acknowledged.
 *
 * A file that was restored from an older copy, or whose log was removed, answers as if nothing had
 * happened, and effects that ran would run again. So the newest event is noted after every commit:
 * in the handle, and in the page that all processes map, which stays behind in PATH-semel for those
 * who open the ledger next. Every transaction that may write first looks whether these events are
 * still there, with their hashes: others may have used their numbers again. An event that was
 * purged is not missed.
 *
 * A handle that misses one refuses everything but evidence from then on (I3, I8). So does every
 * other handle, old or new, until somebody removes PATH-semel. Nothing is noted meanwhile.
 *
 * The note never runs ahead of the file: an event is noted after its sync. After a crash or a loss
 * of power the note may be older than the file, or torn, which its sum tells; a torn one counts as
 * none.
 *
 * A file that somebody overwrites while it is open, as `cp` does, becomes a mixture: SQLite goes on
 * with its log and with the pages that it remembers. But the counter of changes in the file's
 * header only grows. It is read when the file was written to, by a checkpoint or by somebody else.
 * If it went back, all handles are lost, by a note of an event that never is.
 *
 * This finds neither a file that was made anew, nor one that was overwritten while it is open by a
 * copy that is a page or less behind.
 */
#include "store/sqlite.h"

enum { COUNTER_AT = 24 }; /* in the file's header, four bytes, the highest first */

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

/* Misses an event that is neither there nor purged. */
static int look_for(semel_store *st, const sm_sq_seen *seen, uint64_t floor)
{
    sm_sq_writer *w = &st->writer;
    sm_sq_seen there = w->newest;
    int rc = SQLITE_OK;
    if (seen->seq <= floor || same(seen, &w->newest))
        return SQLITE_OK;
    if (seen->seq < w->newest.seq)
        rc = read_event(w->conn, SM_SQL_EVENT_HASH, seen->seq, &there);
    if (rc == SQLITE_OK && !same(seen, &there))
        atomic_store(&st->lost, true);
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
    uint64_t floor = 0;
    sm_sq_seen in_page = noted(st);
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(w->conn, SM_SQL_TOPS, &rc);
    if (stmt == NULL)
        return rc;
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        w->last_n = (uint64_t)sm_sq_int(stmt, 0);
        floor = (uint64_t)sm_sq_int(stmt, 1);
    }
    int reset = sqlite3_reset(stmt);
    if (rc != SQLITE_ROW)
        return reset != SQLITE_OK ? reset : SQLITE_CORRUPT;
    rc = read_event(w->conn, SM_SQL_EVENT_LAST, 0, &w->newest);
    w->last_seq = w->newest.seq > floor ? w->newest.seq : floor;
    if (rc == SQLITE_OK)
        rc = look_for(st, &in_page, floor);
    if (rc == SQLITE_OK && !same(&w->seen, &in_page))
        rc = look_for(st, &w->seen, floor);
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

semel_err sm_sq_seen_open(semel_store *st, semel_fault *fault)
{
    sqlite3 *db = st->writer.conn->db;
    semel_err e = sm_sq_placed(st, fault);
    if (e != SEMEL_OK)
        return e;
    int rc = sm_sq_seen_file(st);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sm_sq_seen_look(st);
    if (sqlite3_get_autocommit(db) == 0)
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);   /* nothing was changed */
    if (rc != SQLITE_OK && (rc & 0xFF) != SQLITE_CORRUPT) /* a damaged file is opened, to look */
        return sm_sq_fault(st, rc, fault);
    return sm_sq_sound(st, fault);
}

void sm_sq_seen_forget(semel_store *st)
{
    put_note(st, &(sm_sq_seen){0});
}

bool sm_sq_lost(semel_store *st, semel_fault *fault)
{
    if (!atomic_load_explicit(&st->lost, memory_order_relaxed))
        return false;
    sm_fault_set(fault, SEMEL_E_CORRUPT,
                 "%.200s has lost effects that it had acknowledged: it was restored from an older "
                 "copy, or its log was removed. Find out what ran, then remove %.200s and open the "
                 "ledger anew",
                 st->path, st->share.path);
    return true;
}
