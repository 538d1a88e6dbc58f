/* The syntax of HTTP headers: names, values, and what a Content-Type says. Pure rules, shared by
 * those who read configuration, the server and the client. */
#ifndef SM_BASE_HEADER_H
#define SM_BASE_HEADER_H

#include <stdbool.h>

#include "base/str.h"

typedef struct sm_http_field {
    sm_str name, value;
} sm_http_field;

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

/* The value of the first header that has this name; absent: none has. */
sm_str sm_header_find(const sm_http_field *fields, size_t n, const char *name);

/* Whether some server takes one name for the other: CGI-like servers turn everything but letters
 * and digits into underscores. */
bool sm_header_alike(sm_str name, sm_str other);

/* Whether a Content-Type says that a body is of this type and in UTF-8: it has no parameter, or
 * only `charset`, once, which is utf-8. */
bool sm_type_is(sm_str value, const char *type);

/* Whether it leaves open how text is encoded, or says that it is UTF-8. */
bool sm_type_is_utf8(sm_str value);

#endif
