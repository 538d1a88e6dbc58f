/*
 * Reading one thing: a record, a counter, the notes of an effect, the state of the store.
 *
 * Readers see what is committed and synced, and neither wait for the writer nor hold it up. No
 * statement is left open while a sink runs, for an open one would keep the log from starting over.
 */
#include "store/sqlite/sqlite.h"

#include <stdio.h>

#include "core/handle.h"

/* Steps a statement of SM_SQL_ROW to its one row and copies it. */
static semel_err read_row(semel_store *st, sqlite3_stmt *stmt, const semel_hash *key,
                          semel_room *room, semel_record *out, semel_fault *fault)
{
    semel_err e = SEMEL_OK;
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        semel_record view;
        sm_sq_record_view(stmt, &view);
        if (key != NULL && memcmp(key, &view.key, sizeof view.key) != 0)
            e = sm_sq_collision(st, fault);
        else if (sm_record_copy(&view, room, out) != SEMEL_OK)
            e = sm_sq_nomem(fault);
    } else if (rc == SQLITE_DONE) {
        e = sm_fault_set(fault, SEMEL_E_NOT_FOUND, "there is no such record");
    } else {
        e = sm_sq_fault(st, rc, fault);
    }
    sqlite3_reset(stmt);
    return e;
}

semel_err sm_sq_get(semel_store *st, const semel_ref *ref, semel_room *room, semel_record *cur,
                    int64_t *now, semel_fault *fault)
{
    sm_sq_conn *c = NULL;
    semel_err e = sm_sq_turn(st, &c, fault);
    if (e != SEMEL_OK)
        return e;
    int rc;
    uint64_t id = ref->id;
    bool newest = ref->key != NULL || ref->generation == 0;
    uint64_t stamp = sm_sq_cache_stamp(st);
    sqlite3_stmt *stmt = sm_sq_stmt(c, newest ? SM_SQL_NEWEST : SM_SQL_GENERATION, &rc);
    if (stmt == NULL) {
        e = sm_sq_fault(st, rc, fault);
        goto cleanup;
    }
    if (ref->key != NULL && sm_effect_id(&c->digest, ref->key, &id) != SM_OK) {
        e = sm_fault_set(fault, SEMEL_E_CRYPTO, "SHA-256 failed");
        goto cleanup;
    }
    sqlite3_bind_int64(stmt, 1, (int64_t)id);
    if (!newest)
        sqlite3_bind_int64(stmt, 2, (int64_t)ref->generation);
    e = read_row(st, stmt, ref->key, room, cur, fault);
    *now = sm_clock_ms();
    if (e == SEMEL_OK && newest)
        sm_sq_cache_put(st, cur, stamp);
cleanup:
    sm_sq_turn_over(st, c);
    return e;
}

semel_err sm_sq_counter(semel_store *st, uint8_t shard, semel_str name, int64_t *value,
                        semel_fault *fault)
{
    (void)shard;
    sm_sq_conn *c = NULL;
    *value = 0;
    semel_err e = sm_sq_reader(st, &c, fault);
    if (e != SEMEL_OK)
        return e;
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, SM_SQL_COUNTER_GET, &rc);
    if (stmt != NULL) {
        sm_sq_bind_text(stmt, 1, name);
        rc = sqlite3_step(stmt);
        if (rc == SQLITE_ROW)
            *value = sm_sq_int(stmt, 0);
        sqlite3_reset(stmt);
    }
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        e = sm_sq_fault(st, rc, fault);
    sm_sq_reader_return(st, c);
    return e;
}

/* ---- notes -----------------------------------------------------------------------------------*/

/* One note, its texts copied. *seq becomes its number, or -1 if there is none. */
static semel_err read_note(semel_store *st, sm_sq_conn *c, sm_sq_statement which, uint64_t id,
                           uint64_t generation, int64_t third, sm_sq_scratch *scratch,
                           semel_note *note, int64_t *seq, semel_fault *fault)
{
    int rc;
    *seq = -1;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    if (stmt == NULL)
        return sm_sq_fault(st, rc, fault);
    sqlite3_bind_int64(stmt, 1, (int64_t)id);
    sqlite3_bind_int64(stmt, 2, (int64_t)generation);
    sqlite3_bind_int64(stmt, 3, third);
    semel_err e = SEMEL_OK;
    rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        /* A record's copy is borrowed for the texts. */
        semel_record view = {
            .step = sm_sq_text(stmt, 6), .scope = sm_sq_text(stmt, 7), .tool = sm_sq_text(stmt, 8)};
        *seq = sm_sq_int(stmt, 0);
        if (sm_record_copy(&view, &scratch->room, &view) != SEMEL_OK)
            e = sm_sq_nomem(fault);
        *note = (semel_note){.id = (uint64_t)sm_sq_int(stmt, 1),
                             .generation = (uint64_t)sm_sq_int(stmt, 2),
                             .first_at = sm_sq_int(stmt, 3),
                             .last_at = sm_sq_int(stmt, 4),
                             .count = (uint64_t)sm_sq_int(stmt, 5),
                             .what = view.step,
                             .scope = view.scope,
                             .tool = view.tool};
    } else if (rc != SQLITE_DONE) {
        e = sm_sq_fault(st, rc, fault);
    }
    sqlite3_reset(stmt);
    return e;
}

