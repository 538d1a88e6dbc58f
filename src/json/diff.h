/* Where two documents differ. */
#ifndef SM_JSON_DIFF_H
#define SM_JSON_DIFF_H

#include "json/json.h"

/* Told of each difference in canonical order: `a` or `b` is NULL where that document has nothing.
 * Where both have a container of the same kind, the differences inside it are told instead.
 * `pointer` is borrowed. Returns false to stop. */
typedef bool sm_json_diff_fn(void *context, sm_str pointer, const sm_json *a, const sm_json *b);

/* SEMEL_E_NOMEM or SEMEL_E_LIMIT if a pointer could not be written; SM_OK otherwise. */
sm_err sm_json_diff(const sm_json *a, const sm_json *b, sm_json_diff_fn *tell, void *context);

/* Whether two values have the same canonical form. False if that cannot be told (out of memory). */
bool sm_json_equal(const sm_json *a, const sm_json *b);

#endif
