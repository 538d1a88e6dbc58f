/*
 * The strict reader: one pass over a private, zero-padded copy of the text.
 *
 * The padding is the sentinel: a NUL byte is legal nowhere in JSON, so the inner loops need no
 * bounds checks and stop at the end by themselves. Strings with escapes are decoded in place (a
 * decoded string is never longer than its escapes), so a document costs three allocations: the
 * copy, the nodes, and the order of the objects that were not sorted.
 *
 * There is no stack. While a container is open, its node's `span` holds the index of the container
 * around it; closing it replaces that by the real span.
 */
#include "json/json.h"

#include <endian.h>
#include <stdio.h>

#include "base/utf8.h"
#include "json/tree.h"

const sm_json_limits sm_json_default_limits = {
    .bytes = SM_JSON_BYTES_MAX,
    .depth = SM_JSON_DEPTH_MAX,
    .values = SM_JSON_VALUES_MAX,
};

const sm_json_limits sm_json_args_limits = {
    .bytes = SM_ARGS_MAX,
    .depth = SM_JSON_DEPTH_MAX,
    .values = SM_JSON_VALUES_MAX,
};

#define NO_PARENT UINT32_MAX
#define SHORT     16 /* bytes of a string that is scanned byte by byte */

/* On an open object: its names are not known to be sorted and distinct. */
#define UNSORTED 0x80u

enum {
    SPACE = 1, /* between tokens */
    DIGIT = 2,
    PLAIN = 4, /* inside a string: stands for itself and is ASCII */
};

/* The class bits of each byte; from 80 on, none. */
/* clang-format off */
static const uint8_t classes[256] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 0, /* 00 */
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, /* 10 */
    5, 4, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, /* 20 */
    6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 4, 4, 4, 4, 4, 4, /* 30 */
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, /* 40 */
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0, 4, 4, 4, /* 50 */
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, /* 60 */
    4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, /* 70 */
};
/* clang-format on */

/* What does not change while reading, and where a failure goes. The reader's position, the next
 * free node and the open container are locals of read_document: they belong in registers. */
typedef struct reader {
    sm_arena *arena;
    const sm_json_limits *limits;
    sm_str source;   /* the caller's text, for positions */
    char *copy;      /* ours, padded */
    const char *end; /* of the copy */
    sm_json *nodes;
    uint32_t cap; /* how many there is room for */
    sm_fault *fault;
} reader;

/* Every failure goes through here: it alone knows how to place one. */
static sm_err fail(reader *r, sm_err code, size_t at, const char *sentence)
{
    sm_fault_set(r->fault, code, "%s", sentence);
    if (r->fault != NULL) {
        r->fault->at = at;
        sm_text_position(r->source, at, &r->fault->line, &r->fault->column);
    }
    return code;
}

static sm_err fail_at(reader *r, const char *p, const char *sentence)
{
    return fail(r, SEMEL_E_SYNTAX, (size_t)(p - r->copy), sentence);
}

/* The sentence for a byte that cannot stand where a token was expected. Returns NULL. */
static const char *fail_unexpected(reader *r, const char *p, const char *expected)
{
    char text[160];
    unsigned char c = (unsigned char)*p;
    if (p == r->end)
        snprintf(text, sizeof text, "the text ends where %s was expected", expected);
    else if (c > 0x20 && c < 0x7F)
        snprintf(text, sizeof text, "expected %s, found '%c'", expected, c);
    else
        snprintf(text, sizeof text, "expected %s, found the byte 0x%02X", expected, c);
    fail_at(r, p, text);
    return NULL;
}

static inline const char *skip_space(const char *p)
{
    if ((unsigned char)*p > ' ')
        return p;
    while (classes[(unsigned char)*p] & SPACE)
        p++;
    return p;
}

/* The first byte from `p` on that ends a run of plain characters: a quote, a backslash, a control
 * character, or a byte that is not ASCII.
 *
 * Most strings are short, and for those a branch for each byte is best: the processor guesses the
 * length and goes on, where arithmetic on a block would make all that follows wait for its result.
 * Longer ones are looked at eight bytes at a time. */
