/*
 * Writing the contract that --suggest prints.
 *
 * Names and descriptions are the server's, and go into a file that people and a YAML reader look
 * at. Two writers make them harmless: one for comments, in which nothing may end the line, and one
 * for double-quoted scalars. What either does not know to be harmless is written as an escape.
 *
 * Nothing in the file makes a repeat run. A tool that sounds as if it only reads is not listed but
 * in a comment: as a listed write it would be answered from the record, and without the note that
 * an unlisted tool's replay has.
 *
 * A file that would be too large with everything in it is written without descriptions and hints on
 * what to decide.
 */
#include "mcp/suggest.h"

#include <strings.h>

#include "base/limits.h"
#include "base/utf8.h"
#include "json/pointer.h"
#include "mcp/reads.h"

#define DESCRIPTION_SHOWN 120u
#define COMMAND_SHOWN     400u
#define FIELDS_SHOWN      16u
#define POINTER_SHOWN     200u

/* ---- text from outside -----------------------------------------------------------------------*/

/* What is seen of it is what is there: no controls, no line ends of any kind, nothing that reorders
 * text or that takes no place. */
static bool plain_character(uint32_t c)
{
    if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD)
        return false;
    if (c == 0x061C || c == 0x180E || (c >= 0x200B && c <= 0x200F) || c == 0xFEFF)
        return false;
    if (c >= 0x2028 && c <= 0x202E) /* two of them end lines */
        return false;
    if ((c >= 0x2060 && c <= 0x206F) || (c >= 0xFFF0 && c <= 0xFFFB))
        return false;
    return (c & 0xFFFE) != 0xFFFE && (c < 0xE0000 || c > 0xE0FFF);
}

static uint32_t code_point(const unsigned char *p, size_t step)
{
    uint32_t c = step == 1 ? p[0] : step == 2 ? p[0] & 0x1Fu : step == 3 ? p[0] & 0x0Fu : p[0] & 7u;
    for (size_t i = 1; i < step; i++)
        c = c << 6 | (p[i] & 0x3Fu);
    return c;
}

/* Appends one character, or its escape in the notation of a double-quoted scalar, which reads well
 * in a comment too. Returns how many bytes of the text it was. */
static size_t put_character(sm_buf *out, sm_str text, bool quoted)
{
    const unsigned char *p = (const unsigned char *)text.p;
    size_t step = sm_utf8_step(p, text.n);
    uint32_t c = step == 0 ? p[0] : code_point(p, step);
    if (quoted && (c == '"' || c == '\\'))
        sm_buf_printf(out, "\\%c", (char)c);
    else if (step > 0 && plain_character(c))
        sm_buf_bytes(out, p, step);
    else
        sm_buf_printf(out, c < 0x100 ? "\\x%02X" : c < 0x10000 ? "\\u%04X" : "\\U%08X", c);
    return step == 0 ? 1 : step;
}

static bool blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* One line of a comment, at most so many bytes of the text; runs of blanks become one. */
static void put_comment(sm_buf *out, sm_str text, size_t most)
{
    sm_str start = sm_utf8_cut(text, most);
    size_t i = 0;
    while (i < start.n && blank(start.p[i]))
        i++;
    while (i < start.n) {
        sm_str rest = {start.p + i, start.n - i};
        if (!blank(rest.p[0])) {
            i += put_character(out, rest, false);
            continue;
        }
        while (i < start.n && blank(start.p[i]))
            i++;
        if (i < start.n)
            sm_buf_byte(out, ' ');
    }
    if (start.n < text.n)
        sm_buf_text(out, "...");
}

/* Whether a scalar means itself without quotes, in block and in flow context. Words that mean
 * something else to some reader are short. */
static bool bare(sm_str text)
{
    static const char *const words[] = {"y",  "n",   "yes",  "no",    "on",  "off",
                                        "ok", "nan", "true", "false", "null"};
    bool letter = false;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.p[i];
        bool is = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '/';
        letter |= is;
        if (!is && (i == 0 || !((c >= '0' && c <= '9') || c == '-' || c == '.')))
            return false;
    }
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (text.n == strlen(words[i]) && strncasecmp(text.p, words[i], text.n) == 0)
            return false;
    }
    return letter;
}

static void put_scalar(sm_buf *out, sm_str text)
{
    if (bare(text)) {
        sm_buf_str(out, text);
        return;
    }
    sm_buf_byte(out, '"');
    for (size_t i = 0; i < text.n;)
        i += put_character(out, (sm_str){text.p + i, text.n - i}, true);
    sm_buf_byte(out, '"');
}

