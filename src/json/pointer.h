/*
 * JSON Pointer (RFC 6901): naming a place in a document, and keeping, dropping or filling in the
 * places that a set of pointers names.
 */
#ifndef SM_JSON_POINTER_H
#define SM_JSON_POINTER_H

#include "base/buf.h"
#include "json/json.h"

/* A parsed pointer. `text` is as written; tokens are decoded. The empty pointer names the whole
 * document and has no tokens. */
typedef struct sm_pointer {
    sm_str text;
    const sm_str *tokens;
    uint32_t count;
} sm_pointer;

/* Parses into the arena. SEMEL_E_SYNTAX with a sentence when it is not a pointer, SEMEL_E_LIMIT
 * when it has too many tokens. */
sm_err sm_pointer_parse(sm_arena *a, sm_str text, sm_pointer *out, sm_fault *fault);

/* The place that a name means: a pointer if it begins with a slash, else the member of that name,
 * which must outlive the pointer. */
sm_err sm_pointer_place(sm_arena *a, sm_str name, sm_pointer *out, sm_fault *fault);

/* The value that a pointer names, or NULL. */
const sm_json *sm_pointer_get(const sm_pointer *p, const sm_json *root);

/* The name of a member on the pointer's way that some readers take for the named one (base/fold.h),
 * or NULL; whether or not the named one is there too. */
const sm_json *sm_pointer_rival(const sm_pointer *p, const sm_json *root);

/* The array index that a token names: digits without sign or leading zeros. "-" names none. */
#define SM_NO_INDEX UINT32_MAX
uint32_t sm_pointer_index(sm_str token);

/* Whether one of the two names the other's place or a place above it. */
bool sm_pointer_overlap(const sm_pointer *a, const sm_pointer *b);

/* Appends "/token" with ~ and / escaped. */
void sm_pointer_put_token(sm_buf *out, sm_str token);

/* A set of pointers as a tree of tokens, so that a document is walked once for all of them. */
typedef struct sm_places sm_places;

sm_places *sm_places_new(sm_arena *a); /* NULL when out of memory */

/* Adds a pointer; `fill` is the value to put there when nothing is, or NULL. */
sm_err sm_places_add(sm_places *set, sm_arena *a, const sm_pointer *p, const sm_json *fill);

/* Each of these makes a new document in the arena and leaves `root` as it is, sharing text and
 * subtrees' order with it; where nothing changes, *out may be `root` itself.
 *
 * keep: only the named places. A member of an object stays if something named is at or below it;
 *   elements of an array keep their index, null standing in for those without anything named, and
 *   end with the last that has. *out is NULL when nothing named is there at all.
 * drop: all but the named places; elements behind a dropped one move up.
 * fill: a named place that is absent gets its value, if it has one. Missing objects on the way
 *   are made, unless every token below could be an array's index; an element of an array is
 *   filled in only where it is there; below a scalar nothing is. Places with values must not
 *   overlap: what is below one that is absent would not be added. */
sm_err sm_json_keep(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out);
sm_err sm_json_drop(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out);
sm_err sm_json_fill(sm_arena *a, const sm_json *root, const sm_places *set, const sm_json **out);

#endif
