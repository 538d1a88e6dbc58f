/* Whether the gateway lives and works, and the document that describes its API. */
#include "gateway/gateway.h"

void gw_on_health(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_ready(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_openapi(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
