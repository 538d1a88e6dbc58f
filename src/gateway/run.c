/* Runs. */
#include "gateway/run.h"
