/* A borrowed run of bytes. It owns nothing, is not NUL-terminated, and may hold NUL bytes. */
#ifndef SM_BASE_STR_H
#define SM_BASE_STR_H

#include <string.h>

#include "semel/types.h"

typedef semel_str sm_str;

/* A string literal as an sm_str, and the two arguments of a "%.*s". */
#define SM_STR(literal) ((sm_str){(literal), sizeof(literal) - 1})
#define SM_FMT(s)       (int)(s).n, (s).p

static inline sm_str sm_str_from(const char *text)
{
    return (sm_str){text, text == NULL ? 0 : strlen(text)};
}

static inline bool sm_str_eq(sm_str a, sm_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool sm_str_is(sm_str a, const char *text)
{
    return sm_str_eq(a, sm_str_from(text));
}

/* The value of a hexadecimal digit; -1 if it is not one. */
static inline int sm_hex_digit(char c)
{
    return c >= '0' && c <= '9'                     ? c - '0'
           : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                    : -1;
}

/* ASCII only, whatever the locale. */
static inline bool sm_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static inline bool sm_is_alpha(char c)
{
    char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'z';
}

#endif
