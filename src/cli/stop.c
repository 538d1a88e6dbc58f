/* semel stop and resume: the stop button. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/limits.h"
#include "cli/ledger.h"
#include "cli/story.h"
#include "json/write.h"

typedef struct options {
    const char *tool, *reason;
    bool all, list;
    semel_stop_kind kind;
    sm_str name;
} options;

/* What is meant: one of a scope, a tool and everything. */
static int choose(const cli_command *self, const char *scope, options *o)
{
    if ((scope != NULL) + (o->tool != NULL) + o->all != 1)
        return cli_usage(self, "say what: one of SCOPE, --tool PATTERN, --all");
    o->kind = scope != NULL ? SEMEL_STOP_SCOPE : o->tool != NULL ? SEMEL_STOP_TOOL : SEMEL_STOP_ALL;
    o->name = cli_opt(scope != NULL ? scope : o->tool);
    return CLI_OK;
}

static int check_stop(const cli_command *self, cli_ledger *l, const char *scope, void *own)
{
    (void)l;
    options *o = own;
    if (o->list && (scope != NULL || o->tool != NULL || o->all || o->reason != NULL))
        return cli_usage(self, "--list goes alone");
    int code = o->list ? CLI_OK : choose(self, scope, o);
    if (code == CLI_OK && !o->list && (o->reason == NULL || *o->reason == '\0'))
        return cli_usage(self, "--reason is missing; refused callers see it");
    return code;
}

static int check_resume(const cli_command *self, cli_ledger *l, const char *scope, void *own)
{
    (void)l;
    return choose(self, scope, own);
}

/* "writes of acme/bot", and so on. */
static void put_what(sm_buf *b, const options *o)
{
    if (o->kind == SEMEL_STOP_ALL) {
        sm_buf_text(b, "all writes");
        return;
    }
    sm_buf_text(b, o->kind == SEMEL_STOP_TOOL ? "writes of tool " : "writes of ");
    cli_put(b, o->name);
    if (o->kind == SEMEL_STOP_SCOPE)
        sm_buf_text(b, " and of scopes below it");
}

static void put_json(sm_buf *b, const options *o, bool stopped, bool changed)
{
    static const char *const kinds[] = {"all", "scope", "tool"};
    sm_buf_byte(b, '{');
    sm_put_text(b, "kind", sm_str_from(kinds[o->kind]));
    sm_put_text(b, "name", o->name);
    sm_put_bool(b, "stopped", stopped);
    sm_put_bool(b, "changed", changed);
    sm_buf_text(b, "}\n");
}

/* ---- what is stopped -------------------------------------------------------------------------*/

static const cli_column columns[] = {
    {"WHAT", CLI_WHOLE, false}, {"NAME", CLI_SHRINKS, false}, {"SINCE", CLI_WHOLE, false},
    {"BY", CLI_SHRINKS, false}, {"REASON", CLI_WRAPS, false},
};

/* A tool that is not called for a while. */
static void put_circuit(cli_table *t, const sm_json *stop, int64_t now)
{
    char age[CLI_WHEN_TEXT], left[SM_DURATION_TEXT];
    sm_str upstream = cli_member(stop, "upstream");
    const sm_json *half = sm_json_find(stop, SM_STR("half_open"));
    int64_t left_ms = strtoll(cli_member(stop, "retry_after_ms").p, NULL, 10);
    cli_table_cell(t, CLI_RED, SM_STR("circuit"));
    cli_table_printf(t, CLI_PLAIN, "%.*s%s%.*s", SM_FMT(cli_member(stop, "tool")),
                     upstream.n > 0 ? " at " : "", SM_FMT(upstream));
    cli_table_cell(t, CLI_PLAIN, cli_member_age(stop, "since", now, age));
    cli_table_cell(t, CLI_PLAIN, SM_STR("circuit breaker"));
    sm_duration_text((left_ms + 999) / 1000 * 1000, left);
    cli_table_printf(t, CLI_PLAIN, "%.*s calls failed; %s%s", SM_FMT(cli_member(stop, "failures")),
                     half != NULL && half->type == SM_JSON_TRUE
                         ? "a call finds out whether it works"
                     : left_ms > 0 ? "it is tried in "
                                   : "the next call finds out whether it works",
                     left_ms > 0 ? left : "");
}

