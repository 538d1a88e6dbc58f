/* One pass over the trail, and the sentences about it. */
#include "cli/verify.h"

#include <inttypes.h>

#include "cli/progress.h"
#include "json/write.h"

#define FLAWS_MAX 10000u /* listed; all are counted */

typedef struct pass {
    cli_progress progress;
    cli_verification *v;
    bool json;
    uint64_t listed;
} pass;

static bool take_flaw(void *context, semel_str text)
{
    pass *p = context;
    sm_buf *b = &p->v->flaws;
    if (p->listed++ >= FLAWS_MAX)
        return true;
    if (p->json) {
        sm_put_item(b);
        sm_json_put_string(b, text);
    } else {
        cli_put(b, text);
        sm_buf_byte(b, '\n');
    }
    return b->err == SM_OK;
}

static bool show_progress(void *context, uint64_t done, uint64_t total)
{
    pass *p = context;
    cli_progress_show(&p->progress, done, total);
    return true;
}

int cli_verify(cli_ledger *l, cli_verification *v)
{
    *v = (cli_verification){.counts.size = sizeof v->counts};
    sm_buf_init(&v->flaws, CLI_OUTPUT_MAX);
    pass p = {.progress = cli_progress_start("Verifying"), .v = v, .json = l->o.json};
    semel_fault fault = {0};
    semel_err e = semel_verify(l->s, take_flaw, show_progress, &p, &v->counts, &fault);
    cli_progress_end(&p.progress);
    if (e == SEMEL_OK && v->flaws.err == SM_OK)
        return CLI_OK;
    int code = e != SEMEL_OK ? cli_ledger_fault(e, &fault)
                             : cli_fail(cli_code(v->flaws.err), "%s", semel_err_text(v->flaws.err));
    cli_verified_fini(v);
    return code;
}

void cli_verified_fini(cli_verification *v)
{
    sm_buf_fini(&v->flaws);
}

static const char *s(uint64_t n)
{
    return n == 1 ? "" : "s";
}

void cli_put_verified(sm_buf *out, const cli_verification *v, bool json)
{
    const semel_verified *n = &v->counts;
    if (json) {
        sm_buf_byte(out, '{');
        sm_put_bool(out, "clean", n->flaws == 0);
        sm_put_number(out, "events", n->events);
        sm_put_number(out, "effects", n->effects);
        sm_put_number(out, "seals", n->seals);
        sm_put_number(out, "unsealed", n->unsealed);
        sm_put_number(out, "unkeyed", n->unkeyed);
        sm_put_open(out, "flaws", '[');
        sm_buf_str(out, sm_buf_view(&v->flaws));
        sm_buf_byte(out, ']');
        sm_put_number(out, "flaw_count", n->flaws);
        sm_buf_byte(out, '}');
        return;
    }
    sm_buf_str(out, sm_buf_view(&v->flaws));
    sm_buf_printf(out,
                  "%" PRIu64 " event%s of %" PRIu64 " effect%s, %" PRIu64 " seal%s: ", n->events,
                  s(n->events), n->effects, s(n->effects), n->seals, s(n->seals));
    if (n->flaws == 0 && n->events == 0) {
        sm_buf_text(out,
                    "there is nothing to verify. A ledger that was emptied looks like a new one.");
    } else if (n->flaws == 0) {
        cli_styled(out, CLI_GREEN, SM_STR("nothing was altered."));
    } else {
        char text[64];
        snprintf(text, sizeof text, "%" PRIu64 " flaw%s.", n->flaws, s(n->flaws));
        cli_styled(out, CLI_RED, sm_str_from(text));
    }
    if (n->unsealed > 0)
        sm_buf_printf(out,
                      "\n%" PRIu64 " event%s after the last seal: checked by chain only. "
                      "semel audit seal seals %s.",
                      n->unsealed, s(n->unsealed), n->unsealed == 1 ? "it" : "them");
    if (n->unkeyed > 0)
        sm_buf_printf(out,
                      "\n%" PRIu64 " seal%s without this key: whoever can write the ledger "
                      "could have made %s.",
                      n->unkeyed, s(n->unkeyed), n->unkeyed == 1 ? "it" : "them");
}
