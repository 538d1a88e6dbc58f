/* semel key: the key of a call, and on request how it came to be. */
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/call.h"
#include "core/identity.h"
#include "json/write.h"

typedef struct options {
    cli_given_call call;
    const char *contract;
    bool explain, json;
} options;

/* What the command works with; released together. */
typedef struct work {
    sm_arena arena;
    sm_keyer keyer;
    sm_contracts *contracts;
    sm_buf args_text;
    sm_parsed_call call;
    sm_identity identity;
    sm_fingerprint fingerprint;
    sm_buf preimage; /* of the key */
    sm_buf filled;   /* canonical full arguments */
    sm_buf given;    /* canonical arguments as given */
} work;

static const char *part_name(sm_part tag)
{
    static const char *const names[] = {"?", "scope", "step", "tool", "arguments", "key", "nonce"};
    return names[tag];
}

static int read_options(const cli_command *self, int argc, char **argv, options *o)
{
    static const struct option table[] = {
        CLI_CALL_OPTIONS(options, call),       CLI_TEXT("contract", options, contract),
        CLI_FLAG("explain", options, explain), CLI_FLAG("json", options, json),
        {"help", no_argument, NULL, 'h'},      {0},
    };
    int c = cli_option(self, argc, argv, table, o);
    if (c != -1)
        return c == 'h' ? 'h' : CLI_USAGE;
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"; " CLI_CALL_HINT, argv[optind]);
    return cli_call_check(self, &o->call);
}

static int make_key(const options *o, work *w)
{
    sm_err e = sm_keyer_init(&w->keyer);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", semel_err_text(e));
    int code = cli_read_contracts(o->contract, &w->contracts);
    if (code != CLI_OK)
        return code;
    w->call = (sm_parsed_call){.scope = cli_call_scope(o->call.scope),
                               .step = cli_opt(o->call.step),
                               .tool = cli_opt(o->call.tool),
                               .key = cli_opt(o->call.key)};
    code = cli_read_json(o->call.args_file, o->call.args, &w->arena, &w->args_text, &w->given,
                         &w->call.args);
    if (code != CLI_OK)
        return code;
    w->call.args_text = sm_buf_view(&w->args_text);
    sm_fault fault = {0};
    if (sm_call_check(&w->call, &fault) != SM_OK)
        return cli_fail(cli_code(fault.code), "%s", fault.text);
    uint8_t nonce[SM_NONCE_BYTES];
    if (getrandom(nonce, sizeof nonce, 0) != (ssize_t)sizeof nonce)
        return cli_fail(CLI_INTERNAL, "the system gives no random bytes");
    e = sm_identify(&w->arena, &w->keyer, w->contracts, &w->call, nonce, &w->identity, &fault);
    if (e == SM_OK && w->identity.strategy != SM_KEY_NONE) {
        sm_buf_str(&w->preimage, sm_buf_view(&w->keyer.preimage));
        if (w->preimage.err != SM_OK)
            e = sm_fault_set(&fault, w->preimage.err, "%s", semel_err_text(w->preimage.err));
    }
    if (e == SM_OK)
        e = sm_fingerprint_make(&w->keyer, w->call.tool, w->identity.filled, w->call.args_text,
                                &w->fingerprint, &fault);
    if (e == SM_OK)
        e = sm_json_canon(w->identity.filled, &w->filled, w->call.args_text, &fault);
    if (e == SM_OK)
        return CLI_OK;
    return cli_fault(o->call.args != NULL ? "--args" : cli_input_name(o->call.args_file), &fault);
}

/* The pointers that `fill` put values at. */
static void put_filled(const work *w, sm_buf *b)
{
    const sm_fill *fill = &w->identity.contract->fill;
    sm_put_open(b, "filled", '[');
    for (uint32_t i = 0; i < fill->count; i++) {
        if (sm_pointer_get(&fill->pointers[i], w->call.args) != NULL ||
            sm_pointer_get(&fill->pointers[i], w->identity.filled) == NULL)
            continue;
        sm_put_item(b);
        sm_json_put_string(b, fill->pointers[i].text);
    }
    sm_buf_byte(b, ']');
}

