/*
 * What the files of the API share: requests as operations of the JSON language (api/api.h), calls
 * with their keys, and what is executed for them.
 */
#ifndef SM_GATEWAY_API_API_H
#define SM_GATEWAY_API_API_H

#include "api/operation.h"
#include "core/contract.h"
#include "gateway/inside/gateway.h"

/* ---- operations ------------------------------------------------------------------------------*/

/* A request as an operation, which the request answers. */
typedef struct gw_http_operation {
    sm_operation op;
    gw_request *r;
} gw_http_operation;

/* The arena is for what is read from the request. */
void gw_operation(gw_http_operation *o, gw_request *r, sm_arena *arena);

gw_request *gw_request_of(const sm_operation *op);

/* Answers with a code and the words that the ledger has for it, or with an error of the ledger. */
void gw_reply_code(gw_request *r, semel_answer *a, semel_code code);
void gw_reply_fault(gw_request *r, semel_answer *a, sm_err e, const sm_fault *fault);

/* ---- calls -----------------------------------------------------------------------------------*/

/* Reads a request's call, with its key. False if it was wrong, or if the scope is not the token's:
 * the request has its answer then. */
bool gw_read_call(gw_request *r, sm_arena *a, sm_call_form form, semel_call *out);

/* The key of the request's header; absent if it has none. False if it is wrong: the request has its
 * answer then. */
bool gw_read_key(gw_request *r, sm_arena *a, sm_str *key);

/* ---- executing -------------------------------------------------------------------------------*/

/* gw_run_ops.prepare of a call whose contract says how it is executed (call.c). */
struct gw_run;
sm_err gw_call_prepare(struct gw_run *run, const sm_contract *c, const sm_json *args,
                       sm_fault *fault);

/* sm_door.compensate (undo.c). */
void gw_undo_resolve(sm_operation *op, semel_answer *a, const sm_handle *effect, sm_str evidence,
                     uint64_t if_version);

#endif
