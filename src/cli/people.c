/* semel approve, deny, cancel, resolve and forget: what people decide about effects. */
#include "cli/ledger.h"
#include "cli/undo/undo.h"

/* What all of these take: one name, and a reason or evidence. */
typedef struct options {
    semel_decides what;
    const char *done;    /* what is said of it */
    const char *prefix;  /* of the name */
    const char *missing; /* what is said if there is no reason; NULL: there need not be one */
    const char *name, *reason, *applied, *version;
    bool not_applied, abandon, compensate;
    uint64_t if_version; /* 0: whatever it is now */
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
    options *o = own;
    o->name = name;
    int code = check_name(self, o);
    if (code != CLI_OK)
        return code;
    if (self == &cli_resolve &&
        (o->applied != NULL) + o->not_applied + o->abandon + o->compensate != 1)
        return cli_usage(self, "say what happened: one of --applied VALUE, --not-applied, "
                               "--abandon, --compensate");
    if ((l->command != NULL || l->o.contract != NULL) && !o->compensate)
        return cli_usage(self,
                         "--contract and a command behind \"--\" go with resolve --compensate");
    if (o->compensate)
        l->flags |= CLI_CONTRACT | CLI_STAYS;
    if (o->version != NULL && !cli_number(o->version, UINT64_MAX, &o->if_version))
        return cli_usage(self, "--if-version takes a number, as semel show prints it, not \"%s\"",
                         o->version);
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
static void advise(const options *o, semel_answer *a, char room[200])
{
    const char *text = NULL;
    if (a->verdict != SEMEL_REFUSED)
        return;
    if (a->code == SEMEL_C_ILLEGAL_STATE && (o->if_version == 0 || o->if_version == a->version))
        text = fitting(a->state);
    if (a->code == SEMEL_C_KEY_CONFLICT && a->request.p != NULL) {
        snprintf(room, 200, "%.*s is in its place: look at it before you approve it.",
                 SM_FMT(a->request));
        text = room;
    }
    if (text != NULL)
        a->corrective_action = sm_str_from(text);
}

static int decide(cli_ledger *l, void *own)
{
    const options *o = own;
    char room[200];
    if (o->compensate)
        return cli_undo_resolve(l, o->name, o->reason, o->if_version);
    semel_outcome outcome = {.size = sizeof outcome, .value = cli_opt(o->applied)};
    bool known = o->applied != NULL && *o->applied != '\0';
    semel_decision d = {
        .size = sizeof d,
        .what = o->what,
        .name = sm_str_from(o->name),
        .reason = cli_opt(o->reason),
        .how = o->not_applied ? SEMEL_RESOLVE_NOT_APPLIED
               : o->abandon   ? SEMEL_RESOLVE_ABANDON
                              : SEMEL_RESOLVE_APPLIED,
        .outcome = known ? &outcome : NULL,
        .if_version = o->if_version,
    };
    semel_err e = semel_decide(l->s, &d, l->a);
    advise(o, l->a, room);
    bool more = o->what == SEMEL_DECIDE_APPROVE && l->a->state == SEMEL_S_PENDING;
    return cli_answer(l, e,
                      more ? "approved by you; still pending: more approvals are needed" : o->done);
}

#define IF_VERSION CLI_TEXT("if-version", options, version)

static const struct option plain_table[] = {IF_VERSION, CLI_LEDGER_OPTIONS, {0}};

static const struct option reason_table[] = {
    CLI_TEXT("reason", options, reason), IF_VERSION, CLI_LEDGER_OPTIONS, {0}};

static const struct option resolve_table[] = {
    CLI_TEXT("applied", options, applied),
    CLI_FLAG("not-applied", options, not_applied),
    CLI_FLAG("abandon", options, abandon),
    CLI_FLAG("compensate", options, compensate),
    {"contract", required_argument, NULL, CLI_O_CONTRACT},
    CLI_TEXT("evidence", options, reason),
    IF_VERSION,
    CLI_LEDGER_OPTIONS,
    {0},
};

/* How they use a ledger: by this table of options, with a name of this kind. */
#define DECIDES(options_, kind, ...)                                                               \
    &(const cli_ledger_use)                                                                        \
    {                                                                                              \
        .own = &(options){.prefix = kind, __VA_ARGS__}, .table = options_,                         \
        .argument = "one name is needed, " kind "...", .required = true, .command = true,          \
        .check = check, .work = decide                                                             \
    }

#define WHO_HELP "\nWho you are for the audit trail is the operating system's user.\n"
#define COMMON_HELP                                                                                \
    "  --if-version V           only if the effect still has this version, as semel show prints\n" \
    "                           it; if it has changed since, nothing happens\n" CLI_LEDGER_HELP    \
        CLI_JSON_HELP

const cli_command cli_approve = {
    .name = "approve",
    .summary = "let a call that waits for approval run",
    .help = "  semel list --state pending_approval\n"
            "  semel approve ap_...\n\n"
            "Usage: semel approve ap_... [--if-version V]\n\n" COMMON_HELP
            "\nAn approval belongs to exactly the arguments of its request, is used once, and\n"
            "expires. semel show ap_... prints what is asked for.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(plain_table, "ap_", .what = SEMEL_DECIDE_APPROVE, .done = "approved"),
};

const cli_command cli_deny = {
    .name = "deny",
    .summary = "refuse a call that waits for approval",
    .help =
        "  semel deny ap_... --reason 'not before the audit'\n\n"
        "Usage: semel deny ap_... --reason TEXT [--if-version V]\n\n"
        "  --reason TEXT            why; whoever asked is told it\n" COMMON_HELP
        "\nA denial belongs to the action: equal calls are refused until its window ends.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(reason_table, "ap_", .what = SEMEL_DECIDE_DENY, .done = "denied",
                      .missing = "--reason is missing; whoever asked is told it"),
};

