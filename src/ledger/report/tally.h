/*
 * Tallies: what effects add up to, for each run, agent, tool or day.
 *
 * Everything comes from the records and the journal's notes: there are no other books, so the sums
 * cannot differ from what `semel list` shows. A record is counted when it was created since the
 * time asked for; its notes are counted with it. Refusals of calls without a record come from the
 * notes that name a scope and a tool.
 *
 * A scan is bounded: so many of the newest effects, and so many of the newest notes. If there is
 * more, `complete` is false, and `since` is the time from which on all effects were counted.
 */
#ifndef SM_LEDGER_REPORT_TALLY_H
#define SM_LEDGER_REPORT_TALLY_H

#include "ledger/work/ledger.h"

/* A sum of costs that no ledger makes overflow. */
typedef struct sm_sum {
    int64_t whole, billionths; /* the latter below a billion */
} sm_sum;

void sm_sum_add(sm_sum *to, int64_t billionths, uint64_t times);
void sm_sum_join(sm_sum *to, const sm_sum *more);
int sm_sum_compare(const sm_sum *a, const sm_sum *b);
void sm_sum_put(sm_buf *out, const char *name, const sm_sum *sum); /* a member, as text */

typedef struct sm_tally {
    struct sm_tally *next; /* in its bucket */
    int64_t last_at;       /* the newest call */
    uint64_t effects;
    uint64_t executed; /* attempts that began */
    uint64_t in_doubt, pending;
    uint64_t replays, refusals;
    uint64_t duplicates; /* equal calls that did not run: replays, and refusals of what was done */
    uint64_t tokens;
    sm_sum spent, reserved;
    sm_sum prevented; /* what the duplicates would have cost */

    /* Of a run: what its loop state says (report/scopes.c). */
    uint64_t last_call;  /* its newest call, as a loop names it; 0: there is no state */
    sm_loop_match match; /* what it repeats */
    sm_loop_level level;

    uint32_t name_bytes;
    char name[];
} sm_tally;

typedef struct sm_tallies {
    sm_tally **buckets, **all; /* `all` in the order in which they were found */
    size_t n, room;
} sm_tallies;

static inline sm_str sm_tally_name(const sm_tally *t)
{
    return (sm_str){t->name, t->name_bytes};
}

void sm_tallies_fini(sm_tallies *t); /* accepts a zeroed one */

/* The tally of this name, which is made if it is not there. NULL without memory. */
sm_tally *sm_tallies_find(sm_tallies *t, sm_str name);

typedef struct sm_scan {
    semel_spend_by by;
    sm_str scope; /* whole leading segments; absent: all */
    bool exactly; /* with that: this scope only, not those below it */
    int64_t since;
    uint64_t effects_max;

    /* Told each effect that counts, the newest first; w->cur and w->memo have it. May be NULL. */
    void (*effect)(void *context, sm_work *w, sm_tally *t);
    semel_progress_fn *progress; /* NULL: nobody wants to know */
    void *context;

    /* Results. */
    uint64_t looked_at; /* effects */
    bool complete;
} sm_scan;

/* Adds everything up. The answer is the workspace. */
sm_err sm_tallies_make(semel *s, semel_answer *a, sm_scan *scan, sm_tallies *out);

/* Members that say what was counted: since, looked_at, complete. */
void sm_scan_put(sm_buf *out, const sm_scan *scan);

#endif
