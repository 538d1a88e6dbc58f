/* To come. */
#include "gateway/gateway.h"
