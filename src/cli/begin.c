/* semel begin, commit and renew: doing something once from a shell, step by step. */
#include <stdlib.h>

#include "base/limits.h"
#include "cli/ledger.h"
#include "core/handle.h"

/* A claim in a file, with its line feed. */
#define CLAIM_MAX 4096u

/* Of a larger value only so much is read. */
#define VALUE_MAX (64u << 20)

/* ---- begin -----------------------------------------------------------------------------------*/

typedef struct begin_options {
    cli_ledger_options ledger;
    const char *tool, *scope, *step, *key, *args, *args_file, *after;
    int64_t wait_ms;
} begin_options;

static int read_begin(const cli_command *self, int argc, char **argv, begin_options *o)
{
    static const struct option table[] = {
        {"tool", required_argument, NULL, 't'},
        {"scope", required_argument, NULL, 's'},
        {"step", required_argument, NULL, 'n'},
        {"key", required_argument, NULL, 'k'},
        {"args", required_argument, NULL, 'a'},
        {"args-file", required_argument, NULL, 'f'},
        {"after", required_argument, NULL, 'r'},
        {"wait", required_argument, NULL, 'w'},
        CLI_CONTRACT_OPTION,
        CLI_LEDGER_OPTIONS,
        {0},
    };
    int c;
    while ((c = cli_option(self, argc, argv, table)) != -1) {
        if (cli_ledger_option(&o->ledger, c))
            continue;
        switch (c) {
        case 't': o->tool = optarg; break;
        case 's': o->scope = optarg; break;
        case 'n': o->step = optarg; break;
        case 'k': o->key = optarg; break;
        case 'a': o->args = optarg; break;
        case 'f': o->args_file = optarg; break;
        case 'r': o->after = optarg; break;
        case 'w':
            if (!cli_duration(optarg, &o->wait_ms))
                return cli_usage(self, "--wait: \"%s\" is no duration; write 500ms, 30s or 5m",
                                 optarg);
            break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    if (optind < argc)
        return cli_usage(self, "unexpected argument \"%s\"; arguments go into --args",
                         argv[optind]);
    if (o->tool == NULL)
        return cli_usage(self, "--tool is missing");
    if (o->args != NULL && o->args_file != NULL)
        return cli_usage(self, "--args and --args-file exclude each other");
    sm_handle handle;
    if (o->after != NULL && !sm_handle_parse("ef_", sm_str_from(o->after), &handle))
        return cli_usage(self, "--after names the effect to repeat, ef_...; \"%s\" is no handle",
                         o->after);
    const char *url = cli_ledger_url(o->ledger.url);
    if (url != NULL && strncmp(url, "memory:", 7) == 0)
        return cli_usage(self,
                         "a ledger in memory is gone when this command ends, and nobody could "
                         "commit its claim; use sqlite:PATH");
    return CLI_OK;
}

static int run_begin(const cli_command *self, int argc, char **argv)
{
    begin_options o = {0};
    int code = read_begin(self, argc, argv, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    sm_buf args = {0};
    cli_ledger l = {0};
    if (o.args == NULL)
        code = cli_read(o.args_file, SM_JSON_BYTES_MAX, &args);
    if (code == CLI_OK)
        code = cli_ledger_open(&o.ledger, CLI_CONTRACT, &l);
    if (code == CLI_OK) {
        semel_call call = {
            .size = sizeof call,
            .scope = o.scope == NULL ? SM_STR("default") : sm_str_from(o.scope),
            .step = cli_opt(o.step),
            .tool = cli_opt(o.tool),
            .args = o.args != NULL   ? sm_str_from(o.args)
                    : args.p == NULL ? SM_STR("") /* an absent text would mean {} */
                                     : sm_buf_view(&args),
            .key = cli_opt(o.key),
            .after = cli_opt(o.after),
            .wait_ms = o.wait_ms,
            .flags = SEMEL_CALL_DETACHED,
        };
        code = cli_answer(&o.ledger, &l, semel_begin(l.s, &call, l.a), NULL);
        if (l.a->code == SEMEL_C_BAD_ARGUMENTS && o.args == NULL && call.args.n == 0)
            fprintf(stderr,
                    "  The arguments were read from %s, which is empty; --args '{}' says "
                    "that there are none.\n",
                    cli_input_name(o.args_file));
    }
    cli_ledger_close(&l);
    sm_buf_fini(&args);
    return code;
}

/* ---- claims ----------------------------------------------------------------------------------*/

/* The claim from the command line, a file, or the environment. `file` keeps its text. */
static int find_claim(const cli_command *self, const char *given, const char *path, sm_buf *file,
                      sm_str *out)
{
    if (given != NULL && path != NULL)
        return cli_usage(self, "CLAIM and --claim-file exclude each other");
    if (given == NULL && path == NULL)
        given = getenv("SEMEL_CLAIM");
    if (path != NULL) {
        int code = cli_read(path, CLAIM_MAX, file);
        if (code != CLI_OK)
            return code;
        *out = sm_buf_view(file);
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
    cli_ledger_options ledger;
    const char *claim_file, *value, *value_file;
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

static int check_commit(const cli_command *self, const commit_options *o)
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

static int read_commit(const cli_command *self, int argc, char **argv, commit_options *o)
{
    static const struct option table[] = {
        {"success", no_argument, NULL, 'S'},
        {"failure", no_argument, NULL, 'F'},
        {"partial", no_argument, NULL, 'P'},
        {"applied", required_argument, NULL, 'a'},
        {"value", required_argument, NULL, 'v'},
        {"value-file", required_argument, NULL, 'f'},
        {"corrective-action", required_argument, NULL, 'c'},
        {"status", required_argument, NULL, 's'},
        {"claim-file", required_argument, NULL, 'l'},
        CLI_LEDGER_OPTIONS,
        {0},
    };
    int c;
    uint64_t status;
    while ((c = cli_option(self, argc, argv, table)) != -1) {
        if (cli_ledger_option(&o->ledger, c))
            continue;
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
        case 'v': o->value = optarg; break;
        case 'f': o->value_file = optarg; break;
        case 'c': o->outcome.corrective_action = sm_str_from(optarg); break;
        case 's':
            if (!cli_number(optarg, 999, &status))
                return cli_usage(self, "--status: \"%s\" is no number from 1 to 999", optarg);
            o->outcome.status = (int)status;
            break;
        case 'l': o->claim_file = optarg; break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    if (argc - optind > 1)
        return cli_usage(self, "one CLAIM; what the tool returned goes into --value");
    return check_commit(self, o);
}

static int run_commit(const cli_command *self, int argc, char **argv)
{
    commit_options o = {.outcome = {.size = sizeof(semel_outcome)}};
    int code = read_commit(self, argc, argv, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    sm_buf claim_text = {0}, value = {0};
    cli_ledger l = {0};
    sm_str claim = {0};
    code = find_claim(self, optind < argc ? argv[optind] : NULL, o.claim_file, &claim_text, &claim);
    if (code == CLI_OK && o.value_file != NULL) {
        /* What happened has happened, and is recorded as done however much the tool returned. The
         * ledger keeps no bytes of what is too large. */
        bool more = false;
        code = cli_read_start(o.value_file, VALUE_MAX, &value, &more);
        if (more)
            fprintf(stderr,
                    "semel: %s is too large to keep: it is recorded as done, without its bytes; "
                    "only its first %u MiB were read\n",
                    cli_input_name(o.value_file), VALUE_MAX >> 20);
        o.outcome.value = value.p == NULL ? SM_STR("") : sm_buf_view(&value);
    } else {
        o.outcome.value = cli_opt(o.value);
    }
    if (code == CLI_OK)
        code = cli_ledger_open(&o.ledger, CLI_MUST_EXIST, &l);
    if (code == CLI_OK) {
        semel_err e = semel_commit(l.s, claim, &o.outcome, l.a);
        char result[40];
        snprintf(result, sizeof result, "%.*s", SM_FMT(l.a->result));
        code = cli_answer(&o.ledger, &l, e, l.a->result.p == NULL ? "committed" : result);
    }
    cli_ledger_close(&l);
    sm_buf_fini(&value);
    sm_buf_fini(&claim_text);
    return code;
}

/* ---- renew -----------------------------------------------------------------------------------*/

static int run_renew(const cli_command *self, int argc, char **argv)
{
    static const struct option table[] = {
        {"lease", required_argument, NULL, 'l'},
        {"claim-file", required_argument, NULL, 'f'},
        CLI_LEDGER_OPTIONS,
        {0},
    };
    cli_ledger_options o = {0};
    const char *path = NULL;
    int64_t lease_ms = 0;
    int c;
    while ((c = cli_option(self, argc, argv, table)) != -1) {
        if (cli_ledger_option(&o, c))
            continue;
        switch (c) {
        case 'l':
            if (!cli_duration(optarg, &lease_ms) || lease_ms == 0)
                return cli_usage(self, "--lease: \"%s\" is no duration; write 30s or 5m", optarg);
            break;
        case 'f': path = optarg; break;
        default: return c == 'h' ? CLI_OK : CLI_USAGE;
        }
    }
    if (argc - optind > 1)
        return cli_usage(self, "one CLAIM");
    sm_buf text = {0};
    cli_ledger l = {0};
    sm_str claim = {0};
    int code = find_claim(self, optind < argc ? argv[optind] : NULL, path, &text, &claim);
    if (code == CLI_OK)
        code = cli_ledger_open(&o, CLI_MUST_EXIST, &l);
    if (code == CLI_OK)
        code = cli_answer(&o, &l, semel_renew(l.s, claim, lease_ms, l.a), "renewed");
    cli_ledger_close(&l);
    sm_buf_fini(&text);
    return code;
}

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
        "                   [--args JSON | --args-file FILE] [--after ef_...] [--wait DURATION]\n\n"
        "  --tool T                 the tool that is about to be called\n"
        "  --scope S                within which equal calls are one action (default: default)\n"
        "  --step N                 the step of the run, if the caller numbers them\n"
        "  --key K                  the caller's own key; it then names the action alone\n"
        "  --args JSON              the arguments; or --args-file FILE, or stdin\n"
        "  --after ef_...           repeat on purpose what this effect did\n"
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
        "Exit code: 0 for execute and replay, 75 try again later (somebody else is at it, or an\n"
        "approval is missing), 76 in doubt, 65 conflict or bad arguments, 77 denied, 73 done\n"
        "already, 66 the result is no longer kept, 69 the ledger is not available: do not run it.\n",
    .run = run_begin,
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
        "                    [--status N] [--claim-file FILE]\n\n"
        "  --success                it was done (the default)\n"
        "  --failure                it failed; --applied says whether it changed the world all the\n"
        "                           same. Without it the tool's class decides: a write that says\n"
        "                           \"I failed\" did nothing, of what cannot be undone nobody knows\n"
        "  --partial                some of it was done; --corrective-action says what is left\n"
        "  --value TEXT             what the tool returned, kept byte for byte and replayed to\n"
        "                           everybody who asks again; --value-file - reads stdin\n"
        "  --status N               the HTTP or exit status that came with it\n"
        "  --claim-file FILE        the claim is in FILE (- is stdin)\n" CLI_LEDGER_HELP
            CLI_JSON_HELP
        "\nThe first line says what became of it: committed; late_settled if the effect was in "
        "doubt\nand this settled it; late_evidence if it was decided already and this is kept "
        "beside it;\nput_back if the ledger had lost the attempt. Committing twice is harmless.\n" CLAIM_HELP,
    .run = run_commit,
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
    .run = run_renew,
};
