/* semel: dispatch to the commands, and the help that lists them. */
#include <signal.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"

/* In the order of the overview; a title starts a group. */
static const struct entry {
    const char *title;
    const cli_command *command;
} commands[] = {
    {"Do something once", &cli_run},
    {NULL, &cli_begin},
    {NULL, &cli_commit},
    {NULL, &cli_renew},
    {"See what happened", &cli_list},
    {NULL, &cli_show},
    {NULL, &cli_scope_list},
    {NULL, &cli_scope_show},
    {NULL, &cli_spend},
    {NULL, &cli_audit_tail},
    {NULL, &cli_stats},
    {"Decide", &cli_approve},
    {NULL, &cli_deny},
    {NULL, &cli_cancel},
    {NULL, &cli_resolve},
    {NULL, &cli_forget},
    {NULL, &cli_stop},
    {NULL, &cli_resume},
    {NULL, &cli_scope_reset},
    {NULL, &cli_scope_undo},
    {"Keep a ledger", &cli_doctor},
    {NULL, &cli_doctor_mcp},
    {NULL, &cli_audit_verify},
    {NULL, &cli_audit_seal},
    {NULL, &cli_audit_export},
    {NULL, &cli_export},
    {NULL, &cli_import},
    {NULL, &cli_purge},
    {NULL, &cli_store_check},
    {NULL, &cli_store_migrate},
    {"Serve MCP clients", &cli_mcp},
    {"Serve many agents", &cli_serve},
    {NULL, &cli_token_create},
    {NULL, &cli_token_list},
    {NULL, &cli_token_revoke},
    {"Calls, keys and contracts", &cli_key},
    {NULL, &cli_diff},
    {NULL, &cli_canon},
    {NULL, &cli_contract_check},
    {NULL, &cli_contract_show},
    {NULL, &cli_contract_diff},
    {NULL, &cli_contract_preset},
    {"This program", &cli_demo},
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static void print_line(FILE *to, const char *name, const char *summary)
{
    fprintf(to, "  semel %-16s %s\n", name, summary);
}

static void print_overview(void)
{
    const char *bold = cli_color(stdout, CLI_BOLD), *plain = cli_color(stdout, CLI_PLAIN);
    printf("%sSemel%s makes an agent's tool calls safe to retry: the side effect happens once.\n",
           bold, plain);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (commands[i].title != NULL)
            printf("\n%s%s%s\n", bold, commands[i].title, plain);
        if (commands[i].command == &cli_serve)
            print_line(stdout, "", "a gateway on this machine, with something to try");
        print_line(stdout, commands[i].command->name, commands[i].command->summary);
    }
    print_line(stdout, "help [COMMAND]", "how to use a command");
    print_line(stdout, "--version", "which version this is");
    printf(
        "\nExit codes: 0 done, 1 something differs or was found, 64 wrong use, 65 bad data or a\n"
        "conflict, 66 not found, 69 unavailable, 70 internal error, 73 done already, 74 input or\n"
        "output failed, 75 try again later, 76 in doubt, 77 not allowed.\n");
}

/* The command that the arguments begin with; *words says how many they were. One of two words goes
 * before the one that is its first word. */
static const cli_command *find_command(int argc, char **argv, int *words)
{
    const cli_command *found = NULL;
    for (size_t i = 0; i < COMMANDS; i++) {
        const char *name = commands[i].command->name, *blank = strchr(name, ' ');
        size_t first = blank == NULL ? strlen(name) : (size_t)(blank - name);
        if (argc < 1 || strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0)
            continue;
        bool both = blank != NULL && argc >= 2 && strcmp(argv[1], blank + 1) == 0;
        if (!both && (blank != NULL || found != NULL))
            continue;
        found = commands[i].command;
        *words = both ? 2 : 1;
    }
    return found;
}

/* Whether a command has two words, and this is the first of them. */
static bool of_family(const cli_command *c, const char *word)
{
    size_t n = strlen(word);
    return strncmp(c->name, word, n) == 0 && c->name[n] == ' ';
}

static bool is_family(const char *word)
{
    bool any = false;
    for (size_t i = 0; i < COMMANDS; i++)
        any |= of_family(commands[i].command, word);
    return any;
}

static void print_family(FILE *to, const char *word)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        const cli_command *c = commands[i].command;
        if (of_family(c, word))
            print_line(to, c->name, c->summary);
    }
}

static int unknown_command(const char *word, const char *second)
{
    sm_nearest nearest = {0};
    char both[200];
    snprintf(both, sizeof both, "%s%s%s", word, second == NULL ? "" : " ",
             second == NULL ? "" : second);
    for (size_t i = 0; i < COMMANDS; i++) {
        sm_nearest_try(&nearest, sm_str_from(word), sm_str_from(commands[i].command->name));
        sm_nearest_try(&nearest, sm_str_from(both), sm_str_from(commands[i].command->name));
    }
    sm_str near = sm_nearest_get(&nearest, sm_str_from(both));
    if (near.p != NULL)
        return cli_usage(NULL, "unknown command \"%s\"; did you mean \"%.*s\"?", both,
                         SM_FMT(near));
    int code = cli_usage(NULL, "unknown command \"%s\"", both);
    print_family(stderr, word);
    return code;
}

static int run_help(int argc, char **argv)
{
    int words = 0;
    if (argc == 0) {
        print_overview();
        return CLI_OK;
    }
    const cli_command *c = find_command(argc, argv, &words);
    if (c != NULL) {
        cli_print_help(c);
        return CLI_OK;
    }
    if (argc > 1 || !is_family(argv[0]))
        return unknown_command(argv[0], argc > 1 ? argv[1] : NULL);
    printf("%sThe commands of semel %s%s\n\n", cli_color(stdout, CLI_BOLD), argv[0],
           cli_color(stdout, CLI_PLAIN));
    print_family(stdout, argv[0]);
    return CLI_OK;
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return cli_first_screen(argv[0]);
    const char *first = argv[1];
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        printf("semel %s\n", SEMEL_VERSION_STRING);
        return CLI_OK;
    }
    if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return run_help(argc - 2, argv + 2);
    int words = 0;
    const cli_command *c = find_command(argc - 1, argv + 1, &words);
    if (c != NULL)
        return c->run(c, argc - words, argv + words);
    if (argc == 3 && is_family(first) &&
        (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0))
        return run_help(1, argv + 1);
    if (argc == 2 && is_family(first)) {
        print_family(stderr, first);
        return CLI_USAGE;
    }
    return unknown_command(first, argc > 2 ? argv[2] : NULL);
}

static void go_on(int number)
{
    (void)number;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported as such */
    /* A write over a limit on the size of files fails too. A handler and not SIG_IGN, because
     * programs that we start would inherit that. */
    struct sigaction before;
    if (sigaction(SIGXFSZ, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = go_on, .sa_flags = SA_RESTART}, NULL);
    return cli_done(run(argc, argv));
}
