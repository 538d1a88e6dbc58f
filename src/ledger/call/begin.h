/*
 * A call on its way through begin: what its files share.
 */
#ifndef SM_LEDGER_CALL_BEGIN_H
#define SM_LEDGER_CALL_BEGIN_H

#include "ledger/work/ledger.h"

typedef struct sm_asking sm_asking; /* service.h */

typedef struct sm_begun {
    semel *s;
    semel_answer *a;
    sm_work *w;
    const semel_call *given;
    sm_asking *asking;             /* NULL: whoever calls waits here */
    const sm_contracts *contracts; /* NULL: those in use */
    sm_parsed_call call;
    sm_identity id;
    sm_str actor;
    int64_t lease_ms;
    int64_t deadline_ns;
    /* what is waited for */
    uint64_t joined_generation;
    uint64_t joined_fence;
    uint64_t joined_request;
    bool again;          /* it has been asked for before */
    bool waits;          /* there is something to wait for */
    bool memory;         /* answered from this process' memory: nothing is read */
    bool probes;         /* it has a place as a probe of its circuit, */
    uint64_t turn;       /* under this number; 0: it never asked for one */
    bool unread;         /* whether there is a record is not known before the write tells */
    const char *despite; /* an undo: what was stopped, and does not keep it from running */
    bool undoes;         /* a person undoes something */
    bool settled;        /* what runs beside it under a barrier was looked at */
} sm_begun;

/* A person undoes something. */
static inline bool sm_begun_undoes(const sm_begun *b)
{
    return b->undoes;
}

/* Whether a call is the one that undoes the effect that its key names: SM_OK, or
 * SEMEL_E_BAD_ARGUMENTS with a sentence (undo.c). */
sm_err sm_undo_check(semel *s, const semel_call *call, sm_fault *fault);

/* From what was given to call, contract and identity (begin_call.c). */
sm_err sm_begun_read(sm_begun *b);

bool sm_begun_asks(const sm_begun *b); /* whether these arguments need approval */

/* Lets the life cycle judge the call about w->cur, or about nothing if its version is 0. */
sm_err sm_begun_judge(sm_begun *b);

/* An attempt is about to begin. It is refused if this handle knows how the attempt before it has
 * ended and has yet to record that. If this handle runs an attempt of the same effect that the
 * ledger has lost, that one is put back, and *again says to look again. *code refuses the new
 * attempt (I2) if the lost one runs and cannot be put back yet, or if the caller has waited for it
 * or has run one. UPSTREAM_TIMEOUT: a probe found that the caller's attempt was not applied, and
 * the background runs it again. */
sm_err sm_begun_lost(sm_begun *b, bool *again, semel_code *code);

/* The step is not taken. True if the call is refused, false if it waits: at UPSTREAM_TIMEOUT others
 * work on the effect. */
bool sm_begun_hold(sm_begun *b, semel_code code, bool *done);

/* Answers (begin_answer.c): a refusal; a replay, `joined` if the caller has waited for the attempt;
 * execute without a claim, for reads, calls without identity, and what observe mode lets by; and
 * that the other effect in w->cur bars the call. */
sm_err sm_begun_refuse(sm_begun *b, semel_code code);
sm_err sm_begun_replay(sm_begun *b, semel_code code, bool joined);
sm_err sm_begun_pass(sm_begun *b, sm_jot what);
sm_err sm_begun_blocked(sm_begun *b);

/* `e` and the answer are what the ledger said. If that does not tell what became of an attempt that
 * this handle runs or has run, the handle's own table does (held.c). */
sm_err sm_begun_held(sm_begun *b, sm_err e);

#endif
