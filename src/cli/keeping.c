/*
 * semel export, import, purge and stats: keeping a ledger.
 *
 * export and import work line by line: a ledger may be larger than memory.
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/limits.h"
#include "cli/ledger.h"
#include "cli/progress.h"
#include "cli/when.h"
#include "json/write.h"

static const char *s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- export ----------------------------------------------------------------------------------*/

typedef struct exporter {
    cli_progress progress;
    uint64_t lines;
} exporter;

static bool write_line(void *context, semel_str line)
{
    exporter *x = context;
    fwrite(line.p, 1, line.n, stdout);
    cli_progress_show(&x->progress, ++x->lines, 0);
    return !ferror(stdout);
}

typedef struct export_options {
    const char *scope;
} export_options;

static int export_all(cli_ledger *l, void *own)
{
    const export_options *o = own;
    exporter x = {.progress = cli_progress_start("Exporting")};
    semel_fault fault = {0};
    semel_err e = semel_export(l->s, cli_opt(o->scope), write_line, &x, &fault);
    cli_progress_end(&x.progress);
    return e != SEMEL_OK && !ferror(stdout) ? cli_ledger_fault(e, &fault) : CLI_OK;
}

/* ---- import ----------------------------------------------------------------------------------*/

/* Reads a line without its line feed. False at the end, and when the buffer cannot take it. */
static bool read_line(FILE *from, sm_buf *line)
{
    sm_buf_clear(line);
    int c;
    while ((c = getc_unlocked(from)) != EOF && c != '\n') {
        sm_buf_byte(line, (char)c);
        if (line->err != SM_OK)
            return false;
    }
    return c == '\n' || line->len > 0;
}

/* `at` counts lines. */
static int import_lines(cli_ledger *l, FILE *from, const char *name, uint64_t *at,
                        semel_imported *count)
{
    struct stat st;
    uint64_t total =
        fstat(fileno(from), &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    cli_progress progress = cli_progress_start("Importing");
    uint64_t done = 0;
    sm_buf line;
    sm_buf_init(&line, SM_LINE_MAX);
    int code = CLI_OK;
    while (code == CLI_OK && read_line(from, &line)) {
        ++*at;
        done += line.len + 1;
        cli_progress_show(&progress, total > 0 ? done : *at, total);
        if (line.len == 0)
            continue;
        semel_fault fault = {0};
        semel_err e = semel_import_line(l->s, sm_buf_view(&line), count, &fault);
        if (e == SEMEL_OK)
            continue;
        cli_progress_end(&progress);
        code = cli_fail(cli_code(e), "%s:%" PRIu64 ": %s: %s", name, *at, semel_err_name(e),
                        fault.text[0] != '\0' ? fault.text : semel_err_text(e));
    }
    cli_progress_end(&progress);
    if (code == CLI_OK && line.err != SM_OK)
        code = cli_fail(cli_code(line.err), "%s:%" PRIu64 ": the line is longer than %zu bytes",
                        name, *at + 1, SM_LINE_MAX);
    else if (code == CLI_OK && ferror(from))
        code = cli_fail(CLI_IO, "%s: %s", name, strerror(errno));
    sm_buf_fini(&line);
    return code;
}

/* What it reads from. */
typedef struct source {
    const char *path;
    FILE *file;
} source;

static int open_source(const cli_command *self, cli_ledger *l, const char *path, void *own)
{
    (void)self, (void)l;
    source *from = own;
    *from = (source){path, strcmp(path, "-") == 0 ? stdin : fopen(path, "re")};
    return from->file != NULL ? CLI_OK : cli_fail(CLI_IO, "%s: %s", path, strerror(errno));
}

static int import(cli_ledger *l, void *own)
{
    const source *from = own;
    semel_imported count = {.size = sizeof count};
    uint64_t at = 0;
    int code = import_lines(l, from->file, cli_input_name(from->path), &at, &count);
    if (l->o.json)
        sm_buf_printf(&l->out,
                      "{\"lines\":%" PRIu64 ",\"added\":%" PRIu64 ",\"kept\":%" PRIu64 "}\n",
                      count.lines, count.added, count.kept);
    else
        sm_buf_printf(&l->out, "%" PRIu64 " effect%s added; %" PRIu64 " here already %s kept.\n",
                      count.added, s(count.added), count.kept, count.kept == 1 ? "was" : "were");
    if (code != CLI_OK)
        fprintf(stderr, "What came before it is imported. Importing again is harmless.\n");
    if (from->file != stdin)
        fclose(from->file);
    return code;
}

/* ---- purge -----------------------------------------------------------------------------------*/

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    cli_progress_show(context, done, total);
    return true;
}

static int purge(cli_ledger *l, void *own)
{
    (void)own;
    cli_progress progress = cli_progress_start("Purging");
    semel_fault fault = {0};
    uint64_t done = 0;
    semel_err e = semel_purge(l->s, show_progress, &progress, &done, &fault);
    cli_progress_end(&progress);
    if (e != SEMEL_OK)
        return cli_ledger_fault(e, &fault);
    if (l->o.json)
        sm_buf_printf(&l->out, "{\"removed\":%" PRIu64 "}\n", done);
    else
        sm_buf_printf(&l->out, "%" PRIu64 " record%s, payload%s and event%s removed.\n", done,
                      s(done), s(done), s(done));
    return CLI_OK;
}

