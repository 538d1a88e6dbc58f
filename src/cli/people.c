/* semel approve, deny, cancel, resolve and forget: what people decide about effects. */
#include "base/limits.h"
#include "cli/ledger.h"

/* What all of these take: one name, and a reason or evidence. */
typedef struct options {
    cli_ledger_options ledger;
    const char *name, *reason, *applied;
    bool resolved[3]; /* by semel_resolution */
} options;

/* Reads the command line by a table of options in which 'r' is the reason; the one name must start
 * with the prefix. */
static int read_options(const cli_command *self, int argc, char **argv, const struct option *table,
                        const char *prefix, options *o)
{
    int c;
    while ((c = cli_option(self, argc, argv, table)) != -1) {
        if (cli_ledger_option(&o->ledger, c))
            continue;
        switch (c) {
        case 'r': o->reason = optarg; break;
        case 'a':
            o->applied = optarg;
            o->resolved[SEMEL_RESOLVE_APPLIED] = true;
            break;
        case 'n': o->resolved[SEMEL_RESOLVE_NOT_APPLIED] = true; break;
        case 'g': o->resolved[SEMEL_RESOLVE_ABANDON] = true; break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    bool request = strcmp(prefix, "ap_") == 0;
    if (argc - optind != 1)
        return cli_usage(self, "one name is needed, %s...", prefix);
    o->name = argv[optind];
    if (cli_is_handle(o->name, prefix))
        return CLI_OK;
    if (request && cli_is_handle(o->name, "ef_"))
        return cli_usage(self,
                         "%s is an effect; approvals name the request, ap_..., which is bound to "
                         "its arguments. semel list --state pending_approval shows requests, and "
                         "semel show %s this effect's",
                         o->name, o->name);
    if (!request && cli_is_handle(o->name, "ap_"))
        return cli_usage(self,
                         "%s is a request; this takes an effect, ef_.... semel show %s has it",
                         o->name, o->name);
    return cli_usage(self, "\"%s\" is not a handle, %s...", o->name, prefix);
}

/* A decision, given the ledger and what was read. */
typedef semel_err decide_fn(cli_ledger *l, const options *o);

static semel_err approve(cli_ledger *l, const options *o)
{
    return semel_approve(l->s, sm_str_from(o->name), (sm_str){0}, l->a);
}

/* What fits the state that an effect is in. */
static const char *fitting(semel_state state)
{
    switch (state) {
    case SEMEL_S_PENDING: return "It waits for approval: approve, deny or cancel fit.";
    case SEMEL_S_READY:
        return "It may run and has not started: the next equal call runs it, or "
               "cancel it.";
    case SEMEL_S_RUNNING: return "It runs: wait for it to end, or for the end of its lease.";
    case SEMEL_S_IN_DOUBT: return "It is in doubt: semel resolve fits.";
    case SEMEL_S_SUCCEEDED:
    case SEMEL_S_FAILED:
    case SEMEL_S_PARTIAL:
    case SEMEL_S_DENIED: return "It is settled: semel forget lets the next equal call run.";
    case SEMEL_S_EXPIRED:
    case SEMEL_S_CANCELED: return "It is over: the next equal call starts anew.";
    default: return NULL;
    }
}

/* The ledger's advice is for callers; whoever decides needs another one. `room` keeps its text. */
static void advise(semel_answer *a, char room[200])
{
    const char *text = NULL;
    if (a->verdict != SEMEL_REFUSED)
        return;
    if (a->code == SEMEL_C_ILLEGAL_STATE)
        text = fitting(a->state);
    if (a->code == SEMEL_C_KEY_CONFLICT && a->request.p != NULL) {
        snprintf(room, 200, "%.*s is in its place: look at it before you approve it.",
                 SM_FMT(a->request));
        text = room;
    }
    if (text != NULL)
        a->corrective_action = sm_str_from(text);
}

static int decide(const options *o, decide_fn *fn, const char *done)
{
    char room[200];
    cli_ledger l;
    int code = cli_ledger_open(&o->ledger, CLI_MUST_EXIST, &l);
    if (code == CLI_OK) {
        semel_err e = fn(&l, o);
        advise(l.a, room);
        if (fn == approve && l.a->state == SEMEL_S_PENDING)
            done = "approved by you; still pending: more approvals are needed";
        code = cli_answer(&o->ledger, &l, e, done);
    }
    cli_ledger_close(&l);
    return code;
}

static const struct option plain_table[] = {CLI_LEDGER_OPTIONS, {0}};
static const struct option reason_table[] = {
    {"reason", required_argument, NULL, 'r'}, CLI_LEDGER_OPTIONS, {0}};

/* ---- approve, deny ---------------------------------------------------------------------------*/

static int run_approve(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    int code = read_options(self, argc, argv, plain_table, "ap_", &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    return decide(&o, approve, "approved");
}

static semel_err deny(cli_ledger *l, const options *o)
{
    return semel_deny(l->s, sm_str_from(o->name), (sm_str){0}, cli_opt(o->reason), l->a);
}

static int run_deny(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    int code = read_options(self, argc, argv, reason_table, "ap_", &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    if (o.reason == NULL || *o.reason == '\0')
        return cli_usage(self, "--reason is missing; whoever asked is told it");
    return decide(&o, deny, "denied");
}

/* ---- cancel, forget --------------------------------------------------------------------------*/

static semel_err cancel(cli_ledger *l, const options *o)
{
    return semel_cancel(l->s, sm_str_from(o->name), (sm_str){0}, cli_opt(o->reason), l->a);
}

static int run_cancel(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    int code = read_options(self, argc, argv, reason_table, "ef_", &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    return decide(&o, cancel, "canceled");
}

static semel_err forget(cli_ledger *l, const options *o)
{
    return semel_forget(l->s, sm_str_from(o->name), (sm_str){0}, cli_opt(o->reason), l->a);
}

static int run_forget(const cli_command *self, int argc, char **argv)
{
    options o = {0};
    int code = read_options(self, argc, argv, reason_table, "ef_", &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    return decide(&o, forget, "forgotten");
}

/* ---- resolve ---------------------------------------------------------------------------------*/

static semel_err resolve(cli_ledger *l, const options *o)
{
    semel_resolution how = SEMEL_RESOLVE_APPLIED;
    while (!o->resolved[how])
        how++;
    semel_outcome outcome = {.size = sizeof outcome, .value = cli_opt(o->applied)};
    bool known = o->applied != NULL && *o->applied != '\0';
    return semel_resolve(l->s, sm_str_from(o->name), how, known ? &outcome : NULL,
                         sm_str_from(o->reason), (sm_str){0}, l->a);
}

static int run_resolve(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {
        {"applied", required_argument, NULL, 'a'},
        {"not-applied", no_argument, NULL, 'n'},
        {"abandon", no_argument, NULL, 'g'},
        {"evidence", required_argument, NULL, 'r'},
        CLI_LEDGER_OPTIONS,
        {0},
    };
    options o = {0};
    int code = read_options(self, argc, argv, table, "ef_", &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    if (o.resolved[0] + o.resolved[1] + o.resolved[2] != 1)
        return cli_usage(self, "say what happened: one of --applied VALUE, --not-applied, "
                               "--abandon");
    if (o.reason == NULL || *o.reason == '\0')
        return cli_usage(self, "--evidence is missing: how do you know? It stays in the audit "
                               "trail");
    return decide(&o, resolve, "resolved");
}

#define WHO_HELP    "\nWho you are for the audit trail is the operating system's user.\n"
#define COMMON_HELP CLI_LEDGER_HELP CLI_JSON_HELP

const cli_command cli_approve = {
    .name = "approve",
    .summary = "let a call that waits for approval run",
    .help = "  semel list --state pending_approval\n"
            "  semel approve ap_...\n\n"
            "Usage: semel approve ap_...\n\n" COMMON_HELP
            "\nAn approval belongs to exactly the arguments of its request, is used once, and\n"
            "expires. semel show ap_... prints what is asked for.\n" WHO_HELP,
    .run = run_approve,
};

const cli_command cli_deny = {
    .name = "deny",
    .summary = "refuse a call that waits for approval",
    .help =
        "  semel deny ap_... --reason 'not before the audit'\n\n"
        "Usage: semel deny ap_... --reason TEXT\n\n"
        "  --reason TEXT            why; whoever asked is told it\n" COMMON_HELP
        "\nA denial belongs to the action: equal calls are refused until its window ends.\n" WHO_HELP,
    .run = run_deny,
};

const cli_command cli_cancel = {
    .name = "cancel",
    .summary = "take back a call that has not started",
    .help = "  semel cancel ef_... --reason 'the order was withdrawn'\n\n"
            "Usage: semel cancel ef_... [--reason TEXT]\n\n"
            "  --reason TEXT            why, for the audit trail\n" COMMON_HELP
            "\nOnly what waits for approval, or is approved and not started. What runs cannot be\n"
            "canceled: nobody could know how far it came.\n" WHO_HELP,
    .run = run_cancel,
};

const cli_command cli_resolve = {
    .name = "resolve",
    .summary = "say what became of an effect that is in doubt",
    .help =
        "  semel list --state in_doubt\n"
        "  semel resolve ef_... --not-applied --evidence 'no charge in the dashboard'\n"
        "  semel resolve ef_... --applied '{\"id\": \"ch_1\"}' --evidence 'charge ch_1 is there'\n\n"
        "Usage: semel resolve ef_... (--applied VALUE | --not-applied | --abandon)\n"
        "                     --evidence TEXT\n\n"
        "  --applied VALUE          it happened, and this is what it returned ('' if that is\n"
        "                           not known): equal calls are answered with it\n"
        "  --not-applied            it did not happen: the next equal call runs\n"
        "  --abandon                leave it: it counts as failed and never runs again\n"
        "  --evidence TEXT          how you know; it stays in the audit trail\n" COMMON_HELP
            WHO_HELP,
    .run = run_resolve,
};

const cli_command cli_forget = {
    .name = "forget",
    .summary = "forget a settled effect, so that the next equal call runs",
    .help =
        "  semel forget ef_... --reason 'the customer asked for a second copy'\n\n"
        "Usage: semel forget ef_... [--reason TEXT]\n\n"
        "  --reason TEXT            why, for the audit trail\n" COMMON_HELP
        "\nOnly what is settled; what is in doubt must be resolved first. Its history stays.\n" WHO_HELP,
    .run = run_forget,
};
