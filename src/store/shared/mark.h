/*
 * A note of the newest event that a handle has seen in a ledger, for the next handle of this user.
 * So a ledger that was restored from an older copy between two runs is noticed too.
 *
 * Each ledger has one small file, in seen/ of the user's state directory. It names the newest
 * acknowledged event. A user without a state directory has no notes.
 */
#ifndef SM_STORE_SHARED_MARK_H
#define SM_STORE_SHARED_MARK_H

#include "base/file.h"

#define SM_MARK_TEXT 96u

typedef struct sm_mark {
    char path[SM_PATH_MAX]; /* empty: nothing is noted */
} sm_mark;

/* `ledger` is whatever identifies the ledger for its store: Postgres knows it again on another
 * server, Redis only at the same address, SQLite only at the same path. */
void sm_mark_init(sm_mark *m, const char *ledger);

/* The newest event. Postgres: its number, its effect and the first bytes of its hash. SQLite: the
 * same without the effect. Redis: the newest tick, its shard and the first tick of that. */
typedef struct sm_seen {
    int64_t seq, id;
    uint64_t hash;
} sm_seen;

/* False: nothing was noted. */
bool sm_mark_read(const sm_mark *m, sm_seen *out);

/* Notes it, unless a newer one is noted. A failure is ignored. */
void sm_mark_write(const sm_mark *m, const sm_seen *seen);

/* Nothing is noted any more. */
void sm_mark_forget(const sm_mark *m);

#endif
