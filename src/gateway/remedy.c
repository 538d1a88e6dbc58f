/* Effects that nobody asks for any more. */
#include "gateway/run.h"
