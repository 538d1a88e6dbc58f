/*
 * From a call and its contract to the key that names the action: the one order of steps.
 *
 *     1. the parts of the call are checked
 *     2. the tool's `fill` is applied, and on the filled arguments the first matching variant is
 *        chosen; if that has a `fill` of its own, it is applied to them too
 *     3. the filled arguments are checked against `input`, and for names that a lenient reader
 *        takes for one that the contract uses (base/fold.h)
 *     4. they are projected: `fields` kept or `ignore` dropped
 *     5. what the call acts on is hashed
 *     6. the projection is canonicalised and hashed with scope, step and tool
 *
 * A caller's key always means the strategy `explicit`, but never for a read.
 *
 * The arguments of an HTTP request (sm_parsed_call.http) have parts that no contract can take out
 * of the identity: a contract that names an order must not make a refund of it the same action as
 * its charge, or let one account see what another one did.
 *
 *     method, path, headers,  part of every key of `hash` and `fields`
 *     body_sha256
 *     headers, other_headers  must be equal where keys are: otherwise it is a conflict
 *     other_headers           not part of a key of `hash`
 *     loose_headers           neither; only an approval is for exactly these
 */
#ifndef SM_CORE_IDENTITY_H
#define SM_CORE_IDENTITY_H

#include "core/contract.h"

typedef struct sm_identity {
    const sm_contract *contract; /* the variant's, if one matched */
    sm_strategy strategy;
    const sm_json *filled;    /* the full arguments */
    const sm_json *projected; /* what names the action; NULL unless hash or fields */
    sm_key key;               /* zero if the strategy is none */
    sm_resource resource;     /* what the call acts on */
    bool http;
} sm_identity;

/* Documents are made in the arena and must not outlive it; `nonce` as for sm_key_make. Afterwards
 * `k->preimage` holds what was hashed, if anything was. SEMEL_E_UNKNOWN_TOOL or
 * SEMEL_E_BAD_ARGUMENTS with a sentence when the call is refused; nothing has run. */
sm_err sm_identify(sm_arena *a, sm_keyer *k, const sm_contracts *set, const sm_parsed_call *call,
                   const uint8_t *nonce, sm_identity *out, sm_fault *fault);

/* What a contract says of an HTTP request before it is asked for. All false if the contract refuses
 * it. */
typedef struct sm_look {
    bool reads;          /* it only reads, and needs no record */
    bool asks;           /* a person has to approve it */
    const sm_json *args; /* its arguments, if either is set */
} sm_look;

void sm_call_look(sm_arena *a, const sm_contracts *set, sm_str tool, sm_str args, sm_look *out);

/* Whether a call needs approval. An HTTP request that servers may read as another one does,
 * whatever the contract's conditions say: they judge what it seems to be. */
bool sm_identity_asks(sm_arena *a, const sm_identity *id);

/* How a call compares with an earlier one of the same key. */
typedef enum sm_drift {
    SM_SAME,      /* equal full arguments, under the same variant */
    SM_DRIFTED,   /* other arguments, in places that do not matter */
    SM_CONFLICTS, /* other arguments where they do, or another variant: KEY_CONFLICT (I6) */
} sm_drift;

/* Both identities under the same set of contracts. */
sm_drift sm_identity_drift(const sm_identity *earlier, const sm_identity *later);

/* Whether the contract redacts a header of an HTTP request that must match and is not part of the
 * key: then the stored arguments cannot show that it does. */
bool sm_hides_header(const sm_identity *id);

/* What stands in the place of a value that is not stored. */
#define SM_REDACTED "[redacted]"

/* The arguments as they may be stored: where the contract redacts, a mark stands instead. In the
 * body, form or query of an HTTP request, it stands for every value whose name is that of a secret,
 * too (core/request.h). */
sm_err sm_redact(sm_arena *a, const sm_identity *id, const sm_json **out);

#endif
