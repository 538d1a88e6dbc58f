/*
 * The bodies of requests, for comparing them: what a body says, whatever its bytes are.
 *
 * A form counts by its fields, urlencoded or multipart: the order of different names and the
 * boundary say nothing. What is shown of a field is all that is sent of it, so two forms that
 * differ are never taken for one. A body that cannot be shown so counts by its bytes. So does a
 * form that servers do not all read in the same way: with a semicolon between fields, with names
 * that some of them take for one (form_name.c), or with parameters that only some of them know.
 */
#ifndef SM_GATEWAY_PROXY_FORM_H
#define SM_GATEWAY_PROXY_FORM_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "json/json.h"

/* Appends the fields as a JSON object: a text, null for a name without a value, a list where a name
 * is there several times. False if the body cannot be read so, or not be shown: then `out` is as
 * before. So it is if a name is also one of the request's query: servers disagree on which of the
 * two counts. */
bool gw_form_urlencoded(sm_arena *a, sm_str query, sm_str body, sm_buf *out);

/* The same of multipart/form-data. A field with more than a name and a text is {"filename", "type",
 * "size", "sha256"}, and "head_sha256" if its head says anything else. */
bool gw_form_multipart(sm_arena *a, sm_digest *digest, sm_str query, sm_str body, sm_str boundary,
                       sm_buf *out);

/* The boundary that a Content-Type names. Absent if it is not there, or there twice; if servers
 * could read another one; or if there is any other parameter but one that says charset=utf-8. */
sm_str gw_form_boundary(sm_arena *a, sm_str type);

/* The value without this parameter; as it is, if its parameters are not well formed. Absent if
 * there is no memory. */
sm_str gw_parameter_drop(sm_arena *a, sm_str value, const char *name);

/* Whether all servers take these names, which are different and in UTF-8, for different ones, and
 * none reads them by their order; and whether no server takes one of them for a name of the query
 * (form_name.c). The same of the names of a JSON object, which is about the query only. */
bool gw_form_names_clear(sm_arena *a, sm_str query, const sm_str *names, size_t n);
bool gw_json_names_clear(sm_arena *a, sm_str query, const sm_json *object);

/* What is packed in a body with Content-Encoding gzip, or signed piece by piece (aws-chunked).
 * False if it is not so, or more than `out` holds, or the wrapping has room for other text: a name
 * of a file in gzip, a chunk's extension that is not a signature. */
bool gw_unpack_gzip(sm_str body, sm_buf *out);
bool gw_unpack_aws(sm_str body, sm_buf *out);

#endif
