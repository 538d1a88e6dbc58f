/*
 * What guards share through the ledger: small documents that all of its processes read and write.
 *
 * A document is kept like an effect, so that every store can hold it, every change of it is in the
 * audit trail, and its bytes are covered by the chain. No call can have its name: a scope of a call
 * does not begin with '/'. Lists of effects leave it out (sm_is_shared).
 */
#ifndef SM_LEDGER_GUARD_SHARED_H
#define SM_LEDGER_GUARD_SHARED_H

#include "ledger/work/ledger.h"

/* Names a document. */
typedef struct sm_shared {
    const char *kind; /* its scope: "/board" */
    sm_str of;        /* what it is about; absent: it is the only one */
    int64_t keep_ms;  /* how long it is kept after its last change; 0: for ever */
} sm_shared;

/* Whether a record is such a document, and not an effect. */
static inline bool sm_is_shared(const semel_record *r)
{
    return r->scope.n > 0 && r->scope.p[0] == '/';
}

/* Whether an event begins the history of such a document. */
bool sm_shared_begins(const semel_event *e);

/* Reads it into w->cur, and its text: absent if there is none. */
sm_err sm_shared_read(semel *s, sm_work *w, const sm_shared *doc, sm_str *text);

/* Writes it anew after sm_shared_read: `note` and what the caller has put into the event's body say
 * why. SEMEL_E_STALE: others were faster; read it again. */
sm_err sm_shared_write(semel *s, sm_work *w, const sm_shared *doc, sm_str text, sm_history note,
                       sm_str actor);

#endif
