/*
 * semel doctor mcp: what to write into an MCP client's configuration so that the proxy is in front
 * of a server, and whether it would work.
 *
 * Clients start servers with hardly anything of a shell's environment, and graphical ones not even
 * with its PATH. So whatever decides here how the proxy works is written out: the program's own
 * path, files as absolute paths, and what comes from SEMEL_LEDGER and SEMEL_CONTRACT. A ledger's
 * password never is: there the snippet has a place to put it.
 *
 * Nothing is written to any client's files. The snippets go to stdout, the checks to stderr.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/ledger.h"
#include "cli/mcp/clients.h"
#include "cli/mcp/mcp.h"
#include "core/call.h"
#include "mcp/mcp.h"

#define LEDGER_PLACE "the URL of the ledger, with its password"

/* What the entry is made of. Words are borrowed, or one of the rooms here. */
typedef struct plan {
    const char *ledger, *contract, *scope;
    const char *only;          /* one client; NULL: all of them */
    bool named;                /* --name was given */
    bool example;              /* no command was given */
    const char *const *server; /* NULL-terminated */
    size_t server_count;
    cli_mcp_entry entry;
    char self[PATH_MAX], contract_room[PATH_MAX], ledger_room[PATH_MAX + 8], name_room[64];
} plan;

/* ---- names and paths -------------------------------------------------------------------------*/

static bool is_word(const char *text, const char *const *words, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(text, words[i]) == 0)
            return true;
    }
    return false;
}

static const char *basename_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

/* The word that tells which server it is: not that of whoever starts it. */
static const char *telling_word(const char *const *argv)
{
    static const char *const starters[] = {"npx",  "bunx",   "bun",     "pnpm", "yarn",  "node",
                                           "deno", "python", "python3", "uv",   "uvx",   "pipx",
                                           "sh",   "bash",   "docker",  "env",  "podman"};
    static const char *const verbs[] = {"run", "dlx", "exec", "x", "tool"};
    if (!is_word(basename_of(argv[0]), starters, sizeof starters / sizeof starters[0]))
        return argv[0];
    for (const char *const *word = argv + 1; *word != NULL; word++) {
        if ((*word)[0] != '-' && strchr(*word, '=') == NULL &&
            !is_word(*word, verbs, sizeof verbs / sizeof verbs[0]))
            return *word;
    }
    return argv[0];
}

static void cut_prefix(sm_str *s, const char *prefix)
{
    size_t n = strlen(prefix);
    if (s->n > n && memcmp(s->p, prefix, n) == 0)
        *s = (sm_str){s->p + n, s->n - n};
}

static void cut_suffix(sm_str *s, const char *suffix)
{
    size_t n = strlen(suffix);
    if (s->n > n && memcmp(s->p + s->n - n, suffix, n) == 0)
        s->n -= n;
}

/* "npx -y @modelcontextprotocol/server-filesystem@1 DIR" is called filesystem. */
static const char *make_name(plan *p)
{
    static const char *const before[] = {"mcp-server-", "mcp_server_", "server-", "mcp-"};
    static const char *const behind[] = {".js", ".mjs", ".py", "-mcp-server", "-server", "-mcp"};
    const char *word = basename_of(telling_word(p->server));
    sm_str s = {word, 1 + strcspn(word + 1, "@:")}; /* without a version */
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++)
        cut_prefix(&s, before[i]);
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++)
        cut_suffix(&s, behind[i]);
    size_t n = 0;
    for (size_t i = 0; i < s.n && n + 1 < sizeof p->name_room; i++) {
        char c = s.p[i];
        bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    c == '-' || c == '_';
        p->name_room[n++] = fine ? c : '-';
    }
    p->name_room[n] = '\0';
    return p->name_room;
}

/* A file's name that is right wherever the client starts the program. */
static const char *absolute(const char *path, char room[PATH_MAX])
{
    char here[PATH_MAX];
    if (realpath(path, room) != NULL)
        return room;
    if (path[0] == '/' || getcwd(here, sizeof here) == NULL)
        return path;
    int n = snprintf(room, PATH_MAX, "%s/%s", here, path);
    return n > 0 && n < PATH_MAX ? room : path;
}

/* Whether a URL has a password in it, or may have: it is not taken apart as the stores do, so what
 * is not plain counts as one. */
static bool has_password(const char *url)
{
    const char *host = strstr(url, "://");
    if (host == NULL)
        return false;
    const char *at = strrchr(host + 3, '@'), *query = strchr(host, '?');
    return (at != NULL && memchr(host + 3, ':', (size_t)(at - host - 3)) != NULL) ||
           (query != NULL && (strcasestr(query, "pass") != NULL || strchr(query, '%') != NULL));
}

/* ---- the command -----------------------------------------------------------------------------*/

static void add_word(plan *p, const char *word)
{
    p->entry.words[p->entry.n++] = word;
}

static void add_option(plan *p, const char *option, const char *value)
{
    if (value == NULL)
        return;
    add_word(p, option);
    add_word(p, value);
}

