/*
 * Writing objects and lists, one member after the other.
 *
 * What was written last says whether a comma is due, so there is nothing to keep but the buffer:
 * none is due behind an opening bracket, nor at the start of the buffer. Brackets are the caller's.
 */
#ifndef SM_JSON_WRITE_H
#define SM_JSON_WRITE_H

#include "base/digest.h"
#include "json/canon.h"

/* The name of an object's next member, whose value the caller writes. It needs no escapes. */
void sm_put_name(sm_buf *out, const char *name);

/* The same, with the bracket or quote that its value starts with. */
void sm_put_open(sm_buf *out, const char *name, char opening);

/* Before the next element of a list. */
void sm_put_item(sm_buf *out);

/* A member and its value. A text that is absent, a raw value that is empty and the time 0 are left
 * out. */
void sm_put_text(sm_buf *out, const char *name, sm_str text);
void sm_put_raw(sm_buf *out, const char *name, sm_str json);
void sm_put_number(sm_buf *out, const char *name, uint64_t value);
void sm_put_signed(sm_buf *out, const char *name, int64_t value);
void sm_put_bool(sm_buf *out, const char *name, bool value);
void sm_put_hash(sm_buf *out, const char *name, const sm_hash *hash);
void sm_put_stamp(sm_buf *out, const char *name, int64_t ms); /* as RFC 3339 has it */

#endif
