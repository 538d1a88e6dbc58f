/* Taking what describes a call from the command line. */
#include "cli/call.h"

int cli_call_check(const cli_command *self, const cli_given_call *o)
{
    if (o->tool == NULL)
        return cli_usage(self, "--tool is missing");
    if (o->args != NULL && o->args_file != NULL)
        return cli_usage(self, "--args and --args-file exclude each other");
    return CLI_OK;
}

sm_str cli_call_scope(const char *given)
{
    return given == NULL ? SM_STR("default") : sm_str_from(given);
}
