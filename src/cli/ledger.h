/*
 * What the commands that work with a ledger share: its options, opening it, and printing answers.
 *
 * A command opens the ledger only after its command line has been understood: wrong use touches
 * nothing.
 */
#ifndef SM_CLI_LEDGER_H
#define SM_CLI_LEDGER_H

#include "cli/cli.h"
#include "cli/table.h"
#include "semel/semel.h"

typedef struct cli_ledger_options {
    const char *url, *contract, *seal_key;
    bool json;
} cli_ledger_options;

enum { CLI_O_LEDGER = 256, CLI_O_CONTRACT, CLI_O_SEAL_KEY, CLI_O_JSON };

/* Entries of a command's table of options, and what its help says about them. */
#define CLI_LEDGER_OPTIONS                                                                         \
    {"ledger", required_argument, NULL, CLI_O_LEDGER},                                             \
        {"seal-key", required_argument, NULL, CLI_O_SEAL_KEY},                                     \
        {"json", no_argument, NULL, CLI_O_JSON},                                                   \
    {                                                                                              \
        "help", no_argument, NULL, 'h'                                                             \
    }

#define CLI_CONTRACT_HELP                                                                          \
    "  --contract FILE          what is declared about tools; else SEMEL_CONTRACT, else nothing\n"
#define CLI_JSON_HELP "  --json                   the answer as one JSON object\n"
#define CLI_LEDGER_HELP                                                                              \
    "  --ledger URL             sqlite:PATH, postgres://..., redis://...; else SEMEL_LEDGER, else\n" \
    "                           the user's own ledger\n"                                             \
    "  --seal-key FILE          keys the seals of the audit trail; else SEMEL_SEAL_KEY_FILE\n"

typedef struct cli_ledger {
    cli_ledger_options o;
    char **command; /* what stands behind "--", if the command takes that; NULL: nothing */
    unsigned flags; /* CLI_..., beside those of its use: `check` may set them */
    semel *s;
    semel_answer *a;
    sm_buf contract;
    sm_buf read[2]; /* what the command has read, if anything */
    sm_buf out;     /* what it prints when it is done */
} cli_ledger;

enum {
    CLI_MAKES = 1,    /* a ledger is made where there is none */
    CLI_CONTRACT = 2, /* the command takes --contract */
    CLI_STAYS = 4,    /* it is kept open: leases are renewed, and the rest is done beside it */
};

/* What a command does with a ledger. Its functions return an exit code, explained; the first that
 * is not CLI_OK is the end. */
typedef struct cli_ledger_use {
    void *own; /* what the command keeps for itself, which is given to them */

    const struct option *table; /* with CLI_LEDGER_OPTIONS; NULL: those alone */
    const char *letters;        /* short options, in the notation of getopt; NULL: none */

    /* An option that does not just go into `own`. */
    int (*option)(const cli_command *self, int c, void *own);

    const char *argument; /* what it takes beside options, for messages; NULL: nothing */
    bool required;        /* the argument is */
    bool command;         /* another program's command line may follow behind "--" */
    const char *hint;     /* for whoever gives it an argument that it does not take; NULL: none */

    /* The whole command line, before there is a ledger. NULL: it is right. */
    int (*check)(const cli_command *self, cli_ledger *l, const char *argument, void *own);

    unsigned flags; /* how the ledger is opened */
    int (*work)(cli_ledger *l, void *own);
} cli_ledger_use;

/* Runs a command by its use of a ledger: reads the command line, opens, works, prints, closes. */
int cli_ledger_run(const cli_command *self, int argc, char **argv);

/* The value of --ledger. That of a server is taken out of the command line, where other users could
 * read its password. */
const char *cli_ledger_take(char *given);

/* The URL that was given, or that of the environment; NULL: the user's own ledger. */
const char *cli_ledger_url(const char *given);

/* Explains that --ledger was given and is empty; returns the exit code. */
int cli_ledger_nameless(void);

/* Opens the ledger that l->o names, for one thing unless it stays. Explains a failure and returns
 * the exit code; the ledger is to be closed in any case. */
int cli_ledger_open(cli_ledger *l, unsigned flags);
void cli_ledger_close(cli_ledger *l);

/* Explains an error of a function that gives no answer; returns the exit code. A ledger that cannot
 * be used and one that is damaged are both LEDGER_UNAVAILABLE. */
int cli_ledger_fault(semel_err e, const semel_fault *fault);

/* The same where nothing was printed yet: --json gets a refusal to read. */
int cli_ledger_unavailable(const cli_ledger *l, semel_err e, const semel_fault *fault);

/* The warning of an answer, if it has one, on stderr. */
void cli_warn(const semel_answer *a);

/* Prints the answer in l->a and returns the exit code. `e` is what the call returned. A refusal is
 * explained on stderr, and a warning is told there.
 *
 * `done` is the first line for people when the answer is not a refusal; NULL: the verdict, which is
 * printed for refusals too. */
int cli_answer(cli_ledger *l, semel_err e, const char *done);

/* The rows of an answer's outcome. */
void cli_put_outcome(sm_buf *out, const semel_outcome *outcome);

/* A size as people read it. */
#define CLI_SIZE_TEXT 40
void cli_size_text(uint64_t bytes, char out[CLI_SIZE_TEXT]);

/* The colour of a state. */
cli_style cli_state_style(semel_state s);

/* Whether a text starts like a handle with this prefix, "ef_" for one. */
bool cli_is_handle(const char *text, const char *prefix);

/* A duration of the command line; "0" needs no unit, and forever is a hundred years. */
bool cli_duration(const char *text, int64_t *ms);

/* The value of --since: how long ago, or a time. Explains what is wrong and returns the exit code.
 */
int cli_since(const cli_command *self, const char *text, int64_t *since);

/* A whole number in [1, most]. */
bool cli_number(const char *text, uint64_t most, uint64_t *out);

/* The buffer that a command prints from. */
#define CLI_OUTPUT_MAX ((size_t)1 << 30)

#endif
