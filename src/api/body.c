/*
 * Reading bodies by their tables.
 *
 * A document's members are few and so are a table's, so each name is looked for from the start: no
 * index is made for what is read once.
 */
#include "api/body.h"

#include "base/suggest.h"
#include "base/utf8.h"
#include "core/budget.h"
#include "json/number.h"

/* The door has bounded the bytes already; offsets in a document have 32 bits. */
static const sm_json_limits body_limits = {
    .bytes = UINT32_MAX,
    .depth = SM_JSON_DEPTH_MAX,
    .values = SM_JSON_VALUES_MAX,
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t skip_back(sm_str s, size_t end)
{
    while (end > 0 && is_space(s.p[end - 1]))
        end--;
    return end;
}

static sm_err place(const sm_object *o, const sm_json *at, sm_fault *fault)
{
    if (fault == NULL)
        return SEMEL_E_BAD_ARGUMENTS;
    fault->at = at->at;
    sm_text_position(o->source, at->at, &fault->line, &fault->column);
    return fault->code;
}

sm_err sm_object_parse(sm_arena *a, sm_str text, sm_object *out, sm_fault *fault)
{
    *out = (sm_object){.source = text, .end = skip_back(text, text.n)};
    if (out->end == 0)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the body is empty; a JSON object is expected");
    sm_err e = sm_json_read(a, text, &body_limits, &out->node, fault);
    if (e != SM_OK)
        return e;
    if (out->node->type == SM_JSON_OBJECT)
        return SM_OK;
    sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the body must be a JSON object, not %s",
                 sm_json_type_name(out->node));
    return place(out, out->node, fault);
}

/* ---- one value -------------------------------------------------------------------------------*/

/* The offset behind a member's value: in front of the comma before the next member, or of the
 * object's closing brace. */
static size_t value_end(const sm_object *o, const sm_json *value, bool last)
{
    size_t separator = last ? o->end - 1 : skip_back(o->source, sm_json_next(value)->at) - 1;
    return skip_back(o->source, separator);
}

/* A number's canonical form if it is whole, such as 3 for 3.0. */
static size_t whole_number(const sm_json *v, char out[SM_NUMBER_MAX])
{
    size_t n = v->type == SM_JSON_NUMBER ? sm_number_canonical(sm_json_text(v), out) : 0;
    for (size_t i = n > 0 && out[0] == '-'; i < n; i++) {
        if (out[i] < '0' || out[i] > '9')
            return 0;
    }
    return n;
}

static bool read_label(sm_arena *a, const sm_json *v, sm_str *out, sm_err *e)
{
    char digits[SM_NUMBER_MAX];
    if (v->type == SM_JSON_STRING) {
        *out = sm_json_text(v);
        return true;
    }
    size_t n = whole_number(v, digits);
    if (n == 0)
        return false;
    *out = sm_arena_text(a, (sm_str){digits, n});
    if (out->p == NULL)
        *e = SEMEL_E_NOMEM;
    return true;
}

static bool read_count(const sm_object_member *m, const sm_json *v, int64_t *out)
{
    char digits[SM_NUMBER_MAX];
    size_t n = whole_number(v, digits);
    if (n == 0 || n > 18 || digits[0] == '-')
        return false;
    int64_t value = 0;
    for (size_t i = 0; i < n; i++)
        value = value * 10 + (digits[i] - '0');
    if (value < m->min || value > m->max)
        return false;
    *out = value;
    return true;
}

static bool read_amount(const sm_json *v, sm_str *out)
{
    int64_t billionths;
    *out = v->type == SM_JSON_NUMBER || v->type == SM_JSON_STRING ? sm_json_text(v) : (sm_str){0};
    return out->p != NULL && sm_cost_read(*out, &billionths);
}

static bool read_choice(const sm_object_member *m, const sm_json *v, int *out)
{
    if (v->type != SM_JSON_STRING)
        return false;
    for (int i = 0; m->names[i] != NULL; i++) {
        if (sm_str_is(sm_json_text(v), m->names[i])) {
            *out = i;
            return true;
        }
    }
    return false;
}

