/* libyaml's events, turned into nodes in preorder. */
#include "json/yaml.h"

#include <stdio.h>
#include <yaml.h>

#include "base/decimal.h"
#include "base/utf8.h"
#include "json/tree.h"

typedef struct builder {
    sm_arena *arena;
    const sm_json_limits *limits;
    sm_str text;
    size_t start; /* of the YAML in the text: behind a byte-order mark, if there is one */
    sm_json *nodes;
    uint32_t used;
    uint32_t cap;
    sm_json *stack[SM_JSON_DEPTH_MAX]; /* open containers */
    uint32_t depth;
    bool want_key; /* the innermost container is a mapping, and its next node is a key */
    /* libyaml counts characters; this is how far they have been counted in bytes. */
    size_t mark_index;
    size_t mark_byte;
    sm_fault *fault;
} builder;

static sm_err fail(builder *b, sm_err code, size_t at, const char *sentence)
{
    sm_fault_set(b->fault, code, "%s", sentence);
    if (b->fault != NULL) {
        b->fault->at = at;
        sm_str yaml = {b->text.p + b->start, b->text.n - b->start};
        sm_text_position(yaml, at - b->start, &b->fault->line, &b->fault->column);
    }
    return code;
}

/* Marks come in ascending order, but for errors: start over for those that do not. */
static size_t byte_offset(builder *b, size_t index)
{
    if (index < b->mark_index) {
        b->mark_index = 0;
        b->mark_byte = b->start;
    }
    while (b->mark_index < index && b->mark_byte < b->text.n) {
        size_t step =
            sm_utf8_step((const unsigned char *)b->text.p + b->mark_byte, b->text.n - b->mark_byte);
        b->mark_byte += step == 0 ? 1 : step;
        b->mark_index++;
    }
    return b->mark_byte;
}

static bool one_of(sm_str s, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (sm_str_is(s, *words))
            return true;
    }
    return false;
}

/* How many characters of `s` from `at` on are of `set`. */
static size_t span_of(sm_str s, size_t at, const char *set)
{
    size_t n = 0;
    while (at + n < s.n && memchr(set, s.p[at + n], strlen(set)) != NULL)
        n++;
    return n;
}

/* 0x1F, 0o17, 0b101. */
static bool looks_prefixed(sm_str s)
{
    const char *digits = s.n <= 2 || s.p[0] != '0' ? NULL
                         : s.p[1] == 'x'           ? "0123456789abcdefABCDEF_"
                         : s.p[1] == 'o'           ? "01234567_"
                         : s.p[1] == 'b'           ? "01_"
                                                   : NULL;
    return digits != NULL && span_of(s, 2, digits) == s.n - 2;
}

/* 12:30:45 and 1:30.5, which YAML 1.1 counts in sixties. */
static bool looks_sexagesimal(sm_str s)
{
    size_t at = span_of(s, 0, "0123456789_"), parts = 0;
    if (at == 0)
        return false;
    for (; at < s.n && s.p[at] == ':'; parts++) {
        size_t digits = span_of(s, at + 1, "0123456789");
        if (digits == 0 || digits > 2 || (digits == 2 && s.p[at + 1] > '5'))
            return false;
        at += 1 + digits;
    }
    if (at < s.n && s.p[at] == '.')
        at += 1 + span_of(s, at + 1, "0123456789_");
    return parts > 0 && at == s.n;
}

/* Whether a plain scalar that is no JSON number looks like a number to people or to YAML 1.1. */
static bool looks_numeric(sm_str s)
{
    size_t i = s.n > 0 && (s.p[0] == '-' || s.p[0] == '+');
    if (i == s.n)
        return false;
    sm_str rest = {s.p + i, s.n - i};
    static const char *const special[] = {".inf", ".Inf", ".INF", ".nan", ".NaN", ".NAN", NULL};
    if (one_of(rest, special) || looks_prefixed(rest) || looks_sexagesimal(rest))
        return true;
    bool digit = false;
    for (i = 0; i < rest.n; i++) {
        char c = rest.p[i];
        bool exponent = digit && (c == 'e' || c == 'E' || c == '+' || c == '-');
        if (c >= '0' && c <= '9')
            digit = true;
        else if (c != '.' && c != '_' && !exponent)
            return false;
    }
    /* Dates and versions have digits and dots too, but more dots or inner signs than a number. */
    const char *dot = memchr(rest.p, '.', rest.n);
    bool dots = dot != NULL && memchr(dot + 1, '.', rest.n - (size_t)(dot + 1 - rest.p)) != NULL;
    bool sign = memchr(rest.p, '-', rest.n) != NULL && memchr(rest.p, 'e', rest.n) == NULL &&
                memchr(rest.p, 'E', rest.n) == NULL;
    return digit && !dots && !sign;
}

