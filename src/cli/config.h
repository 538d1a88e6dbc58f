/* The gateway's configuration, as commands get it. */
#ifndef SM_CLI_CONFIG_H
#define SM_CLI_CONFIG_H

#include "cli/cli.h"
#include "gateway/config.h"

/* Reads a configuration, or gives the built-in one if the path is NULL. What is wrong with it is
 * printed; warnings too, if wanted. Returns the exit code. */
int cli_config_read(const char *path, bool warnings, gw_config **out);

/* For the built-in configuration: if its port is taken, the next one that is free. Explains a
 * failure and returns the exit code. */
int cli_config_free_port(gw_config *c);

#endif
