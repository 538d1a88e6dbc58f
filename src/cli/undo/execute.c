/* Executing the call of an undo, whichever way there is, and reading what became of it. */
#include "cli/undo/undo.h"

int cli_undoing_init(cli_undoing *u, cli_ledger *l, char **command)
{
    *u = (cli_undoing){.l = l, .command = command, .say = semel_answer_new()};
    return u->say != NULL ? CLI_OK : cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
}

void cli_undoing_fini(cli_undoing *u)
{
    cli_undo_server_stop(u->server);
    sm_http_stop(u->http);
    sm_http_free(u->http);
    semel_answer_free(u->say);
    *u = (cli_undoing){0};
}

cli_undo_way cli_undo_way_of(const cli_undoing *u, const sm_undo *what)
{
    return what->upstream ? CLI_UNDO_HTTP : u->command != NULL ? CLI_UNDO_MCP : CLI_UNDO_BY_HAND;
}

static int by_http(cli_undoing *u, const sm_undo *what)
{
    sm_fault fault = {0};
    sm_err e = u->http != NULL ? SM_OK : sm_http_start(NULL, &u->http, &fault);
    if (e != SM_OK)
        return cli_fail(cli_code(e), "%s", fault.text);
    cli_undo_http(u->l->s, u->http, &what->call, u->say); /* the answer says it all */
    return CLI_OK;
}

static int by_server(cli_undoing *u, const sm_undo *what)
{
    sm_buf said;
    int code = CLI_OK;
    if (u->server == NULL)
        code = cli_undo_server_start(u->l, what->call.scope, u->command, &u->server);
    if (code != CLI_OK)
        return code;
    sm_refuse(u->say, SEMEL_C_NONE);
    sm_buf_init(&said, CLI_OUTPUT_MAX);
    if (!cli_undo_server_call(u->server, &what->call, &said)) {
        sm_buf_clear(&said);
        sm_buf_text(&said, "the MCP server has ended without an answer");
    }
    u->say->message = sm_arena_text(sm_answer_arena(u->say), sm_buf_view(&said));
    sm_buf_fini(&said);
    return CLI_OK;
}

cli_undo_end cli_undo_execute(cli_undoing *u, const sm_handle *effect, const sm_undo *what,
                              sm_undo *after, int *code)
{
    *code = cli_undo_way_of(u, what) == CLI_UNDO_HTTP ? by_http(u, what) : by_server(u, what);
    if (*code != CLI_OK)
        return CLI_UNDO_FAILED;
    semel_err e = sm_undo_of(u->l->s, effect, u->l->a, after);
    if (e != SEMEL_OK) {
        *code = cli_answer(u->l, e, "");
        return CLI_UNDO_FAILED;
    }
    if (after->undo_state == SEMEL_S_SUCCEEDED)
        return CLI_UNDO_OK;
    semel_answer *say = u->say;
    say->code = sm_undo_code(say, after);
    if (say->message.p == NULL)
        sm_answer_reword(say);
    *code = say->code == SEMEL_C_NONE ? CLI_DIFFERENT : semel_code_exit(say->code);
    return CLI_UNDO_STOPPED;
}

/* A word of a command line that a shell reads back as it is. */
static void put_word(sm_buf *out, sm_str word)
{
    sm_buf_byte(out, '\'');
    for (size_t i = 0; i < word.n; i++) {
        if (word.p[i] == '\'')
            sm_buf_text(out, "'\\''");
        else
            sm_buf_byte(out, word.p[i]);
    }
    sm_buf_byte(out, '\'');
}

void cli_undo_put_by_hand(sm_buf *out, size_t indent, const sm_undo *what)
{
    const semel_call *c = &what->call;
    sm_buf_printf(out, "%*ssemel begin --undoes --tool ", (int)indent, "");
    put_word(out, c->tool);
    sm_buf_text(out, " --scope ");
    put_word(out, c->scope);
    sm_buf_text(out, " --key ");
    put_word(out, c->key);
    sm_buf_text(out, " --args ");
    put_word(out, c->args);
    sm_buf_printf(out, "\n%*scall %.*s with these arguments, then\n", (int)indent, "",
                  SM_FMT(c->tool));
    sm_buf_printf(out, "%*ssemel commit CLAIM --value RESULT\n", (int)indent, "");
}
