/* semel contract preset: what is known about well-known APIs. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "gateway/preset.h"

#define EVERY "proxy.*" /* how a preset names its tool: it is for the proxy that uses it */

/* Prints the contract for one proxy. A file that lists every proxy would take the place of the
 * presets of all others. */
static int print_preset(sm_str text, const char *proxy)
{
    bool right = true;
    while (text.n > 0 && right) {
        const char *tool = memmem(text.p, text.n, EVERY, sizeof EVERY - 1);
        size_t n = tool == NULL ? text.n : (size_t)(tool - text.p);
        right = fwrite(text.p, 1, n, stdout) == n;
        if (tool == NULL)
            break;
        right = right && printf("proxy.%s", proxy) > 0;
        n += sizeof EVERY - 1;
        text = (sm_str){text.p + n, text.n - n};
    }
    return right ? CLI_OK : CLI_IO;
}

static int run_preset(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'}, {0}};
    int c = cli_option(self, argc, argv, table, NULL);
    if (c != -1)
        return c == 'h' ? CLI_OK : CLI_USAGE;
    if (argc - optind > 2)
        return cli_usage(self, "one NAME and one PROXY are enough");
    if (argc == optind) {
        for (int i = 1; gw_preset_names[i] != NULL; i++)
            puts(gw_preset_names[i]);
        return CLI_OK;
    }
    const char *name = argv[optind], *proxy = argc - optind == 2 ? argv[optind + 1] : name;
    if (strspn(proxy, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(proxy) || *proxy == '\0')
        return cli_usage(self, "a proxy's name has lowercase letters, digits and -");
    for (int i = 1; gw_preset_names[i] != NULL; i++) {
        if (strcmp(name, gw_preset_names[i]) == 0)
            return print_preset(gw_preset_text(i), proxy);
    }
    return cli_usage(self, "there is no preset \"%s\"; run it without a NAME to list them", name);
}

const cli_command cli_contract_preset = {
    .name = "contract preset",
    .summary = "the contract of a preset for the reverse proxy",
    .help = "  semel contract preset                      which presets there are\n"
            "  semel contract preset stripe > stripe.yaml a contract to begin with\n"
            "  semel contract preset stripe pay           the same for the proxy `pay`\n\n"
            "Usage: semel contract preset [NAME [PROXY]]\n\n"
            "A proxy with `preset: NAME` uses this contract, unless the contract file lists its\n"
            "tool, proxy.PROXY. Without PROXY, the proxy has the preset's name.\n",
    .run = run_preset,
};