static inline const char *skip_plain(const char *p)
{
    for (int i = 0; i < SHORT; i++, p++) {
        if (!(classes[(unsigned char)*p] & PLAIN))
            return p;
    }
    const uint64_t ones = 0x0101010101010101u;
    for (;; p += 8) {
        uint64_t x;
        memcpy(&x, p, sizeof x);
        x = le64toh(x);
        /* The high bit of a byte says stop. A borrow can set it falsely, but only above a byte
         * where it is set truly, and the lowest one is what counts. */
        uint64_t quote = x ^ ones * '"', backslash = x ^ ones * '\\';
        uint64_t stop = (((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                         ((x - ones * 0x20) & ~x) | x) &
                        ones * 0x80;
        if (stop != 0)
            return p + (__builtin_ctzll(stop) >> 3);
    }
}

static inline void set_node(const reader *r, sm_json *v, sm_json_type type, const char *p)
{
    v->type = (uint8_t)type;
    v->flags = 0;
    v->len = 0;
    v->span = 1;
    v->at = (uint32_t)(p - r->copy);
    v->text = p;
}

static int32_t read_hex4(const char *p)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int h = sm_hex_digit(p[i]);
        if (h < 0)
            return -1;
        v = v << 4 | h;
    }
    return v;
}

/* Decodes the escape at *p (a backslash) to *w and moves both on. */
static sm_err read_escape(reader *r, const char **p, char **w)
{
    const char *at = *p;
    char c = at[1];
    *p += 2;
    switch (c) {
    case '"':
    case '\\':
    case '/': *(*w)++ = c; return SM_OK;
    case 'b': *(*w)++ = '\b'; return SM_OK;
    case 'f': *(*w)++ = '\f'; return SM_OK;
    case 'n': *(*w)++ = '\n'; return SM_OK;
    case 'r': *(*w)++ = '\r'; return SM_OK;
    case 't': *(*w)++ = '\t'; return SM_OK;
    case 'u': break;
    default:
        if (at + 1 == r->end)
            return fail_at(r, r->end, "the text ends inside a string");
        return fail_at(r, at, "unknown escape; write \\\\ for a backslash");
    }
    int32_t unit = read_hex4(at + 2);
    if (unit < 0)
        return fail_at(r, at, "\\u needs four hexadecimal digits");
    *p += 4;
    if (unit >= 0xDC00 && unit <= 0xDFFF)
        return fail_at(r, at, "the second half of a surrogate pair without the first");
    if (unit >= 0xD800 && unit <= 0xDBFF) {
        int32_t low = at[6] == '\\' && at[7] == 'u' ? read_hex4(at + 8) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return fail_at(r, at, "the first half of a surrogate pair without the second");
        *p += 6;
        unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    }
    *w += sm_utf8_put(*w, (uint32_t)unit);
    return SM_OK;
}

/* Reads the rest of a string from its first escape or wide character on. `p` is there, and the
 * string's text began at v->text. Returns where reading goes on, or NULL. */
static const char *read_string_slow(reader *r, const char *p, sm_json *v)
{
    char *w = r->copy + (p - r->copy);
    for (;;) {
        unsigned char c = (unsigned char)*p;
        if (classes[c] & PLAIN) {
            *w++ = *p++;
        } else if (c == '"') {
            v->len = (uint32_t)(w - v->text);
            return p + 1;
        } else if (c == '\\') {
            v->flags &= (uint8_t)~SM_JSON_VERBATIM;
            if (read_escape(r, &p, &w) != SM_OK)
                return NULL;
            if ((unsigned char)w[-1] >= 0x80)
                v->flags |= SM_JSON_WIDE;
        } else if (c >= 0x80) {
            size_t step = sm_utf8_step((const unsigned char *)p, (size_t)(r->end - p));
            if (step == 0) {
                fail_at(r, p, "not valid UTF-8");
                return NULL;
            }
            v->flags |= SM_JSON_WIDE;
            memmove(w, p, step);
            w += step;
            p += step;
        } else {
            fail_at(r, p,
                    p == r->end ? "the text ends inside a string"
                                : "a control character must be escaped inside a string");
            return NULL;
        }
    }
}

