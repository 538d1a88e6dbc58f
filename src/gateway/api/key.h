/* Keys that callers give: the header Idempotency-Key. Pure. */
#ifndef SM_GATEWAY_API_KEY_H
#define SM_GATEWAY_API_KEY_H

#include "base/arena.h"
#include "base/error.h"
#include "semel/semel.h"

/* The key in a value of Idempotency-Key: a string of RFC 8941, or the bare text. */
sm_err gw_key_parse(sm_arena *a, sm_str header, sm_str *key, sm_fault *fault);

/* Gives a call the key of the header, if there is one. The body may have one too, if both are
 * equal. */
sm_err gw_key_take(sm_arena *a, sm_str header, semel_call *call, sm_fault *fault);

#endif
