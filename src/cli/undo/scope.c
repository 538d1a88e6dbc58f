/*
 * semel scope undo: undoes what a run did, the newest effect first.
 *
 * The plan is shown first. Running it goes through the same effects in the same order, and stops at
 * the first that is in doubt or running, and at the first undo that does not succeed. Nothing is
 * remembered but in the ledger: whoever runs it again goes on where it was.
 */
#include <inttypes.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/undo/undo.h"
#include "json/write.h"

#define PAGE 100u

typedef struct options {
    const char *scope;
    bool yes;
} options;

/* One way through the effects of the scope. */
typedef struct walk {
    cli_undoing u;
    sm_str scope;
    bool runs;  /* and not only looks */
    bool quiet; /* nothing is put into the table or list */
    sm_buf *out;
    cli_table table;
    sm_buf by_hand; /* what a person has to do */
    size_t todo, hand, done, undone, cannot, open;
    bool stopped;
    char at[SM_HANDLE_TEXT];   /* the effect that it has stopped at */
    char undo[SM_HANDLE_TEXT]; /* and its undo, if that is why */
    semel_code code;           /* why */
    bool stays;                /* the undo has failed, and is not tried again */
    char why[SEMEL_FAULT_TEXT_MAX];
    int exit;
} walk;

/* ---- showing ---------------------------------------------------------------------------------*/

static void put_row(walk *w, const sm_undo *u)
{
    static const char *const words[] = {"undo",    "undone",  "", "cannot be undone",
                                        "running", "in doubt"};
    static const cli_style styles[] = {CLI_BOLD,   CLI_GREEN,  CLI_PLAIN,
                                       CLI_YELLOW, CLI_YELLOW, CLI_RED};
    bool hand = u->status == SM_UNDO_TODO && cli_undo_way_of(&w->u, u) == CLI_UNDO_BY_HAND;
    if (u->status == SM_UNDO_NOTHING)
        return;
    cli_table_cell(&w->table, CLI_PLAIN, u->effect);
    cli_table_cell(&w->table, CLI_PLAIN, u->tool);
    cli_table_cell(&w->table, styles[u->status], sm_str_from(hand ? "by hand" : words[u->status]));
    if (u->status == SM_UNDO_DONE)
        cli_table_printf(&w->table, CLI_PLAIN, "by %.*s", SM_FMT(u->undo));
    else if (u->status == SM_UNDO_TODO && u->undo.p != NULL)
        cli_table_printf(&w->table, CLI_PLAIN, "%.*s %.*s (%.*s is %s)", SM_FMT(u->call.tool),
                         SM_FMT(u->call.args), SM_FMT(u->undo), semel_state_name(u->undo_state));
    else if (u->status == SM_UNDO_TODO)
        cli_table_printf(&w->table, CLI_PLAIN, "%.*s %.*s", SM_FMT(u->call.tool),
                         SM_FMT(u->call.args));
    else
        cli_table_cell(&w->table, CLI_PLAIN, u->why);
    if (hand)
        cli_undo_put_by_hand(&w->by_hand, 2, u);
}

static void count(walk *w, const sm_undo *u)
{
    bool hand = cli_undo_way_of(&w->u, u) == CLI_UNDO_BY_HAND;
    switch (u->status) {
    case SM_UNDO_TODO: *(hand ? &w->hand : &w->todo) += 1; break;
    case SM_UNDO_DONE: w->done++; break;
    case SM_UNDO_CANNOT: w->cannot++; break;
    case SM_UNDO_OPEN:
    case SM_UNDO_DOUBT: w->open++; break;
    case SM_UNDO_NOTHING: break;
    }
    if (w->quiet)
        return;
    if (w->u.l->o.json) {
        sm_put_item(w->out);
        sm_undo_put_json(u, w->out);
    } else {
        put_row(w, u);
    }
}

/* ---- running ---------------------------------------------------------------------------------*/

