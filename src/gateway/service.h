/*
 * A gateway as a service: started, told about by log lines and to systemd, reloaded and ended by
 * signals.
 */
#ifndef SM_GATEWAY_SERVICE_H
#define SM_GATEWAY_SERVICE_H

#include "gateway/gateway.h"

/* Holds back the signals that a service is steered by. Before any thread is started: threads
 * inherit it. */
void gw_service_hold(void);

/* Starts a gateway and logs where it listens. */
sm_err gw_service_start(const gw_config *config, sm_str contract_text, gateway **out,
                        sm_fault *fault);

/* Serves until SIGTERM or SIGINT: SIGHUP reads contracts and tokens again. Ends the gateway. */
void gw_service_run(gateway *g);

#endif
