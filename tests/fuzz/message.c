/*
 * What peers of the MCP proxy send: bytes, lines of them, messages in these, and parts of those.
 *
 * The first two bytes decide how long a line may be, how the rest is cut into pieces, and where the
 * sink stops; the rest is the stream. Whatever comes, the lines are those that cutting the whole
 * stream at its line feeds gives, and what is told of one that is too long is what reading it would
 * have told.
 *
 * A message is held against the strict reader of JSON. Both know the same grammar, with three
 * differences: names that are there twice and escapes of half a surrogate pair are left to whoever
 * they are for, and the bounds are others. Where both have read a text, they find the same parts at
 * the same places. A text that is put together from parts is one again, and changing a member
 * changes no other.
 */
#include "fuzz.h"

#include "json/raw.h"
#include "mcp/message.h"
#include "mcp/wire/lines.h"

static void must_be_within(sm_str part, sm_str text)
{
    must(part.p == NULL ? part.n == 0 : part.p >= text.p && part.p + part.n <= text.p + text.n);
}

/* ---- parts -----------------------------------------------------------------------------------*/

/* A string means what the strict reader says that it means. */
static void must_mean(sm_str value, const sm_json *node)
{
    sm_str text = sm_json_text(node);
    char *out = malloc(text.n + 1);
    must(out != NULL);
    bool whole = sm_raw_text(value, out, text.n + 1);
    bool holds_nul = text.n > 0 && memchr(text.p, '\0', text.n) != NULL;
    must(whole == !holds_nul);
    if (whole) {
        must(strlen(out) == text.n && memcmp(out, text.p, text.n) == 0);
        must(sm_raw_is(value, out));
        must(text.n == 0 || !sm_raw_text(value, out, text.n));
    }
    free(out);
}

static void must_find(sm_str object, const sm_json *name, sm_str item)
{
    sm_str text = sm_json_text(name), found;
    if (text.n > 0 && memchr(text.p, '\0', text.n) != NULL)
        return;
    char *name_text = strndup(text.n > 0 ? text.p : "", text.n);
    must(name_text != NULL);
    must(sm_raw_find(object, name_text, &found));
    must(found.p == item.p && found.n == item.n);
    free(name_text);
}

/* Both readers see the same value: the tree is walked beside the text. */
static const sm_json *must_be_alike(sm_str value, const sm_json *node, const char *base)
{
    must((size_t)(value.p - base) == node->at);
    must(sm_raw_is_object(value) == (node->type == SM_JSON_OBJECT));
    must(sm_raw_is_string(value) == (node->type == SM_JSON_STRING));
    must(sm_raw_is_true(value) == (node->type == SM_JSON_TRUE));
    if (node->type == SM_JSON_STRING)
        must_mean(value, node);
    if (node->type == SM_JSON_NUMBER)
        must(sm_str_eq(value, sm_json_text(node)));
    const sm_json *next = node + 1;
    size_t cursor = 0;
    sm_str name, item;
    uint32_t count = 0;
    for (; sm_raw_next(value, &cursor, &name, &item); count++) {
        must(count < node->len);
        must((name.p != NULL) == (node->type == SM_JSON_OBJECT));
        if (name.p != NULL) {
            must_mean((sm_str){name.p - 1, name.n + 2}, next);
            must_find(value, next, item);
            next++;
        }
        next = must_be_alike(item, next, base);
    }
    must(count == (node->type >= SM_JSON_ARRAY ? node->len : 0));
    return next;
}

/* The next member that nobody takes for one of that name. */
static bool next_other(sm_str object, const char *but, size_t *cursor, sm_str *name, sm_str *item)
{
    while (sm_raw_next(object, cursor, name, item)) {
        if (sm_raw_word_like(*name, but) == SM_UNLIKE)
            return true;
    }
    return false;
}

static void must_be_changed(sm_str object, const char *name, sm_str value)
{
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_raw_put_with(&out, object, name, value);
    must(out.err == SM_OK);
    sm_str changed = sm_buf_view(&out), found;
    mcp_message m;
    mcp_read(changed, &m);
    must(m.code != MCP_E_JUNK && sm_raw_is_object(changed));
    must(sm_raw_find(changed, name, &found) == (value.p != NULL));
    must(value.p == NULL || sm_str_eq(found, value));
    size_t cursor[2] = {0, 0};
    sm_str names[2], items[2];
    while (next_other(object, name, &cursor[0], &names[0], &items[0])) {
        must(next_other(changed, name, &cursor[1], &names[1], &items[1]));
        must(sm_str_eq(names[0], names[1]) && sm_str_eq(items[0], items[1]));
    }
    must(!next_other(changed, name, &cursor[1], &names[1], &items[1]));

    /* What is set already is set again without a change. */
    sm_buf again;
    sm_buf_init(&again, SM_ARENA_MAX);
    sm_raw_put_with(&again, changed, name, value);
    must(sm_str_eq(sm_buf_view(&again), changed));
    sm_buf_fini(&again);
    sm_buf_fini(&out);
}

