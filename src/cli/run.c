/*
 * semel run: a command that runs once for a key. Everyone who asks again gets its output and its
 * exit code.
 *
 * Waiting for somebody else's run, or for an approval, is done in short slices, so that a signal
 * ends it at once; no slice ends between a claim and the command it is for. A signal that comes
 * between those is seen before the command is started, and nothing runs.
 *
 * A command that could not be started did nothing. Its record is forgotten, so that a mistyped name
 * does not use up the key: by whoever made it, or else by the next one to meet it.
 */
#include "cli/run.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/duration.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "cli/ledger.h"
#include "json/write.h"

typedef cli_run_options options;
typedef cli_run_work work;

#define INPUT_MAX     ((size_t)16 << 20)
#define SLICE_MS      200
#define UNSTARTED_MAX 8 /* records of commands that never ran, forgotten in one go */

/* ---- the command line ------------------------------------------------------------------------*/

static int check_command(const cli_command *self, int argc, char **argv, options *o)
{
    if (optind >= argc || optind == 0 || strcmp(argv[optind - 1], "--") != 0)
        return cli_usage(self, "the command is missing; it comes behind \"--\"");
    o->argv = argv + optind;
    for (char **word = o->argv; *word != NULL; word++)
        if (!sm_utf8_valid(sm_str_from(*word)))
            return cli_fail(CLI_DATA,
                            "BAD_ARGUMENTS: word %td of the command is not UTF-8, and cannot be "
                            "recorded; nothing ran",
                            word - o->argv + 1);
    if (**o->argv == '\0')
        return cli_usage(self, "the command's name is empty");
    return CLI_OK;
}

static int check_options(const cli_command *self, const options *o)
{
    int64_t window_ms;
    if (o->key == NULL)
        return cli_usage(self, "--key is missing: it says when two runs are the same");
    if (*o->key == '\0' || strlen(o->key) > SM_KEY_MAX)
        return cli_usage(self, "--key takes 1 to %u bytes", SM_KEY_MAX);
    if (o->window != NULL &&
        (!sm_duration_parse(sm_str_from(o->window), &window_ms) || window_ms <= 0))
        return cli_usage(self, "--window takes a duration such as 24h, or forever");
    if (o->contract != NULL && (o->window != NULL || o->retry_failed || o->approve))
        return cli_usage(self, "--contract says it all: it excludes --window, --retry-failed and "
                               "--approve");
    return CLI_OK;
}