static void add_env(plan *p, const char *name, const char *value)
{
    if (value == NULL || *value == '\0')
        return;
    p->entry.env[p->entry.env_count].name = name;
    p->entry.env[p->entry.env_count++].value = value;
}

static void add_ledger(plan *p)
{
    static const char file[] = "sqlite:";
    size_t n = sizeof file - 1;
    if (p->ledger == NULL) {
        add_env(p, "XDG_STATE_HOME", getenv("XDG_STATE_HOME"));
    } else if (has_password(p->ledger)) {
        add_env(p, "SEMEL_LEDGER", LEDGER_PLACE);
    } else if (strncmp(p->ledger, file, n) == 0) {
        char room[PATH_MAX];
        snprintf(p->ledger_room, sizeof p->ledger_room, "%s%s", file,
                 absolute(p->ledger + n, room));
        add_option(p, "--ledger", p->ledger_room);
    } else {
        add_option(p, "--ledger", p->ledger);
    }
}

static int make_command(plan *p)
{
    ssize_t n = readlink("/proc/self/exe", p->self, sizeof p->self - 1);
    p->entry.words = calloc(16 + p->server_count, sizeof *p->entry.words);
    if (p->entry.words == NULL)
        return cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
    add_word(p, n > 0 ? p->self : "semel");
    add_word(p, "mcp");
    add_option(p, "--name", p->named ? p->entry.name : NULL);
    add_option(p, "--scope", p->scope);
    add_ledger(p);
    if (p->contract != NULL)
        add_option(p, "--contract", absolute(p->contract, p->contract_room));
    add_env(p, "SEMEL_SEAL_KEY_FILE", getenv("SEMEL_SEAL_KEY_FILE"));
    add_word(p, "--");
    for (size_t i = 0; i < p->server_count; i++)
        add_word(p, p->server[i]);
    return CLI_OK;
}

/* ---- checks ----------------------------------------------------------------------------------*/

/* Where the server's command is found; NULL: nowhere. */
static const char *find_command(const char *word, char room[PATH_MAX])
{
    struct stat st;
    if (strchr(word, '/') != NULL)
        return access(word, X_OK) == 0 && stat(word, &st) == 0 && S_ISREG(st.st_mode) ? word : NULL;
    const char *path = getenv("PATH");
    for (const char *at = path == NULL ? "/usr/local/bin:/usr/bin:/bin" : path; at != NULL;) {
        size_t n = strcspn(at, ":");
        int made =
            snprintf(room, PATH_MAX, "%.*s/%s", n == 0 ? 1 : (int)n, n == 0 ? "." : at, word);
        if (made < PATH_MAX && access(room, X_OK) == 0 && stat(room, &st) == 0 &&
            S_ISREG(st.st_mode))
            return room;
        at = at[n] == '\0' ? NULL : at + n + 1;
    }
    return NULL;
}

static int check_command(const plan *p)
{
    char room[PATH_MAX];
    if (p->example)
        return CLI_OK;
    const char *found = find_command(p->server[0], room);
    if (found == NULL)
        return cli_fail(CLI_DIFFERENT, "the command \"%s\" is not found", p->server[0]);
    if (strchr(p->server[0], '/') == NULL)
        cli_fail(CLI_OK, "the command %s is %s; write that if a client does not find it",
                 p->server[0], found);
    else
        cli_fail(CLI_OK, "the command %s is there", found);
    return CLI_OK;
}

static int check_contract(const plan *p)
{
    if (p->contract == NULL)
        return CLI_OK;
    sm_contracts *set;
    int code = cli_read_contracts(p->contract, &set);
    if (code == CLI_OK)
        cli_fail(code, "the contract is right; it lists %u tool%s", set->tool_count,
                 set->tool_count == 1 ? "" : "s");
    sm_contracts_free(set);
    return code;
}

/* A file that somebody has named is not made here; the user's own ledger is everybody's default. */
static int check_ledger(const plan *p)
{
    bool file = p->ledger != NULL && strncmp(p->ledger, "sqlite:", 7) == 0;
    if (file && access(p->ledger + 7, F_OK) != 0 && errno == ENOENT)
        return cli_fail(CLI_OK, "there is no ledger at %s yet; the proxy makes it", p->ledger + 7);
    cli_ledger l = {.o = {.url = p->ledger}};
    int code = cli_ledger_open(&l, p->ledger == NULL ? CLI_MAKES : 0);
    cli_ledger_close(&l);
    if (code == CLI_OK)
        cli_fail(code, "the ledger can be opened");
    if (p->ledger != NULL && has_password(p->ledger))
        cli_fail(code, "the ledger's URL has a password, which is not repeated here: put it where "
                       "the snippet says SEMEL_LEDGER");
    return code;
}

/* The last check starts the server, as the proxy would. */
static int check_server(const plan *p)
{
    if (p->example)
        return CLI_OK;
    return cli_mcp_tools((char **)(uintptr_t)p->server, p->contract);
}

