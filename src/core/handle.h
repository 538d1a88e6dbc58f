/* Numbers that name an effect in public, derived from its key. */
#ifndef SM_CORE_HANDLE_H
#define SM_CORE_HANDLE_H

#include <stdint.h>

#include "base/digest.h"

/* The first eight bytes, big endian, of SHA-256("semel-effect-1" || key). */
sm_err sm_effect_id(sm_digest *d, const sm_hash *key, uint64_t *id);

#endif
