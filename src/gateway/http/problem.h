/* Problems (api/problem.h) for the clients of an API behind the gateway. */
#ifndef SM_GATEWAY_HTTP_PROBLEM_H
#define SM_GATEWAY_HTTP_PROBLEM_H

#include "base/buf.h"

/*
 * An API behind the gateway has clients that know nothing of Semel. They take a status of 2xx for
 * success, and some look for an object `error` and for nothing else. So under /proxy/, and at an
 * address of a proxy's own, a problem has another status, and that object beside the other members.
 */
int gw_proxied_status(int status);
void gw_problem_add_error(sm_buf *out, const char *code, sm_str message, sm_str advice);

#endif
