/*
 * semel serve: the gateway, by its configuration and what the command line says instead.
 *
 * Everything that can be read before anything is opened is read first, so that all mistakes are
 * told at once: those of the configuration, the contracts and the tokens.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/config.h"
#include "cli/ledger.h"
#include "cli/service.h"
#include "gateway/tokens.h"

#define LISTEN_MAX   8
#define TLS_FILE_MAX ((size_t)1 << 20)

typedef struct options {
    const char *config, *ledger, *contract, *tokens, *log;
    const char *listen[LISTEN_MAX];
    uint32_t listens;
    bool check;
} options;

/* ---- the configuration -----------------------------------------------------------------------*/

static int override_listen(const cli_command *self, const options *o, gw_config *c)
{
    gw_listen *v = sm_arena_zalloc(&c->arena, o->listens, sizeof *v);
    sm_fault fault = {0};
    for (uint32_t i = 0; v != NULL && i < o->listens; i++) {
        sm_err e = gw_listen_read(&c->arena, sm_str_from(o->listen[i]), (sm_str){0}, &v[i], &fault);
        if (e != SM_OK)
            return cli_usage(self, "--%s", fault.text);
    }
    if (v == NULL)
        return cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
    c->listen = (gw_listens){v, o->listens};
    return CLI_OK;
}

/* A file's name that is in the environment, where neither the configuration nor the command line
 * has one. */
static void or_environment(sm_str *name, const char *variable)
{
    const char *value = getenv(variable);
    if (name->p == NULL && value != NULL && *value != '\0')
        *name = sm_str_from(value);
}

/* What the command line says goes before what the file says. */
static int override(const cli_command *self, const options *o, gw_config *c)
{
    if (o->log != NULL && strcmp(o->log, "text") != 0 && strcmp(o->log, "json") != 0)
        return cli_usage(self, "--log takes text or json, not \"%s\"", o->log);
    if (o->log != NULL)
        c->log.format = strcmp(o->log, "json") == 0 ? GW_LOG_JSON : GW_LOG_TEXT;
    if (o->ledger != NULL)
        c->ledger = sm_str_from(o->ledger);
    if (o->contract != NULL)
        c->contract = sm_str_from(o->contract);
    if (o->tokens != NULL)
        c->tokens = sm_str_from(o->tokens);
    or_environment(&c->contract, "SEMEL_CONTRACT");
    or_environment(&c->seal_key, "SEMEL_SEAL_KEY_FILE");
    if (o->listens > 0)
        return override_listen(self, o, c);
    return o->config == NULL && !o->check ? cli_config_free_port(c) : CLI_OK;
}

/* ---- what it names ---------------------------------------------------------------------------*/

static int check_contract(const gw_config *c, bool warnings)
{
    sm_contracts *contracts = NULL;
    sm_report report = {0};
    if (c->contract.p == NULL)
        return CLI_OK;
    int code = cli_load_contracts(c->contract.p, &contracts, &report);
    cli_print_report(c->contract.p, &report, warnings);
    sm_report_fini(&report);
    sm_contracts_free(contracts);
    return code;
}

static int check_tokens(const gw_config *c)
{
    gw_tokens *tokens = NULL;
    sm_fault fault = {0};
    sm_err e = c->tokens.p == NULL ? SM_OK : gw_tokens_open(c->tokens.p, &tokens, &fault);
    gw_tokens_close(tokens);
    return e == SM_OK ? CLI_OK : cli_fail(CLI_DATA, "%s", fault.text);
}

static int check_file(sm_str path)
{
    sm_buf text = {0};
    int code = path.p == NULL ? CLI_OK : cli_read(path.p, TLS_FILE_MAX, &text);
    if (text.p != NULL)
        explicit_bzero(text.p, text.cap); /* it may be a key */
    sm_buf_fini(&text);
    return code;
}

/* A variable may well be set where the gateway will run and not here. */
static void check_variables(sm_str text)
{
    sm_buf b;
    sm_fault fault = {0};
    sm_buf_init(&b, SM_ARENA_MAX);
    if (gw_expand(text, &b, &fault) != SM_OK)
        fprintf(stderr, "%swarning:%s %s\n", cli_color(stderr, CLI_YELLOW),
                cli_color(stderr, CLI_PLAIN), fault.text);
    if (b.p != NULL)
        explicit_bzero(b.p, b.cap);
    sm_buf_fini(&b);
}

