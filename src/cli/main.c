/* semel: dispatch to the commands, and the help that lists them. */
#include <signal.h>
#include <string.h>

#include "base/suggest.h"
#include "cli/cli.h"

static const cli_command *const commands[] = {
    &cli_run,           &cli_canon,         &cli_key, &cli_diff, &cli_contract_check,
    &cli_contract_show, &cli_contract_diff,
};
#define COMMANDS (sizeof commands / sizeof commands[0])

static void print_overview(void)
{
    printf("%sSemel%s makes an agent's tool calls safe to retry: the side effect happens once.\n\n"
           "  semel                              a short demonstration\n",
           cli_color(stdout, CLI_BOLD), cli_color(stdout, CLI_PLAIN));
    for (size_t i = 0; i < COMMANDS; i++)
        printf("  semel %-28s %s\n", commands[i]->name, commands[i]->summary);
    printf("  semel help [COMMAND]               how to use a command\n"
           "  semel --version                    which version this is\n\n"
           "Exit codes: 0 done, 64 wrong use, 65 bad data, 69 unavailable, 70 internal error,\n"
           "74 input or output failed, 75 try again later.\n");
}

/* The command that the arguments begin with; *words says how many they were. */
static const cli_command *find_command(int argc, char **argv, int *words)
{
    for (size_t i = 0; i < COMMANDS; i++) {
        const char *name = commands[i]->name, *blank = strchr(name, ' ');
        size_t first = blank == NULL ? strlen(name) : (size_t)(blank - name);
        if (argc < 1 || strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0)
            continue;
        *words = blank == NULL ? 1 : 2;
        if (blank == NULL || (argc >= 2 && strcmp(argv[1], blank + 1) == 0))
            return commands[i];
    }
    return NULL;
}

/* Whether a word starts some two-word commands; prints those. */
static bool print_family(FILE *to, const char *word)
{
    bool any = false;
    size_t n = strlen(word);
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strncmp(commands[i]->name, word, n) == 0 && commands[i]->name[n] == ' ') {
            fprintf(to, "  semel %-28s %s\n", commands[i]->name, commands[i]->summary);
            any = true;
        }
    }
    return any;
}

static int unknown_command(const char *word, const char *second)
{
    sm_nearest nearest = {0};
    char both[200];
    snprintf(both, sizeof both, "%s%s%s", word, second == NULL ? "" : " ",
             second == NULL ? "" : second);
    for (size_t i = 0; i < COMMANDS; i++) {
        sm_nearest_try(&nearest, sm_str_from(word), sm_str_from(commands[i]->name));
        sm_nearest_try(&nearest, sm_str_from(both), sm_str_from(commands[i]->name));
    }
    sm_str near = sm_nearest_get(&nearest, sm_str_from(both));
    if (near.p != NULL)
        return cli_usage(NULL, "unknown command \"%s\"; did you mean \"%.*s\"?", both,
                         SM_FMT(near));
    return cli_usage(NULL, "unknown command \"%s\"", word);
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
    return print_family(stdout, argv[0]) ? CLI_OK
                                         : unknown_command(argv[0], argc > 1 ? argv[1] : NULL);
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return cli_demo();
    const char *first = argv[1];
    if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
        printf("semel %s\n", SEMEL_VERSION);
        return CLI_OK;
    }
    if (strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return run_help(argc - 2, argv + 2);
    int words = 0;
    const cli_command *c = find_command(argc - 1, argv + 1, &words);
    if (c != NULL)
        return c->run(c, argc - words, argv + words);
    if (argc == 2 && print_family(stderr, first))
        return CLI_USAGE;
    return unknown_command(first, argc > 2 ? argv[2] : NULL);
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is a failed write, reported as such */
    return cli_done(run(argc, argv));
}
