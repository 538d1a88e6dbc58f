/* Parsing, evaluating and writing JSON Pointers. */
#include "json/pointer.h"

#include "base/fold.h"

sm_err sm_pointer_parse(sm_arena *a, sm_str text, sm_pointer *out, sm_fault *fault)
{
    *out = (sm_pointer){0};
    if (text.n > 0 && text.p[0] != '/')
        return sm_fault_set(fault, SEMEL_E_SYNTAX,
                            "a JSON Pointer starts with '/': write \"/%.*s\"", SM_FMT(text));
    uint32_t count = 0;
    for (size_t i = 0; i < text.n; i++) {
        count += text.p[i] == '/';
        if (text.p[i] == '~' && (i + 1 == text.n || (text.p[i + 1] != '0' && text.p[i + 1] != '1')))
            return sm_fault_set(fault, SEMEL_E_SYNTAX,
                                "in a JSON Pointer, write ~0 for '~' and ~1 for '/'");
    }
    if (count > SM_POINTER_TOKENS_MAX)
        return sm_fault_set(fault, SEMEL_E_LIMIT, "a JSON Pointer may have at most %u parts",
                            SM_POINTER_TOKENS_MAX);
    sm_str copy = sm_arena_text(a, text);
    sm_str work = sm_arena_text(a, text);
    sm_str *tokens = sm_arena_zalloc(a, count + 1, sizeof *tokens);
    if (copy.p == NULL || work.p == NULL || tokens == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    /* Tokens are decoded in place, each at or before where it stood. */
    char *w = (char *)work.p;
    const char *p = work.p, *end = work.p + work.n;
    for (uint32_t i = 0; i < count; i++) {
        char *start = w;
        for (p++; p < end && *p != '/'; p++) {
            if (*p == '~')
                *w++ = *++p == '0' ? '~' : '/';
            else
                *w++ = *p;
        }
        tokens[i] = (sm_str){start, (size_t)(w - start)};
    }
    *out = (sm_pointer){.text = copy, .tokens = tokens, .count = count};
    return SM_OK;
}

sm_err sm_pointer_place(sm_arena *a, sm_str name, sm_pointer *out, sm_fault *fault)
{
    if (name.n > 0 && name.p[0] == '/')
        return sm_pointer_parse(a, name, out, fault);
    sm_str *token = sm_arena_alloc(a, sizeof *token);
    if (token == NULL)
        return sm_fault_set(fault, SEMEL_E_NOMEM, "%s", semel_err_text(SEMEL_E_NOMEM));
    *token = name;
    *out = (sm_pointer){.text = name, .tokens = token, .count = 1};
    return SM_OK;
}

uint32_t sm_pointer_index(sm_str token)
{
    if (token.n == 0 || token.n > 9 || (token.p[0] == '0' && token.n > 1))
        return SM_NO_INDEX;
    uint32_t index = 0;
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] < '0' || token.p[i] > '9')
            return SM_NO_INDEX;
        index = index * 10 + (uint32_t)(token.p[i] - '0');
    }
    return index;
}

static const sm_json *element(const sm_json *array, sm_str token)
{
    uint32_t index = sm_pointer_index(token);
    if (index >= array->len)
        return NULL;
    const sm_json *v = array + 1;
    while (index-- > 0)
        v = sm_json_next(v);
    return v;
}

const sm_json *sm_pointer_get(const sm_pointer *p, const sm_json *root)
{
    const sm_json *v = root;
    for (uint32_t i = 0; i < p->count && v != NULL; i++)
        v = v->type == SM_JSON_ARRAY ? element(v, p->tokens[i]) : sm_json_find(v, p->tokens[i]);
    return v;
}

static const sm_json *rival(const sm_json *object, sm_str token)
{
    const sm_json *name = object + 1;
    for (uint32_t i = 0; i < object->len; i++, name = sm_json_next(name + 1)) {
        sm_str text = sm_json_text(name);
        if (!sm_str_eq(text, token) && sm_fold_alike_word(text, token))
            return name;
    }
    return NULL;
}

const sm_json *sm_pointer_rival(const sm_pointer *p, const sm_json *root)
{
    const sm_json *v = root, *found = NULL;
    for (uint32_t i = 0; i < p->count && v != NULL && found == NULL; i++) {
        if (v->type == SM_JSON_ARRAY) {
            v = element(v, p->tokens[i]);
        } else if (v->type == SM_JSON_OBJECT) {
            found = rival(v, p->tokens[i]);
            v = sm_json_find(v, p->tokens[i]);
        } else {
            v = NULL;
        }
    }
    return found;
}

bool sm_pointer_overlap(const sm_pointer *a, const sm_pointer *b)
{
    uint32_t n = a->count < b->count ? a->count : b->count;
    for (uint32_t i = 0; i < n; i++) {
        if (!sm_str_eq(a->tokens[i], b->tokens[i]))
            return false;
    }
    return true;
}

void sm_pointer_put_token(sm_buf *out, sm_str token)
{
    sm_buf_byte(out, '/');
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] == '~')
            sm_buf_text(out, "~0");
        else if (token.p[i] == '/')
            sm_buf_text(out, "~1");
        else
            sm_buf_byte(out, token.p[i]);
    }
}
