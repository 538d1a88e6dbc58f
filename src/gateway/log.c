/* To come. */
#include "gateway/log.h"
