/*
 * Undoing from the command line: what the files of `semel scope undo` share, and what `semel
 * resolve --compensate` uses of it.
 *
 * The ledger says which call undoes an effect (ledger/service.h). A tool with an upstream is
 * executed here (http.c), tools of an MCP server by the MCP proxy in front of it (server.c), and
 * for others a person is told what to do. Whoever executes begins and ends the call in the ledger;
 * what became of it is read from there.
 */
#ifndef SM_CLI_UNDO_UNDO_H
#define SM_CLI_UNDO_UNDO_H

#include "cli/ledger.h"
#include "ledger/service.h"
#include "upstream/http.h"

typedef struct cli_undo_server cli_undo_server;

/* What undoes are executed with. */
typedef struct cli_undoing {
    cli_ledger *l;
    char **command;    /* of an MCP server; NULL: there is none */
    semel_answer *say; /* what the last call was answered */
    sm_http *http;     /* started when it is needed */
    cli_undo_server *server;
    sm_str server_scope;
} cli_undoing;

/* How the call of an undo can be executed. */
typedef enum cli_undo_way { CLI_UNDO_HTTP, CLI_UNDO_MCP, CLI_UNDO_BY_HAND } cli_undo_way;
cli_undo_way cli_undo_way_of(const cli_undoing *u, const sm_undo *what);

/* Where an undo has come to. */
typedef enum cli_undo_end {
    CLI_UNDO_OK,      /* it has succeeded */
    CLI_UNDO_STOPPED, /* it has not: u->say says why, and its code is one of semel_code, or NONE if
                         the undo itself has failed */
    CLI_UNDO_FAILED,  /* it could not be tried: the exit code is explained */
} cli_undo_end;

/* Executes the call of `what`, which has one, and reads what became of it into *after, whose texts
 * live in l->a. *code is the exit code if it is not OK. */
cli_undo_end cli_undo_execute(cli_undoing *u, const sm_handle *effect, const sm_undo *what,
                              sm_undo *after, int *code);

/* How a person does it, line by line behind `indent` blanks. */
void cli_undo_put_by_hand(sm_buf *out, size_t indent, const sm_undo *what);

/* resolve.c: the whole command, but for its command line. Returns the exit code. */
int cli_undo_resolve(cli_ledger *l, const char *effect, const char *evidence, uint64_t if_version);

int cli_undoing_init(cli_undoing *u, cli_ledger *l, char **command);
void cli_undoing_fini(cli_undoing *u); /* accepts a zeroed object */

/* http.c: one call of a tool with an upstream, by the same machine as the gateway's. The answer is
 * in `a`. */
sm_err cli_undo_http(semel *s, sm_http *http, const semel_call *call, semel_answer *a);

/* server.c: `semel mcp` in front of a server, for the calls of one scope. Explains a failure and
 * returns the exit code. */
int cli_undo_server_start(const cli_ledger *l, sm_str scope, char **command, cli_undo_server **out);
void cli_undo_server_stop(cli_undo_server *s); /* accepts NULL */

/* Makes a call and waits for its answer. What the server or the proxy said of it goes to `said`.
 * False if the proxy has ended. */
bool cli_undo_server_call(cli_undo_server *s, const semel_call *call, sm_buf *said);

#endif
