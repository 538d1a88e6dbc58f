/*
 * A secret of the ledger: 32 random bytes, made by the first process that needs them and the same
 * for all. What must be compared but not read is kept as a hash under this key, such as the
 * destinations of limits. The bytes are in no answer, event, list or export.
 */
#ifndef SM_LEDGER_GUARD_SECRET_H
#define SM_LEDGER_GUARD_SECRET_H

#include "ledger/work/ledger.h"

/* Reads the secret, or makes it. A handle asks the store once. */
sm_err sm_secret_get(semel *s, const sm_hash **out, semel_fault *fault);

void sm_secret_fini(semel *s);

#endif
