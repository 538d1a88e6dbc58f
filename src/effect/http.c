/* To come. */
#include "effect/http.h"