static int read_options(const cli_command *self, int argc, char **argv, options *o)
{
    static const struct option table[] = {
        CLI_TEXT("key", options, key),
        CLI_TEXT("scope", options, scope),
        {"ledger", required_argument, NULL, 'l'},
        CLI_TEXT("contract", options, contract),
        CLI_TEXT("window", options, window),
        {"wait", required_argument, NULL, 't'},
        CLI_FLAG("retry-failed", options, retry_failed),
        CLI_FLAG("approve", options, approve),
        CLI_TEXT("seal-key", options, seal_key),
        CLI_FLAG("stdin", options, input),
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    int c;
    while ((c = cli_option_short(self, argc, argv, "q", table, o)) != -1) {
        switch (c) {
        case 'l': o->ledger = cli_ledger_take(optarg); break;
        case 't':
            if (!cli_duration(optarg, &o->wait_ms))
                return cli_usage(self, "--wait takes a duration such as 30s, 0 or forever");
            break;
        case 'q': o->quiet = true; break;
        case 'h': return 'h';
        default: return CLI_USAGE;
        }
    }
    int code = check_options(self, o);
    return code == CLI_OK ? check_command(self, argc, argv, o) : code;
}

/* ---- before ----------------------------------------------------------------------------------*/

/* A descriptor that we open must not become one of the three that commands print to. */
static void fill_standard_descriptors(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

static int make_args(work *w)
{
    sm_buf *b = &w->args;
    sm_buf_byte(b, '{');
    sm_put_open(b, "argv", '[');
    for (char **word = w->o->argv; *word != NULL; word++) {
        sm_put_item(b);
        sm_json_put_string(b, sm_str_from(*word));
    }
    sm_buf_byte(b, ']');
    if (w->o->input) {
        int code = cli_read(NULL, INPUT_MAX, &w->input);
        if (code != CLI_OK)
            return code;
        sm_digest digest;
        sm_hash hash;
        char hex[SM_HASH_HEX + 1];
        sm_err e = sm_digest_init(&digest);
        if (e == SM_OK)
            e = sm_digest_bytes(&digest, w->input.p, w->input.len, &hash);
        sm_digest_fini(&digest);
        if (e != SM_OK)
            return cli_fail(cli_code(e), "%s", semel_err_text(e));
        sm_hash_hex(&hash, hex);
        sm_put_text(b, "stdin_sha256", sm_str_from(hex));
    }
    sm_buf_byte(b, '}');
    if (b->err == SEMEL_E_LIMIT)
        return cli_fail(CLI_DATA, "BAD_ARGUMENTS: the command is longer than %u bytes",
                        SM_JSON_BYTES_MAX);
    return b->err == SM_OK ? CLI_OK : cli_fail(CLI_INTERNAL, "%s", semel_err_text(b->err));
}

/* What is declared about the tool `run`. An approval may be given overnight; whoever asked need not
 * be another person than who approves, as both are a user of this machine. A command that is run
 * every night under another key is not a loop. */
static void make_contract(const options *o, sm_buf *b)
{
    sm_buf_printf(b,
                  "{\"version\":1,\"tools\":{\"run\":{\"class\":\"write\",\"key\":\"explicit\","
                  "\"window\":\"%s\",\"failures\":\"%s\",\"on_in_doubt\":[\"hold\"],"
                  "\"barrier\":\"off\",\"loop\":\"off\"%s}}}",
                  o->window == NULL ? "forever" : o->window, o->retry_failed ? "retry" : "replay",
                  o->approve ? ",\"approval\":{\"expires\":\"24h\",\"self_approval\":\"on\"}" : "");
}

static int open_ledger(work *w)
{
    if (w->o->ledger != NULL && *w->o->ledger == '\0')
        return cli_ledger_nameless();
    if (w->o->contract == NULL) {
        make_contract(w->o, &w->contract);
    } else {
        int code = cli_read_contract_text(w->o->contract, &w->contract);
        if (code != CLI_OK)
            return code;
    }
    const char *seal_key = w->o->seal_key != NULL ? w->o->seal_key : getenv("SEMEL_SEAL_KEY_FILE");
    semel_options open = {.size = sizeof open,
                          .url = w->o->ledger,
                          .contract = sm_buf_view(&w->contract),
                          .seal_key_path = seal_key == NULL || *seal_key == '\0' ? NULL : seal_key};
    semel_fault fault = {0};
    sm_err e = w->contract.err != SM_OK ? w->contract.err : semel_open(&open, &w->s, &fault);
    if (e == SM_OK) {
        w->answer = semel_answer_new();
        w->other = semel_answer_new();
        e = w->answer == NULL || w->other == NULL ? SEMEL_E_NOMEM : SM_OK;
    }
    if (e == SM_OK)
        return CLI_OK;
    int code = cli_ledger_fault(e, &fault);
    fprintf(stderr, "  The command was not run.\n");
    return code;
}

/* ---- the work --------------------------------------------------------------------------------*/

/* Our environment with the names of the effect, and without a claim: that is a secret of ours. */
static char **make_environment(sm_arena *a, const semel_answer *execute)
{
    static const char *const dropped[] = {"SEMEL_KEY=", "SEMEL_EFFECT=", "SEMEL_CLAIM="};
    size_t count = 0, n = 0;
    while (environ[count] != NULL)
        count++;
    char **out = sm_arena_zalloc(a, count + 3, sizeof *out);
    if (out == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        bool drop = false;
        for (size_t d = 0; d < sizeof dropped / sizeof dropped[0]; d++)
            drop |= strncmp(environ[i], dropped[d], strlen(dropped[d])) == 0;
        if (!drop)
            out[n++] = environ[i];
    }
    const semel_str values[] = {execute->idempotency_key, execute->effect};
    for (size_t i = 0; i < 2; i++) {
        if (values[i].p == NULL)
            continue;
        sm_str text = sm_arena_printf(a, "%s%.*s", dropped[i], SM_FMT(values[i]));
        if (text.p == NULL)
            return NULL;
        out[n++] = (char *)text.p;
    }
    return out;
}

static void run_command(work *w, const semel_answer *execute)
{
    sm_child *c = &w->child;
    char **envp = make_environment(&w->arena, execute);
    w->interrupted = sm_signals_ending(&w->signals);
    if (w->interrupted != 0) {
        c->end = (sm_ending){.status = SM_STATUS_SIGNAL + w->interrupted};
        snprintf(c->end.error, sizeof c->end.error, "interrupted by signal %d", w->interrupted);
    } else if (envp == NULL) {
        c->end = (sm_ending){.status = SM_STATUS_NOT_EXECUTABLE, .error = "out of memory"};
    } else {
        c->argv = w->o->argv;
        c->envp = envp;
        c->input = w->o->input ? sm_buf_view(&w->input) : (sm_str){0};
        c->live[SM_STREAM_OUT] = STDOUT_FILENO;
        c->live[SM_STREAM_ERR] = STDERR_FILENO;
        c->signals = &w->signals;
        c->record = &w->record;
        w->lost = sm_child_run(c) != SM_OK;
    }
}

/* A command that exits with another code than 0 has answered "I failed": what that means for the
 * next one to ask is the contract's to say. */
static void perform(void *context, const semel_answer *execute, semel_outcome *outcome)
{
    work *w = context;
    snprintf(w->effect, sizeof w->effect, "%.*s", (int)execute->effect.n,
             execute->effect.p == NULL ? "" : execute->effect.p);
    run_command(w, execute);
    const sm_ending *end = &w->child.end;
    outcome->kind = end->started && !w->lost && end->status == 0 ? SEMEL_SUCCESS : SEMEL_FAILURE;
    outcome->applied = !end->started ? SEMEL_APPLIED_NO
                       : w->lost     ? SEMEL_APPLIED_UNKNOWN
                                     : SEMEL_APPLIED_DEFAULT;
    outcome->status = end->status;
    if (!w->lost && sm_transcript_write(&w->record, end, &w->value) == SM_OK)
        outcome->value = sm_buf_view(&w->value);
}

/* ---- asking ----------------------------------------------------------------------------------*/

void cli_run_forget(work *w, semel_str effect)
{
    semel_forget(w->s, effect, (sm_str){0}, SM_STR("the command was never started"), w->other);
}

/* Whether the record that stands in the way is of a command that never ran; then it is gone now. */
static bool clear_unstarted(work *w)
{
    const semel_answer *a = w->answer;
    bool conflict = a->verdict == SEMEL_REFUSED && a->code == SEMEL_C_KEY_CONFLICT;
    if (a->state != SEMEL_S_FAILED || !(conflict || a->verdict == SEMEL_REPLAY))
        return false;
    const semel_outcome *outcome = a->has_outcome ? &a->outcome : NULL;
    if (conflict) {
        semel_name name = {.size = sizeof name, .text = a->effect};
        if (semel_get(w->s, &name, w->other) != SM_OK)
            return false;
        outcome = w->other->has_outcome ? &w->other->outcome : NULL;
    }
    sm_replay r;
    if (outcome == NULL || sm_replay_read(&w->arena, outcome->value, &r, NULL) != SM_OK ||
        r.end.started)
        return false;
    cli_run_forget(w, a->effect);
    return true;
}

static void announce_approval(work *w)
{
    const semel_answer *a = w->answer;
    if (a->code != SEMEL_C_AWAITING_APPROVAL || a->request.p == NULL ||
        sm_str_is(a->request, w->asked))
        return;
    snprintf(w->asked, sizeof w->asked, "%.*s", SM_FMT(a->request));
    char most[SM_DURATION_TEXT];
    sm_duration_text(w->o->wait_ms, most);
    fprintf(stderr, "semel: waiting for approval (%s)\n", most);
    for (int deny = 0; deny < 2; deny++) {
        fprintf(stderr, "  semel %s %s", deny ? "deny" : "approve", w->asked);
        if (w->o->ledger != NULL) { /* a server's URL may hold a password */
            bool file = strncmp(w->o->ledger, "sqlite:", 7) == 0;
            fputs(" --ledger ", stderr);
            cli_print(stderr, sm_str_from(file ? w->o->ledger : "URL"));
        }
        fputs(deny ? " --reason TEXT\n" : "\n", stderr);
    }
}

/* Asks until there is an answer, the time is up, or a signal says stop. */
static sm_err ask(work *w)
{
    const options *o = w->o;
    int64_t start = sm_clock_mono_ns() / 1000000;
    int unstarted = 0;
    for (;;) {
        int64_t left = start + o->wait_ms - sm_clock_mono_ns() / 1000000;
        semel_call call = {.size = sizeof call,
                           .scope = sm_str_from(o->scope),
                           .tool = SM_STR("run"),
                           .args = sm_buf_view(&w->args),
                           .key = sm_str_from(o->key),
                           .wait_ms = left < 0          ? 0
                                      : left < SLICE_MS ? left
                                                        : SLICE_MS};
        sm_err e = semel_run(w->s, &call, perform, w, w->answer);
        const semel_answer *a = w->answer;
        if (a->executed)
            return e;
        w->interrupted = sm_signals_ending(&w->signals);
        bool wait = a->verdict == SEMEL_REFUSED && left > 0 &&
                    (a->code == SEMEL_C_RETRY_IN_FLIGHT || a->code == SEMEL_C_AWAITING_APPROVAL ||
                     a->code == SEMEL_C_UPSTREAM_TIMEOUT);
        if (w->interrupted != 0)
            return e;
        if (e == SM_OK && unstarted < UNSTARTED_MAX && clear_unstarted(w))
            unstarted++;
        else if (e != SM_OK || !wait)
            return e;
        announce_approval(w);
    }
}

static int run_once(work *w)
{
    sm_fault fault = {0};
    int code = make_args(w);
    if (code != CLI_OK)
        return code;
    /* Before the ledger's threads start: they inherit what is held. */
    sm_err e = sm_signals_hold(&w->signals, &fault);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", fault.text);
    code = open_ledger(w);
    if (code != CLI_OK)
        return code;
    e = sm_transcript_init(&w->record);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", semel_err_text(e));
    e = ask(w);
    sm_signals_release(&w->signals);
    return cli_run_conclude(w, e);
}

static int run(const cli_command *self, int argc, char **argv)
{
    bool mute = fcntl(STDOUT_FILENO, F_GETFD) < 0;
    fill_standard_descriptors();
    options o = {.scope = "default", .wait_ms = 30000};
    int code = read_options(self, argc, argv, &o);
    if (code != CLI_OK)
        return code == 'h' ? CLI_OK : code;
    work w = {.o = &o, .signals.fd = -1, .mute = mute};
    sm_arena_init(&w.arena, SM_ARENA_MAX);
    sm_buf_init(&w.contract, SM_CONTRACT_BYTES_MAX);
    sm_buf_init(&w.args, SM_JSON_BYTES_MAX);
    sm_buf_init(&w.value, SM_TRANSCRIPT_TEXT_MAX);
    code = run_once(&w);
    semel_answer_free(w.other);
    semel_answer_free(w.answer);
    semel_close(w.s);
    sm_signals_release(&w.signals);
    sm_child_fini(&w.child);
    sm_transcript_fini(&w.record);
    sm_buf_fini(&w.value);
    sm_buf_fini(&w.input);
    sm_buf_fini(&w.args);
    sm_buf_fini(&w.contract);
    sm_arena_fini(&w.arena);
    return code;
}

const cli_command cli_run = {
    .name = "run",
    .summary = "run a command once for a key, and answer with its output ever after",
    .help =
        "  semel run --key \"invoices-$(date +%F)\" -- ./send-invoices           # in a crontab\n"
        "  semel run --key \"deploy-$CI_COMMIT\" --approve --wait 15m -- ./deploy.sh prod\n"
        "  pg_dump shop | semel run --key backup-42 --stdin -- upload --name shop-42\n\n"
        "Usage: semel run --key K [--scope S] [options] -- COMMAND [ARGUMENT...]\n\n"
        "  --key K          names the action: the command runs once for it\n"
        "  --scope S        within which the key counts (default: default)\n"
        "  --stdin          read stdin first (at most 16 MiB), make it part of what must be equal,\n"
        "                   and give it to the command, which otherwise reads /dev/null\n"
        "  --wait D         how long to wait for somebody else's run or for an approval\n"
        "                   (default: 30s); the ledger's own writes may take up to 5s more\n"
        "  --window D       how long the key is remembered (default: forever)\n"
        "  --retry-failed   run again what exited with another code than 0\n"
        "  --approve        somebody must agree first: semel approve\n"
        "  --contract FILE  what is declared about the tool \"run\", instead of the three above;\n"
        "                   SEMEL_CONTRACT is not heeded: it is about the tools of agents\n"
        "  --ledger URL     sqlite:PATH, postgres://..., redis://...; else SEMEL_LEDGER, else the\n"
        "                   user's own ledger\n"
        "  --seal-key FILE  keys the seals of the audit trail; else SEMEL_SEAL_KEY_FILE\n"
        "  -q, --quiet      do not say that an answer is a replay\n\n"
        "The command's output is streamed and recorded, signals are passed on to it, and its exit\n"
        "code is ours (128 + n after signal n). Asked again, the same bytes go to the same streams\n"
        "and the exit code is the same, a failure's too; 512 KiB are kept. A command that could not\n"
        "be started (126, 127) does not use up the key. The command finds SEMEL_KEY in its\n"
        "environment, to pass on to whom it calls, and SEMEL_EFFECT. It must not leave processes\n"
        "behind that write to its output: that is closed one second after its end.\n\n"
        "Other exit codes: 65 the key was used for another command or stdin, 69 the ledger cannot\n"
        "be used and the command was not run, 75 still running or not approved in time, 76 it was\n"
        "started before and nobody knows how it ended, 77 denied.\n",
    .run = run,
};
