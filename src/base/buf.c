/* Growth by doubling, and the appends that are too large to inline. */
#include "base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void sm_buf_init(sm_buf *b, size_t limit)
{
    *b = (sm_buf){.limit = limit};
}

void sm_buf_fini(sm_buf *b)
{
    free(b->p);
    *b = (sm_buf){0};
}

bool sm_buf_grow(sm_buf *b, size_t n)
{
    if (b->err != SM_OK)
        return false;
    if (n > b->limit - b->len) {
        b->err = SEMEL_E_LIMIT;
        return false;
    }
    size_t cap = b->cap == 0 ? 256 : b->cap;
    while (cap - b->len < n)
        cap = cap > b->limit / 2 ? b->limit : cap * 2;
    if (cap > b->limit)
        cap = b->limit;
    char *p = realloc(b->p, cap);
    if (p == NULL) {
        b->err = SEMEL_E_NOMEM;
        return false;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

void sm_buf_number(sm_buf *b, uint64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    do
        digits[--at] = (char)('0' + v % 10);
    while ((v /= 10) != 0);
    sm_buf_bytes(b, digits + at, sizeof digits - at);
}

void sm_buf_printf(sm_buf *b, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = b->cap - b->len;
    int n = vsnprintf(room == 0 ? NULL : b->p + b->len, room, format, args);
    va_end(args);
    bool fits = n > 0 && (size_t)n < room;
    if (!fits && n > 0 && sm_buf_reserve(b, (size_t)n + 1)) {
        vsnprintf(b->p + b->len, (size_t)n + 1, format, again);
        fits = true;
    }
    if (fits)
        b->len += (size_t)n;
    va_end(again);
}
