/*
 * Names as lenient readers compare them.
 *
 * Readers of JSON disagree on when a member's name is the one they look for. Go's encoding/json
 * ignores case, by Unicode's simple folding (so U+017F is s and U+212A is k). encoding/json/v2 can
 * also ignore underscores and dashes. Models of Python take protocol_version for protocolVersion,
 * and meta for _meta. Java compares in capitals and in lowercase, where both dotless and dotted i
 * are i. Readers in C stop at a NUL, and others drop what they cannot decode.
 *
 * So two names are alike here if any of these could take one for the other: letters in lowercase,
 * without underscores, dashes, blanks, control and invisible characters, and halves of surrogate
 * pairs.
 */
#ifndef SM_BASE_FOLD_H
#define SM_BASE_FOLD_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* The folded form of a code point (also of half a surrogate pair); 0 if it does not count. */
uint32_t sm_fold(uint32_t cp);

/* The folded form of the next code point of a valid UTF-8 text that counts; 0 at the end. `joints`:
 * underscores and dashes count. */
uint32_t sm_fold_next(sm_str *rest, bool joints);

/* Whether two valid UTF-8 texts are alike. Equal ones are. */
bool sm_fold_alike(sm_str a, sm_str b);

/* The same, but underscores and dashes count. For names that users choose: `id` and `_id` are two
 * arguments. */
bool sm_fold_alike_word(sm_str a, sm_str b);

#endif
