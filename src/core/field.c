/* Reading mappings by table. */
#include "core/field.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/duration.h"
#include "base/limits.h"
#include "base/size.h"
#include "base/suggest.h"
#include "base/utf8.h"
#include "json/canon.h"
#include "json/number.h"

void *sm_loader_alloc(sm_loader *l, size_t count, size_t size)
{
    void *p = sm_arena_zalloc(l->arena, count == 0 ? 1 : count, size);
    if (p == NULL)
        l->failed = true;
    return p;
}

const char *sm_found(sm_loader *l, const sm_json *value)
{
    if (value->type == SM_JSON_STRING || value->type == SM_JSON_NUMBER) {
        sm_str head = sm_utf8_cut(sm_json_text(value), 40);
        sm_str s = sm_arena_printf(l->arena, "%s (%.*s%s)", sm_json_type_name(value), SM_FMT(head),
                                   head.n < value->len ? "..." : "");
        if (s.p != NULL)
            return s.p;
    }
    return sm_json_type_name(value);
}

bool sm_check_plain(sm_loader *l, const sm_json *value)
{
    bool clear = true;
    for (uint32_t i = 0; i < value->span; i++) {
        const sm_json *v = value + i;
        char number[SM_NUMBER_MAX];
        if (v->type == SM_JSON_NUMBER && sm_number_canonical(sm_json_text(v), number) == 0) {
            sm_complain(l, v, "the number is too large: it has no finite value as a double");
            clear = false;
        }
        if (!(v->flags & SM_JSON_AMBIGUOUS) || v->type != SM_JSON_STRING)
            continue;
        sm_complain(l, v,
                    "%.*s can be read in two ways; write \"%.*s\" for the text, or true, false or "
                    "a JSON number for the value",
                    SM_FMT(sm_json_text(v)), SM_FMT(sm_json_text(v)));
        clear = false;
    }
    return clear;
}

bool sm_read_pointer(sm_loader *l, const sm_json *value, sm_pointer *out)
{
    if (value->type != SM_JSON_STRING) {
        sm_complain(l, value, "expected a JSON Pointer such as /order_id, found %s",
                    sm_found(l, value));
        return false;
    }
    sm_fault fault;
    sm_err e = sm_pointer_parse(l->arena, sm_json_text(value), out, &fault);
    if (e == SEMEL_E_NOMEM)
        l->failed = true;
    if (e != SM_OK) {
        sm_complain(l, value, "%s", fault.text);
        return false;
    }
    if (out->count == 0) {
        sm_complain(l, value,
                    "an empty pointer names all of the arguments; name a field, such as "
                    "/order_id");
        return false;
    }
    return true;
}

static bool read_pointers(sm_loader *l, const sm_json *value, sm_pointers *out)
{
    if (value->type != SM_JSON_ARRAY) {
        sm_complain(l, value, "expected a list of JSON Pointers such as [/order_id], found %s",
                    sm_found(l, value));
        return false;
    }
    if (value->len > SM_POINTERS_MAX) {
        sm_complain(l, value, "a list may have at most %u pointers", SM_POINTERS_MAX);
        return false;
    }
    sm_pointer *list = sm_loader_alloc(l, value->len, sizeof *list);
    if (list == NULL)
        return false;
    uint32_t n = 0;
    const sm_json *item = value + 1;
    for (uint32_t i = 0; i < value->len; i++, item = sm_json_next(item)) {
        if (!sm_read_pointer(l, item, &list[n]))
            continue;
        for (uint32_t j = 0; j < n; j++) {
            if (sm_pointer_overlap(&list[j], &list[n])) {
                sm_complain(l, item, "%.*s is covered by %.*s already; remove one of them",
                            SM_FMT(list[n].text), SM_FMT(list[j].text));
                break;
            }
        }
        n++;
    }
    *out = (sm_pointers){.v = list, .n = n};
    return n == value->len;
}

