/* semel begin, commit and renew: doing something once from a shell, step by step. */
#include <stdlib.h>

#include "base/limits.h"
#include "cli/call.h"
#include "cli/ledger.h"
#include "core/budget.h"
#include "core/handle.h"

/* A claim in a file, with its line feed. */
#define CLAIM_MAX 4096u

/* Of a larger value only so much is read. */
#define VALUE_MAX (64u << 20)

/* ---- begin -----------------------------------------------------------------------------------*/

typedef struct begin_options {
    cli_given_call call;
    const char *after;
    int64_t wait_ms;
    bool undoes;
} begin_options;

static int take_wait(const cli_command *self, int c, void *own)
{
    (void)c;
    begin_options *o = own;
    if (!cli_duration(optarg, &o->wait_ms))
        return cli_usage(self, "--wait: \"%s\" is no duration; write 500ms, 30s or 5m", optarg);
    return CLI_OK;
}

static int check_begin(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    (void)argument;
    const begin_options *o = own;
    int code = cli_call_check(self, &o->call);
    if (code != CLI_OK)
        return code;
    sm_handle handle;
    if (o->after != NULL && !sm_handle_parse("ef_", sm_str_from(o->after), &handle))
        return cli_usage(self, "--after names the effect to repeat, ef_...; \"%s\" is no handle",
                         o->after);
    const char *url = cli_ledger_url(l->o.url);
    if (url != NULL && strncmp(url, "memory:", 7) == 0)
        return cli_usage(self,
                         "a ledger in memory is gone when this command ends, and nobody could "
                         "commit its claim; use sqlite:PATH");
    return o->call.args != NULL ? CLI_OK
                                : cli_read(o->call.args_file, SM_JSON_BYTES_MAX, &l->read[0]);
}

static int begin(cli_ledger *l, void *own)
{
    const begin_options *o = own;
    semel_call call = {
        .size = sizeof call,
        .scope = cli_call_scope(o->call.scope),
        .step = cli_opt(o->call.step),
        .tool = cli_opt(o->call.tool),
        .args = o->call.args != NULL   ? sm_str_from(o->call.args)
                : l->read[0].p == NULL ? SM_STR("") /* an absent text would mean {} */
                                       : sm_buf_view(&l->read[0]),
        .key = cli_opt(o->call.key),
        .after = cli_opt(o->after),
        .wait_ms = o->wait_ms,
        .flags = SEMEL_CALL_DETACHED | (o->undoes ? (uint64_t)SEMEL_CALL_UNDOES : 0),
    };
    int code = cli_answer(l, semel_begin(l->s, &call, l->a), NULL);
    if (l->a->code == SEMEL_C_BAD_ARGUMENTS && o->call.args == NULL && call.args.n == 0)
        fprintf(stderr,
                "  The arguments were read from %s, which is empty; --args '{}' says "
                "that there are none.\n",
                cli_input_name(o->call.args_file));
    return code;
}

/* ---- claims ----------------------------------------------------------------------------------*/

typedef struct claim {
    const char *path; /* of its file; NULL: none */
    sm_str text;
} claim;

/* The claim from the command line, a file, or the environment. */
static int find_claim(const cli_command *self, cli_ledger *l, const char *given, claim *c)
{
    const char *path = c->path;
    sm_str *out = &c->text;
    if (given != NULL && path != NULL)
        return cli_usage(self, "CLAIM and --claim-file exclude each other");
    if (given == NULL && path == NULL)
        given = getenv("SEMEL_CLAIM");
    if (path != NULL) {
        int code = cli_read(path, CLAIM_MAX, &l->read[0]);
        if (code != CLI_OK)
            return code;
        *out = sm_buf_view(&l->read[0]);
        while (out->n > 0 && (out->p[out->n - 1] == '\n' || out->p[out->n - 1] == '\r'))
            out->n--;
    } else {
        *out = cli_opt(given);
    }
    if (out->n == 0)
        return cli_usage(self, "the claim is missing: give it as an argument, with --claim-file, "
                               "or in SEMEL_CLAIM");
    /* It is a secret: what is wrong with it is told without repeating it. */
    if (out->n < 3 || memcmp(out->p, "cl_", 3) != 0)
        return cli_usage(self, "a claim starts with cl_; semel begin prints it");
    return CLI_OK;
}