/* ---- the head --------------------------------------------------------------------------------*/

static const char decide[] =
    "#\n"
    "# It is made of what the server says of its tools, and servers can be wrong: a hint never\n"
    "# permits running something again, only you can. Decide for each, and first for those that\n"
    "# sound as if they only read: until you list one as read, it is answered from the record for\n"
    "# a while.\n"
    "#\n"
    "#   class      read              it changes nothing: passed through, not remembered\n"
    "#              write             remembered; if nobody knows whether it happened, a person\n"
    "#                                says so, and until then it is not run again\n"
    "#              write_idempotent  doing it twice is as good as once: it may be run again\n"
    "#              irreversible      as write, remembered for longer; while one call of the tool\n"
    "#                                is in doubt, its others wait\n"
    "#   key        what makes two calls the same action: all arguments, unless you name some\n"
    "#   window     for how long an equal call gets the recorded answer instead of running:\n"
    "#              24h for a write and 7d for irreversible, unless you say something else\n"
    "#   on_repeat  replay (if you say nothing): an equal call gets the recorded answer;\n"
    "#              run: a client that has got the answer and asks again means it\n"
    "#   approval   whether a person must agree first: approval: { expires: 1h }\n"
    "#\n"
    "# Then:  semel contract check FILE\n"
    "#        semel mcp --contract FILE ";

static const char top[] =
    "\n"
    "version: 1\n"
    "\n"
    "# Tools that are not below, such as those that the server gets later: write (remembered for\n"
    "# 10m, with on_repeat: run; read if the server says that they only read), hold (a person must\n"
    "# approve each call) or hide (the client does not see them).\n"
    "unlisted: write\n";

static void put_head(sm_buf *out, const mcp_tools *t, sm_str server_name, const char *command_line)
{
    size_t left_out = mcp_tools_left_out(t);
    sm_buf_text(out, "# A contract to start from, for the tools of ");
    put_comment(out, server_name, COMMAND_SHOWN);
    sm_buf_byte(out, '\n');
    sm_buf_text(out, decide);
    put_comment(out, sm_str_from(command_line == NULL ? "-- COMMAND" : command_line),
                COMMAND_SHOWN);
    sm_buf_text(out, top);
    if (left_out > 0)
        sm_buf_printf(out,
                      "\n# %zu more that the server lists cannot be called: their names are empty, "
                      "longer than\n# %u bytes, or no text; or there are more than %u of them.\n",
                      left_out, SM_TOOL_MAX, MCP_TOOLS_MAX);
}

/* ---- one tool --------------------------------------------------------------------------------*/

static const char *reason(const mcp_hints *h)
{
    if (h->read_only)
        return "read # so the server says";
    if (h->idempotent)
        return "write # the server says that repeating is harmless: make it write_idempotent if you "
               "trust that";
    if (h->destructive && h->open_world)
        return "write # it may destroy something, or reach others: irreversible, if that cannot be "
               "undone";
    if (h->destructive)
        return "write # it may destroy something: irreversible, if that cannot be undone";
    if (h->open_world)
        return "write # it may reach others: irreversible, if that cannot be undone";
    return "write";
}

static void put_pointer(sm_buf *out, sm_str name)
{
    sm_buf pointer;
    sm_buf_init(&pointer, 3 * POINTER_SHOWN);
    sm_pointer_put_token(&pointer, name);
    put_scalar(out, sm_buf_view(&pointer));
    if (pointer.err != SM_OK)
        out->err = pointer.err;
    sm_buf_fini(&pointer);
}

/* What the schema demands is what most probably identifies a call. */
static void put_key(sm_buf *out, const mcp_tool *tool)
{
    const sm_json *required = sm_json_find(tool->schema, SM_STR("required"));
    if (required == NULL || required->type != SM_JSON_ARRAY)
        return;
    uint32_t shown = 0;
    const sm_json *item = required + 1;
    for (uint32_t i = 0; i < required->len && shown < FIELDS_SHOWN;
         i++, item = sm_json_next(item)) {
        if (item->type != SM_JSON_STRING || item->len > POINTER_SHOWN)
            continue;
        sm_buf_text(out, shown == 0 ? "    # key: { fields: [" : ", ");
        put_pointer(out, sm_json_text(item));
        shown++;
    }
    if (shown > 0)
        sm_buf_text(out, "] }\n");
}