/* `p` is at the opening quote. */
static inline const char *read_string(reader *r, const char *p, sm_json *v)
{
    set_node(r, v, SM_JSON_STRING, p);
    v->flags = SM_JSON_VERBATIM;
    v->text = p + 1;
    p = skip_plain(p + 1);
    if (*p != '"')
        return read_string_slow(r, p, v);
    v->len = (uint32_t)(p - v->text);
    return p + 1;
}

static inline const char *skip_digits(const char *p)
{
    while (classes[(unsigned char)*p] & DIGIT)
        p++;
    return p;
}

/* Whether a literal without exponent is what the canonical writer would write; see number.c for
 * why fifteen digits are safe, and why an integer below 10^21 is always its own digits. */
static bool number_verbatim(const char *whole, size_t n_whole, size_t n_fraction, bool negative)
{
    if (n_fraction == 0)
        return n_whole <= 21 && !(negative && *whole == '0');
    const char *fraction = whole + n_whole + 1;
    if (n_whole + n_fraction > 15 || fraction[n_fraction - 1] == '0')
        return false;
    return *whole != '0' || memcmp(fraction, "000000", n_fraction < 6 ? n_fraction : 6) != 0;
}

/* `p` is at a minus sign or a digit. */
static inline const char *read_number(reader *r, const char *p, sm_json *v)
{
    set_node(r, v, SM_JSON_NUMBER, p);
    bool negative = false;
    if (__builtin_expect(*p == '-', 0)) {
        negative = true;
        p++;
    }
    const char *whole = p;
    p = skip_digits(p);
    size_t n_whole = (size_t)(p - whole), n_fraction = 0;
    if (n_whole == 0)
        return fail_unexpected(r, p, "a digit");
    if (*whole == '0' && n_whole > 1) {
        fail_at(r, whole, "a number must not have leading zeros");
        return NULL;
    }
    if (*p == '.') {
        const char *fraction = ++p;
        p = skip_digits(p);
        n_fraction = (size_t)(p - fraction);
        if (n_fraction == 0)
            return fail_unexpected(r, p, "a digit after the decimal point");
    }
    if ((*p | 0x20) == 'e') {
        p++;
        p += *p == '+' || *p == '-';
        const char *exponent = p;
        p = skip_digits(p);
        if (p == exponent)
            return fail_unexpected(r, p, "a digit in the exponent");
    } else if (number_verbatim(whole, n_whole, n_fraction, negative)) {
        v->flags = SM_JSON_VERBATIM;
    }
    v->len = (uint32_t)(p - v->text);
    return p;
}

static const char *read_word(reader *r, const char *p, sm_json *v)
{
    static const struct {
        const char *word;
        sm_json_type type;
    } words[] = {{"true", SM_JSON_TRUE}, {"false", SM_JSON_FALSE}, {"null", SM_JSON_NULL}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t n = strlen(words[i].word);
        if (strncmp(p, words[i].word, n) != 0)
            continue;
        set_node(r, v, words[i].type, p);
        return p + n;
    }
    return fail_unexpected(r, p, "a value");
}

/* Reads a scalar of any type. */
static inline const char *read_scalar(reader *r, const char *p, sm_json *v)
{
    if (*p == '"')
        return read_string(r, p, v);
    if (*p == '-' || (classes[(unsigned char)*p] & DIGIT))
        return read_number(r, p, v);
    return read_word(r, p, v);
}

/* Reads a member's name and colon; `p` is where the name must begin. Notices when the names stop
 * being sorted: an object whose names never do needs no second look. */
static inline const char *read_name(reader *r, const char *p, sm_json *open, sm_json *v)
{
    if (*p != '"')
        return fail_unexpected(r, p, "a name in double quotes");
    p = read_string(r, p, v);
    if (p == NULL)
        return NULL;
    uint64_t prefix = sm_json_prefix(v);
    if (prefix <= open->last && open->len > 0)
        open->flags |= UNSORTED;
    open->last = prefix;
    if (*p != ':' && *(p = skip_space(p)) != ':')
        return fail_unexpected(r, p, "':' after the name");
    return skip_space(p + 1);
}

