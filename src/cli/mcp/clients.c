/*
 * MCP clients: where each keeps its configuration, and what that looks like.
 *
 * All of them take a command and its words, in JSON under one name or another, or in TOML.
 */
#include "cli/mcp/clients.h"

#include <string.h>

#include "base/limits.h"
#include "json/canon.h"

/* ---- snippets --------------------------------------------------------------------------------*/

static void put_text(sm_buf *b, const char *text)
{
    sm_json_put_string(b, sm_str_from(text));
}

static void put_args(sm_buf *b, const cli_mcp_entry *e)
{
    sm_buf_byte(b, '[');
    for (size_t i = 1; i < e->n; i++) {
        sm_buf_text(b, i == 1 ? "" : ", ");
        put_text(b, e->words[i]);
    }
    sm_buf_byte(b, ']');
}

static void put_json(sm_buf *b, const cli_mcp_entry *e, const char *member, bool type)
{
    sm_buf_printf(b, "{\n  \"%s\": {\n    ", member);
    put_text(b, e->name);
    sm_buf_printf(b, ": {\n%s      \"command\": ", type ? "      \"type\": \"stdio\",\n" : "");
    put_text(b, e->words[0]);
    sm_buf_text(b, ",\n      \"args\": ");
    put_args(b, e);
    for (size_t i = 0; i < e->env_count; i++) {
        sm_buf_printf(b, "%s\"%s\": ", i == 0 ? ",\n      \"env\": { " : ", ", e->env[i].name);
        put_text(b, e->env[i].value);
    }
    sm_buf_text(b, e->env_count > 0 ? " }\n" : "\n");
    sm_buf_text(b, "    }\n  }\n}\n");
}

static void put_servers(sm_buf *b, const cli_mcp_entry *e)
{
    put_json(b, e, "mcpServers", false);
}

static void put_typed_servers(sm_buf *b, const cli_mcp_entry *e)
{
    put_json(b, e, "mcpServers", true);
}

static void put_vscode(sm_buf *b, const cli_mcp_entry *e)
{
    put_json(b, e, "servers", true);
}

/* A string of TOML is one of JSON, but for DEL. */
static void put_toml_text(sm_buf *b, const char *text)
{
    sm_buf json;
    sm_buf_init(&json, SM_ARENA_MAX);
    put_text(&json, text);
    for (size_t i = 0; i < json.len; i++) {
        if (json.p[i] == 0x7F)
            sm_buf_text(b, "\\u007F");
        else
            sm_buf_byte(b, json.p[i]);
    }
    if (json.err != SM_OK)
        b->err = json.err;
    sm_buf_fini(&json);
}

static void put_codex(sm_buf *b, const cli_mcp_entry *e)
{
    const char *bare = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    sm_buf_text(b, "[mcp_servers.");
    if (strspn(e->name, bare) == strlen(e->name))
        sm_buf_text(b, e->name);
    else
        put_toml_text(b, e->name);
    sm_buf_text(b, "]\ncommand = ");
    put_toml_text(b, e->words[0]);
    sm_buf_text(b, "\nargs = [");
    for (size_t i = 1; i < e->n; i++) {
        sm_buf_text(b, i == 1 ? "" : ", ");
        put_toml_text(b, e->words[i]);
    }
    sm_buf_text(b, "]\n");
    for (size_t i = 0; i < e->env_count; i++) {
        sm_buf_printf(b, "%s%s = ", i == 0 ? "env = { " : ", ", e->env[i].name);
        put_toml_text(b, e->env[i].value);
    }
    sm_buf_text(b, e->env_count > 0 ? " }\n" : "");
}

/* A word as a shell reads it. */
static void put_shell(sm_buf *b, const char *word)
{
    const char *safe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=@%+,";
    if (*word != '\0' && strspn(word, safe) == strlen(word)) {
        sm_buf_text(b, word);
        return;
    }
    sm_buf_byte(b, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'')
            sm_buf_text(b, "'\\''");
        else
            sm_buf_byte(b, *word);
    }
    sm_buf_byte(b, '\'');
}

/* --env takes any number of values, so an option stands between it and the name. */
static void put_claude_add(sm_buf *b, const cli_mcp_entry *e)
{
    sm_buf_text(b, "claude mcp add");
    for (size_t i = 0; i < e->env_count; i++) {
        sm_buf_printf(b, " --env %s=", e->env[i].name);
        put_shell(b, e->env[i].value);
    }
    sm_buf_text(b, " --transport stdio ");
    put_shell(b, e->name);
    sm_buf_text(b, " --");
    for (size_t i = 0; i < e->n; i++) {
        sm_buf_byte(b, ' ');
        put_shell(b, e->words[i]);
    }
    sm_buf_byte(b, '\n');
}

/* ---- clients ---------------------------------------------------------------------------------*/

typedef void put_fn(sm_buf *b, const cli_mcp_entry *e);

static const struct client {
    const char *name, *title, *where;
    put_fn *put;   /* what goes into the file */
    put_fn *shell; /* a command that does the same; NULL: there is none */
} clients[] = {
    {"claude-desktop", "Claude Desktop",
     "claude_desktop_config.json (Settings, Developer, Edit Config), which is in\n"
     "  macOS    ~/Library/Application Support/Claude/\n"
     "  Windows  %APPDATA%\\Claude\\\n"
     "  Linux    ~/.config/Claude/\n",
     put_servers, NULL},
    {"claude-code", "Claude Code", ".mcp.json in a project's directory\n", put_typed_servers,
     put_claude_add},
    {"cursor", "Cursor", ".cursor/mcp.json in a project's directory, or ~/.cursor/mcp.json\n",
     put_typed_servers, NULL},
    {"vscode", "VS Code",
     ".vscode/mcp.json in a project's directory, or \"MCP: Open User Configuration\"\n", put_vscode,
     NULL},
    {"codex", "Codex", "~/.codex/config.toml\n", put_codex, NULL},
};
#define CLIENTS (sizeof clients / sizeof clients[0])

bool cli_mcp_client_known(const char *name)
{
    for (size_t i = 0; i < CLIENTS; i++) {
        if (strcmp(name, clients[i].name) == 0)
            return true;
    }
    return false;
}

/* `talk` is where people are told what the snippet in `out` is for: the same place, or stderr. */
static void put_client(sm_buf *out, sm_buf *talk, FILE *to, const struct client *c,
                       const cli_mcp_entry *e)
{
    sm_buf_printf(talk, "%s%s%s: %s\n", cli_color(to, CLI_BOLD), c->title, cli_color(to, CLI_PLAIN),
                  c->where);
    c->put(out, e);
    if (c->shell == NULL)
        return;
    sm_buf_printf(talk, "%sThe same by a command:\n\n", talk == out ? "\n" : "");
    c->shell(talk, e);
}

int cli_mcp_clients_print(const cli_mcp_entry *e, const char *only)
{
    sm_buf out, talk;
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_buf_init(&talk, SM_ARENA_MAX);
    for (size_t i = 0; i < CLIENTS; i++) {
        if (only == NULL)
            put_client(&out, &out, stdout, &clients[i], e);
        else if (strcmp(only, clients[i].name) == 0)
            put_client(&out, &talk, stderr, &clients[i], e);
        if (only == NULL && i + 1 < CLIENTS)
            sm_buf_byte(&out, '\n');
    }
    if (talk.len > 0)
        fwrite(talk.p, 1, talk.len, stderr);
    int code = cli_write(&out);
    sm_buf_fini(&talk);
    sm_buf_fini(&out);
    return code;
}
