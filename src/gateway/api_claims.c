/* POST /v1/begin, /v1/commit and /v1/renew: for agents that execute their tools themselves. */
#include "gateway/gateway.h"

void gw_on_begin(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_commit(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_renew(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