static void change(sm_str object)
{
    static const char *const names[] = {"id", "a", "_meta", ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        must_be_changed(object, names[i], SM_STR("{\"new\":[1]}"));
        must_be_changed(object, names[i], (sm_str){0});
    }
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_raw_put_edited(&out, object, NULL, 0);
    must(sm_str_eq(sm_buf_view(&out), object));
    sm_buf_fini(&out);
}

/* ---- messages --------------------------------------------------------------------------------*/

static void check_message(const mcp_message *m, sm_str text)
{
    must_be_within(m->text, text);
    must_be_within(m->id, m->text);
    must_be_within(m->params, m->text);
    must_be_within(m->result, m->text);
    must_be_within(m->error, m->text);
    must((m->kind == MCP_INVALID) == (m->flaw[0] != '\0'));
    must(m->code != MCP_E_JUNK || (m->kind == MCP_INVALID && m->id.p == NULL));
    must(memchr(m->method, '\0', sizeof m->method) != NULL);
    must(sm_utf8_valid(sm_str_from(m->method)) && sm_utf8_valid(sm_str_from(m->flaw)));
    must(m->id.n <= MCP_ID_MAX);
    switch (m->kind) {
    case MCP_REQUEST: must(m->id.p != NULL && m->result.p == NULL && m->error.p == NULL); break;
    case MCP_NOTIFICATION: must(m->id.p == NULL && m->result.p == NULL); break;
    case MCP_RESULT: must(m->id.p != NULL && m->result.p != NULL && m->error.p == NULL); break;
    case MCP_ERROR: must(m->error.p != NULL && m->result.p == NULL); break;
    case MCP_BATCH: must(m->text.p[0] == '[' && m->id.p == NULL); break;
    case MCP_INVALID: break;
    }
}

/* The six members are those that the tree has. */
static void must_be_its_members(const mcp_message *m, const sm_json *root)
{
    const sm_json *id = sm_json_find(root, SM_STR("id"));
    const sm_json *method = sm_json_find(root, SM_STR("method"));
    must((id != NULL) == (m->id.p != NULL));
    must(id == NULL || id->at == (size_t)(m->id.p - m->text.p));
    must((method != NULL) == (m->kind == MCP_REQUEST || m->kind == MCP_NOTIFICATION));
    if (method != NULL && method->len <= MCP_METHOD_MAX &&
        (method->len == 0 || memchr(method->text, '\0', method->len) == NULL))
        must(sm_str_is(sm_json_text(method), m->method));
    must((sm_json_find(root, SM_STR("params")) != NULL) == (m->params.p != NULL) || method == NULL);
}

/* A name as readers see it that ignore case, underscores and dashes: a second rule beside the one
 * that is tested, over decoded text. False if it has more than such names have. */
static bool plain_letters(sm_str name, char out[32])
{
    static const struct {
        const char *bytes;
        char letter;
    } folds[] = {{"\xC5\xBF", 's'}, {"\xE2\x84\xAA", 'k'}};
    size_t n = 0;
    for (size_t i = 0; i < name.n && n < 31; i++) {
        char c = name.p[i];
        for (size_t k = 0; k < 2; k++) {
            size_t length = strlen(folds[k].bytes);
            if (name.n - i >= length && memcmp(name.p + i, folds[k].bytes, length) == 0) {
                c = folds[k].letter;
                i += length - 1;
                break;
            }
        }
        if (c != '_' && c != '-' && c != '\0')
            out[n++] = c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
    }
    out[n] = '\0';
    return n < 31;
}

static bool names_one_of(const sm_json *object, const char *const *names)
{
    const sm_json *name = object + 1;
    for (uint32_t i = 0; i < object->len; i++, name = sm_json_next(name + 1)) {
        char letters[32];
        sm_str text = sm_json_text(name);
        if (!plain_letters(text, letters))
            continue;
        for (const char *const *each = names; *each != NULL; each++)
            if (strcmp(letters, **each == '_' ? *each + 1 : *each) == 0 && !sm_str_is(text, *each))
                return true;
    }
    return false;
}

/* Who reads leniently never sees another message, nor another call, in what was taken for one. */
static void must_refuse_likeness(const mcp_message *m, const sm_json *root, sm_str text)
{
    static const char *const of_message[] = {"jsonrpc", "id",    "method", "params",
                                             "result",  "error", NULL};
    static const char *const of_call[] = {"name", "arguments", "_meta", "task", NULL};
    mcp_message asked;
    bool good = mcp_read_client(text, &asked);
    must(!good || m->kind != MCP_INVALID);
    must(!names_one_of(root, of_message) || (m->kind == MCP_INVALID && !good));
    const sm_json *params = sm_json_find(root, SM_STR("params"));
    if (params != NULL && params->type == SM_JSON_OBJECT && strcmp(m->method, "tools/call") == 0)
        must(!names_one_of(params, of_call) || !good);
}

