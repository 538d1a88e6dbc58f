/* semel contract check, show and diff. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "core/glob.h"
#include "json/write.h"

static const char *plural(uint32_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- check -----------------------------------------------------------------------------------*/

static void put_findings(sm_buf *b, const char *name, const sm_report *r, sm_severity severity)
{
    sm_put_open(b, name, '[');
    for (uint32_t i = 0; i < r->count; i++) {
        if (r->items[i].severity != severity)
            continue;
        sm_put_item(b);
        sm_buf_byte(b, '{');
        sm_put_number(b, "line", r->items[i].line);
        sm_put_number(b, "column", r->items[i].column);
        sm_put_text(b, "message", r->items[i].text);
        sm_buf_byte(b, '}');
    }
    sm_buf_byte(b, ']');
}

static int print_check_json(const char *path, const sm_report *r, const sm_contracts *set)
{
    sm_buf b;
    sm_buf_init(&b, SM_ARENA_MAX);
    sm_buf_byte(&b, '{');
    sm_put_text(&b, "file", sm_str_from(path));
    sm_put_bool(&b, "valid", r->errors == 0);
    if (set != NULL)
        sm_put_number(&b, "tools", set->tool_count);
    put_findings(&b, "errors", r, SM_ERROR);
    put_findings(&b, "warnings", r, SM_WARNING);
    if (r->dropped > 0)
        sm_put_number(&b, "dropped", r->dropped);
    sm_buf_text(&b, "}\n");
    int code = cli_write(&b);
    sm_buf_fini(&b);
    return code;
}

static int check_file(const char *path, bool strict, bool json)
{
    sm_report report;
    sm_contracts *set;
    const char *name = cli_input_name(path);
    int code = cli_load_contracts(path, &set, &report);
    bool told = set != NULL || report.errors > 0; /* there is something to say about the file */
    if (told && strict && report.warnings > 0)
        code = CLI_DATA;
    if (told && json) {
        int written = print_check_json(name, &report, set);
        code = written != CLI_OK ? written : code;
    }
    if (told && !json) {
        cli_print_report(name, &report, true);
        if (set != NULL)
            printf("%s: %u tool%s, no errors, %u warning%s\n", name, set->tool_count,
                   plural(set->tool_count), report.warnings, plural(report.warnings));
        else
            fprintf(stderr, "%s: %u error%s, %u warning%s\n", name, report.errors,
                    plural(report.errors), report.warnings, plural(report.warnings));
    }
    sm_contracts_free(set);
    sm_report_fini(&report);
    return code;
}

static int run_check(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {{"strict", no_argument, NULL, 's'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {0}};
    bool strict = false, json = false;
    int c;
    while ((c = cli_option(self, argc, argv, table, NULL)) != -1) {
        switch (c) {
        case 's': strict = true; break;
        case 'j': json = true; break;
        case 'h': return CLI_OK;
        default: return CLI_USAGE;
        }
    }
    if (argc - optind != 1)
        return cli_usage(self, "one FILE is needed");
    return check_file(argv[optind], strict, json);
}

/* Reads a command line that knows --json only. False if the command ends here, with *code. */
static bool read_json_option(const cli_command *self, int argc, char **argv, bool *json, int *code)
{
    static const struct option table[] = {
        {"json", no_argument, NULL, 'j'}, {"help", no_argument, NULL, 'h'}, {0}};
    int c;
    while ((c = cli_option(self, argc, argv, table, NULL)) == 'j')
        *json = true;
    *code = c == 'h' ? CLI_OK : CLI_USAGE;
    return c == -1;
}

/* ---- show ------------------------------------------------------------------------------------*/

typedef struct row {
    char *name, *value, *origin;
} row;

typedef struct listing {
    const sm_contracts *set;
    const sm_contract *c;
    row *rows;
    size_t count, cap;
    bool failed;
} listing;

static char *origin_text(const listing *list, sm_layer layer, const sm_json *given)
{
    static const char *const words[] = {
        [SM_FROM_BUILT_IN] = "built in",       [SM_FROM_CLASS] = "class",
        [SM_FROM_UNLISTED] = "unlisted tools", [SM_FROM_DERIVED] = "follows from the others",
        [SM_FROM_DEFAULTS] = "defaults, ",     [SM_FROM_TOOL] = "",
        [SM_FROM_VARIANT] = "variant, ",
    };
    char text[512];
    if (given != NULL) {
        uint32_t line, column;
        sm_text_position(list->set->text, given->at, &line, &column);
        snprintf(text, sizeof text, "%s%.*s:%u:%u", words[layer], SM_FMT(list->set->name), line,
                 column);
    } else if (layer == SM_FROM_CLASS) {
        snprintf(text, sizeof text, "class %s", sm_class_name(list->c->class));
    } else {
        snprintf(text, sizeof text, "%s", words[layer]);
    }
    return strdup(text);
}

static void add_row(void *context, const char *name, sm_str json, sm_layer layer,
                    const sm_json *given)
{
    listing *list = context;
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 64 : list->cap * 2;
        row *rows = realloc(list->rows, cap * sizeof *rows);
        if (rows == NULL) {
            list->failed = true;
            return;
        }
        list->rows = rows;
        list->cap = cap;
    }
    row *r = &list->rows[list->count++];
    *r = (row){strdup(name), strndup(json.p, json.n), origin_text(list, layer, given)};
    if (r->name == NULL || r->value == NULL || r->origin == NULL)
        list->failed = true;
}

