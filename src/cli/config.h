/* The gateway's configuration, as commands get it. */
#ifndef SM_CLI_CONFIG_H
#define SM_CLI_CONFIG_H

#include "cli/cli.h"
#include "gateway/gateway.h"

/* Reads a configuration, or gives the built-in one if the path is NULL. What is wrong with it is in
 * `report`, which is to be released in any case; other failures are explained. Returns the exit
 * code. */
int cli_config_load(const char *path, gw_config **out, sm_report *report);

/* The same, printing the errors. */
int cli_config_read(const char *path, gw_config **out);

/* Starts a gateway as a service. Explains a failure, on the log if that is JSON, and returns the
 * exit code. */
int cli_config_start(const gw_config *c, sm_str contract_text, gateway **out);

/* For the built-in configuration: if its port is taken, the next one that is free. Explains a
 * failure and returns the exit code. */
int cli_config_free_port(gw_config *c);

#endif
