/*
 * The syntax of URLs, URL templates and paths. Pure rules, shared by those who read configuration
 * and by the client that sends.
 *
 * A URL is absolute, http or https, without a name or password and without a fragment. In a
 * template {name} or {/pointer} stands for an argument. Placeholders are allowed in the path and as
 * values in the query only: what an argument holds must not choose who gets the secrets that are in
 * the headers. A literal brace is written percent-encoded.
 */
#ifndef SM_BASE_URL_H
#define SM_BASE_URL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"
#include "base/str.h"

/* SEMEL_E_SYNTAX with a sentence that says what to write instead, and its place in fault->at. */
sm_err sm_url_check(sm_str url, sm_fault *fault);
sm_err sm_url_template_check(sm_str url, sm_fault *fault);

/* A piece of a template. */
typedef struct sm_url_part {
    sm_str text;   /* of a placeholder: what is between the braces */
    bool argument; /* a placeholder */
    bool query;    /* behind the question mark */
} sm_url_part;

/* The pieces of a checked template, one after another: *at starts from 0. False at the end. */
bool sm_url_template_next(sm_str url, size_t *at, sm_url_part *part);

/* Whether a path, which begins with a slash, stays below its start and is nothing but a path: no
 * segment is "." or "..", in whatever spelling and for servers that decode before they split, and
 * no character needs encoding. */
bool sm_path_stays(sm_str path);

/* Whether a path has an escape that no client needs, and that makes it look like another path than
 * some servers read: of a letter, a digit or NUL; of a character in more bytes of UTF-8 than it
 * has; or one that is written like %u002E. */
bool sm_path_deceives(sm_str path);

#endif
