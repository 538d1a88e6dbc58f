/*
 * What the fuzz targets share: a check that stops the fuzzer, input cut into parts, and documents
 * made from them.
 *
 * An input of several parts separates them by the byte FF, which no JSON, pointer or name in UTF-8
 * contains: what is inside a part need not be escaped, and a corpus stays readable.
 */
#ifndef SM_TESTS_FUZZ_H
#define SM_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "base/utf8.h"
#include "json/canon.h"
#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define must(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static inline sm_str input(const uint8_t *data, size_t size)
{
    return (sm_str){(const char *)data, size};
}

/* Takes the next part off the input. False when there is none. */
static inline bool next_part(sm_str *rest, sm_str *part)
{
    if (rest->p == NULL)
        return false;
    const char *end = rest->n == 0 ? NULL : memchr(rest->p, 0xFF, rest->n);
    if (end == NULL) {
        *part = *rest;
        *rest = (sm_str){0};
    } else {
        *part = (sm_str){rest->p, (size_t)(end - rest->p)};
        *rest = (sm_str){end + 1, rest->n - part->n - 1};
    }
    return true;
}

/* Whatever is refused, the refusal says where and why. */
static inline void must_be_placed(const sm_fault *f, sm_err e, sm_str text)
{
    must(e != SM_OK && f->code == e);
    must(f->line >= 1 && f->column >= 1);
    must(f->at <= text.n);
    must(f->text[0] != '\0');
    must(sm_utf8_valid((sm_str){f->text, strlen(f->text)}));
}

/* Walks a whole document and checks that it hangs together. Returns the node behind it. */
static inline const sm_json *must_be_sound(const sm_json *v, unsigned depth)
{
    must(depth <= SM_JSON_DEPTH_MAX);
    must(v->type <= SM_JSON_OBJECT);
    const sm_json *next = v + 1;
    if (v->type == SM_JSON_STRING)
        must(sm_utf8_valid(sm_json_text(v)));
    for (uint32_t i = 0; v->type >= SM_JSON_ARRAY && i < v->len; i++) {
        if (v->type == SM_JSON_OBJECT) {
            must(next->type == SM_JSON_STRING && next->span == 1);
            must(sm_utf8_valid(sm_json_text(next)));
            next++;
        }
        next = must_be_sound(next, depth + 1);
    }
    must(next == v + v->span);
    const sm_json *previous = NULL;
    for (uint32_t i = 0; v->type == SM_JSON_OBJECT && i < v->len; i++) {
        const sm_json *name = sm_json_sorted(v, i, previous);
        must(name > v && name < next);
        if (previous != NULL)
            must(sm_utf16_compare(sm_json_text(previous), sm_json_text(name)) < 0);
        previous = name;
    }
    return next;
}

/* The canonical form, appended to an empty buffer. False for a number that has none. */
static inline bool canonical(const sm_json *v, sm_str source, sm_buf *out)
{
    sm_buf_init(out, SM_ARENA_MAX);
    sm_fault f = {0};
    sm_err e = sm_json_canon(v, out, source, &f);
    if (e == SM_OK)
        return true;
    must(e == SEMEL_E_RANGE);
    must_be_placed(&f, e, source);
    return false;
}

/* A canonical form is read again as an equal document with the same form. */
static inline const sm_json *must_be_canonical(sm_arena *a, sm_str form)
{
    sm_json_limits limits = sm_json_default_limits;
    limits.bytes = SM_ARENA_MAX; /* exact integers may be longer than they were written */
    const sm_json *again = NULL;
    must(sm_json_read(a, form, &limits, &again, NULL) == SM_OK);
    sm_buf out;
    must(canonical(again, form, &out));
    must(sm_str_eq(sm_buf_view(&out), form));
    sm_buf_fini(&out);
    return again;
}

#endif