static void put_stop(cli_table *t, const sm_json *stop, int64_t now)
{
    char age[CLI_WHEN_TEXT];
    sm_str kind = cli_member(stop, "kind"), name = cli_member(stop, "name");
    bool loop = sm_str_is(kind, "loop");
    if (sm_str_is(kind, "circuit")) {
        put_circuit(t, stop, now);
        return;
    }
    sm_str by = cli_member(stop, "by"), reason = cli_member(stop, "reason");
    cli_table_cell(t, CLI_RED, loop ? SM_STR("run") : kind);
    cli_table_cell(t, CLI_PLAIN, name.p == NULL ? SM_STR("") : name);
    cli_table_cell(t, CLI_PLAIN, cli_member_age(stop, "since", now, age));
    cli_table_cell(t, CLI_PLAIN, loop ? SM_STR("loop detection") : by.p == NULL ? SM_STR("") : by);
    if (loop)
        cli_table_printf(
            t, CLI_PLAIN,
            "it repeats itself (%.*s, %.*s times); semel scope reset %.*s --reason R reopens it",
            SM_FMT(cli_member(stop, "detector")), SM_FMT(cli_member(stop, "count")), SM_FMT(name));
    else
        cli_table_cell(t, CLI_PLAIN, reason.p == NULL ? SM_STR("") : reason);
}

void cli_put_stops(sm_buf *out, size_t indent, const sm_json *list)
{
    cli_table t;
    cli_table_init(&t, columns, sizeof columns / sizeof columns[0]);
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item))
        put_stop(&t, item, sm_clock_ms());
    cli_table_put(&t, indent, true, out);
    cli_table_fini(&t);
}

static int list(cli_ledger *l)
{
    semel_str json;
    semel_err e = semel_stops(l->s, (sm_str){0}, l->a, &json);
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
    const sm_json *items = root == NULL ? NULL : sm_json_find(root, SM_STR("items"));
    if (items == NULL) {
        l->out.err = SEMEL_E_NOMEM;
    } else if (items->len == 0) {
        fprintf(stderr, "Nothing is stopped.\n");
    } else {
        cli_put_stops(&l->out, 0, items);
    }
    sm_arena_fini(&arena);
    return CLI_OK;
}

/* ---- pressing it -----------------------------------------------------------------------------*/

