/* From a call and its contract to its key (I10): what is equal, what is not, what is refused. */
#include "contracts.h"

#include "core/identity.h"
#include "json/canon.h"

typedef struct bench {
    sm_arena arena;
    sm_keyer keyer;
    sm_contracts *set;
} bench;

static void bench_init(bench *b, const char *text)
{
    sm_arena_init(&b->arena, SM_ARENA_MAX);
    b->keyer = (sm_keyer){0};
    assert_int_equal(sm_keyer_init(&b->keyer), SM_OK);
    b->set = contracts(text);
}

static void bench_fini(bench *b)
{
    sm_contracts_free(b->set);
    sm_keyer_fini(&b->keyer);
    sm_arena_fini(&b->arena);
}

static sm_err identify(bench *b, sm_parsed_call call, const char *args, sm_identity *out,
                       sm_fault *fault)
{
    static const uint8_t nonce[SM_NONCE_BYTES] = {1};
    if (call.scope.p == NULL)
        call.scope = SM_STR("s");
    call.args = document(&b->arena, args);
    return sm_identify(&b->arena, &b->keyer, b->set, &call, nonce, out, fault);
}

/* The text of a call's key. */
static const char *key_of(bench *b, sm_parsed_call call, const char *args)
{
    sm_identity id;
    sm_fault fault = {0};
    sm_err e = identify(b, call, args, &id, &fault);
    expect(e == SM_OK, "%s was refused: %s", args, fault.text);
    char *text = sm_arena_alloc(&b->arena, SM_HASH_TEXT + 1);
    sm_hash_text(&id.key.hash, text);
    return text;
}

#define TOOL(name) ((sm_parsed_call){.tool = SM_STR(name)})

static const char shop[] = "version: 1\ntools:\n"
                           "  hash: {}\n"
                           "  fields: {key: {fields: [/id, /o/x]}}\n"
                           "  ignore: {key: {ignore: [/note, /o/at]}}\n"
                           "  fill: {fill: {/currency: usd, /o/n: 3}}\n"
                           "  fillfields: {fill: {/currency: usd}, key: {fields: [/currency]}}\n"
                           "  step: {key: step}\n"
                           "  explicit: {key: explicit}\n"
                           "  unique: {key: unique}\n"
                           "  none: {key: none}\n"
                           "  read: {class: read}\n"
                           "  needs: {step: required}\n"
                           "  input: {input: {required: [a, b]}, fill: {/b: 1}}\n"
                           "  crm:\n"
                           "    fill: {/action: list}\n"
                           "    variants:\n"
                           "      - {when: [{field: /action, equals: list}], class: read}\n"
                           "      - {when: [{field: /action, equals: pay}], fill: {/n: 1}}\n"
                           "  def:\n"
                           "    fill: {/action: create}\n"
                           "    variants:\n"
                           "      - {when: [{field: /action, equals: create}], fill: {/n: 10}}\n"
                           "  match: {key: {fields: [/id], match: [/amount]}}\n"
                           "  forgive: {on_drift: replay}\n";

static void spelling_does_not_change_a_key(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    const char *key = key_of(&b, TOOL("hash"), "{\"a\":1,\"b\":\"A\"}");
    assert_int_equal(strlen(key), 43);
    assert_string_equal(key, key_of(&b, TOOL("hash"), " { \"b\" : \"\\u0041\" , \"a\" : 1.0e0 } "));
    assert_string_not_equal(key, key_of(&b, TOOL("hash"), "{\"a\":2,\"b\":\"A\"}"));
    assert_string_not_equal(key, key_of(&b, TOOL("other"), "{\"a\":1,\"b\":\"A\"}"));
    bench_fini(&b);
}

static void omitted_equals_the_explicit_default(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    const char *key = key_of(&b, TOOL("fill"), "{\"id\":1}");
    assert_string_equal(key, key_of(&b, TOOL("fill"), "{\"id\":1,\"currency\":\"usd\"}"));
    assert_string_equal(key, key_of(&b, TOOL("fill"), "{\"id\":1,\"o\":{}}"));
    assert_string_equal(
        key, key_of(&b, TOOL("fill"), "{\"o\":{\"n\":3.0},\"id\":1,\"currency\":\"usd\"}"));
    assert_string_not_equal(key, key_of(&b, TOOL("fill"), "{\"id\":1,\"currency\":\"eur\"}"));
    assert_string_not_equal(key, key_of(&b, TOOL("fill"), "{\"id\":1,\"currency\":null}"));
    assert_string_equal(key_of(&b, TOOL("fillfields"), "{}"),
                        key_of(&b, TOOL("fillfields"), "{\"currency\":\"usd\",\"x\":1}"));
    bench_fini(&b);
}

