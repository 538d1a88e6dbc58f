/*
 * Memory for one request: allocated by moving a pointer, freed all at once, bounded.
 *
 * An arena belongs to one thread at a time. What it hands out lives until reset or fini; there is
 * no way to free one piece. When the bound or the system's memory is reached, alloc returns NULL
 * and the arena stays usable.
 */
#ifndef SM_BASE_ARENA_H
#define SM_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

typedef struct sm_arena {
    struct sm_chunk *chunks; /* newest first */
    char *cur;
    char *end;
    size_t held; /* bytes of all chunks */
    size_t limit;
} sm_arena;

/* Allocates nothing yet. `limit` bounds the bytes that the arena ever holds at once. */
void sm_arena_init(sm_arena *a, size_t limit);

/* Gives all memory back. Accepts a zeroed arena. */
void sm_arena_fini(sm_arena *a);

/* Forgets everything handed out, keeping one chunk of at most SM_KEPT_BYTES for the next request.
 */
void sm_arena_reset(sm_arena *a);

/* `n` bytes, aligned for any type, contents undefined. NULL when out of memory or over the bound.
 */
void *sm_arena_alloc(sm_arena *a, size_t n);

/* The same, zeroed, for `count` objects of `size` bytes. */
void *sm_arena_zalloc(sm_arena *a, size_t count, size_t size);

/* A NUL-terminated copy with SM_TEXT_PAD readable zero bytes behind it, so that eight-byte loads
 * from any of its bytes stay inside. `p` is NULL when out of memory. */
#define SM_TEXT_PAD 16u
sm_str sm_arena_text(sm_arena *a, sm_str s);

/* Puts such copies in the place of texts; absent ones stay absent. False when out of memory. */
bool sm_arena_keep(sm_arena *a, sm_str *const texts[], size_t n);

/* sprintf into the arena; the same padding. `p` is NULL when out of memory. */
sm_str sm_arena_printf(sm_arena *a, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Sentences one after the other; either may be absent. */
sm_str sm_arena_join(sm_arena *a, sm_str first, sm_str second);

#endif