/* Whether an argument's name sounds as if it made a call safe to repeat. */
static bool sounds_like_key(sm_str name)
{
    static const char *const names[] = {"idempotencykey",     "idempotencytoken", "idempotencyid",
                                        "clienttoken",        "clientrequestid",  "requestid",
                                        "clientrequesttoken", "dedupekey",        "deduplicationid",
                                        "deduplicationkey",   "transactionid",    "nonce"};
    char word[32];
    size_t n = 0;
    for (size_t i = 0; i < name.n && n < sizeof word; i++) {
        char c = name.p[i];
        if (c != '_' && c != '-')
            word[n++] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (n == strlen(names[i]) && memcmp(word, names[i], n) == 0)
            return true;
    }
    return false;
}

static void put_idempotency(sm_buf *out, const mcp_tool *tool)
{
    const sm_json *properties = sm_json_find(tool->schema, SM_STR("properties"));
    if (properties == NULL || properties->type != SM_JSON_OBJECT)
        return;
    const sm_json *name = properties + 1;
    for (uint32_t i = 0; i < properties->len; i++, name = sm_json_next(name + 1)) {
        if (!sounds_like_key(sm_json_text(name)))
            continue;
        sm_buf_text(out, "    # idempotency: { argument: ");
        put_pointer(out, sm_json_text(name));
        sm_buf_text(out, " } # only if the server promises to do a call with a known one once\n");
        return;
    }
}

/* A name that a contract would take for a pattern cannot be listed. */
static bool listable(sm_str name)
{
    for (size_t i = 0; i < name.n; i++) {
        if (memchr("*?[", name.p[i], 3) != NULL)
            return false;
    }
    return true;
}

/* Whether the user has to say first that it only reads. */
static bool open_question(const mcp_tool *tool)
{
    return !tool->hints.read_only && mcp_sounds_like_read(tool->name, tool->description);
}

static void put_tool(sm_buf *out, const mcp_tool *tool, bool brief)
{
    bool open = open_question(tool);
    if (!listable(tool->name)) {
        if (!brief) {
            sm_buf_text(out, "\n  # It cannot be listed, for its name would be a pattern: ");
            put_comment(out, tool->name, SM_TOOL_MAX);
            sm_buf_byte(out, '\n');
        }
        return;
    }
    if (brief && open)
        return;
    if (!brief && tool->description.n > 0) {
        sm_buf_text(out, "\n  # ");
        put_comment(out, tool->description, DESCRIPTION_SHOWN);
    }
    sm_buf_printf(out, "%s  %s", brief ? "" : "\n", open ? "# " : "");
    put_scalar(out, tool->name);
    if (open) {
        sm_buf_text(out, ": { class: read } # it sounds as if it only reads: if that is so, "
                         "uncomment this\n");
        return;
    }
    if (brief) {
        sm_buf_printf(out, ": { class: %s }\n", tool->hints.read_only ? "read" : "write");
        return;
    }
    sm_buf_printf(out, ":\n    class: %s\n", reason(&tool->hints));
    if (!tool->hints.read_only) {
        put_key(out, tool);
        put_idempotency(out, tool);
    }
}

/* ---- all of it -------------------------------------------------------------------------------*/

static sm_err put_contract(const mcp_tools *t, sm_str server_name, const char *command_line,
                           bool brief, sm_buf *out)
{
    bool listed = false, open = false;
    for (size_t i = 0; i < mcp_tools_count(t); i++) {
        const mcp_tool *tool = mcp_tools_at(t, i);
        listed |= listable(tool->name) && !open_question(tool);
        open |= listable(tool->name) && open_question(tool);
    }
    put_head(out, t, server_name, command_line);
    sm_buf_text(out, listed ? "\ntools:\n"
                     : open ? "\ntools: {} # take the braces away when you uncomment a tool\n"
                            : "\ntools: {}\n");
    for (size_t i = 0; i < mcp_tools_count(t); i++)
        put_tool(out, mcp_tools_at(t, i), brief);
    return out->err;
}

sm_err mcp_suggest_put(const mcp_tools *t, sm_str server_name, const char *command_line,
                       sm_buf *out)
{
    sm_buf text;
    sm_buf_init(&text, SM_CONTRACT_BYTES_MAX);
    sm_err e = put_contract(t, server_name, command_line, false, &text);
    if (e == SEMEL_E_LIMIT) {
        sm_buf_clear(&text);
        e = put_contract(t, server_name, command_line, true, &text);
    }
    if (e == SM_OK) {
        sm_buf_str(out, sm_buf_view(&text));
        e = out->err;
    }
    sm_buf_fini(&text);
    return e;
}
