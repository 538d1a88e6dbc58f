/* semel scope list, show and reset: what runs did, and whether they are let go on. */
#include "base/clock.h"
#include "base/limits.h"
#include "cli/ledger.h"
#include "cli/progress.h"
#include "cli/story.h"
#include "json/write.h"

#define LIMIT_MAX 1000u

typedef struct options {
    semel_scope_query query;
    const char *reason, *cursor;
} options;

static int take_option(const cli_command *self, int c, void *own)
{
    options *o = own;
    uint64_t n;
    if (c == 'S')
        return cli_since(self, optarg, &o->query.since);
    if (!cli_number(optarg, LIMIT_MAX, &n))
        return cli_usage(self, "--limit: \"%s\" is not a number from 1 to %u", optarg, LIMIT_MAX);
    o->query.limit = (size_t)n;
    return CLI_OK;
}

static int check(const cli_command *self, cli_ledger *l, const char *scope, void *own)
{
    (void)l;
    options *o = own;
    o->query.scope = cli_opt(scope);
    o->query.cursor = cli_opt(o->cursor);
    if (self == &cli_scope_reset && (o->reason == NULL || *o->reason == '\0'))
        return cli_usage(self,
                         "--reason is missing: why may it go on? It stays in the audit trail");
    return CLI_OK;
}

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    cli_progress_show(context, done, total);
    return true;
}

/* Asks, with a bar for whoever waits. */
static semel_err ask(cli_ledger *l, options *o,
                     semel_err (*what)(semel *, const semel_scope_query *, semel_answer *,
                                       semel_str *),
                     semel_str *json)
{
    cli_progress progress = cli_progress_start("Adding up effects");
    o->query.progress = show_progress;
    o->query.context = &progress;
    semel_err e = what(l->s, &o->query, l->a, json);
    cli_progress_end(&progress);
    return e;
}

/* ---- runs ------------------------------------------------------------------------------------*/

static cli_style style_of(sm_str state)
{
    return sm_str_is(state, "ok") ? CLI_GREEN : sm_str_is(state, "warned") ? CLI_YELLOW : CLI_RED;
}

static const cli_column run_columns[] = {
    {"SCOPE", CLI_SHRINKS, false}, {"STATE", CLI_WHOLE, false},   {"LAST", CLI_WHOLE, true},
    {"EFFECTS", CLI_WHOLE, true},  {"EXECUTED", CLI_WHOLE, true}, {"REPLAYS", CLI_WHOLE, true},
    {"REFUSALS", CLI_WHOLE, true}, {"IN DOUBT", CLI_WHOLE, true}, {"PENDING", CLI_WHOLE, true},
    {"COST", CLI_WHOLE, true},     {"RESERVED", CLI_WHOLE, true},
};

static void put_run(cli_table *t, const sm_json *run, int64_t now)
{
    static const char *const numbers[] = {"effects",  "executed", "replays", "refusals",
                                          "in_doubt", "pending",  "spent",   "reserved"};
    char age[CLI_WHEN_TEXT];
    sm_str state = cli_member(run, "state");
    cli_table_cell(t, CLI_PLAIN, cli_member(run, "scope"));
    cli_table_cell(t, style_of(state), state);
    cli_table_cell(t, CLI_PLAIN, cli_member_age(run, "last_at", now, age));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        cli_table_cell(t, CLI_PLAIN, cli_member(run, numbers[i]));
}

/* What was not looked at is said where people see it. */
static void tell_bounds(const sm_json *root)
{
    const sm_json *complete = sm_json_find(root, SM_STR("complete"));
    sm_str since = cli_member(root, "since"), cursor = cli_member(root, "cursor");
    if (complete != NULL && complete->type == SM_JSON_FALSE)
        fprintf(stderr, "Not everything was counted: the newest %.*s effects, since %.*s.\n",
                SM_FMT(cli_member(root, "looked_at")), SM_FMT(since));
    if (cursor.p != NULL)
        fprintf(stderr, "There are more: --cursor '%.*s'.\n", SM_FMT(cursor));
}

static void put_runs(sm_buf *b, const sm_json *root)
{
    const sm_json *items = sm_json_find(root, SM_STR("items"));
    cli_table t;
    cli_table_init(&t, run_columns, sizeof run_columns / sizeof run_columns[0]);
    const sm_json *item = items + 1;
    for (uint32_t i = 0; i < items->len; i++, item = sm_json_next(item))
        put_run(&t, item, sm_clock_ms());
    if (items->len > 0)
        cli_table_put(&t, 0, true, b);
    else
        fprintf(stderr, "No runs since %.*s.\n", SM_FMT(cli_member(root, "since")));
    tell_bounds(root);
    cli_table_fini(&t);
}

static int print(cli_ledger *l, semel_err e, sm_str json, void (*put)(sm_buf *, const sm_json *))
{
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
        put(&l->out, root);
    else
        l->out.err = SEMEL_E_NOMEM;
    sm_arena_fini(&arena);
    return CLI_OK;
}

