/* To come. */
#include "gateway/request.h"
