/* Defaults of arguments, as an input schema (JSON Schema) says them. */
#ifndef SM_CORE_DEFAULTS_H
#define SM_CORE_DEFAULTS_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "json/json.h"

typedef struct sm_defaults sm_defaults;

/* What a schema says to put in where something is missing, in the arena; NULL if that is nothing,
 * or out of memory. Borrows from the schema. */
const sm_defaults *sm_defaults_of(sm_arena *a, const sm_json *schema);

/* Appends defaults as a schema that says nothing else. */
void sm_defaults_put(sm_buf *out, const sm_defaults *d); /* accepts NULL */

/* A document with defaults put in where something is missing, at any depth of objects that are
 * there. *added: how many; 0: *out is not set. SEMEL_E_LIMIT if it gets larger than `most`. */
sm_err sm_defaults_fill(const sm_defaults *d, sm_arena *a, const sm_json *root, size_t most,
                        sm_str *out, size_t *added);

/* Whether a document leaves out what has a default. True when out of memory. `d` may be NULL. */
bool sm_defaults_missing(const sm_defaults *d, sm_arena *a, const sm_json *root);

#endif