static bool stop(walk *w, const sm_undo *u, semel_code code, int exit, sm_str why)
{
    w->stopped = true;
    w->code = code;
    w->stays = u->stays && u->undo_state == SEMEL_S_FAILED;
    w->exit = exit;
    snprintf(w->at, sizeof w->at, "%.*s", SM_FMT(u->effect));
    snprintf(w->undo, sizeof w->undo, "%.*s", (int)u->undo.n, u->undo.n > 0 ? u->undo.p : "");
    snprintf(w->why, sizeof w->why, "%.*s", (int)why.n, why.n > 0 ? why.p : "");
    return false;
}

/* False: it goes no further. */
static bool run_one(walk *w, const sm_handle *effect, const sm_undo *u)
{
    if (u->status == SM_UNDO_DOUBT)
        return stop(w, u, SEMEL_C_IN_DOUBT, semel_code_exit(SEMEL_C_IN_DOUBT), u->why);
    if (u->status == SM_UNDO_OPEN)
        return stop(w, u, SEMEL_C_RETRY_IN_FLIGHT, CLI_TRY_AGAIN, u->why);
    if (u->status != SM_UNDO_TODO || cli_undo_way_of(&w->u, u) == CLI_UNDO_BY_HAND)
        return true;
    sm_undo after;
    int code;
    switch (cli_undo_execute(&w->u, effect, u, &after, &code)) {
    case CLI_UNDO_OK:
        w->undone++;
        if (!w->u.l->o.json) {
            sm_buf line;
            sm_buf_init(&line, CLI_OUTPUT_MAX);
            sm_buf_printf(&line, "%.*s is undone by %.*s\n", SM_FMT(after.effect),
                          SM_FMT(after.undo));
            cli_write(&line);
            fflush(stdout);
            sm_buf_fini(&line);
        }
        return true;
    case CLI_UNDO_STOPPED: return stop(w, &after, w->u.say->code, code, w->u.say->message);
    case CLI_UNDO_FAILED: break;
    }
    w->exit = code;
    return false;
}

/* Goes through all effects, the newest first. */
static int go(walk *w)
{
    cli_ledger *l = w->u.l;
    uint64_t cursor = 0;
    sm_handle page[PAGE];
    do {
        size_t n;
        sm_fault fault = {0};
        sm_err e = sm_scope_effects(l->s, w->scope, &cursor, page, PAGE, &n, &fault);
        if (e != SM_OK)
            return cli_ledger_unavailable(l, e, &fault);
        for (size_t i = 0; i < n; i++) {
            sm_undo u;
            e = sm_undo_of(l->s, &page[i], l->a, &u);
            if (e == SEMEL_E_NOT_FOUND)
                continue; /* it was purged meanwhile */
            if (e != SM_OK)
                return cli_answer(l, e, "");
            if (!w->runs)
                count(w, &u);
            else if (!run_one(w, &page[i], &u))
                return w->stopped ? CLI_OK : w->exit;
        }
    } while (cursor != 0);
    return CLI_OK;
}

/* Looks once more, after it has run. */
static int look_again(walk *w, bool quiet)
{
    w->todo = w->hand = w->done = w->cannot = w->open = 0;
    w->runs = false;
    w->quiet = quiet;
    return go(w);
}

/* ---- the command -----------------------------------------------------------------------------*/

static void put_plan(walk *w, sm_buf *b)
{
    if (w->todo + w->hand + w->done + w->cannot + w->open == 0) {
        sm_buf_printf(b,
                      "%.*s has done nothing that could be undone. Runs below it: semel scope list "
                      "%.*s\n",
                      SM_FMT(w->scope), SM_FMT(w->scope));
        return;
    }
    cli_table_put(&w->table, 0, true, b);
    sm_buf_printf(b, "\n%zu to undo", w->todo);
    const struct {
        size_t n;
        const char *what;
    } rest[] = {{w->hand, "by hand"},
                {w->done, "undone already"},
                {w->cannot, "cannot be undone"},
                {w->open, "in doubt or running"}};
    for (size_t i = 0; i < sizeof rest / sizeof rest[0]; i++) {
        if (rest[i].n > 0)
            sm_buf_printf(b, ", %zu %s", rest[i].n, rest[i].what);
    }
    sm_buf_byte(b, '\n');
    if (w->by_hand.len > 0) {
        sm_buf_text(b, "\nBy hand, because nothing here can execute it:\n\n");
        sm_buf_str(b, sm_buf_view(&w->by_hand));
    }
}

