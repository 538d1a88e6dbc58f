/* To come. */
#include "effect/upstream.h"