sm_pattern *sm_read_pattern(sm_loader *l, const sm_json *value, bool whole)
{
    if (value->type != SM_JSON_STRING) {
        sm_complain(l, value, "expected a regular expression as a string, found %s",
                    sm_found(l, value));
        return NULL;
    }
    sm_fault fault;
    sm_pattern *p;
    sm_err e = sm_pattern_new(l->arena, sm_json_text(value), whole, &p, &fault);
    if (e != SM_OK) {
        sm_complain(l, value, "%s", fault.text);
        return NULL;
    }
    l->patterns = sm_pattern_chain(p, l->patterns);
    return p;
}

static bool read_string(sm_loader *l, const sm_field *f, const sm_json *value, sm_str *out)
{
    if (value->type == SM_JSON_STRING ||
        (f->kind == SM_KIND_LABEL && value->type == SM_JSON_NUMBER)) {
        *out = sm_json_text(value);
        if (memchr(out->p, '\0', out->n) == NULL && out->n > 0)
            return true;
    }
    sm_complain(l, value, "%s: expected a text, found %s", f->name,
                value->type == SM_JSON_STRING
                    ? (value->len == 0 ? "an empty one" : "a NUL byte in it")
                    : sm_found(l, value));
    return false;
}

static bool read_switch(sm_loader *l, const sm_field *f, const sm_json *value, bool *out)
{
    sm_str s = value->type == SM_JSON_STRING ? sm_json_text(value) : (sm_str){0};
    if (value->type == SM_JSON_TRUE || sm_str_is(s, "on"))
        *out = true;
    else if (value->type == SM_JSON_FALSE || sm_str_is(s, "off"))
        *out = false;
    else {
        sm_complain(l, value, "%s: expected true or false, found %s", f->name, sm_found(l, value));
        return false;
    }
    return true;
}

static bool is_off(const sm_json *value)
{
    return value->type == SM_JSON_FALSE ||
           (value->type == SM_JSON_STRING && sm_str_is(sm_json_text(value), "off"));
}

static bool read_count(sm_loader *l, const sm_field *f, const sm_json *value, int64_t *out)
{
    sm_decimal d;
    bool may_be_off = (f->flags & SM_FIELD_OFF) != 0;
    if (may_be_off && is_off(value)) {
        *out = 0;
        return true;
    }
    if (value->type == SM_JSON_NUMBER && sm_decimal_parse(sm_json_text(value), &d) &&
        sm_decimal_integer(&d) && d.exp <= 18) {
        char digits[20] = "0000000000000000000";
        sm_decimal_digits(&d, digits, sizeof digits - 1);
        digits[d.exp < 0 ? 0 : d.exp] = '\0';
        int64_t n = strtoll(digits, NULL, 10);
        if (d.negative)
            n = -n;
        if (n >= f->min && n <= f->max) {
            *out = n;
            return true;
        }
    }
    if (f->min == f->max)
        sm_complain(l, value, "%s: expected %" PRId64 ", found %s", f->name, f->min,
                    sm_found(l, value));
    else
        sm_complain(l, value,
                    "%s: expected a whole number from %" PRId64 " to %" PRId64 "%s, found %s",
                    f->name, f->min, f->max, may_be_off ? ", or off" : "", sm_found(l, value));
    return false;
}

static bool read_size(sm_loader *l, const sm_field *f, const sm_json *value, int64_t *out)
{
    char least[SM_SIZE_TEXT], most[SM_SIZE_TEXT];
    if ((value->type == SM_JSON_NUMBER || value->type == SM_JSON_STRING) &&
        sm_size_parse(sm_json_text(value), out) && *out >= f->min && *out <= f->max)
        return true;
    sm_size_text(f->min, least);
    sm_size_text(f->max, most);
    sm_complain(l, value,
                "%s: expected a size from %s to %s, such as 64KiB, 1MiB or 1000000 (bytes), found "
                "%s",
                f->name, least, most, sm_found(l, value));
    return false;
}

