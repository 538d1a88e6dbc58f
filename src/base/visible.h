/* Text from outside, made harmless for terminals and logs. */
#ifndef SM_BASE_VISIBLE_H
#define SM_BASE_VISIBLE_H

#include "base/buf.h"

/* Appends text in which control characters, those that reorder text, and what is not UTF-8 are
 * written out (\x0A, \u202E). What is appended is valid UTF-8 of one line. */
void sm_visible_put(sm_buf *out, sm_str text);

#endif
