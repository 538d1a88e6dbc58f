/* The options of ours in a server's URL: `?name=value&...` at its end. */
#ifndef SM_STORE_SHARED_URL_H
#define SM_STORE_SHARED_URL_H

#include "base/arena.h"
#include "base/error.h"
#include "base/str.h"

typedef struct sm_url_option {
    const char *name;
    sm_str value; /* absent unless the URL has it; decoded */
} sm_url_option;

/* Takes the options that are in the list out of the URL, which becomes one without them; the others
 * stay where they are. Texts are made in the arena and end with a NUL. SEMEL_E_BAD_ARGUMENTS if one
 * is there twice or cannot be decoded; no fault repeats a part of the URL that may be secret. */
sm_err sm_url_take(sm_arena *a, sm_str *url, sm_url_option *options, size_t n, sm_fault *fault);

/* Resolves %XX. SEMEL_E_BAD_ARGUMENTS if it is not whole, or makes a NUL. */
sm_err sm_url_decode(sm_arena *a, sm_str text, sm_str *out);

/* A whole number from `least` to `most`, or `absent` if there is none. */
sm_err sm_url_number(const sm_url_option *o, int64_t least, int64_t most, int64_t absent,
                     int64_t *out, sm_fault *fault);

#endif
