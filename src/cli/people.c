/* semel approve, deny, cancel, resolve and forget: what people decide about effects. */
#include "cli/ledger.h"

/* What all of these take: one name, and a reason or evidence. */
typedef struct options {
    semel_err (*decide)(cli_ledger *l, const struct options *o);
    const char *done;    /* what is said of it */
    const char *prefix;  /* of the name */
    const char *missing; /* what is said if there is no reason; NULL: there need not be one */
    const char *name, *reason, *applied;
    bool not_applied, abandon;
} options;

/* The one name must start with the prefix. */
static int check_name(const cli_command *self, const options *o)
{
    bool request = strcmp(o->prefix, "ap_") == 0;
    if (cli_is_handle(o->name, o->prefix))
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
    return cli_usage(self, "\"%s\" is not a handle, %s...", o->name, o->prefix);
}

static int check(const cli_command *self, cli_ledger *l, const char *name, void *own)
{
    (void)l;
    options *o = own;
    o->name = name;
    int code = check_name(self, o);
    if (code != CLI_OK)
        return code;
    if (self == &cli_resolve && (o->applied != NULL) + o->not_applied + o->abandon != 1)
        return cli_usage(self, "say what happened: one of --applied VALUE, --not-applied, "
                               "--abandon");
    if (o->missing != NULL && (o->reason == NULL || *o->reason == '\0'))
        return cli_usage(self, "%s", o->missing);
    return CLI_OK;
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

static semel_err approve(cli_ledger *l, const options *o)
{
    return semel_approve(l->s, sm_str_from(o->name), (sm_str){0}, l->a);
}

static int decide(cli_ledger *l, void *own)
{
    const options *o = own;
    char room[200];
    semel_err e = o->decide(l, o);
    advise(l->a, room);
    bool more = o->decide == approve && l->a->state == SEMEL_S_PENDING;
    return cli_answer(l, e,
                      more ? "approved by you; still pending: more approvals are needed" : o->done);
}

/* ---- the decisions ---------------------------------------------------------------------------*/

static semel_err deny(cli_ledger *l, const options *o)
{
    return semel_deny(l->s, sm_str_from(o->name), (sm_str){0}, cli_opt(o->reason), l->a);
}

static semel_err cancel(cli_ledger *l, const options *o)
{
    return semel_cancel(l->s, sm_str_from(o->name), (sm_str){0}, cli_opt(o->reason), l->a);
}

static semel_err forget(cli_ledger *l, const options *o)
{
    return semel_forget(l->s, sm_str_from(o->name), (sm_str){0}, cli_opt(o->reason), l->a);
}

static semel_err resolve(cli_ledger *l, const options *o)
{
    semel_resolution how = o->not_applied ? SEMEL_RESOLVE_NOT_APPLIED
                           : o->abandon   ? SEMEL_RESOLVE_ABANDON
                                          : SEMEL_RESOLVE_APPLIED;
    semel_outcome outcome = {.size = sizeof outcome, .value = cli_opt(o->applied)};
    bool known = o->applied != NULL && *o->applied != '\0';
    return semel_resolve(l->s, sm_str_from(o->name), how, known ? &outcome : NULL,
                         sm_str_from(o->reason), (sm_str){0}, l->a);
}

static const struct option reason_table[] = {
    CLI_TEXT("reason", options, reason), CLI_LEDGER_OPTIONS, {0}};

static const struct option resolve_table[] = {
    CLI_TEXT("applied", options, applied),
    CLI_FLAG("not-applied", options, not_applied),
    CLI_FLAG("abandon", options, abandon),
    CLI_TEXT("evidence", options, reason),
    CLI_LEDGER_OPTIONS,
    {0},
};

/* How they use a ledger: by this table of options (NULL: they have none of their own), with a name
 * of this kind. */
#define DECIDES(options_, kind, ...)                                                               \
    &(const cli_ledger_use)                                                                        \
    {                                                                                              \
        .own = &(options){.prefix = kind, __VA_ARGS__}, .table = options_,                         \
        .argument = "one name is needed, " kind "...", .required = true, .check = check,           \
        .work = decide                                                                             \
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
    .run = cli_ledger_run,
    .ledger = DECIDES(NULL, "ap_", .decide = approve, .done = "approved"),
};

const cli_command cli_deny = {
    .name = "deny",
    .summary = "refuse a call that waits for approval",
    .help =
        "  semel deny ap_... --reason 'not before the audit'\n\n"
        "Usage: semel deny ap_... --reason TEXT\n\n"
        "  --reason TEXT            why; whoever asked is told it\n" COMMON_HELP
        "\nA denial belongs to the action: equal calls are refused until its window ends.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(reason_table, "ap_", .decide = deny, .done = "denied",
                      .missing = "--reason is missing; whoever asked is told it"),
};

const cli_command cli_cancel = {
    .name = "cancel",
    .summary = "take back a call that has not started",
    .help = "  semel cancel ef_... --reason 'the order was withdrawn'\n\n"
            "Usage: semel cancel ef_... [--reason TEXT]\n\n"
            "  --reason TEXT            why, for the audit trail\n" COMMON_HELP
            "\nOnly what waits for approval, or is approved and not started. What runs cannot be\n"
            "canceled: nobody could know how far it came.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(reason_table, "ef_", .decide = cancel, .done = "canceled"),
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
    .run = cli_ledger_run,
    .ledger =
        DECIDES(resolve_table, "ef_", .decide = resolve, .done = "resolved",
                .missing = "--evidence is missing: how do you know? It stays in the audit trail"),
};

const cli_command cli_forget = {
    .name = "forget",
    .summary = "forget a settled effect, so that the next equal call runs",
    .help =
        "  semel forget ef_... --reason 'the customer asked for a second copy'\n\n"
        "Usage: semel forget ef_... [--reason TEXT]\n\n"
        "  --reason TEXT            why, for the audit trail\n" COMMON_HELP
        "\nOnly what is settled; what is in doubt must be resolved first. Its history stays.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(reason_table, "ef_", .decide = forget, .done = "forgotten"),
};
