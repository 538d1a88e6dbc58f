/* The bump allocator. Under AddressSanitizer the unused part of a chunk is poisoned, so that an
 * overrun inside an arena is caught as if each piece were its own malloc. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"

#if defined(__SANITIZE_ADDRESS__)
#define SM_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SM_ASAN 1
#endif
#endif
#ifdef SM_ASAN
#include <sanitizer/asan_interface.h>
#define POISON(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#define UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#define RED_ZONE       16u
#else
#define POISON(p, n)   ((void)(p), (void)(n))
#define UNPOISON(p, n) ((void)(p), (void)(n))
#define RED_ZONE       0u
#endif

#define ALIGN     16u
#define FIRST_MIN 4096u

typedef struct sm_chunk {
    struct sm_chunk *next;
    size_t size; /* of the bytes behind this header */
} sm_chunk;

_Static_assert(sizeof(sm_chunk) % ALIGN == 0, "a chunk's bytes start aligned");

static char *chunk_bytes(sm_chunk *c)
{
    return (char *)(c + 1);
}

void sm_arena_init(sm_arena *a, size_t limit)
{
    *a = (sm_arena){.limit = limit};
}

static void chunks_free(sm_chunk *c)
{
    while (c != NULL) {
        sm_chunk *next = c->next;
        UNPOISON(chunk_bytes(c), c->size);
        free(c);
        c = next;
    }
}

void sm_arena_fini(sm_arena *a)
{
    chunks_free(a->chunks);
    *a = (sm_arena){0};
}

void sm_arena_reset(sm_arena *a)
{
    sm_chunk *keep = a->chunks;
    while (keep != NULL && keep->size > SM_KEPT_BYTES) {
        sm_chunk *next = keep->next;
        keep->next = NULL;
        chunks_free(keep);
        keep = next;
    }
    a->chunks = keep;
    if (keep == NULL) {
        a->held = 0;
        a->cur = a->end = NULL;
        return;
    }
    chunks_free(keep->next);
    keep->next = NULL;
    a->held = keep->size;
    a->cur = chunk_bytes(keep);
    a->end = a->cur + keep->size;
    POISON(a->cur, keep->size);
}

static sm_chunk *chunk_new(sm_arena *a, size_t need)
{
    size_t size = a->chunks == NULL ? FIRST_MIN : a->chunks->size * 2;
    if (size < need)
        size = need;
    if (a->held >= a->limit || need > a->limit - a->held)
        return NULL;
    if (size > a->limit - a->held)
        size = a->limit - a->held;
    sm_chunk *c = malloc(sizeof *c + size);
    if (c == NULL)
        return NULL;
    c->size = size;
    c->next = a->chunks;
    a->chunks = c;
    a->held += size;
    a->cur = chunk_bytes(c);
    a->end = a->cur + size;
    POISON(a->cur, size);
    return c;
}

void *sm_arena_alloc(sm_arena *a, size_t n)
{
    if (n > SIZE_MAX - ALIGN - RED_ZONE)
        return NULL;
    /* Even no bytes take some room: a NULL for them would read as a failure. */
    size_t need = ((n == 0 ? 1 : n) + RED_ZONE + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if ((size_t)(a->end - a->cur) < need && chunk_new(a, need) == NULL)
        return NULL;
    char *p = a->cur;
    a->cur += need;
    UNPOISON(p, n);
    return p;
}

void *sm_arena_zalloc(sm_arena *a, size_t count, size_t size)
{
    if (size != 0 && count > SIZE_MAX / size)
        return NULL;
    void *p = sm_arena_alloc(a, count * size);
    if (p != NULL)
        memset(p, 0, count * size);
    return p;
}

sm_str sm_arena_text(sm_arena *a, sm_str s)
{
    char *p = s.n > SIZE_MAX - SM_TEXT_PAD ? NULL : sm_arena_alloc(a, s.n + SM_TEXT_PAD);
    if (p == NULL)
        return (sm_str){0};
    if (s.n != 0)
        memcpy(p, s.p, s.n);
    memset(p + s.n, 0, SM_TEXT_PAD);
    return (sm_str){p, s.n};
}

bool sm_arena_keep(sm_arena *a, sm_str *const texts[], size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (texts[i]->p == NULL)
            continue;
        *texts[i] = sm_arena_text(a, *texts[i]);
        if (texts[i]->p == NULL)
            return false;
    }
    return true;
}

/* A sentence is short: it is made once, and copied. What is longer is made again where it stays. */
sm_str sm_arena_printf(sm_arena *a, const char *format, ...)
{
    char sentence[256];
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    char *p = n < 0 ? NULL : sm_arena_alloc(a, (size_t)n + SM_TEXT_PAD);
    if (p != NULL) {
        memset(p + n, 0, SM_TEXT_PAD);
        if ((size_t)n < sizeof sentence)
            memcpy(p, sentence, (size_t)n);
        else
            vsnprintf(p, (size_t)n + 1, format, again);
    }
    va_end(again);
    return p == NULL ? (sm_str){0} : (sm_str){p, (size_t)n};
}

sm_str sm_arena_join(sm_arena *a, sm_str first, sm_str second)
{
    if (first.n == 0 || second.n == 0)
        return sm_arena_text(a, first.n == 0 ? second : first);
    return sm_arena_printf(a, "%.*s %.*s", SM_FMT(first), SM_FMT(second));
}
