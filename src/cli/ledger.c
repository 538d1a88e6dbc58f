/* Opening ledgers and printing answers: one place for each rule. */
#include "cli/ledger.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/stamp.h"
#include "json/write.h"

#define VALUE_SHOWN 4000u /* bytes of an outcome that people get to see */

const char *cli_ledger_take(char *given)
{
    static char url[4097];
    size_t n = strlen(given), scheme = strcspn(given, ":");
    if (n >= sizeof url || scheme == n || strncmp(given, "sqlite:", 7) == 0)
        return given;
    memcpy(url, given, n + 1);
    memset(given + scheme + 1, '*', n - scheme - 1);
    return url;
}

/* Takes an option that is one of those of all ledgers; false for any other. */
static bool take_option(cli_ledger_options *o, int c)
{
    switch (c) {
    case CLI_O_LEDGER: o->url = cli_ledger_take(optarg); return true;
    case CLI_O_CONTRACT: o->contract = optarg; return true;
    case CLI_O_SEAL_KEY: o->seal_key = optarg; return true;
    case CLI_O_JSON: o->json = true; return true;
    default: return false;
    }
}

static const char *or_environment(const char *given, const char *name)
{
    const char *value = given != NULL ? given : getenv(name);
    return value != NULL && *value != '\0' ? value : NULL;
}

const char *cli_ledger_url(const char *given)
{
    return or_environment(given, "SEMEL_LEDGER");
}

int cli_ledger_nameless(void)
{
    return cli_fail(CLI_USAGE, "--ledger is empty: name a ledger, or leave the option out");
}

static const char *fault_text(semel_err e, const semel_fault *fault)
{
    return fault->code != SEMEL_OK && fault->text[0] != '\0' ? fault->text : semel_err_text(e);
}

int cli_ledger_fault(semel_err e, const semel_fault *fault)
{
    /* Who asks needs to know that nothing may run, not in which way the ledger fails. */
    bool gone = e == SEMEL_E_UNAVAILABLE || e == SEMEL_E_CORRUPT;
    int code = gone ? CLI_UNAVAILABLE : cli_code(e);
    const char *text = fault_text(e, fault);
    int first = (int)strcspn(text, "\n");
    cli_fail(code, "%s: %.*s",
             gone ? semel_code_name(SEMEL_C_LEDGER_UNAVAILABLE) : semel_err_name(e), first, text);
    for (text += first; *text != '\0'; text += strcspn(text, "\n")) {
        text++; /* a line of what a check found */
        fputs("  ", stderr);
        cli_print(stderr, (sm_str){text, strcspn(text, "\n")});
        fputc('\n', stderr);
    }
    return code;
}

/* What machines get instead of an answer when there is no ledger to give one. */
static void print_unavailable(const cli_ledger *l, bool retriable, sm_str message)
{
    if (!l->o.json)
        return;
    sm_buf b;
    sm_buf_init(&b, CLI_OUTPUT_MAX);
    sm_buf_byte(&b, '{');
    sm_put_text(&b, "verdict", SM_STR("refused"));
    sm_put_text(&b, "code", sm_str_from(semel_code_name(SEMEL_C_LEDGER_UNAVAILABLE)));
    sm_put_bool(&b, "retriable", retriable);
    sm_put_text(&b, "message", message);
    sm_buf_text(&b, "}\n");
    cli_write(&b);
    sm_buf_fini(&b);
}

int cli_ledger_unavailable(const cli_ledger *l, semel_err e, const semel_fault *fault)
{
    bool retriable = e == SEMEL_E_UNAVAILABLE && fault->code != SEMEL_E_BAD_ARGUMENTS;
    print_unavailable(l, retriable, sm_str_from(fault_text(e, fault)));
    return cli_ledger_fault(e, fault);
}

