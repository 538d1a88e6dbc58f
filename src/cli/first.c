/*
 * What the program does without arguments: a gateway on this machine with a tool to try, and the
 * lines to try it with. Everything that is printed can be pasted into another terminal as it is.
 *
 * The ledger and the tokens are the user's own, so that what was tried can be looked at with the
 * other commands. Each start has a scope of its own: what an earlier one did is not replayed.
 */
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/config.h"
#include "gateway/demo.h"
#include "gateway/service.h"
#include "gateway/tokens.h"

/* ---- the screen ------------------------------------------------------------------------------*/

static const char *bold(void)
{
    return cli_color(stdout, CLI_BOLD);
}

static const char *plain(void)
{
    return cli_color(stdout, CLI_PLAIN);
}

/* How this program is called: a name alone is found by the shell, a path is given again. */
static const char *name_of(const char *program)
{
    return program != NULL && strchr(program, '/') != NULL ? program : "semel";
}

static void print_token(const char *program, const char *token)
{
    if (token[0] != '\0')
        printf("This is your first token. It may do everything, and is shown this once:\n\n"
               "  export SEMEL_TOKEN=%s\n\n",
               token);
    else
        printf("A token for what follows (%s token list shows those that there are):\n\n"
               "  export SEMEL_TOKEN=$(%s token create --role agent --scope demo --expires 1d)\n\n",
               program, program);
}

static void print_call(const char *told, sm_str address, unsigned run, const char *args)
{
    printf("  %s# %s%s\n"
           "  curl -sSi %.*s/v1/call -H \"Authorization: Bearer $SEMEL_TOKEN\" \\\n"
           "    -H Content-Type:application/json \\\n"
           "    -d '{\"scope\":\"demo/%u\",\"tool\":\"demo.charge\",\"args\":{%s}}' \\\n"
           "    | grep -iE '^HTTP|replayed|charge'\n\n",
           cli_color(stdout, CLI_DIM), told, plain(), SM_FMT(address), run, args);
}

static void print_screen(const char *program, sm_str address, const char *token)
{
    unsigned run = (unsigned)(sm_clock_ms() / 1000 % 100000);
    printf("%sSemel: once.%s Agents retry; the side effect must not.\n\n"
           "The gateway is at %s%.*s%s (Ctrl-C ends it).\n\n",
           bold(), plain(), bold(), SM_FMT(address), plain());
    print_token(program, token);
    printf("Paste that into another terminal, and then these: one tool called three times, as an\n"
           "agent does whose answers get lost. The card is charged once.\n\n");
    print_call("The agent charges a card.", address, run, "\"order_id\":\"A-17\",\"amount\":1000");
    print_call("The answer is lost, and it asks again.", address, run,
               "\"amount\":1e3,\"order_id\":\"A-17\"");
    print_call("And again, in other words.", address, run,
               "\"order_id\":\"A-17\",\"amount\":1000,\"try\":3");
    printf("  %s# What the ledger knows of it.%s\n"
           "  %s list --scope demo/%u\n\n"
           "Your own tools: %s help serve. All commands: %s help.\n\n",
           cli_color(stdout, CLI_DIM), plain(), program, run, program, program);
    fflush(stdout);
}

/* ---- starting --------------------------------------------------------------------------------*/

/* Nobody has a token yet: somebody has to be the first. */
static int first_token(gateway *g, const gw_config *c, char text[GW_TOKEN_TEXT])
{
    gw_token what = {.name = "first", .role = GW_ADMIN}, made;
    sm_fault fault = {0};
    text[0] = '\0';
    if (gw_tokens_count(gw_tokens_of(g)) > 0)
        return CLI_OK;
    sm_err e = gw_token_create(c->tokens.p, &what, text, &made, &fault);
    if (e == SM_OK)
        e = gw_tokens_refresh(gw_tokens_of(g), &fault);
    return e == SM_OK ? CLI_OK : cli_fail(cli_code(e), "%s", fault.text);
}

int cli_first_screen(const char *program)
{
    gw_config *config = NULL;
    gw_demo *demo = NULL;
    gateway *g = NULL;
    uint16_t port = 0;
    char contract[1000], token[GW_TOKEN_TEXT];
    sm_fault fault = {0};
    gw_service_hold();
    int code = cli_config_read(NULL, &config);
    if (code == CLI_OK)
        code = cli_config_free_port(config);
    if (code == CLI_OK && gw_demo_start(&demo, &port, &fault) != SM_OK)
        code = cli_fail(cli_code(fault.code), "%s", fault.text);
    if (code == CLI_OK) {
        gw_demo_contract(port, contract, sizeof contract);
        code = cli_config_start(config, sm_str_from(contract), &g);
    }
    if (code == CLI_OK && (code = first_token(g, config, token)) != CLI_OK)
        gw_stop(g);
    if (code == CLI_OK) {
        print_screen(name_of(program), gw_address(g, 0), token);
        explicit_bzero(token, sizeof token);
        gw_service_run(g);
    }
    gw_demo_stop(demo);
    gw_config_free(config);
    return code;
}