/* ---- commit ----------------------------------------------------------------------------------*/

typedef struct commit_options {
    claim claim;
    const char *value, *value_file;
    int kinds; /* how many were given */
    semel_outcome outcome;
} commit_options;

static bool read_applied(const char *text, semel_applied *out)
{
    static const struct {
        const char *text;
        semel_applied applied;
    } words[] = {
        {"yes", SEMEL_APPLIED_YES}, {"no", SEMEL_APPLIED_NO}, {"unknown", SEMEL_APPLIED_UNKNOWN}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(text, words[i].text) == 0) {
            *out = words[i].applied;
            return true;
        }
    }
    return false;
}

static int check_outcome(const cli_command *self, const commit_options *o)
{
    const semel_outcome *outcome = &o->outcome;
    if (o->kinds > 1)
        return cli_usage(self, "--success, --failure and --partial exclude each other");
    if (outcome->applied != SEMEL_APPLIED_DEFAULT && outcome->kind != SEMEL_FAILURE)
        return cli_usage(self, "--applied says what a --failure did; it means nothing without it");
    if (outcome->corrective_action.p != NULL && outcome->kind != SEMEL_PARTIAL)
        return cli_usage(self, "--corrective-action says what a --partial outcome left to do; it "
                               "means nothing without it");
    if (o->value != NULL && o->value_file != NULL)
        return cli_usage(self, "--value and --value-file exclude each other");
    return CLI_OK;
}

static int take_commit_option(const cli_command *self, int c, void *own)
{
    commit_options *o = own;
    uint64_t status;
    int64_t cost;
    switch (c) {
    case 'S':
    case 'F':
    case 'P':
        o->outcome.kind = c == 'S' ? SEMEL_SUCCESS : c == 'F' ? SEMEL_FAILURE : SEMEL_PARTIAL;
        o->kinds++;
        break;
    case 'a':
        if (!read_applied(optarg, &o->outcome.applied))
            return cli_usage(self, "--applied: write yes, no or unknown, not \"%s\"", optarg);
        break;
    case 'c': o->outcome.corrective_action = sm_str_from(optarg); break;
    case 'm':
        o->outcome.cost = sm_str_from(optarg);
        if (!sm_cost_read(o->outcome.cost, &cost))
            return cli_usage(self,
                             "--cost: \"%s\" is not an amount such as 0.05, with at most 9 "
                             "decimal places",
                             optarg);
        break;
    case 't':
        if (strcmp(optarg, "0") == 0)
            o->outcome.tokens = SEMEL_TOKENS_NONE;
        else if (!cli_number(optarg, SM_TOKENS_MAX, &o->outcome.tokens))
            return cli_usage(self, "--tokens: \"%s\" is not a whole number up to %lld", optarg,
                             (long long)SM_TOKENS_MAX);
        break;
    default:
        if (!cli_number(optarg, 999, &status))
            return cli_usage(self, "--status: \"%s\" is no number from 1 to 999", optarg);
        o->outcome.status = (int)status;
        break;
    }
    return CLI_OK;
}

static int check_commit(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    commit_options *o = own;
    int code = check_outcome(self, o);
    if (code == CLI_OK)
        code = find_claim(self, l, argument, &o->claim);
    o->outcome.value = cli_opt(o->value);
    if (code != CLI_OK || o->value_file == NULL)
        return code;
    /* What happened has happened, and is recorded as done however much the tool returned. The
     * ledger keeps no bytes of what is too large. */
    bool more = false;
    code = cli_read_start(o->value_file, VALUE_MAX, &l->read[1], &more);
    if (more)
        fprintf(stderr,
                "semel: %s is too large to keep: it is recorded as done, without its bytes; "
                "only its first %u MiB were read\n",
                cli_input_name(o->value_file), VALUE_MAX >> 20);
    o->outcome.value = l->read[1].p == NULL ? SM_STR("") : sm_buf_view(&l->read[1]);
    return code;
}