static void only_what_the_contract_names_counts(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    const char *key = key_of(&b, TOOL("fields"), "{\"id\":1,\"o\":{\"x\":2}}");
    assert_string_equal(key,
                        key_of(&b, TOOL("fields"), "{\"id\":1,\"o\":{\"x\":2,\"y\":3},\"n\":4}"));
    assert_string_not_equal(key, key_of(&b, TOOL("fields"), "{\"id\":1,\"o\":{\"x\":3}}"));
    assert_string_not_equal(key, key_of(&b, TOOL("fields"), "{\"id\":1}"));
    /* An absent field and an empty object on the way to it are the same. */
    assert_string_equal(key_of(&b, TOOL("fields"), "{\"id\":1}"),
                        key_of(&b, TOOL("fields"), "{\"id\":1,\"o\":{}}"));
    key = key_of(&b, TOOL("ignore"), "{\"id\":1,\"o\":{\"x\":2}}");
    assert_string_equal(key, key_of(&b, TOOL("ignore"),
                                    "{\"id\":1,\"note\":\"n\",\"o\":{\"x\":2,\"at\":\"now\"}}"));
    assert_string_not_equal(key, key_of(&b, TOOL("ignore"), "{\"id\":1,\"o\":{\"x\":2,\"y\":0}}"));
    bench_fini(&b);
}

static void each_strategy_hashes_its_own_parts(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    sm_parsed_call call = TOOL("step");
    call.step = SM_STR("3");
    assert_string_equal(key_of(&b, call, "{\"a\":1}"), key_of(&b, call, "{\"a\":2}"));
    sm_parsed_call other = call;
    other.step = SM_STR("4");
    assert_string_not_equal(key_of(&b, call, "{}"), key_of(&b, other, "{}"));

    call = TOOL("explicit");
    call.key = SM_STR("k1");
    sm_parsed_call same = TOOL("hash"); /* a caller's key always means explicit, of whatever tool */
    same.key = SM_STR("k1");
    assert_string_equal(key_of(&b, call, "{}"), key_of(&b, same, "{\"a\":1}"));
    same.tool = SM_STR("none");
    assert_string_equal(key_of(&b, call, "{}"), key_of(&b, same, "{}"));
    same.scope = SM_STR("elsewhere");
    assert_string_not_equal(key_of(&b, call, "{}"), key_of(&b, same, "{}"));

    sm_identity id;
    assert_int_equal(identify(&b, TOOL("none"), "{}", &id, NULL), SM_OK);
    assert_int_equal(id.strategy, SM_KEY_NONE);
    sm_parsed_call read = TOOL("read");
    read.key = SM_STR("k1");
    assert_int_equal(identify(&b, read, "{}", &id, NULL), SM_OK);
    assert_int_equal(id.strategy, SM_KEY_NONE);
    assert_int_equal(identify(&b, TOOL("unique"), "{}", &id, NULL), SM_OK);
    assert_int_equal(id.strategy, SM_KEY_UNIQUE);
    bench_fini(&b);
}

static void a_step_separates_equal_calls(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    sm_parsed_call one = TOOL("hash"), two = TOOL("hash");
    one.step = SM_STR("1");
    two.step = SM_STR("2");
    assert_string_not_equal(key_of(&b, one, "{}"), key_of(&b, two, "{}"));
    assert_string_not_equal(key_of(&b, one, "{}"), key_of(&b, TOOL("hash"), "{}"));
    bench_fini(&b);
}

