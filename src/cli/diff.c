/* semel diff: where two argument documents differ, and whether that makes them different calls. */
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/cli.h"
#include "core/identity.h"
#include "json/diff.h"
#include "json/write.h"

typedef struct side {
    const char *path;
    sm_buf text, canonical;
    const sm_json *root;
    sm_identity identity;
} side;

typedef struct work {
    sm_arena arena;
    sm_keyer keyer;
    sm_contracts *contracts;
    side a, b;
    bool json;
    sm_buf out;     /* all of the output */
    uint32_t count; /* differences */
} work;

static void put_value(sm_buf *b, const sm_json *v)
{
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    sm_json_canon(v, &text, (sm_str){0}, NULL);
    cli_put(b, sm_buf_view(&text)); /* DEL and C1 controls stand for themselves in JSON */
    if (text.err != SM_OK)
        b->err = text.err;
    sm_buf_fini(&text);
}

static void put_difference(work *w, sm_str pointer, const sm_json *a, const sm_json *b)
{
    size_t start = w->out.len;
    cli_put(&w->out, pointer.n == 0 ? SM_STR("(all)") : pointer);
    do {
        sm_buf_byte(&w->out, ' ');
    } while (w->out.err == SM_OK && w->out.len - start < 25);
    if (a != NULL)
        put_value(&w->out, a);
    sm_buf_text(&w->out, a == NULL ? "(absent)  ->  " : "  ->  ");
    if (b != NULL)
        put_value(&w->out, b);
    sm_buf_text(&w->out, b == NULL ? "(absent)\n" : "\n");
}

static bool on_difference(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    work *w = context;
    if (w->json) {
        sm_put_item(&w->out);
        sm_buf_byte(&w->out, '{');
        sm_put_name(&w->out, "pointer");
        sm_json_put_string(&w->out, pointer);
        if (a != NULL) {
            sm_put_name(&w->out, "a");
            sm_json_canon(a, &w->out, (sm_str){0}, NULL);
        }
        if (b != NULL) {
            sm_put_name(&w->out, "b");
            sm_json_canon(b, &w->out, (sm_str){0}, NULL);
        }
        sm_buf_byte(&w->out, '}');
    } else {
        put_difference(w, pointer, a, b);
    }
    w->count++;
    return true;
}

/* Identifies the two as calls. */
static int identify(work *w, const sm_parsed_call *call)
{
    sm_fault fault;
    if (sm_call_check(call, &fault) != SM_OK)
        return cli_fail(cli_code(fault.code), "%s", fault.text);
    side *sides[2] = {&w->a, &w->b};
    for (int i = 0; i < 2; i++) {
        static const uint8_t nonces[2][SM_NONCE_BYTES] = {{0}, {1}};
        sm_parsed_call one = *call;
        one.args = sides[i]->root;
        one.args_text = sm_buf_view(&sides[i]->text);
        sm_err e = sm_identify(&w->arena, &w->keyer, w->contracts, &one, nonces[i],
                               &sides[i]->identity, &fault);
        if (e != SM_OK)
            return cli_fault(cli_input_name(sides[i]->path), &fault);
    }
    return CLI_OK;
}

static void put_side_json(sm_buf *b, bool second, const sm_identity *id)
{
    sm_put_text(b, second ? "strategy_b" : "strategy_a",
                sm_str_from(sm_strategy_name((int)id->strategy)));
    if (id->strategy != SM_KEY_NONE)
        sm_put_hash(b, second ? "key_b" : "key_a", &id->key.hash);
}

static void put_side(sm_buf *b, char name, const sm_identity *id)
{
    char key[SM_HASH_TEXT + 1];
    sm_hash_text(&id->key.hash, key);
    sm_buf_printf(b, "  %c  %s\n", name,
                  id->strategy == SM_KEY_NONE ? "no key: it passes through" : key);
}

/* Whether the two are one call, and how the second is then answered. */
static bool put_verdict(work *w, sm_str tool)
{
    const sm_identity *x = &w->a.identity, *y = &w->b.identity;
    bool same = x->strategy != SM_KEY_NONE && y->strategy != SM_KEY_NONE &&
                memcmp(&x->key, &y->key, sizeof x->key) == 0;
    bool conflict = same && sm_identity_drift(x, y) == SM_CONFLICTS;
    sm_buf *b = &w->out;
    if (w->json) {
        sm_put_text(b, "tool", tool);
        sm_put_bool(b, "same_key", same);
        put_side_json(b, false, x);
        put_side_json(b, true, y);
        if (same)
            sm_put_text(b, "answer", conflict ? SM_STR("conflict") : SM_STR("replay"));
        return same;
    }
    if (same) {
        sm_buf_text(b, "Same key: one call of ");
        cli_put(b, tool);
        sm_buf_printf(b, "; the second is answered with %s.\n",
                      conflict ? "KEY_CONFLICT" : "the record");
    } else {
        bool none = x->strategy == SM_KEY_NONE && y->strategy == SM_KEY_NONE;
        sm_buf_text(b, none ? "No keys: two calls of " : "Different keys: two calls of ");
        cli_put(b, tool);
        sm_buf_text(b, ", each of which runs.\n");
    }
    put_side(b, 'A', x);
    if (!same)
        put_side(b, 'B', y);
    return same;
}

