/*
 * The journal: replays, reads and refusals, counted in memory and written in batches, so that a
 * replay writes nothing on the path of its answer. At most a second late; outside of the chain.
 */
#ifndef SM_LEDGER_WORK_JOURNAL_H
#define SM_LEDGER_WORK_JOURNAL_H

#include <pthread.h>

#include "base/buf.h"
#include "semel/store.h"

typedef enum sm_jot { SM_JOT_REPLAYED, SM_JOT_PASSED, SM_JOT_OBSERVED, SM_JOT_REFUSED } sm_jot;

#define SM_JOURNAL_STRIPES 16u

/* One line of the journal: what happened to one effect since the last flush. */
typedef struct sm_jotted {
    uint64_t id, generation;
    int64_t first_at, last_at;
    uint64_t count;
    sm_jot what;
    semel_code code; /* refused: why; observed: what would have been said */
    char *names;     /* scope and tool of a call without a record; NULL */
    uint32_t scope_bytes, tool_bytes;
} sm_jotted;

typedef struct sm_journal {
    struct sm_journal_stripe {
        pthread_mutex_t lock;
        sm_jotted *slots; /* an open hash table; made at the first use */
        uint32_t used;
    } __attribute__((aligned(64))) stripes[SM_JOURNAL_STRIPES];
} sm_journal;

void sm_journal_init(sm_journal *j);
void sm_journal_fini(sm_journal *j);

/* Notes one. `scope` and `tool` only where there is no record (id 0). */
void sm_journal_add(sm_journal *j, sm_jot what, semel_code code, uint64_t id, uint64_t generation,
                    int64_t now, sm_str scope, sm_str tool);

/* Writes all to a store. What the store does not take is gone: it is a journal. */
void sm_journal_flush(sm_journal *j, const semel_store_ops *ops, semel_store *store);

#endif
