/* GET /v1/effects and what is below it, /v1/approvals, /v1/tools. */
#include "gateway/gateway.h"

void gw_on_effects(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_effect(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_events(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_approvals(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_tools(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