static bool read_money(sm_loader *l, const sm_field *f, const sm_json *value, sm_money *out)
{
    if (value->type == SM_JSON_NUMBER || value->type == SM_JSON_STRING) {
        out->text = sm_json_text(value);
        sm_decimal d;
        if (sm_decimal_parse(out->text, &d) && !d.negative) {
            if (sm_decimal_scaled(&d, SM_MONEY_PLACES, &out->billionths))
                return true;
            sm_complain(l, value, "%s: an amount has at most %u decimal places and is below 9e9",
                        f->name, SM_MONEY_PLACES);
            return false;
        }
    }
    sm_complain(l, value, "%s: expected an amount such as 0.05 or \"0.05\", found %s", f->name,
                sm_found(l, value));
    return false;
}

static bool read_duration(sm_loader *l, const sm_field *f, const sm_json *value, int64_t *out)
{
    int64_t ms;
    bool forever = f->flags & SM_FIELD_FOREVER;
    if (value->type == SM_JSON_NUMBER) {
        sm_complain(l, value,
                    "%s: a duration needs a unit; write %.*ss for seconds, or ms, m, h, d", f->name,
                    SM_FMT(sm_json_text(value)));
        return false;
    }
    if (value->type != SM_JSON_STRING || !sm_duration_parse(sm_json_text(value), &ms)) {
        sm_complain(l, value, "%s: expected a duration such as 200ms, 30s, 5m, 24h, 7d%s, found %s",
                    f->name, forever ? " or forever" : "", sm_found(l, value));
        return false;
    }
    if (ms == SM_FOREVER && !forever) {
        sm_complain(l, value, "%s: forever is not allowed here; write a duration such as 7d",
                    f->name);
        return false;
    }
    if (ms == 0 && !(f->flags & SM_FIELD_ZERO)) {
        sm_complain(l, value, "%s: must be longer than nothing; write a duration such as 30s",
                    f->name);
        return false;
    }
    *out = ms;
    return true;
}

static bool read_enum(sm_loader *l, const sm_field *f, const sm_json *value, int *out)
{
    char list[200] = "";
    sm_nearest nearest = {0};
    sm_str text = value->type == SM_JSON_STRING ? sm_json_text(value) : SM_STR("");
    for (int i = 0; f->names[i] != NULL; i++) {
        if (sm_str_is(text, f->names[i])) {
            *out = i;
            return true;
        }
        sm_nearest_try(&nearest, text, sm_str_from(f->names[i]));
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s",
                 i == 0                    ? ""
                 : f->names[i + 1] == NULL ? " or "
                                           : ", ",
                 f->names[i]);
    }
    sm_str near = sm_nearest_get(&nearest, text);
    sm_complain(l, value, "%s: expected %s, found %s%s%.*s%s", f->name, list, sm_found(l, value),
                near.p == NULL ? "" : "; did you mean ", near.p == NULL ? 0 : (int)near.n, near.p,
                near.p == NULL ? "" : "?");
    return false;
}

static const sm_field *find_field(const sm_group *g, sm_str name)
{
    for (uint32_t i = 0; i < g->count; i++) {
        if (sm_str_is(name, g->fields[i].name))
            return &g->fields[i];
    }
    return NULL;
}

/* Whether a value stands for one field of a group, and not for the whole. */
static bool is_brief(const sm_group *g, const sm_json *value)
{
    if (g->brief == NULL || value == NULL)
        return false;
    return find_field(g, sm_str_from(g->brief))->kind == SM_KIND_POINTERS
               ? value->type == SM_JSON_ARRAY
               : value->type == SM_JSON_STRING;
}

