/* semel contract preset: what is known about well-known APIs. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "gateway/preset.h"

static int run_preset(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'}, {0}};
    int c = cli_option(self, argc, argv, table);
    if (c != -1)
        return c == 'h' ? CLI_OK : CLI_USAGE;
    if (argc - optind > 1)
        return cli_usage(self, "one NAME is enough");
    if (argc == optind) {
        for (int i = 1; gw_preset_names[i] != NULL; i++)
            puts(gw_preset_names[i]);
        return CLI_OK;
    }
    for (int i = 1; gw_preset_names[i] != NULL; i++) {
        sm_str text = gw_preset_text(i);
        if (strcmp(argv[optind], gw_preset_names[i]) != 0)
            continue;
        return fwrite(text.p, 1, text.n, stdout) == text.n ? CLI_OK : CLI_IO;
    }
    return cli_usage(self, "there is no preset \"%s\"; run it without a NAME to list them",
                     argv[optind]);
}

const cli_command cli_contract_preset = {
    .name = "contract preset",
    .summary = "the contract of a preset for the reverse proxy",
    .help = "  semel contract preset                      which presets there are\n"
            "  semel contract preset stripe > stripe.yaml a contract to begin with\n\n"
            "Usage: semel contract preset [NAME]\n\n"
            "A proxy with `preset: NAME` uses this contract, unless the contract file lists its\n"
            "tool, proxy.PROXY.\n",
    .run = run_preset,
};
