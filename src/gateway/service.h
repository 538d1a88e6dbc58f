/*
 * A gateway as a service: started, told about by log lines and to systemd, reloaded and ended by
 * signals.
 */
#ifndef SM_GATEWAY_SERVICE_H
#define SM_GATEWAY_SERVICE_H

#include "cli/cli.h"
#include "gateway/gateway.h"

/* Holds back the signals that a service is steered by. Before any thread is started: threads
 * inherit it. */
void cli_service_hold(void);

/* Starts a gateway. Explains a failure and returns the exit code. */
int cli_service_start(const gw_config *config, sm_str contract_text, gateway **out);

/* Serves until SIGTERM or SIGINT: SIGHUP reads contracts and tokens again. Ends the gateway. */
int cli_service_run(gateway *g);

#endif
