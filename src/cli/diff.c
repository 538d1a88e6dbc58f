/* semel diff: where two argument documents differ, and whether that makes them different calls. */
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/cli.h"
#include "core/identity.h"
#include "json/canon.h"
#include "json/diff.h"

typedef struct side {
    const char *path;
    sm_buf text;
    const sm_json *root;
    sm_identity identity;
} side;

typedef struct work {
    sm_arena arena;
    sm_keyer keyer;
    sm_contracts *contracts;
    side a, b;
    bool json;
    sm_buf out;         /* all of the output */
    uint32_t count;     /* differences */
    const char *answer; /* what an equal key with these differences is answered with */
} work;

static void put_value(sm_buf *b, const sm_json *v)
{
    if (v == NULL)
        sm_buf_text(b, "(absent)");
    else if (sm_json_canon(v, b, (sm_str){0}, NULL) == SM_E_RANGE)
        sm_buf_str(b, sm_json_text(v));
}

static bool on_difference(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    work *w = context;
    sm_str place = pointer.n == 0 ? SM_STR("(all)") : pointer;
    if (w->json) {
        sm_buf_text(&w->out, w->count > 0 ? ",{\"pointer\":" : "{\"pointer\":");
        sm_json_put_string(&w->out, pointer);
        if (a != NULL) {
            sm_buf_text(&w->out, ",\"a\":");
            put_value(&w->out, a);
        }
        if (b != NULL) {
            sm_buf_text(&w->out, ",\"b\":");
            put_value(&w->out, b);
        }
        sm_buf_byte(&w->out, '}');
    } else {
        sm_buf_printf(&w->out, "%-24.*s ", SM_FMT(place));
        put_value(&w->out, a);
        sm_buf_text(&w->out, "  ->  ");
        put_value(&w->out, b);
        sm_buf_byte(&w->out, '\n');
    }
    w->count++;
    return true;
}

/* Collects what a difference means when the keys are equal. */
typedef struct drift {
    const sm_contract *contract;
    bool any;
    bool match; /* one of them is under key.match */
} drift;

static bool on_drift(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)a, (void)b;
    drift *d = context;
    d->any = true;
    for (uint32_t i = 0; i < d->contract->key.match.n; i++) {
        sm_str m = d->contract->key.match.v[i].text;
        size_t n = m.n < pointer.n ? m.n : pointer.n;
        bool boundary = (m.n == n || m.p[n] == '/') && (pointer.n == n || pointer.p[n] == '/');
        d->match |= memcmp(m.p, pointer.p, n) == 0 && boundary;
    }
    return true;
}

/* Says whether the two are one call under the contract. */
static int judge(const cli_command *self, work *w, const sm_call *call, bool *same)
{
    (void)self;
    side *sides[2] = {&w->a, &w->b};
    for (int i = 0; i < 2; i++) {
        static const uint8_t nonces[2][SM_NONCE_BYTES] = {{0}, {1}};
        sm_call one = *call;
        one.args = sides[i]->root;
        one.args_text = sm_buf_view(&sides[i]->text);
        sm_fault fault;
        sm_err e = sm_identify(&w->arena, &w->keyer, w->contracts, &one, nonces[i],
                               &sides[i]->identity, &fault);
        if (e != SM_OK)
            return cli_fault(cli_input_name(sides[i]->path), &fault);
    }
    const sm_identity *x = &w->a.identity, *y = &w->b.identity;
    *same = x->strategy != SM_KEY_NONE && memcmp(&x->key, &y->key, sizeof x->key) == 0;
    drift d = {.contract = x->contract};
    sm_err e = sm_json_diff(x->filled, y->filled, on_drift, &d);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", sm_err_text(e));
    bool conflict = d.match || x->contract != y->contract ||
                    (d.any && x->contract->on_drift == SM_DRIFT_CONFLICT);
    w->answer = !*same ? NULL : conflict ? "conflict" : "replay";
    return CLI_OK;
}

static void put_verdict(work *w, sm_str tool, bool same)
{
    const sm_identity *x = &w->a.identity, *y = &w->b.identity;
    char key_a[SM_HASH_TEXT + 1], key_b[SM_HASH_TEXT + 1];
    sm_hash_text(&x->key.hash, key_a);
    sm_hash_text(&y->key.hash, key_b);
    if (w->json) {
        sm_buf_text(&w->out, ",\"tool\":");
        sm_json_put_string(&w->out, tool);
        sm_buf_printf(&w->out, ",\"strategy\":\"%s\",\"same_key\":%s",
                      sm_strategy_name((int)x->strategy), same ? "true" : "false");
        if (x->strategy != SM_KEY_NONE)
            sm_buf_printf(&w->out, ",\"key_a\":\"%s\",\"key_b\":\"%s\"", key_a, key_b);
        if (w->answer != NULL)
            sm_buf_printf(&w->out, ",\"answer\":\"%s\"", w->answer);
        return;
    }
    if (x->strategy == SM_KEY_NONE)
        sm_buf_printf(&w->out, "No keys: calls of %.*s pass through.\n", SM_FMT(tool));
    else if (!same)
        sm_buf_printf(&w->out,
                      "Different keys: two calls of %.*s, each of which runs.\n  %s\n  %s\n",
                      SM_FMT(tool), key_a, key_b);
    else
        sm_buf_printf(&w->out,
                      "Same key: one call of %.*s; the second is answered with %s.\n  %s\n",
                      SM_FMT(tool),
                      strcmp(w->answer, "conflict") == 0 ? "KEY_CONFLICT" : "the record", key_a);
}

static int compare(const cli_command *self, work *w, const sm_call *call)
{
    side *sides[2] = {&w->a, &w->b};
    for (int i = 0; i < 2; i++) {
        int code = cli_read_json(sides[i]->path, NULL, &w->arena, &sides[i]->text, &sides[i]->root);
        if (code != CLI_OK)
            return code;
    }
    if (w->json)
        sm_buf_text(&w->out, "{\"differences\":[");
    sm_err e = sm_json_diff(w->a.root, w->b.root, on_difference, w);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", sm_err_text(e));
    if (w->json)
        sm_buf_printf(&w->out, "],\"equal\":%s", w->count == 0 ? "true" : "false");
    else
        sm_buf_printf(&w->out, "%u difference%s%s\n", w->count, w->count == 1 ? "" : "s",
                      w->count == 0 ? ": the documents mean the same" : "");
    bool same = w->count == 0;
    if (call->tool.p != NULL) {
        int code = judge(self, w, call, &same);
        if (code != CLI_OK)
            return code;
        put_verdict(w, call->tool, same);
    }
    if (w->json)
        sm_buf_text(&w->out, "}\n");
    if (w->out.err != SM_OK)
        return cli_fail(cli_code(w->out.err), "%s", sm_err_text(w->out.err));
    if (w->json)
        fwrite(w->out.p, 1, w->out.len, stdout);
    else
        for (char *line = w->out.p, *end = line + w->out.len, *stop; line < end; line = stop + 1) {
            stop = memchr(line, '\n', (size_t)(end - line));
            cli_print(stdout, (sm_str){line, (size_t)(stop - line)});
            putchar('\n');
        }
    return same ? CLI_OK : CLI_DIFFERENT;
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
    sm_call call = {.scope = SM_STR("default")};
    const char *contract = NULL;
    int c;
    while ((c = cli_option(self, argc, argv, table)) != -1) {
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
                          : cli_fail(cli_code(e), "%s", sm_err_text(e));
    if (code == CLI_OK)
        code = compare(self, &w, &call);
    sm_buf_fini(&w.a.text);
    sm_buf_fini(&w.b.text);
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