static bool agreed(void)
{
    char line[16];
    if (!isatty(STDIN_FILENO) || !isatty(STDOUT_FILENO))
        return false;
    fputs("\nUndo these, from the top? [y/N] ", stdout);
    fflush(stdout);
    return fgets(line, sizeof line, stdin) != NULL && (line[0] == 'y' || line[0] == 'Y');
}

/* "semel: CODE: ..." and what is left. */
static int explain_stop(walk *w)
{
    if (!w->stopped)
        return w->hand + w->cannot > 0 ? CLI_DIFFERENT : CLI_OK;
    fprintf(stderr, "semel: %s: stopped at %s",
            w->code == SEMEL_C_NONE ? "FAILED" : semel_code_name(w->code), w->at);
    if (w->undo[0] != '\0')
        fprintf(stderr, ", whose undo is %s", w->undo);
    fputs(": ", stderr);
    cli_print(stderr, sm_str_from(w->why));
    fprintf(stderr, "\n  %zu left to undo. ", w->todo + w->hand + w->open);
    const char *in_doubt = w->undo[0] != '\0' ? w->undo : w->at;
    if (w->code == SEMEL_C_IN_DOUBT)
        fprintf(stderr, "Find out what happened to %s, semel resolve it, then run this again.\n",
                in_doubt);
    else if (w->code == SEMEL_C_AWAITING_APPROVAL)
        fprintf(stderr, "semel show %s has the request: approve it, then run this again.\n",
                in_doubt);
    else if (w->stays)
        fprintf(stderr,
                "Its failure is replayed. Put right what is wrong, semel forget %s, then run this "
                "again.\n",
                w->undo);
    else
        fputs("Run this again to go on.\n", stderr);
    return w->exit;
}

static void put_json_end(walk *w, bool ran)
{
    sm_buf *b = w->out;
    sm_buf_byte(b, ']');
    sm_put_number(b, "todo", w->todo + w->hand);
    if (ran)
        sm_put_number(b, "undone", w->undone);
    if (w->stopped) {
        sm_put_open(b, "stopped", '{');
        sm_put_text(b, "effect", sm_str_from(w->at));
        if (w->undo[0] != '\0')
            sm_put_text(b, "undo", sm_str_from(w->undo));
        sm_put_text(b, "code",
                    sm_str_from(w->code == SEMEL_C_NONE ? "FAILED" : semel_code_name(w->code)));
        sm_put_text(b, "message", sm_str_from(w->why));
        sm_buf_byte(b, '}');
    }
    sm_buf_text(b, "}\n");
}

static int for_programs(walk *w, const options *o)
{
    int code = CLI_OK;
    w->runs = o->yes;
    if (o->yes)
        code = go(w);
    sm_buf_byte(w->out, '{');
    sm_put_text(w->out, "scope", w->scope);
    sm_put_open(w->out, "items", '[');
    if (code == CLI_OK)
        code = look_again(w, false);
    if (code != CLI_OK) {
        sm_buf_clear(w->out);
        return code;
    }
    put_json_end(w, o->yes);
    return o->yes ? explain_stop(w) : CLI_OK;
}

static int for_people(walk *w, const options *o)
{
    int code = look_again(w, false);
    if (code != CLI_OK)
        return code;
    put_plan(w, w->out);
    code = cli_write(w->out);
    sm_buf_clear(w->out);
    fflush(stdout);
    if (code != CLI_OK || w->todo + w->open == 0)
        return code != CLI_OK || !o->yes ? code : explain_stop(w);
    if (!o->yes && !agreed()) {
        fputs("Nothing was undone. Run it with --yes.\n", stderr);
        return CLI_OK;
    }
    fputc('\n', stdout);
    w->runs = true;
    code = go(w);
    if (code == CLI_OK)
        code = look_again(w, true);
    if (code != CLI_OK)
        return code;
    if (!w->stopped)
        sm_buf_printf(w->out, "%zu undone\n", w->undone);
    return explain_stop(w);
}

