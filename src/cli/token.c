/* semel token. */
#include "cli/cli.h"
