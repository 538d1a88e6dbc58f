/* semel show: the whole story of one effect. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/digest.h"
#include "base/limits.h"
#include "base/stamp.h"
#include "cli/call.h"
#include "cli/ledger.h"
#include "cli/story.h"
#include "cli/when.h"

#define ARGS_SHOWN 4000u

/* The whole of a document that may hold a call's arguments and outcome, as nodes and text. */
#define STORY_MAX (4 * SM_ARENA_MAX)

static void put_title(sm_buf *b, const char *title)
{
    sm_buf_byte(b, '\n');
    cli_styled(b, CLI_BOLD, sm_str_from(title));
    sm_buf_byte(b, '\n');
}

static void put_list(sm_buf *b, const char *title, const sm_json *list,
                     void (*put)(sm_buf *out, size_t indent, const sm_json *list))
{
    if (list == NULL || list->type != SM_JSON_ARRAY || list->len == 0)
        return;
    put_title(b, title);
    put(b, 2, list);
}

static void put_events(sm_buf *b, size_t indent, const sm_json *list)
{
    cli_table table;
    cli_event_columns(&table, false);
    const sm_json *event = list + 1;
    for (uint32_t i = 0; i < list->len; i++, event = sm_json_next(event))
        cli_event_row(&table, event, false);
    cli_table_put(&table, indent, true, b);
    cli_table_fini(&table);
}

/* A row for a time, with its age. */
static void put_time(sm_buf *b, const char *label, sm_str text)
{
    int64_t ms;
    char when[CLI_WHEN_TEXT], age[CLI_WHEN_TEXT];
    if (text.p == NULL || !sm_stamp_parse(text, &ms)) {
        cli_row(b, label, text); /* "never", or nothing */
        return;
    }
    cli_when_text(ms, when);
    cli_age_text(ms, sm_clock_ms(), age);
    cli_rowf(b, label, "%s (%s)", when, age);
}

/* What a person may want to do about it. */
static void put_advice(sm_buf *b, const semel_answer *a)
{
    cli_row(b, "note", a->message);
    if (!a->has_outcome || a->outcome.corrective_action.p == NULL) /* it is said there */
        cli_row(b, "to do", a->corrective_action);
    if (a->corrective_action.p != NULL)
        return;
    if (a->state == SEMEL_S_IN_DOUBT)
        cli_rowf(b, "to do", "find out what happened, then: semel resolve %.*s", SM_FMT(a->effect));
    else if (a->state == SEMEL_S_PENDING && a->request.p != NULL)
        cli_rowf(b, "to do", "semel approve %.*s, or semel deny %.*s --reason TEXT",
                 SM_FMT(a->request), SM_FMT(a->request));
}

static void put_head(sm_buf *b, sm_str name, const semel_answer *a, const sm_json *story)
{
    static const struct {
        const char *label, *name;
    } texts[] = {{"scope", "scope"},      {"step", "step"},      {"tool", "tool"},
                 {"class", "class"},      {"key", "caller_key"}, {"replays", "replays"},
                 {"refusals", "refusals"}};
    static const struct {
        const char *label, *name;
    } times[] = {{"created", "created_at"},       {"lease ends", "lease_end"},
                 {"request ends", "request_end"}, {"settled", "settled_at"},
                 {"result until", "result_end"},  {"remembered until", "window_end"}};
    cli_styled(b, CLI_BOLD, a->effect);
    sm_buf_text(b, "  ");
    cli_styled(b, cli_state_style(a->state), sm_str_from(semel_state_name(a->state)));
    sm_buf_text(b, "\n\n");
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        cli_row(b, texts[i].label, cli_member(story, texts[i].name));
    cli_rowf(b, "version", "%" PRIu64, a->version);
    if (a->generation > 1)
        cli_rowf(b, "generation", "%" PRIu64, a->generation);
    for (size_t i = 0; i < sizeof times / sizeof times[0]; i++)
        put_time(b, times[i].label, cli_member(story, times[i].name));
    cli_row(b, "request", a->request);
    if (name.n > 3 && memcmp(name.p, "ap_", 3) == 0 && a->request.p != NULL &&
        !sm_str_eq(name, a->request))
        cli_rowf(b, "superseded", "%.*s is superseded by %.*s, whose arguments these are",
                 SM_FMT(name), SM_FMT(a->request));
    cli_row(b, "blocked by", a->blocked_by);
    if (a->code != SEMEL_C_NONE)
        cli_row(b, "code", sm_str_from(semel_code_name(a->code)));
    put_advice(b, a);
    const sm_json *args = sm_json_find(story, SM_STR("args"));
    if (args == NULL)
        return;
    sm_buf text;
    sm_buf_init(&text, SM_ARENA_MAX);
    cli_put_value(&text, args);
    sm_buf_printf(b, "%sarguments%s\n", cli_color(stdout, CLI_BOLD), cli_color(stdout, CLI_PLAIN));
    cli_put_block(b, 2, sm_buf_view(&text), ARGS_SHOWN);
    sm_buf_fini(&text);
}