static void variants_are_chosen_on_the_filled_arguments(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    sm_identity id;
    assert_int_equal(identify(&b, TOOL("crm"), "{}", &id, NULL), SM_OK);
    assert_int_equal(id.contract->variant, 1);
    assert_int_equal(id.strategy, SM_KEY_NONE);
    assert_int_equal(identify(&b, TOOL("crm"), "{\"action\":\"pay\"}", &id, NULL), SM_OK);
    assert_int_equal(id.contract->variant, 2);
    assert_string_equal(canonical(&b.arena, id.filled), "{\"action\":\"pay\",\"n\":1}");
    assert_int_equal(identify(&b, TOOL("crm"), "{\"action\":\"x\"}", &id, NULL), SM_OK);
    assert_int_equal(id.contract->variant, 0);
    bench_fini(&b);
}

static void a_variants_fill_keeps_omitted_equal_to_explicit(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    const char *key = key_of(&b, TOOL("def"), "{\"id\":1}");
    assert_string_equal(key, key_of(&b, TOOL("def"), "{\"id\":1,\"action\":\"create\"}"));
    assert_string_equal(key, key_of(&b, TOOL("def"), "{\"id\":1,\"n\":10}"));
    bench_fini(&b);
}

static void a_callers_key_takes_the_place_of_a_step(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    sm_parsed_call call = TOOL("step"), needs = TOOL("needs");
    call.key = needs.key = SM_STR("k1");
    key_of(&b, call, "{}");
    sm_identity id;
    assert_int_equal(identify(&b, needs, "{}", &id, NULL), SEMEL_E_BAD_ARGUMENTS);
    bench_fini(&b);
}

static void drift_is_judged_by_how_the_call_was_named(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    static const struct {
        const char *tool, *key, *step, *one, *two;
        sm_drift drift;
    } rows[] = {
        {"hash", NULL, NULL, "{\"a\":1}", "{\"a\":1.0}", SM_SAME},
        {"ignore", NULL, NULL, "{\"a\":1,\"note\":1}", "{\"a\":1,\"note\":2}", SM_DRIFTED},
        {"match", NULL, NULL, "{\"id\":1,\"amount\":1,\"x\":1}", "{\"id\":1,\"amount\":1}",
         SM_DRIFTED},
        {"match", NULL, NULL, "{\"id\":1,\"amount\":1}", "{\"id\":1,\"amount\":2}", SM_CONFLICTS},
        {"match", NULL, NULL, "{\"id\":1,\"amount\":1}", "{\"id\":1}", SM_CONFLICTS},
        {"step", NULL, "1", "{\"a\":1}", "{\"a\":2}", SM_CONFLICTS},
        {"explicit", "k", NULL, "{\"a\":1}", "{\"a\":2}", SM_CONFLICTS},
        {"hash", "k", NULL, "{\"a\":1}", "{\"a\":2}", SM_CONFLICTS}, /* I6, whatever the tool */
        {"hash", "k", NULL, "{\"a\":1}", "{\"a\":1}", SM_SAME},
        {"forgive", "k", NULL, "{\"a\":1}", "{\"a\":2}", SM_DRIFTED},
        {"crm", "k", NULL, "{\"action\":\"pay\"}", "{\"action\":\"x\"}", SM_CONFLICTS},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_parsed_call call = {.tool = sm_str_from(rows[i].tool)};
        if (rows[i].key != NULL)
            call.key = sm_str_from(rows[i].key);
        if (rows[i].step != NULL)
            call.step = sm_str_from(rows[i].step);
        sm_identity one, two;
        assert_int_equal(identify(&b, call, rows[i].one, &one, NULL), SM_OK);
        assert_int_equal(identify(&b, call, rows[i].two, &two, NULL), SM_OK);
        expect(memcmp(&one.key, &two.key, sizeof one.key) == 0, "row %zu: not one key", i);
        expect(sm_identity_drift(&one, &two) == rows[i].drift, "row %zu", i);
    }
    bench_fini(&b);
}

