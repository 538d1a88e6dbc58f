/*
 * An HTTP request as the arguments of a call (docs/proxy.md): what it asks for beside its method,
 * and the secrets in its query.
 *
 * Frameworks let a client name another method than that of the request line, for clients that know
 * only GET and POST: in a header such as X-HTTP-Method-Override, or in a field `_method` of the
 * query, the form or a JSON body.
 */
#ifndef SM_CORE_REQUEST_H
#define SM_CORE_REQUEST_H

#include "base/arena.h"
#include "json/json.h"

/* Whether some framework takes the method from a field of this name, in any spelling that some
 * server takes for it: PHP reads .method as _method. */
bool sm_name_method(sm_str name);

/* A name without what some readers drop at its ends. URLSearchParams of JavaScript drops a question
 * mark in front of the first name, libraries a number sign too; decoders of text drop a byte order
 * mark; and many readers trim blanks. */
sm_str sm_name_trim(sm_str name);

/* Takes the next name off a query, decoded as lenient servers do. False at the end. The name is
 * absent if there is no memory. */
bool sm_query_next(sm_arena *a, sm_str *rest, sm_str *name);

/* Whether a query names a method; whether a request does, anywhere. True also if there is no memory
 * to find out. */
bool sm_query_overrides(sm_arena *a, sm_str query);
bool sm_request_overrides(sm_arena *a, const sm_json *request);

/* Whether servers may read another request than it seems to be: it names a method somewhere; its
 * path has two slashes, parameters, or slashes that are percent-encoded; a name in its query is one
 * that some readers trim; or its body is a form or JSON by its label and counts by its bytes, since
 * servers do not agree on what it says. */
bool sm_request_odd(sm_arena *a, const sm_json *request);

/* What a request acts on.
 *
 * Every method but POST sets what the path names, and so does a POST that names PUT, PATCH or
 * DELETE. An upload in parts (S3) is begun and completed by a POST, and aborted by a DELETE. After
 * each of these three, earlier requests to the path are no longer replayed, so that a new upload
 * does not get the id of an old one. A part sets what path and query name. */
typedef enum sm_acts { SM_ACTS_ON_NOTHING, SM_ACTS_ON_PATH, SM_ACTS_ON_PART } sm_acts;
sm_acts sm_request_acts(sm_arena *a, const sm_json *request);

/* A path as servers read it: what is percent-encoded without need is decoded. Blanks, control and
 * other characters that a path cannot have stay encoded, and so does the percent sign. Absent if
 * there is no memory. */
sm_str sm_path_plain(sm_arena *a, sm_str path);

/* A query as it may be stored: a mark stands for each value whose name is that of a secret in a URL
 * (core/secret.h). The query itself, if it has none; absent if there is no memory. */
sm_str sm_query_redact(sm_arena *a, sm_str query);

#endif
