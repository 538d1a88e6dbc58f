/*
 * How semel run ends: the one line about a replay, the recorded output, or why nothing ran; and the
 * exit code of each.
 */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/duration.h"
#include "cli/cli.h"
#include "cli/ledger.h"
#include "cli/run.h"
#include "json/json.h"

typedef cli_run_work work;

#define HANDLE(a) (int)(a)->effect.n, (a)->effect.p == NULL ? "" : (a)->effect.p

static int tell_doubt(const char *effect)
{
    fprintf(stderr,
            "  semel show %s\n"
            "  semel resolve %s --applied '' --evidence TEXT      it did its work\n"
            "  semel resolve %s --not-applied --evidence TEXT     it did not: the next one runs\n",
            effect, effect, effect);
    return semel_code_exit(SEMEL_C_IN_DOUBT);
}

static void tell_lost_output(const sm_child *c)
{
    for (int s = 0; s < SM_STREAMS; s++)
        if (c->live_error[s] != 0 && c->live_error[s] != EPIPE)
            cli_fail(CLI_IO, "cannot write the output: %s; it is recorded",
                     strerror(c->live_error[s]));
}

/* The command ran here, or was kept from it. */
static int conclude_own(work *w, semel_err e)
{
    const semel_answer *a = w->answer;
    const sm_ending *end = &w->child.end;
    sm_child_flush(&w->child);
    tell_lost_output(&w->child);
    if (!end->started) {
        if (e == SEMEL_OK && a->state == SEMEL_S_FAILED)
            cli_run_forget(w, a->effect);
        return cli_fail(end->status, "%s: %s; nothing ran", w->o->argv[0], end->error);
    }
    bool doubt = a->verdict == SEMEL_REFUSED && a->code == SEMEL_C_IN_DOUBT;
    if (w->lost) {
        cli_fail(0, "IN_DOUBT: the command was started, and how it ended cannot be known");
        return tell_doubt(w->effect);
    }
    if (e != SEMEL_OK || (a->verdict == SEMEL_REFUSED && !doubt)) {
        cli_fail(0,
                 "%s: the command ran and exited with %d, but that could not be recorded: it is in "
                 "doubt",
                 a->code == SEMEL_C_NONE ? semel_err_name(e) : semel_code_name(a->code),
                 end->status);
        if (a->message.p != NULL) {
            fputs("  ", stderr);
            cli_print(stderr, a->message);
            fputc('\n', stderr);
        }
        return tell_doubt(w->effect);
    }
    if (sm_str_is(a->result, "put_back"))
        cli_fail(0, "the ledger had lost its record of %s, which ran; it was put back", w->effect);
    if (sm_str_is(a->result, "late_evidence")) {
        cli_fail(0, "this came too late to count: %s is %s; it is kept as evidence", w->effect,
                 semel_state_name(a->state));
    } else if (doubt) {
        cli_fail(0, "by its contract, %s is in doubt now", w->effect);
        tell_doubt(w->effect);
    }
    return end->status;
}

/* Settled without output of a command: by a person, most likely. */
static int conclude_foreign(const work *w)
{
    const semel_answer *a = w->answer;
    bool done = a->outcome.kind != SEMEL_FAILURE;
    if (!w->o->quiet || !done)
        cli_fail(0, "%.*s was settled as %s without output of the command, which was not run",
                 HANDLE(a), semel_state_name(a->state));
    return done ? CLI_OK : 1;
}

