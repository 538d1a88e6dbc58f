/*
 * What the commands share: exit codes, messages, reading input, and the table of commands.
 *
 * Data goes to stdout and talk to stderr. What a command prints is put together first: a failure
 * leaves stdout empty.
 */
#ifndef SM_CLI_CLI_H
#define SM_CLI_CLI_H

#include <getopt.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "core/contract.h"

/* As in sysexits.h. What the ledger refuses has the exit codes of semel_code_exit. */
enum {
    CLI_OK = 0,
    CLI_DIFFERENT = 1, /* what diff(1) says when its files differ; something was found */
    CLI_USAGE = 64,
    CLI_DATA = 65,
    CLI_NO_INPUT = 66,
    CLI_UNAVAILABLE = 69,
    CLI_INTERNAL = 70,
    CLI_IO = 74,
    CLI_TRY_AGAIN = 75,
};

typedef struct cli_command {
    const char *name; /* one word, or two such as "contract check" */
    const char *summary;
    const char *help; /* examples first */
    int (*run)(const struct cli_command *self, int argc, char **argv);
    const struct cli_ledger_use *ledger; /* what it does with one: cli/ledger.h */
} cli_command;

extern const cli_command cli_canon, cli_key, cli_diff;
extern const cli_command cli_run;
extern const cli_command cli_contract_check, cli_contract_show, cli_contract_diff,
    cli_contract_preset;
extern const cli_command cli_begin, cli_commit, cli_renew;
extern const cli_command cli_list, cli_show;
extern const cli_command cli_scope_list, cli_scope_show, cli_scope_reset, cli_spend;
extern const cli_command cli_stop, cli_resume;
extern const cli_command cli_approve, cli_deny, cli_cancel, cli_resolve, cli_forget;
extern const cli_command cli_audit_tail, cli_audit_verify, cli_audit_export, cli_audit_seal;
extern const cli_command cli_export, cli_import, cli_purge, cli_stats;
extern const cli_command cli_doctor, cli_doctor_mcp;
extern const cli_command cli_store_check, cli_store_migrate;
extern const cli_command cli_serve, cli_token_create, cli_token_list, cli_token_revoke;
extern const cli_command cli_mcp;
extern const cli_command cli_scope_undo;
extern const cli_command cli_demo;

/* What the program does without arguments: the gateway, with something to try. `program` is how
 * it was called. */
int cli_first_screen(const char *program);

/* Prints "semel: ..." and returns the code. */
int cli_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Prints what is wrong with the command line and how to get help; returns CLI_USAGE. */
int cli_usage(const cli_command *self, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Entries of a table of options whose values go into the structure that a command keeps: a text
 * into a const char *, the presence of an option into a bool. */
#define CLI_TEXT(name, type, member)                                                               \
    {                                                                                              \
        name, required_argument, NULL, CLI_AT + (int)offsetof(type, member)                        \
    }
#define CLI_FLAG(name, type, member)                                                               \
    {                                                                                              \
        name, no_argument, NULL, CLI_AT + (int)offsetof(type, member)                              \
    }
#define CLI_AT 4096 /* other entries have smaller numbers */

/* getopt_long for a command, with long options only: what is wrong has been explained when it
 * returns '?'. On --help it prints the help and returns 'h'; the command should then return CLI_OK.
 * Values that go into the structure `own` are put there, and the option after them is returned. */
int cli_option(const cli_command *self, int argc, char **argv, const struct option *options,
               void *own);

/* The same, with some short options beside, in the notation of getopt. */
int cli_option_short(const cli_command *self, int argc, char **argv, const char *letters,
                     const struct option *options, void *own);

/* An option's value, absent if it was not given. */
static inline sm_str cli_opt(const char *text)
{
    return text == NULL ? (sm_str){0} : sm_str_from(text);
}

/* Prints a command's help. */
void cli_print_help(const cli_command *command);

/* The exit code that an error calls for. */
int cli_code(sm_err e);

/* Prints a fault about a named input, with its position if it has one; returns the exit code. */
int cli_fault(const char *input, const sm_fault *fault);

/* Reads a file, or stdin if the path is NULL or "-", up to `limit` bytes and one more. Explains a
 * failure and returns the exit code. */
int cli_read(const char *path, size_t limit, sm_buf *out);

/* The same, but of a larger input its start is good enough; *more says that there was more. */
int cli_read_start(const char *path, size_t limit, sm_buf *out, bool *more);

/* What to call an input in messages. */
const char *cli_input_name(const char *path);

/* Reads a JSON document from a file or stdin, or from `text` if that is not NULL. `bytes` keeps its
 * text and `canonical` gets its canonical form; a document without one is refused. Both buffers are
 * to be released in any case. Explains a failure and returns the exit code. */
int cli_read_json(const char *path, const char *text, sm_arena *a, sm_buf *bytes, sm_buf *canonical,
                  const sm_json **out);

/* Reads a contract file. What is wrong with it is in `report`, which is to be released in any case;
 * other failures are explained. Returns the exit code. */
int cli_load_contracts(const char *path, sm_contracts **out, sm_report *report);

/* The same, printing the errors; NULL as the path gives the contracts of no file. */
int cli_read_contracts(const char *path, sm_contracts **out);

/* The same, keeping the text, which is to be released in any case. */
int cli_read_contract_text(const char *path, sm_buf *text);

/* Prints findings the way compilers do. */
void cli_print_report(const char *path, const sm_report *report, bool warnings);

/* Text with control characters, those that reorder text, and what is not UTF-8 made visible. */
void cli_put(sm_buf *out, sm_str text);
void cli_print(FILE *to, sm_str text);

/* Writes a finished output; explains if it could not be made, and returns the exit code. */
int cli_write(const sm_buf *out);

/* Escape sequences if the stream is a terminal that wants them, else "". */
typedef enum cli_style { CLI_PLAIN, CLI_BOLD, CLI_DIM, CLI_RED, CLI_YELLOW, CLI_GREEN } cli_style;
const char *cli_color(FILE *to, cli_style style);

/* Flushes stdout; CLI_IO, explained, if something could not be written, else `code`. */
int cli_done(int code);

#endif