/* Everything that can be read without opening the ledger or a port. */
static int check_all(const gw_config *c)
{
    sm_fault fault = {0};
    int codes[] = {check_contract(c, true),
                   check_tokens(c),
                   check_file(c->tls.certificate),
                   check_file(c->tls.key),
                   check_file(c->seal_key),
                   check_file(c->ca_file),
                   CLI_OK};
    size_t n = sizeof codes / sizeof codes[0];
    if (gw_config_safe(c, &fault) != SM_OK)
        codes[n - 1] = cli_fail(CLI_DATA, "%s", fault.text);
    check_variables(c->ledger);
    for (uint32_t i = 0; i < c->proxies.n; i++) {
        for (uint32_t j = 0; j < c->proxies.v[i].headers.n; j++)
            check_variables(c->proxies.v[i].headers.v[j].value);
    }
    for (size_t i = 0; i < n; i++) {
        if (codes[i] != CLI_OK)
            return CLI_DATA;
    }
    printf("%s: no errors\n", c->file.p == NULL ? "the built-in configuration" : c->file.p);
    return CLI_OK;
}

/* ---- the command -----------------------------------------------------------------------------*/

static int serve(const gw_config *c)
{
    gateway *g = NULL;
    cli_service_hold();
    int code = cli_service_start(c, (sm_str){0}, &g);
    if (code != CLI_OK)
        return code;
    if (gw_tokens_count(g->tokens) == 0)
        gw_say(&g->log, GW_WARN,
               "there are no tokens yet, so nobody can call anything; see semel help token create",
               "tokens", c->tokens.p, NULL);
    return cli_service_run(g);
}

static int read_options(const cli_command *self, int argc, char **argv, options *o)
{
    static const struct option table[] = {{"config", required_argument, NULL, 'c'},
                                          {"listen", required_argument, NULL, 'l'},
                                          {"ledger", required_argument, NULL, 'd'},
                                          {"contract", required_argument, NULL, 'f'},
                                          {"tokens", required_argument, NULL, 't'},
                                          {"log", required_argument, NULL, 'g'},
                                          {"check", no_argument, NULL, 'k'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    while ((c = cli_option(self, argc, argv, table)) != -1) {
        switch (c) {
        case 'c': o->config = optarg; break;
        case 'l':
            if (o->listens == LISTEN_MAX)
                return cli_usage(self, "--listen may be given %d times", LISTEN_MAX);
            o->listen[o->listens++] = optarg;
            break;
        case 'd': o->ledger = cli_ledger_take(optarg); break;
        case 'f': o->contract = optarg; break;
        case 't': o->tokens = optarg; break;
        case 'g': o->log = optarg; break;
        case 'k': o->check = true; break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"", argv[optind]);
    if (o->ledger != NULL && *o->ledger == '\0')
        return cli_ledger_nameless();
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    gw_config *c = NULL;
    int code = read_options(self, argc, argv, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    code = cli_config_read(o.config, true, &c);
    if (code == CLI_OK)
        code = override(self, &o, c);
    if (code == CLI_OK && o.check)
        code = check_all(c);
    else if (code == CLI_OK && (code = check_contract(c, false)) == CLI_OK)
        code = serve(c);
    gw_config_free(c);
    return code;
}

const cli_command cli_serve = {
    .name = "serve",
    .summary = "the gateway: HTTP tools executed once, for agents in any language",
    .help =
        "  semel serve --config /etc/semel/semel.yaml\n"
        "  semel serve --contract tools.yaml --listen 127.0.0.1:9000 --log json\n"
        "  semel serve --config /etc/semel/semel.yaml --check\n\n"
        "Usage: semel serve [--config FILE]\n\n"
        "  --config FILE            the configuration (docs/gateway.md); else a built-in one:\n"
        "                           127.0.0.1:8787, the user's own ledger and tokens\n"
        "  --listen ADDRESS         127.0.0.1:8787, [::1]:8787, unix:PATH; may be given again\n"
        "  --ledger URL             as in the configuration; ${NAME} stands for a variable of the\n"
        "                           environment\n"
        "  --contract FILE          what is declared about tools; else SEMEL_CONTRACT\n"
        "  --tokens FILE            who may use it; see semel token create\n"
        "  --log text|json          how log lines are written, on stderr\n"
        "  --check                  only reads all files, and tells what is wrong with them\n"
        "\nThese go before what the configuration says. SIGHUP reads contracts and tokens again,\n"
        "all or nothing. SIGTERM and SIGINT end it once what is under way has ended; a second one\n"
        "ends it at once.\n\n"
        "Exit code: 0 ended by a signal, or everything is right (--check); 65 something in a file\n"
        "is wrong; 69 the ledger or an address cannot be had.\n",
    .run = run,
};