static void a_call_that_cannot_be_identified_is_refused(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, shop);
    static const struct {
        sm_parsed_call call;
        const char *args, *says;
    } rows[] = {
        {{.tool = BYTES("explicit")}, "{}", "identified by the caller's key"},
        {{.tool = BYTES("step")}, "{}", "needs a step"},
        {{.tool = BYTES("needs")}, "{}", "needs a step"},
        {{.tool = BYTES("fields")}, "{\"x\":1}", "none of the fields that identify"},
        {{.tool = BYTES("fields")}, "5", "none of the fields"},
        {{.tool = BYTES("input")}, "{}", "/a: is required"},
        {{.tool = BYTES("")}, "{}", "the tool is empty"},
        {{.tool = BYTES("hash"), .scope = BYTES("a//b")}, "{}", "empty segment"},
        {{.tool = BYTES("hash"), .scope = BYTES("/a")}, "{}", "empty segment"},
        {{.tool = BYTES("hash"), .scope = BYTES("a/")}, "{}", "empty segment"},
        {{.tool = BYTES("hash"), .scope = BYTES("/")}, "{}", "empty segment"},
        {{.tool = BYTES("hash"), .step = BYTES("")}, "{}", "the step is empty"},
        {{.tool = BYTES("hash"), .key = BYTES("a\nb")}, "{}", "control character"},
        {{.tool = BYTES("hash"), .scope = BYTES("a\xFF")}, "{}", "not valid UTF-8"},
        {{.tool = BYTES("hash"),
          .step = BYTES("a\xC2\x9B"
                        "31m")},
         "{}",
         "control character"},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        sm_identity id;
        sm_fault fault = {0};
        sm_err e = identify(&b, rows[i].call, rows[i].args, &id, &fault);
        expect(e == SEMEL_E_BAD_ARGUMENTS && strstr(fault.text, rows[i].says) != NULL,
               "row %zu: %s <%s>", i, semel_err_name(e), fault.text);
    }
    /* A filled-in argument counts as given. */
    key_of(&b, TOOL("input"), "{\"a\":1}");
    bench_fini(&b);
    bench_init(&b, "version: 1\nunlisted: hide\ntools: {}\n");
    sm_identity id;
    assert_int_equal(identify(&b, TOOL("x"), "{}", &id, NULL), SEMEL_E_UNKNOWN_TOOL);
    bench_fini(&b);
}

/* A server that ignores case runs get_and_delete when it is asked for get_and_Delete. */
static void a_tool_that_others_take_for_a_listed_one_is_refused_under_any_pattern(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, "version: 1\ntools:\n"
                   "  \"*\": {class: read}\n"
                   "  \"get_*\": {class: read}\n"
                   "  get_and_delete: {class: irreversible, approval: {expires: 1h}}\n"
                   "  \"pay_*\": {class: irreversible, approval: {expires: 1h}}\n"
                   "  \"Put_*\": {class: write}\n"
                   "  \"put_*\": {class: read}\n");
    static const char *const refused[] = {"get_and_Delete",
                                          "get_and_delete ",
                                          "get_and_delete\xE2\x80\x8B",
                                          "Get_and_delete",
                                          "Pay_rent",
                                          "\xE2\x80\x8Bpay_rent",
                                          "PAY_",
                                          "GET_x"};
    sm_identity id;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        sm_fault fault = {0};
        sm_err e =
            identify(&b, (sm_parsed_call){.tool = sm_str_from(refused[i])}, "{}", &id, &fault);
        expect(e == SEMEL_E_BAD_ARGUMENTS && strstr(fault.text, "take") != NULL, "%s: %d %s",
               refused[i], e, fault.text);
    }
    static const char *const good[] = {"get_and_delete", "get_and_deletes", "get_X", "pay_Rent",
                                       "Put_x",          "put_x",           "Other", "payroll"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        sm_fault fault = {0};
        sm_err e = identify(&b, (sm_parsed_call){.tool = sm_str_from(good[i])}, "{}", &id, &fault);
        expect(e == SM_OK, "%s: %d %s", good[i], e, fault.text);
    }
    bench_fini(&b);
}