static void resolve_plain(sm_json *v)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const trues[] = {"true", "True", "TRUE", NULL};
    static const char *const falses[] = {"false", "False", "FALSE", NULL};
    static const char *const words[] = {"yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON",
                                        "off", "Off", "OFF", "y",  "Y",  "n",  "N",  NULL};
    sm_str s = sm_json_text(v);
    sm_decimal number;
    if (one_of(s, nulls))
        v->type = SM_JSON_NULL;
    else if (one_of(s, trues))
        v->type = SM_JSON_TRUE;
    else if (one_of(s, falses))
        v->type = SM_JSON_FALSE;
    else if (sm_decimal_parse(s, &number))
        v->type = SM_JSON_NUMBER;
    else if (one_of(s, words) || looks_numeric(s))
        v->flags |= SM_JSON_AMBIGUOUS;
}

static sm_json *push(builder *b, sm_json_type type, size_t at)
{
    if (b->used == b->cap) {
        fail(b, SEMEL_E_LIMIT, at, "too many values in one document");
        return NULL;
    }
    sm_json *v = &b->nodes[b->used++];
    *v = (sm_json){.type = (uint8_t)type, .span = 1, .at = (uint32_t)at};
    return v;
}

/* Counts a finished value into the container around it. */
static void finish_value(builder *b)
{
    if (b->depth == 0)
        return;
    sm_json *open = b->stack[b->depth - 1];
    open->len++;
    b->want_key = open->type == SM_JSON_OBJECT;
}

static sm_err on_scalar(builder *b, const yaml_event_t *event, size_t at)
{
    bool key = b->want_key;
    sm_json *v = push(b, SM_JSON_STRING, at);
    if (v == NULL)
        return SEMEL_E_LIMIT;
    sm_str text = {(const char *)event->data.scalar.value, event->data.scalar.length};
    sm_str copy = sm_arena_text(b->arena, text);
    if (copy.p == NULL)
        return fail(b, SEMEL_E_NOMEM, at, semel_err_text(SEMEL_E_NOMEM));
    v->text = copy.p;
    v->len = (uint32_t)copy.n;
    v->flags = SM_JSON_WIDE; /* it may be */
    if (key && sm_str_is(copy, "<<") && event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        return fail(b, SEMEL_E_SYNTAX, at,
                    "merge keys (<<) are not supported; write the fields out");
    if (key) {
        b->want_key = false;
        return SM_OK;
    }
    if (event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        resolve_plain(v);
    finish_value(b);
    return SM_OK;
}

static sm_err on_start(builder *b, sm_json_type type, size_t at)
{
    if (b->want_key)
        return fail(b, SEMEL_E_SYNTAX, at, "a key must be a plain or quoted text");
    if (b->depth == b->limits->depth) {
        char why[64];
        snprintf(why, sizeof why, "nested too deeply: at most %u levels", b->limits->depth);
        return fail(b, SEMEL_E_LIMIT, at, why);
    }
    sm_json *v = push(b, type, at);
    if (v == NULL)
        return SEMEL_E_LIMIT;
    b->stack[b->depth++] = v;
    b->want_key = type == SM_JSON_OBJECT;
    return SM_OK;
}

static sm_err on_end(builder *b)
{
    sm_json *v = b->stack[--b->depth];
    v->span = (uint32_t)(&b->nodes[b->used] - v);
    if (v->type == SM_JSON_OBJECT) {
        const sm_json *again = NULL;
        sm_err e = sm_json_close_object(b->arena, v, &again);
        if (e == SEMEL_E_DUPLICATE)
            return fail(b, e, again->at, "this key is given twice in the same mapping");
        if (e != SM_OK)
            return fail(b, e, v->at, semel_err_text(e));
    }
    finish_value(b);
    return SM_OK;
}

static bool has_tag(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT: return event->data.scalar.tag != NULL;
    case YAML_SEQUENCE_START_EVENT: return event->data.sequence_start.tag != NULL;
    case YAML_MAPPING_START_EVENT: return event->data.mapping_start.tag != NULL;
    default: return false;
    }
}

static bool has_anchor(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_ALIAS_EVENT: return true;
    case YAML_SCALAR_EVENT: return event->data.scalar.anchor != NULL;
    case YAML_SEQUENCE_START_EVENT: return event->data.sequence_start.anchor != NULL;
    case YAML_MAPPING_START_EVENT: return event->data.mapping_start.anchor != NULL;
    default: return false;
    }
}

