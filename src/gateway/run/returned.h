/*
 * The headers of an upstream's answer: which ones the client gets, and which ones are recorded and
 * replayed.
 *
 *     of one connection (hop by hop, and what Connection lists)      nobody
 *     what the gateway says itself (Cache-Control, Semel-...)        nobody
 *     cookies, credentials and challenges; Date                      the first caller
 *     everything else                                                the first caller, and replays
 *
 * Headers of one name that are there several times stay several. Addresses are recorded as they
 * came; what becomes of them depends on who asks (redirect.h).
 */
#ifndef SM_GATEWAY_RUN_RETURNED_H
#define SM_GATEWAY_RUN_RETURNED_H

#include "gateway/inside/gateway.h"
#include "upstream/http.h"

/* Whether a header belongs to the answer itself and is not ours to say. */
bool gw_passes_on(sm_str name);

/* Sets one header of an upstream's answer. Addresses lead back through the proxy (redirect.h). */
void gw_returned_put(gw_request *r, sm_str name, sm_str value);

/* Sets on the client's answer what it gets of an upstream's. */
void gw_returned_set(gw_request *r, const sm_http_result *head);

/* The same later: `out` keeps it until then. */
void gw_returned_keep(const sm_http_result *head, sm_buf *out);
void gw_returned_give(gw_request *r, sm_str kept);

/* A header of those that are kept, or of those that were recorded: the first of its name, or
 * absent. *n is how many there are. */
sm_str gw_returned_find(sm_str kept, sm_str name, size_t *n);
sm_str gw_recorded_find(const semel_answer *a, sm_str name, size_t *n); /* outcome.c */

/* What is recorded, as a JSON object: a value is a text, or a list if there are several. At most
 * SM_ANSWER_HEADERS_MAX bytes of headers: the longest are left out first. */
void gw_returned_record(const sm_http_result *head, sm_buf *out);

#endif
