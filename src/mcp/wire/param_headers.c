/*
 * Headers that repeat the body: how values travel, which arguments are marked, and whether both
 * say the same. Nothing here sends or refuses anything.
 */
#include "mcp/param_headers.h"

#include <string.h>

#include "base/base64.h"
#include "base/header.h"
#include "base/utf8.h"
#include "json/number.h"

#define ARG_NAME_MAX 1024u /* bytes of an argument's name */

static const char sentinel[] = "=?base64?", sentinel_end[] = "?=";

const char *mcp_name_member(const char *method)
{
    static const struct {
        const char *method, *member;
    } table[] = {
        {"tools/call", "name"},  {"prompts/get", "name"},    {"resources/read", "uri"},
        {"tasks/get", "taskId"}, {"tasks/update", "taskId"}, {"tasks/cancel", "taskId"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (strcmp(method, table[i].method) == 0)
            return table[i].member;
    }
    return NULL;
}

/* ---- values ----------------------------------------------------------------------------------*/

static bool blank(char c)
{
    return c == ' ' || c == '\t';
}

static bool has_sentinel(sm_str s)
{
    size_t before = sizeof sentinel - 1, after = sizeof sentinel_end - 1;
    return s.n >= before + after && memcmp(s.p, sentinel, before) == 0 &&
           memcmp(s.p + s.n - after, sentinel_end, after) == 0;
}

static bool wants_base64(sm_str s)
{
    if (s.n == 0 || blank(s.p[0]) || blank(s.p[s.n - 1]) || has_sentinel(s))
        return true;
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] != '\t' && (s.p[i] < 0x20 || s.p[i] > 0x7E))
            return true;
    }
    return false;
}

void mcp_header_put(sm_buf *out, sm_str value)
{
    if (!wants_base64(value)) {
        sm_buf_str(out, value);
        return;
    }
    sm_buf_text(out, sentinel);
    sm_base64_put(out, value);
    sm_buf_text(out, sentinel_end);
}

bool mcp_header_take(sm_buf *out, sm_str value)
{
    while (value.n > 0 && blank(value.p[0]))
        value = (sm_str){value.p + 1, value.n - 1};
    while (value.n > 0 && blank(value.p[value.n - 1]))
        value.n--;
    if (!has_sentinel(value)) {
        sm_buf_str(out, value);
        return true;
    }
    size_t from = out->len, before = sizeof sentinel - 1;
    sm_str inside = {value.p + before, value.n - before - (sizeof sentinel_end - 1)};
    if (!sm_base64_take(out, inside))
        return false;
    if (out->len > from && !sm_utf8_valid((sm_str){out->p + from, out->len - from})) {
        out->len = from;
        return false;
    }
    return true;
}

/* ---- marked arguments ------------------------------------------------------------------------*/

/* Integers that some readers would round are not repeated: nobody could compare them. In canonical
 * form these are the ones with many digits, and all that have a positive exponent. */
static bool safe_number(sm_str text)
{
    size_t sign = text.n > 0 && text.p[0] == '-';
    sm_str digits = {text.p + sign, text.n - sign};
    static const char most[] = "9007199254740991";
    if (memchr(digits.p, '+', digits.n) != NULL)
        return false;
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] < '0' || digits.p[i] > '9')
            return true; /* a fraction */
    }
    return digits.n < sizeof most - 1 ||
           (digits.n == sizeof most - 1 && memcmp(digits.p, most, digits.n) <= 0);
}

/* One argument, if it is of a kind that is repeated. */
static void tell(sm_str header, sm_str value, mcp_param_fn *each, void *context)
{
    char text[MCP_REPEATED_MAX + 1];
    sm_str given;
    bool number = value.n > 0 && (value.p[0] == '-' || (value.p[0] >= '0' && value.p[0] <= '9'));
    if (!sm_header_name(header) || header.n > MCP_PARAM_MAX || value.n == 0)
        return;
    if (sm_raw_is_string(value)) {
        if (!sm_raw_text(value, text, sizeof text))
            return;
        given = sm_str_from(text);
    } else if (number) {
        given = (sm_str){text, sm_number_canonical(value, text)};
        if (given.n == 0 || !safe_number(given))
            return;
    } else if (value.p[0] == 't' || value.p[0] == 'f') {
        given = value;
    } else {
        return; /* null, or something with parts */
    }
    each(context, header, given, number);
}

void mcp_params_each(const sm_json *schema, sm_str arguments, mcp_param_fn *each, void *context)
{
    const sm_json *properties = sm_json_find(schema, SM_STR("properties"));
    if (properties == NULL || properties->type != SM_JSON_OBJECT || !sm_raw_is_object(arguments))
        return;
    const sm_json *name = properties + 1;
    for (uint32_t i = 0; i < properties->len; i++, name = sm_json_next(name + 1)) {
        const sm_json *property = name + 1;
        const sm_json *header = sm_json_find(property, SM_STR("x-mcp-header"));
        bool deeper = sm_json_find(property, SM_STR("properties")) != NULL;
        char text[ARG_NAME_MAX];
        sm_str value;
        if ((header == NULL && !deeper) || name->len >= sizeof text ||
            memchr(name->text, '\0', name->len) != NULL)
            continue;
        memcpy(text, name->text, name->len);
        text[name->len] = '\0';
        if (!sm_raw_find(arguments, text, &value))
            continue;
        if (header != NULL && header->type == SM_JSON_STRING)
            tell(sm_json_text(header), value, each, context);
        if (deeper) /* the schema's depth is bounded by its reader */
            mcp_params_each(property, value, each, context);
    }
}