static void listing_free(listing *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->rows[i].name);
        free(list->rows[i].value);
        free(list->rows[i].origin);
    }
    free(list->rows);
}

/* A JSON string without its quotes and escapes reads better in a table; other values stay. */
static sm_str bare(const char *json)
{
    sm_str s = sm_str_from(json);
    if (s.n >= 2 && s.p[0] == '"' && memchr(s.p, '\\', s.n) == NULL)
        return (sm_str){s.p + 1, s.n - 2};
    return s;
}

#define NAME_WIDTH  28
#define VALUE_WIDTH 40

static void print_rows(const listing *list, const listing *base)
{
    for (size_t i = 0; i < list->count; i++) {
        const row *r = &list->rows[i];
        bool same = false;
        for (size_t j = 0; base != NULL && j < base->count && !same; j++)
            same = strcmp(base->rows[j].name, r->name) == 0 &&
                   strcmp(base->rows[j].value, r->value) == 0 &&
                   strcmp(base->rows[j].origin, r->origin) == 0;
        if (same)
            continue; /* a variant's rows that are the tool's */
        sm_str value = bare(r->value);
        printf("  %-*s ", NAME_WIDTH, r->name);
        cli_print(stdout, value);
        size_t width = sm_utf8_count(value);
        /* A long value gets its origin on a line of its own. */
        if (width > VALUE_WIDTH)
            printf("\n  %-*s %-*s", NAME_WIDTH, "", VALUE_WIDTH, "");
        else
            printf("%*s", (int)(VALUE_WIDTH - width), "");
        printf(" %s", cli_color(stdout, CLI_DIM));
        cli_print(stdout, sm_str_from(r->origin));
        printf("%s\n", cli_color(stdout, CLI_PLAIN));
    }
}

static void list_contract(listing *list, const sm_contracts *set, const sm_contract *c)
{
    *list = (listing){.set = set, .c = c};
    sm_contract_show(c, add_row, list);
}

static void put_contract(sm_buf *b, const sm_contracts *set, const sm_contract *c)
{
    listing list;
    list_contract(&list, set, c);
    sm_put_open(b, "contract", '{');
    for (size_t i = 0; i < list.count; i++) {
        sm_put_open(b, list.rows[i].name, '{');
        sm_put_raw(b, "value", sm_str_from(list.rows[i].value));
        sm_put_text(b, "from", sm_str_from(list.rows[i].origin));
        sm_buf_byte(b, '}');
    }
    sm_buf_byte(b, '}');
    listing_free(&list);
}

static void print_variants(const sm_contracts *set, const sm_contract *c, const listing *base)
{
    for (uint32_t i = 0; i < c->variant_count; i++) {
        sm_buf when;
        sm_buf_init(&when, SM_CONTRACT_BYTES_MAX);
        sm_json_canon(c->variants[i].given, &when, (sm_str){0}, NULL);
        printf("\n%svariant %u%s, when ", cli_color(stdout, CLI_BOLD), i + 1,
               cli_color(stdout, CLI_PLAIN));
        cli_print(stdout, sm_buf_view(&when));
        putchar('\n');
        sm_buf_fini(&when);
        listing list;
        list_contract(&list, set, &c->variants[i].contract);
        print_rows(&list, base);
        listing_free(&list);
    }
}

static void print_show(const sm_contracts *set, const char *tool, const sm_declared_tool *entry,
                       const sm_contract *c)
{
    listing list;
    list_contract(&list, set, c);
    printf("%s", cli_color(stdout, CLI_BOLD));
    cli_print(stdout, sm_str_from(tool));
    printf("%s", cli_color(stdout, CLI_PLAIN));
    if (entry == NULL) {
        printf(", which is not listed\n");
    } else {
        uint32_t line, column;
        sm_text_position(set->text, entry->given->at, &line, &column);
        printf(", listed as \"%.*s\" at %.*s:%u:%u\n", SM_FMT(entry->name), SM_FMT(set->name), line,
               column);
    }
    print_rows(&list, NULL);
    print_variants(set, c, &list);
    listing_free(&list);
}