static int stop(cli_ledger *l, void *own)
{
    const options *o = own;
    semel_fault fault = {0};
    bool changed;
    if (o->list)
        return list(l);
    semel_err e =
        semel_stop(l->s, o->kind, o->name, (sm_str){0}, sm_str_from(o->reason), &changed, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_unavailable(l, e, &fault);
    sm_buf *b = &l->out;
    if (l->o.json) {
        put_json(b, o, true, changed);
        return CLI_OK;
    }
    cli_styled(b, CLI_RED, changed ? SM_STR("stopped") : SM_STR("stopped already"));
    sm_buf_text(b, ": ");
    put_what(b, o);
    sm_buf_text(b, changed
                       ? "\nWithin a second no process on this ledger begins new ones. What runs "
                         "ends and is recorded;\nreads and replays go on.\n"
                       : "\nThe first reason stays; semel stop --list shows it.\n");
    return CLI_OK;
}

/* Whether a scope is a run that was stopped because it repeats itself. */
static bool is_looping(cli_ledger *l, const options *o)
{
    semel_str json;
    sm_arena arena;
    bool found = false;
    if (o->kind != SEMEL_STOP_SCOPE || semel_stops(l->s, o->name, l->a, &json) != SEMEL_OK)
        return false;
    sm_arena_init(&arena, SM_ARENA_MAX);
    const sm_json *root = cli_story_read(&arena, json);
    const sm_json *items = root == NULL ? NULL : sm_json_find(root, SM_STR("items"));
    const sm_json *item = items == NULL ? NULL : items + 1;
    for (uint32_t i = 0; item != NULL && i < items->len; i++, item = sm_json_next(item))
        found |= sm_str_is(cli_member(item, "kind"), "loop") &&
                 sm_str_eq(cli_member(item, "name"), o->name);
    sm_arena_fini(&arena);
    return found;
}

static int resume(cli_ledger *l, void *own)
{
    const options *o = own;
    semel_fault fault = {0};
    bool changed;
    semel_err e =
        semel_resume(l->s, o->kind, o->name, (sm_str){0}, cli_opt(o->reason), &changed, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_unavailable(l, e, &fault);
    sm_buf *b = &l->out;
    if (l->o.json)
        put_json(b, o, false, changed);
    if (changed && !l->o.json) {
        cli_styled(b, CLI_GREEN, SM_STR("resumed"));
        sm_buf_text(b, ": ");
        put_what(b, o);
        sm_buf_byte(b, '\n');
    }
    if (changed)
        return CLI_OK;
    if (is_looping(l, o))
        return cli_fail(CLI_NO_INPUT,
                        "%.*s was not stopped by a person: it repeats itself. semel scope reset "
                        "%.*s --reason R reopens it",
                        SM_FMT(o->name), SM_FMT(o->name));
    return cli_fail(CLI_NO_INPUT, "this is not stopped; semel stop --list shows what is");
}

static const struct option stop_table[] = {
    CLI_TEXT("tool", options, tool),
    CLI_TEXT("reason", options, reason),
    CLI_FLAG("all", options, all),
    CLI_FLAG("list", options, list),
    CLI_LEDGER_OPTIONS,
    {0},
};

static const struct option resume_table[] = {
    CLI_TEXT("tool", options, tool),
    CLI_TEXT("reason", options, reason),
    CLI_FLAG("all", options, all),
    CLI_LEDGER_OPTIONS,
    {0},
};

#define WHAT_HELP                                                                                  \
    "SCOPE is a run, an agent or a tenant: everything below it is meant too.\n\n"                  \
    "  --tool PATTERN           a tool; * and ? stand for any text and any character\n"            \
    "  --all                    every write\n"

const cli_command cli_stop = {
    .name = "stop",
    .summary = "refuse new writes of a scope, of a tool, or all",
    .help =
        "  semel stop acme/mailer --reason 'it mails everybody'\n"
        "  semel stop --tool 'stripe.*' --reason 'the bank is down'\n"
        "  semel stop --all --reason 'what happens here?'\n"
        "  semel stop --list                          what is stopped, by whom and why\n\n"
        "Usage: semel stop (SCOPE | --tool PATTERN | --all) --reason TEXT\n"
        "       semel stop --list\n\n" WHAT_HELP
        "  --reason TEXT            why; refused callers see it\n"
        "  --list                   what is stopped; also runs that repeat themselves, and tools\n"
        "                           that are not called because they fail\n" CLI_LEDGER_HELP
            CLI_JSON_HELP
        "\nWrites are refused with STOPPED, within a second in every process that uses the\n"
        "ledger. What runs ends and is recorded; reads and replays go on.\n"
        "Who you are for the audit trail is the operating system's user.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(options){0},
            .table = stop_table,
            .argument = "one SCOPE",
            .check = check_stop,
            .work = stop,
        },
};

const cli_command cli_resume = {
    .name = "resume",
    .summary = "let writes begin again that were stopped",
    .help =
        "  semel resume acme/mailer --reason 'its list is right now'\n\n"
        "Usage: semel resume (SCOPE | --tool PATTERN | --all) [--reason TEXT]\n\n" WHAT_HELP
        "  --reason TEXT            why, for the audit trail\n" CLI_LEDGER_HELP CLI_JSON_HELP
        "\nTakes back one stop, named as it was stopped: --all ends the stop of everything and\n"
        "no other. Exit code 66 if this is not stopped. Runs that were stopped because they\n"
        "repeat themselves: semel scope reset.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(options){0},
            .table = resume_table,
            .argument = "one SCOPE",
            .check = check_resume,
            .work = resume,
        },
};