static sm_err on_event(builder *b, const yaml_event_t *event, unsigned *documents)
{
    size_t at = byte_offset(b, event->start_mark.index);
    if (has_tag(event))
        return fail(b, SEMEL_E_SYNTAX, at,
                    "tags (!...) are not supported; write the value plainly");
    if (has_anchor(event))
        return fail(b, SEMEL_E_SYNTAX, at,
                    "anchors and aliases are not supported; write the value out");
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if ((*documents)++ > 0)
            return fail(b, SEMEL_E_SYNTAX, at, "more than one document in the file");
        return SM_OK;
    case YAML_SCALAR_EVENT: return on_scalar(b, event, at);
    case YAML_SEQUENCE_START_EVENT: return on_start(b, SM_JSON_ARRAY, at);
    case YAML_MAPPING_START_EVENT: return on_start(b, SM_JSON_OBJECT, at);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT: return on_end(b);
    default: return SM_OK;
    }
}

/* libyaml's own complaint, with its position and context. */
static sm_err fail_parser(builder *b, const yaml_parser_t *parser)
{
    char sentence[SEMEL_FAULT_TEXT_MAX];
    if (parser->error == YAML_MEMORY_ERROR)
        return fail(b, SEMEL_E_NOMEM, b->start, semel_err_text(SEMEL_E_NOMEM));
    if (parser->error == YAML_READER_ERROR) {
        snprintf(sentence, sizeof sentence, "not valid YAML text: %s", parser->problem);
        return fail(b, SEMEL_E_SYNTAX, b->start + parser->problem_offset, sentence);
    }
    snprintf(sentence, sizeof sentence, "not valid YAML: %s%s%s",
             parser->problem == NULL ? "unknown problem" : parser->problem,
             parser->context == NULL ? "" : ", ", parser->context == NULL ? "" : parser->context);
    return fail(b, SEMEL_E_SYNTAX, byte_offset(b, parser->problem_mark.index), sentence);
}

sm_err sm_yaml_read(sm_arena *a, sm_str text, const sm_json_limits *limits, const sm_json **root,
                    sm_fault *fault)
{
    *root = NULL;
    if (text.n == 0)
        text.p = ""; /* libyaml wants a pointer even to nothing */
    builder b = {.arena = a, .limits = limits, .text = text, .fault = fault};
    if (text.n > limits->bytes)
        return fail(&b, SEMEL_E_LIMIT, limits->bytes, "the file is too large");
    if (text.n >= 3 && memcmp(text.p, "\xEF\xBB\xBF", 3) == 0)
        b.start = b.mark_byte = 3; /* libyaml would take it for the first key's indentation */
    /* Every node takes a byte at least, but for the null of a key without value. */
    size_t most = 2 * text.n + 2;
    b.cap = most < limits->values ? (uint32_t)most : limits->values;
    b.nodes = sm_arena_alloc(a, b.cap * sizeof *b.nodes);
    if (b.nodes == NULL)
        return fail(&b, SEMEL_E_NOMEM, b.start, semel_err_text(SEMEL_E_NOMEM));
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return fail(&b, SEMEL_E_NOMEM, b.start, semel_err_text(SEMEL_E_NOMEM));
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text.p + b.start,
                                 text.n - b.start);

    sm_err e = SM_OK;
    unsigned documents = 0;
    for (bool more = true; more && e == SM_OK;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            e = fail_parser(&b, &parser);
            break;
        }
        more = event.type != YAML_STREAM_END_EVENT;
        e = on_event(&b, &event, &documents);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    if (e == SM_OK && b.used == 0)
        e = fail(&b, SEMEL_E_SYNTAX, b.start, "the file is empty");
    if (e == SM_OK)
        *root = b.nodes;
    return e;
}