static int conclude_replay(work *w)
{
    const semel_answer *a = w->answer;
    const int fds[SM_STREAMS] = {STDOUT_FILENO, STDERR_FILENO};
    sm_replay r;
    sm_fault fault = {0};
    sm_err e =
        sm_replay_read(&w->arena, a->has_outcome ? a->outcome.value : (sm_str){0}, &r, &fault);
    if (e == SEMEL_E_NOT_FOUND)
        return conclude_foreign(w);
    if (e != SM_OK)
        return cli_fail(e == SEMEL_E_NOMEM ? CLI_INTERNAL : CLI_DATA, "%.*s: %s", HANDLE(a),
                        fault.code == e ? fault.text : semel_err_text(e));
    if (!w->o->quiet)
        cli_fail(0, "replayed %.*s (done %s); the command was not run again", HANDLE(a), r.ended);
    if (w->mute && r.total[SM_STREAM_OUT] > 0)
        return cli_fail(CLI_IO, "cannot write the recorded output: there is no standard output");
    e = sm_replay_write(&r, fds);
    if (r.truncated)
        cli_fail(0,
                 "the record ends here: it keeps %zu KiB of %llu bytes on stdout (SHA-256 %.*s) "
                 "and %llu on stderr (%.*s)",
                 SM_TRANSCRIPT_BYTES_MAX >> 10, (unsigned long long)r.total[SM_STREAM_OUT],
                 SM_FMT(r.sha256[SM_STREAM_OUT]), (unsigned long long)r.total[SM_STREAM_ERR],
                 SM_FMT(r.sha256[SM_STREAM_ERR]));
    if (e != SM_OK)
        return cli_fail(cli_code(e), "cannot write the recorded output");
    return r.end.status;
}

static void print_drift(work *w)
{
    const sm_json *list;
    if (w->answer->drift.p == NULL ||
        sm_json_read(&w->arena, w->answer->drift, &sm_json_default_limits, &list, NULL) != SM_OK ||
        list->type != SM_JSON_ARRAY)
        return;
    fputs("  it differs at", stderr);
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        if (item->type != SM_JSON_STRING)
            continue;
        fputs(i == 0 ? " " : ", ", stderr);
        cli_print(stderr, sm_json_text(item));
    }
    fputc('\n', stderr);
}

static int conclude_refused(work *w, semel_err e)
{
    const semel_answer *a = w->answer;
    char waited[SM_DURATION_TEXT];
    sm_duration_text(w->o->wait_ms, waited);
    int code = a->code == SEMEL_C_NONE ? cli_code(e) : semel_code_exit(a->code);
    const char *name = a->code == SEMEL_C_NONE ? semel_err_name(e) : semel_code_name(a->code);
    switch (a->code) {
    case SEMEL_C_IN_DOUBT:
        cli_fail(code,
                 "IN_DOUBT: %.*s was started before, and how it ended is not known; it was not run "
                 "again",
                 HANDLE(a));
        snprintf(w->effect, sizeof w->effect, "%.*s", HANDLE(a));
        return tell_doubt(w->effect);
    case SEMEL_C_RETRY_IN_FLIGHT:
        return cli_fail(code, "%s: %.*s still runs elsewhere after %s; nothing was run", name,
                        HANDLE(a), waited);
    case SEMEL_C_AWAITING_APPROVAL:
        return cli_fail(code, "%s: %.*s is not approved after %s; nothing was run", name,
                        (int)a->request.n, a->request.p, waited);
    case SEMEL_C_KEY_CONFLICT:
        cli_fail(code, "%s: the key \"%s\" was used for another command, %.*s; nothing was run",
                 name, w->o->key, HANDLE(a));
        print_drift(w);
        return code;
    default:
        return a->message.p == NULL
                   ? cli_fail(code, "%s: %s; the command was not run", name, semel_err_text(e))
                   : cli_fail(code, "%s: %.*s The command was not run.", name, SM_FMT(a->message));
    }
}

int cli_run_conclude(work *w, semel_err e)
{
    cli_warn(w->answer);
    if (w->answer->executed)
        return conclude_own(w, e);
    if (w->interrupted != 0)
        return SM_STATUS_SIGNAL + w->interrupted;
    return w->answer->verdict == SEMEL_REPLAY ? conclude_replay(w) : conclude_refused(w, e);
}
