/* Claims that were taken and neither committed nor given back. */
#ifndef SM_LEDGER_TRAIL_UNENDED_H
#define SM_LEDGER_TRAIL_UNENDED_H

#include "ledger/work/ledger.h"

/* Who began the newest attempt of an effect, if its end was never told; else absent. The text lives
 * in the workspace. */
sm_err sm_unended_by(semel *s, sm_work *w, const sm_handle *effect, sm_str *actor,
                     semel_fault *fault);

#endif
