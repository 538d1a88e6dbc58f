/* To come. */
#include "ledger/service.h"
