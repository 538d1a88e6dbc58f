/* An HTTP API behind the ledger; its handler is gw_on_proxy. */
#ifndef SM_GATEWAY_PROXY_PROXY_H
#define SM_GATEWAY_PROXY_PROXY_H

#include "gateway/inside/gateway.h"

/* Answers a request that could not be made into one for the upstream. */
void gw_proxy_refuse(gw_request *r, sm_err e, const sm_fault *fault);

#endif
