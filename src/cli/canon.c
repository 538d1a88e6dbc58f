/* semel canon: the canonical bytes of a JSON document. */
#include <unistd.h>

#include "base/limits.h"
#include "cli/cli.h"

static int run(const cli_command *self, int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
    int c = cli_option(self, argc, argv, options, NULL);
    if (c != -1)
        return c == 'h' ? CLI_OK : CLI_USAGE;
    if (argc - optind > 1)
        return cli_usage(self, "one FILE at most, or stdin");
    const char *path = optind < argc ? argv[optind] : NULL;

    sm_arena arena;
    sm_buf text = {0}, canonical = {0};
    sm_arena_init(&arena, SM_ARENA_MAX);
    const sm_json *root;
    int code = cli_read_json(path, NULL, &arena, &text, &canonical, &root);
    if (code == CLI_OK)
        code = cli_write(&canonical);
    sm_buf_fini(&canonical);
    sm_buf_fini(&text);
    sm_arena_fini(&arena);
    return code;
}

const cli_command cli_canon = {
    .name = "canon",
    .summary = "the canonical bytes of a JSON document",
    .help =
        "  echo '{\"b\": 1.0, \"a\": \"\\u0041\"}' | semel canon      prints {\"a\":\"A\",\"b\":1}\n"
        "  semel canon arguments.json | sha256sum\n\n"
        "Usage: semel canon [FILE]\n\n"
        "Reads one JSON document from FILE, or from stdin if there is none or it is -, and\n"
        "writes its canonical form (RFC 8785; integers keep all their digits) without a\n"
        "newline. Two documents that mean the same give the same bytes.\n\n"
        "Bad input: the place and the reason on stderr, nothing on stdout, exit code 65.\n",
    .run = run,
};
