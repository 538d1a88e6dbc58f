/* GET /v1/stream: events as they come. */
#include "gateway/gateway.h"

void gw_on_stream(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
