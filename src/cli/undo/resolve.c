/*
 * semel resolve --compensate: undoes an effect that is in doubt, whether or not it took effect, and
 * then settles it so that it never runs again. Whoever is interrupted in between runs it again.
 */
#include <stdio.h>

#include "cli/undo/undo.h"

/* Refuses in the words of this command; `room` keeps them. */
static int refuse(cli_ledger *l, semel_code code, const char *effect, const char *message,
                  const char *advice)
{
    sm_refuse(l->a, code);
    l->a->effect = sm_str_from(effect);
    l->a->message = sm_str_from(message);
    l->a->corrective_action = sm_str_from(advice);
    return cli_answer(l, SEMEL_OK, "");
}

static int explain_stop(cli_undoing *u, const char *effect, const sm_undo *after)
{
    char text[SEMEL_FAULT_TEXT_MAX + 300], handle[SM_HANDLE_TEXT];
    const semel_answer *say = u->say;
    snprintf(handle, sizeof handle, "%.*s", (int)after->undo.n,
             after->undo.n > 0 ? after->undo.p : "");
    snprintf(text, sizeof text, "%s stays in doubt. Its undo %s%s%s: %.*s", effect, handle,
             handle[0] != '\0' ? " is " : "has not begun",
             handle[0] != '\0' ? semel_state_name(after->undo_state) : "",
             (int)(say->message.n < SEMEL_FAULT_TEXT_MAX ? say->message.n : SEMEL_FAULT_TEXT_MAX),
             say->message.n > 0 ? say->message.p : "");
    return refuse(u->l, say->code != SEMEL_C_NONE ? say->code : SEMEL_C_IN_DOUBT, effect, text,
                  "Look at the undo, put right what is wrong, then run this again.");
}

static int by_hand(cli_ledger *l, const char *effect, const sm_undo *what)
{
    sm_buf text;
    sm_buf_init(&text, CLI_OUTPUT_MAX);
    cli_undo_put_by_hand(&text, 2, what);
    sm_buf_byte(&text, '\0');
    fputs("Nothing here can execute the undo. Do it by hand, then run this again:\n", stderr);
    fputs(text.err == SM_OK ? text.p : "", stderr);
    sm_buf_fini(&text);
    return refuse(l, SEMEL_C_ILLEGAL_STATE, effect,
                  "It stays in doubt: nothing here can execute its undo.",
                  "Do it by hand as shown, then run this again.");
}

static int resolve(cli_undoing *u, const char *effect, const char *evidence, uint64_t if_version)
{
    cli_ledger *l = u->l;
    sm_handle h;
    sm_undo what, after;
    int code;
    char undo[SM_HANDLE_TEXT];
    if (!sm_handle_parse("ef_", sm_str_from(effect), &h))
        return refuse(l, SEMEL_C_BAD_ARGUMENTS, effect, "That is not an effect's handle.",
                      "semel list --state in_doubt shows them.");
    if (strlen(evidence) > SM_UNDO_EVIDENCE_MAX)
        return cli_fail(CLI_USAGE, "the evidence is longer than %u bytes", SM_UNDO_EVIDENCE_MAX);
    semel_name name = {.size = sizeof name, .text = sm_str_from(effect)};
    semel_err e = semel_get(l->s, &name, l->a);
    if (e != SEMEL_OK)
        return cli_answer(l, e, "");
    if (sm_decision_stale(l->a, if_version))
        return cli_answer(l, SEMEL_OK, "");
    e = sm_undo_of(l->s, &h, l->a, &what);
    if (e != SEMEL_OK)
        return cli_answer(l, e, "");
    char text[SEMEL_FAULT_TEXT_MAX + 100];
    snprintf(text, sizeof text, "The effect is %s, and not in doubt.",
             semel_state_name(what.state));
    if (what.status != SM_UNDO_DOUBT)
        return refuse(l, SEMEL_C_ILLEGAL_STATE, effect, text,
                      "semel scope undo undoes what a run did.");
    snprintf(text, sizeof text, "It stays in doubt, and cannot be undone: %.*s.", (int)what.why.n,
             what.why.n > 0 ? what.why.p : "");
    bool done = what.undo_state == SEMEL_S_SUCCEEDED;
    if (!done && what.call.tool.p == NULL)
        return refuse(l, SEMEL_C_ILLEGAL_STATE, effect, text,
                      "Find out what happened, then resolve it otherwise.");
    semel_answer *held = semel_answer_new();
    if (held == NULL)
        return cli_answer(l, SEMEL_E_NOMEM, "");
    e = sm_doubt_hold(l->s, &h, if_version, held);
    bool holds = e == SEMEL_OK && held->verdict == SEMEL_DONE;
    if (holds && if_version != 0)
        if_version = held->version;
    semel_answer_free(held);
    if (!holds)
        return refuse(l, SEMEL_C_ILLEGAL_STATE, effect,
                      "It is not in doubt any more, or cannot be held. Nothing has been undone.",
                      "Look at it again: semel show.");
    if (!done && cli_undo_way_of(u, &what) == CLI_UNDO_BY_HAND)
        return by_hand(l, effect, &what);
    if (done)
        after = what;
    else
        switch (cli_undo_execute(u, &h, &what, &after, &code)) {
        case CLI_UNDO_OK: break;
        case CLI_UNDO_STOPPED: return explain_stop(u, effect, &after);
        case CLI_UNDO_FAILED: return code;
        }
    snprintf(undo, sizeof undo, "%.*s", SM_FMT(after.undo));
    e = sm_undo_resolve(l->s, &h, sm_str_from(undo), sm_str_from(evidence), (sm_str){0}, if_version,
                        l->a);
    snprintf(text, sizeof text, "undone by %s, and resolved", undo);
    return cli_answer(l, e, text);
}

int cli_undo_resolve(cli_ledger *l, const char *effect, const char *evidence, uint64_t if_version)
{
    cli_undoing u;
    int code = cli_undoing_init(&u, l, l->command);
    if (code == CLI_OK)
        code = resolve(&u, effect, evidence, if_version);
    cli_undoing_fini(&u);
    return code;
}
