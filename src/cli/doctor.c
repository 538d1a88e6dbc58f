/* semel doctor: is the ledger sound, and is it used as it should be? */
#include <inttypes.h>

#include "base/limits.h"
#include "base/trust.h"
#include "cli/ledger.h"
#include "cli/progress.h"
#include "cli/verify.h"
#include "json/write.h"

#define NEWEST    10000u /* effects that are looked at */
#define OF_A_KIND 20u    /* symptoms that the ledger tells of */

typedef struct finder {
    cli_progress progress;
    bool json;
    uint64_t found;
    sm_buf list;
} finder;

static void put_json(sm_buf *b, const semel_symptom *y)
{
    sm_put_item(b);
    sm_buf_byte(b, '{');
    sm_put_text(b, "kind", sm_str_from(y->kind));
    sm_put_text(b, "effect", y->effect);
    sm_put_text(b, "other", y->other);
    sm_put_text(b, "tool", y->tool);
    sm_put_text(b, "pointer", y->pointer);
    sm_put_text(b, "actor", y->actor);
    if (y->count > 0)
        sm_put_number(b, "count", y->count);
    sm_put_text(b, "text", y->text);
    sm_buf_byte(b, '}');
}

static void put_text(sm_buf *b, const semel_symptom *y)
{
    sm_buf_byte(b, '\n');
    cli_styled(b, CLI_YELLOW, sm_str_from(y->kind));
    sm_buf_text(b, "  ");
    cli_put(b, y->tool);
    sm_buf_text(b, "  ");
    cli_put(b, y->effect);
    if (y->count > 1)
        sm_buf_printf(b, " and %" PRIu64 " more", y->count - 1);
    if (y->other.p != NULL) {
        sm_buf_text(b, " and ");
        cli_put(b, y->other);
    }
    if (y->pointer.p != NULL) {
        sm_buf_text(b, "  differ at ");
        cli_put(b, y->pointer.n == 0 ? SM_STR("(all)") : y->pointer);
    }
    sm_buf_byte(b, '\n');
    cli_put_block(b, 2, y->text, SM_ARENA_MAX);
}

static bool take_symptom(void *context, const semel_symptom *symptom)
{
    finder *f = context;
    (f->json ? put_json : put_text)(&f->list, symptom);
    f->found++;
    return f->list.err == SM_OK;
}

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    finder *f = context;
    cli_progress_show(&f->progress, done, total);
    return true;
}

static void put_findings(sm_buf *b, const semel_health *h, const cli_verification *v,
                         const finder *f)
{
    if (f->json) {
        sm_buf_byte(b, '{');
        sm_put_bool(b, "healthy", f->found == 0 && v->counts.flaws == 0);
        sm_put_text(b, "ledger", sm_str_from(h->where));
        sm_put_number(b, "effects", h->records);
        sm_put_number(b, "bytes", h->bytes);
        sm_put_name(b, "audit");
        cli_put_verified(b, v, true);
        sm_put_open(b, "symptoms", '[');
        sm_buf_str(b, sm_buf_view(&f->list));
        sm_buf_text(b, "]}\n");
        return;
    }
    cli_row(b, "ledger", sm_str_from(h->where));
    char size[CLI_SIZE_TEXT];
    cli_size_text(h->bytes, size);
    cli_rowf(b, "records", "sound: about %" PRIu64 " effect%s in %s", h->records,
             h->records == 1 ? "" : "s", size);
    cli_row(b, "audit trail", v->counts.flaws == 0 ? SM_STR("sound") : SM_STR("ALTERED"));
    cli_put_verified(b, v, false);
    sm_buf_byte(b, '\n');
    if (f->found == 0)
        cli_row(b, "use", SM_STR("no symptoms"));
    else
        cli_rowf(b, "use", "%" PRIu64 " symptom%s%s", f->found, f->found == 1 ? "" : "s",
                 f->found < OF_A_KIND ? "" : "; at most 20 of a kind are listed");
    sm_buf_str(b, sm_buf_view(&f->list));
}

/* Whether somebody could put other directories in the place of those that lead to a file. */
static void warn_of_place(const semel_health *h)
{
    sm_fault fault = {0};
    bool whole = h->where[0] == '/' && strlen(h->where) < sizeof h->where - 1;
    if (whole && sm_trust_parents(h->where, SEMEL_E_INVALID, &fault) != SM_OK)
        cli_fail(CLI_OK, "warning: %s", fault.text);
}

static int examine(cli_ledger *l, void *own)
{
    (void)own;
    semel_stats stats = {.size = sizeof stats};
    semel_fault fault = {0};
    semel_err e = semel_stats_get(l->s, true, &stats, &fault);
    if (e != SEMEL_OK) {
        int code = cli_ledger_unavailable(l, e, &fault);
        return e == SEMEL_E_CORRUPT ? CLI_DATA : code; /* that is what was to be found out */
    }
    warn_of_place(&stats.store);
    cli_verification v;
    int code = cli_verify(l, &v);
    if (code != CLI_OK)
        return code;
    finder f = {.progress = cli_progress_start("Looking for symptoms"), .json = l->o.json};
    sm_buf_init(&f.list, CLI_OUTPUT_MAX);
    e = semel_doctor(l->s, NEWEST, take_symptom, show_progress, &f, &fault);
    cli_progress_end(&f.progress);
    if (e == SEMEL_OK && f.list.err != SM_OK)
        e = f.list.err;
    if (e != SEMEL_OK)
        code = cli_ledger_fault(e, &fault);
    else
        put_findings(&l->out, &stats.store, &v, &f);
    if (code == CLI_OK && v.counts.flaws > 0)
        code = CLI_DATA;
    else if (code == CLI_OK && f.found > 0)
        code = CLI_DIFFERENT;
    sm_buf_fini(&f.list);
    cli_verified_fini(&v);
    return code;
}

const cli_command cli_doctor = {
    .name = "doctor",
    .summary = "is the ledger sound, and used as it should be?",
    .help =
        "  semel doctor\n\n"
        "Usage: semel doctor\n\n" CLI_LEDGER_HELP CLI_JSON_HELP
        "\nChecks the records and the whole audit trail, then looks over the newest 10,000 effects\n"
        "for symptoms: the same arguments under different keys within seconds, calls that are\n"
        "alike but for one field, effects that are long in doubt, windows shorter than the\n"
        "retries that were seen, replays of unlisted tools that may have been stale reads, claims\n"
        "that were never committed, and by whom. At most 20 of a kind are listed. Warns on stderr\n"
        "of a directory above the ledger that another user can replace.\n\n"
        "`semel doctor mcp` is another command: it checks an MCP server and prints how to set\n"
        "clients up.\n\n"
        "Exit code: 0 healthy, 1 symptoms were found, 65 the ledger is damaged or its trail was\n"
        "altered, 69 it cannot be opened.\n",
    .run = cli_ledger_run,
    .ledger = &(const cli_ledger_use){.work = examine},
};