static bool read_group(sm_loader *l, const sm_field *f, const sm_json *value, void *out)
{
    const sm_group *g = f->group;
    bool off = is_off(value);
    if (g->defaults != NULL)
        memcpy(out, g->defaults, g->size);
    else
        memset(out, 0, g->size);
    if (f->flags & SM_FIELD_OFF) {
        *(bool *)out = !off;
        if (off)
            return true;
    }
    if (is_brief(g, value)) {
        const sm_field *brief = find_field(g, sm_str_from(g->brief));
        return sm_field_read(l, brief, value, (char *)out + brief->offset);
    }
    if (value->type != SM_JSON_OBJECT) {
        sm_complain(l, value, "%s: expected a mapping with %s and so on%s, found %s", f->name,
                    g->fields[0].name, f->flags & SM_FIELD_OFF ? ", or off" : "",
                    sm_found(l, value));
        return false;
    }
    uint32_t errors = l->report->errors;
    sm_group_read(l, g, f->name, value, out, NULL);
    return l->report->errors == errors;
}

bool sm_field_read(sm_loader *l, const sm_field *f, const sm_json *value, void *out)
{
    switch (f->kind) {
    case SM_KIND_STRING:
    case SM_KIND_LABEL: return read_string(l, f, value, out);
    case SM_KIND_SWITCH: return read_switch(l, f, value, out);
    case SM_KIND_COUNT: return read_count(l, f, value, out);
    case SM_KIND_SIZE: return read_size(l, f, value, out);
    case SM_KIND_MONEY: return read_money(l, f, value, out);
    case SM_KIND_DURATION: return read_duration(l, f, value, out);
    case SM_KIND_ENUM: return read_enum(l, f, value, out);
    case SM_KIND_POINTER: return sm_read_pointer(l, value, out);
    case SM_KIND_POINTERS: return read_pointers(l, value, out);
    case SM_KIND_GROUP: return read_group(l, f, value, out);
    case SM_KIND_CUSTOM: break;
    }
    uint32_t errors = l->report->errors;
    f->read(l, value, out);
    return l->report->errors == errors && !l->failed;
}

static void complain_unknown(sm_loader *l, const sm_group *g, const char *what, const sm_json *name)
{
    sm_str text = sm_json_text(name);
    sm_nearest nearest = {0};
    char list[512] = "";
    for (uint32_t i = 0; i < g->count; i++) {
        sm_nearest_try(&nearest, text, sm_str_from(g->fields[i].name));
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i == 0 ? "" : ", ", g->fields[i].name);
    }
    if (g->also != NULL) {
        sm_nearest_try(&nearest, text, sm_str_from(g->also));
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, ", %s", g->also);
    }
    sm_str near = sm_nearest_get(&nearest, text);
    if (near.p != NULL)
        sm_complain(l, name, "unknown field \"%.*s\" in %s; did you mean \"%.*s\"?", SM_FMT(text),
                    what, SM_FMT(near));
    else
        sm_complain(l, name, "unknown field \"%.*s\" in %s; it may have %s", SM_FMT(text), what,
                    list);
}

void sm_group_read(sm_loader *l, const sm_group *g, const char *what, const sm_json *mapping,
                   void *out, uint64_t *seen)
{
    assert(mapping->type == SM_JSON_OBJECT && g->count <= 64);
    uint64_t given = 0, right = 0;
    const sm_json *name = mapping + 1;
    for (uint32_t i = 0; i < mapping->len; i++, name = sm_json_next(name + 1)) {
        const sm_field *f = find_field(g, sm_json_text(name));
        if (f == NULL) {
            complain_unknown(l, g, what, name);
            continue;
        }
        uint64_t bit = (uint64_t)1 << (f - g->fields);
        given |= bit;
        if (sm_field_read(l, f, name + 1, (char *)out + f->offset))
            right |= bit;
    }
    for (uint32_t i = 0; i < g->count; i++) {
        if (g->fields[i].flags & SM_FIELD_REQUIRED && !(given & (uint64_t)1 << i))
            sm_complain(l, mapping, "%s needs the field \"%s\"", what, g->fields[i].name);
    }
    if (seen != NULL)
        *seen = right;
}

static void show_pointers(sm_buf *b, const sm_pointers *list)
{
    sm_buf_byte(b, '[');
    for (uint32_t i = 0; i < list->n; i++) {
        if (i > 0)
            sm_buf_byte(b, ',');
        sm_json_put_string(b, list->v[i].text);
    }
    sm_buf_byte(b, ']');
}

