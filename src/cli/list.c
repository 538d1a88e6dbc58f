/* semel list: effects, the newest first. */
#include <inttypes.h>

#include "base/clock.h"
#include "base/suggest.h"
#include "cli/ledger.h"
#include "cli/when.h"
#include "json/write.h"

#define LIMIT_DEFAULT 50u
#define LIMIT_MAX     1000u

typedef struct options {
    semel_query query;
    bool all, limited;
} options;

/* A page on its way out. */
typedef struct page {
    bool json;
    cli_table table;
    sm_buf out;
    int64_t now;
    uint64_t items; /* printed so far, over all pages */
    sm_err err;
} page;

/* ---- the command line ------------------------------------------------------------------------*/

static int read_states(const cli_command *self, const char *list, uint32_t *states)
{
    for (const char *p = list; *p != '\0';) {
        size_t n = strcspn(p, ",");
        sm_str word = {p, n};
        sm_nearest nearest = {0};
        bool known = false;
        for (int s = SEMEL_S_NONE + 1; s < SEMEL_S_COUNT; s++) {
            sm_str name = sm_str_from(semel_state_name((semel_state)s));
            sm_nearest_try(&nearest, word, name);
            if (!sm_str_eq(word, name))
                continue;
            *states |= 1u << s;
            known = true;
        }
        sm_str near = sm_nearest_get(&nearest, word);
        if (!known && near.p != NULL)
            return cli_usage(self, "--state: \"%.*s\" is no state; did you mean %.*s?",
                             SM_FMT(word), SM_FMT(near));
        if (!known)
            return cli_usage(self,
                             "--state: \"%.*s\" is no state; there are pending_approval, ready, "
                             "running, in_doubt, succeeded, failed, partial, denied, expired and "
                             "canceled",
                             SM_FMT(word));
        p += n + (p[n] == ',');
    }
    return *states != 0 ? CLI_OK : cli_usage(self, "--state: which?");
}

static int take_option(const cli_command *self, int c, void *own)
{
    options *o = own;
    uint64_t n;
    semel_filter *f = &o->query.filter;
    switch (c) {
    case 's': return read_states(self, optarg, &f->states);
    case 't': f->tool = sm_str_from(optarg); return CLI_OK;
    case 'p': f->scope = sm_str_from(optarg); return CLI_OK;
    case 'S': return cli_since(self, optarg, &f->since);
    case 'l':
        if (!cli_number(optarg, LIMIT_MAX, &n))
            return cli_usage(self, "--limit: \"%s\" is no number from 1 to %u", optarg, LIMIT_MAX);
        o->query.limit = (size_t)n;
        o->limited = true;
        return CLI_OK;
    default:
        if (!cli_number(optarg, UINT64_MAX, &o->query.cursor))
            return cli_usage(self, "--cursor: \"%s\" is none; semel list prints it", optarg);
        return CLI_OK;
    }
}

static int check(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    (void)l, (void)argument;
    options *o = own;
    if (o->all && o->limited)
        return cli_usage(self, "--all and --limit exclude each other");
    if (o->all)
        o->query.limit = LIMIT_MAX;
    else if (!o->limited)
        o->query.limit = LIMIT_DEFAULT;
    return CLI_OK;
}

/* ---- printing --------------------------------------------------------------------------------*/

/* The answer about it, and what the record says beyond. */
static bool put_json_item(page *p, const semel_answer *item, const semel_record *r)
{
    semel_str text = {0};
    p->err = semel_answer_json(item, &text);
    if (p->err != SM_OK || text.n < 2)
        return false;
    sm_buf *b = &p->out;
    if (p->items++ > 0)
        sm_buf_byte(b, ',');
    sm_buf_bytes(b, text.p, text.n - 1); /* without its closing brace */
    sm_put_text(b, "scope", r->scope);
    sm_put_text(b, "step", r->step);
    sm_put_text(b, "tool", r->tool);
    sm_put_text(b, "caller_key", r->caller);
    sm_put_raw(b, "args", r->args);
    sm_put_stamp(b, "created_at", r->created_at);
    sm_put_stamp(b, "updated_at", r->updated_at);
    sm_put_stamp(b, "lease_end", r->state == SEMEL_S_RUNNING ? r->lease_end : 0);
    sm_put_stamp(b, "settled_at", r->settled_at);
    sm_put_stamp(b, "window_end", r->window_end);
    sm_buf_byte(b, '}');
    return b->err == SM_OK;
}

static const cli_column columns[] = {
    {"EFFECT", CLI_WHOLE, false},      {"STATE", CLI_WHOLE, false},   {"AGE", CLI_WHOLE, true},
    {"TOOL", CLI_SHRINKS, false},      {"SCOPE", CLI_SHRINKS, false}, {"NOTE", CLI_WHOLE, false},
    {"ARGUMENTS", CLI_SHRINKS, false},
};