static int print_show_json(const sm_contracts *set, const char *tool, const sm_declared_tool *entry,
                           const sm_contract *c)
{
    sm_buf b;
    sm_buf_init(&b, 4 * SM_ARENA_MAX);
    sm_buf_byte(&b, '{');
    sm_put_text(&b, "tool", sm_str_from(tool));
    if (entry != NULL)
        sm_put_text(&b, "listed_as", entry->name);
    put_contract(&b, set, c);
    sm_put_open(&b, "variants", '[');
    for (uint32_t i = 0; i < c->variant_count; i++) {
        sm_put_item(&b);
        sm_buf_byte(&b, '{');
        sm_put_name(&b, "when");
        sm_json_canon(c->variants[i].given, &b, (sm_str){0}, NULL);
        put_contract(&b, set, &c->variants[i].contract);
        sm_buf_byte(&b, '}');
    }
    sm_buf_text(&b, "]}\n");
    int code = cli_write(&b);
    sm_buf_fini(&b);
    return code;
}

static int run_show(const cli_command *self, int argc, char **argv)
{
    bool json = false;
    int code;
    if (!read_json_option(self, argc, argv, &json, &code))
        return code;
    if (argc - optind != 2)
        return cli_usage(self, "a FILE and a TOOL are needed");
    const char *path = argv[optind], *tool = argv[optind + 1];
    sm_parsed_call call = {.scope = SM_STR("default"), .tool = sm_str_from(tool)};
    sm_fault fault;
    if (sm_call_check(&call, &fault) != SM_OK)
        return cli_fail(cli_code(fault.code), "%s", fault.text);
    sm_contracts *set;
    code = cli_read_contracts(path, &set);
    if (code != CLI_OK)
        return code;
    const sm_contract *contract = sm_contracts_find(set, sm_str_from(tool));
    const sm_declared_tool *entry = sm_contracts_tool(set, sm_str_from(tool));
    if (contract == NULL)
        code = cli_fail(CLI_DATA, "%s: \"%s\" is not listed, and unlisted tools are hidden", path,
                        tool);
    else if (json)
        code = print_show_json(set, tool, entry, contract);
    else
        print_show(set, tool, entry, contract);
    sm_contracts_free(set);
    return code;
}

/* ---- diff ------------------------------------------------------------------------------------*/

typedef struct comparison {
    const sm_contracts *old, *new;
    bool json;
    uint32_t changed, same;
    sm_buf out;
} comparison;

static void identity_text(const sm_contract *c, sm_buf *b)
{
    sm_buf_init(b, SM_ARENA_MAX);
    if (c != NULL)
        sm_contract_identity(c, b);
}

/* Compares what applies to the tools that `name` stands for. A tool that is hidden on one side
 * (NULL) has no calls there whose retries could be missed. */
static void compare_pair(comparison *k, sm_str name, const sm_contract *old, const sm_contract *new)
{
    sm_buf before, after;
    identity_text(old, &before);
    identity_text(new, &after);
    bool same = old == NULL || new == NULL || sm_str_eq(sm_buf_view(&before), sm_buf_view(&after));
    if (!same && k->json) {
        sm_put_item(&k->out);
        sm_buf_byte(&k->out, '{');
        sm_put_text(&k->out, "tool", name);
        sm_put_text(&k->out, "old", sm_buf_view(&before));
        sm_put_text(&k->out, "new", sm_buf_view(&after));
        sm_buf_byte(&k->out, '}');
    } else if (!same) {
        cli_put(&k->out, name);
        sm_buf_text(&k->out, ": the identity changes\n  old  ");
        cli_put(&k->out, sm_buf_view(&before));
        sm_buf_text(&k->out, "\n  new  ");
        cli_put(&k->out, sm_buf_view(&after));
        sm_buf_byte(&k->out, '\n');
    }
    *(same ? &k->same : &k->changed) += 1;
    sm_buf_fini(&before);
    sm_buf_fini(&after);
}

/* Whether a pattern of the file, with more literal characters than `than`, takes all that `name`
 * stands for. */
static bool covered(const sm_contracts *set, sm_str name, uint32_t than)
{
    for (uint32_t i = set->exact_count; i < set->tool_count; i++) {
        if (set->index[i]->literals > than && sm_glob_covers(set->index[i]->name, name))
            return true;
    }
    return false;
}

/* Patterns are compared with each pattern that some tool can come under in the other file, and with
 * what holds for unlisted tools where no pattern of the other file takes them all. */