semel_err sm_sq_notes(semel_store *st, uint64_t id, uint64_t generation, size_t limit,
                      semel_note_sink *sink, void *context, semel_fault *fault)
{
    sm_sq_reading r;
    if (limit == 0)
        return SEMEL_OK;
    semel_err e = sm_sq_reading_start(st, &r, fault);
    if (e != SEMEL_OK)
        return e;
    semel_note note;
    int64_t seq = 0;
    int64_t skip = limit - 1 > INT64_MAX ? INT64_MAX : (int64_t)(limit - 1);
    e = read_note(st, r.c, SM_SQL_NOTES, id, generation, skip, &r.scratch, &note, &seq, fault);
    if (seq < 0)
        seq = 0; /* there are fewer than the limit: all of them */
    for (size_t i = 0; i < limit && e == SEMEL_OK; i++) {
        e = read_note(st, r.c, SM_SQL_NOTE_NEXT, id, generation, seq, &r.scratch, &note, &seq,
                      fault);
        if (e != SEMEL_OK || seq < 0 || !sink(context, &note))
            break;
        seq++;
    }
    sm_sq_reading_end(st, &r);
    return e;
}

/* ---- health ----------------------------------------------------------------------------------*/

enum { COUNT_MAX = 100000 }; /* rows that are counted one by one */

static uint64_t file_bytes(const char *path, const char *suffix)
{
    char name[PATH_MAX + 8];
    struct stat about;
    snprintf(name, sizeof name, "%s%s", path, suffix);
    return stat(name, &about) == 0 ? (uint64_t)about.st_size : 0;
}

/* Runs one statement of the report; `each` takes its rows. */
static int report(sm_sq_conn *c, sm_sq_statement which, semel_health *out,
                  void each(sqlite3_stmt *stmt, semel_health *out))
{
    int rc;
    sqlite3_stmt *stmt = sm_sq_stmt(c, which, &rc);
    if (stmt == NULL)
        return rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW)
        each(stmt, out);
    sqlite3_reset(stmt);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static void take_state(sqlite3_stmt *stmt, semel_health *out)
{
    int64_t state = sm_sq_int(stmt, 0);
    if (state >= 0 && state < SEMEL_S_COUNT)
        out->in_state[state] = (uint64_t)sm_sq_int(stmt, 1);
}

static void take_span(sqlite3_stmt *stmt, semel_health *out)
{
    int64_t last = sm_sq_int(stmt, 1);
    out->records = last == 0 ? 0 : (uint64_t)(last - sm_sq_int(stmt, 0) + 1);
}

static void take_count(sqlite3_stmt *stmt, semel_health *out)
{
    out->records = (uint64_t)sm_sq_int(stmt, 0);
}

static void take_last(sqlite3_stmt *stmt, semel_health *out)
{
    out->last_seq = (uint64_t)sm_sq_int(stmt, 0);
    out->purged_to = (uint64_t)sm_sq_int(stmt, 1);
}

static void take_seal(sqlite3_stmt *stmt, semel_health *out)
{
    out->seal_seq = (uint64_t)sm_sq_int(stmt, 0);
    out->seal_index = (uint64_t)sm_sq_int(stmt, 1);
    out->seal_at = sm_sq_int(stmt, 2);
    sm_sq_hash(stmt, 3, &out->seal_hash);
}

static void take_oldest(sqlite3_stmt *stmt, semel_health *out)
{
    out->oldest_event_at = sm_sq_int(stmt, 0);
}

semel_err sm_sq_health(semel_store *st, bool thorough, semel_health *out, semel_fault *fault)
{
    static const struct {
        sm_sq_statement which;
        void (*each)(sqlite3_stmt *stmt, semel_health *out);
    } parts[] = {{SM_SQL_STATES, take_state},
                 {SM_SQL_SPAN, take_span},
                 {SM_SQL_LAST_SEQ, take_last},
                 {SM_SQL_SEAL_LAST, take_seal},
                 {SM_SQL_OLDEST, take_oldest}};
    *out = (semel_health){.schema = SM_SQ_SCHEMA};
    snprintf(out->where, sizeof out->where, "%.*s", (int)sizeof out->where - 1, st->path);
    snprintf(out->server, sizeof out->server, "SQLite %s", sqlite3_libversion());
    out->bytes = file_bytes(st->path, "") + file_bytes(st->path, "-wal");
    sm_sq_conn *c = NULL;
    semel_err e = sm_sq_reader(st, &c, fault);
    if (e != SEMEL_OK)
        return e;
    int rc = SQLITE_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && rc == SQLITE_OK; i++)
        rc = report(c, parts[i].which, out, parts[i].each);
    if (rc == SQLITE_OK && out->records > 0 && out->records <= COUNT_MAX)
        rc = report(c, SM_SQL_COUNT, out, take_count);
    if (rc != SQLITE_OK)
        e = sm_sq_fault(st, rc, fault);
    else if (thorough)
        e = sm_sq_check(st, c->db, fault);
    sm_sq_reader_return(st, c);
    return e;
}