static bool put_row(page *p, const semel_answer *item, const semel_record *r)
{
    char age[CLI_WHEN_TEXT], note[80] = "";
    cli_age_text(r->created_at, p->now, age);
    if (item->state == SEMEL_S_RUNNING && r->lease_end > 0) {
        char end[CLI_WHEN_TEXT];
        cli_age_text(r->lease_end, p->now, end);
        snprintf(note, sizeof note, "lease %s %s", r->lease_end < p->now ? "ended" : "ends", end);
    } else if (item->state == SEMEL_S_PENDING && item->request.p != NULL) {
        snprintf(note, sizeof note, "%.*s", SM_FMT(item->request));
    } else if (item->attempt > 1) {
        snprintf(note, sizeof note, "%" PRIu64 " attempts", item->attempt);
    }
    cli_table *t = &p->table;
    cli_table_cell(t, CLI_PLAIN, item->effect);
    cli_table_cell(t, cli_state_style(item->state), sm_str_from(semel_state_name(item->state)));
    cli_table_cell(t, CLI_PLAIN, sm_str_from(age));
    cli_table_cell(t, CLI_PLAIN, r->tool);
    cli_table_cell(t, CLI_PLAIN, r->scope);
    cli_table_cell(t, CLI_PLAIN, sm_str_from(note));
    cli_table_cell(t, CLI_DIM, r->args);
    p->items++;
    return true;
}

static bool put_item(void *context, const semel_answer *item, const semel_record *record)
{
    page *p = context;
    return p->json ? put_json_item(p, item, record) : put_row(p, item, record);
}

/* ---- pages -----------------------------------------------------------------------------------*/

/* Prints what was collected; with --all, page by page. */
static int flush_page(page *p, bool first)
{
    if (!p->json && p->table.count > 0)
        cli_table_put(&p->table, 0, first, &p->out);
    int code = cli_write(&p->out);
    sm_buf_clear(&p->out);
    if (ferror(stdout))
        code = CLI_IO; /* cli_done explains */
    return code;
}

static int list(cli_ledger *l, void *own)
{
    const options *o = own;
    page p = {.json = l->o.json, .now = sm_clock_ms()};
    semel_query q = o->query;
    cli_table_init(&p.table, columns, sizeof columns / sizeof columns[0]);
    sm_buf_init(&p.out, CLI_OUTPUT_MAX);
    if (l->o.json)
        sm_buf_text(&p.out, "{\"items\":[");
    int code = CLI_OK;
    uint64_t printed = 0;
    do {
        semel_fault fault = {0};
        /* A page may come in several parts. */
        if (!o->all)
            q.limit = o->query.limit - (size_t)p.items;
        semel_err e = semel_list(l->s, &q, put_item, &p, &fault);
        if (e != SEMEL_OK)
            code = cli_ledger_fault(e, &fault);
        else if (p.err != SM_OK)
            code = cli_fail(cli_code(p.err), "%s", semel_err_text(p.err));
        if (code == CLI_OK && (o->all || q.cursor == 0 || p.items >= o->query.limit)) {
            code = flush_page(&p, printed == 0);
            printed = p.items;
        }
    } while (code == CLI_OK && q.cursor != 0 && (o->all || p.items < o->query.limit));
    if (code == CLI_OK && l->o.json) {
        if (q.cursor != 0)
            printf("],\"cursor\":\"%" PRIu64 "\"}\n", q.cursor);
        else
            printf("]}\n");
    } else if (code == CLI_OK && p.items == 0) {
        fprintf(stderr, "No effects.\n");
    } else if (code == CLI_OK && q.cursor != 0) {
        fprintf(stderr, "There are more: --cursor %" PRIu64 ", or --all.\n", q.cursor);
    }
    sm_buf_fini(&p.out);
    cli_table_fini(&p.table);
    return code;
}

static const struct option table[] = {
    {"state", required_argument, NULL, 's'},
    {"tool", required_argument, NULL, 't'},
    {"scope", required_argument, NULL, 'p'},
    {"since", required_argument, NULL, 'S'},
    {"limit", required_argument, NULL, 'l'},
    {"cursor", required_argument, NULL, 'c'},
    CLI_FLAG("all", options, all),
    CLI_LEDGER_OPTIONS,
    {0},
};

const cli_command cli_list = {
    .name = "list",
    .summary = "effects, the newest first",
    .help = "  semel list --state in_doubt,pending_approval      what waits for a person\n"
            "  semel list --tool 'stripe.*' --scope order-123 --since 2h\n"
            "  semel list --all --json | jq -r '.items[].effect'\n\n"
            "Usage: semel list [--state S,...] [--tool PATTERN] [--scope PREFIX]\n"
            "                  [--since DURATION|TIME] [--limit N] [--cursor C] [--all]\n\n"
            "  --state S,...            pending_approval, ready, running, in_doubt, succeeded,\n"
            "                           failed, partial, denied, expired, canceled\n"
            "  --tool PATTERN           a name; * and ? stand for any text and any character\n"
            "  --scope PREFIX           whole leading segments: a/b has a/b/c and not a/bc\n"
            "  --since 2h               made at most so long ago, or since 2026-03-01T12:00:00Z\n"
            "  --limit N                at most so many (default: 50; up to 1000)\n"
            "  --cursor C               continue where a list ended\n"
            "  --all                    everything, in as many pages as it takes\n" CLI_LEDGER_HELP
            "  --json                   {\"items\": [...], \"cursor\": C}; no cursor at the end\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(options){.query = {.size = sizeof(semel_query)}},
            .table = table,
            .option = take_option,
            .hint = "semel show NAME prints one effect",
            .check = check,
            .work = list,
        },
};
