/*
 * What may be written into an HTTP request: URLs, URL templates, headers. Pure rules, shared by
 * those who read configuration and by the client that sends.
 *
 * A URL is absolute, http or https, without a name or password and without a fragment. In a
 * template {name} or {/pointer} stands for an argument. Placeholders are allowed in the path and as
 * values in the query only: what an argument holds must not choose who gets the secrets that are in
 * the headers. A literal brace is written percent-encoded.
 */
#ifndef SM_CORE_WIRE_H
#define SM_CORE_WIRE_H

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

/* Whether a text can be a header's name, and whether one can be its value. */
bool sm_header_name(sm_str name);
bool sm_header_value(sm_str value);

/* Headers that say where a message ends or what becomes of its connection: only whoever sends the
 * bytes may write them. */
bool sm_header_framing(sm_str name);

/* Headers that some servers take the method from, instead of the request line; in any spelling that
 * some server takes for one of them. */
bool sm_header_method(sm_str name);

/* A value without the blanks around it, which are not part of it. */
sm_str sm_header_trim(sm_str value);

/* Compares names without regard to case. */
bool sm_header_is(sm_str name, sm_str other);

/* Whether some server takes one name for the other: CGI-like servers turn everything but letters
 * and digits into underscores. */
bool sm_header_alike(sm_str name, sm_str other);

/* Whether a Content-Type says that a body is of this type and in UTF-8: it has no parameter, or
 * only `charset`, once, which is utf-8. */
bool sm_type_is(sm_str value, const char *type);

/* Whether it leaves open how text is encoded, or says that it is UTF-8. */
bool sm_type_is_utf8(sm_str value);

/* Whether a path, which begins with a slash, stays below its start and is nothing but a path: no
 * segment is "." or "..", in whatever spelling and for servers that decode before they split, and
 * no character needs encoding. */
bool sm_path_stays(sm_str path);

/* Whether a path has an escape that no client needs, and that makes it look like another path than
 * some servers read: of a letter, a digit or NUL; of a character in more bytes of UTF-8 than it
 * has; or one that is written like %u002E. */
bool sm_path_deceives(sm_str path);

#endif