/* ---- stats -----------------------------------------------------------------------------------*/

static void put_stats_json(sm_buf *b, const semel_health *h)
{
    sm_buf_byte(b, '{');
    sm_put_text(b, "ledger", sm_str_from(h->where));
    sm_put_number(b, "effects", h->records);
    sm_put_open(b, "states", '{');
    for (int st = SEMEL_S_NONE + 1; st < SEMEL_S_COUNT; st++) {
        if (!semel_state_settled((semel_state)st))
            sm_put_number(b, semel_state_name((semel_state)st), h->in_state[st]);
    }
    sm_buf_byte(b, '}');
    sm_put_number(b, "bytes", h->bytes);
    sm_put_number(b, "last_seq", h->last_seq);
    sm_put_number(b, "seals", h->seal_index);
    sm_put_number(b, "seal_seq", h->seal_seq);
    sm_put_stamp(b, "seal_at", h->seal_at);
    sm_put_stamp(b, "oldest_event_at", h->oldest_event_at);
    sm_put_number(b, "schema", h->schema);
    sm_buf_text(b, "}\n");
}

static void put_stats(sm_buf *b, const semel_health *h)
{
    char text[CLI_WHEN_TEXT];
    int64_t now = sm_clock_ms();
    char size[CLI_SIZE_TEXT];
    cli_size_text(h->bytes, size);
    cli_row(b, "ledger", sm_str_from(h->where));
    cli_row(b, "size", sm_str_from(size));
    cli_rowf(b, "effects", "about %" PRIu64, h->records);
    for (int st = SEMEL_S_NONE + 1; st < SEMEL_S_COUNT; st++) {
        if (!semel_state_settled((semel_state)st) && h->in_state[st] > 0)
            cli_rowf(b, semel_state_name((semel_state)st), "%" PRIu64, h->in_state[st]);
    }
    cli_rowf(b, "events", "up to %" PRIu64, h->last_seq);
    if (h->oldest_event_at != 0) {
        cli_age_text(h->oldest_event_at, now, text);
        cli_row(b, "oldest event", sm_str_from(text));
    }
    if (h->seal_index > 0) {
        cli_age_text(h->seal_at, now, text);
        cli_rowf(b, "seals", "%" PRIu64 ", the newest %s, up to event %" PRIu64, h->seal_index,
                 text, h->seal_seq);
    } else {
        cli_row(b, "seals", SM_STR("none yet"));
    }
    cli_rowf(b, "schema", "%" PRIu64, h->schema);
}

static int print_stats(cli_ledger *l, void *own)
{
    (void)own;
    semel_stats stats = {.size = sizeof stats};
    semel_fault fault = {0};
    semel_err e = semel_stats_get(l->s, false, &stats, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_fault(e, &fault);
    (l->o.json ? put_stats_json : put_stats)(&l->out, &stats.store);
    return CLI_OK;
}

static const struct option export_table[] = {
    CLI_TEXT("scope", export_options, scope), CLI_LEDGER_OPTIONS, {0}};

const cli_command cli_export = {
    .name = "export",
    .summary = "every effect as one line of JSON",
    .help = "  semel export > ledger.jsonl\n"
            "  semel export --scope order-123 | semel import - --ledger sqlite:copy.db\n\n"
            "Usage: semel export [--scope S]\n\n"
            "  --scope S                only effects of this scope\n" CLI_LEDGER_HELP
            "\nThe lines hold arguments and outcomes: keep them as safe as the ledger.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(export_options){0},
            .table = export_table,
            .hint = "the lines go to stdout",
            .work = export_all,
        },
};

const cli_command cli_import = {
    .name = "import",
    .summary = "take in what semel export wrote",
    .help =
        "  semel import ledger.jsonl --ledger sqlite:copy.db\n\n"
        "Usage: semel import FILE\n\n"
        "FILE may be - for stdin. An effect that is settled here already wins. One that was\n"
        "running when it was exported comes back in doubt: nobody knows how it ended.\n\n" CLI_LEDGER_HELP
            CLI_JSON_HELP,
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(source){0},
            .argument = "one FILE is needed, or - for stdin",
            .required = true,
            .check = open_source,
            .flags = CLI_MAKES,
            .work = import,
        },
};

const cli_command cli_purge = {
    .name = "purge",
    .summary = "remove what its windows no longer ask to keep",
    .help =
        "  semel purge\n\n"
        "Usage: semel purge\n\n" CLI_LEDGER_HELP CLI_JSON_HELP
        "\nOutcomes whose result_window is over, effects whose window is, and events older than\n"
        "90 days. What is not settled stays for ever. Expiry never waits for this: it is\n"
        "housekeeping.\n",
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = purge},
};

const cli_command cli_stats = {
    .name = "stats",
    .summary = "how large a ledger is, and what is open in it",
    .help = "  semel stats --json | jq .states.in_doubt\n\n"
            "Usage: semel stats\n\n" CLI_LEDGER_HELP CLI_JSON_HELP,
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = print_stats},
};
