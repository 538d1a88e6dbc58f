/* Patterns for tool names: * stands for any run of characters, ? for any one byte. */
#ifndef SM_CORE_GLOB_H
#define SM_CORE_GLOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/str.h"

/* Whether a name has * or ? in it. */
bool sm_glob_is(sm_str name);

/* Characters that stand for themselves. */
uint32_t sm_glob_literals(sm_str pattern);

bool sm_glob_matches(sm_str pattern, sm_str name);

/* Whether every name that matches `inner` surely matches `outer`; false if that is not sure. */
bool sm_glob_covers(sm_str outer, sm_str inner);

/* Whether some name matches both patterns. Both at most SM_TOOL_MAX bytes. */
bool sm_glob_meet(sm_str a, sm_str b);

#endif
