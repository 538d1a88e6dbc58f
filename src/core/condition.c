/* Reading and evaluating conditions. Values are compared in canonical form, amounts exactly. */
#include "core/condition.h"

#include "json/diff.h"
#include "json/number.h"

enum { EQUALS = 1, IN = 2, OVER = 4, UNDER = 8, MATCHES = 16, BEGINS = 32, EXISTS = 64 };

/* An amount to compare with. One that is written as a string also compares with strings. */
typedef struct bound {
    sm_decimal value;
    bool text;
} bound;

struct sm_condition {
    sm_pointer field;
    const sm_json *equals;
    const sm_json *in; /* a list */
    bound over;
    bound under;
    const sm_pattern *matches;
    const sm_json *begins; /* a list of texts */
    bool exists;
    unsigned operators;
};

static void read_any(sm_loader *l, const sm_json *value, void *out)
{
    if (sm_check_plain(l, value))
        *(const sm_json **)out = value;
}

static void read_list(sm_loader *l, const sm_json *value, void *out)
{
    if (value->type != SM_JSON_ARRAY || value->len == 0)
        sm_complain(l, value, "in: expected a list of values such as [usd, eur], found %s",
                    value->type == SM_JSON_ARRAY ? "an empty one" : sm_found(l, value));
    else
        read_any(l, value, out);
}

static void read_bound(sm_loader *l, const sm_json *value, void *out)
{
    bound *b = out;
    bool text = value->type == SM_JSON_STRING;
    char number[SM_NUMBER_MAX];
    if ((text || value->type == SM_JSON_NUMBER) &&
        sm_decimal_parse(sm_json_text(value), &b->value) &&
        sm_number_canonical(sm_json_text(value), number) != 0) {
        b->text = text;
        return;
    }
    sm_complain(l, value, "over and under take a number such as 50000 or \"49.99\", found %s",
                sm_found(l, value));
}

static void read_matches(sm_loader *l, const sm_json *value, void *out)
{
    *(const sm_pattern **)out = sm_read_pattern(l, value, true);
}

static void read_begins(sm_loader *l, const sm_json *value, void *out)
{
    bool right = value->type == SM_JSON_ARRAY && value->len > 0;
    const sm_json *item = value + 1;
    for (uint32_t i = 0; right && i < value->len; i++, item = sm_json_next(item))
        right = item->type == SM_JSON_STRING && item->len > 0;
    if (right)
        *(const sm_json **)out = value;
    else
        sm_complain(l, value, "begins: expected a list of texts such as [query, \"{\"], found %s",
                    value->type == SM_JSON_ARRAY ? "a list with something else in it"
                                                 : sm_found(l, value));
}

static const sm_field condition_fields[] = {
    {"field", SM_KIND_POINTER, SM_FIELD(sm_condition, field), .flags = SM_FIELD_REQUIRED},
    {"equals", SM_KIND_CUSTOM, SM_FIELD(sm_condition, equals), .read = read_any},
    {"in", SM_KIND_CUSTOM, SM_FIELD(sm_condition, in), .read = read_list},
    {"over", SM_KIND_CUSTOM, SM_FIELD(sm_condition, over), .read = read_bound},
    {"under", SM_KIND_CUSTOM, SM_FIELD(sm_condition, under), .read = read_bound},
    {"matches", SM_KIND_CUSTOM, SM_FIELD(sm_condition, matches), .read = read_matches},
    {"begins", SM_KIND_CUSTOM, SM_FIELD(sm_condition, begins), .read = read_begins},
    {"exists", SM_KIND_SWITCH, SM_FIELD(sm_condition, exists)},
};
#define CONDITION_FIELDS (sizeof condition_fields / sizeof condition_fields[0])

/* The operators' bits are those of their rows behind `field`. */
static const sm_group condition_group = {condition_fields, CONDITION_FIELDS, .defaults = NULL,
                                         .size = sizeof(sm_condition)};

static bool read_condition(sm_loader *l, const sm_json *item, sm_condition *c)
{
    if (item->type != SM_JSON_OBJECT) {
        sm_complain(l, item,
                    "a condition is a mapping such as { field: /amount, over: 100 }, found %s",
                    sm_found(l, item));
        return false;
    }
    uint64_t seen;
    uint32_t errors = l->report->errors;
    sm_group_read(l, &condition_group, "a condition", item, c, &seen);
    c->operators = (unsigned)(seen >> 1);
    if (l->report->errors != errors)
        return false;
    if (c->operators == 0) {
        sm_complain(l, item,
                    "a condition needs an operator: equals, in, over, under, matches, "
                    "begins or exists");
        return false;
    }
    if (c->operators & EXISTS && !c->exists && c->operators != EXISTS) {
        sm_complain(l, item,
                    "exists: false leaves nothing for the other operators to look at; "
                    "write them as a condition of their own");
        return false;
    }
    return true;
}

