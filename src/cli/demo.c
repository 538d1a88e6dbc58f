/*
 * What the program does without arguments: a short demonstration. An agent retries a call in
 * several spellings; every key below is computed on the spot.
 */
#include "base/limits.h"
#include "cli/cli.h"
#include "core/identity.h"

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
    {"It is asked a third time, and words it differently.",
     "{\"order_id\": \"A\\u002d17\", \"amount\": 1000.0, \"note\": \"second try\"}"},
    {"Another order is another action.", "{\"order_id\": \"A-18\", \"amount\": 1000}"},
};

static int tell(sm_arena *a, sm_keyer *k, const sm_contracts *set)
{
    sm_key first = {0};
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        sm_call call = {.scope = SM_STR("shop/agent-7"), .tool = SM_STR("stripe.charge")};
        call.args_text = sm_str_from(calls[i].args);
        sm_fault fault = {0};
        sm_identity id;
        sm_err e = sm_json_read(a, call.args_text, &sm_json_default_limits, &call.args, &fault);
        if (e == SM_OK)
            e = sm_identify(a, k, set, &call, NULL, &id, &fault);
        if (e != SM_OK)
            return cli_fault("demo", &fault);
        if (i == 0)
            first = id.key;
        bool same = i > 0 && memcmp(&first, &id.key, sizeof first) == 0;
        char key[SM_HASH_TEXT + 1];
        sm_hash_text(&id.key.hash, key);
        printf("%zu. %s\n   stripe.charge %s\n   key %s%s%s  %s\n\n", i + 1, calls[i].told,
               calls[i].args, cli_color(stdout, same ? CLI_YELLOW : CLI_GREEN), key,
               cli_color(stdout, CLI_PLAIN),
               same ? "same key: a retry, not a second charge" : "new key: it may run");
    }
    return CLI_OK;
}

int cli_demo(void)
{
    sm_contracts *set = NULL;
    sm_report report = {0};
    sm_keyer keyer = {0};
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    sm_err e = sm_keyer_init(&keyer);
    if (e == SM_OK)
        e = sm_report_init(&report, SM_STR(contract_text));
    if (e == SM_OK)
        e = sm_contracts_read(SM_STR("demo"), SM_STR(contract_text), &set, &report);
    int code = CLI_OK;
    if (e == SM_OK) {
        printf("%sSemel: once.%s Agents retry; the side effect must not.\n\n"
               "A contract says what names the action:\n\n%s\n",
               cli_color(stdout, CLI_BOLD), cli_color(stdout, CLI_PLAIN), contract_text);
        code = tell(&arena, &keyer, set);
        if (code == CLI_OK)
            printf("Try it on your own calls:  ./run key --tool NAME --args '{...}' --explain\n"
                   "All commands:              ./run help\n");
    } else {
        code = cli_fail(cli_code(e), "%s", semel_err_text(e));
    }
    sm_contracts_free(set);
    sm_report_fini(&report);
    sm_keyer_fini(&keyer);
    sm_arena_fini(&arena);
    return code;
}
