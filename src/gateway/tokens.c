/* To come. */
#include "gateway/tokens.h"
