/*
 * semel serve: the gateway, by its configuration and what the command line says instead.
 *
 * Everything that can be read before anything is opened is read first, so that all mistakes are
 * told at once: those of the configuration and of the files that it names (serve_check.c).
 */
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/config.h"
#include "cli/ledger.h"
#include "cli/serve_check.h"
#include "gateway/service.h"

#define LISTEN_MAX 8

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
        v[i].place = (gw_place){.name = "--listen"};
    }
    if (v == NULL)
        return cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
    c->listen = (gw_listens){v, o->listens};
    return CLI_OK;
}

/* What is named on the command line is not where the file says. */
static void replace(gw_config *c, gw_named which, sm_str *name, const char *value,
                    const char *said_by)
{
    if (value == NULL || *value == '\0')
        return;
    *name = sm_str_from(value);
    c->places[which] = (gw_place){.name = said_by};
}

/* A file's name that is in the environment, where neither the configuration nor the command line
 * has one. */
static void or_environment(gw_config *c, gw_named which, sm_str *name, const char *variable)
{
    if (name->p == NULL)
        replace(c, which, name, getenv(variable), variable);
}

/* What the command line says goes before what the file says. */
static int override(const cli_command *self, const options *o, gw_config *c)
{
    if (o->log != NULL)
        c->log.format = strcmp(o->log, "json") == 0 ? GW_LOG_JSON : GW_LOG_TEXT;
    replace(c, GW_NAMED_LEDGER, &c->ledger, o->ledger, "--ledger");
    replace(c, GW_NAMED_CONTRACT, &c->contract, o->contract, "--contract");
    replace(c, GW_NAMED_TOKENS, &c->tokens, o->tokens, "--tokens");
    or_environment(c, GW_NAMED_CONTRACT, &c->contract, "SEMEL_CONTRACT");
    or_environment(c, GW_NAMED_SEAL_KEY, &c->seal_key, "SEMEL_SEAL_KEY_FILE");
    if (o->listens > 0)
        return override_listen(self, o, c);
    return o->config == NULL && !o->check ? cli_config_free_port(c) : CLI_OK;
}

/* ---- the command -----------------------------------------------------------------------------*/

/* How to let the first one in, where the file of tokens is named. */
static void hint_tokens(const gateway *g, const gw_config *c)
{
    char command[400];
    snprintf(command, sizeof command, CLI_MAKE_TOKEN "%.300s", c->tokens.p);
    gw_say(gw_log_of(g), GW_WARN, CLI_NO_TOKENS, "make_one", command, NULL);
}

static int serve(const gw_config *c)
{
    gateway *g = NULL;
    /* Otherwise the allocator learns to keep what large answers took. */
    mallopt(M_MMAP_THRESHOLD, (int)SM_KEPT_BYTES);
    gw_service_hold();
    int code = cli_config_start(c, (sm_str){0}, &g);
    if (code != CLI_OK)
        return code;
    if (gw_tokens_count(gw_tokens_of(g)) == 0)
        hint_tokens(g, c);
    gw_service_run(g);
    return CLI_OK;
}

static int read_options(const cli_command *self, int argc, char **argv, options *o)
{
    static const struct option table[] = {CLI_TEXT("config", options, config),
                                          {"listen", required_argument, NULL, 'l'},
                                          {"ledger", required_argument, NULL, 'd'},
                                          CLI_TEXT("contract", options, contract),
                                          CLI_TEXT("tokens", options, tokens),
                                          CLI_TEXT("log", options, log),
                                          CLI_FLAG("check", options, check),
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    int c;
    while ((c = cli_option(self, argc, argv, table, o)) != -1) {
        switch (c) {
        case 'l':
            if (o->listens == LISTEN_MAX)
                return cli_usage(self, "--listen may be given %d times", LISTEN_MAX);
            o->listen[o->listens++] = optarg;
            break;
        case 'd': o->ledger = cli_ledger_take(optarg); break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"", argv[optind]);
    if (o->ledger != NULL && *o->ledger == '\0')
        return cli_ledger_nameless();
    if ((o->contract != NULL && *o->contract == '\0') || (o->tokens != NULL && *o->tokens == '\0'))
        return cli_usage(self, "--%s is empty: name a file, or leave the option out",
                         o->tokens != NULL && *o->tokens == '\0' ? "tokens" : "contract");
    if (o->log != NULL && strcmp(o->log, "text") != 0 && strcmp(o->log, "json") != 0)
        return cli_usage(self, "--log takes text or json, not \"%s\"", o->log);
    return CLI_OK;
}

/* The log that findings go to as JSON, if they do: the command line goes before the configuration,
 * which may not have been read. NULL: they are told to people. */
static const gw_log *log_of(const options *o, const gw_config *c, gw_log *out)
{
    bool json =
        o->log != NULL ? strcmp(o->log, "json") == 0 : c != NULL && c->log.format == GW_LOG_JSON;
    *out = (gw_log){.fd = STDERR_FILENO, .rule = {.format = GW_LOG_JSON}};
    if (c != NULL)
        out->rule.level = c->log.level;
    return json && !o->check ? out : NULL;
}

static int run(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    gw_config *c = NULL;
    sm_report report;
    gw_log room;
    int code = read_options(self, argc, argv, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    code = cli_config_load(o.config, &c, &report);
    const gw_log *log = log_of(&o, c, &room);
    cli_tell_findings(log, "configuration", cli_input_name(o.config), &report);
    sm_report_fini(&report);
    if (code == CLI_OK)
        code = override(self, &o, c);
    if (code == CLI_OK && o.check)
        code = cli_serve_check(c);
    else if (code == CLI_OK && (code = cli_serve_ready(c, log)) == CLI_OK)
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
        "is wrong; 66 a file is not there; 69 the ledger or an address cannot be had.\n",
    .run = run,
};
