/*
 * What the unit tests share: cmocka with the headers it wants before it, a check that says which
 * row of a table failed, and documents made from text.
 */
#ifndef SM_TESTS_UNIT_H
#define SM_TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"
#include "json/canon.h"
#include "json/json.h"

#define COUNT(table) (sizeof(table) / sizeof(table)[0])

/* An sm_str in a static table, for texts with NUL bytes or cut characters. */
#define BYTES(literal)                                                                             \
    {                                                                                              \
        (literal), sizeof(literal) - 1                                                             \
    }

/* A plain assert would name only the line of the loop; this one takes a sentence about the row. */
#define expect(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                    \
            fail_msg(__VA_ARGS__);                                                                 \
        }                                                                                          \
    } while (0)

#define expect_text(actual, expected)                                                              \
    do {                                                                                           \
        sm_str actual_ = (actual);                                                                 \
        const char *expected_ = (expected);                                                        \
        expect(sm_str_is(actual_, expected_), "got <%.*s>, expected <%s>", SM_FMT(actual_),        \
               expected_);                                                                         \
    } while (0)

/* A promise about time: most rounds keep it. A busy machine delays some of them. */
#define ROUNDS_LEAST 9
#define ROUNDS_MOST  99

typedef struct punctual {
    unsigned prompt, late;
} punctual;

/* Counts a round. True until there were enough to say that most keep the promise. */
static inline bool want_more(punctual *r, int64_t took_ns, int64_t promise_ns)
{
    if (took_ns < promise_ns)
        r->prompt++;
    else
        r->late++;
    unsigned n = r->prompt + r->late;
    bool enough = n >= ROUNDS_LEAST && r->prompt > r->late;
    expect(enough || n < ROUNDS_MOST, "%u of %u were late", r->late, n);
    return !enough;
}

/* A document that must be well formed. */
static inline const sm_json *document(sm_arena *a, const char *text)
{
    const sm_json *root = NULL;
    sm_fault fault = {0};
    sm_err e = sm_json_read(a, sm_str_from(text), &sm_json_default_limits, &root, &fault);
    expect(e == SM_OK, "<%s> was refused: %s", text, fault.text);
    return root;
}

/* Checks that a value's descendants are exactly the nodes that its span says; returns what is
 * behind it. */
static inline const sm_json *sound(const sm_json *v)
{
    const sm_json *next = v + 1;
    for (uint32_t i = 0; v->type >= SM_JSON_ARRAY && i < v->len; i++)
        next = sound(v->type == SM_JSON_OBJECT ? next + 1 : next);
    assert_ptr_equal(next, v + v->span);
    return next;
}

/* The canonical text of a document that has one, NUL-terminated, in the arena. */
static inline const char *canonical(sm_arena *a, const sm_json *v)
{
    sound(v);
    sm_buf out;
    sm_buf_init(&out, SM_ARENA_MAX);
    sm_fault fault = {0};
    sm_err e = sm_json_canon(v, &out, (sm_str){0}, &fault);
    expect(e == SM_OK, "no canonical form: %s (%s)", semel_err_name(e), fault.text);
    sm_str text = sm_arena_text(a, sm_buf_view(&out));
    sm_buf_fini(&out);
    assert_non_null(text.p);
    return text.p;
}

static inline const char *canonical_text(sm_arena *a, const char *text)
{
    return canonical(a, document(a, text));
}

/* Numbers that look random and are the same in every run (splitmix64). */
static inline uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next_random(state) % n);
}

/* One arena for each test. */
static inline int arena_setup(void **state)
{
    sm_arena *a = malloc(sizeof *a);
    if (a == NULL)
        return -1;
    sm_arena_init(a, SM_ARENA_MAX);
    *state = a;
    return 0;
}

static inline int arena_teardown(void **state)
{
    sm_arena_fini(*state);
    free(*state);
    return 0;
}

#define with_arena(test) cmocka_unit_test_setup_teardown(test, arena_setup, arena_teardown)

#endif