/* {"amount":1,"Amount":99999} is two amounts to readers that ignore case. */
static void an_argument_that_others_take_for_a_deciding_one_is_refused(void **state)
{
    (void)state;
    bench b;
    bench_init(&b,
               "version: 1\ntools:\n"
               "  pay: {key: {fields: [/o/id], match: [/currency]}, redact: [/token],"
               " approval: {when: [{field: /amount, over: 100}]}}\n"
               "  keyed: {class: write_idempotent, idempotency: {argument: request_id, window: 1h},"
               " on_in_doubt: [resend, hold]}\n"
               "  deep: {class: write_idempotent, idempotency: {argument: /o/key, window: 1h},"
               " on_in_doubt: [resend, hold]}\n"
               "  crm: {variants: [{when: [{field: /action, equals: list}], class: read}]}\n"
               "  in: {input: {properties: {n: {maximum: 5}, _n: {}}}}\n");
    static const char *const refused[][2] = {
        {"pay", "{\"o\":{\"id\":1},\"amount\":1,\"Amount\":99999}"},
        {"pay", "{\"o\":{\"id\":1},\"AMOUNT\":99999}"},
        {"pay", "{\"o\":{\"id\":1},\"amount\":1,\"amount\\u0000\":99999}"},
        {"pay", "{\"o\":{\"id\":1,\"ID\":2}}"},
        {"pay", "{\"o\":{\"id\":1},\"O\":{\"id\":2}}"},
        {"pay", "{\"o\":{\"id\":1},\"\\u0063urrency \":\"eur\"}"},
        {"pay", "{\"o\":{\"id\":1},\"to\\u212aen\":\"secret\"}"},
        {"crm", "{\"action\":\"list\",\"Action\":\"delete\"}"},
        {"in", "{\"n\":1,\"N\":99}"},
        {"keyed", "{\"Request_id\":\"mine\"}"},
        {"deep", "{\"o\":{\"key\":\"a\",\"\u212aey\":\"mine\"}}"},
        {"PAY", "{\"o\":{\"id\":1},\"amount\":99999}"},
        {"pay ", "{\"o\":{\"id\":1},\"amount\":99999}"},
    };
    sm_identity id;
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        sm_fault fault = {0};
        sm_parsed_call call = {.tool = sm_str_from(refused[i][0])};
        sm_err e = identify(&b, call, refused[i][1], &id, &fault);
        expect(e == SEMEL_E_BAD_ARGUMENTS && strstr(fault.text, "take") != NULL, "%s %s: %d %s",
               refused[i][0], refused[i][1], e, fault.text);
    }
    key_of(&b, TOOL("pay"), "{\"o\":{\"id\":1},\"_amount\":1,\"note\":\"\",\"Note\":\"\"}");
    key_of(&b, TOOL("pay"),
           "{\"o\":{\"id\":1,\"_id\":2},\"amount\":1,\"amounts\":1,\"x\":{\"ID\":1}}");
    key_of(&b, TOOL("in"), "{\"n\":1,\"_n\":99,\"m\":{\"N\":1}}");
    key_of(&b, TOOL("pays"), "{}");
    bench_fini(&b);
}

static void a_pattern_does_not_make_a_name_another_tools(void **state)
{
    (void)state;
    bench b;
    bench_init(
        &b,
        "version: 1\ntools: {pay: {approval: {quorum: 1}}, ls: {}, LS: {}, \"*\": {class: read}}\n");
    sm_identity id;
    sm_fault fault = {0};
    assert_int_equal(identify(&b, TOOL("Pay"), "{}", &id, &fault), SEMEL_E_BAD_ARGUMENTS);
    expect(strstr(fault.text, "list both") != NULL, "%s", fault.text);
    static const char *const right[] = {"pay", "pays", "ls", "LS"};
    for (size_t i = 0; i < COUNT(right); i++) {
        sm_err e = identify(&b, (sm_parsed_call){.tool = sm_str_from(right[i])}, "{}", &id, &fault);
        expect(e == SM_OK, "%s: %s", right[i], fault.text);
    }
    bench_fini(&b);
}

/* What is stored of a request with these arguments, canonical. */
static const char *stored(bench *b, const char *args)
{
    sm_identity id;
    sm_fault fault = {0};
    const sm_json *out;
    sm_err e = identify(b, (sm_parsed_call){.tool = SM_STR("proxy.shop"), .http = true}, args, &id,
                        &fault);
    expect(e == SM_OK, "%s: %s", args, fault.text);
    assert_int_equal(sm_redact(&b->arena, &id, &out), SM_OK);
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    assert_int_equal(sm_json_canon(out, &text, sm_str_from(args), &fault), SM_OK);
    sm_str copy = sm_arena_text(&b->arena, sm_buf_view(&text));
    sm_buf_fini(&text);
    return copy.p;
}

