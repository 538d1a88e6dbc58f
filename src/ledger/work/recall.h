/*
 * The records of attempts that this handle began, so that a commit need not read what begin has
 * just written.
 *
 * A remembered record is a guess and decides nothing: a write from it is a compare-and-swap, and if
 * that finds another version, the record is read. The table has a fixed size: a new record replaces
 * the one in its place, and large records are not kept.
 *
 * An attempt that runs holds such a copy too: if the ledger loses the record, it is made again from
 * the copy (putback.c). If others run it, under a claim that they were given, the copy is here
 * until the attempt's end is recorded.
 */
#ifndef SM_LEDGER_WORK_RECALL_H
#define SM_LEDGER_WORK_RECALL_H

#include <pthread.h>

#include "semel/store.h"

#define SM_RECALL_SLOTS     1024u
#define SM_RECALL_LOCKS     16u
#define SM_RECALL_BYTES_MAX 16384u /* of one record's texts */

/* A record with its texts, in memory of its own. Freed with free(). */
typedef struct sm_recalled {
    semel_record record; /* its texts are behind it, one after the other */
    char bytes[];
} sm_recalled;

sm_recalled *sm_recalled_copy(const semel_record *r); /* NULL when out of memory */

typedef struct sm_recall {
    pthread_mutex_t locks[SM_RECALL_LOCKS]; /* nothing else is locked under one */
    sm_recalled *slots[SM_RECALL_SLOTS];
} sm_recall;

void sm_recall_init(sm_recall *m);
void sm_recall_fini(sm_recall *m);

/* Remembers a record that runs. */
void sm_recall_put(sm_recall *m, const semel_record *r);

/* A copy of the remembered record of an effect. NULL if it is not there. */
sm_recalled *sm_recall_find(sm_recall *m, uint64_t id);

/* The same for one attempt of it. */
sm_recalled *sm_recall_find_attempt(sm_recall *m, uint64_t id, uint64_t generation, uint64_t fence);

/* Forgets an attempt, whose end is recorded. */
void sm_recall_drop(sm_recall *m, uint64_t id, uint64_t generation, uint64_t fence);

#endif
