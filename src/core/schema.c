/* Reading a schema by table, and walking a value beside it. Recursion follows the schema, whose
 * depth the contract's limits bound. */
#include "core/schema.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/fold.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "json/canon.h"
#include "json/diff.h"

enum {
    TYPE_NULL = 1,
    TYPE_BOOLEAN = 2,
    TYPE_NUMBER = 4,
    TYPE_INTEGER = 8,
    TYPE_STRING = 16,
    TYPE_ARRAY = 32,
    TYPE_OBJECT = 64,
};

static const char *const type_names[] = {"null",   "boolean", "number", "integer",
                                         "string", "array",   "object", NULL};

typedef struct property {
    sm_str name;
    const sm_schema *schema;
} property;

typedef struct properties {
    const property *v;
    uint32_t n;
} properties;

typedef struct names {
    const sm_str *v;
    uint32_t n;
} names;

typedef struct bound {
    bool given;
    sm_decimal value;
    sm_str text;
} bound;

/* Whether members that `properties` does not list are allowed, and if so how they must look. */
typedef struct additional {
    bool forbidden;
    const sm_schema *schema;
} additional;

struct sm_schema {
    unsigned types; /* 0: any */
    names required;
    properties properties;
    additional additional;
    const sm_json *choices; /* enum's list */
    bound minimum, maximum;
    int64_t min_length, max_length; /* max -1: none */
    const sm_pattern *pattern;
    sm_str pattern_text;
    const sm_schema *items;
    sm_str title, description; /* accepted, not used */
};

static void read_schema(sm_loader *l, const sm_json *value, void *out);

static void read_type(sm_loader *l, const sm_json *value, void *out)
{
    static const sm_field one = {.name = "type", .kind = SM_KIND_ENUM, .names = type_names};
    unsigned *types = out;
    bool list = value->type == SM_JSON_ARRAY && value->len > 0;
    const sm_json *item = list ? value + 1 : value;
    for (uint32_t i = 0; i < (list ? value->len : 1); i++, item = sm_json_next(item)) {
        int type;
        if (sm_field_read(l, &one, item, &type))
            *types |= 1u << type;
    }
}

static void read_required(sm_loader *l, const sm_json *value, void *out)
{
    names *list = out;
    if (value->type != SM_JSON_ARRAY || value->len > SM_PROPERTIES_MAX) {
        sm_complain(l, value, "required: expected a list of names, found %s", sm_found(l, value));
        return;
    }
    sm_str *v = sm_loader_alloc(l, value->len, sizeof *v);
    if (v == NULL)
        return;
    const sm_json *item = value + 1;
    uint32_t n = 0;
    for (uint32_t i = 0; i < value->len; i++, item = sm_json_next(item)) {
        if (item->type == SM_JSON_STRING)
            v[n++] = sm_json_text(item);
        else
            sm_complain(l, item, "required: expected a name, found %s", sm_found(l, item));
    }
    *list = (names){v, n};
}

static void read_properties(sm_loader *l, const sm_json *value, void *out)
{
    properties *list = out;
    if (value->type != SM_JSON_OBJECT) {
        sm_complain(l, value, "properties: expected a mapping of names to schemas, found %s",
                    sm_found(l, value));
        return;
    }
    if (value->len > SM_PROPERTIES_MAX) {
        sm_complain(l, value, "a schema may have at most %u properties", SM_PROPERTIES_MAX);
        return;
    }
    property *v = sm_loader_alloc(l, value->len, sizeof *v);
    if (v == NULL)
        return;
    const sm_json *name = value + 1;
    for (uint32_t i = 0; i < value->len; i++, name = sm_json_next(name + 1)) {
        v[i].name = sm_json_text(name);
        read_schema(l, name + 1, &v[i].schema);
    }
    *list = (properties){v, value->len};
}

static void read_additional(sm_loader *l, const sm_json *value, void *out)
{
    additional *a = out;
    if (value->type == SM_JSON_FALSE)
        a->forbidden = true;
    else if (value->type == SM_JSON_OBJECT)
        read_schema(l, value, &a->schema);
    else if (value->type != SM_JSON_TRUE)
        sm_complain(l, value, "additionalProperties: expected true, false or a schema, found %s",
                    sm_found(l, value));
}

static void read_choices(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type != SM_JSON_ARRAY || value->len == 0)
        sm_complain(l, value, "enum: expected a list of values, found %s",
                    value->type == SM_JSON_ARRAY ? "an empty one" : sm_found(l, value));
    else if (sm_check_plain(l, value))
        *(const sm_json **)out = value;
}

static void read_bound(sm_loader *l, const sm_json *value, void *out)
{
    bound *b = out;
    if (value->type == SM_JSON_NUMBER) {
        b->text = sm_json_text(value);
        b->given = sm_check_plain(l, value) && sm_decimal_parse(b->text, &b->value);
    } else {
        sm_complain(l, value, "minimum and maximum take a number, found %s", sm_found(l, value));
    }
}

