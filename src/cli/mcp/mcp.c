/*
 * semel mcp: puts itself between an MCP client and a server, so that the server's tools are safe to
 * retry.
 */
#include "cli/mcp/mcp.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"
#include "mcp/stdio.h"

#define WORKERS 64u

typedef cli_mcp_options options;

/* ---- the command line ------------------------------------------------------------------------*/

static bool scope_right(const char *scope)
{
    size_t n = strlen(scope);
    return n > 0 && n <= SM_SCOPE_MAX - MCP_NAME_MAX && sm_utf8_valid(sm_str_from(scope)) &&
           scope[0] != '/' && scope[n - 1] != '/';
}

static int check_options(const cli_command *self, int argc, char **argv, options *o)
{
    bool command = optind < argc && optind > 0 && strcmp(argv[optind - 1], "--") == 0;
    o->argv = command ? argv + optind : NULL;
    if (command && o->upstream != NULL)
        return cli_usage(self, "there is a command and --upstream; one of them is the server");
    if (optind < argc && !command)
        return cli_usage(self, "the server's command comes behind \"--\"");
    if (!command && o->upstream == NULL)
        return cli_usage(self, "the server is missing: its command behind \"--\", or --upstream "
                               "with its URL");
    if (command && **o->argv == '\0')
        return cli_usage(self, "the command's name is empty");
    if (o->headers > 0 && o->upstream == NULL)
        return cli_usage(self, "--header is for --upstream");
    if (o->scope != NULL && !scope_right(o->scope))
        return cli_usage(self, "--scope takes a text such as tenant/agent/run, of at most %u bytes",
                         SM_SCOPE_MAX - MCP_NAME_MAX);
    if (o->name != NULL &&
        (!scope_right(o->name) || strlen(o->name) >= MCP_NAME_MAX || strchr(o->name, '/') != NULL))
        return cli_usage(self, "--name takes a word without \"/\" of at most %u bytes",
                         MCP_NAME_MAX - 1);
    return CLI_OK;
}