static void what_names_the_action_of_a_request_counts_whatever_the_contract_ignores(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, "version: 1\ntools: {proxy.shop: {key: {ignore: [/method, /path, /headers, "
                   "/body_sha256, /note]}}}\n");
    const sm_parsed_call call = {.tool = SM_STR("proxy.shop"), .http = true};
    static const char *const others[] = {
        "{\"method\":\"PUT\",\"path\":\"/a\",\"headers\":{\"a\":\"1\"},\"body_sha256\":\"x\"}",
        "{\"method\":\"POST\",\"path\":\"/b\",\"headers\":{\"a\":\"1\"},\"body_sha256\":\"x\"}",
        "{\"method\":\"POST\",\"path\":\"/a\",\"headers\":{\"a\":\"2\"},\"body_sha256\":\"x\"}",
        "{\"method\":\"POST\",\"path\":\"/a\",\"headers\":{\"a\":\"1\"},\"body_sha256\":\"y\"}",
    };
    const char *key = key_of(&b, call,
                             "{\"method\":\"POST\",\"path\":\"/a\",\"headers\":{\"a\":\"1\"},"
                             "\"body_sha256\":\"x\"}");
    for (size_t i = 0; i < COUNT(others); i++)
        assert_string_not_equal(key, key_of(&b, call, others[i]));
    assert_string_equal(key,
                        key_of(&b, call,
                               "{\"method\":\"POST\",\"path\":\"/a\",\"headers\":{\"a\":\"1\"},"
                               "\"body_sha256\":\"x\",\"note\":\"n\"}"));
    bench_fini(&b);
}

static void secrets_of_a_request_are_marked_and_nothing_else(void **state)
{
    (void)state;
    bench b;
    bench_init(&b, "version: 1\ntools: {proxy.shop: {redact: [/body/credentials/user]}}\n");
    static const char *const rows[][2] = {
        {"{\"body\":{\"password\":\"x\",\"amount\":5}}",
         "{\"body\":{\"amount\":5,\"password\":\"[redacted]\"}}"},
        {"{\"body\":{\"card\":{\"brand\":\"b\",\"number\":\"4242\"},\"number\":1}}",
         "{\"body\":{\"card\":{\"brand\":\"b\",\"number\":\"[redacted]\"},\"number\":1}}"},
        {"{\"body\":[{\"cards\":[{\"a\":1},{\"number\":4242}]}]}",
         "{\"body\":[{\"cards\":[{\"a\":1},{\"number\":\"[redacted]\"}]}]}"},
        /* Flags say what a person may want to know. */
        {"{\"body\":{\"secret\":true,\"pin\":false,\"token\":null,\"otp\":12}}",
         "{\"body\":{\"otp\":\"[redacted]\",\"pin\":false,\"secret\":true,\"token\":null}}"},
        {"{\"body\":{\"credentials\":{\"user\":\"u\",\"x\":1}}}",
         "{\"body\":{\"credentials\":\"[redacted]\"}}"},
        {"{\"form\":{\"payment_method_data[card][number]\":\"4\",\"user.pin\":[\"1\",\"2\"]}}",
         "{\"form\":{\"payment_method_data[card][number]\":\"[redacted]\",\"user.pin\":"
         "\"[redacted]\"}}"},
        {"{\"body\":\"password\",\"path\":\"/token\"}",
         "{\"body\":\"password\",\"path\":\"/token\"}"},
    };
    for (size_t i = 0; i < COUNT(rows); i++)
        assert_string_equal(stored(&b, rows[i][0]), rows[i][1]);
    /* Too many to mark one by one. */
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_buf_text(&text, "{\"a\":1,\"body\":[0");
    for (int i = 0; i < 300; i++)
        sm_buf_text(&text, ",{\"cvc\":\"token\"}");
    sm_buf_text(&text, "]}");
    sm_buf_byte(&text, '\0');
    assert_string_equal(stored(&b, text.p), "{\"a\":1,\"body\":\"[redacted]\"}");
    sm_buf_fini(&text);
    bench_fini(&b);
}

/* A call's key, what it acts on and what is stored of it, in so much memory. */
typedef struct told {
    sm_hash key;
    sm_resource resource;
    sm_buf stored;
} told;