/* What a member must be, for sentences. */
static void describe(const sm_object_member *m, sm_buf *out)
{
    switch (m->kind) {
    case SM_M_TEXT: sm_buf_text(out, "a string"); break;
    case SM_M_LABEL: sm_buf_text(out, "a string or a whole number"); break;
    case SM_M_COUNT:
        sm_buf_printf(out, "a whole number from %lld to %lld", (long long)m->min,
                      (long long)m->max);
        break;
    case SM_M_AMOUNT:
        sm_buf_text(out, "an amount such as 0.05 or \"0.05\", with at most 9 decimal places");
        break;
    case SM_M_CHOICE:
        for (int i = 0; m->names[i] != NULL; i++)
            sm_buf_printf(out, "%s\"%s\"",
                          i == 0                    ? ""
                          : m->names[i + 1] == NULL ? " or "
                                                    : ", ",
                          m->names[i]);
        break;
    case SM_M_ANY: sm_buf_text(out, "any JSON value"); break;
    case SM_M_BOOL: sm_buf_text(out, "true or false"); break;
    case SM_M_OBJECT: sm_buf_text(out, "an object"); break;
    }
}

static sm_err refuse_value(const sm_object *o, const sm_object_member *m, const sm_json *v,
                           sm_fault *fault)
{
    sm_buf wanted;
    sm_buf_init(&wanted, 512);
    describe(m, &wanted);
    bool scalar = v->type == SM_JSON_STRING || v->type == SM_JSON_NUMBER;
    sm_str text = scalar ? sm_utf8_cut(sm_json_text(v), SM_QUOTED_MAX) : (sm_str){"", 0};
    const char *quote = v->type == SM_JSON_STRING ? "\"" : "";
    sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "\"%s\" must be %.*s, not %s%s%s%.*s%s%s", m->name,
                 SM_FMT(sm_buf_view(&wanted)), sm_json_type_name(v), scalar ? " (" : "", quote,
                 SM_FMT(text), quote, scalar ? ")" : "");
    sm_buf_fini(&wanted);
    return place(o, v, fault);
}

static sm_err read_value(sm_arena *a, const sm_object *o, const sm_object_member *m,
                         const sm_json *v, bool last, void *out, sm_fault *fault)
{
    sm_err e = SM_OK;
    bool good = true;
    switch (m->kind) {
    case SM_M_TEXT:
        good = v->type == SM_JSON_STRING;
        if (good)
            *(sm_str *)out = sm_json_text(v);
        break;
    case SM_M_LABEL: good = read_label(a, v, out, &e); break;
    case SM_M_COUNT: good = read_count(m, v, out); break;
    case SM_M_AMOUNT: good = read_amount(v, out); break;
    case SM_M_CHOICE: good = read_choice(m, v, out); break;
    case SM_M_ANY:
        *(sm_str *)out = (sm_str){o->source.p + v->at, value_end(o, v, last) - v->at};
        break;
    case SM_M_BOOL:
        good = v->type == SM_JSON_TRUE || v->type == SM_JSON_FALSE;
        *(bool *)out = v->type == SM_JSON_TRUE;
        break;
    case SM_M_OBJECT:
        good = v->type == SM_JSON_OBJECT;
        if (good)
            *(sm_object *)out =
                (sm_object){.node = v, .source = o->source, .end = value_end(o, v, last)};
        break;
    }
    if (e != SM_OK)
        return sm_fault_set(fault, e, "%s", semel_err_text(e));
    return good ? SM_OK : refuse_value(o, m, v, fault);
}

/* ---- all of them -----------------------------------------------------------------------------*/

/* Lists the names of members, or of those that are required, as a sentence does; returns how many
 * they are. */
static size_t list_names(const sm_object_member *members, size_t count, bool required,
                         const char *quote, sm_buf *out)
{
    size_t listed = 0, n = 0;
    for (size_t i = 0; i < count; i++)
        n += !required || members[i].required;
    for (size_t i = 0; i < count; i++) {
        if (required && !members[i].required)
            continue;
        sm_buf_text(out, listed == 0 ? "" : listed + 1 == n ? " and " : ", ");
        sm_buf_printf(out, "%s%s%s", quote, members[i].name, quote);
        listed++;
    }
    return n;
}

