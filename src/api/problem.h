/*
 * Problems (RFC 9457) as text: what refusals look like in the JSON language. They have a status,
 * which is that of HTTP.
 */
#ifndef SM_API_PROBLEM_H
#define SM_API_PROBLEM_H

#include "base/buf.h"
#include "semel/semel.h"

/* The HTTP status of a code. */
int sm_problem_status(semel_code code);

/* Bounds for a buffer: what a problem needs at most, and what a ledger's refusal does. It may have
 * the recorded outcome in it: of a call that is blocked because it is repeated, so that nothing is
 * lost. */
#define SM_PROBLEM_BYTES ((size_t)64 << 10)
size_t sm_problem_bytes(const semel_answer *a);

/* Of a ledger's refusal: type, title, status, detail, and the fields code, retriable,
 * retry_after_ms, message, corrective_action, effect. */
void sm_problem_of_answer(sm_buf *out, int status, const semel_answer *a);

/* Of a door's own. `advice` may be absent. Whether and when to try again follows from the code:
 * returns retry_after_ms, 0: not at a certain time. */
int64_t sm_problem_own(sm_buf *out, int status, const char *code, sm_str message, sm_str advice);

/* The same, of what is known; retry_after_ms 0: no advice. */
void sm_problem_put(sm_buf *out, int status, const char *code, bool retriable,
                    int64_t retry_after_ms, sm_str message, sm_str advice);

/* What follows from a code's name alone: whether the same request may succeed later. */
bool sm_problem_retriable(const char *code);

/* A member of a problem. Bytes that are not UTF-8 do not make it unreadable. */
void sm_problem_text(sm_buf *out, const char *name, sm_str text);

#endif