const cli_command cli_cancel = {
    .name = "cancel",
    .summary = "take back a call that has not started",
    .help = "  semel cancel ef_... --reason 'the order was withdrawn'\n\n"
            "Usage: semel cancel ef_... [--reason TEXT] [--if-version V]\n\n"
            "  --reason TEXT            why, for the audit trail\n" COMMON_HELP
            "\nOnly what waits for approval, or is approved and not started. What runs cannot be\n"
            "canceled: nobody could know how far it came.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(reason_table, "ef_", .what = SEMEL_DECIDE_CANCEL, .done = "canceled"),
};

const cli_command cli_resolve = {
    .name = "resolve",
    .summary = "say what became of an effect that is in doubt",
    .help =
        "  semel list --state in_doubt\n"
        "  semel resolve ef_... --not-applied --evidence 'no charge in the dashboard'\n"
        "  semel resolve ef_... --applied '{\"id\": \"ch_1\"}' --evidence 'charge ch_1 is there'\n"
        "  semel resolve ef_... --compensate --evidence 'better twice refunded than not'\n\n"
        "Usage: semel resolve ef_... (--applied VALUE | --not-applied | --abandon)\n"
        "                     --evidence TEXT [--if-version V]\n"
        "       semel resolve ef_... --compensate --evidence TEXT [--contract FILE]\n"
        "                     [-- MCP SERVER COMMAND...]\n\n"
        "  --applied VALUE          it happened, and this is what it returned ('' if that is\n"
        "                           not known): equal calls are answered with it\n"
        "  --not-applied            it did not happen: the next equal call runs\n"
        "  --abandon                leave it: it counts as failed and never runs again\n"
        "  --compensate             undo it, as its contract says (see semel scope undo), then\n"
        "                           leave it. If the undo does not succeed, it stays in doubt\n"
        "  --evidence TEXT          how you know; it stays in the audit trail\n" CLI_CONTRACT_HELP
            COMMON_HELP WHO_HELP,
    .run = cli_ledger_run,
    .ledger =
        DECIDES(resolve_table, "ef_", .what = SEMEL_DECIDE_RESOLVE, .done = "resolved",
                .missing = "--evidence is missing: how do you know? It stays in the audit trail"),
};

const cli_command cli_forget = {
    .name = "forget",
    .summary = "forget a settled effect, so that the next equal call runs",
    .help =
        "  semel forget ef_... --reason 'the customer asked for a second copy'\n\n"
        "Usage: semel forget ef_... [--reason TEXT] [--if-version V]\n\n"
        "  --reason TEXT            why, for the audit trail\n" COMMON_HELP
        "\nOnly what is settled; what is in doubt must be resolved first. Its history stays.\n" WHO_HELP,
    .run = cli_ledger_run,
    .ledger = DECIDES(reason_table, "ef_", .what = SEMEL_DECIDE_FORGET, .done = "forgotten"),
};