int cli_ledger_open(cli_ledger *l, unsigned flags)
{
    const cli_ledger_options *o = &l->o;
    if (o->url != NULL && *o->url == '\0')
        return cli_ledger_nameless();
    const char *contract =
        (flags & CLI_CONTRACT) != 0 ? or_environment(o->contract, "SEMEL_CONTRACT") : NULL;
    if (contract != NULL) {
        /* Read once, for it may be a pipe; every mistake is told, not only the first. */
        int code = cli_read_contract_text(contract, &l->contract);
        if (code != CLI_OK) {
            print_unavailable(l, false, SM_STR("the contract cannot be used; stderr says why"));
            return code;
        }
    }
    semel_options options = {
        .size = sizeof options,
        .url = o->url,
        .contract = contract == NULL ? (sm_str){0} : sm_buf_view(&l->contract),
        .seal_key_path = or_environment(o->seal_key, "SEMEL_SEAL_KEY_FILE"),
        .must_exist = (flags & CLI_MAKES) == 0,
        .one_shot = (flags & CLI_STAYS) == 0,
    };
    semel_fault fault = {0};
    semel_err e = semel_open(&options, &l->s, &fault);
    if (e != SEMEL_OK)
        return cli_ledger_unavailable(l, e, &fault);
    l->a = semel_answer_new();
    return l->a != NULL ? CLI_OK : cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
}

void cli_ledger_close(cli_ledger *l)
{
    semel_answer_free(l->a);
    semel_close(l->s);
    sm_buf_fini(&l->contract);
    sm_buf_fini(&l->read[0]);
    sm_buf_fini(&l->read[1]);
    sm_buf_fini(&l->out);
    *l = (cli_ledger){0};
}

/* Cuts off what stands behind "--"; returns how many words are left. */
static int cut_command(int argc, char **argv, cli_ledger *l)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            l->command = argv + i + 1;
            argv[i] = NULL;
            return i;
        }
    }
    return argc;
}

static int read_command_line(const cli_command *self, int argc, char **argv, cli_ledger *l)
{
    static const struct option plain[] = {CLI_LEDGER_OPTIONS, {0}};
    const cli_ledger_use *use = self->ledger;
    if (use->command)
        argc = cut_command(argc, argv, l);
    if (l->command != NULL && *l->command == NULL)
        return cli_usage(self, "the command behind \"--\" is missing");
    const struct option *table = use->table != NULL ? use->table : plain;
    const char *letters = use->letters != NULL ? use->letters : "";
    int c, code = CLI_OK;
    while (code == CLI_OK &&
           (c = cli_option_short(self, argc, argv, letters, table, use->own)) != -1) {
        if (c == 'h' || c == '?')
            return c == 'h' ? 'h' : CLI_USAGE;
        if (!take_option(&l->o, c))
            code = use->option(self, c, use->own);
    }
    if (code != CLI_OK)
        return code;
    int given = argc - optind;
    const char *argument = given > 0 ? argv[optind] : NULL;
    if (use->argument == NULL && given > 0)
        return cli_usage(self, "unexpected argument \"%s\"%s%s", argument,
                         use->hint != NULL ? "; " : "", use->hint != NULL ? use->hint : "");
    if (given > 1 || (use->required && given < 1))
        return cli_usage(self, "%s", use->argument);
    return use->check != NULL ? use->check(self, l, argument, use->own) : CLI_OK;
}

int cli_ledger_run(const cli_command *self, int argc, char **argv)
{
    cli_ledger l = {0};
    int code = read_command_line(self, argc, argv, &l);
    if (code == 'h')
        return CLI_OK;
    sm_buf_init(&l.out, CLI_OUTPUT_MAX);
    if (code == CLI_OK)
        code = cli_ledger_open(&l, self->ledger->flags | l.flags);
    if (code == CLI_OK) {
        code = self->ledger->work(&l, self->ledger->own);
        int wrote = cli_write(&l.out);
        code = wrote != CLI_OK ? wrote : code;
    }
    cli_ledger_close(&l);
    return code;
}

