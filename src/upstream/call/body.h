/*
 * The arguments of a call as the body of a request.
 *
 * json is their canonical form. form is application/x-www-form-urlencoded, in canonical order:
 * what is nested is named by brackets, {"a":{"b":1},"c":[2]} being a[b]=1&c[0]=2; null is an empty
 * value, and an empty list or object is nothing.
 */
#ifndef SM_UPSTREAM_CALL_BODY_H
#define SM_UPSTREAM_CALL_BODY_H

#include "core/contract.h"

#define SM_UPSTREAM_BODY_MAX ((size_t)4 << 20)

/* In the arena. SEMEL_E_BAD_ARGUMENTS if the arguments cannot be written so. `body` is an
 * sm_body_form; with SM_BODY_NONE *out is absent. */
sm_err sm_upstream_body(sm_arena *a, int body, const sm_json *args, sm_str *out, sm_fault *fault);

/* The arguments with the value `text` at the place that `name`, a name or a pointer, names, instead
 * of what was there. Shares the texts of `args`. SEMEL_E_BAD_ARGUMENTS if there is no such place.
 */
sm_err sm_upstream_args_with(sm_arena *a, const sm_json *args, sm_str name, sm_str text,
                             const sm_json **out, sm_fault *fault);

/* Appends percent-encoded text: all but unreserved characters. */
void sm_percent_encode(sm_buf *out, sm_str s);

#endif
