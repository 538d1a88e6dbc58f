/* What people decide about an effect. */
#include "gateway/gateway.h"

void gw_on_approve(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_deny(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_cancel(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_resolve(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}

void gw_on_forget(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
