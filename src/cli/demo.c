/*
 * semel demo: an agent makes a call and then makes it again in several ways; a ledger in memory
 * decides, for real, which of them run.
 */
#include "cli/cli.h"
#include "semel/semel.h"

static const char contract_text[] =
    "version: 1\n"
    "tools:\n"
    "  stripe.charge:\n"
    "    class: irreversible\n"
    "    key: { fields: [/order_id], match: [/amount, /currency] }\n"
    "    fill: { /currency: usd }\n";

static const struct {
    const char *told; /* what happens */
    const char *args;
} calls[] = {
    {"The agent charges a card.",
     "{\"order_id\": \"A-17\", \"amount\": 1000, \"currency\": \"usd\"}"},
    {"The answer is lost, and the agent asks again.",
     "{\"currency\": \"usd\", \"amount\": 1e3, \"order_id\": \"A-17\"}"},
    {"It asks a third time, and words it differently.",
     "{\"order_id\": \"A\\u002d17\", \"amount\": 1000.0, \"note\": \"second try\"}"},
    {"The model gets the amount wrong.", "{\"order_id\": \"A-17\", \"amount\": 100000}"},
    {"Another order is another action.", "{\"order_id\": \"A-18\", \"amount\": 1000}"},
};

/* The side effect: here it only counts. */
typedef struct till {
    int charges;
    char receipt[32];
} till;

static void charge(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    (void)execute;
    till *t = context;
    snprintf(t->receipt, sizeof t->receipt, "{\"charge\": \"ch_%d\"}", ++t->charges);
    outcome->value = sm_str_from(t->receipt);
}

static void tell(const semel_answer *a)
{
    bool ran = a->executed, refused = a->verdict == SEMEL_REFUSED;
    printf("   %s%s%s ", cli_color(stdout, ran ? CLI_GREEN : CLI_YELLOW),
           ran       ? "charged:"
           : refused ? semel_code_name(a->code)
                     : "already done, replayed:",
           cli_color(stdout, CLI_PLAIN));
    if (a->has_outcome && !refused)
        cli_print(stdout, a->outcome.value);
    else
        printf("at %.*s: nothing runs", SM_FMT(a->drift));
    printf("\n\n");
}

static int show(void)
{
    semel_fault fault = {0};
    semel *s = NULL;
    till drawer = {0};
    semel_options o = {
        .size = sizeof o, .url = "memory:", .contract = SM_STR(contract_text), .one_shot = true};
    semel_answer *a = semel_answer_new();
    semel_err e = a == NULL ? SEMEL_E_NOMEM : semel_open(&o, &s, &fault);
    if (e == SEMEL_OK)
        printf("%sSemel: once.%s Agents retry; the side effect must not.\n\n"
               "A contract says what names the action:\n\n%s\n",
               cli_color(stdout, CLI_BOLD), cli_color(stdout, CLI_PLAIN), contract_text);
    size_t count = sizeof calls / sizeof calls[0];
    for (size_t i = 0; i < count && e == SEMEL_OK; i++) {
        semel_call call = {.size = sizeof call,
                           .scope = SM_STR("shop/agent-7"),
                           .tool = SM_STR("stripe.charge"),
                           .args = sm_str_from(calls[i].args)};
        printf("%zu. %s\n   stripe.charge %s\n", i + 1, calls[i].told, calls[i].args);
        e = semel_run(s, &call, charge, &drawer, a);
        if (e == SEMEL_OK)
            tell(a);
    }
    if (e == SEMEL_OK)
        printf("%zu calls, %d charges.\n\n"
               "Run a command once:        semel run --key KEY -- COMMAND\n"
               "See what makes a key:      semel key --tool NAME --args '{...}' --explain\n"
               "Try it over HTTP:          semel\n"
               "Serve your own tools:      semel serve --config FILE\n"
               "All commands:              semel help\n",
               count, drawer.charges);
    semel_close(s);
    semel_answer_free(a);
    return e == SEMEL_OK ? CLI_OK : cli_fail(cli_code(e), "%s", semel_err_text(e));
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {{"help", no_argument, NULL, 'h'}, {0}};
    int c = cli_option(self, argc, argv, table, NULL);
    if (c != -1)
        return c == 'h' ? CLI_OK : CLI_USAGE;
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"", argv[optind]);
    return show();
}

const cli_command cli_demo = {
    .name = "demo",
    .summary = "a short demonstration, which leaves nothing behind",
    .help = "  semel demo\n\n"
            "Usage: semel demo\n\n"
            "Five calls of one tool, some of them retries, on a ledger in memory.\n",
    .run = run,
};
