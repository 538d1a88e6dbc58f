/*
 * What the files of the API share: naming effects without looking across tenants, refusing in the
 * ledger's words, reading queries and outcomes, writing lists.
 */
#ifndef SM_GATEWAY_API_API_H
#define SM_GATEWAY_API_API_H

#include "core/contract.h"
#include "core/handle.h"
#include "gateway/api/body.h"
#include "gateway/inside/gateway.h"

/* ---- refusing --------------------------------------------------------------------------------*/

/* Answers with a code and the words that the ledger has for it. */
void gw_reply_code(gw_request *r, semel_answer *a, semel_code code);

/* Answers with an error of the ledger. */
void gw_reply_fault(gw_request *r, semel_answer *a, sm_err e, const sm_fault *fault);

/* ---- naming ----------------------------------------------------------------------------------*/

/* Whether an effect is in the token's scope. False if it is not, or not there at all, which nobody
 * can tell apart, or if the ledger does not answer: the request has its answer then. `missing` is
 * what it is told. Blocks on the ledger. */
bool gw_may_see(gw_request *r, semel_answer *a, const sm_handle *h, semel_code missing);

/* The effect that the path names by its handle or by a request's, if the token may see it; else the
 * request has its answer. Blocks on the ledger. */
bool gw_effect_named(gw_request *r, semel_answer *a, sm_handle *h);

/* ---- executing -------------------------------------------------------------------------------*/

/* gw_run_ops.prepare of a call whose contract says how it is executed (call.c). */
struct gw_run;
sm_err gw_call_prepare(struct gw_run *run, const sm_contract *c, const sm_json *args,
                       sm_fault *fault);

/* Undoes an effect that is in doubt and resolves it so; replies (undo.c). */
void gw_undo_resolve(gw_request *r, semel_answer *a, const sm_handle *effect, sm_str evidence,
                     uint64_t if_version);

/* ---- queries ---------------------------------------------------------------------------------*/

/* Reads the query by a table of texts and counts. An empty value counts as absent. False if
 * something was wrong: the request has its answer then. */
bool gw_query_read(gw_request *r, const gw_member *members, size_t count, void *out);

/* The value of a parameter that is a time, or how long ago that is. Absent: *out stays. */
sm_err gw_read_time(const char *name, sm_str text, int64_t *out, sm_fault *fault);

/* The scope to look in: the one that was asked for, if it is the token's, or all of the token's.
 * False if it is not: the request has its answer then. */
bool gw_choose_scope(gw_request *r, sm_str asked, sm_str *out);

/* A position in a list, as we gave it out. */
bool gw_cursor_parse(sm_str text, uint64_t *out);

/* ---- outcomes --------------------------------------------------------------------------------*/

/* What came of a tool, as bodies say it. The members are for tables of structures that begin with
 * a gw_outcome_body. */
typedef struct gw_outcome_body {
    sm_str value;        /* JSON, kept as it was sent */
    sm_str value_base64; /* or any bytes */
    int64_t status;
    gw_object headers;
} gw_outcome_body;

#define GW_STATUS_MAX 999
#define GW_OUTCOME_MEMBERS                                                                         \
    {.name = "value", .kind = GW_M_ANY, .offset = offsetof(gw_outcome_body, value)},               \
        {.name = "value_base64",                                                                   \
         .kind = GW_M_TEXT,                                                                        \
         .offset = offsetof(gw_outcome_body, value_base64)},                                       \
        {.name = "status",                                                                         \
         .kind = GW_M_COUNT,                                                                       \
         .max = GW_STATUS_MAX,                                                                     \
         .offset = offsetof(gw_outcome_body, status)},                                             \
    {                                                                                              \
        .name = "headers", .kind = GW_M_OBJECT, .offset = offsetof(gw_outcome_body, headers)       \
    }

/* Value, status and headers of an outcome; of the headers those that may be replayed. */
sm_err gw_outcome_take(sm_arena *a, const gw_outcome_body *b, semel_outcome *out, sm_fault *fault);

/* ---- writing ---------------------------------------------------------------------------------*/

/* A list on its way out. A page that has grown beyond a bound ends early, and its cursor says where
 * to go on. */
#define GW_PAGE_BYTES ((size_t)4 << 20)
typedef struct gw_page {
    sm_buf out;
    size_t items;
} gw_page;

void gw_page_start(gw_page *p);
void gw_page_item(gw_page *p); /* before each item */
bool gw_page_full(const gw_page *p);

/* Replies with the list and lets go of it. `cursor` 0: there is no more. */
void gw_page_reply(gw_request *r, semel_answer *a, gw_page *p, uint64_t cursor);

/* A member of the object that is being written; a text that is not UTF-8 is left out. */
void gw_put_text(sm_buf *out, const char *name, sm_str text);

#endif
