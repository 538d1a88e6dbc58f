/* Requests that ask for another path or method than they have. */
#ifndef SM_GATEWAY_PROXY_OVERRIDE_H
#define SM_GATEWAY_PROXY_OVERRIDE_H

#include "gateway/inside/gateway.h"

/* Whether the request asks for another path than its own, which no request may. */
bool gw_asks_other_path(const gw_request *r);

/* Whether a request that only reads asks for another method: it would go around the ledger. `args`
 * are its arguments, for what its body says; NULL if it has no body. */
bool gw_asks_other_method(const gw_request *r, sm_arena *a, const sm_json *args);

#endif