static sm_err refuse_name(const sm_object *o, const sm_json *name, const sm_object_member *members,
                          size_t count, sm_fault *fault)
{
    sm_str wrong = sm_json_text(name);
    sm_nearest nearest = {0};
    sm_buf hint;
    sm_buf_init(&hint, 512);
    for (size_t i = 0; i < count; i++)
        sm_nearest_try(&nearest, wrong, sm_str_from(members[i].name));
    sm_str near = sm_nearest_get(&nearest, wrong);
    if (near.p != NULL) {
        sm_buf_printf(&hint, "did you mean \"%.*s\"?", SM_FMT(near));
    } else {
        sm_buf_text(&hint, count == 1 ? "its only member is " : "its members are ");
        list_names(members, count, false, "", &hint);
    }
    sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "\"%.*s\" is no member of this request; %.*s",
                 SM_FMT(sm_utf8_cut(wrong, SM_QUOTED_MAX)), SM_FMT(sm_buf_view(&hint)));
    sm_buf_fini(&hint);
    return place(o, name, fault);
}

static sm_err refuse_missing(const sm_object *o, const sm_object_member *m, sm_fault *fault)
{
    sm_buf wanted;
    sm_buf_init(&wanted, 512);
    describe(m, &wanted);
    sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "\"%s\" is missing; it %s be %.*s", m->name,
                 m->kind == SM_M_ANY ? "may" : "must", SM_FMT(sm_buf_view(&wanted)));
    sm_buf_fini(&wanted);
    return place(o, o->node, fault);
}

static sm_err refuse_empty(const sm_object_member *members, size_t count, sm_fault *fault)
{
    sm_buf names;
    sm_buf_init(&names, 512);
    size_t n = list_names(members, count, true, "\"", &names);
    sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS, "the body is empty; a JSON object is expected%s%.*s",
                 n == 0 ? "" : ", with ", SM_FMT(sm_buf_view(&names)));
    sm_buf_fini(&names);
    return SEMEL_E_BAD_ARGUMENTS;
}

static bool is_taken(const sm_object *o, sm_str name)
{
    const char *const *taken = o->taken;
    while (taken != NULL && *taken != NULL && !sm_str_is(name, *taken))
        taken++;
    return taken != NULL && *taken != NULL;
}

sm_err sm_object_read(sm_arena *a, const sm_object *o, const sm_object_member *members,
                      size_t count, void *out, sm_fault *fault)
{
    uint64_t seen = 0;
    const sm_json *name = o->node + 1;
    for (uint32_t i = 0; i < o->node->len; i++, name = sm_json_next(name + 1)) {
        size_t m = 0;
        while (m < count && !sm_str_is(sm_json_text(name), members[m].name))
            m++;
        if (m == count && is_taken(o, sm_json_text(name)))
            continue;
        if (m == count)
            return refuse_name(o, name, members, count, fault);
        seen |= (uint64_t)1 << m;
        sm_err e = read_value(a, o, &members[m], name + 1, i + 1 == o->node->len,
                              (char *)out + members[m].offset, fault);
        if (e != SM_OK)
            return e;
    }
    for (size_t m = 0; m < count; m++) {
        if (members[m].required && (seen >> m & 1) == 0)
            return refuse_missing(o, &members[m], fault);
    }
    return SM_OK;
}

sm_err sm_object_take(sm_arena *a, sm_str text, const char *const *taken,
                      const sm_object_member *members, size_t count, void *out, sm_fault *fault)
{
    sm_object o;
    if (skip_back(text, text.n) == 0)
        return refuse_empty(members, count, fault);
    sm_err e = sm_object_parse(a, text, &o, fault);
    o.taken = taken;
    return e == SM_OK ? sm_object_read(a, &o, members, count, out, fault) : e;
}