static int list(cli_ledger *l, void *own)
{
    semel_str json;
    semel_err e = ask(l, own, semel_scope_list, &json);
    return print(l, e, json, put_runs);
}

/* ---- one run ---------------------------------------------------------------------------------*/

static void put_title(sm_buf *b, const char *title)
{
    sm_buf_byte(b, '\n');
    cli_styled(b, CLI_BOLD, sm_str_from(title));
    sm_buf_byte(b, '\n');
}

static void put_loop(sm_buf *b, const sm_json *loop, sm_str scope)
{
    const sm_json *tripped = sm_json_find(loop, SM_STR("tripped"));
    sm_str detector = cli_member(loop, "detector");
    if (detector.p == NULL)
        cli_row(b, "loop", SM_STR("none"));
    else
        cli_rowf(b, "loop", "%.*s, %.*s times, period %.*s", SM_FMT(detector),
                 SM_FMT(cli_member(loop, "count")), SM_FMT(cli_member(loop, "period")));
    if (tripped != NULL && tripped->type == SM_JSON_TRUE)
        cli_rowf(b, "to do",
                 "it was stopped for that; semel scope reset %.*s --reason R reopens it",
                 SM_FMT(scope));
}

static void put_budget(cli_table *t, const sm_json *budget)
{
    static const char *const measures[] = {"calls", "cost", "tokens"};
    sm_str of = cli_member(budget, "of");
    for (size_t i = 0; i < 3; i++) {
        const sm_json *m = sm_json_find(budget, sm_str_from(measures[i]));
        if (m == NULL)
            continue;
        cli_table_cell(t, CLI_PLAIN, of.p == NULL ? SM_STR("all calls") : of);
        cli_table_cell(t, CLI_PLAIN, cli_member(budget, "per"));
        cli_table_cell(t, CLI_PLAIN, sm_str_from(measures[i]));
        cli_table_cell(t, CLI_PLAIN, cli_member(m, "spent"));
        cli_table_cell(t, CLI_PLAIN, cli_member(m, "reserved"));
        cli_table_cell(t, CLI_PLAIN, cli_member(m, "cap"));
    }
}

static void put_budgets(sm_buf *b, const sm_json *list)
{
    static const cli_column columns[] = {
        {"OF", CLI_SHRINKS, false}, {"PER", CLI_WHOLE, false},     {"MEASURE", CLI_WHOLE, false},
        {"SPENT", CLI_WHOLE, true}, {"RESERVED", CLI_WHOLE, true}, {"CAP", CLI_WHOLE, true},
    };
    if (list == NULL || list->len == 0)
        return;
    cli_table t;
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item))
        put_budget(&t, item);
    put_title(b, "budgets");
    cli_table_put(&t, 2, true, b);
    cli_table_fini(&t);
}

static void put_list(sm_buf *b, const char *title, const sm_json *list,
                     void (*put)(sm_buf *out, size_t indent, const sm_json *list))
{
    if (list == NULL || list->len == 0)
        return;
    put_title(b, title);
    put(b, 2, list);
}

static void put_page(sm_buf *b, const sm_json *root)
{
    static const struct {
        const char *label, *name;
    } rows[] = {{"effects", "effects"},   {"executed", "executed"}, {"replays", "replays"},
                {"refusals", "refusals"}, {"in doubt", "in_doubt"}, {"pending", "pending"},
                {"cost", "spent"},        {"reserved", "reserved"}};
    char age[CLI_WHEN_TEXT];
    sm_str scope = cli_member(root, "scope"), state = cli_member(root, "state");
    cli_styled(b, CLI_BOLD, scope);
    sm_buf_text(b, "  ");
    cli_styled(b, style_of(state), state);
    sm_buf_text(b, "\n\n");
    cli_row(b, "last call", cli_member_age(root, "last_at", sm_clock_ms(), age));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        cli_row(b, rows[i].label, cli_member(root, rows[i].name));
    put_loop(b, sm_json_find(root, SM_STR("loop")), scope);
    put_budgets(b, sm_json_find(root, SM_STR("budgets")));
    put_list(b, "stops", sm_json_find(root, SM_STR("stops")), cli_put_stops);
    put_list(b, "newest effects", sm_json_find(root, SM_STR("items")), cli_put_objects);
    tell_bounds(root);
}

static int show(cli_ledger *l, void *own)
{
    semel_str json;
    semel_err e = ask(l, own, semel_scope_show, &json);
    return print(l, e, json, put_page);
}

/* ---- reopening -------------------------------------------------------------------------------*/