static sm_err tell(bench *b, size_t limit, const sm_parsed_call *call, told *out)
{
    static const uint8_t nonce[SM_NONCE_BYTES] = {1};
    sm_arena a;
    sm_identity id;
    const sm_json *args;
    sm_arena_init(&a, limit);
    sm_buf_init(&out->stored, SM_ARENA_MAX);
    sm_err e = sm_identify(&a, &b->keyer, b->set, call, nonce, &id, NULL);
    if (e == SM_OK)
        e = sm_redact(&a, &id, &args);
    if (e == SM_OK) {
        out->key = id.key.hash;
        out->resource = id.resource;
        assert_int_equal(sm_json_canon(args, &out->stored, (sm_str){0}, NULL), SM_OK);
    }
    sm_arena_fini(&a);
    return e;
}

static void without_memory_a_call_is_refused_and_never_taken_for_another(void **state)
{
    (void)state;
    static const char *const args =
        "{\"id\":1,\"o\":{\"x\":[1,2,3],\"at\":2},\"note\":\"n\",\"secret\":\"s\",\"path\":\"/a/%62\","
        "\"query\":\"token=1&b=2\",\"method\":\"PUT\",\"body\":{\"password\":\"p\",\"k\":[1]}}";
    static const char *const tools[] = {
        "{}",
        "{key: {fields: [/id, /o/x], match: [/note]}, resource: [/id, /o]}",
        "{key: {ignore: [/note, /o/at]}, fill: {/currency: usd, /o/n: 3}}",
        "{redact: [/secret, /o/x, /note], resource: {kind: file, fields: [/path]}}",
    };
    for (size_t i = 0; i < 2 * COUNT(tools); i++) {
        char text[200];
        bench b;
        snprintf(text, sizeof text, "version: 1\ntools: {t: %s}\n", tools[i / 2]);
        bench_init(&b, text);
        sm_parsed_call call = {.scope = SM_STR("s"), .tool = SM_STR("t"), .http = i % 2 == 1};
        call.args = document(&b.arena, args);
        told right, now;
        assert_int_equal(tell(&b, SM_ARENA_MAX, &call, &right), SM_OK);
        for (size_t limit = 16; limit < 16384; limit += 16) {
            sm_err e = tell(&b, limit, &call, &now);
            expect(e == SM_OK || e == SEMEL_E_NOMEM, "%s, %zu bytes: %s", text, limit,
                   semel_err_name(e));
            expect(e != SM_OK ||
                       (memcmp(&now.key, &right.key, sizeof now.key) == 0 &&
                        memcmp(&now.resource, &right.resource, sizeof now.resource) == 0 &&
                        sm_str_eq(sm_buf_view(&now.stored), sm_buf_view(&right.stored))),
                   "%s, %zu bytes: another call", text, limit);
            sm_buf_fini(&now.stored);
        }
        sm_buf_fini(&right.stored);
        bench_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_a_call_is_refused_and_never_taken_for_another),
        cmocka_unit_test(an_argument_that_others_take_for_a_deciding_one_is_refused),
        cmocka_unit_test(a_pattern_does_not_make_a_name_another_tools),
        cmocka_unit_test(a_tool_that_others_take_for_a_listed_one_is_refused_under_any_pattern),
        cmocka_unit_test(spelling_does_not_change_a_key),
        cmocka_unit_test(secrets_of_a_request_are_marked_and_nothing_else),
        cmocka_unit_test(what_names_the_action_of_a_request_counts_whatever_the_contract_ignores),
        cmocka_unit_test(omitted_equals_the_explicit_default),
        cmocka_unit_test(only_what_the_contract_names_counts),
        cmocka_unit_test(each_strategy_hashes_its_own_parts),
        cmocka_unit_test(a_step_separates_equal_calls),
        cmocka_unit_test(variants_are_chosen_on_the_filled_arguments),
        cmocka_unit_test(a_variants_fill_keeps_omitted_equal_to_explicit),
        cmocka_unit_test(a_callers_key_takes_the_place_of_a_step),
        cmocka_unit_test(drift_is_judged_by_how_the_call_was_named),
        cmocka_unit_test(a_call_that_cannot_be_identified_is_refused),
    };
    return cmocka_run_group_tests_name("identity", tests, NULL, NULL);
}
