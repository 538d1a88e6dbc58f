/* The canonical writer: walks the tree with a fixed stack, copies what is canonical already. */
#include "json/canon.h"

#include <assert.h>

#include "base/utf8.h"
#include "json/number.h"

static void put_escaped(sm_buf *out, sm_str s)
{
    static const char hex[] = "0123456789abcdef";
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        char brief = 0;
        switch (c) {
        case '"': brief = '"'; break;
        case '\\': brief = '\\'; break;
        case '\b': brief = 'b'; break;
        case '\f': brief = 'f'; break;
        case '\n': brief = 'n'; break;
        case '\r': brief = 'r'; break;
        case '\t': brief = 't'; break;
        default: break;
        }
        if (brief != 0) {
            sm_buf_byte(out, '\\');
            sm_buf_byte(out, brief);
        } else if (c < 0x20) {
            char unit[6] = {'\\', 'u', '0', '0', hex[c >> 4], hex[c & 15]};
            sm_buf_bytes(out, unit, sizeof unit);
        } else {
            sm_buf_byte(out, (char)c);
        }
    }
}

/* Text that was cut inside a character, or never was UTF-8. */
static void put_mended(sm_buf *out, sm_str s)
{
    for (size_t i = 0, step; i<s.n; i += step> 0 ? step : 1) {
        step = sm_utf8_step((const unsigned char *)s.p + i, s.n - i);
        if (step == 0)
            sm_buf_text(out, "\xEF\xBF\xBD");
        else
            put_escaped(out, (sm_str){s.p + i, step});
    }
}

void sm_json_put_string(sm_buf *out, sm_str s)
{
    sm_buf_byte(out, '"');
    if (sm_utf8_valid(s))
        put_escaped(out, s);
    else
        put_mended(out, s);
    sm_buf_byte(out, '"');
}

/* Copies a short text in whole blocks; both sides must have a block of room behind it. */
static inline char *copy_padded(char *w, const char *p, size_t n)
{
    char *end = w + n;
    do {
        memcpy(w, p, SM_TEXT_PAD);
        w += SM_TEXT_PAD;
        p += SM_TEXT_PAD;
    } while (w < end);
    return end;
}

/* Bytes that put_verbatim may touch beyond the text itself. */
#define VERBATIM_ROOM (SM_TEXT_PAD + 2)

/* Writes a string or number that is canonical already. Both kinds take the same path, the quotes
 * by arithmetic: which of them comes next is what a branch predictor cannot know. */
static inline char *put_verbatim(char *w, const sm_json *v)
{
    size_t quote = v->type == SM_JSON_STRING;
    *w = '"';
    w = copy_padded(w + quote, v->text, v->len);
    *w = '"';
    return w + quote;
}

static sm_err put_number(sm_buf *out, const sm_json *v, sm_str source, sm_fault *fault)
{
    char text[SM_NUMBER_MAX];
    size_t n = sm_number_canonical(sm_json_text(v), text);
    if (n == 0) {
        sm_fault_set(fault, SEMEL_E_RANGE,
                     "the number is too large: it has no finite value as a double");
        if (fault != NULL) {
            fault->at = v->at;
            sm_text_position(source, v->at, &fault->line, &fault->column);
        }
        return SEMEL_E_RANGE;
    }
    sm_buf_bytes(out, text, n);
    return SM_OK;
}

static sm_err put_scalar(sm_buf *out, const sm_json *v, sm_str source, sm_fault *fault)
{
    switch (v->type) {
    case SM_JSON_STRING: sm_json_put_string(out, sm_json_text(v)); return SM_OK;
    case SM_JSON_NUMBER: return put_number(out, v, source, fault);
    case SM_JSON_TRUE: sm_buf_bytes(out, "true", 4); return SM_OK;
    case SM_JSON_FALSE: sm_buf_bytes(out, "false", 5); return SM_OK;
    default: sm_buf_bytes(out, "null", 4); return SM_OK;
    }
}

/* A container being written: `item` is the element or name last written, `done` how many were. */
typedef struct frame {
    const sm_json *container;
    const sm_json *item;
    uint32_t done;
} frame;

/* Makes room behind `w`, and returns where writing goes on; NULL on failure. The position is kept
 * in a register: through the buffer, every token would wait for the one before to be stored. */
static inline char *make_room(sm_buf *out, char *w, size_t n)
{
    if (out->cap - (size_t)(w - out->p) >= n)
        return w;
    out->len = (size_t)(w - out->p);
    return sm_buf_grow(out, n) ? out->p + out->len : NULL;
}

/* Writes a value that is not verbatim and not a container, by way of the buffer. */
static sm_err put_slow(sm_buf *out, char **w, const sm_json *v, sm_str source, sm_fault *fault)
{
    out->len = (size_t)(*w - out->p);
    sm_err e = put_scalar(out, v, source, fault);
    *w = out->p + out->len;
    return e;
}

/* Writes the name before a member's value. */
static inline char *put_name(sm_buf *out, char *w, const sm_json *name)
{
    w = make_room(out, w, name->len + VERBATIM_ROOM + 2); /* a colon, a bracket */
    if (w != NULL && name->flags & SM_JSON_VERBATIM) {
        w = put_verbatim(w, name);
    } else if (w != NULL) {
        put_slow(out, &w, name, (sm_str){0}, NULL);
        w = make_room(out, w, 2);
    }
    if (w != NULL)
        *w++ = ':';
    return w;
}

sm_err sm_json_canon(const sm_json *v, sm_buf *out, sm_str source, sm_fault *fault)
{
    frame stack[SM_JSON_DEPTH_MAX];
    frame top = {0}; /* the innermost container; those around it are on the stack */
    size_t depth = 0;
    sm_err e = SM_OK;
    char *w = sm_buf_reserve(out, 1) ? out->p + out->len : NULL;
    while (w != NULL) {
        if (v->flags & SM_JSON_VERBATIM) {
            w = make_room(out, w, v->len + VERBATIM_ROOM);
            if (w == NULL)
                break;
            w = put_verbatim(w, v);
        } else if (v->type >= SM_JSON_ARRAY) {
            assert(depth < SM_JSON_DEPTH_MAX);
            stack[depth++] = top;
            top = (frame){.container = v};
            *w++ = v->type == SM_JSON_OBJECT ? '{' : '[';
        } else if ((e = put_slow(out, &w, v, source, fault)) != SM_OK) {
            break;
        }
        w = make_room(out, w, depth + 2); /* all that may be closed here, a comma, a bracket */
        if (w == NULL)
            break;
        while (depth > 0 && top.done == top.container->len) {
            *w++ = top.container->type == SM_JSON_OBJECT ? '}' : ']';
            top = stack[--depth];
        }
        if (depth == 0)
            break;
        *w = ',';
        w += top.done != 0;
        if (top.container->type == SM_JSON_OBJECT) {
            top.item = sm_json_sorted(top.container, top.done, top.item);
            w = put_name(out, w, top.item);
            v = top.item + 1;
        } else {
            v = top.done == 0 ? top.container + 1 : sm_json_next(top.item);
            top.item = v;
        }
        top.done++;
    }
    if (w != NULL)
        out->len = (size_t)(w - out->p);
    if (e == SM_OK && out->err != SM_OK)
        e = sm_fault_set(fault, out->err, "%s", semel_err_text(out->err));
    return e;
}