/* Whether a leaf holds nothing worth listing: an absent text, list or custom value. */
static bool is_empty(const sm_field *f, const void *value, const sm_json *given)
{
    switch (f->kind) {
    case SM_KIND_STRING:
    case SM_KIND_LABEL: return ((const sm_str *)value)->p == NULL;
    case SM_KIND_MONEY: return ((const sm_money *)value)->text.p == NULL;
    case SM_KIND_POINTER: return ((const sm_pointer *)value)->text.p == NULL;
    case SM_KIND_POINTERS: return ((const sm_pointers *)value)->n == 0;
    case SM_KIND_CUSTOM: return given == NULL && f->show == NULL;
    default: return false;
    }
}

static void show_group(const sm_field *f, const char *name, const void *value, const sm_json *given,
                       sm_show_fn *show, void *context)
{
    if (f->flags & SM_FIELD_OFF && !*(const bool *)value) {
        show(context, name, SM_STR("\"off\""), given);
        return;
    }
    if (!(f->flags & SM_FIELD_OFF) && given == NULL)
        return; /* a group that is only there when it is given */
    for (uint32_t i = 0; i < f->group->count; i++) {
        const sm_field *inner = &f->group->fields[i];
        char dotted[128];
        snprintf(dotted, sizeof dotted, "%s.%s", name, inner->name);
        const sm_json *inner_given = sm_json_find(given, sm_str_from(inner->name));
        if (inner_given == NULL && is_brief(f->group, given) &&
            strcmp(f->group->brief, inner->name) == 0)
            inner_given = given;
        sm_field_show(inner, dotted, (const char *)value + inner->offset, inner_given, show,
                      context);
    }
}

void sm_field_show(const sm_field *f, const char *name, const void *value, const sm_json *given,
                   sm_show_fn *show, void *context)
{
    if (f->kind == SM_KIND_GROUP) {
        show_group(f, name, value, given, show, context);
        return;
    }
    if (is_empty(f, value, given))
        return;
    sm_buf b;
    sm_buf_init(&b, SM_CONTRACT_BYTES_MAX * 4);
    switch (f->kind) {
    case SM_KIND_STRING:
    case SM_KIND_LABEL: sm_json_put_string(&b, *(const sm_str *)value); break;
    case SM_KIND_SWITCH: sm_buf_text(&b, *(const bool *)value ? "\"on\"" : "\"off\""); break;
    case SM_KIND_COUNT:
        if ((f->flags & SM_FIELD_OFF) != 0 && *(const int64_t *)value == 0)
            sm_buf_text(&b, "\"off\"");
        else
            sm_buf_printf(&b, "%" PRId64, *(const int64_t *)value);
        break;
    case SM_KIND_SIZE: {
        char text[SM_SIZE_TEXT];
        sm_size_text(*(const int64_t *)value, text);
        sm_json_put_string(&b, sm_str_from(text));
        break;
    }
    case SM_KIND_MONEY: sm_json_put_string(&b, ((const sm_money *)value)->text); break;
    case SM_KIND_DURATION: {
        char text[SM_DURATION_TEXT];
        sm_duration_text(*(const int64_t *)value, text);
        sm_json_put_string(&b, sm_str_from(text));
        break;
    }
    case SM_KIND_ENUM: sm_json_put_string(&b, sm_str_from(f->names[*(const int *)value])); break;
    case SM_KIND_POINTER: sm_json_put_string(&b, ((const sm_pointer *)value)->text); break;
    case SM_KIND_POINTERS: show_pointers(&b, value); break;
    default:
        if (f->show != NULL)
            f->show(value, &b);
        else
            sm_json_canon(given, &b, (sm_str){0}, NULL);
        break;
    }
    show(context, name, sm_buf_view(&b), given);
    sm_buf_fini(&b);
}