void sm_conditions_read(sm_loader *l, const sm_json *value, void *out)
{
    sm_conditions *list = out;
    if (value->type != SM_JSON_ARRAY || value->len == 0 || value->len > SM_POINTERS_MAX) {
        sm_complain(l, value,
                    "when: expected a list such as [{ field: /amount, over: 100 }], "
                    "found %s",
                    value->type != SM_JSON_ARRAY ? sm_found(l, value)
                    : value->len == 0            ? "an empty one"
                                                 : "one that is too long");
        return;
    }
    sm_condition *v = sm_loader_alloc(l, value->len, sizeof *v);
    if (v == NULL)
        return;
    uint32_t n = 0;
    const sm_json *item = value + 1;
    for (uint32_t i = 0; i < value->len; i++, item = sm_json_next(item))
        n += read_condition(l, item, &v[n]);
    *list = (sm_conditions){.v = v, .n = n};
}

/* Types as people see them: true and false are one. */
static bool same_type(const sm_json *a, const sm_json *b)
{
    bool boolean_a = a->type == SM_JSON_TRUE || a->type == SM_JSON_FALSE;
    bool boolean_b = b->type == SM_JSON_TRUE || b->type == SM_JSON_FALSE;
    return a->type == b->type || (boolean_a && boolean_b);
}

/* `unknown` is set if the list has nothing of the value's type. */
static bool in_list(const sm_json *v, const sm_json *list, bool *unknown)
{
    *unknown = true;
    const sm_json *item = list + 1;
    for (uint32_t i = 0; i < list->len; i++, item = sm_json_next(item)) {
        if (sm_json_equal(v, item)) {
            *unknown = false;
            return true;
        }
        *unknown &= !same_type(v, item);
    }
    return false;
}

/* -1, 0 or 1 as the value is under, at or over the bound; `unknown` set if it is no amount. */
static int compare_to(const sm_json *v, const bound *b, bool *unknown)
{
    sm_decimal d;
    *unknown = !(v->type == SM_JSON_NUMBER || (b->text && v->type == SM_JSON_STRING)) ||
               !sm_decimal_parse(sm_json_text(v), &d);
    return *unknown ? 0 : sm_decimal_compare(&d, &b->value);
}

/* Blanks in front do not count. */
static bool begins_with(sm_str text, const sm_json *list)
{
    while (text.n > 0 && memchr(" \t\r\n", text.p[0], 4) != NULL)
        text = (sm_str){text.p + 1, text.n - 1};
    const sm_json *item = list + 1;
    bool begins = false;
    for (uint32_t i = 0; i < list->len && !begins; i++, item = sm_json_next(item))
        begins = text.n >= item->len && memcmp(text.p, item->text, item->len) == 0;
    return begins;
}

/* Whether one operator holds of a value that is there. */
static bool operator_holds(const sm_condition *c, unsigned op, const sm_json *v, bool unknown)
{
    bool odd = false, holds = true;
    switch (op) {
    case EQUALS:
        odd = !same_type(v, c->equals);
        holds = sm_json_equal(v, c->equals);
        break;
    case IN: holds = in_list(v, c->in, &odd); break;
    case OVER: holds = compare_to(v, &c->over, &odd) > 0; break;
    case UNDER: holds = compare_to(v, &c->under, &odd) < 0; break;
    case MATCHES:
        /* What cannot be matched must not slip by an approval. */
        odd = v->type != SM_JSON_STRING || !sm_pattern_can(sm_json_text(v));
        holds = !odd && sm_pattern_matches(c->matches, sm_json_text(v));
        break;
    case BEGINS:
        odd = v->type != SM_JSON_STRING;
        holds = !odd && begins_with(sm_json_text(v), c->begins);
        break;
    default: break;
    }
    return odd ? unknown : holds;
}

static bool condition_holds(const sm_condition *c, const sm_json *document, bool unknown)
{
    const sm_json *v = sm_pointer_get(&c->field, document);
    if (c->operators & EXISTS && c->exists != (v != NULL))
        return false;
    if (v == NULL)
        return c->operators == EXISTS || unknown;
    for (unsigned op = EQUALS; op < EXISTS; op <<= 1) {
        if (c->operators & op && !operator_holds(c, op, v, unknown))
            return false;
    }
    return true;
}

bool sm_conditions_doubtful(const sm_conditions *list, const sm_json *document)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (sm_pointer_get(&list->v[i].field, document) != NULL &&
            condition_holds(&list->v[i], document, true))
            return true;
    }
    return false;
}

bool sm_conditions_hold(const sm_conditions *list, const sm_json *document, bool unknown)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (condition_holds(&list->v[i], document, unknown))
            return true;
    }
    return false;
}

/* Whether there is something that the field would be in. */
static bool has_place(const sm_pointer *field, const sm_json *document)
{
    sm_pointer above = *field;
    above.count -= above.count > 0;
    const sm_json *v = sm_pointer_get(&above, document);
    return v != NULL && (v->type == SM_JSON_OBJECT || v->type == SM_JSON_ARRAY);
}

bool sm_conditions_prove(const sm_conditions *list, const sm_json *document)
{
    for (uint32_t i = 0; i < list->n; i++) {
        const sm_condition *c = &list->v[i];
        bool absence = c->operators & EXISTS && !c->exists;
        if (condition_holds(c, document, false) && (!absence || has_place(&c->field, document)))
            return true;
    }
    return false;
}

const sm_json *sm_conditions_rival(const sm_conditions *list, const sm_json *document)
{
    const sm_json *found = NULL;
    for (uint32_t i = 0; i < list->n && found == NULL; i++)
        found = sm_pointer_rival(&list->v[i].field, document);
    return found;
}