static void put_parts(const work *w, sm_buf *b)
{
    size_t at = 0;
    sm_part tag;
    sm_str part;
    sm_put_open(b, "parts", '[');
    while (sm_key_part(sm_buf_view(&w->preimage), &at, &tag, &part)) {
        sm_put_item(b);
        sm_buf_byte(b, '{');
        sm_put_number(b, "tag", tag);
        sm_put_text(b, "name", sm_str_from(part_name(tag)));
        sm_put_number(b, "bytes", part.n);
        sm_put_name(b, "value");
        if (tag == SM_PART_NONCE) {
            sm_buf_byte(b, '"');
            for (size_t i = 0; i < part.n; i++)
                sm_buf_printf(b, "%02x", (unsigned char)part.p[i]);
            sm_buf_byte(b, '"');
        } else {
            sm_json_put_string(b, part);
        }
        sm_buf_byte(b, '}');
    }
    sm_buf_byte(b, ']');
}

static void put_json(const options *o, const work *w, sm_buf *b)
{
    const sm_identity *id = &w->identity;
    sm_buf_byte(b, '{');
    if (id->strategy != SM_KEY_NONE)
        sm_put_hash(b, "key", &id->key.hash);
    sm_put_text(b, "strategy", sm_str_from(sm_strategy_name((int)id->strategy)));
    sm_put_text(b, "class", sm_str_from(sm_class_name(id->contract->class)));
    sm_put_text(b, "scope", w->call.scope);
    sm_put_text(b, "step", w->call.step);
    sm_put_text(b, "tool", w->call.tool);
    if (id->contract->variant > 0)
        sm_put_number(b, "variant", id->contract->variant);
    sm_put_hash(b, "fingerprint", &w->fingerprint.hash);
    if (!sm_resource_none(&id->resource))
        sm_put_hash(b, "resource", &id->resource.hash);
    if (o->explain) {
        sm_put_raw(b, "arguments", sm_buf_view(&w->given));
        put_filled(w, b);
        if (id->projected != NULL) {
            sm_buf canonical;
            sm_buf_init(&canonical, SM_ARENA_MAX);
            sm_json_canon(id->projected, &canonical, (sm_str){0}, NULL);
            sm_put_raw(b, "projection", sm_buf_view(&canonical));
            sm_put_text(b, "canonical", sm_buf_view(&canonical));
            sm_buf_fini(&canonical);
        }
        put_parts(w, b);
    }
    sm_buf_text(b, "}\n");
}

static void print_row(const char *label, sm_str text)
{
    printf("%s%-12s%s ", cli_color(stdout, CLI_BOLD), label, cli_color(stdout, CLI_PLAIN));
    cli_print(stdout, text);
    putchar('\n');
}

static void print_identity_rule(const work *w)
{
    const sm_contract *c = w->identity.contract;
    char text[160];
    snprintf(text, sizeof text, "%s%s", sm_strategy_name((int)w->identity.strategy),
             w->call.key.p != NULL && w->identity.strategy == SM_KEY_EXPLICIT
                 ? ", because the caller gave a key"
                 : "");
    print_row("strategy", sm_str_from(text));
    const sm_pointers *list = w->identity.strategy == SM_KEY_FIELDS ? &c->key.fields
                              : w->identity.strategy == SM_KEY_HASH ? &c->key.ignore
                                                                    : NULL;
    for (uint32_t i = 0; list != NULL && i < list->n; i++)
        print_row(i > 0 ? "" : list == &c->key.fields ? "  fields" : "  ignore", list->v[i].text);
}

static void print_parts(const work *w)
{
    size_t at = 0;
    sm_part tag;
    sm_str part;
    bool first = true;
    while (sm_key_part(sm_buf_view(&w->preimage), &at, &tag, &part)) {
        printf("%s%-12s%s %d %-10s %6zu bytes  ", cli_color(stdout, CLI_BOLD), first ? "parts" : "",
               cli_color(stdout, CLI_PLAIN), (int)tag, part_name(tag), part.n);
        cli_print(stdout, part);
        putchar('\n');
        first = false;
    }
}