static void read_message(sm_str text, unsigned depth)
{
    mcp_message m;
    must(mcp_read(text, &m) == (m.kind != MCP_INVALID));
    check_message(&m, text);
    bool deep = strstr(m.flaw, "too deeply") != NULL, junk = m.code == MCP_E_JUNK;

    sm_arena a;
    sm_arena_init(&a, SM_ARENA_MAX);
    sm_json_limits limits = sm_json_default_limits;
    const sm_json *root = NULL;
    sm_fault f = {0};
    sm_err e = sm_json_read(&a, m.text, &limits, &root, &f);
    if (e == SM_OK) {
        must(!junk && !deep);
        must(must_be_alike(m.text, root, m.text.p) == root + root->span);
        if (m.kind != MCP_INVALID && m.kind != MCP_BATCH)
            must_be_its_members(&m, root);
        if (root->type == SM_JSON_OBJECT)
            must_refuse_likeness(&m, root, text);
    } else if (!junk && !deep) {
        must(e == SEMEL_E_DUPLICATE || e == SEMEL_E_LIMIT ||
             (e == SEMEL_E_SYNTAX && strstr(f.text, "surrogate") != NULL));
    }
    sm_arena_fini(&a);
    if (!junk && !deep && sm_raw_is_object(m.text))
        change(m.text);
    if (sm_raw_is_object(m.params))
        change(m.params);

    size_t cursor = 0;
    sm_str name, item;
    while (m.kind == MCP_BATCH && depth < 3 && sm_raw_next(m.text, &cursor, &name, &item))
        read_message(item, depth + 1);
}

/* ---- lines -----------------------------------------------------------------------------------*/

typedef struct stream {
    sm_str rest; /* of the whole, as yet untold */
    size_t line_max;
    uint32_t random;
} stream;

static uint32_t next_random(stream *s)
{
    s->random = s->random * 1664525u + 1013904223u;
    return s->random >> 16;
}

/* The next line that must be told of. */
static bool next_line(stream *s, sm_str *line)
{
    while (s->rest.n > 0) {
        const char *end = memchr(s->rest.p, '\n', s->rest.n);
        if (end == NULL)
            return false;
        *line = (sm_str){s->rest.p, (size_t)(end - s->rest.p)};
        s->rest = (sm_str){end + 1, s->rest.n - line->n - 1};
        if (line->n > 0 && line->p[line->n - 1] == '\r')
            line->n--;
        bool blank = true;
        for (size_t i = 0; i < line->n; i++)
            blank = blank && strchr(" \t\r", line->p[i]) != NULL && line->p[i] != '\0';
        if (!blank || line->n > s->line_max)
            return true;
    }
    return false;
}

/* What was told of a line without holding it is what is in it; escaped names are not seen. */
static void must_be_skimmed(const mcp_text_line *told, sm_str line)
{
    mcp_message m;
    must(told->id.n <= MCP_ID_MAX);
    if (!mcp_read(line, &m) || m.kind == MCP_BATCH || memchr(line.p, '\\', line.n) != NULL)
        return;
    bool null = m.id.n > 0 && m.id.p[0] == 'n';
    must(null ? told->id.p == NULL : sm_str_eq(told->id, m.id));
    must(told->request == (m.kind == MCP_REQUEST || m.kind == MCP_NOTIFICATION));
}

static bool take_line(void *context, const mcp_text_line *told)
{
    stream *s = context;
    sm_str line;
    must(next_line(s, &line));
    must(told->length == line.n);
    must(told->too_long == (line.n > s->line_max));
    if (told->too_long) {
        must_be_skimmed(told, line);
    } else {
        must(sm_str_eq(told->text, line));
        read_message(told->text, 0);
    }
    return next_random(s) % 4 != 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    sm_str text = input(data + 2, size - 2);
    stream s = {.rest = text, .line_max = data[0] < 0x80 ? 1u << 20 : (data[0] - 0x80u) * 4u};
    s.random = data[1];
    unsigned most = 1u << data[1] % 12;
    mcp_lines *l = mcp_lines_new(s.line_max);
    must(l != NULL);
    for (size_t at = 0, n; at < text.n; at += n) {
        n = 1 + next_random(&s) % most;
        if (n > text.n - at)
            n = text.n - at;
        bool stopped;
        must(mcp_lines_add(l, (sm_str){text.p + at, n}, take_line, &s, &stopped));
        while (stopped && next_random(&s) % 8 != 0)
            must(mcp_lines_add(l, (sm_str){0}, take_line, &s, &stopped));
        must(mcp_lines_held(l) <= at + n);
    }
    for (bool stopped = true; stopped;)
        must(mcp_lines_add(l, (sm_str){0}, take_line, &s, &stopped));
    sm_str line;
    must(!next_line(&s, &line));
    must(mcp_lines_held(l) <= s.rest.n);
    mcp_lines_free(l);

    /* And all of it as one message, line feeds and all. */
    read_message(text, 0);
    return 0;
}