static void read_pattern(sm_loader *l, const sm_json *value, void *out)
{
    *(const sm_pattern **)out = sm_read_pattern(l, value, false);
}

#define LENGTH_MAX ((int64_t)1 << 30)
static const sm_field schema_fields[] = {
    {"type", SM_KIND_CUSTOM, SM_FIELD(sm_schema, types), .read = read_type},
    {"required", SM_KIND_CUSTOM, SM_FIELD(sm_schema, required), .read = read_required},
    {"properties", SM_KIND_CUSTOM, SM_FIELD(sm_schema, properties), .read = read_properties},
    {"additionalProperties", SM_KIND_CUSTOM, SM_FIELD(sm_schema, additional),
     .read = read_additional},
    {"enum", SM_KIND_CUSTOM, SM_FIELD(sm_schema, choices), .read = read_choices},
    {"minimum", SM_KIND_CUSTOM, SM_FIELD(sm_schema, minimum), .read = read_bound},
    {"maximum", SM_KIND_CUSTOM, SM_FIELD(sm_schema, maximum), .read = read_bound},
    {"minLength", SM_KIND_COUNT, SM_FIELD(sm_schema, min_length), .max = LENGTH_MAX},
    {"maxLength", SM_KIND_COUNT, SM_FIELD(sm_schema, max_length), .max = LENGTH_MAX},
    {"pattern", SM_KIND_CUSTOM, SM_FIELD(sm_schema, pattern), .read = read_pattern},
    {"items", SM_KIND_CUSTOM, SM_FIELD(sm_schema, items), .read = read_schema},
    {"title", SM_KIND_STRING, SM_FIELD(sm_schema, title)},
    {"description", SM_KIND_STRING, SM_FIELD(sm_schema, description)},
};
static const sm_schema schema_defaults = {.max_length = -1};
static const sm_group schema_group = {schema_fields, sizeof schema_fields / sizeof schema_fields[0],
                                      .defaults = &schema_defaults, .size = sizeof(sm_schema)};

static void read_schema(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type != SM_JSON_OBJECT) {
        sm_complain(l, value, "a schema is a mapping such as { type: string }, found %s",
                    sm_found(l, value));
        return;
    }
    sm_schema *s = sm_loader_alloc(l, 1, sizeof *s);
    if (s == NULL)
        return;
    *s = schema_defaults;
    sm_group_read(l, &schema_group, "a schema (use fill for defaults)", value, s, NULL);
    const sm_json *pattern = sm_json_find(value, SM_STR("pattern"));
    if (pattern != NULL)
        s->pattern_text = sm_json_text(pattern);
    *(const sm_schema **)out = s;
}

void sm_schema_read(sm_loader *l, const sm_json *value, void *out)
{
    read_schema(l, value, out);
}

sm_str sm_schema_property(const sm_schema *schema, uint32_t i)
{
    return schema != NULL && i < schema->properties.n ? schema->properties.v[i].name : (sm_str){0};
}

/* Where the walk is, and where it puts its complaint. */
typedef struct check {
    sm_buf path;
    sm_fault *fault;
} check;

