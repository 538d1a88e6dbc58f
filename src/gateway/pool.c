/* To come. */
#include "gateway/pool.h"
