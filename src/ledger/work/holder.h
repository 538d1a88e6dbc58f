/* Who runs an attempt, and whether they are still there. */
#ifndef SM_LEDGER_WORK_HOLDER_H
#define SM_LEDGER_WORK_HOLDER_H

#include "core/record.h"

/* This process. A zero pid if the system does not tell. */
void sm_holder_self(sm_holder *out);

/* Whether a holder is surely no more: it was a process of this boot and this pid namespace, and is
 * not there. False if that cannot be told from here. `self` is this process. */
bool sm_holder_gone(const sm_holder *h, const sm_holder *self);

/* Whether `sm_holder_gone` could ever say so. */
bool sm_holder_near(const sm_holder *h, const sm_holder *self);

#endif
