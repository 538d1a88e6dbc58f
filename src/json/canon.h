/*
 * The canonical form: RFC 8785, with exact integers (see number.h).
 *
 * Equal JSON values give equal bytes and different values different bytes, integers compared
 * exactly and fractions as doubles (I10). The canonical form of a canonical text is itself.
 */
#ifndef SM_JSON_CANON_H
#define SM_JSON_CANON_H

#include "base/buf.h"
#include "json/json.h"

/* Appends the canonical bytes of `v`. SEMEL_E_RANGE if a number's nearest double is not finite,
 * with the position in `fault` (may be NULL) relative to `source`, the text that the document was
 * read from; SEMEL_E_LIMIT or SEMEL_E_NOMEM if the buffer cannot take them. What was appended
 * before a failure stays in the buffer. */
sm_err sm_json_canon(const sm_json *v, sm_buf *out, sm_str source, sm_fault *fault);

/* Appends one JSON string literal with minimal escapes. Bytes of `s` that are not UTF-8, such as
 * half a character at the end of a cut text, become U+FFFD, so that the output is always valid. */
void sm_json_put_string(sm_buf *out, sm_str s);

#endif