static bool misfit(check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool misfit(check *c, const char *format, ...)
{
    char why[300];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    sm_fault_set(c->fault, SEMEL_E_BAD_ARGUMENTS, "%.*s: %s",
                 c->path.len == 0 ? 13 : (int)c->path.len,
                 c->path.len == 0 ? "the arguments" : c->path.p, why);
    return false;
}

static unsigned type_of(const sm_json *v)
{
    switch (v->type) {
    case SM_JSON_NULL: return TYPE_NULL;
    case SM_JSON_TRUE:
    case SM_JSON_FALSE: return TYPE_BOOLEAN;
    case SM_JSON_STRING: return TYPE_STRING;
    case SM_JSON_ARRAY: return TYPE_ARRAY;
    case SM_JSON_OBJECT: return TYPE_OBJECT;
    default: break;
    }
    sm_decimal d;
    bool integer = sm_decimal_parse(sm_json_text(v), &d) && sm_decimal_integer(&d);
    return integer ? TYPE_NUMBER | TYPE_INTEGER : TYPE_NUMBER;
}

static bool check_type(check *c, const sm_schema *s, const sm_json *v)
{
    if (s->types == 0 || s->types & type_of(v))
        return true;
    char list[100] = "";
    for (int i = 0; type_names[i] != NULL; i++) {
        size_t n = strlen(list);
        if (s->types & 1u << i)
            snprintf(list + n, sizeof list - n, "%s%s", n == 0 ? "" : " or ", type_names[i]);
    }
    return misfit(c, "must be %s, not %s", list, sm_json_type_name(v));
}

static bool check_choice(check *c, const sm_schema *s, const sm_json *v)
{
    if (s->choices == NULL)
        return true;
    const sm_json *item = s->choices + 1;
    for (uint32_t i = 0; i < s->choices->len; i++, item = sm_json_next(item)) {
        if (sm_json_equal(v, item))
            return true;
    }
    sm_buf b;
    sm_buf_init(&b, 4096);
    sm_json_canon(s->choices, &b, (sm_str){0}, NULL);
    misfit(c, "must be one of %.*s%s", b.len > 150 ? 150 : (int)b.len, b.p,
           b.len > 150 ? "..." : "");
    sm_buf_fini(&b);
    return false;
}

static bool check_number(check *c, const sm_schema *s, const sm_json *v)
{
    sm_decimal d;
    if (v->type != SM_JSON_NUMBER || !sm_decimal_parse(sm_json_text(v), &d))
        return true;
    if (s->minimum.given && sm_decimal_compare(&d, &s->minimum.value) < 0)
        return misfit(c, "must be at least %.*s", SM_FMT(s->minimum.text));
    if (s->maximum.given && sm_decimal_compare(&d, &s->maximum.value) > 0)
        return misfit(c, "must be at most %.*s", SM_FMT(s->maximum.text));
    return true;
}

static bool check_string(check *c, const sm_schema *s, const sm_json *v)
{
    if (v->type != SM_JSON_STRING)
        return true;
    int64_t n = (int64_t)sm_utf8_count(sm_json_text(v));
    if (n < s->min_length)
        return misfit(c, "must have at least %" PRId64 " characters, has %" PRId64, s->min_length,
                      n);
    if (s->max_length >= 0 && n > s->max_length)
        return misfit(c, "must have at most %" PRId64 " characters, has %" PRId64, s->max_length,
                      n);
    if (s->pattern != NULL && !sm_pattern_can(sm_json_text(v)))
        return misfit(c, "is too long, or has a NUL in it, to be matched with a pattern");
    if (s->pattern != NULL && !sm_pattern_matches(s->pattern, sm_json_text(v)))
        return misfit(c, "must match %.*s", SM_FMT(s->pattern_text));
    return true;
}

static bool check_value(check *c, const sm_schema *s, const sm_json *v);

static const sm_schema *property_schema(const sm_schema *s, sm_str name, bool *known)
{
    for (uint32_t i = 0; i < s->properties.n; i++) {
        if (sm_str_eq(s->properties.v[i].name, name)) {
            *known = true;
            return s->properties.v[i].schema;
        }
    }
    *known = false;
    return s->additional.schema;
}

/* The property that some readers take this name for (base/fold.h); absent: none. */
static sm_str rival_of(const sm_schema *s, sm_str name)
{
    for (uint32_t i = 0; i < s->properties.n; i++) {
        if (sm_fold_alike_word(s->properties.v[i].name, name))
            return s->properties.v[i].name;
    }
    return (sm_str){0};
}

static bool check_object(check *c, const sm_schema *s, const sm_json *v)
{
    if (v->type != SM_JSON_OBJECT)
        return true;
    size_t length = c->path.len;
    for (uint32_t i = 0; i < s->required.n; i++) {
        if (sm_json_find(v, s->required.v[i]) != NULL)
            continue;
        sm_pointer_put_token(&c->path, s->required.v[i]);
        return misfit(c, "is required");
    }
    const sm_json *name = v + 1;
    for (uint32_t i = 0; i < v->len; i++, name = sm_json_next(name + 1)) {
        bool known;
        const sm_schema *inner = property_schema(s, sm_json_text(name), &known);
        sm_pointer_put_token(&c->path, sm_json_text(name));
        if (!known && s->additional.forbidden)
            return misfit(c, "is not an argument of this tool");
        sm_str meant = known ? (sm_str){0} : rival_of(s, sm_json_text(name));
        if (meant.p != NULL)
            return misfit(c, "is not \"%.*s\", but some tools take it for that", SM_FMT(meant));
        if (!check_value(c, inner, name + 1))
            return false;
        c->path.len = length;
    }
    return true;
}

static bool check_array(check *c, const sm_schema *s, const sm_json *v)
{
    if (v->type != SM_JSON_ARRAY || s->items == NULL)
        return true;
    size_t length = c->path.len;
    const sm_json *item = v + 1;
    for (uint32_t i = 0; i < v->len; i++, item = sm_json_next(item)) {
        sm_buf_printf(&c->path, "/%u", i);
        if (!check_value(c, s->items, item))
            return false;
        c->path.len = length;
    }
    return true;
}

static bool check_value(check *c, const sm_schema *s, const sm_json *v)
{
    return s == NULL || (check_type(c, s, v) && check_choice(c, s, v) && check_number(c, s, v) &&
                         check_string(c, s, v) && check_object(c, s, v) && check_array(c, s, v));
}

sm_err sm_schema_check(const sm_schema *schema, const sm_json *value, sm_fault *fault)
{
    sm_fault ignored;
    check c = {.fault = fault == NULL ? &ignored : fault};
    sm_buf_init(&c.path, SM_JSON_BYTES_MAX);
    bool fits = check_value(&c, schema, value);
    sm_buf_fini(&c.path);
    return fits ? SM_OK : SEMEL_E_BAD_ARGUMENTS;
}