static int undo(cli_ledger *l, void *own)
{
    static const cli_column columns[] = {{"EFFECT", CLI_WHOLE, false},
                                         {"TOOL", CLI_SHRINKS, false},
                                         {"", CLI_WHOLE, false},
                                         {"UNDO", CLI_WRAPS, false}};
    const options *o = own;
    walk w = {.scope = sm_str_from(o->scope), .out = &l->out};
    int code = cli_undoing_init(&w.u, l, l->command);
    cli_table_init(&w.table, columns, sizeof columns / sizeof columns[0]);
    sm_buf_init(&w.by_hand, CLI_OUTPUT_MAX);
    if (code == CLI_OK)
        code = l->o.json ? for_programs(&w, o) : for_people(&w, o);
    sm_buf_fini(&w.by_hand);
    cli_table_fini(&w.table);
    cli_undoing_fini(&w.u);
    return code;
}

static int check(const cli_command *self, cli_ledger *l, const char *argument, void *own)
{
    (void)l;
    options *o = own;
    o->scope = argument;
    if (*argument == '\0' || strlen(argument) > SM_SCOPE_MAX)
        return cli_usage(self, "a scope has 1 to %u bytes", SM_SCOPE_MAX);
    return CLI_OK;
}

static const struct option table[] = {
    CLI_FLAG("yes", options, yes),
    {"contract", required_argument, NULL, CLI_O_CONTRACT},
    CLI_LEDGER_OPTIONS,
    {0},
};

const cli_command cli_scope_undo = {
    .name = "scope undo",
    .summary = "undo what a run did, the newest effect first",
    .help =
        "  semel scope undo shop/agent-7/run-42                  # shows the plan\n"
        "  semel scope undo shop/agent-7/run-42 --yes            # runs it\n"
        "  semel scope undo notes --yes -- npx -y @modelcontextprotocol/server-filesystem ~/notes\n\n"
        "Usage: semel scope undo SCOPE [--yes] [-- MCP SERVER COMMAND...]\n\n"
        "  --yes                    run the plan; else it is shown, and on a terminal asked\n" CLI_CONTRACT_HELP
            CLI_LEDGER_HELP
        "  --json                   the plan, and what became of it, as one JSON object\n\n"
        "What undoes a tool is its contract's `compensate`. Every effect of exactly this scope\n"
        "that has succeeded is undone once: each undo is an effect of its own, with the key\n"
        "undo:ef_... of what it undoes. Tools with an upstream are called from here, tools of an\n"
        "MCP server through `semel mcp` with the command behind \"--\"; for others it is printed\n"
        "what to do. It stops at an effect that is in doubt or running, at an undo that is in\n"
        "doubt, awaits approval or has failed. Run it again to go on: what is undone stays undone.\n\n"
        "An undo runs although its scope, its run or everything is stopped, and although a budget\n"
        "or a limit is used up; not if its own tool is stopped, or its circuit is open. Stop the run\n"
        "first, so that it does nothing more meanwhile.\n\n"
        "Exit code: 0 all is undone, or the plan was shown; 1 something cannot be undone, must be\n"
        "done by hand, or its undo has failed; 75 try again later, or approve first; 76 in doubt.\n",
    .run = cli_ledger_run,
    .ledger =
        &(const cli_ledger_use){
            .own = &(options){0},
            .table = table,
            .argument = "one SCOPE; an MCP server's command goes behind \"--\"",
            .required = true,
            .command = true,
            .check = check,
            .flags = CLI_CONTRACT | CLI_STAYS,
            .work = undo,
        },
};