static int reset(cli_ledger *l, void *own)
{
    const options *o = own;
    semel_fault fault = {0};
    bool changed;
    semel_err e = semel_scope_reset(l->s, o->query.scope, (sm_str){0}, sm_str_from(o->reason),
                                    &changed, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_unavailable(l, e, &fault);
    if (l->o.json) {
        sm_buf_byte(&l->out, '{');
        sm_put_text(&l->out, "scope", o->query.scope);
        sm_put_bool(&l->out, "changed", changed);
        sm_buf_text(&l->out, "}\n");
    } else if (changed) {
        cli_styled(&l->out, CLI_GREEN, SM_STR("reopened"));
        sm_buf_text(&l->out, ": ");
        cli_put(&l->out, o->query.scope);
        sm_buf_byte(&l->out, '\n');
    }
    return changed ? CLI_OK
                   : cli_fail(CLI_NO_INPUT,
                              "this run does not repeat itself; semel stop --list shows what is "
                              "stopped");
}

static const struct option list_table[] = {
    {"since", required_argument, NULL, 'S'},
    {"limit", required_argument, NULL, 'l'},
    CLI_TEXT("cursor", options, cursor),
    CLI_LEDGER_OPTIONS,
    {"contract", required_argument, NULL, CLI_O_CONTRACT},
    {0},
};

static const struct option show_table[] = {
    {"since", required_argument, NULL, 'S'},
    {"limit", required_argument, NULL, 'l'},
    CLI_LEDGER_OPTIONS,
    {"contract", required_argument, NULL, CLI_O_CONTRACT},
    {0},
};

static const struct option reset_table[] = {
    CLI_TEXT("reason", options, reason), CLI_LEDGER_OPTIONS, {0}};

#define OPTIONS                                                                                    \
    &(options)                                                                                     \
    {                                                                                              \
        .query = {.size = sizeof(semel_scope_query) }                                              \
    }

const cli_command cli_scope_list = {
    .name = "scope list",
    .summary = "runs: what each did, what it cost, whether it goes on",
    .help =
        "  semel scope list\n"
        "  semel scope list acme/mailer --since 7d\n"
        "  semel scope list --json | jq '.items[] | select(.state != \"ok\")'\n\n"
        "Usage: semel scope list [PREFIX] [--since DURATION|TIME] [--limit N] [--cursor C]\n\n"
        "PREFIX is whole leading segments: a/b has a/b/c and not a/bc.\n\n"
        "  --since 24h              of effects made at most so long ago (default: 24h), or since\n"
        "                           2026-03-01T12:00:00Z\n"
        "  --limit N                at most so many runs (default: 50; up to 1000)\n"
        "  --cursor C               continue where a list ended\n" CLI_LEDGER_HELP CLI_CONTRACT_HELP
            CLI_JSON_HELP
        "\nThe run with the newest call comes first. EXECUTED counts attempts, REFUSALS what was\n"
        "refused for a reason of the run's: loops, budgets, stops, conflicts, denials, doubts.\n"
        "RESERVED is what running effects may cost. STATE is ok; warned or looping, if the run\n"
        "repeats itself; or stopped. At most 100,000 effects are looked at.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = OPTIONS,
            .table = list_table,
            .option = take_option,
            .argument = "one PREFIX",
            .check = check,
            .flags = CLI_CONTRACT,
            .work = list,
        },
};

const cli_command cli_scope_show = {
    .name = "scope show",
    .summary = "one run: its loop state, budgets, stops and effects",
    .help =
        "  semel scope show acme/mailer/run-7 --contract tools.yaml\n\n"
        "Usage: semel scope show SCOPE [--since DURATION|TIME] [--limit N]\n\n"
        "  --since 24h              of effects made at most so long ago (default: of all)\n"
        "  --limit N                so many of its newest effects (default: 20; up to 1000)\n" CLI_LEDGER_HELP
            CLI_CONTRACT_HELP CLI_JSON_HELP
        "\nBudgets are those of the contract, as far as something was charged to them. Exit code\n"
        "66 if nothing is known of the run.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = OPTIONS,
            .table = show_table,
            .option = take_option,
            .argument = "one SCOPE is needed",
            .required = true,
            .check = check,
            .flags = CLI_CONTRACT,
            .work = show,
        },
};

const cli_command cli_scope_reset = {
    .name = "scope reset",
    .summary = "reopen a run that was stopped for repeating itself",
    .help = "  semel stop --list\n"
            "  semel scope reset acme/mailer/run-7 --reason 'the prompt is corrected'\n\n"
            "Usage: semel scope reset SCOPE --reason TEXT\n\n"
            "  --reason TEXT            why it may go on, for the audit trail\n" CLI_LEDGER_HELP
                CLI_JSON_HELP
            "\nIts count begins anew, also if it is only warned yet. Exit code 66 if it does not\n"
            "repeat itself. What a person has stopped: semel resume.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = OPTIONS,
            .table = reset_table,
            .argument = "one SCOPE is needed",
            .required = true,
            .check = check,
            .work = reset,
        },
};
