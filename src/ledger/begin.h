/*
 * A call on its way through begin: what its files share.
 */
#ifndef SM_LEDGER_BEGIN_H
#define SM_LEDGER_BEGIN_H

#include "ledger/ledger.h"

typedef struct sm_asking sm_asking; /* service.h */

typedef struct sm_begun {
    semel *s;
    semel_answer *a;
    sm_work *w;
    const semel_call *given;
    sm_asking *asking;             /* NULL: whoever calls waits here */
    const sm_contracts *contracts; /* NULL: those in use */
    sm_call call;
    sm_identity id;
    sm_str actor;
    int64_t lease_ms;
    int64_t deadline_ns;
    /* what is waited for */
    uint64_t joined_generation;
    uint64_t joined_fence;
    uint64_t joined_request;
    bool again;   /* it has been asked for before */
    bool waits;   /* there is something to wait for */
    bool settled; /* what runs beside it under a barrier was looked at */
} sm_begun;

/* From what was given to call, contract and identity (begin_call.c). */
sm_err sm_begun_read(sm_begun *b);

/* Compares the call with the recorded one of the same key, w->cur, and notes in the answer what
 * differs. */
sm_err sm_begun_compare(sm_begun *b, sm_drift *out);

#endif