void cli_size_text(uint64_t bytes, char out[CLI_SIZE_TEXT])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)bytes;
    size_t u = 0;
    for (; n >= 1024 && u + 1 < sizeof units / sizeof units[0]; u++)
        n /= 1024;
    snprintf(out, CLI_SIZE_TEXT, u == 0 ? "%.0f %s" : "%.1f %s", n, units[u]);
}

cli_style cli_state_style(semel_state s)
{
    switch (s) {
    case SEMEL_S_SUCCEEDED: return CLI_GREEN;
    case SEMEL_S_IN_DOUBT:
    case SEMEL_S_FAILED:
    case SEMEL_S_DENIED: return CLI_RED;
    case SEMEL_S_PENDING:
    case SEMEL_S_PARTIAL:
    case SEMEL_S_RUNNING: return CLI_YELLOW;
    default: return CLI_PLAIN;
    }
}

bool cli_is_handle(const char *text, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(text, prefix, n) == 0 && text[n] != '\0';
}

bool cli_duration(const char *text, int64_t *ms)
{
    if (strcmp(text, "0") == 0) {
        *ms = 0;
        return true;
    }
    if (!sm_duration_parse(sm_str_from(text), ms))
        return false;
    if (*ms > SM_DURATION_MAX_MS)
        *ms = SM_DURATION_MAX_MS;
    return true;
}

int cli_since(const cli_command *self, const char *text, int64_t *since)
{
    int64_t ms, now = sm_clock_ms();
    if (cli_duration(text, &ms))
        *since = ms < now ? now - ms : 1;
    else if (!sm_stamp_parse(sm_str_from(text), since))
        return cli_usage(self,
                         "--since: write a duration such as 2h, or a time such as "
                         "2026-03-01T12:00:00Z, not \"%s\"",
                         text);
    return CLI_OK;
}

bool cli_number(const char *text, uint64_t most, uint64_t *out)
{
    uint64_t n = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++) {
        if (n > UINT64_MAX / 10 - 1)
            return false;
        n = n * 10 + (uint64_t)(*p - '0');
    }
    *out = n;
    return p != text && *p == '\0' && n >= 1 && n <= most;
}

void cli_put_outcome(sm_buf *out, const semel_outcome *outcome)
{
    static const char *const kinds[] = {"success", "failure", "partial"};
    static const char *const applied[] = {"", ", not applied", ", applied",
                                          ", nobody knows whether it applied"};
    char status[40] = "";
    if (outcome->status != 0)
        snprintf(status, sizeof status, ", status %d", outcome->status);
    char size[80] = "";
    if (!outcome->kept && outcome->bytes > 0)
        snprintf(size, sizeof size, ", %" PRIu64 " byte%s not kept", outcome->bytes,
                 outcome->bytes == 1 ? " that is" : "s that are");
    else if (outcome->bytes > 0)
        snprintf(size, sizeof size, ", %" PRIu64 " byte%s of %s", outcome->bytes,
                 outcome->bytes == 1 ? "" : "s", outcome->is_json ? "JSON" : "text");
    cli_rowf(out, "outcome", "%s%s%s%s", kinds[outcome->kind],
             outcome->kind == SEMEL_FAILURE ? applied[outcome->applied] : "", status, size);
    if (outcome->headers.p != NULL)
        cli_row(out, "headers", outcome->headers);
    if (outcome->corrective_action.p != NULL)
        cli_row(out, "left to do", outcome->corrective_action);
    if (outcome->value.p != NULL && outcome->value.n > 0)
        cli_put_block(out, 2, outcome->value, VALUE_SHOWN);
}