/* ---- marks that can be heeded ----------------------------------------------------------------*/

typedef struct marks {
    sm_str names[MCP_REPEATED_ARGS];
    size_t n;
} marks;

static bool mark_is_sound(const marks *all, const sm_json *property, const sm_json *header)
{
    static const char *const types[] = {"string", "integer", "boolean", "number"};
    const sm_json *type = sm_json_find(property, SM_STR("type"));
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        known = known || (type != NULL && type->type == SM_JSON_STRING &&
                          sm_str_is(sm_json_text(type), types[i]));
    if (!known || header->type != SM_JSON_STRING || !sm_header_name(sm_json_text(header)) ||
        header->len > MCP_PARAM_MAX || all->n == MCP_REPEATED_ARGS)
        return false;
    for (size_t i = 0; i < all->n; i++) {
        if (sm_header_is(all->names[i], sm_json_text(header)))
            return false;
    }
    return true;
}

/* Whether every mark is on a plain property and has a name of its own. */
static bool marks_are_sound(marks *all, const sm_json *schema)
{
    const sm_json *properties = sm_json_find(schema, SM_STR("properties"));
    if (properties == NULL || properties->type != SM_JSON_OBJECT)
        return true;
    const sm_json *name = properties + 1;
    for (uint32_t i = 0; i < properties->len; i++, name = sm_json_next(name + 1)) {
        const sm_json *property = name + 1;
        const sm_json *header = sm_json_find(property, SM_STR("x-mcp-header"));
        if (header != NULL && !mark_is_sound(all, property, header))
            return false;
        if (header != NULL)
            all->names[all->n++] = sm_json_text(header);
        if (!marks_are_sound(all, property))
            return false;
    }
    return true;
}

/* ---- comparing -------------------------------------------------------------------------------*/

typedef struct comparison {
    const sm_http_field *headers;
    size_t header_count;
    bool differs;
    sm_str header; /* the first that does */
} comparison;

/* The one header of that name. False if there is none, or more than one. */
static bool find_one(const comparison *c, sm_str name, sm_str *value)
{
    size_t prefix = sizeof MCP_PARAM_PREFIX - 1, found = 0;
    for (size_t i = 0; i < c->header_count; i++) {
        sm_str full = c->headers[i].name;
        if (full.n != prefix + name.n ||
            !sm_header_is((sm_str){full.p, prefix}, SM_STR(MCP_PARAM_PREFIX)) ||
            !sm_header_is((sm_str){full.p + prefix, name.n}, name))
            continue;
        *value = c->headers[i].value;
        found++;
    }
    return found == 1;
}

/* Whether two numbers are the same, however the header writes it: 42.0 is 42. */
static bool same_number(sm_str given, sm_str text)
{
    char canonical[SM_NUMBER_MAX];
    size_t sign = given.n > 0 && given.p[0] == '-', digits = 0, dots = 0;
    for (size_t i = sign; i < given.n; i++) {
        if (given.p[i] == '.' && i > sign && i + 1 < given.n)
            dots++;
        else if (given.p[i] >= '0' && given.p[i] <= '9')
            digits++;
    }
    bool plain = digits > 0 && dots <= 1 && sign + digits + dots == given.n;
    bool padded = given.n > sign + 1 && given.p[sign] == '0' && given.p[sign + 1] != '.';
    if (!plain || padded || given.n > MCP_REPEATED_MAX)
        return false;
    return sm_str_eq((sm_str){canonical, sm_number_canonical(given, canonical)}, text);
}

static void compare(void *context, sm_str header, sm_str text, bool number)
{
    comparison *c = context;
    sm_str value;
    sm_buf given;
    if (c->differs)
        return;
    sm_buf_init(&given, 2 * MCP_REPEATED_MAX);
    c->differs = !find_one(c, header, &value) || !mcp_header_take(&given, value) ||
                 given.err != SM_OK ||
                 (!sm_str_eq(sm_buf_view(&given), text) &&
                  !(number && same_number(sm_buf_view(&given), text)));
    if (c->differs)
        c->header = header;
    sm_buf_fini(&given);
}

bool mcp_params_fit(const mcp_tool *tool, sm_str arguments, const sm_http_field *headers,
                    size_t header_count, sm_str *header)
{
    marks all = {.n = 0};
    comparison c = {.headers = headers, .header_count = header_count};
    *header = (sm_str){0};
    if (tool == NULL || tool->schema == NULL || arguments.p == NULL ||
        !marks_are_sound(&all, tool->schema) || all.n == 0)
        return true;
    mcp_params_each(tool->schema, arguments, compare, &c);
    *header = c.header;
    return !c.differs;
}
