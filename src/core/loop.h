/*
 * Loops: an agent that makes the same call again and again, or the same few calls in turn, and
 * learns nothing from them. Pure.
 *
 * What a run does is a sequence of entries: a call and its result, as hashes. Three things are
 * looked for at its end:
 *
 *     repeat        the newest entries are equal
 *     cycle         the newest p entries are as the p before them: a period of p
 *     no_progress   the newest entry was there before, others came between, nothing new was done
 *
 * A match's count says how many copies there are, the newest included, even if it has only begun
 * and nothing new was done since the others. Only the end of the sequence counts: whatever breaks a
 * pattern ends it. So a batch over a long list is no loop, and neither is an edit, a test, another
 * edit, the same test.
 *
 * For each period p there is one number: how many of the newest entries in a row are equal to the
 * one p before them. If it is m, there are m / p + 1 copies. An entry costs O(max_cycle), and the
 * memory of a run is bounded.
 */
#ifndef SM_CORE_LOOP_H
#define SM_CORE_LOOP_H

#include <stdbool.h>
#include <stdint.h>

/* The longest cycle that can be looked for. */
#define SM_LOOP_CYCLE_MAX 32u

/* Entries since the last progress that are remembered. One is forgotten when so many others came
 * after it. */
#define SM_LOOP_SEEN_MAX 16u

typedef struct sm_loop_entry {
    uint64_t call, result; /* 0: the result is not known */
} sm_loop_entry;

typedef enum sm_loop_detector {
    SM_LOOP_REPEAT,
    SM_LOOP_CYCLE,
    SM_LOOP_NO_PROGRESS
} sm_loop_detector;

typedef struct sm_loop_match {
    sm_loop_detector detector;
    uint32_t period; /* 1 repeat; 0 no_progress */
    uint32_t count;  /* copies; 1: the call is new */
    uint64_t result; /* what the call would return, if the pattern goes on */
} sm_loop_match;

typedef struct sm_loop_seen {
    sm_loop_entry entry;
    uint32_t count;
} sm_loop_seen;

/* Plain data. Nothing was called yet if all is zero, but for the number of periods. */
typedef struct sm_loop {
    uint32_t periods;                      /* the longest cycle that is looked for in this run */
    uint64_t calls;                        /* how many entries there were */
    uint32_t same[SM_LOOP_CYCLE_MAX];      /* same[p - 1]: see above */
    uint32_t seen_count;                   /* how many of `seen` */
    sm_loop_entry tail[SM_LOOP_CYCLE_MAX]; /* entry n is at n % SM_LOOP_CYCLE_MAX */
    uint32_t progressed;                   /* a bit for each of `tail`: something new was done */
    sm_loop_seen seen[SM_LOOP_SEEN_MAX];   /* the newest first */
} sm_loop;

/* "repeat", "cycle", "no_progress". */
const char *sm_loop_name(sm_loop_detector d);

/* The newest entry; NULL if there is none. */
const sm_loop_entry *sm_loop_last(const sm_loop *l);

/* What the newest entry has completed. Its count is 0 if nothing was called yet. */
sm_loop_match sm_loop_now(const sm_loop *l, uint32_t max_cycle);

/* What a call would complete, if it returned what it did before. Cycles longer than `max_cycle` are
 * not looked for. */
sm_loop_match sm_loop_foresee(const sm_loop *l, uint64_t call, uint32_t max_cycle);

/* Adds an entry, and says what it completes. `progress`: something new was done. */
sm_loop_match sm_loop_add(sm_loop *l, sm_loop_entry entry, bool progress, uint32_t max_cycle);

/* Adds the newest entries of one to another, as far as they are remembered. */
void sm_loop_append(sm_loop *to, const sm_loop *from, uint64_t newest);

#endif