static void put_rows(sm_buf *b, const semel_answer *a)
{
    char lease[SM_DURATION_TEXT];
    cli_row(b, "effect", a->effect);
    if (a->state != SEMEL_S_NONE)
        cli_row(b, "state", sm_str_from(semel_state_name(a->state)));
    if (a->generation > 1)
        cli_rowf(b, "generation", "%" PRIu64, a->generation);
    if (a->attempt > 0)
        cli_rowf(b, "attempt", "%" PRIu64, a->attempt);
    cli_row(b, "claim", a->claim);
    if (a->lease_ms > 0) {
        sm_duration_text(a->lease_ms, lease);
        cli_row(b, "lease", sm_str_from(lease));
    }
    cli_row(b, "idempotency key", a->idempotency_key);
    cli_row(b, "request", a->request);
    cli_row(b, "drift", a->drift);
    cli_row(b, "repeat of", a->repeat_of);
    cli_row(b, "blocked by", a->blocked_by);
    cli_row(b, "observed", a->observed);
    if (a->verdict != SEMEL_REFUSED && a->code != SEMEL_C_NONE)
        cli_row(b, "code", sm_str_from(semel_code_name(a->code)));
    if (a->verdict != SEMEL_REFUSED) {
        cli_row(b, "note", a->message);
        if (!a->has_outcome || a->outcome.corrective_action.p == NULL) /* it is said there */
            cli_row(b, "to do", a->corrective_action);
    }
    if (a->has_outcome)
        cli_put_outcome(b, &a->outcome);
}

static void put_verdict(sm_buf *b, const semel_answer *a)
{
    switch (a->verdict) {
    case SEMEL_EXECUTE: cli_styled(b, CLI_GREEN, SM_STR("execute")); break;
    case SEMEL_REPLAY: cli_styled(b, CLI_GREEN, SM_STR("replay")); break;
    case SEMEL_DONE: cli_styled(b, CLI_GREEN, SM_STR("done")); break;
    case SEMEL_REFUSED:
        cli_styled(b, CLI_RED, SM_STR("refused"));
        sm_buf_printf(b, " %s", semel_code_name(a->code));
        break;
    }
    sm_buf_byte(b, '\n');
}

/* "semel: CODE: message" and what to do about it. */
static int explain_refusal(semel_err e, const semel_answer *a)
{
    const char *name = a->code != SEMEL_C_NONE ? semel_code_name(a->code) : semel_err_name(e);
    sm_str message = a->message.p != NULL ? a->message : sm_str_from(semel_err_text(e));
    fprintf(stderr, "semel: %s%s%s: ", cli_color(stderr, CLI_BOLD), name,
            cli_color(stderr, CLI_PLAIN));
    cli_print(stderr, message);
    fputc('\n', stderr);
    if (a->corrective_action.p != NULL && a->corrective_action.n > 0) {
        fputs("  ", stderr);
        cli_print(stderr, a->corrective_action);
        fputc('\n', stderr);
    }
    return a->code != SEMEL_C_NONE ? semel_code_exit(a->code) : cli_code(e);
}

void cli_warn(const semel_answer *a)
{
    if (a->warning.n == 0)
        return;
    fprintf(stderr, "semel: %swarning%s: ", cli_color(stderr, CLI_YELLOW),
            cli_color(stderr, CLI_PLAIN));
    cli_print(stderr, a->warning);
    fputc('\n', stderr);
}

int cli_answer(cli_ledger *l, semel_err e, const char *done)
{
    semel_answer *a = l->a;
    bool refused = a->verdict == SEMEL_REFUSED || (e != SEMEL_OK && a->code == SEMEL_C_NONE);
    sm_buf b;
    sm_buf_init(&b, CLI_OUTPUT_MAX);
    if (l->o.json) {
        semel_str text = {0};
        semel_err failed = semel_answer_json(a, &text);
        sm_buf_str(&b, text);
        sm_buf_byte(&b, '\n');
        if (failed != SEMEL_OK)
            b.err = failed;
    } else if (done == NULL) {
        put_verdict(&b, a);
        put_rows(&b, a);
    } else if (!refused) {
        cli_styled(&b, CLI_GREEN, sm_str_from(done));
        sm_buf_byte(&b, '\n');
        put_rows(&b, a);
    }
    int code = cli_write(&b);
    sm_buf_fini(&b);
    if (refused)
        code = explain_refusal(e, a);
    cli_warn(a);
    return code;
}
