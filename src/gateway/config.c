/* To come. */
#include "gateway/config.h"