static int read_options(const cli_command *self, int argc, char **argv, options *o)
{
    static const struct option table[] = {
        {"ledger", required_argument, NULL, 'l'},   {"contract", required_argument, NULL, 'c'},
        {"scope", required_argument, NULL, 's'},    {"name", required_argument, NULL, 'n'},
        {"upstream", required_argument, NULL, 'u'}, {"header", required_argument, NULL, 'H'},
        {"seal-key", required_argument, NULL, 'S'}, {"suggest", no_argument, NULL, 'g'},
        {"undoes", no_argument, NULL, 'U'}, /* for semel scope undo */
        {"help", no_argument, NULL, 'h'},           {0},
    };
    int c;
    while ((c = cli_option(self, argc, argv, table, NULL)) != -1) {
        if (optarg != NULL && strcmp(optarg, "--") == 0)
            return cli_usage(self, "the option before \"--\" has no value");
        switch (c) {
        case 'l': o->ledger.url = cli_ledger_take(optarg); break;
        case 'c': o->ledger.contract = optarg; break;
        case 'S': o->ledger.seal_key = optarg; break;
        case 's': o->scope = optarg; break;
        case 'n': o->name = optarg; break;
        case 'u': o->upstream = optarg; break;
        case 'H':
            if (o->headers == CLI_MCP_HEADERS)
                return cli_usage(self, "--header may be given %d times", CLI_MCP_HEADERS);
            o->header[o->headers++] = optarg;
            break;
        case 'g': o->suggest = true; break;
        case 'U': o->undoes = true; break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    return check_options(self, argc, argv, o);
}

/* ---- running ---------------------------------------------------------------------------------*/

/* The server's durable name. */
static int find_name(const options *o, char name[MCP_NAME_MAX])
{
    char directory[SM_PATH_MAX];
    if (o->name != NULL) {
        snprintf(name, MCP_NAME_MAX, "%s", o->name);
        return CLI_OK;
    }
    if (getcwd(directory, sizeof directory) == NULL)
        return cli_fail(CLI_IO, "the working directory has no name; give the server one with "
                                "--name");
    char *const remote[] = {(char *)(uintptr_t)o->upstream, NULL};
    char *const *argv = o->argv != NULL ? o->argv : remote;
    return mcp_name_of(argv, o->argv != NULL ? directory : "", name)
               ? CLI_OK
               : cli_fail(CLI_INTERNAL, "the server's name cannot be made");
}

/* What the server's tools were when they were first seen. */
static bool find_pins(const char *name, char path[SM_PATH_MAX])
{
    char file[MCP_NAME_MAX + 16];
    snprintf(file, sizeof file, "mcp/%s.json", name);
    return sm_state_path(file, path);
}

/* Ends as the server did. */
static int end_like(int status)
{
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    struct rlimit none = {0};
    int signal_number = WTERMSIG(status);
    sigset_t set;
    setrlimit(RLIMIT_CORE, &none); /* the server has dumped its own */
    signal(signal_number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
    return 128 + signal_number;
}

static int explain(sm_err e, const sm_fault *fault)
{
    return cli_fail(e == SEMEL_E_NOT_FOUND ? 127 : cli_code(e), "%s", fault->text);
}

static int proxy(const options *o, mcp_hub *hub, sm_signals *signals)
{
    char name[MCP_NAME_MAX], pins[SM_PATH_MAX];
    int status = 0, code = find_name(o, name);
    if (code != CLI_OK)
        return code;
    mcp_stdio_options run = {.hub = hub, .signals = signals, .argv = o->argv};
    run.server = (mcp_server_options){.name = sm_str_from(name),
                                      .scope = cli_opt(o->scope),
                                      .pins = find_pins(name, pins) ? pins : NULL,
                                      .approve_here = true,
                                      .undoes = o->undoes};
    sm_fault fault = {0};
    cli_mcp_remote remote = {0};
    sm_err e = o->argv != NULL ? SM_OK : cli_mcp_remote_make(o, &remote, &fault);
    run.remote = &remote.options;
    if (e == SM_OK)
        e = mcp_stdio_run(&run, &status, &fault);
    cli_mcp_remote_free(&remote);
    return e == SM_OK ? status : explain(e, &fault) << 8;
}

/* How others name the same ledger; not with its password. */
static const char *ledger_option(const options *o, char out[1024])
{
    const char *url = cli_ledger_url(o->ledger.url);
    if (url == NULL || strchr(url, '@') != NULL || strpbrk(url, " '\"$`\\!&;|<>()*?") != NULL)
        return "";
    snprintf(out, 1024, " --ledger %s", url);
    return out;
}

static int with_ledger(const options *o, sm_signals *signals)
{
    cli_ledger ledger = {.o = o->ledger};
    mcp_hub hub = {0};
    sm_fault fault = {0};
    int code = cli_ledger_open(&ledger, CLI_MAKES | CLI_CONTRACT | CLI_STAYS);
    if (code != CLI_OK) {
        cli_ledger_close(&ledger);
        return code << 8;
    }
    char option[1024];
    hub.ledger_option = ledger_option(o, option);
    hub.ledger = ledger.s;
    hub.waiting_max = SIZE_MAX; /* all calls; their number is bounded */
    hub.answer = ledger.a;
    sm_err e = mcp_loop_new(&hub.loop, &fault);
    if (e == SM_OK)
        e = sm_pool_new(WORKERS, &hub.pool);
    if (e == SM_OK)
        e = sm_waits_new(ledger.s, &hub.waits);
    if (e == SM_OK)
        mcp_hub_start(&hub);
    if (e == SM_OK)
        code = proxy(o, &hub, signals);
    else
        code = cli_fail(CLI_INTERNAL, "%s", semel_err_text(e)) << 8;
    atomic_store(&hub.stopping, true);
    sm_pool_free(hub.pool);
    sm_waits_free(hub.waits);
    mcp_loop_free(hub.loop);
    sm_serve_fini(&hub.serve);
    cli_ledger_close(&ledger);
    return code;
}

static int run(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    int code = read_options(self, argc, argv, &o);
    if (code == 'h')
        return CLI_OK;
    if (code != CLI_OK)
        return code;
    sm_signals signals = {.fd = -1};
    sm_fault fault = {0};
    signal(SIGPIPE, SIG_IGN);
    if (sm_signals_hold(&signals, &fault) != SM_OK)
        return cli_fail(CLI_INTERNAL, "%s", fault.text);
    int status = o.suggest ? cli_mcp_suggest(&o, &signals) << 8 : with_ledger(&o, &signals);
    sm_signals_release(&signals);
    return end_like(status);
}

const cli_command cli_mcp = {
    .name = "mcp",
    .summary = "put the ledger in front of an MCP server",
    .help =
        "Usage: semel mcp [OPTIONS] -- COMMAND [ARGUMENT...]\n"
        "       semel mcp [OPTIONS] --upstream URL\n"
        "       semel mcp --suggest -- COMMAND [ARGUMENT...]\n"
        "\n"
        "Stands between an MCP client and a server, on standard input and output. Calls of tools\n"
        "that write go through the ledger: a retry gets the recorded result, and what nobody can\n"
        "know is called in doubt. Everything else is passed on as it is.\n"
        "\n"
        "  semel mcp -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n"
        "  semel mcp --suggest -- npx -y @modelcontextprotocol/server-filesystem ~/notes > c.yaml\n"
        "  semel mcp --contract c.yaml --name notes -- npx -y ... ~/notes\n"
        "  semel mcp --upstream https://example.com/mcp --header 'Authorization: Bearer ${TOKEN}'\n"
        "\n"
        "A tool that the contract does not list is passed on if its server calls it read-only.\n"
        "Any other is a write that is remembered for 10 minutes. An equal call runs again only if\n"
        "it must be meant: the client had the answer within a second, and asks again at least 2 s\n"
        "later. `semel doctor mcp` prints how to set clients up.\n"
        "\n"
        "  --scope SCOPE            within which equal calls are the same; else what the client\n"
        "                           sends (_meta \"semel/scope\"), else the server's name alone\n"
        "  --name NAME              of the server, in the ledger; else its command's name and 8\n"
        "                           digits that tell command lines and directories apart\n"
        "  --upstream URL           the server is reached over Streamable HTTP\n"
        "  --header 'NAME: VALUE'   for --upstream; ${NAME} in it is taken from the environment\n"
        "  --suggest                print a contract to start from, and end\n" CLI_CONTRACT_HELP
            CLI_LEDGER_HELP,
    .run = run,
};
