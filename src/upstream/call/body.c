/* Arguments written as JSON or as a form. */
#include "upstream/call/body.h"

#include "json/canon.h"
#include "json/number.h"
#include "json/pointer.h"

static const char hex[] = "0123456789ABCDEF";

static bool is_unreserved(unsigned char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '-' ||
           c == '.' || c == '_' || c == '~';
}

void sm_percent_encode(sm_buf *out, sm_str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (is_unreserved(c)) {
            sm_buf_byte(out, (char)c);
        } else {
            char code[3] = {'%', hex[c >> 4], hex[c & 15]};
            sm_buf_bytes(out, code, sizeof code);
        }
    }
}

/* ---- forms -----------------------------------------------------------------------------------*/

typedef struct form {
    sm_buf *out;
    sm_buf name; /* of the value that is being written, encoded */
    sm_err err;
} form;

static void put_scalar(form *f, const sm_json *v)
{
    char number[SM_NUMBER_MAX];
    size_t n;
    if (f->out->len > 0)
        sm_buf_byte(f->out, '&');
    sm_buf_str(f->out, sm_buf_view(&f->name));
    sm_buf_byte(f->out, '=');
    switch (v->type) {
    case SM_JSON_STRING: sm_percent_encode(f->out, sm_json_text(v)); break;
    case SM_JSON_TRUE: sm_buf_text(f->out, "true"); break;
    case SM_JSON_FALSE: sm_buf_text(f->out, "false"); break;
    case SM_JSON_NUMBER:
        n = sm_number_canonical(sm_json_text(v), number);
        if (n == 0)
            f->err = SEMEL_E_RANGE;
        sm_percent_encode(f->out, (sm_str){number, n});
        break;
    default: break;
    }
}

/* Recursion is bounded by SM_JSON_DEPTH_MAX, and the work by the bound of the output. */
static void put_value(form *f, const sm_json *v, bool top)
{
    if (v->type != SM_JSON_OBJECT && v->type != SM_JSON_ARRAY) {
        put_scalar(f, v);
        return;
    }
    const sm_json *item = NULL;
    size_t length = f->name.len;
    for (uint32_t i = 0; i < v->len && f->out->err == SM_OK && f->name.err == SM_OK; i++) {
        if (!top)
            sm_buf_byte(&f->name, '[');
        if (v->type == SM_JSON_OBJECT) {
            item = sm_json_sorted(v, i, item);
            sm_percent_encode(&f->name, sm_json_text(item));
        } else {
            item = item == NULL ? v + 1 : sm_json_next(item);
            sm_buf_number(&f->name, i);
        }
        if (!top)
            sm_buf_byte(&f->name, ']');
        put_value(f, v->type == SM_JSON_OBJECT ? item + 1 : item, false);
        f->name.len = length;
    }
}

static sm_err put_form(sm_buf *out, const sm_json *args, sm_fault *fault)
{
    if (args->type != SM_JSON_OBJECT)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "arguments that are sent as a form must be an object, not %s",
                            sm_json_type_name(args));
    form f = {.out = out};
    sm_buf_init(&f.name, SM_UPSTREAM_BODY_MAX);
    put_value(&f, args, true);
    sm_err e = f.err != SM_OK ? f.err : f.name.err;
    sm_buf_fini(&f.name);
    if (e == SEMEL_E_RANGE)
        sm_fault_set(fault, e, "%s", semel_err_text(e));
    return e;
}

sm_err sm_upstream_body(sm_arena *a, int body, const sm_json *args, sm_str *out, sm_fault *fault)
{
    *out = (sm_str){0};
    if (body == SM_BODY_NONE)
        return SM_OK;
    sm_buf b;
    sm_buf_init(&b, SM_UPSTREAM_BODY_MAX);
    sm_err e = body == SM_BODY_FORM ? put_form(&b, args, fault)
                                    : sm_json_canon(args, &b, (sm_str){0}, fault);
    if (e == SM_OK)
        e = b.err;
    if (e == SM_OK) {
        *out = sm_arena_text(a, b.p == NULL ? SM_STR("") : sm_buf_view(&b));
        if (out->p == NULL)
            e = SEMEL_E_NOMEM;
    }
    sm_buf_fini(&b);
    if (e == SEMEL_E_NOMEM)
        sm_fault_set(fault, e, "%s", semel_err_text(e));
    else if (e == SEMEL_E_LIMIT)
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                         "the arguments are too large for the body of a request");
    else if (e == SEMEL_E_RANGE)
        e = sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                         "a number among the arguments is too large: it has no finite value");
    return e;
}

/* ---- arguments with one more -----------------------------------------------------------------*/

sm_err sm_upstream_args_with(sm_arena *a, const sm_json *args, sm_str name, sm_str text,
                             const sm_json **out, sm_fault *fault)
{
    *out = NULL;
    sm_pointer place;
    sm_err e = sm_pointer_place(a, name, &place, fault);
    if (e != SM_OK)
        return e;
    sm_str copy = sm_arena_text(a, text);
    sm_json *value = sm_arena_zalloc(a, 1, sizeof *value);
    sm_places *set = sm_places_new(a);
    if (copy.p == NULL || value == NULL || set == NULL ||
        sm_places_add(set, a, &place, value) != SM_OK)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    *value = (sm_json){.type = SM_JSON_STRING, .span = 1, .len = (uint32_t)copy.n, .text = copy.p};
    e = args->type == SM_JSON_OBJECT ? sm_json_drop(a, args, set, &args) : SM_OK;
    if (e == SM_OK)
        e = sm_json_fill(a, args, set, &args);
    if (e != SM_OK)
        return sm_fault_set(fault, e, "%s", semel_err_text(e));
    if (sm_pointer_get(&place, args) == NULL)
        return sm_fault_set(fault, SEMEL_E_BAD_ARGUMENTS,
                            "the key is sent as the argument %.*s, for which there is no place in "
                            "these arguments",
                            SM_FMT(name));
    *out = args;
    return SM_OK;
}
