/* Problems (RFC 9457) as text: what a refusal looks like over HTTP. */
#ifndef SM_GATEWAY_HTTP_PROBLEM_H
#define SM_GATEWAY_HTTP_PROBLEM_H

#include "base/buf.h"
#include "semel/semel.h"

/*
 * An API behind the gateway has clients that know nothing of Semel. They take a status of 2xx for
 * success, and some look for an object `error` and for nothing else. So under /proxy/, and at an
 * address of a proxy's own, a problem has another status, and that object beside the other members.
 */
int gw_proxied_status(int status);
void gw_problem_add_error(sm_buf *out, const char *code, sm_str message, sm_str advice);

/* Whether a refusal has the recorded outcome in it: of a call that is blocked because it is
 * repeated, so that nothing is lost. */
bool gw_problem_has_outcome(const semel_answer *a);

/* Of a ledger's refusal. */
void gw_problem_of_answer(sm_buf *out, int status, const semel_answer *a);

/* Of the gateway's own. `advice` may be absent; retry_after_ms 0: no advice. */
void gw_problem_put(sm_buf *out, int status, const char *code, bool retriable,
                    int64_t retry_after_ms, sm_str message, sm_str advice);

/* What follows from a code's name alone: whether the same request may succeed later. */
bool gw_problem_retriable(const char *code);

#endif
