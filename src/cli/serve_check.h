/*
 * What is looked at before a gateway starts, or instead (semel serve --check): the files that its
 * configuration names, and the variables that they need.
 *
 * For people it is told the way compilers do; to a log that is JSON, a line each.
 */
#ifndef SM_CLI_SERVE_CHECK_H
#define SM_CLI_SERVE_CHECK_H

#include "cli/cli.h"
#include "gateway/log.h"

/* The warning if nobody could use the gateway, and the command against it, to which a file is
 * added. */
#define CLI_NO_TOKENS  "there are no tokens yet, so nobody can call anything"
#define CLI_MAKE_TOKEN "semel token create --role admin --tokens "

/* Tells the findings about a file. `log` NULL: to people. */
void cli_tell_findings(const gw_log *log, const char *message, const char *file, sm_report *report);

/* Tells everything that is wrong; returns the exit code. */
int cli_serve_check(const gw_config *c);

/* Tells what would keep the gateway from starting, and returns the exit code. What only some calls
 * need goes to the log as a warning. `log` NULL: the errors are for people. */
int cli_serve_ready(const gw_config *c, const gw_log *log);

#endif
