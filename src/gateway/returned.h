/*
 * The headers of an upstream's answer: which ones the client gets, and which ones are recorded and
 * replayed.
 *
 *     of one connection (hop by hop, and what Connection lists)      nobody
 *     what the gateway says itself (Cache-Control, Semel-...)        nobody
 *     cookies, credentials and challenges; Date                      the first caller
 *     everything else                                                the first caller, and replays
 *
 * Headers of one name that are there several times stay several.
 */
#ifndef SM_GATEWAY_RETURNED_H
#define SM_GATEWAY_RETURNED_H

#include "effect/http.h"
#include "gateway/gateway.h"

/* Whether a header belongs to the answer itself and is not ours to say. */
bool gw_passes_on(sm_str name);

/* Sets on the client's answer what it gets of an upstream's. */
void gw_returned_set(gw_request *r, const sm_http_result *head);

/* The same later: `out` keeps it until then. */
void gw_returned_keep(const sm_http_result *head, sm_buf *out);
void gw_returned_give(gw_request *r, sm_str kept);

/* What is recorded, as a JSON object: a value is a text, or a list if there are several. At most
 * SM_ANSWER_HEADERS_MAX bytes of headers: the longest are left out first. */
void gw_returned_record(const sm_http_result *head, sm_buf *out);

#endif
