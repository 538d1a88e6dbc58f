/* POST /v1/call. */
#include "gateway/gateway.h"

void gw_on_call(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