static int compare(work *w, const sm_parsed_call *call)
{
    side *sides[2] = {&w->a, &w->b};
    for (int i = 0; i < 2; i++) {
        int code = cli_read_json(sides[i]->path, NULL, &w->arena, &sides[i]->text,
                                 &sides[i]->canonical, &sides[i]->root);
        if (code != CLI_OK)
            return code;
    }
    if (w->json)
        sm_buf_text(&w->out, "{\"differences\":[");
    sm_err e = sm_json_diff(w->a.root, w->b.root, on_difference, w);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", semel_err_text(e));
    if (w->json) {
        sm_buf_byte(&w->out, ']');
        sm_put_bool(&w->out, "equal", w->count == 0);
    } else {
        sm_buf_printf(&w->out, "%u difference%s%s\n", w->count, w->count == 1 ? "" : "s",
                      w->count == 0 ? ": the documents mean the same" : "");
    }
    bool same = w->count == 0;
    if (call->tool.p != NULL) {
        int code = identify(w, call);
        if (code != CLI_OK)
            return code;
        same = put_verdict(w, call->tool);
    }
    if (w->json)
        sm_buf_text(&w->out, "}\n");
    int code = cli_write(&w->out);
    return code != CLI_OK ? code : same ? CLI_OK : CLI_DIFFERENT;
}

static int run(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {
        {"tool", required_argument, NULL, 't'},     {"scope", required_argument, NULL, 's'},
        {"contract", required_argument, NULL, 'c'}, {"step", required_argument, NULL, 'n'},
        {"key", required_argument, NULL, 'k'},      {"json", no_argument, NULL, 'j'},
        {"help", no_argument, NULL, 'h'},           {0},
    };
    work w = {0};
    sm_parsed_call call = {.scope = SM_STR("default")};
    const char *contract = NULL;
    int c;
    while ((c = cli_option(self, argc, argv, table, NULL)) != -1) {
        switch (c) {
        case 't': call.tool = sm_str_from(optarg); break;
        case 's': call.scope = sm_str_from(optarg); break;
        case 'n': call.step = sm_str_from(optarg); break;
        case 'k': call.key = sm_str_from(optarg); break;
        case 'c': contract = optarg; break;
        case 'j': w.json = true; break;
        case 'h': return CLI_OK;
        default: return CLI_USAGE;
        }
    }
    if (argc - optind != 2)
        return cli_usage(self, "two files are needed, A and B");
    if (call.tool.p == NULL && (contract != NULL || call.key.p != NULL || call.step.p != NULL))
        return cli_usage(self, "keys are a tool's: --tool is missing");
    w.a.path = argv[optind];
    w.b.path = argv[optind + 1];
    if (strcmp(w.a.path, "-") == 0 && strcmp(w.b.path, "-") == 0)
        return cli_usage(self, "only one of the two can be stdin");

    sm_arena_init(&w.arena, 2 * SM_ARENA_MAX);
    sm_buf_init(&w.out, 4 * SM_ARENA_MAX);
    sm_err e = sm_keyer_init(&w.keyer);
    int code = e == SM_OK ? cli_read_contracts(contract, &w.contracts)
                          : cli_fail(cli_code(e), "%s", semel_err_text(e));
    if (code == CLI_OK)
        code = compare(&w, &call);
    sm_buf_fini(&w.a.text);
    sm_buf_fini(&w.a.canonical);
    sm_buf_fini(&w.b.text);
    sm_buf_fini(&w.b.canonical);
    sm_buf_fini(&w.out);
    sm_contracts_free(w.contracts);
    sm_keyer_fini(&w.keyer);
    sm_arena_fini(&w.arena);
    return code;
}

const cli_command cli_diff = {
    .name = "diff",
    .summary = "where two argument documents differ, and whether their keys do",
    .help =
        "  semel diff first.json retry.json\n"
        "  semel diff first.json retry.json --contract shop.yaml --tool stripe.charge\n\n"
        "Usage: semel diff A B [--tool T [--contract FILE] [--scope S] [--step N] [--key K]]\n"
        "                  [--json]\n\n"
        "Lists the JSON Pointers at which the documents A and B mean different things; spelling\n"
        "(order, spaces, 1 or 1.0) does not count. With --tool, also says whether the two have\n"
        "the same key, and how the second would then be answered. A or B may be - for stdin.\n\n"
        "Exit code 0 if they are the same (with --tool: have the same key), 1 if not.\n",
    .run = run,
};