/* Gives an open container its real span; `end` is behind its last node. False on failure. */
static inline bool close_container(reader *r, sm_json *v, const sm_json *end)
{
    v->span = (uint32_t)(end - v);
    v->order = NULL;
    if (!(v->flags & UNSORTED))
        return true;
    v->flags = 0;
    const sm_json *again = NULL;
    sm_err e = sm_json_close_object(r->arena, v, &again);
    if (e == SM_OK)
        return true;
    if (e == SEMEL_E_DUPLICATE)
        fail(r, e, again->at, "this name appears twice in the same object");
    else
        fail(r, e, v->at, semel_err_text(e));
    return false;
}

/* The grammar. Each turn of the outer loop stands before a value, each turn of the inner one
 * behind a value. Returns the end of the document's value, or NULL. */
static const char *read_document(reader *r, const char *p)
{
    sm_json *next = r->nodes, *const limit = r->nodes + r->cap - 1; /* room for a name and value */
    sm_json *open = NULL;
    uint32_t depth = 0;
    for (;;) {
        if (next >= limit) {
            fail(r, SEMEL_E_LIMIT, (size_t)(p - r->copy),
                 "too many values in one document; split it into smaller ones");
            return NULL;
        }
        if (*p == '{' || *p == '[') {
            bool object = *p == '{';
            if (depth++ == r->limits->depth) {
                char why[64];
                snprintf(why, sizeof why, "nested too deeply: at most %u levels", r->limits->depth);
                fail(r, SEMEL_E_LIMIT, (size_t)(p - r->copy), why);
                return NULL;
            }
            set_node(r, next, object ? SM_JSON_OBJECT : SM_JSON_ARRAY, p);
            next->span = open == NULL ? NO_PARENT : (uint32_t)(open - r->nodes);
            open = next++;
            p = skip_space(p + 1);
            if (*p != (object ? '}' : ']')) {
                if (object && (p = read_name(r, p, open, next++)) == NULL)
                    return NULL;
                continue;
            }
        } else {
            p = read_scalar(r, p, next++);
            if (p == NULL || open == NULL)
                return p;
            open->len++;
            p = skip_space(p);
        }
        while (*p != ',') {
            bool object = open->type == SM_JSON_OBJECT;
            if (*p != (object ? '}' : ']'))
                return fail_unexpected(r, p, object ? "',' or '}'" : "',' or ']'");
            p++;
            sm_json *closed = open;
            open = closed->span == NO_PARENT ? NULL : r->nodes + closed->span;
            depth--;
            if (!close_container(r, closed, next))
                return NULL;
            if (open == NULL)
                return p;
            open->len++;
            p = skip_space(p);
        }
        p = skip_space(p + 1);
        if (open->type == SM_JSON_OBJECT && (p = read_name(r, p, open, next++)) == NULL)
            return NULL;
    }
}

sm_err sm_json_read(sm_arena *a, sm_str text, const sm_json_limits *limits, const sm_json **root,
                    sm_fault *fault)
{
    *root = NULL;
    sm_fault ignored;
    reader r = {
        .arena = a, .limits = limits, .source = text, .fault = fault != NULL ? fault : &ignored};
    if (text.n > limits->bytes)
        return fail(&r, SEMEL_E_LIMIT, limits->bytes, "the document is too large");
    sm_str copy = sm_arena_text(a, text);
    /* A value takes two bytes at least, itself and what separates it from the next; only a
     * container that is never closed takes one. One more than the limit, so that a name may be read
     * before its value is found to be too many. */
    size_t most = (text.n + (text.n < limits->depth ? text.n : limits->depth)) / 2 + 2;
    r.cap = (most < limits->values ? (uint32_t)most : limits->values) + 1;
    r.nodes = sm_arena_alloc(a, r.cap * sizeof *r.nodes);
    if (copy.p == NULL || r.nodes == NULL)
        return fail(&r, SEMEL_E_NOMEM, 0, semel_err_text(SEMEL_E_NOMEM));
    r.copy = (char *)copy.p;
    r.end = r.copy + text.n;

    const char *p = r.copy;
    if (text.n >= 3 && memcmp(p, "\xEF\xBB\xBF", 3) == 0)
        return fail_at(&r, p, "the text starts with a byte-order mark; save it without one");
    p = read_document(&r, skip_space(p));
    if (p == NULL)
        return r.fault->code;
    p = skip_space(p);
    if (p != r.end)
        return fail_at(&r, p, "more text after the end of the value");
    *root = r.nodes;
    return SM_OK;
}