static int commit(cli_ledger *l, void *own)
{
    const commit_options *o = own;
    semel_err e = semel_commit(l->s, o->claim.text, &o->outcome, l->a);
    char result[40];
    snprintf(result, sizeof result, "%.*s", SM_FMT(l->a->result));
    return cli_answer(l, e, l->a->result.p == NULL ? "committed" : result);
}

/* ---- renew -----------------------------------------------------------------------------------*/

typedef struct renew_options {
    claim claim;
    int64_t lease_ms;
} renew_options;

static int take_lease(const cli_command *self, int c, void *own)
{
    (void)c;
    renew_options *o = own;
    if (!cli_duration(optarg, &o->lease_ms) || o->lease_ms == 0)
        return cli_usage(self, "--lease: \"%s\" is no duration; write 30s or 5m", optarg);
    return CLI_OK;
}

static int check_renew(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    renew_options *o = own;
    return find_claim(self, l, argument, &o->claim);
}

static int renew(cli_ledger *l, void *own)
{
    const renew_options *o = own;
    return cli_answer(l, semel_renew(l->s, o->claim.text, o->lease_ms, l->a), "renewed");
}

/* ---- the commands ----------------------------------------------------------------------------*/

static const struct option begin_table[] = {
    CLI_CALL_OPTIONS(begin_options, call),
    CLI_TEXT("after", begin_options, after),
    CLI_FLAG("undoes", begin_options, undoes),
    {"wait", required_argument, NULL, 'w'},
    {"contract", required_argument, NULL, CLI_O_CONTRACT},
    CLI_LEDGER_OPTIONS,
    {0},
};

static const struct option commit_table[] = {
    {"success", no_argument, NULL, 'S'},
    {"failure", no_argument, NULL, 'F'},
    {"partial", no_argument, NULL, 'P'},
    {"applied", required_argument, NULL, 'a'},
    CLI_TEXT("value", commit_options, value),
    CLI_TEXT("value-file", commit_options, value_file),
    {"corrective-action", required_argument, NULL, 'c'},
    {"status", required_argument, NULL, 's'},
    {"cost", required_argument, NULL, 'm'},
    {"tokens", required_argument, NULL, 't'},
    CLI_TEXT("claim-file", commit_options, claim.path),
    CLI_LEDGER_OPTIONS,
    {0},
};

static const struct option renew_table[] = {
    {"lease", required_argument, NULL, 'l'},
    CLI_TEXT("claim-file", renew_options, claim.path),
    CLI_LEDGER_OPTIONS,
    {0},
};

#define CLAIM_HELP                                                                                  \
    "\nA claim is a secret: whoever has it can commit, and ps(1) shows arguments to everybody on\n" \
    "the machine. Where that matters, use SEMEL_CLAIM or --claim-file FILE (- is stdin).\n"

const cli_command cli_begin = {
    .name = "begin",
    .summary = "ask whether to run something now, and claim it",
    .help =
        "  semel begin --tool send_email --scope order-123 --args '{\"to\": \"ann@example.com\"}'\n"
        "  answer=$(semel begin --tool backup --key 2026-03-01 --args '{}' --json) &&\n"
        "      claim=$(jq -r '.claim // empty' <<<\"$answer\")      # else $? says why\n\n"
        "Usage: semel begin --tool T [--scope S] [--step N] [--key K]\n"
        "                   [--args JSON | --args-file FILE] [--after ef_...] [--wait DURATION]\n"
        "                   [--undoes]\n\n"
        "  --tool T                 the tool that is about to be called\n"
        "  --scope S                within which equal calls are one action (default: default)\n"
        "  --step N                 the step of the run, if the caller numbers them\n"
        "  --key K                  the caller's own key; it then names the action alone\n"
        "  --args JSON              the arguments; or --args-file FILE, or stdin\n"
        "  --after ef_...           repeat on purpose what this effect did\n"
        "  --undoes                 the call undoes the effect that the key names, undo:ef_..., as\n"
        "                           semel scope undo shows it: it runs although the run is stopped\n"
        "  --wait DURATION          wait so long for somebody else's attempt, or for an approval\n"
        "                           (default: 0); the ledger's own writes may take up to 5s more\n" CLI_CONTRACT_HELP
            CLI_LEDGER_HELP CLI_JSON_HELP
        "\nA tool that no contract lists is remembered for ten minutes: then an equal call runs again.\n"
        "A contract says how long: window: 30d, or forever.\n"
        "\nThe first line is the verdict:\n\n"
        "  execute        run it now, then: semel commit CLAIM. Without a commit before the lease\n"
        "                 ends, the effect is in doubt; semel renew CLAIM extends the lease\n"
        "  replay         it was done before; the recorded outcome follows\n"
        "  refused CODE   do not run it; stderr says why and what to do\n\n"
        "Exit code: 0 for execute and replay, 75 try again later (somebody else is at it, an\n"
        "approval is missing, or the tool fails), 76 in doubt, 65 conflict or bad arguments, 77\n"
        "denied, a loop, a budget or a stop, 73 done already, 66 the result is no longer kept, 69\n"
        "the ledger is not available: do not run it. A run that repeats itself is warned on stderr\n"
        "first.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(begin_options){.wait_ms = 0},
            .table = begin_table,
            .option = take_wait,
            .hint = CLI_CALL_HINT,
            .check = check_begin,
            .flags = CLI_MAKES | CLI_CONTRACT,
            .work = begin,
        },
};

