/* Those who wait. */
#include "gateway/run.h"
