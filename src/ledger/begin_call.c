/*
 * What a call is: its parts, its contract, its identity; and how it differs from the recorded one
 * of the same key.
 */
#include <sys/random.h>

#include "base/limits.h"
#include "ledger/begin.h"
#include "ledger/service.h"
#include "json/canon.h"
#include "json/diff.h"

/* ---- the call --------------------------------------------------------------------------------*/

sm_err sm_begun_read(sm_begun *b)
{
    sm_work *w = b->w;
    const semel_call *c = b->given;
    sm_handle after;
    if (c->size < sizeof *c)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the call's size is not set");
    if (c->after.p != NULL && !sm_handle_parse("ef_", c->after, &after))
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS,
                            "what the call comes after is not an effect's handle (ef_...)");
    if (c->scope.p == NULL)
        return sm_fault_set(&w->fault, SEMEL_E_BAD_ARGUMENTS, "the call has no scope");
    b->call = (sm_call){.scope = c->scope, .step = c->step, .tool = c->tool, .key = c->key};
    b->call.args_text = c->args.p == NULL ? SM_STR("{}") : c->args;
    const sm_json_limits *limits =
        b->asking != NULL && b->asking->large ? &sm_json_args_limits : &sm_json_default_limits;
    sm_err e = sm_json_read(&w->call, b->call.args_text, limits, &b->call.args, &w->fault);
    if (e != SM_OK)
        return e;
    uint8_t nonce[SM_NONCE_BYTES] = {0};
    const sm_contracts *contracts = b->contracts != NULL ? b->contracts : sm_contracts_of(b->s, w);
    const sm_contract *contract = sm_contracts_find(contracts, c->tool);
    if (contract != NULL && contract->key.strategy == SM_KEY_UNIQUE &&
        getrandom(nonce, sizeof nonce, 0) != sizeof nonce)
        return sm_fault_set(&w->fault, SEMEL_E_CRYPTO, "the system gives no random bytes");
    e = sm_identify(&w->call, &w->keyer, contracts, &b->call, nonce, &b->id, &w->fault);
    b->lease_ms = b->lease_ms > 0          ? b->lease_ms
                  : b->id.contract == NULL ? 0
                                           : b->id.contract->lease_ms;
    return e;
}

/* ---- drift -----------------------------------------------------------------------------------*/

typedef struct drift_list {
    sm_buf *out;
    unsigned count;
} drift_list;

static bool put_pointer(void *context, sm_str pointer, const sm_json *a, const sm_json *b)
{
    (void)a;
    (void)b;
    drift_list *l = context;
    if (l->count++ >= 20)
        return false;
    sm_buf_byte(l->out, l->count == 1 ? '[' : ',');
    sm_json_put_string(l->out, pointer);
    return true;
}

/* Compares this call with the recorded one of the same key. What is equal as a whole needs no look
 * at its parts: under the strategy `hash` without anything left out, equal keys are equal calls. */
sm_err sm_begun_compare(sm_begun *b, sm_drift *out)
{
    sm_work *w = b->w;
    const sm_contract *c = b->id.contract;
    bool same_variant = w->memo.terms.variant == c->variant;
    bool derived = b->asking == NULL || !b->asking->known; /* the key, from these arguments */
    if (derived && b->id.strategy == SM_KEY_HASH && b->id.projected == b->id.filled &&
        same_variant) {
        *out = SM_SAME;
        return SM_OK;
    }
    sm_fingerprint print;
    sm_err e = sm_fingerprint_make(&w->keyer, b->call.tool, b->id.filled, b->call.args_text, &print,
                                   &w->fault);
    if (e != SM_OK)
        return e;
    if (same_variant && memcmp(&print.hash, &w->cur.fingerprint, sizeof print.hash) == 0) {
        *out = SM_SAME;
        return SM_OK;
    }
    *out = SM_CONFLICTS;
    if (!sm_str_eq(w->cur.tool, b->call.tool)) {
        b->a->message = sm_arena_printf(
            &w->call, "This key belongs to a call of another tool, %.*s.", SM_FMT(w->cur.tool));
        return SM_OK;
    }
    if (w->cur.args.p == NULL)
        return SM_OK; /* nothing is left to compare with */
    sm_identity earlier = b->id;
    /* Among the records, which are dropped at the next look: a waiter looks often. */
    e = sm_json_read(&w->held, w->cur.args, &sm_json_args_limits, &earlier.filled, &w->fault);
    if (e != SM_OK)
        return e;
    sm_identity later = b->id;
    e = sm_redact(&w->held, c, b->id.filled, &later.filled);
    if (e != SM_OK)
        return e;
    *out = same_variant ? sm_identity_drift(&earlier, &later) : SM_CONFLICTS;
    if (*out == SM_SAME) /* only what is redacted differs */
        *out = SM_CONFLICTS;
    sm_buf_clear(&w->scratch);
    drift_list list = {&w->scratch, 0};
    sm_json_diff(earlier.filled, later.filled, put_pointer, &list);
    if (list.count > 0) {
        sm_buf_byte(&w->scratch, ']');
        b->a->drift = sm_work_copy(w, sm_buf_view(&w->scratch));
    }
    return w->scratch.err;
}
