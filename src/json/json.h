/*
 * JSON documents: the tree that everything works on, and the strict reader that makes it.
 *
 * A document is one array of nodes in preorder. A value's descendants follow it directly, so a
 * whole subtree is a run of `span` nodes that can be skipped or copied as one:
 *
 *     {"b": [1, 2], "a": null}
 *
 *     index  0       1    2      3  4  5    6
 *     node   object  "b"  array  1  2  "a"  null
 *     span   7       1    3      1  1  1    1
 *
 * A member is its name (a string node) followed by its value. An object keeps its members in the
 * document's order; `order` says how they sort, as offsets of their names from the object's node,
 * and is NULL when they are sorted already. Sorting happens once, when the object is closed: it is
 * how duplicates are found, and the canonical writer needs it anyway.
 *
 * Strings are decoded UTF-8 and may hold NUL bytes; numbers are the literal's exact text. Either is
 * followed by at least SM_TEXT_PAD readable bytes. Nodes are immutable once their document is done
 * and live as long as their arena.
 */
#ifndef SM_JSON_JSON_H
#define SM_JSON_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/str.h"

typedef enum sm_json_type {
    SM_JSON_NULL,
    SM_JSON_FALSE,
    SM_JSON_TRUE,
    SM_JSON_NUMBER,
    SM_JSON_STRING,
    SM_JSON_ARRAY,
    SM_JSON_OBJECT,
} sm_json_type;

enum {
    /* A string or number whose text is already as the canonical writer would write it. */
    SM_JSON_VERBATIM = 1,
    /* A string with a byte above 7F. */
    SM_JSON_WIDE = 2,
    /* A YAML scalar that people read as something else than the string it is: see yaml.h. */
    SM_JSON_AMBIGUOUS = 4,
};

typedef struct sm_json {
    uint8_t type;
    uint8_t flags;
    uint32_t len;  /* bytes of text, elements, or members */
    uint32_t span; /* nodes of this value, itself included */
    uint32_t at;   /* byte offset in the source */
    union {
        const char *text;
        const uint32_t *order;
        uint64_t last; /* while the reader has an object open */
    };
} sm_json;

_Static_assert(sizeof(sm_json) == 24, "a node stays small: a document is an array of them");

typedef struct sm_json_limits {
    size_t bytes;
    uint32_t depth; /* at most SM_JSON_DEPTH_MAX */
    uint32_t values;
} sm_json_limits;

extern const sm_json_limits sm_json_default_limits;
extern const sm_json_limits
    sm_json_args_limits; /* for arguments that may be large, or are recorded */

/* Reads exactly one RFC 8259 value. Beyond the grammar, these are errors: text that is not UTF-8,
 * a byte-order mark, an escape that names half a surrogate pair, a name that an object has already
 * (compared after decoding), and anything over a limit. One pass, no recursion.
 *
 * The text is copied, so it need not outlive the call. On success *root points into the arena. On
 * failure *root is NULL and `fault` (may be NULL) has the position and a sentence. */
sm_err sm_json_read(sm_arena *a, sm_str text, const sm_json_limits *limits, const sm_json **root,
                    sm_fault *fault);

/* The text of a string or number. */
static inline sm_str sm_json_text(const sm_json *v)
{
    return (sm_str){v->text, v->len};
}

/* The value behind this one among its siblings. Only valid if there is one. */
static inline const sm_json *sm_json_next(const sm_json *v)
{
    return v + v->span;
}

/* An object's i-th member's name in canonical order; its value is the node behind it. */
static inline const sm_json *sm_json_sorted(const sm_json *object, uint32_t i,
                                            const sm_json *previous)
{
    if (object->order != NULL)
        return object + object->order[i];
    return previous == NULL ? object + 1 : sm_json_next(previous + 1);
}

/* The value of an object's member, or NULL. A value that is no object has no members. */
const sm_json *sm_json_find(const sm_json *object, sm_str name);

/* "an object", "a string", ...: for sentences. */
const char *sm_json_type_name(const sm_json *v);

#endif
