/*
 * What this handle remembers of the attempts that it let run, so that a commit need not read what
 * begin has just written.
 *
 * A memory is a guess and decides nothing: what follows from it is written by compare-and-swap, and
 * if that finds another version, the record is read. The table has a fixed size; a newcomer takes
 * the place of whoever is there, and large records are not kept.
 */
#ifndef SM_LEDGER_RECALL_H
#define SM_LEDGER_RECALL_H

#include <stdatomic.h>

#include "base/arena.h"
#include "semel/store.h"

#define SM_RECALL_SLOTS     1024u
#define SM_RECALL_BYTES_MAX 16384u /* of one record's texts */

typedef struct sm_recalled sm_recalled;

typedef struct sm_recall {
    _Atomic(sm_recalled *) slots[SM_RECALL_SLOTS];
} sm_recall;

void sm_recall_fini(sm_recall *m);

/* Remembers a record that runs. */
void sm_recall_put(sm_recall *m, const semel_record *r);

/* Gives what is remembered of an attempt, and forgets it. The texts are taken from `a`. False if
 * there is nothing, or if it was about another attempt. */
bool sm_recall_take(sm_recall *m, uint64_t id, uint64_t generation, uint64_t fence, sm_arena *a,
                    semel_record *out);

#endif
