/* /proxy/NAME/...: any HTTP API behind the ledger. */
#include "gateway/gateway.h"

void gw_on_proxy(gw_request *r)
{
    gw_problem(r, 501, "NO_ROUTE", NULL, "not built yet");
}
