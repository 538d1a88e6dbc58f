/* Looking at what a configuration names, without opening the ledger or a port. */
#include "cli/serve_check.h"

#include <unistd.h>

#include "base/limits.h"
#include "cli/config.h"
#include "gateway/tokens.h"
#include "ledger/service.h"

void cli_tell_findings(const gw_log *log, const char *message, const char *file, sm_report *report)
{
    if (log == NULL)
        cli_print_report(file, report, true);
    else
        gw_say_findings(log, message, sm_str_from(file), report);
}

/* ---- what is wrong with a configuration ------------------------------------------------------*/

typedef struct telling {
    const gw_config *config;
    const gw_log *log; /* NULL: to people */
    bool warns;        /* it is no error */
    int code;          /* of the first error */
} telling;

static void tell(void *context, const sm_fault *fault)
{
    telling *t = context;
    const gw_config *c = t->config;
    if (t->log != NULL)
        gw_say_fault(t->log, t->warns ? GW_WARN : GW_ERROR, "configuration", c->file, fault);
    else if (fault->line > 0)
        fprintf(stderr, "%s%s:%u:%u: %s%s:%s %s\n", cli_color(stderr, CLI_BOLD), c->file.p,
                fault->line, fault->column, cli_color(stderr, t->warns ? CLI_YELLOW : CLI_RED),
                t->warns ? "warning" : "error", cli_color(stderr, CLI_PLAIN), fault->text);
    else
        cli_fail(0, "%s", fault->text);
    if (!t->warns && t->code == CLI_OK)
        t->code = cli_code(fault->code);
}

/* ---- contracts, tokens, the ledger -----------------------------------------------------------*/

/* Reads the contracts, if there are any. *variables, made from the same text, gets those that are
 * not set. */
static int check_contract(telling *t, bool warnings, sm_severity severity, sm_report *variables)
{
    const char *file = t->config->contract.p;
    sm_contracts *contracts = NULL;
    sm_report report = {0};
    sm_buf text = {0};
    int code = cli_read(file, SM_CONTRACT_BYTES_MAX, &text);
    sm_err e = SM_OK;
    if (code == CLI_OK && (e = sm_report_init(&report, sm_buf_view(&text))) == SM_OK)
        e = sm_contracts_read(t->config->contract, sm_buf_view(&text), &contracts, &report);
    if (e == SM_OK && code == CLI_OK)
        e = sm_report_init(variables, sm_buf_view(&text));
    if (e == SM_OK && code == CLI_OK)
        gw_contract_variables(contracts, severity, variables);
    if (warnings || report.errors > 0)
        cli_tell_findings(t->log, "contract", file, &report);
    if (e != SM_OK && report.errors == 0)
        cli_fail(cli_code(e), "%s: %s", file, semel_err_text(e));
    sm_report_fini(&report);
    sm_contracts_free(contracts);
    sm_buf_fini(&text);
    return code == CLI_OK ? cli_code(e) : code;
}

static void check_tokens(telling *t)
{
    gw_tokens *tokens = NULL;
    sm_fault fault = {0};
    const char *file = t->config->tokens.p;
    if (file != NULL && gw_tokens_open(file, &tokens, &fault) != SM_OK) {
        tell(t, &fault);
    } else if (file != NULL && gw_tokens_count(tokens) == 0) {
        gw_config_fault(&fault, SEMEL_E_NOT_FOUND, &t->config->places[GW_NAMED_TOKENS],
                        CLI_NO_TOKENS ": " CLI_MAKE_TOKEN "%.300s", file);
        t->warns = true;
        tell(t, &fault);
        t->warns = false;
    }
    gw_tokens_close(tokens);
}

static void check_ledger(telling *t)
{
    const gw_config *c = t->config;
    sm_buf url;
    sm_fault fault = {0}, place = {0};
    sm_buf_init(&url, SM_ARENA_MAX);
    sm_err e = gw_config_ledger(c, &url, &fault);
    if (e == SM_OK) {
        e = sm_ledger_place(c->ledger.p != NULL ? url.p : NULL, &place);
        if (e != SM_OK)
            gw_config_fault(&fault, e, &c->places[GW_NAMED_LEDGER], "%s", place.text);
    }
    if (e != SM_OK)
        tell(t, &fault);
    if (url.p != NULL)
        explicit_bzero(url.p, url.cap); /* it may hold a password */
    sm_buf_fini(&url);
}

/* ---- all of it -------------------------------------------------------------------------------*/

int cli_serve_check(const gw_config *c)
{
    telling t = {.config = c};
    sm_fault fault = {0};
    sm_report variables = {0};
    unsigned wrong = gw_config_files(c, tell, &t);
    bool readable = c->contract.p != NULL && (wrong & 1u << GW_NAMED_CONTRACT) == 0;
    bool right = !readable || check_contract(&t, true, SM_ERROR, &variables) == CLI_OK;
    cli_tell_findings(NULL, "contract", c->contract.p, &variables);
    check_tokens(&t);
    if (gw_config_safe(c, &fault) != SM_OK)
        tell(&t, &fault);
    check_ledger(&t);
    gw_config_variables(c, tell, &t);
    t.warns = true;
    gw_config_commands(c, tell, &t);
    right = right && t.code == CLI_OK && variables.errors == 0;
    sm_report_fini(&variables);
    if (!right)
        return CLI_DATA;
    printf("%s: no errors\n", c->file.p == NULL ? "the built-in configuration" : c->file.p);
    return CLI_OK;
}

int cli_serve_ready(const gw_config *c, const gw_log *log)
{
    telling t = {.config = c, .log = log};
    const gw_log warnings = {.rule = c->log, .fd = STDERR_FILENO};
    sm_report variables = {0};
    gw_config_files(c, tell, &t);
    if (t.code == CLI_OK && c->contract.p != NULL)
        t.code = check_contract(&t, false, SM_WARNING, &variables);
    if (t.code == CLI_OK) {
        t.log = &warnings;
        t.warns = true;
        gw_say_findings(&warnings, "contract", c->contract, &variables);
        gw_config_variables(c, tell, &t);
        gw_config_commands(c, tell, &t);
    }
    sm_report_fini(&variables);
    return t.code;
}
