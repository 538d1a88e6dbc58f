/*
 * Regular expressions of a contract: POSIX extended, compiled once, bounded.
 *
 * The C library's matcher can take quadratic time in the value, and exponential time in some
 * expressions. So expressions with back-references, repeats nested more than SM_PATTERN_NEST_MAX
 * deep or repeat counts that multiply beyond SM_PATTERN_REPEAT_MAX are refused when the contract is
 * read, and values longer than SM_MATCH_MAX are not matched at all. Matching is bytewise, in the C
 * locale whatever the program's is.
 */
#ifndef SM_CORE_PATTERN_H
#define SM_CORE_PATTERN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

typedef struct sm_pattern sm_pattern;

/* Compiles into the arena; `whole` means that a value must match from its start to its end. The
 * compiled part is the C library's: hand the pattern to sm_pattern_fini_all before the arena goes.
 * SEMEL_E_SYNTAX or SEMEL_E_LIMIT with a sentence. */
sm_err sm_pattern_new(sm_arena *a, sm_str text, bool whole, sm_pattern **out, sm_fault *fault);

/* Whether a value can be matched: it is not too long, and has no NUL, past which a POSIX pattern
 * cannot see. */
bool sm_pattern_can(sm_str value);

/* False for a value that cannot be matched. */
bool sm_pattern_matches(const sm_pattern *p, sm_str value);

/* Patterns made for one contract file, so that they can be released together. */
sm_pattern *sm_pattern_chain(sm_pattern *p, sm_pattern *rest); /* returns p */
void sm_pattern_fini_all(sm_pattern *first);

#endif
