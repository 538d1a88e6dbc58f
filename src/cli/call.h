/* The options that describe a call, for the commands that take one. */
#ifndef SM_CLI_CALL_H
#define SM_CLI_CALL_H

#include "cli/cli.h"

typedef struct cli_given_call {
    const char *tool, *scope, *step, *key, *args, *args_file;
} cli_given_call;

/* Entries of a table of options, for the member of this type. */
#define CLI_CALL_OPTIONS(type, member)                                                             \
    CLI_TEXT("tool", type, member.tool), CLI_TEXT("scope", type, member.scope),                    \
        CLI_TEXT("step", type, member.step), CLI_TEXT("key", type, member.key),                    \
        CLI_TEXT("args", type, member.args), CLI_TEXT("args-file", type, member.args_file)

/* What is said of a word that is no option. */
#define CLI_CALL_HINT "arguments go into --args"

/* Whether they go together; explains what does not, and returns the exit code. */
int cli_call_check(const cli_command *self, const cli_given_call *o);

/* The scope that was given, or the default one. */
sm_str cli_call_scope(const char *given);

#endif
