/* A gateway as a whole: started, reloaded, stopped. */
#ifndef SM_GATEWAY_GATEWAY_H
#define SM_GATEWAY_GATEWAY_H

#include "gateway/config.h"
#include "gateway/log.h"
#include "gateway/tokens.h"

typedef struct gateway gateway;

/* Opens the ledger and everything above it, and listens. On failure *out is NULL. `contract_text`
 * is used if the configuration names no file; absent: none. */
sm_err gw_start(const gw_config *config, sm_str contract_text, gateway **out, sm_fault *fault);

/* The address that listener number `i` really has, such as http://127.0.0.1:8787. */
sm_str gw_address(const gateway *g, uint32_t i);

/* Tokens and then contracts are read again, each all or nothing. On failure *stays says what is as
 * before; what is wrong with a contract is in the log. */
sm_err gw_reload(gateway *g, const char **stays, sm_fault *fault);

/* No new work from now on; waits up to the configured time for what is under way, then stops.
 * What has not ended is left as a claim, and is in doubt for whoever looks next. Accepts NULL. */
void gw_stop(gateway *g);

/* Its parts that whoever started it may use while it runs. */
const gw_log *gw_log_of(const gateway *g);
gw_tokens *gw_tokens_of(gateway *g);

#endif
