/* semel serve. */
#include "cli/cli.h"
