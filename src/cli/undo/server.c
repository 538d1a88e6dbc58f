/*
 * The call of an undo by an MCP server: `semel mcp` is started in front of it, with the same ledger
 * and contracts, and asked as any MCP client would, with the caller's key. So the proxy begins,
 * executes and records, by its own rules.
 *
 * The proxy makes scopes of the form SCOPE/NAME, where NAME is the server's. So the last segment of
 * the scope that is undone is the server's name.
 */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "cli/undo/undo.h"
#include "json/json.h"
#include "json/write.h"

extern char **environ;

#define LINE_MAX_BYTES ((size_t)64 << 20)
#define PROTOCOL       "2025-06-18"

struct cli_undo_server {
    pid_t pid;
    int to, from;
    sm_buf in, out;
    size_t used; /* of `in`: the line that was read last */
    unsigned id;
};

/* ---- lines -----------------------------------------------------------------------------------*/

static bool write_line(cli_undo_server *s)
{
    sm_buf_byte(&s->out, '\n');
    if (s->out.err != SM_OK)
        return false;
    for (size_t at = 0; at < s->out.len;) {
        ssize_t n = write(s->to, s->out.p + at, s->out.len - at);
        if (n < 0 && errno != EINTR)
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* The next line, without its line feed, until the next is read. */
static bool read_line(cli_undo_server *s, sm_str *line)
{
    char piece[65536];
    if (s->used > 0) {
        memmove(s->in.p, s->in.p + s->used, s->in.len - s->used);
        s->in.len -= s->used;
        s->used = 0;
    }
    for (size_t seen = 0;;) {
        const char *end = s->in.len > seen ? memchr(s->in.p + seen, '\n', s->in.len - seen) : NULL;
        if (end != NULL) {
            *line = (sm_str){s->in.p, (size_t)(end - s->in.p)};
            s->used = line->n + 1;
            return true;
        }
        seen = s->in.len;
        ssize_t n = read(s->from, piece, sizeof piece);
        if (n == 0 || (n < 0 && errno != EINTR))
            return false;
        sm_buf_bytes(&s->in, piece, n > 0 ? (size_t)n : 0);
        if (s->in.err != SM_OK)
            return false;
    }
}

/* ---- messages --------------------------------------------------------------------------------*/

static void start_message(cli_undo_server *s, const char *method)
{
    sm_buf_clear(&s->out);
    sm_buf_printf(&s->out, "{\"jsonrpc\":\"2.0\",\"method\":\"%s\"", method);
}

/* The server asks something: pings are answered, and all else is unknown here. */
static bool turn_down(cli_undo_server *s, sm_str method, sm_str id)
{
    sm_buf_clear(&s->out);
    sm_buf_text(&s->out, "{\"jsonrpc\":\"2.0\"");
    sm_put_raw(&s->out, "id", id);
    sm_put_raw(&s->out, sm_str_is(method, "ping") ? "result" : "error",
               sm_str_is(method, "ping")
                   ? SM_STR("{}")
                   : SM_STR("{\"code\":-32601,\"message\":\"not available\"}"));
    sm_buf_byte(&s->out, '}');
    return write_line(s);
}

/* The text of a member as it was sent; absent if it is no number and no text. */
static sm_str id_text(sm_arena *a, const sm_json *id)
{
    if (id->type == SM_JSON_NUMBER)
        return (sm_str){id->text, id->len};
    if (id->type != SM_JSON_STRING)
        return (sm_str){0};
    sm_buf text;
    sm_buf_init(&text, LINE_MAX_BYTES);
    sm_json_put_string(&text, sm_json_text(id));
    sm_str out = sm_arena_text(a, sm_buf_view(&text));
    sm_buf_fini(&text);
    return out;
}

/* Whether a message is the answer to the request of that number; *result is what it says. */
static bool is_answer(const sm_json *m, unsigned id, const sm_json **result)
{
    char text[16];
    snprintf(text, sizeof text, "%u", id);
    const sm_json *of = sm_json_find(m, SM_STR("id"));
    if (sm_json_find(m, SM_STR("method")) != NULL || of == NULL || of->type != SM_JSON_NUMBER ||
        !sm_str_is((sm_str){of->text, of->len}, text))
        return false;
    *result = sm_json_find(m, SM_STR("result"));
    if (*result == NULL)
        *result = sm_json_find(m, SM_STR("error"));
    return true;
}

/* Waits for an answer, which lives in the arena. */
static bool await(cli_undo_server *s, sm_arena *a, unsigned id, const sm_json **result)
{
    sm_str line;
    while (read_line(s, &line)) {
        const sm_json *m = NULL;
        sm_arena_reset(a);
        if (sm_json_read(a, line, &sm_json_args_limits, &m, NULL) != SM_OK ||
            m->type != SM_JSON_OBJECT)
            continue;
        if (is_answer(m, id, result))
            return true;
        const sm_json *method = sm_json_find(m, SM_STR("method"));
        const sm_json *asked = sm_json_find(m, SM_STR("id"));
        if (method == NULL || asked == NULL || method->type != SM_JSON_STRING)
            continue;
        if (!turn_down(s, sm_json_text(method), id_text(a, asked)))
            return false;
    }
    return false;
}

static bool greet(cli_undo_server *s)
{
    sm_arena a;
    const sm_json *result;
    sm_arena_init(&a, LINE_MAX_BYTES);
    start_message(s, "initialize");
    sm_buf_printf(&s->out,
                  ",\"id\":%u,\"params\":{\"protocolVersion\":\"" PROTOCOL
                  "\",\"capabilities\":{},\"clientInfo\":{\"name\":\"semel-undo\",\"version\":"
                  "\"" SEMEL_VERSION_STRING "\"}}}",
                  ++s->id);
    bool ok = write_line(s) && await(s, &a, s->id, &result);
    sm_arena_fini(&a);
    start_message(s, "notifications/initialized");
    sm_buf_byte(&s->out, '}');
    return ok && write_line(s);
}

/* What a result says to its reader: the texts of its content, or the error's message. */
static void put_said(sm_buf *out, const sm_json *result)
{
    const sm_json *message = sm_json_find(result, SM_STR("message"));
    const sm_json *content = sm_json_find(result, SM_STR("content"));
    if (message != NULL && message->type == SM_JSON_STRING)
        sm_buf_str(out, sm_json_text(message));
    if (content == NULL || content->type != SM_JSON_ARRAY)
        return;
    const sm_json *item = content + 1;
    for (uint32_t i = 0; i < content->len; i++, item = sm_json_next(item)) {
        const sm_json *text =
            item->type == SM_JSON_OBJECT ? sm_json_find(item, SM_STR("text")) : NULL;
        if (text != NULL && text->type == SM_JSON_STRING) {
            if (out->len > 0)
                sm_buf_byte(out, '\n');
            sm_buf_str(out, sm_json_text(text));
        }
    }
}

bool cli_undo_server_call(cli_undo_server *s, const semel_call *call, sm_buf *said)
{
    sm_arena a;
    const sm_json *result = NULL;
    sm_arena_init(&a, LINE_MAX_BYTES);
    start_message(s, "tools/call");
    sm_put_number(&s->out, "id", ++s->id);
    sm_put_open(&s->out, "params", '{');
    sm_put_text(&s->out, "name", call->tool);
    sm_put_raw(&s->out, "arguments", call->args);
    sm_put_text(&s->out, "idempotencyKey", call->key);
    sm_buf_text(&s->out, "}}");
    bool ok = write_line(s) && await(s, &a, s->id, &result);
    if (ok && result != NULL && result->type == SM_JSON_OBJECT)
        put_said(said, result);
    sm_arena_fini(&a);
    return ok;
}

/* ---- the process -----------------------------------------------------------------------------*/

/* SCOPE/NAME in its parts; false if the proxy cannot make such a scope. */
static bool split(sm_str scope, char base[SM_SCOPE_MAX + 1], char name[SM_SCOPE_MAX + 1])
{
    size_t cut = scope.n;
    while (cut > 0 && scope.p[cut - 1] != '/')
        cut--;
    if (scope.n > SM_SCOPE_MAX || scope.n == cut)
        return false;
    snprintf(name, SM_SCOPE_MAX + 1, "%.*s", (int)(scope.n - cut), scope.p + cut);
    snprintf(base, SM_SCOPE_MAX + 1, "%.*s", cut > 0 ? (int)cut - 1 : 0, scope.p);
    return cut != 1;
}

static bool start(const char *const *argv, cli_undo_server *s)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1};
    posix_spawn_file_actions_t actions;
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 ||
        posix_spawn_file_actions_init(&actions) != 0)
        return false; /* the program ends */
    posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
    int e = posix_spawn(&s->pid, "/proc/self/exe", &actions, NULL, (char *const *)(uintptr_t)argv,
                        environ);
    posix_spawn_file_actions_destroy(&actions);
    close(in[0]);
    close(out[1]);
    s->to = in[1];
    s->from = out[0];
    return e == 0;
}