/* ---- the command line ------------------------------------------------------------------------*/

static bool scope_right(const char *scope)
{
    const sm_parsed_call call = {.scope = sm_str_from(scope), .tool = SM_STR("any")};
    return sm_call_check(&call, NULL) == SM_OK;
}

static int check_options(const cli_command *self, const plan *p)
{
    if (p->only != NULL && !cli_mcp_client_known(p->only))
        return cli_usage(self,
                         "--client takes claude-desktop, claude-code, cursor, vscode or "
                         "codex, not \"%s\"",
                         p->only);
    if (p->named && (!scope_right(p->entry.name) || strchr(p->entry.name, '/') != NULL ||
                     strlen(p->entry.name) >= MCP_NAME_MAX))
        return cli_usage(self, "--name takes a word without \"/\" of at most %u bytes",
                         MCP_NAME_MAX - 1);
    if (p->scope != NULL && !scope_right(p->scope))
        return cli_usage(self, "--scope takes a text such as tenant/agent/run");
    return CLI_OK;
}

static int read_options(const cli_command *self, int argc, char **argv, plan *p)
{
    static const struct option table[] = {
        CLI_TEXT("name", plan, entry.name),
        CLI_TEXT("client", plan, only),
        {"ledger", required_argument, NULL, 'l'},
        CLI_TEXT("contract", plan, contract),
        CLI_TEXT("scope", plan, scope),
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c;
    while ((c = cli_option(self, argc, argv, table, p)) != -1) {
        if (c != 'l')
            return c == 'h' ? 'h' : CLI_USAGE;
        p->ledger = cli_ledger_take(optarg);
    }
    p->named = p->entry.name != NULL;
    if (optind < argc && strcmp(argv[optind - 1], "--") != 0)
        return cli_usage(self, "the server's command comes behind \"--\"");
    p->server = (const char *const *)argv + optind;
    p->server_count = (size_t)(argc - optind);
    return check_options(self, p);
}

static const char *or_environment(const char *given, const char *name)
{
    const char *value = given != NULL ? given : getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const char *const example[] = {"npx", "-y", "@modelcontextprotocol/server-filesystem",
                                          "/path/to/allowed", NULL};
    plan p = {0};
    int code = read_options(self, argc, argv, &p);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    if (p.ledger != NULL && *p.ledger == '\0')
        return cli_ledger_nameless();
    p.ledger = cli_ledger_url(p.ledger);
    p.contract = or_environment(p.contract, "SEMEL_CONTRACT");
    p.example = p.server_count == 0;
    if (p.example) {
        p.server = example;
        p.server_count = sizeof example / sizeof example[0] - 1;
    }
    if (!p.named)
        p.entry.name = make_name(&p);
    code = make_command(&p);
    if (code == CLI_OK) {
        int command = check_command(&p), contract = check_contract(&p), ledger = check_ledger(&p);
        if (command == CLI_OK && contract == CLI_OK)
            command = check_server(&p);
        if (command == CLI_OK && contract == CLI_OK) /* the ledger may just be down */
            code = cli_mcp_clients_print(&p.entry, p.only);
        code = ledger != CLI_OK     ? ledger
               : contract != CLI_OK ? contract
               : command != CLI_OK  ? command
                                    : code;
    }
    free(p.entry.words);
    return code;
}

const cli_command cli_doctor_mcp = {
    .name = "doctor mcp",
    .summary = "what an MCP client's configuration looks like with the proxy",
    .help =
        "  semel doctor mcp -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n"
        "  semel doctor mcp --client vscode --contract tools.yaml -- uvx mcp-server-git\n\n"
        "Usage: semel doctor mcp [OPTIONS] [-- SERVER ARGS]\n\n"
        "  --client NAME            claude-desktop, claude-code, cursor, vscode or codex: only\n"
        "                           that one, and stdout is exactly what goes into its file\n"
        "  --name NAME              what the server is called, by the client and in the ledger\n"
        "  --scope S                the scope of all calls\n"
        "  --ledger URL             the ledger; else SEMEL_LEDGER, else the user's own\n"
        "  --contract FILE          what is declared about tools; else SEMEL_CONTRACT\n"
        "\nPrints what to write into the configuration of MCP clients, so that semel mcp is in front\n"
        "of the server. It changes no file. It writes out values of the environment, because clients\n"
        "pass on little of it, but never a ledger's password.\n\n"
        "It also checks, on stderr, that the server's command is found, that the contract is right\n"
        "and that the ledger can be opened. Then it starts the server, lists its tools with the\n"
        "class of each and the reason, and ends it. It calls no tool. If the contract is wrong, or\n"
        "the server does not answer, it prints no configuration.\n\n"
        "Exit code: 0 all is well, 1 the command is not found, does not speak MCP or does not\n"
        "answer within a minute, 65 the contract is wrong, 69 the ledger cannot be opened.\n",
    .run = run,
};
