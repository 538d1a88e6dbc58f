/*
 * Asking another tool whether something was done: what it is asked with, and what its answer means.
 *
 * One place for both, whoever does the asking, so that a contract means the same everywhere.
 */
#ifndef SM_CORE_PROBE_H
#define SM_CORE_PROBE_H

#include "core/contract.h"
#include "core/transition.h"

/* The arguments of the probe's tool, taken from those of the call that is in doubt. A place that is
 * absent there stays absent. */
sm_err sm_probe_args(sm_arena *a, const sm_probe *probe, const sm_json *args, const sm_json **out,
                     sm_fault *fault);

/* What an answer means. `said` is NULL if it is none that can be judged: UNKNOWN. `failed`: the
 * tool says that it found nothing, which can show that something is absent and never that it was
 * applied. With APPLIED *outcome is, as JSON text in the arena, what the effect's outcome is said
 * to be; it is absent if the answer does not have it. */
sm_found_kind sm_probe_judge(sm_arena *a, const sm_probe *probe, const sm_json *said, bool failed,
                             sm_str *outcome);

#endif
