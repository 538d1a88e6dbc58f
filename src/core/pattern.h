/*
 * Regular expressions of a contract: POSIX extended, compiled once, bounded.
 *
 * What a hostile value could make expensive is refused when the contract is read: back-references,
 * long expressions, and repeat counts that multiply beyond SM_PATTERN_REPEAT_MAX. Matching is
 * bytewise and does not depend on the locale.
 */
#ifndef SM_CORE_PATTERN_H
#define SM_CORE_PATTERN_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"

typedef struct sm_pattern sm_pattern;

/* Compiles into the arena; `whole` means that a value must match from its start to its end. The
 * compiled part is the C library's: hand the pattern to sm_pattern_fini before the arena goes.
 * SM_E_SYNTAX or SM_E_LIMIT with a sentence. */
sm_err sm_pattern_new(sm_arena *a, sm_str text, bool whole, sm_pattern **out, sm_fault *fault);
void sm_pattern_fini(sm_pattern *p);

bool sm_pattern_matches(const sm_pattern *p, sm_str value);

/* Patterns made for one contract file, so that they can be released together. */
sm_pattern *sm_pattern_chain(sm_pattern *p, sm_pattern *rest); /* returns p */
void sm_pattern_fini_all(sm_pattern *first);

#endif