static void print_explanation(const options *o, const work *w)
{
    const sm_identity *id = &w->identity;
    char text[400];
    const sm_declared_tool *tool = sm_contracts_tool(w->contracts, w->call.tool);
    snprintf(text, sizeof text, "%s, class %s, %s%.*s%s", o->call.tool,
             sm_class_name(id->contract->class), tool == NULL ? "unlisted" : "listed as ",
             tool == NULL ? 0 : (int)tool->name.n, tool == NULL ? "" : tool->name.p,
             id->contract->variant > 0 ? ", by variant" : "");
    print_row("tool", sm_str_from(text));
    print_identity_rule(w);
    print_row("arguments", sm_buf_view(&w->given));
    if (!sm_str_eq(sm_buf_view(&w->given), sm_buf_view(&w->filled)))
        print_row("filled", sm_buf_view(&w->filled));
    if (id->projected != NULL) {
        sm_buf canonical;
        sm_buf_init(&canonical, SM_ARENA_MAX);
        sm_json_canon(id->projected, &canonical, (sm_str){0}, NULL);
        print_row("projection", sm_buf_view(&canonical));
        snprintf(text, sizeof text, "%zu bytes, RFC 8785:", canonical.len);
        print_row("canonical", sm_str_from(text));
        print_row("", sm_buf_view(&canonical));
        sm_buf_fini(&canonical);
    }
    print_parts(w);
    char hash[SM_HASH_TEXT + 1];
    sm_hash_text(&w->fingerprint.hash, hash);
    print_row("fingerprint", sm_str_from(hash));
    if (!sm_resource_none(&id->resource)) {
        sm_hash_text(&id->resource.hash, hash);
        print_row("resource", sm_str_from(hash));
    }
    sm_hash_text(&id->key.hash, hash);
    print_row("key", id->strategy == SM_KEY_NONE ? SM_STR("none: the call passes through")
                                                 : sm_str_from(hash));
}

static int print_result(const options *o, const work *w)
{
    if (o->json) {
        sm_buf b;
        sm_buf_init(&b, 4 * SM_ARENA_MAX);
        put_json(o, w, &b);
        int code = cli_write(&b);
        sm_buf_fini(&b);
        return code;
    }
    if (o->explain) {
        print_explanation(o, w);
        return CLI_OK;
    }
    if (w->identity.strategy == SM_KEY_NONE) {
        fprintf(stderr, "No key: the call passes through and is not remembered.\n");
        return CLI_OK;
    }
    char key[SM_HASH_TEXT + 1];
    sm_hash_text(&w->identity.key.hash, key);
    puts(key);
    return CLI_OK;
}

static int run(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    int code = read_options(self, argc, argv, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    work w = {0};
    sm_arena_init(&w.arena, SM_ARENA_MAX);
    sm_buf_init(&w.preimage, SM_ARENA_MAX);
    sm_buf_init(&w.filled, SM_ARENA_MAX);
    code = make_key(&o, &w);
    if (code == CLI_OK)
        code = print_result(&o, &w);
    sm_buf_fini(&w.given);
    sm_buf_fini(&w.filled);
    sm_buf_fini(&w.preimage);
    sm_buf_fini(&w.args_text);
    sm_contracts_free(w.contracts);
    sm_keyer_fini(&w.keyer);
    sm_arena_fini(&w.arena);
    return code;
}

const cli_command cli_key = {
    .name = "key",
    .summary = "the key of a call, and why it is that one",
    .help =
        "  semel key --tool send_email --args '{\"to\": \"ann@example.com\", \"subject\": \"Hi\"}'\n"
        "  semel key --tool stripe.charge --contract shop.yaml --scope order-123 \\\n"
        "      --args-file call.json --explain\n\n"
        "Usage: semel key --tool T [--scope S] [--step N] [--key K] [--contract FILE]\n"
        "                 [--args JSON | --args-file FILE] [--explain] [--json]\n\n"
        "  --tool T         the tool that is called\n"
        "  --scope S        within which equal calls are one action (default: default)\n"
        "  --step N         the step of the run, if the caller numbers them\n"
        "  --key K          the caller's own key; it then names the action alone\n"
        "  --contract FILE  what is declared about the tool; without it, a plain write\n"
        "  --args JSON      the arguments; or --args-file FILE, or stdin\n"
        "  --explain        the projection, the canonical form and each part that is hashed\n"
        "  --json           as one JSON object\n\n"
        "The key is 43 characters of base64url. A read has no key.\n",
    .run = run,
};
