/* Base64 with padding (RFC 4648 section 4): how bytes that are no text travel in JSON. */
#ifndef SM_BASE_BASE64_H
#define SM_BASE_BASE64_H

#include <stdbool.h>

#include "base/buf.h"

/* How many characters `n` bytes become. */
static inline size_t sm_base64_size(size_t n)
{
    return (n + 2) / 3 * 4;
}

void sm_base64_put(sm_buf *out, sm_str bytes);

/* Appends the bytes that a text stands for. False, and nothing appended, unless the text is exactly
 * one that sm_base64_put writes; a buffer that cannot take the bytes remembers that as usual. */
bool sm_base64_take(sm_buf *out, sm_str text);

#endif