static void compare_pattern(comparison *k, const sm_declared_tool *t, bool is_old)
{
    const sm_contracts *mine = is_old ? k->old : k->new, *other = is_old ? k->new : k->old;
    for (uint32_t i = other->exact_count; is_old && i < other->tool_count; i++) {
        const sm_declared_tool *u = other->index[i];
        if (!sm_glob_meet(t->name, u->name) || covered(mine, u->name, t->literals) ||
            covered(other, t->name, u->literals))
            continue;
        compare_pair(k, u->literals > t->literals ? u->name : t->name, &t->contract, &u->contract);
    }
    for (uint32_t i = other->exact_count; i < other->tool_count; i++) {
        if (sm_glob_covers(other->index[i]->name, t->name))
            return;
    }
    const sm_contract *unlisted =
        other->unlisted == SM_UNLISTED_HIDE ? NULL : &other->unlisted_contract;
    compare_pair(k, t->name, is_old ? &t->contract : unlisted, is_old ? unlisted : &t->contract);
}

static void compare_files(comparison *k)
{
    for (uint32_t i = 0; i < k->old->tool_count; i++) {
        const sm_declared_tool *t = &k->old->tools[i];
        if (t->glob)
            compare_pattern(k, t, true);
        else
            compare_pair(k, t->name, &t->contract, sm_contracts_find(k->new, t->name));
    }
    for (uint32_t i = 0; i < k->new->tool_count; i++) {
        const sm_declared_tool *t = &k->new->tools[i];
        if (t->glob) {
            compare_pattern(k, t, false);
            continue;
        }
        const sm_declared_tool *known = sm_contracts_tool(k->old, t->name);
        if (known == NULL || known->glob)
            compare_pair(k, t->name, sm_contracts_find(k->old, t->name), &t->contract);
    }
}

static int run_diff(const cli_command *self, int argc, char **argv)
{
    comparison k = {0};
    int code;
    if (!read_json_option(self, argc, argv, &k.json, &code))
        return code;
    if (argc - optind != 2)
        return cli_usage(self, "two files are needed, OLD and NEW");
    sm_contracts *old = NULL, *new = NULL;
    code = cli_read_contracts(argv[optind], &old);
    if (code == CLI_OK)
        code = cli_read_contracts(argv[optind + 1], &new);
    if (code == CLI_OK) {
        k.old = old;
        k.new = new;
        sm_buf_init(&k.out, SM_ARENA_MAX);
        if (k.json)
            sm_buf_text(&k.out, "{\"changed\":[");
        compare_files(&k);
        if (k.json)
            sm_buf_printf(&k.out, "],\"unchanged\":%u}\n", k.same);
        else
            sm_buf_printf(&k.out, "%u tool%s with a changed identity, %u without.%s\n", k.changed,
                          plural(k.changed), k.same,
                          k.changed == 0
                              ? ""
                              : " Retries across the change are not recognised: let running\n"
                                "work settle before switching.");
        code = cli_write(&k.out);
        sm_buf_fini(&k.out);
        if (code == CLI_OK && k.changed > 0)
            code = CLI_DIFFERENT;
    }
    sm_contracts_free(old);
    sm_contracts_free(new);
    return code;
}

const cli_command cli_contract_check = {
    .name = "contract check",
    .summary = "every mistake in a contract file, and what looks like one",
    .help = "  semel contract check shop.yaml\n\n"
            "Usage: semel contract check FILE [--strict] [--json]\n\n"
            "  --strict  warnings fail too\n"
            "  --json    as one JSON object\n\n"
            "Reports all errors and warnings with line, column and what to write instead. Exit\n"
            "code 0 if there are no errors, 65 if there are.\n",
    .run = run_check,
};

const cli_command cli_contract_show = {
    .name = "contract show",
    .summary = "what applies to a tool, and where each value came from",
    .help = "  semel contract show shop.yaml stripe.charge\n\n"
            "Usage: semel contract show FILE TOOL [--json]\n\n"
            "Lists the effective contract of TOOL: what is built in, what its class says, what\n"
            "the file's defaults, the tool's entry and its variants give.\n",
    .run = run_show,
};

const cli_command cli_contract_diff = {
    .name = "contract diff",
    .summary = "which tools' identity changes between two contract files",
    .help = "  semel contract diff shop.yaml shop-new.yaml\n\n"
            "Usage: semel contract diff OLD NEW [--json]\n\n"
            "A tool's identity is what decides which calls share a key. Where it changes, a retry\n"
            "of a call made before the change is not recognised after it. Exit code 0 if no\n"
            "identity changes, 1 if one does.\n",
    .run = run_diff,
};
