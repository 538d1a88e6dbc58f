/*
 * A growing run of bytes whose bound is fixed when it is made.
 *
 *     p          p+len        p+cap
 *     |  written  |   free    |          cap <= limit
 *
 * A failed append (bound reached, or no memory) leaves the contents as they were and is remembered
 * in `err`: a writer may append many times and look once.
 */
#ifndef SM_BASE_BUF_H
#define SM_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/str.h"

typedef struct sm_buf {
    char *p;
    size_t len;
    size_t cap;
    size_t limit;
    sm_err err;
} sm_buf;

void sm_buf_init(sm_buf *b, size_t limit);
void sm_buf_fini(sm_buf *b); /* accepts a zeroed buffer */

/* Empties the buffer, keeps its memory, forgets an error. */
static inline void sm_buf_clear(sm_buf *b)
{
    b->len = 0;
    b->err = SM_OK;
}

/* Makes room for `n` more bytes; false on failure. */
bool sm_buf_grow(sm_buf *b, size_t n);

static inline bool sm_buf_reserve(sm_buf *b, size_t n)
{
    return b->cap - b->len >= n || sm_buf_grow(b, n);
}

static inline void sm_buf_byte(sm_buf *b, char c)
{
    if (sm_buf_reserve(b, 1))
        b->p[b->len++] = c;
}

static inline void sm_buf_bytes(sm_buf *b, const void *p, size_t n)
{
    if (n == 0 || !sm_buf_reserve(b, n))
        return;
    memcpy(b->p + b->len, p, n);
    b->len += n;
}

/* Decimal digits. */
void sm_buf_number(sm_buf *b, uint64_t v);

void sm_buf_printf(sm_buf *b, const char *format, ...) __attribute__((format(printf, 2, 3)));

static inline void sm_buf_str(sm_buf *b, sm_str s)
{
    sm_buf_bytes(b, s.p, s.n);
}

static inline void sm_buf_text(sm_buf *b, const char *text)
{
    sm_buf_bytes(b, text, strlen(text));
}

/* What was written, borrowed until the next append. */
static inline sm_str sm_buf_view(const sm_buf *b)
{
    return (sm_str){b->p, b->len};
}

#endif