const cli_command cli_commit = {
    .name = "commit",
    .summary = "record how a claimed attempt ended",
    .help =
        "  semel commit \"$claim\" --value '{\"id\": \"ch_1\"}'\n"
        "  curl -s ... | semel commit --claim-file claim.txt --value-file -\n"
        "  semel commit \"$claim\" --failure --applied no --value 'card declined'\n\n"
        "Usage: semel commit CLAIM [--success | --failure | --partial] [--applied yes|no|unknown]\n"
        "                    [--value TEXT | --value-file FILE] [--corrective-action TEXT]\n"
        "                    [--status N] [--cost AMOUNT] [--tokens N] [--claim-file FILE]\n\n"
        "  --success                it was done (the default)\n"
        "  --failure                it failed; --applied says whether it changed the world all the\n"
        "                           same. Without it the tool's class decides: a write that says\n"
        "                           \"I failed\" did nothing, of what cannot be undone nobody knows\n"
        "  --partial                some of it was done; --corrective-action says what is left\n"
        "  --value TEXT             what the tool returned, kept byte for byte and replayed to\n"
        "                           everybody who asks again; --value-file - reads stdin\n"
        "  --status N               the HTTP or exit status that came with it\n"
        "  --cost AMOUNT            what it really cost, such as 0.05, and how many tokens it took:\n"
        "  --tokens N               budgets count this instead of what the contract declares\n"
        "  --claim-file FILE        the claim is in FILE (- is stdin)\n" CLI_LEDGER_HELP
            CLI_JSON_HELP
        "\nThe first line says what became of it: committed; late_settled if the effect was in "
        "doubt\nand this settled it; late_evidence if it was decided already and this is kept "
        "beside it;\nput_back if the ledger had lost the attempt. Committing twice is harmless.\n" CLAIM_HELP,
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(commit_options){.outcome = {.size = sizeof(semel_outcome)}},
            .table = commit_table,
            .option = take_commit_option,
            .argument = "one CLAIM; what the tool returned goes into --value",
            .check = check_commit,
            .work = commit,
        },
};

const cli_command cli_renew = {
    .name = "renew",
    .summary = "keep a claim while the work takes longer than its lease",
    .help =
        "  semel renew \"$claim\" --lease 10m\n\n"
        "Usage: semel renew CLAIM [--lease DURATION] [--claim-file FILE]\n\n"
        "  --lease DURATION         from now on (default: what the contract says)\n"
        "  --claim-file FILE        the claim is in FILE (- is stdin)\n" CLI_LEDGER_HELP
            CLI_JSON_HELP
        "\nExit code 77 (BAD_CLAIM): somebody else may decide by now. Stop, and commit what was\n"
        "done: it is kept as evidence.\n" CLAIM_HELP,
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(renew_options){.lease_ms = 0},
            .table = renew_table,
            .option = take_lease,
            .argument = "one CLAIM",
            .check = check_renew,
            .work = renew,
        },
};