static void put_story(sm_buf *b, sm_str name, const semel_answer *a, sm_str json)
{
    sm_arena arena;
    sm_arena_init(&arena, STORY_MAX);
    const sm_json *story = cli_story_read(&arena, json);
    if (story == NULL) {
        /* Arguments that are nested as deep as can be do not fit into a deeper document. */
        cli_put(b, json);
        sm_buf_byte(b, '\n');
    } else {
        put_head(b, name, a, story);
        put_list(b, "Attempts", sm_json_find(story, SM_STR("attempts")), cli_put_attempts);
        put_list(b, "Approvals", sm_json_find(story, SM_STR("requests")), cli_put_objects);
        put_list(b, "What happened", sm_json_find(story, SM_STR("events")), put_events);
        if (a->has_outcome) {
            sm_buf_byte(b, '\n');
            cli_put_outcome(b, &a->outcome);
        }
    }
    sm_arena_fini(&arena);
}

typedef struct options {
    const char *scope, *key;
    semel_name name;
} options;

static int check(const cli_command *self, cli_ledger *l, const char *text, void *own)
{
    (void)l;
    options *o = own;
    sm_hash hash;
    if ((text != NULL) == (o->key != NULL))
        return cli_usage(self, "which effect? Either NAME, or --scope S --key K");
    if (text != NULL && o->scope != NULL)
        return cli_usage(self, "--scope goes with --key; NAME alone names an effect");
    if (text != NULL && !cli_is_handle(text, "ef_") && !cli_is_handle(text, "ap_") &&
        !sm_hash_parse(sm_str_from(text), &hash))
        return cli_usage(self,
                         "\"%s\" is no name: neither ef_... nor ap_... nor a key of 43 characters. "
                         "The caller's own key goes into --key",
                         text);
    o->name = (semel_name){.size = sizeof o->name, .text = cli_opt(text)};
    if (o->key != NULL) {
        o->name.scope = cli_call_scope(o->scope);
        o->name.key = sm_str_from(o->key);
    }
    return CLI_OK;
}

static int show(cli_ledger *l, void *own)
{
    const options *o = own;
    semel_str json = {0};
    semel_err e = semel_show(l->s, &o->name, l->a, &json);
    if (e != SEMEL_OK || l->a->verdict == SEMEL_REFUSED)
        return cli_answer(l, e, "");
    if (l->o.json) {
        sm_buf_str(&l->out, json);
        sm_buf_byte(&l->out, '\n');
    } else {
        put_story(&l->out, o->name.text, l->a, json);
    }
    return CLI_OK;
}

static const struct option table[] = {
    CLI_TEXT("scope", options, scope),
    CLI_TEXT("key", options, key),
    CLI_LEDGER_OPTIONS,
    {0},
};

const cli_command cli_show = {
    .name = "show",
    .summary = "the whole story of one effect",
    .help = "  semel show ef_...\n"
            "  semel show --scope nightly --key 2026-03-01\n"
            "  semel show \"$(semel key --tool send_email --args-file call.json)\" --json\n\n"
            "Usage: semel show NAME\n"
            "       semel show [--scope S] --key K\n\n"
            "NAME is an effect ef_..., an approval request ap_..., or a key of 43 characters as\n"
            "semel key prints it.\n\n"
            "  --key K                  the caller's own key\n"
            "  --scope S                its scope (default: default)\n" CLI_LEDGER_HELP
            "  --json                   everything as one JSON object\n\n"
            "Prints what was called, each attempt, who was asked for approval and what they said,\n"
            "everything that happened in order, and the outcome. Exit code 66 if there is none.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(options){0},
            .table = table,
            .argument = "one NAME",
            .check = check,
            .work = show,
        },
};