int cli_undo_server_start(const cli_ledger *l, sm_str scope, char **command, cli_undo_server **out)
{
    char base[SM_SCOPE_MAX + 1], name[SM_SCOPE_MAX + 1];
    *out = NULL;
    if (!split(scope, base, name))
        return cli_fail(CLI_USAGE, "the scope %.*s is not of an MCP server, which is SCOPE/NAME",
                        SM_FMT(scope));
    size_t words = 0;
    while (command[words] != NULL)
        words++;
    const char **argv = calloc(words + 16, sizeof *argv);
    cli_undo_server *s = calloc(1, sizeof *s);
    if (argv == NULL || s == NULL) {
        free(argv);
        free(s);
        return cli_fail(CLI_INTERNAL, "%s", semel_err_text(SEMEL_E_NOMEM));
    }
    size_t n = 0;
    const struct {
        const char *option, *value;
    } options[] = {{"--name", name},
                   {"--scope", *base == '\0' ? NULL : base},
                   {"--ledger", l->o.url},
                   {"--contract", l->o.contract},
                   {"--seal-key", l->o.seal_key}};
    argv[n++] = "semel";
    argv[n++] = "mcp";
    argv[n++] = "--undoes";
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        if (options[i].value == NULL)
            continue;
        argv[n++] = options[i].option;
        argv[n++] = options[i].value;
    }
    argv[n++] = "--";
    memcpy(argv + n, command, words * sizeof *command);
    s->to = s->from = -1;
    sm_buf_init(&s->in, LINE_MAX_BYTES);
    sm_buf_init(&s->out, LINE_MAX_BYTES);
    bool ok = start(argv, s) && greet(s);
    free(argv);
    if (!ok) {
        cli_undo_server_stop(s);
        return cli_fail(CLI_UNAVAILABLE, "the MCP server does not answer");
    }
    *out = s;
    return CLI_OK;
}

void cli_undo_server_stop(cli_undo_server *s)
{
    if (s == NULL)
        return;
    if (s->to >= 0)
        close(s->to);
    if (s->from >= 0)
        close(s->from);
    while (s->pid > 0 && waitpid(s->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    sm_buf_fini(&s->in);
    sm_buf_fini(&s->out);
    free(s);
}
