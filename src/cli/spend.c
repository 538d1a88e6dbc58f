/* semel spend: what calls cost, and what duplicates did not. */
#include "base/limits.h"
#include "cli/ledger.h"
#include "cli/progress.h"
#include "cli/story.h"

#define LIMIT_MAX 1000u

typedef struct options {
    semel_spend_query query;
    const char *scope;
} options;

static int read_by(const cli_command *self, const char *text, semel_spend_by *by)
{
    static const char *const names[] = {"tool", "scope", "agent", "day"};
    for (int i = SEMEL_SPEND_TOOL; i <= SEMEL_SPEND_DAY; i++) {
        if (strcmp(text, names[i]) == 0) {
            *by = (semel_spend_by)i;
            return CLI_OK;
        }
    }
    return cli_usage(self, "--by: \"%s\" is not one of tool, scope, agent, day", text);
}

static int take_option(const cli_command *self, int c, void *own)
{
    options *o = own;
    uint64_t n;
    if (c == 'b')
        return read_by(self, optarg, &o->query.by);
    if (c == 'S')
        return cli_since(self, optarg, &o->query.since);
    if (!cli_number(optarg, LIMIT_MAX, &n))
        return cli_usage(self, "--limit: \"%s\" is not a number from 1 to %u", optarg, LIMIT_MAX);
    o->query.limit = (size_t)n;
    return CLI_OK;
}

static void put_row(cli_table *t, cli_style style, sm_str name, const sm_json *of)
{
    static const char *const numbers[] = {"executed", "spent",      "reserved",
                                          "refusals", "duplicates", "saved"};
    cli_table_cell(t, style, name);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cli_table_cell(t, style, cli_member(of, numbers[i]));
}

static void put_spend(sm_buf *b, const sm_json *root)
{
    static const char *const titles[] = {"TOOL", "SCOPE", "AGENT", "DAY"};
    static const char *const names[] = {"tool", "scope", "agent", "day"};
    cli_column columns[] = {
        {"", CLI_SHRINKS, false},     {"EXECUTED", CLI_WHOLE, true},
        {"SPENT", CLI_WHOLE, true},   {"RESERVED", CLI_WHOLE, true},
        {"REFUSED", CLI_WHOLE, true}, {"DUPLICATES", CLI_WHOLE, true},
        {"SAVED", CLI_WHOLE, true},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (sm_str_is(cli_member(root, "by"), names[i]))
            columns[0].title = titles[i];
    }
    const sm_json *items = sm_json_find(root, SM_STR("items"));
    const sm_json *complete = sm_json_find(root, SM_STR("complete"));
    sm_str since = cli_member(root, "since"), left = cli_member(root, "left_out");
    cli_table t;
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    const sm_json *item = items + 1;
    for (uint32_t i = 0; i < items->len; i++, item = sm_json_next(item))
        put_row(&t, CLI_PLAIN, cli_member(item, "name"), item);
    put_row(&t, CLI_BOLD, SM_STR("total"), sm_json_find(root, SM_STR("total")));
    cli_table_put(&t, 0, true, b);
    cli_table_fini(&t);
    fprintf(stderr, "Of effects made since %.*s.", SM_FMT(since));
    if (left.p != NULL)
        fprintf(stderr, " %.*s more are in the total; --limit shows more.", SM_FMT(left));
    if (complete->type == SM_JSON_FALSE)
        fprintf(stderr, " Older ones were not counted: these are the newest %.*s.",
                SM_FMT(cli_member(root, "looked_at")));
    fputc('\n', stderr);
}

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    cli_progress_show(context, done, total);
    return true;
}

static int spend(cli_ledger *l, void *own)
{
    options *o = own;
    semel_str json;
    cli_progress progress = cli_progress_start("Adding up effects");
    o->query.scope = cli_opt(o->scope);
    o->query.progress = show_progress;
    o->query.context = &progress;
    semel_err e = semel_spend(l->s, &o->query, l->a, &json);
    cli_progress_end(&progress);
    if (e != SEMEL_OK)
        return cli_answer(l, e, "");
    if (l->o.json) {
        sm_buf_str(&l->out, json);
        sm_buf_byte(&l->out, '\n');
        return CLI_OK;
    }
    sm_arena arena;
    sm_arena_init(&arena, SM_ARENA_MAX);
    const sm_json *root = cli_story_read(&arena, json);
    if (root != NULL)
        put_spend(&l->out, root);
    else
        l->out.err = SEMEL_E_NOMEM;
    sm_arena_fini(&arena);
    return CLI_OK;
}

static const struct option table[] = {
    {"by", required_argument, NULL, 'b'},
    {"since", required_argument, NULL, 'S'},
    {"limit", required_argument, NULL, 'l'},
    CLI_TEXT("scope", options, scope),
    CLI_LEDGER_OPTIONS,
    {"contract", required_argument, NULL, CLI_O_CONTRACT},
    {0},
};

const cli_command cli_spend = {
    .name = "spend",
    .summary = "what calls cost, and what duplicates would have cost",
    .help =
        "  semel spend --by agent --since 7d\n"
        "  semel spend --scope acme --by day --since 30d --json | jq .total\n\n"
        "Usage: semel spend [--by tool|scope|agent|day] [--since DURATION|TIME]\n"
        "                   [--scope PREFIX] [--limit N]\n\n"
        "  --by WHAT                tool (default), scope, agent (the first two segments of a\n"
        "                           scope), or day (UTC)\n"
        "  --since 24h              of effects made at most so long ago (default: 24h), or since\n"
        "                           2026-03-01T12:00:00Z\n"
        "  --scope PREFIX           whole leading segments: a/b has a/b/c and not a/bc\n"
        "  --limit N                at most so many rows (default: 100; up to 1000)\n" CLI_LEDGER_HELP
            CLI_CONTRACT_HELP CLI_JSON_HELP
        "\nSPENT is what ended effects cost: as their commit said, else as the contract declared\n"
        "it. RESERVED is what effects that run or are in doubt may cost. DUPLICATES are equal\n"
        "calls that did not run again: replays, and repeats that were refused. SAVED is what they\n"
        "would have cost. At most 100,000 effects are looked at.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(options){.query = {.size = sizeof(semel_spend_query)}},
            .table = table,
            .option = take_option,
            .hint = "the scope goes into --scope",
            .flags = CLI_CONTRACT,
            .work = spend,
        },
};
