/* Seals: what their bodies say. */
#ifndef SM_LEDGER_TRAIL_SEAL_H
#define SM_LEDGER_TRAIL_SEAL_H

#include "base/buf.h"
#include "base/digest.h"
#include "json/json.h"
#include "ledger/work/ledger.h"
#include "semel/store.h"

/* "sealed" covers the events with from <= seq <= to; "purged" says that those up to `to` were
 * removed, under seals that stay. */
typedef struct sm_seal {
    bool purged;
    bool keyed;
    uint64_t from, to, events;
    uint64_t sealed; /* "purged": up to where events were sealed when it was written */
    sm_hash digest;
} sm_seal;

/* False if the event is no seal that makes sense. `a` is for reading and is reset. */
bool sm_seal_parse(sm_arena *a, const semel_event *e, sm_seal *out);

/* Writes a seal after the newest one, which is in `h`. SEMEL_E_STALE: somebody else has sealed. */
sm_err sm_seal_write(semel *s, sm_work *w, const semel_health *h, const sm_seal *seal,
                     semel_fault *fault);

/* The newest position that is covered by a seal, and whether that seal has a key. */
sm_err sm_seal_covered(semel *s, sm_work *w, const semel_health *h, uint64_t *to, bool *keyed,
                       semel_fault *fault);

#endif
