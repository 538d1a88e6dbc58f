/*
 * The contract reader on arbitrary bytes: it never crashes or leaks, a failure says where and why,
 * and whatever it accepts can be listed, looked up and used to identify calls.
 */
#include <stdlib.h>

#include "core/identity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void on_leaf(void *context, const char *name, sm_str json, sm_layer layer,
                    const sm_json *given)
{
    (void)context, (void)layer, (void)given;
    must(name != NULL && json.n > 0);
    /* What is listed is JSON. */
    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    const sm_json *root;
    must(sm_json_read(&a, json, &sm_json_default_limits, &root, NULL) == SM_OK);
    sm_arena_fini(&a);
}

/* Calls the tool with some arguments: it is identified or refused, and twice the same way. */
static void use(const sm_contracts *set, const sm_declared_tool *tool)
{
    static const char *const arguments[] = {
        "{}", "[]", "{\"a\":1,\"b\":{\"c\":[1,{\"d\":null}]},\"id\":\"x\",\"amount\":99.5}"};
    static const uint8_t nonce[SM_NONCE_BYTES];
    sm_arena a;
    sm_keyer k = {0};
    sm_arena_init(&a, SM_ARENA_MAX);
    must(sm_keyer_init(&k) == SM_OK);
    for (size_t i = 0; i < sizeof arguments / sizeof arguments[0]; i++) {
        sm_parsed_call call = {.scope = SM_STR("s"), .tool = tool->name, .step = SM_STR("1")};
        must(sm_json_read(&a, sm_str_from(arguments[i]), &sm_json_default_limits, &call.args,
                          NULL) == SM_OK);
        sm_identity one, two;
        sm_fault fault = {0};
        sm_err e = sm_identify(&a, &k, set, &call, nonce, &one, &fault);
        must(e == SM_OK || fault.text[0] != '\0');
        must(sm_identify(&a, &k, set, &call, nonce, &two, NULL) == e);
        must(e != SM_OK || memcmp(&one.key, &two.key, sizeof one.key) == 0);
    }
    sm_keyer_fini(&k);
    sm_arena_fini(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sm_str text = {(const char *)data, size};
    sm_report report;
    sm_contracts *set;
    must(sm_report_init(&report, text) == SM_OK);
    sm_err e = sm_contracts_read(SM_STR("fuzz"), text, &set, &report);
    must((e == SM_OK) == (report.errors == 0) && (set != NULL) == (e == SM_OK));
    for (uint32_t i = 0; i < report.count; i++)
        must(report.items[i].line >= 1 && report.items[i].column >= 1 &&
             report.items[i].text.n > 0 && report.items[i].at <= size);
    if (e == SM_OK) {
        for (uint32_t i = 0; i < set->tool_count && i < 50; i++) {
            sm_contract_show(&set->tools[i].contract, on_leaf, NULL);
            sm_buf identity;
            sm_buf_init(&identity, SM_ARENA_MAX);
            sm_contract_identity(&set->tools[i].contract, &identity);
            must(identity.len > 0);
            sm_buf_fini(&identity);
            if (!set->tools[i].glob)
                must(sm_contracts_tool(set, set->tools[i].name) == &set->tools[i]);
            use(set, &set->tools[i]);
        }
    }
    sm_contracts_free(set);
    sm_report_fini(&report);
    return 0;
}
